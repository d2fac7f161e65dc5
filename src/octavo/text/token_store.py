"""Token files: ids in a flat file that is mapped into memory, and beside it a JSON file that says what they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.token_bytes import Tokens

FORMAT = "octavo-tokens-1"
TWO_BYTE_IDS = 1 << 16  # ids below this fit into two bytes


@dataclass(frozen=True)
class Store:
    """The tokens of a text, each document opened by `begin`; an array in memory or mapped from a file."""

    tokens: NDArray[Any]
    starts: NDArray[np.int64]  # where the documents' begin tokens are
    vocab: int
    tokenizer: str  # the tokenizer's fingerprint

    def __len__(self) -> int:
        return len(self.tokens)


def fingerprint(tokenizer: Tokenizer) -> str:
    """A hash that two tokenizers share only if they are the same."""
    return hashlib.sha256(json.dumps(tokenizer.to_json(), sort_keys=True).encode()).hexdigest()


def in_memory(chunks: Iterable[Tokens], tokenizer: Tokenizer) -> Store:
    """The chunks' tokens as one array."""
    dtype = _dtype(tokenizer.vocab)
    tokens = np.concatenate([np.zeros(0, dtype), *(chunk.astype(dtype) for chunk in chunks)])
    return Store(tokens, np.flatnonzero(tokens == tokenizer.begin), tokenizer.vocab, fingerprint(tokenizer))


def write_store(path: str | Path, chunks: Iterable[Tokens], tokenizer: Tokenizer) -> Store:
    """Write the chunks' tokens as they come to `path`, then the JSON file; the store that lies there then."""
    path = Path(path)
    dtype, count, starts = _dtype(tokenizer.vocab), 0, []
    # Tokens without their JSON file are refused, so a stop in between leaves nothing that could be mistaken.
    _beside(path).unlink(missing_ok=True)
    with whole_file(path) as file:
        for chunk in chunks:
            starts.append(np.flatnonzero(chunk == tokenizer.begin) + count)
            file.write(np.ascontiguousarray(chunk, dtype.newbyteorder("<")).data)
            count += len(chunk)
    header = {
        "format": FORMAT,
        "dtype": dtype.name,
        "count": count,
        "vocab": tokenizer.vocab,
        "tokenizer": fingerprint(tokenizer),
        "starts": np.concatenate([np.zeros(0, np.int64), *starts]).tolist(),
    }
    with whole_file(_beside(path)) as file:
        file.write(json.dumps(header, separators=(",", ":")).encode())
    return open_store(path)


def open_store(path: str | Path, tokenizer: Tokenizer | None = None) -> Store:
    """Map a token file into memory; it must be whole, and made with `tokenizer` if one is given."""
    path = Path(path)
    header = _read_header(path)
    dtype = np.dtype(header["dtype"]).newbyteorder("<")
    size, expected = path.stat().st_size, header["count"] * dtype.itemsize
    if size != expected:
        raise UserError(
            f"{path} is not whole: it has {size:,} bytes and {header['count']:,} tokens of {dtype.itemsize} bytes "
            f"need {expected:,}; make it again"
        )
    if tokenizer is not None and header["tokenizer"] != fingerprint(tokenizer):
        raise UserError(f"{path} was made with another tokenizer than the one given; make it again with this one")
    # Copy on write: torch wants arrays that could be written to, and the file stays as it is.
    tokens = np.memmap(path, dtype, "c") if size else np.zeros(0, dtype)
    return Store(tokens, np.array(header["starts"], np.int64), header["vocab"], header["tokenizer"])


def _read_header(path: Path) -> dict[str, Any]:
    beside = _beside(path)
    if not path.is_file() or not beside.is_file():
        raise UserError(f"a token file has a JSON file beside it: {path} and {beside} must both exist; make them again")
    try:
        header = json.loads(beside.read_bytes())
    except ValueError as error:
        raise UserError(f"{beside} is not JSON ({error}); make the token file again") from error
    kinds = {"format": str, "dtype": str, "count": int, "vocab": int, "tokenizer": str, "starts": list}
    if not isinstance(header, dict) or any(not isinstance(header.get(key), kind) for key, kind in kinds.items()):
        raise UserError(f"{beside} does not describe a token file of octavo; make the token file again")
    if header["format"] != FORMAT or header["dtype"] not in ("uint16", "int32"):
        raise UserError(
            f"{beside} describes {header['format']!r} tokens of type {header['dtype']!r}; this version reads "
            f"{FORMAT!r} of type uint16 or int32; make the token file again"
        )
    return header


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")


def _dtype(vocab: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocab <= TWO_BYTE_IDS else np.int32)
