"""The kernels of src/pass/triton.c in a training step: where they stand, that they are asked for only where they can
run, and what the program hands to XLA for them. (Row X3.) What they compute was seen on a GPU, see bench/log/."""
import re, subprocess, sys, tempfile
import _check
import _ttir
from _check import end
from _run import XLANE, run_text

_check.prefix = "triton_"
D, LAYERS = 96, 3


def check(name, why):
    _check.check(name, not why, why)


def train(*words):
    with tempfile.TemporaryDirectory() as d:
        open(d + "/t", "w").write("text " * 2000)
        p = subprocess.run([XLANE, "train", f"data.train={d}/t", f"model.pattern=A*{LAYERS}", f"model.dim={D}",
                            "model.heads=2", "data.batch=2", "data.time=64", "model.vocab=512", "model.compute=bf16", "cache=none",
                            f"runs={d}/runs", "train.steps=3", "optimizer.warmup=0", *words], text=True, capture_output=True)
        return p.returncode, p.stdout, p.stderr


def kernels(text):
    """name -> (how many, the kernel's own text, the attributes of the last call)"""
    out = {}
    for line in text.splitlines():
        m = re.search(r'custom_call @"?__gpu\$xla\.gpu\.triton"?\(.*?\) \{(.*)\} : ', line)
        if m:
            body = re.search(r'ir = "((?:[^"\\]|\\.)*)"', m.group(1)).group(1)
            body = re.sub(r"\\([0-9A-F]{2})", lambda x: chr(int(x.group(1), 16)), body).replace('\\"', '"')
            name = re.search(r'name = "(\w+)"', m.group(1)).group(1)
            out[name] = (out.get(name, (0,))[0] + 1, body, m.group(1))
    return out


def forms():
    """The step as a CUDA device gets it (shared products, joined gradients, sorted lookups; in a loop, matrices joined
    before it and rows that are written once), of ordinary ops, against the one of every device: the same results, f32,
    of the same arguments, on XLA's CPU. Memory that comes as it is is NaN there."""
    import numpy as np
    got = []
    for words in (("model.scan=false",), ("--device=cuda", "model.scan=false"), ("--device=cuda", "model.scan=true")):
        rc, text, err = train("--print=step", "model.compute=f32", "data.batch=8", *words)
        if rc:
            return err
        if len(words) > 1 and "sort" not in text:
            return "nothing is said for CUDA"
        text, unwritten = re.subn(r"stablehlo.custom_call @AllocateBuffer\(\).* : \(\) -> (tensor<[^>]*>)",
                                  r"stablehlo.constant dense<0x7FC00000> : \1", text)
        if unwritten < 15 * ("model.scan=true" in words):
            return f"{unwritten} buffers come as they are"
        rng, args = np.random.default_rng(1), []
        names = dict(re.findall(r'#loc(\d+) = loc\("([^"]*)"\)', text))
        head = re.search(r"func.func public @main\((.*)", text).group(1)
        for shape, loc in re.findall(r"%arg\d+: tensor<([^>]*)>.*?loc\(#loc(\d+)\)", head):
            *dims, kind = shape.split("x")
            dims, name = [int(d) for d in dims], names[loc]
            if kind == "i32":
                args.append(rng.integers(0, 99, dims).astype(np.int32) if name in ("tokens", "targets")
                            else np.ones(dims, np.int32) if name == "segments"
                            else np.broadcast_to(np.arange(dims[-1], dtype=np.int32), dims).copy())
            elif name == "hyper":
                args.append(np.array([1e-2, 0, 0, 100, 0, .9, .95, np.log(.9), np.log(.95), 1e-8, .1, 1], np.float32))
            elif name[-2:] in (".m", ".v"):
                args.append(np.zeros(dims, np.float32))
            else:
                args.append((rng.standard_normal(dims) * 0.1 + ("norm" in name)).astype(np.float32))
        got.append([np.asarray(x) for x in run_text(text, args)])
    for form in got[1:]:
        worst = max(float(np.abs(x.astype(np.float64) - y).max() / (np.abs(x).max() + 1e-9))
                    for x, y in zip(got[0], form))
        if not worst <= 1e-3:
            return f"{worst:.1e} of the largest element apart"


def outcome(kernel, fill):
    """Runs a kernel; fill(name) is the array of an argument. name -> array, after it."""
    import numpy as np
    _, body, attrs = kernel
    head = re.findall(r"%(\w+): !tt\.ptr", body.split("\n")[0])
    args = {n: np.ascontiguousarray(fill(n)) for n in head}
    _ttir.run(body, list(args.values()), int(re.search(r"grid_x = (\d+)", attrs).group(1)))
    return args


def close(a, b, by=1e-2):
    import numpy as np
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return a.shape == b.shape and np.abs(a - b).max() <= by * np.abs(b).max()


def values():
    """What kernels compute, by a reader of their IR (_ttir.py), against NumPy."""
    import ml_dtypes
    import numpy as np
    bf, rng = ml_dtypes.bfloat16, np.random.default_rng(1)
    H, G, S, rows = 2, 1, D // 2, 2 * 64
    draw = lambda *shape: rng.standard_normal(shape).astype(bf)
    rc, text, err = train("--print=step", "--device=cuda", "model.kernels=triton", "model.scan=false",
                          "model.kv_heads=1")
    ours = kernels(text)
    # rotary positions, there and back
    x, c, s = draw(rows, (H + 2 * G) * S), *(f(rng.standard_normal((rows, S // 2))).astype(np.float32) for f
                                             in (np.cos, np.sin))
    turned = {"x": x, "cos": c, "sin": s, "q": np.zeros((rows, H * S), bf), "k": np.zeros((rows, G * S), bf),
              "v": np.zeros((rows, G * S), bf)}
    got = outcome(ours["xlane_rope"], turned.get)

    def turn(part, sign):
        p = np.asarray(part, np.float32).reshape(rows, -1, S)
        a, b, cc, ss = p[..., :S // 2], p[..., S // 2:], c[:, None], sign * s[:, None]
        return np.concatenate([a * cc - b * ss, b * cc + a * ss], -1).reshape(rows, -1)
    parts = [x[:, :H * S], x[:, H * S:(H + G) * S], x[:, (H + G) * S:]]
    want = [turn(parts[0], 1), turn(parts[1], 1), parts[2]]
    for n, w in zip("qkv", want):
        if not close(got[n], w):
            return f"rope: {n} differs"
    back = outcome(ours["xlane_rope_back"], {**turned, "q": parts[0], "k": parts[1], "v": parts[2],
                                             "x": np.zeros_like(x)}.get)
    if not close(back["x"], np.concatenate([turn(parts[0], -1), turn(parts[1], -1), parts[2]], -1)):
        return "rope_back differs"
    # sums of the columns of parts, each a tensor of its own
    part = {f"g{i}": rng.standard_normal((rows, D)).astype(np.float32) for i in range(LAYERS)}
    got = outcome(ours["xlane_columns"], {**part, "out": np.zeros((LAYERS, D), np.float32)}.get)
    if not close(got["out"], np.stack([p.sum(0) for p in part.values()]), 1e-5):
        return "columns differ"
    rc, text, err = train("--print=step", "--device=cuda", "model.kernels=triton", "model.scan=true")
    ours = kernels(text)
    part = rng.standard_normal((LAYERS, rows, D)).astype(np.float32)
    got = outcome(ours["xlane_columns"], {"g0": part, "out": np.zeros((LAYERS, D), np.float32)}.get)
    if not close(got["out"], part.sum(1), 1e-5):
        return "columns of a stack differ"
    # a norm in a loop: x is row t of its rows, the sum goes to row t or t + 1 of others, all else to row t
    seen = set()
    for line in text.splitlines():
        if 'name = "xlane_norm_sum"' not in line or "_all" not in line:
            continue
        t, shifted = 1, f"tensor<{LAYERS + 1}x2x64x{D}xbf16>" in line.split(") -> (")[1]
        stack = {"x_all": draw(LAYERS + 1, rows, D), "delta": draw(rows, D),
                 "gain_all": rng.standard_normal((LAYERS, D)).astype(np.float32),
                 "out_all": np.zeros((LAYERS, rows, D), bf), "rstd_all": np.zeros((LAYERS, rows), np.float32),
                 "sum_all": np.zeros((LAYERS + 1, rows, D), bf)}
        kernel = list(kernels(line).values())[0]
        if "gain_all" not in kernel[1]:
            stack["gain"] = stack["gain_all"][t]
        if "x_all" not in kernel[1]:
            stack["x"] = stack["x_all"][t]
        got = outcome(kernel, lambda n: stack[n] if n in stack else np.array([t], np.int32))
        h = (stack["x_all"][t].astype(np.float32) + stack["delta"].astype(np.float32)).astype(bf).astype(np.float32)
        r = 1 / np.sqrt((h * h).mean(-1) + 1e-6)
        if (not close(got["sum_all"][t + shifted], h) or got["sum_all"][:t + shifted].any()
            or not close(got["rstd_all"][t], r)
                or not close(got["out_all"][t], h * r[:, None] * stack["gain_all"][t]) or got["out_all"][t + 1:].any()):
            return f"a norm writes other rows, or other values (shifted: {shifted})"
        seen.add(shifted)
    return seen != {False, True} and f"norms in a loop: {seen}"


def main():
    _check.holds("same_step_as_elsewhere", forms)
    _check.holds("values", values)
    rc, text, err = train("--print=step", "--device=cuda", "model.kernels=triton", "model.scan=false",
                          "model.vocab=640")
    got = {k: v[0] for k, v in kernels(text).items()}
    want = dict(xlane_loss=1, xlane_norm=1, xlane_norm_sum=2 * LAYERS, xlane_norm_sum_back=2 * LAYERS - 1,
                xlane_norm_back=2, xlane_join=7, xlane_rope=LAYERS, xlane_rope_back=LAYERS,
                xlane_columns=2)
    check("prints", rc and err or got != want and f"{got}, expected {want}")
    for name, (_, body, attrs) in kernels(text).items():
        check(f"filled_{name}", ("$" in body and f"a name was not filled in: {body[body.index('$'):][:40]}")
              or (f"@{name}(" not in body and "the function has another name")
              or ("num_warps" not in attrs or "grid_x" not in attrs) and attrs[:200])
    in_place = kernels(text)["xlane_loss"][2]
    check("loss_in_place", "output_operand_alias<output_tuple_indices = [0], operand_index = 0" not in in_place
          and in_place[-400:])
    # the gradient of the logits is what the kernel wrote: nothing of their size but the products reads or writes them
    big = [l for l in text.splitlines() if re.search(r"tensor<2x64x640x(f32|bf16)>", l) and "dot_general" not in l
           and "gpu.triton" not in l and "transpose" not in l]
    check("one_pass_over_logits", big[:2])
    # gradients of a stack's rows: one kernel reads them where the products left them, q, k and v side by side
    joined = [l for l in text.splitlines() if "xlane_join" in l]
    slices = [l for l in joined if f"tensor<{D}x{3 * D}xbf16>" in l and "arith.remsi %i, %cc" in l]
    rows = [l for l in text.splitlines() if re.search(rf"concatenate .* tensor<{LAYERS}x\d+x\d+xbf16>$",
                                                      l.split(" loc(")[0])]
    check("joined_in_place", len(slices) != 3 and f"{len(slices)} of {len(joined)} read a slice"
          or rows and rows[0][:200])
    # logits of more than 2 GiB are made in parts, each used up before the next begins
    rc, text, err = train("--print=step", "model.kernels=triton", "model.scan=false", "data.batch=40",
                          "data.time=1024", "model.vocab=50304", "model.pattern=A")
    got, calls = {k: v[0] for k, v in kernels(text).items()}, [l for l in text.splitlines() if "xlane_after" in l]
    check("loss_in_parts", rc and err or (got.get("xlane_loss"), got.get("xlane_after")) != (2, 1) and f"{got}"
          or f"tensor<{D}x50304xbf16>) -> tensor<20x1024x{D}xbf16>" not in calls[0] and calls[0][-300:])
    rc, text, err = train("--print=step", "--device=cuda")
    check("written_out_on_cuda", rc and err or "stablehlo.while" in text and "there is a loop")
    rc, text, err = train("--print=step")
    check("a_loop_elsewhere", rc and err or "stablehlo.while" not in text and "there is no loop")
    rc, text, err = train("--print=step", "--device=cuda", "model.pattern=A*65")
    check("a_loop_where_there_are_many", rc and err or "stablehlo.while" not in text and "there is no loop")
    rc, text, err = train("--print=step", "--device=cuda", "model.kernels=triton", "model.scan=true")
    got = {k: v[0] for k, v in kernels(text).items()}
    want = dict(xlane_loss=1, xlane_norm_sum=3, xlane_norm_sum_back=2, xlane_norm_back=1, xlane_rope=2,
                xlane_rope_back=1, xlane_columns=2)
    check("scan", rc and err or got != want and f"{got}, expected {want}")
    # in a loop norms write the rows that are kept, and read theirs, where they lie: nothing else copies their results
    calls = {n: [l for l in text.splitlines() if f'name = "{n}"' in l] for n in got}
    inside = [l for l in calls["xlane_norm_sum"] if l.count("output_operand_alias<") == 3]
    back = [l for l in calls["xlane_norm_sum_back"] if "%x_all" in l and "%rstd_all" in l and "%gain_all" in l]
    made = {m.group(1) for l in inside for m in [re.match(r" *(%\d+):3 = ", l)]}
    copied = [l for l in text.splitlines() if "dynamic_update_slice" in l and any(m + "#" in l for m in made)]
    check("scan_rows_in_place",
          (len(inside), len(back)) != (2, 2) and f"{len(inside)} write rows, {len(back)} read them"
          or copied and copied[0][:200])
    # matrices are put side by side before the loops, and their gradients stay so in the rows that a product writes
    in_loops = text[text.index("stablehlo.while"):text.rindex("stablehlo.while")]
    sides = [l for l in in_loops.splitlines() if re.search(rf"concatenate .*tensor<{D}x(288|512)x?bf16>", l)]
    added = [l for l in in_loops.splitlines() if re.search(rf"stablehlo.add .*tensor<1x{D}x", l)]
    check("scan_side_by_side", f"tensor<{LAYERS}x{D}x{3 * D}xbf16>" not in in_loops and "no joined matrices"
          or (sides + added) and (sides + added)[0][:200])
    # x goes from turn to turn by its row: one row more than there are layers, and no copy of a row goes round
    carried = text[text.index("stablehlo.while"):].split("^bb0(")[1].split("\n")[0]
    check("scan_goes_by_row", carried.count(f": tensor<2x64x{D}xbf16>") != 1 and f"{carried[:300]}"
          or f": tensor<{LAYERS + 1}x2x64x{D}xbf16>" not in carried and "there is no row more"
          or sum("%x_all" in l for l in calls["xlane_norm_sum"]) != 2 and "the first norm does not read it")
    # a product's result is read from its row: by nobody else before, or XLA computes it twice
    dots = [m.group(1) for m in re.finditer(r"(%\d+) = stablehlo.dot_general .*-> tensor<2x64x(?:288|512)xbf16>", text)]
    uses = {d: len(re.findall(re.escape(d) + r"(?![\d#])", text)) - 1 for d in dots[:2]}
    check("scan_products_once", set(uses.values()) != {1} and f"{uses}")
    rc, text, err = train("--print=step", "model.kernels=triton", "model.micro=2", "model.scan=false")
    check("turns_use_the_plain_loss", rc and err or "xlane_loss" in kernels(text)
          and "the kernel's weights are of one turn")
    rc, text, err = train("--print=step")
    check("plain_without_a_gpu", rc and err or kernels(text) and f"{sorted(kernels(text))}")
    rc, text, err = train("model.kernels=triton")
    check("refused_here", not rc and "it ran" or "model.kernels triton (plain runs everywhere)" not in err
          and err[-300:])
    rc, text, err = train("model.kernels=triton", "model.compute=f32")
    check("needs_bf16", rc != 2 and rc != 1 and "it ran" or "bf16" not in err and err[-300:])
    rc, text, err = train("model.kernels=fast")
    check("unknown", "auto, plain, triton" not in err and err[-300:])


if __name__ == "__main__":
    main()
    sys.exit(end())
