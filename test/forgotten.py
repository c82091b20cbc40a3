"""What is easily forgotten when something is added. The build asks for it (test/complete.awk), before it compiles
anything or when the programs are there: here a verb, a pass, a rung, ops, a setting, a variable, causes and failures are
added with one part left out at a time. And what test/ops.covered calls constant in pieces is tried out.
docs/architecture.md says how to add each of them."""
import json, os, re, shutil, struct, subprocess, sys, tempfile
from _check import check, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
read = lambda p: open(os.path.join(ROOT, p), encoding="utf-8").read()
FILES = {stage: subprocess.run(["make", "-s", "-C", ROOT, "print-complete", "FILES=complete_" + stage],
                               capture_output=True, text=True).stdout.split() for stage in ("code", "rest")}
check("the_build_asks", all(len(f) > 80 for f in FILES.values()), FILES)
USED = "".join("XLANE_%s x\n" % n for n in re.findall(r"^VAR\((\w+)", read("src/base/variables.def"), re.M))


TREE = {}                                             # stage: a folder with those files


def complete(stage, parts):
    """What the build's check says of the tree with these parts, each before a text of a file, or at its end."""
    if stage not in TREE:
        TREE[stage] = tempfile.TemporaryDirectory()
        for f in FILES[stage]:
            os.makedirs(os.path.dirname(os.path.join(TREE[stage].name, f)), exist_ok=True)
            shutil.copyfile(os.path.join(ROOT, f), os.path.join(TREE[stage].name, f))
    texts = {}
    for f, before, new in (p[:3] for p in parts if p[0] != "used"):
        text = texts.get(f) or (read(f) if os.path.exists(os.path.join(ROOT, f)) else "")
        assert before in text, (f, before)
        texts[f] = text.replace(before, new + before, 1) if before else text + new
    for f, text in texts.items():
        with open(os.path.join(TREE[stage].name, f), "w", encoding="utf-8") as h:
            h.write(text)
    p = subprocess.run(["awk", "-v", "stage=" + stage, "-f", os.path.join(ROOT, "test", "complete.awk"), "-",
                        *FILES[stage], *(f for f in texts if f not in FILES[stage])], cwd=TREE[stage].name,
                       input=USED + "".join(p[2] for p in parts if p[0] == "used"), capture_output=True, text=True)
    for f in texts:
        if f in FILES[stage]:
            shutil.copyfile(os.path.join(ROOT, f), os.path.join(TREE[stage].name, f))
        else:
            os.unlink(os.path.join(TREE[stage].name, f))
    return p.returncode, p.stdout + p.stderr


def asks(what, stage, *parts):
    """Complete with all parts. Without one of those that have a fourth field, this is said, and nothing else."""
    out = complete(stage, parts)
    check(what + "_with_all_parts", out == (0, ""), out)
    for part in (p for p in parts if len(p) > 3):
        status, out = complete(stage, [p for p in parts if p is not part])
        check("%s: %s" % (what, part[3]), status == 1 and out.count("\n") == 1 and part[3] in out, out)


NEW = "un" + "heard"                                  # a word that no script has
FILE = "src/cli/" + NEW + ".c"
VERB = [(FILE, "", "XL_VERB(%s) = {\n" % NEW), ("src/cli/verbs.def", "VERB(try)", f"VERB({NEW})\n")]
asks("verb", "code", (*VERB[0], f"verbs.def: error: VERB({NEW}) has no verb: write {FILE}"),
     (FILE, "", f'    .name = "{NEW}",\n', f'{FILE}: error: XL_VERB({NEW}) is called "": write .name = "{NEW}"'),
     (FILE, "", "    .run = 0,\n", f"XL_VERB({NEW}) has no .run"),
     (FILE, "", '    .args = "[--all] NAME",\n', f"XL_VERB({NEW}) has no .args"),
     (FILE, "", "    .max = 1,\n", f"XL_VERB({NEW}) has no .max, and its usage line has arguments: NAME"),
     (FILE, "", "    .min = 1,\n", f"XL_VERB({NEW}) has no .min, and its usage line asks for arguments: NAME"),
     (FILE, "", "};\n"),
     (*VERB[1], f"XL_VERB({NEW}) has no row: write VERB({NEW}) in src/cli/verbs.def"))
asks("verb_with_options", "code", VERB[0], (FILE, "", f'    .name = "{NEW}",\n    .run = 0,\n    .args = "[--all]",\n'),
     (FILE, "", "    .opts = opts,\n", f"XL_VERB({NEW}) has no .opts"), (FILE, "", "};\n"), VERB[1],
     (FILE, "", "static const xl_opt opts[] = {\n"))
asks("verb", "rest", *VERB,
     (FILE, "", "    .help = 0,\n", f"XL_VERB({NEW}) has no .help"),
     (FILE, "", "    .example = 0,\n", f"XL_VERB({NEW}) has no .example"),
     (FILE, "", "    .no_json = 0,\n", f"XL_VERB({NEW}) takes --json and never reads cli->json"),
     (FILE, "", "};\n"),
     ("README.md", "**xlane", f"`xlane {NEW}`\n", f"no page shows `xlane {NEW}`"),
     ("test/cases.py", "import", f'run("{NEW}")\n', f'no script calls "{NEW}"'))
asks("verb_with_json", "rest", *VERB, (FILE, "", "    .help = 0,\n    .example = 0,\n    if (cli->json)\n};\n"),
     ("README.md", "**xlane", f"`xlane {NEW}`\n"), ("test/cases.py", "import", f'run("{NEW}")\n'),
     ("test/cases.py", "import", f'run("{NEW}", "--json")\n', f'no script reads what "{NEW}" writes with "--json"'))
out = complete("rest", [(f, before, new) for f, before, new in [p[:3] for p in VERB] + [
    (FILE, "", "    .help = 0,\n    .example = 0,\n    .no_json = 0,\n};\n"),
    ("README.md", "**xlane", f"`xlane {NEW}`\n"),
    ("test/cases.py", "import", f'd.get("{NEW}", d["{NEW}"], "{NEW}" in d, d in ("x", "{NEW}"), {{"{NEW}": 1}})\n')]])
check("verb: a script with that word", out[0] == 1 and f'no script calls "{NEW}"' in out[1], out)
out = complete("code", [("src/pass/passes.def", "PASS(dce", f"PASS({NEW})\n")])
check("pass: on the device or not", f"write PASS({NEW}, ASKED), or PASS({NEW}, DEVICE)" in out[1], out)
PASS = ("src/pass/passes.def", "PASS(dce", f"PASS({NEW}, ASKED)\n")
asks("pass", "code", (*PASS, f"xl_pass_{NEW} has no row: write PASS({NEW}, ASKED)"),
     ("src/pass/pipeline.c", " X(dce)\n", f" X({NEW})", f"pipeline.c: error: ORDER has no X({NEW})"),
     (f"src/pass/{NEW}.c", "", f"xl_error *xl_pass_{NEW}(xl_module *m)\n",
      f"passes.def: error: PASS({NEW}) has no pass: write xl_pass_{NEW} in src/pass/{NEW}.c"))
asks("pass", "rest", PASS,
     (f"src/pass/{NEW}.c", "", "/* needs: keeps: breaks: */\n", f"src/pass/{NEW}.c: error: its first comment must say"),
     ("src/pass/pass_test.c", "#include", f'becomes("{NEW},dce")\n', "no test of the pass " + NEW),
     ("src/pass/pass_test.c", "#include", f'/* {NEW} */ "%0 = stablehlo.{NEW} %a"\n'),
     ("docs/program.md", "| `dce`", f"| `{NEW}` | |\n", f"no row for `{NEW}`"))
RUNG = "RUNG(\"fresh\", \"F\", \"x\", %s, 1.5f, 1.2f)\n"
asks("rung", "rest", ("src/train/rungs.def", "RUNG(\"dense\"", RUNG % "TRAIN"),
     ("docs/bring-up.md", "| dense", "| fresh | |\n", "does not name fresh"))
out = complete("rest", [("src/train/rungs.def", 'RUNG("dense"', 'RUNG("dense", "D", "x", TRAIN, 1, 1)\n')])
empty = complete("code", [("src/train/rungs.def", 'RUNG("dense"', RUNG.replace('"x"', '""') % "TRAIN")])
check("rung: what it adds", empty[0] == 1 and "the rung fresh does not say what it adds" in empty[1], empty)
check("rung: its losses are 1", out[0] == 1 and "the losses of dense are 1: build/venv/bin/python" in out[1], out)
out = complete("rest", [("src/train/rungs.def", "RUNG(\"dense\"", RUNG % "TRAIN"),
                        ("docs/bring-up.md", "| scan", "| fresh | |\n")])
check("rung: its place in the page", out[0] == 1 and "not in the order of src/train/rungs.def: fresh dense" in out[1],
      out)
asks("rung_of_a_new_kind", "code",
     ("src/train/rungs.def", "RUNG(\"dense\"", RUNG % "TWICE", "rungs.def: error: no rung is of kind TWICE"),
     ("src/cli/ladder.c", "    case XL_RUNG_PROBE:", "    case XL_RUNG_TWICE:\n", "its case in why_skipped"),
     ("src/train/rung.h", "XL_RUNG_MESH", "XL_RUNG_TWICE, ", "rung.h: error: the rung fresh is of kind TWICE"),
     ("src/train/rung.c", "    case XL_RUNG_MESH:", "    case XL_RUNG_TWICE:\n", "its case in xl_rung_run"))
OP = "OP(FRESH, \"stablehlo.fresh\", 1, 1, 0, %s, %s, %s, %s, %s)\n"
PLACE, COVERED = "OP(ABS,", "\ngradient stablehlo.abs "
asks("op", "code", ("src/ir/ops.def", PLACE, OP % ((NEW,) * 3 + ("unary", "ELEMWISE"))),
     ("src/ir/infer/infer_math.c", "RULE(", f"RULE({NEW})\n", f"no xl_infer_{NEW}: write RULE({NEW}) in src/ir/infer/"),
     ("src/pass/grad_math.c", "RULE(abs", f"RULE({NEW})\n",
      f"no xl_grad_{NEW}: write RULE({NEW}) in src/pass/grad_*.c"),
     ("src/pass/shard_rule.c", "RULE(pointwise", f"RULE({NEW})\n", f"no xl_shard_{NEW}: write RULE({NEW})"),
     ("src/cpu/kernel/ew.def", "EW(ABS,", "EW(FRESH, abs, none, none)\n", "ew.def: error: no row for stablehlo.fresh"))
for flag in "ELEMWISE", "ELEMWISE | FOLDS":
    out = complete("code", [("src/ir/ops.def", PLACE, OP % ("unary_float", "abs", "pointwise", "unary", flag)),
                            ("src/cpu/kernel/ew.def", "EW(ABS,", "EW(FRESH, abs, none, none)\n"),
                            ("src/pass/fold.c", "    case XL_OP_FLOOR:", "    case XL_OP_FRESH: return false;\n")])
    check("op: " + flag, out == (0, "") if "FOLDS" in flag else
          out[0] == 1 and out[1].count("\n") == 1 and "stablehlo.fresh has its case in src/pass/fold.c" in out[1], out)
out = complete("code", [("src/cpu/kernel/ew.def", "EW(ABS,", "EW(FRESH, abs, none, none)\n"),
                        ("src/pass/grad_math.c", "RULE(abs", f"RULE({NEW})\n")])
check("op: no row of ops.def", out[0] == 1 and "EW(FRESH) is of no op: write OP(FRESH, ...)" in out[1] and
      f"src/pass/grad_math.c: error: RULE({NEW}) is of no row" in out[1] and out[1].count("\n") == 2, out)
asks("kernel", "code", ("src/ir/ops.def", PLACE, OP % ("unary_float", "abs", "pointwise", NEW, "ELEMWISE")),
     ("src/cpu/kernel/control.c", "xl_error *xl_kernel_none", f"xl_error *xl_kernel_{NEW}(xl_planner *p)\n",
      f"no xl_kernel_{NEW}: write it in src/cpu/kernel/"))
VALUE = ("test/ops.covered", COVERED, "\nvalue stablehlo.fresh fresh_one",
         "no case compares the values of stablehlo.fresh")
CASE = {f: (f"test/{f}.py", "import", '"fresh_one"\n', f"test/{f}.py: error: nothing is called fresh_one here")
        for f in ("jax_ops", "grad_fd")}
asks("op", "rest", ("src/ir/ops.def", PLACE, OP % ("new_rule", "add", "pointwise", "unary", "ELEMWISE")),
     ("test/ops.covered", COVERED, "\nrefused new_rule stablehlo.fresh", "no bad program for the rule new_rule"),
     ("test/verifier_errors.py", "import", '"fresh"\n', "verifier_errors.py: error: nothing is called fresh here"),
     CASE["grad_fd"], CASE["jax_ops"],
     ("test/ops.covered", COVERED, "\ngradient stablehlo.fresh fresh_one",
      "no case for the gradient of stablehlo.fresh"), VALUE)
asks("op_without_gradient", "rest",
     ("src/ir/ops.def", PLACE, OP % ("unary_float", "zero", "pointwise", "unary", "ELEMWISE")),
     ("test/ops.covered", COVERED, "\nprogram stablehlo.fresh fresh_one", "no program has stablehlo.fresh"),
     ("test/corpus.py", "import", '"fresh_one"\n', "corpus.py: error: nothing is called fresh_one here"),
     CASE["jax_ops"], VALUE)
LOOP = ("src/cpu/kernel/ew.def", "EW(ABS,", "EW(FRESH, abs, none, none)\n")
asks("op_of_zero_gradient", "code", LOOP,
     ("src/ir/ops.def", PLACE, OP % ("unary_float", "zero", "pointwise", "unary", "ELEMWISE")),
     ("test/ops.covered", COVERED, "\nzero stablehlo.fresh pieces", "stablehlo.fresh has the gradient `zero`"))
asks("op_without_flag", "code", LOOP,
     ("src/ir/ops.def", PLACE, OP % ("unary_float", "add", "pointwise", "unary", "0")),
     ("test/ops.covered", COVERED, "\nshaped stablehlo.fresh a reason", "but has no ELEMWISE flag"))
asks("op_without_kernel", "code", ("src/ir/ops.def", PLACE, OP % ("unary_float", "add", "replicate", "none", "0")),
     ("test/ops.covered", COVERED, "\nunserved stablehlo.fresh a reason", "stablehlo.fresh has the kernel `none`"))
asks("strip_op", "code", ("src/cpu/tile/strip.def", "UNARY(ABS,", "UNARY(FRESH, x)\n"),
     ("src/cpu/tile/tile_code.c", "    { XL_OP_ABS,", "    { XL_OP_FRESH, { S(FRESH), N, N, N } },\n",
      "tile_code.c: error: nothing uses FRESH of strip.def"))
asks("op_of_ours", "rest", ("src/ir/ops.def", PLACE, OP % ("unary_float", "add", "pointwise", "unary", "ELEMWISE")),
     ("test/ops.covered", COVERED, "\ngradient stablehlo.fresh - test/cases/maximum_keeps_nan.mlir\n"
      "value stablehlo.fresh cases/maximum_keeps_nan.mlir"),
     ("test/cases/maximum_keeps_nan.mlir", "", "// gradient: 0=1\n",
      "maximum_keeps_nan.mlir: error: no line `// gradient:`"),
     ("test/cases/maximum_keeps_nan.mlir", "", "  // stablehlo.fresh has a gradient\n  %x = chlo.fresh %y\n"),
     ("test/cases/maximum_keeps_nan.mlir", "", "  %z = stablehlo.fresh %y\n"))
out = complete("rest", [("src/ir/ops.def", PLACE, (OP % ("unary_float", "add", "pointwise", "unary", "ELEMWISE"))
                         .replace("stablehlo", "xlane"))])
check("op_of_ours: where its test is", out[0] == 1 and out[1].count("test/cases/: error: no case") == 2, out)
out = complete("rest", [("test/ops.covered", "value stablehlo.abs ",
                         "value stablehlo.abs cases/maximum_keeps_nan.mlir\n#"),
                        ("test/cases/maximum_keeps_nan.mlir", "", "// stablehlo.abs\n%x = chlo.abs %y\n")])
check("op: a program that only speaks of it",
      out[0] == 1 and "maximum_keeps_nan.mlir: error: nothing is called stablehlo.abs" in out[1], out)
out = complete("rest", [("test/ops.covered", "value chlo.zeta zeta", "value chlo.fresh cases/none.mlir\n")])
check("op: a program that is not there",
      out[0] == 1 and "test/cases/none.mlir: error: no such file, and test/ops.covered:" in out[1], out)
asks("setting", "rest", ("src/lane/profile.def", "SETTING(cache,  dir",
                         'SETTING(cache, fresh, INT, "XLANE_CACHE", LANE, "", "what it is")\n'),
     ("docs/profiles.md", "| `cache.dir`", "| `cache.fresh` | `XLANE_CACHE` | what it is |\n",
      "profiles.md: error: no such row, write it: | `cache.fresh` | `XLANE_CACHE` | what it is |"))
V = "XLANE_" + "FRESH"                                # in pieces: it has no row
asks("variable", "rest", ("src/base/variables.def", "VAR(CACHE,", 'VAR(FRESH, USER, "1", "what it is")\n',
                          f"src/cli/x.c: error: {V} has no row: add one to src/base/variables.def"),
     ("docs/variables.md", "| `XLANE_CACHE`", f"| `{V}` | `1` | what it is |\n",
      f"no row for {V} with these words: python3 test/variables.py --fix"),
     ("used", "", V + " src/cli/x.c\n", f"a row for {V}, which nothing reads"))
asks("cause", "rest", ("src/lane/cause.def", 'CAUSE("dtype"', f'CAUSE("{NEW}", NONE, "do it")\n'),
     ("docs/recompiles.md", "## While it runs", f"`{NEW}`\n", f"the list of causes has no `{NEW}`"),
     ("test/guard/causes.py", "plant(\"ragged_epoch", f'plant("it", "{NEW}", NO)\n',
      f"causes.py: error: no program has the cause {NEW}"))
asks("failure", "rest", ("src/lane/retry.def", "CAUSE(vmem,", f'CAUSE({NEW}, ROOT, 0, "", "x", FIX, GRAPH, "y")\n'),
     ("test/errors.yaml", "- { name: e1000_tpu", f"- {{ cause: {NEW} }}\n", f"no text of the failure {NEW}"))
asks("class_of_a_probe", "rest", ("src/lane/probe.def", "CLASS(ABI", f'CLASS(X, "{NEW}", "y")\n'),
     ("docs/probe.md", "", f"`{NEW}`\n", f"nothing says what `{NEW}` is"),
     ("test/probe.py", "import", f'check("{NEW}")\n', f'no probe ends in "{NEW}"'))
asks("key_of_a_configuration", "rest", ("src/train/config.c", '    { "device", STR',
                                        f'    {{ "{NEW}.{NEW}", INT, AT(x) }},\n'),
     ("docs/train.md", "", f"`{NEW}`\n", f"nothing says what {NEW}.{NEW} sets"))

# Constant in pieces: the same values a little to both sides.
TABLE = {r[0]: (r[1], r[2]) for r in re.findall(r'^OP\(\w+,\s*"([^"]+)",\s*(\w+),\s*\w+,\s*\w+,\s*(\w+),', 
                                                        read("src/ir/ops.def"), re.M)}
PIECES = sorted(re.findall(r"^zero (\S+) pieces$", read("test/ops.covered"), re.M))
lines, results = [], []
for k, n in enumerate(PIECES):
    unary, truth = TABLE[n][0] == "1", TABLE[n][1] in ("is_finite", "compare")
    args, types = ("%x", "tensor<6xf64>") if unary else ("%x, %y", "tensor<6xf64>, tensor<6xf64>")
    how = " <{comparison_direction = #stablehlo<comparison_direction LT>}>" if n.endswith("compare") else ""
    out = "tensor<6xi1>" if truth else "tensor<6xf64>"
    lines.append('  %%%d = "%s"(%s)%s : (%s) -> %s' % (k, n, args, how, types, out))
    results.append(("%%%d" % k, out))
text = ("func.func public @main(%%x: tensor<6xf64>, %%y: tensor<6xf64>) -> (%s) {\n%s\n  return %s : %s\n}\n"
        % (", ".join(t for _, t in results), "\n".join(lines), ", ".join(v for v, _ in results),
           ", ".join(t for _, t in results)))
with tempfile.TemporaryDirectory() as tmp:
    def values(h):
        open(tmp + "/x.bin", "wb").write(struct.pack("<6d", *(x + h for x in (-2.3, -0.7, -0.2, 0.4, 1.1, 2.8))))
        open(tmp + "/y.bin", "wb").write(struct.pack("<6d", *(-2.9, 0.1, -0.9, 0.6, 0.2, 7.3)))
        open(tmp + "/p.mlir", "w").write(text)
        p = subprocess.run([os.path.join(ROOT, "build", "xlane"), "exec", tmp + "/p.mlir", "--json",
                            "--input=0=@" + tmp + "/x.bin", "--input=1=@" + tmp + "/y.bin"],
                           capture_output=True, text=True)
        assert p.returncode == 0, p.stderr
        return [o["values"] for o in json.loads(p.stdout)["outputs"]]
    at, more, less = values(0), values(1e-3), values(-1e-3)
    moved = [n for n, a, b, c in zip(PIECES, at, more, less) if not a == b == c]
    check("what_is_constant_in_pieces_does_not_move", not moved and len(at) == len(results) > 5, moved)

sys.exit(end())
