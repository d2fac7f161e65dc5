"""The studio's app: what the routes share, how mistakes are told, and the pages."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

from octavo import __version__
from octavo.errors import UserError
from octavo.studio.server.model_cache import Shelf, Unknown
from octavo.studio.server.request_guard import HEADERS, Guard
from octavo.studio.server.scheduler import Busy, Gone, TooLong, Work
from octavo.studio.server.training_process import Occupied, Trainings

WEB = Path(__file__).parents[1] / "web"
TEXT = 20_000  # characters of a text that is asked about
MOST_VALUES, DEEPEST = 5000, 8  # of a request's JSON: more would keep the others waiting while it is looked through
STATUS: dict[type[Exception], int] = {  # of users' mistakes; the rest are 400
    Unknown: 404, Occupied: 409, Busy: 503, TooLong: 503,
}  # fmt: skip
GONE = 499  # nobody reads it
ERRORS: dict[int | str, dict[str, Any]] = {  # what every route may answer besides
    400: {"description": "what was asked cannot be done; `error` says why and what to do instead"},
    404: {"description": "there is no such run, or no such text"},
    409: {"description": "another training run, or something of that name, is in the way"},
    413: {"description": "the request is too large"},
    422: {"description": "the request is not of the form that is described"},
    503: {"description": "too many ask at once, or it took too long"},
}


class Mistake(BaseModel):
    """What went wrong, in plain words."""

    error: str


class Asked(BaseModel):
    """A request; what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _one_kind_of_number(cls, given: Any) -> Any:
        check_size(given)
        return whole(given)


def check_size(value: Any) -> None:
    """Refuse JSON of too many values, or nested too deep, before they are looked at one by one."""
    level, seen = [value], 0
    for _ in range(DEEPEST):
        found = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        seen += sum(map(len, found))
        if seen > MOST_VALUES:
            raise ValueError(f"a request may have {MOST_VALUES} values; send fewer")
        level = [value for one in found for value in one]
    if level:
        raise ValueError(f"values may be nested {DEEPEST} deep; send flatter ones")


def whole(value: Any) -> Any:
    """JSON has one kind of number, so 3.0 is 3."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: whole(one) for name, one in value.items()}
    return [whole(one) for one in value] if isinstance(value, list) else value


@dataclass
class Studio:
    """What the routes share."""

    shelf: Shelf
    work: Work = field(default_factory=Work)
    trainings: Trainings = field(init=False)

    def __post_init__(self) -> None:
        self.trainings = Trainings(self.root, self.shelf.device.type)

    @property
    def root(self) -> Path:
        return self.shelf.root

    def close(self) -> None:
        """End what is in work, and what is being trained."""
        self.work.close()
        self.trainings.close()


class Json(JSONResponse):
    """JSON as the standard has it: what is not finite is null."""

    def render(self, content: Any) -> bytes:
        return json.dumps(finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
            "utf-8", "backslashreplace"
        )


def finite(value: Any) -> Any:
    """The value with None in place of what is not a finite number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value


def make_app(studio: Studio, token: str = "", names: Iterable[str] = (), numbers: bool = False) -> FastAPI:
    """The app with its guard; token, names and numbers are the guard's."""
    from octavo.studio.routes import ROUTES

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(studio.close)  # here, because a signal may end the server without coming back to us

    app = FastAPI(
        title="octavo studio", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json",
        default_response_class=Json, lifespan=life,
        description="Looks inside the models of one folder, and trains new ones there. Texts that are read are gone.",
    )  # fmt: skip
    app.state.studio = studio
    shared = {status: {**told, "model": Mistake} for status, told in ERRORS.items()}
    for make_router in ROUTES:
        app.include_router(make_router(studio), prefix="/api", responses=shared)
    app.add_exception_handler(UserError, _mistake)
    app.add_exception_handler(Gone, _gone)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)
    app.get("/", include_in_schema=False)(_index)
    app.mount("/web", StaticFiles(directory=WEB), name="web")
    app.add_middleware(Guard, names=tuple(names), token=token, numbers=numbers)
    return app


async def _index() -> FileResponse:
    return FileResponse(WEB / "index.html", media_type="text/html; charset=utf-8")


async def _mistake(_: Request, error: Exception) -> Response:
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 400)
    return Json({"error": str(error)}, status, {"retry-after": "1"} if status == 503 else None)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=GONE)


async def _malformed(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = [
        f"{'.'.join(str(part) for part in one['loc'][1:]) or 'the request'}: {_in_words(one)}" for one in error.errors()
    ]
    return Json({"error": "; ".join(told[:3])}, 422)


def _in_words(wrong: Mapping[str, Any]) -> str:
    if wrong["type"] == "string_too_long":
        most, here = wrong["ctx"]["max_length"], len(wrong["input"])
        return f"at most {most:,} characters are read, and these are {here:,}; shorten it"
    return str(wrong["msg"])


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = {404: "there is nothing at this address", 405: "this address is not asked in this way"}
    return Json({"error": told.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


async def _bug(_: Request, error: Exception) -> Response:
    told = f"that was a bug in octavo, not your mistake ({type(error).__name__}); the terminal has the details"
    return Json({"error": told}, 500, HEADERS)  # it does not pass the guard
