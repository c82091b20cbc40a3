"""Programs with one mistake each: the verifier names it, and jaxlib's own verifier refuses the program too.

Each row: what is wrong, the op, its operand types, its result types, a part of the message, and attributes and regions.
usage: python test/verifier_errors.py        (B=build folder)
"""
import os
import re
import subprocess
import sys
import tempfile

from _covered import covered

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(os.environ.get("B", os.path.join(ROOT, "build")), "xlane")
CASES = []
OURS = set()  # rows where we are stricter than jaxlib, which follow the specification all the same


def ty(t):
    return t if t.startswith(("!", "tuple")) else f"tensor<{t}>"


def program(op, ins, outs, attrs="", regions=(), extra=""):
    args = ", ".join(f"%a{i}: {ty(t)}" for i, t in enumerate(ins))
    use = ", ".join(f"%a{i}" for i in range(len(ins)))
    sig = ", ".join(ty(t) for t in ins)
    res = ", ".join(ty(t) for t in outs)
    left = f"%r:{len(outs)} = " if len(outs) > 1 else "%r = " if outs else ""
    ret = ", ".join(f"%r#{i}" for i in range(len(outs))) if len(outs) > 1 else "%r" if outs else ""
    regs = f" ({', '.join(regions)})" if regions else ""
    props = f" <{{{attrs}}}>" if attrs else ""
    name = op if "." in op else "stablehlo." + op
    return (f"module {{\nfunc.func public @main({args}) -> ({res}) {{\n"
            f'  {left}"{name}"({use}){props}{regs} : ({sig}) -> ({res}) loc("train.py":41:3)\n'
            f"  return {ret}{' : ' + res if outs else ''}\n}}\n{extra}}}\n")


def bad(what, op, ins, outs, part, attrs="", regions=(), extra="", ours=False):
    outs = [outs] if isinstance(outs, str) else list(outs)
    CASES.append((what, program(op, ins, outs, attrs, regions, extra), part))
    if ours:
        OURS.add(what)


def text(what, src, part, ours=False):
    CASES.append((what, src, part))
    if ours:
        OURS.add(what)


def region(types, op=None, result=None, out=None):
    """A computation over scalars: op of the first two arguments, or one of them."""
    args = ", ".join(f"%x{i}: {ty(t)}" for i, t in enumerate(types))
    if op == "compare":
        body = (f'  %z = "stablehlo.compare"(%x0, %x1) <{{comparison_direction = #stablehlo<comparison_direction LT>}}> : '
                f'({ty(types[0])}, {ty(types[1])}) -> tensor<i1>\n  "stablehlo.return"(%z) : (tensor<i1>) -> ()\n')
    elif op:
        body = f'  %z = "stablehlo.{op}"(%x0, %x1) : ({ty(types[0])}, {ty(types[1])}) -> {ty(out or types[0])}\n  "stablehlo.return"(%z) : ({ty(out or types[0])}) -> ()\n'
    else:
        n = result if result is not None else 1
        body = f'  "stablehlo.return"({", ".join(f"%x{i}" for i in range(n))}) : ({", ".join(ty(t) for t in types[:n])}) -> ()\n'
    return "{\n" + (f"^bb0({args}):\n" if types else "") + body + "}"


def dims(**kw):
    return ", ".join(f"{k} = array<i64: {', '.join(map(str, v))}>" if v else f"{k} = array<i64>" for k, v in kw.items())


F = "4x8xf32"
ADD = region(["f32", "f32"], "add")

# -- elementwise
bad("abs of a boolean", "abs", ["4xi1"], "4xi1", "must hold signed numbers")
bad("abs of unsigned", "abs", ["4xui8"], "4xui8", "must hold signed numbers")
bad("abs of complex stays complex", "abs", ["4xcomplex<f32>"], "4xcomplex<f32>",
    "result 0 is 4xcomplex<f32>, expected 4xf32")
bad("sine of integers", "sine", ["4xi32"], "4xi32", "must hold floats or complex numbers, not i32")
bad("floor of complex", "floor", ["4xcomplex<f32>"], "4xcomplex<f32>", "must hold floats")
bad("popcnt of floats", "popcnt", ["4xf32"], "4xf32", "must hold integers")
bad("not of floats", "not", ["4xf32"], "4xf32", "must hold booleans or integers")
bad("negate of booleans", "negate", ["4xi1"], "4xi1", "must hold numbers")
bad("sign of unsigned", "sign", ["4xui32"], "4xui32", "must hold signed numbers")
bad("another result shape", "tanh", ["4xf32"], "5xf32", "result 0 is 5xf32, expected 4xf32")
bad("another result type", "tanh", ["4xf32"], "4xbf16", "result 0 is 4xbf16, expected 4xf32")
bad("real of integers", "real", ["4xi32"], "4xi32", "must hold floats or complex numbers")
bad("is_finite of integers", "is_finite", ["4xi32"], "4xi1", "must hold floats")
bad("is_finite gives booleans", "is_finite", ["4xf32"], "4xf32", "expected 4xi1")
bad("convert changes the shape", "convert", ["4xf32"], "5xi32", "the shapes differ")
bad("bitcast to another width, same shape", "bitcast_convert", ["4xf32"], "4xi8", "needs one more dimension")
bad("bitcast with a wrong last dimension", "bitcast_convert", ["4xf32"], "4x2xi8", "must make up the width")
bad("reduce_precision without exponent", "reduce_precision", ["4xf32"], "4xf32", "exponent_bits is 0",
    "exponent_bits = 0 : i32, mantissa_bits = 2 : i32")
bad("reduce_precision with a negative mantissa", "reduce_precision", ["4xf32"], "4xf32", "mantissa_bits is -1",
    "exponent_bits = 5 : i32, mantissa_bits = -1 : i32")
bad("add of two shapes", "add", ["4xf32", "5xf32"], "4xf32", "operand shapes differ, 4xf32 and 5xf32 at train.py:41")
bad("add of two ranks", "add", ["4xf32", "4x1xf32"], "4xf32", "operand ranks differ")
bad("add of two types", "add", ["4xf32", "4xi32"], "4xf32", "operand types differ, 4xf32 and 4xi32")
bad("and of floats", "and", ["4xf32", "4xf32"], "4xf32", "must hold booleans or integers")
bad("shift of booleans", "shift_left", ["4xi1", "4xi1"], "4xi1", "must hold integers")
bad("subtract of booleans", "subtract", ["4xi1", "4xi1"], "4xi1", "must hold numbers")
bad("atan2 of integers", "atan2", ["4xi32", "4xi32"], "4xi32", "must hold floats or complex")
bad("complex of halves", "complex", ["4xf16", "4xf16"], "4xcomplex<f32>", "parts must be f32 or f64")
bad("compare gives booleans", "compare", ["4xf32", "4xf32"], "4xi32", "expected 4xi1",
    "comparison_direction = #stablehlo<comparison_direction LT>")
bad("compare integers as floats", "compare", ["4xi32", "4xi32"], "4xi1", "compare_type FLOAT does not go with i32",
    "compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction LT>", ours=True)
bad("order of complex numbers", "compare", ["4xcomplex<f32>"] * 2, "4xi1", "complex numbers have no order",
    "comparison_direction = #stablehlo<comparison_direction LT>", ours=True)
bad("select by floats", "select", ["4xf32", "4xf32", "4xf32"], "4xf32", "must hold booleans")
bad("select of two shapes", "select", ["4xi1", "4xf32", "5xf32"], "4xf32", "the two values differ")
bad("select by another shape", "select", ["3xi1", "4xf32", "4xf32"], "4xf32", "the predicate is 3xi1")
bad("clamp by another type", "clamp", ["i32", "4xf32", "f32"], "4xf32", "the types differ")
bad("clamp by another shape", "clamp", ["f32", "4xf32", "3xf32"], "4xf32", "max is 3xf32, expected a scalar")
bad("map over part of the dimensions", "map", ["4x8xf32"], "4x8xf32", "dimensions has 1 entries", dims(dimensions=[0]),
    [region(["f32"])])
bad("map with another argument", "map", ["4xf32"], "4xf32", "argument 0 of the computation is i32",
    dims(dimensions=[0]), [region(["i32"])])

# -- values from nothing
bad("iota along no dimension", "iota", [], "4xf32", "iota_dimension is 1", "iota_dimension = 1 : i64")
bad("iota of booleans", "iota", [], "4xi1", "must hold numbers", "iota_dimension = 0 : i64")
bad("constant of another type", "constant", [], "4xf32", "the value is", "value = dense<1.0> : tensor<5xf32>")
bad("partition_id of another type", "partition_id", [], "i32", "expected ui32")
bad("rng state of another type", "rng_bit_generator", ["2xf32"], ["2xf32", "4xui32"],
    "the state must be a list of ui64", "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>", ours=True)
bad("rng state of another size", "rng_bit_generator", ["3xui64"], ["3xui64", "4xui32"], "THREE_FRY needs a state of 2",
    "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>", ours=True)
bad("normal integers", "rng", ["i32", "i32", "1xi64"], "4xi32", "does not go with i32",
    "rng_distribution = #stablehlo<rng_distribution NORMAL>")

# -- shapes
bad("broadcast_in_dim to a dimension that is not there", "broadcast_in_dim", ["4xf32"], F,
    "dims has 2, which is not a dimension of rank 2", dims(broadcast_dimensions=[2]))
bad("broadcast_in_dim of another size", "broadcast_in_dim", ["4xf32"], F,
    "operand dim 0 has 4 elements, result dim 1 has 8", dims(broadcast_dimensions=[1]))
bad("broadcast_in_dim twice to one", "broadcast_in_dim", ["1x1xf32"], F, "dims has 0 twice",
    dims(broadcast_dimensions=[0, 0]))
bad("broadcast_in_dim of too few", "broadcast_in_dim", ["4x8xf32"], F, "dims has 1 entries",
    dims(broadcast_dimensions=[0]))
bad("broadcast by a negative size", "broadcast", ["4xf32"], "?x4xf32", "broadcast_sizes has -2",
    dims(broadcast_sizes=[-2]))
bad("reshape to other elements", "reshape", ["4x8xf32"], "31xf32", "4x8xf32 has 32 elements and 31xf32 has 31")
bad("reshape to another type", "reshape", ["4x8xf32"], "32xi32", "the types differ")
bad("transpose that repeats", "transpose", [F], F, "the permutation has 0 twice", dims(permutation=[0, 0]))
bad("transpose of too few", "transpose", [F], F, "the permutation has 1 entries", dims(permutation=[0]))
bad("transpose without effect on the type", "transpose", [F], F, "expected 8x4xf32", dims(permutation=[1, 0]))
bad("reverse of no dimension", "reverse", [F], F, "dimensions has 2", dims(dimensions=[2]))
bad("concatenate along no dimension", "concatenate", [F, F], F, "dimension is 2", "dimension = 2 : i64")
bad("concatenate of other sizes", "concatenate", [F, "4x9xf32"], "8x8xf32",
    "dim 1 differs, and it is not the one joined", "dimension = 0 : i64")
bad("concatenate of two ranks", "concatenate", [F, "4xf32"], "8x8xf32", "the ranks differ", "dimension = 0 : i64")
bad("concatenate of two types", "concatenate", [F, "4x8xi32"], "8x8xf32", "the types differ", "dimension = 0 : i64")
bad("concatenate with another sum", "concatenate", [F, F], "9x8xf32", "expected 8x8xf32", "dimension = 0 : i64")
bad("slice beyond the end", "slice", ["4xf32"], "5xf32", "dim 0 ends at 5, beyond its size 4",
    dims(start_indices=[0], limit_indices=[5], strides=[1]))
bad("slice backwards", "slice", ["4xf32"], "1xf32", "dim 0 goes from 3 to 2",
    dims(start_indices=[3], limit_indices=[2], strides=[1]))
bad("slice with stride zero", "slice", ["4xf32"], "4xf32", "stride 0 of dim 0 is not positive",
    dims(start_indices=[0], limit_indices=[4], strides=[0]))
bad("slice of too few", "slice", [F], F, "need one entry for each dimension",
    dims(start_indices=[0], limit_indices=[4], strides=[1]))
bad("dynamic_slice beyond the size", "dynamic_slice", ["4xf32", "i32"], "5xf32",
    "slice size 5 of dim 0 is beyond its size 4", dims(slice_sizes=[5]))
bad("dynamic_slice with too few indices", "dynamic_slice", [F, "i32"], "1x8xf32", "has 1 start indices, expected 2",
    dims(slice_sizes=[1, 8]))
bad("dynamic_slice by a float", "dynamic_slice", ["4xf32", "f32"], "2xf32", "must be a scalar integer",
    dims(slice_sizes=[2]))
bad("dynamic_update_slice too large", "dynamic_update_slice", ["4xf32", "5xf32", "i32"], "4xf32",
    "the update is larger than the operand in dim 0")
bad("dynamic_update_slice of another type", "dynamic_update_slice", ["4xf32", "2xi32", "i32"], "4xf32",
    "the types differ")
bad("dynamic_update_slice of another rank", "dynamic_update_slice", ["4xf32", "1x2xf32", "i32"], "4xf32",
    "the ranks differ")
bad("pad with a vector", "pad", ["4xf32", "1xf32"], "6xf32", "expected a scalar f32",
    dims(edge_padding_low=[1], edge_padding_high=[1], interior_padding=[0]))
bad("pad with negative interior", "pad", ["4xf32", "f32"], "6xf32", "interior padding -1",
    dims(edge_padding_low=[1], edge_padding_high=[1], interior_padding=[-1]))
bad("pad away more than there is", "pad", ["4xf32", "f32"], "0xf32", "has no size",
    dims(edge_padding_low=[-3], edge_padding_high=[-3], interior_padding=[0]))
bad("pad of too few", "pad", [F, "f32"], F, "need one entry for each dimension",
    dims(edge_padding_low=[1], edge_padding_high=[1], interior_padding=[0]))
bad("get_dimension_size of none", "get_dimension_size", [F], "i32", "dimension is 2", "dimension = 2 : i64")
bad("dynamic_reshape with a float shape", "dynamic_reshape", ["4xf32", "1xf32"], "?xf32", "must be a list of integers")
bad("dynamic_iota along no dimension", "dynamic_iota", ["1xi64"], "?xf32", "iota_dimension is 3",
    "iota_dimension = 3 : i64")
bad("sort along no dimension", "sort", ["4xf32"], "4xf32", "dimension is 1", "dimension = 1 : i64",
    [region(["f32", "f32"], "compare")])
bad("sort without a boolean", "sort", ["4xf32"], "4xf32", "must return one scalar boolean", "dimension = 0 : i64",
    [ADD])
bad("sort of two shapes", "sort", ["4xf32", "5xf32"], ["4xf32", "5xf32"], "the shapes differ", "dimension = 0 : i64",
    [region(["f32"] * 4, "compare")])
bad("sort with too few arguments", "sort", ["4xf32", "4xf32"], ["4xf32", "4xf32"], "has 2 arguments, expected 4",
    "dimension = 0 : i64", [region(["f32"] * 2, "compare")])

# -- gather and scatter
G = "#stablehlo.gather<offset_dims = [{}], collapsed_slice_dims = [{}], start_index_map = [{}], index_vector_dim = {}>"


def gather(what, ins, out, part, offset, collapsed, index_map, vector, sizes, ours=False):
    bad(what, "gather", ins, out, part,
        f"dimension_numbers = {G.format(offset, collapsed, index_map, vector)}, {dims(slice_sizes=sizes)}", ours=ours)


gather("gather with float indices", [F, "3x1xf32"], "3x8xf32", "indices must be integers", 1, 0, 0, 1, [1, 8])
gather("gather that names too few dimensions", [F, "3x1xi32"], "3x8xf32", "the operand has rank 2, but", 1, "", 0, 1,
       [1, 8])
gather("gather with an index vector of another size", [F, "3x2xi32"], "3x8xf32",
       "start_index_map has 1 entries, but an index vector has 2", 1, 0, 0, 1, [1, 8])
gather("gather with index_vector_dim beyond", [F, "3x1xi32"], "3x8xf32", "index_vector_dim is 3", 1, 0, 0, 3, [1, 8])
gather("gather of slices too large", [F, "3x1xi32"], "3x9xf32", "slice size 9 of dim 1 is beyond its size 8", 1, 0, 0,
       1, [1, 9])
gather("gather that collapses two", [F, "3x1xi32"], "3x8xf32", "slice size of collapsed or batching dim 0 is 2", 1, 0,
       0, 1, [2, 8])
gather("gather with offset_dims beyond", [F, "3x1xi32"], "3x8xf32", "offset_dims has 2", 2, 0, 0, 1, [1, 8])
gather("gather maps to no dimension", [F, "3x1xi32"], "3x8xf32", "start_index_map has 2", 1, 0, 2, 1, [1, 8])
gather("gather to another shape", [F, "3x1xi32"], "4x8xf32", "expected 3x8xf32", 1, 0, 0, 1, [1, 8])
gather("gather with too few sizes", [F, "3x1xi32"], "3x8xf32", "slice_sizes has 1 entries", 1, 0, 0, 1, [1])
S = "#stablehlo.scatter<update_window_dims = [{}], inserted_window_dims = [{}], scatter_dims_to_operand_dims = [{}], index_vector_dim = {}>"


def scatter(what, ins, out, part, window, inserted, to, vector, comp=ADD):
    bad(what, "scatter", ins, out, part, f"scatter_dimension_numbers = {S.format(window, inserted, to, vector)}",
        [comp])


scatter("scatter with updates of another rank", [F, "3x1xi32", "3xf32"], F, "the updates are 3xf32, expected rank 2", 1,
        0, 0, 1)
scatter("scatter with as many updates as not", [F, "3x1xi32", "4x8xf32"], F,
        "sizes differ, 4 (updates dim 0) and 3 (indices dim 0)", 1, 0, 0, 1)
scatter("scatter of a window too large", [F, "3x1xi32", "3x9xf32"], F,
        "window size 9 (updates dim 1) is beyond 8 (operand dim 1)", 1, 0, 0, 1)
scatter("scatter of another type", [F, "3x1xi32", "3x8xi32"], F, "the types differ", 1, 0, 0, 1)
scatter("scatter with another computation", [F, "3x1xi32", "3x8xf32"], F, "computation", 1, 0, 0, 1,
        region(["i32", "i32"], "add"))
scatter("scatter to no dimension", [F, "3x1xi32", "3x8xf32"], F, "scatter_dims_to_operand_dims has 5", 1, 0, 5, 1)

# -- contractions
D = "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{}], rhs_batching_dimensions = [{}], lhs_contracting_dimensions = [{}], rhs_contracting_dimensions = [{}]>"


def dot(what, ins, out, part, lb="", rb="", lc="", rc="", more="", ours=False):
    bad(what, "dot_general", ins, out, part, D.format(lb, rb, lc, rc) + more, ours=ours)


dot("dot of other sizes", ["8x512xf32", "511x4xf32"], "8x4xf32",
    "stablehlo.dot_general: contracting sizes differ, 512 (lhs dim 1) and 511 (rhs dim 0) at train.py:41", lc=1, rc=0)
dot("dot with other batches", ["2x8x5xf32", "3x5x4xf32"], "2x8x4xf32",
    "batching sizes differ, 2 (lhs dim 0) and 3 (rhs dim 0)", 0, 0, 2, 1)
dot("dot with one more batch", ["2x8x5xf32", "2x5x4xf32"], "2x8x4xf32", "lhs has 1 batching dimensions and rhs 0", 0,
    "", 2, 1)
dot("dot contracts what it batches", ["2x8x5xf32", "2x5x4xf32"], "8x4xf32", "both batching and contracting", 0, 0, 0, 0)
dot("dot over no dimension", ["8x5xf32", "5x4xf32"], "8x4xf32", "lhs_contracting_dimensions has 2", lc=2, rc=0)
dot("dot to another shape", ["8x5xf32", "5x4xf32"], "4x8xf32", "expected 8x4xf32", lc=1, rc=0)
dot("dot with three precisions", ["8x5xf32", "5x4xf32"], "8x4xf32", "precision_config has 3 entries", lc=1, rc=0,
    more=", precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGH>, #stablehlo<precision HIGH>]")
bad("dot of vectors that differ", "dot", ["5xf32", "4xf32"], "f32",
    "contracting sizes differ, 5 (lhs dim 0) and 4 (rhs dim 0)")
bad("dot of a cube", "dot", ["5x2x3xf32", "3xf32"], "5x2xf32", "vectors or matrices")
CONV = ("dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, batch_group_count = {} : i64, feature_group_count = {} : i64")
bad("convolution of other features", "convolution", ["2x8x3xf32", "3x4x5xf32"], "2x6x5xf32",
    "feature sizes differ, 3 (input dim 2) / 1 groups and 4 (kernel dim 1)", CONV.format(1, 1))
bad("convolution in two ways of groups", "convolution", ["2x8x4xf32", "3x2x4xf32"], "1x6x4xf32", "only one of",
    CONV.format(2, 2))
bad("convolution with no groups", "convolution", ["2x8x3xf32", "3x3x5xf32"], "2x6x5xf32", "must be positive",
    CONV.format(1, 0))
bad("convolution with a stride of zero", "convolution", ["2x8x3xf32", "3x3x5xf32"], "2x6x5xf32", "window_strides has 0",
    CONV.format(1, 1) + ", window_strides = array<i64: 0>")
bad("convolution to another size", "convolution", ["2x8x3xf32", "3x3x5xf32"], "2x7x5xf32", "expected 2x6x5xf32",
    CONV.format(1, 1))
bad("convolution with padding of two dimensions", "convolution", ["2x8x3xf32", "3x3x5xf32"], "2x6x5xf32",
    "padding has 4 numbers, expected 2", CONV.format(1, 1) + ", padding = dense<1> : tensor<2x2xi64>")
bad("convolution of two ranks", "convolution", ["2x8x3xf32", "3x3xf32"], "2x6x5xf32", "one rank of at least 2",
    CONV.format(1, 1))
bad("convolution with features not in groups", "convolution", ["2x8x3xf32", "3x1x4xf32"], "2x6x4xf32",
    "is not a multiple of feature_group_count, 2", CONV.format(1, 2))

# -- reductions
bad("reduce over no dimension", "reduce", [F, "f32"], "4xf32", "dimensions has 2", dims(dimensions=[2]), [ADD])
bad("reduce twice over one", "reduce", [F, "f32"], "4xf32", "dimensions has 1 twice", dims(dimensions=[1, 1]), [ADD])
bad("reduce from a vector", "reduce", [F, "1xf32"], "4xf32", "expected a scalar", dims(dimensions=[1]), [ADD])
bad("reduce from another type", "reduce", [F, "i32"], "4xf32", "the types differ", dims(dimensions=[1]), [ADD])
bad("reduce with another computation", "reduce", [F, "f32"], "4xf32", "the computation returns i32",
    dims(dimensions=[1]), [region(["i32", "i32"], "add")])
bad("reduce to another shape", "reduce", [F, "f32"], "8xf32", "expected 4xf32", dims(dimensions=[1]), [ADD])
bad("reduce of two inputs with one computation", "reduce", [F, F, "f32", "f32"], ["4xf32", "4xf32"],
    "has 2 arguments, expected 4", dims(dimensions=[1]), [ADD])
bad("reduce_window with a window of zero", "reduce_window", ["8xf32", "f32"], "8xf32", "window_dimensions has 0",
    dims(window_dimensions=[0]), [ADD])
bad("reduce_window to another size", "reduce_window", ["8xf32", "f32"], "8xf32", "expected 6xf32",
    dims(window_dimensions=[3]), [ADD])
bad("reduce_window of too few", "reduce_window", [F, "f32"], F, "window_dimensions has 1 entries",
    dims(window_dimensions=[3]), [ADD])
bad("select_and_scatter with another source", "select_and_scatter", ["8xf32", "5xf32", "f32"], "8xf32",
    "the source has 5 elements in dim 0, the windows make 4",
    dims(window_dimensions=[2], window_strides=[2]), [region(["f32", "f32"], "compare"), ADD])
bad("select_and_scatter without a boolean", "select_and_scatter", ["8xf32", "4xf32", "f32"], "8xf32",
    "select must return one scalar boolean",
    dims(window_dimensions=[2], window_strides=[2]), [ADD, ADD])

# -- factorisations, transforms, normalisation
bad("cholesky of a rectangle", "cholesky", [F], F, "must be square")
bad("cholesky of integers", "cholesky", ["4x4xi32"], "4x4xi32", "floats or complex")
T = "left_side = true, lower = true, transpose_a = #stablehlo<transpose {}>, unit_diagonal = false"
bad("triangular_solve of other sizes", "triangular_solve", ["4x4xf32", "3x2xf32"], "3x2xf32",
    "sizes differ, 4 (a) and 3 (b dim 0)", T.format("NO_TRANSPOSE"))
bad("triangular_solve with an invalid transpose", "triangular_solve", ["4x4xf32", "4x2xf32"], "4x2xf32",
    "TRANSPOSE_INVALID", T.format("TRANSPOSE_INVALID"))
bad("triangular_solve of a rectangle", "triangular_solve", [F, "4x2xf32"], "4x2xf32", "a must be square",
    T.format("NO_TRANSPOSE"))
bad("fft of reals", "fft", ["8xf32"], "8xf32", "FFT takes complex numbers",
    "fft_type = #stablehlo<fft_type FFT>, " + dims(fft_length=[8]))
bad("rfft of complex", "fft", ["8xcomplex<f32>"], "5xcomplex<f32>", "RFFT takes real numbers",
    "fft_type = #stablehlo<fft_type RFFT>, " + dims(fft_length=[8]))
bad("fft of another length", "fft", ["8xcomplex<f32>"], "8xcomplex<f32>", "fft_length 9 needs 9",
    "fft_type = #stablehlo<fft_type FFT>, " + dims(fft_length=[9]), ours=True)
bad("fft in four dimensions", "fft", ["2x2x2x2xcomplex<f32>"], "2x2x2x2xcomplex<f32>", "fft_length has 4 entries",
    "fft_type = #stablehlo<fft_type FFT>, " + dims(fft_length=[2, 2, 2, 2]))
N = "epsilon = 0.001 : f32, feature_index = {} : i64"
bad("batch_norm_training along no dimension", "batch_norm_training", [F, "8xf32", "8xf32"], [F, "8xf32", "8xf32"],
    "feature_index is 2", N.format(2))
bad("batch_norm_training with another scale", "batch_norm_training", [F, "4xf32", "8xf32"], [F, "8xf32", "8xf32"],
    "one for each feature", N.format(1))
bad("batch_norm_inference with another mean", "batch_norm_inference", [F, "8xf32", "8xf32", "4xf32", "8xf32"], F,
    "one for each feature", N.format(1))
bad("batch_norm_grad of another shape", "batch_norm_grad", [F, "8xf32", "8xf32", "8xf32", "4x9xf32"],
    [F, "8xf32", "8xf32"], "grad_output is 4x9xf32", N.format(1))

# -- control flow and calls
bad("if on an integer", "if", ["i32"], "i32", "the predicate must be a scalar boolean",
    regions=['{ "stablehlo.return"(%a0) : (tensor<i32>) -> () }'] * 2)
bad("case on a float", "case", ["f32"], "f32", "the index must be a scalar i32",
    regions=['{ "stablehlo.return"(%a0) : (tensor<f32>) -> () }'])
bad("branches of two types", "if", ["i1", "f32", "i32"][:1], "i1", "branch 1 returns",
    regions=['{ "stablehlo.return"(%a0) : (tensor<i1>) -> () }', '{ %k = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>\n "stablehlo.return"(%k) : (tensor<i32>) -> () }'])
bad("a branch without its value", "if", ["i1"], "i1", "branch 0 returns 0 values",
    regions=['{ "stablehlo.return"() : () -> () }'] * 2)
bad("a loop whose condition is no boolean", "while", ["i32"], "i32", "the condition must return one scalar boolean",
    regions=[region(["i32"]), region(["i32"])])
bad("a loop whose body returns another type", "while", ["i32"], "i32", "argument 0 of the body is f32", regions=[
    '{\n^bb0(%x: tensor<i32>):\n %k = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>\n "stablehlo.return"(%k) : (tensor<i1>) -> () }', region(["f32"])])
bad("a tuple element that is not there", "get_tuple_element", ["tuple<tensor<f32>>"], "f32",
    "index is 1, the tuple has 1 elements", "index = 1 : i32")
bad("after_all of a tensor", "after_all", ["f32"], "!stablehlo.token", "must be a token")
bad("a call to nobody", "func.call", ["f32"], "f32", "there is no function @nobody", "callee = @nobody")
bad("a call with too many arguments", "func.call", ["f32", "f32"], "f32", "@f takes 1 arguments, 2 are given",
    "callee = @f",
    extra="func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n")
bad("a call with another type", "func.call", ["i32"], "f32", "argument 0 of @f is f32, i32 is given", "callee = @f",
    extra="func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n")
bad("a composite of nobody", "composite", ["f32"], "f32", "there is no function @nobody",
    'decomposition = @nobody, name = "my.op"')
bad("a composite without a namespace", "composite", ["f32"], "f32", "is not that of an op in a namespace",
    'decomposition = @f, name = "op"',
    extra="func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n")
bad("a composite of another type", "composite", ["f32"], "f32", "its operands and results are not those of @f",
    'decomposition = @f, name = "my.op"',
    extra="func.func private @f(%x: tensor<f64>) -> tensor<f64> { return %x : tensor<f64> }\n")
bad("a custom_call with too few layouts", "custom_call", ["f32", "f32"], "f32", "has 1 operand layouts for 2 operands",
    'call_target_name = "t", operand_layouts = [dense<> : tensor<0xindex>], result_layouts = [dense<> : tensor<0xindex>]')
bad("a custom_call with a layout that repeats", "custom_call", [F], F, "does not name each dimension once",
    'call_target_name = "t", operand_layouts = [dense<[0, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]')
text("a function that calls itself", "module {\nfunc.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = func.call @main(%a) : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> }\n}",
     "calls itself", ours=True)
text("a function twice", "module {\nfunc.func public @main() { return }\nfunc.func public @main() { return }\n}",
     "twice")
text("a value from a region", 'module {\nfunc.func public @main(%p: tensor<i1>) -> tensor<f32> {\n %0 = "stablehlo.if"(%p) ({\n %k = stablehlo.constant dense<1.0> : tensor<f32>\n stablehlo.return %k : tensor<f32> }, {\n'
     " %j = stablehlo.constant dense<2.0> : tensor<f32>\n stablehlo.return %j : tensor<f32> }) : (tensor<i1>) -> tensor<f32>\n return %k : tensor<f32> }\n}", "k")
text("a return of another type", "module {\nfunc.func public @main(%a: tensor<f32>) -> tensor<i32> { \"func.return\"(%a) : (tensor<f32>) -> () }\n}", "differs from the function's type")
text("a return of too few", "module {\nfunc.func public @main(%a: tensor<f32>) -> (tensor<f32>, tensor<f32>) { \"func.return\"(%a) : (tensor<f32>) -> () }\n}", "returns 1 values, its type says 2")

# -- collectives
RG = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
bad("all_gather along no dimension", "all_gather", ["4xf32"], "8xf32", "all_gather_dim is 1",
    "all_gather_dim = 1 : i64, " + RG)
bad("all_gather to another size", "all_gather", ["4xf32"], "9xf32", "expected 8xf32", "all_gather_dim = 0 : i64, " + RG,
    ours=False)
bad("all_gather with a device twice", "all_gather", ["4xf32"], "8xf32", "replica_groups has 0 twice",
    "all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x2xi64>")
bad("reduce_scatter that does not divide", "reduce_scatter", ["5xf32"], "2xf32",
    "dim 0 has 5 elements, a group 2 devices", "scatter_dimension = 0 : i64, " + RG, [ADD])
bad("all_to_all with another count", "all_to_all", ["4xf32"], "4xf32", "split_count is 4, but a group has 2 devices",
    "split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, " + RG)
bad("all_to_all that does not divide", "all_to_all", ["5x4xf32"], "5x4xf32", "dim 0 has 5 elements",
    "split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, " + RG)
bad("all_reduce with another computation", "all_reduce", ["4xf32"], "4xf32",
    "the computation must return one scalar f32", RG, [region(["i32", "i32"], "add")])
bad("collective_permute to one target twice", "collective_permute", ["4xf32"], "4xf32", "target 1 occurs twice",
    "source_target_pairs = dense<[[0, 1], [2, 1]]> : tensor<2x2xi64>")
bad("collective_permute from nowhere", "collective_permute", ["4xf32"], "4xf32", "source_target_pairs has -1",
    "source_target_pairs = dense<[[-1, 1]]> : tensor<1x2xi64>")

# -- arity and attributes
bad("add of one", "add", ["4xf32"], "4xf32", "number of operands")
bad("iota without its dimension", "iota", [], "4xf32", "attribute iota_dimension is missing")
bad("transpose by a string", "transpose", [F], F, "permutation", 'permutation = "10"')

# -- what the rules above leave: each rule of ops.def's types column has a row
bad("quantize of integers", "uniform_quantize", ["4xi32"], "4xi32", "the result must be quantised")
bad("dynamic_gather of other sizes", "dynamic_gather", [F, "3x1xi64", "3xi64"], "3x8xf32",
    "slice_sizes has 3 entries, expected 2", "dimension_numbers = #stablehlo.gather<offset_dims = [1], "
    "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false")
bad("set_dimension_size of no dimension", "set_dimension_size", [F, "i32"], F, "dimension is 2, the operand is 4x8xf32",
    "dimension = 2 : i64")
bad("torch_index_select of no dimension", "torch_index_select", [F, "3xi32"], "3x8xf32", "dim is 2, the operand is",
    "dim = 2 : i64, batch_dims = 0 : i64", ours=True)
bad("dynamic_conv of vectors", "dynamic_conv", ["4xf32", "4xf32", "2x2xi32"], "4xf32", "one rank of at least 2",
    "batch_group_count = 1 : i64, feature_group_count = 1 : i64, "
    "dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>")
bad("optimization_barrier to another type", "optimization_barrier", ["4xf32"], "4xi32", "is 4xi32, expected 4xf32")
bad("tuple of another type", "tuple", ["4xf32"], "tuple<tensor<4xi32>>", "result 0 is tuple, expected tuple")
bad("conj to another type", "chlo.conj", ["4xcomplex<f32>"], "4xf32", "is 4xf32, expected 4xcomplex<f32>")
bad("next_after of integers", "chlo.next_after", ["4xi32", "4xi32"], "4xi32", "must hold floats, not i32")
bad("product_sum of another type", "xlane.product_sum", [F, F, "4x8xf64"], F, "operand types differ")
bad("broadcast_add of other sizes", "chlo.broadcast_add", ["4xf32", "3xf32"], "4xf32", "do not go together", ours=True)
bad("top_k of more than there are", "chlo.top_k", ["4xf32"], ("9xf32", "9xi32"), "k is 9, the operand 4xf32",
    "k = 9 : i64")
bad("outfeed without its token", "outfeed", ["4xf32"], "!stablehlo.token", "the last operand must be a token",
    'outfeed_config = ""')
bad("infeed without its token", "infeed", ["4xf32"], ("4xf32", "!stablehlo.token"), "the operand must be a token",
    'infeed_config = "", layout = []')
bad("send without its token", "send", ["4xf32"], "!stablehlo.token", "the last operand must be a token",
    "channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true")
bad("recv without its token", "recv", ["4xf32"], ("4xf32", "!stablehlo.token"), "the operand must be a token",
    "channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>, is_host_transfer = true")
bad("collective_broadcast to another type", "collective_broadcast", ["4xf32"], "4xi32", "is 4xi32, expected 4xf32",
    "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>")
bad("ragged_dot with a dimension twice", "chlo.ragged_dot", ["4xf32", "4xf32", "2xi64"], "4xf32", "both have 0",
    "ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
    "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0], lhs_ragged_dimensions = [0], "
    "rhs_group_dimensions = [0]>, precision_config = []")
bad("async_done of a tensor", "async_done", ["4xf32"], "4xf32", "the operand must be a future, not 4xf32")
bad("async_start of nothing", "async_start", ["4xf32"], "4xf32", "number of operands, results or regions")
bad("collective_reduce of nothing", "collective_reduce", ["4xf32"], "4xf32", "number of operands, results or regions")
bad("scan of nothing", "chlo.scan", ["4xf32"], "4xf32", "number of operands, results or regions")
bad("sharding_group of two", "sdy.sharding_group", ["4xf32", "4xf32"], (), "number of operands, results or regions",
    "group_id = 1 : i64")
def rules_without_a_case():
    """Rules for types of which test/ops.covered names an op that no program here has, or that has another rule."""
    have = {re.search(r'"([\w.-]+)"\(', src)[1] for _, src, _ in CASES if re.search(r'"([\w.-]+)"\(', src)}
    with open(os.path.join(ROOT, "src", "ir", "ops.def")) as f:
        rule = dict(re.findall(r'^OP\(\w+,\s*"([^"]+)",(?:\s*\w+,){3}\s*(\w+),', f.read(), re.M))
    return sorted(r for r, op in covered("refused").items() if op not in have or rule[op] != r)


def main():
    lost = rules_without_a_case()
    print(f"FAIL bad_programs_of_every_rule: none of {', '.join(lost)}" if lost else "ok bad_programs_of_every_rule")
    if lost:
        return 1
    from jax._src.interpreters import mlir as jmlir
    from jax._src.lib.mlir import ir
    if len(CASES) < 100:
        print(f"FAIL bad_programs: only {len(CASES)}")
        return 1
    failed = 0
    ctx = jmlir.make_ir_context()
    with tempfile.TemporaryDirectory() as tmp:
        for what, src, part in CASES:
            path = os.path.join(tmp, "bad.mlir")
            with open(path, "w") as f:
                f.write(src)
            r = subprocess.run([XLANE, "print", path], capture_output=True, text=True)
            why = None
            if r.returncode != 1:
                why = f"exit status {r.returncode}"
            elif part not in r.stderr:
                why = f"says {r.stderr.strip()!r}, without {part!r}"
            else:
                try:
                    with ctx:
                        ir.Module.parse(src).operation.verify()
                    if what not in OURS:
                        why = "jaxlib takes it"
                except Exception:
                    if what in OURS:
                        why = "jaxlib refuses it too: take it off the list of ours"
            if why:
                failed += 1
                print(f"FAIL bad: {what}: {why}")
    if not failed:
        print(f"ok bad_programs: {len(CASES)} refused, {len(CASES) - len(OURS)} by jaxlib too")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
