"""What training makes smaller. B batch, T time, V vocabulary."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.core import LanguageModel, map_state


class NextToken(nn.Module):
    """The nats a model pays for the tokens of a window, in sum; the begin token is never charged. The state that it
    leaves to the next window has no gradient: training goes back in time to the beginning of the window.

    A module, because torch's tools for several processes and for compiling wrap a module's forward.
    """

    def __init__(self, model: LanguageModel[Any], smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, state: Any, x_BT: Tensor) -> tuple[Tensor, Any]:
        logits_BTV, state = self.model.absorb(state, x_BT[:, :-1])
        nats = F.cross_entropy(
            logits_BTV.flatten(0, 1).float() if logits_BTV.dtype != torch.float64 else logits_BTV.flatten(0, 1),
            x_BT[:, 1:].flatten(), ignore_index=self.model.begin, reduction="sum", label_smoothing=self.smoothing,
        )  # fmt: skip
        return nats, map_state(state, Tensor.detach)
