"""What all forms of linear attention share: the precision of their sums, their chunks, the shapes that they take.

B batch, H heads, T tokens, N chunks of C tokens, K features.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError


def wide_enough(*inputs: Tensor) -> torch.dtype:
    """The precision of sums over these: theirs, but single at least."""
    return reduce(torch.promote_types, (one.dtype for one in inputs), torch.float32)


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Within it, products have the precision of what goes in."""
    kind = x.device.type
    lowers = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if lowers else nullcontext()


def in_chunks(x_BHTK: Tensor, chunk: int) -> Tensor:
    """x_BHNCK, with zeros after the end: a key of zeros adds nothing to any sum."""
    N = -(-x_BHTK.shape[2] // chunk)
    x_BHNCK: Tensor = F.pad(x_BHTK, (0, 0, 0, N * chunk - x_BHTK.shape[2])).unflatten(2, (N, chunk))
    return x_BHNCK


def check_shapes(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTV: Tensor) -> None:
    """Refuse queries, keys and values that do not belong together."""
    if q_BHTK.dim() != 4 or q_BHTK.shape != k_BHTK.shape or q_BHTK.shape[:3] != v_BHTV.shape[:3]:
        shapes = f"q {tuple(q_BHTK.shape)}, k {tuple(k_BHTK.shape)}, v {tuple(v_BHTV.shape)}"
        raise UserError(f"q and k must have shape (B, H, T, K) and v (B, H, T, V): {shapes}; repeat shared heads first")
