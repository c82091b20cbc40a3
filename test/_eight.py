"""JAX with eight simulated devices of ours beside eight of its own CPU. Import it before JAX; a machine without JAX skips the test that does."""
import os, sys
sys.path.pop(0)                                      # the folder of the tests: one of the same name as a module would be taken for it
os.environ.setdefault("JAX_PLATFORMS", "xlane,cpu")
os.environ["XLANE_CPU_DEVICES"] = "8"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("XLANE_CPU_COLLECTIVE_TIMEOUT", "60")
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
lib = os.environ.get("XLANE_CPU_PLUGIN", os.path.join(here, "build", "libxlane-cpu.so"))
os.environ.setdefault("PJRT_NAMES_AND_LIBRARY_PATHS", "xlane:" + lib)
try:
    import jax
except ImportError as e:
    print("skip %s: %s" % (os.path.basename(sys.argv[0])[:-3], e))
    sys.exit(0)
