"""The value of a formula at a point, and whether two formulas are equal: decided with 50 digits at many points."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import mpmath
from mpmath import mpf

from octavo.errors import UserError
from octavo.exercises.framework.formula import Node, evaluate

DIGITS = 50
RELATIVE_TOLERANCE = mpf(10) ** -20  # far above rounding with 50 digits, far below any real difference
POINTS, MAX_TRIES = 24, 200  # points at which both must be equal, and how many are tried to find that many
MAX_GAPS = 6  # points at which only one of two formulas is defined
MAX_POWER = 10_000
MAX_VALUE_BITS = 100_000  # larger values count as infinite
SEED = 7  # so that grading a file twice gives the same result
KINDS: dict[str, tuple[str, ...]] = {  # kind of a symbol -> simple values that are tried first
    "whole": ("2", "3", "5", "1", "4"), "positive": ("2", "0.5", "1", "3"), "real": ("1", "2", "-1", "0.5", "0"),
    "share": ("0.5", "0.25", "0.9", "0.1"),
}  # fmt: skip
CONSTANTS: dict[str, Callable[[], Any]] = {"pi": lambda: +mpmath.pi, "e": lambda: +mpmath.e, "E": lambda: +mpmath.e}
CALLS: dict[str, Callable[..., Any]] = {
    "sqrt": mpmath.sqrt, "exp": mpmath.exp, "log": mpmath.log, "ln": mpmath.log, "sin": mpmath.sin, "cos": mpmath.cos,
    "tan": mpmath.tan, "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh, "abs": abs,
    "log2": lambda x: mpmath.log(x, 2), "log10": mpmath.log10,
    "gamma": mpmath.gamma, "factorial": mpmath.factorial, "binomial": mpmath.binomial, "min": min, "max": max,
}  # fmt: skip


class Difference(NamedTuple):
    """A point at which two formulas differ, and their values there."""

    at: dict[str, str]
    left: str
    right: str


def value(node: Node, at: Mapping[str, Any]) -> Any:
    """The value at a point, as an mpf; ValueError or ArithmeticError where it is not defined."""
    return evaluate(node, mpf, lambda name: mpf(at[name]) if name in at else CONSTANTS[name](), CHECKED_FUNCTIONS)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any) -> Any:
        result = function(*arguments)
        is_real = not isinstance(result, mpmath.mpc) and mpmath.isfinite(result)
        if not is_real or (result and mpmath.mag(result) > MAX_VALUE_BITS):
            raise ValueError("not a finite real number, or a very large one")
        return result

    return checked


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > MAX_POWER:
        raise UserError(f"powers may go up to {MAX_POWER:,}: one is {mpmath.nstr(exponent, 5)}")
    return base**exponent


OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "^": _power}
CHECKED_FUNCTIONS = {name: _checked(function) for name, function in (CALLS | OPERATORS).items()}


def find_difference(left: Node, right: Node, symbols: Mapping[str, str]) -> Difference | None:
    """The simplest point at which two formulas differ, or None if they agree at every point tried."""
    with mpmath.workdps(DIGITS):
        agreed, gaps = 0, []
        for at in points(symbols):
            a, b = _value_or_none(left, at), _value_or_none(right, at)
            if (a is None) != (b is None):  # 0/0 at a single point is only a way of writing; at many it is a mistake
                gaps.append(at)
                if len(gaps) < MAX_GAPS and symbols:
                    continue
                at = gaps[0]
                return Difference(
                    _format_point(at), _format(_value_or_none(left, at)), _format(_value_or_none(right, at))
                )
            if a is not None and abs(a - b) > RELATIVE_TOLERANCE * max(abs(a), abs(b)):
                return Difference(_format_point(at), _format(a), _format(b))
            agreed += a is not None
            if agreed >= POINTS or (agreed and not symbols):
                return None
    raise UserError("the formula is defined at too few points to be compared; check its roots and logarithms")


def points(symbols: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Simple values first, then random ones of the symbols' kinds."""
    rng = random.Random(SEED)
    for i in range(max(len(KINDS[kind]) for kind in symbols.values()) if symbols else 1):
        yield {name: KINDS[kind][(i + shift) % len(KINDS[kind])]
               for shift, (name, kind) in enumerate(symbols.items())}  # fmt: skip
    for _ in range(MAX_TRIES if symbols else 0):
        yield {name: _draw(kind, rng) for name, kind in symbols.items()}


def _draw(kind: str, rng: random.Random) -> Any:
    if kind == "whole":
        return rng.randint(1, 30)
    if kind == "share":
        return mpf(rng.random())
    size = mpmath.exp(mpf(rng.uniform(-2, 2)))
    return -size if kind == "real" and rng.random() < 0.5 else size


def _value_or_none(node: Node, at: Mapping[str, Any]) -> Any:
    try:
        return value(node, at)
    except (ArithmeticError, ValueError):
        return None


def _format_point(point: Mapping[str, Any]) -> dict[str, str]:
    return {name: _format(mpf(x)) for name, x in point.items()}


def _format(x: Any) -> str:
    return "not defined" if x is None else str(mpmath.nstr(x, 8)).removesuffix(".0")
