"""Canvas: a quiz as a QTI 1.2 package, the format of Settings, Import Course Content, QTI .zip file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from octavo.exercises.formats.archive import zip_bytes
from octavo.exercises.formats.moodle import as_html, repr_number
from octavo.exercises.formats.quiz import Question

QTI = "http://www.imsglobal.org/xsd/ims_qtiasiv1p2"
PACKAGE = "http://www.imsglobal.org/xsd/imscp_v1p1"


def canvas_zip(questions: Sequence[Question], title: str) -> bytes:
    """The package: a manifest and one assessment."""
    name = _ident(title)
    files = {"imsmanifest.xml": _manifest(name), f"{name}/{name}.xml": _assessment(questions, name, title)}
    for root in files.values():
        indent(root)
    return zip_bytes({path: tostring(root, encoding="UTF-8", xml_declaration=True) for path, root in files.items()})


def _manifest(name: str) -> Element:
    root = Element("manifest", identifier=f"manifest-{name}", xmlns=PACKAGE)
    metadata = SubElement(root, "metadata")
    SubElement(metadata, "schema").text = "IMS Content"
    SubElement(metadata, "schemaversion").text = "1.1.3"
    SubElement(root, "organizations")
    resource = SubElement(SubElement(root, "resources"), "resource", identifier=name, type="imsqti_xmlv1p2")
    SubElement(resource, "file", href=f"{name}/{name}.xml")
    return root


def _assessment(questions: Sequence[Question], name: str, title: str) -> Element:
    root = Element("questestinterop", xmlns=QTI)
    assessment = SubElement(root, "assessment", ident=name, title=title)
    section = SubElement(assessment, "section", ident="root_section")
    section.extend(_choice(one) if one.options else _numerical(one) for one in questions)
    return root


def _item(question: Question, kind: str) -> tuple[Element, Element, Element]:
    """An item, the place of its response, and the place of its conditions."""
    item = Element("item", ident=_ident(question.id), title=question.title)
    fields = SubElement(SubElement(item, "itemmetadata"), "qtimetadata")
    for label, entry in (("question_type", kind), ("points_possible", f"{question.points:g}")):
        field = SubElement(fields, "qtimetadatafield")
        SubElement(field, "fieldlabel").text = label
        SubElement(field, "fieldentry").text = entry
    presentation = SubElement(item, "presentation")
    _material(presentation, question.text)
    processing = SubElement(item, "resprocessing")
    outcomes = SubElement(processing, "outcomes")
    SubElement(outcomes, "decvar", maxvalue="100", minvalue="0", varname="SCORE", vartype="Decimal")
    feedback = SubElement(item, "itemfeedback", ident="general_fb")
    _material(SubElement(feedback, "flow_mat"), question.feedback)
    return item, presentation, processing


def _choice(question: Question) -> Element:
    item, presentation, processing = _item(question, "multiple_choice_question")
    response = SubElement(presentation, "response_lid", ident="response1", rcardinality="Single")
    choices = SubElement(response, "render_choice")
    for number, option in enumerate(question.options, 1):
        _material(SubElement(choices, "response_label", ident=str(number)), option.text)
    right = next(number for number, option in enumerate(question.options, 1) if option.is_right)
    SubElement(_scored(processing), "varequal", respident="response1").text = str(right)
    return item


def _numerical(question: Question) -> Element:
    item, presentation, processing = _item(question, "numerical_question")
    response = SubElement(presentation, "response_str", ident="response1", rcardinality="Single")
    SubElement(SubElement(response, "render_fib", fibtype="Decimal"), "response_label", ident="answer1")
    accepted = SubElement(_scored(processing), "or")
    SubElement(accepted, "varequal", respident="response1").text = repr_number(question.number)
    between = SubElement(accepted, "and")
    SubElement(between, "vargte", respident="response1").text = repr_number(question.number - question.tolerance)
    SubElement(between, "varlte", respident="response1").text = repr_number(question.number + question.tolerance)
    return item


def _scored(processing: Element) -> Element:
    condition = SubElement(processing, "respcondition", {"continue": "No"})
    variables = SubElement(condition, "conditionvar")
    SubElement(condition, "setvar", action="Set", varname="SCORE").text = "100"
    return variables


def _material(parent: Element, text: str) -> None:
    SubElement(SubElement(parent, "material"), "mattext", texttype="text/html").text = as_html(text)


def _ident(text: str) -> str:
    """An identifier of letters and digits, which begins with a letter."""
    return f"o{hashlib.sha256(text.encode()).hexdigest()[:31]}"
