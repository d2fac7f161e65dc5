"""Formulas as people type them, parsed without eval: text becomes tokens, tokens become a tree.

A hostile text is refused by its size, before any number in it is computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from octavo.errors import UserError

MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, MAX_DIGITS = 1000, 40, 400, 40  # of a formula; digits of one number
MAX_EXPONENT = 999  # of a number such as 1e-12
CONSTANTS = ("pi", "e", "E")
FUNCTIONS: dict[str, int] = {  # name -> number of arguments
    "sqrt": 1, "exp": 1, "log": 1, "ln": 1, "sin": 1, "cos": 1, "tan": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1,
    "abs": 1, "gamma": 1, "factorial": 1, "binomial": 2, "min": 2, "max": 2,
}  # fmt: skip
RELATIONS = ("=", "!=", "<", "<=", ">", ">=", "~", "->")
BINDING = {**dict.fromkeys((*RELATIONS, ","), 1), "+": 2, "-": 2, "*": 3, "/": 3, "^": 5}
SIGN = 4  # a sign binds tighter than *, looser than a power: -x^2 is -(x^2)
TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z][A-Za-z0-9_]*)|"
                   r"(\*\*|<=|>=|!=|->|[-+*/^(),=<>~]))")  # fmt: skip


class Node(NamedTuple):
    """A node of a formula's tree: a number, a name, a function call, a sign, or an operator with its two operands."""

    kind: str  # number, name, call, sign, or the operator itself
    text: str
    inside: tuple[Node, ...] = ()


def parse(text: str, names: Iterable[str] | None = ()) -> Node:
    """The tree of a formula in these names, the constants and the functions of this file; others are refused.

    None is for a formula that is only displayed: any name, any function, relations and lists are allowed.
    """
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"a formula may have {MAX_CHARACTERS} characters: this one has {len(text):,}; shorten it")
    parser = _Parser(text, None if names is None else frozenset(names))
    node = parser.expression(0, 0)
    if parser.kind != "end":
        remedy = "write 2*d for two times d" if parser.kind != "operator" else "check the brackets"
        raise parser.error(f"{parser.token!r} is unexpected; {remedy}")
    return node


def evaluate(
    node: Node, number: Callable[[str], Any], name: Callable[[str], Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """The value of a tree; the caller says what numbers, names, functions and operators stand for."""
    inside = [evaluate(child, number, name, functions) for child in node.inside]
    match node.kind:
        case "number":
            return number(node.text)
        case "name":
            return name(node.text)
        case "()":
            return inside[0]
        case "sign":
            return -inside[0]
    return functions[node.text](*inside)


class _Parser:
    """A Pratt parser: every operator has a binding strength."""

    def __init__(self, text: str, names: frozenset[str] | None) -> None:
        self.text, self.names, self.nodes = text, names, 0
        self.tokens = self._tokens()
        self.kind, self.token = "", ""
        self._advance()

    def expression(self, least: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(f"brackets and powers may be nested {MAX_DEPTH} deep; simplify it")
        left = self._operand(depth)
        while self.kind == "operator" and BINDING.get(self.token, 0) > least - (self.token == "^"):
            operator = self.token
            if self.names is not None and (operator in RELATIONS or operator == ","):
                raise self.error(
                    f"{operator!r} is not allowed in a formula; give only the right-hand side of the equation"
                )
            self._advance()
            left = self._node(operator, operator, (left, self.expression(BINDING[operator], depth + 1)))
        return left

    def _operand(self, depth: int) -> Node:
        kind, text = self.kind, self.token
        self._advance()
        if kind == "number":
            digits, _, power = text.lower().partition("e")
            if len(digits) > MAX_DIGITS or len(power.lstrip("+-")) > len(str(MAX_EXPONENT)):
                raise self.error(f"a number may have {MAX_DIGITS} digits and an exponent up to {MAX_EXPONENT}")
            return self._node("number", text)
        if kind == "name":
            return self._call(text, depth) if self.token == "(" else self._name(text)
        if text in ("-", "+"):
            inside = self.expression(SIGN, depth + 1)
            return self._node("sign", text, (inside,)) if text == "-" else inside
        if text == "(":
            inside = self.expression(0, depth + 1)
            self._close()
            return self._node("()", "", (inside,))
        what = f"{text!r} is unexpected" if text else "it ends too early"
        raise self.error(f"{what}; a number, a name or a bracket must follow")

    def _name(self, text: str) -> Node:
        if self.names is not None and text not in self.names and text not in CONSTANTS:
            raise self.error(
                f"{text!r} is not a symbol of this exercise; its symbols are {', '.join(sorted(self.names)) or 'none'}"
            )
        return self._node("name", text)

    def _call(self, text: str, depth: int) -> Node:
        self._advance()
        inside = [] if self.token == ")" else self._arguments(depth)
        self._close()
        if self.names is not None:
            if text in self.names:
                raise self.error(f"{text!r} is a symbol, not a function; write {text}*(...) for a product")
            if text not in FUNCTIONS:
                raise self.error(f"there is no function {text!r}; the functions are {', '.join(FUNCTIONS)}")
            if len(inside) != FUNCTIONS[text]:
                raise self.error(f"{text} takes {FUNCTIONS[text]} arguments, not {len(inside)}")
        return self._node("call", text, tuple(inside))

    def _arguments(self, depth: int) -> list[Node]:
        inside = [self.expression(1 if self.names is not None else 0, depth + 1)]
        while self.token == ",":
            self._advance()
            inside.append(self.expression(1, depth + 1))
        if len(inside) == 1 and inside[0].kind == ",":  # a list, which may only be displayed
            inside = list(_items(inside[0]))
        return inside

    def _close(self) -> None:
        if self.token != ")":
            raise self.error("a bracket is not closed; add )")
        self._advance()

    def _node(self, kind: str, text: str, inside: tuple[Node, ...] = ()) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.error(f"a formula may have {MAX_NODES} parts; shorten it")
        return Node(kind, text, inside)

    def _advance(self) -> None:
        self.kind, self.token = next(self.tokens, ("end", ""))

    def _tokens(self) -> Iterator[tuple[str, str]]:
        position, text = 0, self.text.rstrip()
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None:
                raise self.error(f"{text[position:].lstrip()[:1]!r} is not allowed in a formula; remove it")
            number, name, operator = match.groups()
            yield (
                ("number", number) if number else ("name", name) if name else ("operator", operator.replace("**", "^"))
            )
            position = match.end()

    def error(self, why: str) -> UserError:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return UserError(f"the formula {shown!r} cannot be read: {why}")


def _items(node: Node) -> Iterator[Node]:
    """The items of a, b, c."""
    if node.kind == ",":
        for inside in node.inside:
            yield from _items(inside)
    else:
        yield node
