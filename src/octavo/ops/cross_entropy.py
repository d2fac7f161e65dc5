"""Cross-entropy loss of next tokens, chunked for large vocabularies, and with label smoothing.

N tokens, D width, V vocabulary. For a large vocabulary the logits are by far the largest tensor of training: they are
made, used and freed some rows at a time, and their gradient is taken on the way. With label smoothing they are not.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

MAX_LOGITS = {"cuda": 1 << 29, "cpu": 1 << 22}  # logits held at a time: enough to keep the device busy
SMALL = 1 << 24  # so few are held in full: the plain equation is faster


def nats(
    h_ND: Tensor, weight_VD: Tensor, target_N: Tensor, ignore: int, smoothing: float = 0.0, path: str = "auto"
) -> Tensor:
    """The sum of -log softmax(h Wᵀ)[target]; a target that is `ignore` costs nothing.

    path: plain, chunked, or auto, which takes the chunked one for many logits.
    """
    chunked = path == "chunked" or (path == "auto" and len(h_ND) * len(weight_VD) > SMALL)
    if chunked and not smoothing:
        if torch.is_grad_enabled() and (h_ND.requires_grad or weight_VD.requires_grad):
            total: Tensor = _Chunked.apply(h_ND, weight_VD, target_N, ignore)  # type: ignore[no-untyped-call]
            return total
        low, rows = _low(h_ND), _rows(weight_VD)
        parts = zip(h_ND.to(low).split(rows), target_N.split(rows), strict=True)
        w_low = weight_VD.to(low)
        return torch.stack([nats_of(F.linear(h, w_low), target, ignore) for h, target in parts]).sum()
    return nats_of(F.linear(h_ND, weight_VD), target_N, ignore, smoothing)


def nats_of(logits_NV: Tensor, target_N: Tensor, ignore: int, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of given logits, summed, in single precision at least; `smoothing` is the label smoothing."""
    logits_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    return F.cross_entropy(logits_NV, target_N, ignore_index=ignore, reduction="sum", label_smoothing=smoothing)


def _low(h_ND: Tensor) -> torch.dtype:
    """The precision that products are computed in here and now."""
    kind = h_ND.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else h_ND.dtype


def _rows(weight_VD: Tensor) -> int:
    return max(1, MAX_LOGITS.get(weight_VD.device.type, MAX_LOGITS["cpu"]) // len(weight_VD))


def _by_equation(z_NV: Tensor, target_N: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    """nats = log Σ exp z - z[target], and ∂nats/∂z = softmax(z) - onehot(target); nothing where it is ignored."""
    wide_NV = z_NV if z_NV.dtype == torch.float64 else z_NV.float()
    charged_N = target_N != ignore
    at_N1 = torch.where(charged_N, target_N, 0)[:, None]
    lse_N1 = wide_NV.logsumexp(-1, keepdim=True)
    hit_NV = torch.arange(z_NV.shape[1], device=z_NV.device) == at_N1
    dz_NV = ((wide_NV - lse_N1).exp() - hit_NV.to(wide_NV.dtype)) * charged_N[:, None]
    return (lse_N1 - wide_NV.gather(-1, at_N1)).squeeze(-1) * charged_N, dz_NV.to(z_NV.dtype)


def _by_kernel(z_NV: Tensor, target_N: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    from octavo.ops.cross_entropy_kernel import nats_and_gradient  # here, because Triton is there only with a GPU

    return nats_and_gradient(z_NV, target_N, ignore), z_NV


def _has_kernel(z_NV: Tensor) -> bool:
    return z_NV.is_cuda and z_NV.dtype != torch.float64 and find_spec("triton") is not None


class _Chunked(torch.autograd.Function):
    """∂/∂z = softmax(z) - onehot(target): known as soon as the logits z are, so they need not be kept."""

    @staticmethod
    def forward(ctx: Any, h_ND: Tensor, weight_VD: Tensor, target_N: Tensor, ignore: int) -> Tensor:
        low, rows = _low(h_ND), _rows(weight_VD)
        h_low, w_low = h_ND.to(low), weight_VD.to(low)
        wide = torch.float64 if low == torch.float64 else torch.float32
        dw_VD = torch.zeros(weight_VD.shape, dtype=wide, device=weight_VD.device)
        total, dh = torch.zeros((), dtype=wide, device=h_ND.device), []
        for h_ND_, target in zip(h_low.split(rows), target_N.split(rows), strict=True):
            z_NV = h_ND_ @ w_low.t()
            nats_N, dz_NV = (_by_kernel if _has_kernel(z_NV) else _by_equation)(z_NV, target, ignore)
            total = total + nats_N.sum()
            dh.append(dz_NV @ w_low)
            dw_VD = dw_VD + (dz_NV.t() @ h_ND_)
        ctx.save_for_backward(torch.cat(dh).to(h_ND.dtype), dw_VD.to(weight_VD.dtype))
        return total

    @staticmethod
    @once_differentiable  # the gradient is kept as a number: a second derivative would be zero
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        dh_ND, dw_VD = ctx.saved_tensors
        return dh_ND * grad[0].to(dh_ND.dtype), dw_VD * grad[0].to(dw_VD.dtype), None, None
