"""JAX finds this through the entry point `jax_plugins`; the device is then `JAX_PLATFORMS=xlane`."""
import xlane


def initialize():
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir

    # Below every other backend: installing this wheel changes nobody's default device.
    xla_bridge.register_plugin("xlane", priority=-1, library_path=xlane.path("lib", "libxlane-cpu.so"))
    # JAX tells only the platforms in this list which arguments are donated.
    donating = getattr(mlir, "_platforms_with_donation", None)
    if donating is not None and "xlane" not in donating:
        donating.append("xlane")
    lower_decompositions(mlir)


def lower_decompositions(mlir):
    """Decompositions that JAX knows to lower on its own platforms only: the device serves the LAPACK calls that it makes on CPU."""
    from jax._src.lax import linalg

    rules = getattr(mlir, "_platform_specific_lowerings", {}).get("cpu", {})
    for name in ("eig_p", "eigh_p", "svd_p", "schur_p", "hessenberg_p", "tridiagonal_p", "tridiagonal_solve_p", "geqp3_p"):
        primitive = getattr(linalg, name, None)
        entry = rules.get(primitive)
        if entry is not None:
            rule = getattr(entry, "rule", entry)
            mlir.register_lowering(primitive, one_algorithm(rule) if name == "eigh_p" else rule, platform="xlane")


def one_algorithm(rule):
    """The device has one way to do it, whichever is asked for: JAX's rule for its CPU refuses those of other devices."""
    return lambda ctx, *args, **kw: rule(ctx, *args, **{k: None if k == "algorithm" else v for k, v in kw.items()})
