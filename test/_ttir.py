"""Runs a kernel in Triton's IR, as src/pass/triton.c writes it, on NumPy arrays: one program after the other, each op
as its name says. Pointers are pairs of an argument and offsets. Only what those kernels use is known here."""
import re

import ml_dtypes
import numpy as np

TYPES = dict(f32=np.float32, bf16=ml_dtypes.bfloat16, f16=np.float16, i64=np.int64, i32=np.int32, i1=np.bool_)
COMPARE = dict(slt=np.less, eq=np.equal, ogt=np.greater)
TWO = dict(addi=np.add, subi=np.subtract, muli=np.multiply, addf=np.add, subf=np.subtract, mulf=np.multiply,
           divf=np.divide, maximumf=np.maximum, minsi=np.minimum, andi=np.logical_and, divsi=np.floor_divide,
           remsi=np.remainder)
ONE = dict(absf=np.abs, exp2=np.exp2, log=np.log, rsqrt=lambda x: (1 / np.sqrt(x)).astype(x.dtype))


def of_type(text):
    """'tensor<128x32xf32>' -> (shape, dtype); a pointer has no dtype."""
    m = re.match(r"tensor<((?:\d+x)*)(.*)>$", text.strip())
    shape, kind = (tuple(int(d) for d in m.group(1).split("x")[:-1]), m.group(2)) if m else ((), text.strip())
    return shape, TYPES.get(kind)


def run(text, args, grid):
    """args: NumPy arrays in the order of the kernel's arguments; those that it stores to are changed."""
    head, *lines = text.strip().split("\n")
    names = re.findall(r"(%\w+): !tt\.ptr", head)
    assert len(names) == len(args), (names, len(args))
    flat = {n: a.reshape(-1) for n, a in zip(names, args)}
    for program in range(grid):
        execute(lines, 0, len(lines), {n: (n, np.int64(0)) for n in names}, flat, program)


def block_end(lines, at):
    depth = 0
    for i in range(at, len(lines)):
        depth += lines[i].count("{") - lines[i].count("}")
        if depth == 0:
            return i
    raise ValueError("a block has no end")


def execute(lines, at, end, env, flat, program):
    """Returns what scf.yield gives."""
    while at < end:
        line = lines[at].strip()
        at += 1
        m = re.match(r"(?:(%\w+)(?::\d+)? = )?\"?([\w.]+)\"?(.*)$", line)
        if not m or line == "}":
            continue
        to, op, rest = m.groups()
        if op == "scf.for":
            stop = block_end(lines, at - 1)
            loop_over(lines, at, stop, to, rest, env, flat, program)
            at = stop + 1
            continue
        if op == "tt.reduce":
            stop = block_end(lines, at - 1)
            how = np.maximum if "maximumf" in "".join(lines[at:stop]) else np.add
            env[to] = how.reduce(env[re.match(r"\((%\w+)\)", rest).group(1)],
                                 axis=int(re.search(r"axis = (\d)", rest).group(1)))
            at = stop + 1
            continue
        if op == "tt.return":
            return None
        uses = [env[v] for v in re.findall(r"%\w+(?:#\d+)?", rest.split(" : ")[0])]
        if op == "scf.yield":
            return uses
        value = compute(op.split(".")[-1], rest, uses, flat, program)
        if to:
            env[to] = value
    return None


def loop_over(lines, at, stop, to, rest, env, flat, program):
    i, lo, hi, by = re.match(r" (%\w+) = (%\w+) to (%\w+) step (%\w+)", rest).groups()
    pairs = re.findall(r"(%\w+) = (%\w+)", rest.split("iter_args")[1]) if "iter_args" in rest else []
    carried = [env[v] for _, v in pairs]
    for k in range(int(env[lo]), int(env[hi]), int(env[by])):
        inner = dict(env)
        inner[i] = np.int32(k)
        inner.update({n: v for (n, _), v in zip(pairs, carried)})
        carried = execute(lines, at, stop, inner, flat, program) or []
    if len(carried) == 1:
        env[to] = carried[0]
    for k, v in enumerate(carried):
        env[f"{to}#{k}"] = v


def compute(op, rest, uses, flat, program):
    if op == "constant":
        value, kind = re.match(r" (?:dense<)?([^ >]+)>? : (.*)$", rest).groups()
        shape, dtype = of_type(kind)
        return np.full(shape, float(value) if "." in value or "e" in value else int(value)).astype(dtype)
    if op == "get_program_id":
        return np.int32(program)
    if op == "make_range":
        return np.arange(int(re.search(r"end = (\d+)", rest).group(1)), dtype=np.int32)
    if op in ("splat", "broadcast"):
        shape, _ = of_type(rest.split("->")[1]) if "ptr" not in rest else (
            tuple(int(d) for d in re.search(r"-> tensor<((?:\d+x)+)", rest).group(1).split("x")[:-1]), None)
        return (uses[0][0], np.broadcast_to(uses[0][1], shape)) if isinstance(uses[0],
            tuple) else np.broadcast_to(uses[0], shape)
    if op == "expand_dims":
        return np.expand_dims(uses[0], int(re.search(r"axis = (\d)", rest).group(1)))
    if op == "addptr":
        return uses[0][0], uses[0][1] + np.asarray(uses[1], np.int64)
    if op == "load":
        (name, where), mask, other = uses[0], *(uses[1:] + [True, 0][len(uses) - 1:])
        return np.where(mask, flat[name][np.where(mask, where, 0)], other).astype(flat[name].dtype)
    if op == "store":
        (name, where), value, mask = uses[0], uses[1], uses[2] if len(uses) > 2 else np.ones(np.shape(uses[0][1]), bool)
        where, value, mask = (np.atleast_1d(x) for x in (where, value, mask))
        flat[name][where[mask]] = value[mask]
        return None
    if op in ("extf", "truncf", "extsi"):
        return np.asarray(uses[0]).astype(of_type(rest.split(" to ")[1])[1])
    if op in ("cmpi", "cmpf"):
        return COMPARE[re.match(r" (\w+),", rest).group(1)](*uses)
    if op == "select":
        if isinstance(uses[1], tuple):
            return uses[1] if uses[0] else uses[2]
        return np.where(*uses)
    return TWO[op](*uses) if op in TWO else ONE[op](uses[0])
