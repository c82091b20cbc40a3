"""The wheel installs with pip, its command runs, and JAX finds the device by its entry point without changing its default."""
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import _check
from _check import check, end
_check.prefix = "wheel_"

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


with tempfile.TemporaryDirectory() as tmp:
    wheel = subprocess.run([sys.executable, ROOT + "/wheel/build.py", "--quick", tmp], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.strip()
    show = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], text=True, capture_output=True).stdout
    tag = "-".join(wheel[:-4].split("-")[4:])
    check("auditwheel_agrees_with_its_tag", f'consistent with the following platform tag: "{tag}"'
          in " ".join(show.split()), show)
    site = tmp + "/site"
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index",
                          "--disable-pip-version-check",
                          "--target", site, wheel], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check("pip_installs_it", pip.returncode == 0, pip.stdout[-300:])
    env = dict(os.environ, PYTHONPATH=site)
    env.pop("JAX_PLATFORMS", None)
    ran = subprocess.run([site + "/bin/xlane", "--version"], env=env, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
    check("command_runs", ran.returncode == 0 and ran.stdout.startswith("xlane "), ran.stdout)
    dist = list(importlib.metadata.distributions(path=[site]))[0]
    groups = {e.group for e in dist.entry_points}
    check("entry_points", groups == {"console_scripts", "jax_plugins", "torch_xla.plugins"}, groups)

    ask = "import jax, json; print(json.dumps([d.platform for d in jax.devices()]))"
    plain = subprocess.run([sys.executable, "-c", ask], env=env, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    check("default_stays", plain.returncode == 0 and set(json.loads(plain.stdout)) == {"cpu"},
          plain.stdout + plain.stderr[-300:])
    check("jax_does_not_warn_of_it", "xlane" not in plain.stderr, plain.stderr[-300:])
    # The profile names the plugin too: it is registered once.
    under = dict(env, XLANE_STATE=tmp + "/state")
    guarded = subprocess.run([site + "/bin/xlane", "run", "--profile=cpu", "--summary", "--cache=off", "--runs=" + tmp
                              + "/runs", "--", sys.executable, "-c", ask], env=under, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    check("profile_cpu_beside_the_wheel", guarded.returncode == 0 and set(json.loads(guarded.stdout or "[]")) ==
          {"xlane"} and "exit status 0" in guarded.stderr, guarded.stdout + guarded.stderr[-500:])
    guarded = subprocess.run([site + "/bin/xlane", "run", "--summary", "--cache=off", "--runs=" + tmp + "/runs", "--",
                              sys.executable, "-c", ask], env=dict(under, JAX_PLATFORMS="xlane"), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check("guarded_without_a_profile", guarded.returncode == 0 and set(json.loads(guarded.stdout or "[]")) == {"xlane"}
          and "nothing was guarded" not in guarded.stderr, guarded.stdout + guarded.stderr[-500:])
    with open(site + "/xlane/lib/libxlane-cpu.so", "rb") as f:
        has_entry = b"\0GetPjrtApi\0" in f.read()
    if has_entry:
        env["JAX_PLATFORMS"] = "xlane"
        ours = subprocess.run([sys.executable, "-c", ask], env=env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        solve = "import jax.numpy as jnp; a = jnp.eye(40) * 3 + 1; print(float(abs(jnp.linalg.svd(a)[1] - abs(jnp.linalg.eigh(a)[0])[::-1]).max()))"
        svd = subprocess.run([sys.executable, "-c", solve], env=env, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        check("carries_lapack", svd.returncode == 0 and float(svd.stdout or "1") < 1e-4, svd.stdout + svd.stderr[-300:])
        env["XLANE_LAPACK"] = tmp + "/none.so"
        none = subprocess.run([sys.executable, "-c", solve], env=env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        check("says_what_lapack_is_missing", none.returncode != 0 and "none.so" in none.stderr and "scipy-openblas32"
              in none.stderr, none.stdout + none.stderr[-500:])
        env["XLANE_LAPACK"] = os.path.join(ROOT, "build", "test", "plugins", "wrong_blas.so")
        wrong = subprocess.run([sys.executable, "-c", solve], env=env, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        check("refuses_a_lapack_that_multiplies_wrongly", wrong.returncode != 0 and "multiplies wrongly on this CPU"
              in wrong.stderr and "OPENBLAS_CORETYPE=" in wrong.stderr, wrong.stdout + wrong.stderr[-500:])
        env.pop("XLANE_LAPACK")
        check("jax_finds_the_device", ours.returncode == 0 and set(json.loads(ours.stdout or "[]")) == {"xlane"},
              ours.stdout + ours.stderr[-300:])
    else:
        print("skip wheel_jax_finds_the_device: libxlane-cpu.so exports no GetPjrtApi")
sys.exit(end())
