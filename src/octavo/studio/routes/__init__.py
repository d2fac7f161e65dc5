"""The API of the pages, one file a page; a page that is not listed here has no API."""

from octavo.studio.routes import answer, classify, exercises, inspect, read, runs, tag, training, write
from octavo.studio.server.app import MakeRouter

ROUTES: tuple[MakeRouter, ...] = (
    runs.router,
    training.router,
    read.router,
    write.router,
    inspect.router,
    classify.router,
    tag.router,
    answer.router,
    exercises.router,
)
