"""Shared by tests that run StableHLO text on JAX's own CPU device (or another that JAX was told of)."""
import functools, os
import numpy as np
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLANE_CPU_CHECK", "1")        # every plan of ours is checked against its program
import _quick
_quick.use()
_quick.import_jax()
import jax
from jax._src.lib import xla_client

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")


@functools.lru_cache(maxsize=4)
def compiled(text, platform):
    device = jax.devices(platform)[0]
    return device.client.compile_and_load(text.encode(), xla_client.DeviceList((device,)), xla_client.CompileOptions())


def run_text(text, args, platform="cpu"):
    device, exe = jax.devices(platform)[0], compiled(text, platform)
    bufs = [jax.device_put(np.asarray(a), device) for a in args]
    return [np.asarray(o[0]) for o in exe.execute_sharded(bufs).disassemble_into_single_device_arrays()]
