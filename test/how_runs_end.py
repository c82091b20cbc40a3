"""How a run ended is said as it was: killed, crashed, failed or done; by the receipt, classify, catalog and top."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from _guarded import (BUILD, PLUGIN, STEPS, TMP, UNENDED, XLANE, check, done, environment, line_of, python, run, script,
                      xlane)


def outcomes():
    return [e["outcome"] for e in json.loads(xlane("catalog", "--json"))]


@check("W6_a_killed_run_is_said_to_be_killed")
def _():
    folder, _ = python("killed", STEPS % "os.kill(os.getpid(), signal.SIGKILL)", status=137)
    receipt = xlane("receipt", "show", folder)
    assert "failed: it was ended by signal 9 (Killed), so it proves nothing" in receipt, receipt
    assert "works here" not in receipt, receipt
    text, found = xlane("classify", folder), json.loads(xlane("classify", "--json", folder))
    assert text.startswith("ended by signal 9 (Killed), phase: run\nkilled (host): ") and "dmesg" in text, text
    assert found["cause"] == "killed" and found["signal"] == 9 and not found["retry"], found
    assert outcomes() == ["killed"], outcomes()
    assert "signal 9: Killed, phase: run" in xlane("catalog", "--outcome=killed")
    top = xlane("top", "--once", folder)
    assert "with status 137, by signal 9 (Killed)" in top and "no step yet" not in top and "running" not in top, top
    assert json.loads(xlane("top", "--once", "--json", folder))["running"] is False
    text = xlane("metrics", folder, status=None)
    assert "no metrics: its guarded processes ended before they wrote any" in text or text.startswith(
        "this run was ended by signal 9 (Killed)"), text
    assert "loaded a PJRT plugin" not in text, text


@check("W6_a_killed_run_is_not_known_to_run")
def _():
    path = script("sizes.py",
                  "import sys\n" + STEPS % "os.kill(os.getpid(), signal.SIGKILL) if len(sys.argv) < 2 else None")
    run = [XLANE, "run", "--runs", os.path.join(TMP, "runs-sizes"), "--cache", "off"]
    subprocess.run([*run, "--", sys.executable, path], env=environment(), capture_output=True)
    again = subprocess.run([*run, "--smaller", "small", "--", sys.executable, path, "small"], env=environment(),
                           capture_output=True, text=True)
    assert again.returncode == 0 and "knows" not in again.stderr, again.stderr


@check("W6_a_crash_is_a_crash")
def _():
    folder, _ = python("crashed", STEPS % "os.kill(os.getpid(), signal.SIGSEGV)", status=139)
    text = xlane("classify", folder)
    assert "crashed (host): " in text and "faulthandler" in text and "killed" not in text and "the last in" not in text, text


@check("W6_an_error_of_its_own_and_none")
def _():
    folder, _ = python("raised", STEPS % "raise SystemExit(3)", status=3)
    assert "ended with status 3, and no failure of XLA's was recorded" in xlane("classify", folder, status=1)
    folder, _ = python("done", STEPS % "", status=0)
    assert "nothing failed in" in xlane("classify", folder, status=1) and "status 0" in xlane("classify", folder,
        status=1)
    assert ": it ran, so it works here; " in xlane("receipt", "show", folder)
    assert outcomes()[-1] == "ran", outcomes()


LOADS = """
def load(i):
    return {"x": 1}["y"] if i else 0
"""
RAISES = STEPS % (LOADS + "load(1)")
AT = line_of(RAISES, 'if i else 0')


@check("an_uncaught_exception_is_named_with_the_line_of_the_user")
def _():
    """Type, message, line and exit status, wherever the exception rose; not of one that did not end the program."""
    names = "KeyError: 'y' at %s/{}.py:%d" % (TMP, AT)
    cases = (
        ("raises", RAISES, 1, names),
        ("finally", STEPS % (LOADS + "try: load(1)\nfinally: print('over')"), 1, names),
        ("in_jax", STEPS % "step('text')  # HERE", 1, "TypeError: "),
        ("exits", STEPS % "raise SystemExit(3)", 3, None),
        ("catches", STEPS % (LOADS + "try: load(1)\nexcept KeyError: pass\nraise SystemExit(4)"), 4, None),
        ("prints", STEPS % (LOADS + "import sys, traceback\ntry: load(1)\nexcept KeyError as e:\n    sys.last_value = "
                                    "sys.last_exc = e\n    traceback.print_exc()\nraise SystemExit(5)"), 5, None),
        ("ends", STEPS % "", 0, None),
        ("a_thread", STEPS % (LOADS + "import threading\nt = threading.Thread(target=load, args=(1,))\nt.start()\n"
                                      "t.join()"), 0, None),
        ("child", "import subprocess, sys\nsubprocess.run([sys.executable, %r])" % os.path.join(TMP, "raises.py"), 0,
         "its process "),
    )
    for name, text, status, words in cases:
        folder, _ = python("uncaught_" + name, text, status=status, fresh=True) if name != "raises" else \
            run(name, sys.executable, script("raises.py", text), status=status)
        said, top = xlane("explain", folder), xlane("top", "--once", folder)
        found = xlane("classify", folder, status=1)
        if words is None:
            assert "failed with" not in said + top + found and "program failed" not in top, (name, said, top)
            continue
        words = words.format("raises" if name == "raises" else "uncaught_" + name)
        opening = "this run ended with exit status 1\nits program failed with " if status else ""
        assert said.startswith(opening + words), (name, said)
        assert ("failed with " + words in top) == bool(status) and "s  program failed: " in top, (name, top)
        assert not status or "ended with status 1; its program failed with " + words in found, (name, found)
        if name == "in_jax":
            assert "/uncaught_in_jax.py:%d\n" % line_of(text) in said, said
        if name == "child":
            assert re.match(r"its process \d+ failed with KeyError: 'y' at \S*/raises.py:%d\n" % AT, said), said
    folder, _ = python("uncaught_before", "import jax\nimport no_such_module", status=1, fresh=True)
    said = xlane("explain", folder, status=1)
    for verb in ["metrics"], ["top", "--once"]:
        assert ": its command ended with exit status 1 before it had loaded a PJRT plugin; its program failed with Mod" \
            in xlane(*verb, folder, status=verb == ["metrics"]), verb
    assert "ended with exit status 1 before it had loaded a PJRT plugin; its program failed with ModuleNotFoundError: " \
        "No module named 'no_such_module' at %s/uncaught_before.py:2: mend that, then start it again" % TMP in said, said
    folder, _ = python("exits_before", "import jax, sys\nsys.exit(1)", status=1, fresh=True)
    said = xlane("explain", folder, status=1)
    assert "plugin; what it printed says why: mend that, then start it again" in said and "failed with" not in said, said
    events = [json.loads(line) for line in open(os.path.join(folder, "events.jsonl"))]
    assert not {"attach", "exit", "program_end"} & {e["event"] for e in events}, events
    folder, _ = python("secret", STEPS % "raise ValueError('HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123 is old')",
                       status=1,
                       fresh=True)
    assert "hf_abcdefgh" not in open(os.path.join(folder, "events.jsonl")).read()


@check("W6_killed_with_its_launcher")
def _():
    runs = os.path.join(TMP, "runs-both")
    path = script("both.py", STEPS % "print('ready', flush=True)\ntime.sleep(600)")
    p = subprocess.Popen([XLANE, "run", "--runs", runs, "--cache", "off", "--name", "both", "--", sys.executable, path],
                         env=environment(),
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert p.stdout.readline() == "ready\n"
    folder = os.path.join(runs, [d for d in os.listdir(runs) if d != "contracts"][0])
    going = xlane("receipt", "show", folder, status=1)
    assert "has not ended: `xlane run` is process %d" % p.pid in going, going
    child = next(e["pid"] for e in map(json.loads, open(os.path.join(folder, "events.jsonl")))
                 if e["event"] == "attach")
    p.kill()
    p.wait()
    for verb in (["receipt", "show"], ["classify"]):
        text = xlane(*verb, folder, status=1)
        assert "its process %d goes on" % child in text and "with it or later" not in text, text
    os.kill(child, signal.SIGKILL)
    while os.path.exists("/proc/%d" % child) and " Z " not in open("/proc/%d/stat" % child).read():
        time.sleep(0.05)
    for verb in (["receipt", "show"], ["classify"]):
        text = xlane(*verb, folder, status=1)
        assert UNENDED in text and "dmesg" in text and "has not ended" not in text, text
        assert "goes on" not in text and "by itself" not in text, text


@check("W6_killed_before_the_program_loaded_a_plugin_that_goes_on")
def _():
    runs = os.path.join(TMP, "runs-before")
    p = subprocess.Popen([XLANE, "run", "--runs", runs, "--cache", "off", "--", sys.executable, "-c",
                          "import os\nprint(os.getpid(), flush=True)\ninput()"], env=environment(),
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    child = int(p.stdout.readline())
    folder = os.path.join(runs, [d for d in os.listdir(runs) if d != "contracts"][0])
    p.kill()
    p.wait()
    text = xlane("explain", folder, status=1)
    assert "its process %d goes on" % child in text and "ended with it or later" not in text, text
    listed = xlane("runs", runs)
    assert " running " in listed and "cut off" not in listed, listed
    p.stdin.write("\n")
    p.stdin.flush()
    while os.path.exists("/proc/%d" % child) and " Z " not in open("/proc/%d/stat" % child).read():
        time.sleep(0.05)
    text = xlane("explain", folder, status=1)
    assert "its program ended with it or later" in text and "goes on" not in text, text
    assert " running " not in xlane("runs", runs)


@check("W6_a_watched_name_that_never_came_is_said_with_those_that_did")
def _():
    for name, said in ("steps", True), ("jit_step", False), ("step", False), ("jit_", True):
        _, err = python("watches_" + name, STEPS % "", args=("--watch", name))
        assert ("--watch=%s: no module or function of this name was compiled" % name in err) == said, err
        assert ("jit_step" in err) == said, err


@check("W6_a_step_may_be_named_by_its_function_or_by_its_module")
def _():
    text = """
import jax, jax.numpy as jnp
@jax.jit
def loss_fn(w):
    return w.sum() + 1
loss_fn(jnp.ones(4))
loss_fn(jnp.ones(5))
"""
    for name, said in ("loss_fn", True), ("jit_loss_fn", True), ("loss", False), ("fn", False):
        _, err = python("named_" + name, text, args=("--warmup", "0", "--watch", name))
        assert ("jit_loss_fn is compiled again" in err) == said, (name, err)


@check("W6_compile_options_are_said_by_the_names_they_were_set_by")
def _():
    _, err = python("options", """
import jax, jax.numpy as jnp
def step(w): return w * 0.9
for f in jax.jit(step), jax.jit(step, compiler_options={"xla_cpu_enable_fast_math": True}):
    for i in range(13): f(jnp.ones(4))
""")
    warned = [line for line in err.splitlines() if "compiled again" in line]
    assert len(warned) == 1 and "jit_step is compiled again: options: compiler option xla_cpu_enable_fast_math " \
        "(env_option_overrides) absent -> true; called at" in warned[0], err
    assert ".key" not in err and "value.bool_field" not in err, err


@check("W6_a_warning_is_one_remedy_long")
def _():
    _, err = python("again", """
import jax, jax.numpy as jnp
for i in range(20):
    @jax.jit
    def step(w): return w * 0.9
    step(jnp.ones(4))
""")
    warned = [line for line in err.splitlines() if "remedy: " in line]
    assert len(warned) == 1 and "remedy: make the jitted function once, outside the loop" in warned[0], err
    assert warned[0].endswith("; `xlane explain` has more") and "JAX_EXPLAIN" not in warned[0], err
    assert len(warned[0].replace(TMP, "")) < 300, err


@check("W6_a_cache_that_jax_does_not_write_is_said_to_be_none")
def _():
    said = "JAX keeps nothing in JAX_COMPILATION_CACHE_DIR here"
    for variable, args, words in ({}, ("--cache=off",), None), (
            {"JAX_COMPILATION_CACHE_DIR": TMP + "/jax"}, ("--cache=off",), "would serve, and is off"), (
            {"JAX_COMPILATION_CACHE_DIR": TMP + "/jax"}, ("--cache=" + TMP + "/cache",), "serves instead"):
        _, err = python("jaxcache", STEPS % "", args=("--profile=cpu", "--summary", *args), **variable)
        assert (said in err) == (words is not None) and (not words or words in err), err
    assert not os.path.exists(TMP + "/jax")


ENDS = STEPS.replace("w = step(w)", "w = step(w); time.sleep(0.08)")
COUNTED = "`step` compiled once, ran 40 times: no recompile\n"


@check("W6_counts_that_were_cut_off_are_lower_bounds_and_the_end_is_named")
def _():
    opens = "os._exit, exec, a signal or a full disk"
    for name, how, status, ended in (
            ("segv", "os.kill(os.getpid(), signal.SIGSEGV)", 139,
             "ended by signal 11 (Segmentation fault): exit status 139"),
            ("leaves", "os._exit(0)", 0, "exit status 0")):
        reads = "w = step(w); jax.device_get(w)" if name == "leaves" else "w = step(w)"
        after = "\njax.jit(lambda x: x * 3)(w)\n" + how                 # compiled after the last counts
        folder, err = python("cut_" + name, ENDS.replace("w = step(w)", reads) % after, status=status,
                             args=("--summary",))
        text, counts = xlane("explain", folder), xlane("metrics", folder)
        assert re.match(r"xlane: ran [\d.]+ s, %s\n" % re.escape(ended), err) and "; at least " in err, err
        assert bool(re.search(r"^xlane: at least [1-9]\d* steps? waited until the host had read", err, re.M)) == (
            name == "leaves") and "at least 0" not in err, err
        made = re.search(r"^xlane: (\d+) compiled, ", err, re.M)[1]
        assert counts.splitlines()[0] == text.splitlines()[0] and re.search(
            "newer than these counts, tell of %s compiled" % made, counts), (made, counts)
        assert json.loads(xlane("metrics", "--json", folder))["lower_bounds"] is True
        assert "`step` compiled once, ran at least " in text and "times: no recompile\n" in text, text
        assert (opens in err) == (opens in text) == (name == "leaves"), (err, text)
        assert ("(1 ended without writing its last counts: " in err) == (name == "leaves"), err
        assert ("it was killed before it wrote its last counts" in err) == (name == "segv"), err
        assert text.startswith("this run was ended by signal 11 (Segmentation fault); its counts may miss the last two seconds"
                               if name == "segv" else "1 process of this run ended without writing its last"), text
    for name, how, status, ended in ("ends", "", 0, "exit status 0"), ("raises", "raise SystemExit(3)", 3,
        "exit status 3"):
        folder, err = python("whole_" + name, STEPS % how, status=status, args=("--summary",))
        text = xlane("explain", folder)
        assert re.match(r"xlane: ran [\d.]+ s, %s\n" % ended, err) and "at least" not in err and opens not in err, err
        end = "this run ended with %s\n" % ended if status else ""
        assert text.startswith(end + COUNTED), text
        text = xlane("metrics", folder)
        assert text.startswith("Steps: ") and "newer than" not in text, text
        assert json.loads(xlane("metrics", "--json", folder))["lower_bounds"] is False


@check("W6_a_run_that_goes_on_is_said_to")
def _():
    runs = os.path.join(TMP, "runs-going")
    path = script("going.py", "print('ready', flush=True)\ninput()\n" + STEPS % "print('ready', flush=True)\ninput()")
    p = subprocess.Popen([XLANE, "run", "--runs", runs, "--cache", "off", "--", sys.executable, path],
                         env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         text=True)
    assert p.stdout.readline() == "ready\n"
    folder = os.path.join(runs, [d for d in os.listdir(runs) if d != "contracts"][0])
    text = xlane("explain", folder, status=1)
    assert "compiles were not recorded: so far, that is: it began at" in text and "PJRT plugin" not in text, text
    p.stdin.write("\n")
    p.stdin.flush()
    assert p.stdout.readline() == "ready\n"
    text = xlane("explain", folder)
    assert text.startswith("this run goes on: it began at ") and "`xlane run` is process %d" % p.pid in text, text
    assert "no recompile so far\n" in text, text
    p.communicate("\n")
    assert xlane("explain", folder).startswith(COUNTED), xlane("explain", folder)


@check("W6_the_policy_that_stopped_it_is_told_with_both_statuses")
def _():
    stops = STEPS % "for n in 3, 4:\n    for i in range(9):\n        step(jnp.ones(n))"
    _, err = python("stops", stops, status=3, args=("--summary", "--policy", "stop"))
    assert re.search(r"^xlane: ran [\d.]+ s, exit status 3: the policy said stop \(the command's own was 1\)\n", err,
                     re.M), err
    for name, catches in ("caught", "except Exception: print('caught')"), ("ended", "finally: pass"):
        folder, _ = python(name, STEPS % ("try:\n    for n in [3] * 9 + [4] * 9:\n        step(jnp.ones(n))\n"
                                          + catches), status=3, args=("--policy", "stop"))
        assert re.search(r"^%s +[\d.]+ s  stopped by the policy  " % os.path.basename(folder),
                         xlane("runs", os.path.dirname(folder)), re.M), xlane("runs", os.path.dirname(folder))
        about = json.load(open(os.path.join(folder, "run.json")))
        assert (about["status"], about["command_status"]) == (3, 0 if name == "caught" else 1), about
        assert "with status 3, stopped by the policy\n" in xlane("top", "--once", folder), xlane("top", "--once",
            folder)
        receipt = xlane("receipt", "show", folder)
        assert "exit status 3" in receipt and "works here" not in receipt, receipt
    folder, _ = python("healthy", STEPS % "", args=("--policy", "stop"))
    assert "command_status" not in json.load(open(os.path.join(folder, "run.json")))
    assert "stopped by" not in xlane("top", "--once", folder), xlane("top", "--once", folder)


@check("W6_a_failed_execution_is_told_and_classified")
def _():
    folder, _ = python("too_large", STEPS % """
import resource  # 4 TiB are refused on every machine, whatever it promises
resource.setrlimit(resource.RLIMIT_AS, (1 << 38, 1 << 38))
print(jax.jit(lambda n: jnp.zeros((1 << 20, 1 << 20)) + n)(1.0))""", status=1)
    text, cause = xlane("explain", folder), json.loads(xlane("classify", "--json", folder))
    assert re.search(r"^`_lambda` \(too_large.py:13\) failed when it ran: "
                     r".*no host memory for a buffer of 4.0 TiB: the host has [\d.]+ [GMT]iB in all; `xlane classify`",
                     text, re.M), text
    assert ", 0 failed to compile\n" in text and " 0 failed\n" not in text, text
    assert (cause["cause"], cause["verdict"]) == ("embedded_memory", "smaller"), cause
    assert "loader workers" not in xlane("classify", folder), xlane("classify", folder)
    text = xlane("calibrate", folder, status=1)
    assert re.match(r"does not fit: asked for, and refused: no host memory for a buffer of 4\.0 TiB: ", text), text
    assert re.search(r"^observed +[\d.]+ (bytes|KiB) +peak of the physical device; more was asked for, and refused",
                     text,
                     re.M), text
    assert "TiB" not in xlane("memory", folder), xlane("memory", folder)
    assert "observed 4.0 TiB" not in xlane("catalog"), xlane("catalog")
    folder, _ = python("small", STEPS % "", status=0)
    assert "failed when it ran" not in xlane("explain", folder), xlane("explain", folder)
    assert "refused" not in xlane("calibrate", folder), xlane("calibrate", folder)


@check("W6_launcher_killed_alone")
def _():
    runs, end = os.path.join(TMP, "runs-alone"), os.path.join(TMP, "alone-ends")
    path = script("alone.py", STEPS % ("print('ready', flush=True)\nimport os\nwhile not os.path.exists(%r): "
                                       "time.sleep(0.05)" % end))
    p = subprocess.Popen([XLANE, "run", "--runs", runs, "--cache", "off", "--name", "alone", "--", sys.executable,
                          path], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert p.stdout.readline() == "ready\n"
    folder = os.path.join(runs, [d for d in os.listdir(runs) if d != "contracts"][0])
    child = next(e["pid"] for e in map(json.loads, open(os.path.join(folder, "events.jsonl")))
                 if e["event"] == "attach")
    p.kill()
    p.wait()
    open(end, "w").close()
    while os.path.exists("/proc/%d" % child) and " Z " not in open("/proc/%d/stat" % child).read():
        time.sleep(0.05)
    for verb in (["receipt", "show"], ["classify"]):
        text = xlane(*verb, folder, status=1)
        assert "its process %d came to its end by itself" % child in text and "with it or later" not in text, text


@check("a_guard_that_was_off_is_said_to_have_been_off")
def _():
    for status in 0, 3:
        folder, err = python("unguarded", STEPS % "raise SystemExit(%d)" % status, args=["--summary"], status=status,
                             XLANE_GUARD="off")
        assert "the guard was off (XLANE_GUARD=off): nothing was guarded, and no compile was recorded\n" in err, err
        assert "loaded a PJRT plugin" not in err, err
        for verb in ["explain"], ["metrics"], ["top", "--once"]:
            text = xlane(*verb, folder, status=int(verb[0] != "top"))
            assert "the guard was off (XLANE_GUARD=off)" in text and "loaded a PJRT plugin" not in text, text
            assert "built-in cpu" not in text and "attached" not in text, text
    folder, err = python("guarded", STEPS % "", args=["--summary"])
    assert "guard was off" not in err + xlane("explain", folder) + xlane("top", "--once", folder), err


@check("runs_says_of_each_how_it_ended_and_what_it_compiled")
def _():
    runs = os.path.join(TMP, "runs-listed")
    listed = lambda *args: xlane("runs", *args, runs)
    of = lambda: {r["name"].split("-", 2)[2]: r for r in json.loads(listed("--json"))}
    os.mkdir(runs)
    assert "no runs in %s" % runs in listed() and listed("--json").strip() == "[]"
    assert "there is no folder %s-none; runs are looked for in " % runs in xlane("runs", runs + "-none", status=1)
    _, err = python("steady", STEPS % "", runs=runs, args=["--summary"])
    assert "a step's program changed 0 times in the warm-up window, 0 after it\n" in err, err
    _, err = python("grows", STEPS % "for n in 3, 4, 5:\n    for i in range(9):\n        step(jnp.ones(n))", runs=runs,
                    args=["--summary", "--warmup=0"])
    assert "a step's program changed 3 times; `xlane explain last` says why\n" in err and "window" not in err, err
    run("leaves", sys.executable, "-c", "import sys; sys.exit(137)", runs=runs, status=137)
    run("dies", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)", runs=runs, status=137)
    p = subprocess.Popen([XLANE, "run", "--runs", runs, "--cache", "off", "--name", "goes", "--", sys.executable, "-c",
                          "print('ready', flush=True); input()"], env=environment(), stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert p.stdout.readline() == "ready\n"
    r = of()
    assert r["goes"]["running"] and r["goes"]["state"] == "running" and not any(r[k]["running"] for k in r
        if k != "goes")
    p.communicate("\n")
    assert p.returncode == 0, p.returncode
    r = of()
    assert r["goes"]["state"] == "exit status 0" and not r["goes"]["running"], r["goes"]
    assert r["leaves"]["state"] == "exit status 137" and r["dies"]["state"] == "signal 9 (Killed)", r
    assert r["steady"]["recompiles"] == 0 and r["grows"]["recompiles"] == 3, r
    assert r["steady"]["compiled"] >= 1 and r["leaves"]["compiled"] == 0, r
    lines = {line.split()[0].split("-", 2)[2]: line for line in listed().splitlines()}
    assert "3 recompiles" in lines["grows"] and "recompile" not in lines["steady"], lines
    run("lines", sys.executable, "-c", "pass\npass", runs=runs)
    assert listed().splitlines()[-1].endswith("-c pass pass"), listed()
    about = os.path.join(runs, r["goes"]["name"], "run.json")
    with open(about) as f:
        whole = json.load(f)
    for k in "ended", "status", "seconds":
        del whole[k]
    with open(about, "w") as f:
        json.dump(whole, f)
    assert of()["goes"]["state"] == "exit status 0", of()["goes"]     # its events say so too
    log = os.path.join(runs, r["goes"]["name"], "events.jsonl")
    with open(log) as f:
        kept = [line for line in f if json.loads(line)["event"] != "end"]
    with open(log, "w") as f:
        f.writelines(kept)
    assert of()["goes"]["state"].startswith("cut off: ") and not of()["goes"]["running"], of()["goes"]
    with open(about, "w") as f:
        f.write("{")
    assert of()["goes"]["state"].startswith("unknown: "), of()["goes"]
    for i in range(20):
        shutil.copytree(os.path.join(runs, r["dies"]["name"]), os.path.join(runs, "20990101-000000-%d" % i))
    assert len(listed().splitlines()) == 21 and listed().startswith("6 older ones: --all\n"), listed()
    assert len(listed("--all").splitlines()) == 26, listed("--all")


@check("processes_that_did_not_write_their_counts_are_counted")
def _():
    """And zero is no lower bound."""
    folder, err = python("forks", """
import os
for _ in range(2):
    if not os.fork():
        import jax, jax.numpy as jnp
        print(jax.jit(lambda x: x + 1)(jnp.ones(3)), flush=True)
        os._exit(0)
for _ in range(2):
    os.wait()
""", args=["--summary"])
    assert re.search(r"; executions were not counted in 2 processes \(2 ended without writing their last counts: ",
                     err), err
    assert "at least" not in err and "waited until" not in err, err
    text = xlane("metrics", folder, status=None)
    assert "2 processes of this run ended" in text or "ended before they wrote any" in text, text
    assert "nothing was compiled" not in text and "\n\n" not in text, text


@check("a_run_without_a_count_says_so")
def _():
    folder, _ = python("idle", "import jax; jax.devices()")
    assert xlane("metrics", folder) == "no count: nothing was compiled, executed or transferred through its plugin\n"
    folder, _ = python("busy", STEPS % "")
    assert "no count" not in xlane("metrics", folder), xlane("metrics", folder)


@check("a_slow_first_buffer_is_told_with_its_seconds")
def _():
    plugin = shutil.copy(os.path.join(BUILD, "test", "plugins", "worse.so"), os.path.join(TMP, "cuda_worse.so"))
    slow = dict(XLANE_WORSE="first", XLANE_WRAPPED=PLUGIN, PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + plugin)
    text = "import jax, numpy\njax.device_put(numpy.ones(8)).block_until_ready()\n"
    _, said = python("first", text, **slow)
    took = re.search(r"its first buffer took (\d+\.\d) s: .* xlane run --profile=cuda-short", said)
    assert took and float(took.group(1)) >= 0.6, said
    _, said = python("grows", text, **slow, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert "first buffer" not in said, said


SIGNALLED = """
import os, signal, sys, time
got = []
for s in signal.SIGINT, signal.SIGTERM, signal.SIGUSR1:
    signal.signal(s, lambda s, frame: got.append(s))
print("ready", flush=True)
sys.stdin.readline()
time.sleep(0.1)
print(got, flush=True)
"""


@check("a_signal_comes_to_the_program_once_whoever_it_was_sent_to")
def _():
    path = script("signalled.py", SIGNALLED)
    p = subprocess.Popen([XLANE, "run", "--runs", os.path.join(TMP, "runs-signals"), "--cache=off", "--",
                          sys.executable,
                          path], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    assert p.stdout.readline() == "ready\n"
    sent = []
    for send, which in ((os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM), (os.kill, signal.SIGINT),
                        (os.killpg, signal.SIGUSR1), (os.kill, signal.SIGUSR1), (os.killpg, signal.SIGINT)):
        send(p.pid, which)
        sent.append(int(which))
        time.sleep(0.2)
    out, _ = p.communicate("\n")
    assert eval(re.sub(r"<[^>]*: (\d+)>", r"\1", out)) == sent, (out, sent)


@check("a_signal_ends_the_wait_before_a_retry")
def _():
    fails = "echo 'jax.errors.JaxRuntimeError: UNAVAILABLE: the device is being reset' >&2; exit 1"
    p = subprocess.Popen([XLANE, "run", "--runs", os.path.join(TMP, "runs-retries"), "--cache=off", "--retries=9", "--",
                          "sh", "-c", fails], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                         text=True)
    while not p.stderr.readline().startswith("xlane: attempt 3 failed"):
        pass
    p.send_signal(signal.SIGTERM)
    said = p.communicate()[1]
    assert p.returncode == 143 and "ended by signal 15 (Terminated) while it waited to try again" in said, said
    assert "attempt 4" not in said, said


@check("a_signal_that_the_program_ends_by_itself_leaves_whole_counts")
def _():
    interrupted = STEPS % "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)"
    folder, err = python("interrupted", interrupted, status=130, args=["--summary"], fresh=True)
    assert "ended by signal 2 (Interrupt)" in err and "at least" not in err and "was killed" not in err, err
    assert "ran 40 times" in xlane("explain", folder) and "at least" not in xlane("receipt", "show", folder)
    folder, err = python("shot", interrupted.replace("SIGINT", "SIGKILL"), status=137, args=["--summary"])
    shown = xlane("receipt", "show", folder)
    none, said = "executions were not counted" in err, xlane("explain", folder)
    assert none or "at least" in err, err
    assert ("; executions were not counted\n" in said) == none and ("; its counts may miss the" in said) != none, said
    folder, err = python("left", STEPS % "time.sleep(4)\nos._exit(7)", status=7, args=["--summary"])
    assert "at least 4" in err, err
    assert "exit status 7; its counts may miss the last two seconds\n" in xlane("explain", folder)
    assert re.search(r"restore +.*, (at least \d+ executed|executions not counted)\n", shown), shown
    folder, _ = python("whole", STEPS % "", args=["--summary"])
    assert re.search(r"restore +.*frontend's own, 4\d executed\n", xlane("receipt", "show", folder))
    folder, _ = python("by_itself", STEPS % "raise SystemExit(130)", status=130)
    shown = xlane("receipt", "show", folder)
    assert "it ended with exit status 130" in shown and "signal" not in shown.splitlines()[0], shown


@check("an_interrupt_is_no_failure_and_is_at_a_line_of_the_users")
def _():
    made = STEPS % "press = eval(compile('lambda: os.kill(os.getpid(), 2) or time.sleep(9)', '<string>', 'eval'), " \
                   "{'os': os, 'time': time, '__name__': 'made'})\npress()  # HERE"
    folder, _ = python("pressed", made, status=130, fresh=True)
    said = xlane("explain", folder)
    assert re.search(r"^its program was interrupted: KeyboardInterrupt at \S*pressed.py:%d$" % line_of(made), said,
                     re.M), \
        said
    assert "failed with" not in said and "<string>" not in said, said
    folder, _ = python("long_words", STEPS % "raise ValueError('word ' * 60)", status=1, fresh=True)
    said = xlane("explain", folder)
    assert re.search(r"^its program failed with ValueError: (word )*word \.\.\. at \S*long_words.py:\d+$", said,
                     re.M), said
    folder, _ = run("by_word", sys.executable, "-c", "import jax.numpy as jnp\njnp.ones(3)\nraise KeyError('x')",
                    status=1)
    assert "its program failed with KeyError: 'x' at <string>:3\n" in xlane("explain", folder), xlane("explain", folder)


@check("a_cache_that_takes_nothing_is_said_once_at_the_end")
def _():
    cache = os.path.join(TMP, "takes-nothing")
    os.mkdir(cache, 0o700)
    for k in range(256):
        open(os.path.join(cache, "%02x" % k), "w").close()
    _, err = python("unkept", STEPS % "", cache=cache)
    said = re.findall(r"^xlane: (\d+) executables could not be written to the cache in %s, so the next start compiles them "
                      r"again: .*; --cache=DIR names another" % re.escape(cache), err, re.M)
    assert len(said) == 1 and int(said[0]) >= 2, err
    _, err = python("small", STEPS % "", cache=os.path.join(TMP, "takes-little"), args=["--cache-max=1KiB"])
    assert "could not be written" in err and " would be dropped at once: --cache-max=SIZE keeps 922 bytes" in err, err
    kept = os.path.join(TMP, "takes-all")
    _, err = python("kept", STEPS % "", cache=kept)
    assert "could not be written" not in err, err
    listed = xlane("cache", "ls", "--cache", kept)
    n = int(re.search(r"^(\d+) entries, [\d.]+ KiB in ", listed, re.M)[1])
    packed = os.path.join(TMP, "packed")
    assert "%d entries in %s; copy it" % (n, packed) in xlane("cache", "export", packed, "--cache", kept)
    with open(packed, "r+b") as f:
        f.truncate(os.path.getsize(packed) - 1)
    text = xlane("cache", "import", packed, "--cache", kept + "-2", status=1)
    assert "truncated" in text and "; copy it again, or export it again" in text, text
    assert "removed %d entries, freed " % n in xlane("cache", "prune", "--cache", kept, "--max=1KiB")


@check("a_run_that_is_not_recorded_has_a_summary_too")
def _():
    where = os.path.join(TMP, "unrecorded")
    os.mkdir(where)
    open(os.path.join(where, "runs"), "w").close()
    said = "exit status 3; not recorded, so nothing of it was counted"
    for args in ["--summary"], []:
        p = subprocess.run([XLANE, "run", "--cache=off", *args, "--", "sh", "-c", "exit 3"], cwd=where, text=True,
                           capture_output=True, env=environment())
        assert p.returncode == 3 and "this run is not recorded: " in p.stderr, p.stderr
        assert (said in p.stderr) == bool(args), p.stderr


@check("what_was_removed_or_ran_elsewhere_is_not_said_to_be_recorded_or_counted")
def _():
    _, err = python("removed", "import shutil\n" + STEPS % "shutil.rmtree(os.environ['XLANE_RUN'])",
                    args=["--summary"], made=False)
    assert "was removed while it ran" in err and "recorded in" not in err.replace("not recorded", ""), err
    elsewhere = "import jax\njax.config.update('jax_platforms', 'cpu')\n" + STEPS % ""
    _, err = python("elsewhere", elsewhere, args=["--profile=cpu", "--summary"], fresh=True)
    assert "JAX took its built-in cpu backend" in err and "executions" not in err and "changed" not in err, err
    _, err = run("bare", "env", "-i", "true", args=["--summary"])
    assert "or was started without this environment (env -i, sudo)" in err, err


@check("runs_counts_changes_of_a_program_and_not_its_being_traced_again")
def _():
    runs = os.path.join(TMP, "runs-counted")
    again = "for i in range(5):\n    @jax.jit\n    def turn(w): return w * 3\n    for k in range(4): turn(w)"
    _, err = python("again", STEPS % again, runs=runs, args=["--summary"])
    row = json.loads(xlane("runs", "--json", runs))[0]
    assert (row["recompiles"], row["traced_again"]) == (0, 4), row
    cache, sizes = os.path.join(TMP, "cache-counted"), STEPS % "for i in range(4): step(jnp.ones(5))"
    for turn in "cold", "warm":
        _, told = python("sizes", sizes, runs=os.path.join(TMP, "runs-" + turn), args=["--summary"], cache=cache)
        row = json.loads(xlane("runs", "--json", os.path.join(TMP, "runs-" + turn)))[0]
        line = xlane("runs", os.path.join(TMP, "runs-" + turn))
        assert (row["changes"], row["recompiles"]) == (1, int(turn == "cold")), (turn, row)
        assert (" 1 recompile " in line) == (turn == "cold") and (" 1 change " in line) == (turn == "warm"), line
        assert "of an earlier run" not in told, told
    _, told = python("flagged", sizes, runs=os.path.join(TMP, "runs-warm"), args=["--summary"], cache=cache,
                    XLA_FLAGS="--xla_cpu_enable_fast_math=true", fresh=True)
    assert "; 2 programs of an earlier run were compiled again; `xlane explain last` says why" in told, told
    assert " 4 traced again " in xlane("runs", runs) and "recompile" not in xlane("runs", runs)
    assert "changed 0 times in the warm-up window, 0 after it; the same program was traced again 4 times" in err, err


done()
