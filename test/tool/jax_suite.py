"""Runs JAX's own tests on the xlane device, or on JAX's CPU for comparison.

usage: python test/tool/jax_suite.py TESTS [FILE...] [--device xlane|cpu] [--jobs N] [--only REGEX] [--out FILE]
       python test/tool/jax_suite.py --compare CPU_FILE XLANE_FILE [--table]

TESTS is the folder `tests` of JAX's repository at the version that is installed, FILE the name of one of its files
(all of them unless said). A process of its own, forked from one that has imported JAX, runs each part of a file; a
test that crashes or hangs costs itself only. With --out each test's outcome is a line of FILE: file, test, `ok`,
`skip`, `FAIL`, `CRASH` or `HANG`, and the reason. --compare lists the tests that pass on the CPU and do not here; its
exit status is 1 when there are any. JAX, scipy, absl, hypothesis, mpmath and portpicker must be installed."""
import argparse, collections, json, os, re, select, signal, sys, time

ap = argparse.ArgumentParser()
ap.add_argument("tests")
ap.add_argument("files", nargs="*")
ap.add_argument("--device", default="xlane", choices=("xlane", "cpu"))
ap.add_argument("--jobs", type=int, default=os.cpu_count())
ap.add_argument("--only", default="")
ap.add_argument("--timeout", type=float, default=60)
ap.add_argument("--deadline", type=float, default=0)
ap.add_argument("--cases", default="1", help="how many cases JAX makes of each parametrised test")
ap.add_argument("--part", type=int, default=20000, help="bytes of a test file that make one part")
ap.add_argument("--out")
ap.add_argument("--bad", help="run only the tests that did not pass in this file of outcomes")
ap.add_argument("--compare", action="store_true")
ap.add_argument("--table", action="store_true")

# Files that test another platform, or several processes.
OTHER = re.compile(r"gpu|tpu|rocm|mosaic|multiprocess|triton|cudnn|nccl|fused_attention|scaled_matmul_stablehlo|"
                   r"back_compat|transfer|colocated|pgle|distributed|magma|nvshmem|profiler|documentation_coverage|"
                   r"pallas")


def plain(test):
    """A test's name on one line, without what changes from run to run."""
    return " ".join(re.sub(r"0x[0-9a-f]+", "", test).split())


def read(path):
    with open(path) as f:
        return {(a, b): (c, d) for a, b, c, d in (l.rstrip("\n").split("\t", 3) for l in f)}


def compare(cpu, ours, table):
    x, y = read(cpu), read(ours)
    worse = [k for k in sorted(x) if k in y and x[k][0] in ("ok", "skip") and y[k][0] not in ("ok", "skip")]
    for k in worse:
        print("%s %s %s: %s" % (y[k][0], k[0], k[1], y[k][1][:250]))
    if table:
        print("| file | JAX's CPU: passed, skipped, failed | xlane | worse |\n|---|---|---|---|")
        for f in sorted({k[0] for k in y}):
            cells = []
            for t in (x, y):
                n = collections.Counter({"ok": "ok", "skip": "skip"}.get(v[0], "bad")
                                        for k, v in t.items() if k[0] == f)
                cells.append("%d, %d, %d" % (n["ok"], n["skip"], n["bad"]))
            print("| %s | %s | %s | %d |" % (f, cells[0], cells[1], sum(k[0] == f for k in worse)))
    both = [k for k in y if k in x]
    passed = [sum(t[k][0] == "ok" for k in both) for t in (x, y)]
    print("%d tests on both: %d pass on JAX's CPU, %d on xlane; %d fail here and not there" % (
        len(both), *passed, len(worse)))
    print("%d only there, %d only here" % (len(x) - len(both), len(y) - len(both)))
    return 1 if worse else 0


def child(out, path, name, part, parts, wanted):
    """Runs its part of one file and writes what happens to `out`, a JSON value a line."""
    import unittest, importlib, traceback
    from absl import flags
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)

    def say(*what):
        os.write(out, (json.dumps(what) + "\n").encode())

    class Result(unittest.TestResult):
        bad = None

        def startTest(self, test):
            super().startTest(test)
            self.bad = None
            say("start", test.id())

        def note(self, test, err):
            text = "".join(traceback.format_exception_only(*err[:2])).strip()
            where = [f for f in traceback.extract_tb(err[2]) if f.filename.startswith(path)]
            line = "%s:%d: " % (os.path.basename(where[-1].filename), where[-1].lineno) if where else ""
            self.bad = self.bad or line + " ".join(text.split())[:1500]
            if not hasattr(test, "_testMethodName"):     # the fixture of a class or of the file
                say("end", test.id(), "FAIL", self.bad)

        addFailure = addError = lambda self, test, err: self.note(test, err)

        def addSubTest(self, test, sub, err):
            if err:
                self.note(test, err)

        def addSkip(self, test, reason):
            self.bad = self.bad or ("skip", reason)

        def addUnexpectedSuccess(self, test):
            self.bad = "unexpected success"

        def stopTest(self, test):
            super().stopTest(test)
            if isinstance(self.bad, tuple):
                say("end", test.id(), "skip", " ".join(self.bad[1].split())[:300])
            else:
                say("end", test.id(), "FAIL" if self.bad else "ok", self.bad or "")

    try:
        flags.FLAGS(sys.argv[:1])
        module = importlib.import_module(name)
        found, tests = [unittest.TestLoader().loadTestsFromModule(module)], []
        while found:
            t = found.pop(0)
            if isinstance(t, unittest.TestSuite):
                found[:0] = list(t)
            else:
                tests.append(t)
        tests = [t for t in tests[part::parts] if wanted(t.id().split(".", 1)[-1])]
        unittest.TestSuite(tests).run(Result())
    except BaseException as e:
        say("end", name + ".import.%d" % part, "skip" if isinstance(e, unittest.SkipTest) else "FAIL",
            " ".join(repr(e).split())[:1500])
    say("done")


def main(a):
    os.environ["JAX_NUM_GENERATED_CASES"] = a.cases
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if a.device == "xlane":
        here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        lib = os.environ.get("XLANE_CPU_PLUGIN", os.path.join(here, "build", "libxlane-cpu.so"))
        os.environ.setdefault("PJRT_NAMES_AND_LIBRARY_PATHS", "xlane:" + lib)
    os.environ["JAX_PLATFORMS"] = "xlane,cpu" if a.device == "xlane" else "cpu"
    path = os.path.abspath(a.tests)
    sys.path[:1] = [os.path.dirname(path), path]     # the tests' folder, not the one that this file lies in
    import jax, jax.numpy, jax._src.test_util, scipy.linalg, scipy.special, scipy.stats, absl.testing.parameterized
    names = a.files or sorted(f for f in os.listdir(path) if f.endswith("_test.py") and not OTHER.search(f))
    bad = read(a.bad) if a.bad else {}
    bad = {k for k in bad if bad[k][0] not in ("ok", "skip")}
    units = collections.deque()
    for f in names:
        f = f[:-3] if f.endswith(".py") else f
        if a.bad and not any(k[0] == f for k in bad):
            continue
        with open(os.path.join(path, f + ".py")) as g:
            text = g.read()
        n = max(1, len(text) // a.part)
        devices = re.search(r"request_cpu_devices\((\d+)\)", text)
        units.extend((f, i, n, devices.group(1) if devices else "1") for i in range(n))
    units = collections.deque(sorted(units, key=lambda u: (u[1], -u[2])))
    done = {u[:2]: {} for u in units}
    running, lines, t0, unfinished = {}, [], time.time(), 0

    def end(unit, test, what, why):
        done[unit[:2]][test.split(".", 1)[-1]] = 1
        test = plain(test.split(".", 1)[-1])
        lines.append((unit[0], test, what, why.replace("\t", " ")))
        if what not in ("ok", "skip"):
            print("%s %s %s: %s" % (what, unit[0], test, why[:300]), flush=True)

    while units or running:
        late = a.deadline and time.time() - t0 > a.deadline
        if late:
            unfinished += len(units) + len(running)
            units.clear()
        while units and len(running) < a.jobs:
            unit = units.popleft()
            r, w = os.pipe()
            pid = os.fork()
            if not pid:
                try:
                    os.close(r)
                    os.environ["XLANE_CPU_DEVICES"] = unit[3]
                    child(w, path, *unit[:3], lambda t: t not in done[unit[:2]] and re.search(a.only, t) and
                          (not a.bad or (unit[0], plain(t)) in bad))
                finally:
                    os._exit(0)
            os.close(w)
            running[r] = [pid, unit, b"", None, time.time(), False]
        for r in select.select(list(running), [], [], 1)[0]:
            got = os.read(r, 65536)
            state = running[r]
            state[2] += got
            *whole, state[2] = state[2].split(b"\n")
            for line in whole:
                said = json.loads(line)
                state[4] = time.time()
                if said[0] == "start":
                    state[3] = said[1]
                elif said[0] == "end":
                    state[3] = None
                    end(state[1], *said[1:])
                else:
                    state[5] = True
            if got and not (whole and state[5]):
                continue
            os.close(r)
            del running[r]
            if state[5]:
                os.kill(state[0], signal.SIGKILL)
                os.waitpid(state[0], 0)
                continue
            status = os.waitpid(state[0], 0)[1]
            if state[3]:
                end(state[1], state[3], "CRASH", "status %d" % status)
                units.appendleft(state[1])
            else:
                end(state[1], state[1][0] + ".between_tests.%d" % state[1][1], "CRASH", "status %d" % status)
        for r, state in list(running.items()):
            if late or time.time() - state[4] > a.timeout + (0 if state[3] else 60):
                os.kill(state[0], signal.SIGKILL)
                os.waitpid(state[0], 0)
                os.close(r)
                del running[r]
                if not late:
                    end(state[1], state[3] or state[1][0] + ".import.%d" % state[1][1], "HANG", "%.0f s" % a.timeout)
                    if state[3]:
                        units.appendleft(state[1])
    if a.out:
        with open(a.out, "w") as f:
            f.writelines("\t".join(l) + "\n" for l in sorted(lines))
    sums = collections.Counter(l[2] for l in lines)
    print("%s: %d tests of %d files in %.0f s: %s" % (a.device, len(lines), len(names), time.time() - t0,
                                                      ", ".join("%d %s" % (n, k) for k, n in sorted(sums.items()))))
    if unfinished:
        print("%d parts of files were not finished before the deadline" % unfinished)
    return 0


if __name__ == "__main__":
    a = ap.parse_args()
    sys.exit(compare(a.tests, a.files[0], a.table) if a.compare else main(a))
