"""Formulas as readable text and as MathML; prose holds them between backticks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from octavo.exercises.framework.formula import BINDING, RELATIONS, Node, parse_for_show
from octavo.pages.frame import shown

GREEK = dict(zip(
    "alpha beta gamma delta epsilon eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega".split(),
    "αβγδεηθκλμνξπρστφχψω", strict=True,
)) | {"Delta": "Δ", "Sigma": "Σ", "Omega": "Ω", "Phi": "Φ", "inf": "∞", "ell": "ℓ"}  # fmt: skip
CALLED = {"gamma": "Γ", "factorial": "fact"}  # the function, not the letter
SUPERSCRIPT = str.maketrans("0123456789+-nTd", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿᵀᵈ")
SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "-": "−", "~": "∼"}
QUOTED = re.compile(r"`([^`]*)`")
LOOSE = ("dot", "sum", "d", "T", "inv")  # calls that are not written as such
TIGHT = 6  # names, numbers, calls and brackets need none around them
ON_A_LINE = 24  # letters; browsers do not break a formula, so a longer one comes in pieces


def prose_as_text(text: str) -> str:
    """Prose for a terminal."""
    return QUOTED.sub(lambda found: as_text(found[1]), text)


def prose_as_html(text: str) -> str:
    """Prose as HTML paragraphs; an empty line separates them."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        pieces = QUOTED.split(" ".join(block.split()))
        blocks.append(f"<p>{''.join(_inline(pieces))}</p>")
    return "\n".join(blocks)


def _inline(pieces: list[str]) -> Iterator[str]:
    """Words and formulas in turn; a sign that ends a sentence stays with the formula before it."""
    yield shown(pieces[0])
    for formula, words in zip(pieces[1::2], pieces[2::2], strict=True):
        sign = words[:1] if words[:1] in tuple(".,;:?!)") else ""
        *pieces_before, last = _pieces(parse_for_show(formula))
        yield "".join(pieces_before)
        yield f'<span style="white-space: nowrap">{last}{sign}</span>' if sign else last
        yield shown(words[len(sign) :])


def as_text(formula: str) -> str:
    """A formula on one line, with Greek letters, small raised powers and the signs of mathematics."""
    return _text(parse_for_show(formula))


def as_mathml(formula: str) -> str:
    """A formula as MathML, which browsers draw by themselves."""
    return _drawn(_math(parse_for_show(formula)))


def _drawn(inside: str) -> str:
    return f'<math displaystyle="true"><mrow>{inside}</mrow></math>'


def _pieces(node: Node) -> list[str]:
    """A formula as MathML, a long one in pieces between which a line may end: at = and the like, then at + and -."""
    pieces: list[str] = []
    for sign, part in _parted(node, RELATIONS):
        inner = _parted(part, ("+", "-")) if len(_text(part)) > ON_A_LINE else [("", part)]
        for n, (plus, one) in enumerate(inner):
            before = plus if n else sign
            mark = f'<mo form="infix">{shown(SIGNS.get(before, before))}</mo>' if before else ""
            pieces.append(_drawn(mark + _math(one)))
    return [_drawn(_math(node))] if len(_text(node)) <= ON_A_LINE else pieces


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
            dot = " · " if _ends_in_number(inside[0]) and _starts_with_number(inside[1]) else " "
            return _text(inside[0]) + dot + _text(inside[1])
        case "/":
            return f"{_text(inside[0])}/{_text(inside[1])}"
        case ",":
            return f"{_text(inside[0])}, {_text(inside[1])}"
    return f"{_text(inside[0])} {SIGNS.get(node.kind, node.kind)} {_text(inside[1])}"


def _call_text(node: Node) -> str:
    name = "log" if node.text == "ln" else node.text
    return f"{CALLED.get(name) or _letter(name)}({', '.join(map(_text, node.inside))})"


def _power_text(node: Node, sign: str) -> str:
    return _text_tight(node.inside[0]) + sign


def _text_tight(node: Node) -> str:
    return _text(node) if _strength(node) >= TIGHT else f"({_text(node)})"


TEXT_CALLS: dict[str, Callable[[Node], str]] = {
    "sqrt": lambda node: "√" + _text_tight(node.inside[0]),
    "abs": lambda node: f"|{_text(node.inside[0])}|",
    "norm": lambda node: f"‖{_text(node.inside[0])}‖",
    "T": lambda node: _power_text(node, "ᵀ"),
    "inv": lambda node: _power_text(node, "⁻¹"),
    "dot": lambda node: f"{_text_tight(node.inside[0])} · {_text_tight(node.inside[1])}",
    "hat": lambda node: _text(node.inside[0]) + "\u0302",
    "sum": lambda node: f"∑_{_text(node.inside[0])} {_text(node.inside[1])}",
    "d": lambda node: f"∂{_text_tight(node.inside[0])}/∂{_text_tight(node.inside[1])}",
    "list": lambda node: f"({', '.join(map(_text, node.inside))})",
}  # fmt: skip


def _math(node: Node) -> str:
    inside = node.inside
    match node.kind:
        case "number":
            return f"<mn>{node.text}</mn>"
        case "name":
            return _letter_math(node.text)
        case "()":
            return _bracketed(_math(inside[0]))
        case "sign":
            return f"<mrow><mo>−</mo>{_math(inside[0])}</mrow>"
        case "call":
            return MATH_CALLS.get(node.text, _call_math)(node)
        case "^":
            return f"<msup><mrow>{_math_tight(inside[0])}</mrow><mrow>{_math(_bare(inside[1]))}</mrow></msup>"
        case "/":
            return f"<mfrac><mrow>{_math(_bare(inside[0]))}</mrow><mrow>{_math(_bare(inside[1]))}</mrow></mfrac>"
        case "*":
            dot = "·" if _ends_in_number(inside[0]) and _starts_with_number(inside[1]) else "&#x2062;"
            return f"{_math(inside[0])}<mo>{dot}</mo>{_math(inside[1])}"
    return f"{_math(inside[0])}<mo>{shown(SIGNS.get(node.kind, node.kind))}</mo>{_math(inside[1])}"


def _call_math(node: Node) -> str:
    name = "log" if node.text == "ln" else node.text
    return _letter_math(CALLED.get(name, name)) + _bracketed("<mo>,</mo>".join(map(_math, node.inside)))


def _bracketed(inside: str, left: str = "(", right: str = ")") -> str:
    return f'<mrow><mo stretchy="false">{left}</mo>{inside}<mo stretchy="false">{right}</mo></mrow>'


def _math_tight(node: Node) -> str:
    return _math(node) if _strength(node) >= TIGHT else _bracketed(_math(node))


MATH_CALLS: dict[str, Callable[[Node], str]] = {
    "sqrt": lambda node: f"<msqrt>{_math(node.inside[0])}</msqrt>",
    "abs": lambda node: _bracketed(_math(node.inside[0]), "|", "|"),
    "norm": lambda node: _bracketed(_math(node.inside[0]), "‖", "‖"),
    "exp": lambda node: f"<msup><mi>e</mi><mrow>{_math(node.inside[0])}</mrow></msup>",
    "T": lambda node: f"<msup><mrow>{_math_tight(node.inside[0])}</mrow><mi>T</mi></msup>",
    "inv": lambda node: f"<msup><mrow>{_math_tight(node.inside[0])}</mrow><mrow><mo>−</mo><mn>1</mn></mrow></msup>",
    "dot": lambda node: f"{_math_tight(node.inside[0])}<mo>·</mo>{_math_tight(node.inside[1])}",
    "hat": lambda node: f"<mover><mrow>{_math(node.inside[0])}</mrow><mo>^</mo></mover>",
    "sum": lambda node: f"<munder><mo>∑</mo><mrow>{_math(node.inside[0])}</mrow></munder>{_math(node.inside[1])}",
    "d": lambda node: f"<mfrac><mrow><mo>∂</mo>{_math_tight(node.inside[0])}</mrow>"
                      f"<mrow><mo>∂</mo>{_math_tight(node.inside[1])}</mrow></mfrac>",
    "list": lambda node: _bracketed("<mo>,</mo>".join(map(_math, node.inside))),
}  # fmt: skip


def _bare(node: Node) -> Node:
    """What stands inside brackets that a fraction's line or a raised line makes needless."""
    return node.inside[0] if node.kind == "()" else node


def _strength(node: Node) -> int:
    if node.kind == "call" and node.text in LOOSE:
        return BINDING["*"]
    return 4 if node.kind == "sign" else BINDING.get(node.kind, TIGHT)


def _ends_in_number(node: Node) -> bool:
    return node.kind == "number" or (node.kind in BINDING and _ends_in_number(node.inside[1]))


def _starts_with_number(node: Node) -> bool:
    return node.kind == "number" or (node.kind in BINDING and _starts_with_number(node.inside[0]))


def _letter(name: str) -> str:
    first, *below = name.split("_")
    return "_".join([GREEK.get(first, first), *(GREEK.get(one, one) for one in below)])


def _letter_math(name: str) -> str:
    first, *below = [GREEK.get(one, one) for one in name.split("_")]
    if not below:
        return f"<mi>{first}</mi>"
    return f"<msub><mi>{first}</mi><mrow>{'<mo>,</mo>'.join(f'<mi>{one}</mi>' for one in below)}</mrow></msub>"
