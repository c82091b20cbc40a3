"""Runs a training step's program on JAX's CPU device: python bench/_program.py FILE STEPS. Arguments that the results replace are fed back."""
import os, re, sys
os.environ["JAX_PLATFORMS"] = "cpu"
import numpy as np
import jax
from jax._src.lib import xla_client
text, steps = open(sys.argv[1]).read(), int(sys.argv[2])
device, rng = jax.devices("cpu")[0], np.random.default_rng(0)
exe = device.client.compile_and_load(text.encode(), xla_client.DeviceList((device,)), xla_client.CompileOptions())
head = re.search(r"@main\((.*?)\)\s*->", text, re.S).group(1)
args = re.findall(r"%(\S+): tensor<((?:\d+x)*)(f32|i32)>", head)
values = []
for k, (name, dims, kind) in enumerate(args):
    shape = [int(d) for d in dims.split("x")[:-1]]
    if kind == "i32":
        values.append(np.zeros(shape, np.int32) if shape == [2] else np.ones(shape, np.int32))
    # the hyper tensor: rate, least, warm-up, steps, kind, betas, their logs, eps, decay, clip
    elif shape == [12]:
        values.append(np.array([3e-3, 0, 0, 100, 2, .9, .95, np.log(.9), np.log(.95), 1e-8, .1, 1], np.float32))
    else:
        values.append((rng.standard_normal(shape) * 0.02).astype(np.float32) if k < (len(args) - 6) // 3
                      else np.zeros(shape, np.float32))
values = [jax.device_put(v, device) for v in values]
for _ in range(steps):
    out = [o[0] for o in exe.execute_sharded(values).disassemble_into_single_device_arrays()]
    values[:len(out) - 1] = out[:-1]
print(np.asarray(out[-1])[:1])
