"""Training from the page: the forms, the texts to train on, and the one run that is in progress."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from octavo.io.run_folder import CONFIG, METRICS, STATE
from octavo.io.system import NOT_A_LINK
from octavo.studio.server.app import RequestBody, RunRequest, Studio
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.error_text import public_command, public_line
from octavo.studio.server.request_guard import MAX_BODY_BYTES
from octavo.studio.server.scheduler import Ticket
from octavo.studio.server.text_store import MAX_NAME_CHARACTERS, MIN_TEXT_BYTES, Text
from octavo.studio.server.training_forms import DEFAULT_SECONDS, MAX_SECONDS, MIN_SECONDS, Form, forms
from octavo.studio.server.training_process import RUN_NAME, TrainingProcess, ending_in_words
from octavo.tasks.task import TASKS, find_task
from octavo.training.checkpoint import FILE
from octavo.training.metrics_log import read_rows

TAIL_BYTES = 1 << 16  # of metrics.jsonl, which hold its last row
PLAIN_TEXT = {"type": "string", "minLength": MIN_TEXT_BYTES, "maxLength": MAX_BODY_BYTES, "pattern": "^[^\\x00]+$"}
UPLOAD = {"requestBody": {"required": True, "content": {"text/plain": {"schema": PLAIN_TEXT}}}}


class Start(RequestBody):
    """A new run, with the settings of the model's form."""

    model: str = Field(max_length=40, json_schema_extra={"enum": list(forms())})
    corpus: str = Field(max_length=200)
    run: str = Field(max_length=64, pattern=f"^{RUN_NAME}$")
    seconds: float = Field(default=DEFAULT_SECONDS, ge=MIN_SECONDS, le=MAX_SECONDS, allow_inf_nan=False)
    settings: dict[str, int | float | Annotated[str, Field(max_length=40)]] = Field(default={}, max_length=64)


class Resume(RunRequest):
    """Resume a run, up to its own budget, or up to so many seconds in all."""

    seconds: float | None = Field(default=None, ge=MIN_SECONDS, le=MAX_SECONDS, allow_inf_nan=False)


class Stop(RequestBody):
    """Stop the training run."""


def router(studio: Studio) -> APIRouter:
    routes = ComputedRoutes(studio, "training")

    routes.compute("/forms", training_forms, studio, method="GET")

    @routes.post("/texts", openapi_extra=UPLOAD)
    async def send(
        request: Request, name: Annotated[str, Query(min_length=1, max_length=4 * MAX_NAME_CHARACTERS)]
    ) -> Text:
        """Store a text beside the runs, to train on."""
        data = await request.body()  # the guard has limited it
        return await studio.scheduler.run(request, lambda _: studio.training.texts.store(name, data))

    routes.compute("/training", current, studio, method="GET")
    routes.compute("/training/stop", stop, studio)
    routes.compute("/training", start, studio)
    routes.compute("/training/resume", resume, studio)
    return routes


def training_forms(_: Ticket, studio: Studio) -> dict[str, list[Form] | list[Text] | list[str] | float]:
    """The models that can be trained from the page, their settings, the texts, and the limits."""
    return {
        "models": list(forms().values()), "texts": studio.training.texts.all(), "min_seconds": MIN_SECONDS,
        "max_seconds": MAX_SECONDS, "default_seconds": DEFAULT_SECONDS, "max_bytes": MAX_BODY_BYTES,
        "file_tasks": [name for name in TASKS if find_task(name).takes_file],
    }  # fmt: skip


def current(_: Ticket, studio: Studio) -> dict[str, Any] | None:
    """The run that is being trained in this folder, or was last."""
    return _status(studio, studio.training.current())


def stop(_: Ticket, studio: Studio, asked: Stop) -> dict[str, Any] | None:
    """Stop training; a checkpoint is saved first."""
    studio.training.stop()
    return _status(studio, studio.training.current())


def start(_: Ticket, studio: Studio, asked: Start) -> dict[str, Any] | None:
    """Train a new run."""
    training = studio.training.start(asked.model, asked.corpus, asked.run, asked.seconds, asked.settings)
    return _status(studio, training)


def resume(_: Ticket, studio: Studio, asked: Resume) -> dict[str, Any] | None:
    """Resume a run that was stopped or, with more seconds, one that is finished."""
    path = studio.models.path(asked.run)
    return _status(studio, studio.training.resume(asked.run, path, studio.models.record(asked.run), asked.seconds))


def _status(studio: Studio, training: TrainingProcess | None) -> dict[str, Any] | None:
    """The run that is being trained, or the last that was; state is running, stopping, ended or elsewhere."""
    if training is None:
        return None
    path, state = studio.root / training.run, training.state
    inside = path.resolve().is_relative_to(studio.root) and path != studio.root
    trained = _trained_seconds(path) if inside else None
    remaining = None if training.seconds is None or state == "ended" else max(0.0, training.seconds - (trained or 0.0))
    exit_code = training.process.returncode if training.process is not None else None
    command = public_command(training.command, studio.root)
    log = [public_line(line, studio.root) for line in studio.training.log_tail()]
    return {
        "run": training.run, "state": state, "command": command, "started": training.started,
        "budget_seconds": training.seconds, "trained_seconds": trained, "remaining_seconds": remaining,
        "log": log, "exit_code": exit_code, "has_curve": inside and (path / CONFIG).is_file(),
        "status": _status_in_words(training, path, trained, exit_code),
    }  # fmt: skip


def _status_in_words(training: TrainingProcess, path: Path, trained: float | None, exit_code: int | None) -> str:
    if training.state == "stopping":
        return "stopping; it saves a checkpoint first" if (path / CONFIG).is_file() else "stopping"
    if training.state == "elsewhere":
        return f"being trained by another studio, as process {training.pid}; stop it there"
    if training.state == "running":
        if trained is None or (path / METRICS).stat().st_mtime < training.started:
            return "preparing" if training.seconds is not None else "fitting the model"
        is_training = training.seconds is None or trained < training.seconds
        return "training" if is_training else "evaluating on held-out data"
    if exit_code == 0:
        return "finished"
    has_checkpoint = (path / STATE / FILE).is_file()
    if not training.stopping.is_set() and exit_code != 128 + signal.SIGINT:
        return ending_in_words(exit_code or 0, has_checkpoint)
    return "stopped; its checkpoint is saved" if has_checkpoint else "stopped; nothing was saved"


def _trained_seconds(path: Path) -> float | None:
    """Seconds of training by the last row of metrics.jsonl."""
    try:
        with os.fdopen(os.open(path / METRICS, os.O_RDONLY | NOT_A_LINK), "rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            file.seek(start)
            data = file.read(TAIL_BYTES)
    except OSError:
        return None
    rows = read_rows(data.partition(b"\n")[2] if start else data)
    seconds = [row["seconds"] for row in rows if "step" in row and type(row.get("seconds")) in (int, float)]
    return float(seconds[-1]) if seconds and math.isfinite(seconds[-1]) else None
