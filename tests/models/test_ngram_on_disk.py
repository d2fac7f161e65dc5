"""An n-gram model that is too large for memory is used where it lies, with the same numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import laws
import octavo
from octavo.errors import UserError
from octavo.io import memory
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.ngram.sorted_search import SortedSearch, check_sorted
from octavo.models.ngram.trie import Index

LAWS = (
    laws.step_by_step_equals_all_at_once, laws.token_log_probs_are_what_step_predicts,
    laws.rows_do_not_touch_each_other, laws.states_can_be_reordered, laws.a_session_says_what_step_says,
    laws.parallel_scoring_equals_sequential, laws.compressing_costs_what_is_claimed_and_restores,
)  # fmt: skip
WORDS = "the rain in spain stays mainly on the plain and the wind in may comes and goes".split()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disk")
    draw = random.Random(5)
    (folder / "text.txt").write_text("\n".join(" ".join(draw.choices(WORDS, k=7)) for _ in range(400)))
    octavo.train("ngram", folder / "text.txt", order=4, tokenizer="word", sentences=True, out=folder / "run")
    return folder / "run"


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 1000)


def fitted(order: int, vocab: int = 11) -> NGram:
    generator = torch.Generator().manual_seed(order)
    x_N = torch.randint(0, vocab - 1, (3000,), generator=generator, dtype=torch.int32)
    x_N[::97] = vocab - 1
    return NGram.fit(x_N, NGramConfig(order=order), vocab)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_a_search_in_the_sorted_tables_finds_what_the_table_of_nodes_has(order: int) -> None:
    model = fitted(order)
    table = Index.build(model.first_C[:-1], model.word_M, model.vocab)
    search = SortedSearch(model.first_C, model.word_M, model.vocab)
    contexts = len(model.first_C) - 1
    context_QV = torch.cat([torch.arange(contexts), torch.tensor([model.none])])[:, None]
    word_QV = torch.arange(model.vocab)[None]
    expected = table.child(context_QV, word_QV)
    assert torch.equal(search.child(context_QV, word_QV), expected)
    assert (expected != model.none).sum() == len(model.word_M) - 1  # every node but the root is somebody's child


def test_a_run_that_is_too_large_for_memory_has_the_same_score(run: Path, request: pytest.FixtureRequest) -> None:
    text = "the rain in may stays on the plain\nthe snow and the wind\n"
    usual = octavo.load(run)
    expected = octavo.evaluate(usual, text)
    written = octavo.generate(usual, "the rain", max_tokens=20, seed=3)
    request.getfixturevalue("little_memory")
    mapped = octavo.load(run)
    assert octavo.evaluate(mapped, text).bits_per_byte == expected.bits_per_byte
    assert octavo.generate(mapped, "the rain", max_tokens=20, seed=3) == written
    assert isinstance(mapped.model.index, SortedSearch)
    assert isinstance(usual.model.index, Index)
    assert mapped.model.word_M.untyped_storage().data_ptr() != usual.model.word_M.untyped_storage().data_ptr()


def test_its_tables_take_no_memory_of_their_own(run: Path, little_memory: None) -> None:
    model = octavo.load(run).model
    spans = [
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if str(run) in line
    ]
    start = model.word_M.data_ptr()
    assert any(int(low, 16) <= start < int(high, 16) for low, high in spans)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_laws_hold_without_a_table_of_nodes(little_memory: None, law: Callable[[NGram, int], None]) -> None:
    model = fitted(4)
    law(model, 63)
    assert isinstance(model.index, SortedSearch)


def test_words_that_do_not_ascend_are_refused() -> None:
    model = fitted(3)
    check_sorted(model.first_C, model.word_M)
    word_M = model.word_M.clone()
    first = int(model.first_C[1])
    word_M[first], word_M[first + 1] = int(word_M[first + 1]), int(word_M[first])
    with pytest.raises(UserError, match="must ascend"):
        check_sorted(model.first_C, word_M)
