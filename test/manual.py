"""Manual pages and shell completion say what the verbs' tables say: every verb has a page with each of its options,
groff (where it is there) has no complaint, and a shell completes verbs and options."""
import os
import re
import shutil
import subprocess
import sys
import _check
from _check import check, end
_check.prefix = "manual_"

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")


def out(*words, **kw):
    return subprocess.run([XLANE, *words], capture_output=True, text=True, **kw)


verbs = [v.replace("_", "-") for v in re.findall(r"^VERB\((\w+)\)",
                                                 open(os.path.join(ROOT, "src", "cli",
                                                     "verbs.def")).read(), re.M)]   # a file has no dash
whole, wrong, groff = out("man", "--troff").stdout, [], []
for verb in verbs:
    page, helped = out("man", "--troff", verb), out(verb, "--help")
    help_ = helped.stdout
    if helped.returncode < 0 or page.returncode < 0:
        wrong.append(f"{verb}: --help or man ends by a signal: has each option of its table a text?")
        continue
    options = set(re.findall(r"^ +--([\w-]+)", help_, re.M))
    told = {o.replace("\\-", "-") for o in re.findall(r"^\.B \\-\\-([\w\\-]+)", page.stdout, re.M)}
    usage = re.search(r"^usage: xlane \S+(.*)", help_, re.M)
    if not set(re.findall(r"--([a-z][\w-]*)", usage[1] if usage else "")) <= options:
        wrong.append(f"{verb}: its usage line has an option that it does not take: {usage[0]}")
    # the fields that a verb must have, and one that wants an argument lives without
    needs = re.sub(r"\[[^][]*(\[[^][]*\][^][]*)*\]", "", usage[1]).strip() if usage else "no usage"
    example = help_.partition("\nexample:\n")[2]
    if "(null)" in help_ or f"xlane {verb}" not in example:
        wrong.append(f"{verb}: no help or no example")
    if needs and out(verb, stdin=subprocess.DEVNULL).returncode not in (0, 1, 2):
        wrong.append(f"{verb}: wants {needs} and crashes without")
    if page.returncode or not options <= told | {"json"} or f".B {verb}\n" not in whole:
        wrong.append(f"{verb}: {sorted(options - told)}")
    if shutil.which("groff"):
        said = subprocess.run(["groff", "-K", "utf8", "-man", "-ww", "-Tutf8", "-z"], input=page.stdout,
                              capture_output=True, text=True).stderr
        groff += [f"{verb}: {said.splitlines()[0]}"] if said else []
check("every_verb_and_option", not wrong and len(verbs) > 20, "; ".join(wrong))
if shutil.which("groff"):
    check("groff_has_no_complaint", not groff, "; ".join(groff[:3]))
else:
    print("skip manual_groff: there is no groff")
piped = out("man", "explain", env=dict(os.environ, TERM="dumb")).stdout
check("a_pipe_gets_the_page", ".TH" not in piped and "explain" in piped and "SYNOPSIS" in piped
      or not os.path.exists("/usr/bin/man")
      and "usage: xlane explain" in piped, piped[:300])
statuses = re.findall(r"\b([0-5] [a-z]+)", out("--help").stdout.partition("Exit status: ")[2])
pages = whole, out("man", "--troff", "resume").stdout
check("every_exit_status", len(statuses) == 6 and all(s in p for s in statuses for p in pages), statuses)
p = out("man", "nonsense")
check("unknown_verb", p.returncode == 2 and "xlane --help" in p.stderr, p.stderr)


def complete(*words):
    script = f'source <("{XLANE}" completion bash); compopt() {{ :; }}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _xlane; printf "%s\\n" "${{COMPREPLY[@]}}"'
    p = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True)
    return p.stdout.split(), p.stderr


got, said = complete("xlane", "ex")
check("completes_verbs", got == ["explain", "exec"] and not said, (got, said))
got, said = complete("xlane", "run", "--pol")
check("completes_options", got == ["--policy="] and not said, (got, said))
p = out("completion", "tcsh")
check("unknown_shell", p.returncode == 2 and "bash, zsh and fish" in p.stderr, p.stderr)
for shell in ("zsh", "fish"):
    text = out("completion", shell).stdout
    check(f"{shell}_has_every_verb", all(re.search(rf"\b{v}\b", text) for v in verbs), text[:200])
sys.exit(end())
