"""One process of a job: `_ranks_job.py WHAT`. XLANE_RANK, XLANE_RANKS and XLANE_COORDINATOR say which; alone without them. Prints lines `= NAME VALUE`."""
import os, sys, time
import _jax
import jax, numpy as np, jax.numpy as jnp
from functools import partial
from jax.sharding import Mesh, PartitionSpec as P, NamedSharding
what = sys.argv[1]
me, n = int(os.environ.get("XLANE_RANK", 0)), int(os.environ.get("XLANE_RANKS", 1))
if what == "join":                                       # JAX itself knows mpirun and srun
    jax.distributed.initialize()
elif n > 1:
    jax.distributed.initialize(os.environ["XLANE_COORDINATOR"], n, me)
import hashlib
devices = jax.devices()
mesh = Mesh(np.array(devices), ("d",))
rng = np.random.default_rng(0)


def say(name, value):
    print("= %s %s" % (name, value), flush=True)


def put(a, spec, mesh=mesh):
    return jax.make_array_from_callback(a.shape, NamedSharding(mesh, spec), lambda i: a[i])


def digest(x):
    """Of this process's shards, by device: put together by the test."""
    for s in x.addressable_shards:
        yield s.device.id, hashlib.sha256(np.asarray(s.data).tobytes()).hexdigest()[:12]


def show(name, x):
    for d, h in digest(x):
        say("%s@%d" % (name, d), h)


def trained(steps, hook=lambda i: None):
    w = {"a": put(rng.standard_normal((32, 256)).astype(np.float32) * .1, P()),
         "b": put(rng.standard_normal((256, 1)).astype(np.float32) * .1, P())}
    x, y = put(rng.standard_normal((96, 32)).astype(np.float32), P("d")), put(rng.standard_normal((96,
        1)).astype(np.float32), P("d"))

    @jax.jit
    def step(w, x, y):
        l, g = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2))(w)
        return jax.tree.map(lambda a, b: a - .1 * b, w, g), l
    for i in range(steps):
        hook(i)
        w, l = step(w, x, y)
        l.block_until_ready()
        say("step", i)
    say("loss", float(l.addressable_data(0)).hex())
    show("w", w["a"])


def collectives():
    d = len(devices)
    for rows in (4, 1000, 40000):                        # inline, shared, shared out
        x = put(rng.standard_normal((d * rows, 8)).astype(np.float32), P("d"))
        k = put(rng.integers(0, 1000, (d * rows, 8)).astype(np.int32), P("d"))
        ops = {
            "sum": lambda v: jax.lax.psum(v, "d"), "max": lambda v: jax.lax.pmax(v,
                "d"), "min": lambda v: jax.lax.pmin(v, "d"),
            "gather": lambda v: jax.lax.all_gather(v, "d"), "gather1": lambda v: jax.lax.all_gather(v, "d", axis=1,
                tiled=True),
            "a2a": lambda v: jax.lax.all_to_all(v, "d", 0, 1, tiled=True), "a2a1": lambda v: jax.lax.all_to_all(v, "d",
                1, 0, tiled=True),
            "permute": lambda v: jax.lax.ppermute(v, "d", [(i, (i + 1) % d) for i in range(d)]),
            "one_way": lambda v: jax.lax.ppermute(v, "d", [(0, d - 1)]),
            "scatter": lambda v: jax.lax.psum_scatter(v, "d", scatter_dimension=0, tiled=True),
            "scatter1": lambda v: jax.lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True),
            "both": lambda v: jax.lax.psum((v, v * 2), "d")[1] + jax.lax.pmean(v, "d"),
            "pairs": lambda v: jax.lax.psum(v, "d", axis_index_groups=[[0, 2], [1, 3]]) if d == 4 else v,
            "loop": lambda v: jax.lax.fori_loop(0, 5, lambda i, a: a + jax.lax.psum(a, "d") * .01,
                                                v.astype(jnp.float32)),
        }
        def every(v):
            return {name: op(v) for name, op in ops.items()}
        for kind, v in (("f32", x), ("i32", k), ("bf16", x.astype(jnp.bfloat16))):
            if rows == 40000 and kind != "f32":
                continue
            out = jax.jit(jax.shard_map(every, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))(v)
            for name in ops:
                show("%s.%s.%d" % (name, kind, rows), out[name])
    grid = Mesh(np.array(devices).reshape(2, -1), ("a", "b"))
    g = put(rng.standard_normal((8, 8)).astype(np.float32), P("a", "b"), grid)
    f = jax.jit(lambda v: (v @ v.T).sum(0), out_shardings=NamedSharding(grid, P("b")))
    show("grid", f(g))
    half = Mesh(np.array(devices[:len(devices) // 2]), ("d",))
    if any(v.process_index == jax.process_index() for v in half.devices.flat):   # a program of some processes alone
        show("half", jax.jit(lambda v: v.sum(), out_shardings=NamedSharding(half,
            P()))(put(rng.standard_normal(8).astype(np.float32), P("d"), half)))


if what == "same":
    say("devices", "%d %d %d %d" % (jax.process_index(), jax.process_count(), len(devices), len(jax.local_devices())))
    trained(10)
    collectives()
elif what == "join":
    say("joined", "%d of %d" % (jax.process_index(), jax.process_count()))
    trained(3)
elif what == "train":
    say("pid", os.getpid())
    pause = {int(k): float(v) for k, v in (p.split(":") for p in os.environ.get("JOB_PAUSE", "").split(",") if p)}
    trained(int(os.environ.get("JOB_STEPS", 10)), lambda i: time.sleep(pause.get(me, 0)
        or float(os.environ.get("JOB_SLEEP", 0))))
elif what == "diverge":                                  # a rank whose program has other collectives
    x = put(np.ones((8, 8), np.float32), P("d"))
    f = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "d") if me != 1 else jax.lax.all_gather(v, "d", tiled=True)[:2],
                              mesh=mesh, in_specs=P("d"), out_specs=P("d"),
                              check_vma=False))
    say("sum", float(np.asarray(f(x).addressable_data(0)).sum()))
# one rank builds another program, in twenty ways; in between, programs that all build alike
elif what == "plant":
    odd = me == int(os.environ.get("JOB_ODD", 2))
    x, y = put(np.ones((96, 8), np.float32), P("d")), put(np.ones((96, 8), np.float32), P())
    s, r = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
    J = partial(jax.jit, out_shardings=s)
    big = np.arange(96 * 8, dtype=np.float32).reshape(96, 8)
    def named(name, f):
        f.__name__ = name
        return f
    cases = {
        "constant": lambda o: J(lambda v: v * (0.2 if o else 0.1)),
        "constant_array": lambda o: J(lambda v: v + (big + (1 if o else 0))),
        "constant_int": lambda o: J(lambda v: v + jnp.int32(3 if o else 4)),
        "learning_rate": lambda o: J(lambda v: v - (1e-3 if o else 1e-4) * jnp.tanh(v)),
        "epsilon": lambda o: J(lambda v: v / jnp.sqrt(v.var() + (1e-6 if o else 1e-5))),
        "shape": lambda o: jax.jit(lambda v: jnp.zeros((96, 4 if o else 8)) + v.sum(), out_shardings=s),
        "pad": lambda o: jax.jit(lambda v: jnp.pad(v, ((0, 0), (0, 2 if o else 1))), out_shardings=s),
        "slice": lambda o: jax.jit(lambda v: v[:, :3 if o else 4], out_shardings=s),
        "op": lambda o: J(lambda v: jnp.sin(v) if o else jnp.cos(v)),
        "op_more": lambda o: J(lambda v: v * 2 + 1 if o else v * 2),
        "reduce": lambda o: J(lambda v: v - (v.max(0) if o else v.min(0))),
        "dtype": lambda o: J(lambda v: (v.astype(jnp.bfloat16) if o else v.astype(jnp.float16)).astype(jnp.float32)),
        "order": lambda o: J(lambda v: (v @ v.T) @ v if o else v @ (v.T @ v)),
        "axis": lambda o: J(lambda v: v + v.sum(1 if o else 0, keepdims=True)),
        "sharding_out": lambda o: jax.jit(lambda v: v * 3, out_shardings=r if o else s),
        "sharding_in": lambda o: J(lambda v: jax.lax.with_sharding_constraint(v + 5, r if o else s) * 2),
        "loop": lambda o: J(lambda v: jax.lax.fori_loop(0, 3 if o else 4, lambda i, a: a * 1.5, v)),
        "branch": lambda o: J(named("evaluate" if o else "train", lambda v: v.sum() + v)),
        "donation": lambda o: jax.jit(lambda v: v + 7, out_shardings=s, donate_argnums=(0,) if o else ()),
        "collective": lambda o: jax.jit(jax.shard_map(lambda v: v + (jax.lax.psum(v, "d") if o
            else jax.lax.pmax(v, "d")), mesh=mesh, in_specs=P("d"), out_specs=P("d"))),
    }
    for k, (name, make) in enumerate(cases.items()):
        for stage in ("clean", "plant"):
            say(stage, name)
            t = time.time()
            try:
                make(odd and stage == "plant").lower(x + k).compile()
            except Exception as e:
                say("failed", str(e).replace("\n", " ")[:200])
            say("took", "%s %s %.2f" % (stage, name, time.time() - t))
    print("= end %d" % len(cases), flush=True)
