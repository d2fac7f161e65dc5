"""What the pages ask: one file a page."""

from collections.abc import Callable

from fastapi import APIRouter

from octavo.studio.routes import answer, classify, exercises, runs, training
from octavo.studio.routes import inspect as inside
from octavo.studio.routes import read as reading
from octavo.studio.routes import write as writing
from octavo.studio.server.app import Studio

ROUTES: tuple[Callable[[Studio], APIRouter], ...] = (
    runs.router,
    training.router,
    reading.router,
    writing.router,
    inside.router,
    classify.router,
    answer.router,
    exercises.router,
)
