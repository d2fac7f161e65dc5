"""Where a run is trained: in its folder; one that is to replace another run, hidden beside it until it is finished.

The hidden folder is `.NAME.new`, and takes the place of NAME in one step. Until then everybody who reads NAME reads the
old run, and a training run that is never finished has changed nothing.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from octavo.errors import UserError
from octavo.io.lock import locked
from octavo.io.partial_files import delete_folder, sweep, sweep_all
from octavo.io.run_folder import CONFIG, METRICS, STATE, check_out, read_record, replacement_folder
from octavo.training.checkpoint import FILE
from octavo.training.distributed import Team

BEFORE = ".before"  # ended the name of an old run while another one was trained at its place, until version 0.2


@contextmanager
def numbered(folder: Path, processes: Team | None = None) -> Iterator[Path]:
    """The folder, or the first of folder-2, folder-3, ... that is free and that nobody else is about to write; locked,
    so that two trainings which begin at the same moment get two.
    """
    number = 1
    with ExitStack() as stack:
        if processes is None or processes.leads:
            check_out(folder.parent / f"{folder.name}-new")  # a place that can be written to
            while not _claims(_with_number(folder, number), stack):
                number += 1
        yield _with_number(folder, int(processes.agree(float(number))[0]) if processes else number)


def _with_number(folder: Path, number: int) -> Path:
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


def _claims(folder: Path, stack: ExitStack) -> bool:
    """Lock a folder; False where something is in it, or somebody else has the lock."""
    if _is_taken(folder):
        return False
    with ExitStack() as own:
        try:
            own.enter_context(locked(folder))
        except UserError:
            return False
        if _is_taken(folder):  # by somebody who was done before it was locked
            return False
        stack.push(own.pop_all())
    return True


def _is_taken(folder: Path) -> bool:
    """Whether something other than an empty folder, which a killed process may have made, is there."""
    if replacement_folder(folder).exists():
        return True
    return os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder))


def check_free(folder: Path | None, force: bool) -> None:
    """Refuse to write over a run that was trained to its end, unless that is asked for."""
    if folder is None or force or not (folder / CONFIG).is_file() or is_stopped(folder):
        return
    if not _is_finished(folder):  # killed before its first checkpoint: there is nothing to lose
        return
    training = read_record(folder).get("training")
    longer = f"; to train it longer: octavo resume {folder} --budget TIME" if training else ""
    raise UserError(f"{folder} is a finished run; choose another --out, or replace it with --force{longer}")


def training_place(folder: Path) -> Path:
    """The folder in which a run is, or was last, being trained: its own, or that of one that is to replace it."""
    hidden = replacement_folder(folder)
    return hidden if (hidden / CONFIG).is_file() else folder


def new_place(folder: Path, force: bool) -> Path:
    """The folder in which a new run is to be trained: hidden, where a run stands that must not be lost before."""
    if force and (folder / CONFIG).is_file() and (_is_finished(folder) or _has_checkpoint(folder)):
        return replacement_folder(folder)
    return folder


def is_stopped(folder: Path | None) -> bool:
    """Whether a run was being trained there, or to replace the one there, that can be resumed."""
    if folder is None or not _has_checkpoint(training_place(folder)):
        return False
    return not _is_finished(training_place(folder))


def _has_checkpoint(folder: Path) -> bool:
    return (folder / STATE / FILE).is_file()


def _is_finished(folder: Path) -> bool:
    return bool(read_record(folder).get("training", {}).get("finished", True))


def tidy(folder: Path) -> None:
    """Remove what killed processes left at a run's place, and put right what they left half done.

    The caller holds the lock of the folder.
    """
    real, hidden = Path(os.path.realpath(folder)), replacement_folder(folder)
    for place in (real, hidden):
        sweep(place, held=True)
        if (place / CONFIG).is_file():
            sweep_all(place, held=True)
            sweep_all(place / STATE, held=True)
    _bring_back(real, hidden)
    if hidden.is_dir() and (not (hidden / CONFIG).is_file() or not _has_checkpoint(hidden) or _is_done(hidden, real)):
        delete_folder(hidden)


def _bring_back(folder: Path, hidden: Path) -> None:
    """Put an old run back that an earlier version had renamed to NAME.before; the one at its place goes on hidden."""
    before = folder.with_name(f"{folder.name}{BEFORE}")
    if not (before / CONFIG).is_file() or hidden.exists():
        return
    if not os.path.lexists(folder):
        os.rename(before, folder)
    elif (folder / CONFIG).is_file() and read_record(folder).get("training", {}).get("before") == before.name:
        os.rename(folder, hidden)
        os.rename(before, folder)


def _is_done(hidden: Path, folder: Path) -> bool:
    """Whether a hidden run stands in its place already: killed before the hidden folder was deleted, it is finished."""
    with suppress(OSError):
        return filecmp.cmp(hidden / STATE / FILE, folder / STATE / FILE, shallow=False)
    return False


def remove_replacement(folder: Path) -> None:
    """Delete the hidden run of a folder, which is in its place by now, or is to be replaced itself."""
    if replacement_folder(folder).is_dir():
        delete_folder(replacement_folder(folder))


def log_length(folder: Path | None) -> int:
    """Bytes of metrics.jsonl."""
    return (folder / METRICS).stat().st_size if folder is not None and (folder / METRICS).is_file() else 0
