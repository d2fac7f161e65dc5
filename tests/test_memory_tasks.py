"""The made-up sequences of benchmarks/bench_memory.py: who remembers answers them all, and nothing else can."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from memory_tasks import (
    KEYS,
    MARK,
    VALUES,
    Sequences,
    evaluation_sequences,
    length_of,
    training_sequences,
)

NOISE_FROM = KEYS + VALUES


def oracle(task: str, tokens: list[int], at: int) -> int:
    """The answer at a place, from the tokens before it alone."""
    past = tokens[:at]
    if task == "recall":
        return past[past.index(past[-1]) + 1]
    symbols = [token for token in past[: past.index(MARK)] if token < KEYS]
    return symbols[at - past.index(MARK) - 1]


def each_answer(sequences: Sequences) -> list[tuple[list[int], int]]:
    return [
        (tokens.tolist(), int(at))
        for tokens, answers in zip(*sequences, strict=True) for at in np.flatnonzero(answers)
    ]  # fmt: skip


@pytest.mark.parametrize("task", ["recall", "copying"])
def test_who_remembers_everything_answers_everything(task: str) -> None:
    batches = [training_sequences(task, 40, 64, 16, 0, 3), evaluation_sequences(task, 20, 8, 90, 1)]
    for tokens, at in [one for batch in batches for one in each_answer(batch)]:
        assert oracle(task, tokens, at) == tokens[at]


@pytest.mark.parametrize("task", ["recall", "copying"])
def test_a_test_has_the_items_and_the_length_that_were_asked_for(task: str) -> None:
    x_BL, answer_BL = evaluation_sequences(task, 10, 8, 100, 5)
    assert x_BL.shape == answer_BL.shape == (10, length_of(task, 8, 100))
    assert (answer_BL.sum(1) == 8).all()
    shown = 16 if task == "recall" else 8
    assert (x_BL[:, shown : shown + 100] >= NOISE_FROM).all()
    assert (x_BL[:, :shown] < NOISE_FROM).all()


@pytest.mark.parametrize("task", ["recall", "copying"])
def test_batches_depend_on_seed_and_step_alone_and_differ(task: str) -> None:
    first = training_sequences(task, 8, 64, 16, 0, 7)
    assert (first.x_BL == training_sequences(task, 8, 64, 16, 0, 7).x_BL).all()
    assert first.x_BL.shape == (8, 64)
    for seed, step in ((0, 8), (1, 7)):
        assert (first.x_BL != training_sequences(task, 8, 64, 16, seed, step).x_BL).any()


def test_each_key_of_a_recall_test_is_asked_for_once() -> None:
    x_BL, answer_BL = evaluation_sequences("recall", 30, 16, 10, 2)
    keys_BN, asked_BN = x_BL[:, :32:2], x_BL[:, -32::2]
    assert (np.sort(keys_BN, 1) == np.sort(asked_BN, 1)).all()
    assert all(len(set(keys)) == 16 for keys in keys_BN.tolist())
    assert answer_BL[:, -31::2].all()


def test_answers_are_spread_evenly_over_the_values() -> None:
    """So that the best guess without a memory is right once in VALUES times."""
    x_BL, answer_BL = evaluation_sequences("recall", 400, 8, 4, 3)
    share_V = np.bincount(x_BL[answer_BL] - KEYS, minlength=VALUES) / answer_BL.sum()
    assert abs(share_V - 1 / VALUES).max() < 0.02
