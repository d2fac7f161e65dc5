"""Linear attention chunk by chunk: inside a chunk the map of all pairs, between chunks the state.

B batch, H heads, T tokens, N chunks of C tokens, K features, V size of a value; W is V + 1.

The cost is T (C + K) V instead of T² V or T steps after one another. The denominator is the numerator of a value that
is always one, so a column of ones beside the values carries z with S and the sums are written once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops.linear.reference import State, ratio


def chunked(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor, state: State, chunk: int) -> tuple[Tensor, State]:
    """As `parallel` and `recurrent`; any length, the last chunk is filled up with tokens that match nothing."""
    T = q_BHTK.shape[2]
    chunk = min(chunk, max(T, 1))
    S_BHKV, z_BHK = state
    S_BH1KW = torch.cat([S_BHKV, z_BHK[..., None]], -1)[:, :, None]
    w_BHTW = F.pad(v_BHTV, (0, 1), value=1.0)
    q_BHNCK, k_BHNCK, w_BHNCW = (in_chunks(x, chunk) for x in (q_BHTK, k_BHTK, w_BHTW))
    # Sums of what came before, never "up to and with this chunk, less this chunk": that would cancel digits away.
    after_BHNKW = torch.cat([S_BH1KW, k_BHNCK.mT @ w_BHNCW], 2).cumsum(2)
    num_BHNCW = (q_BHNCK @ k_BHNCK.mT).tril() @ w_BHNCW + q_BHNCK @ after_BHNKW[:, :, :-1]
    num_BHTW = num_BHNCW.flatten(2, 3)[:, :, :T]
    last_BHKW = after_BHNKW[:, :, -1]
    return ratio(num_BHTW[..., :-1], num_BHTW[..., -1:]), (last_BHKW[..., :-1], last_BHKW[..., -1])


def in_chunks(x_BHTK: Tensor, chunk: int) -> Tensor:
    """x_BHNCK, with zeros after the end: a key of zeros adds nothing to any sum."""
    N = -(-x_BHTK.shape[2] // chunk)
    x_BHNCK: Tensor = F.pad(x_BHTK, (0, 0, 0, N * chunk - x_BHTK.shape[2])).unflatten(2, (N, chunk))
    return x_BHNCK
