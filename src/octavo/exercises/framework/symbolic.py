"""Formulas as SymPy expressions, for exercises that prove theirs; only what an exercise itself says comes here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from octavo.exercises.framework.formula import Node, parse

CALLS: dict[str, Any] = {
    "sqrt": sympy.sqrt, "exp": sympy.exp, "log": sympy.log, "ln": sympy.log, "sin": sympy.sin, "cos": sympy.cos,
    "tan": sympy.tan, "atan": sympy.atan, "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh, "abs": sympy.Abs,
    "gamma": sympy.gamma, "factorial": sympy.factorial, "binomial": sympy.binomial, "min": sympy.Min, "max": sympy.Max,
}  # fmt: skip
ASSUMED: dict[str, dict[str, bool]] = {
    "whole": {"integer": True, "positive": True}, "positive": {"positive": True}, "real": {"real": True},
    "share": {"positive": True},
}  # fmt: skip


def symbol(name: str, kind: str) -> Any:
    """The SymPy symbol that a formula's name stands for: whole, positive, real, or a share between 0 and 1."""
    return sympy.Symbol(name, **ASSUMED[kind])


def symbols(kinds: Mapping[str, str]) -> list[Any]:
    """The symbols of a formula, in order."""
    return [symbol(name, kind) for name, kind in kinds.items()]


def expression(text: str, kinds: Mapping[str, str]) -> Any:
    """The SymPy expression of a formula."""
    return _made(parse(text, kinds), {name: symbol(name, kind) for name, kind in kinds.items()})


def from_sympy(found: Any, kinds: Mapping[str, str]) -> Node:
    """A SymPy result as a tree, so that it can be computed with 50 digits like any other formula."""
    return parse(str(found).replace("Abs(", "abs(").replace("Min(", "min(").replace("Max(", "max("), kinds)


def _made(node: Node, names: Mapping[str, Any]) -> Any:
    inside = [_made(one, names) for one in node.inside]
    match node.kind:
        case "number":
            return sympy.Rational(node.text)
        case "name":
            constants = {"pi": sympy.pi, "e": sympy.E, "E": sympy.E}
            return names[node.text] if node.text in names else constants[node.text]
        case "()":
            return inside[0]
        case "sign":
            return -inside[0]
        case "call":
            return CALLS[node.text](*inside)
        case "^":
            return inside[0] ** inside[1]
        case "+":
            return inside[0] + inside[1]
        case "-":
            return inside[0] - inside[1]
        case "*":
            return inside[0] * inside[1]
    return inside[0] / inside[1]
