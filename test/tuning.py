"""Deterministic training with kernels chosen by measurement: on a plugin that says it is CUDA and runs on the embedded
device. What was chosen is kept with the run and in the cache; a resumed run goes by its own. (Rows O2, B1)"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

from _check import check, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
tmp = tempfile.mkdtemp(prefix="xlane-tuning-")
log, cache = os.path.join(tmp, "log"), os.path.join(tmp, "cache")
os.mkdir(os.path.join(tmp, "here"))
with open(os.path.join(tmp, "book.txt"), "w") as f:
    f.write("what is measured once is known twice. " * 400)
WORDS = ["model.pattern=A", "model.dim=32", "model.heads=2", "data.batch=2", "data.time=16",
         "data.train=" + os.path.join(tmp, "book.txt"), "train.eval_every=0", "train.save_every=2", "train.steps=4",
         "optimizer.warmup=1"]


def xlane(*words, **env):
    if os.path.exists(log):
        os.remove(log)
    p = subprocess.run([os.path.join(BUILD, "xlane"), *words], cwd=os.path.join(tmp, "here"), capture_output=True,
                       text=True, env=dict(os.environ, XLANE_WRAPPED=os.path.join(BUILD, "libxlane-cpu.so"),
                                           XLANE_MEASURES_LOG=log, XLANE_CACHE=cache, **env))
    return p, open(log).read().split("\n") if os.path.exists(log) else []


def train(*words, **env):
    p, compiles = xlane("train", "--quiet", "--device=" + os.path.join(BUILD, "test", "plugins", "measures.so"), *WORDS,
                        *words, **env)
    runs = sorted(glob.glob(os.path.join(tmp, "here", "runs", "*")), key=os.path.getmtime)
    return p, compiles, runs[-1] if runs else None


def events(run):
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as f:
        return [e for e in map(json.loads, f) if e["event"] == "tuning"]


def text(run):
    with open(os.path.join(run, "tuning.txt"), encoding="utf-8") as f:
        return f.read()


def forget():
    shutil.rmtree(cache, ignore_errors=True)


def main():
    p, compiles, first = train("name=first")
    check("tuning_trains", p.returncode == 0, p.stderr[-300:])
    measured = compiles.count("measured ")
    said = events(first)
    check("tuning_measures_the_step_once", measured == 1 and [e["result"] for e in said] == ["measured"],
          f"{compiles}, {said}")
    choices = text(first)
    check("tuning_is_kept_with_the_run", "hlo_fingerprint" in choices and f"# program {said[0]['program']} " in choices,
          choices)
    check("tuning_leaves_no_other_file", not glob.glob(os.path.join(first, "tuning.new*")), os.listdir(first))
    losses = open(os.path.join(first, "metrics.csv")).read().split("\n")

    p, compiles, second = train("name=second")
    check("tuning_of_the_cache", p.returncode == 0 and not compiles.count("measured ") and text(second) == choices and
          [e["result"] for e in events(second)] == ["of the cache"], f"{compiles} {p.stderr[-200:]}")

    forget()
    for f in glob.glob(os.path.join(first, "checkpoints", "*4*")):
        os.remove(f)
    p, compiles = xlane("resume", first)
    loaded = [c for c in compiles if c.startswith("loaded ")]
    check("tuning_resumed_by_its_own_choices", p.returncode == 0 and not compiles.count("measured ") and
          len(loaded) == 1 and os.path.samefile(os.path.join(tmp, "here", loaded[0][7:]),
                                                os.path.join(first, "tuning.txt")), f"{compiles} {p.stderr[-300:]}")
    check("tuning_resumed_with_the_same_losses", [r.split(",")[:4] for r in losses] ==
          [r.split(",")[:4] for r in open(os.path.join(first, "metrics.csv")).read().split("\n")])

    forget()
    p, compiles, third = train("name=third", XLANE_MEASURES_FAIL="1")
    check("tuning_failed_is_said_and_remembered", p.returncode == 0 and events(third)[0]["result"] == "failed" and
          "error" in events(third)[0] and text(third).endswith(" none\n"), f"{compiles} {p.stderr[-300:]}")

    forget()
    p, compiles, fourth = train("name=fourth", "train.tune=false")
    check("tuning_off", p.returncode == 0 and not compiles.count("measured ") and not events(fourth) and
          not os.path.exists(os.path.join(fourth, "tuning.txt")), compiles)
    # kernels of a loop over layers may run side by side, where the plugin knows how; written out layers and turns for
    # the batch are compiled without
    asked = {}
    for name, words, env in (("loop", ["model.scan=true"], {}),
                             ("old", ["model.scan=true"], dict(XLANE_MEASURES_OLD="1")),
                             ("out", ["model.scan=false"], {}), ("turns", ["model.scan=true", "model.micro=2"], {})):
        forget()
        p, compiles, run = train("name=" + name, "model.pattern=A*2", *words, **env)
        asked[name] = [compiles.count("overlapping CONCURRENT"), compiles.count("measured ")]
    check("tuning_overlaps_a_loop", asked == dict(loop=[3, 1], old=[1, 1], out=[0, 1], turns=[0, 1]), asked)
    shutil.rmtree(tmp)
    return end()


sys.exit(main())
