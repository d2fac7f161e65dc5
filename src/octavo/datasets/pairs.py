"""Pairs of a text and what it is to become: from a source with a name, tab-separated lines, or files line by line.

Where nothing else is said, a pair is held out by a hash of its source: the same source is never both learnt and asked.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from octavo.datasets.sources import get_files
from octavo.errors import UserError, did_you_mean
from octavo.io.encoding import UTF8, read_text
from octavo.io.files import lines_of

PART = 50  # one in so many pairs is held out for choices, and one for the result
MOST_HELD = 2000  # pairs of each, about
CAPTIONS = ("en", "de", "fr")  # the languages of multi30k
CAPTION_FILES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
MULTI30K = tuple(
    "-".join(("multi30k", *some)) for count in (2, 3) for some in permutations(CAPTIONS, count)
    if list(some[1:]) == sorted(some[1:])
)  # fmt: skip
NAMED = (*MULTI30K, "kjv-asv", "asv-kjv", "cmudict")
VARIANT = re.compile(r"\(\d+\)$")  # read(2): another way to say the same spelling


class Lines(NamedTuple):
    """Sources, and in each target language what became of them, line by line."""

    sources: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]  # by language

    def __len__(self) -> int:
        return len(self.sources)

    def references(self, language: int) -> dict[str, list[str]]:
        """Every source once, in order, with all that it may become."""
        found: dict[str, list[str]] = {}
        for source, target in zip(self.sources, self.targets[language], strict=True):
            found.setdefault(source, []).append(target)
        return found


@dataclass(frozen=True)
class Pairs:
    """What is learnt from, what choices are made by, and what the result is measured on."""

    name: str
    languages: tuple[str, ...]  # the source's, then those of the targets
    train: Lines
    valid: Lines
    test: Lines
    split: str  # how they were parted, in words

    @property
    def identity(self) -> str:
        """A hash of all of them."""
        digest = hashlib.sha256(repr(self.languages).encode())
        for lines in (self.train, self.valid, self.test):
            for column in (lines.sources, *lines.targets):
                digest.update(f"{len(column)}\n".encode())
                digest.update("\n".join(column).encode())
        return digest.hexdigest()


def open_pairs(
    source: Sequence[str], valid: Sequence[str] = (), test: Sequence[str] = (), encoding: str = UTF8
) -> Pairs:
    """A named source, a file of tab-separated lines, or several files whose lines belong together.

    `valid` and `test` are given in the same way; what is not given is held out of the rest.
    """
    if not source:
        raise UserError(
            f"pairs come from a named source ({', '.join(NAMED[:2])}, ...), a TSV file, or two files; name one"
        )
    if len(source) == 1 and source[0].startswith("multi30k") and not Path(source[0]).exists():
        whole = _multi30k(source[0])
        chosen = _read(valid, encoding)[1] if valid else whole.valid
        return replace(whole, valid=chosen, test=_read(test, encoding)[1] if test else whole.test)
    languages, lines = _read(source, encoding)
    given = {name: _read(files, encoding)[1] for name, files in (("valid", valid), ("test", test)) if files}
    for name, one in given.items():
        if len(one.targets) != len(lines.targets):
            raise UserError(
                f"--{name} must have as many targets as the pairs learnt from: {len(one.targets)}, {len(lines.targets)}"
            )
    parts = _held_out(lines, given)
    for name, one in parts.items():
        if not len(one):
            raise UserError(
                f"there is no pair to {_USES[name]}: {len(lines)} pairs in all; give more, or --valid and --test"
            )
    name = source[0] if len(source) == 1 and source[0] in NAMED else Path(source[0]).name
    split = "given" if len(given) == 2 else f"one source in {_modulus(len(lines))} held out for each, by a hash of it"
    return Pairs(name, languages, parts["train"], parts["valid"], parts["test"], split)


def read_lines(source: Sequence[str], encoding: str = UTF8) -> Lines:
    """All pairs of a place, none held out; of captions, those of the test."""
    if len(source) == 1 and source[0] in MULTI30K and not Path(source[0]).exists():
        return _multi30k(source[0]).test
    return _read(source, encoding)[1]


_USES = {"train": "learn from", "valid": "choose by", "test": "measure on"}


def _held_out(lines: Lines, given: dict[str, Lines]) -> dict[str, Lines]:
    places: dict[str, list[int]] = {"test": [], "valid": [], "train": []}
    names, every = [name for name in ("test", "valid") if name not in given], _modulus(len(lines))
    for n, source in enumerate(lines.sources):
        part = zlib.crc32(source.encode()) % every
        places[names[part] if part < len(names) else "train"].append(n)
    return {name: _some(lines, at) for name, at in places.items()} | given


def _modulus(count: int) -> int:
    return max(PART, count // MOST_HELD)


def _some(lines: Lines, at: list[int]) -> Lines:
    return Lines(tuple(lines.sources[n] for n in at), tuple(tuple(column[n] for n in at) for column in lines.targets))


# ---------------------------------------------------------------------- files


def _read(source: Sequence[str], encoding: str = UTF8) -> tuple[tuple[str, ...], Lines]:
    """The languages and the lines of one place."""
    if len(source) > 1:
        return _side_by_side([Path(one) for one in source], encoding)
    (one,) = source
    if not Path(one).exists():
        if one == "cmudict":
            return ("spelling", "sound"), _sounds(get_files("cmudict")["cmudict.dict"])
        if one in ("kjv-asv", "asv-kjv"):
            _, lines = _tabbed(get_files("kjv-asv")["kjv-asv.tsv"])
            first, second = one.split("-")
            turned = lines if one == "kjv-asv" else Lines(lines.targets[0], (lines.sources,))
            return (first, second), turned
        advice = did_you_mean(one, NAMED, f"named ones are {', '.join(NAMED)}")
        raise UserError(f"there are no pairs {one!r}: no such file, and no source of that name; {advice}")
    return _tabbed(Path(one), encoding)


def _tabbed(path: Path, encoding: str = UTF8) -> tuple[tuple[str, ...], Lines]:
    """Source, tab, target, and perhaps further targets."""
    rows = [line.split("\t") for line in lines_of(read_text(path, encoding))]
    width = len(rows[0]) if rows else 0
    if width < 2:
        raise UserError(
            f"a line must be a source, a tab and a target: {path} has {width} columns; give TSV, or two files"
        )
    for n, row in enumerate(rows, 1):
        if len(row) != width:
            raise UserError(
                f"all lines must have as many columns: line {n} of {path} has {len(row)}, the first {width}"
            )
    columns = [tuple(column) for column in zip(*rows, strict=True)]
    names = ("source", "target", *(f"target {n}" for n in range(2, width)))
    return names, Lines(columns[0], tuple(columns[1:]))


def _side_by_side(paths: list[Path], encoding: str = UTF8) -> tuple[tuple[str, ...], Lines]:
    """The first file has the sources; a file's language is its ending."""
    columns = [tuple(lines_of(read_text(path, encoding))) for path in paths]
    for path, column in zip(paths, columns, strict=True):
        if len(column) != len(columns[0]):
            raise UserError(
                f"files must have as many lines: {paths[0]} has {len(columns[0]):,}, {path} {len(column):,}"
            )
    endings = [path.suffix[1:] or path.name for path in paths]
    names = endings if len(set(endings)) == len(endings) else [path.name for path in paths]
    return tuple(names), Lines(columns[0], tuple(columns[1:]))


def _sounds(path: Path) -> Lines:
    """Spelling and sounds; another way to say a word is another pair."""
    rows = [line.partition(" #")[0].split(" ", 1) for line in lines_of(read_text(path))]
    words = tuple(VARIANT.sub("", word) for word, _ in rows)
    return Lines(words, (tuple(sounds.strip() for _, sounds in rows),))


def _multi30k(name: str) -> Pairs:
    """multi30k-en-de: from English to German; multi30k-en-de-fr: to German and to French."""
    languages = tuple(name.split("-")[1:])
    if name not in MULTI30K:
        raise UserError(f"captions are multi30k-FROM-TO or -TO-TO, of en, de and fr: {name!r}; try multi30k-en-de")
    files = get_files("multi30k")
    parts = {
        part: _side_by_side([files[f"{file}.{one}"] for one in languages])[1] for part, file in CAPTION_FILES.items()
    }
    return Pairs(
        name, languages, parts["train"], parts["valid"], parts["test"], "as published; test is test_2016_flickr"
    )
