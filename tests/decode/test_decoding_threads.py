"""Who writes token by token with one thread, and who with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import octavo
from examples import ngram, recurrent
from html_pages import sentences
from octavo.core import LanguageModel, seeded_generator
from octavo.decode import Greedy, Sample, decoding_threads, generate
from octavo.decode.threads import MAX_ONE_THREAD_PARAMETERS
from octavo.experiments.compare.cost import generate_sample
from octavo.models import GRU
from tiny_models import random_markov


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


def recorded(model: LanguageModel[Any], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that each step of the model has."""
    threads, step = [], type(model).step

    def recording(self: Any, state: Any, x_B: Tensor) -> Any:
        threads.append(torch.get_num_threads())
        return step(self, state, x_B)

    monkeypatch.setattr(type(model), "step", recording)
    return threads


def test_a_small_model_writes_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_markov(4)
    threads = recorded(model, monkeypatch)
    generate(model, [[]], 5, Greedy())
    generate(model, [[], [1]], 5, Sample(), seeded_generator(0))
    assert set(threads) == {1}


def test_weights_times_rows_decide() -> None:
    model = recurrent(GRU)
    weights = sum(p.numel() for p in model.parameters())
    for rows, threads in ((1, 1), (MAX_ONE_THREAD_PARAMETERS // weights + 1, 3)):
        with decoding_threads(model, rows):
            assert torch.get_num_threads() == threads
    with decoding_threads(ngram(order=3), 512):
        assert torch.get_num_threads() == 1  # tables have no weights


def test_a_comparison_writes_its_samples_with_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rain.txt").write_text(sentences(40))
    run = octavo.train("gru", tmp_path / "rain.txt", width=8, layers=1, budget="2steps", evaluations=1, batch_size=4,
                       sequence_length=8, device="cpu", measure=False)  # fmt: skip
    threads = recorded(run.model, monkeypatch)
    assert generate_sample(run, 0)[0]
    assert set(threads) == {1}


def test_a_recurrent_network_reads_one_row_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    model, threads = recurrent(GRU), []
    monkeypatch.setattr(model, "drop", lambda y: threads.append(torch.get_num_threads()) or y)
    with torch.no_grad():
        for rows in (1, 2):
            model.absorb(model.start(rows), torch.zeros(rows, 5, dtype=torch.long))
    assert threads == [3, 1, 1, 3, 3, 3]  # embeddings, and two layers, of one row and of two
