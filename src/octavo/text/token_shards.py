"""A text's token ids in several files, each written by whoever had that part of the text; read as one sequence."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.text.token_store import TokenStore, map_ids

PART_TOKENS = 1 << 22  # that one core of a cluster works on at a time
SIZES = "sizes.npy"  # the tokens of each file; the folder is whole when it is there


@dataclass(frozen=True)
class TokenShards:
    """A folder of files of ids: 000000.bin, 000001.bin, ..."""

    folder: str
    dtype: str

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def files(self) -> int:
        return len(self._ends) - 1

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Where each file's tokens begin in the sequence, and its length."""
        return np.concatenate([[0], np.cumsum(np.load(Path(self.folder, SIZES)))]).astype(np.int64)

    def parts(self) -> list[str]:
        """Descriptions of parts that can be read by themselves."""
        ranges = ((start, min(start + PART_TOKENS, len(self))) for start in range(0, len(self), PART_TOKENS))
        return [json.dumps({**asdict(self), "start": start, "stop": stop}) for start, stop in ranges]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The tokens from `start` to `stop`, mapped where one file has them all."""
        end_F = self._ends
        stop = min(stop, len(self))
        first, last = (int(np.searchsorted(end_F, place, "right")) - 1 for place in (start, max(start, stop - 1)))
        parts = [
            self.shard(number)[max(0, start - int(end_F[number])) : stop - int(end_F[number])]
            for number in range(first, min(last + 1, self.files))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, self.dtype), *parts])

    def load(self) -> TokenStore:
        """All tokens as one array, in memory where there are several files."""
        return TokenStore(self.read(0, len(self)), np.zeros(0, np.int64))

    def shard(self, number: int) -> NDArray[Any]:
        """The tokens of one file, mapped."""
        return map_ids(shard_path(self.folder, number), np.dtype(self.dtype))


def shard_path(folder: str | Path, number: int) -> Path:
    return Path(folder, f"{number:06}.bin")


def write_shard(folder: str | Path, number: int, chunks: Iterable[NDArray[Any]], dtype: str) -> int:
    """Write one file of ids, whole or not at all, though two machines may write the same one; returns how many."""
    path, count = shard_path(folder, number), 0
    work = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with open(work, "wb") as file:
        for chunk in chunks:
            file.write(np.ascontiguousarray(chunk, dtype).data)
            count += len(chunk)
    os.replace(work, path)
    return count


def finish_shards(folder: Path, size_F: Iterable[int]) -> None:
    """Write how many tokens each file has, when all of them are there."""
    np.save(folder / SIZES, np.fromiter(size_F, np.int64))


def open_part(described: str) -> tuple[TokenShards, int, int]:
    """The tokens and the range that a part's description names."""
    about = json.loads(described)
    start, stop = about.pop("start"), about.pop("stop")
    return TokenShards(**about), start, stop
