"""JAX with our device beside its own CPU. Import it before JAX. `./x test` installs JAX, so a test that cannot import it has failed."""
import os, sys
import _quick
# the folder of the tests: one of the same name as a module would be taken for it
sys.path.pop(0)
os.environ.setdefault("JAX_PLATFORMS", "xlane,cpu")
os.environ.setdefault("XLANE_CPU_CHECK", "1")        # every plan is checked against its program
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
lib = os.environ.get("XLANE_CPU_PLUGIN", os.path.join(here, "build", "libxlane-cpu.so"))
os.environ.setdefault("PJRT_NAMES_AND_LIBRARY_PATHS", "xlane:" + lib)
_quick.import_jax()
import jax
