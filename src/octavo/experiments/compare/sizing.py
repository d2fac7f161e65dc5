"""Which size of a network a comparison trains: the one that gets furthest in the budget.

P weights, D tokens of training in the budget, U tokens of the training text, L bits per byte beyond the text's own.

    D = tokens a second × seconds
    D′ = D up to U, then U (1 + 15 (1 - exp(-(D / U - 1) / 15)))      a token seen again teaches less
    L = a P^-α + b D′^-β                                              the least is taken, of sizes with P ≤ 16 U

a, b, α and β belong to the model (`Sizes` in its spec). The second line is Muennighoff and others' (2023).

The choice is made once, when a comparison is planned, and stored in its folder: resumed, and in the parts of a divided
one, the same sizes are trained, whatever a step takes then.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch

from octavo.config import from_json
from octavo.costs import on_meta
from octavo.errors import UserError
from octavo.experiments.compare.config import Candidate, CompareConfig
from octavo.io.files import write_text
from octavo.io.json_text import read_json_file
from octavo.models import find_spec
from octavo.models.spec import ScalingLaw, Sizes
from octavo.tasks.language import TASK
from octavo.training.step_timing import Piece, time_steps

FILE = "sizes.json"
VOCABULARY = 257  # of bytes; another tokenizer changes the tables alone, which are the smaller part of these networks
MAX_PARAMETERS_PER_TOKEN = 16  # of the training text: a network of 10.6 was the largest that was measured
REPEATS = 15.0  # after which a text teaches little more
DROPOUT, DROPOUT_EPOCHS = 0.2, 3.0  # of a larger size that sees the text more often
CORE_OPERATIONS = 1e11  # a second, that a core of a CPU does at most, about: 6 for each weight and token of training
CPU_EFFICIENCY = 2.0  # on a CPU a larger size makes at most so many times as many operations a second
TIMED_SECONDS = 0.3  # of steps of one size


@dataclass(frozen=True)
class Choice:
    """The size of one model, and what it was chosen by."""

    settings: dict = field(default_factory=dict)  # type: ignore[type-arg]
    parameters: int = 0
    tokens_per_second: float = 0.0
    tokens: float = 0.0
    usual_parameters: int = 0
    usual_tokens: float = 0.0
    timed_seconds: float = 0.0

    @property
    def reason(self) -> str:
        """Why, in words; nothing where no larger size was taken."""
        if not self.settings:
            return ""
        shown = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in self.settings.items())
        return (
            f"{shown}: {self.tokens_per_second:,.0f} tokens/s make {self.tokens:,.0f} in the budget for "
            f"{self.parameters:,} weights; the usual {self.usual_parameters:,} would see {self.usual_tokens:,.0f}"
        )


def predicted_bits(law: ScalingLaw, parameters: int, tokens: float, train_tokens: int) -> float:
    """L, which only differences of mean something."""
    repeats = max(0.0, tokens / train_tokens - 1)
    worth = min(tokens, train_tokens * (1 + REPEATS * (1 - math.exp(-repeats / REPEATS))))
    bits: float = law.a * parameters**-law.alpha + law.b * worth**-law.beta
    return bits


class SizeTimer(Protocol):
    """What is known of the sizes of one model on one device."""

    efficiency: float
    """A larger size makes at most so many times as many operations a second as a smaller one."""
    products: float
    """Weights times tokens a second, at most, of the usual size."""

    def parameters(self, settings: Mapping[str, Any]) -> int:
        """The weights of the model with these settings."""

    def tokens_per_second(self, settings: Mapping[str, Any]) -> float | None:
        """Of training; None where it cannot be trained."""


def choose_size(sizes: Sizes, timer: SizeTimer, seconds: float, train_tokens: int) -> Choice:
    """The size with the least predicted bits; without settings, the model as it is.

    After the first that is no better, or would be none at the timer's efficiency, none is timed; and none at all where
    that holds for the first at the timer's most products.
    """
    usual = timer.parameters({})

    def bits_of(parameters: int, tokens: float) -> float:
        return predicted_bits(sizes.law, parameters, tokens, train_tokens)

    def is_hopeless(parameters: int, before: int, tokens: float) -> bool:
        return bits_of(parameters, timer.efficiency * tokens * before / parameters) >= bits_of(before, tokens)

    if is_hopeless(timer.parameters(sizes.settings[0]), usual, timer.products / usual * seconds):
        return Choice()
    if (rate := timer.tokens_per_second({})) is None:
        return Choice()
    best = Choice({}, usual, rate, rate * seconds, usual, rate * seconds)
    for settings in sizes.settings:
        parameters = timer.parameters(settings)
        if parameters > MAX_PARAMETERS_PER_TOKEN * train_tokens or is_hopeless(
            parameters, best.parameters, best.tokens
        ):
            break
        if (rate := timer.tokens_per_second(settings)) is None:
            break
        tokens = rate * seconds
        if bits_of(parameters, tokens) >= bits_of(best.parameters, best.tokens):
            break
        dropout = {"dropout": DROPOUT} if tokens > DROPOUT_EPOCHS * train_tokens else {}
        best = replace(
            best, settings={**settings, **dropout}, parameters=parameters, tokens_per_second=rate, tokens=tokens
        )
    return best


class StepTimer:
    """Times the steps of a candidate on a device: a CPU or a CUDA GPU; on others nothing is timed, and nothing chosen.

    On a CPU a step of a large size takes seconds, so one that cannot be better is not tried.
    """

    def __init__(self, candidate: Candidate, device: torch.device) -> None:
        self.candidate, self.device = candidate, device
        on_cpu = device.type == "cpu"
        self.efficiency = CPU_EFFICIENCY if on_cpu else math.inf
        self.products = CORE_OPERATIONS / 6 * (os.cpu_count() or 1) if on_cpu else math.inf

    def parameters(self, settings: Mapping[str, Any]) -> int:
        """The weights of the model with these settings."""
        piece = self._piece(settings)
        return sum(one.numel() for one in on_meta(piece.model, piece.config, VOCABULARY).parameters())

    def tokens_per_second(self, settings: Mapping[str, Any]) -> float | None:
        """By a few steps; None where the memory has no room for a whole one."""
        if self.device.type not in ("cpu", "cuda"):
            return None
        piece = self._piece(settings)
        timing = time_steps(piece, math.inf, self.device, least=TIMED_SECONDS)
        if timing is None or (timing.timed[0].layers, timing.timed[0].rows) != (piece.layers, piece.batch):
            return None
        return timing.tokens_per_second

    def _piece(self, settings: Mapping[str, Any]) -> Piece:
        recipe = TASK.recipe(self.candidate.model, {**self.candidate.settings, **settings, "tokenizer": "byte"})
        loop = recipe.loop.suiting(on_meta(recipe.model, recipe.config, VOCABULARY))
        return Piece(recipe.model, recipe.config, VOCABULARY, loop, recipe.optimizer)


class StoredSizes:
    """The choices of a comparison, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.choices: dict[str, Choice] = {}
        if self.path.is_file():
            record = read_json_file(self.path, f"delete {folder}, or choose another --out")
            try:
                self.choices = {name: from_json(Choice, choice) for name, choice in record.items()}
            except (AttributeError, TypeError, UserError) as error:
                raise UserError(f"{self.path} is damaged: {error}; delete {folder}, or choose another --out") from error

    @property
    def seconds(self) -> float:
        """What timing took."""
        return sum(choice.timed_seconds for choice in self.choices.values())

    def add(self, name: str, choice: Choice) -> None:
        """Store a choice."""
        self.choices[name] = choice
        write_text(self.path, json.dumps({name: asdict(one) for name, one in self.choices.items()}, indent=1) + "\n")


def sized(
    candidates: Sequence[Candidate], config: CompareConfig, train_tokens: int, stored: StoredSizes,
    timer_of: Callable[[Candidate, torch.device], SizeTimer] | None = None,
) -> tuple[Candidate, ...]:  # fmt: skip
    """The candidates in the sizes that suit the device and the budget; the variants of one model share a size.

    Sizes are chosen where the budget is a time, and not stored yet.
    """
    if not config.sizes or config.seconds_each is None:
        return tuple(candidates)
    found, device = [], torch.device(config.picked_device)
    for one in candidates:
        if one.sizes is None:
            found.append(one)
            continue
        name = find_spec(one.model).name
        if name not in stored.choices:
            began = perf_counter()
            timer = (timer_of or StepTimer)(one, device)
            choice = choose_size(one.sizes, timer, config.seconds_each, train_tokens)
            stored.add(name, replace(choice, timed_seconds=round(perf_counter() - began, 3)))
        choice = stored.choices[name]
        title = f"{one.title}, width {choice.settings['width']}" if choice.settings else one.title
        settings = {**one.settings, **choice.settings}
        found.append(replace(one, settings=settings, title=title, chosen=choice.reason))
    return tuple(found)
