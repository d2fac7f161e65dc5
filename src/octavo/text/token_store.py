"""The tokens of a text as one array: in memory, or in a flat file of ids that is mapped into memory.

nanoGPT's `train.bin` and `val.bin` are such files: little-endian uint16, and nothing else. What the ids mean is said by
a `tokenizer.json` in the same folder. (nanoGPT itself says it, if at all, in a `meta.pkl`; that is a pickle, a program,
and is never opened.) As a corpus, such a file is decoded to the text that it stands for, and the begin token (nanoGPT's
<|endoftext|>) separates documents. The text is then tokenised like any other: the tokens are those of the file, except
at places where a text was cut after it was tokenised, or if another tokenizer wrote it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.registry import load_tokenizer
from octavo.text.tokenizers.token_bytes import Tokens

TWO_BYTE_IDS = 1 << 16  # ids below this fit into two bytes
SUFFIX = ".bin"
TOKENIZER = "tokenizer.json"
ID = np.dtype("<u2")
CHUNK_IDS = 1 << 20  # checked, or decoded, at a time


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


def read_bin(path: str | Path, tokenizer: Tokenizer) -> TokenStore:
    """Map a file of two-byte ids into memory. Its first document needs no begin token: nanoGPT writes none."""
    path = Path(path)
    tokens = map_ids(path, ID)
    starts = [np.zeros(0, np.int64)]
    for first in range(0, len(tokens), CHUNK_IDS):
        part = tokens[first : first + CHUNK_IDS]
        wrong = np.flatnonzero(part >= tokenizer.vocab)
        if len(wrong):
            raise UserError(
                f"every token must be below the tokenizer's {tokenizer.vocab:,}: token {first + int(wrong[0]):,} of "
                f"{path} is {int(part[wrong[0]]):,}; give the tokenizer that the file was made with"
            )
        starts.append(np.flatnonzero(part == tokenizer.begin) + first)
    return TokenStore(tokens, np.concatenate(starts))


def write_bin(path: str | Path, chunks: Iterable[Tokens], tokenizer: Tokenizer) -> int:
    """Write the chunks' ids in two bytes each; returns how many there were."""
    check_fits(tokenizer)
    return len(in_file(path, chunks, tokenizer))


def check_fits(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer with more ids than two bytes can hold."""
    if tokenizer.vocab > TWO_BYTE_IDS:
        raise UserError(
            f"a {SUFFIX} file has two bytes a token, so at most {TWO_BYTE_IDS:,} ids: {tokenizer.name} has "
            f"{tokenizer.vocab:,}; take one with fewer, such as --tokenizer bpe --vocab-size {TWO_BYTE_IDS - 1}"
        )


def tokens_as_text(path: Path) -> Iterator[Iterator[bytes]]:
    """The documents of a file of ids, each in pieces, decoded by the tokenizer beside it."""
    beside = path.with_name(TOKENIZER)
    if not beside.is_file():
        raise UserError(
            f"{path} is taken for a file of tokens, as nanoGPT has them, and {TOKENIZER} in the same folder must say "
            f"what they mean: there is none; put it there, or, if this is no file of tokens, give it another ending"
        )
    tokenizer = load_tokenizer(beside)
    store = read_bin(path, tokenizer)
    for start, end in pairwise([0, *store.starts.tolist(), len(store)]):
        if start < end:
            yield (tokenizer.decode(store.tokens[at : min(at + CHUNK_IDS, end)]) for at in range(start, end, CHUNK_IDS))
