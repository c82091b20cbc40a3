"""xlane try and xlane report: the whole way once, then the HTML files of a train run, a JAX run and two compared. Where
Chromium is (./x test all installs it when it may) each is opened there: no console error, every section filled."""
import glob, html.parser, json, os, re, shutil, subprocess, sys, tempfile
from _check import check, end

XLANE = os.path.abspath("build/xlane")
TMP = tempfile.mkdtemp(prefix="xlane-report-")
ENV = dict(os.environ, XLANE_STATE=TMP + "/state", XLANE_CACHE=TMP + "/cache")


def xlane(*args, **env):
    return subprocess.run([XLANE, *args], capture_output=True, text=True, env=dict(ENV, **env), cwd=TMP, timeout=600)


r = xlane("try", "--json", "--plugin=cpu", "--steps=60")
j = json.loads(r.stdout) if r.stdout.strip() else {}
check("try_proves_it", r.returncode == 0 and j["proved"] and j["steps"] == 60
      and j["last_loss"] < j["first_loss"] * 0.8, r.stdout + r.stderr)
check("try_restarts_warm", j.get("resumed_compiled") == 0 and j.get("resumed_from_cache", 0) > 0
      and j["cold_compiled"] > 0, j)
check("try_stopped_half_way", 30 <= j.get("stopped_at", 0) <= 60, j)
check("try_leaves_files", {"report.html", "receipt.json", "metrics.csv", "events.jsonl",
                           "checkpoints"} <= set(os.listdir(j["run"])), j)
text = xlane("try", "--plugin=cpu", "--steps=40", XLANE_RUNS="tried")
check("try_says_five_lines", text.returncode == 0 and [x[0] for x in text.stdout.splitlines()] == list("12345n"),
      text.stdout + text.stderr)
check("try_takes_the_folder_of_the_variable", "tried" in os.listdir(TMP) and len(glob.glob(TMP + "/runs/*-try*")) == 1,
      os.listdir(TMP))
r = xlane("try", "--plugin=" + os.path.abspath("build/test/plugins/nodevice.so"))
check("try_is_honest", r.returncode == 1 and "no card is plugged in" in r.stderr and not r.stdout, r.stdout + r.stderr)

r = xlane("ladder", "--plugin=cpu", XLANE_RUNS=os.path.dirname(j["run"]))
train = ["data.train=" + os.path.dirname(j["run"]) + "/text.txt", "data.format=bytes", "model.dim=32", "model.heads=2",
         "device=cpu", "train.steps=30", "runs=runs", "--quiet"]
xlane("train", "model.pattern=A", "name=first", *train)
xlane("train", "model.pattern=A", "name=second", "optimizer.lr=0.001", *train)
with open(TMP + "/step.py", "w") as f:
    f.write("import jax, jax.numpy as jnp\n@jax.jit\ndef step(w, x):\n    return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)\n"
            "w = jnp.ones((64, 64)) * 0.01\nfor i in range(20):\n    w = step(w, jnp.ones((32 if i < 15 else 40, 64)))\nprint(float(w[0, 0]))\n")
r = xlane("run", "--cache=" + TMP + "/cache", "--name=<jax>&co", "--", sys.executable, "step.py", JAX_PLATFORMS="xlane",
          PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + os.path.abspath("build/libxlane-cpu.so"))
jax = glob.glob(TMP + "/runs/*jax*")


class Page(html.parser.HTMLParser):
    """Balanced tags, no outside addresses, and the text under each heading."""
    VOID = {"meta", "link", "br", "line", "circle", "polyline"}

    def __init__(self, text):
        super().__init__()
        self.open, self.bad, self.sections, self.at, self.heading = [], [], {}, None, False
        self.feed(text)
        self.bad += self.open

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.heading = tag == "h2"
        if tag == "polyline" and self.at:
            self.sections[self.at] += " (drawn) "
        for k, v in attrs:
            if k in ("src", "href") and not v.startswith("data:"):
                self.bad.append(f"{k}={v}")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append("</" + tag + ">")
        self.heading = False

    def handle_data(self, data):
        if self.heading:
            self.at = data
            self.sections.setdefault(data, "")
        elif self.at:
            self.sections[self.at] += data


SECTIONS = ["Loss and step time", "Where the time went", "Compiles and their causes", "Memory of the physical devices",
            "Executable cache", "Receipt", "Ladder"]
pages = {}


def report(name, want, *runs):
    out = f"{TMP}/{name}.html"
    r = xlane("report", *runs, "-o", out)
    if r.returncode:
        check(name, False, r.stdout + r.stderr)
        return
    with open(out) as f:
        text = f.read()
    page, pages[name] = Page(text), out
    empty = [s for s in want if len(page.sections.get(s, "").strip()) < 20]
    check(name, not page.bad and not empty and "<script" not in text and "prefers-color-scheme" in text
          and "@media print" in text, (page.bad, empty))
    return page


p = report("train_run", SECTIONS, j["run"])
check("train_run_has_its_figures", p and "(drawn)" in p.sections["Loss and step time"] and "(drawn)"
      in p.sections["Memory of the physical devices"]
      and "train_" in p.sections["Compiles and their causes"] and "so it works here" in p.sections["Receipt"] and "AMER" in p.sections["Ladder"], p and p.sections)
p = report("jax_run", SECTIONS[:6], *jax[:1])
check("jax_run_names_the_cause", p and "dimension 0 changed from 32 to 40" in p.sections["Compiles and their causes"]
      and "step.py" in p.sections["Compiles and their causes"]
      and "jit_step" in p.sections["Where the time went"], p and p.sections)
check("jax_run_tells_changes_and_its_end",
      p and "A step's program changed 0 times in the warm-up window and 1 after it."
      in p.sections["Compiles and their causes"] and "never stored before" in p.sections["Executable cache"]
      and "it ran, so it works here" in p.sections["Receipt"] and "The loss is not recorded"
      in p.sections["Loss and step time"] and ">exit status 0<" in open(TMP + "/jax_run.html").read(), p and p.sections)
two = [sorted(glob.glob(TMP + "/runs/*-" + n))[-1] for n in ("first", "second")]
p = report("two_compared", ["Comparison"], *two)
check("comparison_says_what_moved", p and "last loss" in p.sections["Comparison"] and "moved"
      in p.sections["Comparison"], p and p.sections)
j = json.loads(xlane("report", "--json", *two, "-o", TMP + "/two.html").stdout)
check("json", j["runs"] == 2 and j["bytes"] == os.path.getsize(j["report"]) > 1000, j)
r = xlane("report", "nosuchrun")
check("no_such_run", r.returncode == 2 and "nosuchrun" in r.stderr, r.stderr)

chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if not chromium and os.environ.get("XLANE_TEST_ALL") == "1" and shutil.which("apt-get") and os.getuid() == 0:
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "chromium"], capture_output=True,
                   timeout=600)
    chromium = shutil.which("chromium")
if not chromium:
    print("skip browser: no chromium here; ./x test all installs it where it may")
else:
    for name, path in pages.items():
        shot = f"{TMP}/{name}.png"
        r = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
                            "--user-data-dir=" + TMP + "/chromium",
                            "--window-size=412,1600", "--screenshot=" + shot, "file://" + path], capture_output=True, text=True, timeout=600)
        console = [x for x in r.stderr.splitlines() if "CONSOLE" in x or "Uncaught" in x]
        check(f"browser_{name}", not console and os.path.exists(shot) and os.path.getsize(shot) > 20000,
              console or r.stderr[-800:])
shutil.rmtree(TMP, ignore_errors=True)
sys.exit(end())
