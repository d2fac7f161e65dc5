"""Grading: formulas in any equivalent form, whole classes, and hostile files that do not affect other students."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import re
import sys
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cli import main
from octavo.errors import UserError
from octavo.exercises import (
    Choice,
    Exercise,
    Finding,
    Formula,
    Function,
    Interval,
    IntervalAt,
    Number,
    Part,
    Truth,
    verdict,
)
from octavo.exercises.framework.checking import check_exercise, check_exercises
from octavo.exercises.framework.formula import FUNCTIONS, parse
from octavo.exercises.framework.formula_values import find_difference, value
from octavo.exercises.framework.functions import FunctionRunner
from octavo.exercises.framework.grading import Student, answer_template, as_csv, as_json
from octavo.exercises.framework.isolation import IsolationError
from octavo.exercises.framework.limits import (
    Limits,
    Worker,
    end_process,
    read_reply,
    resident_bytes,
    resident_bytes_by_ps,
    start_process,
)
from octavo.exercises.framework.mathml import as_mathml, as_text, prose_as_html, prose_as_text
from octavo.exercises.framework.registry import load_folder, select_exercises
from octavo.exercises.framework.results import ResultFolder
from octavo.exercises.framework.submissions import grade

KINDS = {"d": "whole", "x": "real", "s": "positive"}
LIMITS = Limits(2.0, 1 << 29)


def part(name: str, answer: object, **more: object) -> Part:
    return Part(name, "What?", answer, "exact", lambda: Finding(None), why="Because.", **more)  # type: ignore[arg-type]


def doubled(x: float) -> float:
    """Twice the number."""
    return 2 * x


EXERCISE = Exercise(
    "made-up", "Made up", "Some questions.", "Some answers.",
    [
        part("number", Number("1/3"), wrong={"turned it over": 3}),
        part("formula", Formula("(d+1)*s^2", KINDS), wrong={"forgot the one": "d*s^2"}, only_if={"s = 1": "d+1"}),
        part("truth", Truth("nearly", Choice("positive", {"positive": "x is positive", "even": "x is even"}))),
        part("choice", Choice("red", {"red": "a colour", "seven": "a number"})),
        part("function", Function("double", doubled, [(1.0,), (2.5,)], "double(x)"), points=2.0),
    ],
)  # fmt: skip
RIGHT = """
[made-up]
number = "2/6"
formula = "s*s + d*s**2"
truth = "nearly"
truth-condition = "positive"
truth-reason = "it is in the book"
choice = "red"
function = "mine.py"
"""


def write_answers(folder: Path, answers: str, code: str = "def double(x):\n    return x + x\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answers.toml").write_text(answers, encoding="utf-8")
    (folder / "mine.py").write_text(code, encoding="utf-8")
    return folder / "answers.toml"


def grade_one(
    folder: Path, answers: str, code: str = "def double(x):\n    return x + x\n", limits: Limits = LIMITS
) -> Student:
    [student] = grade(write_answers(folder, answers, code), [EXERCISE], limits=limits)
    return student


def outcomes(student: Student) -> dict[str, str]:
    return {row.part: row.outcome for row in student.rows}


# Formulas


@pytest.mark.parametrize(
    ("text", "expected"),
    [("-2^2", -4), ("2^3^2", 512), ("2**-1", 0.5), ("8/4/2", 1), ("1-2-3", -4), ("2*-3", -6), ("-(1+2)*3", -9),
     ("1.5e1", 15), (".5", 0.5), ("sqrt(16)", 4), ("min(2, 3)+max(2, 3)", 5), ("factorial(5)", 120), ("E^0", 1),
     ("binomial(5, 2)", 10), ("abs(-3)", 3), ("ln(E)", 1), ("2^-2^1", 0.25), ("+3", 3)],
)  # fmt: skip
def test_operators_have_the_usual_precedence(text: str, expected: float) -> None:
    assert float(value(parse(text), {})) == pytest.approx(expected, rel=1e-15)


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> tuple[str, object]:
    """A formula's text and what Python makes of the same operations, exactly."""
    if depth == 0 or draw(st.booleans()):
        number = draw(st.integers(0, 20))
        return str(number), Fraction(number)
    (left, a), (right, b) = draw(formulas(depth - 1)), draw(formulas(depth - 1))
    sign = draw(st.sampled_from("+-*"))
    return f"({left}){sign}({right})", {"+": a + b, "-": a - b, "*": a * b}[sign]  # type: ignore[operator]


@given(formulas())
def test_a_formula_has_the_value_of_exact_arithmetic(drawn: tuple[str, Fraction]) -> None:
    text, exact = drawn
    with mpmath.workdps(50):
        assert value(parse(text), {}) == mpmath.mpf(exact.numerator)


@given(st.text(max_size=80))
@settings(max_examples=300)
def test_any_text_is_parsed_or_refused_with_a_reason(text: str) -> None:
    with suppress(UserError, ArithmeticError, ValueError):
        assert value(parse(text), {}) is not None


@given(st.text(alphabet="dxs0123456789+-*/^(). sqrtexplog", max_size=60))
@settings(max_examples=300)
def test_every_formula_can_be_displayed_and_what_is_displayed_means_the_same(text: str) -> None:
    at = {"d": 3, "x": "0.7", "s": "0.5"}
    try:
        parse(text, None)
        expected = value(parse(text, KINDS), at)
    except (UserError, ArithmeticError, ValueError):
        return
    assert as_mathml(text).startswith("<math ")
    assert value(parse(as_text(text), KINDS), at) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__import__('os').system('true')", "not allowed in a formula"),
        ("x.__class__", "not allowed"),
        ("lambda: 1", "':' is not allowed"),
        ("open", "not a symbol of this exercise"),
        ("eval(1)", "no function 'eval'"),
        ("(" * 400 + "1" + ")" * 400, "nested"),
        ("1" * 2000, "1000 characters"),
        ("9" * 60, "40 digits"),
        ("1e99999999", "exponent"),
        ("+".join("x" * 450), "400 parts"),
        ("x < 1", "one expression"),
        ("(1", "not closed"),
        ("sqrt(1, 2)", "takes 1"),
        ("1 +", "ends too early"),
        ("", "ends too early"),
    ],
)
def test_invalid_formulas_are_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why.replace("(", r"\(").replace("*", r"\*")):
        parse(text, KINDS)


@pytest.mark.parametrize(
    ("one", "other"),
    [("(d+1)^2", "d^2+2*d+1"), ("exp(log(s))", "s"), ("sin(x)^2+cos(x)^2", "1"), ("sqrt(s^2)", "s"),
     ("tanh(x)", "(exp(x)-exp(-x))/(exp(x)+exp(-x))"), ("factorial(d)", "gamma(d+1)"), ("log(s^2)", "2*ln(s)"),
        ("s", "s*x/x"), ("sqrt(d*(d-1))", "d*(d-1)/sqrt(d*(d-1))")],
)  # fmt: skip
def test_equivalent_formulas_are_equal(one: str, other: str) -> None:
    assert find_difference(parse(one, KINDS), parse(other, KINDS), KINDS) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("(d+1)^2", "d^2+1"), ("sqrt(x^2)", "x"), ("d", "d+10^(-15)"), ("log(x)", "log(abs(x))"),
     ("sin(x)", "x"), ("d*s", "d*s+(d-1)*(d-2)*(d-3)")],
)  # fmt: skip
def test_different_formulas_have_a_counterexample(one: str, other: str) -> None:
    found = find_difference(parse(one, KINDS), parse(other, KINDS), KINDS)
    assert found is not None
    assert found.left != found.right or one == "d"  # there the difference is beyond the digits shown


def test_every_function_is_known_to_mpmath_and_sympy() -> None:
    from octavo.exercises.framework import formula_values as values
    from octavo.exercises.framework import symbolic

    assert set(values.CALLS) == set(symbolic.CALLS) == set(FUNCTIONS)
    for name, count in FUNCTIONS.items():
        text = f"{name}({', '.join(['s', '2'][:count])})"
        ours = value(parse(text, KINDS), {"s": "0.75"})
        theirs = symbolic.expression(text, KINDS).subs({symbolic.symbol("s", "positive"): 0.75}).evalf()
        assert float(ours) == pytest.approx(float(theirs), rel=1e-12)


def test_formulas_are_displayed_as_mathematics() -> None:
    assert as_text("d*s^4 + 2*mu^2 >= sqrt(x_1)") == "d s⁴ + 2 μ² ≥ √x_1"
    assert as_text("dot(q, k)^2/(2*3)") == "(q · k)²/(2 · 3)"
    assert "<mfrac>" in as_mathml("a/b")
    assert "<msqrt>" in as_mathml("sqrt(a)")
    assert "<msub>" in as_mathml("x_n")


def test_a_long_formula_can_be_broken_into_lines() -> None:
    chain = prose_as_html("`E(q_i^2*k_i^2) - mu_i^4 = (mu_i^2 + s^2)^2 - mu_i^4 = s^4 + 2*s^2*mu_i^2`.")
    assert chain.count("<math ") == 3
    assert chain.count('<mo form="infix">=</mo>') == 2
    assert chain.endswith(".</span></p>")
    assert prose_as_html("`31036*1024 + 2*1024 - 24*(12*1024^2 + 13*1024)`").count("<math ") == 3
    assert prose_as_html("`a = b + c`").count("<math ") == 1


# Answers


def test_numbers_are_right_within_their_tolerance() -> None:
    assert Number(Fraction(1, 3)).compare(0.333) is None
    assert Number(Fraction(1, 3)).compare(0.334) is not None
    assert Number(1).compare(0.996) is not None
    assert Number(Fraction(1, 3), digits=6).compare(0.3333) is not None
    assert Number(Fraction(1, 3), digits=6).compare(0.333333) is None
    assert Number(7, rel=0).compare(7.0000001) is not None
    assert Number(0, rel=0, abs=0.1).compare(0.05) is None
    assert Number(1).compare(1.5, Interval(1.4, 1.6)) is None
    assert Number(1).compare(1.0, Interval(1.4, 1.6)) is not None
    for bad in (True, "x", math.nan, math.inf, [1], "1/0"):
        with pytest.raises(UserError):
            Number(1).compare(bad)


def test_formulas_are_compared_with_measured_intervals() -> None:
    formula = Formula("d", {"d": "whole"})
    assert formula.compare("d", [IntervalAt({"d": 3}, 2.9, 3.1)]) is None
    assert formula.compare("d^2", [IntervalAt({"d": 3}, 2.9, 3.1)]) is not None


def test_a_verdict_follows_from_what_holds_with_and_without_the_condition() -> None:
    found = [verdict(True), verdict(False), verdict(False, {"c": True, "d": False}), verdict(False, {"c": False}),
             verdict(False, 223)]  # fmt: skip
    assert [one.verdict for one in found] == ["true", "false", "nearly", "false", "nearly"]
    claim = Truth("nearly", Choice("c", {"c": "this", "d": "that"}))
    assert claim.compare("nearly") is None
    assert claim.compare_condition(found[2]) is None
    assert "['d']" in str(claim.compare_condition(verdict(False, {"c": False, "d": True})))
    assert "['c', 'd']" in str(claim.compare_condition(verdict(False, {"c": True, "d": True})))
    assert "every condition" in str(claim.compare_condition(verdict(False, {"c": True})))
    with pytest.raises(UserError):
        Truth("true").compare("perhaps")


# Grading


def test_right_answers_get_all_points(tmp_path: Path) -> None:
    student = grade_one(tmp_path, RIGHT)
    assert set(outcomes(student).values()) == {"right"}
    assert student.points == student.of == 6
    assert [row.reason for row in student.rows if row.part == "truth"] == ["it is in the book"]


def test_wrong_answers_come_with_a_reason(tmp_path: Path) -> None:
    wrong = '[made-up]\nnumber = 3\nformula = "d*s^2"\ntruth = false\nchoice = "seven"\nfunction = "mine.py"'
    student = grade_one(tmp_path, wrong, "def double(x):\n    return x * x\n")
    why = {row.part: row.explanation for row in student.rows}
    assert outcomes(student) == {
        "number": "wrong",
        "formula": "wrong",
        "truth": "only if",
        "choice": "wrong",
        "function": "wrong",
    }
    assert "turned it over" in why["number"]
    assert "forgot the one" in why["formula"]
    assert "for d = " in why["formula"]
    assert "x is positive" in why["truth"]
    assert why["choice"].endswith("Because.")
    assert "double(1" in why["function"]
    assert student.points == 0.5


def test_an_answer_right_under_a_condition_gets_half_the_points(tmp_path: Path) -> None:
    student = grade_one(tmp_path, '[made-up]\nformula = "1+d"\ntruth = true')
    assert outcomes(student) == {
        "number": "missing", "formula": "only if", "truth": "wrong", "choice": "missing", "function": "missing",
    }  # fmt: skip
    assert "right only if s = 1" in next(row.explanation for row in student.rows if row.part == "formula")
    assert student.points == 0.5


def test_answers_to_unknown_parts_are_shown_but_change_no_points(tmp_path: Path) -> None:
    student = grade_one(tmp_path, "[made-up]\nnumbr = 1\n[mad-up]\nnumber = 1")
    strays = [row for row in student.rows if row.of == 0]
    assert [row.explanation for row in strays] == [
        "there is no such part; did you mean number?", "there is no such exercise; did you mean made-up?",
    ]  # fmt: skip
    assert student.of == 6


HOSTILE_FILES = {
    "deep": "x = " + "[" * 5000 + "]" * 5000,
    "tables": "[" + ".".join("a" * 3000) + "]\nb = 1",
    "large": "x = '" + "a" * 300_000 + "'",
    "no-toml": "this is = = no toml",
    "bytes": "\udcff",
    "sixteen": "\0".join("[made-up]"),
    "no-text": "\0\1\2" * 1000,
    "digits": "x = " + "9" * 5000,
}


def test_a_hostile_file_is_refused_and_the_others_are_graded(tmp_path: Path) -> None:
    for name, text in HOSTILE_FILES.items():
        file = write_answers(tmp_path / name, "")
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    write_answers(tmp_path / "zoe", RIGHT)
    start = time.monotonic()
    students = {one.name: one for one in grade(tmp_path, [EXERCISE], limits=LIMITS)}
    assert time.monotonic() - start < 30
    assert students["zoe"].points == 6
    for name in HOSTILE_FILES:
        assert students[name].problem, name
        assert (students[name].points, students[name].of) == (0, 6)


@pytest.mark.parametrize(
    "text",
    ["9^9^9^9^9", "exp(exp(exp(exp(exp(9)))))", "factorial(10^9)", "gamma(10^30)", "binomial(10^9, 10^8)", "(" * 900,
     "__import__('os')", "d^(10^30)", "tan(exp(exp(12)))", "1/(d-d)"],
)  # fmt: skip
def test_a_hostile_formula_is_stopped_within_its_limits(tmp_path: Path, text: str) -> None:
    start = time.monotonic()
    student = grade_one(tmp_path, f'[made-up]\nformula = "{text}"\nnumber = "1/3"')
    assert time.monotonic() - start < 12
    assert outcomes(student)["formula"] in ("wrong", "refused")
    assert outcomes(student)["number"] == "right"


HOSTILE_FUNCTIONS = {  # while the file is executed, and what the teacher reads; test_isolation.py has the attacks
    "endless": ("def double(x):\n    while True: pass", "stopped"),
    "endless import": ("while True: pass", "stopped"),
    "sleeps": ("import time\ntime.sleep(60)", "stopped"),
    "memory": ("def double(x):\n    return len([0] * 10**10)", "memory"),
    "raises": ("def double(x):\n    raise KeyError('no')", "KeyError in line 2: 'no'"),
    "exits": ("import sys\nsys.exit(0)", "SystemExit in line 2"),
    "dies": ("import os\nos._exit(3)", "without an answer"),
    "missing": ("x = 1", "no function double"),
    "no python": ("def double(x:", "SyntaxError in line 1"),
    "strange": ("def double(x):\n    return object()", "object"),
    "large": ("def double(x):\n    return [0] * 10**6", "may hold"),
    "huge": ("def double(x):\n    return 10**400", "is right"),
    "lies": ("def double(x):\n    return True", "is right"),
    "not a number": ("def double(x):\n    return float('nan')", "is right"),
    "a word": ("def double(x):\n    return 'inf'", "is right"),
    "forks": ("import os\nos.fork()", "PermissionError in line 2"),
    "kills the grader": ("import os\nos.kill(os.getppid(), 9)", "PermissionError"),
    "deletes itself": ("import os\nos.remove(__file__)", "no function double"),
    "imports answers": ("from octavo.exercises.framework.registry import exercises_by_topic",
                        "ModuleNotFoundError in line 1: No module named 'octavo'; an answer may import Python's"),
    "formulas that are none": ("raise KeyError('`((`')", "KeyError"),
    "escapes": ("raise KeyError('\\x1b[31mred')", "[31mred"),
    "exits as if right": ("import atexit, os\natexit.register(lambda: os._exit(0))\nos._exit(0)", "without an answer"),
    "hides a module": ("import json\njson.dumps = None\ndef double(x): return 2 * x", "without an answer"),
    "forges the start": ("import os\nos.write(3, b'{\"loaded\": true}\\n')\ndef double(x): return 2 * x", "channel"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_FUNCTIONS)
def test_a_hostile_function_is_stopped_and_the_rest_still_graded(tmp_path: Path, name: str) -> None:
    code, why = HOSTILE_FUNCTIONS[name]
    start = time.monotonic()
    student = grade_one(tmp_path, RIGHT, code, Limits(1.0, 1 << 29))
    assert time.monotonic() - start < 12
    found = outcomes(student)
    assert found.pop("function") in ("refused", "wrong")
    assert set(found.values()) == {"right"}
    shown = next(row.explanation for row in student.rows if row.part == "function")
    assert why in shown
    assert shown.isprintable()
    assert prose_as_text(shown) == shown
    assert (tmp_path / "mine.py").is_file()
    assert sorted(os.listdir(tmp_path)) == ["answers.toml", "mine.py"]


def test_what_a_function_prints_is_ignored(tmp_path: Path) -> None:
    noisy = "print('{\"results\": [0, 0]}')\ndef double(x):\n    print(x)\n    return x * 2\n"
    assert outcomes(grade_one(tmp_path, RIGHT, noisy))["function"] == "right"


def test_a_common_mistake_is_named_even_if_its_result_is_infinite(tmp_path: Path) -> None:
    mistake = {"divided by nothing": lambda x: math.inf}
    endless = part("f", Function("double", doubled, [(1.0,)], "double(x)"), wrong=mistake)
    file = write_answers(tmp_path, '[e]\nf = "mine.py"', "def double(x):\n    return [float('inf')][0]\n")
    [student] = grade(file, [Exercise("e", "E", "Q.", "A.", [endless])], limits=LIMITS)
    assert student.rows[0].explanation == "divided by nothing: double(1) is inf, and 2 is right"


def test_a_function_earns_the_share_of_its_cases_that_are_right(tmp_path: Path) -> None:
    student = grade_one(tmp_path / "one", RIGHT, "def double(x):\n    return 2.0 if x == 1 else 1 / 0\n")
    row = next(row for row in student.rows if row.part == "function")
    assert (row.outcome, row.points, row.of) == ("partly", 1.0, 2.0)
    assert row.explanation == "1 of 2 cases are right; ZeroDivisionError in line 2: division by zero"
    student = grade_one(tmp_path / "two", RIGHT, "def double(x):\n    return 2.0\n")
    row = next(row for row in student.rows if row.part == "function")
    assert (row.outcome, row.points) == ("partly", 1.0)
    assert row.explanation == "1 of 2 cases are right: double(2.5) is 2, and 5 is right"


def test_a_stopped_function_costs_only_its_own_remaining_cases(tmp_path: Path) -> None:
    names = ("first", "second", "third")
    parts = [part(name, Function(name, doubled, [(1.0,), (2.5,)], name), wrong={"no": lambda x: 0}) for name in names]
    code = (
        "def first(x):\n    while x > 2: pass\n    return 2 * x\n"
        "def second(x):\n    return 2 * x\n"
        "def third(x):\n    import os; os._exit(0)\n"
    )
    file = write_answers(tmp_path, "[e]\n" + "\n".join(f'{name} = "mine.py"' for name in names), code)
    [student] = grade(file, [Exercise("e", "E", "Q.", "A.", parts)], limits=Limits(1.0, 1 << 29))
    assert [(row.outcome, row.points) for row in student.rows] == [("partly", 0.5), ("right", 1.0), ("refused", 0.0)]
    assert "was stopped" in student.rows[0].why


SEARCH = """
import gc, sys
def double(x):
    frame, texts = sys._getframe(), []
    while frame is not None:
        texts.append(repr(frame.f_locals) + repr(frame.f_globals))
        frame = frame.f_back
    texts += [repr(one) for one in gc.get_objects() if isinstance(one, dict | list | tuple) and len(one) < 100]
    wanted, given = (str(int(8675308 + 1 / y)) for y in (x, x / 3))
    return [any(wanted in text for text in texts), any(given in text for text in texts)]
"""


def test_an_expected_value_never_enters_the_students_process(tmp_path: Path) -> None:
    """The function looks for it in every frame and object; the second argument shows that it would find it."""
    right = Function("double", lambda x, *_: 8675309.5 if x == 1.0 else 0.0, [(1.0,)], "double(x)")
    exercise = Exercise("e", "E", "Q.", "A.", [part("f", right, wrong={"no": lambda *_: 1.0})])
    file = write_answers(tmp_path, '[e]\nf = "mine.py"', SEARCH)
    [student] = grade(file, [exercise], limits=Limits(20.0, 1 << 29))
    assert "is [False, False], and 8675309.5 is right" in student.rows[0].solution
    shown = dataclasses.replace(right, cases=[(1.0, 8675311.5)])
    exercise = Exercise("e", "E", "Q.", "A.", [part("f", shown, wrong={"no": lambda *_: 1.0})])
    file = write_answers(tmp_path, '[e]\nf = "mine.py"', SEARCH.replace("double(x)", "double(x, *_)"))
    [student] = grade(file, [exercise], limits=Limits(20.0, 1 << 29))
    assert "is [False, True]" in student.rows[0].solution


def test_a_failure_of_the_isolation_costs_no_student_marks(tmp_path: Path) -> None:
    class Failing:
        name = "failing"

        def launch(self) -> NoReturn:
            raise IsolationError("the isolation failing cannot be started: out of memory")

    write_answers(tmp_path / "class" / "ada", RIGHT.replace('function = "mine.py"', ""))
    write_answers(tmp_path / "class" / "bob", RIGHT)
    results = ResultFolder(tmp_path / "results")
    with pytest.raises(UserError, match="out of memory"):
        grade(tmp_path / "class", [EXERCISE], limits=LIMITS, runner=FunctionRunner(LIMITS, Failing), results=results)
    students = grade(tmp_path / "class", [EXERCISE], limits=LIMITS, results=results)
    assert [student.points for student in students] == [4, 6]


def test_files_that_the_answers_name_can_import_each_other_and_no_others(tmp_path: Path) -> None:
    parts = [part(name, Function(name, doubled, [(1.0,)], name), wrong={"no": lambda x: 0}) for name in ("f", "g")]
    file = write_answers(tmp_path, '[e]\nf = "mine.py"\ng = "other.py"', "def f(x):\n    return 2 * x\n")
    (tmp_path / "other.py").write_text("from mine import f as g\n")
    [student] = grade(file, [Exercise("e", "E", "Q.", "A.", parts)], limits=LIMITS)
    assert [row.outcome for row in student.rows] == ["right", "right"]
    (tmp_path / "hidden.py").write_text("def g(x):\n    return 2 * x\n")
    (tmp_path / "other.py").write_text("from hidden import g\n")
    [student] = grade(file, [Exercise("e", "E", "Q.", "A.", parts)], limits=LIMITS)
    assert [row.outcome for row in student.rows] == ["right", "refused"]


def test_a_file_named_like_a_module_of_the_runner_runs_only_in_isolation(tmp_path: Path) -> None:
    """The runner imports ctypes itself; with the student's folder on the path, it would run unfiltered."""
    parts = [part(name, Function(name, doubled, [(1.0,)], name), wrong={"no": lambda x: 0}) for name in ("f", "g")]
    file = write_answers(tmp_path, '[e]\nf = "mine.py"\ng = "ctypes.py"', "def f(x):\n    return 2 * x\n")
    (tmp_path / "ctypes.py").write_text("import os\nos.fork()\n")
    [student] = grade(file, [Exercise("e", "E", "Q.", "A.", parts)], limits=LIMITS)
    assert [row.outcome for row in student.rows] == ["right", "refused"]
    assert "PermissionError" in student.rows[1].why


def test_a_function_may_return_an_array(tmp_path: Path) -> None:
    code = "import numpy as np\ndef double(x):\n    return np.array([x, x]).sum()\n"
    assert outcomes(grade_one(tmp_path, RIGHT, code, Limits(20.0, 2 << 30)))["function"] == "right"


@pytest.mark.parametrize(
    "name", ["../other/mine.py", "/etc/passwd", "none.py", "mine.txt", "link.py", "pipe.py", ".py\\u0000.py"]
)
def test_a_file_outside_the_students_folder_is_not_run(tmp_path: Path, name: str) -> None:
    other = write_answers(tmp_path / "other", RIGHT).with_name("mine.py")
    (tmp_path / "me").mkdir()
    (tmp_path / "me" / "link.py").symlink_to(other)
    os.mkfifo(tmp_path / "me" / "pipe.py")
    student = grade_one(tmp_path / "me", RIGHT.replace("mine.py", name))
    assert outcomes(student)["function"] == "refused"


def test_a_class_lists_missing_files_and_links_as_problems(tmp_path: Path) -> None:
    write_answers(tmp_path / "ada", RIGHT)
    (tmp_path / "bob").mkdir()
    (tmp_path / "cyd").mkdir()
    (tmp_path / "cyd" / "answers.toml").symlink_to(tmp_path / "ada" / "answers.toml")
    (tmp_path / "dan").symlink_to(tmp_path / "ada")
    (tmp_path / "eve").mkdir()
    os.mkfifo(tmp_path / "eve" / "answers.toml")
    (tmp_path / ".git").mkdir()
    students = {one.name: one for one in grade(tmp_path, [EXERCISE], limits=LIMITS)}
    assert {name: (one.points, one.of) for name, one in students.items()} == {
        "ada": (6, 6), "bob": (0, 6), "cyd": (0, 6), "dan": (0, 6), "eve": (0, 6),
    }  # fmt: skip
    assert "is a link" in students["cyd"].problem
    assert "is a link" in students["dan"].problem
    assert all("no file answers.toml" in students[name].problem for name in ("bob", "eve"))


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = write_answers(tmp_path, "")
    file.write_bytes(b"\xef\xbb\xbf" + RIGHT.encode())
    [student] = grade(file, [EXERCISE], limits=LIMITS)
    assert student.points == 6


def test_a_process_over_its_memory_limit_is_stopped_where_the_system_enforces_none() -> None:
    greedy = "x = bytearray(400 << 20)\nimport time\ntime.sleep(60)"
    process = start_process([sys.executable, "-c", greedy], {})
    try:
        start = time.monotonic()
        with pytest.raises(MemoryError):
            read_reply(process, start + 30, 200 << 20)
        while resident_bytes(process.pid) < 400 << 20:  # it was stopped while it grew
            assert time.monotonic() < start + 30
        assert resident_bytes_by_ps(process.pid) == pytest.approx(resident_bytes(process.pid), rel=0.05)
    finally:
        end_process(process)
    assert resident_bytes(process.pid) == 0


def test_a_stopped_worker_is_restarted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless")  # nobody will ever write into it
    with Worker(Limits(0.5, 1 << 29)) as worker:
        for _ in range(2):
            with pytest.raises(UserError, match="was stopped"):
                worker.ask({"do": "read", "file": str(tmp_path / "endless")})
            assert worker.ask({"do": "number", "as": {"right": 1}, "given": 1}) is None


def test_the_csv_of_a_class_has_no_spreadsheet_formulas(tmp_path: Path) -> None:
    write_answers(tmp_path / "ada", RIGHT)
    write_answers(tmp_path / "=cmd()", RIGHT.replace("it is in the book", "=1+1"))
    students = grade(tmp_path, [EXERCISE], limits=LIMITS)
    rows = list(csv.DictReader(io.StringIO(as_csv(students))))
    assert len(rows) == 10
    assert {row["student"] for row in rows} == {"ada", "'=cmd()"}
    assert "'=1+1" in {row["reason"] for row in rows}
    records = json.loads(json.dumps(as_json(students), allow_nan=False))
    assert [one["points"] for one in records] == [6, 6]


def test_only_assigned_exercises_count(tmp_path: Path) -> None:
    other = Exercise("other", "Other", "Q.", "A.", [part("number", Number(1), wrong={"no": 2})])
    file = write_answers(tmp_path, "[other]\nnumber = 1")
    [student] = grade(file, [EXERCISE, other], only=["made-up", "other"], limits=LIMITS)
    assert (student.points, student.of) == (1, 7)
    [student] = grade(file, [EXERCISE, other], limits=LIMITS)
    assert (student.points, student.of) == (1, 1)


def test_an_empty_template_can_be_graded_and_has_every_part(tmp_path: Path) -> None:
    student = grade_one(tmp_path, answer_template([EXERCISE]))
    assert set(outcomes(student).values()) == {"missing"}
    assert len(student.rows) == 5


# The command line

OWN = """
from octavo.exercises import Exercise, Finding, Number, Part

EXERCISES = [Exercise("sum-of-two", "A sum", "Add.", "It is `1 + 1 = 2`.", [
    Part("sum", "What is `1 + 1`?", Number(RIGHT), "exact", lambda: Finding(1 + 1, "added"), why="Count.",
         wrong={"set them side by side": 11})])]
"""


def write_exercise(folder: Path, right: int) -> str:
    folder.mkdir()
    (folder / "mine.py").write_text(OWN.replace("RIGHT", str(right)), encoding="utf-8")
    return str(folder)


def test_a_teachers_exercise_is_shown_checked_and_graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_exercise(tmp_path / "own", 2)
    assert main(["exercises", "show", "sum-of-two", "--folder", folder, "--answer"]) == 0
    assert "1 + 1 = 2" in capsys.readouterr().out
    assert main(["exercises", "check", "sum-of-two", "--folder", folder, "--json"]) == 0
    [record] = json.loads(capsys.readouterr().out)
    assert record["holds"]
    answers = tmp_path / "answers.toml"
    assert main(["exercises", "template", "sum-of-two", "--folder", folder, "--out", str(answers)]) == 0
    answers.write_text(answers.read_text().replace('sum = ""', "sum = 11"))
    capsys.readouterr()
    table = tmp_path / "table.csv"
    assert main(["exercises", "grade", str(answers), "--folder", folder, "--csv", str(table)]) == 0
    assert "set them side by side" in capsys.readouterr().out
    assert "sum-of-two" in table.read_text()
    assert main(["exercises", "template", "sum-of-two", "--folder", folder, "--out", str(answers)]) == 2


def test_the_documented_exercise_works(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "exercises.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "first.py").write_text(code, encoding="utf-8")
    [exercise] = load_folder(tmp_path)
    assert [evidence.holds for _, evidence in exercise.check()] == [True]


@pytest.mark.parametrize("code", ["1/0", "x = 1", "EXERCISES = [3]"])
def test_a_teachers_broken_file_is_refused_with_its_name(tmp_path: Path, code: str) -> None:
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    with pytest.raises(UserError, match=r"mine\.py"):
        load_folder(tmp_path)


def test_parallel_checks_keep_the_requested_order(tmp_path: Path) -> None:
    folder = write_exercise(tmp_path / "own", 2)
    picked = select_exercises(["concatenate-or-add", "sum-of-two"], folder)
    checked = check_exercises(picked, folder, processes=2)
    assert [(one.id, one.holds, len(one.parts)) for one in checked] == [
        ("concatenate-or-add", True, 3), ("sum-of-two", True, 1),
    ]  # fmt: skip


def test_an_exception_is_a_failed_check_and_full_uses_the_full_setting() -> None:
    broken = Part("b", "?", Number(1), "exact", lambda: Finding(1 / 0), why=".", full=lambda: Finding(1))
    exercise = Exercise("broken", "Broken", "?", "!", [broken])
    assert "ZeroDivisionError" in check_exercise(exercise).problem
    assert not check_exercise(exercise).holds
    assert check_exercise(exercise, full=True).holds


def test_a_failing_check_exits_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercises", "check", "sum-of-two", "--folder", write_exercise(tmp_path / "own", 3)]) == 1
    assert "FAILS" in capsys.readouterr().out


def test_a_booklet_is_one_page_with_mathematics(tmp_path: Path) -> None:
    page = tmp_path / "book.html"
    folder = write_exercise(tmp_path / "own", 2)
    assert (
        main(["exercises", "book", "sum-of-two", "softmax-range", "--folder", folder, "--out", str(page), "--quick"])
        == 0
    )
    text = page.read_text(encoding="utf-8")
    assert "<math " in text
    assert "<svg" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text


@pytest.mark.parametrize(
    "args", [["unheard"], ["show", "unheard-of"], ["grade", "nowhere.toml"], ["check", "softmax-rage"]], ids=" ".join
)
def test_user_errors_are_one_line(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercises", *args]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
