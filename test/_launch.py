"""Launchers that are not ours, for the tests of several processes: is one there, and a Slurm of our own."""
import contextlib, os, shutil, socket, subprocess, tempfile, time

long = os.environ.get("XLANE_TEST_ALL") == "1"
SEARCH = os.environ["PATH"] + ":/usr/sbin"


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def need(test, program, package):
    """Installs what is missing where that is allowed; says what is missing where not."""
    if shutil.which(program, path=SEARCH):
        return True
    if long and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends"] + package.split(), capture_output=True)
    if shutil.which(program, path=SEARCH):
        return True
    print("skip %s: no %s (Debian: %s; ./x test all installs it where it may)" % (test, program, package), flush=True)


def slurm_may(test):
    """Whether slurm() can run: it takes a while, and slurmd wants root."""
    if not long:
        return False
    if os.geteuid():
        print("skip %s: slurmd wants root" % test, flush=True)
        return False
    return need(test, "slurmctld", "slurm-wlm munge")


CONF = """ClusterName=t
SlurmctldHost=%(host)s(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%(d)s/munge.socket
SlurmctldPort=%(p0)d
StateSaveLocation=%(d)s/state
SlurmdSpoolDir=%(d)s/%%n
SlurmctldPidFile=%(d)s/c.pid
SlurmdPidFile=%(d)s/%%n.pid
SlurmctldLogFile=%(d)s/c.log
SlurmdLogFile=%(d)s/%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
NodeName=n1 NodeAddr=127.0.0.1 Port=%(p1)d CPUs=2 State=UNKNOWN
NodeName=n2 NodeAddr=127.0.0.1 Port=%(p2)d CPUs=2 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES State=UP
"""


@contextlib.contextmanager
def slurm():
    """A controller and two daemons on this machine; the environment in which srun finds them."""
    d = tempfile.mkdtemp(prefix="xlane-slurm-")
    for name in ("state", "n1", "n2"):
        os.mkdir(d + "/" + name)
    with open(d + "/munge.key", "wb", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        f.write(os.urandom(1024))
    with open(d + "/slurm.conf", "w") as f:
        f.write(CONF % {"host": socket.gethostname(), "d": d, "p0": port(), "p1": port(), "p2": port()})
    env = dict(os.environ, SLURM_CONF=d + "/slurm.conf", PATH=SEARCH)
    daemons = []

    def start(words):
        daemons.append(subprocess.Popen(words.split(), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        start("munged -F --force --key-file=%s/munge.key --socket=%s/munge.socket --pid-file=%s/m.pid "
              "--seed-file=%s/m.seed --log-file=%s/m.log" % (d, d, d, d, d))
        for _ in range(100):
            if os.path.exists(d + "/munge.socket"):
                break
            time.sleep(0.1)
        start("slurmctld -D -f %s/slurm.conf" % d)
        for node in ("n1", "n2"):
            start("slurmd -D -f %s/slurm.conf -N %s" % (d, node))
        for _ in range(100):
            if subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], env=env, capture_output=True,
                              text=True).stdout.strip() == "2":
                break
            time.sleep(0.2)
        yield {"SLURM_CONF": d + "/slurm.conf"}
    finally:
        for p in reversed(daemons):
            p.terminate()
            p.wait(20)
        shutil.rmtree(d, ignore_errors=True)
