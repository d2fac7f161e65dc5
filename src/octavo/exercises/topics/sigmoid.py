"""The symmetry of the sigmoid in exact arithmetic, and what is left of it in floating point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import sympy

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.pages.figures.charts import Series, lines

SHARE = {"S": "share"}
RANGE, MODERATE, AWAY = 700, 20, 0.01  # values of x: the largest, one that is not large, one that is not close to 0


def mirrored() -> Finding:
    (s,) = symbols(SHARE)
    x = sympy.log(s / (1 - s))  # the x with sigmoid(x) = S
    return Finding(sympy.simplify(1 / (1 + sympy.exp(x))), "SymPy substitutes x = ln(S/(1 - S)) into 1/(1 + exp(x))")


def slope() -> Finding:
    (s,) = symbols(SHARE)
    x = sympy.Symbol("x", real=True)
    found = sympy.diff(1 / (1 + sympy.exp(-x)), x).subs(x, sympy.log(s / (1 - s)))
    return Finding(sympy.simplify(found), "SymPy: the derivative, expressed in S")


def complement_in_floats() -> Finding:
    x = np.linspace(-RANGE, RANGE, 140_001)
    sigma = 1 / (1 + np.exp(-x))
    exact = np.where(x > 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x)))
    error = np.abs((1 - sigma) / exact - 1)
    worst, moderate = float(error.max()), float(error[x <= MODERATE].max())
    note = f"140,001 points from -700 to 700: relative error up to {worst:.0%}; up to x = 20 only {moderate:.0e}"
    positive, low = (float(error[part].max()) < 1e-6 for part in (x > 0, x >= -MODERATE))
    under = {"moderate": moderate < 1e-6, "positive": positive, "low": low}
    return Finding(verdict(worst < 1e-6, under), note, "to 1e-6 relative")


def first_float(holds: Callable[[Any], bool], low: float, high: float, kind: type) -> float:
    """The smallest float of a type for which a condition holds, by bisection."""
    a, b = kind(low), kind(high)
    while (middle := kind((a + b) / 2)) not in (a, b):
        a, b = (a, middle) if holds(middle) else (middle, b)
    return float(b)


def complement_gone() -> Finding:
    one = np.float32(1)
    found = first_float(lambda x: one - one / (one + np.exp(-x)) == 0, 1, 80, np.float32)
    return Finding(found, "the smallest float32 for which 1 - 1/(1 + exp(-x)) is 0, by bisection")


def not_a_number() -> Finding:
    with np.errstate(over="ignore", invalid="ignore"):
        found = first_float(lambda x: bool(np.isnan(np.exp(x) / (1 + np.exp(x)))), 1, 2000, np.float64)
    return Finding(found, "the smallest float64 for which exp(x)/(1 + exp(x)) is NaN, by bisection")


def log_sigmoid(x: float) -> float:
    """The logarithm of the sigmoid, without overflow and cancellation."""
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def log_of_sigmoid(x: float) -> float:
    """The logarithm of the rounded sigmoid."""
    with np.errstate(over="ignore", divide="ignore"):
        return float(np.log(1 / (1 + np.exp(-np.float64(x)))))


def log_without_log1p(x: float) -> float:
    """Without overflow, but 1 + exp(-x) is rounded."""
    return -math.log(1 + math.exp(-x)) if x >= 0 else x - math.log(1 + math.exp(x))


LOG_CASES = [(-800.0,), (-40.0,), (-1.5,), (0.0,), (2.0,), (40.0,), (700.0,)]


def log_exactly() -> Finding:
    with mpmath.workdps(400):
        found = [float(-mpmath.log(1 + mpmath.exp(-mpmath.mpf(x)))) for (x,) in LOG_CASES]
    return Finding(found, "computed with 400 digits")


def tanh_by_sigmoid() -> Finding:
    x = np.concatenate([np.logspace(-18, 1, 500)])
    error = np.abs((2 / (1 + np.exp(-2 * x)) - 1) / np.tanh(x) - 1)
    worst, moderate = float(error.max()), float(error[x >= AWAY].max())
    note = f"x from 1e-18 to 10: relative error up to {worst:.0%}; above x = 0.01 only {moderate:.0e}"
    under = {"away": moderate < 1e-12, "positive": worst < 1e-12, "small": float(error[x < AWAY].max()) < 1e-12}
    return Finding(verdict(worst < 1e-12, under), note, "to 1e-12 relative")


SIGMOID = Exercise(
    id="sigmoid-symmetry", title="The symmetry of the sigmoid in floating point",
    question="`sigma(x) = 1/(1 + exp(-x))`. Write S for `sigma(x)`.",
    where={"S": lambda x: 1 / (1 + mpmath.exp(-x)), "mirrored": lambda x: 1 / (1 + mpmath.exp(x)), "range": RANGE,
           "moderate": MODERATE, "away": AWAY, "lowest": -LOG_CASES[0][0], "rounding": np.finfo(float).eps / 2,
           "rounding32": float(np.finfo(np.float32).eps) / 2, "lost64": -math.log(np.finfo(float).eps / 2),
           "steepest": lambda: max(s / 64 * (1 - s / 64) for s in range(65)), "order": mpmath.mpf(10) ** -16,
           "overflow": lambda: mpmath.mpf(np.finfo(float).max) / (1 - mpmath.mpf(2) ** -53)},
    answer="`sigma(-x) = 1 - S`, so the slope `S*(1 - S)`{slope} is the same at x and -x, and at most 1/4{steepest}. "
    "In exact arithmetic `1 - sigma(x)`{mirrored} and `sigma(-x)` are equal. In floating point they are not: for "
    "large x, S rounds to one and its complement is lost, above x = 16.6{gone} in float32 and above 36.7{lost64} in "
    "float64, where `sigma(-x)` still has all its digits. Compute the small value directly, never as one minus the "
    "large one; use log1p for its logarithm.",
    figure=lambda: lines([Series("sigma(-x)", [(x / 2, 1 / (1 + math.exp(x / 2))) for x in range(121)]),
        Series("1 - sigma(x)", [(x / 2, 1 - 1 / (1 + math.exp(-x / 2))) for x in range(121)])],
        "Equal in exact arithmetic. In float64, 1 - sigma(x) is zero above 36.7.", ("x", "value"), log_y=True),
    parts=[
        Part("mirror", "What is `sigma(-x)`, in terms of S?", Formula("1 - S", SHARE), "symbolic", mirrored,
             why="`1/(1 + exp(x)) = exp(-x)/(1 + exp(-x)) = 1 - 1/(1 + exp(-x))`.",
             wrong={"thought that it is odd, like tanh": ("-S", lambda S: 0 - S), "thought that it is even": ("S",
                 lambda S: S + 0)}),
        Part("slope", "What is `d(sigma, x)`, in terms of S?", Formula("S*(1 - S)", SHARE), "symbolic", slope,
             why="`exp(-x)/(1 + exp(-x))^2 = S*(1 - S)`, unchanged when S and `1 - S`{mirror} are swapped.",
             wrong={"gave that of tanh": ("1 - S^2", lambda S: (1 - S) * (1 + S)), "forgot one factor": ("1 - S",
                 lambda S: 1 - S)}),
        Part("complement", "In float64, `1 - sigma(x)`{mirrored} equals `sigma(-x)` to six digits, for every x from "
             "-700{range} to 700{range}.",
             Truth("nearly", Choice("moderate", {"positive": "x is positive", "moderate": "x is at most 20{moderate}",
             "low": "x is at least -20{moderate}"})), "numeric", complement_in_floats,
             why="S near one has an absolute error of `1.1*10^(-16)`{rounding}; one minus it has the same error, "
             "however small it is.", wrong={"assumed that what holds in exact arithmetic holds in floats": True}),
        Part("gone", "In float32, above which x is `1 - 1/(1 + exp(-x))`{mirrored} exactly zero?", Number("24*ln(2)"),
            "numeric",
             complement_gone, why="If `exp(-x)` is at most `2^(-24)`{rounding32}, then one plus it rounds to one.",
             wrong={"used the stored bits only": ("23*ln(2)", lambda: np.finfo(np.float32).nmant * math.log(2)),
                    "gave the limit of float64": ("53*ln(2)", lambda: (np.finfo(float).nmant + 1) * math.log(2)),
                    "used the overflow of exp": (88.722839, lambda: math.log(float(np.finfo(np.float32).max)))}),
        Part("nan", "In float64, above which x is `exp(x)/(1 + exp(x))`{S} NaN?", Number("1024*ln(2)"), "numeric",
             not_a_number,
             why="`exp(x)` overflows above `2^1024`{overflow}, and infinity divided by infinity is NaN; `1/(1 + "
             "exp(-x))`{S} gives one.",
             wrong={"gave the limit of float32": ("128*ln(2)", lambda: math.log(float(np.finfo(np.float32).max))),
                    "used the underflow of exp": ("1075*ln(2)", lambda: math.log(2) - math.log(math.ulp(0.0)))}),
        Part("log", "Write a function for `ln(sigma(x))` that is right to six digits from -800{lowest} to 700{range}.",
             Function("log_sigmoid", log_sigmoid, LOG_CASES, "log_sigmoid(x: number) -> number", rel=1e-6, abs=0),
             "numeric", log_exactly,
             why="`-log1p(exp(-x))` for x not below zero, `x - log1p(exp(x))` otherwise: no exponential exceeds one.",
             wrong={"used the logarithm of the rounded sigmoid": log_of_sigmoid,
                    "rounded one plus the exponential": log_without_log1p}),
        Part("tanh", "`tanh(x) = 2*sigma(2*x) - 1`, so in float64 the right side gives tanh(x) to twelve digits.",
             Truth("nearly", Choice("away", {"positive": "x is positive", "small": "x is below 0.01{away}",
             "away": "x is at least 0.01{away}"})), "numeric", tanh_by_sigmoid,
             why="The identity is exact; but near zero it subtracts one from a number near one. The absolute error is "
             "`10^(-16)`{order}, which is negligible for a gate, but can be larger than a tiny tanh.",
             wrong={"assumed that what holds in exact arithmetic holds in floats": True}),
    ])  # fmt: skip

EXERCISES = (SIGMOID,)
