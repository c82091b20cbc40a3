"""The embedded device over several processes, with JAX: N processes give the bits of one; who dies, stops or runs
another program is named; a process that would be alone says so. Rows G5, S1-S5, T5."""
import glob, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time
from _launch import need, port, slurm, slurm_may
import _check, _fork
from _check import holds
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE, LIB, JOB = (os.path.join(here, *p) for p in (("build", "xlane"), ("build", "libxlane-cpu.so"),
                                                    ("test", "_ranks_job.py")))
long = os.environ.get("XLANE_TEST_ALL") == "1"
_check.prefix, _check.only = "ranks_", sys.argv[1:]
env0 = {k: v for k, v in os.environ.items() if not k.startswith(("XLANE_", "OMPI_", "SLURM_", "PMIX_"))}


class Job:
    """n processes of _ranks_job.py, their output in files."""
    def __init__(self, what, n, per=1, **env):
        at, self.n, self.out = "127.0.0.1:%d" % port(), n, []
        self.p = []
        for i in range(n):
            f = open("/tmp/xlane-ranks-%d-%s-%d" % (os.getpid(), what, i), "w+")
            e = dict(env0, XLANE_CPU_DEVICES=str(per), JAX_PLATFORMS="xlane", **env)
            if n > 1:
                e.update(XLANE_RANK=str(i), XLANE_RANKS=str(n), XLANE_COORDINATOR=at)
            self.p.append(_fork.Child(lambda: _fork.script(JOB, what), e, f))
            self.out.append(f)

    def text(self, i):
        with open(self.out[i].name, errors="replace") as f:
            return f.read()

    def until(self, i, what, seconds=60):
        end = time.time() + seconds
        while time.time() < end and not re.search(what, self.text(i)):
            time.sleep(0.05)
        return re.search(what, self.text(i))

    def wait(self, seconds=120):
        end = time.time() + seconds
        for p in self.p:
            try:
                p.wait(max(0.1, end - time.time()))
            except subprocess.TimeoutExpired:
                pass
        late = [i for i, p in enumerate(self.p) if p.poll() is None]
        self.stop()
        return late

    def stop(self):
        for p in self.p:
            if p.poll() is None:
                p.kill()
            p.wait()

    def said(self):
        d = {}
        for i in range(self.n):
            for k, v in re.findall(r"^= (\S+) (.*)$", self.text(i), re.M):
                if "@" in k or k == "loss":
                    if d.setdefault(k, v) != v:
                        d[k] += "/" + v
        return d

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.stop()
        for f in self.out:
            f.close()
            os.unlink(f.name)


def run(what, n, per, **env):
    with Job(what, n, per, **env) as j:
        late = j.wait()
        if late or any(p.returncode for p in j.p):
            i = late[0] if late else next(i for i, p in enumerate(j.p) if p.returncode)
            raise RuntimeError("process %d: %s" % (i, j.text(i)[-500:]))
        return j.said()


whole = []
def same(n, per, **env):
    if not whole:
        whole.append(run("same", 1, 4))
    got = run("same", n, per, **env)
    off = [k for k in whole[0] if got.get(k) != whole[0][k]]
    if off or len(whole[0]) < 300:
        return "%d of %d values differ from one process with 4 devices: %s" % (len(off), len(whole[0]),
            ", ".join(off[:6]))


holds("same_bits_4x1", lambda: same(4, 1))
holds("same_bits_2x2", lambda: same(2, 2, XLANE_CPU_THREADS="1"))
holds("same_bits_sockets", lambda: same(4, 1, XLANE_CPU_SHARED_MEMORY="0"))


def dies(rounds=50 if long else 2):
    """kill -9 at a random moment: the survivors name the rank, and all end within 15 s of it, or within four times what
    the gang took to start where that is longer, on a machine that is busy."""
    for k in range(rounds):
        runs, victim = tempfile.mkdtemp(prefix="xlane-ranks-"), k % 3
        out = open(runs + "/out", "w+")
        p = subprocess.Popen([XLANE, "run", "-n", "3", "--runs", runs, "--cache", "off", "--", sys.executable, JOB,
                              "train"], stdout=out, stderr=out,
                             env=dict(env0, JAX_PLATFORMS="xlane", JOB_STEPS="100000",
                                      PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + LIB))
        text = lambda: open(runs + "/out", errors="replace").read()
        try:
            began = time.time()
            while time.time() < began + 200 and "[0] = step 2" not in text():
                time.sleep(0.02)
            start = time.time() - began
            pid = re.search(r"\[%d\] = pid (\d+)" % victim, text())
            if not pid:
                return "no step: " + text()[-300:]
            time.sleep(random.random() * 2)
            os.kill(int(pid[1]), signal.SIGKILL)
            t = time.time()
            try:
                rc = p.wait(200)
            except subprocess.TimeoutExpired:
                return "round %d: it did not end: %s" % (k, text()[-400:])
            took, said = time.time() - t, text()
            if rc != 137 or "xlane: rank %d of 3 failed first: it was killed by signal 9" % victim not in said:
                return "round %d: status %d: %s" % (k, rc, said[-400:])
            if took > max(15, 4 * start):
                return "round %d: it took %.1f s, and the start %.1f s" % (k, took, start)
            for i in range(3):
                if i != victim and not re.search(r"\[%d\] .*process %d of 3 \(host \S+, pid %s\) (has died|has gone)"
                                                 % (i, victim, pid[1]), said):
                    return "round %d: rank %d does not name rank %d: %s" % (k, i, victim, said[-600:])
        finally:
            p.kill()
            p.wait()
            out.close()
            shutil.rmtree(runs)


def stops(rounds=20 if long else 1):
    for _ in range(rounds):
        why = stop_once()
        if why:
            return why


def stop_once():
    with Job("train", 3, JOB_STEPS="100000", JOB_SLEEP="0.01", XLANE_CPU_STUCK="2") as j:
        if not j.until(0, r"= step 3\n"):
            return "no step: " + j.text(0)[-300:]
        if any("has waited" in j.text(i) for i in range(3)):
            return "somebody is named in a clean run: " + j.text(0)[-300:]
        j.p[2].send_signal(signal.SIGSTOP)
        for i in (0, 1):
            if not j.until(i, r"has waited \d+ s in .* of jit_step for process 2 of 3 \(host \S+, pid %d\)"
                           % j.p[2].pid, 20):
                return "process %d does not name process 2: %s" % (i, j.text(i)[-400:])
            if re.search(r"for process [01] of 3", j.text(i)):
                return "process %d names another one: %s" % (i, j.text(i)[-400:])
        if not j.until(0, "no sign of life", 20):
            return "it does not say that there is no sign of life: " + j.text(0)[-400:]
        j.p[2].send_signal(signal.SIGCONT)
        was = len(j.text(0))
        end = time.time() + 20
        while "= step" not in j.text(0)[was:] and time.time() < end:
            time.sleep(0.05)
        if "= step" not in j.text(0)[was:] or not j.until(0, "goes on after", 5):
            return "it does not go on after SIGCONT: " + j.text(0)[-300:]


def diverges():
    with Job("diverge", 2) as j:
        for i in range(2):
            if not j.until(i, r"process \d is in stablehlo.all_(reduce|gather) of 4x8xf32, process \d of 2 .* in stablehlo.all_(reduce|gather) of", 60):
                return "process %d: %s" % (i, j.text(i)[-400:])


def alone():
    for var, value in (("OMPI_COMM_WORLD_SIZE", "4"), ("SLURM_NTASKS", "4"), ("WORLD_SIZE", "4"),
                       ("TPU_WORKER_HOSTNAMES", "a,b,c,d"), ("XLANE_RANKS", "4")):
        for meant in (False, True):
            p = subprocess.run([XLANE, "probe", "--plugin=" + LIB], capture_output=True, text=True, timeout=600,
                               env=dict(env0, **{var: value}, **({"XLANE_ALONE": "1"} if meant else {})))
            text = p.stdout + p.stderr
            said = re.search(r"%s says that .* started 4 processes, this one was told of 1: it would run alone" % var,
                             text)
            if bool(said) == meant or (p.returncode == 0) != meant:
                return "%s=%s, meant: %s: rc %d, %s" % (var, value, meant, p.returncode, text[-300:])
    p = subprocess.run([XLANE, "probe", "--plugin=" + LIB], capture_output=True, text=True, timeout=600,
                       env=dict(env0, WORLD_SIZE="1", SLURM_NTASKS="1"))
    if p.returncode:
        return "one process under a launcher: " + p.stderr[-300:]


def launcher():
    runs = tempfile.mkdtemp(prefix="xlane-ranks-")
    def go(n, script, sig=None, **env):
        p = subprocess.Popen([XLANE, "run", "-n", str(n), "--runs", runs, "--cache", "off", "--", "sh", "-c", script],
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=dict(env0, **env))
        if sig:
            for _ in range(n):
                p.stdout.readline()
            p.send_signal(sig)
        out, err = p.communicate(timeout=600)
        return p.returncode, out, err
    rc, out, err = go(3, 'echo "$XLANE_RANK of $XLANE_RANKS, $RANK of $WORLD_SIZE"; echo sad >&2')
    if rc or sorted(out.split("\n")) != ["", "[0] 0 of 3, 0 of 3", "[1] 1 of 3, 1 of 3",
                                         "[2] 2 of 3, 2 of 3"] or err.count("] sad") != 3 or "failed first" in err:
        return "three that end well: %d %r %r" % (rc, out, err)
    mark = "xlane-orphan-%d" % os.getpid()
    rc, out, err = go(3, '[ $XLANE_RANK = 1 ] && kill -9 $$; sh -c "sleep 300; : %s" & exec sleep 300' % mark)
    if rc != 137 or "xlane: rank 1 of 3 failed first: it was killed by signal 9 (Killed)" not in err or "rank 0 was ended by xlane, because rank 1 had failed: it was killed by signal" not in err:
        return "one that is killed: %d %s" % (rc, err)
    rc, out, err = go(3, '[ $XLANE_RANK = 2 ] && exit 7; sleep 1; exit 9')
    if rc != 7 or "rank 2 of 3 failed first: it exited with 7" not in err or "rank 0 exited with 9" not in err:
        return "one that fails: %d %s" % (rc, err)
    rc, out, err = go(3, 'trap "echo told $XLANE_RANK; exit 0" TERM; echo up; while :; do sleep 0.1; done',
                      signal.SIGTERM)
    if rc or sorted(re.findall(r"told (\d)", out)) not in (["0", "1", "2"],):
        return "SIGTERM reaches not all: %d %s %s" % (rc, out, err)
    left = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True).stdout.split()
    if left:
        return "orphans: " + " ".join(left)
    shutil.rmtree(runs)


def signals():
    """One signal goes to the ranks, a second one kills those that are left: a rank may not listen to the first."""
    runs = tempfile.mkdtemp(prefix="xlane-ranks-")
    def go(script, sigs):
        p = subprocess.Popen([XLANE, "run", "-n", "2", "--restarts", "3", "--runs", runs, "--cache", "off", "--", "sh",
                              "-c", script], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env0)
        pids = [int(p.stdout.readline().split()[-1]) for _ in range(2)]
        said = ""
        for k, sig in enumerate(sigs):
            time.sleep(k)
            p.send_signal(sig)
            while "a second one kills them" not in said:
                line = p.stderr.readline()
                assert line, said
                said += line
        out, err = p.communicate(timeout=600)
        return p.returncode, said + err, [i for i in pids if os.path.exists("/proc/%d" % i)]
    for sigs in (signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGTERM):
        rc, err, left = go("trap '' TERM INT; echo up $$; while :; do sleep 0.2; done", sigs)
        if rc != 128 + sigs[1] or left or "xlane: sent %s to 2 ranks; a second one kills them\n" % sigs[0].name \
                not in err or "a second signal: killing ranks 0, 1 of 2\n" not in err or "started again" in err:
            return "two signals: %d, left %s: %s" % (rc, left, err)
    rc, err, left = go("trap 'sleep 1; exit 0' TERM; echo up $$; while :; do sleep 0.1; done", [signal.SIGTERM])
    if rc or left or "killing" in err or "waited for" in err:
        return "one signal, and they end: %d, left %s: %s" % (rc, left, err)
    rc, err, left = go("trap '[ $XLANE_RANK = 0 ] && sleep 7; exit 0' TERM; echo up $$; while :; do sleep 0.1; done",
                       [signal.SIGTERM])
    if rc or left or "after SIGTERM, rank 0 of 2 is still running, and waited for" not in err or "killing" in err:
        return "one signal, and a rank saves: %d, left %s: %s" % (rc, left, err)
    shutil.rmtree(runs)


ENDS = """
import jax, jax.numpy as jnp, numpy as np, os, sys, time
from jax.sharding import Mesh, PartitionSpec as P, NamedSharding
jax.distributed.initialize()
r, sh = jax.process_index(), NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d"))
x = jax.make_array_from_callback((16, 4), sh, lambda i: np.ones((16, 4), np.float32)[i])
step = jax.jit(lambda x: jnp.sum(x * 2) + x[0, 0])
try: sys.exit(3)
except SystemExit as e: kept = e
print("pid", os.getpid(), flush=True)
try:
    for i in range(6):
        if i == 3 and r == 1: %s
        float(step(x))
finally:
    print("over", flush=True)
if r == 0: %s
"""


def newest(tmp):
    return sorted(glob.glob(tmp + "/runs/2*"), key=os.path.getmtime)[-1]


def start_of(tmp):
    """What three verbs say of a rank that failed, of the newest run."""
    run = newest(tmp)
    said = [subprocess.run([XLANE, *verb, run], capture_output=True, text=True, env=env0).stdout
            for verb in (["classify"], ["explain"], ["top", "--once"])]
    return [re.search("^(rank .*|)$", re.sub("^(?!rank . of . failed).*\n", "", s, flags=re.M), re.M)[0] for s in said]


def ends_otherwise():
    """A rank whose program fails cannot leave JAX's shutdown: it ends the job. One that ends earlier than others does
    not."""
    tmp = tempfile.mkdtemp(prefix="xlane-ranks-")
    def go(one, zero="pass", sigs=()):
        open(tmp + "/job.py", "w").write(ENDS % (one, zero))
        began, said, times = time.time(), "", {}
        p = subprocess.Popen([XLANE, "run", "-n", "2", "--runs", tmp + "/runs", "--cache", "off", "--", sys.executable,
                              tmp + "/job.py"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=dict(env0, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + LIB))
        for line in p.stdout:
            said += line
            times.setdefault("over" if "] over" in line else "start", time.time())
            if sigs and said.count("] pid") == 2 and "at rest" in said:
                p.send_signal(sigs[0])
                sigs = sigs[1:]
                time.sleep(1)
        rc, pids = p.wait(), [int(i) for i in re.findall(r"\] pid (\d+)", said)]
        left = [i for i in pids if os.path.exists("/proc/%d" % i)]
        return rc, said, time.time() - times.get("over", began), times["start"] - began, left
    for how, status, words, at in (("raise RuntimeError('disk on fire')", 1, "RuntimeError: disk on fire",
                                    " at %s/job.py:13" % tmp), ("sys.exit(7)", 7, "sys.exit(7)", "")):
        rc, said, took, start, left = go(how)
        if rc != status or left or "process 1 of 2 has ended its program (%s) and has waited 5 s in JAX's shutdown for " \
                "the others: it ends now, with status %d" % (words, status) not in said:
            return "%s: %d, left %s: %s" % (how, rc, left, said[-900:])
        if not re.search(r"xlane: rank 1 of 2 failed first: it exited with %d after [\d.]+ s; its program had ended after "
                         r"[\d.]+ s \(%s\)\n" % (status, re.escape(words)), said):
            return "%s: who failed first: %s" % (how, said[-500:])
        if start_of(tmp) != ["rank 1 of 2 failed first: it exited with %d (%s%s)" % (status, words, at)] * 3:
            return "%s: classify, explain, top: %s" % (how, start_of(tmp))
        counts = subprocess.run([XLANE, "metrics", newest(tmp)], capture_output=True, text=True, env=env0).stdout
        if re.findall(r"^Steps(.*?) \(process \d+\): ", counts, re.M) != [" of rank 0", " of rank 1"] \
                or "\nSums over 2 processes:\nMetric: " not in counts:
            return "%s: whose steps: %s" % (how, counts[:900])
        if took > max(15, 4 * start):
            return "%s: it took %.1f s, and the start %.1f s" % (how, took, start)
    rc, said, _, _, left = go("pass", "time.sleep(12)")       # rank 0 saves
    if any(start_of(tmp)) or rc or left or "ends now" in said or "failed first" in said or "process 1 of 2 has ended its program and has waited" \
            " 10 s in JAX's shutdown for the others; " not in said:
        return "one that saves: %d, left %s: %s" % (rc, left, said[-900:])
    rc, said, _, _, left = go("print('at rest', flush=True); time.sleep(1000)", sigs=[signal.SIGTERM] * 2)
    if rc != 143 or left or "sent SIGTERM to 2 ranks; a second one kills them" not in said or "a second signal: killing" \
            not in said:
        return "two signals: %d, left %s: %s" % (rc, left, said[-900:])
    shutil.rmtree(tmp)


def under_guard(n, what, before="", policy="warn", **env):
    """The job under xlane run -n; (status, the lines of each rank)."""
    runs = tempfile.mkdtemp(prefix="xlane-ranks-")
    p = subprocess.run([XLANE, "run", "-n", str(n), "--runs", runs, "--cache", "off", "--policy", policy, "--", "sh",
                        "-c", '%s\nexec "$@"' % before, "sh", sys.executable, JOB, what],
                       capture_output=True, text=True, errors="replace", timeout=300, env=dict(env0,
                           JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + LIB, **env))
    shutil.rmtree(runs)
    both = p.stdout + p.stderr
    return p.returncode, [[l[4:] for l in both.splitlines() if l.startswith("[%d] " % r)] for r in range(n)]


def agreement():
    rc, ranks = under_guard(4, "plant")
    for r, lines in enumerate(ranks):
        cases = [l.split()[2] for l in lines if l.startswith("= plant ")]
        told = [l for l in lines if "compiles another program than" in l]
        took, clean = (max([float(l.split()[-1]) for l in lines if l.startswith("= took " + stage)] or [99])
                       for stage in ("plant", "clean"))
        if rc or len(cases) != 20 or len(told) != 20 or any("rank 2 compiles another program than rank 0 and 2 others: " not in l for l in told):
            return "rank %d names %d of %d: %s" % (r, len(told), len(cases),
                                                   [l[-160:] for l in told if "rank 2" not in l] or lines[-3:])
        if took > 5 + 10 * clean:                               # than a compile on which all agree
            return "rank %d: naming took %.1f s, a clean compile %.1f s" % (r, took, clean)
        lost = [c for c, l in zip(cases, told) if c not in ("branch", "donation", "sharding_out")
                and not re.search(r"_ranks_job.py:\d+", l)]
        if lost:
            return "no source line for " + ", ".join(lost)
    want = ("constant 0.1 -> 0.2", "stablehlo.sine in place of stablehlo.cosine",
            "jit_evaluate where the others compile jit_train", "sharding", "96x8xf32 -> 96x4xf32")
    missing = [w for w in want if not any(w in l for l in ranks[3])]
    return "not said: " + ", ".join(missing) if missing else None


def agreement_of_processes():
    flag = "[ $XLANE_RANK = 1 ] && export XLA_FLAGS=--xla_cpu_enable_fast_math=true"
    rc, ranks = under_guard(3, "train", flag, "stop")
    if rc != 3 or any(not any("rank 1 compiles another program than rank 0 and 1 other: " in l
                              and "flags: xla_cpu_enable_fast_math absent -> true" in l for l in r) for r in ranks):
        return "another flag: %d %s" % (rc, ranks[0][-3:])
    if any(l.startswith("= step") for r in ranks for l in r):
        return "it went on to a step although the policy is stop"
    if not long:
        return
    other = os.path.join(tempfile.mkdtemp(), "libxlane-cpu.so")
    shutil.copy(LIB, other)
    open(other, "ab").write(b"another build")
    rc, ranks = under_guard(3, "train", "[ $XLANE_RANK = 1 ] && export PJRT_NAMES_AND_LIBRARY_PATHS=xlane:" + other)
    if any(not any("rank 1 compiles another program than rank 0 and 1 other: plugin: " in l for l in r) for r in ranks):
        return "another plugin: %d %s" % (rc, ranks[0][-3:])
    for k in range(20):
        rc, ranks = under_guard(4, "train")
        named = [l for r in ranks for l in r if re.search(r"rank \d", l)]
        if rc or named:
            return "clean start %d: %d %s" % (k, rc, named[:2])


def compiled_once():
    tmp = tempfile.mkdtemp(prefix="xlane-ranks-")
    p = subprocess.run([XLANE, "run", "-n", "4", "--runs", tmp + "/runs", "--cache", tmp + "/cache", "--",
                        sys.executable, JOB, "train"], capture_output=True, text=True, errors="replace",
                       timeout=200, env=dict(env0, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + LIB))
    events = [json.loads(l) for l in open(glob.glob(tmp + "/runs/2*/events.jsonl")[0])]
    run = glob.glob(tmp + "/runs/2*")[0]
    drawn = subprocess.run([XLANE, "sharding", run], capture_output=True, text=True, env=env0).stdout
    if "buffers are recorded for runs of one process, and this one had 4; what its program says: `xlane print" not in drawn:
        return "sharding: " + drawn
    results = sorted(e["result"] for e in events if e["event"] == "compile" and e["module"] == "jit_step")
    ranks = sorted(e["rank"] for e in events if e["event"] == "compile" and e["module"] == "jit_step")
    shutil.rmtree(tmp)
    if p.returncode or results != ["cached"] * 3 + ["compiled"] or ranks != [0, 1, 2, 3]:
        return "%d: %s of ranks %s: %s" % (p.returncode, results, ranks, p.stderr[-300:])


def killed_compiling():
    """Who compiles for the others is killed: one of them takes its place."""
    tmp = tempfile.mkdtemp(prefix="xlane-ranks-")
    stall = tmp + "/stall"
    open(stall, "w").close()
    code = "import jax, jax.numpy as jnp; print(float(jax.jit(lambda x: jnp.tanh(x).sum())(jnp.ones(8))))"

    def start(name, **env):
        return subprocess.Popen([XLANE, "run", "--runs", tmp + "/" + name, "--cache", tmp + "/cache", "--",
                                 sys.executable, "-c", code], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL,
                                env=dict(env0, JAX_PLATFORMS="xlane", XLANE_WRAPPED=LIB, STALL_ON="tanh",
                                         PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + os.path.join(
                                             here, "build", "test", "plugins", "wrongop.so"), **env))

    def events(name, what):
        lines = [json.loads(l) for f in glob.glob(tmp + "/" + name + "/2*/events.jsonl") for l in open(f)]
        return [e for e in lines if e["event"] == what]

    def until(what):
        end = time.time() + 600
        while not what() and time.time() < end:
            time.sleep(0.05)
        return what()
    first = start("first", STALL=stall)
    if not until(lambda: glob.glob(tmp + "/cache/*/*.lock")):
        return "nobody holds the lease"
    second = start("second", STALL=stall + ".not")
    until(lambda: events("second", "client"))
    time.sleep(1)
    before = events("second", "compile")
    pid = events("first", "client")[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    out, _ = second.communicate(timeout=600)
    first.wait(timeout=600)
    after = [e["result"] for e in events("second", "compile") if "lambda" in e["module"]]
    third = start("third", STALL=stall)
    third.communicate(timeout=600)
    loaded = [e["result"] for e in events("third", "compile") if "lambda" in e["module"]]
    shutil.rmtree(tmp)
    if any("lambda" in e["module"] for e in before) or second.returncode or after != ["compiled"]:
        return "%d: %s before, then %s: %s" % (second.returncode, before, after, out)
    if loaded != ["cached"]:
        return "the next one: %s" % loaded


def joined(start, n, **env):
    """Ranks that another launcher starts: one job, one folder."""
    tmp = tempfile.mkdtemp(prefix="xlane-ranks-")
    p = subprocess.run(start + [XLANE, "run", "--runs", tmp + "/runs", "--cache", "off", "--", sys.executable, JOB,
                                "join"], capture_output=True, text=True, errors="replace", timeout=400,
                       env=dict(env0, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + LIB, **env))
    folders = glob.glob(tmp + "/runs/2*")
    events = [json.loads(l) for l in open(folders[0] + "/events.jsonl")] if len(folders) == 1 else []
    left = glob.glob(tmp + "/runs/.job*")
    who = sorted(re.findall(r"= joined (\d+ of \d+)", p.stdout))
    # launchers mix the lines of their ranks, now and then within a line
    losses = set(re.findall(r"= loss (-?0x[0-9a-f.]+p[-+]\d+)", p.stdout))
    shutil.rmtree(tmp)
    if p.returncode or who != ["%d of %d" % (i, n) for i in range(n)] or len(losses) != 1:
        return "%d: %s, losses %s: %s" % (p.returncode, who, losses, (p.stdout + p.stderr)[-400:])
    if len(folders) != 1 or {e["rank"] for e in events if e["event"] == "client"} != set(range(n)) or left:
        return "%d folders, ranks %s, %s left" % (len(folders), {e["rank"] for e in events}, left)


def mpirun():
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    return joined(["mpirun", "--oversubscribe", "-n", "3"], 3, **root)


def srun():
    with slurm() as env:                                   # the nodes' names mean nothing to the resolver
        return joined(["srun", "-N2", "-n2"], 2, JAX_COORDINATOR_ADDRESS="127.0.0.1:%d" % port(), **env)


if need("ranks_mpirun", "mpirun", "openmpi-bin"):
    holds("mpirun", mpirun)
if slurm_may("ranks_srun"):
    holds("srun", srun)
holds("compiled_once", compiled_once)
holds("killed_compiling", killed_compiling)
holds("agreement", agreement)
holds("agreement_of_processes", agreement_of_processes)
holds("launcher", launcher)
holds("second_signal_kills", signals)
holds("a_program_that_fails_ends_the_job", ends_otherwise)
holds("one_process_where_a_launcher_started_more", alone)
def late():
    for pause, who in (("", None), ("2:0.05", 2)):
        with Job("train", 3, JOB_STEPS="70", JOB_PAUSE=pause) as j:
            if j.wait() or any(p.returncode for p in j.p):
                return "it did not end: " + j.text(0)[-300:]
            said = [(i, m) for i in range(3) for m in re.findall(r"process (\d) of 3 \(host \S+, pid \d+\) is late to enter jit_step: the last in \d+ of \d+ executions, (\d+) ms behind", j.text(i))]
            if who is None and said:
                return "a clean run names " + str(said)
            if who is not None and ({m[0] for _, m in said} != {str(who)} or {i for i, _ in said} != {0, 1}
                                    or not all(40 <= int(m[1]) < 500 for _, m in said)):
                return "named: " + str(said)


holds("late_is_named", late)
holds("dead_is_named", dies)
holds("stopped_is_named", stops)
holds("other_program_is_named", diverges)
sys.exit(_check.end())
