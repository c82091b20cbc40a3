"""From nothing to the first finished step: the whole process, `xlane train` beside the same model in JAX with its
compilation cache warm.

    ./x bench start

The 3.3M-parameter GPT (A*4, dim 256). Both begin with a warm cache on disk, take turns, and the best of several counts:
time on the wall from starting the process to its end after one step (ours also writes its run folder; JAX writes
nothing), CPU time, and peak resident memory."""
import json, os, resource, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE, TIMES = os.path.join(ROOT, "build", "xlane"), int(os.environ.get("XLANE_BENCH_TIMES", "5"))
BATCH, TIME = 8, 128


def measure(command, folder, env):
    """(seconds on the wall, CPU seconds, peak MB, what it printed)"""
    began = time.perf_counter()
    p = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = p.stdout.read()
    said = p.stderr.read()
    _, status, use = os.wait4(p.pid, 0)
    wall = time.perf_counter() - began
    if status:
        sys.exit(f"{' '.join(command)}: {said}")
    return wall, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024, out


def main():
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, XLANE_PLUGIN=os.environ.get("XLANE_PLUGIN",
                                                           os.path.join(ROOT, "build",
                                                               "libxlane-cpu.so")), XLANE_CACHE=folder + "/ours")
        ours = [XLANE, "train", "--json", "--quiet", "model.pattern=A*4", "model.dim=256", f"data.batch={BATCH}",
                f"data.time={TIME}", "optimizer.warmup=0",
                f"data.train={__file__}", "train.steps=1", "train.eval_every=0", "train.save_every=0"]
        theirs = [os.path.join(ROOT, "build", "venv", "bin", "python"), os.path.join(ROOT, "bench", "_gpt.py"),
                  folder + "/jax", "1", "256", "4", str(BATCH), str(TIME)]
        if not os.path.exists(theirs[0]):
            sys.exit("no build/venv: ./x test makes it")
        best = {}
        for turn in range(TIMES + 1):                # the first turn fills the caches
            for name, command in (("xlane", ours), ("JAX", theirs)):
                got = measure(command, folder, env)
                if turn:
                    best[name] = tuple(min(a, b) for a, b in zip(best.get(name, got), got))[:3]
    for name, (wall, cpu, mb) in best.items():
        print(f"{name:6} {wall:6.3f} s on the wall, {cpu:6.3f} s of CPU, {mb:4.0f} MB at most")
    x, j = best["xlane"], best["JAX"]
    print(f"xlane over JAX: wall {x[0] / j[0]:.3f}, CPU {x[1] / j[1]:.3f}, memory {x[2] / j[2]:.2f}")


if __name__ == "__main__":
    main()
