"""The doctor on runs that are sick in a known way, and on healthy ones of every task."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from html_pages import Page
from octavo.inspection.doctor import Diagnosis, examine
from octavo.io.run_folder import REPORT
from sick_runs import PATIENTS, THOROUGH, Patient, write_texts

HISTORY = ("events", "stability", "gradient lengths", "overfitting")  # what a run's page tells too
FAST = [patient for patient in PATIENTS if patient.name not in THOROUGH]


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clinic")
    write_texts(folder)
    return folder


def test_the_clinic_has_enough_patients() -> None:
    assert sum(bool(patient.condition) for patient in FAST) >= 25
    assert sum(not patient.condition for patient in FAST) >= 10
    assert {patient.name for patient in PATIENTS} >= THOROUGH
    assert len({patient.name for patient in PATIENTS}) == len(PATIENTS)


@pytest.mark.parametrize("patient", FAST, ids=lambda patient: patient.name.replace(" ", "-"))
def test_a_sick_run_is_called_by_its_name_a_healthy_one_normal_and_its_page_agrees(
    patient: Patient, texts: Path, tmp_path: Path
) -> None:
    run = patient.make(texts, tmp_path / "run")
    found = examine(run)
    assert found.condition == patient.condition, [(one.condition, one.why) for one in found.findings][:4]
    assert (found.count("warning") == 0) == (patient.condition == "")
    for one in found.findings:
        if one.verdict in ("warning", "note"):
            assert one.condition, one.name
            assert one.measured, one.name
            assert one.expected, one.name
    page = tmp_path / "run" / REPORT
    if page.is_file():
        assert _page_agrees(page.read_text(encoding="utf-8"), found)


def _page_agrees(page: str, found: Diagnosis) -> bool:
    """Whether the page tells exactly what the doctor finds in the history of training, in the same words."""
    text = re.sub(r"\s+", " ", Page(page).text)
    shown = {one.name: f"{one.verdict}: {one.condition}" in text and one.why in text for one in found.findings}
    notable = {one.name for one in found.findings if one.name in HISTORY and one.verdict in ("warning", "note")}
    normal = "The course of training was normal." in text
    return all(shown[name] for name in notable) and (normal == (not notable) or "Health of" not in text)
