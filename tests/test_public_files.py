"""The files that a public host reads: workflows, templates, citation, security."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import octavo

ROOT = Path(__file__).parents[1]
HOST = ROOT / ".github"
WORKFLOWS = sorted((HOST / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in load(workflow)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_only_what_make_knows(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    for command in commands:
        program, target, *settings = command.split()
        assert program == "make"
        assert target in TARGETS
        assert all(re.fullmatch(r"PYTHON=python[\d.]*", one) for one in settings)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_and_names_the_major_version_of_every_action(workflow: Path) -> None:
    assert load(workflow)["permissions"] == {"contents": "read"}
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert [one for one in used if not re.fullmatch(r"actions/[\w-]+@v\d+", one)] == []


def test_the_tests_run_on_every_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = [line.split()[-1] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert load(HOST / "workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"] == supported


def test_together_the_workflows_test_lint_document_and_build() -> None:
    commands = " ".join(step.get("run", "") for workflow in WORKFLOWS for step in steps(workflow))
    assert all(f"make {target} " in commands for target in ("test", "lint", "docs", "release-check"))


def test_issue_forms_ask_for_what_the_host_requires() -> None:
    kinds = {"textarea", "input", "checkboxes"}
    for form in (HOST / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        issue = load(form)
        assert {"name", "description", "body"} <= set(issue)
        assert {part["type"] for part in issue["body"]} <= kinds
        identifiers = [part["id"] for part in issue["body"]]
        assert len(set(identifiers)) == len(identifiers)
        assert all(part["attributes"]["label"] for part in issue["body"])


def test_the_citation_is_complete_and_of_this_version() -> None:
    citation = load(ROOT / "CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the format requires
    assert citation["version"] == octavo.__version__
    assert (citation["title"], citation["license"]) == (project["name"], project["license"])
    assert all(author.get("name") or author.get("family-names") for author in citation["authors"])


def test_contributors_find_these_files() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in ("SECURITY.md", ".github/workflows", "CITATION.cff") if name not in page] == []
