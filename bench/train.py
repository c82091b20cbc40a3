"""Training speed on the CPU: `xlane train` beside the same model in JAX and in PyTorch eager.

    ./x bench train

The GPT of bench/start.py (A*4, dim 256, batch 8 x 128), f32, AdamW with clip. Each is a process of its own; what a step
takes is the difference between a run of many steps and one of few, so that starting, compiling and saving are out of
it. They take turns and the best of several counts. CPU time is what a busy machine cannot spoil; tokens per second are
by the wall. The hybrid has no JAX twin: there the step program that `xlane train` would run is compiled by XLA for
JAX's CPU device, on the same inputs."""
import os, subprocess, sys, tempfile
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
XLANE, PYTHON = os.path.join(ROOT, "build", "xlane"), os.path.join(ROOT, "build", "venv", "bin", "python")
TIMES, FEW, MANY = int(os.environ.get("XLANE_BENCH_TIMES", "3")), 2, int(os.environ.get("XLANE_BENCH_STEPS", "12"))
B, T = 8, 128


def measure(command, folder, env):
    from start import measure
    return measure(command, folder, env)[:2]


def gpt(folder, env):
    dims = ["256", "4", str(B), str(T)]
    ours = lambda keep: lambda n: [XLANE, "train", "--json", "--quiet", "model.pattern=A*4", "model.dim=256",
                                   f"data.batch={B}", f"data.time={T}", "optimizer.warmup=0",
                                   f"data.train={__file__}", f"train.steps={n}", "train.eval_every=0", "train.save_every=0", f"train.keep_for_backward={keep}"]
    return {"xlane": ours("dots"), "xlane, least memory": ours("carry"),
            "JAX": lambda n: [PYTHON, os.path.join(ROOT, "bench", "_gpt.py"), folder + "/jax", str(n), *dims],
            "PyTorch eager": lambda n: [PYTHON, os.path.join(ROOT, "bench", "_gpt_torch.py"), str(n), *dims]}


def hybrid(folder, env):
    conf = ["model.pattern=AMER*2", "model.dim=128", f"data.batch={B}", f"data.time={T}", "optimizer.warmup=0",
            f"data.train={__file__}", "train.keep_for_backward=dots"]
    path = os.path.join(folder, "hybrid.mlir")
    open(path, "w").write(subprocess.run([XLANE, "train", "--print=step", *conf], capture_output=True, text=True,
                                         env=env, cwd=folder, check=True).stdout)
    return {"xlane": lambda n: [XLANE, "train", "--json", "--quiet", *conf, f"train.steps={n}", "train.eval_every=0",
                                "train.save_every=0"],
            "its program in XLA:CPU": lambda n: [PYTHON, os.path.join(ROOT, "bench", "_program.py"), path, str(n)]}


def main():
    only = sys.argv[1:]
    for name, which in (("gpt", gpt), ("hybrid", hybrid)):
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, XLANE_PLUGIN=os.environ.get("XLANE_PLUGIN",
                os.path.join(ROOT, "build", "libxlane-cpu.so")), XLANE_CACHE=folder + "/ours")
            best, rows = {}, which(folder, env)
            for turn in range(TIMES + 1):            # the first turn fills the caches
                for row, command in rows.items():
                    few, many = measure(command(FEW), folder, env), measure(command(MANY), folder, env)
                    got = tuple((m - f) / (MANY - FEW) for f, m in zip(few, many))
                    if turn:
                        best[row] = tuple(min(a, b) for a, b in zip(best.get(row, got), got))
        x = best["xlane"]
        for row, (wall, cpu) in best.items():
            print(f"{name} {row:22} {B * T / wall:8.0f} tokens/s, {1e3 * cpu:7.1f} ms of CPU a step; xlane's step over this: wall {x[0] / wall:.2f}, CPU {x[1] / cpu:.2f}")


main()
