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
from octavo.ops.backprop_through_time import replay_gru_layer
from octavo.ops.compiled import HAS_NUMBA

FIRST_TOKENS = 64  # that there is room for in the beginning


def session_with_gates(model: LanguageModel[Any], state: Any, tokens: int) -> Session[Any]:
    """A session that holds the gates, of a GRU over one sequence on a CPU with compiled loops; else the model's own."""
    if HAS_NUMBA and isinstance(model, GRU):
        h_BD = state[0]
        if len(h_BD) == 1 and h_BD.device.type == "cpu" and h_BD.dtype in (torch.float32, torch.float64):
            return GRUSession(model, state, tokens)
    return model.session(state, tokens)


class GRUSession(Session[Any]):
    """The states and gates of all tokens since it was opened; taking some back is forgetting the last of them."""

    def __init__(self, model: GRU, state: Any, tokens: int = FIRST_TOKENS) -> None:
        self.model = model
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
        self.recorded = [np.zeros((len(layers), 0, size), self.hh_YDG.dtype) for size in (D, 3 * D, D)]  # h, rzu, n
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
        if self.count + 1 == self.h_YTD.shape[1]:
            self._make_room(2 * self.count + 1)
        loops.gru_token(
            int(x_B[0]), self.count, self.embedding_VD, self.ih_YDG, self.hh_YDG, self.bias_YG, self.bias_n_YD,
            self.wx_VG, self.known_V, *self.recorded,
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
        T = len(y_TBD)
        for layer, *recorded in zip(model.layers, *self.recorded, strict=True):
            h_TD, rzu_TG, n_TD = (torch.from_numpy(part) for part in recorded)
            y_TBD = replay_gru_layer((h_TD[: T + 1, None], rzu_TG[:T, None], n_TD[:T, None]), y_TBD, *layer.weights)
        return model.logits(y_TBD.transpose(0, 1)), self.state

    def rewind(self, count: int) -> None:
        if not 0 <= count <= self.count:
            raise UserError(f"only the last {self.count} tokens can be taken back: count={count}; fork before instead")
        self.count -= count

    def fork(self) -> GRUSession:
        other = copy(self)  # the weights and the products with them are shared
        other.recorded = [part.copy() for part in self.recorded]
        return other

    def _make_room(self, tokens: int) -> None:
        """For so many tokens, beginning with those that were processed."""
        Y, D, G = self.hh_YDG.shape
        sizes = ((tokens + 1, D), (tokens, G), (tokens, D))
        room = [np.zeros((Y, *size), self.hh_YDG.dtype) for size in sizes]
        for part, before in zip(room, self.recorded, strict=True):
            part[:, : before.shape[1]] = before
        self.recorded = room

    @property
    def h_YTD(self) -> loops.Array:  # noqa: N802
        """The states, with the first one in front."""
        return self.recorded[0]


def arrays(matrices: list[Tensor]) -> Any:
    """Matrices, each turned around, as one array."""
    turned = [matrix.detach().t().contiguous() for matrix in matrices]  # first, because stacking is slow at it
    return torch.stack(turned).numpy()
