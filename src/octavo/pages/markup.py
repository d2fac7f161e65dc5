"""HTML and SVG from plain data: templates for pages and their sections, one element builder for figures.

Every text is escaped where it is put in, whatever it holds. Figures are built element by element and not by templates:
their geometry is arithmetic, which reads better in Python, and a call is much faster than a template for each of the
thousands of cells that a page can have.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent
STYLE = FOLDER / "style.css"
CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
CONTROLS |= {0xFFFE: 0xFFFD, 0xFFFF: 0xFFFD}  # XML has no such characters
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
NOTHING = Markup()


def printable(text: str) -> str:
    """Any text as one that a file can hold: control characters as pictures of themselves, lone surrogates escaped."""
    if not UNPRINTABLE.search(text):
        return text
    return text.encode("utf-8", "backslashreplace").decode().translate(CONTROLS)


def text(value: Any) -> Markup:
    """A value as HTML: markup as it is, a number in few digits, anything else escaped."""
    return Markup(_escaped(value))


def _escaped(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(escape(printable(value)))
    if kind is float:
        return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
    if kind is int:
        return str(value)
    return str(value.__html__()) if hasattr(value, "__html__") else str(escape(printable(str(value))))


@cache
def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def element(tag: str, *inside: Any, **attributes: Any) -> Markup:
    """An element of HTML or SVG; `class_` stands for class, `stroke_width` for stroke-width.

    An attribute that is None or False is left out; one that is True has its name as its value.
    """
    written = "".join([
        f' {_attribute(name)}="{name if value is True else _escaped(value)}"'
        for name, value in attributes.items() if value is not None and value is not False
    ])  # fmt: skip
    return Markup(f"<{tag}{written}>{''.join(map(_escaped, inside))}</{tag}>")


def join(*parts: Any) -> Markup:
    """Parts one after the other, a line each; empty ones are left out."""
    return Markup("\n").join(text(part) for part in parts if part is not None and part != "")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only a program that writes a page needs it

    return Environment(
        loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: printable(value) if type(value) is str else value,
    )  # fmt: skip


def render(template: str, **values: Any) -> Markup:
    """A template with these values, of which all that is not markup is escaped."""
    return Markup(_environment().get_template(template).render(values))


@cache
def stylesheet() -> Markup:
    """The style of every page, notebook view and of the studio."""
    return Markup(STYLE.read_text(encoding="utf-8"))
