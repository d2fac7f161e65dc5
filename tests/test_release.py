"""What users install: a wheel with all that it needs and nothing else, and an sdist that it can be built from."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

import octavo
from release_check import ROOT, build, checked, compare_with, environment_beside, names_in

PACKAGE = ROOT / "src/octavo"


def shipped_files() -> set[str]:
    """What the package folder holds, as git sees it: no caches."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT / "src").as_posix() for path in files}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the sdist, as pip builds it where there is no wheel: so the sdist is complete too."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.unpack_archive(sdist, folder / "unpacked")
    return build("wheel", folder, next((folder / "unpacked").iterdir()))


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel: Path) -> None:
    names = {name for name in names_in(wheel) if ".dist-info/" not in name}
    assert names == shipped_files()
    assert {"octavo/py.typed", "octavo/pages/style.css", "octavo/studio/web/main.js"} <= names
    assert any(name.startswith("octavo/pages/templates/") for name in names)


def test_the_wheel_runs_on_any_machine_and_states_its_terms(wheel: Path) -> None:
    assert wheel.name == f"octavo-{octavo.__version__}-py3-none-any.whl"
    assert any(name.endswith("licenses/LICENSE") for name in names_in(wheel))


def test_the_sdist_holds_the_source_and_its_tests(sdist: Path) -> None:
    names = names_in(sdist)
    assert {f"src/{name}" for name in shipped_files()} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "Makefile", "tests/laws.py"} <= names
    tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    assert tests <= names


def test_the_installed_wheel_compares_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    python = environment_beside(tmp_path / "environment")
    checked(
        [str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--ignore-installed", str(wheel)],
        tmp_path,
    )
    where = checked([str(python), "-c", "import octavo; print(octavo.__file__)"], tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)
    (tmp_path / "empty").mkdir()
    bits = compare_with(python, tmp_path / "empty")
    assert set(bits) == {"bag", "kn3", "gru", "bz2"}
    assert bits["kn3"] < bits["bag"]
    assert (tmp_path / "environment/bin/octavo").exists()


def test_every_extra_is_documented() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(project["optional-dependencies"])
