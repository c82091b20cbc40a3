"""xlane train as several processes: the losses of one, checkpoints that all write and any number reads, preemption, restarts, launchers. Rows S1-S5, T1-T5."""
import atexit, glob, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time
import _check
from _check import holds
from _launch import need, port, slurm, slurm_may

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")
long = os.environ.get("XLANE_TEST_ALL") == "1"
_check.prefix, _check.only = "train_ranks_", sys.argv[1:]
tmp = tempfile.mkdtemp(prefix="xlane-train-ranks-")
atexit.register(shutil.rmtree, tmp, ignore_errors=True)
env = {k: v for k, v in os.environ.items() if not k.startswith(("XLANE_", "OMPI_", "SLURM_", "PMIX_", "TPU_"))}
env.update(XLANE_PLUGIN=os.path.join(ROOT, "build", "libxlane-cpu.so"), XLANE_CACHE="none")
with open(tmp + "/text", "wb") as f:
    for name in sorted(glob.glob(ROOT + "/src/base/*.c")):
        f.write(open(name, "rb").read())
TINY = ["data.train=" + tmp + "/text", "model.pattern=A*2", "model.dim=32", "model.heads=2", "data.batch=8",
        "data.time=32", "optimizer.warmup=2", "train.log_every=4", "optimizer.schedule=constant", "cache=none"]
counted = 0


def folder():
    global counted
    counted += 1
    return "%s/runs%d" % (tmp, counted)


def start(*words, before=(), devices=1, **more):
    return subprocess.Popen([*before, XLANE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            errors="replace", cwd=tmp, env=dict(env, XLANE_CPU_DEVICES=str(devices), **more))


def ended(p, status=0, seconds=120):
    out, err = p.communicate(timeout=seconds)
    if status is not None and p.returncode != status:
        raise AssertionError("%s: status %d: %s" % (p.args, p.returncode, (out + err)[-500:]))
    return out, err


def train(n, steps, *words, runs=None, devices=1, **more):
    """A run of n processes; its folder."""
    runs = runs or folder()
    out, err = ended(start("train", *(["-n", str(n)] if n > 1 else []), "--runs", runs, *TINY, "train.steps=%d" % steps,
                           "train.save_every=4", *words, devices=devices), **more)
    return glob.glob(runs + "/2*")[0]


def resume(n, run, *words, devices=1, **more):
    return ended(start("resume", *(["-n", str(n)] if n > 1 else []), run, *words, devices=devices), **more)


def losses(run):
    rows = [l.split(",") for l in open(run + "/metrics.csv").read().split()[1:]]
    return {int(r[0]): r[1:5] for r in rows}


def events(run, kind):
    return [e for e in map(json.loads, open(run + "/events.jsonl")) if e["event"] == kind]


def near(a, b):
    """The same losses to 1e-6 of each: what another order of f32 sums leaves after a few steps."""
    return a.keys() == b.keys() and all(abs(float(a[k][0]) - float(b[k][0])) <= 1e-6 * abs(float(b[k][0])) for k in a)


def same_bits():
    for mesh in ("data=4", "data=2, model=2"):
        whole = train(1, 8, "mesh=" + mesh, devices=4)
        for n, devices in ((4, 1), (2, 2)):
            run = train(n, 8, "mesh=" + mesh, devices=devices)
            if losses(run) != losses(whole) or len(losses(run)) != 8:
                return "%d processes of %d devices, mesh %s: %s, one process: %s" % (n, devices, mesh, losses(run),
                    losses(whole))
            if {e["rank"] for e in events(run, "start")} != set(range(n)):
                return "events of ranks %s" % events(run, "start")
            if len(glob.glob(os.path.dirname(run) + "/2*")) != 1 or glob.glob(run + "/.ranks*"):
                return "left: %s %s" % (os.listdir(os.path.dirname(run)), os.listdir(run))
    runs = folder()
    out, err = ended(start("train", "-n", "3", "--json", "--runs", runs, *TINY, "data.batch=6", "train.steps=4"))
    said = json.loads(out)
    if said["step"] != 4 or said["preempted"] or "[0] mesh: data=3 on 3 devices" not in err or re.search(r"^\[[12]\]",
        err, re.M):
        return "no mesh given: %s %s" % (out, err)
    out, err = ended(start("train", "-n", "3", "--runs", runs, *TINY, "train.steps=4"), 1)
    if "8" not in err or "data" not in err or "3" not in err:
        return "a batch that does not divide: " + err


def other_counts():
    """4 -> 2 -> 1 processes: on one mesh the bits of one process, on another its losses."""
    whole, wide = train(1, 12), train(1, 12, "mesh=data=4", devices=4)
    run = train(4, 4, "mesh=data=2, model=2")
    resume(2, run, "mesh=data=2", "train.steps=8")
    resume(1, run, "mesh=", "train.steps=12")
    if not near(losses(run), losses(whole)):
        return "4 -> 2 -> 1: %s, one process: %s" % (losses(run), losses(whole))
    run = train(1, 4)
    resume(2, run, "train.steps=8")
    resume(4, run, "train.steps=12")
    if not near(losses(run), losses(whole)):
        return "1 -> 2 -> 4: %s, one process: %s" % (losses(run), losses(whole))
    run = train(4, 4, "mesh=data=4")
    resume(2, run, "train.steps=8", devices=2)
    resume(1, run, "train.steps=12", devices=4)
    if losses(run) != losses(wide):
        return "on one mesh: %s, one process: %s" % (losses(run), losses(wide))
    out, err = ended(start("checkpoint", "verify", run))
    if out.count("whole") != 3 or "0 bad" not in out:
        return out
    # a share that was changed, one that is gone, an index that is torn: named, and the one before taken
    run = train(2, 12, "train.keep=4")
    c = sorted(glob.glob(run + "/checkpoints/step-*"))
    share = bytearray(open(c[2] + "/1-of-2.safetensors", "rb").read())
    share[-5] ^= 1
    open(c[2] + "/1-of-2.safetensors", "wb").write(share)
    os.unlink(c[1] + "/0-of-2.safetensors")
    out, err = ended(start("checkpoint", "verify", run), 1)
    if out.count("BAD") != 2 or "1-of-2.safetensors" not in out or "0-of-2.safetensors" not in out:
        return "damage is not named: " + out
    out, err = resume(3, run, "data.batch=6", "mesh=data=3", "train.steps=13")
    at = [e["step"] for e in events(run, "resume")]
    if set(at) != {4} or len(at) != 3 or "passed over" not in err:
        return "it goes on from %s: %s" % (at, err[-400:])


def killed_while_saving(rounds=30 if long else 2):
    """Any rank, at any moment of a run that saves at every step: a whole checkpoint is left, and the losses are those of one process."""
    whole = losses(train(1, 300, "train.save_every=1", "mesh=data=3", "data.batch=6", devices=3))
    again = 0
    for k in range(rounds):
        runs = folder()
        p = start("train", "-n", "3", "--runs", runs, *TINY, "train.steps=300", "train.save_every=1", "data.batch=6")
        pids = lambda: {e["rank"]: e["pid"] for r in glob.glob(runs + "/2*") if os.path.exists(r + "/events.jsonl")
                        for e in events(r, "start")}
        end = time.time() + 60
        while time.time() < end and not (len(pids()) == 3 and glob.glob(runs + "/2*/checkpoints/step-0000000[2-9]*")):
            time.sleep(0.01)
        time.sleep(random.random() * 0.5)
        run = glob.glob(runs + "/2*")[0]
        os.kill(pids()[k % 3] if k % 4 else p.pid, signal.SIGKILL)
        out, err = ended(p, None, 60)
        if not p.returncode:
            continue                                      # it was done before
        end = time.time() + 20                             # where the launcher was killed, its ranks die with it
        while any(os.path.exists("/proc/%d" % q) and open("/proc/%d/stat" % q).read().split()[2] != "Z" for q
                  in pids().values()) and time.time() < end:
            time.sleep(0.05)
        had = {e["step"] for e in events(run, "checkpoint")}
        out, err = ended(start("checkpoint", "verify", run))
        newest = max(map(int, re.findall(r"step (\d+) .* whole", out)))
        if " 0 bad" not in out or newest < max(had):
            return "round %d: checkpoint %s was told of, there is %s" % (k, max(had), out)
        resume(3, run)
        if losses(run) != whole:
            return "round %d, rank %d: resumed from %d, the losses differ" % (k, k % 3, newest)
        if glob.glob(run + "/checkpoints/*tmp*"):
            return "round %d: left: %s" % (k, os.listdir(run + "/checkpoints"))
        again += 1
        shutil.rmtree(runs)
    if again < rounds // 2:
        return "only %d of %d rounds were killed in time" % (again, rounds)


def preempted():
    for who, sig, status in ((2, signal.SIGTERM, 0), (None, signal.SIGTERM, 0), (1, signal.SIGINT, 4)):
        runs = folder()
        p = start("train", "-n", "3", "--runs", runs, *TINY, "train.steps=100000", "data.batch=6")
        end = time.time() + 60
        while time.time() < end and not (glob.glob(runs + "/2*/metrics.csv")
                                         and len(open(glob.glob(runs + "/2*/metrics.csv")[0]).readlines()) > 4):
            time.sleep(0.02)
        run = glob.glob(runs + "/2*")[0]
        (p.send_signal(sig) if who is None else os.kill({e["rank"]: e["pid"] for e in events(run, "start")}[who], sig))
        out, err = ended(p, status, 60)
        ends = events(run, "stop")
        words = "preempted" if not status else "stopped"
        if len(ends) != 3 or len({e["step"] for e in ends}) != 1 or {e["why"] for e in ends} != {"preempted"
            if not status else "a signal"}:
            return "signal %d to rank %s: %s" % (sig, who, ends)
        step = ends[0]["step"]
        if "[0] %s after step %d and saved; go on with: xlane resume" % (words,
            step) not in err or json.load(open(run + "/run.json"))["end"] != ("preempted" if not status
                else "stopped by a signal"):
            return "signal %d to rank %s: %s" % (sig, who, err[-300:])
        if len(losses(run)) != step or "step %d" % step not in ended(start("checkpoint", "verify", run))[0]:
            return "step %d is not saved" % step


def restarts():
    whole = losses(train(1, 40, "mesh=data=2", devices=2))
    runs = folder()
    p = start("train", "-n", "2", "--restarts", "2", "--runs", runs, *TINY, "train.steps=40", "train.save_every=4")
    end = time.time() + 60
    while time.time() < end and not glob.glob(runs + "/2*/checkpoints/step-????????"):
        time.sleep(0.002)
    run = glob.glob(runs + "/2*")[0]
    os.kill({e["rank"]: e["pid"] for e in events(run, "start")}[1], signal.SIGKILL)
    out, err = ended(p)
    told = events(run, "restart")
    if losses(run) != whole or len(told) != 1 or told[0]["cause"] != "rank_killed" or "all ranks are started again" not in err or "rank 1 of 2 failed first: it was killed by signal 9" not in err:
        return "%s %s" % (told, err[-400:])
    # a failure that repeats: the second time it is given up, with the cause
    runs = folder()
    p = start("train", "-n", "2", "--restarts", "5", "--runs", runs, *TINY, "train.steps=100000",
              "train.save_every=1000000")
    killed = set()
    end = time.time() + 60
    while time.time() < end and p.poll() is None:
        for r in glob.glob(runs + "/2*"):
            for e in events(r, "start") if os.path.exists(r + "/events.jsonl") else []:
                if e["rank"] == 1 and e["pid"] not in killed:
                    killed.add(e["pid"])
                    os.kill(e["pid"], signal.SIGKILL)
        time.sleep(0.02)
    out, err = ended(p, 137)
    if len(killed) != 2 or "failed of the same cause before, and came no further since" not in err or "rank_killed" not in err:
        return "killed %d times: %s" % (len(killed), err[-500:])
    # what a restart cannot mend is not restarted; nor is a run without --restarts
    p = start("run", "-n", "2", "--restarts", "3", "--runs", runs, "--cache", "off", "--", "sh", "-c",
              "echo 'ModuleNotFoundError: x' >&2; exit 1")
    out, err = ended(p, 1)
    if err.count("failed first") != 1 or "stopped: a restart could not help" not in err:
        return "an import error: " + err[-400:]
    mark = tmp + "/mark"
    p = start("run", "-n", "2", "--restarts", "3", "--runs", runs, "--cache", "off", "--", "sh", "-c",
              "[ $XLANE_RANK = 0 ] || [ -e %s ] || { : > %s; kill -9 $$; }; sleep 0.2" % (mark, mark))
    out, err = ended(p)
    if "rank 1 of 2 failed first" not in err or "all ranks are started again" not in err:
        return "a rank killed once: " + err[-400:]
    p = start("run", "-n", "2", "--runs", runs, "--cache", "off", "--", "sh", "-c", "kill -9 $$")
    if "started again" in ended(p, 137)[1]:
        return "restarted without --restarts"


def joined():
    """Ranks that others start."""
    whole = losses(train(1, 6, "mesh=data=2", devices=2))
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    words = lambda runs: ["train", "--runs", runs, *TINY, "train.steps=6"]
    ways = {}
    if need("train_ranks_mpirun", "mpirun", "openmpi-bin"):
        runs = ways["mpirun"] = folder()
        ended(start(*words(runs), before=["mpirun", "--oversubscribe", "-n", "2"], **root))
        ended(start("resume", glob.glob(runs + "/2*")[0], "train.steps=7",
                    before=["mpirun", "--oversubscribe", "-n", "2"], **root))
    for name, each in (("Cloud TPU", lambda i: {"TPU_WORKER_HOSTNAMES": "localhost,127.0.0.1", "TPU_WORKER_ID": str(i),
                                                "XLANE_JOB": "slice"}),
                       ("JobSet", lambda i: {"XLANE_RANKS": "2", "JOB_COMPLETION_INDEX": str(i),
                                             "XLANE_JOB": "jobset"})):
        runs = ways[name] = folder()
        for p in [start(*words(runs), **each(i)) for i in range(2)]:
            ended(p)
    # torchrun, and those that give the same variables but not the id of its job
    at = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())}
    runs = ways["WORLD_SIZE"] = folder()
    for p in [start(*words(runs), RANK=str(i), **at) for i in range(2)]:
        ended(p)
    torchrun = os.path.join(ROOT, "build", "venv-torch", "bin", "torchrun")
    if os.path.exists(torchrun):
        runs = ways["torchrun"] = folder()
        ended(start(*words(runs), before=[torchrun, "--nproc_per_node", "2", "--master_port", str(port()),
                                          "--no-python"]))
    else:
        print("skip train_ranks_torchrun: no build/venv-torch", flush=True)
    if slurm_may("train_ranks_srun"):
        with slurm() as where:
            runs = ways["srun"] = folder()
            ended(start(*words(runs), before=["srun", "-N2", "-n2"], **where))
            ended(start("resume", glob.glob(runs + "/2*")[0], "train.steps=7", before=["srun", "-N2", "-n2"], **where))
        if {e["rank"] for e in events(glob.glob(runs + "/2*")[0], "resume")} != {0, 1}:
            return "srun: resumed by %s" % events(glob.glob(runs + "/2*")[0], "resume")
    runs = ways["xlane run -n"] = folder()
    ended(start("run", "-n", "2", "--runs", folder(), "--cache", "off", "--", XLANE, *words(runs)))
    for name, runs in ways.items():
        run = glob.glob(runs + "/2*")
        if len(run) != 1 or {k: v for k, v in losses(run[0]).items() if k < 7} != whole or glob.glob(runs
            + "/.job*") or glob.glob(run[0] + "/.ranks*"):
            return "%s: %s, losses %s, one process: %s" % (name, os.listdir(runs), losses(run[0]), whole)
    out, err = ended(start(*words(folder()), TPU_WORKER_HOSTNAMES="a,b", TPU_WORKER_ID="0"), 1)
    if "TPU_WORKER_HOSTNAMES says that there are 2 processes" not in err or "XLANE_JOB" not in err:
        return "no name of the job: " + err
    out, err = ended(start(*words(folder()), "-n", "2", TPU_WORKER_HOSTNAMES="a,b"), 2)
    if "leave -n out" not in err:
        return "-n under a launcher: " + err


NO_LOCKS = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
int flock(int fd, int how) { (void)fd, (void)how; if (getenv("FAKE_LOCKS")) return 0; errno = ENOLCK; return -1; }
int gethostname(char *p, size_t n) { snprintf(p, n, "%s", getenv("FAKE_HOST")); return 0; }
int uname(struct utsname *u) { memset(u, 0, sizeof *u); strcpy(u->sysname, "Linux"); snprintf(u->nodename, 65, "%s", getenv("FAKE_HOST")); return 0; }
"""


def cache_without_locks():
    """A cache folder as NFS may give it: no flock, or one that other hosts do not see; four writers on two hosts, some of them killed."""
    open(tmp + "/shim.c", "w").write(NO_LOCKS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp + "/shim.so", tmp + "/shim.c"], check=True)
    for local in ({}, {"FAKE_LOCKS": "1"}):
        cache, named = folder(), []
        writer = lambda i, time: start("run", "--cache", cache, "--cache-max", "200KB", "--runs", folder(), "--", XLANE,
                                       "train", "--runs", folder(), *TINY, "train.steps=3", "data.time=%d" % time,
                                       LD_PRELOAD=tmp + "/shim.so", FAKE_HOST="host-%s" % "ab"[i % 2], **local)
        for turn in range(12 if long else 3):
            # the first two compete for one program; the others compile one of their own, so that both hosts do write
            all = [writer(i, 16 + 4 * (3 * turn + max(0, i - 1))) for i in range(4)]
            if turn % 3 == 2:
                time.sleep(random.random() * 0.5)
                all[3].kill()
            for i, p in enumerate(all):
                out, err = ended(p, None)
                if p.returncode and not (turn % 3 == 2 and i == 3):
                    return "turn %d, writer %d: %s" % (turn, i, err[-300:])
                named += re.findall(r"xlane: (host-. also writes to .*)", err) and [i % 2]
                if re.search(r"torn|damaged|truncated|unreadable", err):
                    return "turn %d, writer %d met a torn entry: %s" % (turn, i, err[-300:])
        out, err = ended(start("cache", "verify", "--cache", cache))
        if "0 bad" not in out and " bad" in out:
            return "torn: " + out
        size = sum(os.path.getsize(f) for f in glob.glob(cache + "/*/*.xle"))
        if set(named) != {0, 1} or not size or size > 200000:
            return "named on hosts %s, %d bytes kept: %s" % (set(named), size, out)
        alone = start("run", "--cache", folder(), "--runs", folder(), "--", "true", LD_PRELOAD=tmp + "/shim.so",
                      FAKE_HOST="host-a", **local)
        if "also writes" in ended(alone)[1]:
            return "one writer alone is named"


def compiled_once():
    """Four ranks, an empty cache: each program is compiled by one and loaded by three; the second time by none."""
    cache = folder()
    for result, compiled in (("compiled", 1), ("cached", 0)):
        runs = folder()
        out, err = ended(start("train", "-n", "4", "--runs", runs, *TINY, "cache=" + cache, "train.steps=2"))
        all = events(glob.glob(runs + "/2*")[0], "compile")
        each = {m: sorted(e["result"] for e in all if e["module"] == m) for m in {e["module"] for e in all}}
        if not each or any(r != ["cached"] * 3 + [result] for r in each.values()) or {e["rank"] for e in all} != set(
                range(4)):
            return "programs: %s" % each
        said = "[0] programs of 4 ranks: %d compiled, %d loaded from the cache" % (compiled * len(each),
                                                                                   (4 - compiled) * len(each))
        if said not in err or "[1] programs" in err:
            return "%s: %s" % (each, err[-400:])
    out, err = ended(start("train", "--runs", folder(), *TINY, "cache=" + cache, "train.steps=2"))
    if "programs of" in err:
        return "a process alone: " + err[-300:]


def report():
    """One report, a lane for each rank; none where there is one."""
    run = train(3, 4, "data.batch=6")
    ended(start("report", run, "--out", tmp + "/r.html"))
    page = open(tmp + "/r.html").read()
    if page.count("<h2>Ranks</h2>") != 1 or any(">rank %d</text>" % i not in page for i in range(3)) or page.count("status 0</span>") != 3 or "first to fail" in page:
        return "three ranks: " + page[page.find("<h2>Ranks"):][:600]
    runs = folder()
    ended(start("run", "-n", "2", "--runs", runs, "--cache", "off", "--", "sh", "-c",
                "[ $XLANE_RANK = 0 ] || exit 7; sleep 1"), 7)
    ended(start("report", glob.glob(runs + "/2*")[0], "--out", tmp + "/r.html"))
    if "status 7, the first to fail" not in open(tmp + "/r.html").read():
        return "a rank that failed is not told"
    ended(start("report", train(1, 4), "--out", tmp + "/r.html"))
    if "<h2>Ranks" in open(tmp + "/r.html").read():
        return "ranks of a process alone"


holds("cache_without_locks", cache_without_locks)
holds("report", report)
holds("compiled_once", compiled_once)
holds("same_bits", same_bits)
holds("other_counts", other_counts)
holds("killed_while_saving", killed_while_saving)
holds("preempted", preempted)
holds("restarts", restarts)
holds("joined", joined)
sys.exit(_check.end())
