"""How a test runs what exists for x86-64 only: as it is there; elsewhere under box64, or under qemu-user, which is slower."""
import os, shutil

NATIVE = os.uname().machine == "x86_64"


def emulator():
    """The words before the command; None: nothing here can run it."""
    if NATIVE:
        return []
    if shutil.which("box64"):
        os.environ.setdefault("BOX64_LOG", "0")
        return ["box64"]
    return ["qemu-x86_64", "-cpu", "max"] if shutil.which("qemu-x86_64") else None
