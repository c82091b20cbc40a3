"""Compiles, with jax.distributed, a program whose devices belong to two processes: `python ranks.py RANK PORT`. It knows nothing of xlane."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rank = int(sys.argv[1])
jax.distributed.initialize("127.0.0.1:" + sys.argv[2], 2, rank)
assert len(jax.devices()) == 2 and [d.id for d in jax.local_devices()] == [rank], (jax.devices(), jax.local_devices())
spread = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
for n in 8, 16:
    def spanning(x):
        return jnp.tanh(x) * n
    compiled = jax.jit(spanning, in_shardings=spread, out_shardings=spread).lower(jax.ShapeDtypeStruct((n,),
        jnp.float32)).compile()
    print(rank, n, len(compiled.as_text()) > 0)
