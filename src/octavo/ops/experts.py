"""A mixture of experts: a router chooses a few of several functions for each token, and weighs what they give.

N tokens, X experts, J of them for each token, D width. Each token is routed by itself: none is dropped, however many
choose the same expert, so that rows and times do not influence each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

Expert = Callable[[Tensor], Tensor]
ROWS = 4  # a CPU's products compute so many rows at once, and the rows that are left in another order
BALANCE_SCALE = 1e-3  # of the balance's gradient, which Adam's step does not depend on: too small to be clipped with


def route(logits_NX: Tensor, bias_X: Tensor, J: int) -> tuple[Tensor, Tensor]:
    """chosen_NJ, the experts with the highest logit plus bias, and weights_NJ = p / their sum, p = softmax(logits).

    The bias decides who is chosen, not what it counts. One expert alone counts p, or the router would learn nothing.
    """
    chosen_NJ = (logits_NX.detach() + bias_X.detach()).topk(J).indices
    p_NJ = logits_NX.softmax(-1).gather(1, chosen_NJ)
    return chosen_NJ, p_NJ / p_NJ.sum(-1, keepdim=True) if J > 1 else p_NJ


def mixed_reference(x_ND: Tensor, chosen_NJ: Tensor, weights_NJ: Tensor, experts: Sequence[Expert]) -> Tensor:
    """y_n = sum of w_nj f_e(x_n) over the experts e = chosen_nj, token by token: the equation."""
    rows = []
    for x_D, chosen_J, weights_J in zip(x_ND, chosen_NJ.tolist(), weights_NJ, strict=True):
        given = [w * experts[e](x_D) for e, w in zip(chosen_J, weights_J.unbind(), strict=True)]
        rows.append(torch.stack(given).sum(0))
    return torch.stack(rows) if rows else x_ND


def mixed(
    x_ND: Tensor, chosen_NJ: Tensor, weights_NJ: Tensor, experts: Sequence[Expert], learning: bool = False
) -> Tensor:
    """The same with tokens sorted by expert, each of which gets all of its tokens at once.

    Without `learning`, idle experts are not called, and each gets a multiple of four rows: what a token gets then does
    not depend, not even in its last bit, on how many others have chosen the same expert. With it, experts get their
    tokens alone, and idle ones none, so that every weight has a gradient, if only zero.
    """
    (N, D), J = x_ND.shape, chosen_NJ.shape[1]
    order_A = chosen_NJ.flatten().argsort(stable=True)  # A = N J pairs of a token and an expert, by expert
    sizes = chosen_NJ.flatten().bincount(minlength=len(experts)).tolist()
    x_AD = x_ND[:, None].expand(N, J, D).reshape(N * J, D)[order_A]
    parts = zip(experts, x_AD.split(sizes), strict=True)
    given = [f(x) if learning else _in_fours(f, x) for f, x in parts if len(x) or learning]
    y_NJD = torch.cat(given)[order_A.argsort()].view(N, J, D) if given else x_AD.view(N, J, D)
    return (weights_NJ.to(y_NJD.dtype)[..., None] * y_NJD).sum(1)


def mixed_by_all(x_ND: Tensor, chosen_NJ: Tensor, weights_NJ: Tensor, experts: Sequence[Expert]) -> Tensor:
    """The same where every expert processes every token: X / J times the work, in shapes that routing cannot change."""
    w_NX = weights_NJ.new_zeros(x_ND.shape[0], len(experts)).scatter(1, chosen_NJ, weights_NJ).to(x_ND.dtype)
    return torch.stack([w_N1 * f(x_ND) for f, w_N1 in zip(experts, w_NX.split(1, 1), strict=True)]).sum(0)


def _in_fours(f: Expert, x_AD: Tensor) -> Tensor:
    """f of every row, with rows of zeros below them."""
    return f(F.pad(x_AD, (0, 0, 0, -len(x_AD) % ROWS)))[: len(x_AD)]


def balance(weights_NJ: Tensor, bias_X: Tensor, chosen_NJ: Tensor) -> Tensor:
    """The weights themselves; in the backward pass the bias gets the excess of each expert's load as its gradient.

    So whatever optimizer steps against gradients lowers the bias of experts with more than their share of the tokens.
    No loss pulls at the router's weights or at what tokens are predicted.
    """
    X = len(bias_X)
    load_X = chosen_NJ.flatten().bincount(minlength=X).to(bias_X.dtype) / max(1, chosen_NJ.numel())
    balanced: Tensor = _Balanced.apply(weights_NJ, bias_X, load_X - 1 / X)  # type: ignore[no-untyped-call]
    return balanced


class _Balanced(Function):
    """The identity of its first argument; the gradient of the second is the third, whatever the loss is."""

    @staticmethod
    def forward(ctx: Any, weights_NJ: Tensor, bias_X: Tensor, excess_X: Tensor) -> Tensor:
        ctx.save_for_backward(excess_X)
        return weights_NJ.view_as(weights_NJ)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (excess_X,) = ctx.saved_tensors
        return grad[0], BALANCE_SCALE * excess_X, None
