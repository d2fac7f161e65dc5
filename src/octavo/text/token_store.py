"""The tokens of a text as one array: in memory, or in a flat file of ids that is mapped into memory."""

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

TWO_BYTE_IDS = 1 << 16  # ids below this fit into two bytes


@dataclass(frozen=True)
class TokenStore:
    """The tokens of a text, each document opened by `begin`; an array in memory or mapped from a file."""

    tokens: NDArray[Any]
    starts: NDArray[np.int64]  # where the documents' begin tokens are

    def __len__(self) -> int:
        return len(self.tokens)


def fingerprint(tokenizer: Tokenizer) -> str:
    """A hash that two tokenizers share only if they are the same."""
    return hashlib.sha256(json.dumps(tokenizer.to_json(), sort_keys=True).encode()).hexdigest()


def id_type(tokenizer: Tokenizer) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype("<u2" if tokenizer.vocab <= TWO_BYTE_IDS else "<i4")


def in_memory(chunks: Iterable[Tokens], tokenizer: Tokenizer) -> TokenStore:
    """The chunks' tokens as one array."""
    dtype = id_type(tokenizer)
    tokens = np.concatenate([np.zeros(0, dtype), *(chunk.astype(dtype) for chunk in chunks)])
    return TokenStore(tokens, np.flatnonzero(tokens == tokenizer.begin))


def in_file(path: str | Path, chunks: Iterable[Tokens], tokenizer: Tokenizer) -> TokenStore:
    """The chunks' tokens, written to `path` as they come and mapped into memory."""
    dtype, count, starts = id_type(tokenizer), 0, [np.zeros(0, np.int64)]
    with whole_file(path) as file:
        for chunk in chunks:
            starts.append(np.flatnonzero(chunk == tokenizer.begin) + count)
            file.write(np.ascontiguousarray(chunk, dtype).data)
            count += len(chunk)
    return TokenStore(map_ids(path, dtype), np.concatenate(starts))


def map_ids(path: str | Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A file of ids, mapped into memory."""
    try:
        size = Path(path).stat().st_size
        if size % dtype.itemsize:
            raise UserError(f"a token of {path} takes {dtype.itemsize} bytes: the file has {size:,}, not a multiple")
        # Copy on write: torch wants arrays that could be written to, and the file stays as it is.
        return np.memmap(path, dtype, "c") if size else np.zeros(0, dtype)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
