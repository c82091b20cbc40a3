"""What is easily forgotten when something is added, and no compiler sees. The build asks for it (test/complete.awk): here
a verb, a pass, a rung and ops are added with one part left out at a time. And what test/ops.covered calls constant in
pieces is tried out. docs/architecture.md says how to add each of them."""
import json, os, re, struct, subprocess, sys, tempfile
from _check import check, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
read = lambda p: open(os.path.join(ROOT, p), encoding="utf-8").read()
FILES = subprocess.run(["make", "-s", "-C", ROOT, "print-complete"], capture_output=True, text=True).stdout.split()
check("the_build_asks", len(FILES) > 100, FILES)


def complete(parts):
    """What the build's check says of the tree with these parts, each before a text of a file."""
    with tempfile.TemporaryDirectory() as tmp:
        for f in FILES:
            os.makedirs(os.path.dirname(os.path.join(tmp, f)), exist_ok=True)
            text = read(f)
            for _, before, new in (p[:3] for p in parts if p[0] == f):
                assert before in text, (f, before)
                text = text.replace(before, new + before, 1)
            with open(os.path.join(tmp, f), "w", encoding="utf-8") as h:
                h.write(text)
        p = subprocess.run(["awk", "-f", os.path.join(ROOT, "test", "complete.awk"), *FILES], cwd=tmp,
                           capture_output=True, text=True)
        return p.returncode, p.stdout + p.stderr


def asks(what, *parts):
    """Complete with all parts. Without one of those that have a fourth field, this is said, and nothing else."""
    out = complete(parts)
    check(what + "_with_all_parts", out == (0, ""), out)
    for part in (p for p in parts if len(p) > 3):
        status, out = complete([p for p in parts if p is not part])
        check("%s: %s" % (what, part[3]), status == 1 and out.count("\n") == 1 and part[3] in out, out)


HERE, NEW = "#include", "un" + "heard"                # of a file that has no verb; a word that no script has
asks("verb", ("src/cli/verbs.def", "VERB(try)", f"VERB({NEW})\n"), ("src/cli/chart.c", HERE, "XL_VERB(%s) = {\n" % NEW),
     ("src/cli/chart.c", HERE, "    .help = 0,\n", f"XL_VERB({NEW}) has no .help"),
     ("src/cli/chart.c", HERE, "    .example = 0,\n", f"XL_VERB({NEW}) has no .example"),
     ("src/cli/chart.c", HERE, "    .no_json = 0,\n", f"XL_VERB({NEW}) takes --json and never reads cli->json"),
     ("src/cli/chart.c", HERE, "};\n"),
     ("README.md", "**xlane", f"`xlane {NEW}`\n", f"no page shows `xlane {NEW}`"),
     ("test/cases.py", "import", f'run("{NEW}")\n', f'no script calls "{NEW}"'))
asks("pass", ("src/pass/passes.def", "PASS(dce", "PASS(calls, ASKED)\n"),
     ("src/pass/calls.c", "/*", "/* needs: keeps: breaks: */\n", "src/pass/calls.c: error: its first comment must say"),
     ("src/pass/pass_test.c", "#include", "calls\n", "no test of the pass calls"),
     ("docs/program.md", "| `dce`", "| `calls` | |\n", "no row for `calls`"))
asks("rung", ("src/train/rungs.def", "RUNG(\"dense\"", "RUNG(\"fresh\", \"F\", \"\", TRAIN, 1.5f, 1.2f)\n"),
     ("docs/bring-up.md", "| dense", "| fresh | |\n", "does not name fresh"))
out = complete([("src/train/rungs.def", 'RUNG("dense"', 'RUNG("dense", "D", "", TRAIN, 1, 1)\n')])
check("rung: its losses are 1", out[0] == 1 and "the losses of dense are 1: build/venv/bin/python" in out[1], out)
OP = "OP(FRESH, \"stablehlo.fresh\", 1, 1, 0, %s, %s, pointwise, unary, %s)\n"
VALUE = ("test/ops.covered", "\ngradient stablehlo.abs ", "\nvalue stablehlo.fresh case",
         "no case compares the values of stablehlo.fresh")
PLACE, COVERED = "OP(ABS,", "\ngradient stablehlo.abs "
asks("op", ("src/ir/ops.def", PLACE, OP % ("new_rule", "add", "ELEMWISE")),
     ("test/ops.covered", COVERED, "\nrefused new_rule stablehlo.fresh", "no bad program for the rule new_rule"),
     ("test/ops.covered", COVERED, "\ngradient stablehlo.fresh case",
      "no case for the gradient of stablehlo.fresh"), VALUE)
asks("op_without_gradient", ("src/ir/ops.def", PLACE, OP % ("unary_float", "zero", "ELEMWISE")),
     ("test/ops.covered", COVERED, "\nprogram stablehlo.fresh some", "no program has stablehlo.fresh"),
     ("test/ops.covered", COVERED, "\nzero stablehlo.fresh pieces", "stablehlo.fresh has the gradient `zero`"), VALUE)
asks("op_without_flag", ("src/ir/ops.def", PLACE, OP % ("unary_float", "add", "0")),
     ("test/ops.covered", COVERED, "\ngradient stablehlo.fresh case"), VALUE[:3],
     ("test/ops.covered", COVERED, "\nshaped stablehlo.fresh a reason", "but has no ELEMWISE flag"))

# The functions that a row of ops.def names: where one does not exist, the table that has it does not link.
with tempfile.TemporaryDirectory() as tmp:
    os.mkdir(tmp + "/ir")
    with open(tmp + "/ir/ops.def", "w", encoding="utf-8") as h:
        h.write(read("src/ir/ops.def").replace("OP(ABS,", OP.replace("pointwise, unary", "%s, %s")
                                               % ((NEW,) * 4 + ("0",)) + "OP(ABS,", 1))
    for table, function in (("ir/infer/infer.c", "xl_infer_unheard"), ("pass/grad.c", "xl_grad_unheard"),
                            ("pass/shard_rule.c", "xl_shard_unheard"), ("cpu/plan/make_plan.c", "xl_kernel_unheard")):
        p = subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-c", "-w", "-I" + tmp, "-I" + ROOT + "/src",
                            "-I" + ROOT + "/include", "-o", tmp + "/o", ROOT + "/src/" + table],
                           capture_output=True, text=True)
        p = p if p.returncode else subprocess.run(["nm", "-u", tmp + "/o"], capture_output=True, text=True)
        check("op: without " + function + " nothing links", function in p.stdout.split(), p.stdout + p.stderr)

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
