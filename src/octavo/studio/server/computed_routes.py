"""Routes whose responses are computed, in a thread or, where computing cannot be interrupted, in a process."""

from __future__ import annotations

import json
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.requests import Request

from octavo.studio.server.app import RunRequest, StandardJson, Studio, encode_json
from octavo.studio.server.scheduler import ClientDisconnected, Ticket
from octavo.studio.server.worker_pool import ITEM, REFUSED, WorkerFailed, needs_process

Place = Literal["thread", "by run", "process", "exercise"]  # by run: in a process where the run needs it
Asked = Mapping[str, Any]  # the parameters of a request by name


@dataclass(frozen=True)
class Computed:
    """What a route computes."""

    path: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    asked: list[Parameter]

    def call(self, ticket: Ticket, asked: Asked) -> Response | Iterator[Any]:
        """The response, or the items of a stream. It is encoded here, because a long one would block the event loop."""
        result = self.function(ticket, *self.args, **asked)
        return result if isinstance(result, Response | Iterator) else StandardJson(result)

    def parse(self, values: Asked) -> Asked:
        """The parameters from JSON, as a worker gets them."""
        kinds = {parameter.name: parameter.annotation for parameter in self.asked}
        return {name: kinds[name].model_validate_json(json.dumps(value)) for name, value in values.items()}


class ComputedRoutes(APIRouter):
    """Routes that are computed by functions of a ticket and what was asked."""

    def __init__(self, studio: Studio, tag: str) -> None:
        super().__init__(tags=[tag])
        self._studio = studio
        self.computed: dict[str, Computed] = {}

    def compute(
        self, path: str, function: Callable[..., Any], *args: Any, method: str = "POST", place: Place = "thread",
        **described: Any,
    ) -> None:  # fmt: skip
        """Respond with function(ticket, *args, ...); its further parameters are those of the request.

        A dataclass or a model that it says it returns is the schema of the response. place: where it is computed.
        """
        computed = self._describe(path, function, args)
        first_place = "exercise" if place == "exercise" else "thread"

        async def endpoint(request: Request, **asked: Any) -> Response:
            response = await self._studio.scheduler.run(
                request, self._in_thread, computed, place, asked, place=first_place
            )
            if response is None:
                response = await self._studio.scheduler.run(request, self._in_process, computed, asked, place="process")
            return response

        returned = typing.get_type_hints(function).get("return")
        schema = None if isinstance(returned, type) and issubclass(returned, Response) else returned
        self._add(path, endpoint, computed, method, {"response_model": schema, **described})

    def stream(
        self, path: str, function: Callable[..., Iterator[Any]], *args: Any,
        respond: Callable[[AsyncIterator[bytes]], Awaitable[Response]], **described: Any,
    ) -> None:  # fmt: skip
        """Respond with the items that function(ticket, *args, ...) yields, encoded, as `respond` makes a response."""
        computed = self._describe(path, function, args)

        async def endpoint(request: Request, **asked: Any) -> Response:
            scheduler = self._studio.scheduler
            if await scheduler.run(request, self._is_for_process, "by run", asked):
                return await respond(scheduler.stream(request, self._items, computed, asked, place="process"))
            return await respond(scheduler.stream(request, self._encoded, computed, asked))

        self._add(path, endpoint, computed, "POST", {"response_model": None, **described})

    def _describe(self, path: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Computed:
        asked = list(signature(function, eval_str=True).parameters.values())[1 + len(args) :]
        computed = self.computed[path] = Computed(path, function, args, asked)
        return computed

    def _add(self, path: str, endpoint: Any, computed: Computed, method: str, described: dict[str, Any]) -> None:
        request = Parameter("request", Parameter.KEYWORD_ONLY, annotation=Request)
        asked = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in computed.asked]
        endpoint.__signature__ = Signature([request, *asked])
        endpoint.__name__, endpoint.__doc__ = computed.function.__name__, computed.function.__doc__
        self.add_api_route(path, endpoint, methods=[method], **described)

    # ------------------------------------------------------------------ in the scheduler's threads

    def _in_thread(self, ticket: Ticket, computed: Computed, place: Place, asked: Asked) -> Response | None:
        if self._is_for_process(ticket, place, asked):
            return None
        response = computed.call(ticket, asked)
        assert isinstance(response, Response)
        return response

    def _encoded(self, ticket: Ticket, computed: Computed, asked: Asked) -> Iterator[bytes]:
        for item in computed.call(ticket, asked):  # type: ignore[union-attr]
            yield encode_json(item)

    def _is_for_process(self, _: Ticket, place: Place, asked: Asked) -> bool:
        if self._studio.pool is None or place in ("thread", "exercise"):
            return False
        models = self._studio.models
        folders = {run: models.path(run) for run in runs_in(asked)}  # here, so that no process starts for a wrong name
        return place == "process" or any(needs_process(path, models.record(run)) for run, path in folders.items())

    # ------------------------------------------------------------------ by a worker, for which a thread waits

    def _items(self, ticket: Ticket, computed: Computed, asked: Asked) -> Iterator[bytes]:
        for message in self._messages(ticket, computed, asked):
            if message[:1] == ITEM:
                yield message[1:]

    def _in_process(self, ticket: Ticket, computed: Computed, asked: Asked) -> Response:
        [message] = self._messages(ticket, computed, asked)
        about, _, body = message[1:].partition(b"\n")
        described = json.loads(about)
        return Response(body, described["status"], described["headers"])

    def _messages(self, ticket: Ticket, computed: Computed, asked: Asked) -> Iterator[bytes]:
        assert self._studio.pool is not None
        values = {name: value.model_dump(mode="json") for name, value in asked.items() if isinstance(value, BaseModel)}
        for message in self._studio.pool.messages(ticket, computed.path, "+".join(runs_in(asked)), values):
            if message[:1] == REFUSED:
                if message == REFUSED:
                    raise ClientDisconnected
                refused = json.loads(message[1:])
                raise WorkerFailed(refused["status"], refused["message"])
            yield message


def runs_in(asked: Asked) -> list[str]:
    """The names of the runs that a request is about."""
    bodies = [value for value in asked.values() if isinstance(value, RunRequest)]
    return [name for body in bodies for name in (body.run, getattr(body, "other", None)) if name is not None]
