"""The soak: a training run with saves and evaluations that is killed, stopped, damaged and starved of disk every few
seconds, for as many minutes as the argument says. Beside it a control takes the same steps without any of that, paused
whenever it is ahead. All rows must be there, in order and with the same losses, every damaged checkpoint must have been
named, and the last checkpoint must be the same bytes. Prints a line a minute and the figures at the end."""
import atexit, glob, json, os, random, signal, subprocess, sys, time

sys.argv, minutes = [sys.argv[0], ""], float(sys.argv[1]) if len(sys.argv) > 1 else 120
import trust
from trust import TMP, XLANE, ENV, FAULT, TINY, damage, newest_run, text, xlane

rng, full = random.Random(), os.path.join(TMP, "full.soak")
conf = [f"data.train={text('soak.txt', 200000)}", *TINY, "model.dim=64", "data.time=64", "data.batch=4",
        "train.save_every=50", "train.keep=3", "train.log_every=7", "train.eval_every=40",
        "train.eval_batches=2", "train.steps=100000000", "optimizer.schedule=constant"]
env = dict(ENV, LD_PRELOAD=FAULT, FAULT_FULL=full)
control = subprocess.Popen([XLANE, "train", "--quiet", *conf, "runs=control"], env=ENV, cwd=TMP,
                           stdout=subprocess.DEVNULL)
atexit.register(control.kill)
count = dict(kills=0, stops=0, full=0, refused=0, damaged=0, named=0, resumes=0)
words, run, end, told = ["train", "--quiet", *conf, "runs=soak"], None, time.time() + 60 * minutes, 0


def rows(runs):
    """The rows of the newest run under `runs`, without their last column, the time."""
    return [line.rsplit(",", 1)[0] for line in open(max(glob.glob(os.path.join(TMP, runs, "2*",
        "metrics.csv")))).read().split("\n")[1:-1]]


def reached(runs):
    """The step of the last whole row of the newest run under `runs`."""
    files = glob.glob(os.path.join(TMP, runs, "2*", "metrics.csv"))
    if not files:
        return 0
    with open(max(files), "rb") as f:
        f.seek(max(0, os.path.getsize(f.name) - 1000))
        step = f.read().split(b"\n")[-2:-1]
    return int(step[0].split(b",")[0]) if step and step[0][:1].isdigit() else 0


while time.time() < end:
    assert control.poll() is None, f"the control ended with {control.returncode}"
    control.send_signal(signal.SIGSTOP if reached("control") > reached("soak") else signal.SIGCONT)
    child = subprocess.Popen([XLANE, *words], env=env, cwd=TMP, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                             text=True,
                             # a background job of a shell ignores the first, nohup the second
                             preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT,
                                                                                            signal.SIGHUP)])
    before = reached("soak")
    time.sleep(1 + 6 * rng.random())
    if rng.random() < 0.4:
        open(full, "w").close()
        time.sleep(1)
        os.unlink(full)
        count["full"] += 1
        time.sleep(2 * rng.random())
    hard = rng.random() < 0.7
    while not hard and reached("soak") <= before and child.poll() is None:
        time.sleep(0.1)                                         # a request to stop is for a run that has begun
    child.send_signal(signal.SIGKILL if hard else rng.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
    err = child.communicate()[1]
    if child.returncode == 1 and "No space left on device" in err and reached("soak") <= before:
        count["refused"] += 1                                   # the disk was full when it began: it said so and left
    else:
        assert child.returncode == (-signal.SIGKILL if hard else 4), (child.returncode, err)
        count["kills" if hard else "stops"] += 1
    if not glob.glob(os.path.join(TMP, "soak", "2*", "config.yaml")):
        continue
    run, words = newest_run("soak"), ["resume", "--quiet", newest_run("soak")]
    count["resumes"] += 1
    state = json.loads(xlane("checkpoint", "verify", "--json", run, code=None).stdout)["checkpoints"]
    whole = [c for c in state if not c["bad"]]
    if len(whole) >= 2 and rng.random() < 0.3:
        c = rng.choice(whole)
        damage(c["file"], rng)
        count["damaged"] += 1
        after = json.loads(xlane("checkpoint", "verify", "--json", run, code=1).stdout)["checkpoints"]
        count["named"] += any(a["step"] == c["step"] and a["bad"] for a in after)
    if time.time() > told:
        told = time.time() + 60
        print(f"{(end - time.time()) / 60:5.1f} minutes left: {count}", flush=True)
last = max(c["step"] for c in json.loads(xlane("checkpoint", "verify", "--json", run, code=None).stdout)["checkpoints"]
           if not c["bad"])
steps = max(last, reached("control")) // 50 * 50 + 50
xlane("resume", "--quiet", run, f"train.steps={steps}", code=None)
ours, theirs = (os.path.join(TMP, runs, "checkpoints", f"step-{steps:08d}.safetensors") for runs in (run, "control/2*"))
control.send_signal(signal.SIGCONT)
while not glob.glob(theirs):
    assert control.poll() is None, f"the control ended with {control.returncode}"
    time.sleep(0.01)
control.send_signal(signal.SIGSTOP)
same = open(ours, "rb").read() == open(glob.glob(theirs)[0], "rb").read()
ours, theirs = rows("soak"), rows("control")
print(f"{count}; {len(ours)} rows, {len(theirs)} without interruption")
assert ours == theirs[:steps] and len(ours) == steps, [(a, b) for a, b in zip(ours, theirs) if a != b][:3]
assert same, "the last checkpoints differ"
assert count["named"] == count["damaged"]
print("ok soak")
