"""JAX finds this through the entry point `jax_plugins`; the device is then `JAX_PLATFORMS=xlane`. The plugin itself tells
JAX what it can do."""
import os

import xlane


def initialize():
    from jax._src import xla_bridge

    # Where PJRT_NAMES_AND_LIBRARY_PATHS names it, as under `xlane run --profile=cpu`, JAX registers it itself: a second
    # time is an error.
    named = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "").split(",")
    if any(pair.split(":")[0] == "xlane" for pair in named):
        return
    try:
        xla_bridge._nonexperimental_plugins.add("xlane")  # JAX warns of other platforms each time it starts one
    except AttributeError:
        pass
    # Below every other backend: installing this wheel changes nobody's default device.
    xla_bridge.register_plugin("xlane", priority=-1, library_path=xlane.path("lib", "libxlane-cpu.so"))
