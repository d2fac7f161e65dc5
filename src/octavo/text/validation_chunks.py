"""What is held out of the training part, for choices: when to stop, how to weigh the parts of a mixture.

N tokens, P pieces, L tokens of a piece.

The pieces are spread over the text. Its end would be simpler, but the end is what the measured text goes on from:
without the last twentieth of its training part, a 7-gram of Shakespeare costs a tenth more bits (docs/log.md).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARE = 1 / 40  # of the tokens
PIECES = 25
SHORTEST = 64  # tokens of a piece, where the text has enough of them
MOST = 1 << 17  # tokens in all: more would only make choosing slower


@dataclass(frozen=True)
class Held:
    """A text in two: what a model learns from, and pieces that it never sees."""

    train_N: NDArray[Any]  # what is left, begin between the parts that no longer join
    pieces_PL: NDArray[Any]  # none where the text is too short

    @property
    def identity(self) -> str:
        """A hash of the pieces: two models that have it in common can be compared, or mixed, on them."""
        return hashlib.sha256(np.ascontiguousarray(self.pieces_PL, dtype=np.int64).data).hexdigest()[:16]


def hold_out(x_N: NDArray[Any], begin: int) -> Held:
    """Take pieces of equal length out of the text, one from the middle of each of as many equal stretches."""
    wanted = min(int(len(x_N) * SHARE), MOST)
    count = max(1, min(PIECES, wanted // SHORTEST))
    length, stretch = wanted // count, len(x_N) // count
    if not length:
        return Held(x_N, np.empty((0, 0), x_N.dtype))
    starts = [i * stretch + (stretch - length) // 2 for i in range(count)]
    between = np.array([begin], x_N.dtype)
    left, at = [], 0
    for start in starts:
        left += [x_N[at:start], between]
        at = start + length
    return Held(np.concatenate([*left, x_N[at:]]), np.stack([x_N[start : start + length] for start in starts]))
