"""What training makes smaller. B batch, T time, V vocabulary, D width."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from octavo.core import LanguageModel, map_state
from octavo.ops import cross_entropy


class NextToken(nn.Module):
    """The nats a model pays for the tokens of a window, in sum; the begin token is never charged. The state that it
    leaves to the next window has no gradient: training goes back in time to the beginning of the window.

    A module, because torch's tools for several processes and for compiling wrap a module's forward.
    """

    def __init__(self, model: LanguageModel[Any], smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, state: Any, x_BT: Tensor) -> tuple[Tensor, Any]:
        model, target_N = self.model, x_BT[:, 1:].flatten()
        if hasattr(model, "output_weight"):  # logits are a product, which is not formed at once for a large vocabulary
            return self._from_vectors(model, state, x_BT)
        logits_BTV, state = model.absorb(state, x_BT[:, :-1])
        nats = cross_entropy.nats_of(logits_BTV.flatten(0, 1), target_N, model.begin, self.smoothing)
        return nats, map_state(state, Tensor.detach)

    def _from_vectors(self, model: Any, state: Any, x_BT: Tensor) -> tuple[Tensor, Any]:
        """The same from `read`'s vectors and the model's `output_weight`."""
        h_BTD, state = model.read(state, x_BT[:, :-1])
        target_N = x_BT[:, 1:].flatten()
        nats = cross_entropy.nats(h_BTD.flatten(0, 1), model.output_weight, target_N, model.begin, self.smoothing)
        return nats, map_state(state, Tensor.detach)
