"""Bars in sets, each stacked of the same groups, as inline SVG: what a model pays, and for what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from octavo.pages.frame import shown

WIDTH = 360
LABEL, NUMBER = 104, 40  # room for the bars' names and for the numbers behind them
BAR, STEP, HEADING, APART = 12, 16, 18, 10  # heights: a bar, one bar to the next, a set's title, between sets
KEY = 16  # the height of a line of the key
LETTER = 6.6
COLOURS = {  # from what nobody could know to what everybody knows; the second is for dark pages
    "g0": ("#8c1d40", "#e0607e"), "g1": ("#d9662b", "#e8935a"),
    "g2": ("#e3b23c", "#cda63a"), "g3": ("#8fb3d9", "#49749f"),
}  # fmt: skip


class Bar(NamedTuple):
    """One bar: its name and its parts, in the order of the groups; a faint one is not comparable with the others."""

    name: str
    parts: tuple[float, ...]
    faint: bool = False


def stacked(sets: Sequence[tuple[str, Sequence[Bar]]], groups: Sequence[str], caption: str, unit: str) -> str:
    """Sets of bars under their titles, with a key; a bar that is not finite is named, not drawn."""
    totals = [math.fsum(bar.parts) for _, bars in sets for bar in bars if all(map(math.isfinite, bar.parts))]
    scale = (WIDTH - LABEL - NUMBER) / max([*totals, 1e-9])
    drawn, y = _key(groups)
    told = []
    for title, bars in sets:
        drawn.append(f'<text x="0" y="{y + 12}" class="title">{shown(title)}</text>')
        y += HEADING
        for bar in bars:
            drawn.append(_bar(bar, groups, y, scale))
            told.append(f"{title}, {bar.name}: {_number(bar)} {unit}")
            y += STEP
        y += APART
    return (
        f'<figure class="groups">\n<style>{_style()}</style>\n'
        f'<svg viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{shown("; ".join(told))}">\n'
        + "\n".join(drawn)
        + f"\n</svg>\n<figcaption>{shown(caption)}</figcaption>\n</figure>"
    )


def _bar(bar: Bar, groups: Sequence[str], y: int, scale: float) -> str:
    """The name, the parts from the dearest group to the common one, the sum."""
    at, parts = float(LABEL), []
    for i, (group, value) in enumerate(zip(groups, bar.parts, strict=True)):
        if not math.isfinite(math.fsum(bar.parts)) or value <= 0:
            continue
        parts.append(
            f'<rect class="g{i}" x="{at:.2f}" y="{y}" width="{value * scale:.2f}" height="{BAR}">'
            f"<title>{shown(group)}: {value:.4f}</title></rect>"
        )
        at += value * scale
    name = f'<text x="{LABEL - 6}" y="{y + 10}" class="faint end">{shown(_short(bar.name))}</text>'
    number = f'<text x="{at + 4:.1f}" y="{y + 10}">{_number(bar)}</text>'
    return f'<g class="{"pale" if bar.faint else "full"}">{name}{"".join(parts)}{number}</g>'


def _number(bar: Bar) -> str:
    total = math.fsum(bar.parts) if all(map(math.isfinite, bar.parts)) else math.inf
    return f"{total:.2f}{' *' if bar.faint else ''}" if math.isfinite(total) else "infinite"


def _key(groups: Sequence[str]) -> tuple[list[str], int]:
    """What the colours mean, two a line; and where the first set begins."""
    drawn = []
    for i, group in enumerate(groups):
        x, y = (i % 2) * WIDTH // 2, i // 2 * KEY
        drawn.append(f'<rect class="g{i}" x="{x}" y="{y + 2}" width="{BAR}" height="{BAR}"></rect>')
        drawn.append(f'<text x="{x + BAR + 6}" y="{y + 12}">{shown(group)}</text>')
    return drawn, -(-len(groups) // 2) * KEY + APART


def _short(name: str) -> str:
    """As much of a name as fits in front of its bar."""
    room = int((LABEL - 6) / LETTER)
    return name if len(name) <= room else name[: room - 1] + "…"


def _style() -> str:
    light = " ".join(f".groups .{name} {{ fill: {colour} }}" for name, (colour, _) in COLOURS.items())
    dark = " ".join(f".groups .{name} {{ fill: {colour} }}" for name, (_, colour) in COLOURS.items())
    return (
        f"{light} .groups .title {{ font-weight: 650 }} .groups .pale rect {{ opacity: .55 }} "
        f"@media (prefers-color-scheme: dark) {{ {dark} }}"
    )
