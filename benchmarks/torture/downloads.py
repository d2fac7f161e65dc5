"""`data get` from an honest mirror on loopback, killed at a change or at a random moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from torture.campaign import Attack, Outcome, Result
from torture.faults import ARM, HOW, has_library, read_counter
from torture.network_attacks import OTHER_TOOLS, malicious_mirror, missing
from torture.processes import end_session, session_processes
from torture.trees import differences, tree

WAYS = ("package", "url")
LIMIT_S = 60.0
ORPHAN_SECONDS = 8.0  # in which pip must notice that nobody waits for it
CHANGES = 60  # more than such a download makes


class KilledDownloads(Attack):
    """A killed download leaves no process and no file, and the next one succeeds."""

    name, title, unit, limit_s, share = "kill-downloads", "data get, killed at every change", "kills", 200.0, 1.0

    def unavailable(self) -> str:
        return missing("pip")

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        while True:
            for way in WAYS:
                if has_library() and rng.random() < 0.7:
                    yield {"way": way, "number": rng.randrange(1, CHANGES), "how": rng.choice(("before", "torn"))}
                else:
                    yield {"way": way, "at": round(rng.random(), 4)}

    def run(self, place: Path, point: Any, work: Path) -> Iterator[Result]:
        whole = work / "whole"
        with malicious_mirror().MaliciousMirror() as mirror:
            begun = time.monotonic()
            if problem := self.download(mirror, point["way"], whole):
                yield Result(Outcome.OTHER, f"undisturbed: {problem}")
                return
            seconds = time.monotonic() - begun
            yield self.killed(mirror, point, work, seconds * point.get("at", 9.0)) or self.again(mirror, point, work)

    def download(self, mirror: Any, way: str, folder: Path) -> str:
        """Download into a folder of its own; what went wrong, in a few words."""
        process = start(mirror, way, folder)
        text, _ = process.communicate(timeout=LIMIT_S)
        return f"exit code {process.returncode}: {text[-400:]}" if process.returncode else ""

    def killed(self, mirror: Any, point: Any, work: Path, seconds: float) -> Result | None:
        notes, folder = work / "notes", work / "killed"
        process = start(mirror, point["way"], folder, armed(point, folder, notes) if "number" in point else {})
        if "number" not in point:
            time.sleep(seconds)
            with suppress(ProcessLookupError):
                process.kill()
        try:
            text, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            return Result(Outcome.HANG, f"data get by {point['way']} does not end after a kill")
        if "number" in point and not read_counter(notes)[1]:
            return Result(count=0)
        until = time.monotonic() + ORPHAN_SECONDS
        while left := session_processes(process.pid):
            if time.monotonic() > until:
                end_session(process.pid)
                return Result(Outcome.LEFTOVER, f"processes stay behind: {'; '.join(left.values())}", kind="orphan")
            time.sleep(0.05)
        traceback = "Traceback" in text and process.returncode != -signal.SIGKILL
        return Result(Outcome.TRACEBACK, text[-1500:]) if traceback else None

    def again(self, mirror: Any, point: Any, work: Path) -> Result:
        if problem := self.download(mirror, point["way"], work / "killed"):
            return Result(Outcome.OTHER, f"again, by {point['way']}: {problem}")
        wrong = differences(tree(work / "killed"), tree(work / "whole"))
        if not wrong:
            return Result()
        outcome = Outcome.LEFTOVER if all(line.startswith("too many") for line in wrong) else Outcome.OTHER
        return Result(outcome, f"after a kill and another data get by {point['way']}: {'; '.join(wrong[:5])}")


def start(mirror: Any, way: str, folder: Path, more: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """`octavo data get` in a session of its own, with its cache and its temporary files in `folder`."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    words, environment = mirror.command("honest", way, folder / "cache", LIMIT_S)
    environment |= {"TMPDIR": str(home), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", **OTHER_TOOLS} | (
        more or {}
    )
    return subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def armed(point: Any, folder: Path, notes: Path) -> dict[str, str]:
    """The variable by which the library counts the changes of all processes of a download."""
    folder.mkdir(parents=True, exist_ok=True)
    words = (str(point["number"]), str(HOW.index(point["how"])), "0", os.path.realpath(folder), f"{notes}.count")
    return {ARM: "\t".join(words)}


ATTACKS = (KilledDownloads(),)
