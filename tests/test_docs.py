"""What the documentation points at is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from octavo.io.run_folder import FORMAT

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/course/*.md"))]
MADE_BY_THE_BUILD = ("gallery.md",)  # docs/site makes it
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
            if not (page.parent / target).is_file() and target not in MADE_BY_THE_BUILD:
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_page_is_reached_from_the_readme_or_the_home_page() -> None:
    readme, home = (
        (ROOT / "README.md").read_text(encoding="utf-8"),
        (ROOT / "docs/index.md").read_text(encoding="utf-8"),
    )
    pages = [page.name for page in ROOT.glob("docs/*.md")]
    assert [name for name in pages if f"docs/{name}" not in readme and f"]({name}" not in home] == ["index.md"][
        "docs/index.md" in readme :
    ]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    navigation = settings[settings.index("\nnav:") :].split()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.parent != ROOT]
    assert [page for page in pages if page not in navigation] == []


def test_the_record_format_that_is_stated_is_the_one_that_is_written() -> None:
    versions = (ROOT / "docs/versions.md").read_text(encoding="utf-8")
    assert re.findall(r"The current format is \*\*(\d+)\*\*", versions) == [str(FORMAT)]


def test_the_supported_pythons_are_stated_alike() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [line.split()[-1] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert project["requires-python"] == f">={pythons[0]}"
    for page in ("docs/install.md", "docs/versions.md"):
        assert "Python " + ", ".join(pythons[:-1]) + f" and {pythons[-1]}" in (ROOT / page).read_text(encoding="utf-8")
