"""docs/ and the README as pages for a browser.

usage: python site/build.py [FOLDER]     build/site unless FOLDER is named
Markdown as these pages use it: headings, paragraphs, lists, tables, code, quotes, links, images, emphasis. What is
written otherwise appears as text. Links between pages become links to .html; test/site.py follows them all.
"""
import glob
import html
import os
import re
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STYLE = """
:root { color-scheme: light dark; --line: #d0d4da; --soft: #f3f5f8; --link: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --line: #3b4048; --soft: #22262c; --link: #7ab7f5; } }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; display: flex; }
nav { flex: 0 0 13rem; padding: 1.5rem 1rem; border-right: 1px solid var(--line); min-height: 100vh; font-size: 15px; }
nav a { display: block; padding: .15rem .4rem; text-decoration: none; }
nav a[aria-current] { background: var(--soft); font-weight: 600; }
main { flex: 1; min-width: 0; max-width: 64rem; padding: 1rem 2.5rem 4rem; }
a { color: var(--link); }
pre, code { font: 14px/1.45 ui-monospace, monospace; background: var(--soft); }
pre { padding: .8rem 1rem; overflow-x: auto; font-size: 13px; } pre code { font-size: inherit; }
code { padding: .1em .25em; } pre code { padding: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
img { max-width: 100%; } blockquote { border-left: 3px solid var(--line); margin-left: 0; padding-left: 1rem; }
@media (max-width: 50rem) {
  body { display: block; } main { padding: 1rem; } h1 { font-size: 1.6rem; }
  nav { min-height: 0; border: 0; border-bottom: 1px solid var(--line); padding: .6rem 1rem; } nav a { display: inline-block; }
}
"""
RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
ITEM = re.compile(r"(\s*)([-*+]|\d+\.)\s+(.*)")


def slug(text):
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", text).lower()).strip().replace(" ", "-")


def address(url):
    """A link of the repository's pages as one of the site's; the README is its first page, and sources are named only."""
    if re.match(r"[a-z]+:|#", url):
        return url
    path, _, part = url.partition("#")
    name = os.path.basename(path)
    if name.endswith(".md"):
        name = "index.html" if name == "README.md" else name[:-3] + ".html"
    return name + ("#" + part if part else "")


def inline(text):
    codes = []

    def keep(m):
        codes.append("<code>" + html.escape(m[2].strip() if m[1] != "`" else m[2], quote=False) + "</code>")
        return f"\0{len(codes) - 1}\0"
    text = re.sub(r"(`+)(.+?)\1(?!`)", keep, text)
    text = html.escape(text, quote=False)
    text = re.sub(r"!\[([^\]]*)\]\(([^)\s]+)\)", lambda m: f'<img src="{address(m[2])}" alt="{m[1]}">', text)
    text = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", lambda m: f'<a href="{address(m[2])}">{m[1]}</a>', text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text, flags=re.S)
    text = re.sub(r"(?<![\w*])\*(?=\S)(.+?)(?<=\S)\*(?![\w*])", r"<em>\1</em>", text, flags=re.S)
    return re.sub("\0(\\d+)\0", lambda m: codes[int(m[1])], text)


def cells(line):
    line = re.sub(r"`[^`]*`", lambda m: m[0].replace("|", "\1"), line.strip()).replace("\\|", "\1")
    return [c.strip().replace("\1", "|") for c in line.strip("|").split("|")]


def blocks(lines):
    """HTML of a list of lines."""
    out, i = [], 0
    while i < len(lines):
        line = lines[i]
        fence, head, item = re.match(r"\s*```", line), re.match(r"(#+)\s+(.*)", line), ITEM.match(line)
        j = i + 1
        if not line.strip():
            pass
        elif fence:
            while j < len(lines) and not re.match(r"\s*```", lines[j]):
                j += 1
            out.append("<pre><code>" + html.escape("\n".join(lines[i + 1:j]), quote=False) + "</code></pre>")
            j += 1
        elif head:
            n = len(head[1])
            out.append(f'<h{n} id="{slug(head[2])}">{inline(head[2])}</h{n}>')
        elif line.startswith("    "):
            while j < len(lines) and (lines[j].startswith("    ") or not lines[j].strip()):
                j += 1
            code = "\n".join(s[4:] for s in lines[i:j]).rstrip()
            out.append("<pre><code>" + html.escape(code, quote=False) + "</code></pre>")
        elif "|" in line and j < len(lines) and "|" in lines[j] and RULE.match(lines[j]):
            row = lambda s, t: "<tr>" + "".join(f"<{t}>{inline(c)}</{t}>" for c in cells(s)) + "</tr>"
            rows, j = [row(line, "th")], j + 1
            while j < len(lines) and lines[j].lstrip().startswith("|"):
                rows.append(row(lines[j], "td"))
                j += 1
            out.append('<div class="wide"><table>' + "\n".join(rows) + "</table></div>")
        elif item:
            kind, inside = "ol" if item[2][0].isdigit() else "ul", []
            while i < len(lines) and (m := ITEM.match(lines[i])) and len(m[1]) == len(item[1]) \
                    and m[2][0].isdigit() == item[2][0].isdigit():
                deep, part, j = m.start(3), [m[3]], i + 1
                while j < len(lines) and (lines[j].startswith(" " * deep) or (lines[j].strip() and part[-1].strip()
                                                                             and not ITEM.match(lines[j]))
                                          or (not lines[j].strip() and lines[j + 1:j + 2]
                                              and lines[j + 1].startswith(" " * deep))):
                    part.append(lines[j][deep:] if lines[j].startswith(" " * deep) else lines[j].lstrip())
                    j += 1
                body = blocks(part)
                inside.append("<li>" + re.sub(r"^<p>(.*?)</p>", r"\1", body, flags=re.S) + "</li>")
                i = j
                if i + 1 < len(lines) and not lines[i].strip() and ITEM.match(lines[i + 1]):
                    i += 1
            out.append(f"<{kind}>" + "\n".join(inside) + f"</{kind}>")
            continue
        elif line.startswith(">"):
            while j < len(lines) and lines[j].startswith(">"):
                j += 1
            out.append("<blockquote>" + blocks([re.sub("^> ?", "", s) for s in lines[i:j]]) + "</blockquote>")
        else:
            starts = re.compile(r"\s*$|#+ |\s*```|>|\s*\|")
            while j < len(lines) and not starts.match(lines[j]) and not ITEM.match(lines[j]):
                j += 1
            out.append("<p>" + inline("\n".join(lines[i:j])) + "</p>")
        i = j
    return "\n".join(out)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "site")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        order = re.findall(r"\(docs/([\w-]+)\.md\)", f.read().split("## Pages")[1])  # the menu is in the README's order
    names = sorted((os.path.basename(f)[:-3] for f in glob.glob(os.path.join(ROOT, "docs", "*.md"))),
                   key=lambda n: order.index(n) if n in order else len(order))
    pages = {"index.html": "README.md", **{n + ".html": f"docs/{n}.md" for n in names},
             "CONTRIBUTING.html": "CONTRIBUTING.md", "CHANGELOG.html": "CHANGELOG.md"}
    name = lambda p: "xlane" if p == "index.html" else p[:-5].replace("-", " ").lower()
    for page, source in pages.items():
        with open(os.path.join(ROOT, source), encoding="utf-8") as f:
            text = f.read()
        title = re.search(r"^# (.*)", text, re.M)[1]
        menu = "".join(f'<a href="{p}"{" aria-current=page" if p == page else ""}>{name(p)}</a>\n' for p in pages)
        with open(os.path.join(out, page), "w", encoding="utf-8") as f:
            f.write(f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
                    f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style></head>\n'
                    f"<body><nav>{menu}</nav>\n<main>{blocks(text.splitlines())}</main></body></html>\n")
    for f in glob.glob(os.path.join(ROOT, "docs", "*.svg")) + [os.path.join(ROOT, "LICENSE")]:
        shutil.copy(f, out)
    print(os.path.join(out, "index.html"))


main()
