"""What a command says on a terminal."""
import fcntl, os, pty, struct, subprocess, termios


def on_terminal(command, env, columns=80):
    """Its exit status and what it prints on a terminal of that width."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    p = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    out = b""
    try:
        while piece := os.read(mine, 65536):
            out += piece
    except OSError:                                        # the other end was closed
        pass
    os.close(mine)
    return p.wait(), out.decode().replace("\r\n", "\n")
