"""The bytes in front of a compressed text: whose archive it is, how it was written, and checks of both."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from octavo.errors import UserError

MAGIC, VERSION = b"OCTV", 4
ORIGIN_VERSION = 4  # archives of it say how their words were coded (one of the numbers below), and where
PORTABLE_VERSION = 4  # with probabilities that were rounded alike on every machine (`octavo.scoring.portable`)
OWN_CODER_VERSION = 3  # archives of it were written by the model's own coder (`LanguageModel.text_coder`)
SESSION_VERSION = 2  # with the model's session
STEPWISE_VERSION = 1  # with `LanguageModel.predict`
FIXED = struct.Struct("<4sBI8s8s")  # magic, version, crc32 of what follows it, model, sha256 of the original
CHECKED_FROM = 9  # the crc32 covers the archive from this byte on


DEVICES = ("cpu", "cuda", "mps")
MAX_NAME_BYTES = 32
NAMES = ("DEFAULT", "AVX2", "AVX512", "SVE", "SVE128", "SVE256", "VSX", "Z VECTOR", "Apple")  # a byte each


class Origin(NamedTuple):
    """Where an archive was made."""

    device: str
    """One of DEVICES."""
    torch: tuple[int, int, int]
    name: str
    """Of a GPU, what it is called; of a CPU, the instructions that PyTorch uses of it. On a CPU one thread computes."""

    def __str__(self) -> str:
        return f"{self.device} ({self.name}, torch {'.'.join(map(str, self.torch))})"

    def to_bytes(self) -> bytes:
        version, name = bytes(min(255, number) for number in self.torch), self.name.encode()[:MAX_NAME_BYTES]
        if self.name in NAMES:
            return version + bytes([MAX_NAME_BYTES + 1 + NAMES.index(self.name)])
        return version + bytes([len(name)]) + name


class Header(NamedTuple):
    """What stands before the coder's words in an archive."""

    identity: bytes
    checksum: bytes
    tokens: int
    bytes: int
    streams: int
    version: int = SESSION_VERSION
    """How the words were coded: STEPWISE_VERSION to PORTABLE_VERSION."""
    origin: Origin | None = None
    """None: an archive of an octavo that did not say it."""


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
    origin, at = None, FIXED.size
    if version == ORIGIN_VERSION:
        version, origin, at = _read_origin(archive, at)
    tokens, at = _read_varint(archive, at)
    size, at = _read_varint(archive, at)
    streams, at = _read_varint(archive, at)
    return Header(identity, checksum, tokens, size, streams, version, origin), archive[at:]


def write_header(header: Header, words: bytes) -> bytes:
    """The bytes that stand before the words; at most 45 and a device's name below a terabyte."""
    varints = b"".join(_varint(number) for number in (header.tokens, header.bytes, header.streams))
    version, origin = header.version, b""
    if header.origin is not None:
        place = DEVICES.index(header.origin.device)
        version, origin = ORIGIN_VERSION, bytes([header.version << 4 | place]) + header.origin.to_bytes()
    checked = header.identity + header.checksum + origin + varints
    crc = _checksum(version, checked + words)
    return FIXED.pack(MAGIC, version, crc, header.identity, header.checksum) + origin + varints


def _read_origin(archive: bytes, at: int) -> tuple[int, Origin, int]:
    """How the words were coded, where, and what stands behind that."""
    kind, place = archive[at] >> 4, archive[at] & 15
    numbers, size = archive[at + 1 : at + 4], archive[at + 4] if len(archive) > at + 4 else 0
    known = NAMES[size - MAX_NAME_BYTES - 1 :][:1] if size > MAX_NAME_BYTES else ()
    end = at + 5 + (0 if known else size)
    if place >= len(DEVICES) or not STEPWISE_VERSION <= kind <= PORTABLE_VERSION or end > len(archive):
        raise UserError(
            "the archive's header cannot be true: it names no device or coder; it was not written by octavo"
        )
    name = known[0] if known else archive[at + 5 : end].decode("utf-8", "replace")
    return kind, Origin(DEVICES[place], (numbers[0], numbers[1], numbers[2]), name), end


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
