"""A report as one HTML page that needs nothing else: style and pictures are in it."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape

from .chapters import QUICK, READING, TITLE, Chapter, Drawn, Part
from .experiment import Table, Text
from .tables import BETTER, UNSTABLE, WORSE

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #5c5c5c; --paper: #ffffff;
  --panel: #f5f5f3; --line: #d9d9d6; --link: #005a9c; --good: #00694d; --bad: #a83f00;
  --warn: #fff3d6; --warn-ink: #6b4700; --warn-line: #d99a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e6; --soft: #a8a8a4; --paper: #161617;
  --panel: #212123; --line: #3a3a3d; --link: #7cc0ff; --good: #5fd3ab; --bad: #ff9d66;
  --warn: #3a2d0c; --warn-ink: #ffd98a; --warn-line: #b98500; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.55 system-ui, "Segoe UI", Roboto, sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 1rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .75rem; }
p, ul { max-width: 44rem; }
a { color: var(--link); }
a:focus-visible, .scroll:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
code { font: .92em ui-monospace, Menlo, Consolas, monospace; background: var(--panel);
  padding: .1em .3em; border-radius: 3px; }
nav { background: var(--panel); border-radius: 8px; padding: .75rem 1rem; }
nav h2 { font-size: 1rem; margin: 0; }
nav ul { margin: .25rem 0 0; padding-left: 1.2rem; }
nav li { padding: .2rem 0; }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.5rem; }
.quick { background: var(--warn); color: var(--warn-ink); border-left: 5px solid var(--warn-line);
  border-radius: 4px; padding: .6rem .9rem; font-weight: 700; margin: 0 0 1rem; }
.scroll { overflow-x: auto; }
.table .scroll { background: linear-gradient(90deg, transparent, var(--paper) 70%) right / 3rem 100%
    no-repeat local, linear-gradient(90deg, transparent, var(--line)) right / 1rem 100% no-repeat; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; white-space: nowrap; }
td.words { white-space: normal; min-width: 11rem; max-width: 26rem; }
thead th { border-bottom: 2px solid var(--soft); white-space: normal; vertical-align: bottom; }
tbody th { font-weight: 500; }
tr > :first-child { position: sticky; left: 0; background: var(--paper); padding-left: 0; }
.number { text-align: right; }
td.good { color: var(--good); font-weight: 600; }
td.bad { color: var(--bad); font-weight: 600; }
figure { margin: 1.25rem 0; }
.picture .scroll { border-radius: 6px; background: #fff; border: 1px solid var(--line); }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .4rem; max-width: 44rem; }
.table figcaption { color: var(--ink); font-weight: 600; margin: 0 0 .4rem; }
footer { background: var(--panel); border-radius: 8px; padding: .75rem 1rem; font-size: .88rem;
  margin-top: 1.25rem; }
footer h3 { margin: 0 0 .35rem; font-size: .92rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  img.wide { max-width: none; width: 40rem; }
  th, td { padding: .35rem .5rem; }
  tr > :first-child { white-space: normal; min-width: 7rem; max-width: 9rem; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .4rem; }
}
@media print { .scroll { overflow: visible; } tr > :first-child { position: static; } }
"""

_NUMBER = ' class="number"'
_CLASSES = {BETTER: "good", WORSE: "bad", UNSTABLE: "bad"}


def page(chapters: Sequence[Chapter], unknown: Mapping[str, int]) -> str:
    """The whole report.

    Args:
        chapters: in order.
        unknown: names of experiments that nobody knows, with how many results they have.

    Example:
        >>> print(page([], {})[:15])
        <!DOCTYPE html>
    """
    anchors = [(chapter.anchor, chapter.heading) for chapter in chapters]
    anchors += [("unknown-experiments", "Unknown experiments")] if unknown else []
    contents = "\n".join(f'<li><a href="#{a}">{escape(title)}</a></li>' for a, title in anchors)
    body = [_chapter(chapter) for chapter in chapters]
    if unknown:
        body.append(_unknown(unknown))
    main = "\n".join(body)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(TITLE)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(TITLE)}</h1>
{_paragraphs(READING)}
</header>
<nav aria-labelledby="contents">
<h2 id="contents">Contents</h2>
<ul>
{contents}
</ul>
</nav>
<main>
{main}
</main>
</body>
</html>
"""


def _chapter(chapter: Chapter) -> str:
    lines = [
        f'<section id="{chapter.anchor}" aria-labelledby="{chapter.anchor}-title">',
        f'<h2 id="{chapter.anchor}-title">{escape(chapter.heading)}</h2>',
    ]
    if chapter.quick:
        lines.append(f'<p class="quick" role="note">{escape(QUICK)}</p>')
    lines += [_part(part) for part in chapter.parts]
    made = "\n".join(
        f"<dt>{escape(name)}</dt><dd>{escape(said)}</dd>" for name, said in chapter.made
    )
    lines.append(f"<footer>\n<h3>How this was made</h3>\n<dl>\n{made}\n</dl>\n</footer>")
    return "\n".join([*lines, "</section>"])


def _unknown(unknown: Mapping[str, int]) -> str:
    items = "\n".join(f"<li><code>{escape(name)}</code>: {n}</li>" for name, n in unknown.items())
    return (
        '<section id="unknown-experiments" aria-labelledby="unknown-title">\n'
        '<h2 id="unknown-title">Unknown experiments</h2>\n'
        "<p>Results of experiments that this version does not know, and how many. They are in "
        f"<code>report.csv</code> and nowhere else.</p>\n<ul>\n{items}\n</ul>\n</section>"
    )


def _part(part: Part) -> str:
    if isinstance(part, Text):
        return _paragraphs(part.text)
    if isinstance(part, Drawn):
        return _picture(part)
    return _table(part)


def _paragraphs(text: str) -> str:
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if lines and all(line.startswith(("- ", "  ")) for line in lines):
            items = re.split(r"^- ", block, flags=re.MULTILINE)[1:]
            inside = "".join(f"<li>{_inline(item)}</li>" for item in items)
            blocks.append(f"<ul>{inside}</ul>")
        else:
            blocks.append(f"<p>{_inline(block)}</p>")
    return "\n".join(blocks)


def _inline(text: str) -> str:
    """Markdown's code, strong and emphasis; nothing in code is read as either of the others."""
    parts = re.split(r"`([^`]+)`", " ".join(text.split()))
    for i, part in enumerate(parts):
        safe = escape(part)
        if i % 2:
            parts[i] = f"<code>{safe}</code>"
            continue
        safe = re.sub(r"\*\*(?=\S)(.+?)(?<=\S)\*\*", r"<strong>\1</strong>", safe)
        parts[i] = re.sub(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])", r"<em>\1</em>", safe)
    return "".join(parts)


def _picture(part: Drawn) -> str:
    content = part.path.read_bytes()
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))  # a PNG's head
    wide = ' class="wide"' if width > 1.3 * height and width > 640 else ""
    data = base64.b64encode(content).decode()
    title = escape(part.title)
    return (
        '<figure class="picture">\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f'<img{wide} width="{width}" height="{height}" alt="{title}" '
        f'src="data:image/png;base64,{data}"></div>\n'
        f"<figcaption>{title}</figcaption>\n</figure>"
    )


def _table(table: Table) -> str:
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.header)
    numeric = [_is_numeric(column) for column in columns]

    def cell(i: int, value: str) -> str:
        shown = escape(value)
        if i == 0:
            return f'<th scope="row">{shown}</th>'
        names = [_CLASSES.get(value, ""), "number" * numeric[i], "words" * (len(value) > 24)]
        names = [name for name in names if name]
        return f'<td class="{" ".join(names)}">{shown}</td>' if names else f"<td>{shown}</td>"

    head = "".join(
        f'<th scope="col"{_NUMBER if is_number else ""}>{escape(name)}</th>'
        for name, is_number in zip(table.header, numeric, strict=True)
    )
    rows = "\n".join(
        "<tr>" + "".join(cell(i, value) for i, value in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    title = escape(table.title)
    return (
        f'<figure class="table">\n<figcaption>{title}</figcaption>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">\n'
        f"<table>\n<thead>\n<tr>{head}</tr>\n</thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n"
        "</figure>"
    )


def _is_numeric(column: Sequence[str]) -> bool:
    """Whether a column holds plain numbers, with dashes and nothing for those that are missing."""
    said = [value for value in column if value not in ("", "–", "-")]
    return bool(said) and all(re.fullmatch(r"[-+−<>≤≥≈~]?\s?\d[\d.,]*\s?\S?", v) for v in said)
