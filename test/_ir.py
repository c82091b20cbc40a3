"""The readers, for tests: a running test/tool/ir."""
import os
import subprocess

import corpus

ROOT = corpus.ROOT


class Reader:
    def __init__(self):
        tool = os.path.join(os.environ.get("B", os.path.join(ROOT, "build")), "test", "tool", "ir")
        self.p = subprocess.Popen([tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        self.p.stdin.write((line + "\n").encode())
        self.p.stdin.flush()
        a = self.p.stdout.readline().decode(errors="replace").rstrip("\n")
        if not a:
            raise SystemExit(f"FAIL the reader died of: {line}")
        return a

    def hash(self, path):
        return self.ask(f"hash {path}")

    def text(self, path):
        a = self.ask(f"print {path}")
        if not a.startswith("ok "):
            raise ValueError(a)
        return self.p.stdout.read(int(a[3:])).decode()
