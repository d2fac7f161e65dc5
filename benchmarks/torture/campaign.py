"""What an attack is, what comes of a trial, and how a campaign gives its time to the attacks.

An attack makes points (JSON values: everything that a trial depends on), and runs the trial of a point in a worker
process. The same point gives the same trial again, so a finding is reproduced by its attack's name and its point.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from torture.pool import Pool

GOALS = {"kills": 2_000, "files": 50_000, "requests": 1_000_000}
MIN_FREE_BYTES = 2 << 30  # of a file system in memory, so that trials run there
FINDINGS_KEPT = 200  # different ones of an attack; all are counted
MEMORY_FOLDER = Path("/dev/shm")


class Outcome(StrEnum):
    """What came of a trial; everything but OK is a finding."""

    OK = "ok"
    LOST = "lost"  # something that was whole before is gone or changed
    ACCEPTED = "wrongly accepted"  # a half-written, damaged or false file was taken for a good one
    TRACEBACK = "traceback"
    HANG = "hang"
    LEFTOVER = "leftover"  # temporary files, locks or processes that stay behind
    OTHER = "other"


@dataclass(frozen=True)
class Result:
    """What came of `count` trials with one outcome; a finding says what was seen and holds the files that show it."""

    outcome: Outcome = Outcome.OK
    what: str = ""
    command: str = ""
    count: int = 1
    files: Sequence[str] = ()  # copied beside the finding
    point: Any = None  # a smaller point with the same outcome, where the attack has found one
    kind: str = ""  # findings of one kind are one; without it, those that say the same

    @property
    def signature(self) -> str:
        """Findings that differ in numbers, hexadecimal names and temporary names alone are one."""
        return f"{self.outcome}: " + re.sub(
            r"/[\w./-]*torture-[\w./-]*|\b[0-9a-f]{8,}\b|\d+", "#", self.kind or self.what
        )


class Attack:
    """A class of trials. Subclasses are stateless: all they share between processes are the files in `place`.

    `place.parent` is shared with the other attacks of a campaign.
    """

    name: str
    title: str
    unit = "trials"  # kills, files and requests count towards the goals
    share = 1.0  # of the campaign's time
    limit_s = 120.0  # of one trial, which is a hang after that
    cores = 1  # that one trial keeps busy
    worker_trials = math.inf  # after which a worker makes room for a new one

    def unavailable(self) -> str:
        """Why it cannot run on this machine, in one line; "" where it can."""
        return ""

    def setup_points(self) -> Sequence[Any]:
        """The parts of the setup, which run side by side before the first trial."""
        return ()

    def setup(self, place: Path, point: Any) -> None:
        """Make one part of what all trials use, below `place`."""

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        """The points to try, in an order in which any beginning is a fair sample; may be endless."""
        raise NotImplementedError

    def run(self, place: Path, point: Any, work: Path) -> Iterable[Result]:
        """The trial of a point, in an empty folder `work` of its own."""
        raise NotImplementedError


@dataclass
class Finding:
    """The smallest reproduction of what was found, and how often it was."""

    result: Result
    point: Any
    count: int = 0


@dataclass
class Tally:
    """What an attack has counted."""

    attack: Attack
    counts: Counter[Outcome] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    seconds: float = 0.0
    problem: str = ""  # why it did not run
    complete: bool = False  # whether every point was tried

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def found(self) -> int:
        return self.total - self.counts[Outcome.OK]

    def add(self, point: Any, result: Result, keep: Path) -> None:
        self.counts[result.outcome] += result.count
        if result.outcome == Outcome.OK:
            return
        point = point if result.point is None else result.point
        known = self.findings.get(result.signature)
        if known is None and len(self.findings) >= FINDINGS_KEPT:
            return
        if known is None or _extent(result, point) < _extent(known.result, known.point):
            number = len(self.findings) if known is None else list(self.findings).index(result.signature)
            files = _copy_files(result.files, keep / f"{self.attack.name}-{number:03d}")
            kept = Result(result.outcome, result.what, result.command, result.count, files)
            known = self.findings[result.signature] = Finding(kept, point, known.count if known else 0)
        known.count += result.count


def _extent(result: Result, point: Any) -> tuple[int, int]:
    """How much there is to look at in a reproduction: bytes of its files, then the length of its point."""
    return sum(Path(file).stat().st_size for file in result.files if Path(file).is_file()), len(json.dumps(point))


def _not_files(folder: str, names: list[str]) -> list[str]:
    """Pipes and the like, which have no end."""
    paths = [Path(folder, name) for name in names]
    return [path.name for path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())]


def _copy_files(files: Sequence[str], folder: Path) -> list[str]:
    if not files:
        return []
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copied = []
    for file in map(Path, files):
        target = folder / file.name
        if file.is_dir() and not file.is_symlink():
            shutil.copytree(file, target, symlinks=True, ignore=_not_files)
        else:
            shutil.copy2(file, target, follow_symlinks=False)
        copied.append(str(target))
    return copied


def temporary_parent() -> Path:
    """Where trials write: in memory where that has room, since a trial syncs every file."""
    usable = MEMORY_FOLDER.is_dir() and shutil.disk_usage(MEMORY_FOLDER).free >= MIN_FREE_BYTES
    return MEMORY_FOLDER if usable else Path(tempfile.gettempdir())


@dataclass
class Campaign:
    """Attacks one after the other, each with its share of the time that is left."""

    attacks: Sequence[Attack]
    seconds: float
    seed: int
    jobs: int
    out: Path
    tallies: list[Tally] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    max_trials: float = math.inf  # of each attack
    stopped: bool = False  # by the user

    def run(self, show: Any) -> None:
        """Run all attacks; `show(tally, seconds_left)` is called as counts change; None: it has ended."""
        self.tallies = [Tally(attack) for attack in self.attacks]
        root = Path(tempfile.mkdtemp(prefix="torture-", dir=temporary_parent()))
        try:
            self._run_all(root, show)
        except KeyboardInterrupt:
            self.stopped = True
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _run_all(self, root: Path, show: Any) -> None:
        for number, tally in enumerate(self.tallies):
            tally.problem = tally.attack.unavailable()
            if tally.problem:
                show(tally, None)
                continue
            left = self.started + self.seconds - time.monotonic()
            shares = [each.attack.share for each in self.tallies[number:] if not each.problem]
            place = root / tally.attack.name
            place.mkdir()
            self._run_attack(tally, place, max(1.0, left * tally.attack.share / sum(shares)), show)

    def _run_attack(self, tally: Tally, place: Path, seconds: float, show: Any) -> None:
        attack, begun = tally.attack, time.monotonic()
        until, keep = begun + seconds, self.out / "findings"
        try:
            with Pool(max(1, self.jobs // attack.cores), attack, place) as pool:
                for point, results in pool.run("setup", iter(attack.setup_points()), float("inf")):
                    for result in results:
                        tally.add(point, replace(result, what=f"the setup failed: {result.what}"), keep)
                if tally.found:
                    return
                points = attack.points(place, random.Random(f"{self.seed} {attack.name}"))
                for point, results in pool.run("run", points, until):
                    for result in results:
                        tally.add(point, result, keep)
                    tally.seconds = time.monotonic() - begun
                    show(tally, max(0.0, until - time.monotonic()))
                    if tally.total >= self.max_trials:
                        break
                tally.complete = pool.exhausted
        finally:
            tally.seconds = time.monotonic() - begun
            shutil.rmtree(place, ignore_errors=True)
            show(tally, None)


def replay(attack: Attack, point: Any, folder: Path) -> list[Result]:
    """One trial again, in a folder that stays."""
    place = folder / "place"
    place.mkdir(parents=True)
    with Pool(1, attack, place) as pool:
        for part, problems in pool.run("setup", iter(attack.setup_points()), float("inf")):
            if problems:
                return [Result(Outcome.OTHER, f"the setup failed at {json.dumps(part)}: {problems[0].what}")]
        return [result for _, results in pool.run("run", iter([point]), float("inf")) for result in results]
