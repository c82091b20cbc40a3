"""Nothing lost, nobody let in: descriptors, checkpoints, full disks, signals, other people's folders, privacy. (Rows
C5, Q1, Q3, T3) What a second user would have planted is made by root with that user as its owner; elsewhere those
checks are skipped."""
import atexit, glob, hashlib, json, os, random, re, resource, shutil, signal, stat, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
XLANE, PLUGIN, DRIVER, FAULT = (os.path.join(BUILD, n) for n in ("xlane", "libxlane-cpu.so", "test/tool/guard",
    "test/plugins/fault.so"))
ALL = os.environ.get("XLANE_TEST_ALL") == "1"
TMP = tempfile.mkdtemp(prefix="xlane-trust-")
os.chmod(TMP, 0o755)
atexit.register(shutil.rmtree, TMP, ignore_errors=True)
ENV = dict(os.environ, XLANE_PLUGIN=PLUGIN, LD_LIBRARY_PATH=BUILD, XLANE_STATE=os.path.join(TMP, "state"),
           XLANE_CACHE=os.path.join(TMP, "cache"))
TINY = ["model.pattern=A", "model.dim=16", "model.heads=2", "data.time=16", "data.batch=2", "optimizer.warmup=2",
        "cache=none", "train.eval_every=0"]
OTHER = 54321                                                   # a user that is nobody here
checks, failed = [], 0


def check(f):
    checks.append(f)
    return f


class Skip(Exception):
    pass


def xlane(*args, code=0, env=None, **kw):
    p = subprocess.run([XLANE, *args], capture_output=True, text=True, env=dict(ENV, **(env or {})),
                       cwd=kw.pop("cwd", TMP), errors="replace", **kw)
    assert code is None or p.returncode == code, f"xlane {' '.join(args)}: exit {p.returncode}, not {code}: {p.stdout[-500:]} {p.stderr[-900:]}"
    return p


def text(name="text.txt", size=20000):
    path = os.path.join(TMP, name)
    if not os.path.exists(path):
        rng = random.Random(1)
        with open(path, "w") as f:
            f.write("".join(rng.choice("abcdefgh \n") for _ in range(size)))
    return path


def train(*words, code=0, env=None, **kw):
    p = xlane("train", "--json", "--quiet", f"data.train={text()}", *TINY, *words, code=code, env=env, **kw)
    return (os.path.join(TMP, json.loads(p.stdout)["run"]) if p.stdout else None), p


def newest_run(runs):
    return os.path.join(TMP, runs, sorted(n for n in os.listdir(os.path.join(TMP, runs)) if n[0] == "2")[-1])


def rows(run):
    return [int(line.split(",")[0]) for line in open(os.path.join(run, "metrics.csv")).read().split()[1:]]


def events(run, kind=None):
    out = [json.loads(line) for line in open(os.path.join(run, "events.jsonl"))]
    return [e for e in out if not kind or e["event"] == kind]


def ckpts(run):
    return sorted(glob.glob(os.path.join(run, "checkpoints", "*.safetensors")))


def guarded(rounds, habit=None, path="", name="g", env=None, threads=1, code=0, cache=None):
    words = [DRIVER, PLUGIN, str(rounds), str(threads), "0"] + ([habit] if habit else []) + ([path] if path else [])
    p = xlane("run", "--runs", os.path.join(TMP, "runs-" + name), "--cache",
              cache or os.path.join(TMP, "cache-" + name), "--", *words, code=code, env=env)
    return newest_run("runs-" + name), p


def root_only():
    if os.geteuid() != 0:
        raise Skip("needs root, to act as a second user")


# ---- descriptors -----------------------------------------------------------------------------------------------------
@check
def files_of_a_program_that_closes_all_descriptors_stay_its_own():
    want = {i: "".join(f"user data {t} of file {i}\n" for t in range(3)) for i in range(40)}
    base = os.path.join(TMP, "own")
    for turn in range(100 if ALL else 3):
        run, _ = guarded(3, "closes", base, name="closes")
        for i in range(40):
            got = open(f"{base}.{i}").read()
            assert got == want[i], (turn, i, got[:300])
            os.unlink(f"{base}.{i}")
        assert sum(e["event"] == "compile" for e
                   in events(run)) >= 6, "what happened after the descriptors were closed is recorded too"
        shutil.rmtree(run)


@check
def threads_of_ours_take_no_number_that_the_program_may_take():
    """Each open lasts, so that a number that is taken for an instant is met; from the second run on a thread loads programs ahead."""
    for _ in range(20 if ALL else 2):
        run, _ = guarded(3, "daemonizes", name="daemon", env={"LD_PRELOAD": FAULT, "FAULT_LINGER": "-daemon/"})
    assert events(run, "ahead")[0]["programs"] == 6 and glob.glob(os.path.join(run, "metrics-*.json"))


@check
def recording_stops_where_the_folder_is_not_the_one_that_was_opened():
    root_only()
    jail = os.path.join(TMP, "jail")
    os.makedirs(jail)
    guarded(3, "chroots", jail, name="chroot", code=None)
    made = [os.path.join(d, f) for d, _, files in os.walk(jail) for f in files]
    assert not made and os.listdir(jail) == [], (made, os.listdir(jail))


# ---- the guard changes nothing in its host ---------------------------------------------------------------------------
@check
def a_file_size_limit_does_not_kill_a_guarded_program():
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))   # SIGXFSZ keeps its default: it ends the process
    bare = subprocess.run([DRIVER, PLUGIN, "6", "1"], env=ENV, capture_output=True, text=True, preexec_fn=small)
    assert bare.returncode == 0, bare
    env = dict(ENV, LD_PRELOAD=os.path.join(BUILD, "libxlane-preload.so"),
               XLANE_GUARD_LIBRARY=os.path.join(BUILD, "libxlane-guard.so"), XLANE_RUN=os.path.join(TMP, "fsize"),
               XLANE_CACHE=os.path.join(TMP, "cache-fsize"))
    os.makedirs(env["XLANE_RUN"])
    p = subprocess.run([DRIVER, PLUGIN, "6", "1"], env=env, capture_output=True, text=True, preexec_fn=small)
    assert p.returncode == 0 and p.stdout == bare.stdout, (p.returncode, p.stderr)


@check
def forked_children_do_not_repeat_what_their_parent_counted():
    run, _ = guarded(5, "forks", name="forks")
    files = glob.glob(os.path.join(run, "metrics-*.json"))
    total = sum(json.load(open(f))["total"].get("ExecuteTime", {"n": 0})["n"] for f in files)
    assert total == 10 and len(events(run, "exit")) == 1, (total, files, events(run, "exit"))


@check
def a_clock_that_is_set_back_does_not_move_the_times():
    run, _ = guarded(6, name="clock", env={"LD_PRELOAD": FAULT, "FAULT_STEP": "86400"})
    t = [e["t"] for e in events(run)]
    assert min(t) >= 0 and max(t) < 3600, (min(t), max(t))


@check
def short_writes_do_not_tear_events():
    run, _ = guarded(6, name="short", env={"LD_PRELOAD": FAULT, "FAULT_SHORT": "11"})
    assert len(events(run, "compile")) == 6                     # every line parses, or events() raises


@check
def memory_does_not_grow_with_the_number_of_module_names():
    """So many names that the guard's tables are full by half: the second half must cost next to nothing."""
    n = 9600 if ALL else 4800
    p = subprocess.run([XLANE, "run", "--runs", os.path.join(TMP, "runs-names"), "--cache", "off", "--", DRIVER, PLUGIN,
                        str(n), "1", "0", "names"], env=ENV, capture_output=True, text=True, cwd=TMP, check=True)
    first, then = map(int, re.search(r"grew (-?\d+) KiB, then (-?\d+) KiB", p.stdout).groups())
    assert then < first / 4, f"{n // 2} names took {first} KiB, as many again {then} KiB"


# ---- checkpoints -----------------------------------------------------------------------------------------------------
def damage(path, rng, how=None):
    raw = bytearray(open(path, "rb").read())
    how = how or rng.choice(["flip", "flip", "zero", "cut", "more"])
    if how == "flip":
        at = rng.randrange(len(raw))
        raw[at] ^= 1 << rng.randrange(8)
    elif how == "zero":
        at = rng.randrange(len(raw) // 2, len(raw) - 300)
        if not any(raw[at:at + 256]):
            raw[at] = 1
        else:
            raw[at:at + 256] = bytes(256)
    elif how == "cut":
        del raw[rng.randrange(len(raw)):]
    else:
        raw += bytes(4096)
    open(path, "wb").write(raw)


@check
def every_flip_in_a_checkpoint_is_found():
    run, _ = train("train.steps=20", "train.save_every=10", "train.keep=2", "runs=flips")
    path, rng, found = ckpts(run)[-1], random.Random(2), 0
    good = open(path, "rb").read()
    head = 8 + int.from_bytes(good[:8], "little")
    n = 500 if ALL else 60
    for i in range(n):
        raw = bytearray(good)
        at = rng.randrange(head) if i % 3 == 0 else rng.randrange(len(good))
        raw[at] ^= 1 << rng.randrange(8)
        open(path, "wb").write(raw)
        p = xlane("checkpoint", "verify", run, code=None)
        found += p.returncode == 1 and "step 20" in p.stdout and "BAD" in p.stdout and "step 10 " in p.stdout
    assert found == n, f"{found} of {n}"
    for junk in (good + bytes(4096), good[:head] + bytes(len(good) - head), b"", good[:100]):
        open(path, "wb").write(junk)
        assert "BAD" in xlane("checkpoint", "verify", run, code=1).stdout
    p = xlane("resume", "--quiet", run, "train.steps=21")
    assert "passed over: step 20" in p.stderr, p.stderr
    open(path, "wb").write(good)
    os.unlink(path[:-len("safetensors")] + "ok")
    assert "not committed" in xlane("checkpoint", "verify", run).stdout
    os.unlink(path)
    open(path[:-len("safetensors")] + "ok", "w").write("{}")
    assert "its file is gone" in xlane("checkpoint", "verify", run, code=1).stdout
    print(f"# {found} of {n} flips found")


@check
def other_readers_still_read_a_checkpoint():
    from safetensors.numpy import load_file
    run, _ = train("train.steps=4", "runs=readers")
    t = load_file(ckpts(run)[-1])
    assert "embed" in t and "adamw.m.embed" in t, list(t)[:5]


@check
def retention_counts_only_whole_checkpoints():
    run, _ = train("train.steps=30", "train.save_every=10", "train.keep=3", "runs=keep")
    good = ckpts(run)
    assert [os.path.basename(c) for c in good] == [f"step-000000{n}0.safetensors" for n in (1, 2, 3)], good
    for c in good[1:]:
        damage(c, random.Random(3), "flip")
    xlane("resume", "--quiet", run, "train.steps=50", "train.save_every=100", "train.keep=2")
    left = [os.path.basename(c) for c in ckpts(run)]
    # 10 and 50 are the two whole ones
    assert "step-00000010.safetensors" in left and "step-00000050.safetensors" in left, left


@check
def no_checkpoint_that_can_be_read_is_an_error_that_names_them():
    run, _ = train("train.steps=20", "train.save_every=10", "runs=none")
    for c in ckpts(run):
        damage(c, random.Random(4), "flip")
    remedy = "\nput one of them back from a copy, or begin the run again at step 0 with: xlane resume --from-scratch "
    for words in (["resume", "--quiet"], ["eval"], ["sample"]):
        p = xlane(*words, run, code=1)
        assert "step 10" in p.stderr and "step 20" in p.stderr and "damaged" in p.stderr, p.stderr
        assert remedy in p.stderr, p.stderr
    said = xlane("checkpoint", "verify", run, code=1).stdout
    assert "none of them can be read: " + remedy[1:] in said and "newest whole one" not in said, said
    p = xlane("resume", "--quiet", "--from-scratch", run)
    assert "begins again at step 0" in p.stderr and rows(run) == list(range(1, 21)), p.stderr
    damage(ckpts(run)[0], random.Random(4), "flip")        # of two one is whole
    said = xlane("checkpoint", "verify", run, code=1).stdout
    assert "; 1 bad; `xlane resume` takes the newest whole one" in said and "--from-scratch" not in said, said
    shutil.rmtree(os.path.join(run, "checkpoints"))
    for words in (["resume", "--quiet"], ["eval"], ["sample"], ["checkpoint", "verify"]):
        p = xlane(*words, run, code=1)
        assert "had are gone" in p.stdout + p.stderr and remedy[1:] in p.stdout + p.stderr, p
        assert "one at its end" not in p.stdout + p.stderr, p
    os.unlink(os.path.join(run, "events.jsonl"))           # as far as the record goes, none was saved
    for words in (["eval"], ["sample"], ["checkpoint", "verify"]):
        p = xlane(*words, run, code=1)
        assert "one at its end" in p.stdout + p.stderr and "--from-scratch" not in p.stdout + p.stderr, p


@check
def a_configuration_of_a_run_that_is_damaged_is_said_to_be():
    run, _ = train("train.steps=2", "optimizer.warmup=0", "runs=config")
    path = os.path.join(run, "config.yaml")
    whole = open(path).read()
    for old, why in (("", "it is empty"), (whole.split("\n")[0] + "\n", "data.train is not set"),
                     (whole + "{", "config.yaml:")):
        open(path, "w").write(old)
        for words in (["resume", run], ["resume", run, f"data.train={text()}"], ["eval", run]):
            p = xlane(*words, code=1)
            assert f"{path}, which the run wrote, is damaged: " in p.stderr and why in p.stderr, p.stderr
            assert "put it back from a copy" in p.stderr, p.stderr
    open(path, "w").write(whole)
    assert "damaged" not in xlane("resume", run, "train.steps=3").stderr


@check
def a_run_that_cannot_save_is_refused_before_it_trains():
    root_only()
    run, _ = train("train.steps=4", "runs=closed")
    words = ["resume", "--quiet", run, "cache=none"]
    subprocess.run(["chown", "-R", str(OTHER), os.path.dirname(run)], check=True)
    other = dict(preexec_fn=lambda: os.setuid(OTHER), env={"XLANE_STATE": os.path.join(TMP, "closed", "state")})
    for folder in os.path.join(run, "checkpoints"), run:
        os.chmod(folder, 0o500)
        p = xlane(*words, "train.steps=9", code=1, **other)
        assert f"writing into {folder}: Permission denied; make it writable (chmod u+rwx {folder})" in p.stderr, p.stderr
        assert "room" not in p.stderr and rows(run) == [1, 2, 3, 4], p.stderr
        os.chmod(folder, 0o700)
    p = xlane(*words, "train.steps=9", **other)
    assert "make it writable" not in p.stderr and rows(run)[-1] == 9, p.stderr
    child = subprocess.Popen([XLANE, *words, "train.steps=1000000", "train.save_every=100"], cwd=TMP, text=True,
                             env=dict(ENV, **other["env"]), preexec_fn=other["preexec_fn"], stderr=subprocess.PIPE)
    while not os.path.exists(os.path.join(run, "checkpoints", "step-00000100.ok")):
        time.sleep(0.01)
    os.chmod(os.path.join(run, "checkpoints"), 0o500)      # while it trains
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    err = child.communicate()[1]
    os.chmod(os.path.join(run, "checkpoints"), 0o700)
    assert child.returncode == 1 and "room" not in err, err
    assert "Permission denied; its folder must be writable (training goes on without it; the last whole" in err, err
    assert "the last checkpoint was not written (once it can be, resume goes on from step " in err, err


@check
def left_over_temporary_files_go():
    run, _ = train("train.steps=10", "runs=left")
    left = [os.path.join(run, "checkpoints", n) for n in (".xlane-1-0123456789abcdef.tmp",
                                                          "step-00000009.safetensors.4711.tmp")]
    for path in left:
        open(path, "wb").write(b"x" * 1000)
    xlane("resume", "--quiet", run, "train.steps=12")
    assert not any(os.path.exists(p) for p in left)


@check
def changed_training_data_are_said_on_resume():
    data = os.path.join(TMP, "changing.txt")
    shutil.copy(text(), data)
    run, _ = train(f"data.train={data}", "train.steps=10", "runs=data")
    assert "training data" not in xlane("resume", "--quiet", run, "train.steps=11").stderr
    os.utime(data, (1, 1))
    said = xlane("resume", "--quiet", run, "train.steps=12").stderr
    assert "were written again" in said and ", 20000 bytes of 1970-01-01T00:00:01Z now; size and samples" in said, said
    assert "sample " not in said, said
    raw = bytearray(open(data, "rb").read())
    raw[0] ^= 1
    open(data, "wb").write(raw)
    p = xlane("resume", "--quiet", run, "train.steps=13")
    assert "have changed" in p.stderr and events(run, "data_changed")[-1]["touched_only"] is False, p.stderr


@check
def an_error_of_the_disk_is_told_as_one():
    run, p = train("train.steps=12", "train.save_every=4", "runs=eio", code=1,
                   env={"LD_PRELOAD": FAULT, "FAULT_FSYNC": "checkpoints/"})
    assert "Input/output error" in p.stderr and "smaller" not in p.stderr and "batch" not in p.stderr, p.stderr
    assert "no checkpoint has been written yet" in p.stderr and "last whole" not in p.stderr, p.stderr
    run = newest_run("eio")
    assert not os.listdir(os.path.join(run, "checkpoints")) and not events(run, "checkpoint")
    p = xlane("train", "--quiet", f"data.train={text()}", *TINY, "train.steps=100", "train.save_every=1", "runs=eio2",
              code=1,
              env={"LD_PRELOAD": FAULT,
                   "FAULT_FSYNC": "checkpoints/"}, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                       (60, 60)))
    assert "Too many open files" not in p.stderr, "a failed save leaves its descriptor open"


# ---- disks that fill -------------------------------------------------------------------------------------------------
@check
def a_disk_that_is_full_for_a_second_loses_no_row():
    full = os.path.join(TMP, "full.now")
    child = subprocess.Popen([XLANE, "train", "--quiet", f"data.train={text()}", *TINY, "train.steps=1500",
                              "train.save_every=200", "train.log_every=1", "runs=full"],
                             env=dict(ENV, LD_PRELOAD=FAULT, FAULT_FULL=full), cwd=TMP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (glob.glob(os.path.join(TMP, "full", "*", "metrics.csv")) and len(rows(newest_run("full"))) > 50):
        time.sleep(0.01)
    open(full, "w").close()
    time.sleep(1)
    os.unlink(full)
    out, err = child.communicate(timeout=300)
    run = newest_run("full")
    assert child.returncode == 0, (child.returncode, err)
    assert rows(run) == list(range(1, 1501))
    assert json.load(open(os.path.join(run, "run.json")))["lost"] == 0
    # a torn piece is ended by a newline; the events themselves are whole
    for e in open(os.path.join(run, "events.jsonl")):
        if e.startswith("{\"t\":"):
            try:
                json.loads(e)
            except ValueError:
                assert len(e) <= 8, e


@check
def rows_that_cannot_be_written_are_counted_and_the_exit_status_says_so():
    full = os.path.join(TMP, "full.forever")
    child = subprocess.Popen([XLANE, "train", "--quiet", f"data.train={text()}", *TINY, "train.steps=400",
                              "train.save_every=0", "train.log_every=1", "runs=lost"],
                             env=dict(ENV, LD_PRELOAD=FAULT, FAULT_FULL=full), cwd=TMP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (glob.glob(os.path.join(TMP, "lost", "*", "metrics.csv")) and len(rows(newest_run("lost"))) > 20):
        time.sleep(0.01)
    open(full, "w").close()
    out, err = child.communicate()
    run = newest_run("lost")
    p = xlane("resume", "--quiet", run, "train.steps=410", code=None,
              env=dict(LD_PRELOAD=FAULT, FAULT_FULL=full))
    assert p.returncode == 1 and "No space left on device; make room there" in p.stderr, p.stderr
    assert "try again" not in p.stderr + err, (p.stderr, err)
    os.unlink(full)
    got = rows(run)
    assert got == list(range(1, len(got) + 1)) and len(got) < 400, "rows are whole and in order"
    assert child.returncode in (1, 5), (child.returncode, err)  # 1: the last checkpoint could not be written either
    assert "could not be written down" in err, err
    # nothing was saved: it begins again, and has all rows
    p = xlane("resume", "--quiet", run, "train.steps=410", code=None)
    assert p.returncode == 0 and rows(run) == list(range(1, 411)), (p.returncode, p.stderr)


# ---- signals ---------------------------------------------------------------------------------------------------------
@check
def every_signal_that_ends_a_session_saves_and_has_its_own_exit_status():
    assert "4 stopped by a signal and saved" in xlane("--help").stdout and "4 stopped by a signal" in xlane("train",
        "--help").stdout
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        runs = "sig" + sig.name
        child = subprocess.Popen([XLANE, "train", "--quiet", f"data.train={text()}", *TINY, "train.steps=1000000",
                                  "runs=" + runs], env=ENV, cwd=TMP, stderr=subprocess.PIPE, text=True,
                                 # a background job of a shell ignores some, and so would the run
                                 preexec_fn=lambda: signal.signal(sig, signal.SIG_DFL))
        while not (glob.glob(os.path.join(TMP, runs, "*", "metrics.csv"))
                   and os.path.getsize(glob.glob(os.path.join(TMP, runs, "*", "metrics.csv"))[0]) > 300):
            time.sleep(0.01)
            assert child.poll() is None
        child.send_signal(sig)
        _, err = child.communicate(timeout=600)
        run = newest_run(runs)
        assert child.returncode == 4, (sig, child.returncode, err)
        assert len(ckpts(run)) >= 1 and json.load(open(os.path.join(run, "run.json")))["end"] == "stopped by a signal"
    # a terminal that goes away while progress is printed to it
    child = subprocess.Popen([XLANE, "train", f"data.train={text()}", *TINY, "train.steps=1000000", "train.log_every=1",
                              "runs=pipe"], env=ENV, cwd=TMP, stderr=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, restore_signals=True)
    child.stderr.readline(), child.stderr.readline()
    time.sleep(0.5)
    child.stderr.close()
    assert child.wait(timeout=600) == 4 and len(ckpts(newest_run("pipe"))) >= 1


@check
def a_run_killed_at_its_very_start_resumes_or_says_why_not():
    rng, n = random.Random(5), (120 if ALL else 15)
    said = resumed = 0
    for i in range(n):
        runs = f"early{i}"
        child = subprocess.Popen([XLANE, "train", "--quiet", f"data.train={text()}", *TINY, "train.steps=5", "runs=" + runs], env=ENV, cwd=TMP, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not glob.glob(os.path.join(TMP, runs, "2*")) and child.poll() is None:
            pass
        time.sleep(rng.random() * 0.004)
        child.kill()
        child.wait()
        for run in glob.glob(os.path.join(TMP, runs, "2*")):
            p = xlane("resume", "--quiet", run, code=None)
            if p.returncode == 0:
                resumed += 1
                assert rows(run) == [1, 2, 3, 4, 5]
            else:
                said += 1
                assert "no config.yaml" in p.stderr and "xlane train" in p.stderr or "no run folder called" in p.stderr, p.stderr
    assert said + resumed >= n // 2, (said, resumed)


# ---- kills and damage ------------------------------------------------------------------------------------------------
@check
def killed_and_damaged_again_and_again_nothing_good_goes():
    """Whatever is whole before a resume, one of the newest `keep` of them is there after it; every damage is named."""
    n, rng, kills, named, damaged = (300 if ALL else 12), random.Random(), 0, 0, 0
    words = ["train", "--quiet", f"data.train={text()}", *TINY, "train.steps=1000000", "train.save_every=25",
             "train.keep=3", "runs=killed"]
    run = None
    for turn in range(n):
        child = subprocess.Popen([XLANE, *words], env=ENV, cwd=TMP, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                 text=True)
        time.sleep(0.25 + 0.5 * rng.random())
        early = child.poll()
        child.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        _, err = child.communicate()
        assert early is None, err
        kills += 1
        if not glob.glob(os.path.join(TMP, "killed", "2*", "config.yaml")):
            continue
        run = newest_run("killed")
        words = ["resume", "--quiet", run]
        state = json.loads(xlane("checkpoint", "verify", "--json", run, code=None).stdout)["checkpoints"]
        whole = [c for c in state if not c["bad"]]
        assert not any(f.endswith(".tmp") for f in os.listdir(run) if not f.startswith(".xlane-")), os.listdir(run)
        if len(whole) >= 2 and rng.random() < 0.6:              # one stays whole
            for c in rng.sample(whole, rng.randrange(1, len(whole))):
                damage(c["file"], rng)
                damaged += 1
                state2 = json.loads(xlane("checkpoint", "verify", "--json", run, code=1).stdout)["checkpoints"]
                bad = [b["step"] for b in state2 if b["bad"]]
                assert c["step"] in bad, (c, state2)
                named += 1
            left = [c["step"] for c in state2 if not c["bad"]]
            p = subprocess.Popen([XLANE, "resume", "--quiet", run], env=ENV, cwd=TMP, stderr=subprocess.PIPE,
                                 stdout=subprocess.DEVNULL, text=True)
            time.sleep(0.4)
            p.kill()
            _, err = p.communicate()
            kills += 1
            now = json.loads(xlane("checkpoint", "verify", "--json", run, code=None).stdout)["checkpoints"]
            good = [c["step"] for c in now if not c["bad"]]
            gone = [s for s in left if s not in good]
            assert len(good) >= min(3, len(left)), (left, good)
            assert all(sum(g > s for g in good) >= 3 for s in gone), f"{gone} went with only {good} left"
            damaged_newer = [b for b in bad if b > max(left)]
            assert not damaged_newer or all(f"step {b}" in err for b in damaged_newer) or any(g > max(damaged_newer)
                for g in good) or not err, err
    assert named == damaged
    print(f"# {kills} kills, {damaged} checkpoints damaged, {named} named")


# ---- other people's folders ------------------------------------------------------------------------------------------
@check
def every_verb_of_the_cache_refuses_a_folder_of_another_user():
    root_only()
    theirs = os.path.join(TMP, "theirs")
    os.makedirs(os.path.join(theirs, "ab"))
    victim = os.path.join(TMP, "victim")
    open(victim, "w").write("precious\n")
    for name in ("a" * 62 + ".xle", "evil\nssh-rsa AAAA.xle"):
        open(os.path.join(theirs, "ab", name), "w").write("x")
    open(os.path.join(theirs, "b" * 64 + ".xle"), "w").write("x")
    os.symlink(victim, os.path.join(theirs, "removed.log"))
    for d, _, files in os.walk(theirs):
        os.chown(d, OTHER, OTHER)
        for f in files:
            os.chown(os.path.join(d, f), OTHER, OTHER, follow_symlinks=False)
    for what in (["ls"], ["verify"], ["prune"], ["prune", "--max", "1"], ["export", os.path.join(TMP, "x.pack")],
                 ["import", os.path.join(TMP, "x.pack")]):
        p = xlane("cache", *what, "--cache", theirs, code=1)
        assert "belongs to user" in p.stderr or "x.pack" in p.stderr, p.stderr
    assert open(victim).read() == "precious\n"
    # the same planted into a folder of one's own, before one had it
    os.chown(theirs, 0, 0)
    xlane("cache", "prune", "--cache", theirs, code=None)
    assert open(victim).read() == "precious\n"


@check
def a_sticky_folder_gets_a_folder_of_ones_own():
    root_only()
    shared = os.path.join(TMP, "shared")
    os.makedirs(shared)
    os.chmod(shared, 0o1777)
    target = os.path.join(TMP, "planted")
    os.makedirs(target)
    os.symlink(target, os.path.join(shared, "writers"))
    os.mkfifo(os.path.join(shared, "removed.log"), 0o666)
    guarded(3, name="sticky", cache=shared)
    assert os.listdir(target) == []
    mine = os.path.join(shared, "xlane-0")
    assert stat.S_IMODE(os.stat(mine).st_mode) == 0o700 and glob.glob(os.path.join(mine, "??", "*.xle"))
    assert "entr" in xlane("cache", "ls", "--cache", shared).stdout
    shutil.rmtree(mine)
    os.makedirs(mine)
    os.chown(mine, OTHER, OTHER)                                # somebody was there first
    p = xlane("cache", "ls", "--cache", shared, code=1)
    assert "xlane-0" in p.stderr and "refused" in p.stderr, p.stderr


@check
def pipes_and_links_in_a_cache_neither_hang_nor_are_followed():
    run, _ = guarded(3, name="fifo")
    cache = os.path.join(TMP, "cache-fifo")
    entries = glob.glob(os.path.join(cache, "??", "*.xle"))
    for e in entries:
        os.unlink(e)
        os.mkfifo(e, 0o600)
    for name in ("removed.log", "size"):
        if os.path.exists(os.path.join(cache, name)):
            os.unlink(os.path.join(cache, name))
        os.mkfifo(os.path.join(cache, name), 0o600)
    for what in ("ls", "verify", "prune"):
        xlane("cache", what, "--cache", cache, code=None, timeout=600)
    guarded(3, name="fifo")


@check
def what_is_damaged_of_a_cache_besides_its_entries_is_found_and_removed():
    guarded(3, name="notes")
    cache = os.path.join(TMP, "cache-notes")
    verify = lambda code: xlane("cache", "verify", "--cache", cache, code=code).stdout
    assert "; 0 bad" in verify(0) and "BAD" not in verify(0)
    entry, = glob.glob(os.path.join(cache, "??", "*.xle"))[:1]
    xlane("cache", "prune", "--max", "1", "--cache", cache)     # makes removed.log
    assert "; 0 bad" in verify(0)
    files = sorted(glob.glob(os.path.join(cache, "near", "*"))) + [os.path.join(cache, n) for n in ("size",
                                                                                                    "removed.log")]
    for name in files:
        text = bytearray(open(name, "rb").read())
        text[20] ^= 0x40                                        # a hex digit or blank no longer
        open(name, "wb").write(text)
    said = verify(1)
    assert all(os.path.relpath(f, cache) + "  BAD: " in said for f in files), (files, said)
    assert len(json.loads(xlane("cache", "verify", "--json", "--cache", cache, code=1).stdout)["notes"]) == len(files)
    _, p = guarded(3, name="notes")
    assert "cannot be used" not in p.stderr and "removed earlier" not in p.stderr, p.stderr
    xlane("cache", "prune", "--cache", cache)
    assert "; 0 bad" in verify(0) and os.path.exists(entry)


# ---- privacy ---------------------------------------------------------------------------------------------------------
@check
def folders_and_files_of_a_run_are_for_their_user_alone():
    os.umask(0)
    try:
        run, _ = train("train.steps=4", "runs=private", f"cache={TMP}/cache-private")
        guarded_run, _ = guarded(3, name="private")
    finally:
        os.umask(0o22)
    for top in (run, guarded_run, os.path.join(TMP, "cache-private"), os.path.join(TMP, "runs-private", "contracts")):
        assert stat.S_IMODE(os.stat(top).st_mode) == 0o700, (top, oct(os.stat(top).st_mode))
        for d, _, files in os.walk(top):
            for f in files:
                mode = stat.S_IMODE(os.stat(os.path.join(d, f)).st_mode)
                assert mode == 0o600, (d, f, oct(mode))


@check
def secrets_are_written_nowhere():
    secret = "hunter2SECRETvalue"
    words = [f"--token={secret}1", "--api-key", f"{secret}2", f"https://me:{secret}3@host/x?access_token={secret}4",
             "ghp_" + secret + "567890abcdef"]
    env = {"JAX_TEST_TOKEN": secret + "5", "XLA_FLAGS": f"--xla_my_token={secret}6", "XLANE_X_PASSWORD": secret + "7",
           "XLANE_STATE": os.path.join(TMP, "state-secret")}
    runs, cache = os.path.join(TMP, "runs-secret"), os.path.join(TMP, "cache-secret")
    p = xlane("run", "--summary", "--runs", runs, "--cache", cache, "--", DRIVER, PLUGIN, "3", "1", "0", "names",
              *words, env=env)
    run, state = newest_run("runs-secret"), os.path.join(TMP, "state-secret")
    assert "--token=(redacted)" in xlane("catalog", "--json", env=env).stdout, "the launch is in the catalog"
    said = p.stderr + xlane("catalog", env=env).stdout + xlane("top", "--once", run,
        code=None).stdout + xlane("explain", run, code=None).stdout + xlane("receipt", "show", run, code=None).stdout
    report = os.path.join(TMP, "secret.html")
    xlane("report", run, "--out", report, code=None)
    assert secret not in said, said
    found = [os.path.join(d, f) for top in (runs, cache, state) for d, _,
             files in os.walk(top) for f in files if secret.encode() in open(os.path.join(d, f), "rb").read()]
    if os.path.exists(report) and secret in open(report).read():
        found.append(report)
    assert not found, [(f, [l for l in open(f, errors="replace") if secret in l]) for f in found]
    command = json.load(open(os.path.join(run, "run.json")))["command"]
    for d, _, files in os.walk(state):
        for f in files:
            assert stat.S_IMODE(os.stat(os.path.join(d, f)).st_mode) == 0o600, (d, f)
    assert "--token=(redacted)" in command and command[command.index("--api-key") + 1] == "(redacted)", command


@check
def control_characters_do_not_reach_the_terminal():
    bad = "\x1b]0;owned\x07\x1b[2J"
    run, _ = guarded(2, name="escape")
    with open(os.path.join(run, "events.jsonl"), "a") as f:
        f.write(json.dumps({"t": 1.0, "rank": 0, "pid": 1, "event": "compile", "module": "m" + bad,
                            "program": "p" + bad, "result": "compiled", "seconds": 1, "phase": "steady",
                            "reason": "op", "detail": [{"what": "op", "text": "t" + bad, "before": bad,
                                                        "after": "y"}]}) + "\n")
    name = os.path.join(run, "metrics-1.json")
    json.dump({"total": {}, "modules": {"m" + bad: {"ExecuteTime": {"n": 1, "sum": 5, "hist": [0, 1]}}}},
              open(name, "w"))
    mlir = os.path.join(TMP, "escape.mlir")
    open(mlir, "w").write('module @"a' + bad + '" { func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> } }\n')
    for args in (["explain", run], ["metrics", "--modules", run], ["print", mlir], ["print", "/nonexistent" + bad]):
        p = xlane(*args, code=None)
        assert "\x1b" not in p.stdout + p.stderr and "\x07" not in p.stdout + p.stderr, (args, p.stdout, p.stderr)


# ---- bounds ----------------------------------------------------------------------------------------------------------
@check
def a_large_cache_costs_a_run_no_more_than_a_small_one():
    """Compared in system calls that look at files, where they can be counted: times say little on a busy machine."""
    n, cache = (100000 if ALL else 3000), os.path.join(TMP, "cache-large")
    guarded(3, name="large", cache=cache)
    entry = glob.glob(os.path.join(cache, "??", "*.xle"))[0]
    raw = open(entry, "rb").read()

    strace = shutil.which("strace")

    def cost():
        words = [XLANE, "run", "--runs", os.path.join(TMP, "runs-large"), "--cache", cache, "--", DRIVER, PLUGIN, "3",
                 "1"]
        count = os.path.join(TMP, "calls")
        t0 = resource.getrusage(resource.RUSAGE_CHILDREN)
        p = subprocess.run(([strace, "-f", "-c", "-o", count, "-e", "trace=%file,getdents64,fstat"] if strace else [])
                           + words, env=dict(ENV, XLANE_AHEAD="off"), cwd=TMP,
                           capture_output=True, text=True)
        t1 = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert p.returncode == 0, p.stderr
        if not strace:
            return t1.ru_utime + t1.ru_stime - t0.ru_utime - t0.ru_stime
        return int(re.search(r"^100\.00 .*?(\d+)(?: +\d+)? total$", open(count).read(), re.M)[1])
    for e in glob.glob(os.path.join(cache, "??", "*.xle")):
        os.unlink(e)
    small = cost()
    for i in range(n):
        h = hashlib.blake2b(str(i).encode(), digest_size=32).hexdigest()
        os.makedirs(os.path.join(cache, h[:2]), exist_ok=True)
        with open(os.path.join(cache, h[:2], h[2:] + ".xle"), "wb") as f:
            f.write(raw[:48])
    with open(os.path.join(cache, "size"), "w") as f:
        f.write("%020d %020d\n" % (48 * n, n))
    for e in glob.glob(os.path.join(cache, "??", "*.xle")):
        if os.path.getsize(e) != 48:
            os.unlink(e)
    large = cost()
    print(f"# {small} {'calls' if strace else 's'} with none, {large} with {n} entries")
    assert large < (1.5 if strace else 3.3) * small, (small, large)
    xlane("cache", "prune", "--cache", cache)                   # all of those are damaged
    assert all(os.path.getsize(e) != 48 for e in glob.glob(os.path.join(cache, "??", "*.xle")))


@check
def the_log_of_what_a_cache_removed_stays_small():
    """However long it has become, by an older version say, the next removal cuts it; the newest lines stay."""
    cache = os.path.join(TMP, "cache-log")
    guarded(1, name="log", cache=cache)
    log, line = os.path.join(cache, "removed.log"), "".join("0123456789abcdef"[i % 16] for i
                                                            in range(64)) + " line %06d\n"
    for n in (20000, 300000):
        for e in glob.glob(os.path.join(cache, "??", "*.xle")):
            open(e, "ab").write(b"x")                           # damaged: it is removed
        with open(log, "w") as f:
            f.write("".join(line % i for i in range(n)))
        before = os.path.getsize(log)
        xlane("cache", "prune", "--cache", cache)
        text = open(log).read()
        assert len(text) < before * 2 / 3 and f"line {n - 1:06d}\n" in text and "line 000000\n" not in text, (n, before,
            len(text))
        assert all(len(l) >= 64 for l in text.splitlines()) and text.splitlines()[-1][:64] not in line, "whole lines, the removed entry last"
        guarded(1, name="log", cache=cache)


def peak(*words, code=0):
    """The most memory that a command had, in KiB."""
    child = subprocess.Popen([XLANE, *words], env=ENV, cwd=TMP, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             text=True)
    err = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == code, (child.returncode, err)
    return usage.ru_maxrss, err


def bomb(depth):
    f = ["module @bomb {", "func.func private @f0(%a: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.add %a, %a : tensor<2xf32> return %0 : tensor<2xf32> }"]
    for i in range(1, depth):
        f.append(f"func.func private @f{i}(%a: tensor<2xf32>) -> tensor<2xf32> {{ %0 = func.call @f{i - 1}(%a) : (tensor<2xf32>) -> tensor<2xf32> "
                 f"%1 = func.call @f{i - 1}(%0) : (tensor<2xf32>) -> tensor<2xf32> return %1 : tensor<2xf32> }}")
    f.append(f"func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {{ %0 = func.call @f{depth - 1}(%a) : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32> }} }}")
    path = os.path.join(TMP, f"bomb{depth}.mlir")
    open(path, "w").write("\n".join(f))
    return path


@check
def calls_that_double_at_every_level_are_refused_with_little_memory():
    xlane("print", bomb(40))
    control, _ = peak("exec", bomb(3))
    for depth in (21, 40):
        most, err = peak("exec", bomb(depth), code=1)
        assert "calls" in err and most < 2 * control, (depth, most, control, err[-400:])


@check
def extreme_sizes_neither_overflow_nor_crash():
    """Each ends in a result or in an error of its own, also where every overflow of a signed number ends the process (./x test all builds that)."""
    san, big = os.path.join(BUILD, "san-address-undefined"), (1 << 62) + 5
    binary, plugin = (os.path.join(san, "xlane"), os.path.join(san,
        "libxlane-cpu.so")) if os.path.exists(os.path.join(san, "libxlane-cpu.so")) else (XLANE, PLUGIN)
    programs = {
        "pad_low": f"%z = stablehlo.constant dense<0.0> : tensor<f32> %0 = stablehlo.pad %a, %z, low = [{-big}], high = [{big + 4}], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>",
        "pad_interior": f"%z = stablehlo.constant dense<0.0> : tensor<f32> %0 = stablehlo.pad %a, %z, low = [0], high = [{-3 * (big >> 2) + 4}], interior = [{big >> 2}] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>",
        "pad_both": f"%z = stablehlo.constant dense<0.0> : tensor<f32> %0 = stablehlo.pad %a, %z, low = [{2**63 - 1}], high = [{2**63 - 1}], interior = [{2**63 - 1}] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>",
        "slice_stride": f"%0 = stablehlo.slice %a [1:4:{2**63 - 1}] : (tensor<4xf32>) -> tensor<1xf32> %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<1xf32>) -> tensor<8xf32>",
        "slice_limit": f"%0 = stablehlo.slice %a [0:{2**63 - 1}:2] : (tensor<4xf32>) -> tensor<8xf32>",
        "dynamic_slice": f"%i = stablehlo.constant dense<{-2**63}> : tensor<i64> %0 = stablehlo.dynamic_slice %a, %i, sizes = [1] : (tensor<4xf32>, tensor<i64>) -> tensor<1xf32> "
                         "%1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<1xf32>) -> tensor<8xf32>",
        "dynamic_update": f"%i = stablehlo.constant dense<{2**63 - 1}> : tensor<i64> %0 = stablehlo.dynamic_update_slice %a, %a, %i : (tensor<4xf32>, tensor<4xf32>, tensor<i64>) -> tensor<4xf32> "
                          "%1 = stablehlo.concatenate %0, %0, dim = 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>",
        "gather": f"%i = stablehlo.constant dense<[[{2**63 - 1}], [{-2**63}]]> : tensor<2x1xi64> %0 = \"stablehlo.gather\"(%a, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = [1], "
                  "start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 4>} : (tensor<4xf32>, tensor<2x1xi64>) -> tensor<2x4xf32> "
                  "%1 = stablehlo.reshape %0 : (tensor<2x4xf32>) -> tensor<8xf32>",
    }
    programs = {name: (body, 8) for name, body in programs.items()}
    most, half, near = 2**63 - 1, big >> 1, 2**30 - 1
    for name, low, high, stride, lhs, rhs, n in (("pad", big, big, 1, 1, 1, 8), ("stride", 0, 0, most, 1, 1, 1),
                                                 ("base", 0, 0, 1, most, 1, 8), ("base_cut", -half, 10 - 2 * half, 1,
                                                     half, 1, 8),
                                                 ("window", 2 * half, half + 4, 1, 1, half, 8), ("all", most, most,
                                                     most, most, most, 3),
                                                 ("near_base", -near, 10 - 2 * near, 1, near, 1, 8), ("near_window",
                                                     2 * near, near + 4, 1, 1, near, 8)):
        programs["conv_" + name] = (
            f"%x = stablehlo.reshape %a : (tensor<4xf32>) -> tensor<1x4x1xf32> %k = stablehlo.constant dense<[[[0.5]], [[1.0]], [[1.5]], [[2.0]]]> : tensor<4x1x1xf32> "
            f"%0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{stride = [{stride}], pad = [[{low}, {high}]], lhs_dilate = [{lhs}], "
            f"rhs_dilate = [{rhs}]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<1x4x1xf32>, tensor<4x1x1xf32>) -> tensor<1x{n}x1xf32> "
            f"%1 = stablehlo.reshape %0 : (tensor<1x{n}x1xf32>) -> tensor<{n}xf32>", n)
    for name, low, high, stride, lhs, rhs, n in (("pad", big, big, 1, 1, 1, 8), ("stride", 0, 0, most, 1, 1, 1),
                                                 ("base", 0, 0, 1, most, 1, 8), ("base_cut", -half, 10 - 2 * half, 1,
                                                     half, 1, 10),
                                                 ("window", half, 4, 1, 1, half, 8), ("all", most, most, most, most,
                                                     most, 5),
                                                 ("near_base", -near, 10 - 2 * near, 1, near, 1, 10), ("near_window",
                                                     near, 4, 1, 1, near, 8)):
        programs["reduce_window_" + name] = (
            f"%z = stablehlo.constant dense<0.0> : tensor<f32> %0 = \"stablehlo.reduce_window\"(%a, %z) ({{ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32> "
            f"stablehlo.return %s : tensor<f32> }}) {{window_dimensions = array<i64: 2>, window_strides = array<i64: {stride}>, base_dilations = array<i64: {lhs}>, window_dilations = array<i64: {rhs}>, "
            f"padding = dense<[[{low}, {high}]]> : tensor<1x2xi64>}} : (tensor<4xf32>, tensor<f32>) -> tensor<{n}xf32>", n)
    ran = 0
    for name, (body, n) in programs.items():
        result = "%1" if "%1 =" in body else "%0"
        path = os.path.join(TMP, f"extreme_{name}.mlir")
        open(path, "w").write(f"module {{ func.func public @main(%a: tensor<4xf32>) -> tensor<{n}xf32> {{ {body} return {result} : tensor<{n}xf32> }} }}\n")
        p = subprocess.run([binary, "exec", path], env=dict(ENV, XLANE_PLUGIN=plugin, LD_LIBRARY_PATH=os.path.dirname(plugin)), capture_output=True, text=True, cwd=TMP)
        assert p.returncode in (0, 1) and "runtime error" not in p.stderr and "Sanitizer" not in p.stderr, (name,
            p.returncode, p.stderr[-800:])
        ran += p.returncode == 0
        assert p.returncode == 0 or "has no size" in p.stderr or "beyond its size" in p.stderr or "is beyond 2^31" in p.stderr, (name, p.stderr)   # refused for what it is
    assert ran >= 11, ran
    print(f"# {len(programs)} programs, {ran} of them run", "with sanitizers" if binary != XLANE else "")


@check
def a_reshape_to_more_elements_than_there_are_is_refused():
    dims = "x".join(["65536"] * 4) + "x16"
    path = os.path.join(TMP, "reshape.mlir")
    open(path, "w").write(f"module {{ func.func public @main(%a: tensor<16xf32>) -> tensor<{dims}xf32> {{ %0 = stablehlo.reshape %a : (tensor<16xf32>) -> tensor<{dims}xf32> "
                          f"return %0 : tensor<{dims}xf32> }} }}\n")
    p = xlane("print", path, code=1)
    assert "reshape" in p.stderr or "elements" in p.stderr, p.stderr


def main():
    global failed
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    for f in checks:
        if only not in f.__name__:
            continue
        begun = time.time()
        try:
            f()
            print(f"ok {f.__name__}", f"# {time.time() - begun:.1f} s" if only else "", flush=True)
        except Skip as s:
            print(f"skip {f.__name__}: {s}", flush=True)
        except Exception as e:
            failed += 1
            print(f"FAIL {f.__name__}: {type(e).__name__}: {str(e)[:1500]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
