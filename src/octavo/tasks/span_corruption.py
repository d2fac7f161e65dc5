"""Span corruption: a text is cut short, a span of it is hidden, and what was hidden is written at the end.

    Lucy Smith was born in Boston on a Monday .        the text
    Lucy Smith was born in Boston                      cut short
    Lucy Smith was ⁇ in Boston⁇born⁇                   the span in the middle moved to the end

B rows of a batch, N texts, C tokens of the longest text, T tokens of a row. What is drawn for a text depends on the
seed, the step and the text's number alone, so it is the same however texts are put together into batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.errors import UserError

MARKS = 3  # in a row
SHORTEST = 4  # tokens that are left of a text, where it has as many
SPAN = 0.25  # of what is left is hidden, on average
GOLDEN = 0x9E3779B97F4A7C15


class Cut(NamedTuple):
    """What becomes of each text: of its first `kept` tokens those from `begin` to `end` are hidden."""

    kept_B: NDArray[np.int64]
    begin_B: NDArray[np.int64]
    end_B: NDArray[np.int64]


def draw_cuts(
    length_B: NDArray[np.int64], longest: int, seed: int, step: int, text_B: NDArray[np.int64], span: float = SPAN
) -> Cut:
    """How each text is spoilt at this step: `longest` tokens of it are kept at most, `span` of these are hidden."""
    if not (longest >= SHORTEST and 0 < span <= 0.5):
        raise UserError(
            f"a text keeps {SHORTEST} tokens at least, of which up to half are hidden: {longest} tokens, span={span}; "
            "try --context 128 --span 0.25"
        )
    if len(length_B) and int(length_B.min()) < 1:
        raise UserError("a text must have a token at least: one has none; leave empty lines out")
    luck_B3 = lots(seed, step, text_B, 3)
    kept_B = np.minimum(length_B, SHORTEST + (luck_B3[:, 0] * (longest - SHORTEST + 1)).astype(np.int64))
    most_B = np.maximum(1, np.rint(2 * span * kept_B).astype(np.int64) - 1)  # from 1 to this: the mean is the share
    width_B = 1 + (luck_B3[:, 1] * most_B).astype(np.int64)
    begin_B = (luck_B3[:, 2] * (kept_B - width_B + 1)).astype(np.int64)
    return Cut(kept_B, begin_B, begin_B + width_B)


def lots(seed: int, step: int, number_B: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """`count` even numbers from 0 to below 1 for each number, which depend on it, the seed and the step alone."""
    start = _mixed(_mixed(np.array([seed], np.uint64)) ^ np.uint64(step))
    each_BK = _mixed(start ^ number_B.astype(np.uint64))[:, None] + np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    return (_mixed(each_BK) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): neighbours become unlike."""
    x = x + np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def corrupted(x_C: NDArray[Any], kept: int, begin: int, end: int, mark: int) -> NDArray[Any]:
    """One text spoilt: prefix, mark, suffix, mark, what was hidden, mark; the reference of `corrupted_rows`."""
    marked = np.array([mark], x_C.dtype)
    return np.concatenate([x_C[:begin], marked, x_C[end:kept], marked, x_C[begin:end], marked])


def restored(row: NDArray[Any], mark: int) -> NDArray[Any]:
    """What the text was before it was spoilt, but for what was cut off."""
    first, second, third = np.flatnonzero(row == mark)[:MARKS]
    return np.concatenate([row[:first], row[second + 1 : third], row[first + 1 : second]])


def corrupted_rows(x_NC: Tensor, text_B: Tensor, cut: Cut, mark: int, pad: int, T: int) -> Tensor:
    """x_BT of all texts spoilt at once, on the texts' device; behind its last mark a row is full of `pad`."""
    kept_B1, begin_B1, end_B1 = (torch.from_numpy(one).to(x_NC.device)[:, None] for one in cut)
    j_T = torch.arange(T, device=x_NC.device)
    second_B1 = begin_B1 + 1 + kept_B1 - end_B1  # where the second mark stands
    from_BT = torch.where(j_T < begin_B1, j_T, end_B1 + j_T - begin_B1 - 1)
    from_BT = torch.where(j_T <= second_B1, from_BT, begin_B1 + j_T - second_B1 - 1)
    x_BT = x_NC[text_B].gather(1, from_BT.clamp(0, x_NC.shape[1] - 1))
    marked_BT = (j_T == begin_B1) | (j_T == second_B1) | (j_T == kept_B1 + 2)
    x_BT = torch.where(marked_BT, mark, x_BT)
    return torch.where(j_T > kept_B1 + 2, pad, x_BT)
