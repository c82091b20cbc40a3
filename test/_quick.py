"""XLA flags with which JAX's CPU compiles quickly and runs slowly: a reference runs a few times, and compiling it well
would take far longer than running it badly. And the import of JAX, with what makes a small program quicker to lower."""
import gc, importlib.metadata, os, sys, threading


def flags():
    """An unknown flag ends the process, so the one that saves most is for the versions that are known to have it."""
    old_emitters = " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    known = importlib.metadata.version("jaxlib").startswith("0.10.")
    return ("--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
            + (old_emitters if known else ""))


def use():
    """Call it before JAX makes its first array. Flags that were asked for from outside stay as they are."""
    if "xla_backend_optimization_level" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " " + flags()


def import_jax():
    """JAX makes an MLIR context for each program that it lowers, with all ops of all dialects: two thirds of the time
    that a small program takes. Here, a thread has one for all its programs; under `./x test all` JAX is as it comes. What
    the import makes stays, and nobody looks for garbage in it."""
    if "jax" in sys.modules:
        return
    gc.disable()
    from jax._src.interpreters import mlir
    gc.enable()
    gc.freeze()
    if os.environ.get("XLANE_TEST_ALL") == "1":
        return
    new, kept = mlir.make_ir_context, {}

    # By the thread's number and never freed: Python before 3.13 crashes where what a thread keeps for itself takes the
    # interpreter's lock as the thread ends, which a context does.
    def context():
        thread = threading.get_ident()
        if thread not in kept:
            kept[thread] = new()
        return kept[thread]
    mlir.make_ir_context = context
    context()                                        # forks of this process have it too
