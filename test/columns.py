"""No line of code or prose is longer than 120 columns. `--fix` wraps what is: C by clang-format (only the long lines, so
that tables laid out by hand stay), Python at commas and operators, comments and Markdown by filling. A fix that would
change a program is not written: Python must parse to the same tree. Excepted are tables (.def rows, Markdown), code in
Markdown, and a line that cannot be broken (one long string, link or heading).
usage: python test/columns.py [--fix] [FILE ...]"""
import ast, io, os, re, subprocess, sys, textwrap, tokenize

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH = 120
KINDS = (".c", ".h", ".inl", ".def", ".py", ".md", ".sh", "Makefile")  # and x
os.chdir(ROOT)


def files():
    named = [a for a in sys.argv[1:] if not a.startswith("-")]
    if not named:
        named = subprocess.run(["git", "ls-files"], capture_output=True, text=True).stdout.split("\n")
    return [f for f in named if (f.endswith(KINDS) or f == "x") and os.path.exists(f)]


def read(f):
    with open(f, encoding="utf8") as h:
        return h.read()


def breakable(line, kind):
    """Is there a place to break it? In Python and Markdown a long string, link or heading has none."""
    if kind == ".py":
        return line.lstrip().startswith("# ") or fill_commas(line) is not None
    if kind == ".md":
        return not line.startswith("#") and len(max(line.split(), key=len, default="")) < WIDTH - 16
    return True


def long_lines(f, text):
    """The numbers (from 0) of the lines that are too long, less what the rule excepts."""
    fenced, out = False, []
    kind = os.path.splitext(f)[1]
    quoted = inside_strings(text) if kind == ".py" else set()
    for i, line in enumerate(text.split("\n")):
        if kind == ".md" and line.lstrip().startswith("```"):
            fenced = not fenced
        if len(line) <= WIDTH or i in quoted:
            continue
        if kind == ".md" and (fenced or line.startswith("    ") or line.lstrip().startswith(("|", "[", "<", "!["))):
            continue
        if kind == ".def" and i not in comment_lines(text):  # a table
            continue
        if breakable(line, kind):
            out.append(i)
    return out


def inside_strings(text):
    """Lines of Python that lie within a triple-quoted string (a program as text) and are no docstring."""
    out, docs = set(), docstrings(text)
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type == tokenize.STRING and t.start[0] != t.end[0] and t.start[0] - 1 not in docs:
            out |= set(range(t.start[0] - 1, t.end[0]))
    return out


# ---- wrapping ----

def wrap(text, first, rest):
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False)


def fix_markdown(text, bad):
    """Fills the paragraph (or list item) that each long line belongs to."""
    lines, out, i, bad = text.split("\n"), [], 0, set(bad)
    starts = lambda s: not s.strip() or re.match(r"\s*([-*+]|\d+\.)\s|\s*(\||#|```|<|!\[|>)|    ", s)
    while i < len(lines):
        j = i + 1
        if not lines[i].strip() or re.match(r"\s*(\||#|```|<)|    ", lines[i]):
            out.append(lines[i])
            i = j
            continue
        while j < len(lines) and not starts(lines[j]):
            j += 1
        if bad & set(range(i, j)):
            mark = re.match(r"\s*(([-*+]|\d+\.)\s+)?", lines[i]).group()
            more = re.match(r"\s*", lines[i + 1]).group() if j > i + 1 else " " * len(mark)
            breaks = [k for k in range(i, j - 1) if lines[k].endswith("  ")]
            if breaks:
                out += lines[i:j]
            else:
                out += wrap(" ".join([lines[i][len(mark):]] + [s.strip() for s in lines[i + 1:j]]), mark, more)
        else:
            out += lines[i:j]
        i = j
    return "\n".join(out)


def fill_commas(line, code=True):
    """One long line of Python or of a .def table, broken after commas (or before operators) within its brackets, each
    piece indented to the bracket it stands in. A string may be cut at a space."""
    out = []
    while len(line) > WIDTH:
        depth, at, quote, cuts, i = [], None, None, [], 0
        while i < len(line) and i < WIDTH:
            c = line[i]
            if quote:
                if c == "\\":
                    i += 1
                elif c == quote:
                    quote = None
                elif c == " " and quote == '"' and depth and not code and i < WIDTH - 2:
                    cuts.append((len(depth) + 3, i + 1, depth[-1] + 1, '"'))
            elif c in "\"'":
                if line[i:i + 3] in ('"' * 3, "'" * 3):
                    return None
                quote = c
            elif c == "#" and code:
                break
            elif c in "([{":
                depth.append(i)
            elif c in ")]}" and depth:
                depth.pop()
            elif depth and c == "," and line[i + 1:i + 2] == " ":
                cuts.append((len(depth), i + 1, depth[-1] + 1, ""))
            elif depth and code and c == " " and re.match(r" (if|for|else|and|or|in|not in|\+|%) ", line[i:i + 8]):
                cuts.append((len(depth) + 0.5, i, depth[-1] + 1, ""))
            i += 1
        cuts = [k for k in cuts if k[1] > len(line) - len(line.lstrip()) + 20]
        if not cuts:
            return None
        # the shallowest bracket whose break leaves the line well filled, else the last place there is
        good = [k for k in cuts if k[1] > WIDTH * 0.55] or cuts
        _, at, indent, q = min(good, key=lambda k: (k[0], -k[1]))
        if indent > WIDTH // 2:
            indent = len(line) - len(line.lstrip()) + 4
        out.append((line[:at] + q).rstrip() if not q else line[:at] + q)
        line = " " * indent + q + line[at:].lstrip()
    return out + [line]


def push_down(lines, i, prefix):
    """Breaks prose line i at the width and carries its tail into the next line, as long as that goes on with prose."""
    while len(lines[i]) > WIDTH:
        line = lines[i]
        if re.search(r"-{20,}$", line):                     # a rule
            lines[i] = line[:WIDTH]
            return
        at = line.rfind(" ", len(prefix) + 10, WIDTH + 1)
        if at < 0:
            return
        tail, after = line[at + 1:].lstrip(), lines[i + 1] if i + 1 < len(lines) else ""
        lines[i] = line[:at].rstrip()
        goes_on = re.match(re.escape(prefix) + r"[a-zA-Z`(0-9]", after) and not re.search(r'"""|\*/$', tail)
        if goes_on:
            lines[i + 1] = prefix + tail + " " + after[len(prefix):]
        else:
            lines.insert(i + 1, prefix + tail)
        i += 1


def fix_python(text, bad):
    docs = docstrings(text)
    for i in sorted(bad, reverse=True):
        lines = text.split("\n")
        line, indent = lines[i], re.match(r"\s*", lines[i]).group()
        tail = re.match(r"^(.*\S)\s+(# .*)$", line)
        if line.lstrip().startswith("# "):
            push_down(lines, i, indent + "# ")
        elif i in docs:
            push_down(lines, i, indent)
        elif tail and len(tail[1]) <= WIDTH and tail[1].count('"') % 2 == 0 and tail[1].count("'") % 2 == 0:
            lines[i:i + 1] = wrap(tail[2][2:], indent + "# ", indent + "# ") + [tail[1]]
        else:
            new = fill_commas(line)
            if new:
                lines[i:i + 1] = new
        trial = "\n".join(lines)
        if same_tree(text, trial):
            text = trial
    return text


def docstrings(text):
    out = set()
    for n in ast.walk(ast.parse(text)):
        if isinstance(n, (ast.Module, ast.FunctionDef, ast.ClassDef)) and n.body and isinstance(n.body[0], ast.Expr) \
                and isinstance(n.body[0].value, ast.Constant):
            out |= set(range(n.body[0].lineno - 1, n.body[0].end_lineno))
    return out


def same_tree(a, b):
    """The same program, white space in docstrings aside."""
    squeeze = lambda s: re.sub(r"(\\n|\s)+", " ", s)
    try:
        return squeeze(ast.dump(ast.parse(a))) == squeeze(ast.dump(ast.parse(b)))
    except SyntaxError:
        return False


def comment_lines(text):
    """Lines of C that are nothing but comment."""
    out, inside = set(), False
    for i, line in enumerate(text.split("\n")):
        if inside or line.lstrip().startswith("/*"):
            if "*/" not in line or line.rstrip().endswith("*/"):
                out.add(i)
            inside = "*/" not in line[line.find("/*") + 2 if not inside else 0:]
        elif line.lstrip().startswith("//"):
            out.add(i)
    return out


def fix_comments(text, bad):
    lines = text.split("\n")
    for i in sorted(set(bad) & comment_lines(text), reverse=True):
        start = re.match(r"\s*(/\*|\*|//)? ?", lines[i]).group()
        push_down(lines, i, start.replace("/*", " *"))
    return "\n".join(lines)


def fix_c(f, text, bad):
    with open(f, "w", encoding="utf8") as h:
        h.write(fix_comments(text, bad))
    bad = long_lines(f, read(f))
    if not bad:
        return
    subprocess.run(["clang-format", "-i", "--style=file", "--assume-filename=a.c"]
                   + ["--lines=%d:%d" % (i + 1, i + 1) for i in bad] + [f], check=True)


def fix(f, text, bad):
    kind = os.path.splitext(f)[1]
    if kind in (".c", ".h", ".inl"):
        fix_c(f, text, bad)
        return
    how = {".md": fix_markdown, ".py": fix_python, ".def": fix_comments}.get(kind)
    if how:
        new = how(text, bad)
        if new != text:
            with open(f, "w", encoding="utf8") as h:
                h.write(new)


def main():
    wrong = 0
    for f in files():
        text = read(f)
        bad = long_lines(f, text)
        if bad and "--fix" in sys.argv:
            fix(f, text, bad)
            bad = long_lines(f, read(f))
        for i in bad:
            wrong += 1
            print("FAIL columns: %s:%d is longer than %d columns (python test/columns.py --fix)" % (f, i + 1, WIDTH))
    if not wrong:
        print("ok columns")
    return wrong > 0


sys.exit(main())
