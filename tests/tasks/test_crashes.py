"""Killed at any change of its files, training goes on to the same bits, a run at its place is not lost, and nothing is
left behind. The tests kill each case once; `python tests/crash_points.py` at every one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import crash_points

KILLS = 1  # of each case, among its last changes
SAMPLE = [case for case in crash_points.CASES if case.endswith("over another")] + ["language anew"]


@pytest.fixture(scope="module")
def problems() -> dict[str, list[str]]:
    """What went wrong in each case; all are tried in one process, because importing octavo takes longer than that."""
    program = f"import json, crash_points as c; print(json.dumps(c.sweep_cases({SAMPLE}, {KILLS})))"
    words, home = [sys.executable, "-c", program], Path(crash_points.__file__).parent
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", SAMPLE)
def test_a_kill_at_any_change_of_files_loses_nothing_and_leaves_nothing(
    case: str, problems: dict[str, list[str]]
) -> None:
    assert problems[case] == []
