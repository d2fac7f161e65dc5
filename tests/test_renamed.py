"""What was renamed still works under its old name, and the new one is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from octavo.cli.flags import run_command, with_current_flags
from octavo.config import configs_from, from_json
from octavo.errors import UserError


@dataclass(frozen=True)
class Example:
    """A config whose field `rate` is now called `learning_rate`."""

    RENAMED: ClassVar[dict[str, str]] = {"rate": "learning_rate", "qk": "qk_norm"}
    learning_rate: float = 0.1
    """How fast it learns."""
    qk_norm: bool = True
    """Normalise queries and keys."""


def test_a_saved_config_is_read_under_the_old_name() -> None:
    assert from_json(Example, {"rate": 0.5}) == Example(0.5)
    assert configs_from("gpt", [Example()], {"rate": 0.5}) == [Example(0.5)]


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(UserError, match="rate and learning_rate"):
        from_json(Example, {"rate": 0.5, "learning_rate": 0.5})


def test_an_old_flag_works_and_names_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    received = []

    def command(config: Example = Example(), out: str = "") -> None:  # noqa: B008
        received.append((config, out))

    run_command(command, "octavo test", ["--rate", "0.25", "--no-qk", "--out", "x"])
    assert received == [(Example(0.25, False), "x")]
    assert capsys.readouterr().err == (
        "octavo: --rate is now called --learning-rate\noctavo: --no-qk is now called --no-qk-norm\n"
    )


def test_a_value_given_with_an_equals_sign_is_kept() -> None:
    assert with_current_flags(["--rate=0.5", "--rates", "3"], {"--rate": "--learning-rate"}) == [
        "--learning-rate=0.5", "--rates", "3",
    ]  # fmt: skip
