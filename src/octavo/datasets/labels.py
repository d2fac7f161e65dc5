"""Labelled texts: read from `label<TAB>text`, CSV, JSON lines or fastText's lines, and split class by class.

N examples, C classes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from octavo.datasets.sources import SOURCES, get_files
from octavo.errors import UserError, did_you_mean
from octavo.io.compressed import plain_name, read_whole
from octavo.io.encoding import UTF8, decode_text
from octavo.io.files import json_records, lines_of
from octavo.io.limits import read_limits

Indices = NDArray[np.int64]
Format = Literal["auto", "tsv", "csv", "jsonl", "fasttext"]
MARK = "__label__"  # in front of fastText's labels
TENTH = 10
LARGEST_FIELD = (1 << 31) - 1  # of CSV: what every system's `long` holds
GIVEN = "the examples"  # what a text that is no file is called
POLARITY = {"rt-polarity.pos": "positive", "rt-polarity.neg": "negative"}
SUFFIXES: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv"}


@dataclass(frozen=True)
class LabelledConfig:
    """Where labels and texts are."""

    format: Format = "auto"
    """auto: by the file's name, and a file whose lines begin with __label__ is fastText's. A first line of tsv with
    the columns' names is taken for that."""
    text_field: str = "text"
    """CSV, JSON lines, tsv with names: the column or field that holds the text."""
    label_field: str = "label"
    """CSV, JSON lines, tsv with names: the column or field that holds the label."""
    test: tuple[str, ...] = ()
    """Examples to measure on; without them, the last tenth of each class."""
    encoding: str = "utf-8"
    """The encoding of the files: utf-8, latin-1, utf-16, cp1252, or any other of Python's."""


@dataclass(frozen=True)
class Labelled:
    """Texts, their labels as numbers, and the names of the classes in sorted order."""

    texts: list[str] = field(repr=False)
    y_N: Indices = field(repr=False)
    classes: list[str]

    @classmethod
    def of(cls, texts: Sequence[str], labels: Sequence[str], classes: Sequence[str] | None = None) -> Labelled:
        """With `classes`, those must be all; else they are what the labels say."""
        names = sorted(set(labels)) if classes is None else list(classes)
        number = {name: i for i, name in enumerate(names)}
        if strange := sorted(set(labels) - set(number)):
            raise UserError(f"labels must be among those learnt, {listed(names)}: got {listed(strange)}")
        return cls(list(texts), np.array([number[label] for label in labels], np.int64), names)

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Indices) -> Labelled:
        return Labelled([self.texts[row] for row in rows.tolist()], self.y_N[rows], self.classes)

    @property
    def sha256(self) -> str:
        """A hash that identifies these examples, in this order."""
        digest = hashlib.sha256(json.dumps(self.classes).encode() + self.y_N.astype("<i8").tobytes())
        digest.update("\0".join(self.texts).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def counts(self) -> dict[str, int]:
        """Examples of each class."""
        return dict(zip(self.classes, np.bincount(self.y_N, minlength=len(self.classes)).tolist(), strict=True))

    def last_of_each(self) -> NDArray[np.bool_]:
        """Whether each example is in the last tenth of its class: a file may well hold one class after the other."""
        return held_out_of_each(self.y_N, TENTH)

    def last_tenth(self) -> tuple[Labelled, Labelled]:
        """The first nine tenths of each class, and the rest."""
        held_N = self.last_of_each()
        if not held_N.any():
            raise UserError(
                f"a tenth of each class is held out, so one must have at least {TENTH} examples: "
                f"there are {len(self)} in {len(self.classes)} classes; give more, or name others with --test"
                + ("; in a line the label comes first" if 2 * len(self.classes) > len(self) > TENTH else "")
            )
        return self.take(np.flatnonzero(~held_N)), self.take(np.flatnonzero(held_N))

    def folds(self, count: int, seed: int = 0) -> list[tuple[Indices, Indices]]:
        """The rows to learn from and to measure on, so that every example is measured once and each fold has its
        share of each class.
        """
        smallest = min(len(rows) for rows in self._by_class())
        if not 2 <= count <= smallest:
            raise UserError(f"folds must be from 2 to the size of the smallest class, {smallest}: folds={count}")
        fold_N, random, dealt = np.zeros(len(self), np.int64), np.random.default_rng(seed), 0
        for rows in self._by_class():
            fold_N[random.permutation(rows)] = (dealt + np.arange(len(rows))) % count
            dealt += len(rows)
        return [(np.flatnonzero(fold_N != k), np.flatnonzero(fold_N == k)) for k in range(count)]

    def _by_class(self) -> list[Indices]:
        return [np.flatnonzero(self.y_N == c) for c in range(len(self.classes))]


def held_out_of_each(y_N: Indices, one_in: int, chance: np.random.Generator | None = None) -> NDArray[np.bool_]:
    """Which examples are held out: of each class one in so many, the last ones or, by chance, those drawn last."""
    held_N = np.zeros(len(y_N), np.bool_)
    for one in np.unique(y_N):
        rows = np.flatnonzero(y_N == one)
        rows = rows if chance is None else chance.permutation(rows)
        held_N[rows[len(rows) - len(rows) // one_in :]] = True
    return held_N


def read_labelled(
    sources: str | Path | Sequence[str | Path], how: LabelledConfig = LabelledConfig(),  # noqa: B008
    classes: Sequence[str] | None = None,
) -> Labelled:  # fmt: skip
    """The examples of files or named sources, one after the other."""
    texts: list[str] = []
    labels: list[str] = []
    named = [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]
    for source in named:
        for text, label in _examples(source, how):
            texts.append(text)
            labels.append(label)
    if not texts:
        raise UserError(f"there are no examples in {listed(named)}; {FORMATS}")
    found = Labelled.of(texts, labels, classes)
    if len(found.classes) < 2:
        raise UserError(f"there must be at least two classes: every label is {found.classes[0]!r}")
    return found


def labelled_in(text: str, classes: Sequence[str], most: int) -> Labelled:
    """The examples of a text, not more than `most`, with the classes of a model: label<TAB>text or fastText's lines."""
    text, lines = text.removeprefix("\ufeff"), text.count("\n")
    if lines > most:
        raise UserError(f"at most {most:,} examples at a time: there are {lines:,} lines; give fewer")
    kind: Format = "fasttext" if text.startswith(MARK) else "tsv"
    found = READERS[kind](text, GIVEN, LabelledConfig(), True)
    if not found:
        raise UserError("there are no examples; a line is label<TAB>text")
    return Labelled.of([one for one, _ in found], [label for _, label in found], classes)


def read_texts(source: str, how: LabelledConfig = LabelledConfig()) -> list[str]:  # noqa: B008
    """Texts alone, one a line, or as the other formats have them; labels that are there are left out."""
    if source in SOURCES:
        return [text for text, _ in _examples(source, how)]
    text = _whole(source, how.encoding)
    kind = _format(text, source, how)
    return [text for text, _ in READERS[kind](text, source, how, False)] if kind else lines_of(text)


FORMATS = "a line is label<TAB>text, or fastText's __label__name text, or a row of CSV, or a JSON object"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Some names, and that there are more."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _examples(source: str, how: LabelledConfig) -> list[tuple[str, str]]:
    if source in SOURCES:
        files = get_files(source)
        if source == "sentence-polarity":
            return [(line, POLARITY[name]) for name, path in files.items() for line in lines_of(_whole(str(path)))]
        if SOURCES[source].kind != "labelled":
            raise UserError(f"{source} has no labels; name sentence-polarity, movie-reviews or a file: {FORMATS}")
        return [example for path in files.values() for example in _examples(str(path), how)]
    text = _whole(source, how.encoding)
    return READERS[_format(text, source, how) or "tsv"](text, source, how, True)


def _format(text: str, source: str, how: LabelledConfig) -> Format | None:
    """What was asked for, or what the file's name or its first line says."""
    if how.format != "auto":
        return how.format
    return SUFFIXES.get(plain_name(Path(source)).suffix.lower()) or ("fasttext" if text.startswith(MARK) else None)


def _whole(source: str, encoding: str = UTF8) -> str:
    """A file's text; a byte-order mark is left out."""
    if source != "-" and not Path(source).exists():
        known = [name for name, one in SOURCES.items() if one.kind == "labelled"]
        advice = did_you_mean(source, known, f"name a file, or one of {', '.join(known)}")
        raise UserError(f"there is no file {source}; {advice}")
    data = read_whole(source)
    return decode_text(data, "standard input" if source == "-" else source, encoding).removeprefix("\ufeff")


def _tsv(text: str, source: str, how: LabelledConfig, labelled: bool) -> list[tuple[str, str]]:
    lines, found = lines_of(text), []
    wanted = {how.text_field, how.label_field} if labelled else {how.text_field}
    names = lines[0].split("\t") if lines else []
    if len(names) > 1 and wanted <= set(names):  # a first line with the columns' names
        rows = [(n, line.split("\t")) for n, line in enumerate(lines[1:], 2) if line.strip()]
        table = [(f"line {n:,} of {source}", dict(zip(names, row, strict=False))) for n, row in rows]
        return [_fields(row, place, how, labelled) for place, row in table]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        label, tab, rest = line.partition("\t")
        if not labelled and not tab:
            label, rest = "?", line
        elif not tab or not label.strip():
            remedy = "" if source == GIVEN else "; or give --format"
            raise UserError(f"line {number:,} of {source} must be label<TAB>text: {line[:40]!r}{remedy}")
        found.append((rest, label.strip()))
    return found


def _fasttext(text: str, source: str, how: LabelledConfig, labelled: bool) -> list[tuple[str, str]]:
    found = []
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        label, _, rest = line.partition(" ")
        if not labelled and not line.startswith(MARK):
            label, rest = f"{MARK}?", line
        if not label.startswith(MARK) or len(label) == len(MARK):
            raise UserError(f"line {number:,} of {source} must begin with {MARK}name: {line[:40]!r}")
        if rest.lstrip().startswith(MARK):
            raise UserError(f"line {number:,} of {source} has several labels: {line[:40]!r}; keep one")
        found.append((rest, label.removeprefix(MARK)))
    return found


def _csv(text: str, source: str, how: LabelledConfig, labelled: bool) -> list[tuple[str, str]]:
    rows = csv.DictReader(io.StringIO(text, newline=""))
    found: list[tuple[str, str]] = []
    try:
        csv.field_size_limit(min(read_limits().line, LARGEST_FIELD))  # Python's own is shorter than a long review
        for number, row in enumerate(rows, 1):
            found.append(_fields(row, f"row {number:,} of {source}", how, labelled))
    except csv.Error as error:
        raise UserError(f"{source} is not CSV, after row {len(found):,}: {error}; give another --format") from error
    return found


def _jsonl(text: str, source: str, how: LabelledConfig, labelled: bool) -> list[tuple[str, str]]:
    return [_fields(record, place, how, labelled) for place, record in json_records(lines_of(text), source)]


def _fields(record: dict[str, Any], place: str, how: LabelledConfig, labelled: bool) -> tuple[str, str]:
    wanted = (how.text_field, how.label_field) if labelled else (how.text_field,)
    for name, flag in zip(wanted, ("--text-field", "--label-field"), strict=False):
        if record.get(name) is None or not isinstance(record[name], str | int | float):
            has = listed([str(key) for key in record])
            raise UserError(f"{place} has no text or number called {name!r}: it has {has}; name it with {flag}")
    label = " ".join(str(record[how.label_field]).split()) if labelled else ""  # a tab would break a table
    if labelled and not label:
        raise UserError(f"{place} must have a label: {how.label_field!r} is empty; fill it in, or drop the example")
    return str(record[how.text_field]), label


READERS: dict[str, Callable[[str, str, LabelledConfig, bool], list[tuple[str, str]]]] = {
    "tsv": _tsv, "csv": _csv, "jsonl": _jsonl, "fasttext": _fasttext,
}  # fmt: skip
