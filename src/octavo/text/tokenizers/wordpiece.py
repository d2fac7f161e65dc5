"""WordPiece, the tokens of BERT: words and parts of words, without the white space between them.

It loses case and white space, so bits per byte of its models cannot be compared with others'.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from octavo.config import Range, check_ranges
from octavo.errors import UserError
from octavo.text.chunks import Chunk, rechunk
from octavo.text.tokenizers.base import KIND, Tokenizer
from octavo.text.tokenizers.library import encode_texts, read_tokenizer_json, refused_in_words
from octavo.text.tokenizers.token_bytes import Tokens

PAD, UNKNOWN, FIRST, END, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PROBE = "Any 12 naïve\r\n\ttabs, 'tis \x00 e\u0301 日本 🙂 [MASK]"  # what every tokenizer can encode
MAX_IDS = 1 << 24  # many times the largest vocabulary
PRIVATE, MAX_CHARACTERS = 0x100000, 0xFFFE  # the last plane of Unicode, which no text uses


@dataclass(frozen=True)
class WordPieceSettings:
    """The size of the vocabulary, and case."""

    vocab_size: Annotated[int, Range(100, MAX_IDS)] = 8192
    """The number of words and parts of words, the special tokens included."""
    lower: bool = True
    """Lower case, without accents."""
    RENAMED: ClassVar[dict[str, str]] = {"size": "vocab_size"}

    def __post_init__(self) -> None:
        check_ranges(self)


class WordPiece(Tokenizer):
    """A tokenizer of the `tokenizers` library with BERT's special tokens."""

    name = "wordpiece"
    unit = "WordPiece tokens"
    Settings = WordPieceSettings
    lossless = False
    splits_locally = True

    def __init__(self, parts: dict[str, Any]) -> None:
        """`parts` is the content of a `tokenizer.json`; its padding, truncation and post-processing are left out."""
        if not isinstance(parts, dict):
            raise UserError(f"a tokenizer.json must hold a JSON object: it holds a {type(parts).__name__}")
        parts = {**parts, "truncation": None, "padding": None, "post_processor": None}
        self._tokenizer = read_tokenizer_json(parts, PROBE)
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        if lacking := [token for token in SPECIAL if token not in ids]:
            raise UserError(
                f"BERT's tokenizer must have the tokens {' '.join(SPECIAL)}: this lacks {' '.join(lacking)}"
            )
        size = max(ids.values()) + 1
        if size > MAX_IDS:
            raise UserError(f"a vocabulary has at most {MAX_IDS:,} ids: this one has {size:,}")
        self._parts = parts
        self.pad, self.unknown, self.first, self.end, self.mask = (ids[token] for token in SPECIAL)
        self._names = {number: token for token, number in ids.items()}
        names = [self.token(number) for number in range(size)]
        token_bytes = [(name[2:] if name.startswith("##") else " " + name).encode() for name in names]
        token_bytes[self.first] = b""
        super().__init__(token_bytes, self.first)

    @classmethod
    def learn(cls, chunks: Iterable[Chunk], settings: WordPieceSettings | None = None) -> WordPiece:
        settings = settings or WordPieceSettings()
        normalizer, splitter = normalizers.BertNormalizer(lowercase=settings.lower), pre_tokenizers.BertPreTokenizer()
        counts: Counter[str] = Counter()
        for chunk in rechunk(chunks, _last_space):
            for document in chunk.documents():
                text = normalizer.normalize_str(document.decode("utf-8", "replace"))
                counts.update(word for word, _ in splitter.pre_tokenize_str(text))
        subwords = _frequent_subwords(counts, settings.vocab_size - len(SPECIAL))
        vocab = {token: number for number, token in enumerate((*SPECIAL, *subwords))}
        made = tokenizers.Tokenizer(models.WordPiece(vocab=vocab, unk_token=UNKNOWN))
        made.normalizer, made.pre_tokenizer, made.decoder = normalizer, splitter, decoders.WordPiece()
        made.add_special_tokens(list(SPECIAL))
        return cls(json.loads(made.to_str()))

    @property
    def ordinary(self) -> Tokens:
        """The ids that a text can have: all but the special ones."""
        special = {self.pad, self.unknown, self.first, self.end, self.mask}
        return np.array([number for number in range(self.vocab) if number not in special], np.int32)

    @property
    def newline(self) -> None:
        return None  # white space has no tokens

    def encode(self, data: bytes) -> Tokens:
        return self.encode_texts([data.decode("utf-8", "replace")])[0]

    def encode_texts(self, texts: Sequence[str], typed: bool = False) -> list[Tokens]:
        """The tokens of each text, nothing put around them. With `typed`, a [MASK] in the text is the special token."""
        self._tokenizer.encode_special_tokens = not typed
        clean = [text.encode("utf-8", "replace").decode() for text in texts]  # half a character cannot be handed over
        return encode_texts(self._tokenizer, clean)

    def decode(self, tokens: Iterable[int] | Tokens) -> bytes:
        """The words with spaces between them."""
        return super().decode(tokens).removeprefix(b" ")

    def token(self, number: int) -> str:
        """A token as the vocabulary writes it; ## stands before what continues a word."""
        return self._names.get(number, UNKNOWN)

    def split_point(self, data: bytes) -> int:
        return _last_space(data)

    def huggingface_json(self) -> dict[str, Any]:
        return dict(self._parts)

    def to_json(self) -> dict[str, Any]:
        return {KIND: self.name, "tokenizer": self._parts}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> WordPiece:
        """From `to_json`, or from a tokenizer.json as it stands."""
        return cls(values.get("tokenizer", {}) if isinstance(values, dict) and KIND in values else values)


def _last_space(data: bytes) -> int:
    """The place behind the last white space; other white space of ASCII than this is removed, and joins words."""
    return max(data.rfind(white) for white in b" \t\n\r") + 1


def _frequent_subwords(counts: Mapping[str, int], size: int) -> list[str]:
    """The characters of the words, and the subwords that pairs of subwords make most often, up to `size` in all.

    The library's own trainer for this numbers the characters inside words in a random order, and which of two pairs
    that are equally frequent comes first depends on it. So these characters become others, of a private range, before
    it counts pairs, and themselves again afterwards.
    """
    inside = sorted({character for word in counts for character in word[1:]})
    to_private = {ord(character): chr(PRIVATE + i) for i, character in enumerate(inside)}
    back = {PRIVATE + i: character for i, character in enumerate(inside)}
    if len(inside) > MAX_CHARACTERS:
        raise UserError(
            f"a text may have {MAX_CHARACTERS:,} different characters: this has {len(inside):,}; check its coding"
        )
    learner = tokenizers.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    words = (" ".join([word[0] + word[1:].translate(to_private)] * count) for word, count in sorted(counts.items()))
    with refused_in_words("the tokenizers library cannot learn a vocabulary of this text"):
        learner.train_from_iterator(words, trainer)
    found = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    return [("##" if ord(word[0]) >= PRIVATE else "") + word.translate(back) for word, _ in found]
