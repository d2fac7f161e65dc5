"""octavo list: the runs of a folder, each with the figure that its task is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.output import Output, Table, note, size
from octavo.errors import UserError, did_you_mean
from octavo.io.files import thousands
from octavo.io.run_folder import CONFIG, TENSORS, find_runs, is_others_config, read_record, replacement_folder
from octavo.tasks.run_rows import (
    BITS,
    MeasuredText,
    figures_of,
    is_unfinished,
    measured_text,
    parameters_of,
    result_label,
    shown_figure,
)

RUNS = "runs"
TITLES = ("run", "model", "figure", "", "parameters", "train s", "size")


def list_(folder: Annotated[Positional[str], arg(metavar="FOLDER")] = RUNS) -> Output:
    """The runs in a folder, each with its own figure, those measured on the same text together, the best first.

    Example: octavo list runs

    Args:
        folder: Where the runs are, or one run.
    """
    if folder != RUNS and not Path(folder).is_dir():
        beside = [one.name for one in Path(folder).absolute().parent.glob("*/") if one.is_dir()]
        advice = did_you_mean(Path(folder).name, beside, "name one that holds runs")
        raise UserError(f"there is no folder {folder}; {advice}")
    found, foreign = [], []
    for path in [Path(folder)] if (Path(folder) / CONFIG).is_file() else find_runs(folder):
        if is_others_config(path):
            foreign.append(str(path))
            continue
        try:
            found.append((path, read_record(path)))
        except UserError as error:
            note(f"left out: {error}")
    if foreign:
        note(f"not runs, but read like them (Hugging Face): {', '.join(foreign)}")
    if replaced := [str(path) for path, _ in found if (replacement_folder(path) / CONFIG).is_file()]:
        note(f"to be replaced by a run that is not finished yet (octavo resume RUN): {', '.join(replaced)}")
    found.sort(key=_order)
    rows = [{"run": str(path), "figures": dict(figures_of(record)), "text": measured_text(record)._asdict(), **record}
            for path, record in found]  # fmt: skip
    if not found:
        hint = f"no runs in {folder}; make one with: octavo train ngram shakespeare --out runs/kn"
        return Output(rows, lambda: note(hint))
    parts: list[str | Table] = []
    for (*_, text), group in groupby(found, key=_group):
        parts += [("\n" if parts else "") + text.title, Table(TITLES, [_row(*one) for one in group], left=(0, 1, 3))]
    return Output(rows, *parts)


def _group(one: tuple[Path, Mapping[str, Any]]) -> tuple[bool, str, MeasuredText]:
    """Language models first; then by the text, because results of different texts do not rank."""
    record = one[1]
    name = next((name for name, _ in figures_of(record)), BITS)
    return name != BITS, str(record.get("task", "")), measured_text(record)


def _order(one: tuple[Path, Mapping[str, Any]]) -> tuple[Any, ...]:
    path, record = one
    others, task, text = _group(one)
    name, value = next(iter(figures_of(record)), (BITS, 1e9))
    return others, task, text.title, text.sha256, value if name == BITS else -value, str(path)


def _row(path: Path, record: Mapping[str, Any]) -> tuple[str, ...]:
    tensors = path / TENSORS
    stored = size(tensors.stat().st_size) if tensors.is_file() else "incomplete"
    unfinished = is_unfinished(record)  # how long it has trained so far is in its checkpoint
    label = "not finished" if unfinished else result_label(record)
    figure = ", ".join(shown_figure(*one) for one in figures_of(record))
    seconds, model = record.get("train_seconds", 0), str(record.get("model", ""))
    count = parameters_of(record, path)
    parameters = "" if count is None else thousands(count)
    return str(path), model, figure, label, parameters, "" if unfinished else f"{seconds:.2f}", stored
