"""Reading the HTML that octavo writes: balanced tags, attributes and text; and texts to put into pages."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np

VOID = {"meta", "input"}
HOSTILE = "<script>alert(1)</script> & \"quoted\" 'too' </pre></mark><img src=x onerror=alert(2)>\x00\x1b\n"
WORDS = "the cat sat on the mat and the dog lay by the door while rain fell on every roof in town".split()


class Page(HTMLParser):
    """The tags of a page, checked for balance, its attributes, and the text in each `pre`."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.verbatim: list[str] = []
        self.text = ""
        self.feed(str(page))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "pre":
            self.verbatim.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text += data
        if "pre" in self.open:
            self.verbatim[-1] += data

    def titles(self) -> list[str]:
        return [value for name, value in self.attributes if name == "title"]


def elements(html: str, tag: str) -> list[ElementTree.Element]:
    """The elements of a tag in a piece of HTML or SVG, which is well formed as XML too."""
    return list(ElementTree.fromstring(f"<all>{html}</all>").iter(tag))


def sentences(count: int, seed: int = 0) -> str:
    generator = np.random.default_rng(seed)
    return "".join(" ".join(generator.choice(WORDS, 7)).capitalize() + ".\n" for _ in range(count))
