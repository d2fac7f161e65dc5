"""Where a new run is written: what stands there is refused, resumed or put aside until the new one is finished."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, METRICS, STATE, check_out, read_record
from octavo.training.checkpoint import FILE
from octavo.training.distributed import Team

BEFORE = ".before"  # ends the name of a finished run while another one is trained at its place


@contextmanager
def numbered(folder: Path, processes: Team | None = None) -> Iterator[Path]:
    """The folder, or the first of folder-2, folder-3, ... that is not there, made at once, so that two trainings which
    begin at the same moment get two; where nothing was written, it is removed again.
    """
    number, made = 1, [one for one in folder.absolute().parents if not one.exists()]
    leads = processes is None or processes.leads
    if leads:
        check_out(folder.parent / f"{folder.name}-new")  # a place that can be written to
        folder.parent.mkdir(parents=True, exist_ok=True)
        while not _makes(_with_number(folder, number)):
            number += 1
    chosen = _with_number(folder, int(processes.agree(float(number))[0]) if processes else number)
    try:
        yield chosen
    except BaseException:
        for one in (chosen, *made) if leads else ():
            with suppress(OSError):  # it holds something
                one.rmdir()
        raise


def _with_number(folder: Path, number: int) -> Path:
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


def _makes(folder: Path) -> bool:
    """Make a folder; False where something of that name, or an old run that was put aside from it, is there."""
    if aside(folder).exists():
        return False
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def check_free(folder: Path | None, force: bool) -> None:
    """Refuse to write over a run that was trained to its end, unless that is asked for."""
    if folder is None or force or not (folder / CONFIG).is_file() or is_stopped(folder):
        return
    if not _is_finished(folder):  # killed before its first checkpoint: there is nothing to lose
        return
    training = read_record(folder).get("training")
    longer = f"; to train it longer: octavo resume {folder} --budget TIME" if training else ""
    raise UserError(f"{folder} is a finished run; choose another --out, or replace it with --force{longer}")


def is_stopped(folder: Path | None) -> bool:
    """Whether a run stands there that was stopped and can be resumed."""
    if folder is None or not (folder / STATE / FILE).is_file():
        return False
    return not _is_finished(folder)


def _is_finished(folder: Path) -> bool:
    return bool(read_record(folder).get("training", {}).get("finished", True))


def restore_old(folder: Path | None) -> None:
    """Bring an old run back whose place is empty, or holds no checkpoint: the process that had put it aside was killed
    before it saved anything.
    """
    if folder is None or not aside(folder).exists():
        return
    if not (folder / CONFIG).exists() or not (_is_finished(folder) or is_stopped(folder)):
        bring_back(folder)


def log_length(folder: Path | None) -> int:
    """Bytes of metrics.jsonl."""
    return (folder / METRICS).stat().st_size if folder is not None and (folder / METRICS).is_file() else 0


def put_aside(folder: Path) -> str:
    """A finished run that stands there stays until the new one is finished too; returns the name it has meanwhile."""
    out, place = _real(folder), aside(folder)
    if not (out / CONFIG).is_file():
        return ""
    if place.exists() and not _is_finished(out):  # the finished run before this one is what stays
        shutil.rmtree(out)
        return place.name
    if place.exists():
        raise UserError(f"{place} is in the way: {out} would be put there until the new run is finished; move it")
    os.rename(out, place)
    return place.name


def bring_back(folder: Path) -> None:
    """Put an old run back to its place."""
    shutil.rmtree(_real(folder), ignore_errors=True)
    os.rename(aside(folder), _real(folder))


def aside(folder: Path) -> Path:
    """The name that an old run has until the new one at its place is finished."""
    return _real(folder).with_name(f"{_real(folder).name}{BEFORE}")


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))
