"""Planning past one machine: how large a model and how much text a budget is best spent on, and what that runs on.

N parameters, D tokens, C operations of training in all, L layers, V vocabulary.

    C = 6 N D        a product takes 2 operations for each weight and token, and in the backward pass twice as many
    D = 20 N         where a given C buys the lowest loss, nearly (Hoffmann and others, 2022)
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

from octavo.costs.memory import SIZE, Optimizer, Precision, activation_bytes, training_memory
from octavo.costs.models import cost_of_config
from octavo.costs.roofline import UTILISATION, Machine
from octavo.errors import UserError
from octavo.models.cost.parts import Cost, Shape
from octavo.models.parts.config import GPTConfig

HEAD, STEP = 64, 128  # numbers of a head, and what widths are multiples of
DEEPEST = 256
LARGER = (8, 64, 512, 4096)  # fleets that are shown too, while they are busy for an hour
RECOMPUTED = 4 / 3  # the way there is a third of a step, and computed twice
MOST_GPUS = 1 << 20
OUTSIDE_BLOCKS = ("embeddings", "positions", "output")


@dataclass(frozen=True)
class Assumptions:
    """What a plan takes for granted; all of it can be set."""

    tokens_per_parameter: float = 20.0
    """D / N."""
    operations: float = 6.0
    """C / (N D)."""
    utilisation: float = UTILISATION
    """The share of the GPUs' peak that is reached."""
    price: float = 2.0
    """US dollars for a GPU and an hour: an assumption, prices differ widely."""
    aspect: float = 128.0
    """The width for each layer."""
    rows: int = 1
    """Texts of a whole context that a GPU works on at once."""
    gather: Literal["block", "whole"] = "block"
    """FSDP puts weights together block by block, or all of the model at once."""
    recompute: bool = False
    """Keep only what goes into each block, and compute the block again in the backward pass."""
    headroom: float = 0.9
    """The share of a GPU's memory that may be planned with."""
    optimizer: Optimizer = "muon"
    precision: Precision = "bfloat16"

    def __post_init__(self) -> None:
        for name in ("tokens_per_parameter", "operations", "price", "aspect", "rows"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{name} must be above 0: {name}={getattr(self, name)}; leave it out")
        for name in ("utilisation", "headroom"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} must be above 0 and at most 1: {name}={getattr(self, name)}; try 0.5")


@dataclass(frozen=True)
class Fleet:
    """So many GPUs, and what each of them has to hold."""

    gpus: int
    bytes_per_gpu: int
    seconds: float
    usd: float


@dataclass(frozen=True)
class Plan:
    """What a budget is best spent on."""

    flops: float
    parameters: float
    """N that the budget is best spent on."""
    tokens: float
    config: GPTConfig
    cost: Cost
    """Of the shape whose size is nearest to N, on the texts that a GPU works on at once."""
    fleets: tuple[Fleet, ...]
    """The fewest GPUs that it fits on, and more."""


def parse_budget(text: str, machine: Machine, assumed: Assumptions) -> float:
    """Operations that 1e21flops are, or that 1000usd buy."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:e\+?[0-9]+)?)\s*(flops|usd)\s*", text.lower())
    amount = float(found[1]) if found else 0.0
    if not found or not 0 < amount < math.inf:
        raise UserError(f"a plan is for a positive number of flops or usd: plan={text!r}; try 1e21flops or 1000usd")
    if found[2] == "flops":
        return amount
    bought = amount / assumed.price * 3600 * machine.flops * assumed.utilisation
    return bought / RECOMPUTED if assumed.recompute else bought


def shape_for(parameters: float, V: int, context: int, aspect: float) -> GPTConfig:
    """The transformer whose size is nearest to it, with about `aspect` of width for each layer."""
    found = []
    for L in range(1, DEEPEST + 1):
        exact = (math.sqrt(V * V + 48 * L * parameters) - V) / (24 * L)  # 12 L D² + V D = N, norms left out
        D = max(STEP, round(exact / STEP) * STEP)
        config = GPTConfig(width=D, layers=L, heads=D // HEAD, context=context)
        size = cost_of_config("gpt", config, V, Shape()).parameters
        found.append((abs(math.log(D / L / aspect)) + 10 * abs(math.log(size / parameters)), L, config))
    return min(found, key=lambda one: one[:2])[2]


def bytes_per_gpu(cost: Cost, gpus: int, config: GPTConfig, assumed: Assumptions) -> int:
    """With FSDP: an equal share of weights, gradients and optimizer, what is put together for a moment, activations.

    Block by block, that is the tables, two blocks (one is fetched while the other computes) and a block's gradient.
    """
    memory = training_memory(cost, assumed.optimizer, assumed.precision)
    shared = memory.weights + memory.gradients + memory.optimizer
    activations = activation_bytes_per_gpu(cost, config, assumed, shared=gpus > 1)
    if gpus == 1:
        return shared + activations
    tables = 4 * sum(part.parameters for part in cost.parts if part.name in OUTSIDE_BLOCKS)
    block = (4 * cost.parameters - tables) // config.layers
    gathered = tables + 3 * block if assumed.gather == "block" else memory.weights + memory.gradients
    return -(-shared // gpus) + gathered + activations


def activation_bytes_per_gpu(cost: Cost, config: GPTConfig, assumed: Assumptions, shared: bool) -> int:
    """What a GPU saves for the backward pass.

    Shared weights are gathered again in the backward pass, so no copies are saved but of those put side by side.
    """
    size, saved = SIZE[assumed.precision], activation_bytes(cost, assumed.precision)
    if shared and assumed.precision == "bfloat16":
        saved -= size * (cost.total("half_copies") - cost.total("copies"))
    if not assumed.recompute:
        return saved
    outside = sum(size * part.saved + part.saved_bytes for part in cost.parts if part.name in OUTSIDE_BLOCKS)
    return outside + (saved - outside) // config.layers + config.layers * size * cost.shape.tokens * config.width


def fewest_gpus(cost: Cost, machine: Machine, config: GPTConfig, assumed: Assumptions) -> int:
    """The fewest on which it fits."""
    room = assumed.headroom * machine.memory

    def fits(gpus: int) -> bool:
        return bytes_per_gpu(cost, gpus, config, assumed) <= room

    if fits(1):
        return 1
    fewest = 2 + bisect_left(range(2, MOST_GPUS + 1), True, key=fits)  # from two on, each more holds less
    if fewest > MOST_GPUS:
        least = bytes_per_gpu(cost, MOST_GPUS, config, assumed)
        raise UserError(
            f"what FSDP does not share out must fit on one GPU: {least / 1e9:,.1f} GB of {room / 1e9:,.1f} GB on a "
            f"{machine.name}; try --recompute, a larger --gpu or a shorter --context"
        )
    return fewest


def plan_for(flops: float, machine: Machine, V: int, context: int, assumed: Assumptions) -> Plan:
    """The compute-optimal model and text for so many operations, and how many GPUs for how long."""
    parameters = math.sqrt(flops / (assumed.operations * assumed.tokens_per_parameter))  # C = 6 N D and D = 20 N
    tokens = assumed.tokens_per_parameter * parameters
    config = shape_for(parameters, V, context, assumed.aspect)
    cost = cost_of_config("gpt", config, V, Shape(assumed.rows, context))
    fewest = fewest_gpus(cost, machine, config, assumed)
    factor = RECOMPUTED if assumed.recompute else 1.0
    fleets = []
    hours = factor * flops / (machine.flops * assumed.utilisation) / 3600  # of one GPU
    for gpus in [fewest, *(n for n in LARGER if fewest < n <= hours)][:4]:
        seconds = 3600 * hours / gpus
        held = bytes_per_gpu(cost, gpus, config, assumed)
        fleets.append(Fleet(gpus, held, seconds, seconds / 3600 * gpus * assumed.price))
    return Plan(flops, parameters, tokens, config, cost, tuple(fleets))
