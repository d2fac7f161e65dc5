"""Muon on many matrices at once.

M matrices of one shape (R rows, C columns).
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Muon

from octavo.training.distributed import is_sharded


class StackedMuon(Muon):
    """PyTorch's Muon (the reference implementation) with matrices of the same shape stacked: a tenth of the calls,
    which is what small models spend their time on. Matrices that are divided among processes are left to PyTorch.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            with_grad = [parameter for parameter in group["params"] if parameter.grad is not None]
            if any(is_sharded(parameter) for parameter in with_grad):
                super().step(closure)  # type: ignore[no-untyped-call]
                return
            shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in with_grad:
                shapes[parameter.shape].append(parameter)
            for alike in shapes.values():
                self._step(alike, group)

    def _step(self, alike: list[nn.Parameter], group: dict[str, Any]) -> None:
        for parameter in alike:
            if not self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        grads: list[Any] = [parameter.grad for parameter in alike]
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in alike]
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        ahead = torch._foreach_lerp(grads, buffers, group["momentum"]) if group["nesterov"] else buffers
        updates_MRC = orthogonal(torch.stack(list(ahead)), group["ns_coefficients"], group["ns_steps"], group["eps"])
        R, C = alike[0].shape
        weights: list[Any] = list(alike)
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        rate = group["lr"] * math.sqrt(max(1.0, R / C))
        torch._foreach_add_(weights, list(updates_MRC.to(alike[0].dtype).unbind(0)), alpha=-rate)


def orthogonal(g_MRC: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Nearly the orthogonal matrix next to each g, by Newton and Schulz's iteration: X' = a X + (b A + c A²) X, where
    A = X Xᵀ.
    """
    a, b, c = coefficients
    x = g_MRC.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT.contiguous() if tall else x
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=eps)
    for _ in range(steps):
        A = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(A, A, A, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
