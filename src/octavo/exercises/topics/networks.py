"""Networks: the gradient of softmax cross-entropy.

z scores, a weights, y labels, s their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import sympy
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.pages.figures.lines import Series, lines

Array = NDArray[np.float64]
Row = Sequence[float]
KINDS = {"a": "share", "y": "real", "s": "positive"}
LABELS = {"one": [0.2, 0.3, 0.5], "more": [0.4, 0.6, 1.0]}  # the second add up to 2
RATE, CLASSES, SUM = 0.1, 5, 1.5


def weights_of(z: Row) -> list[float]:
    e = [math.exp(one - max(z)) for one in z]
    return [one / math.fsum(e) for one in e]


def score_gradient(z: Row, y: Row) -> list[float]:
    """s a - y."""
    return [sum(y) * a - one for a, one in zip(weights_of(z), y, strict=True)]


def _labels_taken_to_add_up(z: Row, y: Row) -> list[float]:
    return [a - one for a, one in zip(weights_of(z), y, strict=True)]


def _wrong_sign(z: Row, y: Row) -> list[float]:
    return [-one for one in score_gradient(z, y)]


def _own_term_alone(z: Row, y: Row) -> list[float]:
    return [-one * (1 - a) for a, one in zip(weights_of(z), y, strict=True)]


CASES = (
    ([1.0, 0.0, -1.0], [0.0, 1.0, 0.0]), ([0.5, 2.0, -1.5], [0.2, 0.3, 0.5]), ([0.0, 0.0], [1.0, 1.0]),
    ([3.0, -2.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.0]), ([1.0, 2.0], [0.0, 0.0]),
)  # fmt: skip


def loss(z: Tensor, y: Tensor) -> Tensor:
    return -(y * z.log_softmax(-1)).sum()


def gradient_by_autograd(z: Row, y: Row) -> list[float]:
    scores = torch.tensor(z, dtype=torch.float64, requires_grad=True)
    loss(scores, torch.tensor(y, dtype=torch.float64)).backward()
    assert scores.grad is not None
    found: list[float] = scores.grad.tolist()
    return found


def score_gradients() -> Finding:
    return Finding(
        [gradient_by_autograd(z, y) for z, y in CASES],
        "autograd on the loss; labels that add up to 1, to 2, to 1/2 and to nothing",
    )


def gradient_formula() -> Finding:
    """Differentiate, then write what came out in a, y and s instead of in scores and single labels."""
    a, y, s = symbols(KINDS)
    z = sympy.symbols("z1:4", real=True)
    other = sympy.Symbol("y2", real=True)
    labels = (y, other, s - y - other)
    total = sum(map(sympy.exp, z))
    slope = sympy.diff(-sum(label * (one - sympy.log(total)) for label, one in zip(labels, z, strict=True)), z[0])
    rest = sympy.exp(z[1]) + sympy.exp(z[2])
    found = sympy.simplify(slope.subs(z[0], sympy.log(a / (1 - a) * rest)))
    return Finding(found, "SymPy differentiates the loss of three classes; a third label of s - y_1 - y_2")


def adds_up_to_zero() -> Finding:
    sums = [abs(math.fsum(gradient_by_autograd(z, y))) for z, y in CASES]
    return Finding(
        verdict(max(sums) < 1e-12), f"autograd, labels of every sum: at most {max(sums):.0e} from 0", "1e-12"
    )


def descended(y: Row, step: Callable[[Row, Row], list[float]], steps: int = 4000) -> list[float]:
    z = [0.0] * len(y)
    for _ in range(steps):
        z = [one - RATE * slope for one, slope in zip(z, step(z, y), strict=True)]
    return z


def ends_at_labels() -> Finding:
    off = {}
    for name, y in LABELS.items():
        a = weights_of(descended(y, gradient_by_autograd, 1000))
        off[name] = max(abs(one - label) for one, label in zip(a, y, strict=True))
    note = (
        f"1,000 steps of gradient descent by autograd: labels that add up to 1 are met to {off['one']:.0e}; those that "
        f"add up to 2 are missed by {off['more']:.2f}"
    )
    return Finding(verdict(off["one"] < 1e-6 and off["more"] < 1e-6, off["one"] < 1e-6), note, "1e-6")


def drift() -> Finding:
    y = [SUM / CLASSES + 0.1 * (i - 2) for i in range(CLASSES)]
    z = torch.zeros(CLASSES, dtype=torch.float64)
    moved = -RATE * (z.softmax(-1) - torch.tensor(y, dtype=torch.float64))
    later = [sum(descended(y, _labels_taken_to_add_up, n)) / CLASSES for n in (100, 200)]
    return Finding(
        moved.mean().item(),
        f"one step; after 100 and 200 steps the mean score is {later[0]:.2f} and {later[1]:.2f}: it never stops",
    )


def vanishes() -> Finding:
    """The gradient of the right class's score, where another one leads by 40."""
    slopes = []
    for squared in (False, True):
        z = torch.tensor([0.0, 40.0], dtype=torch.float64, requires_grad=True)
        y = torch.tensor([1.0, 0.0], dtype=torch.float64)
        (((z.softmax(-1) - y) ** 2).sum() if squared else loss(z, y)).backward()
        assert z.grad is not None
        slopes.append(abs(z.grad[0].item()))
    note = f"autograd, the wrong class leads by 40: {slopes[0]:.2f} in size; with squared error {slopes[1]:.0e}"
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
        "Two classes: how strongly the right class is pulled up. Only cross-entropy still pulls where the softmax is "
        "sure and wrong.",
        ("how far the wrong class leads", "size of the gradient"),
    )


CROSS_ENTROPY = Exercise(
    id="cross-entropy-gradient",
    title="The gradient of softmax and cross-entropy",
    question="Scores z become weights `a = softmax(z)`, and the loss is `L = -sum(i, y_i*log(a_i))`. The labels y add "
    "up to s, which is 1 for one right class, but not where labels are counts, weights or several right classes.",
    answer="`L = s*log(sum(j, exp(z_j))) - sum(i, y_i*z_i)`, so `d(L, z_i) = s*a_i - y_i`. Only for `s = 1` is it the "
    "familiar `a_i - y_i`. Its entries always add up to zero, and it is zero where `a_i = y_i/s`. Unlike the "
    "derivatives of softmax alone it does not vanish where the model is sure and wrong: the logarithm undoes that.",
    figure=slope_figure,
    parts=[
        Part("formula", "What is `d(L, z_i)`, in `a_i`, `y_i` (write a and y) and s?", Formula("s*a - y", KINDS),
             "symbolic", gradient_formula,
             why="Each of the terms `-y_j*log(a_j) = -y_j*z_j + y_j*log(sum(k, exp(z_k)))` holds `z_i` in its second "
             "half, which gives `y_j*a_i`; together that is `s*a_i`.",
             wrong={"turned the sign round": "y - s*a",
                    "differentiated only the term with y_i, and left out the other labels": "-y*(1 - a)"},
             only_if={"the labels add up to one": "a - y"}),
        Part("function", "Write a function that returns the gradient for any scores and any labels.",
             Function("score_gradient", score_gradient, CASES, "score_gradient(z: list, y: list) -> list"), "autograd",
             score_gradients, why="Weights times the sum of the labels, less the labels.",
             wrong={"assumed the labels to add up to one": _labels_taken_to_add_up,
                    "turned the sign round": _wrong_sign, "differentiated only the term with y_i": _own_term_alone}),
        Part("sum", "The gradient's entries add up to zero, whatever the labels add up to.", Truth("true"), "autograd",
             adds_up_to_zero,
             why="The weights add up to one, so `s*sum(i, a_i) - sum(i, y_i) = s - s`. Raising all scores together "
             "changes no weight, hence no loss.", wrong={"mistook labels that add up to one for needed here": False}),
        Part("ends", "Gradient descent on the scores ends at weights equal to the labels.",
             Truth("nearly", "the labels add up to one"), "autograd", ends_at_labels,
             why="It ends where `s*a_i = y_i`: at the labels' shares `y_i/s`. Weights that add up to one cannot meet "
             "labels that do not.", wrong={"assumed labels that add up to one": True}),
        Part("drift", "Somebody uses `a_i - y_i` although the labels of 5 classes add up to 1.5. With a rate of 0.1, "
             "by how much does the mean of the 5 scores change at every step?", Number(0.01), "numeric", drift,
             why="The entries add up to `1 - 1.5`, so each step adds `0.1*0.5/5` to the mean, for ever: it is the "
             "gradient of `log(sum(j, exp(z_j))) - sum(i, y_i*z_i)`, which has no lowest point unless `s = 1`.",
             wrong={"assumed the entries to add up to zero, as they do in the right gradient": 0,
                    "went up the gradient instead of down": -0.01, "mistook the sum for the mean": 0.05}),
        Part("vanishes", "Where the softmax is sure of a wrong class, the gradient vanishes.", Truth("false"),
             "autograd", vanishes,
             why="`a_i - y_i` is nearly -1 for the right class. The derivative of softmax is nearly 0 there, but that "
             "of the logarithm is as large as it is small. Squared error has no logarithm, and does vanish.",
             wrong={"considered only the softmax alone": True}),
    ],
)  # fmt: skip

EXERCISES = (CROSS_ENTROPY,)
