"""Recurrent networks: the equations of one step, and whole layers by whichever path is fastest.

T time, B batch, I inputs, D hidden units; G is D for the RNN, 3D (r, z, n) for the GRU, 4D (i, f, g, o) for the LSTM.
The weights are those of `torch.nn.RNN`, `GRU` and `LSTM`, in their order.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops.backprop_through_time import BY_HAND
from octavo.ops.tracing import is_tracing, tap

Cell = Literal["rnn", "gru", "lstm"]
Path = Literal["auto", "plain", "by_hand", "fused"]
State = Any  # h_BD of an RNN or GRU, (h_BD, c_BD) of an LSTM

GATES: dict[Cell, int] = {"rnn": 1, "gru": 3, "lstm": 4}


class Weights(NamedTuple):
    """What one layer learns."""

    ih_GI: Tensor
    hh_GD: Tensor
    bias_ih_G: Tensor
    bias_hh_G: Tensor


def rnn_after(Wx_BD: Tensor, h_BD: Tensor, w: Weights) -> Tensor:
    """h' = tanh(W x + U h)."""
    Uh_BD = F.linear(h_BD, w.hh_GD, w.bias_hh_G)
    return tap("hidden", (Wx_BD + Uh_BD).tanh())


def gru_after(Wx_BG: Tensor, h_BD: Tensor, w: Weights) -> Tensor:
    """h' = (1 - z) n + z h, where r says how much of the past the candidate n sees."""
    Wr, Wz, Wn = Wx_BG.chunk(3, -1)
    Ur, Uz, Un = F.linear(h_BD, w.hh_GD, w.bias_hh_G).chunk(3, -1)
    r = tap("reset", (Wr + Ur).sigmoid())
    z = tap("update", (Wz + Uz).sigmoid())
    n = tap("candidate", (Wn + r * Un).tanh())
    return tap("hidden", (1 - z) * n + z * h_BD)


def lstm_after(Wx_BG: Tensor, state: tuple[Tensor, Tensor], w: Weights) -> tuple[Tensor, Tensor]:
    """c' = f c + i g and h' = o tanh(c')."""
    h, c = state
    a_BG = Wx_BG + F.linear(h, w.hh_GD, w.bias_hh_G)
    ai, af, ag, ao = a_BG.chunk(4, -1)
    i = tap("input", ai.sigmoid())
    f = tap("forget", af.sigmoid())
    g = tap("candidate", ag.tanh())
    o = tap("output", ao.sigmoid())
    c = tap("cell", f * c + i * g)
    h = tap("hidden", o * c.tanh())
    return h, c


AFTER: dict[Cell, Any] = {"rnn": rnn_after, "gru": gru_after, "lstm": lstm_after}  # the step once W x is known


def step(cell: Cell, x_BI: Tensor, state: State, w: Weights) -> State:
    """The state after one more input."""
    return AFTER[cell](F.linear(x_BI, w.ih_GI, w.bias_ih_G), state, w)


rnn_step, gru_step, lstm_step = partial(step, "rnn"), partial(step, "gru"), partial(step, "lstm")


def layer(cell: Cell, x_TBI: Tensor, state: State, w: Weights, path: Path = "auto") -> tuple[Tensor, State]:
    """h_TBD after each of the inputs, and the last state; every path gives the same."""
    chosen = choose(cell, x_TBI) if path == "auto" else path
    if not len(x_TBI):
        return x_TBI.new_empty(*x_TBI.shape[:2], w.hh_GD.shape[1]), state
    return {"plain": plain_layer, "by_hand": by_hand_layer, "fused": fused_layer}[chosen](cell, x_TBI, state, w)


def choose(cell: Cell, x_TBI: Tensor) -> Path:
    """The path that has the gates while they are traced, otherwise the fastest."""
    if is_tracing():
        return "plain"
    return "by_hand" if x_TBI.device.type == "cpu" and cell in BY_HAND and torch.is_grad_enabled() else "fused"


def plain_layer(cell: Cell, x_TBI: Tensor, state: State, w: Weights) -> tuple[Tensor, State]:
    """One step after the other: the definition."""
    h_TBD = []
    for x_BI in x_TBI.unbind(0):
        state = step(cell, x_BI, state, w)
        h_TBD.append(state[0] if cell == "lstm" else state)
    return torch.stack(h_TBD), state


def by_hand_layer(cell: Cell, x_TBI: Tensor, state: State, w: Weights) -> tuple[Tensor, State]:
    """The gradient as derived in `backprop_through_time`; products in low precision where autocast asks for it."""
    device = x_TBI.device.type
    low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    with torch.autocast(device, enabled=False):
        h_TBD = BY_HAND[cell].apply(low, x_TBI.to(w.hh_GD.dtype), state.to(w.hh_GD.dtype), *w)
    return h_TBD, h_TBD[-1]


def fused_layer(cell: Cell, x_TBI: Tensor, state: State, w: Weights) -> tuple[Tensor, State]:
    """PyTorch's own kernels: cuDNN on a GPU, ATen and oneDNN on a CPU."""
    run: Any = {"rnn": torch.rnn_tanh, "gru": torch.gru, "lstm": torch.lstm}[cell]
    training = torch.is_grad_enabled()
    weights = _side_by_side(w) if x_TBI.is_cuda else list(w)
    begin = tuple(part[None] for part in state) if cell == "lstm" else state[None]
    has_bias, layers, dropout, bidirectional, batch_first = True, 1, 0.0, False, False
    h_TBD, *last = run(x_TBI, begin, weights, has_bias, layers, dropout, training, bidirectional, batch_first)
    return h_TBD, (last[0][0], last[1][0]) if cell == "lstm" else last[0][0]


def _side_by_side(w: Weights) -> list[Tensor]:
    """The weights as pieces of one block of memory, which cuDNN asks for."""
    block = torch.cat([tensor.flatten() for tensor in w])
    pieces = block.split([tensor.numel() for tensor in w])
    return [piece.view_as(tensor) for piece, tensor in zip(pieces, w, strict=True)]
