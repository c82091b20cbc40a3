"""A mesh in our own frontend: the hybrid model on eight simulated devices against one, resumed on another mesh; what is
wrong with a mesh or a sharding, found before anything is compiled; metrics that cannot lie; who holds what. Rows S1,
S3, S4, E1-E3, L3, O3."""
import csv, glob, json, os, re, shutil, struct, subprocess, sys, tempfile
import _check
from _check import end, holds

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE, TOOL = os.path.join(here, "build", "xlane"), os.path.join(here, "build", "test", "tool", "mesh")
base = dict(os.environ, XLANE_PLUGIN=os.path.join(here, "build", "libxlane-cpu.so"), XLANE_CPU_COLLECTIVE_TIMEOUT="120")
for k in ("XLANE_CPU_DEVICES", "XLANE_CPU_HBM", "XLANE_ANNOTATIONS", "XLANE_CACHE"):
    base.pop(k, None)
tmp = tempfile.mkdtemp(prefix="xlane-mesh-")
TOLERANCE = 2e-6                                     # of a loss, relative: f32 sums in another order, twelve steps deep
_check.prefix = "mesh_"
only = _check.only = sys.argv[1:]


def run(*args, devices=8, **env):
    p = subprocess.run(args, capture_output=True, text=True, errors="replace", cwd=tmp,
                       env=dict(base, XLANE_CPU_DEVICES=str(devices), **env), timeout=300)
    return p.returncode, p.stdout, p.stderr


def x(*args, **kw):
    rc, out, err = run(XLANE, *args, **kw)
    if rc:
        raise RuntimeError(err.strip()[-300:])
    return out


CONF = """mesh: {data: 2, model: 4}
cache: none
device: cpu
model: {pattern: "AMER", vocab: 256, dim: 32, heads: 4, state: 8, chunk: 8, experts: 4, top_k: 2}
data: {train: corpus.txt, batch: 8, time: 32}
optimizer: {warmup: 4}
train: {steps: 12, log_every: 4, eval_every: 6, eval_batches: 2, save_every: 6}
"""
# a text that stays: near ties of the experts' router differ by rounding
open(os.path.join(tmp, "corpus.txt"), "wb").write(open(os.path.join(here, "LICENSE"), "rb").read() * 2)
open(os.path.join(tmp, "c.yaml"), "w").write(CONF)


def train(name, *words, devices=8, **env):
    runs = os.path.join(tmp, name)
    shutil.rmtree(runs, ignore_errors=True)
    x("train", "c.yaml", "runs=" + runs, *words, devices=devices, **env)
    return glob.glob(runs + "/*")[0]


def losses(run):
    return {int(r["step"]): (float(r["loss"]), float(r["nll"])) for r in csv.DictReader(open(run + "/metrics.csv"))}


def apart(a, b, most=TOLERANCE):
    a, b = losses(a), losses(b)
    if set(a) != set(b) or not a:
        return "steps %s against %s" % (sorted(a), sorted(b))
    worst = max(abs(u - v) / abs(u) for s in a for u, v in zip(a[s], b[s]))
    print("losses apart by %.1e" % worst, file=sys.stderr)
    return None if worst <= most else "losses are apart by %.2e" % worst


def events(run, kind):
    return [e for e in map(json.loads, open(run + "/events.jsonl")) if e["event"] == kind]


def ckpt(run, step):
    return "%s/checkpoints/step-%08d.safetensors" % (run, step)


def header(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(n))


memo = {}


def kept(name, *words, **kw):
    if name not in memo:
        memo[name] = train(name, *words, **kw)
    return memo[name]


one = lambda: kept("one", "mesh=", devices=1)
two4 = lambda: kept("two4")


def same_losses():
    why = apart(one(), two4())
    if why:
        return why
    a, b = (events(r, "eval") for r in (one(), two4()))
    if [e["participants"] for e in b] != [2, 2] or b[0]["over"] != "data":
        return "participants of the evaluations: %s" % b
    if any(abs(u["nll"] - v["nll"]) > TOLERANCE * u["nll"] for u, v in zip(a, b)):
        return "evaluations differ: %s %s" % (a, b)
    return None if "canary" in [e["event"] for e in map(json.loads,
                                                        open(two4() + "/events.jsonl"))] else "no canary ran"


holds("hybrid_on_2x4_is_one_device", same_losses)
holds("hybrid_scanned", lambda: apart(kept("one_scan", "mesh=", "model.pattern=AMER*2", "train.steps=4",
                                           "optimizer.warmup=1", devices=1), kept("scan", "model.pattern=AMER*2",
                                               "train.steps=4", "optimizer.warmup=1")))
holds("older_annotations", lambda: apart(one(), kept("mhlo", XLANE_ANNOTATIONS="mhlo")))
holds("expert_axis", lambda: apart(one(), kept("expert", "mesh=data=2,expert=4")))
holds("sequence_axis", lambda: apart(one(), kept("seq", "mesh=data=2,seq=2,model=2")))
half = ["model.compute=bf16", "train.steps=3", "optimizer.warmup=1"]
holds("bf16_under_a_mesh", lambda: apart(kept("one_bf16", "mesh=", *half, devices=1), kept("bf16", *half), 5e-3))


def resumed():
    """Step 6 of the run on {2,4}, gone on with on {data: 8} and on one device."""
    for name, mesh, devices in (("data8", "data=8", 8), ("single", "", 1)):
        r = os.path.join(tmp, name)
        shutil.copytree(two4(), r)
        os.remove(ckpt(r, 12))
        x("resume", r, "mesh=" + mesh, devices=devices)
        why = apart(two4(), r)
        if why:
            return "%s: %s" % (name, why)
        j = json.loads(x("sharding", "--json", r))
        if mesh and (j["held"]["mesh"] != mesh or {c["over"] for c in j["collectives"]} != {"data"}):
            return "drawn on %s, not where it ran last" % j["held"]["mesh"]
    return None


holds("resumed_on_another_mesh", resumed)


def same_bits():
    """T3 on a mesh: the same run again, and one that was resumed on the same mesh, end in the same bytes."""
    r = os.path.join(tmp, "bits")
    shutil.copytree(two4(), r)
    os.remove(ckpt(r, 12))
    x("resume", r)
    want = open(ckpt(two4(), 12), "rb").read()
    if open(ckpt(r, 12), "rb").read() != want:
        return "resumed, other bytes"
    return None if open(ckpt(train("twice"), 12), "rb").read() == want else "run twice, other bytes"


holds("same_bits_on_the_same_mesh", same_bits)


def files():
    """A checkpoint is global: the same header and size whatever the mesh; saved again from another mesh without a step, the same bytes."""
    # digests are of values, which differ in last bits
    bare = lambda h: ({k: v for k, v in h.items() if k != "__metadata__"}, sorted(h["__metadata__"]))
    want = bare(header(ckpt(one(), 12)))
    for r in (two4(), kept("eight", "mesh=data=8")):
        h = bare(header(ckpt(r, 12)))
        if h != want or os.path.getsize(ckpt(r, 12)) != os.path.getsize(ckpt(one(), 12)):
            return "the header of %s differs" % r
    for mesh, devices in (("data=8", 8), ("data=4,model=2", 8), ("", 1)):
        r = os.path.join(tmp, "again")
        shutil.rmtree(r, ignore_errors=True)
        shutil.copytree(two4(), r)
        before = open(ckpt(r, 12), "rb").read()
        # all steps are done: it is loaded, spread, gathered and written
        x("resume", r, "mesh=" + mesh, devices=devices)
        if open(ckpt(r, 12), "rb").read() != before:
            return "loaded onto {%s} and saved again, the file is another" % mesh
    return None


holds("checkpoint_files_equal", files)


def eval_and_sample():
    a, b = x("eval", one(), devices=1), x("eval", two4())
    va, vb = (float(re.search(r": ([\d.]+) nats", t).group(1)) for t in (a, b))
    if "2 participants over data" not in b or "participants" in a:
        return b
    if abs(va - vb) > TOLERANCE * 4 * va:
        return "evaluated to %s and %s" % (va, vb)
    words = ["--tokens=16", "--prompt=The ", "--temperature=0"]
    s, t = x("sample", one(), *words, devices=1), x("sample", two4(), *words)
    return None if s == t and len(s) > 4 else "sampled %r and %r" % (s, t)


holds("evaluated_and_sampled_on_the_mesh", eval_and_sample)

# ---- bad input: before anything is compiled, with tensor, axis and line ----------------------------------------------
def refused(name, parts, *words, conf=CONF, verb=("train", "--dry-run"), status=1, **kw):
    def go():
        open(os.path.join(tmp, "bad.yaml"), "w").write(conf)
        rc, out, err = run(XLANE, *verb, "bad.yaml", "runs=" + os.path.join(tmp, "bad"), *words, **kw)
        missing = [p for p in parts if p not in err]
        return None if rc == status and not missing else "rc %d, %r lacks %s" % (rc, err[-300:], missing)
    holds("refused_" + name, go)


line = lambda s: CONF.replace("{data: 2, model: 4}", s)
refused("product", ["bad.yaml:1", "multiplies to 4 devices", "8"], conf=line("{data: 2, model: 2}"), verb=("train",))
refused("product_word", ["mesh=data=16", "multiplies to 16 devices", "XLANE_CPU_DEVICES"], "mesh=data=16",
        verb=("train",), conf=CONF.replace("batch: 8", "batch: 16"))
# what the file says cannot be asked
refused("axis_twice_in_the_mesh", ["bad.yaml:1", "twice"], conf=line("{data: 2, data: 4}"), status=2)
refused("no_number", ["bad.yaml:1", "four"], conf=line("{data: 2, model: four}"))
refused("batch", ["bad.yaml:1", "tokens", '"data"', "size 6", "next size that they can is 8"],
        conf=line("{data: 4, model: 2}"), *["data.batch=6"])
refused("vocabulary", ["bad.yaml:1", "embed", '"model"', "size 250", "next size that they can is 252"],
        "model.vocab=250")
refused("axis_twice", ["bad.yaml:8", "head", '"model"', "used twice"], conf=CONF + 'sharding: {head: "model, model"}\n')
refused("unknown_axis", ["bad.yaml:9", "head", '"modle"', "data=2, model=4"],
        conf=CONF + 'sharding:\n  head: "modle, -"\n')
refused("unknown_tensor", ["bad.yaml:9", '"haed"', "no tensor"], conf=CONF + 'sharding:\n  haed: "model, -"\n')
refused("contradiction", ["bad.yaml:10", "bad.yaml:9", "u0.0A.wq", "-, data, -"],
        conf=CONF + 'sharding:\n  "*.wq": "-, data, -"\n  "u0.0A.w?": "-, -, data"\n')
refused("no_mesh", ["bad.yaml:8", "needs a mesh"], conf=line("{}") + 'sharding: {head: "model, -"}\n')
def full_name():
    held = json.loads(x("sharding", "--json", "c.yaml", "sharding.*.w?=-, data, -",
                        "sharding.u0.0A.wq=-, -, data"))["held"]["tensors"]
    split = {t["name"]: t["split"] for t in held}
    want = {"u0.0A.wq": "whole, whole, data", "u0.0A.wk": "whole, data, whole", "u0.0A.wq.m": "whole, whole, data"}
    return None if all(split[k] == v for k, v in want.items()) else str({k: split[k] for k in want})


holds("full_name_wins", full_name)


def c(name, case, want, rc=1, **kw):
    def go():
        got = run(TOOL, case, **kw)
        missing = [w for w in want if w not in got[1 if rc == 0 else 2]]
        return None if got[0] == rc and not missing else "rc %d, %r lacks %s" % (got[0], got[2][-300:], missing)
    holds(name, go)


c("c_late_in_the_graph", "late in the graph", ["mesh.c:", "too late", '"x"', "was made before, at"])
c("c_late_in_the_process", "late in the process", ["SPMD is switched on too late", "the mesh data=2, model=4 of graph fit", "the first tensor was made", "s ago"])
c("c_contradiction", "contradiction", ["x is to be split as \"-, model\"", "mesh.c:", "\"data, -\""])
c("c_axis_twice", "twice", ["x: axis \"data\" is used twice", "mesh.c:"])
c("c_indivisible", "indivisible", ["x: dimension 1 has size 10", "\"model\"", "is 12"])
c("c_devices", "devices", ["multiplies to 16 devices", "8"])

# ---- evaluation that cannot lie --------------------------------------------------------------------------------------
def c_metrics():
    rc, a, err = run(TOOL, "one", devices=1)
    rc2, b, err2 = run(TOOL, "mesh")
    rc3, l, err3 = run(TOOL, "local")
    if rc or rc2 or rc3:
        return err + err2 + err3
    nums = lambda t: [float(v.split()[-1]) for v in t.splitlines()]
    if any(abs(u - v) > 1e-6 * abs(u) for u, v in zip(nums(a), nums(b))) or len(nums(a)) != len(nums(b)):
        return "%s against %s" % (a, b)
    local = nums(l)[-2:]
    mean = float(re.search(r"^error ([\d.e-]+)", b, re.M).group(1))
    if local[0] == local[1] or abs(sum(local) / 2 - mean) > 1e-6 * mean:
        return "local values %s do not make %s" % (local, mean)
    return None


holds("c_metrics_on_a_mesh", c_metrics)
c("c_early_read", "early read", ["error is local", "before any collective over data", "2 devices"])
c("c_wrong_axis", "wrong axis", ["reduced over model", "split over data", "stay local"])
refused("planted_local", ["metric nll", "1 devices took part", "the mesh has 2"], "train.plant=local", verb=("train",))
refused("planted_group", ["metric nll", "2 devices took part", "the mesh has 4"], "train.plant=group", verb=("train",),
        conf=line("{data: 4, model: 2}"))
refused("planted_canary",
        ["evaluating: canary: device 0",
         "holds 28 as the sum over data, model of known values, 36 is right"], "train.plant=canary", verb=("train",))
refused("planted_read", ["evaluating", "nll is local", "before any collective over data"], "train.plant=read",
        verb=("train",))

# ---- the same under JAX, watched by the guard: lies.py knows nothing of it -------------------------------------------
jax_memo = []


def jax_run(case):
    """One process for all cases; gives the output of this one, and its events."""
    if not jax_memo:
        runs = os.path.join(tmp, "jax")
        rc, out, err = run(XLANE, "run", "--runs", runs, "--cache", "off", "--", sys.executable,
                           os.path.join(here, "test", "guard", "lies.py"),
                           "honest", "no_collective", "wrong_group", "early_read", "early_index", "ten", "mismatch",
                           JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + base["XLANE_PLUGIN"], XLANE_STATE=os.path.join(tmp, "state"))
        folder = [d for d in glob.glob(runs + "/*") if not d.endswith("contracts")][0]
        jax_memo.append((rc, out, err, folder, [json.loads(l) for l in open(folder + "/events.jsonl")]))
    rc, out, err, folder, found = jax_memo[0]
    if rc:
        raise RuntimeError(err[-300:])
    return out.split("== %s\n" % case)[1].split("==")[0], err, folder, [e for e in found if e["event"]
        in ("not-reduced", "local-read", "fault") and case in e.get("module", case)]


def lie(case, event, *parts, row=""):
    def go():
        out, err, folder, found = jax_run(case)
        if [e["event"] for e in found] != [event] or not all(p in found[0]["text"] for p in parts):
            return str(found)
        return None if found[0]["text"] in err and event in x("explain", folder) else "it was not said"
    holds(row + "guard_" + case, go)


def honest():
    out, err, folder, found = jax_run("honest")
    return None if not found and out.startswith("31.5 252.0") else str(found) + out


def ten():
    """S3: for ten arrays the slices and bytes that `xlane sharding RUN` has of the real buffers are those of JAX's addressable_shards."""
    out, err, folder, found = jax_run("ten")
    theirs = json.loads(out)
    ours = [p for p in json.loads(x("sharding", "--json", folder)) if len(p["tensors"]) == 10]
    if len(ours) != 1:
        return "recorded: %s" % ours
    for i, (t, shards) in enumerate(zip(ours[0]["tensors"], theirs)):
        have = sorted([p["device"], [list(v) for v in zip(p["lo"], p["hi"])], p["bytes"]] for p in t["parts"])
        if have != sorted(shards):
            return "array %d: JAX has %s, the drawing %s" % (i, shards, have)
    return None


def explained(folder, said, module, *shape):
    """S5: program shape, SPMD timing and layout together."""
    e = events(folder, "collective")
    if not e:
        return "no event"
    e, lacks = e[0], [p for p in shape if p not in e[0]["shape"]]
    if e["kind"] != "order" or lacks or "first tensor at" not in e["timing"] or "alike on every device" not in e["layout"] or e["module"] != module:
        return "%s lacks %s" % (e, lacks)
    return None if e["text"] in said and "collective" in x("explain", folder) else "it was not said"


def mismatch():
    out, err, folder, found = jax_run("mismatch")
    return ("not caught: " + out) if "caught" not in out else explained(folder, err, "jit_mismatch", "data=2, model=4",
        "all_reduce over data, model", "all_gather over data, model")


def late_device():
    """A device that does not come in time, in our own frontend."""
    runs = os.path.join(tmp, "late")
    rc, out, err = run(XLANE, "train", "c.yaml", "runs=" + runs, XLANE_CPU_COLLECTIVE_TIMEOUT="0.001")
    return explained(glob.glob(runs + "/*")[0], err, "the training step", "8 devices as data=2, model=4",
                     "all_reduce over model") if rc == 1 else "rc %d" % rc


holds("explains_a_collective", late_device)


def on_xla():
    """S1: XLA itself takes what we write, in both forms, and computes the same; the participant counts come from its collectives."""
    rc, out, err = run(sys.executable, os.path.join(here, "test", "guard", "on_xla.py"), XLANE, "c.yaml")
    lines = out.splitlines()
    if rc or len(lines) != 3:
        return "rc %d %s %s" % (rc, out, err[-300:])
    want = [float(v) for v in lines[0].split()[2:4]]
    for l in lines[1:]:
        if any(abs(float(v) - w) > 2e-6 * w for v, w in zip(l.split()[2:4], want)) or not l.endswith("[8.0, 2.0, 2.0]"):
            return out
    return None

holds("guard_honest", honest)
lie("no_collective", "not-reduced", "0: 12.5, 1: 14.5", "no collective of its own")
lie("wrong_group", "not-reduced", "0: 15.5", "4: 47.5", "4 of 8 devices")
lie("early_read", "local-read", "device 0 of 8 only")
lie("early_index", "local-read", "device 0 of 8 only", row="W11_")
holds("guard_ten_arrays_lie_as_jax_says", ten)
holds("guard_explains_a_collective", mismatch)
holds("on_xla_with_both_annotations", on_xla)

# ---- who holds what --------------------------------------------------------------------------------------------------
def drawn():
    real, plan = json.loads(x("sharding", "--json", two4())), json.loads(x("sharding", "--json", "c.yaml"))
    if real["from"] != "the buffers of the run":
        return real["from"]
    mine = {t["name"]: t for t in real["held"]["tensors"]}
    for t in plan["held"]["tensors"]:
        name = re.sub(r"^(.*)\.([mv])$", r"adamw.\2.\1", t["name"])
        name = "adamw.counters" if name == "counters" else name
        if [(p["device"], p["lo"], p["hi"], p["bytes"]) for p in mine[name]["parts"]] != [(p["device"], p["lo"],
            p["hi"], p["bytes"]) for p in t["parts"]]:
            return "%s lies otherwise than planned" % name
    e = mine["u0.0A.wq"]
    if [p["lo"][2] for p in e["parts"]] != [0, 8, 16,
                                            24] * 2 or e["copies"] != 2 or e["parts"][0]["bytes"] != 32 * 8 * 4:
        return "u0.0A.wq: %s" % e
    for p in mine["adamw.m.u0.0A.wq"]["parts"], mine["adamw.v.u0.0A.wq"]["parts"]:
        if p != e["parts"]:
            return "the optimizer's state lies otherwise than its parameter"
    text = x("sharding", two4())
    if "  device 5    0:1 0:32 .#.. 8:16" not in text or not re.search(r"all_reduce +data ",
        text) or "from the buffers" not in text:
        return text[:300]
    over = {(c["op"], c["over"]) for c in real["collectives"]}
    return None if ("stablehlo.all_reduce", "model") in over and ("stablehlo.all_reduce", "data") in over else str(over)


holds("sharding_of_real_buffers", drawn)


def report():
    out = os.path.join(tmp, "r.html")
    x("report", "-o", out, two4())
    html = open(out).read()
    cell = re.search(r"<td>u0.0A.wq</td>.*?</tr></table>", html)
    want = ["0 4", "1 5", "2 6", "3 7"]
    if not cell or re.findall(r">([\d ]+)</td>", cell.group(0)[cell.group(0).index("class=\"held\""):]) != want:
        return "the drawing of u0.0A.wq: %s" % (cell and cell.group(0)[-400:])
    return None if "Who holds what" in html and re.search(r"stablehlo.all_reduce</td><td>data</td>",
                                                          html) else "no collectives"


holds("drawn_in_the_report", report)


def memory():
    devices = json.loads(x("memory", "--json", two4()))["devices"]
    plan = json.loads(x("sharding", "--json", "c.yaml"))
    peaks = [d["peak_bytes_in_use"] for d in devices]
    if len(peaks) != 8 or any(p <= 0 for p in peaks):
        return "peaks %s" % peaks
    need = plan["compiled_bytes"]
    return None if all(0.9 * need <= p <= 1.1 * need for p
                       in peaks) else "compiled for %d, the devices peaked at %s" % (need, peaks)


holds("memory_of_every_device", memory)


def overfull():
    """A device of 16 MiB: the model fits split, and not where one sharding keeps its largest tensors whole."""
    big = ["model.pattern=A", "model.dim=256", "model.vocab=2048", "model.ffn=1024", "data.time=16", "data.batch=2"]
    rc, out, err = run(XLANE, "sharding", "--short", "c.yaml", *big, XLANE_CPU_HBM="16MiB")
    if rc or "\nfits\n" not in out:
        return "split it should fit: rc %d %s %s" % (rc, out[-300:], err[-200:])
    wrong = [*big, "sharding.embed=-, -", "sharding.head=-, -"]
    rc, out, err = run(XLANE, "sharding", "--short", "c.yaml", *wrong, XLANE_CPU_HBM="16MiB")
    if rc != 1 or "does not fit" not in out or "held in copies: embed [whole, whole]" not in out:
        return "rc %d %s %s" % (rc, out[-400:], err[-200:])
    rc, out, err = run(XLANE, "train", "c.yaml", "runs=" + os.path.join(tmp, "full"), "train.steps=2",
                       "optimizer.warmup=1", *wrong, XLANE_CPU_HBM="16MiB")
    if rc == 0 or "ran out of memory" not in err.lower() and "RESOURCE_EXHAUSTED" not in err and "E1000" not in err:
        return "the run it warns of did not fail: rc %d %s" % (rc, err[-200:])
    rc, out, err = run(XLANE, "train", "c.yaml", "runs=" + os.path.join(tmp, "fits"), "train.steps=2",
                       "optimizer.warmup=1", "train.eval_every=0", *big, XLANE_CPU_HBM="16MiB")
    return None if rc == 0 else "the run that fits failed: %s" % err[-300:]


holds("a_16_MiB_device", overfull)


def overfull_program():
    """The same for a program of somebody else's: 12 MiB twice; split both ways it fits a device of 18 MiB, and one of 12 MiB not with one of them whole."""
    code = """module { sdy.mesh @mesh = <["data"=8]>
func.func public @main(%%a: tensor<2048x1536xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %%b: tensor<2048x1536xf32> {sdy.sharding = #sdy.sharding<@mesh, [%s, {}]>})
 -> (tensor<2048x1536xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}) {
  %%0 = stablehlo.add %%a, %%b : tensor<2048x1536xf32>
  return %%0 : tensor<2048x1536xf32>
} }"""
    for spec, want in (('{"data"}', 0), ("{}", 0)), (('{"data"}', 0), ("{}", 1)):
        limit = "18MiB" if want[1] == 0 else "12MiB"
        for s, rc in (spec, want):
            open(os.path.join(tmp, "p.mlir"), "w").write(code % s)
            got, out, err = run(XLANE, "sharding", "--short", "p.mlir", XLANE_CPU_HBM=limit)
            if got != rc or ("does not fit" in out) != bool(rc):
                return "%s in %s: rc %d %s %s" % (s, limit, got, out[-300:], err[-200:])
    return None


holds("a_small_device_and_a_program", overfull_program)


def dry():
    text, j = x("train", "--dry-run", "c.yaml"), json.loads(x("train", "--dry-run", "--json", "c.yaml"))
    return None if "data=2, model=4 on 8 devices" in text and j["mesh"]["devices"] == 8 and 0 < j["mesh"]["argument_bytes"] < j["state_bytes"] / 2 else text + str(j.get("mesh"))


holds("dry_run", dry)

shutil.rmtree(tmp, ignore_errors=True)
sys.exit(end())
