"""Training from the page: what can be asked for, texts to learn from, and the one run that is in progress."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from octavo.io.run_folder import CONFIG, METRICS, STATE
from octavo.studio.server.app import RequestBody, Studio
from octavo.studio.server.request_guard import MAX_BODY_BYTES
from octavo.studio.server.text_store import MAX_NAME_CHARACTERS, MIN_TEXT_BYTES, Text
from octavo.studio.server.training_forms import DEFAULT_SECONDS, MAX_SECONDS, MIN_SECONDS, OFFERED, forms
from octavo.studio.server.training_process import RUN_NAME, TrainingProcess
from octavo.training.checkpoint import FILE
from octavo.training.metrics_log import read_rows

TAIL = 1 << 16  # bytes of the end of metrics.jsonl in which the last row is looked for
PLAIN = {"type": "string", "minLength": MIN_TEXT_BYTES, "maxLength": MAX_BODY_BYTES, "pattern": "^[^\\x00]+$"}
RAW = {"requestBody": {"required": True, "content": {"text/plain": {"schema": PLAIN}}}}


class Start(RequestBody):
    """A new run; settings are those of the model's form."""

    model: str = Field(max_length=40, json_schema_extra={"enum": list(OFFERED)})
    corpus: str = Field(max_length=200)
    run: str = Field(max_length=64, pattern=f"^{RUN_NAME}$")
    seconds: float = Field(default=DEFAULT_SECONDS, ge=MIN_SECONDS, le=MAX_SECONDS, allow_inf_nan=False)
    settings: dict[str, int | float | Annotated[str, Field(max_length=40)]] = Field(default={}, max_length=24)


class Resume(RequestBody):
    """Go on with a run, for as long as it was to be trained, or for so many seconds in all."""

    run: str = Field(max_length=400)
    seconds: float | None = Field(default=None, ge=MIN_SECONDS, le=MAX_SECONDS, allow_inf_nan=False)


class Stop(RequestBody):
    """Stop what is being trained."""


class ShownText(BaseModel):
    """A text to train on."""

    name: str
    bytes: int
    told: str


class ShownSetting(BaseModel):
    """A field of a model's form."""

    name: str
    kind: Literal["whole", "number", "choice"]
    usual: int | float | str | None
    told: str
    least: float | None
    most: float | None
    choices: list[str]
    main: bool


class ShownForm(BaseModel):
    """What can be asked of a model."""

    model: str
    told: str
    steps: bool
    settings: list[ShownSetting]


class Forms(BaseModel):
    """What can be trained, and on what."""

    models: list[ShownForm]
    texts: list[ShownText]
    least_seconds: float
    most_seconds: float
    usual_seconds: float
    most_bytes: int  # of a text that is sent


class ShownTraining(BaseModel):
    """The run that is being trained, or the last that was."""

    run: str
    state: Literal["running", "stopping", "ended", "elsewhere"]
    told: str  # where it stands, in words
    command: str
    began: float
    elapsed: float
    seconds: float | None  # its budget
    trained: float | None  # seconds of it that are spent
    left: float | None
    lines: list[str]
    code: int | None  # 0: all well
    shown: bool  # there is a folder to draw a curve from


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["training"])

    @routes.get("/forms", response_model=Forms)
    def what() -> dict[str, Any]:
        """The models that can be trained from the page, their settings, and the texts."""
        return {
            "models": list(forms().values()), "texts": [_text(one) for one in studio.training.texts.all()],
            "least_seconds": MIN_SECONDS, "most_seconds": MAX_SECONDS, "usual_seconds": DEFAULT_SECONDS,
            "most_bytes": MAX_BODY_BYTES,
        }  # fmt: skip

    @routes.post("/texts", response_model=ShownText, openapi_extra=RAW)
    async def send(
        request: Request, name: Annotated[str, Query(min_length=1, max_length=4 * MAX_NAME_CHARACTERS)]
    ) -> Any:
        """Keep a text beside the runs, to train on."""
        data = await request.body()  # which the guard has taken in, up to its limit
        return _text(await studio.scheduler.run(request, lambda _: studio.training.texts.store(name, data)))

    @routes.get("/training", response_model=ShownTraining | None)
    def current() -> dict[str, Any] | None:
        """What is being trained in this folder, or was last."""
        return _shown(studio, studio.training.current())

    @routes.post("/training", response_model=ShownTraining)
    async def start(asked: Start, request: Request) -> Any:
        """Begin to train a new run."""
        return await studio.scheduler.run(request, _start, studio, asked)

    @routes.post("/training/resume", response_model=ShownTraining)
    async def resume(asked: Resume, request: Request) -> Any:
        """Go on with a run that was stopped, or, with more seconds, with one that is finished."""
        return await studio.scheduler.run(request, _resume, studio, asked)

    @routes.post("/training/stop", response_model=ShownTraining | None)
    async def stop(asked: Stop) -> dict[str, Any] | None:
        """Stop it; a checkpoint is saved first."""
        studio.training.stop()
        return _shown(studio, studio.training.current())

    return routes


def _start(_: Any, studio: Studio, asked: Start) -> dict[str, Any] | None:
    began = studio.training.start(asked.model, asked.corpus, asked.run, asked.seconds, asked.settings)
    return _shown(studio, began)


def _resume(_: Any, studio: Studio, asked: Resume) -> dict[str, Any] | None:
    path = studio.models.path(asked.run)
    return _shown(studio, studio.training.resume(asked.run, path, studio.models.record(asked.run), asked.seconds))


def _text(text: Text) -> dict[str, Any]:
    return {"name": text.name, "bytes": text.bytes, "told": text.description}


def _shown(studio: Studio, training: TrainingProcess | None) -> dict[str, Any] | None:
    if training is None:
        return None
    path, state = studio.root / training.run, training.state
    inside = path.resolve().is_relative_to(studio.root) and path != studio.root
    trained = _trained(path) if inside else None
    left = None if training.seconds is None or state == "ended" else max(0.0, training.seconds - (trained or 0.0))
    code = training.process.returncode if training.process is not None else None
    return {
        "run": training.run, "state": state, "command": training.command, "began": training.started,
        "elapsed": max(0.0, time.time() - training.started), "seconds": training.seconds, "trained": trained,
        "left": left, "lines": studio.training.log_tail(), "code": code,
        "shown": inside and (path / CONFIG).is_file(), "told": _told(training, path, trained, code),
    }  # fmt: skip


def _told(training: TrainingProcess, path: Path, trained: float | None, code: int | None) -> str:
    there = (path / CONFIG).is_file()
    if training.state == "stopping":
        return "stopping; it saves a checkpoint first" if there else "stopping"
    if training.state == "elsewhere":
        return f"being trained by another studio, as process {training.pid}; stop it there"
    if training.state == "running":
        if training.seconds is None:
            return "counting"
        if trained is None or (path / METRICS).stat().st_mtime < training.started:
            return "getting ready"
        return "training" if trained < training.seconds else "measuring the text that was held out"
    if code == 0:
        return "finished"
    if not training.stopping.is_set() and code != 128 + 2:
        return "ended by a mistake; its last lines say which"
    return "stopped; its checkpoint is saved" if (path / STATE / FILE).is_file() else "stopped; nothing was kept"


def _trained(path: Path) -> float | None:
    """Seconds of training by the last row of metrics.jsonl."""
    try:
        with os.fdopen(os.open(path / METRICS, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - TAIL)
            file.seek(start)
            data = file.read(TAIL)
    except OSError:
        return None
    rows = read_rows(data.partition(b"\n")[2] if start else data)
    found = [row["seconds"] for row in rows if "step" in row and type(row.get("seconds")) in (int, float)]
    return float(found[-1]) if found and math.isfinite(found[-1]) else None
