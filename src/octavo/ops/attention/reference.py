"""The reference implementation of attention: its equations, which every fast path is checked against.

B batch, H heads, G key and value heads (G divides H), T queries, S keys, K size of a query or key, V size of a value.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops.attention.patterns import FULL, Pattern
from octavo.ops.tracing import tap


def attend_reference(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, pattern: Pattern = FULL, *,
    bias_HTS: Tensor | None = None, scale: float | None = None, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """y = A V: a weighted mean of the values, with weights A = softmax(Q Kᵀ / sqrt(K))."""
    a_BHTS = attention_weights(q_BHTK, k_BGSK, pattern, bias_HTS, scale)
    a_BHTS = a_BHTS if torch.compiler.is_compiling() else tap("attention", a_BHTS)  # a compiler cannot follow taps
    a_BHTS = F.dropout(a_BHTS, dropout)
    v_BHSV = for_each_head(v_BGSV, q_BHTK.shape[1])
    return a_BHTS @ v_BHSV


def attention_weights(
    q_BHTK: Tensor, k_BGSK: Tensor, pattern: Pattern = FULL,
    bias_HTS: Tensor | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """a_BHTS, the attention weights: rows sum to one, or are zero where the pattern allows nothing."""
    k_BHSK = for_each_head(k_BGSK, q_BHTK.shape[1])
    e_BHTS = (q_BHTK @ k_BHSK.mT) * scale_of(q_BHTK, scale)
    e_BHTS = e_BHTS if bias_HTS is None else e_BHTS + bias_HTS
    forbidden = ~allowed(pattern.mask(q_BHTK.shape[-2], k_BGSK.shape[-2], q_BHTK.device), bias_HTS)
    e_BHTS = e_BHTS.masked_fill(forbidden, torch.finfo(e_BHTS.dtype).min)  # not -inf: a row of those would be nan
    a_BHTS = e_BHTS.softmax(-1).masked_fill(forbidden, 0.0)
    return a_BHTS


def allowed(mask_TS: Tensor, bias_HTS: Tensor | None) -> Tensor:
    """The pattern's mask without the pairs that a bias of -inf forbids."""
    return mask_TS if bias_HTS is None else mask_TS & (bias_HTS > -torch.inf)


def for_each_head(x_BGSK: Tensor, heads: int) -> Tensor:
    """x_BHSK: the keys or values that H / G heads share, once for each of them."""
    return x_BGSK.repeat_interleave(heads // x_BGSK.shape[1], 1) if heads > x_BGSK.shape[1] else x_BGSK


def scale_of(q_BHTK: Tensor, scale: float | None) -> float:
    """1 / sqrt(K), under which the scores of random vectors keep their spread as K grows, unless another is given."""
    return q_BHTK.shape[-1] ** -0.5 if scale is None else scale
