"""A model in one file outside the package does everything that octavo's own do, without a change in octavo."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import indent

import pytest

HERE = Path(__file__).parent
SOURCE, TESTS = HERE.parents[1] / "src", HERE.parent
PARTS = (
    "laws", "train", "resume", "evaluate", "compress_and_restore", "generate", "compare", "cost", "inspect",
    "export", "studio",
)  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the package installed."""
    folder = tmp_path_factory.mktemp("plugin")
    for name in ("pyproject.toml", "gated_convolution.py"):
        shutil.copy(HERE / name, folder)
    site = folder / "site"
    words = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    done = subprocess.run([sys.executable, "-m", *words, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs pip and setuptools: {done.stderr.strip().splitlines()[-1:]}")
    paths = [str(site), str(SOURCE), str(TESTS), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def results(installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each part of the scenario, and its traceback where it failed."""
    command = [sys.executable, str(HERE / "scenario.py"), str(tmp_path_factory.mktemp("scenario"))]
    done = subprocess.run(command, capture_output=True, text=True, env=installed, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("part", PARTS)
def test_a_package_s_model_does_it(results: dict[str, str], part: str) -> None:
    assert results[part] == ""
    assert set(results) == set(PARTS)


def test_the_package_may_be_the_first_to_import_octavo(installed: dict[str, str]) -> None:
    code = "import gated_convolution; from octavo.models import MODELS; print(MODELS['gated-convolution'].title)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=installed, check=False)
    assert (done.stdout, done.stderr) == ("gated convolution\n", "")


def test_the_page_on_extending_builds_the_same_package() -> None:
    page = (HERE.parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|toml)\n(.*?)^```", page, re.M | re.S)
    parts = [text for language, text in blocks if language == "python"]
    methods = [text.startswith(("def ", "@property")) and "(self" in text for text in parts]
    code = "\n".join(indent(text, "    " * inside) for text, inside in zip(parts, methods, strict=True))
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse((HERE / "gated_convolution.py").read_text(encoding="utf-8")))
    (settings,) = (text for language, text in blocks if language == "toml")
    assert tomllib.loads(settings) == tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
