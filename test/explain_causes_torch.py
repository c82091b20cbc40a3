"""Recompiles of PyTorch/XLA programs, graded by the true cause: the word, the line, the remedy and the triage
answers; and healthy runs, which answer no each time. Under XLANE_TEST_ALL=1 all of them, else a few; PICK chooses.
Needs build/venv-torch (see torch_xla.py)."""
import json
import os
import re
import sys

from _guarded import ALL, BUILD, HERE, PLUGIN, answers, check, done, run, script, xlane

sys.path.insert(0, os.path.join(HERE, "guard"))
import torch_causes as causes

PYTHON = os.path.join(BUILD, "venv-torch", "bin", "python")
if not os.path.exists(os.path.join(BUILD, "venv-torch", "done")):
    print("skip explain_causes_torch: ./x test all installs torch and torch_xla (7 GB)")
    sys.exit(0)
QUICK = {"last_batch", "lazy_adam", "loss_read_each_step"}
PICK = os.environ.get("PICK")
DEVICE = dict(PJRT_DEVICE="LIBRARY", PJRT_DYNAMIC_PLUGINS="1", PJRT_LIBRARY_PATH=PLUGIN)


def wanted(name):
    return name in PICK.split(",") if PICK else ALL or name in QUICK


def start(name, c, *args):
    env = dict(DEVICE, **({"XLANE_CPU_DEVICES": c["devices"]} if "devices" in c else {}),
               **({"XLA_USE_SPMD": "1"} if "spmd" in c else {}))
    return run(name, PYTHON, script(name + ".py", c["text"]), args=args, **env)[0]


for name, c in causes.CASES.items():
    if not wanted(name):
        continue

    @check("W4_torch_cause_" + name)
    def _():
        folder = start(name, c, "--profile", "debug-recompile")
        text, found = xlane("explain", folder), json.loads(xlane("explain", "--json", folder))
        causes_of, right = {e.get("cause") for e in found if e["of_step"]}, {c["cause"], *c.get("also", ())}
        assert right & causes_of, (causes_of, text)
        remedy = next(e["remedy"] for e in found if e.get("cause") in right and e["of_step"])
        opening = re.split(r"in addition,|^ +\d+\.\d+ s ", text, flags=re.M)[0]
        assert remedy in opening, text
        lines = [n for n, line in enumerate(c["text"].splitlines(), 1) if line.endswith("# LINE")]
        assert not lines or re.search(r"%s\.py:%d\b" % (name, lines[0]), opening), text
        assert answers(text) == c["answers"], text
        assert c.get("says", "") in opening, text
        assert causes_of != {"shape"} or " was added" not in opening, text  # a batch of another size adds no op

for name, c in causes.HEALTHY.items():
    if not wanted(name):
        continue

    @check("W4_torch_healthy_" + name)
    def _():
        text = xlane("explain", start(name, c))
        opening = text.split("in addition,")[0].split("\n\n")[0]
        assert answers(text) == causes.NO and "no recompile" in opening and "times" not in re.sub(r"ran \d+ times", "",
            opening), text

FALLS_BACK = causes.HEAD + """
x = torch.arange(12.0).to(dev)
for i in range(4):
    rows = torch.nonzero(x > 3)  # HERE
    torch_xla.sync()
"""
if ALL or PICK and "falls_back" in PICK:
    @check("W4_torch_fallbacks_are_in_metrics")
    def _():
        folder = start("falls_back", dict(text=FALLS_BACK), "--profile", "debug-light")
        text, found = xlane("metrics", folder), json.loads(xlane("metrics", "--json", folder))
        assert "Counter: aten::nonzero\n  Value: 4\n" in text and found["fallbacks"]["aten::nonzero"] == 4, text
        line = FALLS_BACK.splitlines().index("    rows = torch.nonzero(x > 3)  # HERE") + 1
        assert "falls_back.py:%d reads a tensor's value" % line in xlane("explain", folder), xlane("explain", folder)
        text = xlane("metrics", start("falls_back", dict(text=FALLS_BACK)))
        assert "were not recorded: run it with --profile debug-light" in text and "aten::nonzero" not in text, text

done()
