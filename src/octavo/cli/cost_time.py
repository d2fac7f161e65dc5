"""How long a model takes on this machine and on a GPU, for octavo cost."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from octavo.cost import (
    Cost,
    Machine,
    Prediction,
    Shape,
    copy_rate,
    cost_of_config,
    named_gpu,
    on_meta,
    predict_decoding,
    predict_training,
)
from octavo.cost.memory import Optimizer, Precision
from octavo.cost.roofline import UTILISATION
from octavo.errors import UserError
from octavo.io.memory import available
from octavo.training.loop_config import LoopConfig
from octavo.training.metrics_log import matmul_rate
from octavo.training.optimizer import OptimizerConfig
from octavo.training.precision import has_bfloat16
from octavo.training.step_timing import Piece, StepTiming, time_steps

TRIES = 5  # at the machine's peak: on a busy one, the best of a few is nearer to it


@dataclass(frozen=True)
class AskedOfTask:
    """What the time is predicted for."""

    gpu: str = "h100"
    """t4, l4, rtx-4090, a100-80, h100 or h200: by its datasheet."""
    optimizer: Optimizer = "muon"
    """muon: one number remembered for each of a matrix, two for each other; adamw: two for each."""
    measure: bool = True
    """--no-measure leaves this machine out."""

    def __post_init__(self) -> None:
        named_gpu(self.gpu)


@dataclass(frozen=True)
class Asked(AskedOfTask):
    """What the time of a language model is predicted for."""

    measure: bool = True
    """--no-measure leaves this machine out: a few seconds, in which steps of training are timed."""
    utilisation: float = UTILISATION
    """The share of a machine's peak and bandwidth that is reached where training is not timed: an assumption."""
    precision: Precision = "bfloat16"
    """That of products and of what is saved for the backward pass; weights are trained in float32."""
    tokens: int = 0
    """Tokens to train on: says how long that takes; of an n-gram, how large its tables can be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.utilisation <= 1:
            raise UserError(f"utilisation must be above 0 and at most 1: {self.utilisation}; try --utilisation 0.4")
        if self.tokens < 0:
            raise UserError(f"tokens must not be negative: tokens={self.tokens}; try --tokens 1000000")


def piece_of(model: str, config: Any, vocab: int, batch: int, window: int, asked: Asked) -> Piece:
    """What training would run; 0 rows or tokens are what suits the model."""
    loop = LoopConfig(batch_size=batch, sequence_length=window, precision=trained_in(asked))
    loop = loop.suiting(on_meta(model, config, vocab))
    return Piece(
        model, config, vocab, loop.batch_size, loop.sequence_length, OptimizerConfig(optimizer=asked.optimizer), loop
    )


def costs_of(piece: Piece) -> tuple[Cost, Cost]:
    """Of a step of training that starts from nothing, and of a token after a full context."""
    settings = piece.model, piece.config, piece.vocab
    past = getattr(piece.config, "context", piece.window) - 1
    return cost_of_config(*settings, Shape(piece.batch, piece.window)), cost_of_config(*settings, Shape(1, 1, past))


def here() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def trained_in(asked: Asked) -> Precision:
    """The precision of products on this machine: half only where it has instructions for it, as when training."""
    return "bfloat16" if asked.precision == "bfloat16" and has_bfloat16(here()) else "float32"


def this_machine(asked: Asked) -> Machine:
    """What this machine reaches, measured: large products and copies."""
    device = here()
    dtype = torch.bfloat16 if trained_in(asked) == "bfloat16" else torch.float32
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else available()
    peak = max(matmul_rate(device, dtype) for _ in range(TRIES))
    return Machine(f"this machine ({device.type})", peak, copy_rate(device), memory)


def predictions(
    training: Cost, decoding: Cost | None, asked: Asked, piece: Piece | None
) -> tuple[list[Prediction], StepTiming | None]:
    """For this machine and the GPU, training first; a model without products has none. Training is timed here."""
    if not training.training_flops:
        return [], None
    machines, share, timing = [named_gpu(asked.gpu)], asked.utilisation, None
    if asked.measure:
        machines.insert(0, this_machine(asked))
        timing = time_steps(piece, machines[0].flops, here()) if piece else None
    found = [predict_training(training, one, share, asked.optimizer, asked.precision) for one in machines]
    if timing:
        found[0] = dataclasses.replace(found[0], predicted_tokens_per_second=timing.tokens_per_second, how="timed")
    if decoding is not None:
        found += [predict_decoding(decoding, one, share, asked.precision) for one in machines]
    return found, timing
