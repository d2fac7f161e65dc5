"""What training did to the weights: frozen, all alike, shrunk to nothing, or units that nothing reaches any more.

R rows of a matrix, each the weights of a unit; C columns.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import torch
from torch import Tensor

from octavo.inspection.doctor.fresh_model import Bench, loss_of
from octavo.training.diagnosis.curve import Training
from octavo.training.diagnosis.finding import Finding, percent
from octavo.training.diagnosis.history import SMALLER
from octavo.training.optimizer import parameter_groups

SHRUNK = 0.05  # of the first weights' length
DEAD_SHARE = 0.5  # of the units of a matrix
DEAD_GRADIENT = 1e-7  # of the strongest unit's gradient: float32 resolves no less
BATCHES = 4  # that a unit is given to show itself


def examine_weights(bench: Bench, training: Training | None, steps: int) -> list[Finding]:
    """Compare the trained weights with those of the new model; then see which units the loss still reaches."""
    names = _matrices(bench.trained.model)
    trained, fresh = (dict(stage.model.named_parameters()) for stage in (bench.trained, bench.fresh))
    pairs = {name: (trained[name].detach(), fresh[name].detach()) for name in trained
             if name in fresh and trained[name].shape == fresh[name].shape}  # fmt: skip
    reached = reached_units(bench, list(pairs)) if steps else {}
    same = [name for name, (now, before) in pairs.items() if steps and now.numel() > 1 and torch.equal(now, before)]
    frozen = [name for name in same if reached.get(name, 0.0) > 0]  # without a gradient, it is the units that are dead
    tables = [name for name, one in trained.items() if one.ndim == 2 and min(one.shape) > 1]  # embeddings too
    alike = [name for name in tables if is_alike(trained[name].detach()) and name not in same]
    shares = {name: length_ratio(*pairs[name]) for name in names if name in pairs and float(pairs[name][1].norm()) > 0}
    ratio = median(shares.values()) if shares else 1.0
    dead = {name: 1 - reached[name] for name in names if name in reached and reached[name] < 1}
    units = _judge_units(dead if len(frozen) < len(pairs) else {})
    return [_judge_tensors(frozen, alike, ratio, len(pairs), training), units]


def _judge_tensors(frozen: list[str], alike: list[str], ratio: float, count: int, training: Training | None) -> Finding:
    name, expected = "weights", "every tensor trained, and units that differ"
    values = {"frozen": frozen, "alike": alike, "length_ratio": ratio}
    advice: tuple[str, ...]
    if alike:
        why = (
            f"all rows of {_some(alike)} have the same weights, so that they compute the same and learn the same: "
            "they began alike, and nothing has made them differ."
        )
        advice = ("train it again from new, random weights: octavo train ... --force", *SMALLER)
        measured = f"{len(alike)} of {count} tensors with units all alike"
        return Finding(name, "warning", measured, expected, why, advice, values, "bad initialisation")
    if frozen:
        verb = "is" if len(frozen) == 1 else "are"
        why = f"{_some(frozen)} {verb} as before training, to the bit, although the loss has a gradient there."
        advice = ("see that every parameter has requires_grad, and is handed to the optimizer",)
        measured = f"{len(frozen)} of {count} tensors never changed"
        return Finding(name, "warning", measured, expected, why, advice, values, "frozen weights")
    if ratio < SHRUNK:
        decay = training.optim.weight_decay if training else 0.0
        why = (
            f"the matrices shrank to {percent(ratio)} of their first length: weight decay {decay:g} outweighs the loss."
        )
        measured = f"length {percent(ratio)} of the first"
        advice = ("a lower --weight-decay 0.1",)
        return Finding(name, "warning", measured, expected, why, advice, values, "weight decay too strong")
    measured = f"all changed, length x {ratio:.2f}"
    return Finding(name, "ok", measured, expected, "training changed every tensor.", (), values)


def _judge_units(dead: dict[str, float]) -> Finding:
    name, expected = "units", f"below {percent(DEAD_SHARE, 0)} dead"
    worst = max(dead, key=lambda one: dead[one], default="")
    share = dead.get(worst, 0.0)
    measured = f"{percent(share, 0)} dead{f' in {worst}' * (share > 0)}"
    values = {"dead": dead}
    if share < DEAD_SHARE:
        return Finding(name, "ok", measured, expected, "nearly every unit gets a gradient.", (), values)
    why = (
        f"{percent(share, 0)} of the units of {worst} get no gradient from any of {BATCHES} batches: they are shut for "
        "every input, and cannot learn."
    )
    advice = ("a lower --learning-rate", "units that never shut off: --feed-forward gelu", "train it anew: --seed 1")
    return Finding(name, "warning", measured, expected, why, advice, values, "dead units")


def _matrices(model: Any) -> list[str]:
    """Names of the matrices inside the model: neither embeddings nor vectors."""
    inside = {id(one) for one in parameter_groups(model)[0]}
    return [name for name, one in model.named_parameters() if id(one) in inside and min(one.shape) > 1]


def is_alike(weight_RC: Tensor) -> bool:
    """Whether all rows of a matrix are the same, or all columns."""
    return bool((weight_RC == weight_RC[:1]).all() or (weight_RC == weight_RC[:, :1]).all())


def length_ratio(now: Tensor, before: Tensor) -> float:
    """The length of the trained weights as a share of the first ones'."""
    return float(now.norm() / before.norm())


def reached_units(bench: Bench, names: list[str]) -> dict[str, float]:
    """The share of each tensor's rows that get a gradient from any of a few batches."""
    model, parameters = bench.trained.model, dict(bench.trained.model.named_parameters())
    model.requires_grad_(True)
    largest: dict[str, Tensor] = {}
    for number in range(BATCHES):
        model.zero_grad(set_to_none=True)
        loss_of(bench.trained, number, False, bench.recipe.seed, gradient=True)
        for name in names:
            grad = parameters[name].grad
            length_R = torch.zeros(len(parameters[name])) if grad is None else grad.reshape(len(grad), -1).norm(dim=1)
            largest[name] = torch.maximum(largest.get(name, torch.zeros_like(length_R)), length_R)
    model.zero_grad(set_to_none=True)
    return {
        name: float((length_R > DEAD_GRADIENT * length_R.max()).double().mean()) for name, length_R in largest.items()
    }


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
