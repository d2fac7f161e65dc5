"""Drawings in SVG, 360 units wide so that their text stays readable on a phone, and the colours they are made of.

A shape names its colours. In a page their classes follow the stylesheet, in light and in dark; the attributes hold the
light ones, so that the same drawing is a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from octavo.pages.markup import element
from octavo.pages.sections import captioned

WIDTH = 360  # units of a drawing
CHARACTER = 6.4  # units of an average character, at 12 units to the em
LINE_HEIGHT = 17  # units of a line of a legend
MARGIN = 10  # units around a drawing in a file
FONT: dict[str, Any] = {"font_family": "system-ui, sans-serif", "font_size": 12}
COLOURS = {  # the light ones of the stylesheet
    "ink": "#1d2125", "quiet": "#5a636d", "paper": "#fdfdfb", "panel": "#f3f3ef", "line": "#d4d6d2", "main": "#1f5fa8",
    "negative": "#c2410c",
    "series0": "#1f5fa8", "series1": "#c2410c", "series2": "#15803d", "series3": "#86198f", "series4": "#0e7490",
    "series5": "#92700c", "group0": "#8c1d40", "group1": "#d9662b", "group2": "#e3b23c", "group3": "#8fb3d9",
}  # fmt: skip
SERIES = 6  # colours for the curves and marks of a figure


@dataclass(frozen=True)
class Drawing:
    """What stands inside an SVG of this size; `label` says the same to those who cannot see it."""

    height: float
    shapes: tuple[Markup, ...]
    label: str
    is_interactive: bool = False  # its marks can be read one by one

    def inline(self) -> Markup:
        """The drawing inside a page."""
        role = "group" if self.is_interactive else "img"
        size: dict[str, Any] = {"viewBox": f"0 0 {WIDTH} {self.height:.0f}", "role": role, "aria_label": self.label}
        return shape("svg", "\n", *self.shapes, "\n", fill="ink", **size, **FONT)

    def file(self, title: str) -> str:
        """The drawing as a file of its own, on the light background."""
        width, height = WIDTH + 2 * MARGIN, round(self.height) + 2 * MARGIN
        size: dict[str, Any] = {"width": width, "height": height}
        ground = shape("rect", x=-MARGIN, y=-MARGIN, fill="paper", **size)
        words = (element("title", title), element("desc", self.label))
        svg = shape(
            "svg", *words, ground, "\n", *self.shapes, "\n", xmlns="http://www.w3.org/2000/svg", fill="ink",
            viewBox=f"{-MARGIN} {-MARGIN} {width} {height}", role="img", **size, **FONT,
        )  # fmt: skip
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'


def shape(tag: str, *inside: Any, fill: str | None = None, stroke: str | None = None, **attributes: Any) -> Markup:
    """An element of a drawing, whose fill and stroke may be names of COLOURS."""
    classes = [attributes.pop("class_")] if attributes.get("class_") else []
    for name, colour in (("fill", fill), ("stroke", stroke)):
        if colour is not None:
            attributes[name] = COLOURS.get(colour, colour)
            classes += [f"{name}-{colour}"] if colour in COLOURS else []
    return element(tag, *inside, **({"class_": " ".join(classes)} if classes else {}), **attributes)


def words(x: float, y: float, text: str, anchor: str = "start", **attributes: Any) -> Markup:
    """A line of text that begins, ends or has its middle at x."""
    return shape("text", text, x=x, y=y, text_anchor=None if anchor == "start" else anchor, **attributes)


def halo_words(x: float, y: float, text: str, anchor: str = "start", **attributes: Any) -> Markup:
    """A line of text on a seam of the page's colour, so that lines below it do not strike it out."""
    return words(x, y, text, anchor, stroke="paper", stroke_width=4, paint_order="stroke", **attributes)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = "line", **attributes: Any) -> Markup:
    """A straight line."""
    return shape("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **attributes)


def rect(x: float, y: float, width: float, height: float, *inside: Any, **attributes: Any) -> Markup:
    """A rectangle; a title inside it is said when somebody points at it."""
    return shape("rect", *inside, x=x, y=y, width=width, height=height, **attributes)


def path(points: list[tuple[float, float]]) -> str:
    """Points joined by straight lines, as the `d` of a path."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def shorten(label: str, characters: int) -> str:
    """As much of a label as there is room for."""
    return label if len(label) <= characters else label[: characters - 1] + "…"


def figure(drawing: Drawing | None, caption: str, kind: str = "") -> Markup:
    """A drawing with its caption; nothing where there is nothing to draw."""
    return captioned(drawing.inline(), caption, kind) if drawing else Markup()
