"""xlane probe against plugins with something wrong: the right class each, with the true reason and the next step (P1-P4)."""
import json, os, struct, subprocess, sys, tempfile, time
from _check import check, end

XLANE, PLUGINS = "build/xlane", "build/test/plugins"


def probe(plugin, *more, **env):
    start = time.time()
    r = subprocess.run([XLANE, "probe", "--json", "--timeout=100", "--plugin=" + plugin, *more], capture_output=True,
                       text=True,
                       env=dict(os.environ, **env))
    found = json.loads(r.stdout)
    found["exit"], found["wall"] = r.returncode, time.time() - start
    return found


def expect(name, word, reason, plugin=None, more=(), env={}):
    p = probe(plugin or f"{PLUGINS}/{name}.so", *more, **env)
    ok = p["class"] == word and reason in p["reason"] and p["exit"] == (0 if word == "healthy" else 1) \
        and bool(p["next"]) == (word != "healthy") and {"plugin", "api", "bundle", "devices", "owner",
                                                        "next"} <= p.keys()
    check(name, ok, json.dumps(p))
    return p


with tempfile.TemporaryDirectory() as d:
    def file(name, data):
        path = os.path.join(d, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    expect("missing", "library-missing", "no such file", plugin=d + "/libtpu.so")
    expect("text_file", "will-not-load", 'begins with "#!/bin/sh"', plugin=file("text.so", b"#!/bin/sh\n" + b"x" * 100))
    expect("empty_file", "will-not-load", "only 0 bytes", plugin=file("empty.so", b""))
    expect("folder", "will-not-load", "not a file", plugin=d)
    with open(f"{PLUGINS}/healthy.so", "rb") as f:
        good = f.read()
    machine = struct.unpack("<H", good[18:20])[0]
    other, here, there = (183, "x86-64", "AArch64") if machine == 62 else (62, "AArch64", "x86-64")
    expect("other_machine", "will-not-load", f"this file is for {there}, this machine is {here}",
           plugin=file("other.so", good[:18] + struct.pack("<H", other) + good[20:]))
    expect("cut_short", "will-not-load", "the file is cut short", plugin=file("cut.so", good[:5000]))
    expect("dependency", "will-not-load", "needs libxlane-test-gone.so, which is not found")
    expect("nosymbol", "abi-mismatch", "no GetPjrtApi")
    expect("nothing", "abi-mismatch", "returned no table")
    expect("future", "abi-mismatch", "PJRT API 1.2")
    expect("ancient", "abi-mismatch", "PJRT API 0.40")
    expect("tiny", "abi-mismatch", "is not one of PJRT")

    p = expect("aborts", "no-device", "signal 6")
    check("aborts_last_words", "no topology was set" in p.get("last_words", "") and p["stage"] == "PJRT_Client_Create",
          p)
    p = expect("aborts_loading", "will-not-load", "signal 6")
    check("aborts_loading_last_words", "these are my last words" in p.get("last_words", ""), p)
    expect("aborts_compiling", "compile-fails", "signal 11")
    p = expect("aborts_closing", "healthy", "")
    check("aborts_closing_note", "PJRT_Client_Destroy" in p.get("note", ""), p)
    p = expect("exits", "bad-setting", "exited with 1")
    check("exits_names_the_flag", "XLA_FLAGS" in p["next"], p)
    p = expect("hangs", "no-device", "did not end within", more=("--timeout=1",))
    sound = probe(f"{PLUGINS}/healthy.so")["wall"]              # what a probe takes on this machine now
    check("hangs_is_ended_in_time", p["wall"] < 3 + 20 * sound and "metadata server" in p["last_words"], p)
    expect("hangs_running", "wrong-answer", "PJRT_LoadedExecutable_Execute", more=("--timeout=4",))

    expect("nodevice", "no-device", "no card is plugged in")
    expect("zerodevices", "no-device", "lists no addressable device")
    expect("nocompile", "compile-fails", "ptxas: not found")
    p = expect("wrong", "wrong-answer", "the right answer is")
    check("wrong_on_every_device", [x["right"] for x in p["devices"]] == [False, False], p)
    expect("runfails", "wrong-answer", "illegal memory access")

    p = expect("healthy", "healthy", "")
    check("healthy_devices", [(x["id"], x["right"], x["memory"].get("limit")) for x in p["devices"]]
          == [(10, True, 1 << 30), (11, True, 1 << 30)], p)
    check("healthy_bundle", p["bundle"]["stablehlo_current"] == "1.13.7" and p["bundle"]["pjrt_api"].startswith("0.")
          and p["bundle"]["libc"] and p["bundle"]["kernel"], p)
    check("healthy_owner", "healthy.so" in p["owner"]["runtime"] and "none" in p["owner"]["fallback"], p)
    expect("old", "healthy", "")
    p = expect("new", "healthy", "")
    check("new_minor", p["api"]["minor"] == 314, p)

    p = expect("embedded", "healthy", "", plugin="cpu")
    check("embedded_memory", len(p["devices"]) >= 1 and all(x["right"] and x["memory"]["limit"] > 0 for x
                                                            in p["devices"]), p)

    # A variable that the device refuses, or that leaves a small program no memory, is what is wrong, not the device.
    for name, value in (("DEVICES", "abc"), ("DEVICES", "0"), ("DEVICES", "100000"), ("HBM", "1")):
        p = expect(f"setting_{name}_{value}", "bad-setting", f"XLANE_CPU_{name}", plugin="cpu",
                   env={"XLANE_CPU_" + name: value})
        check(f"setting_{name}_{value}_next", p["next"].startswith(f"XLANE_CPU_{name} is {value} here: change it") and
              "driver" not in p["next"], p["next"])
    expect("setting_that_fits", "healthy", "", plugin="cpu", env={"XLANE_CPU_DEVICES": "2", "XLANE_CPU_HBM": "1MiB"})
    p = expect("setting_beside_a_missing_device", "no-device", "no card is plugged in", f"{PLUGINS}/nodevice.so",
               env={"XLANE_CPU_DEVICES": "2"})

    # A device file held by somebody else: who, by pid and command.
    device = file("accel0", b"")
    env = {"FAKE_DEVICE": device, "XLANE_PROBE_DEVICES": d + "/accel*"}
    expect("held_free", "healthy", "", plugin=f"{PLUGINS}/held.so", env=env)
    holder = subprocess.Popen([sys.executable, "-c", "import fcntl, sys, time\nf = open(sys.argv[3], 'r+')\n"
                               "fcntl.flock(f, fcntl.LOCK_EX)\nprint('held', flush=True)\ntime.sleep(60)", "--token", "hunter2", device],
                              stdout=subprocess.PIPE)
    holder.stdout.readline()
    p = expect("held", "device-held", f"is held by process {holder.pid} (", env=env)
    check("held_without_its_secrets", " --token (redacted) " in p["holders"][0]["command"] and "hunter2" not in str(p),
          p)
    check("held_by_whom", [(h["pid"], h["device"]) for h in p["holders"]] == [(holder.pid, os.path.realpath(device))]
          and "fcntl" in p["holders"][0]["command"] and str(holder.pid) in p["next"], p)
    # A card may be shared: somebody else's having it open is a reason only where there is no room left.
    for name, word in ("crowded", "device-held"), ("nodevice", "no-device"):
        with open(f"{PLUGINS}/{name}.so", "rb") as f:
            shared = file(f"xla_cuda_{name}.so", f.read())
        expect("shared_" + name, word, "", plugin=shared, env=env)
    holder.kill()
    holder.wait()

    # Found, not named: a plugin of the environment's Python whose device is not here is passed over, and that is said.
    if not any(n.startswith("accel") or n == "vfio" for n in os.listdir("/dev")):
        site = os.path.join(d, "venv/lib/python3.11/site-packages/libtpu")
        os.makedirs(site)
        with open(site + "/libtpu.so", "wb") as f:
            f.write(good)
        env = dict(os.environ, VIRTUAL_ENV=d + "/venv")
        env.pop("XLANE_PLUGIN", None)
        r = subprocess.run([XLANE, "probe", "--json", "--timeout=30"], capture_output=True, text=True, env=env)
        p = json.loads(r.stdout)
        if "jax_plugins" in p["plugin"]:
            print("skip passed_over: this machine has a plugin of its own with its device")
        else:
            check("passed_over", any("libtpu.so" in x for x in p.get("passed_over", [])) and "stands in"
                  in p["owner"]["fallback"], p)

r = subprocess.run([XLANE, "probe", "--timeout=0"], capture_output=True, text=True)
check("misuse", r.returncode == 2 and "--timeout" in r.stderr, r.stderr)
r = subprocess.run([XLANE, "probe", f"--plugin={PLUGINS}/held.so"], capture_output=True, text=True)
check("text_output", r.returncode == 1 and r.stdout.startswith("no-device: ") and "\nnext      " in r.stdout, r.stdout)
sys.exit(end())
