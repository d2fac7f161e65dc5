"""Words that octavo does not use, because the field has others; docs/glossary.md explains the few words of our own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSTEAD = {  # a regular expression for words and parts of names, and what to write
    r"(?<![a-z])told(?![a-z])": "record, description, report, metadata",
    r"(?<![a-z])(rungs?|ladder|climb\w*)(?![a-z])": "candidate, comparison, run the comparison",
    r"(?<![a-z])rehears\w*": "step timing, benchmark a step",
    r"(?<![a-z])shel(f|ves)(?![a-z])": "model cache",
    r"(?<![a-z])lanes?(?![a-z])": "parallel streams",
    r"(?<![a-z])noted(?![a-z])": "annotated",
    r"(?<![a-z])looked(?![a-z])": "attends to, attention weights",
    r"(gone|go|goes|going) on with (?!the)": "resume, continue",
    r"(taken|take|takes) up again": "resume",
    r"brought along": "pretrained",
    r"(?<![a-z])twins?(?![a-z])": "reference implementation",
    r"(?<![a-z])dear(er|est)?(?![a-z'])": "expensive",
    r"(?<![a-z])matrix[ _]rate": "Muon learning rate",
    r"(?<![a-z])foresee\w*|foresaw": "predict",
    r"takes for what": "confusion matrix",
    r"way back of the gradient|gradient's way back": "gradient flow",
    r"(?<![a-z])without end(?![a-z])": "as n → ∞",
    r"(?<![a-z])AT_ONCE|A_LITTLE(?![a-z])": "a constant named by its unit and what it limits",
}
WRITTEN = (
    *(f"src/**/*.{ending}" for ending in ("py", "js", "html", "css", "j2")),
    "docs/*.md", "*.md", "tests/**/*.py", "benchmarks/*.py",
)  # fmt: skip
HISTORY = ("CHANGELOG.md", "log.md", "old_records.py", Path(__file__).name)  # say what was called how, and when
RENAMED = "RENAMED"  # a line that maps an old name to the current one


def files() -> list[Path]:
    """Every file that a reader meets."""
    return sorted({path for pattern in WRITTEN for path in ROOT.glob(pattern) if path.name not in HISTORY})


@pytest.mark.parametrize("words", INSTEAD)
def test_the_fields_own_word_is_used(words: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if RENAMED not in line and re.search(words, line)
    ]
    assert found == [], f"say instead: {INSTEAD[words]}"


def test_the_files_are_really_read() -> None:
    assert {".py", ".js", ".md", ".css"} <= {path.suffix for path in files()}
