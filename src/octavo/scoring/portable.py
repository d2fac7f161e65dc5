"""Archives that any machine restores: probabilities in double precision, rounded to whole numbers that agree.

Machines add in other orders, so the last bits of a float64 probability differ. The coder is therefore given whole
numbers n = 1 + floor(SCALE p + offset), which those bits change only where SCALE p + offset is next to a whole number.
The encoder sees that: where a value is nearer than TOLERANCE of it allows, it takes another of OFFSETS for this row,
and the archive says which, before the row's symbol. So the decoder finds the same numbers, exactly, as long as each of
its probabilities differs from the encoder's by at most TOLERANCE of it; where one differs by more, the checksum of the
text says so.

An offset costs 0.0004 bits a symbol where it is the first, as it is in all but one of some thousands, and 15 bits where
it is another.

L rows, K symbols.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import LanguageModel
from octavo.errors import UserError

SCALE = 2.0**18 / 1.0093457  # no multiple of simple fractions, which counts give: they would all lie on the edge
TOLERANCE = 2.0**-32  # of a probability: 2.3e-10
LEAST = 2.0**-40  # of the steps between whole numbers: how near the edge of very small probabilities may be
OFFSETS = 8
OTHER_SHARE = 2.0**-12  # what the coder takes the share of rows to be that need another offset than the first

CHOICES_C = np.array([1 - OTHER_SHARE] + [OTHER_SHARE / (OFFSETS - 1)] * (OFFSETS - 1))


def portable_model(model: LanguageModel[Any]) -> LanguageModel[Any]:
    """The model on the CPU, its weights in double precision; one that learns while it reads is refused."""
    if model.adaptive:
        raise UserError(
            "a model that learns while it reads cannot write a portable archive: what it learns makes differences "
            "between machines grow; leave out --portable, or --adaptive"
        )
    copied = copy.deepcopy(model).cpu()
    return copied.double() if next(copied.parameters(), None) is not None else copied


def round_to_grid(p_LK: Tensor) -> tuple[Tensor, Tensor]:
    """n_LK of each row for the coder, and which offset no value of the row is too near to."""
    n_LK, choice_L = (
        round_with(p_LK, torch.zeros(len(p_LK), dtype=torch.long)),
        torch.zeros(len(p_LK), dtype=torch.long),
    )
    unsure_L = _unsure(p_LK, choice_L)
    for choice in range(1, OFFSETS):
        if not bool(unsure_L.any()):
            return n_LK, choice_L
        choice_L = torch.where(unsure_L, choice, choice_L)
        n_LK, unsure_L = round_with(p_LK, choice_L), _unsure(p_LK, choice_L)
    if bool(unsure_L.any()):
        raise UserError("no rounding of these probabilities is sure on every machine; leave out --portable")
    return n_LK, choice_L


def round_with(p_LK: Tensor, choice_L: Tensor) -> Tensor:
    """n_LK with the offsets that were chosen: whole numbers from 1 up, in double precision."""
    return 1.0 + _places(p_LK, choice_L).floor()


def choices_in(count: int) -> NDArray[np.float64]:
    """The coder's probabilities of so many choices of an offset."""
    return np.ascontiguousarray(np.broadcast_to(CHOICES_C, (count, OFFSETS)))


def _places(p_LK: Tensor, choice_L: Tensor) -> Tensor:
    return SCALE * p_LK + choice_L[:, None] / OFFSETS


def _unsure(p_LK: Tensor, choice_L: Tensor) -> Tensor:
    """Whether another machine might round a value of the row otherwise; none is below the lowest edge, which is 0."""
    place_LK = _places(p_LK, choice_L)
    above_LK, margin_LK = place_LK - place_LK.floor(), TOLERANCE * SCALE * p_LK + LEAST
    low_LK = (above_LK < margin_LK) & (place_LK >= 1)
    return (low_LK | (above_LK > 1 - margin_LK)).any(1)
