"""HTML that octavo wrote, as nested lists, from which the page makes elements: it never reads HTML itself.

<p class="quiet">a <b>word</b></p>   ->   ["p", {"class": "quiet"}, "a ", ["b", {}, "word"]]
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree


def tree(html: str) -> list[Any]:
    """The elements and texts of a piece of HTML, which must be well formed as XML, too."""
    return _inside(ElementTree.fromstring(f"<all>{html}</all>"))


def _inside(node: ElementTree.Element) -> list[Any]:
    found: list[Any] = [node.text] if node.text and (node.text.strip() or len(node)) else []
    for child in node:
        found.append([child.tag, dict(child.attrib), *_inside(child)])
        if child.tail:
            found.append(child.tail)
    return found
