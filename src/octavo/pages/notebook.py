"""Parts of pages in a notebook: complete, without a script, and with a style that applies to nothing else.

The notebook's own theme decides whether the colours are light or dark, and where it names none, the system.
"""

from __future__ import annotations

from typing import Any

from octavo.pages.markup import join, render, stylesheet


def notebook_view(*parts: Any) -> str:
    """The parts as what `_repr_html_` gives."""
    return str(render("notebook.html", body=join(*parts), style=stylesheet()))
