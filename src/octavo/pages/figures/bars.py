"""Figures as inline SVG, drawn 360 units wide so that their letters stay readable on a telephone."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.pages.frame import shown

WIDTH = 360
BAR, STEP = 16, 24  # the height of a bar, and from one to the next
LETTER = 7.4  # the width of a wide letter of the figures' font


def bars(rows: Sequence[tuple[str, float]], caption: str, digits: int = 0) -> str:
    """Horizontal bars with their numbers to so many digits after the point; labels are plain text."""
    most = max((value for _, value in rows), default=0) or 1
    left = min(120, 10 + LETTER * max((len(label) for label, _ in rows), default=0))
    numbers = [f"{value:,.{digits}f}" for _, value in rows]
    room = WIDTH - left - 10 - LETTER * max((len(number) for number in numbers), default=0)
    drawn = []
    for i, ((label, value), number) in enumerate(zip(rows, numbers, strict=True)):
        y, width = i * STEP + 4, max(1.0, room * value / most)
        drawn.append(
            f'<text x="{left - 6:.0f}" y="{y + 12}" class="end">{shown(label)}</text>'
            f'<rect class="bar" x="{left:.0f}" y="{y}" width="{width:.1f}" height="{BAR}"></rect>'
            f'<text x="{left + width + 5:.1f}" y="{y + 12}">{number}</text>'
        )
    told = "; ".join(f"{label}: {number}" for (label, _), number in zip(rows, numbers, strict=True))
    return _figure(len(rows) * STEP + 4, drawn, caption, told)


def _figure(height: float, drawn: Sequence[str], caption: str, told: str) -> str:
    """`told` says the same to those who cannot see the figure."""
    return (
        f'<figure>\n<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{shown(told)}">\n'
        + "\n".join(drawn)
        + f"\n</svg>\n<figcaption>{shown(caption)}</figcaption>\n</figure>"
    )
