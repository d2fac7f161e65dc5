"""The kinds of answers: what a student may write, and how it is held against what is right.

Each kind has `right`, says with `compare` why an answer is refused (None: it is right), and describes itself to those
who fill in a template. `compare(given)` holds an answer to the right one, `compare(given, found)` to what was found.
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
from octavo.exercises.framework.formula_values import DIGITS, difference, value

Verdict = Literal["true", "nearly", "false"]
VERDICTS: dict[bool, Verdict] = {True: "true", False: "false"}
ONLY_IF = "only if"


class Interval(NamedTuple):
    """A number that was measured: it lies between these two."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"between {self.low:.6g} and {self.high:.6g}"


class At(NamedTuple):
    """What was measured for one choice of a formula's symbols."""

    values: dict[str, float]
    low: float
    high: float

    def __str__(self) -> str:
        where = ", ".join(f"{name} = {x:g}" for name, x in self.values.items())
        return f"{where}: {self.low:.6g}" + (f" to {self.high:.6g}" if self.high != self.low else "")


@dataclass(frozen=True)
class Number:
    """A number; it may be off by `rel` of itself or by `abs`, whichever is more. `right` may be text: "sqrt(2/pi)"."""

    right: float | int | Fraction | str
    rel: float = 1e-6
    abs: float = 0.0

    @property
    def template(self) -> str:
        return f"a number, or a formula of numbers in quotes; {self.tolerance()}"

    def compare(self, given: Any, found: Any = None) -> str | None:
        """Why the number is refused."""
        x, right = _number(given), found if found is not None else self.right
        if isinstance(right, Interval):
            return None if right.low <= x <= right.high else f"{x:.6g} is not {right}"
        wanted = _number(right)
        close = abs(x - wanted) <= max(self.abs, self.rel * abs(wanted))
        return None if close else f"{x:.8g} is not {wanted:.8g}"

    def tolerance(self) -> str:
        """How far off is still right, in words."""
        if not self.rel and not self.abs:
            return "exactly right"
        return " or ".join([f"to {self.rel:g} of it"] * bool(self.rel) + [f"to {self.abs:g}"] * bool(self.abs))


@dataclass(frozen=True)
class Formula:
    """A formula in named symbols, each whole, positive, real or a share (0 to 1); any way of writing it is right."""

    right: str
    symbols: Mapping[str, str]

    @property
    def template(self) -> str:
        return f"a formula in quotes, in {', '.join(self.symbols) or 'numbers'}"

    def compare(self, given: Any, found: Any = None) -> str | None:
        """The point where the formula goes wrong; `found` is another formula, a SymPy result, or At points."""
        node = parse(_text(given), self.symbols)
        if isinstance(found, Sequence) and not isinstance(found, str):
            return next((refusal for at in found if (refusal := _outside(node, at))), None)
        if found is not None and not isinstance(found, str):
            from octavo.exercises.framework.symbolic import from_sympy

            right = from_sympy(found, self.symbols)
        else:
            right = parse(found or self.right, self.symbols)
        differ = difference(node, right, self.symbols)
        if differ is None:
            return None
        where = ", ".join(f"{name} = {x}" for name, x in differ.at.items())
        return f"{f'for {where} ' if where else ''}it gives {differ.one}, and {differ.other} is right"

    def tolerance(self) -> str:
        """How sameness is decided."""
        return "the same, to 20 digits, at 24 random points"


@dataclass(frozen=True)
class Truth:
    """Whether a statement is true, false, or true only if some condition holds, which `only_if` says."""

    right: Verdict
    only_if: str = ""
    template = 'true, false, or "only if ..."'

    def compare(self, given: Any, found: Any = None) -> str | None:
        """Why the verdict is refused."""
        verdict, right = self.verdict(given), found if found is not None else self.right
        if verdict == right:
            return None
        return {
            "true": "it is true", "false": "it is false",
            "nearly": f"it is true only if {self.only_if}" if self.only_if else "it is true only on a condition",
        }[right]  # fmt: skip

    def verdict(self, given: Any) -> Verdict:
        """What an answer says."""
        if isinstance(given, bool):
            return VERDICTS[given]
        said = _text(given).strip().lower()
        if said in ("true", "false", "nearly"):
            return said  # type: ignore[return-value]
        if said.startswith(ONLY_IF):
            return "nearly"
        raise UserError(f'the answer must be true, false or "only if ...": it is {_short(given)}')

    def tolerance(self) -> str:
        """Nothing in between."""
        return "yes or no"


@dataclass(frozen=True)
class Choice:
    """One of several named options."""

    right: str
    options: Mapping[str, str]  # name -> what it says

    @property
    def template(self) -> str:
        return "one of " + ", ".join(f'"{name}"' for name in self.options)

    def compare(self, given: Any, found: Any = None) -> str | None:
        """Why the option is refused."""
        said = _text(given).strip()
        if said not in self.options:
            raise UserError(f"the answer must be one of {', '.join(self.options)}: it is {_short(said)}")
        right = found if found is not None else self.right
        return None if said == right else f"{said} is not it; {right} is: {self.options[right]}"

    def tolerance(self) -> str:
        """Nothing in between."""
        return "one is right"


@dataclass(frozen=True)
class Function:
    """A Python function of this name; it is called with each of `cases` and its results compared, number by number.

    Arguments and results are numbers, strings, truth values and lists of them.
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
        """The first case that goes wrong; `given` is a function of ours, never a student's, or its results."""
        results = [given(*case) for case in self.cases] if callable(given) else given
        wanted = found if found is not None else [self.right(*case) for case in self.cases]
        for case, result, right in zip(self.cases, results, wanted, strict=True):
            if (differ := self.first_difference(result, right)) is not None:
                place, one, other = differ
                call = f"{self.name}({', '.join(map(_short, case))})"
                return f"{call}{place} is {_short(one)}, and {_short(other)} is right"
        return None

    def first_difference(self, one: Any, other: Any, place: str = "") -> tuple[str, Any, Any] | None:
        """Where two results begin to differ by more than the tolerance: [i][j], and what stands there in each."""
        if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
            inside = (
                self.first_difference(a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True))
            )
            return next((found for found in inside if found is not None), None)
        return None if self.close(one, other) else (place, one, other)

    def close(self, one: Any, other: Any) -> bool:
        """Whether two single results are the same up to the tolerance."""
        if isinstance(other, bool | str) or other is None:
            return type(one) is type(other) and bool(one == other)
        if not isinstance(one, int | float) or isinstance(one, bool) or not isinstance(other, int | float):
            return False
        try:
            return math.isclose(one, other, rel_tol=self.rel, abs_tol=self.abs)
        except OverflowError:  # a whole number beyond any float
            return False

    def tolerance(self) -> str:
        """How far off results may be."""
        return f"{len(self.cases)} cases, each number to {self.rel:g} of it or {self.abs:g}"


Answer = Number | Formula | Truth | Choice | Function


def verdict(as_stated: bool, on_condition: bool | None = None) -> Verdict:
    """What was found of a statement: whether it holds as it stands and, if not, whether it does on the condition."""
    return "true" if as_stated else "nearly" if on_condition else "false"


def _number(given: Any) -> float:
    if isinstance(given, str):
        with mpmath.workdps(DIGITS):
            try:
                return float(value(parse(given), {}))
            except (ArithmeticError, ValueError) as error:
                raise UserError(f"{given!r} has no finite value") from error
    if isinstance(given, bool) or not isinstance(given, int | float | Fraction) or not math.isfinite(given):
        raise UserError(f"the answer must be a finite number: it is {_short(given)}")
    return float(given)


def _text(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise UserError(f"the answer must be text in quotes: it is {_short(given)}")
    return str(given)


def _outside(node: Any, at: At) -> str | None:
    with mpmath.workdps(DIGITS):
        x = float(value(node, at.values))
    return None if at.low <= x <= at.high else f"it gives {x:.6g}, but measured was {at}"


def _short(thing: Any) -> str:
    text = f"{thing:.8g}" if isinstance(thing, float) else repr(thing)
    return text if len(text) <= 80 else text[:77] + "..."
