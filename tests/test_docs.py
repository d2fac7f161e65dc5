"""What the documentation points at is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
HISTORY = ("CHANGELOG.md", "log.md")  # name files as they were called then


def test_every_path_in_the_documentation_exists() -> None:
    missing = [
        f"{page.name}: {path}"
        for page in PAGES
        if page.name not in HISTORY
        for path in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w/.-]+)`", page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists() and "NAME" not in path
    ]
    assert missing == []


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).is_file():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.parent.name == "docs" and f"docs/{page.name}" not in readme] == []
