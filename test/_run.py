"""Shared by tests that run StableHLO text on JAX's own CPU device (or another that JAX was told of)."""
import os
import numpy as np
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# what is compared runs once: compiling it well would take far longer than running it badly
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
import jax
from jax._src.lib import xla_client

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")


def run_text(text, args, platform="cpu"):
    device = jax.devices(platform)[0]
    exe = device.client.compile_and_load(text.encode(), xla_client.DeviceList((device,)), xla_client.CompileOptions())
    bufs = [jax.device_put(np.asarray(a), device) for a in args]
    return [np.asarray(o[0]) for o in exe.execute_sharded(bufs).disassemble_into_single_device_arrays()]
