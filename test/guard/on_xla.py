"""Our training step on XLA's own eight-device CPU: `python on_xla.py XLANE conf.yaml`. Prints loss and gradient norm
for one device, for eight with sdy annotations and for eight with the older ones, from the same parameters and batch.
Both kinds must compile and agree."""
import os
import re
import subprocess
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
import _quick

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 " + _quick.flags()
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.pop(0)                                      # a test of the same name as a module would be taken for it
import jax
import numpy as np
from jax._src import xla_bridge
from jax._src.lib import xla_client as xc
from jax._src.sharding_impls import GSPMDSharding

words = ["model.pattern=A", "model.dim=32", "model.heads=4", "data.batch=8", "data.time=16", "model.vocab=64"]
be = xla_bridge.get_backend("cpu")


def text(mesh, kind):
    p = subprocess.run([sys.argv[1], "train", "--print=step", sys.argv[2], *words, "mesh=" + mesh], capture_output=True,
                       text=True, env=dict(os.environ, XLANE_ANNOTATIONS=kind))
    assert p.returncode == 0, p.stderr
    return p.stdout


def build(code, n, shardy):
    o = xc.CompileOptions()
    o.num_replicas, o.num_partitions = 1, n
    b = o.executable_build_options
    b.num_replicas, b.num_partitions, b.use_spmd_partitioning, b.use_shardy_partitioner = 1, n, n > 1, shardy
    b.device_assignment = xc.DeviceAssignment.create(np.arange(n).reshape(1, n))
    return be.compile_and_load(code, xc.DeviceList(tuple(jax.devices()[:n])), o)


for n, mesh, kind in ((1, "", "sdy"), (8, "data=2,model=4", "sdy"), (8, "data=2,model=4", "mhlo")):
    code = text(mesh, kind)
    assert n == 1 or ("sdy.mesh" in code) == (kind == "sdy") and ("mhlo.sharding"
        in code) == (kind == "mhlo"), "annotations"
    exe = build(code, n, kind == "sdy")
    head = code[code.index("func.func public @main("):]
    args = re.findall(r"%[\w.]+: tensor<([\dx]*)(f32|i32)>", head[:head.index(") -> ")])
    rng = np.random.default_rng(0)
    shardings = exe.get_parameter_shardings() if n > 1 else None
    put, seen = [], 0
    for i, (dims, dtype) in enumerate(args):
        shape = [int(d) for d in dims.split("x") if d]
        if dtype == "i32":
            v = np.zeros(shape, np.int32) if shape != [8, 16] else rng.integers(0, 64,
                shape).astype(np.int32) if seen < 2 else np.ones(shape, np.int32)
            seen += shape == [8, 16]                 # tokens and targets, then segments and positions
        elif shape == [12]:
            v = np.array([1e-3, 0, 2, 10, 0, 0.9, 0.95, np.log(0.9), np.log(0.95), 1e-8, 0.1, 1], np.float32)
        elif shape == [2, 4]:
            v = np.ones(shape, np.float32)
        else:
            v = (rng.normal(size=shape) * 0.1).astype(np.float32) if i < (len(args) - 7 - (n > 1)) // 3 + 1 else np.zeros(shape, np.float32)
        s = GSPMDSharding(tuple(jax.devices()),
                          shardings[i]) if n > 1 else jax.sharding.SingleDeviceSharding(jax.devices()[0])
        put.append(jax.device_put(v, s))
    out = exe.execute_sharded(put).disassemble_into_single_device_arrays()
    m = np.asarray(out[-1][0])
    print(n, kind, "%.7g %.7g" % (m[0], m[1]), [float(v) for v in m[7:]] if n > 1 else "", flush=True)
