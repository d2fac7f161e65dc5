"""What is held out of a text, and the parallel streams that the rest is read in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from octavo.text.validation_chunks import MOST, PIECES, SHORTEST, hold_out
from octavo.training.language_stage import RESTARTS, Streams

BEGIN = -1
LENGTHS = [*range(200), 1000, 2559, 2560, 2561, 5119, 5120, 64_000, 64_123]


def numbered(length: int) -> NDArray[np.int64]:
    """A text whose every token says where it stands."""
    return np.arange(length)


def test_every_token_is_either_learnt_from_or_held_out_and_none_is_both() -> None:
    for length in LENGTHS:
        held = hold_out(numbered(length), BEGIN)
        learnt = held.train_N[held.train_N != BEGIN]
        assert sorted([*learnt.tolist(), *held.pieces_PL.ravel().tolist()]) == list(range(length))
        assert (np.diff(learnt) > 0).all()  # in the order of the text


def test_pieces_are_stretches_of_the_text_and_begin_stands_where_each_was() -> None:
    for length in LENGTHS:
        held = hold_out(numbered(length), BEGIN)
        assert (np.diff(held.pieces_PL, axis=1) == 1).all()
        assert (held.train_N == BEGIN).sum() == len(held.pieces_PL)
        for piece in held.pieces_PL:
            before = np.flatnonzero(held.train_N == piece[0] - 1)
            assert len(before) == 1 or piece[0] == 0
            assert all(held.train_N[at + 1] == BEGIN for at in before)


def test_a_fortieth_is_held_out_in_pieces_that_are_long_enough_to_mean_something() -> None:
    assert hold_out(numbered(39), BEGIN).pieces_PL.size == 0
    assert hold_out(numbered(40), BEGIN).pieces_PL.shape == (1, 1)
    assert hold_out(numbered(40 * SHORTEST * 2), BEGIN).pieces_PL.shape == (2, SHORTEST)
    assert hold_out(numbered(1_000_000), BEGIN).pieces_PL.shape == (PIECES, 1000)
    assert hold_out(numbered(50 * MOST), BEGIN).pieces_PL.size <= MOST


def test_two_texts_have_the_same_identity_only_if_the_same_pieces_are_held_out() -> None:
    x_N = numbered(8000) % 251
    same, other = x_N.astype(np.uint8), x_N.copy()
    other[hold_out(numbered(8000), BEGIN).pieces_PL[0, 0]] += 1
    assert hold_out(x_N, BEGIN).identity == hold_out(same, 255).identity
    assert hold_out(x_N, BEGIN).identity != hold_out(other, BEGIN).identity


def test_no_training_window_of_any_epoch_holds_a_token_that_was_held_out() -> None:
    held = hold_out(numbered(6000), BEGIN)
    streams = Streams.fitting(held.train_N, BEGIN, 7, 16, seed=3)
    read = {int(x) for step in range(3 * streams.steps) for x in streams.at(step).x_BT.ravel()}
    assert len(read) > 5000
    assert not read & set(held.pieces_PL.ravel().tolist())


@pytest.mark.parametrize(("length", "batch", "window"), [(1000, 4, 9), (997, 5, 16), (64, 64, 1), (50, 3, 7)])
def test_an_epoch_asks_for_no_token_twice_and_leaves_less_than_a_window_of_each_stream(
    length: int, batch: int, window: int
) -> None:
    streams = Streams.fitting(numbered(length), BEGIN, batch, window, seed=1)
    for epoch in range(3):
        steps = range(epoch * streams.steps, (epoch + 1) * streams.steps)
        asked = torch.cat([streams.at(step).x_BT[:, 1:].ravel() for step in steps]).tolist()
        assert len(set(asked)) == len(asked) > length - streams.batch_size * (streams.sequence_length + 1)


def test_a_stream_continues_where_its_last_window_ended_until_the_epoch_is_over() -> None:
    streams = Streams.fitting(numbered(1000), BEGIN, 4, 9, seed=1)
    for step in range(3 * streams.steps - 1):
        this, after = streams.at(step), streams.at(step + 1)
        assert ((this.x_BT[:, 2:] - this.x_BT[:, 1:-1]) % 1000 == 1).all()
        if (step + 1) % streams.steps:
            assert ((after.x_BT[:, 1] - this.x_BT[:, -1]) % 1000 == 1).all()
            assert after.fresh or torch.equal(this.x_BT[:, -1], after.x_BT[:, 0])


def test_streams_start_anew_with_begin_at_each_epoch_and_now_and_then_within() -> None:
    streams = Streams.fitting(numbered(10_000), BEGIN, 4, 2, seed=1)
    fresh = []
    for step in range(2 * streams.steps):
        window = streams.at(step)
        assert bool((window.x_BT[:, 0] == BEGIN).all()) == window.fresh
        assert not (window.x_BT[:, 1:] == BEGIN).any()
        fresh.append(window.fresh)
    assert fresh[0]
    assert fresh[streams.steps]
    assert 0.5 * RESTARTS < np.mean(fresh) < 2 * RESTARTS


def test_epochs_cut_the_text_at_other_places_and_seeds_at_others_again() -> None:
    def firsts(seed: int) -> list[int]:
        streams = Streams.fitting(numbered(1000), BEGIN, 4, 9, seed)
        return [int(streams.at(epoch * streams.steps).x_BT[0, 1]) for epoch in range(5)]

    assert firsts(1)[0] == 1  # the first epoch reads the text from its beginning
    assert len(set(firsts(1))) == 5
    assert firsts(1) == firsts(1) != firsts(2)


def test_a_steps_window_depends_on_the_step_alone() -> None:
    one, other = (Streams.fitting(numbered(777), BEGIN, 3, 8, seed=5) for _ in range(2))
    forwards = [one.at(step).x_BT for step in range(100)]
    backwards = [other.at(step).x_BT for step in reversed(range(100))]
    assert all(torch.equal(a, b) for a, b in zip(forwards, reversed(backwards), strict=True))


@pytest.mark.parametrize("length", [2, 3, 5, 33, 200])
def test_streams_are_fewer_and_shorter_where_the_text_is_too_small_for_them(length: int) -> None:
    streams = Streams.fitting(numbered(length), BEGIN, 128, 32, seed=0)
    assert (streams.sequence_length, streams.batch_size) == (
        min(32, length - 1),
        max(1, length // (min(32, length - 1) + 1)),
    )
    for step in range(5):
        x_BT = streams.at(step).x_BT
        assert x_BT.shape == (streams.batch_size, streams.sequence_length + 1)
        asked = x_BT[:, 1:].ravel().tolist()
        assert len(set(asked)) == len(asked) < length
