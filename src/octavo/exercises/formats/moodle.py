"""Moodle XML: a question bank for Site administration, or a course's question bank, Import, Moodle XML format."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from octavo.exercises.formats.quiz import Question

CATEGORY = "$course$/top/octavo"


def moodle_xml(questions: Sequence[Question]) -> bytes:
    """The question bank: one category per exercise and part, so that a quiz can draw one variant of each at random."""
    quiz = Element("quiz")
    category = ""
    for question in questions:
        own = question.id.split("#")[0]
        if own != category:
            category = own
            _text(SubElement(SubElement(quiz, "question", type="category"), "category"), f"{CATEGORY}/{own}")
        quiz.append(_question(question))
    indent(quiz)
    return bytes(tostring(quiz, encoding="UTF-8", xml_declaration=True))


def _question(question: Question) -> Element:
    item = Element("question", type="multichoice" if question.options else "numerical")
    _text(SubElement(item, "name"), question.title)
    _text(SubElement(item, "questiontext", format="html"), as_html(question.text))
    _text(SubElement(item, "generalfeedback", format="html"), as_html(question.feedback))
    SubElement(item, "defaultgrade").text = f"{question.points:g}"
    SubElement(item, "penalty").text = "0.3333333"
    SubElement(item, "hidden").text = "0"
    SubElement(item, "idnumber").text = question.id
    if question.options:
        for name, value in (("single", "true"), ("shuffleanswers", "true"), ("answernumbering", "abc")):
            SubElement(item, name).text = value
        for option in question.options:
            answer = SubElement(item, "answer", fraction="100" if option.is_right else "0", format="html")
            SubElement(answer, "text").text = as_html(option.text)
        return item
    _number(item, "100", question.number, question.tolerance, "")
    for number, mistake in question.mistakes:
        if abs(number - question.number) > question.tolerance:  # Moodle takes the first answer that fits
            _number(item, "0", number, min(question.tolerance, abs(number - question.number) / 2), mistake)
    return item


def _number(item: Element, fraction: str, number: float, tolerance: float, feedback: str) -> None:
    answer = SubElement(item, "answer", fraction=fraction, format="moodle_auto_format")
    SubElement(answer, "text").text = repr_number(number)
    SubElement(answer, "tolerance").text = repr_number(tolerance)
    _text(SubElement(answer, "feedback", format="html"), as_html(feedback))


def _text(parent: Element, text: str) -> None:
    SubElement(parent, "text").text = text


def as_html(text: str) -> str:
    """Plain text as HTML paragraphs."""
    return "".join(f"<p>{escape(block)}</p>" for block in text.split("\n\n") if block.strip())


def repr_number(number: float) -> str:
    """A number that reads back as the same float, without a point for whole numbers."""
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)
