"""Seeds for the fuzzer of compile options: what jaxlib sends, with and without much in it."""
import sys
import numpy as np
from jaxlib import _jax

for i in range(4):
    o = _jax.CompileOptions()
    b = o.executable_build_options
    b.num_replicas, b.num_partitions = 1, 1 << i
    b.device_assignment = _jax.DeviceAssignment.create(np.arange(1 << i, dtype=np.int32).reshape(1, -1))
    b.use_spmd_partitioning = i % 2 == 1
    o.env_option_overrides = [("xla_b", True), ("xla_s", "text"), ("xla_i", i)][: i]
    with open(f"{sys.argv[1]}/jax{i}", "wb") as f:
        f.write(o.SerializeAsString())
