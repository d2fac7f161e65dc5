"""Tokenizers in GGUF files, both ways: what llama.cpp calls gpt2 (byte-level pairs) and llama (characters, bytes).

llama.cpp knows a fixed list of patterns that split texts, each by a name. A tokenizer with another pattern has no
form there.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from octavo.errors import UserError
from octavo.exchange.huggingface_export import tokenizer_json
from octavo.exchange.imported import ADDED, BYTE_LEVEL
from octavo.io.gguf import Gguf
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.char import Char
from octavo.text.tokenizers.token_bytes import BYTES

PAIRS, CHARACTERS, NO_TOKENIZER = "gpt2", "llama", "none"  # what llama.cpp calls them, whoever the model is by
NORMAL, CONTROL, USER, UNUSED, BYTE = 1, 3, 4, 5, 6  # control tokens are special, a user's are found in texts
IDS = ("bos", "eos", "unknown", "padding")
SPACE = "▁"  # stands for a space, in characters
BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")

# How texts are split before pairs are joined, by the name that llama.cpp has for it. "default" says that whoever
# made the file did not know; GPT-2's is then the likeliest, and another would only cost a few more tokens.
SPLITS: dict[str, dict[str, Any]] = {
    "gpt-2": BYTE_LEVEL,
    "default": BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
}

# ---------------------------------------------------------------------- in


def tokenizer_parts(gguf: Gguf) -> dict[str, Any]:
    """What a `tokenizer.json` would hold, for `Bpe(parts, begin, size)`."""
    model, pre = gguf.get("tokenizer.ggml.model", str), gguf.get("tokenizer.ggml.pre", str, "default")
    tokens = _strings(gguf, "tokenizer.ggml.tokens")
    characters = _characters(tokens) if model == CHARACTERS else None
    if characters is None and (model != PAIRS or pre not in SPLITS):
        raise UserError(
            f"the tokenizer of {gguf.path} is {model!r} split by {pre!r}; read are {PAIRS!r} split by "
            f"{', '.join(map(repr, SPLITS))}: get another model, or give its tokenizer.json"
        )
    if gguf.get("tokenizer.ggml.add_space_prefix", bool, False):
        raise UserError(
            f"the tokenizer of {gguf.path} puts a space before every text, which is not read; get another model"
        )
    if len(set(tokens)) < len(tokens):
        raise UserError(f"the tokens in {gguf.path} must be all different: some stand there twice; get it again")
    types = gguf.get("tokenizer.ggml.token_type", np.ndarray, np.full(len(tokens), NORMAL))
    if len(types) != len(tokens):
        raise UserError(
            f"every token in {gguf.path} must have a type: {len(tokens):,} tokens, {len(types):,} types; get it again"
        )
    added = [
        {"id": number, "content": tokens[number], **ADDED, "special": bool(types[number] == CONTROL)}
        for number in np.flatnonzero(np.isin(types, (CONTROL, USER))).tolist()
    ]
    if characters is not None:
        return Char(characters).huggingface_json() | {"version": "1.0", "normalizer": None, "added_tokens": added}
    pairs = [merge.split(" ") for merge in _strings(gguf, "tokenizer.ggml.merges")]
    if wrong := next((pair for pair in pairs if len(pair) != 2), None):
        raise UserError(f"every merge in {gguf.path} must be of two tokens: {' '.join(wrong)!r} is not; get it again")
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": SPLITS[pre],
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": pairs},
    }


def _characters(tokens: list[str]) -> str | None:
    """The characters of a vocabulary of the 256 bytes, characters in order and one more token; None: it is another."""
    characters = "".join(tokens[BYTES:-1]).replace(SPACE, " ")
    names = [f"<0x{byte:02X}>" for byte in range(BYTES)]
    alone = all(len(token) == 1 for token in tokens[BYTES:-1])
    ordered = list(characters) == sorted(set(characters))
    return characters if tokens[:BYTES] == names and alone and ordered and len(tokens) > BYTES else None


def special_ids(gguf: Gguf) -> dict[str, int]:
    """The ids of bos, eos, unknown and padding, those that the file has."""
    count = len(_strings(gguf, "tokenizer.ggml.tokens"))
    found = {name: f"tokenizer.ggml.{name}_token_id" for name in IDS}
    ids = {name: int(gguf.get(key, int)) for name, key in found.items() if key in gguf.metadata}
    for name, number in ids.items():
        if not 0 <= number < count:
            raise UserError(
                f"{name} in {gguf.path} must be a token from 0 to {count - 1:,}: it is {number:,}; get it again"
            )
    return ids


def _strings(gguf: Gguf, key: str) -> list[str]:
    values: list[str] = gguf.get(key, list)
    if not all(isinstance(value, str) for value in values):
        raise UserError(f"{key} in {gguf.path} must be strings; the file is damaged")
    return values


# ---------------------------------------------------------------------- out


def tokenizer_metadata(tokenizer: Tokenizer, vocab: int) -> dict[str, Any] | None:
    """The tokenizer for llama.cpp, `begin` put before every text; None where it has no form there."""
    written = tokenizer_json(tokenizer)
    if written is None:
        return None
    model, added = written.parts["model"], {token["id"]: token for token in written.parts["added_tokens"]}
    names = {number: name for name, number in model["vocab"].items()}
    names |= {number: token["content"] for number, token in added.items()}
    tokens = [names.get(number, f"[UNUSED{number}]") for number in range(vocab)]
    types = [
        (CONTROL if added[i].get("special") else USER) if i in added else NORMAL if i in names else UNUSED
        for i in range(vocab)
    ]
    kind = _kind_of(written.parts)
    if kind is None:
        return None
    if kind["model"] == CHARACTERS:
        if SPACE in tokens:  # which llama.cpp could not tell from a space
            return None
        types = [BYTE if BYTE_NAME.fullmatch(token) else type for token, type in zip(tokens, types, strict=True)]
        tokens = [SPACE if token == " " else token for token in tokens]
        kind["scores"] = [0.0] * vocab  # one character is one token: nothing is joined
    else:
        kind["merges"] = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    return {
        f"tokenizer.ggml.{key}": value
        for key, value in {
            **kind, "tokens": tokens, "token_type": types, "bos_token_id": tokenizer.begin,
            "eos_token_id": tokenizer.begin, "add_bos_token": True, "add_space_prefix": False,
        }.items()
    }  # fmt: skip


def _kind_of(parts: dict[str, Any]) -> dict[str, Any] | None:
    """llama.cpp's name for such a tokenizer, and for its split."""
    model, split = parts["model"], parts.get("pre_tokenizer") or {}
    if model.get("type") != "BPE" or parts.get("normalizer"):
        return None
    if model.get("byte_fallback"):
        names = (name for name in model["vocab"] if not BYTE_NAME.fullmatch(name))
        return {"model": CHARACTERS} if not model["merges"] and all(len(name) == 1 for name in names) else None
    if model.get("ignore_merges"):
        return None
    if split.get("type") == "ByteLevel" and not model["merges"]:  # wherever it is split, bytes remain
        return {"model": PAIRS, "pre": "gpt-2"}
    return next(({"model": PAIRS, "pre": pre} for pre, known in SPLITS.items() if _same_split(split, known)), None)


def _same_split(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two pre-tokenizers split alike; where its offsets begin is nothing to a token."""
    if one.get("type") == other["type"] == "Sequence":
        parts = one["pretokenizers"], other["pretokenizers"]
        return len(parts[0]) == len(parts[1]) and all(map(_same_split, *parts))
    keys = {key for key in other if key != "trim_offsets"}
    return all(one.get(key, key == "use_regex") == other[key] for key in keys)
