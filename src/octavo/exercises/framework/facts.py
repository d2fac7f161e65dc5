"""Texts whose numbers are checked: every number in an exercise's prose is bound to something that is computed.

A number or a formula in backticks is bound by a name in braces right after it, which is not displayed: "at most
1/4{slope}", "`4*D^2`{weights} weights". The name is one of `where`, the id of a part, whose answer it must equal, or a
formula of such names; {} is the part's own answer. {<name} and {>name} are for bounds, which must be the tightest with
so many digits. Equations need no binding: `2^(-1075) = exp(-745.13)` is evaluated with the names in `where`, while
other names take several values. Decimal numbers after the last sign may be
rounded, and so may a bound number; all other numbers are exact.

`where` maps a name to its value, to a tuple of values to try, or to a function of other names: {"m": lambda d, c: d *
c * c}. Vectors and matrices are NumPy arrays. In formulas, sum(i, x_i) has an index, and d(y, x) is a derivative.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import mpmath
from mpmath import mpf

from octavo.errors import UserError
from octavo.exercises.framework.answers import Formula, Number, Truth
from octavo.exercises.framework.formula import Node, parse
from octavo.exercises.framework.formula_values import DIGITS
from octavo.exercises.framework.scope import DERIVATIVE_TOLERANCE, Scope, holds

NUMBER = r"(?<![\w.])\d(?:[\d,]*\d)?(?:\.\d+)?(?:/\d+)?%?(?!\w)"
ITEM = re.compile(rf"(?:`([^`]*)`|({NUMBER}))(?:\{{([^{{}}]*)\}})?")
POINTS = 4  # values that are tried for names that `where` does not fix
EQUATIONS, BOUNDS = ("=", "~"), ("<", ">", "<=", ">=", "!=")


class Facts:
    """What an exercise's texts are checked against: its names, and the answers of its parts by their ids."""

    def __init__(self, where: Mapping[str, Any], answers: Mapping[str, Any], own: str = "") -> None:
        self.where, self.answers, self.own = where, answers, own
        formulas = [one for answer in answers.values() for one in (answer, getattr(answer, "condition", None))]
        self.kinds = {name: kind for one in formulas if isinstance(one, Formula) for name, kind in one.symbols.items()}
        if isinstance(mine := answers.get(own), Formula):
            self.kinds |= mine.symbols

    def problems(self, text: str) -> Iterator[str]:
        """The numbers and formulas of a text that are not confirmed."""
        for item in ITEM.finditer(getattr(text, "raw", text)):
            try:
                with mpmath.workdps(DIGITS):
                    problem = self._problem(*item.groups())
            except (UserError, ArithmeticError, ValueError, TypeError, LookupError) as error:
                problem = f"cannot be evaluated: {type(error).__name__}: {error}"
            if problem:
                yield f"{item[1] or item[2]} {problem}"

    def _problem(self, formula: str | None, number: str | None, binding: str | None) -> str | None:
        node = parse(formula, None) if formula else _prose_number(str(number))
        if binding is not None:
            bound = binding.lstrip("<>").strip()
            relation = binding[0] if binding[:1] in BOUNDS else "="
            return self._first(lambda scope: self._differs(node, relation, self._target(bound, scope), scope))
        if not any(True for _ in _numbers(node)):
            return None
        if node.kind in EQUATIONS:
            return self._first(lambda scope: _is_false(node, scope))
        return "is bound to nothing: write {name} after it, with a name of `where` or the id of a part"

    def _first(self, problem: Any) -> str | None:
        return next(
            (found for point in range(POINTS) if (found := problem(Scope(self.where, self.kinds, point)))), None
        )

    def _target(self, bound: str, scope: Scope) -> Any:
        """What a number or formula is bound to."""
        name = bound or self.own
        if name in self.answers:
            answer = self.answers[name]
            answer = answer.condition if isinstance(answer, Truth) else answer
            if not isinstance(answer, Formula | Number):
                raise UserError(f"the answer of {name} is not a number or a formula")
            right = answer.right
            return scope.value(parse(right, None)) if isinstance(right, str) else mpf(right)
        return scope.value(parse(bound, None))

    def _differs(self, node: Node, relation: str, target: Any, scope: Scope) -> str | None:
        x, step = scope.value(node), _rounding(node, scope) if _is_rounded(node) else 0
        if relation == "=":
            return None if holds("=", x, target, step) else f"is bound to {_show(target)}"
        toward = [one for one in _neighbours(node, scope) if (one < x if relation == ">" else one > x)]
        is_tight = not any(holds(relation, one, target) for one in toward)
        return None if holds(relation, x, target) and is_tight else f"is not the tightest bound of {_show(target)}"


def _is_false(node: Node, scope: Scope) -> str | None:
    """Why a chain of equations does not hold."""
    sides = [node]
    while sides[0].kind in EQUATIONS:
        sides[:1] = sides[0].inside
    values = [scope.value(side) for side in sides]
    slack = [mpf(0)] * (len(sides) - 2) + [_rounding(sides[-1], scope)]
    for left, right, rounding, *pair in zip(values[:-1], values[1:], slack, sides[:-1], sides[1:], strict=True):
        has_derivative = any(one.kind == "call" and one.text == "d" for side in pair for one in _nodes(side))
        if not holds("=", left, right, max(rounding, DERIVATIVE_TOLERANCE if has_derivative else 0)):
            return f"is false: {_show(left)} is not {_show(right)}"
    return None


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for one in node.inside:
        yield from _nodes(one)


def _numbers(node: Node) -> Iterator[Node]:
    return (one for one in _nodes(node) if one.kind == "number")


def _is_rounded(node: Node) -> bool:
    """Whether a formula is a number that may be rounded, such as -2.5*10^(-14); other decimals are exact."""
    match node.kind, node.inside:
        case "number", _:
            return True
        case (("sign" | "()"), (inside,)):
            return _is_rounded(inside)
        case "*", (mantissa, power):
            return _is_rounded(mantissa) and power.kind == "^" and power.inside[0].text == "10"
        case "/", (above, below):
            return _is_rounded(above) and below.text == "100"  # a percentage
    return False


def _rounding(node: Node, scope: Scope) -> Any:
    """How much a value changes if its decimal numbers were rounded in their last digit."""
    exact, total = scope.value(node), mpf(0)
    for one in _numbers(node):
        if "." in one.text:
            values = [scope.value(node, {id(one): x}) for x in _changed(one, mpf(0.5))]
            total += max(abs(value - exact) for value in values) * (1 + mpf(10) ** -9)
    return total


def _neighbours(node: Node, scope: Scope) -> Iterator[Any]:
    """The values if one of the numbers had another last digit."""
    return (scope.value(node, {id(one): x}) for one in _numbers(node) for x in _changed(one, mpf(1)))


def _changed(number: Node, by: Any) -> tuple[Any, Any]:
    """A number plus and minus so many units of its last digit."""
    unit = mpf(10) ** -len(number.text.partition(".")[2])
    return mpf(number.text) + by * unit, mpf(number.text) - by * unit


def _prose_number(text: str) -> Node:
    """A number of prose: 65,536 or 1/4 or 7.9%; a whole number may be rounded."""
    digits = text.replace(",", "")
    percent = digits.endswith("%")
    above, _, below = digits.rstrip("%").partition("/")
    if below:
        return parse(f"{above}/{below}", None)
    above += "" if "." in above else "."
    return parse(f"{above}/100" if percent else above, None)


def _show(x: Any) -> str:
    return str(mpmath.nstr(x, 8)) if isinstance(x, mpf) else str(x)
