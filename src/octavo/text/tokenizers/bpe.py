"""Byte pair encoding: frequent runs of bytes as tokens, learnt here or read from a Hugging Face `tokenizer.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from octavo.config import Length, check_ranges
from octavo.errors import UserError
from octavo.text.chunks import Chunk, Starts, no_starts, rechunk
from octavo.text.tokenizers.base import KIND, Tokenizer
from octavo.text.tokenizers.char import character_boundary
from octavo.text.tokenizers.library import encode_texts, read_tokenizer_json, refused_in_words
from octavo.text.tokenizers.token_bytes import BYTES, Tokens, as_bytes, as_text, byte_alphabet, with_begins

BATCH_CHARACTERS = 1 << 18  # handed to one thread of the library at a time
MAX_IDS = 1 << 24  # many times the largest vocabulary: a damaged file that claims more shall not take memory
INVALID = re.compile("([\udc80-\udcff])")  # what surrogateescape makes of a byte that is not UTF-8
# The byte-level pattern lets white space stand only at the beginning of a word, so a word always begins where white
# space follows something else. Characters that only some Unicode versions call white space are not taken for something
# else.
SAFE = re.compile(r"[^\s\x1c-\x1f\u180e\u200b\ufeff](?=[ \n\t\r])")
PROBE = (
    "Any 12 naïve\r\n\ttabs,  spaces… 'tis<s> ▁ \x00 e\u0301 \u00a0 ﬁ Ⅷ 日本 🙂 \n"  # what normalisers like to change
)


@dataclass(frozen=True)
class BpeSettings:
    """The size of the vocabulary."""

    vocab_size: Length = 4096
    """The number of tokens: the 256 bytes, and the pairs that occur most often."""
    RENAMED: ClassVar[dict[str, str]] = {"size": "vocab_size"}

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.vocab_size < BYTES:
            raise UserError(
                f"vocab_size must be at least {BYTES}, so that every byte is a token: vocab_size={self.vocab_size}"
            )


class Bpe(Tokenizer):
    """A tokenizer of the `tokenizers` library.

    A byte-level vocabulary may lack some bytes (SmolLM2's has no token for 0x04, say). A text with one of them is
    refused: left to itself the library would drop the byte and say nothing.
    """

    name = "bpe"
    unit = "BPE tokens"
    Settings = BpeSettings

    def __init__(self, parts: dict[str, Any], begin: int | None = None, size: int | None = None) -> None:
        """`parts` is the content of a `tokenizer.json`.

        A pretrained model has a vocabulary of its own: `begin` is then the special token that opens its sequences, and
        special tokens that are typed in a text are text. Without it, `begin` is one more id, at the end. `size` is the
        model's number of ids where it has more than the tokenizer; those stand for no bytes.
        """
        parts = {**parts, "truncation": None, "padding": None, "post_processor": None}
        self._tokenizer = read_tokenizer_json(parts, PROBE)
        self._tokenizer.encode_special_tokens = begin is not None
        self._parts, self._own = parts, {"begin": begin, "size": size}
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        super().__init__(_token_bytes(parts, ids, begin, size), begin)
        self._byte_ids = _byte_ids(parts, ids)
        self._lacking = bytes(byte for byte, number in enumerate(self._byte_ids or ()) if number < 0)
        found = [token["content"] for token in _added(parts) if begin is None or not token.get("special")]
        self.splits_locally = _byte_level_pattern(parts) and not any(re.search(r"\s", token) for token in found)
        probes = [PROBE, *(token["content"] for token in _added(parts))]
        whole = self._byte_ids is not None and _keeps_all(parts)
        self.lossless = whole and all(self._gives_back(as_bytes(probe)) for probe in probes)

    @classmethod
    def learn(cls, chunks: Iterable[Chunk], settings: BpeSettings | None = None) -> Bpe:
        size = (settings or BpeSettings()).vocab_size
        learner = tokenizers.Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        learner.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
        texts = (chunk.data.decode("utf-8", "ignore") for chunk in rechunk(chunks, _last_safe_place))
        with refused_in_words("the tokenizers library cannot learn a vocabulary of this text"):
            learner.train_from_iterator((batch for text in texts for batch in _batches(text)), trainer)
        return cls(json.loads(learner.to_str()))

    @property
    def newline(self) -> int | None:
        return None if b"\n" in self._lacking else super().newline

    def encode(self, data: bytes) -> Tokens:
        return self.encode_documents(data, no_starts())

    def encode_documents(self, data: bytes, starts: Starts) -> Tokens:
        self._refuse_lacking(data)
        batches: list[str | int] = []  # the documents in parts, for the library's threads
        firsts: list[int] = []  # each document's first part
        for document in Chunk(data, starts).documents():
            firsts.append(len(batches))
            batches += self._split(document)
        texts = [batch for batch in batches if isinstance(batch, str)]
        encoded = iter(encode_texts(self._tokenizer, texts))
        parts = [next(encoded) if isinstance(part, str) else np.array([part], np.int32) for part in batches]
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
                yield from _batches(part) if self.splits_locally else [part]

    def _refuse_lacking(self, data: bytes) -> None:
        """Refuse bytes that the vocabulary has no token for."""
        if self._lacking and len(data.translate(None, self._lacking)) != len(data):
            at = next(at for at, byte in enumerate(data) if byte in self._lacking)
            before, after = data[max(0, at - 20) : at], data[at + 1 : at + 21]
            raise UserError(
                f"the tokenizer has no token for byte 0x{data[at]:02x}, which stands between {before!r} and {after!r}; "
                "take it out of the text, or use another tokenizer"
            )

    def _gives_back(self, data: bytes) -> bool:
        known = data.translate(None, self._lacking)
        return self.decode(self.encode(known)) == known

    def split_point(self, data: bytes) -> int:
        """0 unless the tokenizer has the byte-level pattern: others need whole documents."""
        return _last_safe_place(data) if self.splits_locally else 0

    def huggingface_json(self) -> dict[str, Any]:
        return dict(self._parts)

    def to_json(self) -> dict[str, Any]:
        own = {key: value for key, value in self._own.items() if value is not None}
        return {KIND: self.name, "tokenizer": self._parts, **own}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Bpe:
        if not isinstance(values.get("tokenizer"), dict):
            raise UserError("a bpe tokenizer's 'tokenizer' must be the content of a tokenizer.json")
        numbers = {key: values.get(key) for key in ("begin", "size")}
        for key, value in numbers.items():
            if value is not None and type(value) is not int:
                raise UserError(f"a bpe tokenizer's {key!r} must be a whole number: {value!r}")
        return cls(values["tokenizer"], **numbers)


def _batches(text: str) -> Iterator[str]:
    """The text in parts that begin where a word does."""
    start = 0
    while start < len(text):
        safe = SAFE.search(text, start + BATCH_CHARACTERS)
        end = safe.end() if safe else len(text)
        yield text[start:end]
        start = end


def _last_safe_place(data: bytes) -> int:
    """The last place at which the byte-level pattern always begins a word; 0 where there is none."""
    whole = character_boundary(data)
    size = 4096
    while True:
        first = max(0, whole - size)
        text = as_text(data[first:whole])
        skip = 4 if first else 0  # the tail may begin inside a character
        ends = [safe.end() for safe in SAFE.finditer(text, skip)]
        if ends:
            return first + len(as_bytes(text[: ends[-1]]))
        if first == 0:
            return 0
        size *= 16


def _added(parts: dict[str, Any]) -> list[dict[str, Any]]:
    """The tokens that are found in a text before it is split."""
    return parts.get("added_tokens") or []


def _token_bytes(parts: dict[str, Any], ids: dict[str, int], begin: int | None, size: int | None) -> list[bytes]:
    """The bytes of every id, b"" for `begin` and for ids that are not a token's."""
    own = max(ids.values(), default=-1) + (2 if begin is None else 1)
    if size is not None and size < own:
        raise UserError(f"size must be at least the tokenizer's number of ids: size={size:,}, ids={own:,}")
    if max(own, size or 0) > MAX_IDS:
        raise UserError(f"a vocabulary has at most {MAX_IDS:,} ids: this one would have {max(own, size or 0):,}")
    special = {ids.get(token["content"], -1): token["content"] for token in _added(parts) if token.get("special")}
    if begin is not None and (begin < 0 or begin not in special):
        some = ", ".join(f"{number} {content}" for number, content in list(special.items())[:5]) or "none here"
        raise UserError(f"begin must be the id of a special token: begin={begin}; special tokens are {some}")
    token_bytes = [b""] * (size or own)
    added = {token["content"] for token in _added(parts)}
    read = _reader(parts)
    for token, number in ids.items():
        if number != begin:
            token_bytes[number] = as_bytes(token) if token in added else read(token)
    return token_bytes


def _components(section: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A normalizer's, pre-tokenizer's or decoder's members, sequences opened."""
    if section is None:
        return []
    members = next((section[key] for key in ("normalizers", "pretokenizers", "decoders") if key in section), None)
    return [section] if members is None else [part for member in members for part in _components(member)]


def _is_byte_level(parts: dict[str, Any]) -> bool:
    return any(part["type"] == "ByteLevel" for part in _components(parts.get("pre_tokenizer")))


def _byte_level_pattern(parts: dict[str, Any]) -> bool:
    """Whether texts are split by the byte-level pattern and at most at digits, so that `SAFE` is true of them."""
    splits = _components(parts.get("pre_tokenizer"))
    pattern = [part.get("use_regex", True) for part in splits if part["type"] == "ByteLevel"]
    # Setting digits apart only splits further, and at the digits alone: where white space follows something else, a
    # word begins as before.
    others = all(part["type"] in ("ByteLevel", "Digits") for part in splits)
    return pattern == [True] and others and _keeps_all(parts)


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
    strips = any(token.get("lstrip") or token.get("rstrip") for token in _added(parts))
    return harmless and whole and not strips and not parts.get("normalizer") and model.get("type") == "BPE"


def _byte_ids(parts: dict[str, Any], ids: dict[str, int]) -> list[int] | None:
    """The token of every byte, -1 where a byte-level vocabulary has none; None where bytes have no tokens."""
    characters = {byte: character for character, byte in byte_alphabet().items()}
    names = [characters[byte] if _is_byte_level(parts) else f"<0x{byte:02X}>" for byte in range(BYTES)]
    found = [ids.get(name, -1) for name in names]
    return found if -1 not in found or (_is_byte_level(parts) and _keeps_all(parts)) else None


def _reader(parts: dict[str, Any]) -> Callable[[str], bytes]:
    """From a vocabulary entry to bytes: byte-level characters, or text with ▁ for a space and <0x0A> for bytes."""
    if _is_byte_level(parts):
        alphabet = byte_alphabet()
        return lambda token: b"".join(bytes([alphabet[char]]) if char in alphabet else char.encode() for char in token)

    literal, subwords = _keeps_all(parts), parts["model"].get("type") == "WordPiece"

    def read(token: str) -> bytes:
        if re.fullmatch("<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        token = token.removeprefix("##") if subwords else token
        return (token if literal else token.replace("▁", " ")).encode()

    return read
