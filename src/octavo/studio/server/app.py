"""The studio's web application: the state its routes share, its error responses, and the static pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

from octavo import __version__
from octavo.config import plain_json
from octavo.errors import UserError
from octavo.pages.markup import STYLE
from octavo.studio.server.error_text import MAX_MESSAGE_CHARACTERS, error_answer
from octavo.studio.server.model_cache import ModelCache
from octavo.studio.server.request_guard import RequestGuard
from octavo.studio.server.scheduler import MAX_PROCESSES, ClientDisconnected, Scheduler
from octavo.studio.server.training_process import TrainingManager
from octavo.studio.server.worker_pool import WorkerPool, WorkerSettings

WEB = Path(__file__).parents[1] / "web"
CSS = "text/css; charset=utf-8"
MakeRouter = Callable[["Studio"], APIRouter]  # of a file in routes/
MAX_TEXT_CHARACTERS = 20_000  # of a text in a request
MAX_JSON_VALUES, MAX_JSON_DEPTH = 5000, 8  # of a request: validating more would keep the others waiting
HTML = "text/html; charset=utf-8"
CLIENT_CLOSED_REQUEST = 499  # nobody reads the response
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {  # of every route
    400: {"description": "the request cannot be fulfilled; `error` says why and what to do instead"},
    404: {"description": "there is no such run, or no such text"},
    409: {"description": "another training run is in progress, the name is taken, or there is no room for more texts"},
    413: {"description": "the request is too large"},
    422: {"description": "the request does not match its schema"},
    503: {"description": "too many requests, or it took too long"},
}


class ErrorMessage(BaseModel):
    """What went wrong, in plain words."""

    error: str


class RequestBody(BaseModel):
    """The JSON body of a request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, value: Any) -> Any:
        check_size(value)
        return with_integers(value)


class RunRequest(RequestBody):
    """Which run."""

    run: str = Field(max_length=400)


class TextRequest(RunRequest):
    """A text, and the run that reads it."""

    text: str = Field(max_length=MAX_TEXT_CHARACTERS)


def check_size(value: Any) -> None:
    """Refuse JSON of too many values, or nested too deep, before it is validated value by value."""
    level, count = [value], 0
    for _ in range(MAX_JSON_DEPTH):
        nested = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        count += sum(map(len, nested))
        if count > MAX_JSON_VALUES:
            raise ValueError(f"a request may have {MAX_JSON_VALUES} values; send fewer")
        level = [item for items in nested for item in items]
    if level:
        raise ValueError(f"values may be nested {MAX_JSON_DEPTH} deep; send flatter ones")


def with_integers(value: Any) -> Any:
    """The value with integral floats as integers: JSON has one kind of number, so 3.0 is 3."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: with_integers(item) for name, item in value.items()}
    return [with_integers(item) for item in value] if isinstance(value, list) else value


@dataclass
class Studio:
    """The state that the routes share."""

    models: ModelCache
    scheduler: Scheduler = field(default_factory=Scheduler)
    workers: int = MAX_PROCESSES  # processes for what cannot be interrupted; 0: threads compute that too
    training: TrainingManager = field(init=False)
    pool: WorkerPool | None = field(init=False)

    def __post_init__(self) -> None:
        self.training = TrainingManager(self.root, self.models.device.type)
        of_worker = max(1, self.models.max_models // max(1, self.workers))
        about = (str(self.root), self.models.device.type, of_worker, self.models.max_bytes, torch.get_num_threads())
        self.pool = WorkerPool(WorkerSettings(*about)) if self.workers else None

    @property
    def root(self) -> Path:
        return self.models.root

    def warm_up(self) -> None:
        """Start a worker in the background, for a request that will probably come."""
        if self.pool is not None:
            self.pool.warm_up()

    def close(self) -> None:
        """End the running requests and the training run."""
        self.scheduler.close()
        if self.pool is not None:
            self.pool.close()
        self.training.close()


class StandardJson(JSONResponse):
    """JSON as the standard has it: numbers that are not finite are null."""

    def render(self, content: Any) -> bytes:
        return encode_json(content)


def encode_json(value: Any) -> bytes:
    """The value in the fewest bytes; dataclasses are objects, and numbers that are not finite are null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=vars)
    except ValueError:  # some number is not finite; replacing them is slow where a response is long
        text = json.dumps(plain_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def make_app(
    studio: Studio, token: str = "", host_names: Iterable[str] = (), allow_ip_hosts: bool = False, web: Path = WEB,
    routes: Iterable[MakeRouter] | None = None,
) -> FastAPI:  # fmt: skip
    """The app behind its request guard, which takes token, host_names and allow_ip_hosts. `web` holds the pages."""
    from octavo.studio.routes import ROUTES

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(studio.close)  # here, because a signal may end the server without returning to `serve`

    app = FastAPI(
        title="octavo studio", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json",
        default_response_class=StandardJson, lifespan=life, exception_handlers={
            UserError: _user_error, ClientDisconnected: _disconnected, RequestValidationError: _invalid_request,
            HTTPException: _http_error,
        },
        description="Inspects the models of one folder, and trains new ones there. Texts in requests are not stored.",
    )  # fmt: skip
    app.state.studio = studio
    responses = {status: {**response, "model": ErrorMessage} for status, response in ERROR_RESPONSES.items()}
    for make_router in ROUTES if routes is None else routes:
        app.include_router(make_router(studio), prefix="/api", responses=responses)
    app.get("/", include_in_schema=False)(lambda: FileResponse(web / "index.html", media_type=HTML))
    app.get("/web/pages.css", include_in_schema=False)(lambda: FileResponse(STYLE, media_type=CSS))
    app.mount("/web", StaticFiles(directory=web), name="web")
    app.add_middleware(
        RequestGuard, host_names=tuple(host_names), token=token, allow_ip_hosts=allow_ip_hosts, root=studio.root
    )
    return app


async def _user_error(request: Request, error: Exception) -> Response:
    status, message = error_answer(error, request.app.state.studio.root)
    return StandardJson({"error": message}, status, {"retry-after": "1"} if status == 503 else None)


async def _disconnected(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        f"{'.'.join(str(part) for part in problem['loc'][1:]) or 'the request'}: {_describe(problem)}"
        for problem in error.errors()
    ]
    return StandardJson({"error": " ".join("; ".join(problems[:3]).split())[:MAX_MESSAGE_CHARACTERS]}, 422)


def _describe(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "string_too_long":
        limit, length = problem["ctx"]["max_length"], len(problem["input"])
        return f"at most {limit:,} characters are read, and these are {length:,}; shorten it"
    return str(problem["msg"])


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {404: "there is nothing at this address", 405: "this address does not take that method"}
    return StandardJson({"error": messages.get(error.status_code, str(error.detail))}, error.status_code, error.headers)
