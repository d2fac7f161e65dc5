"""Decoding one sequence with a GRU by compiled loops; its gates are held, so that the gradient needs no second pass.

T time, D hidden units, G = 3 D, V vocabulary, Y layers.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel, Session
from octavo.errors import UserError
from octavo.models.recurrent import GRU
from octavo.ops import recurrent_loops as loops
from octavo.ops.backprop_through_time import GRURecorded
from octavo.ops.compiled import HAS_NUMBA

FIRST_TOKENS = 64  # that there is room for in the beginning


def has_loops(model: LanguageModel[Any], state: Any) -> bool:
    """Whether the model is a GRU whose state is of one sequence, on a CPU with compiled loops."""
    if not HAS_NUMBA or not isinstance(model, GRU):
        return False
    h_BD = state[0]
    return len(h_BD) == 1 and h_BD.device.type == "cpu" and h_BD.dtype in (torch.float32, torch.float64)


class GRUSession(Session[Any]):
    """The states and gates of all tokens since it was opened; taking some back is forgetting the last of them."""

    def __init__(self, model: GRU, state: Any, tokens: int = FIRST_TOKENS) -> None:
        self.model: GRU = model
        layers = [layer.weights for layer in model.layers]
        self.embedding_VD = model.embedding_VD.detach().numpy()
        self.output_DV = arrays([model.embedding_VD if model.output_VD is None else model.output_VD])[0]
        self.output_bias_V = model.output_bias_V.detach().numpy()
        self.ih_YDG, self.hh_YDG = arrays([w.ih_GI for w in layers]), arrays([w.hh_GD for w in layers])
        D = model.config.width
        bias_ih_YG = np.stack([w.bias_ih_G.detach().numpy() for w in layers])
        self.bias_YG = np.stack([w.bias_hh_G.detach().numpy() for w in layers])
        self.bias_YG[:, : 2 * D] += bias_ih_YG[:, : 2 * D]  # of u its own alone: r is multiplied to that
        self.bias_n_YD = np.ascontiguousarray(bias_ih_YG[:, 2 * D :])
        self.wx_VG = np.empty((model.vocab + 1, 3 * D), self.ih_YDG.dtype)
        self.known_V = np.zeros(model.vocab, np.bool_)
        self._make_room(min(tokens, FIRST_TOKENS))
        self.state = state

    @property
    def state(self) -> Any:
        return tuple(torch.from_numpy(h_TD[self.count : self.count + 1].copy()) for h_TD in self.h_YTD)

    @state.setter
    def state(self, state: Any) -> None:
        self.count = 0  # of the tokens processed
        for h_TD, h_1D in zip(self.h_YTD, state, strict=True):
            h_TD[0] = h_1D[0].detach().numpy()

    def step(self, x_B: Tensor) -> Tensor:
        if self.count == len(self.n_YTD[0]):
            self._make_room(2 * self.count)
        loops.gru_token(
            int(x_B[0]), self.count, self.embedding_VD, self.ih_YDG, self.hh_YDG, self.bias_YG, self.bias_n_YD,
            self.wx_VG, self.known_V, self.h_YTD, self.rzu_YTG, self.n_YTD,
        )  # fmt: skip
        self.count += 1
        logits_V = self.output_bias_V.copy()
        loops.add_product(logits_V, self.output_DV, self.h_YTD[-1, self.count])
        return torch.from_numpy(logits_V)[None]

    def absorb(self, x_BT: Tensor) -> Tensor:
        self.calls += 1
        if not x_BT.shape[1]:
            return self.model.absorb(self.state, x_BT)[0]
        return torch.stack([self.step(x_B) for x_B in x_BT.unbind(1)], 1)

    def absorb_again(self, model: GRU, state: Any, x_1S: Tensor) -> tuple[Tensor, Any]:
        """What `model.absorb` gives for the tokens processed here, without computing their states and gates again."""
        y_TBD = model.embed(x_1S.t())
        for layer, *recorded in zip(model.layers, self.h_YTD, self.rzu_YTG, self.n_YTD, strict=True):
            h_TD, rzu_TG, n_TD = (torch.from_numpy(part) for part in recorded)
            T = len(y_TBD)
            y_TBD = GRURecorded.apply((h_TD[: T + 1, None], rzu_TG[:T, None], n_TD[:T, None]), y_TBD, *layer.weights)
        return model.logits(y_TBD.transpose(0, 1)), self.state

    def rewind(self, count: int) -> None:
        if not 0 <= count <= self.count:
            raise UserError(f"only the last {self.count} tokens can be taken back: count={count}; fork before instead")
        self.count -= count

    def fork(self) -> GRUSession:
        other = copy(self)  # the weights and the products with them are shared
        other.h_YTD, other.rzu_YTG, other.n_YTD = self.h_YTD.copy(), self.rzu_YTG.copy(), self.n_YTD.copy()
        return other

    def _make_room(self, tokens: int) -> None:
        """For so many tokens, beginning with those that were processed."""
        Y, D, G = self.hh_YDG.shape
        old = (self.h_YTD, self.rzu_YTG, self.n_YTD) if hasattr(self, "h_YTD") else ()
        dtype = self.hh_YDG.dtype
        self.h_YTD = np.zeros((Y, tokens + 1, D), dtype)
        self.rzu_YTG, self.n_YTD = np.zeros((Y, tokens, G), dtype), np.zeros((Y, tokens, D), dtype)
        for part, before in zip((self.h_YTD, self.rzu_YTG, self.n_YTD), old, strict=False):
            part[:, : before.shape[1]] = before


def arrays(matrices: list[Tensor]) -> Any:
    """Matrices, each turned around, as one array."""
    return torch.stack([matrix.detach().t() for matrix in matrices]).numpy()
