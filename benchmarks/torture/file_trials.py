"""One trial of a damaged file: the copy, the mutation, the commands in this process, and the verdict.

A command must end with 0 and a sane result, or with 2 and one line that says the rule, the values and the remedy.
Everything else is a finding: a traceback, another exit code, a warning of a library, memory beyond the limit, wrong
bytes, a false number, or files left behind.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import resource
import shlex
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torture.campaign import Outcome
from torture.mutations import PLACES, Mutation, mutate
from torture.seeds import NO_DATA
from torture.verdicts import OK, Verdict, judge

MEMORY_BYTES = 3 << 30  # that a command may take beyond what the worker has
LARGEST_FILE_BYTES = 256 << 20
NOBODY = 65534
REHASH: Mutation = ["rehash"]  # among mutations: the hashes of the changed file are put right
HASHES_UNUSED = ("list", "resume")  # lines that do not read the weights, or replace them
LARGEST_OUTPUT_BYTES = 4 << 20  # that are looked at


@dataclass(frozen=True)
class Trial:
    """Which file of which seed is damaged, how, and by which line of commands it is read."""

    base: str
    file: str
    line: str
    mutations: tuple[Mutation, ...]

    def to_json(self) -> dict[str, Any]:
        return {"base": self.base, "file": self.file, "line": self.line, "mutations": list(self.mutations)}


def prepare_process(seeds: Path) -> None:
    """Bound this process once: memory and sizes of files; no network, no data or settings of the user."""
    if getattr(prepare_process, "pid", None) == os.getpid():
        return
    prepare_process.pid = os.getpid()  # type: ignore[attr-defined]
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    for kind, limit in ((resource.RLIMIT_AS, taken + MEMORY_BYTES), (resource.RLIMIT_FSIZE, LARGEST_FILE_BYTES)):
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
    os.environ.update(
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        OCTAVO_DATA=str(seeds / NO_DATA),
        http_proxy="http://127.0.0.1:9",
        NO_COLOR="1",
        TORCHINDUCTOR_CACHE_DIR=str(Path(tempfile.gettempdir(), "torture-inductor")),
    )
    for name, number in (("stdout", 1), ("stderr", 2)):  # those of this process may belong to a test's runner
        setattr(sys, name, open(number, "w", closefd=False, encoding="utf-8", errors="backslashreplace"))  # noqa: SIM115


def run_trial(trial: Trial, seeds: Path, work: Path) -> Verdict:
    """Damage the file and run the commands; `work` is empty before."""
    prepare_process(seeds)
    copy, out, private = work / Path(trial.base).name, work / "written", work / "private"
    for folder in (out, private):
        folder.mkdir(mode=0o777)
    source = seeds / trial.base
    shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
    target = copy / trial.file if trial.file else copy
    denied = damage(target, trial.mutations, work, seeds)
    before = _listing(work)
    commands = [shlex.split(line.format(x=copy, o=out, s=seeds)) for line in trial.line.split(" && ")]
    for command in commands:
        with _in_private_folder(private, denied):
            code, verdict = _run(command, work)
        if verdict is not OK or code != 0:
            break
    if verdict is OK and code == 0 and _must_be_refused(trial, target, seeds):
        verdict = Verdict(Outcome.ACCEPTED, f"{commands[0][0]}: {target.name} with a wrong hash is accepted")
    if verdict is OK:
        verdict = _check_files(trial, work, out, private, before, code, seeds)
    if not trial.mutations and verdict is OK and code != 0:
        verdict = Verdict(Outcome.OTHER, f"the undamaged seed is refused with exit code {code}")
    shown = " && ".join(f"octavo {shlex.join(command)}" for command in commands)
    return OK if verdict is OK else Verdict(verdict.outcome, verdict.what, shown)


def damage(target: Path, mutations: Sequence[Mutation], work: Path, seeds: Path) -> bool:
    """Change the file; returns whether the trial is to run without root's rights."""
    changes = [one for one in mutations if one[0] not in PLACES and one != REHASH]
    if changes:
        target.write_bytes(mutate(target.read_bytes(), changes, seeds, target.suffix)[:LARGEST_FILE_BYTES])
    if REHASH in mutations:
        put_hashes_right(target)
    for (name,) in (one for one in mutations if one[0] in PLACES):
        PLACES[name](target)
    if not any(one[0] == "denied" for one in mutations) or os.geteuid() != 0:
        return False
    if not nobody_can_read(seeds):
        return False
    for place in work.parents:
        if place.owner() == "root" and not place.stat().st_mode & stat.S_IXOTH and "torture-" in str(place):
            place.chmod(0o711)
    for place in (work, *work.rglob("*")):
        if place != target:
            place.chmod(0o777)
    return True


@functools.cache
def nobody_can_read(seeds: Path) -> bool:
    """Whether a user without rights can import octavo and torch here, and read the corpus."""
    import torch

    import octavo

    os.seteuid(NOBODY)
    try:
        for place in (octavo.__file__, torch.__file__, seeds / "texts" / "short.txt"):
            with open(str(place), "rb"):
                pass
        return True
    except OSError:
        return False
    finally:
        os.seteuid(0)


def put_hashes_right(target: Path) -> None:
    """Write the hashes of a changed file into its header and into config.json, so that deeper checks are met."""
    from octavo.io.integrity import HASHES, hash_tensors

    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if target.suffix == ".safetensors":
        found, own, _ = hash_tensors(target)
        target.write_bytes(target.read_bytes().replace(own.encode(), found.encode(), 1) if own else target.read_bytes())
    record = target.parent / "config.json"
    names = {"model.safetensors": "tensors", "tokenizer.json": "tokenizer"}
    if target.name in names and record.is_file():
        values = json.loads(record.read_text())
        values.get(HASHES, {})[names[target.name]] = found
        record.write_text(json.dumps(values, indent=1))


@contextlib.contextmanager
def _in_private_folder(private: Path, denied: bool) -> Iterator[None]:
    """Everything that is written without a name goes to a folder that is looked into afterwards."""
    here, old = os.getcwd(), {name: os.environ.get(name) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    for name in old:
        os.environ[name] = str(private)
    tempfile.tempdir = str(private)
    os.chdir(private)
    if denied:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if denied:
            os.seteuid(0)
        os.chdir(here)
        tempfile.tempdir = None
        os.environ.update({name: value for name, value in old.items() if value is not None})


def _run(command: list[str], work: Path) -> tuple[int, Verdict]:
    """One command of octavo in this process: its exit code, and what is wrong with what it says."""
    from octavo.cli import main

    saved = [os.dup(number) for number in (1, 2)]
    files = [open(work / name, "w+b") for name in (".out", ".err")]  # noqa: SIM115
    for number, file in enumerate(files, 1):
        os.dup2(file.fileno(), number)
    raised = ""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("ignore")
        for kind in (RuntimeWarning, UserWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("always", kind)
        try:
            code = main(command)
        except BaseException as error:
            code, raised = 1, f"{type(error).__name__}: {error}"
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    for number, kept in enumerate(saved, 1):
        os.dup2(kept, number)
        os.close(kept)
    out, err = map(_read_back, files)
    return code, judge(command, code, out, err, raised, [f"{one.category.__name__}: {one.message}" for one in noted])


def _read_back(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        data = file.read(LARGEST_OUTPUT_BYTES)
    whole = data[: data.rfind(b"\n") + 1] if len(data) == LARGEST_OUTPUT_BYTES else data  # of much, whole lines
    return whole.decode("utf-8", "replace")


def _listing(work: Path) -> set[str]:
    return {str(path.relative_to(work)) for path in work.rglob("*") if not path.name.startswith((".out", ".err"))}


def _check_files(
    trial: Trial, work: Path, out: Path, private: Path, before: set[str], code: int, seeds: Path
) -> Verdict:
    """What was written: nothing but the results, and those only where the command succeeded."""
    new = _listing(work) - before
    if left := sorted(name for name in new if name.startswith("private/") and "torchinductor" not in name):
        return Verdict(Outcome.LEFTOVER, f"{trial.line.split()[0]}: left in the temporary or home folder: {left[0]}")
    keeps_cells = trial.line.split()[0] in ("compare", "scale", "domains")  # what is measured stays when it stops
    keeps_cells |= (out / "run" / "state" / "training.safetensors").is_file()  # so does what is trained
    keeps_cells |= " && " in trial.line and (out / "run").is_dir()  # or imported, before it is found to be of no use
    if code != 0 and not keeps_cells and (left := [name for name in new if name.startswith("written/")]):
        return Verdict(Outcome.LEFTOVER, f"{trial.line.split()[0]}: left after a refusal: {sorted(left)[0]}")
    if left := [name for name in new if re.search(r"\.part\b|\.tmp\b|\.before\b", name)]:
        return Verdict(Outcome.LEFTOVER, f"{trial.line.split()[0]}: left: {sorted(left)[0]}")
    own = f"{Path(trial.base).name}/"
    if "{x}" not in _written_places(trial.line) and (left := [name for name in new if name.startswith(own)]):
        return Verdict(Outcome.LEFTOVER, f"{trial.line.split()[0]}: written into what it reads: {sorted(left)[0]}")
    if (
        code == 0
        and (out / "back").exists()
        and (out / "back").read_bytes() != (seeds / "texts/short.txt").read_bytes()
    ):
        return Verdict(Outcome.ACCEPTED, f"{trial.line.split()[0]}: decompress gives other bytes back")
    return OK


def _must_be_refused(trial: Trial, target: Path, seeds: Path) -> bool:
    """Whether the file is a run's weights or tokenizer with other bytes than config.json's hash is of."""
    if trial.line.startswith(HASHES_UNUSED) or REHASH in trial.mutations or not trial.base.startswith("runs/"):
        return False
    if trial.file not in ("model.safetensors", "tokenizer.json") or not target.is_file():
        return False
    return target.read_bytes() != (seeds / trial.base / trial.file).read_bytes()


def _written_places(line: str) -> str:
    """The words of a line after which something is written."""
    return " ".join(word for flag, word in itertools.pairwise(line.split()) if flag in ("--out", "resume"))
