"""A timing of training: a few real steps on random tokens, timed, say how long a step takes on this machine.

L layers, B rows, T tokens of a window.

The step is the loop's own, so it holds whatever a real one does: small products, what is done number by number, the
optimizer, the time to start each operation. A model whose step would take too long is timed with fewer layers, and
if need be fewer tokens, in two sizes each; a step's time is linear in either, so two sizes give the whole.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from octavo.core import LanguageModel, map_state, seeded_generator
from octavo.costs import Cost, Shape, cost_of, on_meta, training_memory
from octavo.io.memory import available
from octavo.models import MODELS
from octavo.training.distributed import Team
from octavo.training.language_stage import RESTARTS, Streams, TrainingText, Window, language_stage
from octavo.training.loop import Loop
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig, parameter_groups

SECONDS = 2.0  # of timed steps, all sizes together
LEAST = 2  # timed steps of each size, unless that takes longer than PATIENCE
PATIENCE = 8.0  # seconds of timed steps after which one of each size must do: the machine is busy
LONGEST = 2.0  # seconds that a step to time may be expected to take
EXPECTED = 0.4  # of the machine's peak: to guess how long a step takes before one is timed
STRETCH = 2  # what cannot be cut further may take so many times as long
FEWEST = 2  # layers, rows or tokens of a row that a piece is cut to
SHARE = 8  # the most that rows, or the tokens of a row, are cut by: a line from less is too uncertain
ROOM = 0.25  # of the memory that is free, for the largest size: the others take as much again
ITERATIONS = 5  # of Newton and Schulz, in Muon
TEXT = 64  # windows of random tokens
MIDDLE = 0.5  # of the budget: a step as most are


@dataclass(frozen=True)
class Timed:
    """Steps of one size."""

    layers: int
    rows: int
    window: int
    steps: int
    seconds: float
    """Of a step, the median."""
    quickest: float
    slowest: float


@dataclass(frozen=True)
class StepTiming:
    """What was timed, and the whole that it stands for."""

    layers: int
    batch: int
    window: int
    precision: str
    timed: tuple[Timed, ...]
    took: float
    """Seconds, with building the models and the steps that warm up."""

    @property
    def seconds_per_step(self) -> float:
        """Linear in layers and in tokens; where the whole was timed, that itself."""
        tokens = self.batch * self.window
        by_layers = {
            layers: along({one.rows * one.window: one.seconds for one in self.timed if one.layers == layers}, tokens)
            for layers in {one.layers for one in self.timed}
        }
        longest = max(one.seconds for one in self.timed)
        return max(longest, along(by_layers, self.layers))  # noise must not make the whole shorter than its part

    @property
    def tokens_per_second(self) -> float:
        return self.batch * self.window / self.seconds_per_step


def along(values: dict[int, float], at: int) -> float:
    """The line through two points, or the value of the only one."""
    if len(values) == 1:
        return next(iter(values.values()))
    (x, y), (x2, y2) = sorted(values.items())
    return y + (y2 - y) * (at - x) / (x2 - x)


@dataclass(frozen=True)
class Piece:
    """What is to be trained: a model by its settings, in steps of so many tokens."""

    model: str
    config: Any
    vocab: int
    loop: LoopConfig
    optim: OptimizerConfig = OptimizerConfig()  # noqa: RUF009

    @property
    def batch(self) -> int:
        return self.loop.batch_size

    @property
    def window(self) -> int:
        return self.loop.sequence_length

    @property
    def layers(self) -> int:
        return int(getattr(self.config, "layers", 1))

    def cut(self, layers: int, rows: int, window: int) -> Piece:
        """The same with fewer layers, rows or tokens of a row."""
        config = dataclasses.replace(self.config, layers=layers) if layers != self.layers else self.config
        loop = dataclasses.replace(self.loop, batch_size=rows, sequence_length=window)
        return dataclasses.replace(self, config=config, loop=loop)

    def cost(self) -> Cost:
        """Of a step that remembers as much as most do."""
        model = on_meta(self.model, self.config, self.vocab)
        return cost_of(model, Shape(self.batch, self.window, usual_past(model, self.window)))

    def operations(self) -> int:
        """Of a step's products, the optimizer's included: Muon's A = X Xᵀ, A A and A X, five times for each matrix."""
        if self.optim.optimizer != "muon":
            return self.cost().training_flops
        matrices = parameter_groups(on_meta(self.model, self.config, self.vocab))[0]
        sizes = [sorted(parameter.shape) for parameter in matrices]
        products = sum(4 * short * short * long + 2 * short**3 for short, long in sizes)
        return self.cost().training_flops + ITERATIONS * products


def usual_past(model: LanguageModel[Any], window: int) -> int:
    """The tokens before a window that a state remembers on average, if it carries tokens at all.

    All streams start anew at one window in 32, so the k-th before is there with a probability of (31/32)^k.
    """
    if not model.carries_state:
        return 0
    cache = cost_of(model, Shape(1, window)).caches[0]
    if not cache.per_token:
        return 0
    stays = 1 - RESTARTS
    windows = math.inf if cache.tokens is None else cache.tokens / window
    mean: float = stays * (1 - stays**windows) / RESTARTS
    full = math.ceil(mean - RESTARTS) * window  # a fraction of a window is a whole one: states grow by windows
    return full if cache.tokens is None else min(full, int(cache.tokens))


def sizes_of(piece: Piece, operations: float, memory: float) -> list[tuple[int, int, int]]:
    """Layers, rows and tokens of a row to time with: the whole, or two of each that is cut until a step has so few
    operations, or at its smallest twice as many, and holds so few bytes; none: it cannot be cut so far.

    A transformer is cut in rows. Of a recurrent network a row's tokens are taken one after the other, all rows at once,
    so its time is linear in them, but not in the rows.
    """
    by_rows = piece.model == "gpt"
    layers, length = piece.layers, piece.batch if by_rows else piece.window

    def size(layers: int, length: int) -> tuple[int, int, int]:
        return (layers, length, piece.window) if by_rows else (layers, piece.batch, length)

    whole, shortest = (layers, length), max(FEWEST, length // SHARE)
    while not _small(piece.cut(*size(layers, length)), operations, memory):
        if layers > FEWEST:
            layers = max(FEWEST, layers // 2)
        elif length > shortest:
            length = max(shortest, length // 2)
        elif _small(piece.cut(*size(layers, length)), STRETCH * operations, memory):
            break
        else:
            return []
    of_layers = (layers,) if layers == whole[0] else (layers // 2, layers)
    of_length = (length,) if length == whole[1] else (length // 2, length)
    return [size(L, X) for L in of_layers for X in of_length]


def _small(piece: Piece, operations: float, memory: float) -> bool:
    held = training_memory(piece.cost(), piece.optim.optimizer).total
    return held <= ROOM * memory and piece.operations() <= operations


class Onward(Streams):
    """Streams that never start anew: every step remembers."""

    def at(self, step: int) -> Window:
        return super().at(step)._replace(fresh=False)


def timed_loop(piece: Piece, device: torch.device) -> Loop:
    """The loop that training would run, on random tokens, at a window that remembers as much as most do."""
    model: Any = MODELS[piece.model].model(piece.config, piece.vocab)
    model.initialise(seeded_generator(0))
    model = model.to(device)
    B, T, past = piece.batch, piece.window, usual_past(model, piece.window)
    x_N = np.random.default_rng(0).integers(0, max(1, piece.vocab - 1), B * (past + TEXT * (T + 1)), dtype=np.int32)
    text = TrainingText(Onward(x_N, model.begin, B, T, 0), torch.empty(0, 0, dtype=torch.int64), 0, 1.0)
    stage = language_stage(model, text, piece.optim.suiting(model), piece.loop.budget)
    loop = Loop(stage, piece.loop, Team(0, 1, device), seed=0, quiet=True)
    if model.carries_state:
        x_BP = torch.from_numpy(x_N[: B * past].reshape(B, past).astype(np.int64)).to(device)
        with torch.no_grad(), loop.precision.lowered():
            state = model.absorb(model.start(B), x_BP)[1] if past else model.start(B)
        dtype = next(model.parameters()).dtype
        loop.state = map_state(state, lambda t: t.to(dtype).contiguous() if t.is_floating_point() else t)
    return loop


def time_steps(
    piece: Piece, peak: float, device: torch.device | None = None, longest: float = LONGEST, least: float = SECONDS
) -> StepTiming | None:
    """Time steps for at least so many seconds; None: the model is too large to be tried here.

    `peak` is the machine's, in operations a second; a step that would take more than `longest` seconds is cut.
    """
    began, device = time.perf_counter(), device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    memory = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available()
    sizes = sizes_of(piece, EXPECTED * peak * longest, memory)
    if not sizes:
        return None
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # each step seeds the generators
        loops = [timed_loop(piece.cut(*size), device) for size in sizes]
        seconds = _time_in_turns(loops, least)
    timed = [
        Timed(*size, len(each), statistics.median(each), min(each), max(each))
        for size, each in zip(sizes, seconds, strict=True)
    ]
    precision = "bfloat16" if loops[0].precision.low else "float32"
    took = time.perf_counter() - began
    return StepTiming(piece.layers, piece.batch, piece.window, precision, tuple(timed), took)


def _time_in_turns(loops: list[Loop], least: float) -> list[list[float]]:
    """Seconds of each loop's steps; in turns, so that a busy spell of the machine meets all sizes."""
    states = [loop.state for loop in loops]
    seconds: list[list[float]] = [[] for _ in loops]
    for loop in loops:
        loop.step(MIDDLE)  # the first step makes what the optimizer remembers, and whatever is made once
    began, spent = time.perf_counter(), 0.0
    while spent < least or (len(seconds[0]) < LEAST and spent < PATIENCE):
        for loop, state, each in zip(loops, states, seconds, strict=True):
            loop.state = state
            start = time.perf_counter()
            loop.step(MIDDLE)
            if loop.team.device.type == "cuda":
                torch.cuda.synchronize(loop.team.device)
            each.append(time.perf_counter() - start)
        spent = time.perf_counter() - began
    return seconds
