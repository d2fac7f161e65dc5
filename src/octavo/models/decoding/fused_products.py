"""The products of a step, each with its norm before it or what it is added to after it.

N rows (tokens of a batch), D width, E outputs, F inner width. Matrices are made ready once and read many times.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops.feed_forward import ACTIVATIONS

# For several rows, a product with a matrix in oneDNN's own order takes hardly longer than for one, where the usual
# ones pack the matrix each time. A call of it costs some 10 µs more, which only large matrices make up for.
PACKED = 1 << 18  # weights; of more, a matrix is packed
ROWS = 8  # that it is packed for; it serves any number
LEAST = 4  # rows: fewer take longer than four, so zeros are put below them


def made_ready(weight_ED: Tensor, by_hand: bool) -> Tensor:
    """The matrix as `product` wants it: packed, or in the order in which a row of x is multiplied by it.

    On a CPU the latter is a tenth faster than a view of the matrix turned round.
    """
    if weight_ED.numel() > PACKED and weight_ED.dtype == torch.float32 and _packs(weight_ED.device):
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_ED.detach().contiguous(), ROWS)
        return packed
    weight_DE: Tensor = weight_ED.t()
    return weight_DE.contiguous() if by_hand else weight_DE


def _packs(device: torch.device) -> bool:
    """Whether torch was built with oneDNN, and still has the calls that its own compiler uses."""
    return (
        device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def product(weight: Tensor, bias_E: Tensor | None, x_ND: Tensor) -> Tensor:
    """W x + b."""
    if weight.is_mkldnn:
        rows = len(x_ND)
        x_ND = x_ND if rows >= LEAST else F.pad(x_ND, (0, 0, 0, LEAST - rows))
        y_NE: Tensor = torch.ops.mkldnn._linear_pointwise(x_ND, weight, bias_E, "none", [], "")
        return y_NE[:rows]
    return torch.mm(x_ND, weight) if bias_E is None else torch.addmm(bias_E, x_ND, weight)


def written(weight: Tensor, bias_E: Tensor | None, y_NE: Tensor, x_ND: Tensor) -> Tensor:
    """W x + b, into y."""
    if weight.is_mkldnn:
        return y_NE.copy_(product(weight, bias_E, x_ND))
    return torch.mm(x_ND, weight, out=y_NE) if bias_E is None else torch.addmm(bias_E, x_ND, weight, out=y_NE)


def added(weight: Tensor, bias_D: Tensor | None, x_ND: Tensor, y_NF: Tensor) -> Tensor:
    """x + W y + b; x is the stream's own, so it may be changed."""
    if weight.is_mkldnn:
        return x_ND.add_(product(weight, bias_D, y_NF))
    x_ND.addmm_(y_NF, weight)
    return x_ND if bias_D is None else x_ND.add_(bias_D)


def unit(eps: Tensor, x_ND: Tensor) -> Tensor:
    """x / sqrt(|x|² + eps²): the root of D and the norm's weights are in the matrix that follows."""
    length_N1: Tensor = torch.linalg.vector_norm(x_ND, 2, -1, True)
    return x_ND / length_N1.hypot_(eps)


def gated(weight: Tensor, x_ND: Tensor) -> Tensor:
    """SwiGLU's inner layer; the gate's rows come first."""
    gate_NF, up_NF = product(weight, None, x_ND).chunk(2, -1)
    return F.silu(gate_NF).mul_(up_NF)


def activated(activation: Callable[[Tensor], Tensor], weight: Tensor, bias_F: Tensor | None, x_ND: Tensor) -> Tensor:
    """The inner layer of an MLP."""
    return activation(product(weight, bias_F, x_ND))


def squared_relu_(x: Tensor) -> Tensor:
    """In place."""
    x.relu_()
    return x.mul_(x)  # a third of what square_ takes


ACTIVATIONS_IN_PLACE = ACTIVATIONS | {"relu2": squared_relu_}  # of what nobody else holds
