"""Unmodified PyTorch/XLA 2.9 on the embedded device and under the guard. Rows C2, F1, F2, F3, G6.

torch_xla exists for x86-64 alone, and with torch takes 7 GB: `./x test all` installs it into build/venv-torch.
Elsewhere XLANE_TORCH_ROOT names a folder prepared by hand, and qemu-user runs what is in it:
  python/   an x86-64 Python 3.11 (Debian's packages of it and of the libraries it needs, unpacked:
  python/usr/bin/python3.11) site/     torch 2.9.0 and torch_xla 2.9.0 with what they require, from `pip install
  --target site --platform manylinux_2_28_x86_64 ...`
A step that compiles in a second takes minutes there, so the losses of torch_xla's own CPU device are kept as cpu.json
in that folder.
"""
import glob
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import zipfile
import _check
os.environ.setdefault("XLANE_CPU_CHECK", "1")        # every plan is checked against its program
from _check import check, end
_check.prefix = "torch_xla_"

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TRAIN, FAULT_SCRIPT, OPS, SPMD, RANKS = (os.path.join(HERE, "torch", n) for n
                                         in ("train.py", "faults.py", "ops.py", "spmd.py", "ranks.py"))
PINS = ["torch==2.9.0", "torch_xla==2.9.0", "numpy"]
NATIVE = os.uname().machine == "x86_64"
PREPARED = os.environ.get("XLANE_TORCH_ROOT")


def leave(why):
    print("skip torch_xla:", why)
    sys.exit(0)


def python_for(tmp):
    """The interpreter that has torch_xla, and what its PYTHONPATH needs."""
    if NATIVE:
        venv = os.path.join(ROOT, "build", "venv-torch")
        if not os.path.exists(venv + "/done"):
            if os.environ.get("XLANE_TEST_ALL") != "1":
                leave("./x test all installs torch and torch_xla (7 GB)")
            if sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)):
                leave("torch_xla 2.9 has no wheel for Python %d.%d" % sys.version_info[:2])
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
            pip = subprocess.run([venv + "/bin/python", "-m", "pip", "install", "-q", *PINS], text=True,
                                 capture_output=True)
            if pip.returncode:
                leave("pip: " + pip.stderr.strip().splitlines()[-1])
            open(venv + "/done", "w").close()
        return venv + "/bin/python", ""
    if not PREPARED:
        leave("torch_xla exists for x86-64 alone; XLANE_TORCH_ROOT may name a prepared folder, see "
              + os.path.basename(__file__))
    # A program in the emulator cannot start another of its kind: a shell script, which this machine runs, goes between.
    # LD_PRELOAD passes through it (this machine's loader says that it ignores it) and takes effect inside.
    python = os.path.join(tmp, "python")
    root = os.path.join(PREPARED, "python")
    libraries = f"{root}/lib/x86_64-linux-gnu:{root}/usr/lib/x86_64-linux-gnu"
    with open(python, "w") as f:
        f.write(f'#!/bin/sh\nexec qemu-x86_64 -cpu max -L {root} -E LD_LIBRARY_PATH={libraries} {root}/usr/bin/python3.11 "$@"\n')
    os.chmod(python, 0o755)
    return python, os.path.join(PREPARED, "site")


def install(tmp):
    """The wheel, unpacked as pip would: (site folder, the command that starts its xlane)."""
    env = dict(os.environ, CROSS="" if NATIVE else "x86_64-linux-gnu-")
    wheel = subprocess.run([sys.executable, ROOT + "/wheel/build.py", tmp], check=True, text=True, env=env,
                           stdout=subprocess.PIPE).stdout.strip()
    site = os.path.join(tmp, "xlane-site")
    with zipfile.ZipFile(wheel) as z:
        z.extractall(site)
    for f in glob.glob(site + "/xlane/bin/*"):
        os.chmod(f, os.stat(f).st_mode | stat.S_IXUSR)
    return site, ([] if NATIVE else ["qemu-x86_64", "-cpu", "max"]) + [site + "/xlane/bin/xlane"]


def start(what, command, env, script, *args):
    """Runs the script; what it printed, up to and with its RESULT."""
    for name in ("XLA_STABLEHLO_COMPILE", "PJRT_DEVICE", "PJRT_DYNAMIC_PLUGINS", "XLA_PERSISTENT_CACHE_PATH"):
        env.setdefault(name, "")
    full = {k: v for k, v in {**os.environ, **env}.items() if v != ""}
    p = subprocess.run([*command, script, *args], text=True, capture_output=True, env=full)
    if p.returncode or not re.search(r"^RESULT ", p.stdout, re.M):
        check(what, False, p.stdout[-1000:] + p.stderr[-3000:])
        sys.exit(1)
    return p.stdout


def train(what, command, env, *args):
    return json.loads(re.search(r"^RESULT (.*)$", start(what, command, env, TRAIN, *args), re.M).group(1))


def close(a, b):
    return all(abs(x - y) <= 1e-4 * abs(y) for m in ("mlp", "transformer") for x, y in zip(a[m], b[m], strict=True))


def main():
    with tempfile.TemporaryDirectory() as tmp:
        python, path = python_for(tmp)
        base = {"PYTHONPATH": path} if path else {}
        kept = os.path.join(PREPARED, "cpu.json") if not NATIVE else ""
        if kept and os.path.exists(kept):
            with open(kept) as f:
                cpu = json.load(f)
        else:
            cpu = train("own_cpu_device", [python], {**base, "PJRT_DEVICE": "CPU"})
            if kept:
                with open(kept, "w") as f:
                    json.dump(cpu, f)
        site, xlane = install(tmp)

        # By environment alone, as StableHLO, with PyTorch/XLA's own cache. It is written and never read: an upstream
        # defect.
        library = {**base, "PJRT_DEVICE": "LIBRARY", "PJRT_DYNAMIC_PLUGINS": "1",
                   "PJRT_LIBRARY_PATH": site + "/xlane/lib/libxlane-cpu.so"}
        first = train("stablehlo", [python], {**library, "XLA_STABLEHLO_COMPILE": "1"}, tmp + "/own-cache")
        check("F1_stablehlo_losses", close(first, cpu), (first, cpu))
        check("F1_is_our_device", first["device"] == "XLANE" and first["memory"]["bytes_limit"] > 0, first)
        second = train("own_cache", [python], {**library, "XLA_STABLEHLO_COMPILE": "1"}, tmp + "/own-cache")
        check("F2_own_cache_is_never_read", second["CompileTime"] == first["CompileTime"] > 0
              and second["counters"].get("PersistentCacheDeserializeFailure", 0) > 0, second)

        for form in ("", "1"):
            text = start("ops", [python], {**library, "XLA_STABLEHLO_COMPILE": form}, OPS)
            check("F1_ops_as_" + ("stablehlo" if form else "hlo"), "DIFFERS" not in text, text)

        for form in ("", "1"):
            env = {**library, "XLANE_CPU_DEVICES": "4", "XLA_STABLEHLO_COMPILE": form}
            word = "_as_stablehlo" if form else "_as_hlo"
            r = json.loads(re.search(r"^RESULT (.*)$", start("spmd", [python], env, SPMD), re.M).group(1))
            check("S2_a_mesh_of_four_trains_as_one" + word, r["devices"] == 4
                  and all(abs(x - y) < 1e-4 for x, y in zip(r["split"], r["whole"], strict=True)), r)
            check("S1_results_stay_split" + word, r["weight"].startswith("{devices=[2,1,2]"), r)

        if NATIVE:
            ranks(python, site, path)

        # By the wheel's entry point, as HLO, under the guard, twice; the script is the same.
        runs = tmp + "/runs"
        run = [*xlane, "run", "--runs", runs, "--cache", tmp + "/cache", "--name", "torch", "--", python]
        guarded = {"PYTHONPATH": ":".join(filter(None, [site, path])), "PJRT_DEVICE": "XLANE",
                   "XLANE_STATE": tmp + "/state"}

        def under_guard(what):
            result = train(what, run, dict(guarded), tmp + "/own-cache-2")
            folder = sorted(d for d in glob.glob(runs + "/*-torch*"))[-1]
            text = subprocess.run([*xlane, "metrics", folder], text=True, capture_output=True, check=True).stdout
            explained = subprocess.run([*xlane, "explain", "--json", folder], text=True, capture_output=True,
                                       check=True).stdout
            words = subprocess.run([*xlane, "explain", folder], text=True, capture_output=True, check=True).stdout
            return result, text, json.loads(explained), words

        cold, cold_metrics, cold_why, _ = under_guard("guard_cold")
        warm, warm_metrics, warm_why, warm_words = under_guard("guard_warm")
        check("F3_hlo_losses_by_the_entry_point", cold["device"] == "XLANE" and close(cold, cpu), (cold, cpu))
        known = json.loads(subprocess.run([*xlane, "catalog", "--json"], text=True, capture_output=True, check=True,
                                          env={**os.environ, **guarded}).stdout)
        check("a_guarded_torch_program_is_in_the_catalog", [e["outcome"] for e in known] == ["ran", "ran"]
              and known[0]["signature"]["model"].startswith("SyncTensorsGraph.")
              and known[0]["signature"]["code"] == known[1]["signature"]["code"] and known[0]["compiled"] > 0 and known[0]["observed"] > 0, known)
        same = all(cold[m] == warm[m] for m in ("mlp", "transformer"))
        check("F1_same_bits_from_the_cache", same, (cold, warm))

        def executions(text):
            found = re.search(r"Metric: ExecuteTime\n  TotalSamples: (\d+)", text)
            return int(found.group(1)) if found else 0
        check("C2_cold_compiles", len(cold_why) >= 4 and all(e["result"] == "compiled" for e in cold_why), cold_why)
        check("C2_warm_compiles_nothing", len(warm_why) == len(cold_why)
              and all(e["result"] == "cached" for e in warm_why), warm_why)
        check("C2_execute_count_moves", executions(cold_metrics) == executions(warm_metrics) >= 10,
              cold_metrics + warm_metrics)
        # All modules are SyncTensorsGraph.N and are told apart by what they are: each model's first step is a first,
        # and at its second the optimizer's state became arguments. A restart says the same of them.
        check("G6_programs_are_grouped", all(e["module"].startswith("SyncTensorsGraph.")
                                             and (e["reason"] == "first" or e["detail"]) for e in cold_why)
              and [e["reason"] for e in cold_why] == [e["reason"] for e in warm_why] == ["first", "args", "first",
                  "args"], (cold_why, warm_why))
        check("G6_says_how_to_get_lines", "XLA_IR_DEBUG=1 XLA_HLO_DEBUG=1" in warm_words, warm_words)
        faults(python, base, library, run, guarded, runs)
        matrix(tmp, python, xlane, path)
    sys.exit(end())


def ranks(python, site, path):
    """Two processes under torchrun train as one with the whole batch does."""
    env = {"PYTHONPATH": ":".join(filter(None, [site, path])), "PJRT_DEVICE": "XLANE"}
    one, two = (json.loads("[" + ",".join(re.findall(r"RESULT (.*)", start(what, command, dict(env), RANKS))) + "]")
                for what, command in
                (("one_process", [python]), ("torchrun", [python, "-m", "torch.distributed.run", "--nproc_per_node",
                                                          "2", "--master_port", str(free_port())])))
    check("S5_two_processes_are_one_job", sorted(r["rank"] for r in two) == [0, 1]
          and all(r["world"] == 2 and r["sum"] == [2, 2, 2] for r in two), two)
    check("S5_two_processes_train_as_one", two[0]["weights"] == two[1]["weights"]
          and all(abs(a - b) < 1e-5 for a, b in zip(one[0]["losses"], two[0]["losses"])), (one, two))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


FAULTS = ["malloc:1", "malloc:2", "malloc:3", "malloc:7", "malloc:50", "write:ENOSPC", "write:EIO", "open:EMFILE",
          "read:EIO", "fsync:EIO", "rename:EROFS",
          "mkdir:EACCES"]


def faults(python, base, library, run, guarded, runs):
    """Trouble of the guard's own does not reach the program: the same bytes with faults in the guard as without the guard."""
    inject = os.path.join(ROOT, "build", "" if NATIVE else "x86_64-linux-gnu", "test", "plugins", "inject.so")
    subprocess.run(["make", "-s", "-C", ROOT, *([] if NATIVE else ["CROSS=x86_64-linux-gnu-"]),
                    os.path.relpath(inject, ROOT)], check=True, stdout=sys.stderr)
    want = start("without_faults", [python], dict(library), FAULT_SCRIPT, *FAULTS)
    got = start("with_faults", run, {**guarded, "LD_PRELOAD": inject}, FAULT_SCRIPT, *FAULTS)
    check("B4_faults_of_the_guard_do_not_reach_the_program", got == want and want.count("\n") == 3 * len(FAULTS) + 1,
          (got, want))
    with open(sorted(glob.glob(runs + "/*-torch*"))[-1] + "/events.jsonl") as f:
        events = [json.loads(line)["event"] for line in f]
    check("B4_faults_were_met", events.count("fault") >= 5 and events.count("compile") >= len(FAULTS) // 2, events)


def matrix(tmp, python, xlane, path):
    """`xlane matrix check` sees the defect of PyTorch/XLA's own cache live, in two processes of its own."""
    folder = os.path.dirname(python)                        # a virtual environment is known by its folder
    if not NATIVE:
        folder = os.path.join(tmp, "bin")
        os.mkdir(folder)
        os.symlink(python, os.path.join(folder, "python3"))
    env = dict(os.environ, PATH=folder + ":" + os.environ["PATH"], PYTHONPATH=path)
    p = subprocess.run([*xlane, "matrix", "check", "--json"], text=True, capture_output=True, env=env)
    row = next((r for r in json.loads(p.stdout or "[]") if r["name"] == "torch_cache"), {})
    check("X1_matrix_sees_the_cache_defect_live", row.get("state") == "affected" and "2.9" in row.get("text", ""),
          row or p.stderr[-2000:])


main()
