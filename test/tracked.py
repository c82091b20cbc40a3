"""What git keeps: nothing large, and nothing binary but recorded programs. A file that an example or a test left behind
is found here when somebody adds it."""
import os
import re
import subprocess
import sys

from _check import check, end, skip

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST = 512 << 10
BINARY = r"test/torch/programs/\w+\.hlo\.pb\.xz"     # recorded from PyTorch/XLA, which takes 7 GB to install


def git(*words):
    p = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return p.stdout.splitlines() if p.returncode == 0 else None


def main():
    files = git("ls-files")
    if not files and not os.path.exists(os.path.join(ROOT, ".git")):
        skip("tracked", "not a git repository")
        return end()
    if not check("tracked_files_are_listed", files, "git ls-files fails here, or lists nothing"):
        return end()
    files = [f for f in files if os.path.isfile(os.path.join(ROOT, f))]
    large = [f for f in files if os.path.getsize(os.path.join(ROOT, f)) > MOST]
    check("tracked_none_is_large", not large, f"over {MOST >> 10} KiB: {', '.join(large)}")
    binary = [f for f in files if b"\0" in open(os.path.join(ROOT, f), "rb").read() and not re.fullmatch(BINARY, f)]
    check("tracked_none_is_binary", not binary, f"binary, and not {BINARY}: {', '.join(binary)}")
    return end()


sys.exit(main())
