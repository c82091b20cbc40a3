"""Cases that need a JAX of their own, with their own environment. Each is forked off this process, which has imported
JAX and made no device yet: a second less than starting Python for each."""
import os, sys, tempfile, time, traceback
sys.path.pop(0)                                      # a test of the same name as a module would be taken for it
os.environ.setdefault("JAX_PLATFORMS", "xlane")
import jax


def run(code, seconds=600, **env):
    """Runs Python text in a fork with these variables set. The exit status (None after so many seconds), and the output."""
    with tempfile.TemporaryFile() as f:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.dup2(f.fileno(), 1), os.dup2(f.fileno(), 2)
                os.environ.update(env)
                jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])   # it was read when JAX was imported
                exec(compile(code, "<case>", "exec"), {"__name__": "__main__"})
                status = 0
            except SystemExit as e:
                status = e.code if isinstance(e.code, int) else 1 if e.code else 0
                if e.code and not isinstance(e.code, int):
                    print(e.code, file=sys.stderr)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status)
        end = time.monotonic() + seconds
        done, how = os.waitpid(pid, os.WNOHANG)
        while not done and time.monotonic() < end:
            time.sleep(0.005)
            done, how = os.waitpid(pid, os.WNOHANG)
        if not done:
            os.kill(pid, 9), os.waitpid(pid, 0)
        f.seek(0)
        return os.waitstatus_to_exitcode(how) if done else None, f.read().decode(errors="replace")
