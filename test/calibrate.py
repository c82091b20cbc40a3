"""xlane calibrate and train --fit on a simulated device of 64 MiB: predicted, compiled and observed memory (M1-M3, S4)."""
import glob, json, os, shutil, subprocess, sys, tempfile
from _check import check, end

XLANE = os.path.abspath("build/xlane")
TMP = tempfile.mkdtemp(prefix="xlane-calibrate-")
ENV = dict(os.environ, XLANE_STATE=TMP + "/state", XLANE_CACHE=TMP + "/cache", XLANE_CPU_HBM="64MiB")
ENV.pop("XLANE_CATALOG", None)


def xlane(*args, **env):
    return subprocess.run([XLANE, *args], capture_output=True, text=True, env=dict(ENV, **env), cwd=TMP, timeout=600)


with open(TMP + "/text.txt", "w") as f:
    f.write("the cat sees the red house. a dog follows the river.\n" * 3000)
BASE = ["data.train=text.txt", "model.dim=64", "device=cpu"]


def calibrate(*words, **env):
    r = xlane("calibrate", "--json", *BASE, *words, **env)
    return (json.loads(r.stdout) if r.stdout.strip() else {}), r


MODELS = {"dense": ["model.pattern=D*4", "model.scan=false", "data.batch=16"],
          "A": ["model.pattern=A*2", "data.batch=8"],
          "M": ["model.pattern=M*2", "data.batch=8"], "E": ["model.pattern=E*2",
                                                            "data.batch=8"], "R": ["model.pattern=R*2", "data.batch=8"],
          "AMER": ["model.pattern=AMER", "data.batch=4"]}
# Models that no rule of the predictor was chosen on: other widths, lengths, depths, element types, vocabularies; made
# again, kept, unrolled.
OTHERS = {"A_wide_long": ["model.pattern=A*3", "data.batch=4", "model.dim=96", "data.time=160"],
          "A_unrolled": ["model.pattern=A*3", "data.batch=8", "model.scan=false"],
          "M_bf16": ["model.pattern=M*2", "data.batch=8", "model.compute=bf16"], "R_remat": ["model.pattern=R*4",
              "data.batch=8", "model.remat=true"],
          "E_experts": ["model.pattern=E*2", "data.batch=4", "model.dim=96", "model.experts=8"],
          "A_vocabulary": ["model.pattern=A*2", "data.batch=2", "model.dim=256", "data.time=64", "model.vocab=2048"],
          # few rows of a large model: little of what it needs grows with the batch, and there are few smaller ones to
          # learn from
          "AMER_three_rows": ["model.pattern=AMER", "data.batch=3", "model.dim=176",
                              "data.time=65"], "AE_three_rows_remat": ["model.pattern=AE", "data.batch=3",
                                  "model.dim=168", "data.time=127", "model.remat=true"],
          "dense_three_rows": ["model.pattern=D", "data.batch=3", "model.dim=320", "data.time=100"]}
if os.environ.get("XLANE_TEST_ALL") != "1":              # each kind of them once
    OTHERS = {k: OTHERS[k] for k in ("A_wide_long", "M_bf16", "R_remat", "AMER_three_rows")}
for name, words in {**MODELS, **OTHERS}.items():
    j, r = calibrate(*words)
    e = j.get("entry", {})
    check(f"prediction_{name} ({100 * j.get('off', 9):+.1f} %, liveness alone {100 * (j.get('alone', 0) / max(e.get('observed', 1), 1) - 1):+.1f} %)",
          abs(j["off"]) < 0.1 and r.returncode == 0 and j["verdict"] == "calibrated" and j["small_batch"] > 0
          and 0 < e["observed"] <= 64 << 20 and e["compiled"] > 0 and e["limit"] == 64 << 20 and j["host_peak"] > 0, r.stdout + r.stderr)

j, r = calibrate("model.pattern=AMER", "data.batch=64")
check("what_does_not_fit_is_known_bad", r.returncode == 1 and j["verdict"] == "does not fit"
      and j["entry"]["outcome"] == "failed"
      and j["entry"]["class"] == "E1000" and j["entry"]["predicted"] > 64 << 20, r.stdout + r.stderr)
# Another rule for memory: each allocation takes whole half mebibytes.
j, r = calibrate("model.pattern=D*4", "model.scan=false", "data.batch=8", XLANE_CPU_GRAIN="1")
first = j.get("entry", {}).get("observed")
j, r = calibrate("model.pattern=D*4", "model.scan=false", "data.batch=8", XLANE_CPU_GRAIN="512KiB")
check("a_stack_change_is_raised", r.returncode == 1 and "observed" in j["moved"] and j["before"]["observed"] == first
      and j["entry"]["observed"] > first * 1.1
      and j["verdict"] == "mismatch", r.stdout + r.stderr)

j, r = calibrate("model.pattern=D*4", "model.scan=false", "data.batch=10", XLANE_CPU_GRAIN="512KiB")
check(f"what_was_observed_corrects_the_next ({100 * j['off']:+.1f} %)",
      r.returncode == 0 and j["verdict"] == "calibrated" and j["factor"] > 1.1, r.stdout + r.stderr)

r = xlane("train", "--fit", "--json", "--quiet", *BASE, "model.pattern=AMER", "data.batch=64", "optimizer.warmup=1",
          "train.steps=2", "train.eval_every=2", "train.eval_batches=1", "runs=runs", XLANE_CATALOG=TMP + "/fit")
said = [x for x in r.stderr.splitlines() if x.startswith("fit:")]
check("fit_trains", r.returncode == 0 and json.loads(r.stdout)["step"] == 2 and "taken" in said[-1],
      r.stdout + r.stderr)
batch = int(said[-1].split()[2]) if said else 0
turns = int(said[-1].split(" turns")[0].split()[-1]) if " turns" in said[-1] else 1
check(f"fit_takes_the_batch_in_turns ({said[-1]})", batch == 64 and turns > 1, said)
j, r = calibrate("model.pattern=AMER", "data.batch=64", f"model.micro={turns // 2}")
tight = 0.98 * (64 << 20)               # what --fit leaves free
check("no_fewer_turns_would_do", j["verdict"] == "does not fit" or j["entry"]["observed"] > tight, r.stdout)
with open(glob.glob(TMP + "/fit/*.jsonl")[0]) as f:
    tried = [json.loads(x) for x in f]
check("fit_never_ran_out", {x["outcome"] for x in tried} == {"ran"}, [x["signature"]["model"] for x in tried])
r = xlane("train", "--fit", "--json", "--quiet", *BASE, "model.pattern=AMER", "data.batch=64", "optimizer.warmup=1",
          "train.steps=2", "train.eval_every=0", "runs=runs", XLANE_CATALOG=TMP + "/fit")
check("fit_takes_the_known_good_one_first", r.returncode == 0 and r.stderr.startswith(f"fit: batch {batch}")
      and "known good" in r.stderr.splitlines()[0], r.stderr)
r = xlane("train", "--fit", "--json", "--quiet", *BASE, "mesh=data=2", "model.pattern=A", "data.batch=30",
          "optimizer.warmup=1", "train.steps=2", "train.eval_every=0", "runs=runs",
          XLANE_CPU_DEVICES="2", XLANE_CATALOG=TMP + "/mesh")
said = [x for x in r.stderr.splitlines() if x.startswith("fit:")]
check(f"fit_on_a_mesh ({said[-1] if said else ''})", r.returncode == 0 and int(said[-1].split()[2]) % 2 == 0
      and "taken" in said[-1], r.stdout + r.stderr)
r = xlane("train", "--fit", *BASE, "model.pattern=AMER", "model.dim=512", "data.batch=4", "train.steps=30", "runs=runs")
check("fit_says_when_nothing_fits", r.returncode == 1 and "not even one row fits 64 MiB" in r.stderr, r.stderr)
# A prime batch cannot be split into turns, but without a scan the backward pass can recompute the blocks: that allows
# more than the plain program.
few = [*BASE, "model.pattern=A*4", "model.scan=false", "data.batch=37", "optimizer.warmup=1", "train.steps=3",
       "train.eval_every=0", "runs=runs"]
r = xlane("train", "--fit", "--json", "--quiet", *few, XLANE_CATALOG=TMP + "/remat")
said = [x for x in r.stderr.splitlines() if x.startswith("fit:")]
batch = int(said[-1].split()[2]) if said else 0
check(f"fit_makes_again_what_does_not_fit ({said[-1] if said else ''})",
      r.returncode == 0 and "with remat" in said[-1] and "taken" in said[-1], r.stdout + r.stderr)
# The same losses whatever the turns.
losses = []
for micro in (1, 4):
    r = xlane("train", "--json", "--quiet", *BASE, "model.pattern=AMR", "data.batch=8", f"model.micro={micro}",
              "train.steps=10", "optimizer.warmup=2", "train.eval_every=0", "runs=runs")
    losses.append(json.loads(r.stdout)["loss"] if r.returncode == 0 else r.stderr)
check(f"turns_give_the_same_loss ({losses})", isinstance(losses[0], float) and isinstance(losses[1], float)
      and abs(losses[0] - losses[1]) < 1e-5, losses)
r = xlane("train", *BASE, "data.batch=10", "model.micro=4", "runs=runs")
check("a_batch_that_does_not_divide", r.returncode == 1 and "a batch of 10 in 4 turns" in r.stderr and "8 does"
      in r.stderr, r.stderr)
shutil.rmtree(TMP)
sys.exit(end())
