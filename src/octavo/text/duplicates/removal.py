"""Remove duplicates from a text: the job with its stages, and what it writes.

text.txt or text.jsonl    the text without them
removed.tsv               what was removed, and what it repeats
duplicates.json           the settings and the numbers
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from octavo.engines.choice import EngineChoice
from octavo.engines.stages import Stages, stages_folder
from octavo.io.encoding import UTF8
from octavo.io.files import whole_folder, write_text
from octavo.io.progress import progress
from octavo.text.duplicates.config import DuplicatesConfig
from octavo.text.duplicates.relational import MILLION, Program, stage_count
from octavo.text.duplicates.units import PART_BYTES, UnitFile, write_units
from octavo.text.loading import Split, Text, load_text
from octavo.text.reading import Errors

UNITS = "text"  # the stage that copies the text
PLAIN, JSON_LINES, REMOVED, RECORD = "text.txt", "text.jsonl", "removed.tsv", "duplicates.json"
COLUMNS = ("kind", "removed", "kept", "closest", "similarity")
FORMAT = 1


@dataclass(frozen=True)
class Removal:
    """What was removed from a text."""

    units: int
    """Lines or documents before."""
    exact: int
    near: int
    bytes: int
    """Of the text before."""
    bytes_kept: int
    text: Path
    resumed: tuple[str, ...] = ()
    """The stages that a killed job had finished."""


def remove_duplicates(
    sources: Sequence[str | Path], out: Path, config: DuplicatesConfig, choice: EngineChoice, field: str = "text",
    errors: Errors = "strict", encoding: str = UTF8,
) -> Removal:  # fmt: skip
    """Write a text without its duplicates into a folder; a killed job goes on from its finished stages."""
    choice.check()
    text = load_text(sources, field, errors, encoding=encoding)
    split = Split(text, 0, text.size)
    documents = hashlib.sha256(text.starts.tobytes()).hexdigest()
    job = {"text": split.sha256, "documents": documents, "duplicates": FORMAT, **config.to_json()}
    stages = Stages(stages_folder(out), job)
    stages.run(UNITS, lambda folder: write_units(split, config.unit, folder))
    file = UnitFile(str(stages.rows(UNITS).absolute()), config.unit)
    label = f"{'near' if config.near else 'exact'} duplicates on {choice.engine}"
    with choice.open(stages.folder) as engine, progress(label, stage_count(config), "stages") as advance:
        removed = Program(engine, stages, file, config, advance).run()
    written = _write(file, text, removed, config, out, tuple(stages.resumed))
    stages.delete()
    return written


def _write(
    file: UnitFile, text: Text, removed: Path, config: DuplicatesConfig, out: Path, resumed: tuple[str, ...]
) -> Removal:
    """The folder of the result."""
    name = PLAIN if config.unit == "line" and len(text.starts) == 1 else JSON_LINES
    with whole_folder(out) as folder:
        with open(folder / REMOVED, "w", encoding="utf-8") as list_file:
            gone_N, near = _write_removed(list_file, removed, file.count)
        with open(folder / name, "wb") as target:
            if name == PLAIN:
                size = sum(target.write(data) for data in _kept(file, gone_N, 0, file.count))
            else:
                size = _write_json_lines(target, file, gone_N, text)
        exact = int(gone_N.sum()) - near
        written = Removal(file.count, exact, near, text.size, size, out / name, resumed)
        numbers = {**summary(written), "bands": config.bands.bands, "rows": config.bands.rows}
        write_text(folder / RECORD, json.dumps({"format": FORMAT, **config.to_json(), **numbers}, indent=1) + "\n")
    return written


def summary(removal: Removal) -> dict[str, int]:
    """The numbers, for JSON."""
    return {
        "units": removal.units, "units_kept": removal.units - removal.exact - removal.near, "bytes": removal.bytes,
        "bytes_kept": removal.bytes_kept, "exact_removed": removal.exact, "near_removed": removal.near,
    }  # fmt: skip


def _write_removed(target: IO[str], removed: Path, units: int) -> tuple[NDArray[np.bool_], int]:
    """The list of what is removed, numbered from 1; which units those are, and how many of them are near duplicates."""
    import pyarrow.dataset as dataset

    gone_N, near = np.zeros(units, np.bool_), 0
    target.write("\t".join(COLUMNS) + "\n")
    names = ("line", "kept", "closest", "millionths", "near")
    for path in sorted(removed.glob("*.parquet")):
        for batch in dataset.dataset(path, format="parquet").to_batches(columns=list(names)):
            columns = [batch.column(name).to_numpy() for name in names]
            gone_N[columns[0]] = True
            near += int(columns[4].sum())
            for line, kept, closest, millionths, is_near in zip(*(one.tolist() for one in columns), strict=True):
                kind = "near" if is_near else "exact"
                target.write(f"{kind}\t{line + 1}\t{kept + 1}\t{closest + 1}\t{millionths / MILLION:.6f}\n")
    return gone_N, near


def _kept(file: UnitFile, gone_N: NDArray[np.bool_], start: int, stop: int) -> Iterator[bytes]:
    """The bytes of a range of units without those that are gone."""
    start_N, text = file.starts, file.text
    for a, b in file.cut(start, stop, PART_BYTES):
        edges = np.flatnonzero(np.diff(gone_N[a:b], prepend=True, append=True)) + a
        for first, last in edges.reshape(-1, 2).tolist():
            yield text[start_N[first] : start_N[last]].tobytes()


def _write_json_lines(target: IO[bytes], file: UnitFile, gone_N: NDArray[np.bool_], text: Text) -> int:
    """Each document's rest as a line of JSON, if there is any; the bytes of all of them."""
    bound_D = np.searchsorted(file.starts, [*text.starts.tolist(), text.size])
    size = 0
    for first, last in zip(bound_D[:-1].tolist(), bound_D[1:].tolist(), strict=True):
        data = b"".join(_kept(file, gone_N, first, last))
        if data:
            target.write(json.dumps({"text": data.decode()}, ensure_ascii=False).encode() + b"\n")
            size += len(data)
    return size
