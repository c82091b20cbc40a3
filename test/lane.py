"""Launch policy, retries, receipts, locks and the matrix, under unmodified JAX on the embedded device. Rows L1-L6, M4, M5, B2, B3, X1-X3."""
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
TMP = tempfile.mkdtemp(prefix="xlane-lane-")
KEEP = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "LIBTPU_", "PJRT_", "TPU_", "JAX_", "PT_XLA_",
    "XLANE_"))}


def xlane(*args, status=0, env=None, stdin=None, cwd=TMP):
    e = dict(KEEP, XDG_CONFIG_HOME=os.path.join(TMP, "config"), XLANE_STATE=os.path.join(TMP, "state"),
             TPU_SKIP_MDS_QUERY="1")
    e.update({k: str(v) for k, v in (env or {}).items()})
    p = subprocess.run([XLANE, *args], text=True, capture_output=True, env=e, timeout=300, cwd=cwd, input=stdin)
    if status is not None and p.returncode != status:
        raise AssertionError("exit status %d, not %d\n%s%s" % (p.returncode, status, p.stdout[-2000:],
            p.stderr[-3000:]))
    return p


def run(name, *cmd, args=(), env=None, status=0):
    runs = os.path.join(TMP, "runs")
    before = set(os.listdir(runs)) if os.path.isdir(runs) else set()
    p = xlane("run", "--runs", runs, "--name", name, *(args if "--cache" in args else ("--cache", "off", *args)), "--",
              *cmd, env=env, status=status)
    new = [d for d in os.listdir(runs) if d not in before and d != "contracts"]
    assert len(new) == 1, new
    return p, os.path.join(runs, new[0])


forked = functools.cache(lambda: _warm.python(TMP))    # for retries and for what moved between runs


def events(folder, what):
    return [e for e in map(json.loads, open(os.path.join(folder, "events.jsonl"))) if e["event"] == what]


def script(name, text):
    path = os.path.join(TMP, name)
    with open(path, "w") as f:
        f.write(text)
    return path


STEP = script("step.py", """
import argparse, os, sys
import jax, jax.numpy as jnp
p = argparse.ArgumentParser()
p.add_argument("--n", type=int, default=64)
p.add_argument("--die", default="")
p.add_argument("--steps", type=int, default=4)
a = p.parse_args()
if a.die == "busy" and os.environ.get("XLANE_ATTEMPT") == "1":
    sys.exit("RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 77.")
f = jax.jit(lambda x: jnp.tanh(x @ x + x) * 2 - jnp.cos(x) + x * x - jnp.sin(x))
x = jnp.ones((a.n, a.n))
for i in range(a.steps):
    x = f(x)
if a.die == "late":
    sys.exit("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.")
print(float(x[0, 0]))
""")


def profile(name, text):
    os.makedirs(os.path.join(TMP, ".xlane", "profiles"), exist_ok=True)
    with open(os.path.join(TMP, ".xlane", "profiles", name + ".yaml"), "w") as f:
        f.write(text)


@checked("L1_list_show_diff")
def _():
    names = {r["name"] for r in json.loads(xlane("profile", "list", "--json").stdout)}
    assert {"cpu", "cuda", "tpu-v5e", "tpu-v6e", "tpu-v6e-spmd", "debug-recompile"} <= names, names
    values = json.loads(xlane("profile", "show", "tpu-v6e-spmd", "--json",
                              env={"XLA_FLAGS": "--xla_dump_to=x"}).stdout)["values"]
    assert values["spmd.enabled"]["origin"].startswith("built-in tpu-v6e-spmd.yaml:"), values
    assert values["device.pjrt_device"]["origin"].startswith("built-in tpu.yaml:"), values
    assert values["flags.xla.xla_dump_to"]["origin"] == "environment", values
    assert values["shapes.warmup"]["origin"] == "default", values
    moved = json.loads(xlane("profile", "diff", "tpu-v6e", "tpu-v6e-spmd", "--json", status=1).stdout)
    assert "spmd.enabled" in {m["name"] for m in moved}, moved
    moved = json.loads(xlane("profile", "diff", "cuda", "cuda-short", "--json", status=1).stdout)
    assert [m["name"] for m in moved] == ["device.preallocate"], moved
    assert xlane("profile", "diff", "cpu", "cpu").stdout == "the same values\n"


@checked("L1_bad_profiles_are_clear")
def _():
    profile("a", "inherits: b\n")
    profile("b", "inherits: a\n")
    assert "in a circle: a inherits b inherits a" in xlane("profile", "show", "a", status=1).stderr
    assert "did you mean 'cuda'" in xlane("run", "--profile", "cda", "--", "true", status=2).stderr
    profile("typo", "devise:\n  plugin: cpu\n")
    assert "devise: unknown key; the nearest known one is 'device'" in xlane("profile", "show", "typo", status=1).stderr
    profile("broken", "device: [\n")
    assert "broken.yaml:" in xlane("profile", "show", "broken", status=1).stderr


@checked("L1_a_plugin_that_cannot_be_read")
def _():
    profile("nofile", "about: a test\ndevice:\n  plugin: /nope/x.so\n")
    profile("notext", "device:\n  plugin: /etc/passwd\n")
    profile("nosymbol", "device:\n  plugin: %s\n" % os.path.join(BUILD, "test", "plugins", "nosymbol.so"))
    for name, line, why in (("nofile", 3, "/nope/x.so"), ("notext", 2, "/etc/passwd")):
        p = xlane("profile", "check", name, status=1)
        assert "wrong  .xlane/profiles/%s.yaml:%d: device.plugin: " % (name,
            line) in p.stdout and why in p.stdout, p.stdout
        assert "checked against " + why not in p.stdout, p.stdout
        got = json.loads(xlane("profile", "check", name, "--json", status=1).stdout)
        assert why in got["not_checked"] and got["plugin"] is None and any(f["fatal"] for f in got["findings"]), got
        p = xlane("profile", "check", "cpu", "--plugin=" + why, status=1)
        assert why in p.stderr and "--plugin=PATH names another" in p.stderr and not p.stdout, (p.stdout, p.stderr)
    p = xlane("profile", "check", "cpu", "--plugin=" + PLUGIN)
    assert "checked against " + PLUGIN in p.stdout and "wrong  " not in p.stdout, p.stdout
    for name, line, why in (("nofile", 3, "/nope/x.so: no such file"),
                            ("notext", 2, "/etc/passwd: not a shared library"),
                            ("nosymbol", 2, "it exports no GetPjrtApi")):
        p = xlane("run", "--profile", name, "--cache=off", "--", "echo", "it", "ran", status=1)
        assert ".xlane/profiles/%s.yaml:%d: device.plugin: " % (name, line) in p.stderr and why in p.stderr, p.stderr
        assert "it ran" not in p.stdout, p.stdout
    profile("file", "device:\n  plugin: %s\n" % PLUGIN)
    assert "it ran" in xlane("run", "--profile", "file", "--cache=off", "--", "echo", "it", "ran").stdout


@checked("L2_a_profile_is_applied_before_the_runtime")
def _():
    profile("mine", "inherits: cpu\nspmd:\n  enabled: true\nflags:\n  environment:\n    TPU_SOMETHING: here\nshapes:\n  policy: stop\n")
    look = script("look.py", "import os\nprint(os.environ['XLA_USE_SPMD'], os.environ['TPU_SOMETHING'], os.environ['XLANE_POLICY'], os.environ['XLANE_PROFILE'])\n")
    p, folder = run("look", sys.executable, look, args=("--profile", "mine"))
    words = p.stdout.split()
    assert words[:3] == ["1", "here",
                         "stop"] and words[3].startswith("mine@") and not words[3].endswith("none"), p.stdout
    p, _ = run("look", sys.executable, look, args=("--profile", "mine", "--policy", "allow"), env={"XLA_USE_SPMD": "0"})
    assert p.stdout.split()[:3] == ["1", "here", "allow"], p.stdout
    assert "the environment's 0 does not count" in p.stderr, p.stderr
    p, folder = run("step", forked(), STEP, args=("--profile", "mine"))
    about = json.load(open(os.path.join(folder, "run.json")))
    assert about["profile"].startswith("mine@") and "TPU_SOMETHING=here" in about["flags_at_load"], about
    assert about["launch"]["values"]["spmd.enabled"]["origin"].endswith("mine.yaml:3"), about["launch"]


@checked("L3_spmd_after_the_first_tensor_is_reported")
def _():
    late = script("late.py", "import os, jax, jax.numpy as jnp\nx = jnp.asarray([1.0, 2.0]) + 1\nos.environ['XLA_USE_SPMD'] = '1'\nprint(jnp.sin(x) * 2)\n")
    p, folder = run("late", sys.executable, late, args=("--profile", "cpu"))
    assert "SPMD was switched on after the first tensor" in p.stderr, p.stderr
    assert len(events(folder, "late-spmd")) == 1


@checked("L4_diagnostic_runs_are_marked_everywhere")
def _():
    profile("diag", "inherits: [cpu, debug-recompile]\n")
    p, folder = run("diag", sys.executable, STEP, args=("--profile", "diag", "--summary"))
    _, plain = run("plain", forked(), STEP, args=("--profile", "cpu"))
    assert re.search(r"diagnostic: JAX_\w+=\w+ \(built-in debug-recompile[^)]*\) adds work", p.stderr), p.stderr
    assert "(environment) adds work" not in p.stderr and "profile diag says" not in p.stderr, p.stderr
    p, set_here = run("variable", sys.executable, STEP, args=("--profile", "cpu", "--summary"),
                      env={"JAX_LOG_COMPILES": "1"})
    assert "diagnostic: JAX_LOG_COMPILES=1 (environment) adds work: " in p.stderr, p.stderr
    out = xlane("metrics", set_here).stdout
    assert out.startswith("DIAGNOSTIC RUN (JAX_LOG_COMPILES=1, set in the environment): "), out
    for out in (xlane("explain", folder).stdout, xlane("explain", plain, folder).stdout,
                xlane("metrics", folder).stdout):
        assert out.startswith("DIAGNOSTIC RUN (profile diag): "), out
    assert "diagnostic profile" in xlane("receipt", "show", folder).stdout
    assert json.loads(xlane("metrics", folder, "--json").stdout)["diagnostic"] is True
    assert not xlane("explain", plain).stdout.startswith("DIAGNOSTIC")


@checked("L4_a_flag_that_the_device_does_not_read_is_no_diagnostic")
def _():
    flags = {"XLA_FLAGS": "--xla_dump_to=" + os.path.join(TMP, "dump")}
    p, folder = run("unread", forked(), STEP, args=("--profile", "cpu", "--summary"), env=flags)
    assert "diagnostic" not in p.stderr and not xlane("explain", folder).stdout.startswith("DIAGNOSTIC"), p.stderr
    assert json.load(open(os.path.join(folder, "run.json")))["diagnostic"] is False
    assert "diagnostic" not in xlane("receipt", "show", folder).stdout
    assert "(diagnostic" not in xlane("profile", "show", "cpu", env=flags).stdout
    # Known only when it ran: nothing names a plugin here.
    named = dict(flags, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + PLUGIN)
    p, folder = run("unread2", sys.executable, STEP, args=("--summary",), env=named)
    assert "diagnostic" not in p.stderr and not xlane("explain", folder).stdout.startswith("DIAGNOSTIC"), p.stderr
    # Of another device, and of one that is not known.
    assert "(diagnostic" in xlane("profile", "show", "cuda", env=flags).stdout
    p, folder = run("read", "true", args=("--summary",), env=flags)
    said = "--xla_dump_to=%s in XLA_FLAGS" % os.path.join(TMP, "dump")
    assert "diagnostic: %s (environment) adds work: " % said in p.stderr, p.stderr
    about = json.load(open(os.path.join(folder, "run.json")))
    assert about["diagnostic"] is True and about["diagnostic_by"] == said, about
    assert "(diagnostic" not in xlane("profile", "show", "cuda",
                                      env={"LIBTPU_INIT_ARGS": "--xla_dump_to=x"}).stdout


@checked("L5_two_runs_say_what_moved")
def _():
    _, one = run("one", forked(), STEP, args=("--profile", "cpu"))
    _, two = run("two", forked(), STEP, args=("--profile", "cpu"))
    _, inputs = run("inputs", forked(), STEP, "--n", "48", args=("--profile", "cpu"))
    profile("other", "inherits: cpu\nspmd:\n  enabled: true\n")
    _, policy = run("policy", forked(), STEP, args=("--profile", "other"))
    moved = lambda a, b: {m["moved"] for m in json.loads(xlane("explain", a, b, "--json").stdout)}
    assert moved(one, two) == set(), moved(one, two)
    assert "inputs" in moved(one, inputs) and "profile" not in moved(one, inputs), moved(one, inputs)
    assert moved(one, policy) == {"profile"}, moved(one, policy)
    assert "spmd.enabled: not set -> 1" in xlane("explain", one, policy).stdout


@checked("L6_premapped_buffers_that_the_host_cannot_hold_are_refused")
def _():
    profile("big", "inherits: cpu\ndevice:\n  premapped_buffer: 4GiB\n  loader_memory: 2GiB\n  headroom: 1GiB\n")
    xlane("run", "--profile", "big", "--cache", "off", "--", "true", env={"XLANE_HOST_MEMORY": "8GiB"})
    p = xlane("run", "--profile", "big", "--cache", "off", "--", "true", env={"XLANE_HOST_MEMORY": "6GiB"}, status=1)
    assert "at most 3.00 GiB remain for TPU_PREMAPPED_BUFFER_SIZE; set device.premapped_buffer to 3221225472 or" \
        in p.stderr, p.stderr
    profile("odd", "inherits: cpu\ndevice:\n  premapped_buffer: 4097\n")
    assert "not a multiple of the page size" in xlane("run", "--profile", "odd", "--", "true", status=1).stderr


@checked("C3_a_diagnostic_profile_finds_the_same_executables")
def _():
    cache = os.path.join(TMP, "cache-profile")
    run("cold", forked(), STEP, args=("--profile", "cpu", "--cache", cache))
    _, warm = run("warm", sys.executable, STEP, args=("--profile", "diag", "--cache", cache))
    assert {e["result"] for e in events(warm, "compile")} == {"cached"}, events(warm, "compile")
    _, other = run("other", forked(), STEP, args=("--profile", "other", "--cache", cache))
    got = events(other, "compile")
    assert {e["result"] for e in got} == {"compiled"} and got[-1]["cache_reason"] == "profile", got[-1]


@checked("C3_segments_of_a_cache_are_listed_verified_and_pruned")
def _():
    cache = os.path.join(TMP, "cache-segments")
    run("seven", forked(), STEP, args=("--profile", "cpu", "--cache", cache, "--cache-segment", "host7"))
    text = xlane("cache", "ls", "--cache", cache).stdout
    n = int(re.search(r"^segment host7: (\d+) entr", text, re.M)[1])
    assert n and "\n%d entr" % n in text and ", %d of them in segments; 0 bad" % n in text, text
    assert "segment host7/ahead: 1 list of what a command loads ahead" in text, text
    got = json.loads(xlane("cache", "ls", "--json", "--cache", cache).stdout)
    assert not got["entries"] and [s["name"] for s in got["segments"]] == ["host7", "host7/ahead"], got
    assert len(got["segments"][0]["entries"]) == n and got["bytes"] == sum(s["bytes"] for s in got["segments"]), got
    run("root", forked(), STEP, args=("--profile", "cpu", "--cache", cache))
    assert "\n%d entries, " % (2 * n) in xlane("cache", "ls", "--cache", cache).stdout
    one = xlane("cache", "ls", "--cache", cache, "--cache-segment=host7").stdout
    assert "\n%d entr" % n in "\n" + one.splitlines()[-1] and "segment ahead" not in one, one
    p = xlane("cache", "ls", "--cache", cache, "--cache-segment=host8", status=1)
    assert "has no segment 'host8'; it has ahead, host7, host7/ahead" in p.stderr, p.stderr
    assert ", 0 of them" not in xlane("cache", "ls", "--cache", os.path.join(TMP, "cache-profile")).stdout
    xlane("cache", "verify", "--cache", cache)
    for part in "host7", "ahead":                          # one byte of an entry of each
        file = glob.glob(os.path.join(cache, "segment-" + part, "??", "*.xle"))[0]
        with open(file, "r+b") as f:
            f.seek(-40, 2)
            byte = f.read(1)
            f.seek(-40, 2)
            f.write(bytes([byte[0] ^ 1]))
        p = xlane("cache", "verify", "--cache", cache, status=1)
        digest = os.path.basename(os.path.dirname(file)) + os.path.basename(file)
        assert "BAD: " in p.stdout and digest[:12] in p.stdout and "segment %s: " % part in p.stdout, p.stdout
        assert "removed 1 entry" in xlane("cache", "prune", "--cache", cache).stdout and not os.path.exists(file)
        xlane("cache", "verify", "--cache", cache)
    packed = os.path.join(TMP, "segment.pack")
    assert "%d entr" % (n - 1) in xlane("cache", "export", packed, "--cache", cache, "--cache-segment=host7").stdout
    xlane("cache", "import", packed, "--cache", cache, "--cache-segment=host9")
    assert "segment host9: %d entr" % (n - 1) in xlane("cache", "ls", "--cache", cache).stdout
    xlane("cache", "prune", "--cache", cache, "--max=1", "--cache-segment=host9")
    text = xlane("cache", "ls", "--cache", cache).stdout
    assert "segment host9: 0 entries" in text and "segment host7: %d entr" % (n - 1) in text, text


@checked("M4_a_smaller_candidate_is_tried_in_the_compile_window")
def _():
    p, folder = run("smaller", forked(), STEP, "--n", "2048",
                    args=("--profile", "cpu", "--retries", "3", "--smaller", "--n 1024", "--smaller", "--n 128"),
                    env={"XLANE_CPU_HBM": "3MiB"})
    tries = events(folder, "retry")
    assert [(t["cause"], t["verdict"], t["phase"]) for t in tries] == [("compile_hbm", "smaller",
        "compile window")] * 2, tries
    assert all(t["ecode"] == "E1000" for t in tries), tries
    receipt = json.load(open(os.path.join(folder, "receipt.json")))
    assert receipt["claim"] == "viability" and any("3 attempts" in n["text"] for n
                                                   in receipt["notes"]), receipt["notes"]
    p, folder = run("none", forked(), STEP, "--n", "2048", args=("--profile", "cpu", "--retries", "3"),
                    env={"XLANE_CPU_HBM": "3MiB"}, status=1)
    assert "no smaller candidate was given" in p.stderr and len(events(folder, "retry")) == 1, p.stderr


@checked("M4_a_busy_device_is_tried_again_and_a_late_failure_never")
def _():
    p, folder = run("busy", forked(), STEP, "--die", "busy", args=("--profile", "cpu", "--retries", "2"))
    assert [(t["cause"], t["phase"]) for t in events(folder, "retry")] == [("held", "startup")], events(folder, "retry")
    p, folder = run("late", forked(), STEP, "--die", "late", args=("--profile", "cpu", "--retries", "2",
        "--smaller", "--n 8"), status=1)
    tries = events(folder, "retry")
    assert len(tries) == 1 and tries[0]["phase"] == "run" and not tries[0]["retry"], tries
    assert "after the compile window" in p.stderr, p.stderr
    p, folder = run("code", sys.executable, "-c", "import nothing_of_that_name", args=("--retries", "2"), status=1)
    tries = events(folder, "retry")
    assert len(tries) == 1 and tries[0]["verdict"] == "fix", tries


@checked("M4_classify_sees_through_a_coordination_error")
def _():
    text = "UNAVAILABLE: Failed to send RPC to coordination service.\nRESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory in memory space hbm."
    f = json.loads(xlane("classify", "-", "--json", stdin=text).stdout)
    assert (f["cause"], f["verdict"], f["masked_by"]) == ("compile_hbm", "smaller", "coordination"), f


@checked("P3_nothing_starts_where_the_probe_fails")
def _():
    p = xlane("run", "--probe", "--cache", "off", "--", "touch", os.path.join(TMP, "started"),
              env={"XLANE_PLUGIN": "/nowhere/plugin.so"}, status=1)
    assert "library-missing" in p.stderr and not os.path.exists(os.path.join(TMP, "started")), p.stderr
    xlane("run", "--probe", "--cache", "off", "--profile", "cpu", "--", "touch", os.path.join(TMP, "started"))
    assert os.path.exists(os.path.join(TMP, "started"))


@checked("B2_receipts")
def _():
    cache = os.path.join(TMP, "cache-receipt")
    _, cold = run("cold", sys.executable, STEP, args=("--profile", "cpu", "--cache", cache))
    _, warm = run("warm", sys.executable, STEP, args=("--profile", "cpu", "--cache", cache))
    r = json.load(open(os.path.join(warm, "receipt.json")))
    assert r["proof"] == "ran" and r["restore"]["method"] == "executable-cache" and r["owners"]["frontend"] == "JAX", r
    assert all(f["holds"] == "durable" or f["when"] for f in r["facts"]), r["facts"]
    assert r["pins"]["packages"]["jax"] and r["rungs"] == {"first_passing": None, "next_failing": None}, r
    moved = {m["name"] for m in json.loads(xlane("receipt", "diff", cold, warm, "--json", status=1).stdout)}
    assert moved == {"restore.method", "facts.restore.value"}, moved
    code = "import jax, jax.numpy as jnp\nprint(jax.jit(lambda x: x + 1)(jnp.ones(1 << 18)).sum())\n"
    _, large = run("large", sys.executable, "-c", code, args=("--profile", "cpu", "--cache", "off"))
    shown = xlane("receipt", "diff", cold, large, status=1).stdout
    assert re.search(r"^facts\.peak_memory\.value: [\d.]+ [KM]iB -> [\d.]+ [KM]iB$", shown, re.M), shown
    xlane("receipt", "verify", warm)
    path = os.path.join(TMP, "edited.json")
    with open(path, "w") as f:
        json.dump(dict(r, claim="quality"), f)
    assert "was changed after it was written" in xlane("receipt", "verify", path, status=1).stderr
    with open(path, "w") as f:  # other spaces, the same words
        json.dump(r, f)
    xlane("receipt", "verify", path)


def drift(lock, env=None, status=1):
    return [(d["kind"], d["name"]) for d in json.loads(xlane("lock", "verify", "--file", lock, "--json", env=env,
        status=status).stdout)]


@checked("B3_lock_names_exactly_what_drifted")
def _():
    venv, lock = os.path.join(TMP, "venv"), os.path.join(TMP, "a.lock")
    site = os.path.join(venv, "lib", "python3.11", "site-packages")
    os.makedirs(os.path.join(site, "jax-0.10.2.dist-info"))
    os.makedirs(os.path.join(site, "numpy-2.4.6.dist-info"))
    with open(os.path.join(venv, "pyvenv.cfg"), "w") as f:
        f.write("include-system-site-packages = false\n")
    plugin = os.path.join(TMP, "libplugin.so")
    shutil.copy(PLUGIN, plugin)
    env = {"VIRTUAL_ENV": venv, "XLA_FLAGS": "--xla_dump_to=x"}
    xlane("lock", "write", "--file", lock, "--plugin", plugin, "--profile", "mine", "--cache", TMP, env=env)
    assert drift(lock, env, 0) == []
    assert drift(lock, dict(env, XLA_FLAGS="--xla_dump_to=y")) == [("environment", "XLA_FLAGS")]
    assert drift(lock, dict(env, TPU_NEW="1")) == [("environment", "TPU_NEW")]
    os.rename(os.path.join(site, "jax-0.10.2.dist-info"), os.path.join(site, "jax-0.10.3.dist-info"))
    assert drift(lock, env) == [("package", "jax")]
    os.rename(os.path.join(site, "jax-0.10.3.dist-info"), os.path.join(site, "jax-0.10.2.dist-info"))
    with open(plugin, "r+b") as f:
        f.seek(2000)
        byte = f.read(1)
        f.seek(2000)
        f.write(bytes([byte[0] ^ 1]))
    assert drift(lock, env) == [("plugin", plugin)]
    shutil.copy(PLUGIN, plugin)
    profile("mine", "inherits: cpu\n")
    assert drift(lock, env) == [("profile", "mine")]
    text = xlane("lock", "restore", "--print", "--file", lock).stdout
    assert "'jax==0.10.2'" in text and "export XLA_FLAGS='--xla_dump_to=x'" in text and "xlane run --profile mine" in text, text
    assert "never overwritten" in xlane("lock", "write", "--file", lock, "--plugin", plugin, status=1).stderr


@checked("B3_a_lock_of_another_architecture_is_clear")
def _():
    lock = os.path.join(TMP, "b.lock")
    xlane("lock", "write", "--file", lock, "--plugin", PLUGIN)
    with open(lock) as f:
        d = json.load(f)
    other = "riscv64"
    d["machine"] = other
    for i in d["items"]:
        if i["kind"] in ("machine", "kernel", "libc"):
            i["value"] = other
    edited = os.path.join(TMP, "edited.lock")
    with open(edited, "w") as f:
        json.dump(d, f)
    p = xlane("lock", "verify", "--file", edited, status=1)
    assert "was changed after it was written" in p.stderr and "remove it and write another" in p.stderr, p.stderr
    del d["checksum"]  # sealed again, as the other host's xlane would have
    seal = subprocess.run([os.path.join(BUILD, "test", "tool", "seal"), os.path.join(TMP, "c.lock")],
                          input=json.dumps(d), text=True, capture_output=True)
    assert seal.returncode == 0, seal.stderr
    p = xlane("lock", "verify", "--file", os.path.join(TMP, "c.lock"), status=1)
    assert "this lock is of riscv64 and this host is" in p.stdout and "1 of" in p.stdout.splitlines()[-1], p.stdout
    assert "is not a lock" in xlane("lock", "verify", "--file", STEP.replace("step.py", "edited.json"), status=1).stderr


def libraries():
    """Real plugins, where they are: libtpu and the CUDA plugin, wherever this Python or the environment has them."""
    site = [p for p in sys.path if p.endswith("site-packages")]
    found = {}
    for s in site:
        for kind, pattern in (("libtpu", "libtpu/libtpu.so"), ("cuda", "jax_plugins/xla_cuda*/xla_cuda_plugin.so")):
            for path in glob.glob(os.path.join(s, pattern)):
                found.setdefault(kind, path)
    for kind, var in (("libtpu", "XLANE_TEST_LIBTPU"), ("cuda", "XLANE_TEST_CUDA")):
        if os.path.exists(os.environ.get(var, "")):
            found[kind] = os.environ[var]
    return found


MISSPELT = {"libtpu": ("libtpu", "LIBTPU_INIT_ARGS", "xla_tpu_scoped_vmem_limit_kb", "xla_tpu_scoped_vmem_limit_kib"),
            "cuda": ("xla", "XLA_FLAGS", "xla_gpu_autotune_levle", "xla_gpu_autotune_level")}
plugins = libraries()
for kind, (group, var, wrong, right) in MISSPELT.items():
    if kind not in plugins:
        print("skip L1_misspelt_flag_%s: the plugin is not installed in this Python (or set XLANE_TEST_%s to its file)"
              % (kind, kind.upper()))
        continue

    @checked("L1_misspelt_flag_" + kind)
    def _():
        profile("flags", "flags:\n  %s:\n    %s: 1\n" % (group, wrong)
                + ("device:\n  plugin: tpu\n" if kind == "libtpu" else ""))
        out = json.loads(xlane("profile", "check", "flags", "--json", "--plugin", plugins[kind], status=1).stdout)
        assert any(f["fatal"] and wrong in f["text"] and "--" + right in f["text"] for f in out["findings"]), out
        profile("flags", "flags:\n  %s:\n    %s: 1\n" % (group, right)
                + ("device:\n  plugin: tpu\n" if kind == "libtpu" else ""))
        xlane("profile", "check", "flags", "--plugin", plugins[kind])


@checked("L1_misspelt_flag_jaxlib")
def _():
    import jaxlib
    lib = os.path.join(os.path.dirname(jaxlib.__file__), "libjax_common.so")
    profile("flags", "flags:\n  xla:\n    xla_dumb_to: x\n")
    p = xlane("profile", "check", "flags", "--frontend", lib, status=1)
    assert "flags.yaml:3" in p.stdout and "the nearest it knows is --xla_dump_to" in p.stdout, p.stdout
    # and that is what would have happened
    q = subprocess.run([sys.executable, "-c", "import jax; jax.numpy.ones(2) + 1"],
                       env=dict(KEEP, XLA_FLAGS="--xla_dumb_to=x", JAX_PLATFORMS="cpu"), capture_output=True, text=True)
    assert q.returncode != 0 and "Unknown flag" in q.stderr, q.stderr[-500:]


@checked("L1_a_run_that_an_unknown_flag_ended")
def _():
    one = script("flag.py", "import jax, sys\nprint(jax.numpy.ones(2) + 1)\nsys.exit(int(sys.argv[1]))\n")
    profile("dumb", "device:\n  jax_platforms: cpu\nflags:\n  xla:\n    xla_dumb_to: x\n")
    p, _ = run("dumb", sys.executable, one, "0", args=("--profile", "dumb"), status=None)
    assert p.returncode and "Unknown flag" in p.stderr, p.stderr
    assert "dumb.yaml:5: " in p.stderr and "--xla_dump_to; `xlane profile check dumb` checks all flags" in p.stderr, p.stderr
    profile("smart", "device:\n  jax_platforms: cpu\nflags:\n  xla:\n    xla_dump_to: %s\n" % os.path.join(TMP, "d"))
    for status in 0, 1:
        p, _ = run("smart", sys.executable, one, str(status), args=("--profile", "smart"), status=status)
        assert "profile check" not in p.stderr, p.stderr


@checked("X1_several_devices_of_the_cpu_are_several_of_the_embedded_one")
def _():
    count = script("count.py", "import jax\nprint(len(jax.devices()), jax.devices()[0].platform)\n")
    for env, n, named in (({"JAX_NUM_CPU_DEVICES": 3}, 3, "JAX_NUM_CPU_DEVICES"),
                          ({"XLA_FLAGS": "--xla_force_host_platform_device_count=4 --xla_cpu_enable_fast_math=false"},
                           4,
                           "XLA_FLAGS"),
                          ({"JAX_NUM_CPU_DEVICES": 3, "XLANE_CPU_DEVICES": 2}, 2, None), ({}, 1, None)):
        p, _ = run("count", sys.executable, count, args=("--profile", "cpu"), env=env)
        assert p.stdout == "%d xlane\n" % n, p.stdout
        said = "the embedded device shows %d devices, since %s asks" % (n, named)
        assert said in p.stderr if named else "embedded device shows" not in p.stderr, p.stderr


def rows_of(folder):
    """The rows of the matrix for a run."""
    return {r["name"]: r for r in json.loads(xlane("matrix", "check", folder, "--plugin", "cpu", "--json",
                                                   status=None).stdout)}


@checked("X2_every_row_of_the_matrix_runs")
def _():
    rows = json.loads(xlane("matrix", "list", "--json").stdout)
    assert len(rows) >= 26 and {r["class"] for r in rows} == {"upstream defect", "policy", "version-gated"}, len(rows)
    _, folder = run("matrix", forked(), STEP, args=("--profile", "cpu"))
    got = json.loads(xlane("matrix", "check", folder, "--plugin", "cpu", "--json", env={"VIRTUAL_ENV": sys.prefix},
                           status=None).stdout)
    assert len(got) == len(rows) and all(r["text"] for r in got), got
    state = {r["name"]: r["state"] for r in got}
    assert not [n for n, s in state.items() if s == "unknown"], state
    assert state["quiet_fallback"] == "clear", state["quiet_fallback"]  # the run had JAX_PLATFORMS, this shell does not
    named = {"VIRTUAL_ENV": sys.prefix, "JAX_PLATFORMS": "xlane", "PJRT_NAMES_AND_LIBRARY_PATHS": "xlane:"
             + os.path.join(BUILD, "libxlane-cpu.so")}
    _, bare = run("bare", sys.executable, "-c", "pass")
    asked = {r["name"]: r["state"] for r in json.loads(xlane("matrix", "check", bare, "--plugin", "cpu", "--json",
                                                             env=named, status=None).stdout)}
    assert asked["quiet_fallback"] == "affected", asked    # and the other way round
    if not glob.glob("/dev/nvidia[0-9]*"):
        named["JAX_PLATFORMS"] = "cuda,cpu"                # where there is no GPU, JAX passes over it
        asked = {r["name"]: r for r in json.loads(xlane("matrix", "check", "--plugin", "cpu", "--json", env=named,
                                                        status=None).stdout)}
        assert asked["quiet_fallback"]["state"] == "affected" and "no GPU is here" in asked["quiet_fallback"]["text"]
    assert state["serialise"] == state["memory_analysis"] == state["scan"] == state["abi_skew"] == "clear", state
    without = json.loads(xlane("matrix", "check", "--plugin", "cpu", "--json", status=None).stdout)
    assert all("recorded run" in r["text"] for r in without if r["state"] == "unknown"), without


@checked("X2_planted_breakages_are_found")
def _():
    cache, venv = os.path.join(TMP, "jaxcache"), os.path.join(TMP, "venv2")
    site = os.path.join(venv, "lib", "python3.11", "site-packages")
    os.makedirs(cache)
    for d in ("jax-0.10.2", "jaxlib-0.10.2", "jax_cuda13_plugin-0.9.0"):
        os.makedirs(os.path.join(site, d + ".dist-info"))
    open(os.path.join(cache, "jit_step-1-atime"), "w").close()
    env = {"VIRTUAL_ENV": venv, "JAX_COMPILATION_CACHE_DIR": cache, "XLA_FLAGS": "--xla_no_such_flag_at_all=1",
           "XLANE_POLICY": "allow"}
    got = {r["name"]: r for r in json.loads(xlane("matrix", "check", "--plugin", "cpu", "--cache", "gs://bucket/x",
                                                  "--json", env=env, status=1).stdout)}
    for name, words in (("orphan_entry", "jit_step-1-atime"), ("cuda_plugin_skew", "0.9.0"), ("no_gate", "allow"),
                        ("remote_cache", "gs://bucket/x"),
                        ("quiet_fallback", "not set"), ("unknown_flag", "xla_no_such_flag_at_all")):
        assert got[name]["state"] == "affected" and words in got[name]["text"], got[name]
    broken = {r["name"]: r for r in json.loads(xlane("matrix", "check", "--plugin",
                                                     os.path.join(BUILD, "test", "plugins",
                                                         "aborts.so"), "--json", status=None).stdout)} \
        if os.path.exists(os.path.join(BUILD, "test", "plugins", "aborts.so")) else {}
    assert all(r["text"] for r in broken.values()), broken
    bad = script("again.py", "import jax, jax.numpy as jnp\nfor k in range(3):\n    f = jax.jit(lambda x: jnp.sin(x) * (k + 1.5) + jnp.cos(x) * x)\n    print(f(jnp.ones(4))[0])\n")
    _, folder = run("again", forked(), bad, args=("--profile", "cpu"))
    got = rows_of(folder)                                  # a constant, and neither torch nor an optimizer
    assert got["adamw_scalars"]["state"] == "not here" and got["optax_rate"]["state"] == "clear", got
    events = os.path.join(folder, "events.jsonl")
    with open(events) as f:
        old = f.read()
    assert '"reason":"constant"' in old and '"module":"jit__lambda"' in old, old
    with open(events, "w") as f:
        f.write(old.replace('"module":"jit__lambda"', '"module":"SyncTensorsGraph.9"'))
    got = rows_of(folder)
    assert got["adamw_scalars"]["state"] == "affected" and "SyncTensorsGraph.9 was" in got["adamw_scalars"]["text"], got


ANEW = """
import jax, jax.numpy as jnp
for i in range(12):
    f = jax.jit(lambda x: jnp.sin(x) @ x + jnp.cos(x))
    print(float(f(jnp.ones((4, 4))).sum()))
"""
UNREAD = """
import equinox as eqx, jax.numpy as jnp
@eqx.filter_jit
def step(x, n):
    return jnp.sin(x) @ x
for i in range(12):
    step(jnp.ones((4, 4)), i)
"""
RATE = """
import jax, jax.numpy as jnp, optax
w = jnp.ones((8, 8))
for rate in 0.1, 0.05, 0.02:
    tx = optax.%s
    @jax.jit
    def step(w, s):
        u, s = tx.update(jnp.sin(w), s, w)
        return optax.apply_updates(w, u), s
    w, s = step(w, tx.init(w))
"""


@checked("X2_a_row_looks_at_evidence_of_its_own_kind")
def _():
    cache = ("--cache", os.path.join(TMP, "matrixcache"))
    for name, text, words, row, state, said in (
        ("anew", ANEW, cache, "compiled_twice", "clear", "11 times one was traced again and loaded"),
        ("anew-uncached", ANEW, ("--cache", "off"), "compiled_twice", "affected",
         "jit__lambda was compiled 12 times: the same program, traced again when called at "),
        ("unread", UNREAD, ("--cache", "off"), "compiled_twice", "clear", "11 times with a cause that"),
        ("rate", RATE % "sgd(rate)", cache, "optax_rate", "affected", "jit_step: constant -0.1 -> -0.05"),
        ("schedule", RATE % "inject_hyperparams(optax.sgd)(learning_rate=rate)", cache, "optax_rate", "clear",
         "no compile")):
        _, folder = run(name, forked(), script(name + ".py", text), args=("--profile", "cpu", *words))
        got = rows_of(folder)
        assert got[row]["state"] == state and said in got[row]["text"], (name, got[row])
        assert "nothing differed" not in str(got) and got["adamw_scalars"]["state"] == "not here", got


shutil.rmtree(TMP, ignore_errors=True)
sys.exit(end())
