"""Matrices as shaded cells, side by side in one figure."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from octavo.pages.frame import shown

WIDTH, GAP, TITLE = 360, 24, 16  # units; the height of a title
FAINTEST = 0.12  # of a cell that is not zero


def shaded(matrices: Sequence[tuple[str, Tensor]], caption: str) -> str:
    """Each matrix below its title; the stronger a cell's colour, the larger its number; zeros stay empty."""
    side = (WIDTH - GAP * (len(matrices) - 1)) / len(matrices)
    drawn, tallest = [], 0.0
    for place, (title, m_NM) in enumerate(matrices):
        rows, columns = m_NM.shape
        cell, left = min(side / columns, side / rows), place * (side + GAP)
        tallest = max(tallest, cell * rows)
        drawn.append(f'<text x="{left:.1f}" y="12">{shown(title)}</text>')
        most = m_NM.abs().max().item() or 1.0
        for i, row in enumerate(m_NM.tolist()):
            for j, one in enumerate(row):
                at = f'x="{left + j * cell:.1f}" y="{TITLE + i * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}"'
                strong = FAINTEST + (1 - FAINTEST) * abs(one) / most if one else 0.0
                drawn.append(f'<rect class="cell" {at} fill-opacity="{strong:.2f}"></rect>')
    told = "; ".join(
        f"{title}: {m.shape[0]} by {m.shape[1]}, {int(m.count_nonzero())} not zero" for title, m in matrices
    )
    return (
        '<figure class="shaded">\n<style>.shaded .cell { fill: var(--main); stroke: var(--line); stroke-width: .6 }'
        f'</style>\n<svg viewBox="0 0 {WIDTH} {TITLE + tallest + 2:.0f}" role="img" aria-label="{shown(told)}">\n'
        + "\n".join(drawn)
        + f"\n</svg>\n<figcaption>{shown(caption)}</figcaption>\n</figure>"
    )
