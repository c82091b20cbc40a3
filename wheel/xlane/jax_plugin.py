"""JAX finds this through the entry point `jax_plugins`; the device is then `JAX_PLATFORMS=xlane`. The plugin itself tells JAX what it can do."""
import xlane


def initialize():
    from jax._src import xla_bridge

    # Below every other backend: installing this wheel changes nobody's default device.
    xla_bridge.register_plugin("xlane", priority=-1, library_path=xlane.path("lib", "libxlane-cpu.so"))
