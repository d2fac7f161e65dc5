"""An LSTM layer whose products PyTorch's counter sees: the kernel that models use shows nothing of itself.

T time, B batch, I inputs, D hidden units, G = 4 D gates (i, f, g, o).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from octavo.ops import recurrent
from octavo.ops.recurrent import Cell, State, Weights


class LSTMThroughTime(Function):
    """c = f c_{t-1} + i g; h = o tanh(c). Saved are the states, with those before the first, and the gates.

    dc = (from t + 1) + (1 - tanh²(c)) o dh        dc_{t-1} = f dc
    dai = i (1 - i) g dc                           daf = f (1 - f) c_{t-1} dc
    dag = (1 - g²) i dc                            dao = o (1 - o) tanh(c) dh
    dh_{t-1} = (from the loss) + Uᵀ (dai, daf, dag, dao)
    """

    @staticmethod
    def forward(ctx: Any, x_TBI: Tensor, h_BD: Tensor, c_BD: Tensor, *w: Tensor) -> tuple[Tensor, Tensor]:
        ih, hh, bias_ih, bias_hh = w
        gates_TBG = torch.addmm(bias_ih + bias_hh, x_TBI.flatten(0, 1), ih.t()).unflatten(0, x_TBI.shape[:2])
        T, (B, D) = len(x_TBI), h_BD.shape
        h_TBD, c_TBD, tanh_c_TBD = (x_TBI.new_empty(n, B, D) for n in (T + 1, T + 1, T))
        h_TBD[0], c_TBD[0] = h_BD, c_BD
        for t in range(T):
            ai, af, ag, ao = (gates_TBG[t] + torch.mm(h_TBD[t], hh.t())).chunk(4, -1)
            gates_TBG[t] = torch.cat([ai.sigmoid(), af.sigmoid(), ag.tanh(), ao.sigmoid()], -1)
            i, f, g, o = gates_TBG[t].chunk(4, -1)
            c_TBD[t + 1] = f * c_TBD[t] + i * g
            tanh_c_TBD[t] = c_TBD[t + 1].tanh()
            h_TBD[t + 1] = o * tanh_c_TBD[t]
        ctx.save_for_backward(x_TBI, h_TBD, c_TBD, tanh_c_TBD, ih, hh, gates_TBG)
        return h_TBD[1:], c_TBD[-1].clone()

    @staticmethod
    def backward(ctx: Any, dout_TBD: Tensor, dc_BD: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x_TBI, h_TBD, c_TBD, tanh_c_TBD, ih, hh, gates_TBG = ctx.saved_tensors
        da_TBG, dh, dc = torch.empty_like(gates_TBG), torch.zeros_like(h_TBD[0]), dc_BD
        for t in reversed(range(len(x_TBI))):
            i, f, g, o = gates_TBG[t].chunk(4, -1)
            dh = dh + dout_TBD[t]
            dc = dc + (1 - tanh_c_TBD[t] ** 2) * o * dh
            da = [
                i * (1 - i) * g * dc,
                f * (1 - f) * c_TBD[t] * dc,
                (1 - g**2) * i * dc,
                o * (1 - o) * tanh_c_TBD[t] * dh,
            ]
            da_TBG[t] = torch.cat(da, -1)
            dc, dh = f * dc, torch.mm(da_TBG[t], hh)
        da_NG, x_NI, h_ND = (tensor.flatten(0, 1) for tensor in (da_TBG, x_TBI, h_TBD[:-1]))
        dx = torch.mm(da_NG, ih).view_as(x_TBI) if ctx.needs_input_grad[0] else None
        return dx, dh, dc, torch.mm(da_NG.t(), x_NI), torch.mm(da_NG.t(), h_ND), da_NG.sum(0), da_NG.sum(0)


def lstm_layer(x_TBI: Tensor, state: tuple[Tensor, Tensor], w: Weights) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """h_TBD after each of the inputs, and the last state."""
    h_TBD, c_BD = LSTMThroughTime.apply(x_TBI, *state, *w)
    return h_TBD, (h_TBD[-1], c_BD)


def show_products(patch: pytest.MonkeyPatch) -> None:
    """Let recurrent layers take the path whose products can be counted."""
    of_others = recurrent.by_hand_layer

    def by_hand(cell: Cell, x_TBI: Tensor, state: State, w: Weights) -> tuple[Tensor, State]:
        return lstm_layer(x_TBI, state, w) if cell == "lstm" else of_others(cell, x_TBI, state, w)

    patch.setattr(recurrent, "choose", lambda cell, x_TBI: "by_hand")
    patch.setattr(recurrent, "by_hand_layer", by_hand)
