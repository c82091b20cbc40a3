"""Fresh causes of recompiles, graded by the true cause: the word, the line, the remedy and the triage answers;
and healthy runs, which answer no each time. A few of each in the plain run, all of them under XLANE_TEST_ALL=1 (set
PICK to choose)."""
import json
import os
import re
import sys

from _guarded import ALL, HERE, answers, check, done, python, xlane

sys.path.insert(0, os.path.join(HERE, "guard"))
import causes

QUICK = {"ragged_epoch", "rate_as_number", "positional_then_keyword", "caches_cleared_in_each_epoch",
         "config_made_in_each_step", "rate_is_static", "step_is_static", "cache_by_concatenation", "sweep_over_widths", "explicit_mesh",
         "replay_in_a_list", "rate_as_a_weakly_typed_array", "bias_correction", "late_mask", "jit_switched_off", "eager_gradient",
         "inference_mode_of_equinox", "dropout_of_flax", "rate_of_equinox", "counter_of_equinox", "list_of_arrays_grows",
         "rate_of_equinox_as_an_array", "clipping_begins", "history_grows", "evaluation_beside", "helpers_of_many_shapes", "both_at_once",
         "one_wide_scalar", "loss_scale_in_a_static_field", "restored_step_count", "restored_to_a_device"}
PICK = os.environ.get("PICK")
AGAIN = "identical", "mapped", "names", "cleared", "keywords", "anew", "unused", "unread", "shared", "weakly"
CLAIMS = {"lengthened": "elements of argument", "draws": "draws random numbers", "filtered": "(a Python float) took",
          "weakly": "of the same type when called at ", "committed": "committed to a device"}
DONATES = "from jax._src.interpreters import mlir\nmlir._platforms_with_donation.append('xlane')\n"
wrong = []


def wanted(name):
    return name in PICK.split(",") if PICK else ALL or name in QUICK


def start(name, c):
    env = {"XLANE_CPU_DEVICES": c["devices"]} if "devices" in c else {}
    return python(name, (DONATES if c.get("wheel") else "") + c["text"], **env)[0]


for name, c in causes.CASES.items():
    if not wanted(name):
        continue

    @check("W4_cause_" + name)
    def _():
        folder = start(name, c)
        text, found = xlane("explain", folder), json.loads(xlane("explain", "--json", folder))
        causes_of = {e.get("cause") for e in found if e["of_step"]}
        right = {c["cause"], *c.get("also", ())}             # some causes have two true names
        assert "words" in c or right & causes_of, (causes_of, text)
        remedy = "words" if "words" in c else next(e["remedy"] for e in found if e.get("cause") in right
                                                   and (e["of_step"] or c["cause"] == "eager"))
        assert c.get("words", remedy) in text, text
        lines = [n for n, line in enumerate(((DONATES if c.get("wheel") else "") + c["text"]).splitlines(), 1)
                 if line.endswith("# LINE")]
        opening = re.split(r"in addition,|^ +at  module", text, flags=re.M)[0]
        assert not lines or re.search(r"%s\.py:%d\b" % (name, lines[0]), opening), text
        assert answers(text) == c["answers"], text
        assert ("traced again?           yes" in text) == (c["cause"] in AGAIN or
            c["cause"] == "config" and "traced again when" in text), text
        assert "`_fun`" not in text and "donate[" not in text and "mark_sharding" not in text, text
        assert c.get("says", "") in text, text
        assert ("\n    as a result: " + c.get("resulting", "") in opening) == ("resulting"
            in causes_of) == ("resulting" in c), text
        for word, claim in CLAIMS.items():
            assert (claim in text) == (word == c["cause"]), (word, text)
        verdict = [line for line in opening.splitlines() if not line.endswith("no recompile")
                   and not line.startswith("single ops ") and ": the host waited " not in line and not line.startswith("    as a result: ")]
        assert "words" in c or len(verdict) == 1 or c["answers"].count("yes") > 1 or all(remedy in v for v
            in verdict), text

for name, c in causes.HEALTHY.items():
    if not wanted(name):
        continue

    @check("W4_healthy_" + name)
    def _():
        text = xlane("explain", start(name, c))
        assert answers(text) == causes.NO and " compiled once, ran " in text.splitlines()[0] and text.splitlines()[0].endswith("no recompile"), text

done()
