"""The torture campaign: its frame counts and keeps what is found, and a sample of every class finds nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from torture.campaign import Attack, Campaign, Outcome, Result, Tally  # noqa: E402
from torture.record import class_line, render_report, summarise  # noqa: E402


class Misfortunes(Attack):
    """Trials that go wrong in every way."""

    name, title, limit_s = "misfortunes", "trials that go wrong", 1.0

    def setup_points(self) -> list[str]:
        return ["left", "right"]

    def setup(self, place: Path, point: Any) -> None:
        (place / point).write_text("ready")

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        assert (place / "left").exists()
        assert (place / "right").exists()
        yield from ["good", "good", "long to say", "bad", "dies", "hangs", "raises"]

    def run(self, place: Path, point: Any, work: Path) -> Iterator[Result]:
        if point == "good":
            yield Result(count=10)
        elif point == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        elif point == "hangs":
            time.sleep(60)
        elif point == "raises":
            raise KeyError(point)
        else:
            (work / "seen.txt").write_text(point)
            yield Result(Outcome.LOST, f"lost {len(point)} bytes", files=[str(work / "seen.txt")])


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    campaign = Campaign([Misfortunes()], 20.0, 0, 2, tmp_path_factory.mktemp("out"))
    campaign.run(lambda *_: None)
    return campaign


def test_a_campaign_counts_every_outcome(campaign: Campaign) -> None:
    [tally] = campaign.tallies
    assert tally.counts == {Outcome.OK: 20, Outcome.LOST: 2, Outcome.HANG: 1, Outcome.OTHER: 2}
    assert tally.complete
    assert class_line(tally).startswith("misfortunes: 25 trials, 5 found (")


def test_the_smallest_reproduction_of_a_finding_is_kept(campaign: Campaign) -> None:
    [lost] = [found for found in campaign.tallies[0].findings.values() if found.result.outcome == Outcome.LOST]
    assert (lost.count, lost.point) == (2, "bad")
    assert [Path(file).read_text() for file in lost.result.files] == ["bad"]


def test_the_page_shows_counts_and_findings(campaign: Campaign) -> None:
    record = summarise(campaign, 3.0)
    assert record["found"] == 5
    assert record["goals"]["kills"] == {"goal": 2000, "reached": 0}
    page = render_report(record)
    assert "misfortunes: lost, 2 times" in page
    assert "--replay misfortunes" in page


def test_a_class_that_cannot_run_says_why(tmp_path: Path) -> None:
    class Elsewhere(Misfortunes):
        def unavailable(self) -> str:
            return "there is no compiler here"

    campaign = Campaign([Elsewhere()], 5.0, 0, 1, tmp_path)
    seen: list[Tally] = []
    campaign.run(lambda tally, _: seen.append(tally))
    assert class_line(seen[0]) == "misfortunes: not run: there is no compiler here"


def test_a_class_whose_time_went_into_its_setup_does_not_say_that_nothing_was_found(tmp_path: Path) -> None:
    class Slow(Misfortunes):
        def setup_points(self) -> list[str]:
            return ["all"]

        def setup(self, place: Path, point: Any) -> None:
            time.sleep(1.2)

    campaign, ends = Campaign([Slow()], 1.0, 0, 1, tmp_path), []
    campaign.run(lambda tally, left: ends.append(left))
    assert ends == [None]
    assert "0 trials, none yet: the time went into preparing it" in class_line(campaign.tallies[0])
    page = render_report(summarise(campaign, 1.2))
    assert "none yet" in page
    assert "in 0 trials. 1 s, 1 process, seed" in page


def test_a_sample_of_kills_and_disturbances_finds_nothing(tmp_path: Path) -> None:
    classes = "kill-train,kill-replace,kill-files,random-kills,full-disk,clock-jumps,two-at-a-time"
    words = ["--classes", classes, "--trials", "2", "--minutes", "7", "--jobs", "1", "--json"]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "torture", *words, "--out", tmp_path / "out"],
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    record = json.loads(done.stdout)
    assert record["findings"] == []
    assert done.returncode == 0
    tried = {row["name"]: row["total"] for row in record["classes"] if not row["not_run"]}
    assert {"kill-train", "kill-files", "full-disk"} <= set(tried)
    assert all(tried.values()), tried
