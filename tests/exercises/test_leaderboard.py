"""A competition: runs are ranked by audited bits per byte; what is too large, broken or slow is out."""

from __future__ import annotations

from pathlib import Path

import pytest

import octavo
from octavo.errors import UserError
from octavo.exercises.formats.leaderboard import EntryLimits, rank_runs

TEXT = "the cat sat on the mat and the dog sat on the cat. " * 60


@pytest.fixture(scope="module")
def competition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("competition")
    (folder / "train.txt").write_text(TEXT)
    (folder / "hidden.txt").write_text("the dog sat on the mat and the cat sat on the dog. " * 20)
    teams = folder / "teams"
    for team, order in (("ada", 5), ("bob", 1)):
        octavo.train("ngram", folder / "train.txt", order=order, out=teams / team, measure=False)
    (teams / "eve").mkdir()
    (teams / "eve" / "run.json").write_text("{}")
    (teams / "mal").symlink_to(teams / "ada")
    return folder


def test_the_best_comes_first_and_the_broken_last_with_the_reason(competition: Path) -> None:
    entries = rank_runs(competition / "teams", competition / "hidden.txt")
    assert [one.team for one in entries] == ["ada", "bob", "eve", "mal"]
    ada, bob, eve, mal = entries
    assert ada.bits_per_byte is not None
    assert bob.bits_per_byte is not None
    assert ada.bits_per_byte < bob.bits_per_byte
    assert ada.bits_per_byte == octavo.evaluate(octavo.load(competition / "teams/ada"),
                                                competition / "hidden.txt").bits_per_byte  # fmt: skip
    assert eve.bits_per_byte is None
    assert eve.problem
    assert "links" in mal.problem


def test_a_run_that_is_too_large_or_too_slow_is_out(competition: Path) -> None:
    large = rank_runs(competition / "teams", competition / "hidden.txt", EntryLimits(megabytes=1e-4))
    assert "at most 0.0001 MB" in large[0].problem
    slow = rank_runs(competition / "teams", competition / "hidden.txt", EntryLimits(seconds=-29.9))
    assert "was stopped" in slow[0].problem


def test_a_competition_needs_a_text_and_runs(tmp_path: Path, competition: Path) -> None:
    with pytest.raises(UserError, match="must be a file"):
        rank_runs(competition / "teams", tmp_path / "none")
    with pytest.raises(UserError, match="one run folder per team"):
        rank_runs(tmp_path, competition / "hidden.txt")
