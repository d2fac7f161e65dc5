"""Texts that wait for one model are read together: to the last bit as each is read alone, each with its own fate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import octavo
from octavo.inspection.surprisal import Reading, max_batch_tokens, read, read_batch
from octavo.scoring.token_costs import checked_bits, token_bits, token_costs
from octavo.studio.routes.read import P_DIGITS, round_digits
from octavo.studio.server.read_batches import ReadBatches
from octavo.studio.server.scheduler import ClientDisconnected, FairLock, RequestTimeout, Ticket
from studio_place import client

TEXT = "".join(f"{i} owls see {i * i % 97} mice, and {i % 7} é stay.\n" for i in range(300))
SETTINGS: dict[str, dict[str, Any]] = {
    "unigrams": {"order": 1}, "characters": {"order": 7, "tokenizer": "char"},
    "words": {"order": 3, "tokenizer": "word"},
    "sentences": {"order": 4, "tokenizer": "byte", "estimator": "add-k", "sentences": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batches") / "owls.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(source: Path) -> Any:
    return octavo.train("ngram", source, order=5, tokenizer="char")


def tokens(run: Any, count: int) -> list[list[int]]:
    """Texts of many lengths."""
    return [run.tokenizer.encode(TEXT[40 * i : 41 * i + 1 + 3 * i].encode()).tolist() for i in range(count)]


def assert_same(first: Reading, second: Reading) -> None:
    for name, value in vars(first).items():
        assert torch.equal(value, getattr(second, name)), name


@pytest.mark.parametrize("name", SETTINGS)
def test_a_text_read_with_others_is_the_text_read_alone_to_the_last_bit(source: Path, name: str) -> None:
    run = octavo.train("ngram", source, **SETTINGS[name])
    texts = tokens(run, 12)
    together = read_batch(run.model, texts, 5)
    for x_N, reading in zip(texts, together, strict=True):
        assert_same(reading, read(run.model, x_N, 5))
        assert reading.scored_N is not None
        scored = sum(float(bits.sum()) for _, bits in token_costs(run.model, [np.array(x_N, np.int32)]))
        assert float(checked_bits(token_bits(reading.scored_N)).sum()) == scored  # what `octavo eval` says


def test_networks_are_read_one_text_at_a_time(source: Path) -> None:
    run = octavo.train("gru", source, width=8, budget="1steps", device="cpu")
    assert max_batch_tokens(run.model) == 0
    [x_N] = tokens(run, 1)
    reading = ReadBatches().read(run.model, x_N, 3, Ticket(FairLock()))
    assert torch.equal(reading.bits_N, read(run.model, x_N, 3).bits_N)


class Crowd:
    """Requests that wait while somebody else has the turn."""

    def __init__(self, run: Any) -> None:
        self.run, self.lock, self.batches = run, FairLock(), ReadBatches()
        self.results: dict[int, Any] = {}
        self.threads: list[threading.Thread] = []

    def ask(self, texts: list[list[int]], seconds: float = 60) -> list[Ticket]:
        tickets = [Ticket(self.lock, seconds) for _ in texts]
        for number, (x_N, ticket) in enumerate(zip(texts, tickets, strict=True), len(self.threads)):
            self.threads.append(threading.Thread(target=self._read, args=(number, x_N, ticket)))
            self.threads[-1].start()
        return tickets

    def _read(self, number: int, x_N: list[int], ticket: Ticket) -> None:
        try:
            self.results[number] = self.batches.read(self.run.model, x_N, 4, ticket)
        except Exception as error:
            self.results[number] = error

    def wait(self, count: int) -> None:
        """Until so many have an answer."""
        until = time.monotonic() + 20
        while len(self.results) < count and time.monotonic() < until:
            time.sleep(0.005)
        assert len(self.results) == count


def in_a_crowd(run: Any, act: Callable[[Crowd], object]) -> Crowd:
    crowd = Crowd(run)
    with Ticket(crowd.lock).turn():
        act(crowd)
        time.sleep(0.2)  # all of them wait by now
    for thread in crowd.threads:
        thread.join(20)
    return crowd


def test_texts_that_wait_for_one_model_are_read_by_one_look_up(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, matches = tokens(run, 8), run.model.matches
    shapes: list[tuple[int, ...]] = []

    def counted(state: Any, x_BT: Any) -> Any:
        shapes.append(tuple(x_BT.shape))
        return matches(state, x_BT)

    monkeypatch.setattr(run.model, "matches", counted, raising=False)
    crowd = in_a_crowd(run, lambda crowd: crowd.ask(texts))
    assert shapes == [(8, max(map(len, texts)))]
    for number, x_N in enumerate(texts):
        assert_same(crowd.results[number], read(run.model, x_N, 4))


def test_a_cancelled_request_and_one_out_of_time_end_alone(run: Any) -> None:
    texts = tokens(run, 5)

    def act(crowd: Crowd) -> None:
        crowd.ask(texts[:3])[1].cancel()
        crowd.ask(texts[3:4], seconds=0.05)
        crowd.wait(2)  # before anything was read

    crowd = in_a_crowd(run, act)
    assert isinstance(crowd.results[1], ClientDisconnected)
    assert isinstance(crowd.results[3], RequestTimeout)
    for number in (0, 2):
        assert_same(crowd.results[number], read(run.model, texts[number], 4))


def test_an_error_of_one_text_is_its_own(run: Any) -> None:
    texts = tokens(run, 4)
    texts[2] = [run.model.vocab + 10**6]
    crowd = in_a_crowd(run, lambda crowd: crowd.ask(texts))
    assert isinstance(crowd.results[2], IndexError)
    for number in (0, 1, 3):
        assert_same(crowd.results[number], read(run.model, texts[number], 4))


def test_the_same_text_is_read_once_until_the_model_changes(source: Path, tmp_path: Path) -> None:
    octavo.train("ngram", source, order=3, out=tmp_path / "runs" / "kn")
    asks, asked = client(tmp_path / "runs"), {"run": "kn", "text": "7 owls"}
    first = asks.post("/api/read", json=asked)
    assert first.status_code == 200
    assert asks.post("/api/read", json=asked).content == first.content
    octavo.train("ngram", source, order=2, out=tmp_path / "runs" / "kn", force=True)
    again = asks.post("/api/read", json=asked)
    assert again.json()["score"] != first.json()["score"]


def test_a_number_is_rounded_to_so_many_digits_wherever_its_point_is() -> None:
    p = np.array([0.0, 1.0, 0.123456789, 1.23456789e-12, 5e-324, 0.99999999])
    assert round_digits(p, P_DIGITS).tolist() == [0.0, 1.0, 0.1234568, 1.234568e-12, 5e-324, 1.0]
