"""The values of names in formulas that are only displayed: numbers, vectors, matrices, sums, derivatives."""

from __future__ import annotations

import inspect
import operator
import random
from collections.abc import Callable, Mapping
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

from octavo.errors import UserError
from octavo.exercises.framework.formula import RELATIONS, Node
from octavo.exercises.framework.formula_values import CALLS

STEP = mpf(10) ** -6  # of the difference quotient that stands for a derivative
TOLERANCE = 1e-9  # relative, of equations
DERIVATIVE_TOLERANCE = 1e-6
CONSTANTS = {"pi": mpmath.pi, "e": mpmath.e, "E": mpmath.e, "inf": mpmath.inf}
WHOLE = (2, 3, 5, 7)  # values of whole numbers, in turn


class Scope:
    """The values of names at one of several points: those that `where` fixes, and values drawn for all others."""

    def __init__(self, where: Mapping[str, Any], kinds: Mapping[str, str], point: int) -> None:
        self.where, self.kinds, self.point = where, kinds, point
        self.rng = random.Random(point)
        self.values: dict[str, Any] = {}

    def shifted(self, name: str, by: Any) -> Scope:
        """The same point but for one name."""
        other = Scope(self.where, self.kinds, self.point)
        drawn = {one: x for one, x in self.values.items() if one not in self.where or not callable(self.where[one])}
        base, _, index = name.partition("_")
        if name not in self.where and name not in self.values and index and (base in self.where or base in self.values):
            vector = np.array(self[base], dtype=object)
            vector[self._index(index)] += by
            other.values = {**drawn, base: vector}
        else:
            other.values = {**drawn, name: self[name] + by}
        return other

    def __getitem__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if name in self.where:
            self.values[name] = self._given(self.where[name])
        elif name in CONSTANTS and name not in self.kinds:
            return +CONSTANTS[name]
        elif "_" in name and ((base := name.partition("_")[0]) in self.where or base in self.values):
            item = self[base]
            for index in name.split("_")[1:]:
                item = item[self._index(index)]
            return item
        else:
            self.values[name] = self._draw(self.kinds.get(name, "positive"))
        return self.values[name]

    def _given(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return value[self.point % len(value)]
        if callable(value):
            return value(**{name: self[name] for name in inspect.signature(value).parameters})
        return value

    def _index(self, name: str) -> int:
        """The index that a name stands for: a bound one, a number counted from 1, or any."""
        if name in self.values:
            return int(self.values[name])
        return int(name) - 1 if name.isdigit() else {"i": 0, "j": 1, "n": 0, "m": 1}.get(name, 0)

    def _draw(self, kind: str) -> Any:
        if kind == "whole":
            return WHOLE[(self.point + len(self.values)) % len(WHOLE)]
        x = mpf(self.rng.uniform(0.05, 0.95))
        return x if kind == "share" else x * 3 - 1 if kind == "real" else x * 3

    def value(self, node: Node, changed: Mapping[int, Any] | None = None) -> Any:
        """The value of a formula; `changed` replaces numbers in it, by the identity of their nodes."""
        inside = node.inside
        match node.kind:
            case "number":
                return (changed or {}).get(id(node), mpf(node.text))
            case "name":
                return self[node.text]
            case "()":
                return self.value(inside[0], changed)
            case "sign":
                return -self.value(inside[0], changed)
            case "call":
                return self._call(node, changed)
        left, right = (self.value(one, changed) for one in inside)
        if node.kind in RELATIONS:
            return mpf(bool(holds(node.kind, left, right)))
        return OPERATORS[node.kind](*_matched(left, right))

    def _call(self, node: Node, changed: Mapping[int, Any] | None) -> Any:
        name, inside = node.text, node.inside
        if callable(self.where.get(name)):
            return self.where[name](*(self.value(one, changed) for one in inside))
        if name == "sum":
            return self._sum(inside[0].text, inside[1], changed)
        if name == "d":
            up, down = (self.shifted(inside[1].text, by).value(inside[0], changed) for by in (STEP, -STEP))
            return (up - down) / (2 * STEP)
        if name not in FUNCTIONS:
            raise UserError(f"there is no function {name!r} to evaluate; define it in `where`")
        return FUNCTIONS[name](*(self.value(one, changed) for one in inside))

    def _sum(self, index: str, body: Node, changed: Mapping[int, Any] | None) -> Any:
        sizes = [len(self[name.partition("_")[0]]) for name in _names(body) if index in name.split("_")[1:]]
        if not sizes:
            raise UserError(f"the sum over {index} has nothing with that index")
        total: Any = mpf(0)
        for i in range(min(sizes)):
            other = Scope(self.where, self.kinds, self.point)
            other.values = {**self.values, index: i}
            total = operator.add(*_matched(total, other.value(body, changed)))
        return total


def holds(relation: str, left: Any, right: Any, slack: Any = 0) -> bool:
    """Whether a relation holds between two values, an equation up to rounding and `slack`."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        difference = np.abs(np.asarray(left - right, dtype=float)).max()
        return bool(difference <= 1e-8) == (relation in ("=", "~"))
    if relation in ("=", "~"):
        allowed = TOLERANCE * max(abs(left), abs(right)) if left and right else TOLERANCE
        return bool(abs(left - right) <= max(allowed, slack))
    orders: dict[str, Any] = {
        "<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right, "!=": left != right,
    }  # fmt: skip
    return bool(orders[relation])


def _names(node: Node) -> list[str]:
    return [node.text] * (node.kind == "name") + [name for one in node.inside for name in _names(one)]


def _matched(left: Any, right: Any) -> tuple[Any, Any]:
    """Two operands: a number beside an array becomes a float."""
    if isinstance(left, np.ndarray) and isinstance(right, mpf):
        return left, float(right)
    if isinstance(right, np.ndarray) and isinstance(left, mpf):
        return float(left), right
    return left, right


def _product(left: Any, right: Any) -> Any:
    are_arrays = isinstance(left, np.ndarray) and isinstance(right, np.ndarray)
    return left @ right if are_arrays and max(left.ndim, right.ndim) > 1 else left * right


def _power(base: Any, exponent: Any) -> Any:
    return base ** float(exponent) if isinstance(base, np.ndarray) else mpf(base) ** exponent


def _softmax(x: Any) -> Any:
    e = np.exp(np.asarray(x, dtype=float))
    return e / e.sum(-1, keepdims=True)


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers for arrays too, entry by entry."""

    def applied(*arguments: Any) -> Any:
        if not isinstance(arguments[0], np.ndarray):
            return function(*arguments)
        return np.array([float(function(mpf(float(x)))) for x in arguments[0].flat]).reshape(arguments[0].shape)

    return applied


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": _product, "/": lambda a, b: mpf(a) / b if not _is_array(a, b) else a / b,
    "^": _power,
}  # fmt: skip


def _is_array(*values: Any) -> bool:
    return any(isinstance(one, np.ndarray) for one in values)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(function) for name, function in CALLS.items()},
    "sigma": _elementwise(lambda x: 1 / (1 + mpmath.exp(-mpf(x)))), "relu": _elementwise(lambda x: max(x, mpf(0))),
    "softmax": _softmax, "T": np.transpose, "inv": np.linalg.inv, "dot": np.dot,
    "norm": lambda x: mpf(float(np.linalg.norm(np.asarray(x, dtype=float)))),
    "list": lambda *items: np.array([float(item) for item in items]),
}  # fmt: skip
