"""Our tokenizers as the tokenizer.json of the tokenizers library: the same ids for the same text."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import tokenizers

from octavo.text.tokenizers.bpe import Bpe
from octavo.text.tokenizers.byte import Byte
from octavo.text.tokenizers.char import Char
from octavo.text.tokenizers.protocol import Tokenizer
from octavo.text.tokenizers.spelling import BYTES

BEGIN = "<|begin|>"
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


class Written(NamedTuple):
    """A tokenizer.json, and what its token that opens sequences is called."""

    parts: dict[str, Any]
    begin: str


def tokenizer_json(tokenizer: Tokenizer) -> Written | None:
    """The tokenizer for others, with `begin` put before every text; None where the library cannot say what it does."""
    if isinstance(tokenizer, Byte):
        parts = _of_bytes()
    elif isinstance(tokenizer, Char):
        parts = _of_characters(tokenizer)
    elif isinstance(tokenizer, Bpe):
        parts = dict(tokenizer.to_json()["tokenizer"])
    else:
        return None
    added: list[dict[str, Any]] = list(parts.get("added_tokens") or ())
    begin = next((token["content"] for token in added if token["id"] == tokenizer.begin), None)
    if begin is None:
        begin = _unused(parts)
        added.append({"id": tokenizer.begin, "content": begin, **FLAGS})
    written = parts | {"version": "1.0", "added_tokens": added, "post_processor": _opening(begin, tokenizer.begin)}
    return Written(written, begin) if _has_ids(written, begin, tokenizer) else None


def _of_bytes() -> dict[str, Any]:
    """A byte-level vocabulary of the 256 bytes, in their order, and no pairs to join."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    letters = Bpe.learn([], BYTES)  # which knows what the library calls each byte, in an order of its own
    named = letters.to_json()["tokenizer"]["model"]["vocab"].items()
    bytes_ = {name: letters.spelling(number)[0] for name, number in named}
    return {"pre_tokenizer": level, "decoder": level, "model": _model(bytes_)}


def _of_characters(tokenizer: Char) -> dict[str, Any]:
    """Characters, no pairs to join, and bytes for what is unknown."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(BYTES)}
    vocab |= {character: BYTES + i for i, character in enumerate(tokenizer.characters)}
    # Without this split the library would put the whole text into the memory of its cache, as one word.
    split = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    return {"pre_tokenizer": split, "decoder": decoder, "model": _model(vocab) | {"byte_fallback": True}}


def _model(vocab: dict[str, int]) -> dict[str, Any]:
    return {"type": "BPE", "vocab": vocab, "merges": []}


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
