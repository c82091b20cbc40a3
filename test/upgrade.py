"""xlane upgrade: two versions of a plugin on the same programs. The embedded device and a shim that makes it worse
(test/plugins/worse.c) stand in for two releases; versions come from wheels of our own, through pip without an index.
./x test all does it with two real libtpus."""
import base64, glob, hashlib, json, os, shutil, subprocess, sys, tempfile, zipfile
import _x86
from _check import check, end

XLANE, CPU, WORSE = (os.path.abspath("build/" + p) for p in ("xlane", "libxlane-cpu.so", "test/plugins/worse.so"))
TMP = tempfile.mkdtemp(prefix="xlane-upgrade-")
ENV = dict(os.environ, XLANE_STATE=TMP + "/state", XDG_CACHE_HOME=TMP + "/cache", XLANE_WRAPPED=CPU, PIP_NO_INDEX="1",
           PIP_FIND_LINKS=TMP + "/wheels",
           TPU_SKIP_MDS_QUERY="1", VIRTUAL_ENV=os.path.dirname(os.path.dirname(sys.executable)))
ENV.pop("XLANE_CATALOG", None)


def xlane(*args, **env):
    return subprocess.run([XLANE, *args], capture_output=True, text=True, env=dict(ENV, **env), cwd=TMP, timeout=3000)


def upgrade(*args, **env):
    r = xlane("upgrade", *args, "--json", **env)
    return (json.loads(r.stdout) if r.stdout.strip() else {}), r


def write(name, text):
    with open(os.path.join(TMP, name), "w") as f:
        f.write(text)
    return os.path.join(TMP, name)


t = "tensor<64x64xf32>"
small = write("small.mlir", f"func.func @main(%a: {t}, %b: {t}) -> {t} {{\n  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}\n"
              f"  %1 = stablehlo.add %0, %a : {t}\n  return %1 : {t}\n}}\n")
sine = write("sine.mlir",
             f"func.func @main(%a: {t}) -> {t} {{\n  %0 = stablehlo.sine %a : {t}\n  return %0 : {t}\n}}\n")
conf = write("conf.yaml",
             "model: {pattern: A, dim: 32, heads: 2, vocab: 64}\ndata: {train: none.txt, batch: 4, time: 32}\n")
SAME = (f"--from={CPU}", f"--to={CPU}")
MOVE = (f"--from={CPU}", f"--to={WORSE}")

# a recorded JAX run
script = write("train.py", "import jax, jax.numpy as jnp\n"
               "@jax.jit\ndef step(w, x): return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)\n"
               "@jax.jit\ndef scan(x): return jax.lax.scan(lambda c, i: (jnp.sin(c) + i, c.sum()), x, jnp.arange(4.0))\n"
               "@jax.jit\ndef ranks(x): return jnp.sort(x), jnp.argmax(x, -1)\n@jax.jit\ndef soft(x): return jax.nn.softmax(x)\n"
               "@jax.jit\ndef evaluate(w, x): return jnp.mean(x @ w)\n"
               "w = jnp.ones((128, 128)) * 0.01\nx = jnp.ones((32, 128))\nfor i in range(4):\n    w = step(w, x)\nscan(x); ranks(x); soft(x); print(float(evaluate(w, x)))\n")
r = xlane("run", "--runs=" + TMP + "/runs", "--cache=off", "--name=jax", "--", sys.executable, script,
          JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + CPU)
run = (glob.glob(TMP + "/runs/*-jax") or [""])[0]

# the same twice
r = xlane("upgrade", run, conf, *SAME)
check("the_same_twice_nothing_moved", r.returncode == 0 and "nothing moved" in r.stdout and "0 regressions" in r.stdout
      and "REGRESSION" not in r.stdout, r.stdout + r.stderr)
check("both_ran_and_agree", " programs ran on both" in r.stdout and "did not run" not in r.stdout, r.stdout)
j, r = upgrade(run, "data.batch=8", conf, "data.batch=8", *SAME)
check("settings_belong_to_a_config", r.returncode == 2 and "belong to a config" in r.stderr, r.stderr)
j, r = upgrade(run, conf, "data.batch=8", *SAME, "--topology=xlane:2")
names = [p["name"] for p in j.get("programs", [])]
check(f"every_program_of_the_run ({len(names)})", r.returncode == 0 and len(names) >= 6
      and {"jit_step", "conf.yaml (batch 8)"} <= {n if "(" in n else n.split()[0] for n in names}
      and j["moved"] == [] and len(set(names)) == len(names), names)
p = next((p for p in j.get("programs", []) if p["name"] == "jit_step"), {"from": {}})["from"]
check("figures_of_a_program", p.get("verdict") == "fits" and {"arguments", "temporary", "code",
    "needs"} <= set(p["memory"]) and p["flops"] > 0 and p["bytes_accessed"] > 0
      and p["compile_cpu_seconds"] >= 0, p)
check("a_rehearsal_never_ran", p.get("standing") == "rehearsed" and "run_seconds" not in p, p)
r = xlane("upgrade", small, *SAME, "--topology=xlane:2")
check("and_says_so", "nothing ran" in r.stdout and "ran on both" not in r.stdout, r.stdout)

# worse in one way each
j, r = upgrade(run, *MOVE, XLANE_WORSE="memory")
top = (j.get("moved") or [{}])[0]
check("doubled_memory_is_a_regression", r.returncode == 1 and j["regressions"] > 0 and top["regression"]
      and top["what"] == "memory needed"
      and top["to"] == 2 * top["from"], (top, r.stderr))
check("what_is_small_is_no_regression", all(m["regression"] != m["minor"] or not m["regression"] for m in j["moved"])
      and any(m["minor"] for m in j["moved"]), j["moved"])
r = xlane("upgrade", run, *MOVE, "--tolerance=150%", XLANE_WORSE="memory")
check("within_the_tolerance", r.returncode == 0 and "0 regressions" in r.stdout and "what moved, worst first"
      in r.stdout, r.stdout)
j, r = upgrade(small, *MOVE, "--tolerance=memory=150%", XLANE_WORSE="memory")
check("of_one_kind", r.returncode == 0 and j["tolerance"]["memory"] == 1.5 and j["tolerance"]["flops"] == 0.1, r.stdout)
j, r = upgrade(small, f"--from={WORSE}", f"--to={CPU}", XLANE_WORSE="memory")
check("less_is_no_regression", r.returncode == 0 and j["moved"] and not any(m["worse"] for m in j["moved"]), j)
r = xlane("upgrade", small, *SAME, "--tolerance=much")
check("a_tolerance_that_is_none", r.returncode == 2 and "memory=5%" in r.stderr, r.stderr)
r = xlane("upgrade", small, *MOVE, "--topology=xlane:2", XLANE_WORSE="topology")
check("a_refused_topology_is_reported_as_that", r.returncode == 1 and f"{WORSE} refuses the topology xlane:2"
      in r.stdout and "not compared" in r.stdout
      and "REGRESSION" not in r.stdout, r.stdout + r.stderr)
r = xlane("upgrade", small, f"--from={WORSE}", f"--to={CPU}", "--topology=xlane:2", XLANE_WORSE="topology")
check("on_either_side", r.returncode == 1 and f"{WORSE} refuses the topology" in r.stdout and f"{CPU} refuses" not
      in r.stdout, r.stdout)
j, r = upgrade(small, sine, *MOVE, XLANE_WORSE="compile")
top = (j.get("moved") or [{}])[0]
check("what_no_longer_compiles_comes_first", r.returncode == 1 and j["regressions"] == 1
      and top["program"] == "sine.mlir" and top["kind"] == "compile"
      and "compiles -> refused (" in top["text"], j.get("moved"))
j, r = upgrade(sine, f"--from={WORSE}", f"--to={WORSE}", XLANE_WORSE="compile")
r = xlane("upgrade", sine, f"--from={WORSE}", f"--to={WORSE}", XLANE_WORSE="compile")
check("refused_by_both", r.returncode == 0 and "0 of 1 programs compile on both" in r.stdout
      and "the others on neither" in r.stdout, r.stdout)
j, r = upgrade(small, *MOVE, XLANE_WORSE="outputs")
top = (j.get("moved") or [{}])[0]
check("other_outputs_are_a_regression", r.returncode == 1 and top["kind"] == "outputs"
      and "4096 of 4096 elements differ" in top["text"], j.get("moved"))
j, r = upgrade(small, *MOVE, XLANE_WORSE="ends")
top = (j.get("moved") or [{}])[0]
check("one_that_ends_when_it_runs", r.returncode == 1 and top["kind"] == "outputs" and "ended when it ran"
      in top["text"] and "Check failed: it ran" in top["text"]
      and j["programs"][0]["to"]["verdict"] == "fits", j.get("moved"))

for kind, what, words in (("code", "code", "code: "), ("cpu", "CPU time of the compile", " s -> "),
                          ("time", "time of a run", " ms -> ")):
    j, r = upgrade(small, sine, *MOVE, XLANE_WORSE=kind)
    bad = [m for m in j.get("moved", []) if m["regression"]]
    check(f"more_{kind}_is_a_regression", r.returncode == 1 and len(bad) == 2 and {m["what"] for m in bad} == {what}
          and all(m["kind"] == kind and m["to"] > m["from"] for m in bad), j.get("moved"))
    if kind == "time":
        r = xlane("upgrade", small, *MOVE, XLANE_WORSE=kind)
        check("in_words", r.returncode == 1 and "REGRESSION small.mlir" in r.stdout and what + ": " in r.stdout
              and words in r.stdout, r.stdout)
j, r = upgrade(small, sine, *MOVE)
check("a_healthy_pair_says_none_of_it", r.returncode == 0 and j["regressions"] == 0 and not any(
    m["kind"] in ("code", "cpu", "time", "collectives") for m in j["moved"]), j.get("moved"))

# collectives are read from XLA's own optimized programs, made here by JAX for two devices
hlo = write("hlo.py", """import sys, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("d",))
sum1 = lambda x: jax.lax.psum(x, "d")
both = lambda x: jax.lax.all_gather(x * 2, "d").sum(0) + sum1(x)
for name, f, n in (("a", sum1, 64), ("b", sum1, 256), ("c", both, 64)):
    g = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False))
    exe = g.lower(jnp.ones((2 * n, 64))).compile().runtime_executable()
    with open(f"{sys.argv[1]}/{name}.so.hlo", "wb") as out:
        out.write(exe.hlo_modules()[0].as_serialized_hlo_module_proto())
""")
subprocess.run([sys.executable, hlo, TMP], check=True, env=dict(ENV, JAX_PLATFORMS="cpu",
               XLA_FLAGS="--xla_force_host_platform_device_count=2"))
for name in "abc":
    shutil.copy(WORSE, f"{TMP}/{name}.so")
j, r = upgrade(small, f"--from={TMP}/a.so", f"--to={TMP}/b.so", XLANE_WORSE="collectives")
bad = [m for m in j.get("moved", []) if m["regression"]]
check("more_bytes_of_a_collective", r.returncode == 1 and len(bad) == 1 and bad[0]["kind"] == "collectives"
      and bad[0]["what"].startswith("bytes of all-reduce over ") and bad[0]["to"] == 4 * bad[0]["from"] > 0, j.get("moved"))
j, r = upgrade(small, f"--from={TMP}/a.so", f"--to={TMP}/c.so", XLANE_WORSE="collectives")
bad = [m for m in j.get("moved", []) if m["regression"]]
check("another_kind_of_collective", r.returncode == 1 and len(bad) == 1 and bad[0]["from"] == 0
      and bad[0]["what"].startswith("bytes of all-gather over "), j.get("moved"))
r = xlane("upgrade", small, f"--from={TMP}/a.so", f"--to={TMP}/c.so", XLANE_WORSE="collectives")
check("collectives_in_words", "REGRESSION small.mlir" in r.stdout and "bytes of all-gather over" in r.stdout, r.stdout)
j, r = upgrade(small, f"--from={TMP}/b.so", f"--to={TMP}/a.so", XLANE_WORSE="collectives")
check("fewer_bytes_are_no_regression", r.returncode == 0 and not any(m["worse"] for m in j["moved"]), j.get("moved"))
j, r = upgrade(small, f"--from={TMP}/a.so", f"--to={TMP}/a.so", XLANE_WORSE="collectives")
check("the_same_collectives", r.returncode == 0 and j["moved"] == [], j.get("moved"))

# where the findings go
upgrade(run, *MOVE, XLANE_WORSE="memory")
r = xlane("matrix", "check", "--plugin=" + WORSE, XLANE_WORSE="memory")
row = [x for x in r.stdout.splitlines() if "upgrade.memory" in x]
check("the_matrix_has_the_row", r.returncode == 1 and row and row[0].startswith("affected") and f"do: stay with {CPU}"
      in r.stdout, r.stdout)
r = xlane("matrix", "check", "--plugin=" + CPU, "--all")
row = [x for x in r.stdout.splitlines() if "upgrade.memory" in x]
check("of_the_version_before_it_is_not_here", row and row[0].startswith("not here") and "the version before" in row[0],
      r.stdout)
upgrade(run, *MOVE)     # with nothing worse: the newest of a pair counts
r = xlane("matrix", "check", "--plugin=" + WORSE)
check("a_newer_rehearsal_clears_it", "upgrade.memory" not in r.stdout, r.stdout)
upgrade(run, *MOVE, XLANE_WORSE="memory")
r = xlane("report", run, "-o", TMP + "/report.html")
with open(TMP + "/report.html") as f:
    page = f.read()
check("the_report_has_a_section", "Rehearsed upgrades" in page and "memory needed" in page and 'class="bad">regression'
      in page, r.stderr)


# versions by name
def wheel(version, plugin):
    os.makedirs(TMP + "/wheels", exist_ok=True)
    info = f"xlane_test_pjrt-{version}.dist-info/"
    with open(plugin, "rb") as f:
        files = {"xlane_test/xlane_pjrt_plugin.so": f.read(),
                 info + "METADATA": f"Metadata-Version: 2.1\nName: xlane-test-pjrt\nVersion: {version}\n".encode(),
                 info + "WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b'=').decode()},{len(b)}\n" for n, b in files.items())
    with zipfile.ZipFile(f"{TMP}/wheels/xlane_test_pjrt-{version}-py3-none-any.whl", "w") as z:
        for n, b in (*files.items(), (info + "RECORD", (record + info + "RECORD,,\n").encode())):
            z.writestr(n, b)


wheel("1.0", CPU)
wheel("1.1", WORSE)
pair = ("--from=xlane-test-pjrt==1.0", "--to=xlane-test-pjrt==1.1")
r = xlane("upgrade", small, *pair, XLANE_WORSE="memory")
check("versions_are_fetched", r.returncode == 1 and r.stderr.count("xlane: fetching xlane-test-pjrt 1.") == 2
      and "xlane-test-pjrt 1.0 -> xlane-test-pjrt 1.1" in r.stdout,
      r.stdout + r.stderr)
home = TMP + "/cache/xlane/plugins/xlane-test-pjrt-1.0"
with open(home + "/plugin.json") as f:
    about = json.load(f)
with open(CPU, "rb") as f:
    digest = hashlib.blake2b(f.read(), digest_size=32).hexdigest()
check("with_their_digest", about["blake2b"] == digest and about["version"] == "1.0"
      and os.stat(home).st_mode & 0o77 == 0, about)
r = xlane("upgrade", small, *pair, XLANE_WORSE="memory")
check("once", r.returncode == 1 and "fetching" not in r.stderr and not glob.glob(TMP + "/cache/xlane/plugins/.*-*"),
      r.stderr)
r = xlane("matrix", "check", "--plugin=" + TMP + "/cache/xlane/plugins/xlane-test-pjrt-1.1/xlane_test/xlane_pjrt_plugin.so", XLANE_WORSE="memory")
check("the_remedy_is_a_command", "do: pip install xlane-test-pjrt==1.0" in r.stdout, r.stdout)
with open(home + "/xlane_test/xlane_pjrt_plugin.so", "ab") as f:
    f.write(b"x")
r = xlane("upgrade", small, *pair)
check("a_changed_file_is_refused", r.returncode == 1 and "is not the file that was fetched" in r.stderr and "remove "
      + home in r.stderr, r.stderr)
if os.getuid() == 0:
    os.chmod(home, 0o777)
    r = xlane("upgrade", small, *pair)
    check("so_is_a_folder_of_others", r.returncode == 1 and "is not the file" not in r.stderr and home in r.stderr,
          r.stderr)
r = xlane("upgrade", small, "--from=xlane-test-pjrt==9.9", "--to=cpu")
check("no_such_version", r.returncode == 1 and "pip did not fetch xlane-test-pjrt==9.9" in r.stderr
      and "index versions" in r.stderr
      and not os.path.exists(TMP + "/cache/xlane/plugins/xlane-test-pjrt-9.9"), r.stderr)
r = xlane("upgrade", small, "--from=--x==1", "--to=cpu")
check("no_option_for_pip", r.returncode == 1 and "it is written libtpu==0.0.40" in r.stderr, r.stderr)
env = TMP + "/env/lib/python3.11/site-packages"
os.makedirs(env)
os.makedirs(TMP + "/env/bin")
os.symlink(sys.executable, TMP + "/env/bin/python")
r = xlane("upgrade", small, f"--from={TMP}/env", "--to=cpu")
check("an_environment_without_one", r.returncode == 1 and "has no plugin" in r.stderr and "pip install" in r.stderr,
      r.stderr)
shutil.copytree(TMP + "/cache/xlane/plugins/xlane-test-pjrt-1.1", env, dirs_exist_ok=True)
r = xlane("upgrade", small, f"--from={CPU}", f"--to={TMP}/env", XLANE_WORSE="memory")
check("an_environment", r.returncode == 1 and "-> xlane-test-pjrt 1.1" in r.stdout and "REGRESSION" in r.stdout,
      r.stdout + r.stderr)
r = xlane("upgrade", small, f"--from={TMP}", "--to=cpu")
check("a_folder_that_is_none", r.returncode == 1 and "without bin/python" in r.stderr, r.stderr)
r = xlane("upgrade", small, "--from=cpu")
check("both_sides_are_needed", r.returncode == 2 and "--from and --to" in r.stderr, r.stderr)
r = xlane("upgrade", small, f"--from={TMP}/none.so", "--to=cpu")
check("a_file_that_is_not_there", r.returncode == 1 and "--from" in r.stderr and "none.so" in r.stderr, r.stderr)

# the real ones
if os.environ.get("XLANE_TEST_ALL") != "1" or not _x86.NATIVE:
    print("skip libtpu: two versions of it are fetched by ./x test all, on x86-64")
else:
    for k in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        ENV.pop(k)
    ENV["XDG_CACHE_HOME"] = os.path.abspath("build/dl")
    r = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", "libtpu"],
                       capture_output=True, text=True)
    newest = r.stdout.split("(")[1].split(")")[0] if "(" in r.stdout else "0.0.51"
    pair = ("--from=libtpu==0.0.40", "--to=libtpu==" + newest, "--topology=v6e:2x2")
    r = xlane("upgrade", run, conf, *pair)
    if "pip did not fetch" in r.stderr:
        print("skip libtpu: it cannot be fetched here")
    else:
        print(r.stdout)
        check(f"libtpu_0.0.40_to_{newest}", r.returncode in (0, 1) and f"libtpu 0.0.40 -> libtpu {newest}, for v6e:2x2"
              in r.stdout and "what moved, worst first" in r.stdout
              and "conf.yaml (batch 4)" in r.stdout and "jit_step" in r.stdout, r.stdout + r.stderr)
        check("libtpu_exit_status", (r.returncode == 1) == ("REGRESSION" in r.stdout), (r.returncode, r.stdout))
        r = xlane("upgrade", run, conf, "--from=libtpu==0.0.40", "--to=libtpu==0.0.40", "--topology=v6e:2x2")
        check("libtpu_twice_nothing_moved", r.returncode == 0 and "nothing moved" in r.stdout, r.stdout + r.stderr)
        r = xlane("upgrade", small, "--from=libtpu==0.0.40", "--to=libtpu==" + newest, "--topology=v6e:1x1")
        print(r.stdout)
        check("libtpu_refuses_a_topology", r.returncode == 1 and "refuses the topology v6e:1x1" in r.stdout,
              r.stdout + r.stderr)
shutil.rmtree(TMP)
sys.exit(end())
