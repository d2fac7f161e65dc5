"""Formulas as people type them, parsed without eval: text becomes tokens, tokens become a tree.

A formula of ours is parsed strictly. A student's may leave out the sign of a product (4 D^2), the brackets of a
function (ln 2) and the case of a name, and may have thousands separators, percent signs and factorials; of
an equation, the last side counts. A hostile text is refused by its size, before any number in it is computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.formula_input import plain_formula

MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, MAX_DIGITS = 1000, 40, 400, 40  # of a formula; digits of one number
MAX_EXPONENT = 999  # of a number such as 1e-12
CONSTANTS = ("pi", "e", "E")
FUNCTIONS: dict[str, int] = {  # name -> number of arguments
    "sqrt": 1, "exp": 1, "log": 1, "ln": 1, "sin": 1, "cos": 1, "tan": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1,
    "log2": 1, "log10": 1, "abs": 1, "gamma": 1, "factorial": 1, "binomial": 2, "min": 2, "max": 2,
}  # fmt: skip
ALIASES = {
    "fact": "factorial",
    "arctan": "atan",
    "choose": "binomial",
    "comb": "binomial",
    "root": "sqrt",
    "lg": "log10",
}
RELATIONS = ("=", "!=", "<", "<=", ">", ">=", "~", "->")
BINDING = {**dict.fromkeys((*RELATIONS, ","), 1), "+": 2, "-": 2, "*": 3, "/": 3, "^": 5}
SIGN = 4  # a sign binds tighter than *, looser than a power: -x^2 is -(x^2)
THOUSANDS = re.compile(r"\s*(\d{1,3}(?:,\d{3})+(?:\.\d+)?)(?![\d,])")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+%?")
TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z][A-Za-z0-9_]*)|"
                   r"(\*\*|<=|>=|!=|->|[-+*/^(),=<>~!%]))")  # fmt: skip


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
    if names is not None:
        plain = plain_formula(text)
        is_decimal = DECIMAL_COMMA.fullmatch(plain) and not THOUSANDS.fullmatch(plain.lstrip("+-"))
        plain = plain.replace(",", ".") if is_decimal else _last_side(plain)
    parser = _Parser(text if names is None else plain, None if names is None else frozenset(names), text)
    node = parser.expression(0, 0)
    if parser.kind != "end":
        raise parser.error(f"{parser.token!r} is unexpected; check the brackets and the signs before it")
    return node


def _last_side(text: str) -> str:
    """The last side of an equation; a comparison is left as it is."""
    is_equation = "=" in text and not any(sign in text for sign in ("<", ">", "!"))
    return ([side for side in text.replace("~", "=").split("=") if side.strip()] or [text])[-1] if is_equation else text


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

    def __init__(self, text: str, names: frozenset[str] | None, shown: str) -> None:
        self.text, self.names, self.nodes, self.shown = text, names, 0, shown
        self.calls: list[str] = []  # functions whose brackets are open
        self.tokens = self._tokens()
        self.kind, self.token = "", ""
        self._advance()

    def expression(self, least: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(f"brackets and powers may be nested {MAX_DEPTH} deep; simplify it")
        left = self._operand(depth)
        while True:
            if self._is_product() and BINDING["*"] > least:
                left = self._node("*", "*", (left, self.expression(BINDING["*"], depth + 1)))
                continue
            if self.kind != "operator" or BINDING.get(self.token, 0) <= least - (self.token == "^"):
                return left
            operator = self.token
            if self.names is not None and (operator in RELATIONS or operator == ","):
                raise self.error(f"{operator!r} is not allowed in a formula; give one expression")
            self._advance()
            left = self._node(operator, operator, (left, self.expression(BINDING[operator], depth + 1)))

    def _is_product(self) -> bool:
        """Whether a factor follows without a sign; only students may write so."""
        if self.names is None:
            return False
        if self.kind == "number" and self.before == "number":
            raise self.error("two numbers stand side by side; put a sign between them")
        return self.kind in ("number", "name") or self.token == "("

    def _operand(self, depth: int) -> Node:
        node = self._first_operand(depth)
        while self.names is not None and self.token in ("!", "%"):
            if self.token == "!":
                node = self._node("call", "factorial", (node,))
            else:
                node = self._node("/", "/", (node, self._node("number", "100")))
            self._advance()
        return node

    def _first_operand(self, depth: int) -> Node:
        kind, text = self.kind, self.token
        self._advance()
        if kind == "number":
            digits, _, power = text.lower().partition("e")
            if len(digits) > MAX_DIGITS or len(power.lstrip("+-")) > len(str(MAX_EXPONENT)):
                raise self.error(f"a number may have {MAX_DIGITS} digits and an exponent up to {MAX_EXPONENT}")
            return self._node("number", text)
        if kind == "name":
            return self._named(text, depth)
        if text in ("-", "+"):
            inside = self.expression(SIGN, depth + 1)
            return self._node("sign", text, (inside,)) if text == "-" else inside
        if text == "(":
            inside = self.expression(0, depth + 1)
            self._close()
            return self._node("()", "", (inside,))
        what = f"{text!r} is unexpected" if text else "it ends too early"
        raise self.error(f"{what}; a number, a name or a bracket must follow")

    def _named(self, text: str, depth: int) -> Node:
        """A symbol, a function with or without brackets, or several symbols side by side."""
        if self.names is None:
            return self._call(text, depth) if self.token == "(" else self._node("name", text)
        if (symbol := self._symbol(text)) is not None:
            return self._node("name", symbol)
        function = ALIASES.get(text.lower(), text.lower())
        if function in FUNCTIONS:
            if self.token == "(":
                return self._call(function, depth)
            if FUNCTIONS[function] == 1 and (self.kind in ("number", "name")):
                return self._node("call", function, (self.expression(SIGN, depth + 1),))
        if (symbols := self._split(text)) is not None:
            node = self._node("name", symbols[0])
            for symbol in symbols[1:]:
                node = self._node("*", "*", (node, self._node("name", symbol)))
            return node
        known = ", ".join(sorted(self.names)) or "none"
        if self.token == "(":
            raise self.error(f"there is no function {text!r}; the functions are {', '.join(FUNCTIONS)}")
        raise self.error(f"{text!r} is not a symbol of this exercise; its symbols are {known}")

    def _symbol(self, text: str) -> str | None:
        """The symbol or constant that a name means, in another case or without its underscore if that is clear."""
        assert self.names is not None
        if text in self.names or text in CONSTANTS:
            return text
        for simplify in (str.lower, lambda name: name.replace("_", "").lower()):
            if len(found := [name for name in self.names if simplify(name) == simplify(text)]) == 1:
                return found[0]
        return "pi" if text.lower() == "pi" else None

    def _split(self, text: str) -> list[str] | None:
        """Symbols that are written side by side, such as NDF; None if these are not symbols."""
        assert self.names is not None
        if not text:
            return []
        for name in sorted((*self.names, "pi"), key=len, reverse=True):
            if text.startswith(name) and (rest := self._split(text[len(name) :])) is not None:
                return [name, *rest]
        return None

    def _call(self, text: str, depth: int) -> Node:
        self.calls.append(text)
        self._advance()
        inside = [] if self.token == ")" else self._arguments(depth)
        self.calls.pop()
        self._close()
        if self.names is not None and len(inside) != FUNCTIONS[text]:
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
        self.before = self.kind
        self.kind, self.token = next(self.tokens, ("end", ""))

    def _tokens(self) -> Iterator[tuple[str, str]]:
        position, text = 0, self.text.rstrip()
        while position < len(text):
            has_separators = self.names is not None and not any(FUNCTIONS.get(one, 0) > 1 for one in self.calls)
            if has_separators and (match := THOUSANDS.match(text, position)):
                yield "number", match[1].replace(",", "")
                position = match.end()
                continue
            match = TOKEN.match(text, position)
            if match is None:
                raise self.error(
                    f"{text[position:].lstrip()[:1]!r} is not allowed in a formula; write it in another way"
                )
            number, name, operator = match.groups()
            yield (
                ("number", number) if number else ("name", name) if name else ("operator", operator.replace("**", "^"))
            )
            position = match.end()

    def error(self, why: str) -> UserError:
        shown = self.shown if len(self.shown) <= 60 else self.shown[:57] + "..."
        return UserError(f"the formula {shown!r} cannot be read: {why}")


def _items(node: Node) -> Iterator[Node]:
    """The items of a, b, c."""
    if node.kind == ",":
        for inside in node.inside:
            yield from _items(inside)
    else:
        yield node
