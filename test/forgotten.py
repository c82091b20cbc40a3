"""What is easily forgotten when something is added, and no compiler sees: an elementwise op's flag, a gradient written
`zero` of an op that has one, rows of the documentation. (A verifier's bad program: test/bad.py; a rung: test/ladder.py.)
docs/architecture.md says how to add each of them."""
import json, os, re, subprocess, sys, tempfile
from _check import check, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
read = lambda *p: open(os.path.join(ROOT, *p), encoding="utf-8").read()
columns = "name text operands results regions types gradient sharding kernel flags".split()
rows = re.findall(r"^OP\(%s\)" % ",".join([r"\s*([^,\n]*?)\s*"] * len(columns)), read("src", "ir", "ops.def"), re.M)
ops = {r[1].strip('"'): dict(zip(columns, r)) for r in rows}
check("the_table_is_read", len(ops) == len(rows) == len(re.findall(r"^OP\(", read("src", "ir", "ops.def"), re.M)) > 150,
      (len(ops), len(rows)))

# An op that works element by element is sharded so; these have regions, effects or no kernel of that kind.
OTHERWISE = {"stablehlo.map", "stablehlo.optimization_barrier", "chlo.constant_like"}
flag = {n for n, o in ops.items() if "ELEMWISE" in o["flags"]}
point = {n for n, o in ops.items() if o["sharding"] == "pointwise" or o["kernel"] in ("unary", "binary")}
check("elementwise_ops_have_the_flag", flag == point - OTHERWISE and OTHERWISE <= point,
      "in one of flag and pointwise: %s" % sorted(flag ^ (point - OTHERWISE)))

# Gradients that are zero: of what has no floats, by its rule of types; of what makes its result of no operand, or of an
# operand's shape; of bits. Of what is left, the function itself says that it is constant in pieces.
NO_FLOATS = {"unary_int", "unary_bits", "binary_int", "binary_bits", "token", "device_id"}
NOT_OF_VALUES = {"stablehlo.constant", "stablehlo.iota", "stablehlo.dynamic_iota", "stablehlo.rng",
                 "stablehlo.rng_bit_generator", "stablehlo.get_dimension_size", "chlo.constant_like",
                 "sdy.sharding_group", "stablehlo.bitcast_convert"}
PIECES = {"stablehlo.ceil", "stablehlo.floor", "stablehlo.round_nearest_afz", "stablehlo.round_nearest_even",
          "stablehlo.sign", "stablehlo.is_finite", "stablehlo.compare", "chlo.is_inf", "chlo.is_neg_inf",
          "chlo.is_pos_inf"}
zero = {n for n, o in ops.items() if o["gradient"] == "zero" and o["types"] not in NO_FLOATS}
check("a_zero_gradient_has_a_reason", zero == NOT_OF_VALUES | PIECES,
      "no reason is known for: %s; not zero any more: %s" % (sorted(zero - NOT_OF_VALUES - PIECES),
                                                             sorted((NOT_OF_VALUES | PIECES) - zero)))
lines, results = [], []
for k, n in enumerate(sorted(PIECES & zero)):
    unary, truth = ops[n]["operands"] == "1", ops[n]["types"] in ("is_finite", "compare")
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
        import struct
        open(tmp + "/x.bin", "wb").write(struct.pack("<6d", *(x + h for x in (-2.3, -0.7, -0.2, 0.4, 1.1, 2.8))))
        open(tmp + "/y.bin", "wb").write(struct.pack("<6d", *(-2.9, 0.1, -0.9, 0.6, 0.2, 7.3)))
        open(tmp + "/p.mlir", "w").write(text)
        p = subprocess.run([os.path.join(ROOT, "build", "xlane"), "exec", tmp + "/p.mlir", "--json",
                            "--input=0=@" + tmp + "/x.bin", "--input=1=@" + tmp + "/y.bin"],
                           capture_output=True, text=True)
        assert p.returncode == 0, p.stderr
        return [o["values"] for o in json.loads(p.stdout)["outputs"]]
    at, more, less = values(0), values(1e-3), values(-1e-3)
    moved = [n for n, a, b, c in zip(sorted(PIECES & zero), at, more, less) if not a == b == c]
    check("what_is_constant_in_pieces_does_not_move", not moved and len(at) == len(results) > 5, moved)

# The documentation.
pages = {n: read("docs", n) for n in os.listdir(os.path.join(ROOT, "docs")) if n.endswith(".md")}
pages["README.md"] = read("README.md")
verbs = [v.replace("_", "-") for v in re.findall(r"^VERB\((\w+)\)", read("src", "cli", "verbs.def"), re.M)]
lost = [v for v in verbs if not any(re.search(r"`[^`\n]*\bxlane %s\b|^\s*(\$ )?xlane %s\b" % (v, v), t, re.M)
                                    for t in pages.values())]
check("every_verb_is_in_the_docs", not lost and len(verbs) > 20, lost)
passes = re.findall(r"^PASS\((\w+)", read("src", "pass", "passes.def"), re.M)
told = re.findall(r"^\| `(\w+)` \|", pages["program.md"].split("| pass |")[-1].split("\n\n")[0], re.M)
check("every_pass_is_in_its_table", told == passes, (told, passes))
sys.exit(end())
