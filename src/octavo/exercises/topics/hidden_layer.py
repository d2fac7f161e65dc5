"""All gradients of a network with one hidden layer.

x input, h hidden units, a probabilities, y labels, W and b parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.exercises.topics.cross_entropy import loss
from octavo.models.dan import Head, HeadConfig

Array = NDArray[np.float64]
Row = Sequence[float]


def network_gradients(x: Row, W1: Any, b1: Row, W2: Any, b2: Row, y: Row) -> list[Any]:
    """The gradients of L with respect to x, W1, b1, W2, b2, for h = sigmoid(W1 x + b1), a = softmax(W2 h + b2)."""
    return [one.tolist() for one in _backpropagate((x, W1, b1, W2, b2, y))]


def _backpropagate(case: Sequence[Any], without: str = "") -> list[Array]:
    x, W1, b1, W2, b2, y = (np.array(one) for one in case)
    h = 1 / (1 + np.exp(-(W1 @ x + b1)))
    e = np.exp(W2 @ h + b2)
    delta2 = e / e.sum() * y.sum() - y
    back1, back2 = (W1, W2) if without == "transposing" else (W1.T, W2.T)
    delta1 = back2 @ delta2 * (1 if without == "slope" else h * (1 - h))
    first, second = np.outer(delta1, x), np.outer(delta2, h)
    swapped = without == "order"
    return [back1 @ delta1, first.T if swapped else first, delta1, second.T if swapped else second, delta2]


def _with_mistake(without: str) -> Callable[..., list[Any]]:
    return lambda *case: [one.tolist() for one in _backpropagate(case, without)]


def random_network(seed: int, inputs: int, hidden: int, classes: int) -> tuple[list[Any], ...]:
    rng = np.random.default_rng(seed)
    shapes: list[tuple[int, ...]] = [(inputs,), (hidden, inputs), (hidden,), (classes, hidden), (classes,)]
    y = np.eye(classes)[seed % classes]
    return tuple(one.tolist() for one in (*(rng.normal(size=shape).round(2) for shape in shapes), y))


NETWORKS = [
    random_network(0, 3, 3, 3),
    random_network(1, 3, 3, 3),
]  # square, so that a wrongly transposed matrix has the right shape


def by_autograd(x: Row, W1: Any, b1: Row, W2: Any, b2: Row, y: Row) -> list[Tensor]:
    given = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in (x, W1, b1, W2, b2)]
    x_, W1_, b1_, W2_, b2_ = given
    loss(W2_ @ (W1_ @ x_ + b1_).sigmoid() + b2_, torch.tensor(y, dtype=torch.float64)).backward()
    return [one.grad for one in given if one.grad is not None]


OPTIONS = {
    "delta1_x": "`delta_1*T(x)`", "x_delta1": "`x*T(delta_1)`", "delta2_h": "`delta_2*T(h)`",
    "h_delta2": "`h*T(delta_2)`", "delta1": "`delta_1`", "delta2": "`delta_2`", "W1_delta1": "`W_1*delta_1`",
    "W1T_delta1": "`T(W_1)*delta_1`", "W1T_W2T_delta2": "`T(W_1)*T(W_2)*delta_2`",
}  # fmt: skip


def matching_option(place: int) -> Callable[[], Finding]:
    """Evidence: the only option that equals the gradient by autograd, in a network with layers of different widths."""

    def evidence() -> Finding:
        case = random_network(2, 4, 5, 3)
        x, W1, b1, W2, b2, y = (torch.tensor(one, dtype=torch.float64) for one in case)
        h = (W1 @ x + b1).sigmoid()
        delta2 = (W2 @ h + b2).softmax(-1) - y
        delta1 = (W2.T @ delta2) * h * (1 - h)
        candidates = {"delta1_x": torch.outer(delta1, x), "x_delta1": torch.outer(x, delta1), "delta1": delta1,
                "delta2_h": torch.outer(delta2, h), "h_delta2": torch.outer(h, delta2), "delta2": delta2,
                "W1T_delta1": W1.T @ delta1, "W1T_W2T_delta2": W1.T @ (W2.T @ delta2)}  # fmt: skip
        right = by_autograd(*case)[place]
        [name] = [
            n for n, one in candidates.items() if one.shape == right.shape and torch.allclose(one, right, 1e-9, 1e-12)
        ]
        note = f"4 inputs, 5 hidden units, 3 classes: of {len(candidates)} expressions only this equals the gradient"
        return Finding(name, note, "to 1e-9")

    return evidence


def _gradient_part(name: str, symbol: str, place: int, right: str, others: Sequence[str], why: str) -> Part:
    options = {one: OPTIONS[one] for one in sorted((right, *others))}
    return Part(name, f"What is `d(L, {symbol})`?", Choice(right, options), "autograd", matching_option(place), why=why)


@tabulated("D H C", ((3, 5, 2), (100, 7, 4), (1, 1, 1)), "the parameters of octavo's classifier head, counted")
def layer_parameters(inputs: int, hidden: int, classes: int) -> int:
    head = Head(HeadConfig(hidden=hidden, layers=1), inputs, classes)
    return sum(p.numel() for p in head.parameters())


def zeros_stay_equal() -> Finding:
    x, *drawn, y = random_network(3, 4, 5, 3)
    learnt = [torch.zeros_like(torch.tensor(one, dtype=torch.float64)) for one in drawn]
    for _ in range(200):
        W1, b1, W2, b2 = (one.tolist() for one in learnt)
        slopes = by_autograd(x, W1, b1, W2, b2, y)[1:]
        learnt = [one - 0.5 * slope for one, slope in zip(learnt, slopes, strict=True)]
    difference = (learnt[0] - learnt[0][0]).abs().max().item()
    note = f"200 steps from zero: W_1 moved by {learnt[0].abs().max():.2f}, its 5 rows differ by {difference:g}"
    return Finding(verdict(difference > 1e-12), note, "to 1e-12")


def inactive_unit_gradient() -> Finding:
    x, W1, b1, W2, b2, y = (torch.tensor(one, dtype=torch.float64) for one in random_network(4, 4, 5, 3))
    b1[0] = -100.0
    given = [one.requires_grad_() for one in (W1, b1, W2)]
    h = (W1 @ x + b1).relu()
    loss(W2 @ h + b2, y).backward()
    slopes = [one.grad for one in given if one.grad is not None]
    own = max(slopes[0][0].abs().max().item(), slopes[1][0].abs().item(), slopes[2][:, 0].abs().max().item())
    return Finding(verdict(own > 0), f"autograd: the largest gradient of any of its weights is {own:g}", "exactly 0")


HIDDEN = Exercise(
    where={"h": (0.2, 0.5, 0.9), "z": (-1.5, 0.5, 2.0), "relu": lambda z: float(torch.tensor(z).relu()),
           "slope": lambda h: mpmath.diff(lambda x: 1 / (1 + mpmath.exp(-x)), mpmath.log(h / (1 - h)))},
    id="hidden-layer-gradients", title="All gradients of a network with one hidden layer",
    question="`h = sigmoid(W_1*x + b_1)`, `a = softmax(W_2*h + b_2)`, and L is the cross-entropy with labels that sum "
    "to one. x, h and a are column vectors. Write `delta_2 = a - y` and `delta_1` for `T(W_2)*delta_2`, multiplied "
    "elementwise by `h*(1 - h)`{slope}.",
    answer="`delta_2` and `delta_1` are the gradients with respect to the inputs of the softmax and of the sigmoid. "
    "Every other gradient follows directly: that of a bias is the delta itself, that of a matrix is the outer product "
    "of the delta and the layer's input, `delta_2*T(h)` and `delta_1*T(x)`, and that of the input is `T(W_1)*delta_1`. "
    "A gradient always has the shape of its parameter; with different layer widths, that alone rules out most "
    "mistakes.",
    parts=[
        _gradient_part("second-bias", "b_2", 4, "delta2", ("delta1",),
                       "The input of the softmax is `b_2` plus other terms."),
        _gradient_part("second-matrix", "W_2", 3, "delta2_h", ("h_delta2", "delta1_x"),
                       "Entry (i, j) of it multiplies `h_j` in logit i."),
        _gradient_part("first-bias", "b_1", 2, "delta1", ("delta2",), "Backpropagate through `W_2` (multiply by its "
                       "transpose), then through the sigmoid, whose slope is `h*(1 - h)`{slope}."),
        _gradient_part("first-matrix", "W_1", 1, "delta1_x", ("x_delta1", "delta2_h"),
                       "As for `W_2`, one layer below: the outer product of the delta and the input."),
        _gradient_part("input", "x", 0, "W1T_delta1", ("W1_delta1", "W1T_W2T_delta2", "delta1_x"),
                       "Each `x_j` affects every hidden unit i through entry (i, j) of `W_1`: a sum over i, so the "
                       "transpose."),
        Part("all", "Write a function that returns the five gradients.", Function("network_gradients",
             network_gradients, NETWORKS, "network_gradients(x, W1, b1, W2, b2, y: lists; matrices as lists of rows) "
             "-> [dx, dW1, db1, dW2, db2]"), "autograd",
             lambda: Finding([[one.tolist() for one in by_autograd(*case)] for case in NETWORKS],
                 "autograd, two networks of width 3 throughout"), why="The five answers above, in one function.",
             wrong={"left out the slope of the sigmoid": _with_mistake("slope"),
                    "did not transpose the matrices": _with_mistake("transposing"),
                    "swapped the factors of the outer products": _with_mistake("order")}),
        Part("parameters", "With D inputs, H hidden units and C classes, how many parameters does the network have?",
             Formula("(D + 1)*H + (H + 1)*C", {"D": "whole", "H": "whole", "C": "whole"}), "counted", layer_parameters,
             why="Each unit has one weight per input and a bias.",
             wrong={"left out the biases": ("D*H + H*C", lambda D, H, C: sum(D + C for _ in range(H))),
                    "counted the input too": ("D + (D + 1)*H + (H + 1)*C",
                        lambda D, H, C: D + sum(D + 1 for _ in range(H)) + sum(H + 1 for _ in range(C))),
                    "counted one bias per layer": ("D*H + H*C + 2", lambda D, H, C: sum(D + C for _ in range(H)) + 2)}),
        Part("zeros", "If all weights and biases start at zero, training makes the hidden units different from each "
             "other.", Truth("false"), "autograd", zeros_stay_equal,
             why="All hidden units start equal and have the same gradient at every step, so they stay equal. That is "
             "why weights are initialized randomly.",
             wrong={"thought that different inputs make the units different": True}),
        Part("off", "The sigmoid is replaced by ReLU, `max(0, z)`{relu}, and a unit is inactive for this x. Some of "
             "the weights into it or out of it still have a nonzero gradient.", Truth("false"), "autograd",
             inactive_unit_gradient,
             why="Its slope is zero, so no gradient flows back through it; its output is zero, so its column of "
             "`delta_2*T(h)` is zero.", wrong={"thought that the weights out of it have a gradient": True}),
    ])  # fmt: skip

EXERCISES = (HIDDEN,)
