"""Processes that end at their n-th change of files, as if the machine had stopped, and what must be true afterwards.

`python tests/crash_points.py [CASE...]` tries every change of every case; the tests try a few of each.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from octavo.cli import main as octavo_main
from octavo.io.run_folder import CONFIG, TENSORS
from old_runs import write_texts
from run_equality import rows
from task_commands import SETTINGS, command

NAMES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")
KILLED = 77
LAST = 30  # changes, at most, from the last checkpoint to the end
STEPS = {"budget": "3steps", "evaluations": 1}


class Crash:
    """Counts changes below a folder, by Python's audit events, and ends the process before the n-th."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number, self.changes = f"{folder}{os.sep}", number, 0

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "ctypes.dlsym":
            counts = arguments[1] == "renameat2"  # by which two folders are exchanged
        elif event == "open":
            _, mode, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            counts = bool(writes or any(letter in str(mode or "") for letter in "wax+")) and self._below(arguments[0])
        else:
            counts = event in NAMES and any(self._below(one) for one in arguments[:2])
        self.changes += counts
        if counts and self.changes == self.number:
            os._exit(KILLED)

    def _below(self, path: Any) -> bool:
        known = isinstance(path, str | bytes | os.PathLike)
        return known and os.path.abspath(os.fsdecode(path)).startswith(self.folder)


def run_until(words: Sequence[str], folder: Path, number: int = 0) -> tuple[int, int]:
    """Run a command in a fork, up to a change of its files, or to its end: its exit code, and how many there were."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads; those of torch sleep
        child = os.fork()
    if child == 0:
        _run_here(words, folder, number, writes)
    os.close(writes)
    with os.fdopen(reads) as counted:
        changes = counted.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), int(changes or 0)


def _run_here(words: Sequence[str], folder: Path, number: int, counted: int) -> None:
    """What a fork does; it never returns."""
    code = 70
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        crash = Crash(folder, number)
        sys.addaudithook(crash.see)
        code = octavo_main([*words, "--quiet"])
        os.write(counted, str(crash.changes).encode())
    finally:
        os._exit(code)


@dataclass(frozen=True)
class Case:
    """A command that is killed, at a place where a run stands or none does, and the commands that resume it."""

    name: str
    data: Path

    @property
    def task(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def is_forced(self) -> bool:
        return self.name.endswith(" over another")

    def words(self, folder: Path, seed: int) -> list[str]:
        out = folder / "run"
        if self.task == "ngram":
            words = ["train", "ngram", str(self.data / "text.txt"), "--order", "3", "--out", str(out)]
        else:
            short = {"pretrain_epochs": 1} if self.task == "facts" else {}
            words = command(self.task, self.data, out, **STEPS, **short)
        return [*words, "--seed", str(seed)]

    def begin(self, folder: Path) -> list[str]:
        """Make what stands there before; the command that is killed."""
        if not self.is_forced:
            return self.words(folder, 5)
        kept = self.data.parent / f"old-{self.task}"
        if not kept.is_dir():
            code, _ = run_until(self.words(kept, 1), kept)
            assert code == 0
        shutil.copytree(kept / "run", folder / "run")
        return [*self.words(folder, 5), "--force"]


CASES = [f"{task} {over}" for task in (*SETTINGS, "ngram") for over in ("anew", "over another")]


def content(folder: Path) -> tuple[bytes, str, Any, Any]:
    """What must be the same to the bit in two runs of one recipe."""
    record = json.loads((folder / CONFIG).read_text())
    finished = record.get("training", {}).get("finished", True)
    result = {key: value for key, value in record.get("result", {}).items() if "second" not in key}
    return (folder / TENSORS).read_bytes(), record["seed"], finished, (rows(folder)[:-1], result)


class Undisturbed:
    """The runs of a case as they are when nothing happens, made once."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        folder.mkdir(parents=True)
        octavo_main([*case.words(folder / "warm", 5), "--quiet"])  # here, so that forks need not import anything
        shutil.rmtree(folder / "warm")
        words = case.begin(folder)
        self.before = content(folder / "run") if case.is_forced else None
        code, self.changes = run_until(words, folder)
        assert code == 0, words
        self.after = content(folder / "run")

    def check(self, folder: Path, number: int) -> str:
        """Kill the command at a change, and go on as a user would: what is wrong then. `folder` is not there yet."""
        folder.mkdir(parents=True)
        words, place = self.case.begin(folder), folder / "run"
        if run_until(words, folder, number)[0] != KILLED:
            return "it was not killed"
        if self.before is not None:
            if content(place) not in (self.before, self.after):
                return "the old run is lost before the new one is complete"
            if run_until(["list", str(folder)], folder)[0] != 0:
                return "runs cannot be listed"
        is_done = place.is_dir() and content(place) == self.after
        if run_until(["resume", str(place)], folder)[0] != 0 and not is_done and run_until(words, folder)[0] != 0:
            return "neither resume nor the same command goes on"
        if content(place) != self.after:
            return "the run is not what it would have been"
        left = [name for _, _, names in os.walk(place) for name in names if name.startswith(".")]
        left += sorted({*os.listdir(folder)} - {"run"})
        return f"{', '.join(left)} is left behind" if left else ""


def sample(changes: int, count: int, seed: int) -> list[int]:
    """Some of the changes: half of them among the last, where a run takes its place."""
    rng, last = random.Random(seed), max(1, changes - LAST)
    return sorted(
        {rng.randint(1, last) for _ in range(count // 2)} | {rng.randint(last, changes) for _ in range(count)}
    )


def sweep_cases(names: Sequence[str], count: int = 0) -> dict[str, list[str]]:
    """What is wrong after kills at every change of the cases, or at `count` of each."""
    wrong: dict[str, list[str]] = {}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        home = Path(os.path.realpath(name))
        (home / "data").mkdir()
        write_texts(home / "data")
        for i, case in enumerate(names):
            began = time.monotonic()
            undisturbed = Undisturbed(Case(case, home / "data"), home / "undisturbed" / str(i))
            numbers = sample(undisturbed.changes, count, i) if count else range(1, undisturbed.changes + 1)
            wrong[case] = []
            for number in numbers:
                if problem := undisturbed.check(home / f"{i}-{number}", number):
                    wrong[case].append(f"killed at change {number} of {undisturbed.changes}: {problem}")
                shutil.rmtree(home / f"{i}-{number}")
            seconds = time.monotonic() - began
            print(f"{case}: {len(numbers)} of {undisturbed.changes} changes, {seconds:.0f} s", flush=True)
    return wrong


if __name__ == "__main__":
    for case, problems in sweep_cases(sys.argv[1:] or CASES).items():
        print(case, *(problems or ["nothing is lost, nothing is left"]), sep="\n  ")
