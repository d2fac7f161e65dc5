"""Commands that need no model start without the libraries that take long to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = ("torch", "numpy", "scipy", "pandas", "tokenizers", "safetensors", "sympy", "fastapi", "zstandard")
PROGRAM = (
    "import sys; from octavo.cli import main; code = main(sys.argv[2:]); "
    "print(code, [name for name in sys.argv[1].split() if name in sys.modules], file=sys.stderr)"
)


def run(folder: Path, *argv: str) -> tuple[str, str]:
    """What a command prints, and its exit code with those of the slow libraries that it imported."""
    command = [sys.executable, "-c", PROGRAM, " ".join(SLOW), *argv]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.stdout, done.stderr.splitlines()[-1]


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["data", "list"], ["data", "list", "--json"]], ids=str)
def test_a_command_without_a_model_imports_no_slow_library(argv: list[str], tmp_path: Path) -> None:
    assert run(tmp_path, *argv)[1] == "0 []"


@pytest.mark.parametrize("argv", [["list"], ["list", "--json"]], ids=str)
def test_listing_runs_imports_no_slow_library(argv: list[str], tmp_path: Path) -> None:
    for name, task in (("kn", None), ("digits", "classify images")):
        record = {"octavo": "0.2.0", "format": 1, "model": name, "task": task, "result": {"bits_per_byte": 2.0}}
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text(json.dumps(record))
    printed, imported = run(tmp_path, *argv)
    assert imported == "0 []"
    assert str(Path("runs", "kn")) in printed
    assert str(Path("runs", "digits")) in printed
