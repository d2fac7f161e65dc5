"""A page's style made to hold inside one element alone, in the light and the dark of the notebook around it."""

from __future__ import annotations

import re
from collections.abc import Iterator

LIGHT = ':is([data-jp-theme-light="true"], .vscode-light, html[theme="light"])'  # Jupyter, VS Code, Colab
DARK = ':is([data-jp-theme-light="false"], .vscode-dark, html[theme="dark"])'
BY_SYSTEM = "@media (prefers-color-scheme: dark)"
ITSELF = (":root", "body")  # selectors that mean the whole page


def scoped(style: str, kind: str) -> str:
    """The rules for elements within one of class `kind`.

    What is said for a dark system holds there, unless the notebook says that it is light itself; and it holds in a dark
    notebook whatever the system says.
    """
    plain = [(head, body) for head, body in rules(style) if not head.startswith("@")]
    nested = [(head, list(rules(body))) for head, body in rules(style) if head.startswith("@")]
    dark = [rule for head, some in nested if head == BY_SYSTEM for rule in some]
    changed = {selector for head, _ in dark for selector in parts(head)}
    light = [
        (", ".join(kept), body) for head, body in plain if (kept := [one for one in parts(head) if one in changed])
    ]
    return "\n".join([
        _written(plain, kind),
        *(f"{head} {{ {_written(some, kind)} }}" for head, some in nested if head.startswith("@media")),
        _written(dark, kind, DARK), _written(light, kind, LIGHT),
    ])  # fmt: skip


def rules(style: str) -> Iterator[tuple[str, str]]:
    """Each rule as what stands before its bracket and what stands within."""
    place = 0
    while (opening := style.find("{", place)) >= 0:
        depth, closing = 1, opening
        while depth and closing + 1 < len(style):
            closing += 1
            depth += {"{": 1, "}": -1}.get(style[closing], 0)
        yield " ".join(style[place:opening].split()), style[opening + 1 : closing].strip()
        place = closing + 1


def parts(head: str) -> list[str]:
    """The selectors of a list; a comma within brackets belongs to its selector."""
    return [one.strip() for one in re.split(r",(?![^(]*\))", head)]


def _written(some: list[tuple[str, str]], kind: str, around: str = "") -> str:
    # The class twice, so that it weighs more than what a notebook says of every table.
    me = f"{around} .{kind}.{kind}".strip()
    heads = [", ".join(me if one in ITSELF else f"{me} {one}" for one in parts(head)) for head, _ in some]
    return "\n".join(f"{head} {{ {body} }}" for head, (_, body) in zip(heads, some, strict=True))
