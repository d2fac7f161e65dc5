"""From the bytes a source arrives as to the file that octavo reads: the same input always gives the same bytes."""

from __future__ import annotations

import bz2
import gzip
import html
import io
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

Verse = tuple[int, int, int]  # book, chapter, verse


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
        try:
            rows = connection.execute("SELECT book_id, chapter_number, verse_number, text FROM verses ORDER BY 1, 2, 3")
            return {(book, chapter, verse): " ".join(text.split()) for book, chapter, verse, text in rows}
        finally:
            connection.close()


def wikipedia(dump: bytes) -> bytes:
    """A bzip2 Wikipedia dump as plain text: an article is its title and its lines, then an empty line."""
    articles = (f"{title}\n{strip_markup(markup)}\n\n" for title, markup in _articles(bz2.decompress(dump)))
    return "".join(articles).encode()


def _articles(dump: bytes) -> Iterator[tuple[str, str]]:
    """Title and markup of every page of the encyclopedia itself that is not a redirect."""
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


CONVERTERS: dict[str, Callable[..., bytes]] = {
    "copy": bytes,
    "gunzip": gzip.decompress,
    "verses": verses,
    "verse_pairs": verse_pairs,
    "wikipedia": wikipedia,
}


def convert(how: str, pieces: list[bytes]) -> bytes:
    """The file that the converter `how` makes of the pieces; ValueError where they are not what it takes."""
    try:
        return CONVERTERS[how](*pieces)
    except (EOFError, zlib.error, sqlite3.Error, ElementTree.ParseError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the machine's trouble; a damaged stream has no number
            raise
        raise ValueError(f"{type(error).__name__}: {error}") from error
