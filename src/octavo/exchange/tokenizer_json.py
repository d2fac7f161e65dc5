"""Our tokenizers as the tokenizer.json of the tokenizers library: the same ids for the same text."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import tokenizers

from octavo.text.tokenizers.base import Tokenizer

BEGIN = "<|begin|>"
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


class Written(NamedTuple):
    """A tokenizer.json, and what its token that opens sequences is called."""

    parts: dict[str, Any]
    begin: str


def tokenizer_json(tokenizer: Tokenizer) -> Written | None:
    """The tokenizer for others, with `begin` put before every text; None where the library cannot say what it does."""
    parts = tokenizer.huggingface_json()
    if parts is None:
        return None
    added: list[dict[str, Any]] = list(parts.get("added_tokens") or ())
    begin = next((token["content"] for token in added if token["id"] == tokenizer.begin), None)
    if begin is None:
        begin = _unused(parts)
        added.append({"id": tokenizer.begin, "content": begin, **FLAGS})
    written = parts | {"version": "1.0", "added_tokens": added, "post_processor": _opening(begin, tokenizer.begin)}
    return Written(written, begin) if _has_ids(written, begin, tokenizer) else None


def _unused(parts: dict[str, Any]) -> str:
    """A name for the token that opens sequences, which no other token has."""
    taken = {*parts["model"]["vocab"], *(token["content"] for token in parts.get("added_tokens") or ())}
    name = BEGIN
    while name in taken:
        name = f"<{name}>"
    return name


def _opening(name: str, number: int) -> dict[str, Any]:
    """Puts the token before every text, as every sequence here begins with it."""
    token, text, second = (
        {"SpecialToken": {"id": name, "type_id": 0}},
        *({"Sequence": {"id": which, "type_id": i}} for i, which in enumerate("AB")),
    )
    special = {name: {"id": name, "ids": [number], "tokens": [name]}}
    return {"type": "TemplateProcessing", "single": [token, text], "pair": [token, text, second],
            "special_tokens": special}  # fmt: skip


def _has_ids(parts: dict[str, Any], begin: str, tokenizer: Tokenizer) -> bool:
    """Whether the library gives every token the id that it has here: it numbers added tokens as it sees fit."""
    ids = tokenizers.Tokenizer.from_str(json.dumps(parts)).get_vocab(with_added_tokens=True)
    wanted = {token["content"]: token["id"] for token in parts["added_tokens"]} | parts["model"]["vocab"]
    return ids[begin] == tokenizer.begin and all(ids.get(name) == number for name, number in wanted.items())
