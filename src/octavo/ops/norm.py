"""Norms: vectors brought to a mean square of one.

D size of the vectors.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function


def rms_norm(x: Tensor, weight_D: Tensor | None = None, eps: float = 1e-5, path: str = "auto") -> Tensor:
    """x / sqrt(mean of x² + eps), times the weights.

    path: plain is PyTorch's, which has a kernel for it on a GPU only; by_hand its gradient in fewer passes, which auto
    takes for training on a CPU.
    """
    by_hand = path == "by_hand" or (path == "auto" and not x.is_cuda and torch.is_grad_enabled() and x.requires_grad)
    if not by_hand:
        return F.rms_norm(x, x.shape[-1:], weight_D, eps)
    unit: Tensor = _Unit.apply(x, eps)  # type: ignore[no-untyped-call]
    return unit if weight_D is None else unit * weight_D


class _Unit(Function):
    """y = r x with r = 1 / sqrt(mean x² + eps), so dx = r (dy - y · mean(dy y))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        r = (length.square() / x.shape[-1] + eps).rsqrt().to(x.dtype)
        y: Tensor = x * r
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        y, r = ctx.saved_tensors
        (dy,) = grad
        along = (dy * y).mean(-1, keepdim=True)
        return torch.addcmul(dy, y, along, value=-1) * r, None
