"""How texts of exercises look: symbols, formulas and line breaks, and what a sheet says about the form of an answer."""

from __future__ import annotations

import re

import pytest

from octavo.exercises import Exercise, Finding, Formula, Function, Number, Part, Truth
from octavo.exercises.formats.sheet import question_sheet
from octavo.exercises.framework.mathml import as_mathml, as_text, inline_as_html, prose_as_html, wrap_prose
from octavo.exercises.framework.registry import select_exercises

ALL = select_exercises(())
UNDISPLAYED = re.compile(r"\b(dot|sqrt|sum|kron|norm)\(|->|<=|>=|\*\*|\^|\bprevious exercise\b|, too\.")


def texts(exercise: Exercise) -> list[str]:
    return [exercise.title, exercise.question, exercise.answer, *(x for part in exercise.parts for x in part.texts())]


@pytest.mark.parametrize("exercise", ALL, ids=[one.id for one in ALL])
def test_no_text_shows_the_notation_of_formulas_or_needs_another_exercise(exercise: Exercise) -> None:
    for text in texts(exercise):
        assert not UNDISPLAYED.search(re.sub(r"`[^`]*`", "", text)), text


def test_single_letters_in_prose_look_as_in_formulas() -> None:
    assert inline_as_html("width D").endswith(prose_as_html("`D`")[3:-4])
    assert inline_as_html("a width of N.").count("<math ") == 1
    assert inline_as_html("A word, I think, e.g. “B” or x'").count("<math ") == 0
    assert "\n" not in inline_as_html("E(w) of N tokens (n, m)")


def test_formulas_as_the_field_writes_them() -> None:
    assert as_text("kron(A, T(W))") == "A ⊗ Wᵀ"
    assert as_text("kron(P, Q)*kron(R, S) = kron(P*R, Q*S)") == "(P ⊗ Q) (R ⊗ S) = (P R) ⊗ (Q S)"
    assert as_text("a_n_m*W_v") == "a_nm W_v"
    assert as_text("2*pi*10000") == "2 π · 10000"
    assert "⊗" in as_mathml("kron(A, I)")


def test_exponents_have_no_fraction_bars() -> None:
    assert "<mfrac>" not in as_mathml("r^(1/sqrt(d)) + exp(-3/8)")
    assert "<mfrac>" in as_mathml("1/exp(x/2)")


def test_a_short_formula_stays_on_one_line() -> None:
    for width in range(20, 60):
        lines = wrap_prose(
            "It computes, but does not store, `H*N^2` attention weights of `4*D^2 + 4*D` numbers.", width
        )
        assert "H N²" in lines
        assert "4 D² + 4 D" in lines
        assert all(len(line) <= width for line in lines.splitlines())


def test_a_sheet_says_what_the_verdicts_mean_and_which_form_an_answer_has() -> None:
    def part(name: str, answer: Number | Formula | Truth | Function) -> Part:
        return Part(name, f"What is {name}?", answer, "exact", lambda: Finding(None), why="So.")

    function = Function("double", lambda x: 2 * x, [(1.0,)], "double(x: number) -> number")
    formula = Formula("D", {"D": "whole", "H": "whole"})
    answers = {"it": Number(3), "that": Number(4, rel=0), "all": formula, "this": function, "so": Truth("true")}
    parts = [part(name, answer) for name, answer in answers.items()]
    page = question_sheet([Exercise("one", "One", "Think.", "Done.", parts)], "Week 1")
    assert "Numbers need three significant digits" in page
    assert "Nearly true: it does not always hold" in page
    for note in (
        "(1 point)",
        "(exact; 1 point)",
        "(a formula in D and H; 1 point)",
        "a Python function double(x: number)",
    ):
        assert note in page
    only_number = question_sheet([Exercise("one", "One", "Think.", "Done.", parts[:1])], "Week 1")
    assert "Nearly true" not in only_number
