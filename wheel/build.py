"""Packs build/ into a wheel: the command, the libraries, and the two frontends' entry points.

usage: python wheel/build.py [--quick] [FOLDER]     the wheel goes to FOLDER (build/); --quick compresses it little
The files are those of `make bundle`, so that the wheel runs where zstd, libsodium, libyaml and LAPACK are not
installed. CROSS=x86_64-linux-gnu- (or aarch64-linux-gnu-) in the environment makes the other architecture's wheel.
"""
import base64
import glob
import hashlib
import os
import re
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENTRY_POINTS = """[console_scripts]
xlane = xlane:main

[jax_plugins]
xlane = xlane.jax_plugin

[torch_xla.plugins]
xlane = xlane.torch_plugin:Plugin
"""


def main():
    quick = "--quick" in sys.argv[1:]
    out = ([a for a in sys.argv[1:] if a != "--quick"] + [os.path.join(ROOT, "build")])[0]
    with open(os.path.join(ROOT, "src/base/version.h")) as f:
        version = re.search(r'XL_VERSION "(.*)"', f.read()).group(1)
    os.makedirs(out, exist_ok=True)
    cross = os.environ.get("CROSS", "")
    subprocess.run(["make", "-s", "-C", ROOT, "CROSS=" + cross, "bundle-files"], check=True, stdout=subprocess.DEVNULL)
    machine = cross.split("-")[0] or os.uname().machine
    bundle = os.path.join(ROOT, "build", cross.rstrip("-"), "bundle", f"xlane-{version}-{machine}")

    files = {}  # name in the wheel -> (bytes, is it a program)
    for source in glob.glob(os.path.join(ROOT, "wheel/xlane/*.py")):
        with open(source, "rb") as f:
            files["xlane/" + os.path.basename(source)] = (f.read(), False)
    for source in glob.glob(bundle + "/bin/*") + glob.glob(bundle + "/lib/*.so*"):
        with open(source, "rb") as f:
            files["xlane/" + os.path.relpath(source, bundle)] = (f.read(), True)

    # The oldest glibc on which all of it runs.
    glibc = max(int(v) for data, program in files.values() if program for v in re.findall(rb"GLIBC_2\.(\d+)\0", data))
    tag = f"py3-none-manylinux_2_{glibc}_{machine}"
    info = f"xlane-{version}.dist-info/"
    meta = f"Metadata-Version: 2.1\nName: xlane\nVersion: {version}\nSummary: the XLA training lane\nLicense: Apache-2.0\nRequires-Python: >=3.9\n"
    wheel = f"Wheel-Version: 1.0\nGenerator: xlane\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[info + "METADATA"] = (meta.encode(), False)
    files[info + "WHEEL"] = (wheel.encode(), False)
    files[info + "entry_points.txt"] = (ENTRY_POINTS.encode(), False)
    for name in ("LICENSE", "LICENSE.openblas"):
        if os.path.exists(os.path.join(bundle, name)):
            with open(os.path.join(bundle, name), "rb") as f:
                files[info + name] = (f.read(), False)

    record = ""
    path = os.path.join(out, f"xlane-{version}-{tag}.whl")
    with zipfile.ZipFile(path + ".tmp", "w", zipfile.ZIP_DEFLATED) as z:
        def put(name, data, program):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # the same bytes give the same wheel
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data, compresslevel=1 if quick else None)
        for name in sorted(files):
            data, program = files[name]
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            put(name, data, program)
        put(info + "RECORD", (record + info + "RECORD,,\n").encode(), False)
    os.replace(path + ".tmp", path)
    print(path)


main()
