"""What the verbs say of a run of `xlane train`: it is not guarded, so each says what it has and where the rest comes
from, and a next step that is named leads there. Also `last` among runs of one second, and of `xlane run -- xlane
train`."""
import atexit, glob, json, os, re, shutil, signal, subprocess, sys, tempfile, time
from _check import checked, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")
TMP = tempfile.mkdtemp(prefix="xlane-train-runs-")
atexit.register(shutil.rmtree, TMP, ignore_errors=True)
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("XLANE_", "JAX_", "PJRT_"))}
ENV.update(XLANE_CACHE=TMP + "/cache", XLANE_STATE=TMP + "/state", XLANE_CPU_CHECK="1",
           PATH=os.path.dirname(XLANE) + ":" + os.environ["PATH"])
with open(TMP + "/book.txt", "w") as f:
    f.write("the quick brown fox jumps over the lazy dog\n" * 400)
SMALL = ["data.train=book.txt", "model.pattern=A", "model.dim=32", "model.heads=2", "data.time=16", "data.batch=2",
         "optimizer.warmup=2", "train.eval_every=0", "device=cpu", "--quiet"]


def xlane(*args, code=0, **kw):
    p = subprocess.run([XLANE, *args], capture_output=True, text=True, env=ENV, cwd=TMP, timeout=600, **kw)
    assert code is None or p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
    return p


def train(*words, code=0):
    return json.loads(xlane("train", "--json", *SMALL, *words, code=code).stdout)["run"]


first = train("name=first", "train.steps=20")


@checked("metrics_of_a_training_run_are_its_steps")
def _():
    said, j = xlane("metrics", first).stdout, json.loads(xlane("metrics", first, "--json").stdout)
    rows = [line.split(",") for line in open(f"{TMP}/{first}/metrics.csv").read().split()[1:]]
    took = sorted(float(b[-1]) - float(a[-1]) for a, b in zip(rows, rows[1:]))
    t = j["training"]
    assert t["steps"] == len(rows) == 20 and t["loss"] == float(rows[-1][1]) and t["compiled"] == 1, t
    assert abs(t["median"] - took[len(took) // 2]) < 1e-9 and t["max"] == took[-1] and j["steps"] == [], (t, took)
    assert f"Steps: 20 of xlane train, the last is step 20; loss {t['first_loss']:.4f} -> {t['loss']:.4f}" in said, said
    assert "attached" not in said and "Skipped" not in said and f"{first}/metrics.csv" in said, said
    p = xlane("metrics", "--prometheus", first, code=1)
    assert "is a run of `xlane train`" in p.stderr and "`xlane run -- xlane train ...` counts them" in p.stderr, p.stderr
    top = xlane("top", "--once", first).stdout
    told = re.search(r"([\d.]+) (ms|s) a step \(median\)", top)
    assert abs(float(told[1]) * (1e-3 if told[2] == "ms" else 1) / t["median"] - 1) < 0.01, (top, t)


@checked("runs_says_how_long_a_training_run_took_and_by_which_command")
def _():
    name = train("name=twice", "train.steps=20")
    folder = f"{TMP}/{name}"
    xlane("resume", name, "train.steps=30", "--quiet")
    row, = (r for r in json.loads(xlane("runs", "--json").stdout) if r["name"] == os.path.basename(name))
    told = [json.loads(line) for line in open(folder + "/events.jsonl")]
    ends, again = [e["t"] for e in told if e["event"] == "stop"], [e["t"] for e in told if e["event"] == "resume"]
    assert len(ends) == 2 and abs(row["seconds"] - (ends[0] + ends[1] - again[0])) < 1e-6, (row, ends, again)
    assert row["command"].startswith("xlane resume ") and row["command"].endswith("train.steps=30 --quiet"), row
    one, = (r for r in json.loads(xlane("runs", "--json").stdout) if r["name"] == os.path.basename(first))
    assert one["seconds"] > 0 and one["command"].startswith("xlane train --json data.train=book.txt"), one


@checked("a_training_run_is_rehearsed_and_calibrated_by_its_configuration")
def _():
    p = xlane("rehearse", "--topology=xlane:2", first)
    assert f"the training step of {first}/config.yaml: A, batch 2, length 16" in p.stdout, p.stdout
    assert "tf.aliasing_output" in xlane("print", first).stdout
    p = xlane("rehearse", "--topology=xlane:2", "--module=x", first, code=2)
    assert "is of `xlane train`" in p.stderr, p.stderr
    p = xlane("calibrate", first)
    assert re.search(r"^device +xlane", p.stdout, re.M) and "not recorded" not in p.stdout, p.stdout
    predicted = json.loads(xlane("calibrate", "--json", first).stdout)["entry"]["predicted"]
    (step,) = [e for e in map(json.loads, open(f"{TMP}/{first}/events.jsonl")) if e["event"] == "compile"]
    assert predicted == step["predicted_bytes"] > 0, (predicted, step)


@checked("the_receipt_of_a_stopped_run_has_its_exit_status")
def _():
    p = subprocess.Popen([XLANE, "train", *SMALL, "name=stopped", "train.steps=100000"], cwd=TMP, env=ENV,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while time.monotonic() < until and not glob.glob(TMP + "/runs/*-stopped/checkpoints/*.ok"):
        time.sleep(0.05)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 4, (p.returncode, out, err)
    (run,) = glob.glob(TMP + "/runs/*-stopped")
    fact = lambda r: {f["fact"]: f["value"] for f in r["facts"]}
    r = json.loads(xlane("receipt", "show", run, "--json").stdout)
    assert fact(r)["exit_status"] == "4" and r["proof"] == "ran" and "stopped by a signal and saved" in r["why"], r
    whole = json.loads(xlane("receipt", "show", first, "--json").stdout)
    assert fact(whole)["exit_status"] == "0" and "why" not in whole, whole
    before = xlane("receipt", "show", first).stdout
    assert "others" not in before, before
    xlane("resume", "--quiet", first)                      # nothing is left to do
    (again,) = glob.glob(f"{TMP}/{first}/receipt-*.json")
    shown = xlane("receipt", "show", first).stdout         # of the one that did something
    assert f"others    {first}/{os.path.basename(again)}\n" in shown and shown.splitlines()[0] == before.splitlines()[0]
    xlane("resume", "--quiet", run, "train.steps=%d" % (json.load(open(run + "/run.json"))["step"] + 3))
    shown = xlane("receipt", "show", run).stdout           # finished since
    assert "exit status 4" not in shown.splitlines()[0] and f"others    {run}/receipt.json\n" in shown, shown
    assert fact(json.loads(xlane("receipt", "show", run, "--json").stdout))["exit_status"] == "0"
    assert xlane("receipt", "verify", run).stdout.startswith("sound: ")
    page = os.path.join(TMP, "resumed.html")
    xlane("report", "--out", page, run)
    assert "exit status 4" not in open(page).read()
    r = json.loads(open(again).read())
    assert r["proof"] == "not observed" and r["why"].startswith("no step was trained: all were done before"), r


@checked("a_training_run_that_was_cut_off_is_said_to_be")
def _():
    for name, signals, status in ("killed", [signal.SIGKILL], -9), ("twice-asked", [signal.SIGINT, signal.SIGTERM],
        128), \
            ("interrupted", [signal.SIGINT], 4):
        p = subprocess.Popen([XLANE, "train", *SMALL, "name=" + name, "train.steps=10000000"], cwd=TMP, env=ENV,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 300
        while time.monotonic() < until and not glob.glob(TMP + f"/runs/*-{name}/checkpoints/*.ok"):
            time.sleep(0.02)
        (run,) = glob.glob(TMP + f"/runs/*-{name}")
        told = xlane("explain", run).stdout
        assert "this run goes on: it began at " in told, told
        for s in signals:
            p.send_signal(s)
        _, err = p.communicate(timeout=300)
        either = (128 + signal.SIGINT, 128 + signal.SIGTERM)   # both were there: the system says which comes second
        assert p.returncode == status or (status == 128 and p.returncode in either), (p.returncode, err)
        assert ("\nended by a second signal: nothing was saved after the newest checkpoint; go on from there, or from "
                f"step 0, with: xlane resume runs/{os.path.basename(run)}\n" in err) == (status == 128), err
        cut = "nothing recorded how it ended: `xlane train` was killed, ended by a second signal, or could not write"
        told, judged = xlane("explain", run).stdout, xlane("classify", run, code=1).stderr
        assert (cut in told) == (cut in judged) == (status != 4) and "goes on: " not in told, (name, told, judged)


def lost(*words, under=()):
    return xlane(*under, *(["xlane"] if under else []), "train", *SMALL, "train.steps=12", "optimizer.lr=1e20",
                 "optimizer.clip=0", *words, code=1).stderr


@checked("a_loss_that_is_not_finite_leads_to_the_op_that_made_it")
def _():
    said = lost("name=lost")
    assert "`xlane run --capture=nonfinite -- xlane train ... cache=none`, then `xlane nan last`" in said, said
    for verb in (["nan"], ["replay"], ["reduce", "--keep=nan"]):
        p = xlane(*verb, "last", code=1)
        assert "`xlane train` makes none by itself; `xlane run --capture=nonfinite -- xlane train ... cache=none`" \
            in p.stderr, p.stderr
    said = lost("name=seen", "cache=none", under=("run", "--name=outer", "--capture=nonfinite", "--"))
    assert "--capture=nonfinite --" not in said and "; next: xlane nan " in said, said
    next_step = re.search(r"; next: (xlane nan \S+)", said)[1].split()
    for words in (next_step[1:], ["nan", "last"]):
        p = xlane(*words, code=1)                          # 1: it found one
        assert "first NaN: stablehlo." in p.stdout, (p.stdout, p.stderr)
    assert json.loads(xlane("eval", "last", "--json").stdout)["run"].endswith("-seen")      # the one with checkpoints
    assert xlane("explain", "last").stdout.count("`train_b2t16`") == 1
    assert "metrics.csv" not in xlane("metrics", "last").stdout                             # the guard's counters


@checked("what_a_frontend_loads_itself_cannot_be_recorded_and_that_is_said")
def _():
    for name in "cold", "warm":
        p = xlane("run", "--name=" + name, "--capture=nonfinite", "--", "xlane", "train", *SMALL, "train.steps=20",
                  "name=t" + name)
    assert "switch that cache off (JAX: JAX_ENABLE_COMPILATION_CACHE=false; xlane train: cache=none)" in p.stderr
    for words in (["calibrate"], ["rehearse", "--topology=xlane:2"], ["print"], ["nan"]):
        p = xlane(*words, "last", code=1)
        assert "the frontend's own cache" in p.stderr and "cache=none" in p.stderr and "-- CMD" not in p.stderr, p.stderr
    p = xlane("run", "--name=asked", "--capture=step:999", "--", "xlane", "train", *SMALL, "train.steps=20",
              "cache=none",
              "name=tasked")
    assert p.stderr.count("no program was executed 999 times") == 1, p.stderr
    p = xlane("replay", "last", code=1)
    assert "what --capture=step:999 waits for did not happen" in p.stderr and "without --capture" not in p.stderr
    for words in (["calibrate"], ["rehearse", "--topology=xlane:2"], ["print"]):
        xlane(*words, "last")
    xlane("run", "--name=plain", "--", "xlane", "train", *SMALL, "train.steps=20", "cache=none", "name=tplain")
    p = xlane("replay", "last", code=1)
    assert "it ran without --capture" in p.stderr and "waits for" not in p.stderr, p.stderr


@checked("the_run_that_is_named_as_a_next_step_has_what_is_asked")
def _():
    xlane("run", "--name=nothing", "--", "true")
    for words, has in (["metrics"], "some"), (["explain"], "some"), (["calibrate"], "some"), (["print"], "some"):
        p = xlane(*words, "last", code=1)
        other = re.search(rf"the newest run here that has {has} is (\S+)", p.stderr)
        assert other, p.stderr
        xlane(*words, other[1])


@checked("last_is_the_newest_among_runs_of_one_second")
def _():
    for name in ("z", "a", "m", "b"):
        p = xlane("run", "--name=" + name, "--", "true")
        assert json.loads(xlane("top", "--json", "last").stdout)["run"].endswith("-" + name), name
    listed = [line.split()[0][-2:] for line in xlane("runs").stdout.splitlines()]
    assert listed[-4:] == ["-z", "-a", "-m", "-b"], listed


sys.exit(end())
