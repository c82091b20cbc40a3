"""The XLA training lane: its command, its CPU device for JAX and PyTorch/XLA, and the libraries behind them."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def path(*parts):
    """A file of this package: path("lib", "libxlane-cpu.so")."""
    return os.path.join(HERE, *parts)


def main():
    """The `xlane` on the path: the program itself takes over this process."""
    program = path("bin", "xlane")
    os.execv(program, [program] + sys.argv[1:])
