"""Tokens as text on one line, for tables and figures."""

from __future__ import annotations

from octavo.text.tokenizers.base import Tokenizer

BEGIN = "▷"  # how the begin token, which stands for no text, is shown


def display_token(tokenizer: Tokenizer, token: int) -> str:
    """A token as text on one line: what a terminal would act on, a carriage return for instance, is spelt out."""
    return on_one_line(tokenizer.token_bytes(token).decode("utf-8", "backslashreplace"))


def on_one_line(text: str) -> str:
    """White space as visible signs, and what cannot be printed as its escape sequence."""
    text = text.replace("\n", "⏎").replace(" ", "␣")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
