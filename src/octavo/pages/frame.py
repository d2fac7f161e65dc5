"""The frame of a page and its plain parts: no script, nothing from outside, every text escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from octavo import __version__

CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}

# Surprise has nine steps; both schemes keep the text on them readable (contrast at least 4.5 to 1).
STYLE = """
:root { --ink: #1d2125; --quiet: #5a636d; --paper: #fdfdfb; --panel: #f3f3ef; --line: #d4d6d2; --main: #1f5fa8;
  --s0: #fdfdfb; --s1: #fdf6d8; --s2: #fdeaa8; --s3: #fbd680; --s4: #f9bd68; --s5: #f5a15c; --s6: #ee8456;
  --s7: #e36a58; --never: #1d2125; --on-never: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e1; --quiet: #a3abb3; --paper: #16191c; --panel: #20252a;
  --line: #3c434a; --main: #7db4f0; --s0: #16191c; --s1: #2c2613; --s2: #403512; --s3: #554110; --s4: #6b4710;
  --s5: #814512; --s6: #93401a; --s7: #a63427; --never: #f4f4f0; --on-never: #16191c } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 } h2 { font-size: 1.25rem; margin: 2rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem } p { margin: .5rem 0; max-width: 42rem }
a { color: var(--main) } .quiet, footer, figcaption, dt { color: var(--quiet) }
.number { font-size: 2.6rem; line-height: 1.1; font-weight: 650; margin: .8rem 0 0 } .number small { display: block;
  font: 1rem/1.5 system-ui, sans-serif }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem;
  font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { font-weight: 600; white-space: nowrap } .r { text-align: right; white-space: nowrap }
td:not(.r) { min-width: 8rem } .best td { font-weight: 650 }
code { font: .85rem/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
pre { font: .85rem/1.55 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0;
  padding: .7rem .8rem; background: var(--panel); border-radius: 4px; unicode-bidi: isolate }
pre.surprise { background: var(--s0); border: 1px solid var(--line); line-height: 1.7 }
mark { color: inherit; background: none } mark.n::before { content: "\\21b5"; opacity: .45 }
.s1 { background: var(--s1) } .s2 { background: var(--s2) } .s3 { background: var(--s3) } .s4 { background: var(--s4) }
.s5 { background: var(--s5) } .s6 { background: var(--s6) } .s7 { background: var(--s7) }
.never { background: var(--never); color: var(--on-never) }
.legend { list-style: none; padding: 0; margin: .5rem 0; display: flex; flex-wrap: wrap; gap: .25rem;
  font-size: .8rem } .legend mark { display: block; padding: 0 .5rem; border: 1px solid var(--line) }
figure { margin: .8rem 0; max-width: 30rem } svg { display: block; width: 100%; height: auto; fill: var(--ink);
  font: 12px system-ui, sans-serif } svg .bar { fill: var(--main) } svg .dot { fill: var(--main) }
svg .on { fill: var(--paper); font-weight: 650; text-anchor: middle } svg .faint { fill: var(--quiet) }
svg .line { paint-order: stroke; stroke: var(--paper); stroke-width: 4px }
svg line { stroke: var(--line) } svg line.peer { stroke: var(--quiet); stroke-dasharray: 4 3 }
svg .end { text-anchor: end } svg .middle { text-anchor: middle } figcaption { font-size: .85rem }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); gap: 0 1.2rem }
.level { align-items: end }
.side h3 { margin-bottom: 0 } dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem }
dd { margin: 0; overflow-wrap: anywhere } footer { margin: 2.5rem 0 1rem; font-size: .85rem }
@media (max-width: 30rem) { table { font-size: .8rem } th, td { padding-right: .6rem } td:not(.r) { min-width: 7rem } }
"""


def shown(text: str) -> str:
    """Any text as HTML: escaped, and with control characters as pictures of themselves."""
    whole = text.encode("utf-8", "backslashreplace").decode()  # lone surrogates cannot be written to a file
    return html.escape(whole.translate(CONTROLS))


def document(title: str, lead: str, body: Iterable[str], style: str = "") -> str:
    """A whole page; `title` is text, `lead` and `body` are HTML, `style` is what this page alone needs."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{shown(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{shown(title)}</h1>\n{lead}\n</header>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n<footer>Written by octavo {shown(__version__)}. Everything is in this one file.</footer>\n"
        "</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A section with a heading; the parts are HTML."""
    return f"<section>\n<h2>{shown(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{shown(text)}</p>' if kind else f"<p>{shown(text)}</p>"


def verbatim(text: str) -> str:
    """Text as it is; the first line feed after the tag is the parser's, not ours."""
    return f"<pre>\n{shown(text)}</pre>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (), best: int = -1) -> str:
    """A table whose cells are HTML; the columns `right` hold numbers, the row `best` is marked."""
    sides = [' class="r"' if i in right else "" for i in range(len(titles))]
    head = "".join(f'<th scope="col"{side}>{title}</th>' for title, side in zip(titles, sides, strict=True))
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td{side}>{cell}</td>" for cell, side in zip(row, sides, strict=True))
        lines.append(f'<tr class="best">{cells}</tr>' if number == best else f"<tr>{cells}</tr>")
    body = "\n".join(lines)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and their values, both plain text."""
    return "<dl>" + "".join(f"<dt>{shown(name)}</dt><dd>{shown(value)}</dd>" for name, value in pairs) + "</dl>"
