"""Runs a folder of self-checking StableHLO programs on the xlane device, and on JAX's own CPU for comparison.

usage: python test/tool/suite.py FOLDER [--device xlane|cpu] [--only TEXT] [--timeout S] [--out FILE]

The programs are those of the StableHLO project (`stablehlo/testdata`, `stablehlo/tests/interpret`): each computes a
value and calls `check.expect_eq`, `check.expect_close` and their like on it. No device executes these checks, so a
program is rewritten: what a check compares becomes the program's results, and the comparison is made here, with the
tolerance of the check. Programs run in a worker process, many each; one that crashes or hangs costs itself only. One
line a program: `ok`, `FAIL`, `REFUSED` (does not compile), `CRASH` or `HANG`; then the sums. With --out the lines go to
a file that another run can be compared with (--against FILE: lists what passed there and does not here). The exit
status is 1 when something crashed or hung, or when less than 97% passed of what FILE passed."""
import argparse, glob, json, os, re, select, subprocess, sys, time

NAME = r'%[\w.$-]+(?:#\d+)?'
TYPED = re.compile(r'stablehlo\.custom_call @check\.(expect_\w+)\((' + NAME + r'),\s*(' + NAME
                   + r')\)\s*(\{[^}]*\})?\s*:\s*\((tensor<[^>]*>+),\s*(tensor<[^>]*>+)\)\s*->\s*(?:\(\)|tuple<>)')
EQUAL = re.compile(r'check\.(expect_(?:eq|almost_eq|close))\s+(' + NAME + r'),\s*(' + NAME + r')((?:,\s*\w+\s*=\s*[^,:]+:\s*\w+|,\s*\w+\s*=\s*[^,:{]+)*)\s*:\s*(tensor<[^>]*>+)(?:,\s*tensor<[^>]*>+)?')
CONST = re.compile(r'check\.(expect_(?:eq|almost_eq)_const)\s+(' + NAME
                   + r'),\s*(dense<.*?>)((?:,\s*\w+\s*=\s*[^,:]+?(?::\s*\w+)?)*)\s*:\s*(tensor<[^>]*>+)', re.S)
FUNC = re.compile(r'func\.func\s+(?:public\s+|private\s+)?@([\w.$-]+|"[^"]*")\s*\(')


def functions(text):
    """(name, start, start of the body, end) of every function: braces are matched, strings skipped."""
    out = []
    for m in FUNC.finditer(text):
        i, depth, body = m.end(), 1, None
        while depth:                                  # the arguments
            depth += {'(': 1, ')': -1}.get(text[i], 0)
            i += 1
        rest = re.match(r'\s*(->\s*)?', text[i:])
        i += rest.end()
        if rest.group(1):                             # the results, with or without parentheses
            if text[i] == '(':
                depth = 1
                i += 1
                while depth:
                    depth += {'(': 1, ')': -1}.get(text[i], 0)
                    i += 1
            else:
                i = re.compile(r'\S+').match(text, i).end()
        attrs = re.match(r'\s*attributes\s*', text[i:])
        if attrs:
            i = text.index('}', i) + 1
        i = text.index('{', i)
        body, depth, i, quoted = i, 1, i + 1, False
        while depth:
            c = text[i]
            if c == '"':
                quoted = not quoted
            elif not quoted:
                depth += {'{': 1, '}': -1}.get(c, 0)
            i += 1
        out.append((m.group(1), m.start(), body, i))
    return out


def rewrite(text, name):
    """Programs (name, text, [(check, tolerance)]) in which what is checked is returned."""
    text = re.sub(r'^\s*//.*$', '', text, flags=re.M)
    fs = functions(text)
    out = []
    for f, start, body, end in fs:
        code = text[body:end]
        if '"interpreter.' in code or 'interpreter.' in code and 'run_parallel' in code:
            continue
        checks, values, types, extra = [], [], [], [0]

        def note(kind, a, b, t, u, how):
            checks.append((kind, how or ""))
            values.extend((a, b))
            types.extend((t, u))
            return ""

        def constant(m):
            extra[0] += 1
            v = "%%check_%d" % extra[0]
            note(m.group(1)[:-6], m.group(2), v, m.group(5), m.group(5), m.group(4))
            return "%s = stablehlo.constant %s : %s" % (v, m.group(3), m.group(5))

        code = TYPED.sub(lambda m: note(m.group(1), m.group(2), m.group(3), m.group(5), m.group(6), m.group(4)), code)
        code = CONST.sub(constant, code)
        code = EQUAL.sub(lambda m: note(m.group(1), m.group(2), m.group(3), m.group(5), m.group(5), m.group(4)), code)
        if not checks:
            continue
        last = [m for m in re.finditer(r'^\s*(?:func\.)?return\b.*$', code, re.M)][-1]
        code = code[:last.start()] + "\n    func.return %s : %s\n" % (", ".join(values),
            ", ".join(types)) + code[last.end():]
        head = "func.func public @main() -> (%s) " % ", ".join(types)
        others = [text[s:e] for g, s, b, e in fs if g != f and re.search('@' + re.escape(g) + r'(?![\w.$-])',
            text[:start] + text[body:])]
        out.append((name if f == "main" else name + ":" + f, "module {\n" + head + code + "\n" + "\n".join(others)
                    + "\n}\n", checks))
    return out


def programs(folder, only):
    for path in sorted(glob.glob(os.path.join(folder, "**", "*.mlir"), recursive=True)):
        name = os.path.relpath(path, folder)[:-5]
        with open(path) as f:
            text = f.read()
        for part in text.split("// -----"):
            try:
                found = rewrite(part, name)
            except (IndexError, ValueError, AttributeError) as e:
                print("cannot rewrite %s: %s" % (name, e), file=sys.stderr)
                continue
            for p in found:
                if not only or re.search(only, p[0]):
                    yield p


def worker(device):
    sys.path.pop(0)                                  # modules beside this file are not to be taken for others
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    lib = os.environ.get("XLANE_CPU_PLUGIN", os.path.join(here, "build", "libxlane-cpu.so"))
    if device != "cpu":
        os.environ["JAX_PLATFORMS"] = device + ",cpu"
        os.environ.setdefault("PJRT_NAMES_AND_LIBRARY_PATHS", device + ":" + lib)
    import numpy as np
    import jax
    from jax._src.lib import xla_client as xc
    jax.config.update("jax_enable_x64", True)
    dev = jax.devices(device)[0]

    def ordered(x):
        """Floats as integers in the same order, for distances in units of the last place."""
        n = x.dtype.itemsize
        i = x.view("u%d" % n).astype(object) if n == 8 else x.view("u%d" % n).astype(np.int64)
        top = 1 << (8 * n - 1)
        return np.where(i >= top, top - i, i)

    def compare(kind, how, a, b):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            return "type or shape: %s%s, not %s%s" % (a.dtype, a.shape, b.dtype, b.shape)
        if a.dtype.kind == "c":
            part = np.float32 if a.dtype == np.complex64 else np.float64
            a, b = a.reshape(-1).view(part), b.reshape(-1).view(part)
        a, b = np.atleast_1d(a).ravel(), np.atleast_1d(b).ravel()
        isfloat = a.dtype.kind == "f" or "float" in a.dtype.name
        with np.errstate(all="ignore"):
            if not isfloat:
                ok = a.astype(object) == b.astype(object)
            else:
                ok = (a == b) | ((a != a) & (b != b))
                if kind == "expect_almost_eq":
                    m = re.search(r'tolerance\s*=\s*([0-9.eE+-]+)', how)
                    x, y = a.astype(np.float64), b.astype(np.float64)
                    ok |= np.abs(x - y) <= (float(m.group(1)) if m else 0.001)
                elif kind == "expect_close":
                    m = re.search(r'max_ulp_difference\s*=\s*(\d+)', how)
                    ok |= (np.abs(ordered(a) - ordered(b)) <= (int(m.group(1)) if m
                        else 3)).astype(bool) & (a == a) & (b == b)
        ok = np.asarray(ok, bool)
        if ok.all():
            return None
        i = int(np.argmin(ok))
        return "%s: %r, not %r (at %d of %d, %d differ)" % (kind, a[i], b[i], i, a.size, int((~ok).sum()))

    for line in sys.stdin:
        text, checks = json.loads(line)
        try:
            exe = dev.client.compile_and_load(text, xc.DeviceList((dev,)), xc.CompileOptions())
        except Exception as e:
            print("REFUSED " + str(e).replace("\n", " ")[:300], flush=True)
            continue
        try:
            res = [np.asarray(r) for r in exe.execute([])]
            bad = [w for i, (k, how) in enumerate(checks) for w in [compare(k, how, res[2 * i], res[2 * i + 1])] if w]
            print("FAIL " + bad[0].replace("\n", " ")[:300] if bad else "ok", flush=True)
        except Exception as e:
            print("FAIL " + (type(e).__name__ + ": " + str(e)).replace("\n", " ")[:300], flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("--device", default="xlane")
    ap.add_argument("--only", default="")
    ap.add_argument("--timeout", type=float, default=20)
    ap.add_argument("--out")
    ap.add_argument("--against")
    ap.add_argument("--worker", action="store_true")
    ap.add_argument("--dump", action="store_true", help="print the rewritten programs instead of running them")
    a = ap.parse_args()
    if a.worker:
        return worker(a.device)
    before = {}
    if a.against:
        with open(a.against) as f:
            before = dict(l.rstrip("\n").split("\t", 1) for l in f)
    child, lines, sums, t0 = None, [], {}, time.time()
    for name, text, checks in programs(a.folder, a.only):
        if a.dump:
            print("// %s\n%s" % (name, text))
            continue
        first = child is None
        if first:
            child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", "--device", a.device,
                                      a.folder],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            child.stdin.write((json.dumps([text, checks]) + "\n").encode())
            child.stdin.flush()
            said = b"" if select.select([child.stdout], [], [], a.timeout + (60 if first else 0))[0] else None
            said = child.stdout.readline() if said is not None else None
        except BrokenPipeError:
            said = b""
        if said is None:
            child.kill()
            child.wait()
            child, verdict = None, "HANG"
        elif not said:
            verdict = "CRASH status %d" % child.wait()
            child = None
        else:
            verdict = said.decode().rstrip("\n")
        lines.append((name, verdict))
        sums[verdict.split()[0]] = sums.get(verdict.split()[0], 0) + 1
        if verdict != "ok" and (not before or before.get(name) == "ok"):
            print("%s %s" % (verdict.split()[0], name + ": " + verdict.partition(" ")[2]), flush=True)
    if child:
        child.stdin.close()
        child.wait()
    if a.out:
        with open(a.out, "w") as f:
            f.writelines("%s\t%s\n" % l for l in lines)
    print("%s: %d programs in %.0f s: %s" % (a.device, len(lines), time.time() - t0,
                                             ", ".join("%d %s" % (n, k) for k, n in sorted(sums.items()))))
    wanted = [n for n, v in lines if not before or before.get(n) == "ok"]
    got = [n for n, v in lines if v == "ok" and (not before or before.get(n) == "ok")]
    if before:
        print("of %d that passed there, %d pass here (%.2f%%)" % (len(wanted), len(got),
            100.0 * len(got) / max(1, len(wanted))))
    return 1 if sums.get("CRASH") or sums.get("HANG") or len(got) < 0.97 * len(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
