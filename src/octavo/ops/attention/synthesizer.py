"""Synthesizers: attention weights that do not depend on keys.

B batch, H heads, T queries, S keys, K hidden units of a head, V size of a value. The queries are the last T of
the S positions.

    dense        logits_ts = W2_s · relu(W1 x_t)      the token alone decides, position by position
    random       logits_ts = R_ts                     only the position does: learnt, or drawn once

The fused kernels of softmax attention make their logits from queries and keys and never hold them all. Here the logits
are given, T x S of them, so there is nothing left to fuse away: the fast path is a softmax and a matrix product. For
logits that all rows of a batch share it does the softmax once, and one product a head for the whole batch.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.tracing import tap

Path = Literal["auto", "plain"]


def dense_logits(h_BHTK: Tensor, places_HSK: Tensor) -> Tensor:
    """logits_BHTS = relu(h_t) · place_s: h = W1 x of each token, places = W2, a row for each key position."""
    return torch.einsum("bhtk,hsk->bhts", h_BHTK.relu(), places_HSK.to(h_BHTK.dtype))


def synthesizer_weights(logits: Tensor) -> Tensor:
    """softmax over the keys not after the query, of logits_BHTS or logits_HTS; at least in single precision."""
    T, S = logits.shape[-2:]
    if T > S:
        raise UserError(f"the queries are the last of the keys: T={T} queries, S={S} keys; give logits of T <= S")
    future_TS = torch.ones(T, S, dtype=torch.bool, device=logits.device).triu(S - T + 1)
    wide = torch.promote_types(logits.dtype, torch.float32)
    return logits.masked_fill(future_TS, -torch.inf).softmax(-1, dtype=wide)


def synthesize(logits: Tensor, v_BHSV: Tensor, *, path: Path = "auto") -> Tensor:
    """y_BHTV = softmax(logits, causal) v; logits_BHTS, or logits_HTS that all rows of the batch share."""
    expected = (*v_BHSV.shape[:2], logits.shape[-2], v_BHSV.shape[2])[-logits.dim() :]
    if logits.dim() not in (3, 4) or logits.shape != expected:
        shapes = f"logits {tuple(logits.shape)}, v {tuple(v_BHSV.shape)}"
        raise UserError(f"logits must be (B, H, T, S) or (H, T, S) for v of (B, H, S, V): {shapes}; cut S alike")
    if path == "plain":
        return plain(logits, v_BHSV)
    a = synthesizer_weights(logits).to(v_BHSV.dtype)
    if not torch.compiler.is_compiling():  # a compiler cannot follow taps
        tap("attention", a.expand(len(v_BHSV), *a.shape[-3:]))
    return a @ v_BHSV if a.dim() == 4 else torch.einsum("hts,bhsv->bhtv", a, v_BHSV)


def plain(logits: Tensor, v_BHSV: Tensor) -> Tensor:
    """y_t = sum over s <= t of exp(logits_ts) v_s / sum over s <= t of exp(logits_ts), a query at a time."""
    T, S = logits.shape[-2:]
    y = []
    for t in range(T):
        seen = S - T + t + 1
        e = logits[..., t, :seen].exp()
        y.append(((e / e.sum(-1, keepdim=True))[..., None] * v_BHSV[:, :, :seen]).sum(-2))
    return torch.stack(y, 2)
