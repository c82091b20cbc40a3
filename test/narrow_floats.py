"""The narrow floats against ml_dtypes: every code read, every code's neighbourhood and random values written."""
import ctypes, os, platform, subprocess, sys, tempfile, warnings
import numpy as np
import ml_dtypes

warnings.simplefilter("ignore")
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
failed = 0
NAMES = {"f4E2M1FN": "float4_e2m1fn", "f6E2M3FN": "float6_e2m3fn", "f6E3M2FN": "float6_e3m2fn", "f8E3M4": "float8_e3m4",
         "f8E4M3": "float8_e4m3", "f8E4M3FN": "float8_e4m3fn", "f8E4M3FNUZ": "float8_e4m3fnuz",
         "f8E4M3B11FNUZ": "float8_e4m3b11fnuz", "f8E5M2": "float8_e5m2", "f8E5M2FNUZ": "float8_e5m2fnuz",
         "f8E8M0FNU": "float8_e8m0fnu", "f16": "float16", "bf16": "bfloat16"}


def report(name, bad):
    global failed
    print(("FAIL " if bad else "ok ") + name + (": " + bad if bad else ""))
    failed += bool(bad)


def same(a, b):
    """Equal bits, any NaN equal to any NaN."""
    return np.where(np.isnan(a) | np.isnan(b), np.isnan(a) & np.isnan(b), (a == b) & (np.signbit(a) == np.signbit(b)))


def check(lib, name, dtype):
    code = np.uint16 if dtype.itemsize == 2 else np.uint8
    codes = np.arange(2 ** int(name[1] if name[1] in "468" else 16)).astype(code)
    values = codes.view(dtype).astype(np.float32)
    out = np.empty(codes.size, np.float32)
    fn = lambda suffix: getattr(lib, "xl_%s_%s" % (name, suffix))
    ptr = lambda a: a.ctypes.data_as(ctypes.c_void_p)
    fn("to_f32")(ptr(out), ptr(codes), ctypes.c_size_t(codes.size))
    ok = same(out, values)
    if not ok.all():
        i = int(np.argmin(ok))
        return "code %#x reads as %r, not %r" % (codes[i], out[i], values[i])
    out64 = np.empty(codes.size, np.float64)
    fn("to_f64")(ptr(out64), ptr(codes), ctypes.c_size_t(codes.size))
    if not same(out64, values.astype(np.float64)).all():
        return "to_f64 differs from to_f32"
    finite = np.unique(values[np.isfinite(values)])
    mid = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    edge = np.concatenate([finite, mid, 2 * finite, 1.5 * finite, np.float32([0, -0.0, np.inf, -np.inf, np.nan, -np.nan,
        1e-45, 3.4e38])])
    edge = np.concatenate([edge, np.nextafter(edge, np.float32(np.inf)), np.nextafter(edge, np.float32(-np.inf))])
    rng = np.random.default_rng(1)
    x = np.concatenate([edge, rng.integers(0, 2**32, 1 << 20, dtype=np.uint32).view(np.float32),
                        rng.standard_normal(1 << 18).astype(np.float32)])
    want = x.astype(dtype).view(code)
    got = np.empty(x.size, code)
    fn("from_f32")(ptr(got), ptr(x), ctypes.c_size_t(x.size))
    bad = (got != want) & ~(np.isnan(x) & (dtype.itemsize == 2))  # a NaN's payload is nobody's business
    if bad.any():
        i = int(np.argmax(bad))
        return "%r becomes %#x, not %#x" % (x[i], got[i], want[i])
    # f64: values a hair beside each midpoint must not be rounded twice. ml_dtypes goes through f32, so it is asked
    # about the f32 neighbour on the same side, which no midpoint separates from the double.
    mid = mid[np.abs(mid) > 1e-37]
    side = np.repeat([-1, 0, 1], mid.size)
    f = np.tile(mid, 3)
    hair = f.astype(np.float64) * (1 + side * 2.0**-50)
    far = np.nextafter(f, np.where(side * np.sign(f) > 0, np.float32(np.inf), np.float32(-np.inf)))
    want = np.concatenate([np.where(side == 0, f, far), x]).astype(dtype).view(code)
    x = np.concatenate([hair, x.astype(np.float64)])
    got = np.empty(x.size, code)
    fn("from_f64")(ptr(got), ptr(x), ctypes.c_size_t(x.size))
    bad = (got != want) & ~(np.isnan(x) & (dtype.itemsize == 2))
    if bad.any():
        i = int(np.argmax(bad))
        return "double %r becomes %#x, not %#x" % (x[i], got[i], want[i])
    return ""


with tempfile.TemporaryDirectory() as tmp:
    so = os.path.join(tmp, "dtype.so")
    source = [os.path.join(root, "src/cpu/kernel/dtype.c")]
    features = os.path.join(tmp, "features.c")           # f16 by the CPU's conversions too, if they are there
    cpu = platform.machine() == "x86_64" and {"avx2", "f16c"} <= set(open("/proc/cpuinfo").read().split())
    with open(features, "w") as f:
        f.write('#include "cpu/run/feature.h"\nextern uint32_t have;\nuint32_t have;\n'
                'uint32_t xl_cpu_features(void) { return have; }\n')
    flags = [os.environ.get("CC", "cc"), "-std=c11", "-O3", "-ffp-contract=off", "-fPIC",
             "-I" + os.path.join(root, "src")]
    if platform.machine() == "x86_64":
        source += [os.path.join(tmp, "half.o")]
        subprocess.check_call(flags + ["-mavx2", "-mf16c", "-c", os.path.join(
            root, "src/cpu/arch/x86_64/half_f16c.c"), "-o", source[-1]])
    subprocess.check_call(flags + ["-shared", features] + source + ["-o", so])
    lib = ctypes.CDLL(so)
    for name, np_name in NAMES.items():
        report("dtype_" + name, check(lib, name, np.dtype(getattr(ml_dtypes, np_name, np_name))))
    if cpu:
        p = lambda a: a.ctypes.data_as(ctypes.c_void_p)
        x = np.concatenate([np.random.default_rng(3).integers(0, 2**32, (1 << 20) + 5, dtype=np.uint32),
                            np.uint32([0x7fc00001, 0xffc00000, 0x7f800001, 0x33000000, 0x33000001])]).view(np.float32)
        stored = [np.empty(x.size, np.uint16) for _ in range(2)]
        for have in range(2):
            ctypes.c_uint32.in_dll(lib, "have").value = 0xffffffff * have
            lib.xl_f16_from_f32(p(stored[have]), p(x), ctypes.c_size_t(x.size))
        report("dtype_f16_of_the_cpu", check(lib, "f16", np.dtype(np.float16)) or
               ("" if (stored[0] == stored[1]).all() else "the CPU's conversion gives other bits"))
    for bits in (2, 4, 6):
        x = np.random.default_rng(bits).integers(0, 256, 1003).astype(np.uint8)
        packed = np.zeros((1003 * bits + 7) // 8, np.uint8)
        back = np.zeros(1003, np.uint8)
        p = lambda a: a.ctypes.data_as(ctypes.c_void_p)
        lib.xl_bits_pack(p(packed), p(x), ctypes.c_size_t(1003), bits)
        lib.xl_bits_unpack(p(back), p(packed), ctypes.c_size_t(1003), bits)
        flat = ((x[:, None] >> np.arange(bits)) & 1).ravel()
        want = np.packbits(flat, bitorder="little")
        report("dtype_pack%d" % bits, "" if (packed == want).all() and (back == x & (2**bits - 1)).all()
               else "differs from numpy's packbits")
sys.exit(failed != 0)
