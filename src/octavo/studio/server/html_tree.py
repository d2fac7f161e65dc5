"""Octavo's own HTML as nested lists, from which the page makes elements: the page never parses HTML.

<p class="quiet">a <b>word</b></p>   ->   ["p", {"class": "quiet"}, "a ", ["b", {}, "word"]]
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree


def html_tree(html: str) -> list[Any]:
    """The elements and texts of a fragment of HTML that is well-formed XML."""
    return _children(ElementTree.fromstring(f"<all>{html}</all>"))


def _children(node: ElementTree.Element) -> list[Any]:
    found: list[Any] = [node.text] if node.text and (node.text.strip() or len(node)) else []
    for child in node:
        found.append([child.tag, dict(child.attrib), *_children(child)])
        if child.tail:
            found.append(child.tail)
    return found
