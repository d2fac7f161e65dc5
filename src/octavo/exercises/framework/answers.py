"""The kinds of answers: what a student may write, and how it is compared with the right answer.

Every kind has `right`, the right answer; `template`, the format for whoever fills in an answer file; and `compare`,
which says how an answer differs (None: it is right). `compare(given)` compares with the right answer,
`compare(given, found)` with what the evidence found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath

from octavo.errors import UserError
from octavo.exercises.framework.formula import parse
from octavo.exercises.framework.formula_values import DIGITS, find_difference, value
from octavo.exercises.framework.verdicts import Choice, Judgement, Truth, text_of, verdict
from octavo.exercises.framework.verdicts import shorten as _short

__all__ = [
    "Answer", "Choice", "Formula", "Function", "Interval", "IntervalAt", "Judgement", "Number", "Truth", "read_number",
    "verdict",
]  # fmt: skip
ROUNDING = 1e-9  # relative
AMBIGUOUS = re.compile(r"/\s*\d+(?:\.\d+)?\s*[A-Za-z(]")  # a product without a sign after a division
AMBIGUOUS_NOTE = "a product after a division is read from left to right: a/2b is (a/2)*b"
MAX_FORMULA_ERROR = 1e-6  # of measured values that confirm a formula, relative


class Interval(NamedTuple):
    """A measured number: it lies between these bounds."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"between {self.low:.6g} and {self.high:.6g}"


class IntervalAt(NamedTuple):
    """A formula's measured value where its symbols have these values."""

    values: dict[str, float]
    low: float
    high: float

    def __str__(self) -> str:
        symbols = ", ".join(f"{name} = {x:g}" for name, x in self.values.items())
        return f"{symbols}: {self.low:.6g}" + (f" to {self.high:.6g}" if self.high != self.low else "")


@dataclass(frozen=True)
class Number:
    """A number, right to so many significant `digits`, or within the tolerance `rel` or `abs` where one is given.

    `right` may be a formula of numbers; `rel=0` asks for the exact number.
    """

    right: float | int | Fraction | str
    rel: float | None = None
    abs: float = 0.0
    digits: int = 3

    @property
    def template(self) -> str:
        return f"a number or an expression, {self.tolerance()}"

    def compare(self, given: Any, found: Any = None) -> str | None:
        """How the number differs."""
        x, right = read_number(given), found if found is not None else self.right
        if isinstance(right, Interval):
            return None if right.low <= x <= right.high else f"{x:.6g} is not {right}"
        expected = read_number(right)
        return None if abs(x - expected) <= self.allowed(expected, x) else f"{x:.8g} is not {expected:.8g}"

    def allowed(self, right: float, x: float | None = None) -> float:
        """How far off an answer x may be: half a unit of the last digit that is asked for, or the tolerance given."""
        if self.rel is not None or not right or x == 0:
            return max(self.abs, (self.rel or 0) * abs(right))
        smaller = abs(right) if x is None else min(abs(right), abs(x))
        unit = 10.0 ** (math.floor(math.log10(smaller)) + 1 - self.digits)
        return max(self.abs, unit / 2 * (1 + ROUNDING))

    def tolerance(self) -> str:
        """How precise a right answer must be."""
        tolerances = [f"a relative error of {self.rel or 0:g}"] * bool(self.rel) + [f"{self.abs:g}"] * bool(self.abs)
        if tolerances:
            return f"within {' or '.join(tolerances)}"
        return "exact" if self.rel is not None else f"right to {self.digits} digits"

    def too_loose(self, found: Any) -> str | None:
        """How evidence is less precise than what is asked of students; None if it is not."""
        if not isinstance(found, Interval):
            return None
        error, allowed = (found.high - found.low) / 2, self.allowed(read_number(self.right))
        return None if error <= allowed else f"the evidence is known to {error:.2g}, students must hit {allowed:.2g}"


@dataclass(frozen=True)
class Formula:
    """A formula in named symbols, each "whole", "positive", "real" or "share" (0 to 1); equivalent forms are right."""

    right: str
    symbols: Mapping[str, str]
    descending: tuple[str, ...] = ()  # where values are drawn, each of these is at least as large as the next

    @property
    def template(self) -> str:
        return f"a formula in {self.in_symbols}, in quotes"

    @property
    def in_symbols(self) -> str:
        """The symbols that the formula may contain, in words."""
        *others, last = self.symbols or ["numbers"]
        return f"{', '.join(others)}{' and ' * bool(others)}{last}"

    def compare(self, given: Any, found: Any = None) -> str | None:
        """A point where the formula is wrong; `found` is another formula, a SymPy result, or a list of IntervalAt."""
        node = parse(text_of(given), self.symbols)
        if isinstance(found, Sequence) and not isinstance(found, str):
            return next((difference for at in found if (difference := _outside(node, at))), None)
        if found is not None and not isinstance(found, str):
            from octavo.exercises.framework.symbolic import from_sympy

            right = from_sympy(found, self.symbols)
        else:
            right = parse(found or self.right, self.symbols)
        counterexample = find_difference(node, right, self.symbols)
        if counterexample is None:
            return None
        point = ", ".join(f"{name} = {x}" for name, x in counterexample.at.items())
        where = f"for {point} " if point else ""
        note = f"; {AMBIGUOUS_NOTE}" if AMBIGUOUS.search(text_of(given)) else ""
        return f"{where}it gives {counterexample.left}, and {counterexample.right} is right{note}"

    def too_loose(self, found: Any) -> str | None:
        """How measured values are less precise than an exact formula deserves; None if they are not."""
        if not isinstance(found, Sequence) or isinstance(found, str):
            return None
        worst = max((at.high - at.low) / 2 / max(abs(at.high), abs(at.low), 1e-300) for at in found)
        return None if worst <= MAX_FORMULA_ERROR else f"the evidence is known to {worst:.1g} only"

    def tolerance(self) -> str:
        """How equality is decided."""
        return "equal to 20 digits at 24 random points"


@dataclass(frozen=True)
class Function:
    """A Python function; it is called with each of `cases`, and its results are compared number by number.

    Arguments and results are numbers, strings, booleans and lists of them.
    """

    name: str
    right: Callable[..., Any]
    cases: Sequence[tuple[Any, ...]]
    signature: str  # for the template: softmax(x: list of numbers) -> list of numbers
    rel: float = 1e-6
    abs: float = 1e-9

    @property
    def template(self) -> str:
        return f"the name of a Python file with the function {self.signature}"

    def compare(self, given: Any, found: Any = None) -> str | None:
        """The first case with a wrong result; `given` are results, or a function of ours (never a student's)."""
        results = [given(*case) for case in self.cases] if callable(given) else given
        expected = found if found is not None else [self.right(*case) for case in self.cases]
        for case, result, right in zip(self.cases, results, expected, strict=True):
            if (differing := self.first_difference(result, right)) is not None:
                index, one, other = differing
                call = f"{self.name}({', '.join(map(_short, case))})"
                return f"{call}{index} is {_short(one)}, and {_short(other)} is right"
        return None

    def first_difference(self, one: Any, other: Any, index: str = "") -> tuple[str, Any, Any] | None:
        """The first index at which two results differ by more than the tolerance, such as [i][j], and both entries."""
        if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
            inside = (
                self.first_difference(a, b, f"{index}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True))
            )
            return next((differing for differing in inside if differing is not None), None)
        return None if self.is_close(one, other) else (index, one, other)

    def is_close(self, one: Any, other: Any) -> bool:
        """Whether two entries of results are equal up to the tolerance."""
        if isinstance(other, bool | str) or other is None:
            return type(one) is type(other) and bool(one == other)
        if not isinstance(one, int | float) or isinstance(one, bool) or not isinstance(other, int | float):
            return False
        try:
            return math.isclose(one, other, rel_tol=self.rel, abs_tol=self.abs)
        except OverflowError:  # an integer larger than any float
            return False

    def tolerance(self) -> str:
        """How far off each number of a result may be."""
        return f"{len(self.cases)} cases, each number to {self.rel:g} relative or {self.abs:g} absolute"


Answer = Number | Formula | Truth | Choice | Function


def read_number(given: Any) -> float:
    """The number that an answer gives: a number, or a formula of numbers as text."""
    if isinstance(given, str):
        with mpmath.workdps(DIGITS):
            try:
                return float(value(parse(given), {}))
            except (ArithmeticError, ValueError) as error:
                raise UserError(f"{_short(given)} has no finite value") from error
    if isinstance(given, bool) or not isinstance(given, int | float | Fraction):
        raise UserError(f"the answer must be a number: it is {_short(given)}")
    try:
        x = float(given)
    except OverflowError:
        raise UserError("the answer must be a number below 10^308 in size; check its digits") from None
    if not math.isfinite(x):
        raise UserError(f"the answer must be a finite number: it is {x}")
    return x


def _outside(node: Any, at: IntervalAt) -> str | None:
    try:
        with mpmath.workdps(DIGITS):
            x = float(value(node, at.values))
    except (ArithmeticError, ValueError):
        return f"it has no value, but the measurement is {at}"
    return None if at.low <= x <= at.high else f"it gives {x:.6g}, but the measurement is {at}"
