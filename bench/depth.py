"""Compile time and depth: a repeated unit is scanned, so the program of 96 layers is as long as that of 6.

    ./x bench depth

For each unit and depth: CPU time of the compile (from the run's events), CPU time of writing the program (graph,
gradient, AdamW, text), and the program's length. Best of several, depths taking turns, in CPU time: a busy machine says
the same. `--most=1.2` exits 1 where the deepest takes more than that of the shallowest; `A` measures that unit
alone."""
import json, os, resource, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")
env = dict(os.environ, XLANE_CACHE="none", XLANE_PLUGIN=os.environ.get("XLANE_PLUGIN",
    os.path.join(ROOT, "build", "libxlane-cpu.so")))
UNITS = {"A": (6, 24, 96), "AMER": (2, 6, 24), "R": (6, 24, 96)}
TIMES = int(os.environ.get("XLANE_BENCH_TIMES", "7"))


def conf(unit, times):
    return [f"model.pattern=({unit})*{times}", "model.dim=32", "model.heads=2", "data.batch=2", "data.time=32",
            "optimizer.warmup=0", "cache=none",
            f"data.train={__file__}", "train.steps=1", "train.eval_every=0", "train.save_every=0"]


def compile_cpu(unit, times, folder):
    p = subprocess.run([XLANE, "train", "--json", "--quiet", *conf(unit, times)], capture_output=True, text=True,
                       env=env, cwd=folder)
    if p.returncode:
        sys.exit(p.stderr)
    lines = open(os.path.join(folder, json.loads(p.stdout)["run"], "events.jsonl")).read().splitlines()
    return sum(e["cpu_seconds"] for e in map(json.loads, lines) if e["event"] == "compile")


def writing_cpu(unit, times, folder):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.run([XLANE, "train", "--print=step", *conf(unit, times)], capture_output=True, text=True, env=env,
                       cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if p.returncode:
        sys.exit(p.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, p.stdout.count("\n")


def main():
    worst = 0
    only = [a for a in sys.argv[1:] if a in UNITS]
    for unit, depths in UNITS.items():
        if only and unit not in only:
            continue
        best, write, lines = {}, {}, {}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(TIMES):
                for d in depths:
                    best[d] = min(best.get(d, 1e9), compile_cpu(unit, d, folder))
                    w, lines[d] = writing_cpu(unit, d, folder)
                    write[d] = min(write.get(d, 1e9), w)
        for d in depths:
            print(f"{unit}*{d:<3} {d * len(unit):3} layers: compile {1e3 * best[d]:7.2f} ms, {best[d] / best[depths[0]]:.2f} of the first; "
                  f"written in {1e3 * write[d]:6.1f} ms; {lines[d]} lines")
        worst = max(worst, best[depths[-1]] / best[depths[0]])
    most = [float(a[7:]) for a in sys.argv[1:] if a.startswith("--most=")]
    return bool(most) and worst > most[0]


sys.exit(main())
