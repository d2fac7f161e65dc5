"""Running octavo's command line inside a test."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from octavo.cli import main


def json_output(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """What the command prints with --json, which must succeed."""
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def verb_caller(verb: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call a verb with some words: its exit code, and what it prints to standard output and to standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return (main([verb, *words]), *capsys.readouterr())

    return call
