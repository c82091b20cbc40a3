"""XLA flags with which JAX's CPU compiles quickly and runs slowly: a reference runs a few times, and compiling it well
would take far longer than running it badly."""
import importlib.metadata, os


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
