"""Reading rows from both ends, where padding stands behind the shorter ones.

B rows, T tokens of the longest, I inputs, D outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Layer = Callable[[Tensor], Tensor]  # x_TBI to h_TBD, each token from itself and those before it


def reversed_places(lengths_B: Tensor, T: int) -> Tensor:
    """place_BT: where each place's token stands when every row is reversed, its padding staying behind it."""
    place_T = torch.arange(T, device=lengths_B.device)
    back_BT = lengths_B[:, None] - 1 - place_T
    return torch.where(back_BT >= 0, back_BT, place_T)


def both_directions(there: Layer, back: Layer, x_TBI: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """What a causal layer makes of each row, and another of each row reversed, put back in order: no token of a row
    depends on its padding, so none depends on the other rows.
    """
    place_TB = reversed_places(lengths_B, len(x_TBI)).t()
    return there(x_TBI), _taken(back(_taken(x_TBI, place_TB)), place_TB)


def _taken(x_TBI: Tensor, place_TB: Tensor) -> Tensor:
    return x_TBI.gather(0, place_TB[..., None].expand_as(x_TBI))
