"""Mutations of files: small plain values, drawn from a seed, that say how a file is damaged, and can be applied again.

A mutation is a list of a name and its arguments, as JSON has them, so that a finding can be written down in one line:

    ["byte", 17, 255]                 byte 17 becomes 255
    ["json", ["config", "width"], "set", "1e308"]

["rehash"] among them puts the hashes right that a run folder has of the file. `BYTES` names those that turn bytes into
bytes; `PLACES` those that put something else where the file was. To add one, write the function, add it to the dict,
and let `draw` choose it.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Mutation = list[Any]
INTEGERS = (0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63))
LITERALS = (  # of JSON, and some that are nearly JSON
    "null", "true", "0", "-1", "1", "2147483648", "9223372036854775808", "1" + "0" * 40, "long number", "1e308",
    "-1e308", "1e999", "5e-324", "0.5", "NaN", "Infinity", '""', '"x"', '"\\u0000"', '"\\ud800"', '"\\u001b[31mred"',
    '"../../../etc/passwd"', '"/dev/zero"', "long text", "[]", "{}", "[[]]", "[null]",
    '[{}]', '{"a": null}', '{"": 0}', "[1, 2]",
)  # fmt: skip
LONG = {"long number": "1" + "0" * 5000, "long text": '"' + "y" * 70_000 + '"'}
NUMBERS = (
    "0", "-1", "-0", "1e308", "-1e308", "1e999", "nan", "-inf", "inf", "9" * 25, "9" * 5000, "0x10", "1_000", "", "x",
    "٣", "1.", "2147483648", "-99", "99",
)  # fmt: skip
TEXTS = (  # and how often
    (b"\xed\xa0\x80", 1), (b"\xff\xfe", 1), (b"\0", 1), (b"\r", 1), (b"\n", 3), (b"\t\t", 1), (b'"', 1), (b"\\", 1),
    (b"\x1b[2J", 1), (b"\xe2\x80\xae", 1), (b"[", 3000), (b"[", 100_000), (b"{", 200), (b"9", 6000), (b" ", 100_000),
    (b"\n", 100_000), (b"<unk>", 1), (b"__label__", 1), (b"\\data\\\n", 1), (b"\xef\xbb\xbf", 1), (b",", 3), (b"'", 3),
)  # fmt: skip
CODECS = ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7", "cp037")
PACKERS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.decompress, gzip.compress), ".bz2": (bz2.decompress, bz2.compress),
    ".xz": (lzma.decompress, lzma.compress),
}  # fmt: skip
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


# --- of bytes


def set_bit(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] if at < len(data) else data


def set_byte(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :] if at < len(data) else data


def truncate(data: bytes, length: int) -> bytes:
    return data[:length]


def delete(data: bytes, at: int, count: int) -> bytes:
    return data[:at] + data[at + count :]


def repeat(data: bytes, at: int, count: int, times: int) -> bytes:
    return data[:at] + data[at : at + count] * times + data[at + count :]


def insert(data: bytes, at: int, hexadecimal: str, times: int = 1) -> bytes:
    return data[:at] + bytes.fromhex(hexadecimal) * times + data[at:]


def integer(data: bytes, at: int, width: int, value: int, order: str = "little") -> bytes:
    """A whole number of the file becomes another one."""
    number = (value % (1 << 8 * width)).to_bytes(width, "big" if order == "big" else "little")
    return data[:at] + number + data[at + width :]


def encode(data: bytes, codec: str) -> bytes:
    return data.decode("utf-8", "replace").encode(codec, "replace")


def number(data: bytes, which: int, text: str) -> bytes:
    """The which-th number of a text becomes something else."""
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    span = found[which % len(found)].span()
    return data[: span[0]] + text.encode() + data[span[1] :]


def line(data: bytes, which: int, change: str) -> bytes:
    """A line is dropped, doubled, emptied, swapped with the next one, or made very long."""
    lines = data.split(b"\n")
    which %= len(lines)
    one = lines[which]
    changed = {
        "drop": [], "double": [one, one], "empty": [b""], "long": [one * 2000], "tabs": [one.replace(b" ", b"\t")],
        "words": [one.replace(b"\t", b" ").replace(b",", b" ")], "half": [one[: len(one) // 2]],
    }  # fmt: skip
    return b"\n".join(lines[:which] + changed[change] + lines[which + 1 :])


def splice(data: bytes, at: int, other: bytes, middle: int) -> bytes:
    """The beginning of this file and the end of another one."""
    return data[:at] + other[middle:]


# --- of JSON, of JSON lines, and of the headers of safetensors


def change_json(data: bytes, path: Sequence[Any], change: str, literal: str = "null") -> bytes:
    """Change the value at a path: `set` it to a literal, `drop` its key, `double` the key, `rename` it, `nest` it."""
    try:
        values = json.loads(data)
    except ValueError:
        return data
    mark = "\ue000MARK\ue000"
    text = "[" * int(literal) + "]" * int(literal) if change == "nest" else LONG.get(literal, literal)
    values = _changed(values, list(path), change, mark)
    shown = json.dumps(values, indent=1, ensure_ascii=False)
    return shown.replace(f'"{mark}"', text).encode("utf-8", "surrogatepass")


def _changed(values: Any, path: list[Any], change: str, mark: str) -> Any:
    if not path:
        return mark if change in ("set", "nest") else values
    key, rest = path[0], path[1:]
    try:
        values[key]
    except (KeyError, IndexError, TypeError):
        return values
    if rest:
        values[key] = _changed(values[key], rest, change, mark)
    elif change in ("set", "nest"):
        values[key] = mark
    elif change == "drop" or isinstance(values, list):
        del values[key]
    elif change == "rename":
        return {f"{name}x" if name == key else name: value for name, value in values.items()}
    elif change == "double":
        values[f"{key}\ue001"] = mark  # stands behind the key that it doubles, once its sign is taken away
    return values


def change_json_line(data: bytes, which: int, path: Sequence[Any], change: str, literal: str = "null") -> bytes:
    lines = data.split(b"\n")
    which %= len(lines)
    changed = change_json(lines[which], path, change, literal).replace(b"\n", b" ")
    return b"\n".join([*lines[:which], changed, *lines[which + 1 :]])


def change_header(data: bytes, path: Sequence[Any], change: str, literal: str = "null") -> bytes:
    """The header of a safetensors file, whose length is put right."""
    length = int.from_bytes(data[:8], "little")
    head = change_json(data[8 : 8 + length], path, change, literal)
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + data[8 + length :]


def change_tensor(data: bytes, which: int, at: int, value: str) -> bytes:
    """One number of the which-th floating-point tensor of a safetensors file; "scale X" multiplies all of it."""
    length = int.from_bytes(data[:8], "little")
    forms = {"F32": "f", "F64": "d", "F16": "e", "I64": "q", "I32": "i"}
    header = json.loads(data[8 : 8 + length])
    tensors = [one for name, one in header.items() if name != "__metadata__" and one["dtype"] in forms]
    tensors = [one for one in tensors if one["data_offsets"][1] > one["data_offsets"][0]]
    if not tensors:
        return data
    one = tensors[which % len(tensors)]
    form = forms[one["dtype"]]
    start, end = (8 + length + offset for offset in one["data_offsets"])
    count = (end - start) // struct.calcsize(form)
    numbers = list(struct.unpack(f"<{count}{form}", data[start:end]))
    number: Callable[[float], Any] = float if form in "fde" else lambda x: int(max(min(x, 2**31 - 1), -(2**31)))
    if value.startswith("scale "):
        numbers = [number(one * float(value[6:])) for one in numbers]
    else:
        numbers[at % count] = number(float(value)) if form in "fde" or value not in ("nan", "inf", "-inf") else -1
    with_room = [
        max(min(one, 65504.0), -65504.0) if form == "e" and abs(one) < float("inf") else one for one in numbers
    ]
    return data[:start] + struct.pack(f"<{count}{form}", *with_room) + data[end:]


BYTES: dict[str, Callable[..., bytes]] = {
    "bit": set_bit, "byte": set_byte, "truncate": truncate, "delete": delete, "repeat": repeat, "insert": insert,
    "integer": integer, "encode": encode, "number": number, "line": line, "splice": splice,
    "json": change_json, "json line": change_json_line, "header": change_header, "tensor": change_tensor,
}  # fmt: skip


def mutate(data: bytes, mutations: Sequence[Mutation], seeds: Path, suffix: str = "") -> bytes:
    """The bytes after the mutations, in order; those within ["inside", ...] change what a compressed file holds."""
    for name, *arguments in mutations:
        with suppress(Exception):  # a second mutation may not suit what the first one left
            if name == "inside":
                unpack, pack = PACKERS[suffix]
                data = pack(mutate(unpack(data), arguments, seeds))
            elif name == "splice":
                at, other, middle = arguments
                data = splice(data, at, (seeds / other).read_bytes(), middle)
            else:
                data = BYTES[name](data, *arguments)
    return data.replace("\ue001".encode(), b"")


# --- of the place


def _hide_behind_link(path: Path) -> None:
    os.rename(path, path.with_name(".target"))
    path.symlink_to(".target")


def _link_to(goal: str) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.unlink()
        path.symlink_to(goal or path.name)

    return put


def _put(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.unlink()
        make(path)

    return put


PLACES: dict[str, Callable[[Path], None]] = {
    "link": _hide_behind_link, "dangling": _link_to("nowhere"), "loop": _link_to(""), "zeros": _link_to("/dev/zero"),
    "folder": _put(Path.mkdir), "fifo": _put(os.mkfifo), "missing": Path.unlink, "denied": lambda path: path.chmod(0),
}  # fmt: skip


# --- drawing them


def draw(
    chance: random.Random, path: Path, data: bytes, others: Mapping[str, bytes], within: bool = True
) -> list[Mutation]:
    """One to three mutations that suit the file; `others` are files of its kind, to splice with.

    `within` a folder it may become a pipe; a pipe that the user names is waited for, as every program does.
    """
    if chance.random() < 0.02:
        return [[chance.choice([name for name in PLACES if within or name != "fifo"])]]
    kinds = _kinds(path, data)
    return [_draw_one(chance, chance.choice(kinds), path, data, others) for _ in range(chance.choice((1, 1, 1, 2, 3)))]


def _kinds(path: Path, data: bytes) -> list[str]:
    """The names of what may be drawn, as often as it should be."""
    kinds = ["bytes", "bytes", "block", "integer"]
    if path.suffix in PACKERS:
        return [*kinds, "inside", "inside"]
    if path.suffix == ".safetensors":
        return ["bytes", "block", "integer", "header", "header", "header", "tensor", "tensor", "tensor", "splice"]
    if data[:4] == b"GGUF" or path.suffix in (".oct", ".parquet", ".zst", ".png", ".db", ".bin"):
        return [*kinds, "integer", "integer", "splice"]
    text = ["text", "number", "line", "encoding", "splice", "bytes"]
    if path.suffix in (".json", ".ipynb"):
        return [*text, "json", "json", "json", "json", "json", "json"]
    if path.suffix == ".jsonl":
        return [*text, "json line", "json line", "json line"]
    return [*text, "number", "line"]


def _draw_one(chance: random.Random, kind: str, path: Path, data: bytes, others: Mapping[str, bytes]) -> Mutation:
    at = chance.randrange(max(1, len(data)))
    if chance.random() < 0.4:  # headers are where most is decided
        at = min(at, chance.randrange(256))
    match kind:
        case "bytes":
            return chance.choice((["bit", at, chance.randrange(8)], ["byte", at, chance.choice((0, 255, 127, 32, 34))]))
        case "block":
            count = 1 << chance.randrange(12)
            return chance.choice(
                (["truncate", at], ["delete", at, count], ["repeat", at, count, chance.choice((2, 3, 50))])
            )
        case "integer":
            width = chance.choice((1, 2, 4, 8))
            return ["integer", at // width * width, width, chance.choice(INTEGERS), chance.choice(("little", "big"))]
        case "text":
            piece, times = chance.choice(TEXTS)
            return ["insert", at, piece.hex(), times]
        case "number":
            return ["number", chance.randrange(1 << 20), chance.choice(NUMBERS)]
        case "line":
            changes = ("drop", "double", "empty", "long", "tabs", "words", "half")
            return ["line", chance.randrange(1 << 20), chance.choice(changes)]
        case "encoding":
            return ["encode", chance.choice(CODECS)]
        case "splice":
            if not others:
                return ["truncate", at]
            other = chance.choice(sorted(others))
            middle = chance.randrange(max(1, len(others[other])))
            return ["splice", 0, other, 0] if chance.random() < 0.3 else ["splice", at, other, middle]
        case "json":
            return ["json", *_draw_json(chance, data)]
        case "json line":
            lines = data.split(b"\n")
            which = chance.randrange(len(lines))
            return ["json line", which, *_draw_json(chance, lines[which])]
        case "header":
            return ["header", *_draw_json(chance, data[8 : 8 + int.from_bytes(data[:8], "little")])]
        case "tensor":
            values = ("nan", "inf", "-inf", "1e30", "-1e30", "0", "-1", "1e-40", "7", "scale 50", "scale -1", "scale 0")
            return ["tensor", chance.randrange(64), chance.randrange(1 << 20), chance.choice(values)]
        case _:
            unpacked = PACKERS[path.suffix][0](data)
            inner = _draw_one(
                chance, chance.choice(_kinds(path.with_suffix(""), unpacked)), path.with_suffix(""), unpacked, {}
            )
            return ["inside", inner]


def _draw_json(chance: random.Random, data: bytes) -> list[Any]:
    """A path to some value, and what becomes of it."""
    try:
        values = json.loads(data)
    except ValueError:
        return [[], "set", chance.choice(LITERALS)]
    path: list[Any] = []
    while isinstance(values, dict | list) and values and chance.random() < 0.8:
        key = chance.choice(list(values)) if isinstance(values, dict) else chance.randrange(len(values))
        path.append(key)
        values = values[key]
    change = chance.choice(("set", "set", "set", "set", "drop", "double", "rename", "nest"))
    if change == "nest":
        return [path, change, str(chance.choice((10, 900, 5000, 100_000)))]
    return [path, change, chance.choice(LITERALS)]
