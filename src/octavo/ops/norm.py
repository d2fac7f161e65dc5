"""Norms: vectors brought to a mean square of one.

D size of the vectors. What comes out has the precision of what went in, also under autocast, which by itself would make
single precision of it on a GPU: sums are kept in that by the kernels anyway.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def rms_norm(x: Tensor, weight_D: Tensor | None = None, eps: float = 1e-5, path: str = "auto") -> Tensor:
    """x / sqrt(mean of x² + eps), times the weights.

    path: plain is PyTorch's, which has a kernel for it on a GPU only; by_hand its gradient in fewer passes, which auto
    takes for training on a CPU.
    """
    by_hand = path == "by_hand" or (path == "auto" and not x.is_cuda and torch.is_grad_enabled() and x.requires_grad)
    if not by_hand:
        with _unchanged_by_autocast(x):
            return F.rms_norm(x, x.shape[-1:], weight_D, eps)
    unit: Tensor = _Unit.apply(x, eps)  # type: ignore[no-untyped-call]
    return unit if weight_D is None else unit * weight_D


def layer_norm(x: Tensor, weight_D: Tensor | None = None, bias_D: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean of x) / sqrt(variance of x + eps), times the weights, plus the biases."""
    with _unchanged_by_autocast(x):
        return F.layer_norm(x, x.shape[-1:], weight_D, bias_D, eps)


def _unchanged_by_autocast(x: Tensor) -> AbstractContextManager[Any]:
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


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
    @once_differentiable  # what is kept has no history of its own: a second derivative would be wrong
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        y, r = ctx.saved_tensors
        (dy,) = grad
        along = (dy * y).mean(-1, keepdim=True)
        return torch.addcmul(dy, y, along, value=-1) * r, None
