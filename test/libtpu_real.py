"""The real libtpu on a machine without a TPU: the probe says no-device within seconds, and it compiles a program of
ours for v6e:2x2 through pjrt/. libtpu exists for x86-64 only: there this runs as it is; elsewhere, in `./x test all`,
under box64 or qemu-user with a cross-built xlane. XLANE_LIBTPU names a libtpu.so that is there already; otherwise it is
downloaded once into build/dl."""
import glob, json, os, shutil, subprocess, sys, tempfile, time, zipfile
import _x86
from _check import check, end

native = _x86.NATIVE
everything = os.environ.get("XLANE_TEST_ALL") == "1"


def skip(why):
    print("skip libtpu: " + why)
    sys.exit(0)


def library():
    named = os.environ.get("XLANE_LIBTPU")
    if named:
        return named
    found = glob.glob("build/venv/lib/python3*/site-packages/libtpu/libtpu.so") if native else []
    if found:
        return found[0]
    path = "build/dl/libtpu/libtpu.so"
    if not os.path.exists(path):
        r = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                            "-d", "build/dl",
                            "--platform", "manylinux_2_31_x86_64", "--python-version", "311", "--only-binary=:all:", "libtpu"],
                           capture_output=True, text=True, timeout=600)
        wheels = glob.glob("build/dl/libtpu-*.whl")
        if r.returncode or not wheels:
            skip("it cannot be downloaded here: " + r.stderr.strip().splitlines()[-1][:200] if r.stderr.strip()
                 else "no wheel")
        with zipfile.ZipFile(sorted(wheels)[-1]) as z:
            z.extract("libtpu/libtpu.so", "build/dl")
    return path


if not native and not everything:
    skip("it is for x86-64; ./x test all runs it under an emulator")
run, build = [], "build"
if not native:
    run, build = _x86.emulator(), "build/x86_64-linux-gnu"
    if run is None or not shutil.which("x86_64-linux-gnu-gcc"):
        skip("no box64 or qemu-x86_64, or no x86_64-linux-gnu-gcc")
    r = subprocess.run(["make", "-j2", "CROSS=x86_64-linux-gnu-", build + "/xlane", build + "/test/tool/pjrt"],
                       capture_output=True, text=True)
    if r.returncode:
        skip("no cross build: " + r.stderr.strip().splitlines()[-1][:200])
libtpu = os.path.abspath(library())
have_tpu = bool(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))


def probe(command):
    start = time.time()
    r = subprocess.run(command + ["probe", "--json", "--plugin=" + libtpu], capture_output=True, text=True)
    return json.loads(r.stdout), r.returncode, time.time() - start


if not native:
    p, code, _ = probe(["build/xlane"])
    check("other_machine", p["class"] == "will-not-load" and "this file is for x86-64, this machine is" in p["reason"]
          and code == 1, p)

if have_tpu:
    print("skip no_device: this machine has a TPU")
else:
    p, code, seconds = probe(run + [build + "/xlane"])
    check("no_device", p["class"] == "no-device" and code == 1, p)
    check("true_reason", "TPU initialization failed" in p["reason"], p["reason"])
    check("version_and_range", p["api"]["minor"] >= 57 and p["bundle"]["stablehlo_current"].count(".") == 2
          and p["bundle"]["plugin_build_id"] != "", p["bundle"])


def aot(topology, text):
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as f:
        f.write(text)
        f.flush()
        env = dict(os.environ, TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1")
        return subprocess.run(run + [build + "/test/tool/pjrt", "aot", libtpu, topology, f.name], capture_output=True,
                              text=True,
                              env=env, timeout=600)


def program(n):
    t = f"tensor<{n}x{n}xf32>"
    return (f"func.func @main(%a: {t}, %b: {t}) -> {t} {{\n  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
            f"({t}, {t}) -> {t}\n  %1 = stablehlo.add %0, %a : {t}\n  return %1 : {t}\n}}\n")


start = time.time()
r = aot("v6e:2x2", program(128))
compiling = time.time() - start
lines = dict(line.split(" ", 1) for line in r.stdout.splitlines() if " " in line)
check(f"compiles_for_v6e_2x2 ({lines.get('compiled')})", r.returncode == 0 and lines.get("devices") == "4 TPU v6 lite",
      r.stdout + r.stderr[-800:])
if not have_tpu:  # asking the cloud's metadata server would take minutes
    check(f"in_time ({seconds:.1f} s)", seconds < 3 * compiling, (seconds, compiling))
check("memory_of_the_program", lines.get("memory", "").startswith("arguments 131072 outputs 65536 "), lines)
check("flops", abs(float(lines.get("flops", 0)) / (2 * 128**3) - 1) < 0.05, lines)
check("serialises", int(lines.get("serialised", "0 ").split()[0]) > 1000
      and lines.get("fingerprint", "0 ") != "0 bytes", lines)
check("optimised_program", lines.get("optimised", "").startswith("hlo_with_config "), lines)
r = aot("v6e:2x2", program(200000))
check("too_large_for_its_memory_is_told", r.returncode == 1 and "CompileTimeHbmOom" in r.stderr, r.stderr[-800:])
r = aot("v6e-8", program(8))
check("a_wrong_topology_is_an_error", r.returncode == 1 and "pjrt: " in r.stderr, (r.returncode, r.stderr[-800:]))
sys.exit(end())
