"""The cross-entropy of rows of logits and its gradient, on a GPU, in one reading of the logits from its memory.

N rows, V vocabulary.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc, unused-ignore"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 4096, 4  # logits of a row taken at once, and by how many warps: the fastest on an H200


@triton.jit
def _row(z_ptr, target_ptr, nats_ptr, V, ignore, BLOCK: tl.constexpr):
    """One row a program: first log Σ exp z, then softmax(z) - onehot(target) in the place of z.

    A row is small enough to be still in the cache when it is read again.
    """
    row = tl.program_id(0)
    target = tl.load(target_ptr + row)
    scored = target != ignore
    z_ptr += row.to(tl.int64) * V
    column = tl.arange(0, BLOCK)
    right = tl.load(z_ptr + tl.where(scored, target, 0)).to(tl.float32)
    most = tl.full((), -float("inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, V, BLOCK):
        z = tl.load(z_ptr + start + column, mask=start + column < V, other=-float("inf")).to(tl.float32)
        new = tl.maximum(most, tl.max(z))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(z - new))
        most = new
    lse = most + tl.log(total)
    tl.store(nats_ptr + row, tl.where(scored, lse - right, 0.0))
    for start in range(0, V, BLOCK):
        inside = start + column < V
        z = tl.load(z_ptr + start + column, mask=inside, other=-float("inf")).to(tl.float32)
        dz = tl.exp(z - lse) - tl.where(start + column == target, 1.0, 0.0)
        tl.store(z_ptr + start + column, tl.where(scored, dz, 0.0).to(z_ptr.dtype.element_ty), mask=inside)


def nats_and_gradient(z_NV: Tensor, target_N: Tensor, ignore: int) -> Tensor:
    """nats_N in single precision; z_NV, which must lie row after row, becomes its own gradient."""
    nats_N = torch.empty(len(z_NV), dtype=torch.float32, device=z_NV.device)
    _row[(len(z_NV),)](z_NV, target_N, nats_N, z_NV.shape[1], ignore, BLOCK=BLOCK, num_warps=WARPS)
    return nats_N
