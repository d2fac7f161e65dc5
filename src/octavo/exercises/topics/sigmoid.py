"""Recurrent networks: the sigmoid's symmetry on paper, and what is left of it in floating point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import sympy

from octavo.exercises import Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.pages.figures.lines import Series, lines

SHARE = {"S": "share"}


def mirrored() -> Finding:
    (s,) = symbols(SHARE)
    x = sympy.log(s / (1 - s))  # where the sigmoid is S
    return Finding(sympy.simplify(1 / (1 + sympy.exp(x))), "SymPy: put x = ln(S/(1 - S)) into 1/(1 + exp(x))")


def slope() -> Finding:
    (s,) = symbols(SHARE)
    x = sympy.Symbol("x", real=True)
    found = sympy.diff(1 / (1 + sympy.exp(-x)), x).subs(x, sympy.log(s / (1 - s)))
    return Finding(sympy.simplify(found), "SymPy: the derivative, written in S")


def complement_in_floats() -> Finding:
    x = np.linspace(-700, 700, 140_001)
    sigma = 1 / (1 + np.exp(-x))
    exact = np.where(x > 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x)))
    error = np.abs((1 - sigma) / exact - 1)
    worst, kept = float(error.max()), float(error[x <= 20].max())
    note = f"140,001 points from -700 to 700: off by up to {worst:.0%} of itself; up to x = 20 by {kept:.0e}"
    return Finding(verdict(worst < 1e-6, kept < 1e-6), note, "to 1e-6 of it")


def first_float(holds: Callable[[Any], bool], low: float, high: float, kind: type) -> float:
    """The least float of that kind for which it holds, by halving."""
    a, b = kind(low), kind(high)
    while (middle := kind((a + b) / 2)) not in (a, b):
        a, b = (a, middle) if holds(middle) else (middle, b)
    return float(b)


def complement_gone() -> Finding:
    one = np.float32(1)
    found = first_float(lambda x: one - one / (one + np.exp(-x)) == 0, 1, 80, np.float32)
    return Finding(found, "the least float32 for which 1 - 1/(1 + exp(-x)) is 0, by halving")


def not_a_number() -> Finding:
    with np.errstate(over="ignore", invalid="ignore"):
        found = first_float(lambda x: bool(np.isnan(np.exp(x) / (1 + np.exp(x)))), 1, 2000, np.float64)
    return Finding(found, "the least float64 for which exp(x)/(1 + exp(x)) is no number, by halving")


def log_sigmoid(x: float) -> float:
    """ln of the sigmoid, without overflow and cancellation."""
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def log_of_sigmoid(x: float) -> float:
    """The logarithm of the rounded sigmoid."""
    with np.errstate(over="ignore", divide="ignore"):
        return float(np.log(1 / (1 + np.exp(-np.float64(x)))))


def log_without_log1p(x: float) -> float:
    """No overflow, but 1 + exp(-x) is rounded."""
    return -math.log(1 + math.exp(-x)) if x >= 0 else x - math.log(1 + math.exp(x))


LOG_CASES = [(-800.0,), (-40.0,), (-1.5,), (0.0,), (2.0,), (40.0,), (700.0,)]


def log_exactly() -> Finding:
    with mpmath.workdps(400):
        found = [float(-mpmath.log(1 + mpmath.exp(-mpmath.mpf(x)))) for (x,) in LOG_CASES]
    return Finding(found, "400 digits")


def tanh_by_sigmoid() -> Finding:
    x = np.concatenate([np.logspace(-18, 1, 500)])
    error = np.abs((2 / (1 + np.exp(-2 * x)) - 1) / np.tanh(x) - 1)
    worst, kept = float(error.max()), float(error[x >= 0.01].max())
    return Finding(
        verdict(worst < 1e-12, kept < 1e-12),
        f"x from 1e-18 to 10: off by up to {worst:.0%} of itself; from x = 0.01 on by {kept:.0e}",
        "to 1e-12 of it",
    )


SIGMOID = Exercise(
    id="sigmoid-symmetry",
    title="The sigmoid's symmetry, and what floats do to it",
    question="`sigma(x) = 1/(1 + exp(-x))`. Write S for `sigma(x)`.",
    answer="`sigma(-x) = 1 - S`, so the slope `S*(1 - S)` is the same at x and -x, at most 1/4. On paper, `1 - "
    "sigma(x)` and `sigma(-x)` are one thing. In floats they are not: for large x, S is rounded to 1, and its "
    "complement is lost, from x = 16.6 on in float32 and from 36.7 on in float64, where `sigma(-x)` is still known to "
    "16 digits. Compute the small side, never one minus the large one; take ln of it by log1p.",
    figure=lambda: lines([Series("sigma(-x)", [(x / 2, 1 / (1 + math.exp(x / 2))) for x in range(121)]),
        Series("1 - sigma(x)", [(x / 2, 1 - 1 / (1 + math.exp(-x / 2))) for x in range(121)])],
        "The same on paper. In float64, 1 - sigma(x) is gone at 36.7.", ("x", "value"), log_y=True),
    parts=[
        Part("mirror", "What is `sigma(-x)`, in terms of S?", Formula("1 - S", SHARE), "symbolic", mirrored,
             why="`1/(1 + exp(x)) = exp(-x)/(1 + exp(-x)) = 1 - 1/(1 + exp(-x))`.",
             wrong={"mistook it for odd, as tanh is": "-S", "mistook it for even": "S"}),
        Part("slope", "What is `d(sigma, x)`, in terms of S?", Formula("S*(1 - S)", SHARE), "symbolic", slope,
             why="`exp(-x)/(1 + exp(-x))^2 = S*(1 - S)`, unchanged when S and 1 - S change places.",
             wrong={"gave tanh's": "1 - S^2", "forgot one factor": "1 - S"}),
        Part("complement", "In float64, `1 - sigma(x)` is `sigma(-x)` to six digits, for every x from -700 to 700.",
             Truth("nearly", only_if="x is not large: up to about 20"), "numeric", complement_in_floats,
             why="S near 1 is known to `1.1*10^(-16)`; one minus it inherits that error, however small it is itself.",
             wrong={"assumed that what holds in exact arithmetic holds in floats": True}),
        Part("gone", "In float32, from which x on is `1 - 1/(1 + exp(-x))` exactly zero?", Number("24*ln(2)"),
             "numeric", complement_gone, why="`exp(-x)` at or below `2^(-24)` leaves `1 + exp(-x)` at 1.",
             wrong={"counted the 23 stored bits": "23*ln(2)", "used float64's": "53*ln(2)",
                    "used the overflow of exp": 88.722839}),
        Part("nan", "In float64, from which x on does `exp(x)/(1 + exp(x))` give no number at all?",
             Number("1024*ln(2)"), "numeric", not_a_number,
             why="`exp(x)` overflows above `2^1024`, and infinity over infinity is not a number; `1/(1 + exp(-x))` "
             "gives 1.", wrong={"used float32's": "128*ln(2)", "used the underflow of exp": "1075*ln(2)"}),
        Part("log", "Write `ln(sigma(x))` so that it is right to six digits from -800 to 700.", Function("log_sigmoid",
             log_sigmoid, LOG_CASES, "log_sigmoid(x: number) -> number", rel=1e-6, abs=0), "numeric", log_exactly,
             why="`-log1p(exp(-x))` for x >= 0, `x - log1p(exp(x))` below: only small exponentials.",
             wrong={"used the logarithm of the rounded sigmoid": log_of_sigmoid,
                    "rounded 1 + exp(-x)": log_without_log1p}),
        Part("tanh", "`tanh(x) = 2*sigma(2*x) - 1`, so in float64 the right side gives tanh(x) to 12 digits.",
             Truth("nearly", only_if="x is not close to zero"), "numeric", tanh_by_sigmoid,
             why="The identity is exact; but near zero it subtracts 1 from a number near 1. The error is `10^(-16)` in "
             "itself, which is enough for a gate, but all of a tiny tanh.",
             wrong={"assumed that what holds in exact arithmetic holds in floats": True}),
    ],
)  # fmt: skip

EXERCISES = (SIGMOID,)
