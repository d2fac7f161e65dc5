"""A picture of one of our SVG files, for where only pixels will do: drawn with Pillow and the font that it carries, so
neither a browser nor a font of the system is needed. It knows what our figures use, and refuses the rest.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from PIL import Image, ImageDraw, ImageFont

SCALE = 3  # pixels a unit
FINER = 2  # times as many while drawing, for smooth edges
INHERITED = ("fill", "stroke", "stroke-width", "font-size", "font-weight", "text-anchor")
COMMAND = re.compile(r"([A-Za-z])([^A-Za-z]*)")
NUMBER = re.compile(r"-?[\d.]+")
HALF_CIRCLE = 16  # straight pieces that stand for it
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
PLAIN = str.maketrans({"–": "-", "—": "-", "−": "-", "×": "x", "→": ">", "←": "<"})  # what the font lacks
SUPERSCRIPTS = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
BOLDER = 0.35  # units: how much thicker a bold letter is drawn

Place = tuple[float, float]


def png(svg: str, scale: int = SCALE) -> bytes:
    """The picture, `scale` pixels for each unit of the drawing."""
    root = ET.fromstring(svg.split("?>", 1)[-1])
    left, top, wide, high = map(float, root.attrib["viewBox"].split())
    brush = Brush(-left, -top, wide, high, scale * FINER)
    brush.draw(root, {}, (0.0, 0.0))
    written = io.BytesIO()
    brush.image.reduce(FINER).save(written, "PNG", optimize=True)
    return written.getvalue()


class Brush:
    """Draws elements on an image, whose pixels are `fine` to a unit."""

    def __init__(self, left: float, top: float, wide: float, high: float, fine: int) -> None:
        self.left, self.top, self.fine = left, top, fine
        self.image = Image.new("RGB", (round(wide * fine), round(high * fine)), "white")
        self.canvas = ImageDraw.Draw(self.image)

    def draw(self, element: ET.Element, inherited: dict[str, str], moved: Place) -> None:
        """One element and what is in it; attributes hold for what is inside."""
        look = inherited | {name: element.attrib[name] for name in INHERITED if name in element.attrib}
        found = element.attrib
        if "transform" in found:
            dx, dy = _numbers(found["transform"].removeprefix("translate"))
            moved = moved[0] + dx, moved[1] + dy
        tag = element.tag.rpartition("}")[2]
        if tag in ("svg", "g"):
            for child in element:
                self.draw(child, look, moved)
        elif tag == "text":
            self._text(element, look, moved)
        elif tag not in ("title", "desc"):
            for places, closed in _outlines(tag, found):
                shifted = [(x + moved[0], y + moved[1]) for x, y in places]
                self._shape(shifted, closed and tag != "line", look, found.get("stroke-dasharray", ""))

    def _shape(self, places: Sequence[Place], closed: bool, look: dict[str, str], dashes: str) -> None:
        pixels = [self._pixel(place) for place in places]
        fill, stroke = look.get("fill", "black"), look.get("stroke", "none")
        if closed and fill != "none":
            self.canvas.polygon(pixels, fill=fill)
        if stroke != "none":
            wide = max(1, round(float(look.get("stroke-width", "1")) * self.fine))
            for piece in _dashed(places, _numbers(dashes)):
                self.canvas.line([self._pixel(place) for place in piece], fill=stroke, width=wide, joint="curve")

    def _text(self, element: ET.Element, look: dict[str, str], moved: Place) -> None:
        x, y = float(element.attrib.get("x", "0")) + moved[0], float(element.attrib.get("y", "0")) + moved[1]
        font = ImageFont.load_default(float(look.get("font-size", "12")) * self.fine)
        halo = look.get("stroke", "none") if element.get("paint-order") == "stroke" else "none"
        ink, text = look.get("fill", "black"), _spelt(element.text or "")
        told: dict[str, Any] = {"font": font, "anchor": ANCHORS[look.get("text-anchor", "start")]}
        if halo != "none":
            wide = float(look.get("stroke-width", "1")) * self.fine / 2
            self.canvas.text(self._pixel((x, y)), text, fill=halo, stroke_width=wide, stroke_fill=halo, **told)
        bold = int(look.get("font-weight", "400")) >= 600
        self.canvas.text(self._pixel((x, y)), text, fill=ink, stroke_width=BOLDER * self.fine if bold else 0, **told)

    def _pixel(self, place: Place) -> Place:
        return (place[0] + self.left) * self.fine, (place[1] + self.top) * self.fine


def _spelt(text: str) -> str:
    """The text in letters that the font has: accents fall, 10⁻⁸ becomes 10^-8, and what is left becomes ?."""
    raised = SUPERSCRIPTS.sub(lambda found: "^" + unicodedata.normalize("NFKD", found[0]), text).translate(PLAIN)
    letters = (one for one in unicodedata.normalize("NFKD", raised) if not unicodedata.combining(one))
    return "".join(one if (one.isascii() and one.isprintable()) or one in "…·" else "?" for one in letters)


def _outlines(tag: str, found: dict[str, str]) -> Iterator[tuple[list[Place], bool]]:
    """The corners of each part of a shape, and whether it is closed."""
    at = {name: float(value) for name, value in found.items() if NUMBER.fullmatch(value)}
    if tag == "rect":
        x, y, wide, high = at.get("x", 0.0), at.get("y", 0.0), at["width"], at["height"]
        yield [(x, y), (x + wide, y), (x + wide, y + high), (x, y + high), (x, y)], True
    elif tag == "line":
        yield [(at["x1"], at["y1"]), (at["x2"], at["y2"])], False
    elif tag == "circle":
        turns = [math.pi * i / HALF_CIRCLE for i in range(2 * HALF_CIRCLE + 1)]
        yield [(at["cx"] + at["r"] * math.cos(t), at["cy"] + at["r"] * math.sin(t)) for t in turns], True
    elif tag == "path":
        yield from _path(found["d"])
    else:
        raise ValueError(f"our figures do not use <{tag}>")


def _path(drawn: str) -> Iterator[tuple[list[Place], bool]]:
    places: list[Place] = []
    for command, rest in COMMAND.findall(drawn):
        numbers = _numbers(rest)
        x, y = places[-1] if places else (0.0, 0.0)
        if command == "M":
            if places:
                yield places, False
            places = [(numbers[0], numbers[1])]
        elif command == "L":
            places += zip(numbers[::2], numbers[1::2], strict=True)
        elif command in "HhVv":
            (step,) = numbers
            where = {"H": (step, y), "h": (x + step, y), "V": (x, step), "v": (x, y + step)}
            places.append(where[command])
        elif command == "a":
            places += _half_circle((x, y), numbers)
        elif command == "z":
            yield [*places, places[0]], True
            places = []
        else:
            raise ValueError(f"our figures do not use {command} in a path")
    if places:
        yield places, False


def _half_circle(begin: Place, numbers: Sequence[float]) -> list[Place]:
    """An arc whose ends lie a diameter apart."""
    radius, _, _, _, clockwise, dx, dy = numbers
    assert math.isclose(math.hypot(dx, dy), 2 * radius), "an arc of our figures is half a circle"
    x, y, first = begin[0] + dx / 2, begin[1] + dy / 2, math.atan2(-dy, -dx)
    turns = [first + (1 if clockwise else -1) * math.pi * i / HALF_CIRCLE for i in range(1, HALF_CIRCLE + 1)]
    return [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns]


def _dashed(places: Sequence[Place], dashes: Sequence[float]) -> Iterator[list[Place]]:
    """The pieces of a line that are drawn: with dashes, every second stretch; their lengths run on around corners."""
    if not dashes:
        yield list(places)
        return
    lengths = [*dashes, *dashes] if len(dashes) % 2 else list(dashes)
    number, left, piece = 0, lengths[0], [places[0]]
    for (x, y), (to_x, to_y) in pairwise(places):
        far = math.hypot(to_x - x, to_y - y)
        done = 0.0
        while far - done > left:
            done += left
            corner = x + (to_x - x) * done / far, y + (to_y - y) * done / far
            if number % 2 == 0:
                yield [*piece, corner]
            number, piece = number + 1, [corner]
            left = lengths[number % len(lengths)]
        left -= far - done
        piece.append((to_x, to_y))
    if number % 2 == 0 and len(piece) > 1:
        yield piece


def _numbers(text: str) -> list[float]:
    return [float(one) for one in NUMBER.findall(text)]
