"""A restart of a JAX program: compiled anew, with JAX's own compilation cache, and with ours under `xlane run`.

    [JAX_PLATFORMS=cuda] [XLANE_BENCH_PYTHON=python3] ./x bench restart       on the embedded device where JAX_PLATFORMS
    says nothing python3 bench/restart.py 768 12 8 1024 [201]                              width, layers, batch, time,
    steps

The compile part is what JAX itself counts between asking for an executable and having one (its event
backend_compile_duration, over all programs), so it is the same span for all. "grows" is under the profile cuda-short,
where the device's memory is taken as it is needed. They take turns; the first turn
fills the caches and is not counted; the median counts. JAX keeps no cache for platforms it does not know, the embedded
device among them: its row is then a compile."""
import json, os, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE, TIMES = os.path.join(ROOT, "build", "xlane"), int(os.environ.get("XLANE_BENCH_TIMES", "3"))
PYTHON = os.environ.get("XLANE_BENCH_PYTHON", os.path.join(ROOT, "build", "venv", "bin", "python"))
SIZES = sys.argv[1:5] or ["256", "4", "8", "128"]
STEPS = sys.argv[5] if len(sys.argv) > 5 else "31"


NAMES = "compiled anew", "JAX's own cache", "xlane run", "xlane run, grows"


def main():
    env = dict(os.environ)
    if "JAX_PLATFORMS" not in env:
        env.update(JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:"
                   + os.path.join(ROOT, "build", "libxlane-cpu.so"))
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        gpt = lambda cache: [PYTHON, os.path.join(ROOT, "bench", "_gpt.py"), cache, STEPS, *SIZES]
        guard = [XLANE, "run", f"--cache={folder}/ours", f"--runs={folder}/runs"]
        short = ["--profile=cuda-short"] if env["JAX_PLATFORMS"].startswith("cuda") else []
        os.mkdir(folder + "/ours", 0o700)
        for turn in range(TIMES + 1):
            for name, command, where in (("compiled anew", gpt("none"), env),
                                         ("JAX's own cache", gpt(folder + "/jax"), env),
                                         ("xlane run", guard + ["--"] + gpt("none"), env),
                                         ("xlane run, grows", guard + short + ["--"] + gpt("none"), env)):
                began = time.perf_counter()
                p = subprocess.run(command, env=where, capture_output=True, text=True)
                wall = time.perf_counter() - began
                if p.returncode:
                    sys.exit(f"{name}: {' '.join(command)}: {p.stderr[-2000:]}")
                for line in p.stderr.splitlines():
                    if "first buffer" in line:
                        print(line, flush=True)
                got = json.loads(p.stdout.strip().splitlines()[-1])
                print(f"{name:16} {'cold' if not turn else 'warm'}  {got['compiles']} programs in {got['compile_s']:.3f} s, first step {got['first']:.2f} s, process {wall:.2f} s", flush=True)
                if turn:
                    rows.setdefault(name, []).append((got["compile_s"], got["first"], wall, got["tokens_per_second"],
                                                      repr(got["loss"]), got["compiles"]))
    print(f"\n{'restart':16} {'programs':>8} {'compile part':>13} {'first step':>11} {'process':>9} {'tokens/s':>10} {'from':>8} {'to':>8}  loss")
    for name, r in rows.items():
        part, first, wall, speed = (statistics.median(x[k] for x in r) for k in range(4))
        print(f"{name:16} {r[0][5]:8d} {part:11.3f} s {first:9.2f} s {wall:7.2f} s {speed:10.0f} {min(x[3] for x in r):8.0f} {max(x[3] for x in r):8.0f}  {', '.join(sorted({x[4] for x in r}))}")
    median = lambda name: statistics.median(x[0] for x in rows[name])
    ours, jax, anew = median("xlane run"), median("JAX's own cache"), median("compiled anew")
    process = lambda name: statistics.median(x[2] for x in rows[name])
    print(f"process: ours over JAX's own cache {process('xlane run') / process(NAMES[1]):.2f}x; where the device's memory "
          f"grows as needed {process('xlane run, grows') / process(NAMES[1]):.2f}x")
    print(f"compile part: JAX's own cache over ours {jax / ours:.2f}x, compiling over ours {anew / ours:.1f}x")


if __name__ == "__main__":
    main()
