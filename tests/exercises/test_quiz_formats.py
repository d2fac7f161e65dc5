"""Quizzes for Moodle and Canvas: every question is there, its right answer is accepted and its mistakes are not."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from octavo.exercises import Function
from octavo.exercises.formats.canvas import canvas_zip
from octavo.exercises.formats.moodle import moodle_xml
from octavo.exercises.formats.quiz import Question, left_out, quiz_questions
from octavo.exercises.framework.registry import select_exercises

EXERCISES = select_exercises(())
QUESTIONS = quiz_questions(EXERCISES)
QTI = "{http://www.imsglobal.org/xsd/ims_qtiasiv1p2}"


def text(element: Element | None) -> str:
    assert element is not None
    assert element.text is not None
    return element.text


def test_only_functions_cannot_be_asked_for() -> None:
    functions = [f"{one.id}/{part.id}" for one in EXERCISES for part in one.parts if isinstance(part.answer, Function)]
    assert left_out(EXERCISES) == functions
    assert len(QUESTIONS) == sum(len(one.parts) for one in EXERCISES) - len(functions)


def test_a_formula_is_asked_for_at_several_points() -> None:
    several = [one for one in quiz_questions(EXERCISES, variants=3) if one.id.startswith("score-scale/variance#")]
    assert [one.id[-1] for one in several] == ["1", "2", "3"]
    assert len({one.text for one in several}) == 3


def moodle_grade(item: Element, response: float) -> float:
    """What Moodle gives for a number: the fraction of the first answer within its tolerance."""
    for answer in item.findall("answer"):
        if abs(float(text(answer.find("text"))) - response) <= float(text(answer.find("tolerance"))):
            return float(answer.attrib["fraction"])
    return 0.0


def test_moodle_accepts_right_answers_and_names_mistakes() -> None:
    root = ElementTree.fromstring(moodle_xml(QUESTIONS))
    items = {text(item.find("idnumber")): item for item in root.findall("question") if item.get("type") != "category"}
    assert list(items) == [one.id for one in QUESTIONS]
    for question in QUESTIONS:
        item = items[question.id]
        assert text(item.find("questiontext/text")).startswith("<p>")
        if question.options:
            fractions = [answer.attrib["fraction"] for answer in item.findall("answer")]
            assert fractions.count("100") == 1
            assert fractions.index("100") == [option.is_right for option in question.options].index(True)
            continue
        assert moodle_grade(item, question.number) == 100
        for mistake, _ in question.mistakes:
            assert moodle_grade(item, mistake) == 0


def items_of_canvas(content: bytes) -> Iterator[Element]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        manifest = ElementTree.fromstring(archive.read("imsmanifest.xml"))
        resource = manifest.find(".//{*}resource")
        assert resource is not None
        assert resource.attrib["type"] == "imsqti_xmlv1p2"
        file = resource.find("{*}file")
        assert file is not None
        yield from ElementTree.fromstring(archive.read(file.attrib["href"])).iter(f"{QTI}item")


def canvas_accepts(item: Element, response: float) -> bool:
    low, high = (float(text(item.find(f".//{QTI}{name}"))) for name in ("vargte", "varlte"))
    return float(text(item.find(f".//{QTI}varequal"))) == response or low <= response <= high


def test_canvas_accepts_right_answers_and_no_mistake() -> None:
    items = list(items_of_canvas(canvas_zip(QUESTIONS, "Week 1")))
    assert len({item.attrib["ident"] for item in items}) == len(items) == len(QUESTIONS)
    for item, question in zip(items, QUESTIONS, strict=True):
        kinds = [text(field) for field in item.iter(f"{QTI}fieldentry")]
        kind = "multiple_choice_question" if question.options else "numerical_question"
        assert kinds == [kind, f"{question.points:g}"]
        if question.options:
            right = int(text(item.find(f".//{QTI}varequal")))
            assert question.options[right - 1].is_right
            continue
        assert canvas_accepts(item, question.number)
        assert not any(canvas_accepts(item, mistake) for mistake, _ in question.mistakes)


@pytest.mark.parametrize("write", [moodle_xml, lambda questions: canvas_zip(questions, "a < b & c")])
def test_a_quiz_is_the_same_to_the_byte_and_escapes_what_is_no_markup(write) -> None:  # type: ignore[no-untyped-def]
    hostile = [Question("a/b", "<script>", "x < y && <b>", 1.0, "why", number=0.5, tolerance=0.01)]
    assert write(hostile) == write(hostile)
    content = write(hostile)
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = b"".join(archive.read(name) for name in archive.namelist())
    assert b"<script>" not in content
    assert b"&amp;lt;b&amp;gt;" in content  # escaped as HTML, and again as XML
