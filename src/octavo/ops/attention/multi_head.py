"""Multi-head attention written three ways: heads concatenated, as a sum over heads, and, with the attention weights
held fixed, as one (N D × N D) matrix.

B batch, N tokens, D width, H heads, G key and value heads (G divides H), K = D / H, E = G × K. Weights are (out, in).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.attention.dispatch import Path, attend
from octavo.ops.attention.patterns import FULL, Pattern
from octavo.ops.attention.reference import attention_weights, for_each_head


class Heads(NamedTuple):
    """The weights of a multi-head attention layer, and its number of heads."""

    heads: int
    query_DD: Tensor
    key_ED: Tensor
    value_ED: Tensor
    out_DD: Tensor
    query_bias_D: Tensor | None = None
    key_bias_E: Tensor | None = None
    value_bias_E: Tensor | None = None
    out_bias_D: Tensor | None = None


def concatenated(
    x_BND: Tensor, w: Heads, pattern: Pattern = FULL, *,
    bias_HTS: Tensor | None = None, path: Path = "auto", dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """Y = [Y_1 ... Y_H] W_o, where Y_h = A_h X W_v,h: the heads side by side, as they are computed."""
    q_BHNK, k_BGNK = queries_and_keys(x_BND, w)
    v_BGNK = split(F.linear(x_BND, w.value_ED, w.value_bias_E), size(w))
    y_BHNK = attend(q_BHNK, k_BGNK, v_BGNK, pattern, bias_HTS=bias_HTS, path=path, dropout=dropout)
    return F.linear(y_BHNK.transpose(1, 2).flatten(2), w.out_DD, w.out_bias_D)


def summed(x_BND: Tensor, w: Heads, pattern: Pattern = FULL, *, bias_HTS: Tensor | None = None) -> Tensor:
    """Y = sum over heads of A_h X (W_v,h W_o,h): each head has one D × D matrix of its own."""
    a_BHNN = maps(x_BND, w, pattern, bias_HTS)
    y_BND = torch.einsum("bhnm,bme,hde->bnd", a_BHNN, x_BND, folded(w))
    return y_BND + offset(a_BHNN, w)


def layer_matrix(maps_HNN: Tensor, w: Heads) -> Tensor:
    """M = sum over heads of A_h ⊗ (W_v,h W_o,h)ᵀ (Kronecker products): the first factor mixes tokens, the second the
    numbers of each. With the maps held fixed, vec(Y) = M vec(X) + offset, where vec puts the rows end to end.
    """
    return torch.einsum("hnm,hde->ndme", maps_HNN, folded(w)).flatten(2).flatten(0, 1)


def maps(x_BND: Tensor, w: Heads, pattern: Pattern = FULL, bias_HTS: Tensor | None = None) -> Tensor:
    """a_BHNN, the attention weights of each head."""
    return attention_weights(*queries_and_keys(x_BND, w), pattern, bias_HTS)


def queries_and_keys(x_BND: Tensor, w: Heads) -> tuple[Tensor, Tensor]:
    """q_BHNK and k_BGNK."""
    q_BND = F.linear(x_BND, w.query_DD, w.query_bias_D)
    k_BNE = F.linear(x_BND, w.key_ED, w.key_bias_E)
    return split(q_BND, size(w)), split(k_BNE, size(w))


def folded(w: Heads) -> Tensor:
    """folded_HDD: (W_v,h W_o,h)ᵀ, (out, in) like every weight; its rank is at most K, however wide the layer."""
    v_HKD = for_each_head(w.value_ED.unflatten(0, (-1, size(w)))[None], w.heads)[0]
    return outputs(w) @ v_HKD


def outputs(w: Heads) -> Tensor:
    """out_HDK: the columns of the output matrix that each head's values meet."""
    return torch.stack(w.out_DD.chunk(w.heads, 1))


def offset(a_BHNN: Tensor, w: Heads) -> Tensor:
    """What the biases add to each token: that of the values through each head's row of weights, and the output's."""
    bias_D = w.out_DD.new_zeros(len(w.out_DD)) if w.out_bias_D is None else w.out_bias_D
    if w.value_bias_E is None:
        return bias_D.expand(*a_BHNN.shape[:-3], a_BHNN.shape[-1], -1)
    v_HK = for_each_head(w.value_bias_E.unflatten(0, (-1, size(w)))[None], w.heads)[0]
    return torch.einsum("...hnm,hdk,hk->...nd", a_BHNN, outputs(w), v_HK) + bias_D


def split(x_BNE: Tensor, K: int) -> Tensor:
    """x_BGNK: the numbers of each head by themselves."""
    x_BNGK: Tensor = x_BNE.unflatten(-1, (-1, K))
    return x_BNGK.transpose(1, 2)


def size(w: Heads) -> int:
    """K, the numbers of a query, key or value of one head."""
    D = len(w.query_DD)
    if D % w.heads:
        raise UserError(f"heads must divide width: width={D}, heads={w.heads}; try heads=1")
    return D // w.heads


def from_torch(state: Mapping[str, Tensor], heads: int) -> Heads:
    """The weights of a `torch.nn.MultiheadAttention`, from its state or its named parameters."""
    if "in_proj_weight" not in state or "bias_k" in state:
        found = ", ".join(sorted(state))
        raise UserError(f"keys and values must be as wide as queries, without bias_k: found {found}; leave kdim out")
    query_DD, key_DD, value_DD = state["in_proj_weight"].chunk(3)
    without_bias = Heads(heads, query_DD, key_DD, value_DD, state["out_proj.weight"])
    if "in_proj_bias" not in state:
        return without_bias
    query_D, key_D, value_D = state["in_proj_bias"].chunk(3)
    return Heads(*without_bias[:5], query_D, key_D, value_D, state["out_proj.bias"])
