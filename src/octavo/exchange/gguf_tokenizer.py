"""The tokenizer in a GGUF file as a Hugging Face `tokenizer.json`."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.errors import UserError
from octavo.io.gguf.reader import Gguf

MODEL = "gpt2"  # what llama.cpp calls byte-level pairs, whoever the model is by
NORMAL, CONTROL, USER = 1, 3, 4  # types of tokens: control tokens are special, a user's are found in texts
IDS = ("bos", "eos", "unknown", "padding")

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
# How texts are split before pairs are joined, by the name that llama.cpp has for it. "default" says that whoever
# made the file did not know; GPT-2's is then the likeliest, and another would only cost a few more tokens.
SPLITS: dict[str, dict[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "default": _BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]},
}


def tokenizer_parts(gguf: Gguf) -> dict[str, Any]:
    """What a `tokenizer.json` would hold, for `Bpe(parts, begin, size)`."""
    model, pre = gguf.get("tokenizer.ggml.model", str), gguf.get("tokenizer.ggml.pre", str, "default")
    if model != MODEL or pre not in SPLITS:
        raise UserError(
            f"the tokenizer of {gguf.path} is {model!r} split by {pre!r}; read are {MODEL!r} split by "
            f"{', '.join(map(repr, SPLITS))}: get another model, or give its tokenizer.json"
        )
    if gguf.get("tokenizer.ggml.add_space_prefix", bool, False):
        raise UserError(f"the tokenizer of {gguf.path} puts a space before every text, which is not read")
    tokens = _strings(gguf, "tokenizer.ggml.tokens")
    if len(set(tokens)) < len(tokens):
        raise UserError(f"the tokens in {gguf.path} must be all different: some stand there twice; get it again")
    types = gguf.get("tokenizer.ggml.token_type", np.ndarray, np.full(len(tokens), NORMAL))
    if len(types) != len(tokens):
        raise UserError(f"every token in {gguf.path} must have a type: {len(tokens):,} tokens, {len(types):,} types")
    pairs = [merge.split(" ") for merge in _strings(gguf, "tokenizer.ggml.merges")]
    if wrong := next((pair for pair in pairs if len(pair) != 2), None):
        raise UserError(f"every merge in {gguf.path} must be of two tokens: {' '.join(wrong)!r} is not; get it again")
    return {
        "version": "1.0",
        "added_tokens": [
            _added(number, tokens[number], bool(types[number] == CONTROL))
            for number in np.flatnonzero(np.isin(types, (CONTROL, USER))).tolist()
        ],
        "normalizer": None,
        "pre_tokenizer": SPLITS[pre],
        "decoder": _BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": pairs},
    }


def special_ids(gguf: Gguf) -> dict[str, int]:
    """The ids of bos, eos, unknown and padding, those that the file has."""
    count = len(_strings(gguf, "tokenizer.ggml.tokens"))
    found = {name: f"tokenizer.ggml.{name}_token_id" for name in IDS}
    ids = {name: int(gguf.get(key, int)) for name, key in found.items() if key in gguf.metadata}
    for name, number in ids.items():
        if not 0 <= number < count:
            raise UserError(f"{name} in {gguf.path} must be a token from 0 to {count - 1:,}: it is {number:,}")
    return ids


def _strings(gguf: Gguf, key: str) -> list[str]:
    values: list[str] = gguf.get(key, list)
    if not all(isinstance(value, str) for value in values):
        raise UserError(f"{key} in {gguf.path} must be strings; the file is damaged")
    return values


def _added(number: int, content: str, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": special}
