"""The loss of language models, and their stage of training.

B streams, T time, V vocabulary, D width, P validation chunks, L tokens of a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core import LanguageModel, map_state
from octavo.cost import cost_of, one_token
from octavo.ops import cross_entropy
from octavo.training.optimizer import OptimizerConfig
from octavo.training.stage import Stage
from octavo.training.streams import Streams

HELD_OUT = "held_out_bits_per_byte"
WINDOW_TOKENS = 256  # of validation chunks, scored at once


class NextToken(nn.Module):
    """Cross-entropy of the next tokens of a window, in nats and summed; the begin token is never predicted. The state
    that is left to the next window has no gradient: back-propagation through time ends at the window's beginning.

    A module, because torch's tools for several processes and for compiling wrap a module's forward.
    """

    def __init__(self, model: LanguageModel[Any], smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, state: Any, x_BT: Tensor) -> tuple[Tensor, Any]:
        model: Any = self.model
        target_N = x_BT[:, 1:].flatten()
        if hasattr(model, "read"):  # its vocabulary may be large: logits are not all held at once
            h_BTD, state = model.read(state, x_BT[:, :-1])
            nats = cross_entropy.nats(h_BTD.flatten(0, 1), model.output_weight, target_N, model.begin, self.smoothing)
            return nats, map_state(state, Tensor.detach)
        logits_BTV, state = model.absorb(state, x_BT[:, :-1])
        nats = cross_entropy.nats_of(logits_BTV.flatten(0, 1), target_N, model.begin, self.smoothing)
        return nats, map_state(state, Tensor.detach)


@dataclass(frozen=True)
class TrainingText:
    """The tokens to learn from, chunks held out for validation, and how many bytes a token stands for."""

    streams: Streams
    chunks_PL: Tensor  # begin in front of each; empty where the text was too short
    chunk_bytes: int
    bytes_per_token: float


def language_stage(
    model: LanguageModel[Any], text: TrainingText, optimizer: OptimizerConfig, budget: str,
    sample: Callable[[], str] | None = None,
) -> Stage:  # fmt: skip
    """Next-token prediction with the state carried from window to window, where the model can."""
    streams, chunks_PL = text.streams, text.chunks_PL
    flops = cost_of(model, one_token(model.config)).total("forward")

    def validate() -> dict[str, float]:
        return {HELD_OUT: bits_of_chunks(model, chunks_PL) / max(1, text.chunk_bytes)}

    return Stage(
        model, NextToken(model, optimizer.label_smoothing), streams.at, optimizer, budget, unit="tokens",
        examples_per_step=streams.batch_size * streams.sequence_length, steps_per_epoch=streams.steps,
        start=model.start, carries=model.carries_state, validate=validate if chunks_PL.numel() else None, best=HELD_OUT,
        higher_is_better=False, sample=sample, fixed_shapes=True, flops_per_example=flops,
        describe_loss=lambda loss: {"bits_per_byte": loss / math.log(2) / text.bytes_per_token},
    )  # fmt: skip


@torch.no_grad()
def bits_of_chunks(model: LanguageModel[Any], chunks_PL: Tensor) -> float:
    """The cost of validation chunks in bits, each read from its own beginning."""
    x_PL = chunks_PL.to(next(model.parameters()).device)
    state, nats, objective = model.start(len(x_PL)), 0.0, NextToken(model)
    for start in range(0, x_PL.shape[1] - 1, WINDOW_TOKENS):
        cost, state = objective(state, x_PL[:, start : start + WINDOW_TOKENS + 1])
        nats += float(cost)
    return nats / math.log(2)
