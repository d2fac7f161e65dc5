"""Remedies for exploding and vanishing gradients, and paths of a gradient that must not be counted twice."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal, tabulated
from octavo.exercises.topics.lstm_gradients import EXAMPLES, one_step, scalar_weights, zero
from octavo.exercises.topics.vanishing_gradients import linear_flow

STEPS = 100


def clip_norm(g_D: Tensor, limit: float) -> Tensor:
    """PyTorch's own clipping by the norm."""
    weight = torch.nn.Parameter(torch.zeros_like(g_D))
    weight.grad = g_D.clone()
    torch.nn.utils.clip_grad_norm_([weight], limit)
    assert weight.grad is not None
    return weight.grad


def clip_value(g_D: Tensor, limit: float) -> Tensor:
    """PyTorch's own clipping of every entry."""
    weight = torch.nn.Parameter(torch.zeros_like(g_D))
    weight.grad = g_D.clone()
    torch.nn.utils.clip_grad_value_([weight], limit)
    assert weight.grad is not None
    return weight.grad


@tabulated("g c", ((5.0, 1.0), (0.2, 1.0), (3.0, 4.0), (8.0, 2.5)), "PyTorch's clipping, four gradients", rel=1e-9)
def clip_factor(g: float, c: float) -> float:
    """The norm after clipping at c over that before, for a gradient of norm g."""
    direction, unit = normal(6), 1e6  # PyTorch adds a millionth to the norm, which must not matter
    return float(clip_norm(direction * (unit * g / direction.norm()), unit * c).norm() / (unit * g))


def keeps_direction(by_norm: bool) -> Finding:
    gradients = [3 * normal(6, seed=seed) for seed in range(50)]
    cosines = [float(torch.cosine_similarity((clip_norm if by_norm else clip_value)(g, 1.0), g, dim=0))
               for g in gradients]  # fmt: skip
    note = f"50 random gradients clipped at 1: the smallest cosine with the gradient is {min(cosines):.6f}"
    return Finding(verdict(min(cosines) > 1 - 1e-9), note, "to 1e-9")


def repairs_vanishing() -> Finding:
    size = linear_flow(0.9, STEPS)
    gradient = normal(6)
    gradient *= size / gradient.norm()
    after = float(clip_norm(gradient, 1.0).norm())
    note = f"a gradient of norm {size:.2e} has norm {after:.2e} after clipping at 1"
    return Finding(verdict(after > 1e-3), note, "above 0.001")


CLIPPING = Exercise(
    id="gradient-clipping", title="What clipping and initialization do about gradients", where={"steps": STEPS},
    question="A gradient of norm g is clipped by its norm: if g exceeds the limit c, the gradient is scaled down to "
    "norm c. Another way is to clip each entry to the range from -c to c.",
    answer="Clipping by the norm multiplies the gradient by `min(1, c/g)`{factor} and keeps its direction; clipping "
    "the entries does not. Both are remedies for explosions only: a gradient that has vanished is below the limit "
    "and passes unchanged. Against vanishing one needs factors near one: an orthogonal recurrent matrix at the "
    "start, or gates.",
    parts=[
        Part("factor", "By which factor does clipping by the norm multiply the gradient?",
             Formula("min(1, c/g)", {"g": "positive", "c": "positive"}), "numeric", clip_factor,
             why="`c/g` if g is above c, and one otherwise.",
             wrong={"scaled small gradients up": ("c/g", lambda g, c: c / g),
                    "subtracted the excess": ("min(1, 1 - (g - c))", lambda g, c: min(1, 1 - (g - c)))}),
        Part("direction", "Clipping by the norm keeps the direction of the gradient.", Truth("true"), "numeric",
             lambda: keeps_direction(True), why="All entries are multiplied by the same number.",
             wrong={"confused it with clipping each entry": False}),
        Part("entries", "Clipping each entry keeps the direction of the gradient.", Truth("false"), "numeric",
             lambda: keeps_direction(False), why="Only the large entries are reduced.",
             wrong={"confused it with clipping by the norm": True}),
        Part("vanishing", "Clipping makes a vanished gradient usable again.", Truth("false"), "numeric",
             repairs_vanishing, why="It only ever reduces a gradient.",
             wrong={"thought that clipping normalizes the gradient": True}),
        Part("orthogonal",
             "A linear recurrent network starts with an orthogonal matrix. By which factor does the norm of a "
             "gradient change in 100{steps} steps?", Number(1), "numeric",
             lambda: Finding(linear_flow(1.0, STEPS), "a unit gradient propagated through 100 steps"),
             why="An orthogonal matrix keeps the length of every vector.",
             wrong={"thought that it vanishes in any case": (0, lambda: 0.0),
                    "used a matrix that shrinks every vector by a tenth":
                    ("0.9^100", lambda: linear_flow(0.9, STEPS))}),
    ])  # fmt: skip


def states(example: int) -> tuple[Tensor, list[Tensor]]:
    """The weight of the candidate, which requires a gradient, and the states of an LSTM with one unit."""
    w, u, b, xs = EXAMPLES[example]
    weights = scalar_weights(w, u, b)
    weights.ih_GI.requires_grad_()
    h, c, reached = zero(), zero(), []
    for x in xs:
        h, c, _ = one_step(x, h, c, weights)
        reached.append(h)
    return weights.ih_GI, reached


def derivative(y: Tensor, x: Tensor) -> Tensor:
    found = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True, allow_unused=True)[0]
    return torch.zeros_like(x) if found is None else found


def summed_over_steps() -> Finding:
    """The loss is the last state; total derivatives on both sides."""
    listed, equal = [], []
    for example in range(len(EXAMPLES)):
        w_GI, reached = states(example)
        right = float(derivative(reached[-1], w_GI)[2])
        total = sum(float(derivative(reached[-1], h)) * float(derivative(h, w_GI)[2]) for h in reached)
        listed.append(f"{total:.4f} instead of {right:.4f}")
        equal.append(abs(total - right) < 1e-9)
    return Finding(verdict(all(equal)), f"autograd of octavo's LSTM, two examples: {' and '.join(listed)}", "to 1e-9")


def direct_only() -> Finding:
    """A loss with a direct derivative by every state: the sum of the squares of all states."""
    equal = []
    for example in range(len(EXAMPLES)):
        w_GI, reached = states(example)
        right = float(derivative(sum((h**2 for h in reached), zero()), w_GI)[2])
        total = sum(2 * float(h.detach()) * float(derivative(h, w_GI)[2]) for h in reached)
        equal.append(abs(total - right))
    return Finding(verdict(max(equal) < 1e-12), f"two examples: the two sides differ by {max(equal):.0e}", "to 1e-12")


PATHS = Exercise(
    id="lstm-gradient-paths", title="Paths of a gradient, each counted once", where={},
    question="An LSTM has states `h_1` to `h_T`, and the loss J depends on them. The gradient with respect to the "
    "weights `W_g` of its candidate is often written as the sum over t of `d(J, h_t)*d(h_t, W_g)`. Which derivatives "
    "are meant?",
    answer="The sum is right if `d(J, h_t)` is the direct derivative, with the later states held fixed, and `d(h_t, "
    "W_g)` is the total one, which contains all paths to `h_t`. If both are total, the paths through several states "
    "are counted several times: a path through `h_1` and `h_2` occurs in the term of `h_1` and again in that of "
    "`h_2`.",
    parts=[
        Part("direct",
             "J is the sum of the squares of all states. Then the sum over t of the direct derivative of J with "
             "respect to `h_t` times the total derivative of `h_t` with respect to `W_g` is the "
             "gradient.", Truth("true"), "autograd",
             direct_only, why="The chain rule for a function of several variables, each of which depends on `W_g`.",
             wrong={"thought that paths between the states are missing": False}),
        Part("summed",
             "J depends on the last state only. Then the sum over t of the total derivative of J with respect to `h_t` "
             "times the total derivative of `h_t` with respect to `W_g` is the "
             "gradient.", Truth("false"), "autograd", summed_over_steps,
             why="The term of t = T alone is the gradient; the others count its paths again.",
             wrong={"used total derivatives on both sides": True}),
    ])  # fmt: skip

EXERCISES = (CLIPPING, PATHS)
