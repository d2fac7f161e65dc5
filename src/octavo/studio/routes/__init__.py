"""What the pages ask: one file a page."""

from collections.abc import Callable

from fastapi import APIRouter

from octavo.studio.app import Studio
from octavo.studio.routes import answer, classify, exercises, inside, reading, runs, trainings, writing

ROUTES: tuple[Callable[[Studio], APIRouter], ...] = (
    runs.router,
    trainings.router,
    reading.router,
    writing.router,
    inside.router,
    classify.router,
    answer.router,
    exercises.router,
)
