"""The runs of the folder: their rows, their curves, two of them side by side, and their pages."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse
from pydantic import BaseModel

from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, METRICS, REPORT, TENSORS, read_record
from octavo.studio.server.app import Studio
from octavo.studio.server.model_cache import NotFound
from octavo.studio.server.request_guard import REPORT_POLICY
from octavo.studio.server.training_process import resume_command
from octavo.tasks.run_rows import (
    BITS,
    SHARES,
    detail_of,
    figures_of,
    is_unfinished,
    measured_of,
    numbers_in,
    operations_of,
    settings_of,
    trained_on,
    value_at,
    without_folders,
)
from octavo.training.metrics_log import rows_and_length

READ = 1 << 20  # bytes of a metrics.jsonl that are read at once
WRITTEN_LATELY = 60  # seconds since its last row for which an unfinished run is taken to go on
COLUMNS = (
    "step", "seconds", "tokens", "loss", "bits_per_byte", "held_out_bits_per_byte", "held_out", "accuracy", "right",
    "words_accuracy", "norm",
)  # fmt: skip
EVENTS = 50  # that are told of one piece
PAGES: dict[str, tuple[str, ...]] = {  # that show a run, by what it was trained to do
    "": ("read", "inspect", "write"), "classify text": ("classify",), "classify images": ("inspect",),
    "translate": ("inspect",),
}  # fmt: skip
Name = Annotated[str, Query(max_length=400)]


class ShownRun(BaseModel):
    """One row of the runs page."""

    run: str
    task: str = ""  # "" predicts the next token
    model: str = ""
    detail: str = ""  # the model's size in a few words
    corpus: str = ""
    figure: float | None = None  # the run's own: bits per byte, accuracy in per cent, BLEU, ...
    unit: str = ""
    low: bool = False  # the lower the figure the better
    label: str = ""  # what must stand beside the figure
    seconds: float | None = None  # that training took
    bytes: int | None = None  # of its tensors
    numbers: int | None = None  # in its tensors
    operations: float | None = None  # to read a token after a full context
    made: float | None = None  # when, in seconds since 1970
    report: bool = False
    pages: list[str] = []  # that show it
    state: Literal["", "training", "stopped"] = ""
    resumable: bool = False
    command: str = ""  # what goes on with it
    error: str = ""  # where it cannot be read


class ShownModel(BaseModel):
    """A model that is in memory, or on its way there."""

    run: str
    ready: bool
    bytes: int
    progress: float  # of loading, from 0 to 1


class Curve(BaseModel):
    """Rows of a run's metrics from `offset` on, column by column; null where a row has no such number."""

    offset: int  # where to go on
    again: bool  # the file is another than before: forget what was read
    more: bool  # there is more to read at once
    columns: dict[str, list[float | None]]
    events: list[tuple[int, str]]
    sample: str  # the last text that was written on the way
    result: float | None  # bits per byte of the held-out text, where it was measured


class Line(BaseModel):
    """One setting or figure of the runs that are compared."""

    name: str
    values: list[str | float | int | bool | None]


class Compared(BaseModel):
    """One run's settings and figures, or those of two: then only settings that differ."""

    runs: list[str]
    settings: list[Line]
    same: int  # settings that do not differ
    figures: list[Line]


def router(studio: Studio) -> APIRouter:
    routes, rows = APIRouter(tags=["runs"]), Rows(studio)

    @routes.get("/runs", response_model=list[ShownRun])
    def runs() -> list[dict[str, Any]]:
        """Every run of the folder."""
        return rows.all()

    @routes.get("/models", response_model=list[ShownModel])
    def models() -> list[dict[str, Any]]:
        """The models in memory, and how far those that are being read have come."""
        return studio.models.states()

    @routes.get("/curve", response_model=Curve)
    def curve(run: Name, offset: Annotated[int, Query(ge=0, le=1 << 50)] = 0) -> dict[str, Any]:
        """What training wrote down, step by step; ask again from `offset` for what was written since."""
        return _curve(studio, run, offset)

    @routes.get("/compare", response_model=Compared)
    def compare(run: Annotated[list[Name], Query(min_length=1, max_length=2)]) -> dict[str, Any]:
        """The settings in which two runs differ, and their figures; of one run, all of them."""
        return _compared(run, [studio.models.record(name) for name in run])

    @routes.get("/report", response_class=FileResponse, responses={200: {"content": {"text/html": {}}}})
    def report(run: Name) -> FileResponse:
        """The page that was written when the run was trained."""
        path = _file(studio, run, REPORT)
        if path is None:
            raise NotFound(f"{run} has no {REPORT}; it is written when training ends")
        return FileResponse(
            path, headers={"content-security-policy": REPORT_POLICY}, media_type="text/html; charset=utf-8"
        )

    return routes


class Rows:
    """The rows of all runs; what was read of a run's files is kept until they change."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[tuple[int, ...], dict[str, Any], dict[str, Any]]] = {}

    def all(self) -> list[dict[str, Any]]:
        names = self.studio.models.names()
        current = self.studio.training.current()
        trained = current.run if current is not None and current.state != "ended" else None
        with self._lock:
            self._kept = {name: kept for name, kept in self._kept.items() if name in names}
        return [self._row(name, trained) for name in names]

    def _row(self, name: str, trained: str | None) -> dict[str, Any]:
        path = self.studio.root if (self.studio.root / CONFIG).is_file() else self.studio.root / name
        version = tuple(_changed(path / file) for file in (CONFIG, TENSORS, REPORT))
        with self._lock:
            kept = self._kept.get(name)
        if kept is None or kept[0] != version:
            kept = version, *_of_files(self.studio, name, path)
            with self._lock:
                self._kept[name] = kept
        _, row, record = kept
        return row | self._state(name, path, record, trained)

    def _state(self, name: str, path: Path, record: Mapping[str, Any], trained: str | None) -> dict[str, Any]:
        """What may change without the record changing."""
        if name == trained:
            return {"state": "training"}
        if not record or not is_unfinished(record):
            return {"resumable": bool(record) and not self.studio.training.why_not_resumable(path, record)}
        if time.time_ns() - _changed(path / METRICS) < WRITTEN_LATELY * 1_000_000_000 and trained is None:
            last = self.studio.training.current()  # a run that was just stopped here is not being trained elsewhere
            if last is None or last.run != name:
                return {"state": "training"}
        why = self.studio.training.why_not_resumable(path, record)
        return {"state": "stopped", "resumable": not why, "command": resume_command(path)}


def _of_files(studio: Studio, name: str, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the files of a run say: the row, and the record."""
    row: dict[str, Any] = {"run": name, "report": _file(studio, name, REPORT, path) is not None}
    row["made"] = _changed(path / CONFIG) / 1e9 or None
    try:
        record = read_record(path)
        return {**row, **_of_record(record, path)}, record
    except UserError as error:
        return {**row, "error": str(error).replace(f"{studio.root}/", "")}, {}
    except Exception as error:  # one strange record must not keep the others from being shown
        return {**row, "error": f"its {CONFIG} is damaged or foreign: {type(error).__name__}"}, {}


def _of_record(record: dict[str, Any], path: Path) -> dict[str, Any]:
    figures = figures_of(record)
    called, value = figures[0] if figures else ("", None)
    task = str(record.get("task", ""))
    row = {
        "task": task, "model": str(record.get("model", "")), "detail": detail_of(record),
        "corpus": without_folders(trained_on(record)), "figure": value, **_unit(called, value),
        "label": str(value_at(record, "result.label") or ""),
        "seconds": None if is_unfinished(record) else record.get("train_seconds"),
        "bytes": (path / TENSORS).stat().st_size if (path / TENSORS).is_file() else None,
        "numbers": numbers_in(path), "operations": operations_of(record),
        "pages": [*PAGES.get(task, ()), *(["answer"] if "facts" in record else [])],
    }  # fmt: skip
    return ShownRun(run="", **row).model_dump(exclude={"run"}, exclude_unset=True)  # so that it can be shown


def _unit(called: str, value: float | None) -> dict[str, Any]:
    """A figure as the page shows it: shares in per cent."""
    if called == BITS:
        return {"unit": "bits per byte", "low": True}
    if called in SHARES.values() and value is not None:
        return {"figure": 100 * value, "unit": f"% {called}"}
    return {"unit": called}


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _file(studio: Studio, run: str, name: str, path: Path | None = None) -> Path | None:
    """A file of a run; None where there is none, or where a link leads out of the folder."""
    found = (path or studio.models.path(run)) / name
    return found if found.is_file() and found.resolve().is_relative_to(studio.root) else None


# ---------------------------------------------------------------------- curves


def _curve(studio: Studio, run: str, offset: int) -> dict[str, Any]:
    path, record = _file(studio, run, METRICS), studio.models.record(run)
    data, again = b"", False
    if path is not None:
        with open(path, "rb") as file:
            again = offset > file.seek(0, 2)
            offset = 0 if again else offset
            file.seek(offset)
            data = file.read(READ)
    rows, length = rows_and_length(data)
    result = value_at(record, "result.bits_per_byte")
    return {
        "offset": offset + length, "again": again, "more": len(data) == READ and length > 0,
        "columns": _columns([row for row in rows if "event" not in row and _number(row.get("step")) is not None]),
        "events": [(int(row["step"]), f"{row['event']}: {row.get('why', '')}"[:200]) for row in rows
                   if "event" in row and _number(row.get("step")) is not None][:EVENTS],
        "sample": next((str(row["sample"])[:400] for row in reversed(rows) if row.get("sample")), ""),
        "result": _number(result),
    }  # fmt: skip


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[float | None]]:
    """Those that have a number in them."""
    found = {name: [_number(row.get(name)) for row in rows] for name in COLUMNS}
    return {name: column for name, column in found.items() if any(value is not None for value in column)}


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < 1e15 else None  # which nan is not either


# ---------------------------------------------------------------------- two runs


def _compared(names: list[str], records: list[dict[str, Any]]) -> dict[str, Any]:
    settings, same = _lines([settings_of(record) for record in records]), 0
    if len(names) == 2:
        differ = [line for line in settings if line["values"][0] != line["values"][1]]
        settings, same = differ, len(settings) - len(differ)
    return {
        "runs": names, "settings": settings, "same": same, "figures": _lines([measured_of(one) for one in records]),
    }  # fmt: skip


def _lines(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(name for one in told for name in one))
    names.sort(key=lambda name: not all(name in one for one in told))  # what only one of them has comes last
    return [{"name": name, "values": [_plain(one.get(name)) for one in told]} for name in names]


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
