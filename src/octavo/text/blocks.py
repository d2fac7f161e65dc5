"""Text in motion: blocks of bytes that know where documents begin, recut where a tokenizer may be interrupted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.text.tokenizers.protocol import Tokenizer, Tokens

BLOCK = 2 << 20  # bytes read at a time: large enough for numpy's loops, small enough for a dozen copies in the cache
WORKERS = 2  # numpy lets go of the interpreter in its loops, so two threads keep two cores busy; more gain little

Starts = NDArray[np.int64]
Item = TypeVar("Item")
Result = TypeVar("Result")


def no_starts() -> Starts:
    """The starts of a block in which no document begins."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Block:
    """Some bytes of a text; what lies before the first of `starts` continues the previous block's document."""

    data: bytes
    starts: Starts = field(default_factory=no_starts)


def recut(blocks: Iterable[Block], cut: Callable[[bytes], int]) -> Iterator[Block]:
    """The same text in blocks that end at a document's end or where `cut` allows it."""
    parts: list[bytes] = []
    starts, size, wait = no_starts(), 0, 0
    for block in blocks:
        if (size or starts.size) and block.starts.size and block.starts[0] == 0:
            yield Block(b"".join(parts), starts)
            parts, starts, size, wait = [], no_starts(), 0, 0
        starts = np.concatenate([starts, block.starts + size])
        parts.append(block.data)
        size += len(block.data)
        if size < wait:
            continue
        data = b"".join(parts)
        last = int(starts[-1]) if starts.size else 0
        end = last + cut(data[last:])
        if end:
            yield Block(data[:end], starts[starts < end])
        parts, starts, size = [data[end:]], starts[starts >= end] - end, len(data) - end
        wait = 2 * size  # a text that offers no cut is looked at again only when it has doubled
    if size or starts.size:
        yield Block(b"".join(parts), starts)


def in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int = WORKERS) -> Iterator[Result]:
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


def encode_blocks(tokenizer: Tokenizer, blocks: Iterable[Block]) -> Iterator[Tokens]:
    """The tokens of a text of any length, a begin token before each document."""
    return in_order(lambda block: tokenizer.encode_documents(block.data, block.starts), recut(blocks, tokenizer.cut))
