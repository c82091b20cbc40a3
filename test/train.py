"""Training on the embedded device, as a user does it: the examples, one compile per bucket and kind, a constant that
should be none, kill and resume, learning, checkpoints that Python reads, and what goes wrong. (Rows O1-O4, T1-T3, E1,
G4, M1)"""
import atexit, json, os, re, shutil, signal, struct, subprocess, sys, tempfile, time
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")
tmp = tempfile.mkdtemp(prefix="xlane-train-")
atexit.register(shutil.rmtree, tmp, ignore_errors=True)
env = dict(os.environ, XLANE_CPU_CHECK="1", XLANE_PLUGIN=os.path.join(ROOT, "build", "libxlane-cpu.so"),
           LD_LIBRARY_PATH=os.path.join(ROOT, "build"), XLANE_CACHE="none")
TINY = ["model.dim=32", "model.heads=2", "data.time=32", "data.batch=4", "optimizer.warmup=5", "cache=none"]


def xlane(*args, code=0, **kw):
    p = subprocess.run([XLANE, *args], capture_output=True, text=True, env=env, cwd=tmp, errors="replace", **kw)
    if code is not None and p.returncode != code:
        raise AssertionError(f"xlane {' '.join(args)}: exit {p.returncode}: {p.stderr.strip()[-600:]}")
    return p


def corpus(name, least=200000):
    path = os.path.join(tmp, name)
    with open(path, "wb") as f:
        for d, _, names in sorted(os.walk(os.path.join(ROOT, "src"))):
            for n in sorted(names):
                if n.endswith((".c", ".h")) and f.tell() < least:
                    f.write(open(os.path.join(d, n), "rb").read())
    return path


def run_of(p):
    return json.loads(p.stdout)["run"]


def events(run, kind):
    out = [json.loads(line) for line in open(os.path.join(tmp, run, "events.jsonl"))]
    return [e for e in out if e["event"] == kind]


def losses(run):
    rows = [line.split(",") for line in open(os.path.join(tmp, run, "metrics.csv")).read().split()[1:]]
    return {int(r[0]): r[1:5] for r in rows}


def examples():
    for name in ("line", "digits", "hybrid"):
        src = os.path.join(ROOT, "examples", name + ".c")
        assert len(open(src).read().split("\n")) <= 81, f"{name}.c is longer than 80 lines"
        exe = os.path.join(tmp, name)
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", src, "-I", ROOT + "/include", "-L",
                        ROOT + "/build", "-lxlane", "-o", exe], check=True)
        saved = os.path.join(tmp, "hybrid.safetensors")
        p = subprocess.run([exe] + ([src, "24", saved] if name == "hybrid" else []), capture_output=True, text=True,
                           env=env, cwd=tmp)
        assert p.returncode == 0, f"{name}: {p.stdout} {p.stderr}"
    assert os.path.getsize(saved) > 1 << 20, saved
    # the device is found beside the library, wherever the program lies
    alone = {k: v for k, v in env.items() if k not in ("XLANE_CPU_PLUGIN", "XLANE_PLUGIN")}
    alone["LD_LIBRARY_PATH"] = ROOT + "/build"
    p = subprocess.run([os.path.join(tmp, "line")], capture_output=True, text=True, env=alone, cwd="/")
    assert p.returncode == 0, p.stderr
    cc = os.path.join(tmp, "x.cc")
    open(cc, "w").write('#include <xlane/xlane.h>\nint main() { xl_graph *g = xl_graph_new("x"); xl_loss(g, xl_sum(g, xl_input(g, "a", "f32[2]"), 0)); xl_graph_free(g); }\n')
    if subprocess.run(["sh", "-c", "command -v c++"], capture_output=True).returncode == 0:
        subprocess.run(["c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", cc, "-I", ROOT + "/include", "-L",
                        ROOT + "/build", "-lxlane", "-o", cc + ".out"], check=True)


def first_step():
    """The phases up to the end of the first step are in the events and add up; a program from the cache is called so."""
    words, seen = [f"data.train={corpus('first.txt', 20000)}", "model.pattern=A*2", *TINY, "train.steps=6"], []
    for _ in range(2):
        p = xlane("train", "--json", "--quiet", *words, f"cache={tmp}/first-step")
        (e,) = events(run_of(p), "first_step")
        assert abs(sum(e["phases"].values()) - e["seconds"]) < 1e-6 * e["seconds"] + 1e-9, e
        assert min(e["phases"].values()) >= 0 and e["step"] == 1, e
        seen.append(set(e["phases"]))
    assert seen[0] - seen[1] == {"program_compiled"} and seen[1] - seen[0] == {"program_loaded"}, seen


def one_compile():
    lines = os.path.join(tmp, "lines.txt")
    rng = np.random.default_rng(1)
    with open(lines, "w") as f:
        for _ in range(3000):
            f.write("ab" * int(rng.integers(1, 30)) + "c\n")
    p = xlane("train", "--json", "--quiet", f"data.train={lines}", "data.format=lines", "data.buckets=[16,32,64]",
              "model.pattern=A", *TINY, "train.steps=1000",
              "train.eval_every=100", "train.eval_batches=30", "train.save_every=0", "optimizer.schedule=cosine", "optimizer.clip=0.5")
    made = [e["module"] for e in events(run_of(p), "compile")]
    assert sorted(made) == sorted(f"{k}_b4t{t}" for k in ("train", "eval") for t in (16, 32, 64)), made
    assert len(events(run_of(p), "eval")) == 10
    assert {r[7] for r in (line.split(",") for line in open(os.path.join(tmp, run_of(p),
        "metrics.csv")).read().split()[1:])} == {"0", "1", "2"}
    first = xlane("train", "--json", "--quiet", f"data.train={lines}", "model.pattern=A", *TINY, "train.steps=6",
                  "train.eval_every=0")
    assert len(events(run_of(first), "compile")) == 1


def depth():
    """Twelve times the layers: the program is as long, and its compile takes far less than twelve times as much."""
    p = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "depth.py"), "AMER", "--most=2"],
                       capture_output=True, text=True,
                       env=dict(env, XLANE_BENCH_TIMES="4", XLANE_CPU_CHECK="0"))   # what is timed is planning
    assert p.returncode == 0 and len(set(re.findall(r"(\d+) lines", p.stdout))) == 1, p.stdout + p.stderr


def baked_constant():
    text = corpus("baked.txt", 20000)
    p = xlane("train", "--json", "--quiet", f"data.train={text}", "model.pattern=A", *TINY, "train.steps=12",
              "train.warmup_steps=3", "optimizer.bake_lr=true",
              "train.eval_every=0", "train.policy=stop", code=1)
    assert "would compile again after the warm-up window: constant" in p.stderr, p.stderr
    run = os.path.join("runs", sorted(os.listdir(os.path.join(tmp, "runs")))[-1])
    steady = [e for e in events(run, "compile") if e["phase"] == "steady"]
    assert steady and steady[0]["reason"] == "constant" and steady[0]["detail"][0]["what"] == "constant", steady


def kill_and_resume():
    text = corpus("resume.txt")
    conf = [f"data.train={text}", "model.pattern=AR", *TINY, "train.steps=300", "train.save_every=50",
            "train.log_every=1", "train.eval_every=0"]
    whole = run_of(xlane("train", "--json", "--quiet", *conf, "runs=whole"))
    child = subprocess.Popen([XLANE, "train", "--quiet", *conf, "runs=cut"], env=env, cwd=tmp,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cut = None
    for _ in range(6000):
        time.sleep(0.005)
        names = os.listdir(os.path.join(tmp, "cut")) if os.path.isdir(os.path.join(tmp, "cut")) else []
        if names and os.path.exists(os.path.join(tmp, "cut", names[0], "metrics.csv")):
            cut = os.path.join("cut", names[0])
            if len(losses(cut)) >= 137:
                break
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = len(losses(cut))
    assert 100 <= before < 300, before
    xlane("resume", "--quiet", cut)
    assert losses(whole) == losses(cut), "the resumed losses differ"
    assert [e["event"] for e in events(cut, "resume")] == ["resume"]
    # a signal: the step is finished, saved, and the way on is said
    child = subprocess.Popen([XLANE, "train", *conf, "runs=soft", "train.steps=100000"], env=env, cwd=tmp,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 4 and "go on with: xlane resume soft/" in err, err
    return whole


def killed_often():
    """Killed at any moment and resumed, again and again: every row of metrics.csv and every byte of the last checkpoint are those of a run that was left alone."""
    text, rng = corpus("killed.txt", 30000), np.random.default_rng()
    for folder, extra in ("killed1", ["model.pattern=RM", "data.format=lines", "data.buckets=[24,48]",
                                      "model.compute=bf16"]), ("killed2",
                                          ["model.pattern=AE", "data.format=lines", "data.pack=true", "model.micro=2"]):
        conf = [f"data.train={text}", *TINY, *extra, "train.steps=90", "train.save_every=7", "train.log_every=40",
                "train.eval_every=13"]
        whole = run_of(xlane("train", "--json", "--quiet", *conf))
        words = ["train", "--json", "--quiet", *conf, "runs=" + folder]
        for _ in range(60):
            child = subprocess.Popen([XLANE, *words], env=env, cwd=tmp, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, text=True)
            try:
                out = child.communicate(timeout=0.03 + 0.3 * rng.random() if _ < 12 else 120)[0]
            except subprocess.TimeoutExpired:
                child.send_signal([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM][rng.integers(3)])
                out = child.communicate()[0]
            made = sorted(os.listdir(os.path.join(tmp, folder))) if os.path.isdir(os.path.join(tmp, folder)) else []
            made = [os.path.join(folder, d) for d in made if os.path.exists(os.path.join(tmp, folder, d,
                "config.yaml"))]
            if child.returncode == 0 and out and json.loads(out)["step"] == 90:
                break
            words = ["resume", "--json", "--quiet", made[-1]] if made else words
        assert losses(made[-1]) == losses(whole) and len(losses(whole)) == 90, (len(losses(made[-1])), extra)
        last = [open(os.path.join(tmp, r, "checkpoints", "step-00000090.safetensors"), "rb").read() for r
                in (made[-1], whole)]
        assert last[0] == last[1], extra


def bigram_nats(train, valid):
    c = np.full((256, 256), 0.01)
    a = np.frombuffer(train, np.uint8)
    np.add.at(c, (a[:-1], a[1:]), 1)
    logp = np.log(c / c.sum(1, keepdims=True))
    v = np.frombuffer(valid, np.uint8)
    return -logp[v[:-1], v[1:]].mean()


def learns():
    text = corpus("learn.txt", 400000)
    data = open(text, "rb").read()
    cut = len(data) - len(data) // 10
    bar = bigram_nats(data[:cut], data[cut:])
    got = {}
    # each kind of block alone only under ./x test all
    alone = (("A*2", 500), ("M*2", 400), ("E*2", 500), ("R*2", 400)) if os.environ.get("XLANE_TEST_ALL") == "1" else ()
    for pattern, steps in (("AMER*2", 400), *alone):
        p = xlane("train", "--json", "--quiet", f"data.train={text}", f"model.pattern={pattern}", "model.dim=64",
                  "data.time=32", "data.batch=8", "optimizer.lr=0.006",
                  f"train.steps={steps}", "optimizer.warmup=20", f"train.eval_every={steps}", "train.eval_batches=40", "cache=none", "train.save_every=0")
        got[pattern] = json.loads(p.stdout)["validation"]
        assert got[pattern] < bar, f"{pattern}: {got[pattern]:.3f} nats, a bigram model has {bar:.3f}"
        if pattern == "AMER*2":
            out = xlane("sample", run_of(p), "--prompt=static ", "--tokens=40").stdout
            assert out.startswith("static ") and len(out) > 30, out
            ev = json.loads(xlane("eval", "--json", run_of(p)).stdout)
            assert abs(ev["nll"] - got[pattern]) < 0.2 and ev["reduction"] == "mean" and ev["tokens"] > 0
    print("#", {k: round(v, 3) for k, v in got.items()}, "bigram", round(bar, 3))


def checkpoints_are_readable():
    text = corpus("ckpt.txt", 20000)
    run = run_of(xlane("train", "--json", "--quiet", f"data.train={text}", "model.pattern=A", *TINY, "train.steps=8",
                       "train.save_every=2", "train.keep=2", "train.eval_every=0"))
    folder = os.path.join(tmp, run, "checkpoints")
    assert sorted(os.listdir(folder)) == [f"step-0000000{n}.{e}" for n in (6, 8) for e in ("ok", "safetensors")]
    try:
        from safetensors.numpy import load_file
        t = load_file(os.path.join(folder, "step-00000008.safetensors"))
    except ImportError:
        raw = open(os.path.join(folder, "step-00000008.safetensors"), "rb").read()
        n = struct.unpack("<Q", raw[:8])[0]
        head = json.loads(raw[8:8 + n])
        t = {k: np.frombuffer(raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]],
                              {"F32": "f4", "I32": "i4"}[v["dtype"]]).reshape(v["shape"])
             for k, v in head.items() if k != "__metadata__"}
    assert t["embed"].shape == (256, 32) and t["adamw.counters"].tolist() == [8,
        0] and np.isfinite(t["head"]).all() and np.abs(t["adamw.v.head"]).max() > 0
    # TensorBoard's records: lengths and checksums hold
    rec = [n for n in os.listdir(os.path.join(tmp, run)) if "tfevents" in n]
    raw = open(os.path.join(tmp, run, rec[0]), "rb").read()
    count = 0
    while raw:
        n = struct.unpack("<Q", raw[:8])[0]
        raw, count = raw[16 + n:], count + 1
    assert count > 8


def bad_input():
    text = corpus("bad.txt", 20000)
    empty, big = os.path.join(tmp, "empty.txt"), os.path.join(tmp, "big.bin")
    open(empty, "w").close()
    np.array([1, 2, 60000] * 2000, np.uint16).tofile(big)
    says = lambda want, *args, code=2: (lambda p: None if want in p.stderr
                                        else (_ for _ in ()).throw(AssertionError(f"{args}: {p.stderr}")))(xlane(*args,
                                            code=code))
    says("is empty", "train", f"data.train={empty}", *TINY, code=1)
    odd, few = os.path.join(tmp, "odd.bin"), os.path.join(tmp, "few.bin")
    open(odd, "wb").write(bytes(1001))
    open(few, "wb").write(bytes(300))
    says("not whole 16-bit tokens", "train", f"data.train={odd}", *TINY, code=1)
    says("train.eval_every=0", "train", f"data.train={few}", *TINY, code=1)
    says("less than 2^31 tokens", "train", f"data.train={text}", *TINY, "data.batch=100000000000")
    for key, value in dict([w.split("=") for w in ("model.vocab=1 model.dim=-4 model.heads=0 model.kv_heads=-1 model.ffn=-1 model.state=0 model.chunk=0 model.experts=0 model.top_k=0 model.capacity=0 "
                                                   "model.balance=-1 model.rope_base=0 model.micro=-1 data.batch=0 data.time=1 data.end=-2 optimizer.lr=nan optimizer.min_lr=inf optimizer.warmup=-3 "
                                                   "optimizer.beta1=-1 optimizer.eps=0 optimizer.decay=-1 optimizer.clip=-1 train.steps=0 train.log_every=0 train.eval_every=-1 train.eval_batches=0 "
                                                   "train.save_every=-1 train.keep=0 train.warmup_steps=-1").split()]).items():
        says(f"{key} is {value}: it takes a number", "train", f"data.train={text}", *TINY, f"{key}={value}")
    # the way out is said
    says("optimizer.warmup=", "train", f"data.train={text}", *TINY, "train.steps=3", "optimizer.warmup=20")
    says("beyond the vocabulary of 256", "train", f"data.train={text}", *TINY, "data.end=300")
    says("is above optimizer.lr", "train", f"data.train={text}", *TINY, "optimizer.min_lr=1")
    says("'model' is a group of keys", "train", f"data.train={text}", "model=5")
    says("beyond the vocabulary of 256", "train", f"data.train={big}", "model.pattern=A", *TINY, code=1)
    says("did you mean 'model.pattern'", "train", f"data.train={text}", "model.patern=A")
    says("did you mean 'optimizer.lr'", "train", f"data.train={text}", "optimizer.lrr=1")
    says("no block is called 'Q'", "train", f"data.train={text}", "model.pattern=AQ")
    says("even number of channels", "train", f"data.train={text}", "model.dim=33")
    conf = os.path.join(tmp, "typo.yaml")
    open(conf, "w").write("model:\n  dim: 32\n  haeds: 2\n")
    says("typo.yaml:3: unknown key", "train", conf, f"data.train={text}")
    run = run_of(xlane("train", "--json", "--quiet", f"data.train={text}", "model.pattern=A", *TINY, "train.steps=6",
                       "train.save_every=3", "train.eval_every=0"))
    says('tensor "embed"', "resume", run, "model.dim=16", "train.steps=9", code=1)
    for other in ("D", "AA", "M"):                                          # it has more, fewer, other tensors
        says("another model", "eval", run, "model.pattern=" + other, code=1)
    done = xlane("resume", "--quiet", run).stdout
    assert "all its steps were done before" in done and "train.steps=12" in done and "nan" not in done, done
    quoted = run_of(xlane("train", "--json", "--quiet", f"data.train={os.path.basename(text)}", 'name=a"b\\c: #',
                          "model.pattern=A", *TINY, "train.steps=6", "train.eval_every=0"))
    p = subprocess.run([XLANE, "resume", "--json", "--quiet", os.path.join(tmp, quoted), "train.steps=8"], env=env,
                       cwd="/", capture_output=True, text=True)
    assert p.returncode == 0 and json.loads(p.stdout)["step"] == 8, p.stderr  # from any folder, whatever it is called
    folder = os.path.join(tmp, run, "checkpoints")
    newest = os.path.join(folder, sorted(os.listdir(folder))[-1])
    raw = open(newest, "rb").read()
    for junk in (raw[:100], struct.pack("<Q", 1 << 60) + raw[8:], struct.pack("<Q", 20) + b'{"a":{"dtype":"F32"}}', b"",
                 raw[:-10]):
        open(newest, "wb").write(junk)
        # the one before is whole: it goes on from there
        p = xlane("resume", "--quiet", run, "train.steps=6", code=None)
        assert p.returncode == 0 and "passed over" in p.stderr, (len(junk), p.stderr)
    # two runs in one folder
    a = subprocess.Popen([XLANE, "resume", "--quiet", run, "train.steps=100000"], env=env, cwd=tmp,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    p = xlane("resume", run, code=1)
    a.kill()
    a.wait()
    assert "another process trains in" in p.stderr, p.stderr
    # a file that shrinks under the run
    shrink = corpus("shrink.txt", 100000)
    a = subprocess.Popen([XLANE, "train", "--quiet", f"data.train={shrink}", "model.pattern=A", *TINY, "train.steps=100000", "train.eval_every=0"], env=env, cwd=tmp, stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    os.truncate(shrink, 100)
    _, err = a.communicate(timeout=600)
    assert a.returncode == 1 and "has become shorter" in err and "is saved" in err, err
    corpus("shrink.txt", 100000)
    saved = err.split("xlane resume ")[1].split()[0]
    at = max(losses(saved)) // 10 * 10 + 20
    assert json.loads(xlane("resume", "--json", "--quiet", saved, f"train.steps={at}").stdout)["step"] == at


def not_finite():
    exe = os.path.join(tmp, "nan")
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", os.path.join(ROOT, "test", "tool", "nan.c"), "-I",
                    ROOT + "/include", "-L", ROOT + "/build", "-lxlane", "-lm",
                    "-o", exe], check=True)
    p = subprocess.run([exe], capture_output=True, text=True, env=env)
    assert p.returncode == 0, p.stdout + p.stderr


def cache_and_bf16():
    text = corpus("cache.txt", 20000)
    conf = [f"data.train={text}", "model.pattern=AMER", *TINY, "train.steps=8", "train.eval_every=0",
            "cache=" + os.path.join(tmp, "cache"), "model.compute=bf16"]
    runs = [json.loads(xlane("train", "--json", "--quiet", *conf).stdout) for _ in range(2)]
    assert [events(r["run"], "compile")[0]["result"] for r in runs] == ["compiled",
        "cached"] and runs[0]["loss"] == runs[1]["loss"], runs
    e = events(runs[0]["run"], "compile")[0]
    assert e["predicted_bytes"] > 0 and e["compiled_bytes"] > 0 and events(runs[0]["run"],
        "stop")[0]["observed_bytes"] > 0


def full_disk():
    import resource
    text = corpus("full.txt", 20000)

    def small():                                            # files end at 200 kB: a checkpoint is larger
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))
    p = xlane("train", "--quiet", f"data.train={text}", "model.pattern=A", *TINY, "train.steps=20",
              "train.save_every=5", "train.eval_every=0", "runs=full", code=1, preexec_fn=small)
    run = os.path.join("full", os.listdir(os.path.join(tmp, "full"))[0])
    assert "not written" in p.stderr and "the last checkpoint" in p.stderr and len(losses(run)) == 20, p.stderr
    assert len(events(run, "checkpoint_failed")) >= 2 and os.listdir(os.path.join(tmp, run, "checkpoints")) == []


def sample_cached():
    """One token at a time from cached keys, values and states draws what the whole window draws, also after the window has slid."""
    text = corpus("sample.txt", 30000)
    for extra in (["model.pattern=AMER*2", "model.kv_heads=1"], ["model.pattern=A(MR)*2ED", "model.scan=false"],
                  ["model.pattern=AA", "model.tie=true", "data.buckets=[16,48]", "data.format=lines"]):
        run = run_of(xlane("train", "--json", "--quiet", f"data.train={text}", *TINY, *extra, "train.steps=12",
                           "train.eval_every=0"))
        for heat in ("0", "1"):
            a, b = (xlane("sample", run, "--prompt=static int ", "--tokens=90", f"--temperature={heat}", "--top-p=0.9",
                          *how).stdout for how in ([], ["--recompute"]))
            assert a == b and len(a) >= 90, f"{extra} at temperature {heat}:\n{a!r}\n{b!r}"
        assert a != xlane("sample", run, "--prompt=static int ", "--tokens=90", "--temperature=1", "--seed=2").stdout
    wide = os.path.join(tmp, "wide.bin")
    np.tile(np.arange(300, 700, 7, dtype=np.uint16), 60).tofile(wide)
    run = run_of(xlane("train", "--json", "--quiet", f"data.train={wide}", *TINY, "model.pattern=AR",
                       "model.vocab=1000", "train.steps=250", "train.eval_every=0", "data.time=40"))
    got = json.loads(xlane("sample", run, "--json", "--ids=300,307,314", "--tokens=30", "--temperature=0").stdout)
    # it has learned to count by sevens
    assert got["tokens"] == list(range(321, 321 + 7 * 30, 7)) and "text" not in got, got
    assert "--ids" in xlane("sample", run, code=1).stderr and "beyond the vocabulary" in xlane("sample", run,
        "--ids=1000", code=1).stderr


def dry_run():
    text = corpus("dry.txt", 20000)
    env_no = dict(env, XLANE_PLUGIN="/nowhere.so")
    p = subprocess.run([XLANE, "train", "--dry-run", "--json", f"data.train={text}", "data.buckets=[32,64]",
                        "model.pattern=AMER*2", "model.dim=32"],
                       capture_output=True, text=True, env=env_no, cwd=tmp)
    plan = json.loads(p.stdout)
    assert plan["parameters"] > 0 and len(plan["buckets"]) == 2 and all(b["flops"] > 0
        and b["predicted_bytes"] > plan["state_bytes"] for b in plan["buckets"])
    ops = [json.loads(xlane("train", "--dry-run", "--json", f"data.train={text}", f"model.pattern=A*{n}",
                            *TINY).stdout)["buckets"][0]["ops"] for n in (6, 96)]
    # T2: the program does not grow with its depth
    assert ops[0] == ops[1], ops


def main():
    bad = 0
    for name, fn in dict(examples=examples, first_step=first_step, one_compile=one_compile, depth=depth,
                         baked_constant=baked_constant,
                         kill_and_resume=kill_and_resume, killed_often=killed_often,
                         checkpoints=checkpoints_are_readable, bad_input=bad_input, not_finite=not_finite, cache_and_bf16=cache_and_bf16,
                         full_disk=full_disk, sample_cached=sample_cached, dry_run=dry_run, learns=learns).items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        try:
            fn()
            print(f"ok train_{name}", flush=True)
        except Exception as e:
            print(f"FAIL train_{name}: {type(e).__name__}: {str(e)[:1500]}", flush=True)
            bad += 1
    return bad


sys.exit(1 if main() else 0)
