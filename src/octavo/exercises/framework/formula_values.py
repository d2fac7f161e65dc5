"""What a formula is worth at a point, and whether two formulas are the same: decided with 50 digits, point by point."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import mpmath
from mpmath import mpf

from octavo.errors import UserError
from octavo.exercises.framework.formula import Node

DIGITS = 50
CLOSE = mpf(10) ** -20  # relative; far above rounding with 50 digits, far below any real difference
POINTS, TRIES = 24, 200  # random points at which both must be the same, and how many are tried to find such
MOST_GAPS = 6  # points at which only one of two formulas is defined
LARGEST_POWER = 10_000
LARGEST_BITS = 100_000  # larger values count as infinite
SEED = 7  # grading the same file twice gives the same table
KINDS: dict[str, tuple[str, ...]] = {  # what a symbol may be, and the friendly values that are tried first
    "whole": ("2", "3", "5", "1", "4"), "positive": ("2", "0.5", "1", "3"), "real": ("1", "2", "-1", "0.5", "0"),
    "share": ("0.5", "0.25", "0.9", "0.1"),
}  # fmt: skip
CALLS: dict[str, Callable[..., Any]] = {
    "sqrt": mpmath.sqrt, "exp": mpmath.exp, "log": mpmath.log, "ln": mpmath.log, "sin": mpmath.sin, "cos": mpmath.cos,
    "tan": mpmath.tan, "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh, "abs": abs,
    "gamma": mpmath.gamma, "factorial": mpmath.factorial, "binomial": mpmath.binomial, "min": min, "max": max,
}  # fmt: skip


class Difference(NamedTuple):
    """A point at which two formulas are not the same; None is 'not defined there'."""

    at: dict[str, str]
    one: str
    other: str


def value(node: Node, at: Mapping[str, Any]) -> Any:
    """The value as an mpf, at a point; ValueError or ArithmeticError where it is not defined."""
    inside = [value(one, at) for one in node.inside]
    match node.kind:
        case "number":
            return mpf(node.text)
        case "name":
            return _constant(node.text) if node.text not in at else mpf(at[node.text])
        case "()":
            return inside[0]
        case "sign":
            return -inside[0]
        case "call":
            result = CALLS[node.text](*inside)
        case "^":
            if abs(inside[1]) > LARGEST_POWER:
                raise UserError(f"powers may go up to {LARGEST_POWER:,}: one is {mpmath.nstr(inside[1], 5)}")
            result = inside[0] ** inside[1]
        case "+":
            result = inside[0] + inside[1]
        case "-":
            result = inside[0] - inside[1]
        case "*":
            result = inside[0] * inside[1]
        case "/":
            result = inside[0] / inside[1]
        case _:
            raise AssertionError(node.kind)
    if isinstance(result, mpmath.mpc) or not mpmath.isfinite(result) or (result and mpmath.mag(result) > LARGEST_BITS):
        raise ValueError("not a finite real number, or a very large one")
    return result


def difference(one: Node, other: Node, symbols: Mapping[str, str]) -> Difference | None:
    """The friendliest point at which the two differ, or None where they are the same at every point tried."""
    with mpmath.workdps(DIGITS):
        agreed, gaps = 0, []
        for at in points(symbols):
            a, b = _or_none(one, at), _or_none(other, at)
            if (a is None) != (b is None):  # 0/0 at a single point is a way of writing, at many it is a mistake
                gaps.append(at)
                if len(gaps) < MOST_GAPS and symbols:
                    continue
                at = gaps[0]
                return Difference(_at(at), _shown(_or_none(one, at)), _shown(_or_none(other, at)))
            if a is not None and abs(a - b) > CLOSE * max(abs(a), abs(b)):
                return Difference(_at(at), _shown(a), _shown(b))
            agreed += a is not None
            if agreed >= POINTS or (agreed and not symbols):
                return None
    raise UserError("the formula is defined at too few points to be compared; check its roots and logarithms")


def points(symbols: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Small round values first, then random ones of the symbols' kinds."""
    dice = random.Random(SEED)
    for i in range(max(len(KINDS[kind]) for kind in symbols.values()) if symbols else 1):
        yield {name: KINDS[kind][(i + shift) % len(KINDS[kind])]
               for shift, (name, kind) in enumerate(symbols.items())}  # fmt: skip
    for _ in range(TRIES if symbols else 0):
        yield {name: _drawn(kind, dice) for name, kind in symbols.items()}


def _drawn(kind: str, dice: random.Random) -> Any:
    if kind == "whole":
        return dice.randint(1, 30)
    if kind == "share":
        return mpf(dice.random())
    size = mpmath.exp(mpf(dice.uniform(-2, 2)))
    return -size if kind == "real" and dice.random() < 0.5 else size


def _or_none(node: Node, at: Mapping[str, Any]) -> Any:
    try:
        return value(node, at)
    except (ArithmeticError, ValueError):
        return None


def _at(point: Mapping[str, Any]) -> dict[str, str]:
    return {name: _shown(mpf(x)) for name, x in point.items()}


def _constant(name: str) -> Any:
    return +mpmath.pi if name == "pi" else +mpmath.e


def _shown(x: Any) -> str:
    return "not defined" if x is None else str(mpmath.nstr(x, 8)).removesuffix(".0")
