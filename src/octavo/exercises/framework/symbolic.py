"""Formulas as SymPy expressions, for evidence that derives them; never used for students' formulas."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import sympy

from octavo.exercises.framework.formula import Node, evaluate, parse

CALLS: dict[str, Any] = {
    "sqrt": sympy.sqrt, "exp": sympy.exp, "log": sympy.log, "ln": sympy.log, "sin": sympy.sin, "cos": sympy.cos,
    "tan": sympy.tan, "atan": sympy.atan, "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh,
    "log2": lambda x: sympy.log(x, 2), "log10": lambda x: sympy.log(x, 10), "abs": sympy.Abs,
    "gamma": sympy.gamma, "factorial": sympy.factorial, "binomial": sympy.binomial, "min": sympy.Min, "max": sympy.Max,
}  # fmt: skip
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "^": operator.pow}
CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "E": sympy.E}
ASSUMPTIONS: dict[str, dict[str, bool]] = {  # kind of a symbol -> what SymPy may assume of it
    "whole": {"integer": True, "positive": True}, "positive": {"positive": True}, "real": {"real": True},
    "share": {"positive": True},
}  # fmt: skip


def symbol(name: str, kind: str) -> Any:
    """The SymPy symbol for a formula's name: whole, positive, real, or a share between 0 and 1."""
    return sympy.Symbol(name, **ASSUMPTIONS[kind])


def symbols(kinds: Mapping[str, str]) -> list[Any]:
    """The symbols of a formula, in order."""
    return [symbol(name, kind) for name, kind in kinds.items()]


def expression(text: str, kinds: Mapping[str, str]) -> Any:
    """The SymPy expression of a formula."""
    names = CONSTANTS | {name: symbol(name, kind) for name, kind in kinds.items()}
    return evaluate(parse(text, kinds), sympy.Rational, names.__getitem__, CALLS | OPERATORS)


def from_sympy(found: Any, kinds: Mapping[str, str]) -> Node:
    """A SymPy result as a tree, so that it can be evaluated with 50 digits like any other formula."""
    return parse(str(found).replace("Abs(", "abs(").replace("Min(", "min(").replace("Max(", "max("), kinds)
