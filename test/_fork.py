"""Cases that need a JAX of their own, with their own environment. Each is forked off this process, which has imported
JAX and made no device yet: a second less than starting Python for each."""
import os, runpy, signal, subprocess, sys, tempfile, time, traceback
import _quick
if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    sys.path.pop(0)                                  # a test of the same name as a module would be taken for it
os.environ.setdefault("JAX_PLATFORMS", "xlane")
_quick.import_jax()
import jax


class Child:
    """What subprocess.Popen is, of a fork that calls `fn` with this environment, its output in the open file `f`."""
    def __init__(self, fn, env, f):
        sys.stdout.flush()
        self.returncode, self.pid = None, os.fork()
        if self.pid:
            return
        status = 1
        try:
            os.dup2(f.fileno(), 1), os.dup2(f.fileno(), 2)
            os.environ.clear(), os.environ.update(env)
            jax.config.update("jax_platforms", env["JAX_PLATFORMS"])     # it was read when JAX was imported
            fn()
            status = 0
        except SystemExit as e:
            status = e.code if isinstance(e.code, int) else 1 if e.code else 0
            if e.code and not isinstance(e.code, int):
                print(e.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)

    def poll(self):
        if self.returncode is None:
            done, how = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(how) if done else None
        return self.returncode

    def wait(self, seconds=None):
        end = time.monotonic() + seconds if seconds is not None else None
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.pid, seconds)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, sig):
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def script(path, *args):
    """To be called in a fork: the Python program `path`."""
    sys.argv = [path, *args]
    sys.path.insert(0, os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")


def run(code, seconds=600, **env):
    """Runs Python text in a fork with these variables added. The exit status (None after so many seconds), the output."""
    with tempfile.TemporaryFile() as f:
        p = Child(lambda: exec(compile(code, "<case>", "exec"), {"__name__": "__main__"}), dict(os.environ, **env), f)
        try:
            p.wait(seconds)
            status = p.returncode
        except subprocess.TimeoutExpired:
            p.kill(), p.wait()
            status = None
        f.seek(0)
        return status, f.read().decode(errors="replace")
