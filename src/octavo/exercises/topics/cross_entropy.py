"""The gradient of softmax and cross-entropy.

z logits, a probabilities, y labels, s their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import sympy
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.pages.figures.charts import Series, lines

Array = NDArray[np.float64]
Row = Sequence[float]
KINDS = {"a": "share", "y": "real", "s": "positive"}
LABELS = {"one": [0.2, 0.3, 0.5], "more": [0.4, 0.6, 1.0]}  # the first sum to 1, the second to 2
LEARNING_RATE, CLASSES, LABEL_SUM = 0.1, 5, 1.5


def softmax(z: Row) -> list[float]:
    e = [math.exp(one - max(z)) for one in z]
    return [one / math.fsum(e) for one in e]


def score_gradient(z: Row, y: Row) -> list[float]:
    """s a - y."""
    return [sum(y) * a - one for a, one in zip(softmax(z), y, strict=True)]


def _labels_assumed_to_sum_to_one(z: Row, y: Row) -> list[float]:
    return [a - one for a, one in zip(softmax(z), y, strict=True)]


CASES = (
    ([1.0, 0.0, -1.0], [0.0, 1.0, 0.0]), ([0.5, 2.0, -1.5], [0.2, 0.3, 0.5]), ([0.0, 0.0], [1.0, 1.0]),
    ([3.0, -2.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.0]), ([1.0, 2.0], [0.0, 0.0]),
    ([1000.0, 0.0, -1000.0], [0.0, 0.7, 0.3]), ([0.3, -0.2, 0.1], [0.9, -0.4, 0.2]), ([2.0], [3.0]),
    ([-3.0, -3.5, -2.5, -4.0], [0.31, 0.27, 0.45, 0.34]), ([700.0, 710.0], [0.5, 2.25]),
)  # fmt: skip


def loss(z: Tensor, y: Tensor) -> Tensor:
    return -(y * z.log_softmax(-1)).sum()


def gradient_by_autograd(z: Row, y: Row) -> list[float]:
    scores = torch.tensor(z, dtype=torch.float64, requires_grad=True)
    loss(scores, torch.tensor(y, dtype=torch.float64)).backward()
    assert scores.grad is not None
    found: list[float] = scores.grad.tolist()
    return found


def gradient_formula() -> Finding:
    """The derivative of the loss, expressed in a, y and s instead of logits and single labels."""
    a, y, s = symbols(KINDS)
    z = sympy.symbols("z1:4", real=True)
    other = sympy.Symbol("y2", real=True)
    labels = (y, other, s - y - other)
    total = sum(map(sympy.exp, z))
    slope = sympy.diff(-sum(label * (one - sympy.log(total)) for label, one in zip(labels, z, strict=True)), z[0])
    rest = sympy.exp(z[1]) + sympy.exp(z[2])
    found = sympy.simplify(slope.subs(z[0], sympy.log(a / (1 - a) * rest)))
    return Finding(found, "SymPy differentiates the loss of three classes with labels y_1, y_2 and s - y_1 - y_2")


def sums_to_zero() -> Finding:
    sums = [abs(math.fsum(gradient_by_autograd(z, y))) for z, y in CASES]
    note = f"autograd, labels with different sums: at most {max(sums):.0e} from 0"
    return Finding(verdict(max(sums) < 1e-12), note, "to 1e-12")


def gradient_descent(y: Row, step: Callable[[Row, Row], list[float]], steps: int = 4000) -> list[float]:
    z = [0.0] * len(y)
    for _ in range(steps):
        z = [one - LEARNING_RATE * slope for one, slope in zip(z, step(z, y), strict=True)]
    return z


def ends_at_labels() -> Finding:
    off = {}
    for name, y in LABELS.items():
        a = softmax(gradient_descent(y, gradient_by_autograd, 1000))
        off[name] = max(abs(one - label) for one, label in zip(a, y, strict=True))
    note = (
        f"1,000 steps of gradient descent: labels that sum to 1 are reached to {off['one']:.0e}; those that sum to 2 "
        f"are missed by {off['more']:.2f}"
    )
    equal = max(abs(one - 1) for one in softmax(gradient_descent([1.0, 1.0], gradient_by_autograd, 1000)))
    under = {"sum-one": off["one"] < 1e-6, "positive": off["more"] < 1e-6, "equal": equal < 1e-6}
    return Finding(verdict(off["one"] < 1e-6 and off["more"] < 1e-6, under), note, "to 1e-6")


def drift() -> Finding:
    y = [LABEL_SUM / CLASSES + 0.1 * (i - 2) for i in range(CLASSES)]
    z = torch.zeros(CLASSES, dtype=torch.float64)
    update = -LEARNING_RATE * (z.softmax(-1) - torch.tensor(y, dtype=torch.float64))
    later = [sum(gradient_descent(y, _labels_assumed_to_sum_to_one, n)) / CLASSES for n in (100, 200)]
    note = f"one step; after 100 and 200 steps the mean logit is {later[0]:.2f} and {later[1]:.2f}: it never converges"
    return Finding(update.mean().item(), note)


def vanishes() -> Finding:
    """The gradient of the logit of the right class, where another class leads by 40."""
    slopes = []
    for squared in (False, True):
        z = torch.tensor([0.0, 40.0], dtype=torch.float64, requires_grad=True)
        y = torch.tensor([1.0, 0.0], dtype=torch.float64)
        (((z.softmax(-1) - y) ** 2).sum() if squared else loss(z, y)).backward()
        assert z.grad is not None
        slopes.append(abs(z.grad[0].item()))
    note = (
        f"autograd, the wrong class leads by 40: {slopes[0]:.2f} in absolute value; with squared error {slopes[1]:.0e}"
    )
    return Finding(verdict(slopes[0] < 1e-6), note, "below 1e-6")


def slope_figure() -> str:
    margins = [m / 2 for m in range(-20, 41)]
    crossed, squared = [], []
    for m in margins:
        wrong = 1 / (1 + math.exp(-m))
        crossed.append((m, wrong))
        squared.append((m, 4 * wrong * wrong * (1 - wrong)))
    return lines(
        [Series("cross-entropy", crossed), Series("squared error", squared)],
        "Two classes: the gradient of the right class's logit. Only cross-entropy has a large gradient where the "
        "softmax is confidently wrong.",
        ("margin of the wrong class", "absolute value of the gradient"),
    )


CROSS_ENTROPY = Exercise(
    where={"classes": CLASSES, "label_sum": LABEL_SUM, "rate": LEARNING_RATE, "excess": 1 - LABEL_SUM},
    id="cross-entropy-gradient", title="The gradient of softmax and cross-entropy", figure=slope_figure,
    question="Logits z give probabilities `a = softmax(z)`, and the loss is the cross-entropy `L = -sum(i, "
    "y_i*log(a_i))`. The labels y sum to s, which is one for one-hot labels, but not for counts, weights or several "
    "right classes.",
    answer="`L = s*log(sum(j, exp(z_j))) - sum(i, y_i*z_i)`, so `d(L, z_i) = s*a_i - y_i`. Only if the labels sum to "
    "one is it the familiar `a_i - y_i`. Its entries always sum to zero, and it is zero where `a_i = y_i/s`. Unlike "
    "the derivatives of softmax alone, it does not vanish where the model is confidently wrong: the logarithm "
    "compensates.",
    parts=[
        Part("formula", "What is `d(L, z_i)`, in `a_i`, `y_i` (write a and y) and s?", Formula("s*a - y", KINDS),
             "symbolic", gradient_formula,
             why="Each of the terms `-y_j*log(a_j) = -y_j*z_j + y_j*log(sum(k, exp(z_k)))` contains `z_i` in its "
             "second part, with derivative `y_j*a_i`; these sum to `s*a_i`.",
             wrong={"used the wrong sign": ("y - s*a", lambda a, y, s: y - a * s),
                    "differentiated only the term with y_i": ("-y*(1 - a)", lambda a, y: y * a - y)},
             only_if={"the labels sum to one": ("a - y", {"s": 1})}),
        Part("function", "Write a function that returns the gradient for any logits and any labels.",
             Function("score_gradient", score_gradient, CASES, "score_gradient(z: list, y: list) -> list"), "autograd",
             lambda: Finding([gradient_by_autograd(z, y) for z, y in CASES],
                 "autograd on the loss; labels that sum to 1, 2, 1/2 and 0"),
             why="Probabilities times the sum of the labels, minus the labels.",
             wrong={"assumed labels that sum to one": _labels_assumed_to_sum_to_one,
                    "used the wrong sign": lambda z, y: [-one for one in score_gradient(z, y)],
                    "differentiated only the term with y_i":
                    lambda z, y: [-one * (1 - a) for a, one in zip(softmax(z), y, strict=True)]}),
        Part("sum", "The entries of the gradient sum to zero, whatever the labels sum to.", Truth("true", Choice("", {
             "sum-one": "the labels sum to one",
             "positive": "no label is negative", "equal": "all labels are equal"})), "autograd",
             sums_to_zero,
             why="The probabilities sum to one, so `s*sum(i, a_i) - sum(i, y_i) = s - s`. Adding a constant to all "
             "logits does not change the loss.", wrong={"thought that this requires labels that sum to one": False}),
        Part("ends", "Gradient descent on the logits converges to probabilities equal to the labels.",
             Truth("nearly", Choice("sum-one", {"positive": "no label is negative", "sum-one": "the labels sum to one",
             "equal": "all labels are equal"})), "autograd", ends_at_labels,
             why="It converges to `s*a_i = y_i`, the normalized labels `y_i/s`. Probabilities sum to one and cannot "
             "equal labels that do not.", wrong={"assumed labels that sum to one": True}),
        Part("drift", "Somebody uses `a_i - y_i` although the labels of 5{classes} classes sum to 1.5{label_sum}. "
             "With a learning rate of 0.1{rate}, by how much does the mean of the 5{classes} logits change at every "
             "step?",
                 Number(0.01), "numeric", drift,
             why="The entries sum to `1 - 1.5`{excess}, so each step adds `(1/10)*(1/2)/5`{} to the mean, forever: it "
             "is the gradient of `log(sum(j, exp(z_j))) - sum(i, y_i*z_i)`, which has no minimum unless the labels "
             "sum to one.",
             wrong={"assumed that the entries sum to zero, as in the right gradient":
                        (0, lambda: round(sum(score_gradient([0.0, 1.0], [0.5, 1.0])), 9)),
                    "went up the gradient instead of down": (-0.01, lambda: -drift().value),
                    "gave the sum instead of the mean": (0.05, lambda: CLASSES * drift().value)}),
        Part("vanishes", "Where the softmax is confident in a wrong class, the gradient vanishes.", Truth("false"),
             "autograd", vanishes,
             why="`a_i - y_i` is nearly minus one for the right class. The derivative of softmax is nearly zero "
             "there, but that of the logarithm is correspondingly large. With squared error there is no logarithm, "
             "and the gradient vanishes.", wrong={"considered only the softmax": True}),
    ])  # fmt: skip

EXERCISES = (CROSS_ENTROPY,)
