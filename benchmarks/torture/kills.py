"""Kills at every file-system change of every verb that writes, and what must hold after each."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture.campaign import Attack, Outcome, Result
from torture.faults import Fault, has_library, read_changes, read_counter
from torture.processes import Circumstances, Ended, call, run
from torture.scenarios import (
    SCENARIOS,
    Scenario,
    copy,
    made_once,
    make_base,
    must_succeed,
    shared_folder,
    work_folder,
    write_texts,
)
from torture.trees import differences, fingerprint, is_leftover, merge, tree

TRIALS_AT_FIRST = 6  # of a scenario, before the next one is prepared
MOST_TRIES = 40  # for a scenario that is not prepared yet, or cannot be
REMEDIES = 3  # commands that may be needed to come back
TEMPORARY = re.compile(r"\.[\w.-]+\.[a-z0-9_]{8}\.part")
FINISHED = ("is finished", "is a finished run", "exists and is not replaced")  # the kill came after the end of the work
OTHER_PROOF = re.compile(r"too many: \S*cells/proof-[\w-]+\.json$")
REMEDY = re.compile(r"octavo (resume [^;,\n]+)")


@dataclass(frozen=True)
class Prepared:
    """A scenario's folder before its command, what it holds, and what it holds after an undisturbed run."""

    folder: Path
    before: dict[str, str]
    after: dict[str, str]
    changes: list[str]
    seconds: float  # that the undisturbed command took

    @property
    def points(self) -> list[tuple[int, str]]:
        """Before each change, within each write, and after the last one."""
        kills = [(number, "before") for number in range(1, len(self.changes) + 1)]
        if has_library():
            torn = [number for number, what in enumerate(self.changes, 1) if what.startswith("write")]
            kills += [(number, "torn") for number in torn] + [(len(self.changes), "after")]
        return kills


def prepare(place: Path, scenario: Scenario) -> Prepared:
    """Make what the scenario starts from, and run its command twice without a disturbance; once for all processes."""
    name, place = scenario.name.replace("/", "-"), shared_folder(place)
    with made_once(place, name) as folder:
        if folder is not None:
            _make_template(place, scenario, folder / "before")
            trees, changes, seconds = [], list[str](), 0.0
            for turn in ("one", "two"):
                shutil.copytree(folder / "before", folder / turn, symlinks=True)
                notes = folder / f"notes-{turn}"
                ended = run(scenario.words.split(), work_folder(folder / turn), notes, Circumstances(Fault()))
                if ended.code != 0:
                    raise RuntimeError(f"undisturbed, {scenario.words} ended with {ended.code}: {ended.text[-400:]}")
                trees.append(tree(folder / turn))
                changes, seconds = read_changes(notes), ended.seconds
            record = {"before": tree(folder / "before"), "after": merge(*trees), "changes": changes, "seconds": seconds}
            (folder / "prepared.json").write_text(json.dumps(record))
    return Prepared(place / name / "before", **json.loads((place / name / "prepared.json").read_text()))


def _make_template(place: Path, scenario: Scenario, folder: Path) -> None:
    folder.mkdir()
    write_texts(folder)
    for need in scenario.needs:
        copy(make_base(place, need), folder / need)
    if not scenario.over:
        return
    notes = folder.parent / "notes-over"
    if not scenario.stopped:
        must_succeed(scenario.over, folder, notes)
        return
    trial = folder.parent / "whole"
    shutil.copytree(folder, trial)
    run(scenario.over.split(), work_folder(trial), notes, Circumstances(Fault()))
    steps = [number for number, what in enumerate(read_changes(notes), 1) if "training.safetensors" in what]
    half_way = Circumstances(Fault(steps[len(steps) // 2], "before"))
    run(scenario.over.split(), work_folder(folder), folder.parent / "notes-stopped", half_way)


class KillAttack(Attack):
    """Kills of a group of scenarios."""

    unit, limit_s = "kills", 180.0

    def __init__(self, name: str, title: str, groups: Sequence[str], share: float) -> None:
        self.name, self.title, self.share = name, title, share
        self.scenarios = [scenario for scenario in SCENARIOS.values() if scenario.group in groups]

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        """Some points of one scenario, of the next one too, and so on until each has had all of its own."""
        waiting, seed = rng.sample(self.scenarios, len(self.scenarios)), rng.randrange(1 << 30)
        used, counts = dict[str, int](), dict[str, int]()
        since = 0  # trials since the last scenario was begun
        while True:
            for name in used:
                if counts.get(name, -1) < 0:
                    counts[name] = count_points(self, place, SCENARIOS[name])
            ready = [name for name, count in counts.items() if used[name] < count]
            if waiting and (since >= TRIALS_AT_FIRST or not ready):
                name, since = waiting.pop().name, 0
            elif ready:
                name, since = min(ready, key=lambda name: used[name] / counts[name]), since + 1
            elif pending := [name for name, count in counts.items() if count < 0 and used[name] < MOST_TRIES]:
                name = min(pending, key=lambda name: used[name])
            else:
                return
            yield {"scenario": name, "seed": seed, "index": used.get(name, 0)}
            used[name] = used.get(name, 0) + 1

    def faults(self, prepared: Prepared) -> list[Fault]:
        return [Fault(number, how) for number, how in prepared.points]

    def run(self, place: Path, point: Any, work: Path) -> Iterator[Result]:
        scenario = SCENARIOS[point["scenario"]]
        prepared = prepare(place, scenario)
        if "index" in point:
            faults = self.faults(prepared)
            if point["index"] >= len(faults):
                yield Result(count=0)
                return
            random.Random(f"{point['seed']} {scenario.name}").shuffle(faults)
            fault = faults[point["index"]]
        else:
            fault = Fault(point["number"], point["how"], point.get("error", 0))
        yield Trial(scenario, prepared, fault, work, self.right_codes(scenario)).result()

    def right_codes(self, scenario: Scenario) -> Sequence[int] | None:
        """The exit codes that the disturbed command may have; None: any."""
        return None


def count_points(attack: KillAttack, place: Path, scenario: Scenario) -> int:
    """How many points a scenario has; -1 while nobody has prepared it."""
    if not (shared_folder(place) / f"{scenario.name.replace('/', '-')}.done").exists():
        return -1
    return len(attack.faults(prepare(place, scenario)))


class Trial:
    """One command with one fault, and all that must hold then."""

    def __init__(
        self, scenario: Scenario, prepared: Prepared, fault: Fault, work: Path, codes: Sequence[int] | None = None
    ) -> None:
        self.codes = codes  # that the disturbed command may end with; None: any
        self.scenario, self.prepared, self.fault, self.work = scenario, prepared, fault, work
        self.folder, self.notes = work_folder(work / "w"), work / "notes"
        self.limit_s = 60.0
        self.is_exact = True  # whether the same command gives the same bits under these circumstances

    def copy_template(self) -> None:
        shutil.copytree(self.prepared.folder, self.folder, symlinks=True, dirs_exist_ok=True)

    def result(self, circumstances: Circumstances | None = None, relieve: Callable[[], None] | None = None) -> Result:
        """Run the command and look at its end, at the place, and at what the same command makes of it then."""
        self.copy_template()
        how = circumstances or Circumstances(self.fault)
        ended = run(self.scenario.words.split(), self.folder, self.notes, how, self.limit_s)
        if relieve is not None:
            relieve()
        _, struck = read_counter(self.notes)
        if how.fault is not None and not struck:
            return Result(count=0) if ended.code == 0 else self.found(Outcome.OTHER, f"no fault, but {say(ended)}")
        return self.check_end(ended) or self.check_place() or self.check_again() or Result()

    def found(self, outcome: Outcome, what: str) -> Result:
        number, how = self.fault.number, self.fault.how
        changes = self.prepared.changes
        at = changes[number - 1] if 0 < number <= len(changes) else ""
        where = f"{how} change {number} ({at}) of octavo {self.scenario.words}" if number else self.scenario.words
        point: Any = {"scenario": self.scenario.name, **self.fault.to_json()}
        kind = f"{self.scenario.group} {TEMPORARY.sub('.*.part', what)}"
        point = point if number else None
        return Result(outcome, f"{what}\n{where}", f"octavo {self.scenario.words}", point=point, kind=kind)

    def check_end(self, ended: Ended) -> Result | None:
        """How the disturbed command itself ended."""
        if ended.code is None:
            return self.found(Outcome.HANG, "the disturbed command did not end")
        if "Traceback (most recent call last)" in ended.text:
            return self.found(Outcome.TRACEBACK, say(ended))
        if ended.orphans:
            return self.found(Outcome.LEFTOVER, f"processes stay behind: {'; '.join(ended.orphans)}")
        if self.codes is not None and ended.code not in self.codes:
            return self.found(Outcome.OTHER, f"{say(ended)}; the exit code should be one of {list(self.codes)}")
        return None

    def check_place(self) -> Result | None:
        """Nothing is lost, and nothing half-written is accepted."""
        now, before, after = tree(self.folder), self.prepared.before, self.prepared.after
        target = self.scenario.target
        for name, value in before.items():
            if not is_within(name, target) and now.get(name) not in (value, after.get(name)):
                return self.found(
                    Outcome.LOST, f"{name} was there before and is {'changed' if name in now else 'gone'}"
                )
        if target in before and now.get(target) not in (before[target], after[target]):
            return self.found(Outcome.LOST, f"{target} is neither the old nor the new file")
        if target not in before and target in now and now[target] != after[target] and after[target][0] != "d":
            return self.found(Outcome.ACCEPTED, f"{target} appeared half-written")
        weights = f"{target}/model.safetensors"
        is_replaced = self.is_exact and self.scenario.group != "resume" and not self.scenario.stopped
        if weights in before and weights in after and is_replaced:
            whole = {fingerprint(path) for path in self.folder.rglob("model.safetensors")}
            if not whole & {before[weights], after[weights]}:
                return self.found(Outcome.LOST, f"neither the old nor the new weights of {target} are anywhere")
        if weights in after and (self.folder / target).is_dir():
            return self.check_reading(weights)
        return None

    def check_reading(self, weights: str) -> Result | None:
        """Loading gives the old run, the new one, one that is marked unfinished, or a line that says why."""
        read = call(lambda: load_run(self.scenario.target), self.folder, self.work / "read", self.limit_s)
        if read.code not in (0, 2, 3) or "Traceback" in read.text:
            return self.found(Outcome.TRACEBACK, f"loading it: {say(read)}")
        known = {self.prepared.before.get(weights), self.prepared.after.get(weights)}
        if self.is_exact and read.code == 0 and fingerprint(self.folder / weights) not in known:
            return self.found(
                Outcome.ACCEPTED, "weights that are neither the old nor the new ones load as a finished run"
            )
        return None

    def check_again(self) -> Result | None:
        """The same command, or those that octavo names, lead to the undisturbed end, without leftovers."""
        words, tried = self.scenario.words.split(), list[str]()
        for _ in range(REMEDIES):
            ended = run(words, self.folder, self.work / "again", limit_s=self.limit_s)
            tried.append(shlex.join(words))
            if ended.code is None:
                return self.found(Outcome.HANG, f"again: {shlex.join(words)} did not end")
            if "Traceback (most recent call last)" in ended.text:
                return self.found(Outcome.TRACEBACK, f"again: {say(ended)}")
            if ended.code == 0:
                break
            remedy = REMEDY.search(ended.text)
            is_finished = any(words in ended.text for words in FINISHED)
            if is_finished and not self.wrong_files():
                break
            if remedy is None or is_finished:
                return self.found(Outcome.OTHER, f"again: {say(ended)}")
            words = remedy[1].split()
        else:
            return self.found(Outcome.OTHER, f"no end after {'; '.join(tried)}: {say(ended)}")
        wrong = self.wrong_files()
        if left := [line for line in wrong if is_leftover(line)]:
            roots = [line for line in left if not any(line != one and line.startswith(one) for one in left)]
            return self.found(Outcome.LEFTOVER, "; ".join(roots[:4]))
        return self.found(Outcome.OTHER, "not as undisturbed: " + "; ".join(wrong[:6])) if wrong else None

    def wrong_files(self) -> list[str]:
        """What is not as after an undisturbed run."""
        # A comparison that went on without what failed has proved another model, and that proof stays true.
        wrong = [line for line in differences(tree(self.folder), self.prepared.after) if not OTHER_PROOF.match(line)]
        return wrong if self.is_exact else [line for line in wrong if not line.startswith("differs")]


def is_within(name: str, target: str) -> bool:
    """Whether a name is the target, in it, or one of its temporary neighbours."""
    first = name.split("/")[0]
    return first.strip(".").split(".")[0] == target.split(".")[0] or name.startswith(f"{target}/")


def say(ended: Ended) -> str:
    """How a command ended, in a few lines."""
    lines = [line for line in ended.text.strip().splitlines() if line.strip()]
    return f"exit code {ended.code}: " + " | ".join(line[-300:] for line in lines[-3:])


def load_run(path: str) -> int:
    """0: a finished run; 3: one that says it is not finished; 2: refused with a line."""
    import octavo
    from octavo.errors import UserError

    try:
        loaded = octavo.load(path)
    except UserError as error:
        print(error)
        return 2
    return 3 if getattr(loaded, "unfinished", False) else 0


ATTACKS = (
    KillAttack("kill-train", "train of every task, killed at every change", ("train",), 2.0),
    KillAttack("kill-replace", "train --force over a finished run, killed at every change", ("replace",), 2.0),
    KillAttack("kill-resume", "resume of every task, killed at every change", ("resume",), 1.5),
    KillAttack("kill-files", "every verb that writes a file, killed at every change", ("files",), 1.5),
    KillAttack("kill-experiments", "compare, scale and domains, killed at every change", ("experiments",), 1.5),
)
