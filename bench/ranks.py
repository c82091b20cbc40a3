"""Collectives between processes of one machine, and the step of a small data-parallel GPT: our device beside JAX's own
CPU (gloo), in turns, and Open MPI where mpicc is there.
  bench/ranks.py            milliseconds, the median of each; a smaller number is better"""
import json, os, shutil, socket, statistics, subprocess, sys, tempfile, time
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = [("4 KiB", 4 << 10, 100), ("1 MiB", 1 << 20, 20), ("64 MiB", 64 << 20, 4)]


def worker():
    import jax, numpy as np, jax.numpy as jnp
    from jax.sharding import Mesh, PartitionSpec as P, NamedSharding
    jax.distributed.initialize(os.environ["XLANE_COORDINATOR"], int(os.environ["XLANE_RANKS"]),
                               int(os.environ["XLANE_RANK"]))
    mesh = Mesh(np.array(jax.devices()), ("d",))
    put = lambda a, spec: jax.make_array_from_callback(a.shape, NamedSharding(mesh, spec), lambda i: a[i])
    n, out = len(jax.devices()), {}

    def timed(name, f, turns, *args):
        for _ in range(3):
            jax.block_until_ready(f(*args))
        took = []
        for _ in range(turns):
            t = time.perf_counter()
            jax.block_until_ready(f(*args))
            took.append(time.perf_counter() - t)
        out[name] = statistics.median(took) * 1e3
    for size, bytes, turns in SIZES:
        x = put(np.ones((n, bytes // 4), np.float32), P("d"))
        for name, op in (("all_reduce", lambda v: jax.lax.psum(v, "d")),
                         ("all_gather", lambda v: jax.lax.all_gather(v[:, :v.shape[1] // n], "d", axis=1, tiled=True)),
                         ("reduce_scatter", lambda v: jax.lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True)),
                         ("all_to_all", lambda v: jax.lax.all_to_all(v, "d", 1, 1, tiled=True)),
                         ("permute", lambda v: jax.lax.ppermute(v, "d", [(i, (i + 1) % n) for i in range(n)]))):
            timed("%s %s" % (name, size), jax.jit(jax.shard_map(op, mesh=mesh, in_specs=P("d"), out_specs=P("d"),
                check_vma=False)), turns, x)
    rng = np.random.default_rng(0)
    D, T, B, L, V = 128, 64, 16, 2, 256
    w = {"e": (V, D), "o": (D, V), **{"%s%d" % (k, i): s for i in range(L) for k,
                                      s in (("q", (D, 3 * D)), ("p", (D, D)), ("a", (D, 4 * D)), ("b", (4 * D, D)))}}
    w = {k: put(rng.standard_normal(s).astype(np.float32) * .02, P()) for k, s in w.items()}
    tokens = put(rng.integers(0, V, (B, T + 1)).astype(np.int32), P("d"))

    def loss(w, t):
        x = w["e"][t[:, :-1]]
        for i in range(L):
            h = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
            q, k, v = (a.reshape(*a.shape[:2], 4, D // 4) for a in jnp.split(h @ w["q%d" % i], 3, -1))
            s = jnp.einsum("bthd,bshd->bhts", q, k) / (D // 4) ** .5
            s = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, -1e9))
            x = x + jnp.einsum("bhts,bshd->bthd", s, v).reshape(x.shape) @ w["p%d" % i]
            x = x + jax.nn.gelu(x @ w["a%d" % i]) @ w["b%d" % i]
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ w["o"]), t[:, 1:, None], -1).mean()

    def step(w, t):
        l, g = jax.value_and_grad(loss)(w, t)
        return jax.tree.map(lambda a, b: a - .1 * b, w, g), l
    timed("step of a GPT", jax.jit(step), 20, w, tokens)
    if jax.process_index() == 0:
        print("RESULT " + json.dumps(out), flush=True)


def job(n, ours):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        at = "127.0.0.1:%d" % s.getsockname()[1]
    env = dict(os.environ, XLANE_RANKS=str(n), XLANE_COORDINATOR=at,
               PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + os.path.join(HERE, "build", "libxlane-cpu.so"),
               JAX_PLATFORMS="xlane" if ours else "cpu", JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo")
    p = [subprocess.Popen([sys.executable, __file__, "worker"], env=dict(env, XLANE_RANK=str(i)),
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for i in range(n)]
    out = [q.communicate(timeout=600)[0] for q in p]
    return json.loads(next(l[7:] for l in out[0].splitlines() if l.startswith("RESULT ")))


MPI = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static int cmp(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }
int main(int argc, char **argv)
{
    int me;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    size_t sizes[] = { 4 << 10, 1 << 20, 64 << 20 };
    int turns[] = { 100, 20, 4 };
    for (int k = 0; k < 3; k++) {
        float *x = calloc(sizes[k], 1), *y = calloc(sizes[k], 1);
        double t[100];
        for (int i = -3; i < turns[k]; i++) {
            double b = MPI_Wtime();
            MPI_Allreduce(x, y, (int)(sizes[k] / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            if (i >= 0) t[i] = MPI_Wtime() - b;
        }
        qsort(t, turns[k], sizeof *t, cmp);
        if (!me) printf("%g\n", t[turns[k] / 2] * 1e3);
        free(x), free(y);
    }
    MPI_Finalize();
}
"""


def mpi(n):
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        return {}
    d = tempfile.mkdtemp()
    open(d + "/m.c", "w").write(MPI)
    if subprocess.run(["mpicc", "-O2", d + "/m.c", "-o", d + "/m"], capture_output=True).returncode:
        return {}                                        # libopenmpi-dev is not there
    out = subprocess.run(["mpirun", "--oversubscribe", "-n", str(n), d + "/m"], text=True, capture_output=True,
                         timeout=300,
                         env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")).stdout.split()
    shutil.rmtree(d)
    return {"all_reduce " + s[0]: float(v) for s, v in zip(SIZES, out)}


if sys.argv[1:] == ["worker"]:
    worker()
    sys.exit()
for n in (2, 4):
    turns = [(job(n, True), job(n, False)) for _ in range(int(os.environ.get("XLANE_BENCH_TURNS", 2)))]
    third = mpi(n)
    print("%d processes, ms     %10s %10s %10s" % (n, "xlane", "JAX gloo", "Open MPI"))
    for name in turns[0][0]:
        a, b = (min(t[k][name] for t in turns) for k in (0, 1))
        print("%-20s %10.3f %10.3f %10s%s" % (name, a, b, "%.3f" % third[name] if name in third else "-",
                                              "  behind gloo" if a > b else ""), flush=True)
