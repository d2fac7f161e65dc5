"""Formulas as readable text and as MathML; prose holds them between backticks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

from markupsafe import Markup

from octavo.exercises.framework.formula import BINDING, RELATIONS, Node, parse
from octavo.pages.markup import NOTHING, element, join
from octavo.pages.markup import text as markup

GREEK = dict(zip(
    "alpha beta gamma delta epsilon eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega".split(),
    "αβγδεηθκλμνξπρστφχψω", strict=True,
)) | {"Delta": "Δ", "Sigma": "Σ", "Omega": "Ω", "Phi": "Φ", "inf": "∞", "ell": "ℓ"}  # fmt: skip
CALLED = {"gamma": "Γ", "factorial": "fact"}  # the function, not the Greek character
SUPERSCRIPT = str.maketrans("0123456789+-nTd", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿᵀᵈ")
SIGNS = {"slash": "/", "<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "-": "−", "~": "∼"}
QUOTED = re.compile(r"`([^`]*)`")
SYMBOL = re.compile(
    r"(?<![\w'’“\"./[-])([b-zB-HJ-Z](?:_[A-Za-z0-9]+)*)(?![\w'’”\"]|\.\w)"
)  # in prose; a, A and I are words
LOOSE = ("dot", "kron", "sum", "d", "T", "inv")  # calls that are not written as such
TIGHT = 6  # names, numbers, calls and brackets need none around them
LINE_CHARACTERS = 24  # browsers do not break a formula, so a longer one comes in pieces
INVISIBLE_TIMES = "\u2062"
NO_BREAK_SPACE = "\u00a0"


def prose_as_text(text: str) -> str:
    """Prose for a terminal."""
    return QUOTED.sub(lambda found: as_text(found[1]), text)


def wrap_prose(text: str, width: int, indent: str = "") -> str:
    """Prose for a terminal as lines of this width; short formulas are not broken."""
    words = QUOTED.sub(lambda found: _unbroken(as_text(found[1])), " ".join(text.split()))
    lines = textwrap.fill(words, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return lines.replace(NO_BREAK_SPACE, " ")


def _unbroken(formula: str) -> str:
    return formula.replace(" ", NO_BREAK_SPACE) if len(formula) <= LINE_CHARACTERS else formula


def prose_as_html(text: str) -> Markup:
    """Prose as HTML paragraphs; an empty line separates them."""
    return join(*(element("p", inline_as_html(block)) for block in re.split(r"\n\s*\n", text.strip())))


def inline_as_html(text: str) -> Markup:
    """Words and formulas in turn."""
    first, *rest = QUOTED.split(" ".join(text.split()))
    parts = [_words(first)]
    for formula, words in zip(rest[::2], rest[1::2], strict=True):
        *before, last = _pieces(parse(formula, None))
        parts += [*before, _with_sign(last, _words(words))]
    return NOTHING.join(parts)


def _words(prose: str) -> Markup:
    """Prose without formulas; single letters are symbols and look as in formulas."""
    first, *rest = SYMBOL.split(prose)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    drawn = (_with_sign(_drawn(_letter_math(symbol)), words) for symbol, words in pairs)
    return NOTHING.join([markup(first), *drawn])


def _with_sign(formula: Markup, words: str) -> Markup:
    """A formula and the words after it; a sign that ends a sentence stays with the formula."""
    sign = words[:1] if words[:1] in tuple(".,;:?!)") else ""
    kept = element("span", formula, sign, style="white-space: nowrap") if sign else formula
    return kept + markup(words[len(sign) :])


def as_text(formula: str) -> str:
    """A formula on one line, with Greek letters, small raised powers and the signs of mathematics."""
    return _text(parse(formula, None))


def as_mathml(formula: str) -> Markup:
    """A formula as MathML, which browsers draw by themselves."""
    return _drawn(_math(parse(formula, None)))


def _drawn(*inside: Markup) -> Markup:
    return element("math", element("mrow", *inside), displaystyle="true")


def _pieces(node: Node) -> list[Markup]:
    """A formula as MathML, a long one in pieces between which a line may end: at = and the like, then at + and -."""
    pieces = []
    for sign, part in _parted(node, RELATIONS):
        inner = _parted(part, ("+", "-")) if len(_text(part)) > LINE_CHARACTERS else [("", part)]
        for n, (plus, one) in enumerate(inner):
            before = plus if n else sign
            operator = [element("mo", SIGNS.get(before, before), form="infix")] if before else []
            pieces.append(_drawn(*operator, _math(one)))
    return [_drawn(_math(node))] if len(_text(node)) <= LINE_CHARACTERS else pieces


def _parted(node: Node, signs: Sequence[str]) -> list[tuple[str, Node]]:
    """a = b = c as its parts, each with the sign before it."""
    if node.kind not in signs:
        return [("", node)]
    left, right = node.inside
    (_, first), *rest = _parted(right, signs) if node.kind in RELATIONS else [("", right)]
    return [*_parted(left, signs), (node.kind, first), *rest]


def _text(node: Node) -> str:
    inside = node.inside
    match node.kind:
        case "number":
            return node.text
        case "name":
            return _letter(node.text)
        case "()":
            return f"({_text(inside[0])})"
        case "sign":
            return f"−{_text(inside[0])}"
        case "call":
            return TEXT_CALLS.get(node.text, _call_text)(node)
        case "^":
            raised = _text(inside[1]).replace("−", "-")
            if len(raised.translate(SUPERSCRIPT)) <= 3 and not set(raised) - set("0123456789-nTd"):
                return _text_tight(inside[0]) + raised.translate(SUPERSCRIPT)
            return f"{_text_tight(inside[0])}^{_text_tight(inside[1])}"
        case "*":
            inside = tuple(map(_factor, inside))
            dot = " · " if _starts_with_number(inside[1]) else " "
            right = f"({_text(inside[1])})" if inside[1].kind == "sign" else _text(inside[1])
            return _text(inside[0]) + dot + right
        case "/":
            return f"{_text(inside[0])}/{_text(inside[1])}"
        case ",":
            return f"{_text(inside[0])}, {_text(inside[1])}"
    return f"{_text(inside[0])} {SIGNS.get(node.kind, node.kind)} {_text(inside[1])}"


def _call_text(node: Node) -> str:
    name = "log" if node.text == "ln" else node.text
    return f"{CALLED.get(name) or _letter(name)}({', '.join(map(_text, node.inside))})"


def _text_tight(node: Node) -> str:
    return _text(node) if _strength(node) >= TIGHT else f"({_text(node)})"


TEXT_CALLS: dict[str, Callable[[Node], str]] = {
    "sqrt": lambda node: "√" + _text_tight(node.inside[0]),
    "abs": lambda node: f"|{_text(node.inside[0])}|",
    "norm": lambda node: f"‖{_text(node.inside[0])}‖",
    "T": lambda node: _text_tight(node.inside[0]) + "ᵀ",
    "inv": lambda node: _text_tight(node.inside[0]) + "⁻¹",
    "dot": lambda node: f"{_text_tight(node.inside[0])} · {_text_tight(node.inside[1])}",
    "kron": lambda node: " ⊗ ".join((_text if one.text == "T" else _text_tight)(one) for one in node.inside),
    "hat": lambda node: _text(node.inside[0]) + "\u0302",
    "sum": lambda node: f"∑_{_text(node.inside[0])} {_text(node.inside[1])}",
    "d": lambda node: f"∂{_text_tight(node.inside[0])}/∂{_text_tight(node.inside[1])}",
    "list": lambda node: f"({', '.join(map(_text, node.inside))})",
}  # fmt: skip


def _math(node: Node) -> Markup:
    inside = node.inside
    match node.kind:
        case "number":
            return element("mn", node.text)
        case "name":
            return _letter_math(node.text)
        case "()":
            return _bracketed(_math(inside[0]))
        case "sign":
            return element("mrow", _operator("−"), _math(inside[0]))
        case "call":
            return MATH_CALLS.get(node.text, _call_math)(node)
        case "^":
            return _over("msup", _math_tight(inside[0]), _math(_on_one_line(_bare(inside[1]))))
        case "/":
            return _over("mfrac", _math(_bare(inside[0])), _math(_bare(inside[1])))
        case "*":
            inside = tuple(map(_factor, inside))
            times = "·" if _starts_with_number(inside[1]) else INVISIBLE_TIMES
            return _math(inside[0]) + _operator(times) + _math(inside[1])
    return _math(inside[0]) + _operator(SIGNS.get(node.kind, node.kind)) + _math(inside[1])


def _operator(sign: str) -> Markup:
    return element("mo", sign)


def _over(tag: str, *rows: Markup) -> Markup:
    """A fraction, or something with another above or below it."""
    return element(tag, *(element("mrow", row) for row in rows))


def _call_math(node: Node) -> Markup:
    name = "log" if node.text == "ln" else node.text
    return _letter_math(CALLED.get(name, name)) + _list(node)


def _list(node: Node) -> Markup:
    return _bracketed(_operator(",").join(map(_math, node.inside)))


def _bracketed(inside: Markup, left: str = "(", right: str = ")") -> Markup:
    brackets = [element("mo", sign, stretchy="false") for sign in (left, right)]
    return element("mrow", brackets[0], inside, brackets[1])


def _math_tight(node: Node) -> Markup:
    return _math(node) if _strength(node) >= TIGHT else _bracketed(_math(node))


MATH_CALLS: dict[str, Callable[[Node], Markup]] = {
    "sqrt": lambda node: element("msqrt", _math(node.inside[0])),
    "abs": lambda node: _bracketed(_math(node.inside[0]), "|", "|"),
    "norm": lambda node: _bracketed(_math(node.inside[0]), "‖", "‖"),
    "exp": lambda node: _over("msup", element("mi", "e"), _math(_on_one_line(node.inside[0]))),
    "T": lambda node: _over("msup", _math_tight(node.inside[0]), element("mi", "T")),
    "inv": lambda node: _over("msup", _math_tight(node.inside[0]), _operator("−") + element("mn", "1")),
    "dot": lambda node: _math_tight(node.inside[0]) + _operator("·") + _math_tight(node.inside[1]),
    "kron": lambda node: _operator("⊗").join((_math if one.text == "T" else _math_tight)(one) for one in node.inside),
    "hat": lambda node: element("mover", element("mrow", _math(node.inside[0])), _operator("^")),
    "sum": lambda node: (
        element("munder", _operator("∑"), element("mrow", _math(node.inside[0]))) + _math(node.inside[1])
    ),
    "d": lambda node: _over("mfrac", *(_operator("∂") + _math_tight(one) for one in node.inside[:2])),
    "list": _list,
}  # fmt: skip


def _factor(node: Node) -> Node:
    """A factor of a product, with brackets around a Kronecker product."""
    return Node("()", "", (node,)) if node.kind == "call" and node.text == "kron" else node


def _bare(node: Node) -> Node:
    """What stands inside brackets that a fraction's line or a raised line makes needless."""
    return node.inside[0] if node.kind == "()" else node


def _on_one_line(node: Node) -> Node:
    """An exponent with slashes instead of fraction bars, which would be too small to read."""
    return Node("slash" if node.kind == "/" else node.kind, node.text, tuple(map(_on_one_line, node.inside)))


def _strength(node: Node) -> int:
    if node.kind == "call" and node.text in LOOSE:
        return BINDING["*"]
    return 4 if node.kind == "sign" else BINDING.get(node.kind, TIGHT)


def _starts_with_number(node: Node) -> bool:
    return node.kind == "number" or (node.kind in BINDING and _starts_with_number(node.inside[0]))


def _letter(name: str) -> str:
    first, *below = name.split("_")
    below = [GREEK.get(one, one) for one in below]
    return GREEK.get(first, first) + ("_" + ("" if all(len(one) == 1 for one in below) else ",").join(below)) * bool(
        below
    )


def _letter_math(name: str) -> Markup:
    first, *below = [element("mi", GREEK.get(one, one)) for one in name.split("_")]
    return element("msub", first, element("mrow", _operator(",").join(below))) if below else first
