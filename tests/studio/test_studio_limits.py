"""Every request, whatever its address, is under the same limits, notices that its client left, and shows no path."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from octavo.errors import UserError
from octavo.io.run_folder import CONFIG
from octavo.studio import ModelCache, Studio, make_app
from octavo.studio.server import connection as connections
from octavo.studio.server import request_guard as guards
from octavo.studio.server import scheduler as schedules
from octavo.studio.server.error_text import error_answer, public_command, public_line
from octavo.studio.server.scheduler import ClientDisconnected, FairLock, RequestTimeout, Scheduler, Ticket, WorkFailed
from octavo.studio.server.training_process import ending_in_words
from studio_place import Reader, ask_and_leave, make_runs

NAMES = ("kn", "moods")
CANARY = "canary-folder"
Operation = tuple[str, str, dict[str, Any]]  # method, path, and what OpenAPI says of it


def make_studio(root: Path, **limits: Any) -> Studio:
    return Studio(ModelCache(root, device="cpu"), Scheduler(**limits))


OPENAPI = make_app(make_studio(Path(__file__).parent)).openapi()
OPERATIONS: list[Operation] = [
    (method, path, about) for path, methods in OPENAPI["paths"].items() for method, about in methods.items()
]  # every address of the API with each method


def every_operation() -> Any:
    return pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one[0]} {one[1]}")


def valid(schema: dict[str, Any]) -> Any:
    """The simplest value that a schema allows."""
    if "$ref" in schema:
        return valid(OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: valid(schema["properties"][name]) for name in schema.get("required", [])}
    if schema.get("type") == "array":
        return [valid(schema["items"])]
    return {"integer": 1, "number": 1.0, "string": "kn" + "n" * schema.get("minLength", 0)}[schema["type"]]


def request_for(operation: Operation) -> dict[str, Any]:
    """The arguments of a request that matches its schema."""
    method, path, about = operation
    given: dict[str, Any] = {"method": method, "params": {}}
    for parameter in about.get("parameters", []):
        value = valid(parameter["schema"])
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(value))
        elif parameter["required"]:
            given["params"][parameter["name"]] = value
    for kind, content in about.get("requestBody", {}).get("content", {}).items():
        value = valid(content["schema"])
        given |= {"content": value if kind == "text/plain" else json.dumps(value), "headers": {"content-type": kind}}
    return {**given, "url": path}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp(CANARY), *NAMES)


def browser(studio: Studio, **settings: Any) -> TestClient:
    return TestClient(make_app(studio, **settings), base_url="http://localhost", raise_server_exceptions=False)


# ---------------------------------------------------------------------- the same limits for all


@pytest.fixture(scope="module")
def full(runs: Path) -> TestClient:
    return browser(make_studio(runs, max_requests=0))


@pytest.fixture(scope="module")
def late(runs: Path) -> TestClient:
    return browser(make_studio(runs, seconds=-1.0))


@every_operation()
def test_every_address_counts_among_the_requests_that_may_wait(operation: Operation, full: TestClient) -> None:
    answer = full.request(**request_for(operation))
    assert (answer.status_code, list(answer.json())) == (503, ["error"])
    assert "requests are waiting" in answer.json()["error"]
    assert answer.headers["retry-after"] == "1"


@every_operation()
def test_every_address_has_the_time_limit(operation: Operation, late: TestClient) -> None:
    answer = late.request(**request_for(operation))
    assert answer.status_code == 503
    assert "longer than" in answer.json()["error"]


def test_every_address_notices_that_its_client_left(runs: Path) -> None:
    """The only thread is busy, so a request that did not notice would wait for it."""

    async def scene() -> None:
        studio = make_studio(runs, threads=1)
        app, busy, began = make_app(studio), Reader(), threading.Event()
        holding = asyncio.ensure_future(studio.scheduler.run(busy, hold, began))
        await asyncio.to_thread(began.wait, 10)
        for operation in OPERATIONS:
            await asyncio.wait_for(abandon(app, request_for(operation)), 10)
            assert studio.scheduler.admitted_requests == 1
        busy.left.set()
        with pytest.raises(ClientDisconnected):
            await holding
        studio.close()

    asyncio.run(scene())


def hold(ticket: Ticket, began: threading.Event) -> None:
    while True:
        with ticket.turn():
            began.set()
            time.sleep(0.005)


async def abandon(app: Any, given: dict[str, Any]) -> None:
    """Ask as a client that leaves as soon as its request is complete."""
    values = {name: value if isinstance(value, str) else value[0] for name, value in given["params"].items()}
    headers = [(name.encode(), value.encode()) for name, value in given.get("headers", {}).items()]
    await ask_and_leave(
        app, given["url"], str(given.get("content", "")).encode(), method=given["method"].upper(), headers=headers,
        query_string=urlencode(values).encode(),
    )  # fmt: skip


def test_open_requests_of_one_client_are_limited_whatever_they_ask_for(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "MAX_CLIENT_OPEN_REQUESTS", 0)
    asks = browser(make_studio(runs))
    for path in ("/", "/web/main.js", "/api/runs", "/api/openapi.json", "/nothing"):
        answer = asks.get(path)
        assert (answer.status_code, "open; try again" in answer.json()["error"]) == (503, True)


def test_a_class_that_hands_in_its_answers_does_not_keep_readers_waiting(runs: Path) -> None:
    """One process grades; those who wait for it wait outside of the threads that read."""
    studio = make_studio(runs, threads=1)
    app = make_app(studio)

    async def scene() -> tuple[int, Any]:
        scheduler, began, readers = studio.scheduler, threading.Event(), [Reader() for _ in range(20)]
        grading = [asyncio.ensure_future(scheduler.run(one, hold, began, place="exercise")) for one in readers]
        await asyncio.to_thread(began.wait, 10)
        read = await asyncio.wait_for(scheduler.run(Reader(), lambda _: 7), 10)
        asked, left = b'{"answers": ""}', asyncio.Event()
        graded = asyncio.ensure_future(ask_and_leave(app, "/api/grade", asked, left))
        done, _ = await asyncio.wait({graded}, timeout=0.5)
        assert not done, "it waits for those before it"
        for one in readers:
            one.left.set()
        await asyncio.gather(*grading, return_exceptions=True)
        return read, (await asyncio.wait_for(graded, 30))["status"]

    assert asyncio.run(scene()) == (7, 200)


def test_fifty_browsers_behind_one_address_are_below_every_limit() -> None:
    requests = 50 * 6  # connections of a browser to one host
    assert requests <= min(
        connections.MAX_CLIENT_CONNECTIONS, guards.MAX_CLIENT_OPEN_REQUESTS, schedules.MAX_CLIENT_REQUESTS
    )
    assert requests < min(connections.MAX_CONNECTIONS, guards.MAX_OPEN_REQUESTS, schedules.MAX_REQUESTS)


def test_clients_are_served_in_rotation() -> None:
    async def scene() -> list[str]:
        scheduler, order, began, busy = Scheduler(threads=1), list[str](), threading.Event(), Reader()
        holding = asyncio.ensure_future(scheduler.run(busy, hold, began))
        await asyncio.to_thread(began.wait, 10)
        clients = ["10.0.0.1"] * 5 + ["10.0.0.2"] * 2
        waiting = [
            asyncio.ensure_future(scheduler.run(Reader(client), lambda _, name: order.append(name), client))
            for client in clients
        ]
        await asyncio.sleep(0)
        busy.left.set()
        with pytest.raises(ClientDisconnected):
            await holding
        await asyncio.gather(*waiting)
        return [client[-1] for client in order]

    assert asyncio.run(scene()) == ["1", "2", "1", "2", "1", "1", "1"]


@every_operation()
def test_every_address_describes_all_that_it_takes(operation: Operation) -> None:
    """Without a schema nothing would be refused by it, and no tool could make up requests."""
    _, _, about = operation
    for parameter in about.get("parameters", []):
        assert "type" in parameter["schema"], parameter
    for content in about.get("requestBody", {}).get("content", {}).values():
        schema = content["schema"]
        schema = OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        assert schema["type"] == "string" or schema["additionalProperties"] is False
        for name, value in schema.get("properties", {}).items():
            assert {"type", "anyOf", "enum", "$ref"} & set(value), name
            assert value.get("type") != "string" or "enum" in value or "const" in value or "maxLength" in value, name


# ---------------------------------------------------------------------- work that does not check its ticket


def test_nine_who_left_work_that_cannot_be_interrupted_keep_nobody_waiting() -> None:
    async def scene() -> float:
        scheduler, ended = Scheduler(), threading.Event()

        def deaf(ticket: Ticket) -> None:
            with ticket.turn():
                ended.wait(30)

        readers = [Reader() for _ in range(9)]
        doing = [asyncio.ensure_future(scheduler.run(reader, deaf)) for reader in readers]
        await asyncio.sleep(0.1)
        for reader in readers:
            reader.left.set()
        start = time.monotonic()
        assert await scheduler.run(Reader(), with_turn) == 7
        seconds = time.monotonic() - start
        ended.set()
        for one in await asyncio.gather(*doing, return_exceptions=True):
            assert isinstance(one, ClientDisconnected)
        for _ in range(100):
            if scheduler.late_threads == 0:
                break
            await asyncio.sleep(0.02)
        assert (scheduler.late_threads, scheduler.admitted_requests) == (0, 0)
        return seconds

    assert asyncio.run(scene()) < 5


def test_a_request_that_is_cancelled_while_it_waits_for_its_thread_leaves_nothing_behind() -> None:
    reported: list[dict[str, Any]] = []

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        scheduler, begun, ended, reader = Scheduler(), threading.Event(), threading.Event(), Reader()

        def deaf(ticket: Ticket) -> None:
            begun.set()
            ended.wait(30)
            ticket.check()

        doing = asyncio.ensure_future(scheduler.run(reader, deaf))
        await asyncio.to_thread(begun.wait, 10)
        doing.cancel()
        await asyncio.sleep(0.05)
        doing.cancel()  # once more, while it waits for the thread
        with pytest.raises(asyncio.CancelledError):
            await doing
        assert scheduler.late_threads == 1
        ended.set()
        for _ in range(100):
            if scheduler.late_threads == 0:
                break
            await asyncio.sleep(0.02)
        assert (scheduler.late_threads, scheduler.admitted_requests) == (0, 0)

    asyncio.run(scene())
    gc.collect()
    assert reported == []


def with_turn(ticket: Ticket) -> int:
    with ticket.turn():
        return 7


def test_whoever_waits_for_deaf_work_has_an_answer_when_the_time_is_over() -> None:
    async def scene() -> float:
        scheduler, ended, start = Scheduler(seconds=0.1), threading.Event(), time.monotonic()
        with pytest.raises(RequestTimeout):
            await scheduler.run(Reader(), lambda ticket: ended.wait(30))
        ended.set()
        return time.monotonic() - start

    assert asyncio.run(scene()) < 5


def test_a_turn_that_lasts_too_long_is_no_longer_exclusive() -> None:
    lock, ended = FairLock(max_seconds=0.1), threading.Event()

    def slow() -> None:
        with lock.acquire(lambda: None):
            ended.wait(30)

    thread = threading.Thread(target=slow)
    thread.start()
    time.sleep(0.05)
    with lock.acquire(lambda: None):
        assert not ended.is_set()
    ended.set()
    thread.join()
    with lock.acquire(lambda: None):
        pass


# ---------------------------------------------------------------------- what a client reads of an error


class Panic(BaseException):
    """As pyo3 raises it."""

    __module__ = "pyo3_runtime"


@pytest.mark.parametrize(("error", "status"), [
    (UserError("order must be at least 1: 0; try 5"), 400), (MemoryError(), 503), (RecursionError("deep"), 400),
    (Panic(f"/{CANARY}/x panicked"), 400), (SystemExit(3), 500), (StopIteration(), 500), (GeneratorExit(), 500),
    (ZeroDivisionError(f"/{CANARY}/y"), 500), (KeyError(f"/home/{CANARY}"), 500),
])  # fmt: skip
def test_whatever_a_request_raises_is_answered_with_one_line_of_json(
    runs: Path, error: BaseException, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    studio = make_studio(runs)
    studio.models.record = fail  # type: ignore[method-assign]
    with caplog.at_level(logging.CRITICAL + 1, "octavo.studio"):
        answer = browser(studio).get("/api/compare", params={"run": "kn"})
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    message = answer.json()["error"]
    assert "\n" not in message
    assert message
    for private in (CANARY, "Traceback", "ZeroDivisionError", "KeyError", "SystemExit"):
        assert private not in message
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_terminal_has_the_details_of_the_error_that_the_client_has_the_number_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = error_answer(ZeroDivisionError("by nothing"), Path("/runs"))
    [entry] = caplog.records
    number = entry.getMessage().split()[-1]
    assert len(number) == 8
    assert number in answer.message
    assert entry.exc_info is not None
    assert entry.exc_info[0] is ZeroDivisionError
    failed = WorkFailed()
    failed.__cause__ = MemoryError()
    assert error_answer(failed, Path("/runs")).status == 503


@pytest.mark.parametrize(("text", "shown"), [
    ("/srv/my runs/kn/config.json is damaged", "kn/config.json is damaged"),
    ("cannot read '/srv/my runs'", "cannot read 'the runs' folder'"),
    ("see /usr/lib/python3/x.py: no", "see x.py: no"), ("in '/home/me/'; try", "in 'me'; try"),
    (r"at C:\Users\me\x.txt", "at x.txt"), ("two\nlines\tand  more", "two lines and more"),
    ("and/or, 3/4, a/b/c.txt, http://localhost/a/b, /api/runs/x", "and/or, 3/4, a/b/c.txt, http://localhost/a/b, "
     "/api/runs/x"),
])  # fmt: skip
def test_a_message_shows_names_below_the_runs_folder_and_no_other_path(text: str, shown: str) -> None:
    assert public_line(text, Path("/srv/my runs")) == shown


def test_a_command_is_shown_as_it_is_typed_where_the_studio_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = (tmp_path / "runs").resolve()
    root.mkdir()
    monkeypatch.chdir(tmp_path)
    assert public_command(f"octavo resume {root}/gru --data /etc/x/y", root) == "octavo resume runs/gru --data y"
    monkeypatch.chdir(root)
    assert public_command(f"octavo resume {root}/gru", root) == "octavo resume gru"
    monkeypatch.chdir("/")
    assert str(tmp_path.name) in str(root)


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Runs that are damaged, each in another way, in a folder whose name nobody may see."""
    root = make_runs(tmp_path_factory.mktemp(CANARY), *NAMES)
    for name in NAMES:
        (root / name / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    (root / "no-record").mkdir()
    (root / "no-record" / CONFIG).write_text("{")
    (root / "foreign").mkdir()
    (root / "foreign" / CONFIG).write_text(json.dumps({"octavo": 1, "model": f"{root}/x", "task": str(root)}))
    (root / "texts").symlink_to("/etc")
    return browser(make_studio(root))


@every_operation()
def test_no_answer_names_the_folder_that_the_runs_lie_in(operation: Operation, spoiled: TestClient) -> None:
    given = request_for(operation)
    for run in (*NAMES, "no-record", "foreign", "texts", "../x"):
        changed = json.loads(json.dumps(given))
        if "run" in changed["params"]:
            changed["params"]["run"] = run
        if changed.get("content", "").startswith("{"):
            body = json.loads(changed["content"])
            changed["content"] = json.dumps(
                {name: run if name in ("run", "other") else value for name, value in body.items()}
            )
        answer = spoiled.request(**changed)
        is_document = operation[1] == "/api/report" and answer.status_code == 200  # which says what it was trained on
        assert is_document or CANARY not in answer.text, (run, answer.text[:500])
        assert answer.status_code != 500
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(("code", "checkpoint", "words"), [
    (-9, True, "killed by signal 9 (SIGKILL), by the system for lack of memory if nobody did it; resume it from its "
     "last checkpoint with less beside it"),
    (-15, True, "killed by signal 15 (SIGTERM); resume it from its last checkpoint"),
    (-11, False, "killed by signal 11 (SIGSEGV); nothing was saved; train it again"),
    (137, False, "killed by signal 9 (SIGKILL), by the system for lack of memory if nobody did it; nothing was saved; "
     "train it again with less beside it"),
    (2, True, "failed; the end of its log says why"), (1, False, "failed; the end of its log says why"),
])  # fmt: skip
def test_a_training_that_was_killed_is_not_called_a_mistake(code: int, checkpoint: bool, words: str) -> None:
    assert ending_in_words(code, checkpoint) == words
