"""What is said of a run is what was seen of it: receipts, the catalog, retries, the matrix, and success words. Rows W6-W8, W10, W12. Under unmodified JAX on the embedded device."""
import json, os, re, resource, shutil, signal, subprocess, sys, tempfile, time
import _check
import _warm
from _check import check, end

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("XLANE_BUILD", os.path.join(HERE, "..", "build")))
XLANE = os.path.join(BUILD, "xlane")
TMP = tempfile.mkdtemp(prefix="xlane-claims-")
KEEP = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "LIBTPU_", "PJRT_", "TPU_", "JAX_", "PT_XLA_",
    "XLANE_"))}
ENV = dict(KEEP, XDG_CONFIG_HOME=TMP + "/config", XLANE_STATE=TMP + "/state", XLANE_CACHE=TMP + "/cache",
           TPU_SKIP_MDS_QUERY="1")
TINY = ["data.train=book.txt", "model.pattern=D", "model.dim=8", "model.heads=1", "optimizer.warmup=0",
        "train.eval_every=0", "train.save_every=0"]


def xlane(*args, env=None, stdin="", **kw):
    return subprocess.run([XLANE, *args], capture_output=True, text=True, errors="replace",
                          env=dict(ENV, **(env or {})), cwd=TMP, timeout=300, input=stdin, **kw)


def run(name, *cmd, args=(), env=None, **kw):
    p = xlane("run", "--name", name, *(args if "--cache" in args else ("--cache", "off", *args)), "--", *cmd, env=env,
              **kw)
    return p, sorted(TMP + "/runs/" + d for d in os.listdir(TMP + "/runs") if d.endswith("-" + name))[-1]


def events(folder, what):
    return [e for e in map(json.loads, open(folder + "/events.jsonl")) if e["event"] == what]


def receipt(folder):
    r = json.load(open(folder + "/receipt.json"))
    return r, {f["fact"]: f["value"] for f in r["facts"]}, xlane("receipt", "show", folder).stdout


with open(TMP + "/book.txt", "w") as f:
    f.write("the quick brown fox jumps over the lazy dog. " * 200)
with open(TMP + "/step.py", "w") as f:
    f.write("""
import argparse, os, signal
import jax, jax.numpy as jnp
p = argparse.ArgumentParser()
p.add_argument("--n", type=int, default=64)
p.add_argument("--kill", action="store_true")
a = p.parse_args()
@jax.jit
def train_step(x):
    return jnp.tanh(x @ x + x) * 2 - jnp.cos(x) + x * x - jnp.sin(x)
x = jnp.ones((a.n, a.n))
for i in range(4):
    x = train_step(x)
if a.kill:
    x.block_until_ready()
    os.kill(os.getpid(), signal.SIGKILL)
print(float(x[0, 0]))
""")
PY = [_warm.python(TMP), "step.py"]

# ---- receipts --------------------------------------------------------------------------------------------------------
p, folder = run("good", *PY, args=("--profile", "cpu"))
r, facts, text = receipt(folder)
_check.prefix = "W6_"
check("a_run_that_ran", p.returncode == 0 and r["proof"] == "ran" and r["claim"] == "viability"
      and ": it ran, so it works here; nothing is said of the quality of its results\n" in text and "\nwhat stays true of this run:\n" in text
      and "no proof" not in text and re.search(r"\n  packages +(installed: \w|none\n)",
                                               text) and facts["devices_answer"].startswith("yes"), (p.stderr, r, text))
good = folder
p, folder = run("killed", *PY, "--kill", args=("--profile", "cpu"))
r, facts, text = receipt(folder)
check("a_killed_run_proves_nothing", r["proof"] == "failed" and r["claim"] == "none"
      and "signal 9 (Killed), so it proves nothing" in text and "works here" not in text
      and "\nwhat was recorded of it, which is no proof:\n" in text and "stays true" not in text, (p.stderr, text))
with open(TMP + "/donated.py", "w") as f:
    f.write("import jax\nf = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)\nx = jax.numpy.ones((64, 64))\nf(x)\nf(x)\n")
p, folder = run("donated", PY[0], "donated.py", args=("--profile", "cpu"))
p = xlane("classify", folder)
check("a_donated_array_used_again", p.returncode == 0 and p.stdout.startswith("donated (") and "donate_argnums"
      in p.stdout
      and "keep the array that the function returned" in p.stdout, (p.stdout, p.stderr))
with open(folder + "/events.jsonl") as f:
    told = f.read()
with open(folder + "/events.jsonl", "w") as f:             # an error that nobody knows
    f.write(told.replace("was deleted or donated", "was odd"))
p = xlane("classify", folder)
check("an_unknown_failure_of_a_run",
      p.returncode == 1 and p.stdout.startswith("unknown: nothing that this run recorded")
      and "run's folder" not in p.stdout and "xlane classify LOG" in p.stdout, (p.stdout, p.stderr))
p = xlane("classify", "-", stdin="something odd\n")
check("an_unknown_text_asks_for_the_folder", "or the run's folder" in p.stdout, p.stdout)
p, folder = run("unguarded", "true")
r, facts, text = receipt(folder)
check("an_unguarded_run_proves_nothing", p.returncode == 0 and r["proof"] == "not observed" and r["claim"] == "none"
      and "works here" not in text and ", so it proves nothing" in text, text)
check("an_unguarded_run_has_no_figures", facts["plugin"] == "none was seen" and facts["devices_answer"] == "not asked"
      and facts["restore"] == "not-seen" and "restore   not-seen: no process loaded a plugin under the guard\n" in text
      and "no program was compiled" not in text, (facts, text))
p, folder = run("oom", *PY, "--n", "2048", args=("--profile", "cpu"), env={"XLANE_CPU_HBM": "3MiB"})
r, facts, text = receipt(folder)
check("a_run_without_memory_proves_nothing", p.returncode == 1 and r["proof"] == "failed" and r["claim"] == "none"
      and "exit status 1, so it proves nothing" in text and "works here" not in text, text)

# ---- the catalog, retries and candidates -----------------------------------------------------------------------------
ls = lambda *args: json.loads(xlane("catalog", "--json", *args).stdout)
entries = [e for e in ls() if e["what"] == "run"]
_check.prefix = "W7_"
check("guarded_programs_are_in_the_catalog", [e["outcome"] for e in entries] == ["ran", "killed", "failed"]
      and "jit_train_step of " in entries[0]["signature"]["model"]
      and entries[0]["signature"]["hardware"] == "1 x xlane_cpu" and len(entries[0]["signature"]["code"]) == 64, entries)
check("with_compiled_and_observed_memory", entries[0]["compiled"] >= 2 * 64 * 64 * 4
      and entries[0]["observed"] >= 64 * 64 * 4 and entries[0]["limit"] > entries[0]["observed"], entries[0])
check("a_failed_first_compile_is_known_bad", entries[2]["class"] == "E1000" and "compiled" not in entries[2]
      and entries[2]["signature"]["code"] != entries[0]["signature"]["code"], entries[2])
text = xlane("catalog").stdout
check("the_catalog_in_words", "ran       run: jit_train_step of" in text and "observed" in text and "E1000" in text
      and "launches in " + TMP + "/state/catalog" in text, text)
check("the_catalog_by_outcome", [e["outcome"] for e in ls("--outcome=failed")] == ["failed"], ls("--outcome=failed"))
p = xlane("calibrate", good)
j = json.loads(xlane("calibrate", good, "--json").stdout)
check("calibrate_shows_a_guarded_run", p.returncode == 0 and j["verdict"] == "observed"
      and j["entry"]["compiled"] == entries[0]["compiled"] and j["entry"]["observed"] == entries[0]["observed"]
      and j["fits"] is True and "the compiler's own figure" in p.stdout and "--module" not in p.stdout
      and re.match(r"fits: [\d.]+ [KM]iB of [\d.]+ GiB \(observed\); jit_train_step of run ", p.stdout),
      p.stdout + p.stderr)
check("calibrate_says_how_it_was_launched", j["entry"]["detail"]["command"].endswith("step.py")
      and j["entry"]["detail"]["folder"] == TMP and "profile cpu" in j["entry"]["signature"]["features"] and "@none" not in json.dumps(j)
      and j["entry"]["time"][:4] == time.strftime("%Y") and j["entry"]["signature"]["model"].endswith("step.py"), j)
p, folder = run("large_start", sys.executable, "-c", """
import jax, jax.numpy as jnp
@jax.jit
def start():
    return jnp.sin(jnp.arange(1 << 20, dtype=jnp.float32)).reshape(1024, 1024) @ jnp.ones((1024, 64))
@jax.jit
def step(w):
    return jnp.tanh(w) * 0.9
w = start()[:8]
for i in range(12):
    w = step(w)
print(float(w[0, 0]))
""", args=("--profile", "cpu"))
j = json.loads(xlane("calibrate", folder, "--json").stdout)["entry"]
bytes_of = {e["program"]: e.get("compiled_bytes", 0) for e in events(folder, "compile")}
check("all_figures_are_of_the_program_that_runs_again_and_again", p.returncode == 0
      and j["compiled"] == bytes_of[j["signature"]["code"]] < max(bytes_of.values())
      and j["predicted"] < 1 << 16 and j["observed"] > 1 << 20, (j, bytes_of, p.stderr))
stepping = folder
p = xlane("calibrate", "unguarded")
check("calibrate_says_what_was_not_recorded", p.returncode == 1 and "recorded no compile" in p.stderr
      and "xlane run -- CMD" in p.stderr, p.stderr)

large = ("--profile", "cpu", "--retries", "3", "--smaller", "--n 1024", "--smaller", "--n 128")
p, folder = run("first", *PY, "--n", "2000", args=large, env={"XLANE_CPU_HBM": "3MiB"})
r, facts, text = receipt(folder)
check("the_receipt_names_the_candidate_that_ran", p.returncode == 0
      and facts["command"].endswith("step.py --n 2000 --n 128") and any("3 attempts" in n["text"] and "--n 128"
          in n["text"] for n in r["notes"])
      and r["proof"] == "ran", (p.stderr, facts["command"], r["notes"]))
text = xlane("classify", folder).stdout
j = json.loads(xlane("classify", folder, "--json").stdout)
check("classify_finds_the_failed_attempts", [(x["attempt"], x["cause"]) for x in j] == [(1, "compile_hbm"),
    (2, "compile_hbm")] and "attempt 1 ended with 1" in text
      and "--n 2000\n  then: tried again with the next smaller candidate" in text and "--n 1024\n" in text, text)
p, folder = run("second", *PY, "--n", "2000", args=large, env={"XLANE_CPU_HBM": "3MiB"})
r, facts, text = receipt(folder)
check("a_second_launch_tries_what_is_known_to_run", p.returncode == 0 and not events(folder, "retry")
      and 'the catalog knows "--n 128" to run here and a larger one not to fit' in p.stderr
      and facts["command"].endswith("--n 128"), p.stderr)
p, folder = run("third", *PY, "--n", "2000", args=("--profile", "cpu", "--retries", "3", "--smaller", "--n 1024",
                                                   "--smaller", "--n 256"), env={"XLANE_CPU_HBM": "3MiB"})
check("known_bad_candidates_come_last", p.returncode == 0 and not events(folder, "retry")
      and [e["command"][-2:] for e in events(folder, "attempt")] == [["--n", "256"]], p.stderr)
p, folder = run("other", *PY, "--n", "2000", args=large, env={"XLANE_CPU_HBM": "1GiB"})
check("other_flags_are_another_launch", p.returncode == 0 and "the catalog knows" not in p.stderr
      and receipt(folder)[1]["command"].endswith("--n 2000"), p.stderr)

# ---- the matrix ------------------------------------------------------------------------------------------------------
def matrix(*args, env=None):
    p = xlane("matrix", "check", "--plugin", "cpu", "--json", *args, env=env)
    return p.returncode, {r["name"]: r for r in json.loads(p.stdout)}


rows = json.loads(xlane("matrix", "list", "--json").stdout)
_check.prefix = "W8_"
check("every_row_has_its_remedy", len(rows) >= 39 and all(r["remedy"] and r["how"] and r["seen"] and r["source"] for r
                                                          in rows), rows)
text = {r["name"]: r["remedy"] for r in rows}
for row, words in (("adamw_scalars", "capturable=True"), ("adamw_scalars", "foreach=False"),
                   ("optax_rate", "inject_hyperparams("),
                   ("lazy_eager", "torch.compile("), ("resume_placement", "load_state_dict(state, assign=False)"),
                   ("resume_placement", "copy_("), ("scan", "scan_layers(layers, x)"), ("scan",
                       "is_layer_pure"), ("scan", "Pallas"), ("pin_layout", "pin_layout=False"),
                   ("pallas_import", "jax_import_guard()"), ("debug_cost", "PT_XLA_DEBUG_LEVEL=2"), ("debug_cost",
                       "--profile debug-light")):
    check("remedy_of_%s_says_%s" % (row, words.split("(")[0].replace(" ", "_")), words in text[row], text[row])
p = xlane("matrix", "list")
check("the_list_says_how_and_where", "detected by: " in p.stdout and "seen on: " in p.stdout, p.stdout)
status, got = matrix(env={"XLANE_POLICY": "allow"})
hit = [n for n, r in got.items() if r["state"] == "affected"]
check("an_affected_row_exits_1", status == 1 and "no_gate" in hit, (status, hit))
status, got = matrix(*[a for n in hit for a in ("--allow", n)], env={"XLANE_POLICY": "allow"})
check("allowed_rows_exit_0", status == 0 and all(got[n]["state"] == "affected" and got[n]["allowed"] for n in hit),
      status)
status, got = matrix(*[a for n in hit if n != "no_gate" for a in ("--allow", n)], env={"XLANE_POLICY": "allow"})
check("one_row_that_is_not_allowed_exits_1", status == 1, status)
status, got = matrix(*[a for n in hit if n != "no_gate" for a in ("--allow", n)])
check("no_affected_row_exits_0", status == 0 and got["no_gate"]["state"] == "clear", (status, got["no_gate"]))
p = xlane("matrix", "check", "--allow", "nonsense")
check("a_row_that_is_not_there", p.returncode == 2 and "there is no row 'nonsense'" in p.stderr and "xlane matrix list"
      in p.stderr, p.stderr)
lock = "/tmp/libtpu_lockfile"
made = not os.path.exists(lock)
if made:
    open(lock, "w").close()
status, got = matrix(env={"XLA_IR_DEBUG": "1"})
if made:
    os.unlink(lock)
check("the_lock_file_that_libtpu_leaves_is_clear", got["stale_lock"]["state"] == "clear"
      and ("takes it again" in got["stale_lock"]["text"] or "held by" in got["stale_lock"]["text"]), got["stale_lock"])
check("source_lines_left_on", got["debug_cost"]["state"] == "affected", got["debug_cost"])
os.makedirs(TMP + "/shared/writers")
open(TMP + "/shared/writers/another-host", "w").close()
status, got = matrix("--cache", TMP + "/shared")
row = got["many_writers"]
check("many_writers_does_not_contradict_itself", row["state"] == "affected" and "another-host" in row["text"]
      and "locks may not reach one another" in row["text"]
      and "locks may not reach one another" in row["symptom"] and "wait" not in row["text"] + row["symptom"], row)
with open(TMP + "/deep.py", "w") as f:
    f.write("""
import sys
import jax, jax.numpy as jnp
w, x = jnp.ones((16, 8, 8)) / 8, jnp.ones((4, 8))
@jax.jit
def deep(w, x):
    if sys.argv[1] == "scan":
        return jax.lax.scan(lambda h, v: (jnp.tanh(h @ v), None), x, w)[0]
    for i in range(16):
        x = jnp.tanh(x @ w[i])
    return x
print(float(deep(w, x).sum()))
""")
for how, state in (("written", "affected"), ("scan", "clear")):
    _, folder = run("deep-" + how, PY[0], "deep.py", how, args=("--profile", "cpu"))
    status, got = matrix(folder)
    check("layers_%s_are_%s" % (how, state), got["scan"]["state"] == state
          and ("16 products tensor<4x8xf32> x tensor<8x8xf32>"
               in got["scan"]["text"]) == (state == "affected"), got["scan"])
p = xlane("profile", "show", "debug-light")
check("the_light_profile_has_no_source_lines", "torch_level" in p.stdout and "  hlo" not in p.stdout and "  ir " not
      in p.stdout, p.stdout)

# ---- training --------------------------------------------------------------------------------------------------------
p = xlane("train", *TINY, "train.steps=5", "--json", "--quiet")
folder = json.loads(p.stdout)["run"]
r, facts, text = receipt(TMP + "/" + folder)
_check.prefix = "W10_"
check("a_trained_run_has_its_counts", r["proof"] == "ran" and "1 compiled, 0 from the cache, 0 from the frontend's own, 5 executed" in facts["restore"] and facts["devices_answer"].startswith("yes: xlane")
      and r["restore"]["cache"] == TMP + "/cache" and facts["command"].startswith("xlane train data.train="), (p.stderr,
          facts))
p = xlane("train", *TINY, "train.steps=5")
check("a_trained_run_skipped_and_lost_nothing", "skipped" not in p.stdout + p.stderr and "could not be written" not
      in p.stderr, p.stdout + p.stderr)
wild = [*TINY, "optimizer.lr=1e28", "optimizer.clip=0", "optimizer.eps=1e-30", "optimizer.schedule=constant"]
p = xlane("train", *wild, "train.steps=40", "--quiet")
folder = p.stdout.split(":")[0]
check("a_run_that_is_not_finite_fails", p.returncode == 1 and "not finite from step 2 to the last, 40: 39 of 40 steps updated nothing" in p.stderr and "optimizer.lr" in p.stderr
      and "39 of 40 steps were skipped" in p.stdout, p.stdout + p.stderr)
r, facts, text = receipt(TMP + "/" + folder)
check("a_run_that_is_not_finite_proves_nothing", r["proof"] == "failed" and "works here" not in text, text)
p = xlane("resume", folder, "train.steps=42", "optimizer.lr=0", "--json")
j = json.loads(p.stdout)
check("a_resumed_run_counts_its_own_steps", p.returncode == 1 and j["steps_here"] == 2 and j["skipped_here"] == 2
      and j["skipped"] == 41 and j["not_finite_from"] == 41
      and len(events(TMP + "/" + folder, "skipped")) == 41, p.stdout + p.stderr)


def small():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))


p = xlane("train", *TINY, "train.steps=40", "train.log_every=1", "--quiet", "runs=full", "cache=none", preexec_fn=small)
check("a_full_run_folder_is_said_by_train", p.returncode == 5 and "metrics.csv in full/" in p.stderr and "--runs"
      in p.stderr, p.stdout + p.stderr)
p = xlane("run", "--runs", "full", "--cache", "off", "--name", "full", "--", "true", preexec_fn=small)
check("a_full_run_folder_is_said_by_run", "File too large" in p.stderr and "--runs=DIR names another folder"
      in p.stderr,
      p.stderr)
p = xlane("run", "--runs", "notfull", "--cache", "off", "--name", "notfull", "--", "true")
check("a_folder_with_room_is_not_called_full", "not complete" not in p.stderr and "no receipt" not in p.stderr,
      p.stderr)

# ---- the runtime's own log -------------------------------------------------------------------------------------------
TALKS = {"XLANE_WRAPPED": BUILD + "/libxlane-cpu.so"}
for args, env, info, warns in ((["--quiet"], {}, False, True), ([], {}, False, True), (["-v"], {}, True, True),
                               (["--quiet", "-v"], {}, True, True), (["--quiet"], {"TF_CPP_MIN_LOG_LEVEL": "0"}, True,
                                   True),
                               (["--quiet"], {"TF_CPP_MIN_LOG_LEVEL": "2"}, False, False)):
    p = xlane("train", *args, *TINY, "train.steps=2", "--device=" + BUILD + "/test/plugins/talks.so", "cache=none",
              env=dict(TALKS, **env))
    check("log_of_the_runtime_%s_%s" % ("".join(a.strip("-") for a in args) or "plain",
                                        env.get("TF_CPP_MIN_LOG_LEVEL", "unset")),
          p.returncode == 0 and ("an INFO line of the runtime" in p.stderr) == info and ("a warning of the runtime"
              in p.stderr) == warns, p.stderr)

# ---- rehearsals, and programs of a run -------------------------------------------------------------------------------
with open(TMP + "/add.mlir", "w") as f:
    f.write("func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {\n  %0 = stablehlo.add %x, %x : tensor<64xf32>\n  return %0 : tensor<64xf32>\n}\n")
p = xlane("rehearse", "--topology=xlane:1", "add.mlir")
_check.prefix = "W12_"
check("rehearse_explains_its_figures", p.returncode == 0 and "needs: code + arguments + outputs - aliased + temporary"
      in p.stdout and "peak: the most that the compiler sees alive" in p.stdout, p.stdout)
p = xlane("rehearse", "--topology=xlane:1", "--profile", "tpu-v6e", "add.mlir")
known = json.loads(xlane("catalog", "--json", "--outcome=rehearsed").stdout)
check("rehearse_takes_a_profile", p.returncode == 0 and len(known) == 2 and "xla_tpu_scoped_vmem_limit_kib" not
      in known[0]["signature"]["bundle"]
      and "xla_tpu_scoped_vmem_limit_kib=98304" in known[1]["signature"]["bundle"], (p.stderr, known))
for words in (["rehearse", "--topology=xlane:1", stepping], ["rehearse", "--topology=xlane:1", "--module=jit_start",
                                                           stepping]):
    p = xlane(*words)
    again = len(words) == 3
    check("a_run_is_rehearsed_by_its_step" + ("" if again else "_but_for_module"), p.returncode == 0
          and ("program        jit_%s of run " % ("step" if again else "start")) in p.stdout
          and ("runs again and again" in p.stdout) == again, p.stdout + p.stderr)
check("print_shows_the_step", "module @jit_step" in xlane("print", stepping).stdout)
p = xlane("rehearse", "--topology=xlane:1", "step.py")
check("what_is_no_program_is_not_rehearsed", p.returncode == 1 and "step.py is not a program" in p.stderr
      and "refused" not in p.stdout, p.stdout + p.stderr)
p = xlane("rehearse", "--topology=bad", "--plugin=cpu", "add.mlir")
check("the_hint_names_topologies_that_every_libtpu_takes", "v6e:2x2" in p.stdout and "1x1" not in p.stdout and "tpu7x"
      not in p.stdout, p.stdout)
p = xlane("print", good)
check("print_reads_a_run", p.returncode == 0 and "stablehlo.dot_general" in p.stdout and "stablehlo.tanh" in p.stdout,
      p.stdout + p.stderr)
step = [e for e in events(good, "compile") if e["module"] == "jit_train_step"][0]
packed = good + "/programs/" + step["program"] + ".zst"
check("print_reads_a_packed_program", xlane("print", packed).stdout == p.stdout
      and xlane("print", "--hash", packed).stdout.strip() == step["program"], packed)
p = xlane("print", good, "--module=jit_nothing")
check("print_names_the_modules_there_are", p.returncode == 1 and "jit_train_step" in p.stderr, p.stderr)
p = xlane("diff", good, packed)
check("diff_reads_both", p.returncode == 0 and "the same program" in p.stdout, p.stdout + p.stderr)
p = xlane("diff", good, "deep-scan")
check("diff_of_two_runs", p.returncode == 1 and p.stdout.strip(), p.stdout + p.stderr)
p = xlane("exec", packed, "--show=1", "--plugin=cpu")
check("exec_reads_a_packed_program", p.returncode == 0, p.stderr)

shutil.rmtree(TMP, ignore_errors=True)
sys.exit(end())
