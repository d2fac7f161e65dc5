"""Running octavo's command line inside a test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.cli import main


def json_output(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """What the command prints with --json, which must succeed."""
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)
