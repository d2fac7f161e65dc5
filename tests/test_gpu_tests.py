"""make test-gpu runs the tests marked gpu and no other, counts them, and refuses where it could only skip them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

import gpu_tests

TESTS = """
import warnings
import pytest

@pytest.mark.gpu
def test_passes(): pass

@pytest.mark.gpu
def test_warns(): warnings.warn("the producer's stream differs", UserWarning)

def test_of_the_cpu(): raise SystemError
"""
SKIPPED = "import pytest\n@pytest.mark.gpu\ndef test_left_out(): pytest.skip('no triton')\n"
PASSED = "import pytest\n@pytest.mark.gpu\ndef test_it(): pass\n"


def run(folder: Path, name: str, tests: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and the last line."""
    (folder / f"{name}.py").write_text(tests)
    with patch("torch.cuda.is_available", return_value=True), patch("torch.cuda.get_device_name", return_value="H200"):
        code = gpu_tests.main([str(folder / f"{name}.py"), "-p", "no:cacheprovider", "--import-mode=importlib"])
    return code, capsys.readouterr().out.splitlines()[-1]


def test_exactly_the_gpu_tests_run_with_warnings_as_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, last = run(tmp_path, "gpu_some", TESTS, capsys)
    assert code == 1
    assert last.startswith("2 GPU tests ran on H200, torch ")
    assert last.endswith(": 1 passed, 1 failed")
    assert run(tmp_path, "gpu_one", PASSED, capsys)[0] == 0


def test_a_gpu_test_that_is_skipped_fails_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, last = run(tmp_path, "gpu_skipped", SKIPPED, capsys)
    assert code == 1
    assert last.startswith("0 GPU tests ran")
    assert last.endswith("0 passed, 0 failed, 1 skipped")


def test_without_a_gpu_it_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with patch("torch.cuda.is_available", return_value=False):
        assert gpu_tests.main() == 2
    assert capsys.readouterr().err == f"{gpu_tests.NO_GPU}\n"


def test_the_make_target_runs_it() -> None:
    assert (
        "\ntest-gpu: .venv/.ok-dev\n\t.venv/bin/python tests/gpu_tests.py\n"
        in (gpu_tests.ROOT / "Makefile").read_text()
    )
