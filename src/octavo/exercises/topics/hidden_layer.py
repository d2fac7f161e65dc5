"""Networks: all gradients of a network with one hidden layer.

x input, h hidden units, a weights, y labels, W and b what is learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, IntervalAt, Part, Truth, verdict
from octavo.exercises.topics.networks import Row, loss
from octavo.models.classifier_head import Head, HeadConfig

Array = NDArray[np.float64]


def network_gradients(x: Row, W1: Any, b1: Row, W2: Any, b2: Row, y: Row) -> list[Any]:
    """Of L with respect to x, W1, b1, W2, b2, where h = sigmoid(W1 x + b1) and a = softmax(W2 h + b2)."""
    return [one.tolist() for one in _by_hand((x, W1, b1, W2, b2, y))]


def _by_hand(case: Sequence[Any], without: str = "") -> list[Array]:
    x, W1, b1, W2, b2, y = (np.array(one) for one in case)
    h = 1 / (1 + np.exp(-(W1 @ x + b1)))
    e = np.exp(W2 @ h + b2)
    delta2 = e / e.sum() * y.sum() - y
    back1, back2 = (W1, W2) if without == "transposing" else (W1.T, W2.T)
    delta1 = back2 @ delta2 * (1 if without == "slope" else h * (1 - h))
    first, second = np.outer(delta1, x), np.outer(delta2, h)
    turned = without == "order"
    return [back1 @ delta1, first.T if turned else first, delta1, second.T if turned else second, delta2]


def _mistaken(without: str) -> Callable[..., list[Any]]:
    return lambda *case: [one.tolist() for one in _by_hand(case, without)]


def drawn_network(seed: int, inputs: int, hidden: int, classes: int) -> tuple[list[Any], ...]:
    rng = np.random.default_rng(seed)
    shapes: list[tuple[int, ...]] = [(inputs,), (hidden, inputs), (hidden,), (classes, hidden), (classes,)]
    y = np.eye(classes)[seed % classes]
    return tuple(one.tolist() for one in (*(rng.normal(size=shape).round(2) for shape in shapes), y))


NETWORKS = [drawn_network(0, 3, 3, 3), drawn_network(1, 3, 3, 3)]  # square, so that a matrix may be turned by mistake


def by_autograd(x: Row, W1: Any, b1: Row, W2: Any, b2: Row, y: Row) -> list[Tensor]:
    given = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in (x, W1, b1, W2, b2)]
    x_, W1_, b1_, W2_, b2_ = given
    loss(W2_ @ (W1_ @ x_ + b1_).sigmoid() + b2_, torch.tensor(y, dtype=torch.float64)).backward()
    return [one.grad for one in given if one.grad is not None]


def all_gradients() -> Finding:
    return Finding(
        [[one.tolist() for one in by_autograd(*case)] for case in NETWORKS],
        "autograd, two networks of width 3 throughout",
    )


OF = {
    "delta1_x": "`delta_1*T(x)`", "x_delta1": "`x*T(delta_1)`", "delta2_h": "`delta_2*T(h)`",
    "h_delta2": "`h*T(delta_2)`", "delta1": "`delta_1`", "delta2": "`delta_2`", "W1_delta1": "`W_1*delta_1`",
    "W1T_delta1": "`T(W_1)*delta_1`", "W1T_W2T_delta2": "`T(W_1)*T(W_2)*delta_2`",
}  # fmt: skip


def which(place: int) -> Callable[[], Finding]:
    """The one of all options that is what autograd finds, in a network whose widths all differ."""

    def evidence() -> Finding:
        case = drawn_network(2, 4, 5, 3)
        x, W1, b1, W2, b2, y = (torch.tensor(one, dtype=torch.float64) for one in case)
        h = (W1 @ x + b1).sigmoid()
        delta2 = (W2 @ h + b2).softmax(-1) - y
        delta1 = (W2.T @ delta2) * h * (1 - h)
        made = {"delta1_x": torch.outer(delta1, x), "x_delta1": torch.outer(x, delta1), "delta1": delta1,
                "delta2_h": torch.outer(delta2, h), "h_delta2": torch.outer(h, delta2), "delta2": delta2,
                "W1T_delta1": W1.T @ delta1, "W1T_W2T_delta2": W1.T @ (W2.T @ delta2)}  # fmt: skip
        right = by_autograd(*case)[place]
        [name] = [n for n, one in made.items() if one.shape == right.shape and torch.allclose(one, right, 1e-9, 1e-12)]
        return Finding(name, f"4 inputs, 5 hidden units, 3 classes: of {len(made)} that can be computed at all, only "
                     "this one is what autograd finds", "to 1e-9")  # fmt: skip

    return evidence


def _asked(name: str, symbol: str, place: int, right: str, others: Sequence[str], why: str) -> Part:
    options = {one: OF[one] for one in sorted((right, *others))}
    return Part(name, f"What is `d(L, {symbol})`?", Choice(right, options), "autograd", which(place), why=why)


def layer_parameters() -> Finding:
    points = []
    for inputs, hidden, classes in ((3, 5, 2), (100, 7, 4), (1, 1, 1)):
        head = Head(HeadConfig(hidden=hidden, layers=1), inputs, classes)
        count = sum(one.numel() for one in head.parameters())
        points.append(IntervalAt({"D": inputs, "H": hidden, "C": classes}, count, count))
    return Finding(points, "octavo's own layers from a vector to classes, counted")


def zeros_stay_alike() -> Finding:
    x, *drawn, y = drawn_network(3, 4, 5, 3)
    learnt = [torch.zeros_like(torch.tensor(one, dtype=torch.float64)) for one in drawn]
    for _ in range(200):
        W1, b1, W2, b2 = (one.tolist() for one in learnt)
        slopes = by_autograd(x, W1, b1, W2, b2, y)[1:]
        learnt = [one - 0.5 * slope for one, slope in zip(learnt, slopes, strict=True)]
    apart = (learnt[0] - learnt[0][0]).abs().max().item()
    note = f"200 steps from zero: W_1 moved by {learnt[0].abs().max():.2f}, its 5 rows differ by {apart:g}"
    return Finding(verdict(apart > 1e-12), note, "1e-12")


def off_unit_learns() -> Finding:
    x, W1, b1, W2, b2, y = (torch.tensor(one, dtype=torch.float64) for one in drawn_network(4, 4, 5, 3))
    b1[0] = -100.0
    given = [one.requires_grad_() for one in (W1, b1, W2)]
    h = (W1 @ x + b1).relu()
    loss(W2 @ h + b2, y).backward()
    slopes = [one.grad for one in given if one.grad is not None]
    own = max(slopes[0][0].abs().max().item(), slopes[1][0].abs().item(), slopes[2][:, 0].abs().max().item())
    return Finding(verdict(own > 0), f"autograd: the largest gradient of any of its weights is {own:g}", "exactly 0")


HIDDEN = Exercise(
    id="hidden-layer-gradients",
    title="All gradients of a network with one hidden layer",
    question="`h = sigmoid(W_1*x + b_1)`, `a = softmax(W_2*h + b_2)`, and L is the cross-entropy with labels that add "
    "up to one. x, h and a are columns. Write `delta_2 = a - y` and `delta_1` for `T(W_2)*delta_2`, multiplied entry "
    "by entry by `h*(1 - h)`.",
    answer="`delta_2` and `delta_1` are the gradients of what goes into the softmax and into the sigmoid. Every other "
    "gradient is one step from them: a bias has the delta itself, a matrix the delta times what it was multiplied "
    "with, `delta_2*T(h)` and `delta_1*T(x)`, and the input `T(W_1)*delta_1`. A gradient always has the shape of what "
    "it belongs to; where sizes differ, that alone rules out most mistakes.",
    parts=[
        _asked("second-bias", "b_2", 4, "delta2", ("delta1",), "What goes into the softmax is `b_2` plus the rest."),
        _asked("second-matrix", "W_2", 3, "delta2_h", ("h_delta2", "delta1_x"),
               "Entry (i, j) of it meets `h_j` on the way to score i."),
        _asked("first-bias", "b_1", 2, "delta1", ("delta2",),
               "Back through `W_2` (so its transpose), then through the sigmoid, whose slope is `h*(1 - h)`."),
        _asked("first-matrix", "W_1", 1, "delta1_x", ("x_delta1", "delta2_h"),
               "As for `W_2`, one layer below: the delta times what came in."),
        _asked("input", "x", 0, "W1T_delta1", ("W1_delta1", "W1T_W2T_delta2", "delta1_x"),
               "Each `x_j` reaches every hidden unit i by entry (i, j) of `W_1`: a sum over i, so the transpose."),
        Part("all", "Write a function that returns the five gradients.", Function("network_gradients",
             network_gradients, NETWORKS, "network_gradients(x, W1, b1, W2, b2, y: lists; matrices as lists of rows) "
             "-> [dx, dW1, db1, dW2, db2]"), "autograd", all_gradients, why="The five answers above, in one function.",
             wrong={"left out the slope of the sigmoid": _mistaken("slope"),
                    "went back through the matrices without transposing them": _mistaken("transposing"),
                    "turned the outer products round": _mistaken("order")}),
        Part("parameters", "With D inputs, H hidden units and C classes, how many numbers are learnt?",
             Formula("(D + 1)*H + (H + 1)*C", {"D": "whole", "H": "whole", "C": "whole"}), "counted", layer_parameters,
             why="Each unit has a weight for everything that comes in, and a bias.",
             wrong={"left out the biases": "D*H + H*C", "counted the input too": "D + (D + 1)*H + (H + 1)*C",
                    "gave the network one bias a layer": "D*H + H*C + 2"}),
        Part("zeros", "Started with all weights and biases at zero, the hidden units become different from each other.",
             Truth("false"), "autograd", zeros_stay_alike,
             why="All hidden units start alike and have the same gradient, at every step; so they stay alike. That is "
             "why weights are drawn at random.", wrong={"thought that different inputs make units different": True}),
        Part("off", "The sigmoid is replaced by `max(0, z)`, ReLU, and a unit is off for this x. Some of the weights "
             "into it or out of it still have a gradient.", Truth("false"), "autograd", off_unit_learns,
             why="Its slope is 0, so nothing goes back into it; its value is 0, so `delta_2*T(h)` has zeros in its "
             "column.", wrong={"thought that the weights out of it still learn": True}),
    ],
)  # fmt: skip

EXERCISES = (HIDDEN,)
