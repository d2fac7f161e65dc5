"""A corpus: the user's text, split into a part to learn from and a part to be measured on, ready to be tokenized."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import UserError
from octavo.io.encoding import UTF8
from octavo.io.progress import progress
from octavo.io.system import read_at
from octavo.text.chunks import Chunk
from octavo.text.loading import Source, Split, Text, load_text, text_of
from octavo.text.preprocess import apply, check_steps
from octavo.text.reading import Errors
from octavo.text.token_store import TokenStore, in_file, in_memory
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.registry import load_given, tokenizer_class, tokenizer_settings
from octavo.text.tokenizers.token_bytes import Tokens


@dataclass(frozen=True)
class Corpus:
    """A text in two parts, and how it came about."""

    train: Split
    valid: Split
    source: tuple[str, ...]
    errors: Errors
    encoding: str
    preprocess: tuple[str, ...]
    notes: tuple[str, ...]  # what the user may want to know: files passed over, names with two meanings

    @property
    def comparable(self) -> bool:
        """Whether the text is the user's own bytes, so that bits per byte of it can be compared."""
        return not self.preprocess and self.errors != "replace"

    def describe(self) -> dict[str, Any]:
        """What identifies the corpus in a run's record."""
        return {
            "source": list(self.source),
            "errors": self.errors,
            **({"encoding": self.encoding} if self.encoding != UTF8 else {}),
            "preprocess": list(self.preprocess),
            "comparable": self.comparable,
            "train": self.train.describe(),
            "valid": self.valid.describe(),
        }


def open_corpus(
    source: Source,
    *,
    field: str = "text",
    errors: Errors = "strict",
    encoding: str = UTF8,
    preprocess: Iterable[str] = (),
    valid: Source | None = None,
) -> Corpus:
    """Open a file, several, a folder, '-' (standard input) or a named source, and split it.

    Without `valid`, the last tenth is the validation part: to the byte for a single document, to the nearest end of a
    document for several.
    """
    steps = check_steps(preprocess)
    text = load_text(source, field, errors, steps, encoding)
    notes = list(text.notes)
    if valid is None:
        cut = _cut_place(text)
        train, held = Split(text, 0, cut), Split(text, cut, text.size)
        if not 0.8 <= cut / text.size <= 0.97:
            notes.append(f"documents stay whole, so {cut / text.size:.0%} of the text is for training, not 90%; "
                         "name validation files to choose")  # fmt: skip
    else:
        other = load_text(valid, field, errors, steps, encoding)
        notes += other.notes
        train, held = Split(text, 0, text.size), Split(other, 0, other.size)
    names = (source,) if isinstance(source, str | Path) else source
    return Corpus(train, held, tuple(map(str, names)), errors, encoding, steps, tuple(notes))


def open_text(
    source: Source, *, field: str = "text", errors: Errors = "strict", encoding: str = UTF8,
    preprocess: Iterable[str] = (),
) -> Split:  # fmt: skip
    """All of a text, not split: a file, several, a folder, '-' or a named source."""
    text = load_text(source, field, errors, check_steps(preprocess), encoding)
    return Split(text, 0, text.size)


def text_in_memory(data: str | bytes, preprocess: Iterable[str] = ()) -> Split:
    """A text that is no file, as one document."""
    text = text_of(apply(preprocess, data.encode() if isinstance(data, str) else data))
    return Split(text, 0, text.size)


def tokenize(split: Split, tokenizer: Tokenizer, out: str | Path | None = None) -> TokenStore:
    """The split's tokens, each document opened by `begin`: in the file `out`, or in memory."""
    return _stored(tokenizer.encode_chunks(_with_progress(split, "tokenizing")), tokenizer, out)


def learn_tokenizer(name: str, corpus: Corpus, **options: Any) -> Tokenizer:
    """Learn a tokenizer on the training part; a `name` that ends in .json is a file to load instead."""
    if name.endswith(".json"):
        return load_given(name, options)
    settings = tokenizer_settings(name, options)
    return tokenizer_class(name).learn(_with_progress(corpus.train, "learning tokens"), settings)


def learn_and_tokenize(
    name: str, corpus: Corpus, out: str | Path | None = None, **options: Any
) -> tuple[Tokenizer, TokenStore]:
    """A tokenizer, learnt or loaded, and the training part's tokens."""
    if name.endswith(".json"):
        tokenizer = load_given(name, options)
        return tokenizer, tokenize(corpus.train, tokenizer, out)
    settings = tokenizer_settings(name, options)
    chunks = partial(_with_progress, corpus.train, "tokenizing")
    tokenizer, tokens = tokenizer_class(name).learn_and_encode(chunks, settings)
    return tokenizer, _stored(tokens, tokenizer, out)


def _cut_place(text: Text) -> int:
    """Where the validation part begins: after nine tenths of the bytes, or at the nearest end of a document."""
    cut = text.size * 9 // 10
    if len(text.starts) > 1:
        ends = text.starts[1:]
        return int(ends[np.argmin(np.abs(ends - text.size * 0.9))])
    following = read_at(text.file.fileno(), 4, cut)
    while following and following[0] & 0xC0 == 0x80 and cut < text.size * 9 // 10 + 3:  # inside a character
        cut, following = cut + 1, following[1:]
    if not 0 < cut < text.size:
        raise UserError(
            f"the text is too small to be split: of {text.size:,} bytes, {cut:,} would be for training and "
            f"{text.size - cut:,} for validation; give a longer text, or validation files of their own"
        )
    return cut


def _stored(chunks: Iterator[Tokens], tokenizer: Tokenizer, out: str | Path | None) -> TokenStore:
    return in_memory(chunks, tokenizer) if out is None else in_file(out, chunks, tokenizer)


def _with_progress(split: Split, label: str) -> Iterator[Chunk]:
    """The split's chunks, with a bar that shows how far they have been read."""
    with progress(label, split.size, "bytes") as advance:
        for chunk in split.chunks():
            yield chunk
            advance(len(chunk.data))
