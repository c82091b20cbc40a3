"""The Debian packages of ./x deb: what they hold, a command that runs where it is unpacked, a program linked with the
library, and lintian without a complaint where it is installed."""
import os
import shutil
import subprocess
import sys
import tempfile

import _check
from _check import check, end, skip

_check.prefix = "deb_"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
tools = [t for t in ("dpkg-deb", "dpkg-shlibdeps") if not shutil.which(t)]
if tools:
    skip("packages", f"no {' and no '.join(tools)} here (Debian's dpkg-dev has them)")
    sys.exit(0)
tmp = tempfile.mkdtemp(prefix="xlane-deb-")
p = subprocess.run(["sh", ROOT + "/deb/build.sh", tmp], capture_output=True, text=True,
                   env=dict(os.environ, B=os.path.join(ROOT, "build"), DEB_LEVEL="0")) # packed quickly
debs = p.stdout.split()
if check("packages", p.returncode == 0 and len(debs) == 2, p.stdout + p.stderr):
    for d in debs:
        subprocess.run(["dpkg-deb", "-x", d, tmp + "/root"], check=True)
    control = subprocess.run(["dpkg-deb", "-f", debs[0]], capture_output=True, text=True).stdout
    check("depends_on_what_it_links", all(f"lib{l}" in control for l in ("zstd1", "sodium23", "yaml-0-2", "c6")),
          control)
    xlane = tmp + "/root/usr/bin/xlane"
    p = subprocess.run([xlane, "probe", "--plugin=cpu"], capture_output=True, text=True, timeout=300,
                       env=dict(os.environ, XLANE_STATE=tmp + "/state"))
    check("the_command_finds_its_plugin", p.returncode == 0, p.stdout + p.stderr)
    verbs = subprocess.run([xlane, "completion", "fish"], capture_output=True, text=True).stdout
    pages = os.listdir(tmp + "/root/usr/share/man/man1")
    check("manual_pages", "xlane.1.gz" in pages and "xlane-run.1.gz" in pages and "explain" in verbs, pages)
    with open(tmp + "/a.c", "w") as f:
        f.write("#include <stdio.h>\n#include <xlane/xlane.h>\nint main(void) { puts(xl_error_message(NULL)); return 0; }\n")
    lib = [os.path.join(d, "libxlane.a") for d, _, fs in os.walk(tmp + "/root") if "libxlane.a" in fs][0]
    p = subprocess.run([os.environ.get("CC", "cc"), tmp + "/a.c", "-I" + tmp + "/root/usr/include", lib, "-lyaml",
                        "-lsodium",
                        "-lzstd", "-lpthread", "-ldl", "-lm", "-o", tmp + "/a"], capture_output=True, text=True)
    check("a_program_links_the_library", p.returncode == 0 and subprocess.run([tmp + "/a"],
        capture_output=True).returncode == 0, p.stderr)
    if shutil.which("lintian"):
        p = subprocess.run(["lintian", "--fail-on", "error,warning", *debs], capture_output=True, text=True)
        check("lintian", p.returncode == 0 and not p.stdout.strip(), p.stdout + p.stderr)
    else:
        skip("lintian", "no lintian here (./x deb installs it)")
shutil.rmtree(tmp, ignore_errors=True)
sys.exit(end())
