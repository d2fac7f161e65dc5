"""Prose whose numbers are bound to what is computed: `facts.py` checks them."""

from __future__ import annotations

import re

BINDING = re.compile(r"(?<=[\d%`])\{[^{}]*\}")


class Text(str):
    """Prose as it is displayed; `raw` has the bindings of its numbers too."""

    raw: str

    def __new__(cls, raw: str) -> Text:
        if isinstance(raw, Text):
            return raw
        text = super().__new__(cls, BINDING.sub("", raw))
        text.raw = raw
        return text
