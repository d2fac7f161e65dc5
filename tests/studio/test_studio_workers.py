"""Work that cannot be interrupted is computed in processes: with the same results, and they end when nobody waits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from starlette.testclient import TestClient
from tokenizers import decoders, models, pre_tokenizers, trainers

from octavo.cli import main
from octavo.io.run_folder import read_record
from octavo.studio import ModelCache, Studio, make_app
from octavo.studio.server import worker_pool
from octavo.studio.server.scheduler import Scheduler
from octavo.studio.server.worker_pool import WorkerProcess, needs_process, why_ended
from studio_place import TEXT, ask_and_leave, make_runs

SLOW_PATTERN = r"a*a*a*\d"  # over thousands of letters a it takes days
MOODS = {"run": "moods", "text": "a sad and a happy day, not very warm"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_runs(tmp_path_factory.mktemp("runs"), "kn", "moods")
    made = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(SLOW_PATTERN), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])  # type: ignore[assignment]
    made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    made.save(str(root.parent / "slow.json"))
    text = root.parent / f"{root.name}-texts" / "text.txt"
    command = ["train", "ngram", str(text), "--order", "2", "--tokenizer", str(root.parent / "slow.json")]
    assert main([*command, "--out", str(root / "slow")]) == 0
    return root


@pytest.fixture(scope="module")
def studio(runs: Path) -> Iterator[Studio]:
    studio = Studio(ModelCache(runs, device="cpu"))
    yield studio
    studio.close()


@pytest.fixture(scope="module")
def asks(studio: Studio) -> TestClient:
    return TestClient(make_app(studio), base_url="http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def plain(runs: Path) -> TestClient:
    """A studio that computes everything in threads."""
    return TestClient(make_app(Studio(ModelCache(runs, device="cpu"), workers=0)), base_url="http://localhost")


def test_which_runs_are_computed_in_a_process(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {name: needs_process(runs / name, read_record(runs / name)) for name in ("kn", "moods", "slow")}
    assert needed == {"kn": False, "moods": True, "slow": True}
    monkeypatch.setattr(worker_pool, "MAX_THREAD_BYTES", 100)
    assert needs_process(runs / "kn", read_record(runs / "kn"))


@pytest.mark.parametrize(("path", "body"), [
    ("classify", MOODS), ("classify/words", MOODS),
    ("classify/measure", {"run": "moods", "examples": "good\ta happy day\nbad\ta sad day\n"}),
    ("read", {"run": "kn", "text": "The cat sat"}), ("read/compare", {"run": "kn", "other": "slow", "text": "The cat"}),
    ("inspect/about", {"run": "kn"}), ("inspect/table", {"run": "kn", "text": "The cat"}), ("tree", {"run": "kn"}),
    ("write", {"run": "kn", "prompt": "The", "max_tokens": 90, "seed": 3}),
    ("write", {"run": "kn", "prompt": "The", "method": "beam", "max_tokens": 9}),
    ("classify", {"run": "kn", "text": "a"}), ("classify", {"run": "none", "text": "a"}),
    ("write", {"run": "moods"}), ("read", {"run": "slow", "text": "The cat sat on the mat."}),
])  # fmt: skip
def test_a_process_answers_as_a_thread_does_to_the_last_bit(
    path: str,
    body: dict[str, Any],
    asks: TestClient,
    plain: TestClient,
    studio: Studio,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_pool, "MAX_THREAD_BYTES", 0)  # so that the small models are computed there too
    answer, expected = asks.post(f"/api/{path}", json=body), plain.post(f"/api/{path}", json=body)
    assert (answer.status_code, answer.content) == (expected.status_code, expected.content)
    assert answer.headers == expected.headers
    assert answer.status_code != 200 or studio.models.states() == []  # nothing was loaded here


def alive(pid: int) -> bool:
    """Whether a process computes; one that has ended and was not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def ask_slowly(studio: Studio, left: asyncio.Event) -> Any:
    """One call of the tokenizers library that would take days."""
    body = json.dumps({"run": "slow", "text": "a" * 4000}).encode()
    return await ask_and_leave(make_app(studio), "/api/read", body, left)


def test_who_leaves_frees_the_worker_within_a_second_and_others_are_served_at_once(studio: Studio) -> None:
    """Nine of them, for two workers."""

    async def scene() -> tuple[float, float]:
        left = asyncio.Event()
        assert studio.pool is not None
        doing = [asyncio.ensure_future(ask_slowly(studio, left)) for _ in range(9)]
        while len(studio.pool.process_ids()) < 2:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        workers = studio.pool.process_ids()
        began = time.monotonic()
        body = json.dumps({"run": "kn", "text": "The cat"}).encode()
        answer = await ask_and_leave(make_app(studio), "/api/read", body, asyncio.Event())
        served = time.monotonic() - began
        assert answer["status"] == 200
        began = time.monotonic()
        left.set()
        await asyncio.gather(*doing)
        while any(map(alive, workers)):
            await asyncio.sleep(0.02)
        return served, time.monotonic() - began

    served, freed = asyncio.run(asyncio.wait_for(scene(), 60))
    assert served < 5  # which is the time to load a model and to make an app, on a busy machine
    assert freed < 3  # half a second's grace, and the end
    assert (studio.scheduler.late_threads, studio.scheduler.admitted_requests) == (0, 0)


def test_a_request_that_takes_too_long_is_ended_with_its_worker(runs: Path) -> None:
    studio = Studio(ModelCache(runs, device="cpu"), Scheduler(seconds=20))
    asks = TestClient(make_app(studio), base_url="http://localhost")
    assert asks.post("/api/read", json={"run": "slow", "text": "The cat"}).status_code == 200
    studio.scheduler.seconds = 1.0
    answer = asks.post("/api/read", json={"run": "slow", "text": "a" * 4000})
    assert (answer.status_code, answer.json()) == (
        503, {"error": "this took longer than 1 seconds and was stopped; ask for less"},
    )  # fmt: skip
    assert studio.pool is not None
    assert studio.pool.process_ids() == []
    studio.scheduler.seconds = 20
    assert asks.post("/api/read", json={"run": "slow", "text": "The cat"}).status_code == 200
    studio.close()


def test_a_worker_that_is_killed_is_reported_and_the_next_request_has_another(asks: TestClient, studio: Studio) -> None:
    async def scene() -> Any:
        assert studio.pool is not None
        doing = asyncio.ensure_future(ask_slowly(studio, asyncio.Event()))
        while not studio.pool.process_ids():
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        for pid in studio.pool.process_ids():
            os.kill(pid, signal.SIGKILL)
        return await doing

    assert asyncio.run(asyncio.wait_for(scene(), 60))["status"] == 503
    assert asks.post("/api/classify", json=MOODS).status_code == 200
    assert "SIGKILL" in str(why_ended(-signal.SIGKILL))
    assert "memory" in str(why_ended(-signal.SIGKILL))
    assert "exit code 1" in str(why_ended(1))


def test_a_worker_that_left_because_it_was_idle_is_replaced_unnoticed(runs: Path) -> None:
    studio = Studio(ModelCache(runs, device="cpu"))
    assert studio.pool is not None
    studio.pool.settings = studio.pool.settings._replace(idle_seconds=0.05)
    asks = TestClient(make_app(studio), base_url="http://localhost")
    for _ in range(2):
        assert asks.post("/api/classify", json=MOODS).status_code == 200
        [worker] = studio.pool.process_ids()
        until = time.monotonic() + 10
        while alive(worker) and time.monotonic() < until:
            time.sleep(0.02)
    studio.close()


def test_whoever_opens_the_page_starts_a_worker_and_does_not_wait_for_it(runs: Path) -> None:
    studio = Studio(ModelCache(runs, device="cpu"))
    asks = TestClient(make_app(studio), base_url="http://localhost")
    assert asks.get("/api/classifier", params={"run": "kn"}).status_code == 400
    for _ in range(3):
        assert asks.get("/api/classifier", params={"run": "moods"}).status_code == 200
    assert studio.pool is not None
    until = time.monotonic() + 60
    while not studio.pool.process_ids() and time.monotonic() < until:
        time.sleep(0.02)
    assert len(studio.pool.process_ids()) == 1
    studio.close()


def test_a_page_that_is_opened_after_an_idle_hour_starts_another_worker(runs: Path) -> None:
    studio = Studio(ModelCache(runs, device="cpu"))
    pool = studio.pool
    assert pool is not None
    pool.settings = pool.settings._replace(idle_seconds=0.05)
    seen = set[int]()
    for _ in range(2):
        until = time.monotonic() + 60
        while not (found := set(pool.process_ids()) - seen) and time.monotonic() < until:
            studio.warm_up()
            time.sleep(0.02)
        assert len(found) == 1
        while any(map(alive, found)) and time.monotonic() < until:
            time.sleep(0.02)
        seen |= found
    studio.close()


def test_where_no_process_can_be_started_the_answer_is_to_try_again(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(_: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(worker_pool, "WorkerProcess", no_process)
    asks = TestClient(make_app(Studio(ModelCache(runs, device="cpu"))), base_url="http://localhost")
    answer = asks.post("/api/classify", json=MOODS)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "no process could be started to compute this: Resource temporarily unavailable" in answer.json()["error"]


def test_the_workers_end_with_the_studio(runs: Path) -> None:
    studio = Studio(ModelCache(runs, device="cpu"))
    asks = TestClient(make_app(studio), base_url="http://localhost")
    assert asks.post("/api/classify", json=MOODS).status_code == 200
    assert studio.pool is not None
    workers = studio.pool.process_ids()
    assert len(workers) == 1
    studio.close()
    until = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, workers))


def test_a_worker_ends_when_the_studio_is_gone_even_while_it_computes(studio: Studio) -> None:
    assert studio.pool is not None
    worker = WorkerProcess(studio.pool.settings)
    worker.send({"path": "/read", "asked": {"asked": {"run": "slow", "text": "a" * 4000}}, "seconds": 600})
    time.sleep(0.5)
    worker.pipe.close()  # as the system does when the studio is killed
    worker.process.join(20)
    assert worker.process.exitcode == 0
