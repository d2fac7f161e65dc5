"""The studio's app: what the routes share, how mistakes are told, and the pages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

from octavo.errors import UserError
from octavo.studio.guard import Guard
from octavo.studio.shelf import Shelf, Unknown
from octavo.studio.work import Busy, Gone, TooLong, Work
from octavo.version import VERSION

WEB = Path(__file__).parent / "web"
TEXT = 20_000  # characters of a text that is asked about
STATUS: dict[type[Exception], int] = {Unknown: 404, Busy: 503, TooLong: 503}  # of users' mistakes; the rest are 400
GONE = 499  # nobody reads it
ERRORS: dict[int | str, dict[str, Any]] = {  # what every route may answer besides
    400: {"description": "what was asked cannot be done; `error` says why and what to do instead"},
    404: {"description": "there is no such run"},
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


@dataclass
class Studio:
    """What the routes share."""

    shelf: Shelf
    work: Work = field(default_factory=Work)

    @property
    def root(self) -> Path:
        return self.shelf.root

    def close(self) -> None:
        """End what is in work."""
        self.work.close()


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

    app = FastAPI(
        title="octavo studio", version=VERSION, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json",
        default_response_class=Json,
        description="Looks inside the models of one folder. Nothing here changes a model; texts are not kept.",
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
        f"{'.'.join(str(part) for part in one['loc'][1:]) or 'the request'}: {one['msg']}" for one in error.errors()
    ]
    return Json({"error": "; ".join(told[:3])}, 422)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = {404: "there is nothing at this address", 405: "this address is not asked in this way"}
    return Json({"error": told.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


async def _bug(_: Request, error: Exception) -> Response:
    told = f"that was a bug in octavo, not your mistake ({type(error).__name__}); the terminal has the details"
    return Json({"error": told}, 500)
