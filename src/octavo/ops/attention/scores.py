"""Attention scores: how well a query matches each key.

B batch, T queries, S keys, D their size; a leading T or B may be left out wherever shapes broadcast. M remembered
states of a recurrent network.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops.tracing import tap

ScoreKind = Literal["dot", "scaled", "additive"]


def dots(q_BTD: Tensor, k_BSD: Tensor) -> Tensor:
    """e = q · k."""
    return q_BTD @ k_BSD.mT


def scaled_dots(q_BTD: Tensor, k_BSD: Tensor) -> Tensor:
    """e = q · k / sqrt(D): the scores of random vectors keep their spread as D grows."""
    return dots(q_BTD, k_BSD) / math.sqrt(q_BTD.shape[-1])


def additives(Wq_BTD: Tensor, Uk_BSD: Tensor, v_D: Tensor) -> Tensor:
    """e = v · tanh(W q + U k), of queries and keys that W and U were applied to; holds T × S × D numbers."""
    return (Wq_BTD[..., :, None, :] + Uk_BSD[..., None, :, :]).tanh() @ v_D


def weighted_sum(e_BM: Tensor, h_BMD: Tensor) -> Tensor:
    """a = sum of softmax(e) h; without any state it is zero."""
    w_BM = tap("attention", F.softmax(e_BM, -1))
    return torch.einsum("bm,bmd->bd", w_BM, h_BMD)
