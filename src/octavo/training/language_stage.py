"""The training of language models: a text as parallel streams, and the loss of the next token.

N tokens, B streams, T tokens of a window, V vocabulary, D width, P validation chunks, L tokens of a chunk. What a step
reads is a function of the step alone, so that a run can be resumed at any step, by any number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import LanguageModel, map_state
from octavo.costs import cost_of, one_token
from octavo.ops import cross_entropy
from octavo.training.optimizer import OptimizerConfig
from octavo.training.stage import Objective, Stage

RESTARTS = 1 / 32  # of the windows: a model must also learn to find its way into a text from nothing


class Window(NamedTuple):
    """What one step reads: the first T columns go in, the last T are to be predicted."""

    x_BT: Tensor  # B streams of T + 1 tokens
    fresh: bool  # the streams start anew, with begin in front, so no state is carried into this window
    begin: int

    @property
    def rows(self) -> int:
        return len(self.x_BT)

    @property
    def targets(self) -> float:
        """The begin token is never predicted."""
        return float((self.x_BT[:, 1:] != self.begin).sum())

    @property
    def examples(self) -> int:
        return self.x_BT[:, 1:].numel()

    def part(self, start: int, end: int, device: torch.device) -> Tensor:
        return self.x_BT[start:end].to(device, non_blocking=True)


@dataclass(frozen=True)
class Streams:
    """B streams over the text; every epoch cuts it at other places, and now and then all streams start anew."""

    x_N: NDArray[Any]
    begin: int
    batch_size: int
    sequence_length: int
    seed: int

    @classmethod
    def fitting(cls, x_N: NDArray[Any], begin: int, batch_size: int, sequence_length: int, seed: int) -> Streams:
        """Streams as asked for, but fewer and shorter where the text is too small for them."""
        length = max(1, min(sequence_length, len(x_N) - 1))
        return cls(x_N, begin, max(1, min(batch_size, len(x_N) // (length + 1))), length, seed)

    @property
    def steps(self) -> int:
        """Windows of one epoch."""
        return max(1, len(self.x_N) // self.batch_size // self.sequence_length)

    def at(self, step: int) -> Window:
        """The window of a step, counted from the beginning of training."""
        epoch, row = divmod(step, self.steps)
        first = 0 if epoch == 0 else int(np.random.default_rng((self.seed, epoch)).integers(len(self.x_N)))
        apart, length = len(self.x_N) // self.batch_size, self.sequence_length
        start_B = np.arange(self.batch_size) * apart + first + row * length
        at_BT = (start_B[:, None] + np.arange(length + 1)) % len(self.x_N)
        x_BT = torch.from_numpy(self.x_N[at_BT].astype(np.int64))
        fresh = row == 0 or bool(np.random.default_rng((self.seed, epoch, row)).random() < RESTARTS)
        if fresh:
            x_BT[:, 0] = self.begin
        return Window(x_BT, fresh, self.begin)


HELD_OUT = "held_out_bits_per_byte"
MIN_CHUNK_TOKENS = 64  # of each validation chunk, where only its beginning is scored
WINDOW_TOKENS = 256  # of validation chunks, scored at once


class NextToken(Objective):
    """Cross-entropy of the next tokens of a window, in nats and summed; the begin token is never predicted. The state
    that is left to the next window has no gradient: back-propagation through time ends at the window's beginning.
    """

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

    def validate(part: float = 1.0) -> dict[str, float]:
        """On the beginning of every chunk, so that the part is of the whole text."""
        length = min(chunks_PL.shape[1], 1 + max(MIN_CHUNK_TOKENS, math.ceil(part * (chunks_PL.shape[1] - 1))))
        size = text.chunk_bytes * (length - 1) / max(1, chunks_PL.shape[1] - 1)
        return {HELD_OUT: bits_of_chunks(model, chunks_PL[:, :length]) / max(1.0, size)}

    return Stage(
        model, NextToken(model, optimizer.label_smoothing), streams.at, optimizer, budget, unit="tokens",
        examples_per_step=streams.batch_size * streams.sequence_length, steps_per_epoch=streams.steps,
        start=model.start, carries=model.carries_state, validate=validate if chunks_PL.numel() else None,
        validate_part=validate, best=HELD_OUT, higher_is_better=False, sample=sample, fixed_shapes=True,
        flops_per_example=flops,
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
