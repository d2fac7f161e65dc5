"""The bytes in front of a compressed text: whose archive it is, how it was written, and checks of both."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from octavo.errors import UserError

MAGIC, VERSION = b"OCTV", 3
OWN_CODER_VERSION = 3  # archives of it were written by the model's own coder (`LanguageModel.text_coder`)
SESSION_VERSION = 2  # with the model's session
STEPWISE_VERSION = 1  # with `LanguageModel.predict`
FIXED = struct.Struct("<4sBI8s8s")  # magic, version, crc32 of what follows it, model, sha256 of the original
CHECKED_FROM = 9  # the crc32 covers the archive from this byte on


class Header(NamedTuple):
    """What stands before the coder's words in an archive."""

    identity: bytes
    checksum: bytes
    tokens: int
    bytes: int
    streams: int
    version: int = SESSION_VERSION


def read_header(archive: bytes) -> tuple[Header, bytes]:
    """The header and the coder's words of an archive that is whole and ours."""
    if archive[:4] != MAGIC[: len(archive)]:
        raise UserError(f"not an octavo archive: it starts with {archive[:4]!r}, not with {MAGIC!r}")
    if len(archive) < FIXED.size + 3:
        raise UserError(f"the archive is cut off: {len(archive)} bytes do not even hold its header; copy it again")
    _, version, crc, identity, checksum = FIXED.unpack_from(archive)
    if not STEPWISE_VERSION <= version <= VERSION:
        remedy = "install a newer octavo" if version > VERSION else "it is damaged; copy it again"
        raise UserError(
            f"this octavo reads archives of versions {STEPWISE_VERSION} to {VERSION}: this one has version {version}; "
            f"{remedy}"
        )
    if _checksum(version, archive[CHECKED_FROM:]) != crc:
        raise UserError("the archive is damaged or cut off: its bytes do not match its checksum; copy it again")
    tokens, at = _read_varint(archive, FIXED.size)
    size, at = _read_varint(archive, at)
    streams, at = _read_varint(archive, at)
    return Header(identity, checksum, tokens, size, streams, version), archive[at:]


def write_header(header: Header, words: bytes) -> bytes:
    """The bytes that stand before the words; at most 40 below a terabyte."""
    varints = b"".join(_varint(number) for number in (header.tokens, header.bytes, header.streams))
    checked = header.identity + header.checksum + varints
    crc = _checksum(header.version, checked + words)
    return FIXED.pack(MAGIC, header.version, crc, header.identity, header.checksum) + varints


def _checksum(version: int, checked: bytes) -> int:
    """crc32; since version 2 it covers the version too."""
    return zlib.crc32(checked, version if version > STEPWISE_VERSION else 0)


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; the top bit says that more follow."""
    low = number & 0x7F
    return bytes([low]) if number == low else bytes([low | 0x80]) + _varint(number >> 7)


def _read_varint(archive: bytes, at: int) -> tuple[int, int]:
    """The number that starts at a byte, and where the next one starts."""
    number = 0
    for shift, byte in enumerate(archive[at : at + 9]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    raise UserError("the archive's header cannot be true: a number in it has no end; it was not written by octavo")
