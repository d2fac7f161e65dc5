"""Commands that need no model start without the libraries that take long to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SLOW = ("torch", "numpy", "scipy", "pandas", "tokenizers", "safetensors", "sympy", "fastapi", "zstandard")
PROGRAM = (
    "import sys; from octavo.cli import main; code = main(sys.argv[2:]); "
    "print(code, [name for name in sys.argv[1].split() if name in sys.modules], file=sys.stderr)"
)


def imports_of(folder: Path, *argv: str) -> str:
    """The exit code of a command, and which of the slow libraries it imported."""
    command = [sys.executable, "-c", PROGRAM, " ".join(SLOW), *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr.splitlines()[-1]


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["data", "list"], ["data", "list", "--json"]], ids=str)
def test_a_command_without_a_model_imports_no_slow_library(argv: list[str], tmp_path: Path) -> None:
    assert imports_of(tmp_path, *argv) == "0 []"
