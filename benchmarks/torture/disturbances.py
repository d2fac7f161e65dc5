"""Signals at random moments, full disks, too little memory, clocks that jump, and two processes at one place."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torture.campaign import Attack, Outcome, Result
from torture.faults import ClockJump, Fault, has_library
from torture.kills import KillAttack, Prepared, Trial, prepare, say
from torture.processes import Circumstances, Command, Ended, run
from torture.scenarios import SCENARIOS, TRAININGS, Scenario
from torture.trees import differences, tree

CODES = {signal.SIGKILL: (-9,), signal.SIGTERM: (143, -15), signal.SIGINT: (130,)}  # as the shell shows them
HOUR, YEAR = 3600, 365 * 86400
CLONE_NEWNS, MS_REC, MS_PRIVATE, MS_REMOUNT, MNT_DETACH = 0x20000, 1 << 14, 1 << 18, 32, 2
NO_MEMORY_CODES = (0, 2, -6, -9, -11, 127)  # 127: the system's loader found none for a library
PAGE = 4096
ROUNDS = 4
NEGATIVE = re.compile(r"(?<![\w.-])-\d+(\.\d+)? ?(s|ms|min|h|seconds|tokens per second)\b")
SIX_STEPS = "--budget 6steps"
TIMED = {
    f"timed/{name}": Scenario(f"timed/{name}", f"{words.replace(SIX_STEPS, '--budget 0.4s')} --out run", "run")
    for name, words in TRAININGS.items() if name in ("gru", "bert", "dan")
}  # fmt: skip


class SampledAttack(Attack):
    """An attack on scenarios, with points that are drawn at random without end."""

    groups: tuple[str, ...] = ("train", "replace", "resume", "files", "experiments")
    limit_s = 240.0

    def scenarios(self) -> list[Scenario]:
        return [scenario for scenario in SCENARIOS.values() if scenario.group in self.groups]

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        """Some points of a few scenarios, then of the next few: those that are worked on at once are prepared once."""
        few = os.cpu_count() or 1
        while True:
            order = rng.sample(self.scenarios(), len(self.scenarios()))
            for first in range(0, len(order), few):
                for _ in range(ROUNDS):
                    for scenario in order[first : first + few]:
                        yield {"scenario": scenario.name, **self.draw(rng)}

    def draw(self, rng: random.Random) -> dict[str, Any]:
        raise NotImplementedError

    def trial(self, place: Path, point: Any, work: Path) -> DisturbedTrial:
        scenario = SCENARIOS.get(point["scenario"]) or TIMED[point["scenario"]]
        return DisturbedTrial(scenario, prepare(place, scenario), point, work)


class DisturbedTrial(Trial):
    """A trial whose disturbance is described by its point alone."""

    def __init__(
        self, scenario: Scenario, prepared: Prepared, point: Any, work: Path, fault: Fault | None = None
    ) -> None:
        super().__init__(scenario, prepared, fault or Fault(), work)
        self.point = point

    def found(self, outcome: Outcome, what: str) -> Result:
        result = super().found(outcome, what)
        return Result(outcome, f"{what}\n{json.dumps(self.point)}", result.command, point=self.point, kind=result.kind)


# ---------------------------------------------------------------------- random kills


class RandomKills(SampledAttack):
    name, title, unit, share = "random-kills", "SIGKILL, SIGTERM and SIGINT at random moments", "kills", 2.0
    groups = ("train", "replace", "resume", "files", "experiments", "jobs")

    def draw(self, rng: random.Random) -> dict[str, Any]:
        return {"signal": rng.choice(list(CODES)).name, "at": round(rng.random(), 4)}

    def run(self, place: Path, point: Any, work: Path) -> Iterator[Result]:
        trial = self.trial(place, point, work)
        number = signal.Signals[point["signal"]]
        trial.codes = (0, *CODES[number])
        trial.limit_s = 90.0
        yield trial.result(Circumstances(signal=number, after_s=point["at"] * trial.prepared.seconds))


# ---------------------------------------------------------------------- disks


class FullDisk(KillAttack):
    """No space, or an input/output error, from the n-th change on, or once."""

    unit = "trials"
    KINDS = (("fail on", errno.ENOSPC), ("fail once", errno.ENOSPC), ("fail on", errno.EIO))

    def faults(self, prepared: Prepared) -> list[Fault]:
        grows = ("create", "write", "mkdir", "copy_file_range", "sendfile", "link", "symlink", "open", "os.mkdir")
        numbers = [number for number, what in enumerate(prepared.changes, 1) if what.split()[0] in grows]
        return [Fault(number, how, error) for number in numbers for how, error in self.KINDS]

    def right_codes(self, scenario: Scenario) -> Sequence[int]:
        """2, with a line that says what is wrong; a comparison may go on with its other models, and exit with 1."""
        return (0, 1, 2) if scenario.group == "experiments" else (0, 2)


class SmallDisk(SampledAttack):
    """A file system in memory that is too small, in a mount namespace of the worker's own."""

    name, title, share = "small-disk", "a file system that is too small for what a command writes", 0.7
    groups = ("train", "replace", "resume", "experiments")

    def unavailable(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            script = f"mount -t tmpfs -o size=64k none {folder} && umount {folder}"
            words = ["unshare", "-m", "sh", "-c", script]
            try:
                done = subprocess.run(words, capture_output=True, text=True, check=False)
            except OSError as error:
                return f"no unshare here: {error.strerror}"
            return f"mounting is not allowed here: {done.stderr.strip()[:100]}" if done.returncode else ""

    def draw(self, rng: random.Random) -> dict[str, Any]:
        return {"room": round(rng.random() * 1.1, 4)}

    def run(self, place: Path, point: Any, work: Path) -> Iterator[Result]:
        trial = self.trial(place, point, work)
        used, later = (_pages(trial.prepared.folder.parent / name) for name in ("before", "one"))
        room = used + PAGE * max(1, int((later - used) // PAGE * 2 * point["room"]))
        enter_mount_namespace()
        mount(trial.folder, room)
        try:
            yield trial.result(Circumstances(), lambda: mount(trial.folder, 1 << 30, MS_REMOUNT))
        finally:
            ctypes.CDLL(None).umount2(os.fsencode(trial.folder), MNT_DETACH)


def _pages(folder: Path) -> int:
    """What a folder takes in memory."""
    sizes = [path.stat().st_size if path.is_file() else 1 for path in folder.rglob("*")]
    return sum(-(-size // PAGE) * PAGE for size in sizes) + PAGE


def enter_mount_namespace() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNS) or library.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace")


def mount(folder: Path, size: int, flags: int = 0) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    library.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
    if library.mount(b"none", os.fsencode(folder), b"tmpfs", flags, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), f"mounting {folder} failed")


# ---------------------------------------------------------------------- memory


class LowMemory(SampledAttack):
    name, title, share = "low-memory", "too little address space, from the start or on top of what it has", 1.0
    groups = ("train", "files", "experiments", "replace")

    def draw(self, rng: random.Random) -> dict[str, Any]:
        if rng.random() < 0.1:  # a new process, which imports torch within its limit
            return {"fresh": True, "megabytes": round(math.exp(rng.uniform(math.log(60), math.log(4000))))}
        return {"fresh": False, "kilobytes": round(math.exp(rng.uniform(math.log(100), math.log(400_000))))}

    def run(self, place: Path, point: Any, work: Path) -> Iterator[Result]:
        trial = self.trial(place, point, work)
        trial.is_exact = False  # with little memory, libraries may compute in another way
        if not point["fresh"]:
            trial.codes = (1, *NO_MEMORY_CODES) if trial.scenario.group == "experiments" else NO_MEMORY_CODES
            yield trial.result(Circumstances(memory_bytes=point["kilobytes"] << 10))
            return
        trial.copy_template()
        yield self.run_fresh(trial, point["megabytes"] << 20) or trial.check_place() or trial.check_again() or Result()

    def run_fresh(self, trial: DisturbedTrial, limit: int) -> Result | None:
        words = [sys.executable, "-m", "octavo.cli", *trial.scenario.words.split()]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment.pop("LD_PRELOAD", None)
        try:
            done = subprocess.run(
                words, cwd=trial.folder, env=environment, capture_output=True, text=True, timeout=120, check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)), errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return trial.found(Outcome.HANG, "no end after 120 s")
        text = done.stdout + done.stderr
        if "octavo" not in text and done.returncode in (1, 127):  # Python itself did not come up
            return None
        return trial.check_end(Ended(done.returncode, text, 0.0))


# ---------------------------------------------------------------------- clocks


class ClockJumps(SampledAttack):
    name, title, share = "clock-jumps", "the clock jumps an hour or ten years, forwards, backwards and back again", 1.0
    JUMPS = (-10 * YEAR, -YEAR, -HOUR, -2, HOUR, 10 * YEAR)

    def unavailable(self) -> str:
        return "" if has_library() else "the clock is moved by a library that needs a C compiler"

    def scenarios(self) -> list[Scenario]:
        return [*super().scenarios(), *TIMED.values()]

    def draw(self, rng: random.Random) -> dict[str, Any]:
        first = round(math.exp(rng.uniform(0, math.log(400))))
        point = {"first": first, "seconds": rng.choice(self.JUMPS), "second": 0, "seconds_again": 0}
        if rng.random() < 0.3:
            point |= {"second": first + rng.randrange(1, 50), "seconds_again": rng.choice(self.JUMPS)}
        if rng.random() < 0.2:  # a machine that slept: this clock never goes backwards
            return {**point, "seconds": HOUR, "second": 0, "seconds_again": 0, "monotonic": True}
        return {**point, "monotonic": False}

    def run(self, place: Path, point: Any, work: Path) -> Iterator[Result]:
        trial = self.trial(place, point, work)
        jump = ClockJump(**{key: value for key, value in point.items() if key != "scenario"})
        trial.copy_template()
        ended = run(trial.scenario.words.split(), trial.folder, trial.notes, Circumstances(jump=jump), trial.limit_s)
        trial.codes = (0,)
        yield trial.check_end(ended) or self.check_times(trial, ended, jump) or Result()

    def check_times(self, trial: DisturbedTrial, ended: Ended, jump: ClockJump) -> Result | None:
        if (seen := NEGATIVE.search(ended.text)) and not trial.scenario.name.startswith("experiments/domains"):
            return trial.found(Outcome.OTHER, f"a negative duration is printed: {seen[0]}")
        for path in (path for suffix in ("json", "jsonl") for path in trial.folder.rglob(f"*.{suffix}")):
            for key, value in _durations(path):
                if not value >= 0 or math.isinf(value):
                    return trial.found(Outcome.OTHER, f"{path.relative_to(trial.folder)}: {key} is {value}")
        if trial.scenario.group == "timed" or jump.monotonic:
            return None
        wrong = differences(tree(trial.folder), trial.prepared.after)
        return trial.found(Outcome.OTHER, "not as undisturbed: " + "; ".join(wrong[:6])) if wrong else None


def _durations(path: Path) -> Iterator[tuple[str, float]]:
    lines = path.read_text(errors="replace").splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    open_values: list[tuple[str, Any]] = [("", json.loads(line)) for line in lines]
    while open_values:
        key, value = open_values.pop()
        if isinstance(value, dict):
            open_values += value.items()
        elif isinstance(value, list):
            open_values += [(key, item) for item in value]
        elif re.search(r"second|duration|_rate$|speed", key) and isinstance(value, int | float):
            yield key, float(value)


# ---------------------------------------------------------------------- two at a time


class TwoAtATime(SampledAttack):
    name, title, share = "two-at-a-time", "two commands at one place, begun a moment apart", 1.0
    groups = ("train", "replace", "resume", "experiments", "files")
    limit_s, cores = 300.0, 2

    def draw(self, rng: random.Random) -> dict[str, Any]:
        return {"offset": round(rng.random() * 1.1, 4), "other": rng.choice(("same", "seed", "resume"))}

    def run(self, place: Path, point: Any, work: Path) -> Iterator[Result]:
        trial = self.trial(place, point, work)
        trial.copy_template()
        words = trial.scenario.words.split()
        second = self.other_words(trial.scenario, point["other"])
        one = Command(words, trial.folder, work / "one")
        time.sleep(point["offset"] * trial.prepared.seconds)
        two = Command(second, trial.folder, work / "two")
        ended = [one.wait(trial.limit_s), two.wait(trial.limit_s)]
        yield self.check(trial, ended, words == second) or Result()

    def other_words(self, scenario: Scenario, other: str) -> list[str]:
        words = scenario.words.split()
        if other == "resume" and scenario.group in ("train", "replace", "resume"):
            return ["resume", scenario.target]
        return [*words, "--seed", "9"] if other == "seed" and scenario.group in ("train", "replace") else words

    def check(self, trial: DisturbedTrial, ended: Sequence[Ended], same: bool) -> Result | None:
        for each in ended:
            if problem := trial.check_end(each):
                return problem
            if each.code not in (0, 2):
                return trial.found(Outcome.OTHER, f"one of two: {say(each)}")
        if not any(each.code == 0 for each in ended):
            return trial.found(Outcome.OTHER, f"none of two succeeded: {say(ended[0])} / {say(ended[1])}")
        wrong = differences(tree(trial.folder), trial.prepared.after)
        if not same and ended[1].code == 0:  # the other one's result stands there: only names are known
            wrong = [line for line in wrong if not line.startswith("differs")]
        return trial.found(Outcome.OTHER, "not as undisturbed: " + "; ".join(wrong[:6])) if wrong else None


GROUPS = ("train", "replace", "resume", "files", "experiments")
ATTACKS = (
    RandomKills(), FullDisk("full-disk", "no space, or an error of the disk, from a change on", GROUPS, 2.0),
    SmallDisk(), LowMemory(), ClockJumps(), TwoAtATime(),
)  # fmt: skip
