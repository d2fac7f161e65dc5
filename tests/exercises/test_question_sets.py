"""Every question of the usual sources is answered by a part that exists; the table in docs is this catalogue.

python tests/exercises/test_question_sets.py writes docs/exercise-sources.md anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.cli import main
from octavo.exercises import Exercise, Finding, Number, Part
from octavo.exercises.framework.checking import check_exercise
from octavo.exercises.framework.evidence import dataset
from octavo.exercises.framework.registry import exercises_by_topic, select_exercises
from octavo.exercises.question_sets import QUESTION_SETS, SourceQuestion, tags_of

PAGE = Path(__file__).parents[2] / "docs" / "exercise-sources.md"
PARTS = {f"{one.id}.{part.id}": part for topic in exercises_by_topic().values() for one in topic for part in one.parts}
QUESTIONS = [pytest.param(question, id=f"{one.id}-{question.number}")
             for one in QUESTION_SETS.values() for question in one.questions]  # fmt: skip


def as_table() -> str:
    """The page of docs."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    questions = [question for one in QUESTION_SETS.values() for question in one.questions]
    differing = sum(question.usual is not None for question in questions)
    yield "# Exercises by source\n"
    yield (
        f"The {len(questions)} questions of five sets of exercises that courses use, in our own words, and the parts "
        f"of octavo's exercises that answer them. For {differing} of them, the answer that is usually given is wrong "
        "or holds only under a condition; the part in the last column refutes it, with evidence.\n"
    )
    yield "```console\n$ octavo exercises list --source bishop   # this table in the terminal; --json for programs"
    yield "$ octavo exercises check bishop           # the evidence for all of its exercises\n```\n"
    yield "`python tests/exercises/test_question_sets.py` writes this page; a test compares it with the catalogue in "
    yield "`src/octavo/exercises/question_sets/`."
    for one in QUESTION_SETS.values():
        yield f"\n## {one.title}\n\n`--source {one.id}`\n"
        yield "| number | question | exercise | parts | usual answer | why it fails |"
        yield "|---|---|---|---|---|---|"
        for question in one.questions:
            yield from _rows(question)


def _rows(question: SourceQuestion) -> Iterator[str]:
    by_exercise: dict[str, list[str]] = {}
    for name in question.all_parts:
        exercise, part = name.split(".")
        by_exercise.setdefault(exercise, []).append(part)
    for i, (exercise, parts) in enumerate(by_exercise.items()):
        number, asks = (question.number, question.asks) if i == 0 else ("", "")
        wrong = question.usual if i == 0 else None
        usual, why = (wrong.text, f"{wrong.why_wrong} ({wrong.part})") if wrong else ("", "")
        yield f"| {number} | {asks} | {exercise} | {', '.join(parts)} | {usual} | {why} |"


def test_the_page_of_docs_is_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == as_table(), "python tests/exercises/test_question_sets.py writes it anew"


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_is_answered_by_parts_that_exist(question: SourceQuestion) -> None:
    assert question.parts
    assert [name for name in question.parts if name not in PARTS] == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_usual_answer_is_among_those_that_evidence_refutes(question: SourceQuestion) -> None:
    if question.usual is not None:
        part = PARTS[question.usual.part]
        assert not re.search(r"\d", question.usual.why_wrong), (
            "numbers belong into the part, where evidence confirms them"
        )
        lacks_condition = (
            question.usual.given is False and part.answer.right == "nearly"
        )  # a right verdict, half the points
        assert lacks_condition or question.usual.given in part.wrong_answers().values()
        assert part.answer.compare(question.usual.given) is not None


@pytest.mark.parametrize("source", QUESTION_SETS)
def test_numbers_are_in_order_and_occur_once(source: str) -> None:
    questions = QUESTION_SETS[source].questions
    assert [one.number for one in questions] == [one.number for one in sorted(questions, key=lambda q: q.sort_key)]
    assert len({one.number for one in questions}) == len(questions)


def test_the_questions_of_a_source_are_listed_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercises", "list", "--source", "bishop", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["number"] for row in listed] == [one.number for one in QUESTION_SETS["bishop"].questions]
    [orthogonal] = [row for row in listed if row["number"] == "12.3"]
    assert orthogonal["parts"][0] == "orthogonal-inputs.equal"
    assert orthogonal["usual_answer"]["given"] is True
    assert main(["exercises", "list", "--source", "Bishop"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("12.2a") < shown.index("12.10a")


def test_an_unknown_source_is_refused_with_a_similar_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercises", "list", "--source", "bischop"]) == 2
    assert "did you mean bishop?" in capsys.readouterr().err


def test_an_exercise_shows_its_sources_and_the_usual_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert "bishop 12.3" in tags_of("orthogonal-inputs")
    assert main(["exercises", "show", "orthogonal-inputs", "--answer"]) == 0
    shown = capsys.readouterr().out
    assert "Sources: bishop 12.3" in shown
    assert "Usual answer to bishop 12.3" in shown


def test_the_number_of_a_question_selects_its_exercises() -> None:
    assert [one.id for one in select_exercises(["bishop 12.16"])] == ["bert-large-usual", "bert-large-parameters"]
    assert [one.id for one in select_exercises(["prince 12.1b"])] == ["qkv-counts"]
    assert {one.id for one in select_exercises(["prince 12.1"])} == {"qkv-counts", "layer-counts"}


def test_a_source_selects_its_exercises() -> None:
    ids = [one.id for one in select_exercises(["prince"])]
    assert "patch-or-channel" in ids
    assert "greedy-or-best" not in ids


def test_a_claim_without_its_dataset_is_skipped_not_refuted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCTAVO_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    part = Part("words", "How many?", Number(1), "counted", lambda: Finding(len(str(dataset("shakespeare")))), why="-")
    checked = check_exercise(Exercise("data", "Data", "?", "!", [part]))
    assert checked.holds
    [(_, _, evidence)] = checked.parts
    assert evidence.outcome == "skipped"
    assert evidence.note == "needs the dataset shakespeare: octavo data get shakespeare"


def test_a_check_without_the_dataset_succeeds_and_says_what_was_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OCTAVO_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["exercises", "check", "characters-or-words"]) == 0
    shown = capsys.readouterr()
    assert "skipped" in shown.out
    assert "3 of 4 claims hold, 1 skipped for want of data" in shown.err


if __name__ == "__main__":
    PAGE.write_text(as_table(), encoding="utf-8")
