"""Attention maps as bytes are those of the views, whatever the family; long computations are cut into turns."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from octavo.errors import UserError
from octavo.inspection.attention_maps import attention_over, heads_of
from octavo.inspection.gradient_flow import gradient_flow
from octavo.inspection.inspection import SMALL, as_bytes, attention_bytes, max_map_tokens, tokens_of
from octavo.inspection.views import layer_predictions, token_rows
from octavo.ops.tracing import trace
from octavo.tasks.encoder import Encoder, load_encoder
from octavo.tasks.run import Run, load
from octavo.tasks.translator import Translator
from studio_place import make_runs

SENTENCE = "The cat sat on the mat. A dog lay by the door!"
HALF_A_STEP = 1 / 255  # of a byte, in weight: the steepest place of b -> (b / 255)^2 is at 255


class Gone(Exception):
    pass


class Turns:
    """Counts turns, and ends the work after some."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.count, self.most = 0, most

    def __call__(self) -> AbstractContextManager[None]:
        self.count += 1
        if self.count > self.most:
            raise Gone
        return nullcontext()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "gpt", "linear", "looking", "gru", "reverse", "masked")


def run_of(runs: Path, name: str) -> Run:
    return load(runs / name)


@pytest.mark.parametrize("name", ["gpt", "linear", "looking"])
def test_bytes_are_the_weights_to_within_half_a_step(runs: Path, name: str) -> None:
    run = run_of(runs, name)
    maps_bytes, maps = attention_bytes(run, SENTENCE), attention_over(run.model, tokens_of(run, SENTENCE))
    weights_LHTT = np.square(maps_bytes.maps_LHTS / 255)
    exact_LHTT = torch.stack(maps.layers).double().numpy()
    assert np.abs(weights_LHTT - exact_LHTT).max() <= HALF_A_STEP
    assert np.abs(maps_bytes.maps_LHTS - 255 * np.sqrt(exact_LHTT)).max() <= 0.5 + 1e-3
    assert maps_bytes.queries == maps_bytes.keys
    assert len(maps_bytes.queries) == exact_LHTT.shape[2]
    first, head = maps_bytes.statistics[0], heads_of(maps)[0]
    assert first == head.statistics()
    assert (first["entropy"], first["kind"]) == (head.entropy, head.kind)


def test_an_encoder_s_maps_are_the_softmax_of_its_scores(runs: Path) -> None:
    encoder: Encoder = load_encoder(runs / "masked")
    maps_bytes = attention_bytes(encoder, "The cat [MASK] on the mat.")
    assert maps_bytes.queries[0] == "[CLS]"
    assert "[MASK]" in maps_bytes.queries
    rows_LHT = np.square(maps_bytes.maps_LHTS / 255).sum(-1)
    assert np.abs(rows_LHT - 1).max() < 0.03  # every row is a whole distribution, but for the bytes' rounding
    (words,) = encoder.tokenizer.encode_texts(["The cat [MASK] on the mat."], typed=True)
    x_T = [encoder.tokenizer.first, *words.tolist(), encoder.tokenizer.end]
    with torch.no_grad(), trace() as found:
        encoder.model.eval().encode(torch.tensor([x_T]))
    assert np.array_equal(maps_bytes.maps_LHTS[1, 0], as_bytes(found["attention"][1][0, 0].numpy()))


def test_a_translation_made_in_turns_is_the_translator_s_own(runs: Path) -> None:
    translator, turns = Translator.load(runs / "reverse"), Turns()
    maps_bytes = attention_bytes(translator, "abcde", turn=turns)
    assert maps_bytes.translation == translator.translate(["abcde"])[0]
    assert turns.count > len(maps_bytes.queries)  # at least one for each token
    assert maps_bytes.maps_LHTS.shape[2:] == (len(maps_bytes.queries), len(maps_bytes.keys))


def test_small_maps_are_means_of_weights(runs: Path) -> None:
    maps_bytes = attention_bytes(run_of(runs, "gpt"), SENTENCE * 3)  # 3 * 46 + 1 tokens
    (small, *_) = maps_bytes.small()
    weights = np.square(maps_bytes.maps_LHTS[0, 0] / 255)
    begins = [n * 139 // SMALL for n in range(1, SMALL)]
    cells = [[part.mean() for part in np.array_split(row, begins, 1)] for row in np.array_split(weights, begins)]
    assert small.shape == (SMALL, SMALL)
    assert np.abs(np.square(small / 255.0) - np.array(cells)).max() <= HALF_A_STEP


def test_a_text_is_cut_where_the_maps_of_many_heads_would_take_too_much_room() -> None:
    assert max_map_tokens(36) == 1000  # the baby GPT's
    assert max_map_tokens(400) * max_map_tokens(400) * 400 < 1 << 26


@pytest.mark.parametrize("name", ["gpt", "linear", "looking"])
def test_a_look_ends_where_its_turn_does(runs: Path, name: str) -> None:
    run, turns = run_of(runs, name), Turns()
    attention_bytes(run, SENTENCE, turn=turns)
    assert turns.count > 3
    with pytest.raises(Gone):
        attention_bytes(run, SENTENCE, turn=Turns(turns.count - 1))


def test_gates_depths_and_gradients_are_the_same_in_turns_and_end_with_them(runs: Path) -> None:
    gru, gpt = run_of(runs, "gru").model, run_of(runs, "gpt").model
    x_T = tokens_of(run_of(runs, "gru"), SENTENCE)
    for plain, cut in (
        (lambda turn: token_rows(gru, x_T, turn)[0].value_TD, Turns()),
        (lambda turn: layer_predictions(gpt, x_T, turn)[1].bits_N, Turns()),
        (lambda turn: torch.tensor(gradient_flow(gru, x_T, 5, turn=turn).norms), Turns()),
        (lambda turn: torch.tensor(gradient_flow(gpt, x_T, 5, turn=turn).norms), Turns()),
    ):
        assert torch.equal(plain(nullcontext), plain(cut))
        assert cut.count > 1
        with pytest.raises(Gone):
            plain(Turns(cut.count - 1))


def test_an_empty_text_and_a_long_source_are_refused_in_plain_words(runs: Path) -> None:
    with pytest.raises(UserError, match="empty"):
        attention_bytes(run_of(runs, "gpt"), "")
    with pytest.raises(UserError, match="source has 2"):
        attention_bytes(Translator.load(runs / "reverse"), "ab cd " * 60)
