"""Formulas as people type them, read without eval_mode anything: text becomes tokens, tokens a tree.

Limits keep a hostile text from costing anything: it is refused before a number of it is computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from octavo.errors import UserError

LONGEST, DEEPEST, MOST_NODES, MOST_DIGITS = 1000, 40, 400, 40  # characters, levels, parts, digits of a number
LARGEST_EXPONENT = 999  # of a number such as 1e-12
CONSTANTS = ("pi", "e", "E")
FUNCTIONS: dict[str, int] = {  # and how many arguments each takes
    "sqrt": 1, "exp": 1, "log": 1, "ln": 1, "sin": 1, "cos": 1, "tan": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1,
    "abs": 1, "gamma": 1, "factorial": 1, "binomial": 2, "min": 2, "max": 2,
}  # fmt: skip
RELATIONS = ("=", "!=", "<", "<=", ">", ">=", "~", "->")
BINDING = {**dict.fromkeys((*RELATIONS, ","), 1), "+": 2, "-": 2, "*": 3, "/": 3, "^": 5}
SIGN = 4  # a sign binds tighter than *, looser than a power: -x^2 is -(x^2)
TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z][A-Za-z0-9_]*)|"
                   r"(\*\*|<=|>=|!=|->|[-+*/^(),=<>~]))")  # fmt: skip


class Node(NamedTuple):
    """A part of a formula: a number, a name, a call of a function, a sign, or two parts with an operator between."""

    kind: str  # number, name, call, sign, or the operator itself
    text: str
    inside: tuple[Node, ...] = ()


def parse(text: str, names: Iterable[str] = ()) -> Node:
    """The tree of a formula in these names, the constants and the functions of this file; anything else is refused."""
    return _whole(text, frozenset(names))


def parse_for_show(text: str) -> Node:
    """The tree of a formula that is only written, never computed: any name, any function, relations and lists."""
    return _whole(text, None)


def _whole(text: str, names: frozenset[str] | None) -> Node:
    if len(text) > LONGEST:
        raise UserError(f"a formula may have {LONGEST} characters: this one has {len(text):,}; write it shorter")
    reader = _Reader(text, names)
    node = reader.expression(0, 0)
    if reader.kind != "end":
        remedy = "write 2*d for two times d" if reader.kind != "operator" else "look at the brackets"
        raise reader.refusal(f"{reader.here!r} cannot follow there; {remedy}")
    return node


class _Reader:
    """A Pratt parser: operators know how tightly they bind, and one loop does the rest."""

    def __init__(self, text: str, names: frozenset[str] | None) -> None:
        self.text, self.names, self.nodes = text, names, 0
        self.tokens = self._tokens()
        self.kind, self.here = "", ""
        self._next()

    def expression(self, least: int, depth: int) -> Node:
        if depth > DEEPEST:
            raise self.refusal(f"brackets and powers may be nested {DEEPEST} deep; write it flatter")
        left = self._first(depth)
        while self.kind == "operator" and BINDING.get(self.here, 0) > least - (self.here == "^"):
            operator = self.here
            if self.names is not None and (operator in RELATIONS or operator == ","):
                raise self.refusal(f"{operator!r} has no place in a formula; give what stands right of the equals sign")
            self._next()
            left = self._made(operator, operator, (left, self.expression(BINDING[operator], depth + 1)))
        return left

    def _first(self, depth: int) -> Node:
        kind, text = self.kind, self.here
        self._next()
        if kind == "number":
            digits, _, power = text.lower().partition("e")
            if len(digits) > MOST_DIGITS or len(power.lstrip("+-")) > len(str(LARGEST_EXPONENT)):
                raise self.refusal(f"a number may have {MOST_DIGITS} digits and an exponent up to {LARGEST_EXPONENT}")
            return self._made("number", text)
        if kind == "name":
            return self._call(text, depth) if self.here == "(" else self._name(text)
        if text in ("-", "+"):
            inside = self.expression(SIGN, depth + 1)
            return self._made("sign", text, (inside,)) if text == "-" else inside
        if text == "(":
            inside = self.expression(0, depth + 1)
            self._closing()
            return self._made("()", "", (inside,))
        what = f"{text!r} cannot stand there" if text else "it ends too early"
        raise self.refusal(f"{what}; a number, a name or a bracket must follow")

    def _name(self, text: str) -> Node:
        if self.names is not None and text not in self.names and text not in CONSTANTS:
            raise self.refusal(
                f"{text!r} is no symbol of this exercise; it has {', '.join(sorted(self.names)) or 'none'}"
            )
        return self._made("name", text)

    def _call(self, text: str, depth: int) -> Node:
        self._next()
        inside = [] if self.here == ")" else self._arguments(depth)
        self._closing()
        if self.names is not None:
            if text in self.names:
                raise self.refusal(f"{text!r} is a symbol, not a function; write {text}*(...) for a product")
            if text not in FUNCTIONS:
                raise self.refusal(f"there is no function {text!r}; there are {', '.join(FUNCTIONS)}")
            if len(inside) != FUNCTIONS[text]:
                raise self.refusal(f"{text} takes {FUNCTIONS[text]} arguments, not {len(inside)}")
        return self._made("call", text, tuple(inside))

    def _arguments(self, depth: int) -> list[Node]:
        inside = [self.expression(1 if self.names is not None else 0, depth + 1)]
        while self.here == ",":
            self._next()
            inside.append(self.expression(1, depth + 1))
        if len(inside) == 1 and inside[0].kind == ",":  # a list that is only shown
            inside = list(_spread(inside[0]))
        return inside

    def _closing(self) -> None:
        if self.here != ")":
            raise self.refusal("a bracket is not closed; add )")
        self._next()

    def _made(self, kind: str, text: str, inside: tuple[Node, ...] = ()) -> Node:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise self.refusal(f"a formula may have {MOST_NODES} parts; write it shorter")
        return Node(kind, text, inside)

    def _next(self) -> None:
        self.kind, self.here = next(self.tokens, ("end", ""))

    def _tokens(self) -> Iterator[tuple[str, str]]:
        place, text = 0, self.text.rstrip()
        while place < len(text):
            found = TOKEN.match(text, place)
            if found is None:
                raise self.refusal(f"{text[place:].lstrip()[:1]!r} has no place in a formula; leave it out")
            number, name, operator = found.groups()
            yield (
                ("number", number) if number else ("name", name) if name else ("operator", operator.replace("**", "^"))
            )
            place = found.end()

    def refusal(self, why: str) -> UserError:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return UserError(f"the formula {shown!r} cannot be read: {why}")


def _spread(node: Node) -> Iterator[Node]:
    """a, b, c as its parts."""
    if node.kind == ",":
        for inside in node.inside:
            yield from _spread(inside)
    else:
        yield node
