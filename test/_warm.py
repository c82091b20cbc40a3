"""A Python that has imported JAX already, for tests that start many small JAX programs under `xlane run`: the import is
nine tenths of such a start.

    python = _warm.python(folder)      the path of a program that runs a script as sys.executable does

That program asks a server of this test's, which forks off itself, hands over its own arguments, folder, environment and
the files 0, 1 and 2, waits, and ends as the fork did. The guard is not preloaded there but named as the plugin. What a
fork cannot be (another platform, several plugins, flags that JAX reads when it is imported, ranks, no guard) is left to
sys.executable; so is everything under `./x test all`."""
import atexit
import os
import subprocess
import sys

ROOM = 4096                                          # for the arguments of a script in the server's own

# Runs without site-packages, in a few milliseconds.
CLIENT = """#!%(python)s -SE
import _socket, marshal, os, signal, sys
env = {k: v for k, v in os.environ.items()}
plugin = env.get("PJRT_NAMES_AND_LIBRARY_PATHS", "")
odd = [k for k in env if k.startswith("JAX_") and k != "JAX_PLATFORMS" or k in ("XLA_FLAGS", "XLANE_RANKS")]
if (odd or "XLANE_GUARD_LIBRARY" not in env or env.get("XLANE_GUARD") == "off" or env.get("JAX_PLATFORMS") not in ("xlane", "xlane,cpu")
        or not plugin.startswith("xlane:") or "," in plugin or not sys.argv[1].endswith(".py")):
    os.execv(%(python)r, [%(python)r] + sys.argv[1:])
s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
s.connect(%(socket)r)
what = marshal.dumps((sys.argv[1:], os.getcwd(), env))
s.sendmsg([len(what).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS,
                                              b"".join(i.to_bytes(4, sys.byteorder) for i in range(3)))])
while what:
    what = what[s.send(what):]
pid = int.from_bytes(s.recv(8), "little")
for sig in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT:
    signal.signal(sig, lambda n, _: os.kill(pid, n))
status = s.recv(8)
if not status:
    sys.exit("the server of warm Pythons is gone")
code = os.waitstatus_to_exitcode(int.from_bytes(status, "little"))
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def python(folder):
    if os.environ.get("XLANE_TEST_ALL") == "1":
        return sys.executable
    path, socket = os.path.join(folder, "python"), os.path.join(folder, "warm")
    with open(path, "w", opener=lambda p, f: os.open(p, f, 0o755)) as f:
        f.write(CLIENT % {"python": sys.executable, "socket": socket})
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PJRT_", "XLA")) or k == "XLANE_LOG"}
    server = subprocess.Popen([sys.executable, os.path.abspath(__file__), socket, "-" * ROOM], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, env=dict(env, JAX_PLATFORMS="xlane", OPENBLAS_NUM_THREADS="1"))
    server.stdout.readline()                         # it listens
    atexit.register(lambda: (server.stdin.close(), server.wait()))
    return path


def asked(conn):
    """What a client sent: arguments, folder, environment; and its files 0, 1 and 2."""
    import marshal
    import socket
    head, fds, _, _ = socket.recv_fds(conn, 8, 3)
    size, what = int.from_bytes(head, "little"), b""
    while len(what) < size:
        what += conn.recv(size - len(what))
    return marshal.loads(what), fds


def serve(path):
    """Returns in a fork: with what it is asked to be."""
    import select
    import signal
    import socket
    listening, of = socket.socket(socket.AF_UNIX), {}
    listening.bind(path)
    listening.listen(64)
    ended, told = os.pipe()
    for fd in ended, told:
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told)
    poll = select.poll()
    for fd in 0, ended, listening.fileno():
        poll.register(fd, select.POLLIN)
    print("listening", flush=True)
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                os._exit(0)                          # the test is over
            elif fd == listening.fileno():
                conn = listening.accept()[0]
                what, fds = asked(conn)
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for i in range(3):
                        os.dup2(fds[i], i)
                    for c in [conn, listening, *(c for c, _ in of.values())]:
                        c.close()
                    for f in [*fds, ended, told]:
                        os.close(f)
                    return what
                for f in fds:
                    os.close(f)
                of[conn.fileno()] = conn, pid
                poll.register(conn.fileno(), select.POLLIN)
                conn.send(pid.to_bytes(8, "little"))
            elif fd == ended:
                os.read(ended, 4096)
                while of:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if not pid:
                        break
                    conn = next(c for c, p in of.values() if p == pid)
                    poll.unregister(conn.fileno())
                    del of[conn.fileno()]
                    try:
                        conn.send(status.to_bytes(8, "little"))
                    except OSError:                  # the client was killed
                        pass
                    conn.close()
            elif fd in of:                           # the client was killed
                poll.unregister(fd)
                os.kill(of[fd][1], signal.SIGKILL)


def tell_functions():
    """What the preload runs, so that the guard knows functions of one name apart."""
    import ast
    import re
    text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "guard",
                             "preload_function.h")).read()
    text = re.sub(r"/\*.*?\*/", "", text[text.index("[] =") + 4:])
    exec("".join(map(ast.literal_eval, re.findall(r'^ +(".*")', text, re.M))), {})
    sys.modules["_xlane"].compiler(jax._src.compiler)
    sys.modules["_xlane"].dispatch(jax._src.dispatch)
    sys.modules["_xlane"].array(jax._src.array)


def rename(words):
    """/proc/self/cmdline says what is run: the guard tells programs apart by it."""
    import ctypes
    with open("/proc/self/stat", encoding="ascii") as f:
        begin, end = map(int, f.read().rsplit(")", 1)[1].split()[45:47])
    text = b"\0".join(w.encode() for w in [sys.executable, *words])[:end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


if __name__ == "__main__":
    import _quick
    sys.path.pop(0)                                  # a test of the same name as a module would be taken for it
    import gc
    import types
    before = dict(os.environ)
    _quick.import_jax()
    import jax.numpy
    # as src/guard/preload_jax.h does
    getattr(jax._src.xla_bridge, "_nonexperimental_plugins", set()).add("xlane")
    tell_functions()
    imported = {k: v for k, v in os.environ.items() if before.get(k) != v}
    gc.collect()
    gc.freeze()
    words, cwd, env = serve(sys.argv[1])
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update({**imported, **env}, XLANE_GUARD_PLUGIN=env["PJRT_NAMES_AND_LIBRARY_PATHS"].split(":", 1)[1],
                      PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + env["XLANE_GUARD_LIBRARY"])
    jax.config.update("jax_platforms", env["JAX_PLATFORMS"])        # it was read when JAX was imported
    rename(words)
    sys.argv[:] = words
    sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = words[0]
    try:
        exec(compile(open(words[0]).read(), words[0], "exec"), main.__dict__)
    except Exception as e:
        sys.excepthook(type(e), e, e.__traceback__.tb_next)
        sys.exit(1)
