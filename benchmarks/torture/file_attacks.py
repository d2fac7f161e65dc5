"""Attacks on readers: damaged files of every format that octavo reads, many a second, in processes that live on."""

from __future__ import annotations

import atexit
import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from torture.campaign import Attack, Outcome, Result, temporary_parent
from torture.file_trials import REHASH, Trial, run_trial
from torture.mutations import draw
from torture.readers import CLASSES, Case
from torture.seeds import DONE
from torture.verdicts import Verdict

KEPT = os.environ.get("TORTURE_SEEDS", "")  # a folder in which the corpus stays for other campaigns
SEEDS = Path(KEPT) if KEPT else temporary_parent() / f"torture-seeds-{os.getpid()}"  # made once, for all classes
MINIMISE_SECONDS = 5.0
HASHED = ("model.safetensors", "tokenizer.json", "training.safetensors")
SPLICED = 6  # files of the same kind that a file may be spliced with


class FileAttack(Attack):
    """Damaged files, each read by a command."""

    unit = "files"
    worker_trials = 100  # what octavo leaves in memory shall not count as what the next file takes
    limit_s = 30.0

    def __init__(self, name: str, title: str, share: float, cases: Sequence[Case]) -> None:
        self.name, self.title, self.share, self.cases = name, title, share, cases

    def unavailable(self) -> str:
        import octavo.cli.eval  # in the parent, so that a worker that replaces another one is there at once

        assert octavo.cli.eval
        return "" if os.name == "posix" and Path("/proc/self/statm").is_file() else "it needs Linux's /proc"

    def setup_points(self) -> Sequence[Any]:
        return ["the corpus of seeds"]

    def setup(self, place: Path, point: Any) -> None:
        if (SEEDS / DONE).is_file():
            return
        source = str(Path(__file__).resolve().parents[2] / "src")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")])),
        }
        script = [sys.executable, str(Path(__file__).with_name("seeds.py")), str(SEEDS)]
        subprocess.run(script, env=environment, check=True, capture_output=True)

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        if not KEPT:
            atexit.register(shutil.rmtree, SEEDS, ignore_errors=True)
        for case in self.cases:
            for line in dict.fromkeys(case.lines):  # nothing is learnt from a command that fails anyway
                yield Trial(case.base, "", line, ()).to_json()
        first = rng.randrange(1 << 40)
        for number in itertools.count(first):
            yield {"draw": number}

    def run(self, place: Path, point: Any, work: Path) -> Iterable[Result]:
        trial = self.draw(point["draw"]) if "draw" in point else Trial(**point)
        verdict = run_trial(trial, SEEDS, work)
        if verdict.outcome == Outcome.OK:
            return [Result()]
        damaged = work / Path(trial.base).name
        smaller, verdict = minimise(trial, verdict, work)
        return [Result(verdict.outcome, verdict.what, verdict.command, files=[str(damaged)], point=smaller.to_json())]

    def draw(self, number: int) -> Trial:
        """The trial of a number: the case, the file, the line, the mutations."""
        chance = random.Random(number)
        [case] = chance.choices(self.cases, [one.weight for one in self.cases])
        files = files_of(case.base, case.left_out)
        file = chance.choice(files)
        path = SEEDS / case.base / file if file else SEEDS / case.base
        mutations = draw(chance, path, path.read_bytes(), others_like(path), within=bool(file))
        if case.base.startswith("runs/") and Path(file).name in HASHED and chance.random() < 0.6:
            mutations.append(REHASH)
        return Trial(case.base, file, chance.choice(case.lines), tuple(mutations))


@cache
def files_of(base: str, left_out: tuple[str, ...]) -> list[str]:
    """The files of a seed; [""] for a single file."""
    folder = SEEDS / base
    if folder.is_file():
        return [""]
    found = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [str(path) for path in found if not set(path.parts) & set(left_out)]


@cache
def others_like(path: Path) -> dict[str, bytes]:
    """Files of the same name or ending, to splice with, or to stand in its place."""
    found = [one for one in sorted(SEEDS.rglob(f"*{path.suffix}")) if one.is_file() and one != path]
    same = [one for one in found if one.name == path.name] or found
    chosen = random.Random(str(path.relative_to(SEEDS))).sample(same, min(SPLICED, len(same)))
    return {str(one.relative_to(SEEDS)): one.read_bytes() for one in chosen}


def minimise(trial: Trial, verdict: Verdict, work: Path) -> tuple[Trial, Verdict]:
    """Leave mutations out as long as the same comes of it."""
    until = time.monotonic() + MINIMISE_SECONDS
    for number, one in enumerate(trial.mutations if len(trial.mutations) > 1 else ()):
        fewer = tuple(other for other in trial.mutations if other is not one)
        if not fewer or time.monotonic() > until:
            break
        again = work / f"again-{number}"
        again.mkdir()
        smaller = Trial(trial.base, trial.file, trial.line, fewer)
        seen = run_trial(smaller, SEEDS, again)
        if seen.outcome == verdict.outcome:
            trial, verdict = smaller, seen
    return trial, verdict


ATTACKS = [FileAttack(name, title, share, cases) for name, (title, share, cases) in CLASSES.items()]
