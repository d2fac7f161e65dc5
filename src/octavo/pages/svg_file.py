"""A figure of a page as a file of its own: the page's styles, which classes ask for, become attributes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import NamedTuple

from octavo.pages.frame import STYLE

MEDIA = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")  # dark colours and small screens: not for a file
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
VARIABLE = re.compile(r"var\((--[\w-]+)\)")
WRITTEN = ("fill", "stroke", "stroke-width", "stroke-dasharray", "text-anchor", "font-weight", "paint-order", "opacity")
OF_THE_PAGE = ("class", "tabindex", "role", "aria-label")  # attributes that mean nothing in a picture
FONT = {"font-family": "system-ui, sans-serif", "font-size": "12"}
MARGIN = 10  # units around the figure
NOT_XML = re.compile("[\ufffe\uffff]")


class Rule(NamedTuple):
    """What elements that a selector names look like."""

    selector: tuple[str, ...]  # an element and, before it, what it lies in: ("svg", "line.peer")
    look: dict[str, str]

    @property
    def weight(self) -> tuple[int, int]:
        """How particular it is: by its classes, then by its elements."""
        classes = sum(part.count(".") for part in self.selector)
        return classes, sum(not part.startswith(".") for part in self.selector)


def standalone(figure: str, style: str = STYLE) -> str:
    """The SVG of a `<figure>` with nothing left to look up, on the page's light background."""
    root = ET.fromstring(NOT_XML.sub("\ufffd", figure))
    rules = rules_of(style + "".join(one.text or "" for one in root.iter("style")))
    drawing = root.find("svg")
    assert drawing is not None, "a figure holds an svg"
    variables = {name: value for rule in rules if rule.selector == (":root",) for name, value in rule.look.items()}
    told, caption = drawing.get("aria-label", ""), root.findtext("figcaption", "").strip()
    _resolve(drawing, [root], rules, variables)
    _frame(drawing, variables["--paper"], told, caption)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(drawing, encoding="unicode") + "\n"


def rules_of(style: str) -> list[Rule]:
    """The rules of a stylesheet that hold for a still picture, the most particular last."""
    rules = []
    for selectors, body in RULE.findall(MEDIA.sub("", style)):
        pairs = [one.split(":", 1) for one in body.split(";") if ":" in one]
        look = {name.strip(): value.strip() for name, value in pairs}
        for selector in selectors.split(","):
            parts = tuple(selector.split())
            if parts == (":root",) or not any(sign in selector for sign in ":>*[+~"):
                rules.append(Rule(parts, look))
    return sorted(rules, key=lambda rule: rule.weight)


def _resolve(
    element: ET.Element, above: Sequence[ET.Element], rules: Sequence[Rule], inherited: dict[str, str]
) -> None:
    """Write the element's own look into it, and that of everything in it."""
    look: dict[str, str] = {}
    for rule in rules:
        if _matches(rule.selector, element, above):
            look |= rule.look
    variables = inherited | {name: value for name, value in look.items() if name.startswith("--")}
    for name in WRITTEN:
        if name in look:
            element.set(name, VARIABLE.sub(lambda found: variables[found[1]], look[name]).removesuffix("px"))
    for child in list(element):
        if _hidden(child, [*above, element], rules):
            element.remove(child)
        else:
            _resolve(child, [*above, element], rules, variables)
    for name in OF_THE_PAGE:
        element.attrib.pop(name, None)
    if element.get("stroke-dasharray") == "":
        del element.attrib["stroke-dasharray"]


def _hidden(element: ET.Element, above: Sequence[ET.Element], rules: Sequence[Rule]) -> bool:
    shown = [
        rule.look["display"] for rule in rules if "display" in rule.look and _matches(rule.selector, element, above)
    ]
    return shown[-1:] == ["none"]


def _matches(selector: Sequence[str], element: ET.Element, above: Sequence[ET.Element]) -> bool:
    """Whether the selector's last part names the element, and the others, in their order, what it lies in."""
    *outer, last = selector
    if not _is(last, element):
        return False
    places = iter(above)
    return all(any(_is(part, place) for place in places) for part in outer)


def _is(part: str, element: ET.Element) -> bool:
    tag, *classes = part.split(".")
    return (not tag or tag == element.tag) and set(classes) <= set(element.get("class", "").split())


def _frame(drawing: ET.Element, paper: str, told: str, caption: str) -> None:
    """Name space, size, background and, for those who cannot see it, words."""
    _, _, wide, high = map(float, drawing.attrib.pop("viewBox").split())
    wide, high = wide + 2 * MARGIN, high + 2 * MARGIN
    size = {"width": f"{wide:g}", "height": f"{high:g}"}
    drawing.attrib = {
        "xmlns": "http://www.w3.org/2000/svg", "viewBox": f"{-MARGIN} {-MARGIN} {wide:g} {high:g}", **size, **FONT,
        **drawing.attrib, "role": "img",
    }  # fmt: skip
    ground = ET.Element("rect", {"x": f"{-MARGIN}", "y": f"{-MARGIN}", **size, "fill": paper})
    title, words = ET.Element("title"), ET.Element("desc")
    title.text, words.text = caption, told
    for place, one in enumerate((title, words, ground)):
        drawing.insert(place, one)
