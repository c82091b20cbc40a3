"""Without a home folder, or with one that cannot be written, programs run all the same: what is not kept is said once,
with the option that names a folder, and nothing is left in the current folder."""
import atexit, json, os, shutil, subprocess, sys, tempfile
from _check import checked, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")
TMP = tempfile.mkdtemp(prefix="xlane-home-")
atexit.register(shutil.rmtree, TMP, ignore_errors=True)
BARE = {k: v for k, v in os.environ.items() if not k.startswith(("XLANE_", "XDG_", "JAX_", "PJRT_")) and k != "HOME"}
BARE.update(PATH=os.path.dirname(XLANE) + ":" + os.environ["PATH"], XLANE_CPU_CHECK="1")
with open(TMP + "/file", "w") as f:
    f.write("a file where a folder is wanted\n")
with open(TMP + "/book.txt", "w") as f:
    f.write("the quick brown fox jumps over the lazy dog\n" * 400)
HOMES = {"none": {}, "unwritable": {"HOME": TMP + "/file/home"}}
SMALL = ["data.train=book.txt", "model.pattern=A", "model.dim=32", "model.heads=2", "data.time=16", "data.batch=2",
         "optimizer.warmup=2", "train.eval_every=0", "train.steps=6", "device=cpu"]


def xlane(home, *args, code=0, **env):
    p = subprocess.run([XLANE, *args], capture_output=True, text=True, env=dict(BARE, **HOMES[home], **env), cwd=TMP,
                       timeout=600)
    assert p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
    assert {"runs", "report.html", "named", "book.txt", "file"} >= set(os.listdir(TMP)), os.listdir(TMP)
    return p


for home in HOMES:
    why = "HOME is not set" if home == "none" else "/file is a file"

    @checked(f"{home}_run_and_train_go_without_a_cache")
    def _():
        p = xlane(home, "run", "--name=" + home, "--", "xlane", "train", "--quiet", *SMALL)
        assert p.stderr.count("no cache of executables") == 1 and why in p.stderr and "--cache=DIR" in p.stderr, p.stderr
        p = xlane(home, "run", "--name=named", "--cache=named", "--", "xlane", "train", "--quiet", *SMALL,
                  "cache=" + TMP + "/named")
        assert "no cache" not in p.stderr and os.path.exists(TMP + "/named/cache.key"), p.stderr
        p = xlane(home, "train", "--json", "--quiet", *SMALL, "cache=" + TMP + "/named")
        run = json.loads(p.stdout)["run"]
        seen = [json.loads(line) for line in open(f"{TMP}/{run}/events.jsonl")]
        assert [e["result"] for e in seen if e["event"] == "compile"] == ["cached"], seen

    @checked(f"{home}_a_cache_that_was_named_must_be_there")
    def _():
        p = xlane(home, "run", "--cache=file/sub", "--", "true", code=1)
        assert "file is a file" in p.stderr and "--cache=off goes without" in p.stderr, p.stderr
        p = xlane(home, "run", "--cache=off", "--", "true")
        assert "no cache of executables" not in p.stderr, p.stderr

    @checked(f"{home}_what_is_kept_nowhere_is_said")
    def _():
        p = xlane(home, "calibrate", *SMALL)
        assert p.stderr.count("not kept in the catalog") == 1 and why in p.stderr and "XLANE_CATALOG=DIR" in p.stderr
        p = xlane(home, "calibrate", *SMALL, XLANE_CATALOG=TMP + "/named")
        assert "not kept" not in p.stderr, p.stderr
        p = xlane(home, "catalog")
        assert ("there is no catalog: HOME is not set" in p.stdout) == (home == "none"), p.stdout
        assert xlane(home, "catalog", "--json").stdout.strip() == "[]"
        for verb in "ls", "prune":
            p = xlane(home, "cache", verb, code=1)
            assert ("HOME is not set" if home == "none" else "there is no cache folder") in p.stderr, p.stderr
            assert "--cache=DIR" in p.stderr, p.stderr

sys.exit(end())
