"""The studio under attack: foreign pages, strangers on the network, forged run folders, requests that never end."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, LARGEST_RECORD, METRICS, REPORT, TENSORS, TOKENIZER
from octavo.studio import ModelCache, Studio, make_app
from octavo.studio.routes import read as reading
from octavo.studio.server import connection as connections
from octavo.studio.server import request_guard as guards
from octavo.studio.server.app import MAX_JSON_DEPTH, MAX_JSON_VALUES, MAX_TEXT_CHARACTERS
from octavo.studio.server.request_guard import COOKIE
from octavo.studio.server.scheduler import Scheduler
from octavo.studio.server.serve import settings
from octavo.studio.server.text_store import FACTS_FOLDER
from studio_place import Reader, client, make_runs

TOKEN = "a-token-of-our-own"
JSON = {"content-type": "application/json"}
HEAD = b"POST /api/read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "kn", "bag", "moods", "stripes")


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """Runs that a test may spoil."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


@pytest.fixture(scope="module")
def asks(made: Path) -> TestClient:
    return lenient(client(made))


def lenient(asks: TestClient) -> TestClient:
    """Shows a bug as the page would see it: status 500."""
    return TestClient(asks.app, base_url="http://localhost", raise_server_exceptions=False)


# ---------------------------------------------------------------------- who asks


@pytest.mark.parametrize("host", [
    "[::1]evil.example", "localhost:evil.example", "localhost.", "evil.example:80@localhost", "0.0.0.0", "[::1",
    "127.1", "localhost, evil.example", "[localhost]",
])  # fmt: skip
def test_a_host_that_only_looks_like_ours_is_refused(asks: TestClient, host: str) -> None:
    assert asks.get("/api/models", headers={"host": host}).status_code == 421


def test_two_hosts_or_origins_are_as_good_as_their_worst(asks: TestClient) -> None:
    twice = [("host", "localhost"), ("host", "localhost")]
    assert asks.get("/api/models", headers=twice).status_code == 421
    mixed = [("origin", "http://localhost"), ("origin", "http://evil.example")]
    assert asks.get("/api/models", headers=mixed).status_code == 403


@pytest.mark.parametrize("origin", ["http://[::1", "", "http://evil@localhost", "http://localhost:9", "localhost"])
def test_a_strange_origin_is_refused_and_no_bug(asks: TestClient, origin: str) -> None:
    assert asks.get("/api/models", headers={"origin": origin}).status_code == 403


def test_a_foreign_page_can_follow_a_link_but_load_nothing(asks: TestClient) -> None:
    foreign = {"sec-fetch-site": "cross-site"}
    assert asks.get("/", headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 200
    assert asks.get("/api/runs", headers={**foreign, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert (
        asks.post("/api/training/stop", json={}, headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 403
    )


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"])
def test_a_form_cannot_ask(asks: TestClient, kind: str) -> None:
    data = json.dumps({"run": "kn", "text": "a"})
    assert asks.post("/api/read", content=data, headers={"content-type": kind}).status_code == 422


@pytest.mark.parametrize("path", ["/%09/evil.example", "//evil.example", "/%5cevil.example", "/%0d%0aX-Evil:%201"])
def test_the_way_on_from_the_printed_address_stays_here_and_is_one_line(made: Path, path: str) -> None:
    strict = client(made, token=TOKEN)
    found = strict.get(f"{path}?token={TOKEN}", follow_redirects=False)
    assert found.status_code == 303
    assert re.fullmatch(r"(/[\w.%-]+)+|/", found.headers["location"])  # no two slashes, nothing but plain letters
    assert "x-evil" not in found.headers


def test_other_cookies_do_not_shut_the_user_out(made: Path) -> None:
    strict = client(made, token=TOKEN)
    for cookie in (f"[odd]=1; {COOKIE}={TOKEN}", f"a=\xff; {COOKIE}={TOKEN}", f'{COOKIE}=old; {COOKIE}="{TOKEN}"'):
        assert strict.get("/api/models", headers={"cookie": cookie.encode("latin-1")}).status_code == 200
    assert strict.get("/api/models", headers={"cookie": f"x{COOKIE}={TOKEN}"}).status_code == 401


# ---------------------------------------------------------------------- what is asked


@pytest.mark.parametrize("extra", [
    "[" * 400 + "]" * 400, "[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1),
    json.dumps([0] * (MAX_JSON_VALUES + 1)), json.dumps({f"k{n}": 1 for n in range(MAX_JSON_VALUES)}),
])  # fmt: skip
def test_json_that_is_deep_or_has_many_values_is_refused_at_once(asks: TestClient, extra: str) -> None:
    data = f'{{"run": "kn", "text": "a", "more": {extra}}}'
    answer = asks.post("/api/read", content=data, headers=JSON)
    assert answer.status_code == 422
    assert len(answer.text) < 500


def test_two_hundred_thousand_unknown_names_are_refused_within_a_second(asks: TestClient) -> None:
    data = json.dumps({f"k{n}": 1 for n in range(200_000)})
    began = time.process_time()
    assert asks.post("/api/read", content=data, headers=JSON).status_code == 422
    assert time.process_time() - began < 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "9" * 4000, "9" * 5000, "-1", "1e308", "true"])
def test_strange_numbers_are_refused(asks: TestClient, number: str) -> None:
    data = f'{{"run": "kn", "text": "a", "candidates": {number}}}'
    assert asks.post("/api/read", content=data, headers=JSON).status_code in (400, 422)


def test_lone_surrogates_are_refused_and_zero_characters_are_read(asks: TestClient) -> None:
    assert asks.post("/api/read", content=b'{"run": "kn", "text": "\\ud800"}', headers=JSON).status_code == 422
    assert asks.post("/api/read", json={"run": "kn", "text": "a\0b"}).status_code == 200


def test_no_name_of_a_setting_is_taken_for_python(asks: TestClient) -> None:
    play = asks.get("/api/playground").json()[0]["name"]
    answer = asks.post(f"/api/playground/{play}", json={"values": {"self": 1}})
    assert answer.status_code == 400
    assert "'self'" in answer.json()["error"]


def test_an_answer_to_a_long_text_is_bounded(asks: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_CANDIDATES", 40_000)
    text = "\U0001f600" * 2000  # four bytes each, which are tokens
    answer = asks.post("/api/read", json={"run": "kn", "text": text, "candidates": 50})
    reply = answer.json()
    assert len(reply["tokens"]) == 8000
    assert sum(map(len, reply["candidates"])) == 40_000


def test_a_run_cannot_take_the_place_of_the_studios_own_folders(asks: TestClient, made: Path) -> None:
    asks.post("/api/texts?name=some.txt", content="some words " * 20, headers={"content-type": "text/plain"})
    for name in (FACTS_FOLDER, "texts"):
        asked = {"model": "bag", "corpus": "some.txt", "run": name}
        assert asks.post("/api/training", json=asked).status_code == 400
        assert not (made / name / CONFIG).exists()


# ---------------------------------------------------------------------- forged folders


def test_no_file_of_a_run_is_read_through_a_link_that_leads_out(runs: Path, tmp_path: Path) -> None:
    asks = lenient(client(runs))
    secret = tmp_path / "secret"
    for name in (TOKENIZER, TENSORS, CONFIG, METRICS, REPORT, "vocab.txt"):
        kept = (runs / "kn" / name).read_bytes() if (runs / "kn" / name).exists() else b""
        secret.write_bytes(kept or b"what nobody may read")
        (runs / "kn" / name).unlink(missing_ok=True)
        (runs / "kn" / name).symlink_to(secret)
        assert asks.post("/api/read", json={"run": "kn", "text": "a"}).status_code in (400, 404), name
        for path in ("/api/report?run=kn", "/api/curve?run=kn"):
            assert "nobody may read" not in asks.get(path).text
        (runs / "kn" / name).unlink()
        (runs / "kn" / name).write_bytes(kept)


def test_a_classifiers_base_is_not_read_through_a_link_either(runs: Path, tmp_path: Path) -> None:
    from octavo.studio.server.model_cache import check_base

    (runs / "base").mkdir()
    (runs / "base" / CONFIG).symlink_to(tmp_path)
    with pytest.raises(UserError, match="link"):
        check_base({"base": {"path": str(runs / "base")}}, runs.resolve())


STRANGE: list[Any] = [None, 10**400, "<script>\ud800", [[None]], {"a": {"b": None}}]


@pytest.mark.parametrize("run", ["kn", "moods"])
def test_one_forged_record_breaks_neither_the_list_nor_the_server(runs: Path, run: str) -> None:
    asks, file = lenient(client(runs)), runs / run / CONFIG
    record = json.loads(file.read_text())
    for key in ("result", "training", "corpus", "config", "model", "task", "classes", "labels", "sizes", "facts"):
        for strange in STRANGE:
            inner = {**record[key], **dict.fromkeys(record[key], strange)} if isinstance(record.get(key), dict) else 0
            for forged in (strange, inner):
                file.write_text(json.dumps({**record, key: forged}))
                listed = asks.get("/api/runs")
                assert listed.status_code == 200, (key, forged)
                assert len(listed.json()) == 4
                for path in ("curve", "oracle", "classifier", "compare"):
                    assert asks.get(f"/api/{path}", params={"run": run}).status_code < 500, (path, key, forged)


def test_a_forged_record_does_not_break_what_is_said_of_a_model(runs: Path) -> None:
    asks, file = lenient(client(runs)), runs / "stripes" / CONFIG
    record = json.loads(file.read_text())
    for strange in ("<script>", {"a": None}, [1], 10**30):
        file.write_text(json.dumps({**record, "result": {**record["result"], "accuracy": strange}}))
        assert asks.post("/api/inspect/about", json={"run": "stripes"}).status_code < 500


@pytest.mark.parametrize("data", [
    b"{" * 100_000, b"[" * 100_000, b"\xff\xfe\0", b'{"octavo": NaN}', b'{"octavo": 1e999}',
    b" " * (LARGEST_RECORD + 1), b'{"octavo": ' + b"9" * 100_000 + b"}",
])  # fmt: skip
def test_a_record_that_is_no_record_is_named_in_the_list(runs: Path, data: bytes) -> None:
    (runs / "kn" / CONFIG).write_bytes(data)
    rows = {row["run"]: row for row in lenient(client(runs)).get("/api/runs").json()}
    assert len(rows) == 4
    assert rows["kn"]["error"]


def test_metrics_of_nonsense_or_of_one_endless_line_are_read_in_pieces(runs: Path) -> None:
    asks = lenient(client(runs))
    for data in (os.urandom(1 << 16), b"\0" * (3 << 20), b'{"step": ' + b"9" * 9000 + b"}\n", b'{"step": 1e999}\n' * 9):
        (runs / "kn" / METRICS).write_bytes(data)
        assert asks.get("/api/curve?run=kn").status_code == 200
    with open(runs / "kn" / METRICS, "wb") as file:
        file.truncate(1 << 32)  # four gigabytes, none of which take room on the disk
    began = time.process_time()
    assert asks.get("/api/curve?run=kn").status_code == 200
    assert time.process_time() - began < 2


def test_a_report_runs_no_script_and_names_stay_names(runs: Path) -> None:
    name = "<img src=x onerror=alert(1)>\u202e\n\u00e9"
    (runs / "kn").rename(runs / name)
    (runs / name / REPORT).write_text("<script>alert(1)</script>")
    asks = lenient(client(runs))
    assert name in [row["run"] for row in asks.get("/api/runs").json()]
    answer = asks.get("/api/report", params={"run": name})
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert "script-src" not in answer.headers["content-security-policy"]
    assert "allow-scripts" not in answer.headers["content-security-policy"]


# ---------------------------------------------------------------------- connections


@contextmanager
def listening(root: Path) -> Iterator[tuple[int, set[Any]]]:
    """The port of a studio that is served as the command serves it, and its connections."""
    studio = Studio(ModelCache(root, device="cpu"))
    with socket.create_server(("127.0.0.1", 0), backlog=256) as taken:
        server = uvicorn.Server(settings(make_app(studio)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield taken.getsockname()[1], server.server_state.connections
        finally:
            server.should_exit = True
            thread.join(10)
            studio.close()


@pytest.fixture(scope="module")
def server(made: Path) -> Iterator[tuple[int, set[Any]]]:
    with listening(made) as found:
        yield found


def said(open_socket: socket.socket, seconds: float = 5) -> bytes:
    """All that comes until the end; empty where the connection was cut."""
    open_socket.settimeout(seconds)
    found = b""
    try:
        while piece := open_socket.recv(1 << 16):
            found += piece
    except ConnectionError:
        pass
    return found


def test_who_connects_and_asks_nothing_is_let_go(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_HEADER_SECONDS", 0.3)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    with listening(made) as (port, _), ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(30)]
        for n, one in enumerate(idle[:20]):
            one.sendall(b"GET /api/models HTTP/1.1\r\nHost: local"[: 40 * (n % 2)])  # half of them begin to ask
        assert [said(one) for one in idle] == [b""] * 30  # the last ten at once, for there are too many
        with socket.create_connection(("127.0.0.1", port)) as own:
            own.sendall(b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in said(own)


def test_six_hundred_idle_connections_shut_nobody_out(made: Path) -> None:
    """A third of them say nothing, a third part of a request's headers, a third all but a request's body."""
    beginnings = (b"", b"GET /api/models HTTP/1.1\r\nHost: local", HEAD + b"Content-Length: 9\r\n\r\n{")
    with listening(made) as (port, held), ExitStack() as stack:
        idle = []
        for n in range(620):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.sendall(beginnings[n % 3])
            idle.append(one)
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port)) as own:
                own.sendall(b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert b"200 OK" in said(own)
        assert len(held) <= connections.MAX_CLIENT_CONNECTIONS
        assert said(idle[0]) == b""  # the one that waited longest gave way


def test_who_is_being_answered_does_not_give_way(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CLIENT_CONNECTIONS", 3)
    with listening(made) as (port, _), ExitStack() as stack:
        busy = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        data = json.dumps({"run": "kn", "text": "a b " * 4000, "candidates": 20}).encode()
        busy.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        time.sleep(0.1)
        for _ in range(8):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert said(busy, 60).startswith(b"HTTP/1.1 200")


GET = b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


@pytest.mark.parametrize("request_bytes", [
    HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET + b"\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", HEAD + b"Content-Length: 5, 6\r\n\r\nhello",
    HEAD + b"Content-Length: +5\r\n\r\nhello", HEAD + b"Content-Length: -1\r\n\r\n", GET + b"X : y\r\n\r\n",
    HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    GET + b"X: " + b"a" * 100_000, GET + b"X: a\0b\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    GET.replace(b"1.1", b"9.9") + b"\r\n", b"\x16\x03\x01\x02\0\x01\0\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n", HEAD + b"Content-Length: 99999999999\r\n\r\n{",
])  # fmt: skip
def test_a_request_whose_frame_is_broken_or_ambiguous_gets_one_answer_in_json(
    server: tuple[int, set[Any]], request_bytes: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", server[0])) as own:
        own.sendall(request_bytes)
        answer = said(own, 15)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head[9:12] in (b"400", b"413", b"505"), answer
    assert list(json.loads(body)) == ["error"]  # and no second answer behind it
    assert b"x-content-type-options: nosniff" in head.lower()


def test_a_web_socket_an_event_stream_ranges_and_packed_bodies_are_nothing_special(asks: TestClient) -> None:
    upgrade = {"upgrade": "websocket", "connection": "upgrade", "sec-websocket-key": "a", "accept": "text/event-stream"}
    assert asks.get("/api/models", headers=upgrade).json() == asks.get("/api/models").json()
    for unit in ("bytes=0-,1-,5-1", "bytes=-99999999999", "lines=1-2", "bytes=9-"):
        answer = asks.get("/web/main.js", headers={"range": unit})
        assert (answer.status_code, answer.content) == (200, asks.get("/web/main.js").content)
    packed = gzip.compress(b'{"run": "kn", "text": "a"}')
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    assert asks.post("/api/read", content=packed, headers=headers).status_code == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "HEAD", "OPTIONS"])
def test_other_methods_are_refused_everywhere(asks: TestClient, method: str) -> None:
    for path in ("/api/runs", "/api/read", "/api/training", "/api/texts"):
        assert asks.request(method, path).status_code == 405


@pytest.mark.parametrize("path", [
    "/web/%2e%2e/server/app.py", "/web/..%2f..%2fserver%2fapp.py", "/web/%2e%2e%2f%2e%2e%2fpyproject.toml", "/web/%00",
    "/web/main.js%00.css", "/%ff%fe", "/api/%c0%ae%c0%ae/", "/web/pages/%5c..%5cx", "/api/report?run=%2e%2e%2f%2e%2e",
    "/api/report?run=kn%00", "/api/curve?run=%ff", "/" + "a" * 5000, "/web/" + "../" * 50 + "etc/passwd",
])  # fmt: skip
def test_no_spelling_of_a_path_leads_out(asks: TestClient, path: str) -> None:
    answer = asks.get(path)
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"]


def test_every_wrong_token_gets_the_same_answer(made: Path) -> None:
    strict = client(made, token=TOKEN)
    wrong = [TOKEN[:n] for n in range(len(TOKEN))] + [TOKEN[:-1] + "\u00e9", TOKEN.upper(), TOKEN + "\t"]
    answers = {
        strict.get("/api/runs", headers={"authorization": f"Bearer {one}".encode("latin-1")}).text for one in wrong[:-1]
    }
    assert len(answers) == 1


def test_the_hostile_client_finds_nothing(server: tuple[int, set[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from torture.studio_client import attack

    report = attack(server[0], seed=1, requests=200, private="runs0")
    assert report.faults == []
    assert report.requests >= 200
    assert set(report.kinds) >= {"values", "path", "body", "header", "host", "method", "frame"}


def test_a_body_that_does_not_come_and_too_many_that_do_are_refused(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "MAX_BODY_SECONDS", 1)
    monkeypatch.setattr(guards, "MAX_PENDING_BYTES", 1 << 20)
    with listening(made) as (port, _), ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(4)]
        for one in slow:
            one.sendall(HEAD + b"Connection: close\r\nContent-Length: 900000\r\n\r\n" + b"x" * 400_000)
        statuses = sorted(said(one)[9:12] for one in slow)
        assert statuses[:1] + statuses[-1:] == [b"408", b"503"]
        with socket.create_connection(("127.0.0.1", port)) as own:
            data = b'{"run": "kn", "text": "a"}'
            own.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            assert b"200 OK" in said(own)


def test_who_does_not_take_an_answer_is_let_go(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_STALL_SECONDS", 0.5)
    with listening(made) as (port, held), socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", port))
        data = json.dumps({"run": "kn", "text": "a" * MAX_TEXT_CHARACTERS, "candidates": 20}).encode()
        lazy.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        began = time.monotonic()
        while not held or any(one.cycle is None for one in held):
            time.sleep(0.01)
        while held and time.monotonic() < began + 30:
            time.sleep(0.01)
        assert not held


def test_a_stream_that_nobody_takes_for_too_long_ends() -> None:
    async def asked() -> list[int]:
        work = Scheduler(seconds=0.4)
        found: list[int] = []

        def endless(_: Any) -> Iterator[int]:
            n = 0
            while True:
                yield (n := n + 1)

        async def take() -> None:
            async for one in work.stream(Reader(), endless):
                found.append(one)
                if len(found) == 1:
                    await asyncio.sleep(1)  # all the room ahead is taken meanwhile, and then the time is over

        with pytest.raises(UserError, match="longer"):
            await take()
        assert work.admitted_requests == 0
        work.close()
        return found

    assert len(asyncio.run(asyncio.wait_for(asked(), 20))) < 100


# ---------------------------------------------------------------------- processes


def test_a_worker_ends_by_itself_where_nobody_watches_the_clock_any_more() -> None:
    command = [sys.executable, "-P", "-m", "octavo.exercises.framework.worker", "600", str(1 << 34), "1"]
    bomb = json.dumps({"do": "parse", "text": ".".join(["a"] * 50_000) + "=1"})
    ended = subprocess.run(command, input=bomb + "\n", capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGALRM


def test_an_interrupt_ends_the_studio_within_seconds_though_it_computes(runs: Path) -> None:
    command = [sys.executable, "-m", "octavo.cli", "studio", str(runs), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as studio:
        assert studio.stdout is not None
        found = re.search(r":(\d+)/", studio.stdout.readline())
        assert found is not None
        data = json.dumps({"run": "moods", "text": "a b c " * 1600}).encode()
        head = HEAD.replace(b"read", b"classify/words")
        with socket.create_connection(("127.0.0.1", int(found[1]))) as asking:
            asking.sendall(head + b"Content-Length: %d\r\n\r\n" % len(data) + data)
            time.sleep(0.5)
            studio.send_signal(signal.SIGINT)
            _, wrong = studio.communicate(timeout=20)
    assert "Traceback" not in wrong
