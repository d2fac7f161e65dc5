"""The delta rule inside chunks, solved for every state before them (the WY form).

B batch, H heads, N chunks of C tokens, K size of a key, V size of a value.

What is written, U, solves a triangular system: (I + L) U = β (V - exp(G) K S), L = β K Kᵀ below the diagonal, decayed.
It is linear in S, so U = U' - W S with U' and W of all chunks at once: the product of the chunk's I - β k kᵀ is
I - Kᵀ W.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def wy_form(
    k_BHNCK: Tensor, v_BHNCV: Tensor, beta_BHNC1: Tensor, decay_BHNC1: Tensor,
    products: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """U' and W; `products` are the decayed ones of all pairs of a chunk, decay = exp(G)."""
    L_BHNCC = beta_BHNC1 * products(k_BHNCK, k_BHNCK)
    rest_BHNCW = beta_BHNC1 * torch.cat([v_BHNCV, k_BHNCK * decay_BHNC1], -1)
    both_BHNCW: Tensor = torch.linalg.solve_triangular(L_BHNCC, rest_BHNCW, upper=False, unitriangular=True)
    u_BHNCV, w_BHNCK = both_BHNCW.split([v_BHNCV.shape[-1], k_BHNCK.shape[-1]], -1)
    return u_BHNCV, w_BHNCK
