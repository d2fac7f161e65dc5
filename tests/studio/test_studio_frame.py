"""The studio's frame: who is let in, which runs there are, and how work takes turns and ends."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from octavo.cli import main
from octavo.config import plain_json
from octavo.errors import UserError
from octavo.io.run_folder import CONFIG
from octavo.studio import ModelCache
from octavo.studio.server import model_cache
from octavo.studio.server.model_cache import NotFound
from octavo.studio.server.request_guard import COOKIE, MAX_BODY_BYTES, RequestGuard
from octavo.studio.server.scheduler import Busy, ClientDisconnected, FairLock, RequestTimeout, Scheduler, Ticket
from octavo.studio.server.serve import open_socket, requires_token, studio_url
from studio_place import Reader, client, make_runs, served

READ = {"run": "kn", "text": "The cat"}
TOKEN = "a-token-of-our-own"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "kn", "bag", "moods")


@pytest.fixture(scope="module")
def asks(runs: Path) -> TestClient:
    return client(runs)


# ---------------------------------------------------------------------- the guard


def test_every_answer_has_the_policy_and_the_first_page_comes(asks: TestClient) -> None:
    for path in ("/", "/web/main.js", "/api/runs", "/api/nothing"):
        answer = asks.get(path)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "octavo studio" in asks.get("/").text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "192.168.0.1"])
def test_a_name_that_is_not_the_studios_is_refused(asks: TestClient, host: str) -> None:
    answer = asks.get("/api/runs", headers={"host": host})
    assert answer.status_code == 421
    assert "not called" in answer.json()["error"]


@pytest.mark.parametrize("host", ["localhost", "localhost:8642", "127.0.0.1:1", "[::1]:8642", "LOCALHOST"])
def test_this_machines_own_names_are_let_in(asks: TestClient, host: str) -> None:
    assert asks.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil.example", "file://"])
def test_a_page_from_elsewhere_cannot_ask(asks: TestClient, origin: str) -> None:
    assert asks.post("/api/read", json=READ, headers={"origin": origin}).status_code == 403


def test_the_studios_own_page_can_ask(asks: TestClient) -> None:
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert asks.post("/api/read", json=READ, headers=own).status_code == 200
    assert asks.post("/api/read", json=READ, headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_with_a_token_nothing_is_shown_without_it(runs: Path) -> None:
    strict = client(runs, token=TOKEN)
    for path in ("/", "/web/main.js", "/api/runs", "/api/openapi.json"):
        answer = strict.get(path)
        assert answer.status_code == 401
        assert "token" in answer.json()["error"]
    for wrong in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
        assert strict.get("/api/runs", headers={"authorization": wrong}).status_code == 401
    assert strict.get("/api/runs", headers={"cookie": f"{COOKIE}=wrong"}).status_code == 401
    assert strict.get(f"/?token={TOKEN}x").status_code == 401
    assert strict.get("/api/runs", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_printed_address_gives_a_cookie_and_leaves_the_token_out_of_thestudio_url(runs: Path) -> None:
    strict = client(runs, token=TOKEN)
    first = strict.get(f"/?token={TOKEN}&more=1", follow_redirects=False)
    assert (first.status_code, first.headers["location"]) == (303, "/?more=1")
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "SameSite=Strict" in first.headers["set-cookie"]
    assert strict.get("/api/runs").status_code == 200


def test_a_redirect_never_leads_to_another_host(runs: Path) -> None:
    strict = client(runs, token=TOKEN)
    answer = strict.get(f"//evil.example/x?token={TOKEN}", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/")
    assert not answer.headers["location"].startswith("//")


def test_a_body_that_is_too_large_is_refused_by_its_length_and_by_what_comes(asks: TestClient) -> None:
    assert asks.post("/api/read", content=b"x" * (MAX_BODY_BYTES + 1)).status_code == 413
    chunks = (b"x" * (1 << 16) for _ in range(MAX_BODY_BYTES // (1 << 16) + 1))
    assert asks.post("/api/read", content=chunks).status_code == 413


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"1", b"\xff\xfe", b'{"run": "kn"}', b'{"run": 1, "text": "a"}', b"{" * 5000,
             b'{"run": "kn", "text": "a", "more": 1}', b'{"run": "kn", "text": "a", "candidates": 1e9}',
             b'{"run": "kn", "text": "a", "candidates": NaN}'],
)  # fmt: skip
def test_a_malformed_body_is_refused_in_plain_words(asks: TestClient, body: bytes) -> None:
    answer = asks.post("/api/read", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"]


def test_a_text_that_is_too_long_is_refused(asks: TestClient) -> None:
    assert asks.post("/api/read", json=READ | {"text": "a" * 20_001}).status_code == 422


@pytest.mark.parametrize("path", ["/web/../app.py", "/web/%2e%2e/app.py", "/web//etc/passwd", "/web/..%2fapp.py"])
def test_nothing_but_the_pages_own_files_is_served(asks: TestClient, path: str) -> None:
    assert asks.get(path).status_code == 404


def test_other_methods_and_addresses_are_distinguished(asks: TestClient) -> None:
    assert asks.get("/api/read").status_code == 405
    assert asks.get("/elsewhere").json() == {"error": "there is nothing at this address"}


def test_a_web_socket_is_closed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def nothing(*_: Any) -> Any:
        raise AssertionError("not to be asked")

    asyncio.run(RequestGuard(nothing)({"type": "websocket"}, nothing, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_request_that_the_shutdown_cancels_is_answered_and_leaves_no_error_for_the_log() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    async def cancelled(*_: Any) -> None:
        raise asyncio.CancelledError

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"",
             "headers": [(b"host", b"localhost")]}  # fmt: skip
    asyncio.run(RequestGuard(cancelled)(scope, receive, send))
    assert sent[0]["status"] == 503
    assert b"shutting down" in sent[1]["body"]


# ---------------------------------------------------------------------- the models


def test_runs_are_found_by_name_and_nothing_else_is(runs: Path) -> None:
    models = ModelCache(runs, device="cpu")
    assert models.names() == ["bag", "kn", "moods"]
    for name in ("", ".", "..", "../" + runs.name, "kn/..", "kn/", "/etc", str(runs / "kn"), "kn\x00", ".hidden"):
        with pytest.raises(NotFound, match="there is no run"):
            models.path(name)


def test_a_run_may_be_the_folder_itself(runs: Path) -> None:
    models = ModelCache(runs / "kn", device="cpu")
    assert models.names() == ["kn"]
    assert models.path("kn") == (runs / "kn").resolve()


def test_a_link_out_of_the_folder_is_no_run(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    os.symlink(runs / "kn", tmp_path / "inside" / "whole")
    (tmp_path / "inside" / "part").mkdir()
    (tmp_path / "inside" / "part" / CONFIG).symlink_to(runs / "kn" / CONFIG)
    assert ModelCache(tmp_path / "inside", device="cpu").names() == []


def test_the_models_used_last_stay_and_one_is_read_once(runs: Path) -> None:
    models, ticket = ModelCache(runs, max_models=2, device="cpu"), Ticket(FairLock())
    first = models.get("kn", ticket)
    assert models.get("kn", ticket) is first
    models.get("bag", ticket)
    models.get("kn", ticket)
    models.get("moods", ticket)
    assert [one["run"] for one in models.states()] == ["kn", "moods"]
    assert all(one["ready"] and one["progress"] == 1 for one in models.states())
    assert models.get("kn", ticket) is first


def test_a_run_that_was_trained_again_is_read_again(runs: Path) -> None:
    models, ticket = ModelCache(runs, device="cpu"), Ticket(FairLock())
    first = models.get("bag", ticket)
    os.utime(runs / "bag" / CONFIG, ns=(1, 1))
    assert models.get("bag", ticket) is not first


def test_a_model_that_is_too_large_is_refused_with_the_remedy(runs: Path) -> None:
    with pytest.raises(UserError, match="larger --memory"):
        ModelCache(runs, max_bytes=100, device="cpu").get("kn", Ticket(FairLock()))


def test_a_damaged_run_is_reported_and_tried_again(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "runs" / "bad").mkdir(parents=True)
    reply = json.loads((runs / "kn" / CONFIG).read_text())
    (tmp_path / "runs" / "bad" / CONFIG).write_text(json.dumps(reply))
    asks = client(tmp_path / "runs")
    for _ in range(2):
        answer = asks.post("/api/read", json=READ | {"run": "bad"})
        assert answer.status_code == 400
        assert "train" in answer.json()["error"]
    assert asks.get("/api/models").json() == []


def test_a_base_outside_the_folder_is_not_read(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "runs" / "head").mkdir(parents=True)
    reply = json.loads((runs / "moods" / CONFIG).read_text()) | {"model": "head", "base": {"path": str(runs / "kn")}}
    (tmp_path / "runs" / "head" / CONFIG).write_text(json.dumps(reply))
    with pytest.raises(UserError, match="not below the studio's folder"):
        ModelCache(tmp_path / "runs", device="cpu").get("head", Ticket(FairLock()))


# ---------------------------------------------------------------------- work


def endless(ticket: Ticket, began: threading.Event, ended: list[str]) -> None:
    try:
        while True:
            with ticket.turn():
                began.set()
                time.sleep(0.002)
    except BaseException as error:
        ended.append(type(error).__name__)
        raise


def test_work_ends_when_its_reader_leaves() -> None:
    async def scene() -> list[str]:
        scheduler, reader, began, ended = Scheduler(), Reader(), threading.Event(), list[str]()
        doing = asyncio.ensure_future(scheduler.run(reader, endless, began, ended))
        await asyncio.to_thread(began.wait, 10)
        reader.left.set()
        with pytest.raises(ClientDisconnected):
            await doing
        return ended

    assert asyncio.run(scene()) == ["ClientDisconnected"]


def test_a_librarys_panic_while_a_run_is_loaded_is_an_error_and_the_next_request_tries_again(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panic(BaseException):
        """As libraries in Rust raise it: no Exception."""

    def panic(_: Path) -> None:
        raise Panic("index out of range")

    models, ticket = ModelCache(runs, device="cpu"), Ticket(FairLock())
    with monkeypatch.context() as patched:
        patched.setattr(model_cache, "load", panic)
        with pytest.raises(UserError, match="kn could not be read: Panic: index out of range; train it again"):
            models.get("kn", ticket)
    assert models.get("kn", ticket).model is not None


def test_work_that_takes_too_long_is_stopped() -> None:
    async def scene() -> None:
        await Scheduler(seconds=0.05).run(Reader(), endless, threading.Event(), [])

    with pytest.raises(RequestTimeout, match=r"longer than 0\.05 seconds"):
        asyncio.run(scene())


def test_too_many_are_sent_away_and_room_comes_back() -> None:
    async def scene() -> int:
        scheduler, reader, began = Scheduler(max_requests=1), Reader(), threading.Event()
        doing = asyncio.ensure_future(scheduler.run(reader, endless, began, []))
        await asyncio.to_thread(began.wait, 10)
        with pytest.raises(Busy, match="1 requests are waiting"):
            await scheduler.run(Reader(), lambda ticket: 1)
        reader.left.set()
        with pytest.raises(ClientDisconnected):
            await doing
        return await scheduler.run(Reader(), lambda ticket: 7)

    assert asyncio.run(scene()) == 7


def test_turns_are_taken_in_order_one_at_a_time() -> None:
    lock, inside, order = FairLock(), list[int](), list[int]()

    def three(n: int) -> None:
        for _ in range(3):
            with lock.acquire(lambda: None):
                inside.append(n)
                assert inside == [n]
                order.append(n)
                time.sleep(0.005)
                inside.clear()

    threads = [threading.Thread(target=three, args=(n,)) for n in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(order) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert order[3:6] != [order[3]] * 3  # nobody has three turns while others wait


def test_one_who_gives_up_in_the_line_leaves_it() -> None:
    lock = FairLock()
    with lock.acquire(lambda: None):
        ticket = Ticket(lock)
        ticket.cancel()
        with pytest.raises(ClientDisconnected), ticket.turn():
            pass
        late = Ticket(lock, seconds=0.01)
        with pytest.raises(RequestTimeout), late.turn():
            pass
    with Ticket(lock).turn():
        pass


def count_to(ticket: Ticket, last: int, ended: list[bool]) -> Iterator[int]:
    try:
        for n in range(last):
            with ticket.turn():
                yield n
    finally:
        ended.append(True)


def test_a_stream_gives_everything_in_order() -> None:
    async def scene() -> list[int]:
        return [n async for n in Scheduler().stream(Reader(), count_to, 500, [])]

    assert asyncio.run(scene()) == list(range(500))


def test_a_stream_that_nobody_takes_ends() -> None:
    async def scene() -> list[bool]:
        ended: list[bool] = []
        taking = Scheduler().stream(Reader(), count_to, 10**9, ended)
        async for n in taking:
            if n == 3:
                break
        await taking.aclose()
        for _ in range(100):
            if ended:
                break
            await asyncio.sleep(0.05)
        return ended

    assert asyncio.run(scene()) == [True]


def test_an_error_in_a_stream_reaches_the_reader() -> None:
    def broken(ticket: Ticket) -> Iterator[int]:
        yield 1
        raise UserError("that went wrong")

    async def scene() -> list[int]:
        return [n async for n in Scheduler().stream(Reader(), broken)]

    with pytest.raises(UserError, match="went wrong"):
        asyncio.run(scene())


# ---------------------------------------------------------------------- serving


def test_what_is_not_finite_is_null() -> None:
    assert plain_json({"a": [1.0, float("nan"), (float("inf"), "x")], "b": None}) == {
        "a": [1.0, None, [None, "x"]],
        "b": None,
    }


@pytest.mark.parametrize("host", ["127.0.0.2", "127.1", "::1", "localhost", "0.0.0.0", "::", "example.org", ""])
def test_a_token_is_asked_for_on_every_address_but_the_default_one(host: str) -> None:
    assert requires_token(host)
    assert not requires_token("127.0.0.1")


def test_the_address_that_is_printed_can_be_opened() -> None:
    assert studio_url("127.0.0.1", 8642, "") == "http://127.0.0.1:8642/"
    assert studio_url("::1", 1, "t") == "http://[::1]:1/?token=t"


def test_a_port_that_is_taken_is_reported_and_the_usual_one_gives_way() -> None:
    with open_socket("127.0.0.1", None) as one, open_socket("127.0.0.1", None) as two:
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # or each answer waits for an acknowledgement
        assert one.getsockname()[1] != two.getsockname()[1]
        with pytest.raises(UserError, match="another --port"):
            open_socket("127.0.0.1", one.getsockname()[1])


def test_without_a_folder_the_command_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studio", str(tmp_path / "none"), "--no-browser"]) == 2
    assert "octavo train" in capsys.readouterr().err


def test_a_served_studio_answers_over_the_network(runs: Path) -> None:
    import urllib.request

    with served(runs) as address:
        asked = urllib.request.Request(
            f"{address}/api/read", json.dumps(READ).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked) as answer:
            assert len(json.load(answer)["tokens"]) == len(READ["text"])
