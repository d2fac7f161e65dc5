"""Sentences whose words have tags: read from columns, a word a line, or from CoNLL-U.

N sentences, C tags.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from octavo.config import Range, check_ranges
from octavo.datasets.labels import TENTH, listed
from octavo.datasets.sources import SOURCES, get_files
from octavo.errors import UserError, did_you_mean
from octavo.io.compressed import plain_name, read_whole
from octavo.io.encoding import UTF8, decode_text
from octavo.io.files import lines_of

Format = Literal["auto", "columns", "conllu"]
Column = Annotated[int, Range(0, 64)]
MAX_WORDS = 4096  # of a sentence: longer ones have lost their blank lines
CONLLU = (2, 4)  # the columns of word forms and universal tags
SEVERAL_WORDS = re.compile(r"\d+-\d+|\d+\.\d+")  # CoNLL-U: the number of a contraction, or of a word left unsaid
DOCUMENT = "-DOCSTART-"  # CoNLL 2003: a line between documents
FORMATS = "a line is a word, a tab and its tag, and a blank line ends a sentence; or CoNLL-U"


@dataclass(frozen=True)
class TaggedConfig:
    """Where words and tags are."""

    format: Format = "auto"
    """auto: a file's name that ends with .conllu says so; every other file has columns."""
    word_column: Column = 0
    """The column of the words, counted from 1; 0: the first, of CoNLL-U the second."""
    tag_column: Column = 0
    """The column of the tags; 0: the last, of CoNLL-U the fourth, the universal part of speech."""
    test: tuple[str, ...] = ()
    """Sentences to measure on; without them, the last tenth."""
    encoding: str = "utf-8"
    """The encoding of the files: utf-8, latin-1, utf-16, cp1252, or any other of Python's."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Tagged:
    """Sentences, the tags of their words as numbers, and the names of the tags in sorted order."""

    sentences: list[tuple[str, ...]] = field(repr=False)
    tags: list[tuple[int, ...]] = field(repr=False)
    names: list[str]

    @classmethod
    def of(cls, pairs: Sequence[tuple[Sequence[str], Sequence[str]]], names: Sequence[str] | None = None) -> Tagged:
        """With `names`, those must be all; else they are what the words have."""
        seen = sorted({tag for _, tags in pairs for tag in tags})
        number = {name: n for n, name in enumerate(seen if names is None else names)}
        if strange := [tag for tag in seen if tag not in number]:
            raise UserError(f"tags must be among those learnt, {listed(list(number))}: got {listed(strange)}")
        tags = [tuple(number[tag] for tag in some) for _, some in pairs]
        return cls([tuple(words) for words, _ in pairs], tags, list(number))

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def words(self) -> int:
        """How many there are in all."""
        return sum(map(len, self.sentences))

    @property
    def sha256(self) -> str:
        """A hash that identifies these sentences, in this order."""
        digest = hashlib.sha256(json.dumps(self.names).encode())
        for words, tags in zip(self.sentences, self.tags, strict=True):
            digest.update(json.dumps([words, tags]).encode())
        return digest.hexdigest()

    def part(self, first: int, last: int) -> Tagged:
        """Some sentences."""
        return Tagged(self.sentences[first:last], self.tags[first:last], self.names)

    def last_tenth(self) -> tuple[Tagged, Tagged]:
        """The first nine tenths, and the rest: sentences of one document mostly stay together."""
        held = len(self) // TENTH
        if not held:
            raise UserError(
                f"a tenth is held out, so there must be at least {TENTH} sentences: there are {len(self)}; give more, "
                "or name others with --test; blank lines end sentences"
            )
        return self.part(0, len(self) - held), self.part(len(self) - held, len(self))


def read_tagged(
    sources: Sequence[str],
    how: TaggedConfig = TaggedConfig(),  # noqa: B008
    names: Sequence[str] | None = None,
) -> Tagged:
    """The sentences of files or named sources, one after the other."""
    pairs = [pair for source in sources for path, name in _files(source)
             for pair in _sentences(_whole(path, name, how.encoding), name, how, True)]  # fmt: skip
    if not pairs:
        raise UserError(f"there are no sentences in {listed(list(sources))}; {FORMATS}")
    found = Tagged.of(pairs, names)
    if len(found.names) < 2:
        raise UserError(f"there must be at least two tags: every word has {found.names[0]!r}; see --tag-column")
    return found


def read_sentences(source: str, how: TaggedConfig = TaggedConfig()) -> list[tuple[str, ...]]:  # noqa: B008
    """Sentences alone: one a line, its words separated by spaces, or in columns, whose tags are left out."""
    found: list[tuple[str, ...]] = []
    for path, name in _files(source):
        text = _whole(path, name, how.encoding)
        if how.format == "auto" and _format(name, how) == "columns" and "\t" not in text:
            lines = [tuple(line.split()) for line in lines_of(text)]
            found += [_checked(line, number, name) for number, line in enumerate(lines, 1) if line]
        else:
            found += [words for words, _ in _sentences(text, name, how, False)]
    return found


def _files(source: str) -> list[tuple[str, str]]:
    """The files of a source, and what they are called."""
    if source in SOURCES and not Path(source).exists():
        if SOURCES[source].kind != "tagged":
            raise UserError(f"{source} has no tags; name {', '.join(tagged_names())} or a file: {FORMATS}")
        return [(str(path), str(path)) for path in get_files(source).values()]
    return [(source, "standard input" if source == "-" else source)]


def tagged_names() -> list[str]:
    """The named sources of tagged sentences."""
    return [name for name, source in SOURCES.items() if source.kind == "tagged"]


def _whole(path: str, name: str, encoding: str = UTF8) -> str:
    """A file's text; a byte-order mark is left out."""
    if path != "-" and not Path(path).exists():
        known = tagged_names()
        advice = did_you_mean(path, known, f"name a file, or one of {', '.join(known)}")
        raise UserError(f"there is no file {path}; {advice}")
    return decode_text(read_whole(path), name, encoding).removeprefix("\ufeff")


def _format(name: str, how: TaggedConfig) -> Format:
    if how.format != "auto":
        return how.format
    return "conllu" if plain_name(Path(name)).suffix.lower() in (".conllu", ".conllup") else "columns"


def _sentences(
    text: str, name: str, how: TaggedConfig, tagged: bool
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:  # fmt: skip
    """Words and tags of each sentence; without `tagged`, a line may have no tag."""
    is_conllu, rows = _format(name, how) == "conllu", list[tuple[str, str]]()
    first, last = CONLLU if is_conllu else (1, 0)
    word, tag = how.word_column or first, how.tag_column or last
    for number, line in enumerate([*lines_of(text), ""], 1):
        if line.strip():
            cells = line.split("\t") if "\t" in line or is_conllu else line.split()
            if not (_is_no_word(line, cells) if is_conllu else cells[0] == DOCUMENT):
                rows.append(_row(cells, word, tag, f"line {number:,} of {name}", tagged))
        elif rows:
            words, tags = zip(*rows, strict=True)
            yield _checked(words, number, name), tags
            rows = []


def _is_no_word(line: str, cells: Sequence[str]) -> bool:
    return line.startswith("#") or SEVERAL_WORDS.fullmatch(cells[0]) is not None


def _row(cells: Sequence[str], word: int, tag: int, place: str, tagged: bool) -> tuple[str, str]:
    """The word and the tag of a line."""
    alone = len(cells) < 2 and not tag
    if max(word, tag) > len(cells) or (tagged and alone):
        needed = max(word, tag, 2)
        raise UserError(f"{place} must have {needed} columns: it has {len(cells)}, {cells[0][:40]!r}; {FORMATS}")
    found = cells[word - 1].strip(" \r"), "" if alone else cells[tag - 1].strip(" \r")
    if not found[0] or (tagged and not found[1]):
        raise UserError(f"{place} must have a word and a tag: {found[0][:40]!r}, {found[1][:40]!r}; fill them in")
    return found


def _checked(words: tuple[str, ...], number: int, name: str) -> tuple[str, ...]:
    """The words of a sentence that is not too long."""
    if len(words) > MAX_WORDS:
        raise UserError(
            f"a sentence has at most {MAX_WORDS:,} words: that before line {number:,} of {name} has {len(words):,}; "
            "end sentences with blank lines"
        )
    return words
