"""cuDNN's fused attention in our training step says to XLA what JAX's own says: the same custom calls, configuration,
shapes and layouts. (Row X3.) JAX lowers it for CUDA without a GPU once it is told which cuDNN there would be; what our
calls compute was seen on a GPU, see bench/log/2026-11.md."""
import json, math, re, subprocess, sys, tempfile
import _check
from _run import XLANE
import jax, jax.numpy as jnp

_check.prefix = "cudnn_"
B, T, H, G, S = 2, 64, 4, 2, 32
COMPARED = "0.10.2", "0.11.2"  # versions of JAX whose inside jax_text() knows; a newer one may have another


def check(name, why):
    _check.check(name, not why, why)


def jax_text():
    from jax import export
    import jax._src.cudnn.fused_attention_stablehlo as fa
    fa.check_cudnn_version = lambda: 91200
    fa.check_compute_capability = lambda c: True
    fa.is_cuda_compute_capability_equal = lambda c: False
    f = lambda q, k, v: fa.dot_product_attention(q, k, v, scale=1 / math.sqrt(S),
                                                 mask_type=fa.MaskType.CAUSAL).astype(jnp.float32).sum()
    q, k = (jax.ShapeDtypeStruct((B, T, n, S), jnp.bfloat16) for n in (H, G))
    allowed = [export.DisabledSafetyCheck.custom_call("__cudnn$fmhaSoftmax" + s) for s in ("", "Backward")]
    return export.export(jax.jit(jax.grad(f, (0, 1, 2))), platforms=["cuda"], disabled_checks=allowed)(q, k,
        k).mlir_module()


def calls(text):
    """target -> (configuration, the rest of the attributes, the type), of the last call of each target"""
    out = {}
    for line in text.splitlines():
        m = re.search(r"custom_call @(__cudnn\$\w+)\(.*?\) \{(.*)\} : (\(.*?\) -> \(.*?\))", line)
        if m:
            target, attrs, types = m.groups()
            config = re.search(r'backend_config = "((?:[^"\\]|\\.)*)"', attrs).group(1)
            rest = re.sub(r'backend_config = "(?:[^"\\]|\\.)*"', "", attrs)
            config = json.loads(config.replace("\\22", '"').replace('\\"', '"'))
            out[target] = config, sorted(re.findall(r"(api_version|operand_layouts|result_layouts) = (\[[^=]*\]|\S+)",
                                                    rest)), types
    return out


def train(*words):
    with tempfile.TemporaryDirectory() as d:
        open(d + "/t", "w").write("text " * 2000)
        p = subprocess.run([XLANE, "train", f"data.train={d}/t", "model.pattern=A*3", f"model.dim={H * S}",
                            f"model.heads={H}", f"model.kv_heads={G}",
                            f"data.batch={B}", f"data.time={T}", "model.compute=bf16", "model.attention=cudnn", "cache=none", f"runs={d}/runs", *words],
                           text=True, capture_output=True)
        return p.returncode, p.stdout, p.stderr


def main():
    try:
        theirs = calls(jax_text())
    except (ImportError, AttributeError, TypeError) as e:
        if jax.__version__ in COMPARED:
            raise
        _check.skip("as_jax", f"this JAX has another inside ({e!r:.120})")
        theirs = None
    for name, word, want in (("scan", "model.scan=true", True), ("loop", "model.scan=false", True),
                             ("hasty", "train.deterministic=false", False)):
        rc, text, err = train("--print=step", word)
        ours = calls(text)
        check(f"prints_{name}", rc and err or set(ours) != {"__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"}
              and f"{set(ours)}")
        for target, (config, rest, types) in ours.items():
            fmha = config["cudnn_fmha_backend_config"]
            said = fmha.pop("force_deterministic")
            check(f"deterministic_{name}_{target[8:]}", said != want and f"it says {said}")
            if theirs:
                c, r, t = theirs[target]
                for x in (c["cudnn_fmha_backend_config"], fmha):
                    x.pop("seed", None)          # of the dropout that there is none of
                differs = [k for k in set(fmha) | set(c["cudnn_fmha_backend_config"])
                           if fmha.get(k) != c["cudnn_fmha_backend_config"].get(k)]
                check(f"as_jax_{name}_{target[8:]}", differs or (rest != r and (rest, r))
                      or (types != t and (types, t)))
    rc, _, err = train("train.steps=30")
    check("refused_elsewhere", "plain runs everywhere" not in err and f"{rc}: {err}")
    rc, _, err = train("--dry-run", "model.compute=f32")
    check("needs_bf16", (rc == 0 or "attention: plain" not in err) and f"{rc}: {err}")


main()
sys.exit(_check.end())
