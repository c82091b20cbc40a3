"""xlane rehearse and exec: programs compiled for devices that are not here (R1-R3), and run on their own. The embedded
device stands in for the TPU compiler; with libtpu (natively on x86-64, under box64 or qemu in ./x test all) the same is
asked of the real one."""
import glob, json, os, shutil, struct, subprocess, sys, tempfile
import _x86
from _check import check, end

XLANE = os.path.abspath("build/xlane")
TMP = tempfile.mkdtemp(prefix="xlane-rehearse-")
ENV = dict(os.environ, XLANE_STATE=TMP + "/state", XLANE_CACHE=TMP + "/cache")
ENV.pop("XLANE_CATALOG", None)


def xlane(*args, run=(), binary=XLANE, **env):
    return subprocess.run([*run, binary, *args], capture_output=True, text=True, env=dict(ENV, **env), cwd=TMP,
                          timeout=3000)


def matmul(n):
    t = f"tensor<{n}x{n}xf32>"
    return (f"func.func @main(%a: {t}, %b: {t}) -> {t} {{\n  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
            f"({t}, {t}) -> {t}\n  %1 = stablehlo.add %0, %a : {t}\n  return %1 : {t}\n}}\n")


def write(name, text):
    with open(os.path.join(TMP, name), "w") as f:
        f.write(text)
    return os.path.join(TMP, name)


small, large = write("small.mlir", matmul(64)), write("large.mlir", matmul(4096))
conf = write("conf.yaml",
             "model: {pattern: A, dim: 32, heads: 2, vocab: 64}\ndata: {train: none.txt, batch: 4, time: 32}\n")

# exec
r = xlane("exec", small, "--input=0=1", "--input=1=0.5", "--json")
out = json.loads(r.stdout)["outputs"][0] if r.returncode == 0 else {}
check("exec_runs_it", out.get("shape") == [64, 64] and set(out["values"]) == {33.0}, r.stdout + r.stderr)
with open(TMP + "/in.bin", "wb") as f:
    f.write(struct.pack("<4096f", *range(4096)))
r = xlane("exec", small, "--input=1=0", f"--input=0=@{TMP}/in.bin", "--outputs=" + TMP + "/outs")
with open(TMP + "/outs/out0.bin", "rb") as f:
    check("exec_reads_and_writes_bytes", struct.unpack("<4096f", f.read()) == tuple(map(float, range(4096))), r.stderr)
a, b, c = (xlane("exec", small, "--seed=" + s).stdout for s in "112")
check("exec_random_inputs_are_those_of_the_seed", a == b != c, a)
r = xlane("exec", small, "--input=7=1")
check("exec_names_the_arguments_there_are", r.returncode == 2 and "arguments 0 to 1" in r.stderr, r.stderr)
r = xlane("exec", small, f"--input=0=@{small}")
check("exec_a_file_of_another_size", r.returncode == 1 and "tensor<64x64xf32> is 16384" in r.stderr, r.stderr)


# rehearse, on the embedded device
def rehearse(what, *args, topology="xlane:4", **env):
    r = xlane("rehearse", "--json", "--topology=" + topology, what, *args, **env)
    return (json.loads(r.stdout) if r.stdout.strip() else {}), r


j, r = rehearse(small)
m = j.get("rehearsal", {}).get("memory", {})
check("fits", r.returncode == 0 and j["rehearsal"]["verdict"] == "fits" and m["arguments"] == 2 * 64 * 64 * 4
      and m["outputs"] == 64 * 64 * 4
      and j["rehearsal"]["devices"] == 4 and abs(j["rehearsal"]["flops"] / (2 * 64**3) - 1) < 0.05, r.stdout + r.stderr)
check("rehearsed_is_never_ran", j["rehearsal"]["standing"] == "rehearsed" and '"ran"' not in r.stdout)
check("first_from_the_compiler", j["from"] == "compiler")
j, r = rehearse(small)
check("then_from_the_catalog", j["from"] == "catalog" and j["rehearsal"]["memory"] == m, r.stdout)
j, r = rehearse(small, "--again")
check("unless_told_otherwise", j["from"] == "compiler")
j, r = rehearse(large, XLANE_CPU_HBM="64MiB")
check("too_large_has_the_compilers_numbers", r.returncode == 1 and j["rehearsal"]["verdict"] == "too-large"
      and j["rehearsal"]["limit"] == 64 << 20
      and j["rehearsal"]["used"] > 192 << 20 and "E1000" in j["rehearsal"]["message"] and j["rehearsal"]["next"], r.stdout)
with open(glob.glob(TMP + "/state/catalog/*.jsonl")[0]) as f:
    lines = [json.loads(x) for x in f]
check("the_catalog_keeps_both", [(x["outcome"], x.get("class")) for x in lines] == [("rehearsed", None),
    ("rehearsed", None), ("failed", "E1000")], lines)
j, r = rehearse(conf)
check("a_config", r.returncode == 0 and "batch 4" in j["program"] and j["rehearsal"]["memory"]["temporary"] > 0,
      r.stdout + r.stderr)
j, r = rehearse(conf, "--search", XLANE_CPU_HBM="16MiB")
best = j.get("largest_batch", 0)
fits = {t["batch"]: t["rehearsal"]["verdict"] for t in j.get("trials", [])}
check(f"search_ends_at_the_largest_fit ({best})", r.returncode == 0 and best > 4 and fits[best] == "fits"
      and min(b for b, v in fits.items() if v == "too-large") <= best + 1 + best // 200, (fits, r.stderr))
j, r = rehearse(conf, "--search", XLANE_CPU_HBM="16MiB")
check("the_second_search_asks_the_catalog", {t["from"] for t in j["trials"]} == {"catalog"}
      and j["largest_batch"] == best, r.stdout)
j, r = rehearse(conf, "mesh=data=4", "data.batch=12", "model.micro=3", "--search", XLANE_CPU_HBM="16MiB")
batches = {t["batch"] for t in j.get("trials", [])}
check(f"a_mesh_and_turns_divide_every_batch_tried ({sorted(batches)})",
      r.returncode == 0 and batches and all(b % 12 == 0 for b in batches), r.stdout + r.stderr)
j, r = rehearse(small, "--search")
check("a_file_has_one_batch", r.returncode == 2 and "conf.yaml" in r.stderr, r.stderr)
j, r = rehearse(small, "--plugin=cpu", topology="nonsense")
check("unknown_topology_names_known_ones", r.returncode == 1 and j["rehearsal"]["verdict"] == "unknown-topology"
      and "v6e:2x2" in j["rehearsal"]["next"], r.stdout)
r = xlane("rehearse", "--topology=v6e:2x2", small, VIRTUAL_ENV="", CONDA_PREFIX="", PYTHONPATH="", PATH="/nowhere",
          HOME=TMP)
check("missing_libtpu_says_how_to_get_it", r.returncode == 1 and ("pip install libtpu" in r.stderr + r.stdout),
      r.stderr)
r = xlane("rehearse", small)
check("no_topology_is_misuse", r.returncode == 2 and "v6e:2x2" in r.stderr, r.stderr)
r = xlane("rehearse", "--topology=xlane:1", "nosuch")
check("no_such_thing", r.returncode == 2 and "nosuch is neither a file nor a run: " in r.stderr, r.stderr)
bad = write("bad.mlir", "func.func @main() -> tensor<f32> { return %x : tensor<f32> }\n")
j, r = rehearse(bad)
check("what_the_compiler_refuses", r.returncode == 1 and j["rehearsal"]["verdict"] == "refused", r.stdout + r.stderr)
aborts = os.path.abspath("build/test/plugins/aborts_loading.so")
r = xlane("rehearse", "--topology=v6e:2x2", "--plugin=" + aborts, "--json", small)
check("a_compiler_that_aborts_is_a_verdict",
      r.returncode == 1 and json.loads(r.stdout)["rehearsal"]["verdict"] == "ended"
      and "last words" in json.loads(r.stdout)["rehearsal"]["message"], r.stdout + r.stderr)

# a recorded JAX run
script = write("train.py", "import jax, jax.numpy as jnp\n@jax.jit\ndef step(w, x):\n    return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)\n"
               "w = jnp.ones((64, 64)) * 0.01\nfor i in range(4):\n    w = step(w, jnp.ones((32, 64)))\nprint(float(w[0, 0]))\n")
r = xlane("run", "--runs=" + TMP + "/runs", "--cache=off", "--name=jax", "--", sys.executable, script,
          JAX_PLATFORMS="xlane",
          PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + os.path.abspath("build/libxlane-cpu.so"))
runs = glob.glob(TMP + "/runs/*-jax")
j, r2 = rehearse(runs[0]) if runs else ({}, r)
check("a_recorded_jax_run", r2.returncode == 0 and "jit_step" in j.get("program", ""), r.stderr + r2.stdout + r2.stderr)
j, r2 = rehearse(runs[0], "--module=nothing") if runs else ({}, r)
check("a_module_it_does_not_have", r2.returncode == 1 and "jit_step" in r2.stderr, r2.stderr)

# the real compiler
native, everything, run = _x86.NATIVE, os.environ.get("XLANE_TEST_ALL") == "1", _x86.emulator()
library = next((p for p in glob.glob("build/dl/libtpu/libtpu.so")
                + glob.glob("build/venv/lib/python3*/site-packages/libtpu/libtpu.so")), None)
if not library:
    print("skip libtpu: it is not here (test/libtpu_real.py fetches it under ./x test all)")
elif not native and not everything:
    print("skip libtpu: it is for x86-64; ./x test all runs it under an emulator")
elif run is None or not native and not os.path.exists("build/x86_64-linux-gnu/xlane"):
    print("skip libtpu: no box64 or qemu-x86_64, or no cross-built xlane")
else:
    library = os.path.abspath(library)
    binary = XLANE if native else os.path.abspath("build/x86_64-linux-gnu/xlane")
    ENV.update(BOX64_LOG="0", TPU_SKIP_MDS_QUERY="1")
    if not native:
        r = xlane("rehearse", "--topology=v6e:2x2", "--plugin=" + library, small)
        check("libtpu_on_another_machine", r.returncode == 1 and "for x86-64, this machine is" in r.stdout and "box64"
              in r.stdout, r.stdout + r.stderr)

    def tpu(what, *args, topology="v6e:2x2"):
        r = xlane("rehearse", "--json", "--topology=" + topology, "--plugin=" + library, what, *args, run=run,
                  binary=binary)
        return (json.loads(r.stdout) if r.stdout.strip() else {}), r

    j, r = tpu(small)
    check("libtpu_fits", r.returncode == 0 and j["rehearsal"]["kind"] == "TPU v6 lite"
          and j["rehearsal"]["memory"]["arguments"] >= 32768
          and j["rehearsal"]["collectives"] == [], r.stdout + r.stderr[-800:])
    huge = write("huge.mlir", matmul(200000))
    j, r = tpu(huge)
    check("libtpu_too_large", r.returncode == 1 and j["rehearsal"]["verdict"] == "too-large"
          and j["rehearsal"]["limit"] > 30 << 30, r.stdout + r.stderr[-800:])
    j, r = tpu(huge)
    check("libtpu_known_bad", j["from"] == "catalog" and j["rehearsal"]["used"] > j["rehearsal"]["limit"], r.stdout)
    j, r = tpu(small, topology="v6e-8")
    check("libtpu_unknown_topology", r.returncode == 1 and j["rehearsal"]["verdict"] == "unknown-topology", r.stdout)
    t = "tensor<256x256xf32>"
    spread = write("spread.mlir", "module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {\n  sdy.mesh @mesh = <[\"x\"=4]>\n"
                   f"  func.func public @main(%a: {t} {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{\"x\"}}]>}}, %b: {t} {{sdy.sharding = #sdy.sharding<@mesh, "
                   f"[{{\"x\"}}, {{}}]>}}) -> {t} {{\n    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}\n    return %0 : {t}\n  }}\n}}\n")
    j, r = tpu(spread)
    ops = {c["op"]: c for c in j.get("rehearsal", {}).get("collectives", [])}
    check(f"libtpu_collectives ({', '.join(ops)})", r.returncode == 0
          and ("all-reduce" in ops or "reduce-scatter" in ops), r.stdout + r.stderr[-800:])
    j, r = tpu(conf)
    check("libtpu_a_training_step", r.returncode == 0 and j["rehearsal"]["memory"]["needs"] > 0
          and j["rehearsal"]["flops"] > 0, r.stdout + r.stderr[-800:])
    if runs:
        j, r = tpu(runs[0])
        check("libtpu_a_recorded_jax_run", r.returncode == 0 and "jit_step" in j["program"], r.stdout + r.stderr[-800:])
    # a mesh of 256: what goes over which axis, as the compiler wrote its groups
    write("words.txt", "some words of a text " * 400)
    mesh = write("mesh.yaml", "mesh: {data: 16, model: 16}\nmodel: {pattern: A*3, dim: 256, heads: 16, vocab: 256}\ndata: {train: words.txt, batch: 32, time: 64}\n")
    j, r = tpu(mesh, topology="v6e:16x16")
    over = {c["over"] for c in j.get("rehearsal", {}).get("collectives", [])}
    check(f"libtpu_256_devices ({'; '.join(sorted(over))})", r.returncode == 0 and j["rehearsal"]["devices"] == 256
          and {"data", "model"} <= over, r.stdout + r.stderr[-800:])
    # the largest batch: what it ends at fits, and what it could not take is near. Nine compiles of 13 s: not always.
    if everything:
        wide = write("wide.yaml", "model: {pattern: D, dim: 64, heads: 2, vocab: 256}\ndata: {train: words.txt, batch: 65536, time: 128}\n")
        j, r = tpu(wide, "--search")
        best, trials = j.get("largest_batch", 0), j.get("trials", [])
        large = [t["batch"] for t in trials if t["rehearsal"]["verdict"] == "too-large"]
        check(f"libtpu_search ({[t['batch'] for t in trials]}: {best})",
              r.returncode == 0 and large and best < min(large) <= best * 1.01 + 1
              and j["rehearsal"]["verdict"] == "fits", r.stdout[-800:] + r.stderr[-800:])
        j, r = tpu(wide, "--search")
        check("libtpu_search_asks_the_catalog", j.get("largest_batch") == best
              and all(t["from"] == "catalog" for t in j["trials"]), r.stdout[-800:])
shutil.rmtree(TMP)
sys.exit(end())
