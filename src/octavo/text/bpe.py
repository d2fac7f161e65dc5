"""Byte pair encoding: frequent runs of bytes as tokens, learnt here or read from a Hugging Face `tokenizer.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from octavo.errors import UserError
from octavo.text.block import Block, no_starts, recut
from octavo.text.char import cut_characters
from octavo.text.spell import BYTES, Offsets, Spellings, as_bytes, as_text, with_begins
from octavo.text.tokenizer import Tokens

JOB = 1 << 18  # characters handed to one thread at a time
INVALID = re.compile("([\udc80-\udcff])")  # what surrogateescape makes of a byte that is not UTF-8
# The byte-level pattern lets white space stand only at a piece's beginning, so a piece always begins where white space
# follows something else. Characters that only some Unicode versions call white space are not taken for something else.
SAFE = re.compile(r"[^\s\x1c-\x1f\u180e\u200b\ufeff](?=[ \n\t\r])")
PROBE = (
    "Any 12 naïve\r\n\ttabs,  spaces… 'tis<s> ▁ \x00 e\u0301 \u00a0 ﬁ Ⅷ 日本 🙂 \n"  # what normalisers like to change
)


class Bpe:
    """A tokenizer of the `tokenizers` library, with one more token, `begin`, at the end."""

    name = "bpe"

    def __init__(self, parts: dict[str, Any]) -> None:
        """`parts` is what a `tokenizer.json` holds."""
        parts = {**parts, "truncation": None, "padding": None, "post_processor": None}
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(parts))
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"this is not a tokenizer that the tokenizers library reads: {error}") from error
        self._parts = parts
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        added = {token["content"] for token in parts.get("added_tokens") or []}
        spellings = [b""] * (max(ids.values(), default=-1) + 2)
        read = _reader(parts)
        for token, number in ids.items():
            spellings[number] = as_bytes(token) if token in added else read(token)
        self._spellings = Spellings(spellings)
        self._byte_ids = _byte_ids(parts, ids)
        self._cuttable = _byte_level_pattern(parts) and not any(re.search(r"\s", token) for token in added)
        self.lossless = self._byte_ids is not None and _keeps_all(parts) and self._gives_back(PROBE.encode())

    @classmethod
    def learn(cls, blocks: Iterable[Block], size: int = 4096) -> Bpe:
        """Learn `size` tokens: the 256 bytes, and the pairs that occur most often."""
        if size < BYTES:
            raise UserError(f"size must be at least {BYTES}, so that every byte is a token: got {size}")
        learner = tokenizers.Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        learner.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
        cut = (job for block in recut(blocks, _cut) for job in _jobs(block.data.decode("utf-8", "ignore")))
        learner.train_from_iterator(cut, trainer)
        return cls(json.loads(learner.to_str()))

    @classmethod
    def from_file(cls, path: str | Path) -> Bpe:
        """Read a Hugging Face `tokenizer.json`."""
        try:
            parts = json.loads(Path(path).read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read the tokenizer {path}: {error}") from error
        if not isinstance(parts, dict) or "model" not in parts:
            raise UserError(f"{path} is not a tokenizer.json: it has no 'model'")
        return cls(parts)

    @property
    def vocab(self) -> int:
        return len(self._spellings)

    @property
    def begin(self) -> int:
        return self.vocab - 1

    @property
    def newline(self) -> int | None:
        tokens = self.encode(b"\n")
        return int(tokens[0]) if len(tokens) == 1 and self.spelling(int(tokens[0])) == b"\n" else None

    def encode(self, data: bytes) -> Tokens:
        return self.encode_documents(data, no_starts())

    def encode_documents(self, data: bytes, starts: Offsets) -> Tokens:
        bounds = [0, *starts.tolist(), len(data)]
        jobs: list[str | int] = []  # the documents in parts, for the library's threads
        firsts: list[int] = []  # each document's first part
        for a, b in pairwise(bounds):
            firsts.append(len(jobs))
            jobs += self._split(data[a:b])
        texts = [job for job in jobs if isinstance(job, str)]
        encodings = iter(self._tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        parts = [np.array(next(encodings).ids if isinstance(job, str) else [job], np.int32) for job in jobs]
        ends = np.cumsum([0, *map(len, parts)])
        tokens = np.concatenate(parts) if parts else np.zeros(0, np.int32)
        return with_begins(tokens, ends[firsts[1:]], self.begin)

    def _split(self, data: bytes) -> Iterator[str | int]:
        """Texts to encode, and the tokens of bytes that are not UTF-8."""
        if self._byte_ids is None:
            yield data.decode("utf-8", "replace")
            return
        for part in INVALID.split(as_text(data)):
            if INVALID.match(part):
                yield self._byte_ids[as_bytes(part)[0]]
            elif part:
                yield from _jobs(part) if self._cuttable else [part]

    def _gives_back(self, data: bytes) -> bool:
        return self.decode(self.encode(data)) == data

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        return self._spellings.join(tokens)

    def spelling(self, token: int) -> bytes:
        return self._spellings[token]

    def cut(self, block: bytes) -> int:
        """0 unless the tokenizer has the byte-level pattern: others need whole documents."""
        return _cut(block) if self._cuttable else 0

    def to_json(self) -> dict[str, Any]:
        return {"octavo_tokenizer": self.name, "tokenizer": self._parts}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Bpe:
        if not isinstance(values.get("tokenizer"), dict):
            raise UserError("a bpe tokenizer's 'tokenizer' must be what a tokenizer.json holds")
        return cls(values["tokenizer"])


def _jobs(text: str) -> Iterator[str]:
    """The text in parts that begin where a piece does."""
    start = 0
    while start < len(text):
        safe = SAFE.search(text, start + JOB)
        end = safe.end() if safe else len(text)
        yield text[start:end]
        start = end


def _cut(block: bytes) -> int:
    whole = cut_characters(block)
    size = 4096
    while True:
        first = max(0, whole - size)
        text = as_text(block[first:whole])
        skip = 4 if first else 0  # the tail may begin inside a character
        ends = [safe.end() for safe in SAFE.finditer(text, skip)]
        if ends:
            return first + len(as_bytes(text[: ends[-1]]))
        if first == 0:
            return 0
        size *= 16


def _byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level vocabularies: visible Latin-1 ones for themselves."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(BYTES) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(BYTES + i): byte for i, byte in enumerate(others)}


def _components(section: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A normalizer's, pre-tokenizer's or decoder's members, sequences opened."""
    if section is None:
        return []
    members = next((section[key] for key in ("normalizers", "pretokenizers", "decoders") if key in section), None)
    return [section] if members is None else [part for member in members for part in _components(member)]


def _is_byte_level(parts: dict[str, Any]) -> bool:
    return any(part["type"] == "ByteLevel" for part in _components(parts.get("pre_tokenizer")))


def _byte_level_pattern(parts: dict[str, Any]) -> bool:
    """Whether texts are split by the byte-level pattern and nothing else, so that `SAFE` is true of them."""
    splits = _components(parts.get("pre_tokenizer"))
    alone = len(splits) == 1 and splits[0]["type"] == "ByteLevel"
    return alone and splits[0].get("use_regex", True) and _keeps_all(parts)


def _keeps_all(parts: dict[str, Any]) -> bool:
    """Whether nothing in the tokenizer adds, drops or rewrites characters."""
    splits, model = _components(parts.get("pre_tokenizer")), parts["model"]
    harmless = all(
        part["type"] == "Digits"
        or (part["type"] == "Split" and part.get("behavior") != "Removed")
        or (part["type"] == "ByteLevel" and not part.get("add_prefix_space"))
        for part in splits
    )
    whole = not any(model.get(key) for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"))
    strips = any(token.get("lstrip") or token.get("rstrip") for token in parts.get("added_tokens") or [])
    return harmless and whole and not strips and not parts.get("normalizer") and model.get("type") == "BPE"


def _byte_ids(parts: dict[str, Any], ids: dict[str, int]) -> list[int] | None:
    """The token of every byte, if there is one for each."""
    letters = {byte: letter for letter, byte in _byte_alphabet().items()}
    names = [letters[byte] if _is_byte_level(parts) else f"<0x{byte:02X}>" for byte in range(BYTES)]
    return [ids[name] for name in names] if all(name in ids for name in names) else None


def _reader(parts: dict[str, Any]) -> Any:
    """How the vocabulary's entries spell bytes: byte-level letters, or text with ▁ for a space and <0x0A> for bytes."""
    if _is_byte_level(parts):
        alphabet = _byte_alphabet()
        return lambda token: b"".join(
            bytes([alphabet[letter]]) if letter in alphabet else letter.encode() for letter in token
        )

    literal, pieces = _keeps_all(parts), parts["model"].get("type") == "WordPiece"

    def read(token: str) -> bytes:
        if re.fullmatch("<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        token = token.removeprefix("##") if pieces else token
        return (token if literal else token.replace("▁", " ")).encode()

    return read
