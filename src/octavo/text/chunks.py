"""A text in chunks of bytes that say where documents begin, split where a tokenizer allows it; map over threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.io.limits import check_memory

LARGE_CHUNK_BYTES = 1 << 28  # of a text that cannot be split; from there on memory is asked for
CHUNK_COPIES = 8  # of such a chunk: as bytes, joined, as text, and its tokens
THREADS = 2  # numpy lets go of the interpreter in its loops, so two threads keep two cores busy; more gain little

Starts = NDArray[np.int64]
Item = TypeVar("Item")
Result = TypeVar("Result")


def no_starts() -> Starts:
    """The starts of a chunk in which no document begins."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Chunk:
    """Some bytes of a text; what lies before the first of `starts` continues the previous chunk's document."""

    data: bytes
    starts: Starts = field(default_factory=no_starts)

    def documents(self) -> list[bytes]:
        """The end of the previous chunk's document, perhaps empty, and the documents that start here."""
        bounds = [0, *self.starts.tolist(), len(self.data)]
        return [self.data[a:b] for a, b in pairwise(bounds)]


def rechunk(chunks: Iterable[Chunk], split_point: Callable[[bytes], int]) -> Iterator[Chunk]:
    """The same text in chunks that end at a document's end or where `split_point` allows it."""
    parts: list[bytes] = []
    starts, size, wait = no_starts(), 0, 0
    for chunk in chunks:
        if (size or starts.size) and chunk.starts.size and chunk.starts[0] == 0:
            yield Chunk(b"".join(parts), starts)
            parts, starts, size, wait = [], no_starts(), 0, 0
        starts = np.concatenate([starts, chunk.starts + size])
        parts.append(chunk.data)
        size += len(chunk.data)
        if size < wait:
            continue
        if size > LARGE_CHUNK_BYTES:
            check_memory(CHUNK_COPIES * size, "a text of one word, or one that can only be tokenized whole,",
                         "give one with spaces in it, or another tokenizer")  # fmt: skip
        data = b"".join(parts)
        last = int(starts[-1]) if starts.size else 0
        end = last + split_point(data[last:])
        if end:
            yield Chunk(data[:end], starts[starts < end])
        parts, starts, size = [data[end:]], starts[starts >= end] - end, len(data) - end
        wait = 2 * size  # a text without a split point is searched again only when it has doubled
    if size or starts.size:
        yield Chunk(b"".join(parts), starts)


def equal_chunks(chunks: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """The same text in chunks of so many bytes, but for the last."""
    held = Chunk(b"")
    for chunk in chunks:
        starts = np.concatenate([held.starts, chunk.starts + len(held.data)])
        data = held.data + chunk.data
        whole = len(data) - len(data) % size
        for at in range(0, whole, size):
            yield Chunk(data[at : at + size], starts[(starts >= at) & (starts < at + size)] - at)
        held = Chunk(data[whole:], starts[starts >= whole] - whole)
    if held.data:
        yield held


def thread_map(function: Callable[[Item], Result], items: Iterable[Item], workers: int = THREADS) -> Iterator[Result]:
    """`map` over threads: results in the items' order, and never more than a few items under way."""
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
