"""The site that site/build.py makes of docs/ and the README: whole HTML, links and fragments that lead somewhere, no
Markdown left over in the text. Looked at in Chromium where it is installed."""
import html.parser
import os
import re
import shutil
import subprocess
import sys
import tempfile

from _check import check, end, skip

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VOID = {"meta", "img", "br", "hr", "link"}


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.open, self.wrong, self.ids, self.links, self.text, self.code = [], [], set(), [], "", 0
        self.feed(open(path, encoding="utf-8").read())
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if "id" in a:
            self.wrong += [f"two ids {a['id']}"] if a["id"] in self.ids else []
            self.ids.add(a["id"])
        self.links += [a[k] for k in ("href", "src") if k in a]
        if tag not in VOID:
            self.open.append(tag)
        self.code += tag in ("code", "pre", "style")

    def handle_endtag(self, tag):
        self.code -= tag in ("code", "pre", "style")
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data):
        if not self.code:
            self.text += data


tmp = tempfile.mkdtemp(prefix="xlane-site-")
subprocess.run([sys.executable, os.path.join(ROOT, "site", "build.py"), tmp], check=True, capture_output=True)
pages = {f: Page(os.path.join(tmp, f)) for f in os.listdir(tmp) if f.endswith(".html")}
sources = {f[:-3] + ".html" for f in os.listdir(os.path.join(ROOT, "docs")) if f.endswith(".md")}
check("site_every_page", sources | {"index.html"} <= set(pages), sorted(sources - set(pages)))
check("site_whole_html", not any(p.wrong for p in pages.values()), {f: p.wrong for f, p in pages.items() if p.wrong})
lost = []
for f, p in pages.items():
    for link in p.links:
        path, _, part = link.partition("#")
        if re.match(r"https?:", link):
            continue
        if path and not os.path.exists(os.path.join(tmp, path)) or part and part not in pages[path or f].ids:
            lost.append(f"{f}: {link}")
check("site_links_lead_somewhere", not lost, ", ".join(lost[:10]))
left = [(f, m[0]) for f, p in pages.items() for m in re.finditer(r"\|---|\]\(|\*\*|```|^#+ |\0", p.text, re.M)]
check("site_no_markdown_left_over", not left, left[:10])
browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if browser:
    shot = os.path.join(tmp, "shot.png")
    p = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900",
                        f"--user-data-dir={tmp}/profile", f"--screenshot={shot}", f"file://{tmp}/index.html"],
                       capture_output=True, text=True, timeout=300)
    check("site_in_chromium", os.path.exists(shot) and os.path.getsize(shot) > 10000, p.stderr[-500:])
else:
    skip("site_in_chromium", "no chromium here")
shutil.rmtree(tmp, ignore_errors=True)
sys.exit(end())
