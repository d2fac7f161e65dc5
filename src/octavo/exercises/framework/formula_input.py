"""Formulas as students write them, in Unicode or LaTeX, turned into the plain signs that the parser reads."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿᵈᵀ", "0123456789+-()ndT", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉ₙᵢⱼ", "0123456789nij", strict=True))
RAISED = re.compile(f"[{''.join(SUPERSCRIPTS)}]+")
LOWERED = re.compile(f"[{''.join(SUBSCRIPTS)}]+")
SIGNS = {
    **dict.fromkeys("−–—‐‑﹣－", "-"), **dict.fromkeys("×·⋅∙•∗＊✕⨯", "*"), **dict.fromkeys("÷∕⁄／", "/"),
    **dict.fromkeys("≈≅≃≡", "="), **dict.fromkeys("[{⟨", "("), **dict.fromkeys("]}⟩", ")"),
    **dict.fromkeys("\u2061\u2062\u2063\u2064\u200b\ufeff$`", " "), "‖": "|", "ƒ": "f", "ℓ": "l", "𝑒": "e", "ℯ": "e",
}  # fmt: skip
GREEK = dict(zip(
    "αβγδεηθκλμνξπρστφχψω",
    "alpha beta gamma delta epsilon eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega".split(),
    strict=True,
)) | {"Γ": "gamma", "Δ": "Delta", "Σ": "Sigma", "Ω": "Omega", "Φ": "Phi", "ϵ": "epsilon", "ϕ": "phi",
      "µ": "mu"}  # fmt: skip
# What TOML makes of LaTeX in double quotes.
ESCAPES = {"\f": "\\f", "\t": "\\t", "\b": "\\b", "\r": "\\r", "\n": "\\n"}
ESCAPED = re.compile("[\f\t\b\r\n](?=[a-z])")
GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"  # {...}, with one more pair inside
LATEX: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(r"\\(?:left|right|big|Big|bigl|bigr|displaystyle|limits|quad)(?![a-z])|\\[,;!: ]"), " "),
    (re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)"), r"((\1)/(\2))"),
    (re.compile(rf"\\[dt]?frac\s*{GROUP}\s*{GROUP}"), r"((\1)/(\2))"),
    (re.compile(rf"\\[dt]?binom\s*{GROUP}\s*{GROUP}"), r"binomial(\1, \2)"),
    (re.compile(rf"\\sqrt\s*\[([^\]]*)\]\s*{GROUP}"), r"((\2)^(1/(\1)))"),
    (re.compile(rf"\\sqrt\s*{GROUP}"), r"sqrt(\1)"),
    (re.compile(rf"\\(?:text|mathrm|mathit|operatorname|mathbf)\s*{GROUP}"), r"\1"),
    (re.compile(rf"_\s*{GROUP}"), lambda found: "_" + re.sub(r"[\s,]+", "_", found[1].strip())),
    (re.compile(rf"\^\s*{GROUP}"), r"^(\1)"),
]  # fmt: skip
COMMANDS = {"cdot": "*", "times": "*", "ast": "*", "div": "/", "Gamma": "gamma", "lvert": "|", "rvert": "|",
    "vert": "|",
            "infty": "inf", "approx": "=", "lbrace": "(", "rbrace": ")", "%": "%"}  # fmt: skip
COMMAND = re.compile(r"\\([A-Za-z]+|%)")
BARS = re.compile(r"\|([^|]+)\|")
ROOT = re.compile(r"√\s*(?=\()")
ROOT_OF = re.compile(r"√\s*([A-Za-z]\w*(?![\w(])|\d+(?:\.\d+)?)")
SCALES = {"thousand": "10^3", "million": "10^6", "billion": "10^9", "trillion": "10^12"}
SCALE = re.compile(rf"(?<=[\d.])\s*({'|'.join(SCALES)})\b", re.IGNORECASE)
SPACED_THOUSANDS = re.compile(r"(?<![\w.])\d{1,3}(?:[ \u00a0\u2009\u202f'’_]\d{3})+(?![\w])")
MAX_PASSES = 6  # of LaTeX groups within groups


def plain_formula(text: str) -> str:
    """A formula in the signs of the keyboard: √(x²)·π becomes sqrt(x^(2))*pi, and LaTeX becomes plain text too."""
    text = ESCAPED.sub(lambda found: ESCAPES[found[0]], text)
    if "\\" in text or "{" in text:
        text = _without_latex(text)
    text = RAISED.sub(lambda found: f"^({''.join(SUPERSCRIPTS[one] for one in found[0])})", text)
    text = LOWERED.sub(lambda found: "_" + "".join(SUBSCRIPTS[one] for one in found[0]), text)
    text = SPACED_THOUSANDS.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    text = "".join(SIGNS.get(one, f" {GREEK[one]} " if one in GREEK else one) for one in text)
    text = unicodedata.normalize("NFKC", text).replace("⁄", "/").replace("∞", " inf ")
    text = re.sub(r"(gamma)\s+\(", r"\1(", text)
    text = ROOT_OF.sub(r"sqrt(\1)", ROOT.sub("sqrt", text)).replace("√", " sqrt ")
    text = SCALE.sub(lambda found: f"*{SCALES[found[1].lower()]}", text)
    text = re.sub(r"\s*\b(percent|per cent)\b", "%", text, flags=re.IGNORECASE)
    return BARS.sub(r"abs(\1)", text).strip().rstrip(".;")


def _without_latex(text: str) -> str:
    text = text.replace("\\%", "%")
    for _ in range(MAX_PASSES):
        before = text
        for pattern, plain in LATEX:
            text = pattern.sub(plain, text)
        if text == before:
            break
    return COMMAND.sub(lambda found: f" {COMMANDS.get(found[1], found[1])} ", text)
