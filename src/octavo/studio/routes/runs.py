"""The runs of the folder: their rows, training curves, a comparison of two, and their report pages."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse
from pydantic import BaseModel

from octavo.errors import UserError
from octavo.io.lock import living_holder
from octavo.io.run_folder import CONFIG, METRICS, REPORT, TENSORS, read_record
from octavo.io.run_index import IndexedRun, Version
from octavo.studio.server.app import HTML, Studio
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.error_text import public_command, public_line
from octavo.studio.server.model_cache import NotFound
from octavo.studio.server.request_guard import REPORT_POLICY
from octavo.studio.server.resumable import ResumeNeeds, needs_of, why_not_by_files, why_not_by_needs
from octavo.studio.server.scheduler import Ticket
from octavo.studio.server.training_process import number_in, resume_command
from octavo.tasks import run_rows
from octavo.training.metrics_log import rows_and_length

MAX_READ_BYTES = 1 << 20  # of a metrics.jsonl in one request
ACTIVE_SECONDS = 60  # since its last row in which an unfinished run counts as being trained on another machine
COLUMN_NAME, MAX_COLUMNS = re.compile(r"[a-z][a-z0-9_]{0,39}"), 24  # of a curve
MAX_EVENTS = 50  # in one response
PAGES: dict[str, tuple[str, ...]] = {  # that show a run, by its task
    "language": ("read", "inspect", "write"), "facts": ("read", "inspect", "write", "answer"),
    "classification": ("classify",), "images": ("inspect",), "translation": ("inspect",), "masked": ("inspect",),
    "tagging": ("tag",),
}  # fmt: skip
Name = Annotated[str, Query(max_length=400)]


class RunRow(BaseModel):
    """One row of the runs page."""

    run: str
    task: str = ""  # "" predicts the next token
    model: str = ""
    detail: str = ""  # the model's size in a few words
    corpus: str = ""
    text: str = ""  # what it was measured on: scores of different texts do not rank
    score: float | None = None  # by the measure of its task: bits per byte, accuracy in per cent, BLEU, ...
    unit: str = ""
    lower_is_better: bool = False
    label: str = ""  # a remark that belongs beside the score
    seconds: float | None = None  # of training
    bytes: int | None = None  # of its tensors
    parameters: int | None = None
    flops: float | None = None  # of one token after a full context
    modified: float | None = None  # in seconds since 1970
    has_report: bool = False
    pages: list[str] = []  # that show it
    state: Literal["", "training", "stopped"] = ""
    resumable: bool = False
    resume_command: str = ""
    error: str = ""  # why it cannot be read


class Curve(BaseModel):
    """Rows of a run's metrics from `offset` on, column by column; null where a row has no such number."""

    offset: int  # of the next request
    restarted: bool  # the file is another than before: discard earlier rows
    more: bool  # there is more to read already
    columns: dict[str, list[float | None]]
    events: list[tuple[int, str]]
    sample: str  # the last text that was generated during training
    result: float | None  # bits per byte of the held-out text, where it was measured


def router(studio: Studio) -> APIRouter:
    routes, rows = ComputedRoutes(studio, "runs"), RunRows(studio)
    routes.compute("/runs", rows.all, method="GET", response_model=list[RunRow])
    routes.compute("/models", models, studio, method="GET")
    routes.compute("/curve", curve, studio, method="GET", response_model=Curve)
    routes.compute("/compare", compare, studio, method="GET")
    routes.compute("/report", report, studio, method="GET", response_class=FileResponse,
                   responses={200: {"content": {"text/html": {}}}})  # fmt: skip
    return routes


def models(_: Ticket, studio: Studio) -> list[dict[str, Any]]:
    """The models in memory, and the progress of those that are loading."""
    return studio.models.states()


def curve(_: Ticket, studio: Studio, run: Name, offset: Annotated[int, Query(ge=0, le=1 << 50)] = 0) -> dict[str, Any]:
    """The metrics of training, step by step; ask again from `offset` for what was written since."""
    return _read_curve(studio, run, offset)


def compare(_: Ticket, studio: Studio, run: Annotated[list[Name], Query(min_length=1, max_length=2)]) -> dict[str, Any]:
    """The settings in which two runs differ, and their results; of one run, all settings."""
    return _compare(run, [studio.models.record(name) for name in run])


def report(_: Ticket, studio: Studio, run: Name) -> FileResponse:
    """The report page that training wrote."""
    path = _file(studio, run, REPORT)
    if path is None:
        raise NotFound(f"{run} has no {REPORT}; it is written when training ends")
    return FileResponse(path, headers={"content-security-policy": REPORT_POLICY}, media_type=HTML)


class RowEntry(NamedTuple):
    """A row as long as the run's files do not change, and what the rest of it depends on."""

    version: tuple[Version, ...] | None
    row: dict[str, Any]
    unfinished: bool = False
    why_not_resumable: str = "it cannot be read"  # by its files; by what it would read is asked again
    needs: ResumeNeeds | None = None


class RunRows:
    """The rows of all runs; those of runs whose files changed are made again."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._cache: dict[str, RowEntry] = {}  # replaced as a whole, so that no lock is needed

    def all(self, ticket: Ticket) -> list[dict[str, Any]]:
        """Every run of the folder."""
        runs = self.studio.models.index.runs()
        entries = self._entries(runs, ticket)
        current = self.studio.training.current()
        trained = current.run if current is not None and current.state != "ended" else None
        reasons: dict[ResumeNeeds, str] = {}  # many runs were trained on the same text
        rows = []
        for run, entry in zip(runs, entries, strict=True):
            reason = entry.why_not_resumable
            if not reason and entry.needs is not None:
                if entry.needs not in reasons:
                    reasons[entry.needs] = why_not_by_needs(entry.needs, self.studio.root)
                reason = reasons[entry.needs]
            state = _state(run, entry.unfinished, not reason, trained)
            if "resume_command" in state:
                state["resume_command"] = public_command(state["resume_command"], self.studio.root)
            rows.append(entry.row | state)
        return rows

    def _entries(self, runs: Sequence[IndexedRun], ticket: Ticket) -> list[RowEntry]:
        before, entries = self._cache, dict[str, RowEntry]()
        try:
            for run in runs:
                ticket.check()
                entries[run.name] = _current_entry(self.studio, run, before.get(run.name))
        except BaseException:
            self._cache = before | entries  # the next request begins where this one was stopped
            raise
        self._cache = entries
        return list(entries.values())


def _state(run: IndexedRun, unfinished: bool, resumable: bool, trained: str | None) -> dict[str, Any]:
    """The part of a row that may change while the run's files do not."""
    if run.name == trained:
        return {"state": "training"}
    if not unfinished:
        return {"resumable": resumable}
    if _is_trained_elsewhere(run.path):
        return {"state": "training"}
    return {"state": "stopped", "resumable": resumable, "resume_command": resume_command(run.path)}


def _is_trained_elsewhere(path: Path) -> bool:
    """By its lock; whether a process of another machine lives, only its metrics tell."""
    holder = living_holder(path)
    age = time.time_ns() - _modified(path / METRICS)
    return bool(holder) and (holder.get("host") == socket.gethostname() or age < ACTIVE_SECONDS * 1_000_000_000)


def _current_entry(studio: Studio, run: IndexedRun, before: RowEntry | None) -> RowEntry:
    if before is not None and run.version is not None and before.version == run.version:
        return before
    row: dict[str, Any] = {"run": run.name, "has_report": _file(studio, run.name, REPORT, run.path) is not None}
    row["modified"] = _modified(run.path / CONFIG) / 1e9 or None
    try:
        record = read_record(run.path)
        made = RunRow(**row, **_row_from_record(record, run.path)).model_dump()
        by_files = why_not_by_files(run.path, studio.root)
        return RowEntry(run.version, made, run_rows.is_unfinished(record), by_files, needs_of(record))
    except UserError as error:
        reason = public_line(str(error), studio.root)
    except Exception as error:  # one damaged record must not hide the others
        reason = f"its {CONFIG} is damaged or foreign: {type(error).__name__}"
    return RowEntry(run.version, RunRow(**row, error=reason).model_dump())


def _row_from_record(record: dict[str, Any], path: Path) -> dict[str, Any]:
    scores = run_rows.figures_of(record)
    measure, value = scores[0] if scores else ("", None)
    task = str(record.get("task", ""))
    return {
        "task": task, "model": str(record.get("model", "")), "detail": run_rows.detail_of(record),
        "corpus": run_rows.without_folders(run_rows.trained_on(record)), "text": run_rows.measured_text(record).title,
        "score": value, **_unit(measure, value),
        "label": run_rows.result_label(record),
        "seconds": None if run_rows.is_unfinished(record) else record.get("train_seconds"),
        "bytes": (path / TENSORS).stat().st_size if (path / TENSORS).is_file() else None,
        "parameters": run_rows.parameters_of(record, path), "flops": run_rows.operations_of(record),
        "pages": [page for page in PAGES.get(task, ()) if page != "answer" or not run_rows.is_unfinished(record)],
    }  # fmt: skip


def _unit(measure: str, value: float | None) -> dict[str, Any]:
    """A score as the page shows it: shares in per cent."""
    if measure == run_rows.BITS:
        return {"unit": "bits per byte", "lower_is_better": True}
    if measure in run_rows.SHARES.values() and value is not None:
        return {"score": 100 * value, "unit": f"% {measure}"}
    return {"unit": measure}


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _file(studio: Studio, run: str, name: str, path: Path | None = None) -> Path | None:
    """A file of a run; None where there is none, or where a link leads out of the folder."""
    file = (path or studio.models.path(run)) / name
    return file if file.is_file() and file.resolve().is_relative_to(studio.root) else None


# ---------------------------------------------------------------------- curves


def _read_curve(studio: Studio, run: str, offset: int) -> dict[str, Any]:
    path, record = _file(studio, run, METRICS), studio.models.record(run)
    data, restarted = b"", False
    if path is not None:
        with open(path, "rb") as file:
            restarted = offset > file.seek(0, 2)
            offset = 0 if restarted else offset
            file.seek(offset)
            data = file.read(MAX_READ_BYTES)
    rows, length = rows_and_length(data)
    result = run_rows.value_at(record, "result.bits_per_byte")
    return {
        "offset": offset + length, "restarted": restarted, "more": len(data) == MAX_READ_BYTES and length > 0,
        "columns": _columns([row for row in rows if "event" not in row and number_in(row.get("step")) is not None]),
        "events": [(int(row["step"]), f"{row['event']}: {row.get('why', '')}"[:200]) for row in rows
                   if "event" in row and number_in(row.get("step")) is not None][:MAX_EVENTS],
        "sample": next((str(row["sample"])[:400] for row in reversed(rows) if row.get("sample")), ""),
        "result": number_in(result),
    }  # fmt: skip


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[float | None]]:
    """The columns that have a number in them, whatever the task measures."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if number_in(value) is not None)
    known = [name for name in names if COLUMN_NAME.fullmatch(name)][:MAX_COLUMNS]
    return {name: [number_in(row.get(name)) for row in rows] for name in known}


# ---------------------------------------------------------------------- two runs


def _compare(names: list[str], records: list[dict[str, Any]]) -> dict[str, Any]:
    settings, same = _side_by_side([run_rows.settings_of(record) for record in records]), 0
    if len(names) == 2:
        differ = [setting for setting in settings if setting["values"][0] != setting["values"][1]]
        settings, same = differ, len(settings) - len(differ)
    return {
        "runs": names, "settings": settings, "same_settings": same,
        "results": _side_by_side([run_rows.measured_of(record) for record in records]),
    }  # fmt: skip


def _side_by_side(columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(name for column in columns for name in column))
    names.sort(key=lambda name: not all(name in column for column in columns))  # what only one has comes last
    return [{"name": name, "values": [_plain(column.get(name)) for column in columns]} for name in names]


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
