"""The runs of the folder, and which models are in memory."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from octavo.errors import UserError
from octavo.folder import REPORT
from octavo.studio.app import Studio


class ShownRun(BaseModel):
    """One row of the runs page."""

    run: str
    task: str  # "" predicts the next token
    model: str
    corpus: str
    figure: float | None  # the run's own: bits per byte, accuracy, BLEU, ...
    unit: str
    seconds: float | None  # that training took
    report: bool
    error: str  # where it cannot be read


class ShownModel(BaseModel):
    """A model that is in memory, or on its way there."""

    run: str
    ready: bool
    bytes: int
    share: float


def router(studio: Studio) -> APIRouter:
    routes = APIRouter(tags=["runs"])

    @routes.get("/runs", response_model=list[ShownRun])
    def runs() -> list[dict[str, Any]]:
        """Every run of the folder."""
        return [_row(studio, name) for name in studio.shelf.names()]

    @routes.get("/models", response_model=list[ShownModel])
    def models() -> list[dict[str, Any]]:
        """The models in memory, and how far those that are being read have come."""
        return studio.shelf.states()

    return routes


def _row(studio: Studio, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run": name, "task": "", "model": "", "corpus": "", "figure": None, "unit": "", "seconds": None,
        "report": (studio.shelf.path(name) / REPORT).is_file(), "error": "",
    }  # fmt: skip
    try:
        told = studio.shelf.record(name)
    except UserError as error:
        return {**row, "error": str(error)}
    result = told.get("result") or {}
    return {
        **row, "task": told.get("task", ""), "model": str(told.get("model", "")),
        "corpus": str((told.get("corpus") or {}).get("name", "")), "figure": result.get("bits_per_byte"),
        "unit": "bits per byte" if "bits_per_byte" in result else "", "seconds": told.get("train_seconds"),
    }  # fmt: skip
