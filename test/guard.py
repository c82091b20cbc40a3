"""The guard under unmodified JAX on the embedded device: cache, causes, policy, faults. Rows C1-C6, G1-G4, G6, L2."""
import functools
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import _warm
from _check import checked, end

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("XLANE_BUILD", os.path.join(HERE, "..", "build")))
XLANE = os.path.join(BUILD, "xlane")
PLUGIN = os.path.join(BUILD, "libxlane-cpu.so")
CASES = os.path.join(HERE, "guard", "cases.py")
TMP = tempfile.mkdtemp(prefix="xlane-guard-")


def environment(plugin=PLUGIN, **more):
    env = dict(os.environ, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + plugin,
               XLANE_STATE=os.path.join(TMP, "state"))
    env.pop("XLA_FLAGS", None)
    env.update({k: str(v) for k, v in more.items()})
    return env


def run(name, *cmd, runs=None, cache="off", env=None, args=(), status=0, plugin=PLUGIN):
    runs = runs or os.path.join(TMP, "runs-" + name)
    before = set(os.listdir(runs)) if os.path.isdir(runs) else set()
    p = subprocess.run([XLANE, "run", "--runs", runs, "--cache", cache, "--name", name, *args, "--", *cmd], text=True,
                       capture_output=True,
                       env=environment(plugin, **(env or {})), timeout=300)
    if status is not None and p.returncode != status:
        raise AssertionError("exit status %d, not %d\n%s%s" % (p.returncode, status, p.stdout[-2000:],
            p.stderr[-3000:]))
    new = [d for d in os.listdir(runs) if d not in before and d != "contracts"]
    assert len(new) == 1, new
    return p, os.path.join(runs, new[0])


# Most is tried in forks of one Python that has imported JAX: each makes its own device. What is said of a second
# process (C2), of several plugins and of how the guard gets into a program (L2, G6) is tried in a Python of its own.
forked = functools.cache(lambda: _warm.python(TMP))


def case(name, phase="", **kw):
    return run(name, forked(), CASES, name, phase, **kw)


def compiles(folder):
    out = subprocess.run([XLANE, "explain", "--json", folder], text=True, capture_output=True, check=True)
    return json.loads(out.stdout)


def step_of(folder):
    return [e for e in compiles(folder) if e["module"] == "jit_step"]


def line_of(tag):
    for n, text in enumerate(open(CASES), 1):
        if text.rstrip().endswith("# LINE " + tag):
            return n
    raise KeyError(tag)


def cause(name, reason, /, line=None, **detail):
    """The last compile of jit_step has this reason, and some detail of it has these members and the planted line."""
    @checked("G1_" + name)
    def _():
        _, folder = case(name, env=detail.pop("env", None))
        last = step_of(folder)[-1]
        assert last["reason"] == reason, json.dumps(last, indent=1)
        if not detail and not line:
            return
        for d in last["detail"]:
            if all(str(d.get(k)) == str(v) for k, v in detail.items()):
                if not line or re.search(r"cases\.py:%d$" % line_of(name), d.get("where", "")):
                    return
        raise AssertionError(json.dumps(last, indent=1))


STEADY = """
import jax, jax.numpy as jnp
@jax.jit
def step(w, batch):
    return w - 0.1 * jnp.sum(batch) * w
w = jnp.ones((4,))
for n in [8] * 15 + [9] + [8] * 3:
    w = step(w, jnp.ones((n, 4)))
print(float(w[0]))
"""

TRAIN = """
import jax, jax.numpy as jnp
{comment}
@jax.jit
def step(w, x):
    {name} = jnp.tanh(x @ w)
    return w - 0.01 * x.T @ {name}, jnp.sum({name})
w = jnp.ones((16, 4)) / 7
x = jnp.sin(jnp.arange(128, dtype=jnp.float32)).reshape(8, 16)
for _ in range(4):
    w, loss = step(w, x)
print(loss.tobytes().hex(), w.tobytes().hex() if hasattr(w, "tobytes") else "")
"""


def script(name, text):
    path = os.path.join(TMP, name)
    with open(path, "w") as f:
        f.write(text)
    return path


TWO = """
import os, sys, time, jax, jax.numpy as jnp
jax.devices()
events = os.path.join(os.environ["XLANE_RUN"], "events.jsonl")
while "WAIT" in os.environ and '"ahead"' not in open(events).read():
    time.sleep(0.01)
x = jnp.ones((8, 16))
print(float(jax.jit(lambda x: jnp.tanh(x @ x.T).sum())(x)))
if sys.stdin.read() == "both":
    print(float(jax.jit(lambda x: jnp.sin(x.T @ x).sum())(x)))
"""


@checked("C2_loaded_ahead")
def _():
    """The second process of a command loads the programs of the first before they are asked for; what is not asked for
    again is let go, and a broken entry is the miss that it would be without. A program that is asked for before its turn
    is loaded by whoever asks, so the script waits until all had theirs."""
    cache, runs, path = os.path.join(TMP, "cache-ahead"), os.path.join(TMP, "runs-ahead"), script("two.py", TWO)

    def once(name, what, **env):
        p = subprocess.run([XLANE, "run", "--runs", runs, "--cache", cache, "--name", name, "--", forked(), path],
                           text=True, input=what,
                           capture_output=True, env=environment(**env), timeout=300)
        assert p.returncode == 0, p.stderr
        folder, = (os.path.join(runs, d) for d in os.listdir(runs) if d.endswith("-" + name))
        events = [json.loads(line) for line in open(os.path.join(folder, "events.jsonl"))]
        lambdas = [e for e in events if e["event"] == "compile" and e["module"].startswith("jit__lambda")]
        return p.stdout, lambdas, [e["programs"] for e in events if e["event"] == "ahead"]
    out, made, ahead = once("cold", "both")
    assert len(made) == 2 and not ahead and not any(e.get("ahead") for e in made), (made, ahead)
    again, made, ahead = once("warm", "both", WAIT=1)
    assert again == out and ahead and ahead[0] >= 2 and all(e["result"] == "cached" and e.get("ahead") for e
                                                            in made), (made, ahead)
    one, made, ahead = once("one", "", WAIT=1)
    assert one == out.splitlines(True)[0] and ahead and len(made) == 1 and made[0]["ahead"], (made, ahead)
    _, made, after = once("after", "both", WAIT=1)
    assert after[0] == ahead[0] - 1 and [bool(e.get("ahead")) for e in made] == [True,
        False] and made[1]["result"] == "cached", (made, after)
    off, made, ahead = once("off", "both", XLANE_AHEAD="off")
    assert off == out and not ahead and all(e["result"] == "cached" and not e.get("ahead") for e in made), (made, ahead)
    for entry in glob.glob(os.path.join(cache, "??", "*.xle")):
        with open(entry, "r+b") as f:
            f.seek(-1, 2)
            last = f.read(1)
            f.seek(-1, 2)
            f.write(bytes([last[0] ^ 1]))
    bad, made, ahead = once("bad", "both", WAIT=1)
    assert bad == out and ahead == [0] and all(e["result"] == "compiled" and e["cache_reason"] == "unreadable" for e
                                               in made), (made, ahead)


@checked("C2_second_process_compiles_nothing_same_bits")
def _():
    cache, runs = os.path.join(TMP, "cache-warm"), os.path.join(TMP, "runs-warm")
    one = script("train.py", TRAIN.format(comment="", name="h"))
    a, cold = run("cold", sys.executable, one, cache=cache, runs=runs)
    b, warm = run("warm", sys.executable, one, cache=cache, runs=runs)
    assert a.stdout == b.stdout and len(a.stdout) > 40, (a.stdout, b.stdout)
    assert {e["result"] for e in compiles(cold)} == {"compiled"}, compiles(cold)
    assert {e["result"] for e in compiles(warm)} == {"cached"}, compiles(warm)
    two = script("moved.py", TRAIN.format(comment="# moved\n\n# three lines down\n", name="hidden_state"))
    c, moved = run("moved", sys.executable, two, cache=cache, runs=runs)
    assert c.stdout == a.stdout
    assert {e["result"] for e in compiles(moved)} == {"cached"}, compiles(moved)
    plain = subprocess.run([sys.executable, one], text=True, capture_output=True, env=environment())
    assert plain.stdout == a.stdout, plain.stderr
    d, other = run("flag", sys.executable, one, cache=cache, runs=runs,
                   env={"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"})
    steps = step_of(other)
    assert steps[-1]["result"] == "compiled" and steps[-1]["cache_reason"] in ("flags", "options"), steps
    assert "fast_math" in steps[-1]["cache_detail"], steps
    verify = subprocess.run([XLANE, "cache", "verify", "--cache", cache], text=True, capture_output=True,
                            env=environment())
    assert verify.returncode == 0, verify.stdout


cause("longer_batch", "shape", line=True, name="batch", dim=0, before=8, after=16)
cause("dtype_change", "dtype", name="batch", before="f32", after="bf16")
cause("baked_float", "constant", line=True)
cause("hidden_branch", "op", line=True)
cause("dropped_donation", "donation", arg=0)
cause("other_sharding", "sharding", arg=0, env={"XLANE_CPU_DEVICES": 2})
cause("config_value", "identical")
cause("weak_scalar", "weak-type", line=True, name="scale", before="a Python number", after="an array or NumPy number")
cause("gather_constant", "constant", line=True)
cause("reordered_arguments", "shape", arg=0)
cause("layer_count", "op", line=True)
cause("other_precision", "op", line=True)
cause("shape_from_data", "shape", line=True, name="batch", dim=0, before=8, after=5)


def further_causes():
    """More kinds of causes, in one process: each case says what it planted and on which line."""
    more = os.path.join(HERE, "guard", "more.py")
    p, folder = run("more", forked(), more, env={"XLANE_CPU_DEVICES": 8})
    planted, compiled = json.loads(p.stdout), compiles(folder)
    assert len(planted) > 60, p.stdout

    def judge(name, want):
        last = [e for e in compiled if e["module"] == "jit_" + name][-1]
        assert last["reason"] == want["reason"], json.dumps(last, indent=1)
        where = "more.py:%d" % want["line"] if want["line"] else ""
        for d in last["detail"] or [{}]:
            if all(str(d.get(k)) == str(v) for k, v in want["detail"].items()) and d.get("where", "").endswith(where):
                return
        raise AssertionError(json.dumps([want, last], indent=1))
    for name, want in planted.items():
        checked("G1_" + name)(functools.partial(judge, name, want))


further_causes()


@checked("G1_other_flag")
def _():
    runs = os.path.join(TMP, "runs-flags")
    case("other_flag", runs=runs)
    _, folder = case("other_flag", runs=runs, env={"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"})
    last = step_of(folder)[-1]
    assert last["reason"] in ("options", "flags") and "fast_math" in last["words"], last


@checked("G1_new_plugin_version")
def _():
    runs, other = os.path.join(TMP, "runs-plugin"), os.path.join(TMP, "libother.so")
    shutil.copy(PLUGIN, other)
    with open(other, "ab") as f:
        f.write(b"newer")
    case("new_plugin", runs=runs)
    _, folder = case("new_plugin", runs=runs, plugin=other)
    assert step_of(folder)[-1]["reason"] == "plugin", step_of(folder)


@checked("G5_a_rank_that_built_another_graph")
def _():
    runs = os.path.join(TMP, "runs-rank")
    _, zero = case("rank_branch", runs=runs, env={"RANK": 0})
    _, one = case("rank_branch", runs=runs, env={"RANK": 1})
    out = subprocess.run([XLANE, "explain", zero, one], text=True, capture_output=True, check=True).stdout
    assert "exponential" in out and "cases.py:%d" % line_of("rank_branch") in out, out


@checked("G3_policy_stop_ends_with_the_reason_in_the_traceback")
def _():
    path = script("steady.py", STEADY)
    p, folder = run("stop", sys.executable, path, args=("--policy", "stop", "--warmup", "5"), status=3)
    assert "Traceback" in p.stderr and "argument `batch`: dimension 0 changed from 8 to 9" in p.stderr, p.stderr[-2000:]
    assert "jit_step changed: shape: argument" in p.stderr and "compiled again" not in p.stderr, p.stderr[-2000:]
    said = subprocess.run([XLANE, "explain", folder], text=True, capture_output=True, check=True).stdout
    stopped = "xlane stopped it, as --policy=stop says: jit_step changed: shape: argument `batch`: dimension 0 changed"
    assert said.startswith(stopped) and "failed with" not in said, said
    warm, loaded = ("--policy", "warn", "--warmup", "5"), "jit_step changed, and was loaded from the cache: shape: arg"
    p, folder = run("warn", forked(), path, args=warm, cache=os.path.join(TMP, "steady-cache"))
    assert "jit_step is compiled again: shape: argument" in p.stderr and "loaded from" not in p.stderr, p.stderr
    assert "; called at %s:8; remedy" % path in p.stderr, p.stderr
    said = subprocess.run([XLANE, "explain", folder], text=True, capture_output=True, check=True).stdout
    assert said.count("called at") == 1 and "             called at %s:8\n" % path in said, said
    p, _ = run("warm", forked(), path, args=warm, cache=os.path.join(TMP, "steady-cache"))
    assert loaded in p.stderr and "compiled again" not in p.stderr, p.stderr
    steady = [e for e in step_of(folder) if e["phase"] == "steady"]
    assert len(steady) == 1 and steady[0]["reason"] == "shape", step_of(folder)
    p, folder = run("compiles", forked(), path, args=("--warmup-compiles", "1000"))
    assert not [e for e in step_of(folder) if e["phase"] == "steady"], step_of(folder)
    p, folder = run("compiles", forked(), path, args=("--policy", "stop", "--warmup", "1000", "--warmup-compiles",
                                                            "2"), status=3)


INITIALISED = """
import jax, jax.numpy as jnp, time
@jax.jit
def init(key, like):
    return jax.random.normal(key, like.shape) * 0.1
ps = [init(jax.random.key(0), jnp.ones(s)) for s in ((8, 4), (4, 8), (8, 8), (3, 3), (5, 5))]
@jax.jit
def heavy(x):
    return jax.lax.fori_loop(0, 60, lambda i, x: jnp.tanh(x @ x), x)
heavy(jnp.ones((700, 700)) / 700).block_until_ready()      # one slow call does not make a step of it
def make(scale):
    @jax.jit
    def step(w, x):
        def loss(w):
            h = jax.nn.softmax(jnp.tanh(x @ w) @ w.T @ w)
            return -jnp.log(h).mean() * scale  # HERE
        return w - 0.1 * jax.grad(loss)(w)
    return step
w, step = ps[1], make(0.5)
for i in range(24):
    if i == 18:
        step = make(0.25)
    w = step(w, ps[0])
print(float(w[0, 0]))
"""


@checked("G2_initialisers_answer_no_question_and_one_slow_call_makes_no_step")
def _():
    path = script("initialised.py", INITIALISED)
    _, folder = run("initialised", forked(), path)
    text = subprocess.run([XLANE, "explain", folder], text=True, capture_output=True, check=True).stdout
    here = [n for n, text in enumerate(INITIALISED.splitlines(), 1) if text.endswith("# HERE")][0]
    assert re.search(r"jit_step .* steady, constant \(step 19\)\n +constant 0.5 -> 0.25 \(`scale`\), .*initialised.py:%d.*\n"
                     % here, text), text
    assert re.search(r"shapes or dtypes change\? +no\n.*change\?   no\n.*active\? +no\n.*into it change\? +yes",
                     text), text
    assert "jit_init" not in text and "--all lists them" in text, text
    everything = subprocess.run([XLANE, "explain", "--all", folder], text=True, capture_output=True, check=True).stdout
    assert everything.count("jit_init ") == 5, everything


RACE = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
static pthread_barrier_t both;
static void *get(void *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    pthread_barrier_wait(&both);
    void *f = lib ? dlsym(lib, "GetPjrtApi") : 0;
    Dl_info where;
    return f && dladdr(f, &where) && strstr(where.dli_fname, "guard") ? path : 0;
}
int main(int argc, char **argv)
{
    (void)argc;
    pthread_t t[16];
    void *ok;
    int n = 0;
    pthread_barrier_init(&both, 0, 16);
    for (int i = 0; i < 16; i++) pthread_create(&t[i], 0, get, argv[i % 2 + 1]);
    for (int i = 0; i < 16; i++) pthread_join(t[i], &ok), n += !!ok;
    printf("%d\n", n);
}
"""


@checked("G6_plugins_opened_at_one_moment_are_all_guarded")
def _():
    source, exe, other = script("race.c", RACE), os.path.join(TMP, "race"), os.path.join(TMP, "other-cpu.so")
    subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", source, "-o", exe, "-ldl", "-lpthread"], check=True)
    shutil.copy(PLUGIN, other)
    for i in range(10):
        p, folder = run("race%d" % i, exe, PLUGIN, other)
        assert p.stdout == "16\n", (i, p.stdout, p.stderr)


@checked("G3_each_process_has_its_own_file_for_the_scraper")
def _():
    one = script("train.py", TRAIN.format(comment="", name="h"))
    both = script("both.sh", "%s %s >/dev/null & %s %s >/dev/null; wait\n" % (sys.executable, one, sys.executable, one))
    run("both", "sh", both, args=["--prometheus", os.path.join(TMP, "lane.prom")])
    files = sorted(f for f in os.listdir(TMP) if f.startswith("lane") and f.endswith(".prom"))
    pids = {re.search(r'xlane_compile_time_seconds_count{rank="0",pid="(\d+)"} [1-9]',
                      open(os.path.join(TMP, f)).read())[1] for f in files}
    assert len(files) == 2 and len(pids) == 2 and "lane.prom" in files, (files, pids)


@checked("L2_W11_late_flags_are_reported")
def _():
    path = script("late.py",
                  "import jax, jax.numpy as jnp, os\njnp.ones(3) + 1\nos.environ['XLA_FLAGS'] = '--xla_late=1'\n"
                             "print(jnp.ones(4) * 2)\n")
    p, folder = run("late", sys.executable, path)
    assert "xla_late" in p.stderr, p.stderr
    events = [json.loads(line) for line in open(os.path.join(folder, "events.jsonl"))]
    assert any(e["event"] == "late-flag" for e in events)
    path = script("dump.py", "import jax, jax.numpy as jnp, os\njnp.ones(3) + 1\nos.environ['XLA_FLAGS'] = '--xla_dump_to=/nowhere'\n"
                             "print(jnp.ones(4) * 2)\n")
    p, folder = run("dump", sys.executable, path)
    explained = subprocess.run([XLANE, "explain", folder], text=True, capture_output=True, check=True).stdout
    assert "xla_dump_to" in p.stderr and "late-flag: " in explained and "xla_dump_to" in explained, (p.stderr,
        explained)
    assert "XLANE_CPU_DEVICES" not in p.stderr + explained, (p.stderr, explained)
    p, folder = run("early", sys.executable, path, env={"XLA_FLAGS": "--xla_dump_to=/nowhere"})
    assert "has no effect" not in p.stderr, p.stderr


@checked("L2_devices_of_the_cpu_that_the_program_asks_for_are_those_of_the_embedded_one")
def _():
    flag = "os.environ['XLA_FLAGS'] = '--xla_dump_to=/nowhere --xla_force_host_platform_device_count=4'\n"
    config = "jax.config.update('jax_num_cpu_devices', 3)\n"
    say = "print(jax.device_count(), jax.jit(jnp.sum)(jnp.ones(3)), jax.devices()[0].platform)\n"
    begin = "import os, jax, jax.numpy as jnp\n"
    shows, late = "the embedded device shows %s devices, since %s asks for as many of the CPU", "has no effect"
    for name, text, n, by, env in (("flag", "import os\n" + flag + begin, 4, "XLA_FLAGS", {}),
                                   ("config", begin + config, 3, "jax_num_cpu_devices", {}),
                                   ("then", begin + flag, 4, "XLA_FLAGS", {}),
                                   ("both", begin + flag + config, 3, "jax_num_cpu_devices", {}),
                                   ("given", begin + config, 2, None, {"XLANE_CPU_DEVICES": 2}),
                                   ("one", begin, 1, None, {})):
        with open(os.path.join(TMP, "asks.py"), "w") as f:
            f.write(text + say)
        p, _ = run("asks_" + name, sys.executable, f.name, env=env)
        assert p.stdout == "%d 3.0 xlane\n" % n and late not in p.stderr, (name, p.stdout, p.stderr)
        assert shows % (n, by) in p.stderr if by else "embedded device shows" not in p.stderr, (name, p.stderr)
    with open(os.path.join(TMP, "asks.py"), "w") as f:
        f.write(begin + "jnp.ones(3) + 1\n" + flag + say)     # there is a client
    p, folder = run("asks_late", sys.executable, f.name)
    assert p.stdout == "1 3.0 xlane\n" and "embedded device shows" not in p.stderr, (p.stdout, p.stderr)
    assert late in p.stderr and "; the number of embedded CPU devices is XLANE_CPU_DEVICES" in p.stderr, p.stderr


@checked("G3_metrics_and_memory")
def _():
    _, folder = case("other_flag")
    text = subprocess.run([XLANE, "metrics", folder], text=True, capture_output=True, check=True).stdout
    assert "Metric: CompileTime" in text and "Metric: ExecuteTime" in text and "Counter: InboundData" in text, text
    memory = json.loads(subprocess.run([XLANE, "memory", "--json", folder], text=True, capture_output=True,
                                       check=True).stdout)
    # the last sample may come after JAX let go of all
    assert memory["devices"] and memory["devices"][0]["peak_bytes_in_use"] > 0, memory
    path = script("peak.py", """
import time, jax, jax.numpy as jnp
step = jax.jit(lambda w: w + 1)
w = jnp.ones(8)
def run(n):
    global w
    for _ in range(n):
        w = step(w).block_until_ready()
        time.sleep(0.1)
run(6)
big = [jnp.ones(1 << 20).block_until_ready() for _ in range(4)]
run(6)
del big
run(12)
print(jax.devices()[0].memory_stats()["peak_bytes_in_use"] >= 16 << 20)
""")
    p, folder = run("peak", forked(), path)
    lines = [line.split(",") for line in open(os.path.join(folder, "memory.csv")).read().splitlines()]
    since = [int(f[9]) for f in lines[1:]]
    assert max(int(f[5]) for f in lines[1:]) >= 16 << 20, lines
    assert lines[0][9] == "peak_since_last" and max(since) >= 16 << 20 and since[-1] < 16 << 20 <= int(lines[-1][6]), lines
    assert p.stdout == "True\n", p.stdout                 # the program's own peak was not reset


@checked("L2_what_cannot_be_guarded_is_said")
def _():
    advice = "On this machine's CPU, `xlane run --profile=cpu` takes the embedded device, which is guarded"
    clean = {"JAX_PLATFORMS": "", "PJRT_NAMES_AND_LIBRARY_PATHS": ""}
    p, _ = run("plain", "true", env=clean)
    assert "nothing was guarded" in p.stderr and advice in p.stderr, p.stderr
    p, _ = run("unused", "true")                          # a plugin is named already
    assert "nothing was guarded" in p.stderr and advice not in p.stderr, p.stderr
    p, _ = run("status", "sh", "-c", "exit 7", status=7)
    step = "import jax, jax.numpy as jnp; print(jax.jit(jnp.sum)(jnp.ones(3)), jax.devices()[0].platform)"
    p, _ = run("builtin", sys.executable, "-c", step + "; raise SystemExit(3)", env=clean, status=3)
    assert p.stdout == "3.0 cpu\n" and p.stderr.count("built-in cpu") == 2 and "takes the embedded CPU" in p.stderr \
        and p.stderr.endswith("xlane: JAX used its built-in cpu backend; nothing was guarded\n") \
        and advice not in p.stderr, (p.stdout, p.stderr)      # the remedy once, when it happens
    by_config = step.replace("import jax,", "import jax; jax.config.update('jax_platforms', 'cpu'); import")
    by_variable = "import os; os.environ['JAX_PLATFORMS'] = 'cpu'; " + step
    for itself in by_config, by_variable:
        p, _ = run("itself", sys.executable, "-c", itself)
        assert "cpu backend, as the program chose it itself over xlane; " in p.stderr and "--profile=cpu" not in p.stderr \
            and "leave jax_platforms (or JAX_PLATFORMS) as it was launched" in p.stderr, p.stderr
    if not glob.glob("/dev/nvidia[0-9]*"):
        p, _ = run("no_gpu", sys.executable, "-c", step, env=dict(clean, JAX_PLATFORMS="cuda,cpu"))
        assert p.stdout == "3.0 cpu\n" and "cpu backend, since it found no GPU (cuda,cpu); " in p.stderr, p.stderr
    p = subprocess.run([XLANE, "run", "--profile=cpu", "--cache=off", "--runs", TMP + "/advice", "--", sys.executable,
                        "-c", step],
                       env={k: v for k, v in os.environ.items() if k not in clean}, capture_output=True, text=True)
    assert p.stdout == "3.0 xlane\n" and "nothing was guarded" not in p.stderr, (p.stdout, p.stderr)
    assert "which is guarded" not in p.stderr and glob.glob(TMP + "/advice/2*/events.jsonl"), p.stderr
    with open(glob.glob(TMP + "/advice/2*/events.jsonl")[0]) as f:     # and it is: a compile is on record
        assert any(json.loads(line)["event"] == "compile" for line in f), folder
    p, _ = run("off", sys.executable, CASES, "other_flag", env={"XLANE_GUARD": "off"})
    assert p.stderr.count("nothing was guarded") == 1 and "the guard was off (XLANE_GUARD=off)" in p.stderr, p.stderr


@checked("G6_named_as_the_plugin_itself")
def _():
    env = environment(os.path.join(BUILD, "libxlane-guard.so"), XLANE_GUARD_PLUGIN=PLUGIN,
                      XLANE_RUN=os.path.join(TMP, "direct"), XLANE_WATCH_AFTER="few")
    os.mkdir(os.path.join(TMP, "direct"))
    p = subprocess.run([sys.executable, CASES, "other_flag"], text=True, capture_output=True, env=env)
    assert p.returncode == 0, p.stderr
    assert step_of(os.path.join(TMP, "direct")), "no compile was recorded"
    assert p.stderr.count("XLANE_WATCH_AFTER=few: not a number of at least 0: change it, or unset it; until then its "
                          "default holds") == 1, p.stderr


@checked("L2_by_TPU_LIBRARY_PATH")
def _():
    folder = os.path.join(TMP, "by-path")
    os.mkdir(folder)
    env = environment(JAX_PLATFORMS="tpu", TPU_LIBRARY_PATH=os.path.join(BUILD, "libxlane-guard.so"),
                      XLANE_GUARD_PLUGIN=PLUGIN, XLANE_RUN=folder,
                      TPU_SKIP_MDS_QUERY=1)
    p = subprocess.run([sys.executable, CASES, "other_flag"], text=True, capture_output=True, env=env)
    assert p.returncode == 0, p.stderr
    assert step_of(folder), "no compile was recorded"
    assert "default holds" not in p.stderr, p.stderr


@checked("L2_several_plugins_in_one_process")
def _():
    other = os.path.join(TMP, "libsecond.so")
    shutil.copy(PLUGIN, other)
    path = script("two.py", "import jax, jax.numpy as jnp\nfor p in 'xlane', 'second':\n    x = jax.device_put(jnp.ones(4), jax.devices(p)[0])\n"
                            "    print(float(jax.jit(lambda v: jnp.sum(v * 3))(x)))\n")
    p, folder = run("two", sys.executable, path, plugin=PLUGIN + ",second:" + other,
                    env={"JAX_PLATFORMS": "xlane,second"})
    attached = [json.loads(line) for line in open(os.path.join(folder, "events.jsonl"))]
    assert [e["plugin"] for e in attached if e["event"] == "attach"] == [PLUGIN,
        other] and p.stdout == "12.0\n12.0\n", (p.stdout, attached)


@checked("C3_a_program_that_is_rewritten_as_it_compiles_does_not_come_from_the_cache")
def _():
    path = script("rewritten.py", """import sys, jax, jax.numpy as jnp, jax.extend.xla as xla
if len(sys.argv) > 1:
    xla.register_hlo_module_transformation(lambda code: code.replace(b"\\x12\\x04sine", b"\\x12\\x04tanh"), name="t",
                                           platforms="xlane")
print("%.3f" % jax.jit(lambda v: jnp.sin(v).sum())(jnp.ones(4)))
""")
    said = []
    for args in (), (), ("rewrite",), ():
        p, folder = run("rewritten", forked(), path, *args, cache=os.path.join(TMP, "rewritten-cache"))
        said.append((p.stdout.strip(), [e["result"] for e in compiles(folder) if "lambda" in e["module"]]))
    assert said == [("3.366", ["compiled"]), ("3.366", ["cached"]), ("3.046", ["compiled"]),
                    ("3.366", ["cached"])], said


@checked("C3_a_follower_without_a_folder_runs")
def _():
    p, _ = run("follower", "true", cache=os.path.join(TMP, "not-there"), args=("--cache-read-only",))
    assert "is not there yet" in p.stderr and not os.path.exists(os.path.join(TMP, "not-there")), p.stderr


@checked("C5_bad_folders_are_refused_before_the_start")
def _():
    bad = os.path.join(TMP, "open-to-all")
    os.mkdir(bad)
    os.chmod(bad, 0o777)
    for cache, words in [(bad, "refused"), ("gs://bucket/dir", "cache export")]:
        p = subprocess.run([XLANE, "run", "--cache", cache, "--", "true"], text=True, capture_output=True,
                           env=environment(), cwd=TMP)
        assert p.returncode == 1 and words in p.stderr, (p.returncode, p.stderr)


shutil.rmtree(TMP, ignore_errors=True)
sys.exit(end())
