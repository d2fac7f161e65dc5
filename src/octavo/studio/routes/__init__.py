"""What the pages ask: one file a page."""

from collections.abc import Callable

from fastapi import APIRouter

from octavo.studio.app import Studio
from octavo.studio.routes import reading, runs

ROUTES: tuple[Callable[[Studio], APIRouter], ...] = (runs.router, reading.router)
