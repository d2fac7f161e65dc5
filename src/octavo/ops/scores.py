"""Attention scores: how well a query matches each of the states it may look at, and what it then takes from them.

B batch, M remembered states, D size of a state.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.core import tap

Score = Literal["dot", "scaled", "additive"]
SCORES: tuple[Score, ...] = ("dot", "scaled", "additive")


def dot(s_BD: Tensor, h_BMD: Tensor) -> Tensor:
    """e = s · h."""
    return torch.einsum("bd,bmd->bm", s_BD, h_BMD)


def scaled(s_BD: Tensor, h_BMD: Tensor) -> Tensor:
    """e = s · h / sqrt(D): the scores of random vectors keep their spread as D grows."""
    return dot(s_BD, h_BMD) / math.sqrt(s_BD.shape[-1])


def additive(Ws_BD: Tensor, Uh_BMD: Tensor, v_D: Tensor) -> Tensor:
    """e = v · tanh(W s + U h)."""
    return torch.matmul((Ws_BD[:, None] + Uh_BMD).tanh(), v_D)


def attend(e_BM: Tensor, h_BMD: Tensor) -> Tensor:
    """a = sum of softmax(e) h; with nothing to look at it is zero."""
    w_BM = tap("attention", F.softmax(e_BM, -1))
    return torch.einsum("bm,bmd->bd", w_BM, h_BMD)
