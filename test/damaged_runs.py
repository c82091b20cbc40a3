"""A run's record that is damaged, cut off, or could not be written: the commands say so, use what can be read, and
claim nothing of the rest."""
import glob
import json
import os
import random
import re
import shutil
import subprocess

from _guarded import BUILD, STEPS, TMP, UNENDED, check, done, python, xlane

HEAD, COUNTERS = "INCOMPLETE RECORD", r"its counters tell of (\d+) compiled, .* (\d+) executions"
PLUGINS, GONE = os.path.join(BUILD, "test", "plugins"), 2 ** 22 - 1  # no process has that number
FALSE = ["built-in cpu", "was guarded", "no step: ", "nothing was compiled", "killed", "loaded a PJRT plugin"]
whole, _ = python("whole", STEPS % "")
with open(os.path.join(whole, "events.jsonl"), "rb") as f:
    LINES = f.read().splitlines(keepends=True)
FIRST = [k for k, line in enumerate(LINES) if b'"event":"compile"' in line]


def damaged(name, change, file="events.jsonl"):
    """A copy of the run, in a folder of runs of its own, with a file whose bytes were changed."""
    folder = os.path.join(TMP, "runs-damaged-" + name, os.path.basename(whole))
    shutil.copytree(whole, folder)
    for path in glob.glob(os.path.join(folder, file)):
        with open(path, "rb") as f:
            old = f.read()
        with open(path, "wb") as f:
            f.write(change(old))
    return folder


def noise(old):
    return random.Random(5).randbytes(len(old))


def said(folder, *verb, status=0):
    text = xlane(*verb, folder, status=status)
    assert not any(s in text for s in FALSE), text
    return text


@check("a_whole_record_is_not_called_incomplete")
def _():
    for verb in ["explain"], ["metrics"], ["top", "--once"], ["report", "--out", os.path.join(TMP, "whole.html")]:
        text = xlane(*verb, whole)
        assert HEAD not in text and "not known" not in text, text
    with open(os.path.join(TMP, "whole.html")) as f:
        assert HEAD not in f.read()
    row, = json.loads(xlane("runs", "--json", os.path.dirname(whole)))
    assert row["complete"] and "incomplete" not in xlane("runs", os.path.dirname(whole)), row


@check("noise_is_said_to_be_damage")
def _():
    folder = damaged("noise", noise)
    text = said(folder, "explain", status=1)
    assert re.search(r"none of the \d+ lines of events.jsonl can be read", text), text
    made, ran = map(int, re.search(COUNTERS, text).groups())
    assert made == len(FIRST) and ran >= 40 and "xlane metrics" in text, text
    for verb in ["metrics"], ["top", "--once"]:
        text = said(folder, *verb)
        assert HEAD in text and "can be read" in text, text
    page = os.path.join(TMP, "noise.html")
    said(folder, "report", "--out", page)
    with open(page) as f:
        assert HEAD in f.read()
    row, = json.loads(xlane("runs", "--json", os.path.dirname(folder)))
    assert not row["complete"] and "incomplete" in xlane("runs", os.path.dirname(folder)), row


@check("a_record_that_was_cut_off_answers_only_what_it_knows")
def _():
    cut = sum(map(len, LINES[:FIRST[2]])) + 60                # in the third compile of five
    folder = damaged("cut", lambda old: old[:cut])
    text = said(folder, "explain")
    assert "1 of the %d lines of events.jsonl cannot be read" % (FIRST[2] + 1) in text, text
    assert "it tells of 2 of %d compiles and loads" % len(FIRST) in text, text
    assert len(re.findall(r"\? +not known: the record is incomplete$", text, re.M)) == 5, text
    said(folder, "top", "--once")
    text = said(damaged("line", lambda old: b"".join(LINES[:FIRST[2]])), "explain")   # after a whole line
    assert "cannot be read" not in text and "events.jsonl tells of 2 of %d compiles" % len(FIRST) in text, text
    text = said(damaged("empty", lambda old: b""), "explain", status=1)
    assert "events.jsonl is empty" in text and re.search(COUNTERS, text), text


@check("a_line_of_no_compile_takes_no_answer_away")
def _():
    at = [k for k, line in enumerate(LINES) if b'"first_buffer"' in line][0]
    folder = damaged("buffer", lambda old: b"".join(LINES[:at] + [b"?\n"] + LINES[at + 1:]))
    text = said(folder, "explain")
    assert "1 of the %d lines of events.jsonl cannot be read" % len(LINES) in text and "not known" not in text, text
    assert "`step` compiled once, ran 40 times: no recompile" in text, text


@check("a_folder_without_its_events_is_said_with_what_to_do")
def _():
    folder = damaged("gone", lambda old: old)
    os.unlink(os.path.join(folder, "events.jsonl"))
    said = "%s/events.jsonl is missing, and what ran is recorded there alone: copy the whole folder of the run, or run " \
           "the program again" % folder
    for verb in ["calibrate"], ["explain"], ["metrics"], ["top",
                                                          "--once"], ["report"], ["memory"], ["exec"], ["print"], \
            ["classify"]:
        text = xlane(*verb, folder, status=1)
        assert said in text and "recorded no compile" not in text, (verb, text)
        assert "is missing" not in xlane(*verb, whole, status=None), verb


@check("a_later_process_with_the_number_of_one_of_a_run_is_not_its_own")
def _():
    def about(old, **more):
        return json.dumps(dict({k: v for k, v in json.loads(old).items() if k not in ("ended", "status", "seconds")},
                               launcher=GONE)).encode()
    folder = damaged("reused", about, "run.json")
    other = subprocess.Popen(["sleep", "100"])
    path = os.path.join(folder, "events.jsonl")
    for age, goes_on in (1000, False), (0, True):                # the folder is new: its events are older by so much
        with open(path, "wb") as f:
            for line in LINES:
                e = json.loads(line)
                if e["event"] in ("exit", "end", "client_end"):
                    continue
                e["t"] -= age
                for key in "pid", "program":
                    if isinstance(e.get(key), int):
                        e[key] = other.pid if e["event"] in ("attach", "command") else GONE
                f.write(json.dumps(e).encode() + b"\n")
        text = xlane("classify", folder, status=1)
        assert ("its process %d goes on" % other.pid in text) == goes_on, text
    other.kill()
    other.wait()


@check("damaged_counters_are_said_and_the_events_still_read")
def _():
    for name, change in ("noise", noise), ("cut", lambda old: old[:40]), ("empty", lambda old: b""):
        folder = damaged("counters-" + name, change, "metrics-*.json")
        text = said(folder, "explain")
        assert re.search(HEAD + r".*metrics-\d+.json cannot be read, so the executions that it counted are missing",
                         text), text
        assert "`step` compiled once: no recompile" in text, text
        assert re.search(r"metrics-\d+.json", said(folder, "metrics", status=1))
        said(folder, "report", "--out", os.path.join(TMP, "counters.html"))
    folder = damaged("steps", noise, "steps-*.json")
    for verb in ["explain"], ["top", "--once"], ["metrics"]:
        assert re.search(HEAD + r".*steps-\d+.json cannot be read, so the times of steps in it",
                         said(folder, *verb)), verb
    assert "TotalSamples" in said(folder, "metrics")
    folder = damaged("about", noise, "run.json")
    for verb in ["explain"], ["top", "--once"], ["metrics"]:
        assert "run.json cannot be read, so what was started, and how it ended, is not known" in said(folder,
            *verb), verb


@check("a_half_line_of_a_run_that_goes_on_is_no_damage")
def _():
    folder = damaged("going", lambda old: old + b'{"t":9.1,"ra')
    assert HEAD in xlane("explain", folder)
    about = os.path.join(folder, "run.json")
    with open(about) as f:
        run = json.load(f)
    del run["ended"]
    run["launcher"] = os.getpid()
    with open(about, "w") as f:
        json.dump(run, f)
    assert HEAD not in xlane("explain", folder), xlane("explain", folder)


@check("counters_that_could_not_be_written_are_not_those_of_a_killed_process")
def _():
    """The guard's files cannot be moved into place; its events can be written."""
    folder, words = python("unwritten", STEPS % "", args=["--summary"], fresh=True,
                           LD_PRELOAD=os.path.join(PLUGINS, "inject.so"),
                           XLANE_INJECT="rename:EROFS")
    assert "killed" not in words and "at least" not in words, words
    ran = int(re.search(r"; (\d+) executions in 1 process\n", words).group(1))
    assert ran >= 40, words
    assert "incomplete record: the last counters could not be written: it executed %d times" % ran in words, words
    assert "0 steps waited" not in words, words
    for verb, status in (["explain"], 0), (["top", "--once"], 0), (["metrics"], 1):
        text = said(folder, *verb, status=status)
        assert "the last counters could not be written: it executed %d times, and they tell of 0" % ran in text, text
    _, words = python("written", STEPS % "", args=["--summary"])
    assert "0 steps waited" in words and "; %d executions in 1 process\n" % ran in words, words
    assert "incomplete" not in words, words


@check("an_end_that_run_json_lacks_is_read_from_the_events")
def _():
    def unended(old, **more):
        run = {k: v for k, v in json.loads(old).items() if k not in ("ended", "status", "seconds")}
        return json.dumps(dict(run, launcher=GONE, **more)).encode()
    folder = damaged("unended", unended, "run.json")
    assert "run.json could not be written at its end" in said(folder, "explain"), said(folder, "explain")
    assert "with status 0" in said(folder, "top", "--once") and "running" not in said(folder, "top", "--once")
    os.unlink(os.path.join(folder, "receipt.json"))
    for verb, status in (["receipt", "show"], 1), (["classify"], 1):
        assert "it ended with status 0, and run.json could not be written then" in said(folder, *verb, status=status)
    row, = json.loads(xlane("runs", "--json", os.path.dirname(folder)))
    assert row["state"] == "exit status 0" and row["status"] == 0 and not row["complete"], row
    folder = damaged("unended-events", lambda old: b"".join(LINES[:-2]))  # nor its last events
    with open(os.path.join(folder, "run.json"), "r+b") as f:
        old = f.read()
        f.seek(0)
        f.truncate()
        f.write(unended(old))
    os.unlink(os.path.join(folder, "receipt.json"))
    text = xlane("receipt", "show", folder, status=1)
    assert "`xlane run` (process %d) %s" % (GONE, UNENDED) in text


@check("a_full_disk_is_said_once_and_nothing_is_called_killed")
def _():
    full = os.path.join(TMP, "full")
    folder, words = python("full", STEPS % "open(%r, 'w').close()" % full, args=["--summary"],
                           LD_PRELOAD=os.path.join(PLUGINS, "fault.so"), FAULT_FULL=full)
    os.unlink(full)
    assert "killed" not in words and "loaded a PJRT plugin" not in words, words
    assert "the run's folder is not complete, and has no receipt: " in words, words
    assert "No space left on device; make room there" in words, words
    assert words.count("make room") == 1 and "and has no receipt" in words, words
    folder, words = python("fuller", "open(%r, 'w').close()\n" % full + STEPS % "", args=["--summary"], fresh=True,
                           LD_PRELOAD=os.path.join(PLUGINS, "fault.so"), FAULT_FULL=full)
    os.unlink(full)
    assert "what the guard saw, if anything, could not be written: the folder of the run takes no events; run again" \
        in words and "plugin" not in words, words
    for verb in ["explain"], ["metrics"]:
        text = xlane(*verb, folder, status=1)
        assert "attached" not in text and UNENDED in text, text


done()
