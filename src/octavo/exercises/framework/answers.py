"""The kinds of answers: what a student may write, and how it is compared with the right answer.

Every kind has `right`, the right answer; `template`, the format for whoever fills in an answer file; and `compare`,
which says how an answer differs (None: it is right). `compare(given)` compares with the right answer,
`compare(given, found)` with what the evidence found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import mpmath

from octavo.errors import UserError
from octavo.exercises.framework.formula import parse
from octavo.exercises.framework.formula_values import DIGITS, find_difference, value

Verdict = Literal["true", "nearly", "false"]
VERDICTS: dict[bool, Verdict] = {True: "true", False: "false"}
ONLY_IF = "only if"


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
    """A number with a relative tolerance `rel` or an absolute `abs`, whichever is larger; `right` may be a formula."""

    right: float | int | Fraction | str
    rel: float = 1e-6
    abs: float = 0.0

    @property
    def template(self) -> str:
        return f"a number, or a formula of numbers in quotes; tolerance: {self.tolerance()}"

    def compare(self, given: Any, found: Any = None) -> str | None:
        """How the number differs."""
        x, right = number_of(given), found if found is not None else self.right
        if isinstance(right, Interval):
            return None if right.low <= x <= right.high else f"{x:.6g} is not {right}"
        expected = number_of(right)
        is_close = abs(x - expected) <= max(self.abs, self.rel * abs(expected))
        return None if is_close else f"{x:.8g} is not {expected:.8g}"

    def tolerance(self) -> str:
        """How far off a right answer may be."""
        if not self.rel and not self.abs:
            return "exact"
        return " or ".join([f"{self.rel:g} relative"] * bool(self.rel) + [f"{self.abs:g} absolute"] * bool(self.abs))


@dataclass(frozen=True)
class Formula:
    """A formula in named symbols, each "whole", "positive", "real" or "share" (0 to 1); equivalent forms are right."""

    right: str
    symbols: Mapping[str, str]
    descending: tuple[
        str, ...
    ] = ()  # symbols of which each is at least as large as the next, wherever values are drawn

    @property
    def template(self) -> str:
        return f"a formula in quotes, in {', '.join(self.symbols) or 'numbers'}"

    def compare(self, given: Any, found: Any = None) -> str | None:
        """A point where the formula is wrong; `found` is another formula, a SymPy result, or a list of IntervalAt."""
        node = parse(_text(given), self.symbols)
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
        return f"{where}it gives {counterexample.left}, and {counterexample.right} is right"

    def tolerance(self) -> str:
        """How equality is decided."""
        return "equal to 20 digits at 24 random points"


@dataclass(frozen=True)
class Truth:
    """Whether a statement is true, false, or true only under a condition, which `only_if` states."""

    right: Verdict
    only_if: str = ""
    template = 'true, false, or "only if ..."'

    def compare(self, given: Any, found: Any = None) -> str | None:
        """The right verdict, if the given one differs."""
        verdict, right = self.verdict(given), found if found is not None else self.right
        if verdict == right:
            return None
        return {
            "true": "it is true", "false": "it is false",
            "nearly": f"it is true only if {self.only_if}" if self.only_if else "it is true only under a condition",
        }[right]  # fmt: skip

    def verdict(self, given: Any) -> Verdict:
        """The verdict that an answer gives."""
        if isinstance(given, bool):
            return VERDICTS[given]
        text = _text(given).strip().lower()
        if text in ("true", "false", "nearly"):
            return text  # type: ignore[return-value]
        if text.startswith(ONLY_IF):
            return "nearly"
        raise UserError(f'the answer must be true, false or "only if ...": it is {_short(given)}')

    def tolerance(self) -> str:
        """Verdicts are equal or not."""
        return "same verdict"


@dataclass(frozen=True)
class Choice:
    """One of several named options."""

    right: str
    options: Mapping[str, str]  # name -> meaning

    @property
    def template(self) -> str:
        return "one of " + ", ".join(f'"{name}"' for name in self.options)

    def compare(self, given: Any, found: Any = None) -> str | None:
        """The right option, if the given one differs."""
        option = _text(given).strip()
        if option not in self.options:
            raise UserError(f"the answer must be one of {', '.join(self.options)}: it is {_short(option)}")
        right = found if found is not None else self.right
        return None if option == right else f"{option} is wrong; {right} is right: {self.options[right]}"

    def tolerance(self) -> str:
        """Options are equal or not."""
        return "same option"


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


def verdict(as_stated: bool, on_condition: bool | None = None) -> Verdict:
    """The verdict on a statement: whether it holds as stated and, if not, whether it holds under the condition."""
    return "true" if as_stated else "nearly" if on_condition else "false"


def number_of(given: Any) -> float:
    """The value of an answer that is a number or a formula of numbers."""
    if isinstance(given, str):
        with mpmath.workdps(DIGITS):
            try:
                return float(value(parse(given), {}))
            except (ArithmeticError, ValueError) as error:
                raise UserError(f"{_short(given)} has no finite value") from error
    if isinstance(given, bool) or not isinstance(given, int | float | Fraction) or not math.isfinite(given):
        raise UserError(f"the answer must be a finite number: it is {_short(given)}")
    return float(given)


def _text(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise UserError(f"the answer must be text in quotes: it is {_short(given)}")
    return str(given)


def _outside(node: Any, at: IntervalAt) -> str | None:
    with mpmath.workdps(DIGITS):
        x = float(value(node, at.values))
    return None if at.low <= x <= at.high else f"it gives {x:.6g}, but the measurement is {at}"


def _short(value: Any) -> str:
    text = f"{value:.8g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
