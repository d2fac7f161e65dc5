"""A sheet of questions without answers: an HTML page, and a PDF printed by a browser."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from octavo.errors import UserError
from octavo.exercises.framework.answers import Answer, Formula, Function, Number, Truth
from octavo.exercises.framework.booklet import asked, verdict_meanings
from octavo.exercises.framework.exercise import Exercise, Part
from octavo.exercises.framework.mathml import prose_as_html
from octavo.pages.markup import element, join
from octavo.pages.sections import paragraph, render_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PRINT_SECONDS = 120
WHO = "Name: ______________________ Date: ______________"


def question_sheet(exercises: Sequence[Exercise], title: str, student: str = "") -> str:
    """The page: every exercise with its questions and points; with a student, the name stands at the top."""
    points = sum(part.points for one in exercises for part in one.parts)
    lead = [paragraph(f"Name: {student}" if student else WHO), paragraph(f"{points:g} points", quiet=True)]
    if any(isinstance(part.answer, Number) for one in exercises for part in one.parts):
        lead.append(paragraph("Numbers need three significant digits, unless the question says otherwise."))
    if any(isinstance(part.answer, Truth) for one in exercises for part in one.parts):
        lead.append(verdict_meanings())
    return render_page(title, join(*lead), [_exercise(number, one) for number, one in enumerate(exercises, 1)])


def _exercise(number: int, one: Exercise) -> Markup:
    parts = [element("li", asked(part, f"{_form(part.answer)}{_points(part)}")) for part in one.parts]
    heading = element("h2", f"{number}. {one.title}")
    questions = element("ol", *parts, type="a")
    return element("section", heading, prose_as_html(one.question), questions, class_="exercise")


def _form(answer: Answer) -> str:
    """The form of the answer, where the question does not show it."""
    if isinstance(answer, Function):
        return f"a Python function {answer.signature.replace('->', '→')}; "
    if isinstance(answer, Formula):
        return f"a formula in {answer.in_symbols}; "
    is_usual = not isinstance(answer, Number) or answer.tolerance() == Number(1).tolerance()
    return "" if is_usual else f"{answer.tolerance()}; "


def _points(part: Part) -> str:
    return f"{part.points:g} {'point' if part.points == 1 else 'points'}"


def print_pdf(page: str) -> bytes:
    """An HTML page as a PDF, printed by a browser of the Chromium family without a window."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise UserError(f"a PDF is printed by a browser, one of {', '.join(BROWSERS[:3])}: none is on the PATH; "
                        "install one, or write the page as HTML and print it")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "sheet.html", Path(folder) / "sheet.pdf"
        source.write_text(page, encoding="utf-8")
        command = [
            browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}", source.as_uri(),
        ]  # fmt: skip
        try:
            subprocess.run(command, capture_output=True, timeout=PRINT_SECONDS, check=True)
            return target.read_bytes()
        except (subprocess.SubprocessError, OSError) as error:
            raise UserError(f"{browser} could not print the page: {type(error).__name__}; "
                            "write it as HTML and print it") from error  # fmt: skip
