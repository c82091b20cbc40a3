"""JAX with eight simulated devices of ours beside eight of its own CPU. Import it before JAX."""
import os
os.environ["XLANE_CPU_DEVICES"] = "8"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("XLANE_CPU_COLLECTIVE_TIMEOUT", "60")
import _quick
_quick.use()
from _jax import here, lib
