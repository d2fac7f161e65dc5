"""The encoding of texts: octavo works on UTF-8; what is in another encoding is converted as it is read, or refused with
a guess at what it is.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path

from octavo.errors import EncodingError, UserError, did_you_mean
from octavo.io.compressed import read_whole

UTF8 = "utf-8"
SNIFFED_BYTES = 1 << 13  # of the beginning of a text, to guess from
MARKS = (  # byte order marks; the longer ones first
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
MIN_ZEROS, MAX_ZEROS = 0.3, 0.05  # share of every second byte that is zero in UTF-16, and of the others
MAX_HIGH = 0.3  # share of bytes above 127 in a text of Latin letters
MAX_CONTROLS = 0.01  # share of control characters in a text
KNOWN = ("latin-1", "cp1252", "utf-16", "utf-8", "utf-8-sig", "cp1251", "koi8-r", "shift_jis", "euc-jp", "gb18030",
         "big5", "euc-kr")  # fmt: skip
WINDOWS = frozenset(range(0x80, 0xA0))  # control characters in Latin-1, quotation marks and dashes in Windows' variant


def check_encoding(name: str) -> str:
    """Python's name of an encoding; refused where it is none of text."""
    try:
        found = codecs.lookup(name)
        if not getattr(found, "_is_text_encoding", True):
            raise LookupError(name)
    except (LookupError, ValueError) as error:
        advice = did_you_mean(name, KNOWN, f"encodings are {', '.join(KNOWN)} and all others of Python's")
        raise UserError(f"there is no encoding {name!r}; {advice}") from error
    return UTF8 if found.name == UTF8 else name


def guess_encoding(head: bytes) -> str:
    """What the beginning of a text that should be UTF-8 is in instead; empty where it is UTF-8, or no text at all."""
    for mark, name in MARKS:
        if head.startswith(mark):
            return name
    even, odd = head[0::2], head[1::2]
    for zeros, others, name in ((odd, even, "utf-16-le"), (even, odd, "utf-16-be")):
        if len(head) >= 4 and zeros.count(0) >= MIN_ZEROS * len(zeros) and others.count(0) <= MAX_ZEROS * len(others):
            return name
    if b"\0" in head or is_utf8(head):
        return ""
    controls = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in head)
    high = sum(byte > 127 for byte in head)
    if controls > MAX_CONTROLS * len(head) or high > MAX_HIGH * len(head):
        return ""
    return "cp1252" if WINDOWS.intersection(head) else "latin-1"


def is_utf8(head: bytes) -> bool:
    """Whether the beginning of a text, or all of a short one, is UTF-8; a beginning may end inside a character."""
    try:
        codecs.utf_8_decode(head, "strict", len(head) < SNIFFED_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def wrong_encoding(place: str, head: bytes) -> EncodingError:
    """The error for a text that is not UTF-8, with a guess from its beginning."""
    return EncodingError(f"the text must be UTF-8: {place} is not", guess_encoding(head))


def converted(blocks: Iterable[bytes], encoding: str, name: str, replace: bool = False) -> Iterator[bytes]:
    """The text in UTF-8; what is not in its encoding is refused with its place, or replaced by U+FFFD."""
    decoder = codecs.getincrementaldecoder(encoding)("replace" if replace else "strict")
    offset = 0
    try:
        for block in blocks:
            yield decoder.decode(block).encode("utf-8", "replace")
            offset += len(block)
        yield decoder.decode(b"", final=True).encode("utf-8", "replace")
    except UnicodeError as error:
        at = offset + getattr(error, "start", 0)
        raise UserError(
            f"{name} is not in the encoding {encoding}: about byte {at:,} it is not; name another with encoding, "
            "or set errors to replace"
        ) from error


def decode_text(data: bytes, place: str, encoding: str = UTF8) -> str:
    """A whole text as a string."""
    encoding = check_encoding(encoding)
    if encoding != UTF8:
        return b"".join(converted([data], encoding, place)).decode()
    try:
        if guess_encoding(data[:SNIFFED_BYTES]).startswith("utf"):  # UTF-16 of ASCII is UTF-8 too, with many zeros
            raise wrong_encoding(place, data[:SNIFFED_BYTES])
        return data.decode()
    except UnicodeDecodeError as error:
        raise wrong_encoding(f"byte {error.start:,} of {place}", data[:SNIFFED_BYTES]) from error


def read_text(path: Path, encoding: str = UTF8) -> str:
    """The text of a file, unpacked if it is compressed."""
    return decode_text(read_whole(path), str(path), encoding)
