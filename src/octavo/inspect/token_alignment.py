"""Two readings of the same bytes by different tokens, side by side: the shortest stretches at whose ends both have a
token's end. What either reader paid for a stretch is the exact sum over its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from octavo.errors import UserError


class Span(NamedTuple):
    """The same bytes as tokens first[0] to first[1] - 1 of one reader and second[0] to second[1] - 1 of the other."""

    first: tuple[int, int]
    second: tuple[int, int]
    bytes: int


def align(first: Sequence[int], second: Sequence[int]) -> list[Span]:
    """The spans of two texts that are given as how many bytes each token has. A token of no bytes goes with the token
    before it."""
    if sum(first) != sum(second):
        raise UserError(f"the two must read the same bytes: one reads {sum(first):,}, the other {sum(second):,}")
    spans = []
    i, j = 0, 0
    while i < len(first) or j < len(second):
        (i0, j0), ahead, read = (i, j), 0, 0
        while True:  # the reader that is behind goes on, until both have read something and the same
            if ahead > 0:
                ahead, j = ahead - second[j], j + 1
            elif ahead < 0 or i < len(first):
                ahead, read, i = ahead + first[i], read + first[i], i + 1
            else:
                ahead, j = ahead - second[j], j + 1
            if not ahead and read:
                break
            if i == len(first) and j == len(second):
                break
        while i < len(first) and not first[i]:
            i += 1
        while j < len(second) and not second[j]:
            j += 1
        spans.append(Span((i0, i), (j0, j), read))
    return spans
