"""Annotated decoding, beam search step by step, the tree and the choices, each against its reference implementation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from examples import attentive, examples, gpt, ngram, recurrent
from octavo.core import LanguageModel, seeded_generator
from octavo.decode import Beam, Greedy, Sample, beam_search, stream
from octavo.decode.annotated import Node, choices, grow, prepare, search, write
from octavo.decode.greedy import without_begin
from octavo.errors import UserError
from octavo.inspection.attention_maps import attention_over, top_attention
from octavo.inspection.surprisal import align, read
from octavo.inspection.views import find_view
from octavo.models.recurrent import GRU

MODELS: dict[str, LanguageModel[Any]] = {
    f"{family} {name}": model for family, made in examples().items() for name, model in made.items()
}
PROMPT = [3, 1, 4, 1, 5]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", [Greedy(), Sample(0.7, top_k=3)], ids=["greedy", "sample"])
def test_what_is_written_with_notes_is_what_is_written_without(name: str, method: Any) -> None:
    model = MODELS[name]
    annotated = list(write(model, PROMPT, 9, method, seeded_generator(4)))
    plain = [int(x_1) for x_1 in stream(model, [PROMPT], 9, method, seeded_generator(4))]
    assert [one.token for one in annotated] == plain


@pytest.mark.parametrize("name", MODELS)
def test_a_text_costs_when_written_what_it_costs_when_read(name: str) -> None:
    model = MODELS[name]
    annotated = list(write(model, PROMPT, 9, Sample(2.0), seeded_generator(1)))
    reading = read(model, [*PROMPT, *(one.token for one in annotated)])
    assert [one.bits for one in annotated] == pytest.approx(reading.bits_N[len(PROMPT) :].tolist(), rel=1e-4)
    p_V = torch.tensor([one.alternatives[0][1] for one in annotated])
    assert all(one.bits >= -math.log2(float(p)) - 1e-5 for one, p in zip(annotated, p_V, strict=True))
    assert [one.rank for one in annotated] == reading.rank_N[len(PROMPT) :].tolist()


@pytest.mark.parametrize("model", [ngram(order=3), gpt(), recurrent(GRU)], ids=["ngram", "gpt", "gru"])
def test_the_beam_step_by_step_ends_where_the_search_ends(model: Any) -> None:
    *_, last = search(model, PROMPT, 6, Beam(3))
    whole = beam_search(model, [PROMPT], 6, Beam(3), best=3)[0]
    assert [one.tokens.tolist() for one in last] == [one.tokens.tolist() for one in whole]
    assert [one.logp for one in last] == pytest.approx([one.logp for one in whole])
    lengths = [len(found[0].tokens) for found in search(model, PROMPT, 6, Beam(3))]
    assert lengths == list(range(7))


def test_each_part_of_the_work_asks_for_its_turn() -> None:
    entered: list[int] = []

    class Turn:
        def __enter__(self) -> None:
            entered.append(1)

        def __exit__(self, *_: object) -> None:
            pass

    assert len(list(write(ngram(order=2), list(PROMPT) * 30, 5, Greedy(), turn=Turn))) == 5
    assert len(entered) == 3 + 1 + 5  # pieces of 64 tokens, the session, the tokens
    entered.clear()
    grow(ngram(order=2), PROMPT, 2, 4, turn=Turn)
    assert len(entered) == 1 + 4


# --- the tree


def nodes(root: Node) -> list[Node]:
    return [root, *(below for child in root.children for below in nodes(child))]


@pytest.mark.parametrize("model", [ngram(order=3), gpt(), recurrent(GRU)], ids=["ngram", "gpt", "gru"])
def test_a_node_has_the_probability_of_its_token_after_the_tokens_above_it(model: Any) -> None:
    def check(node: Node, path: list[int], logp: float) -> None:
        p_V = without_begin(prepare(model, [*PROMPT, *path]).logits_BV.log_softmax(-1), model.begin)[0].exp()
        if node.children:
            assert [child.token for child in node.children] == p_V.topk(3).indices.tolist()
        for child in node.children:
            assert child.p == pytest.approx(float(p_V[child.token]), rel=1e-4)
            assert child.logp == pytest.approx(logp + math.log(child.p))
            check(child, [*path, child.token], child.logp)

    root = grow(model, PROMPT, 3, 7)
    check(root, [], 0.0)
    assert sum(1 for node in nodes(root) if node.children) == 7


def test_the_most_probable_beginnings_are_opened_first() -> None:
    every = nodes(grow(ngram(order=3), PROMPT, 4, 9))
    opened = [one.logp for one in every if one.children]
    assert min(opened) >= max(one.logp for one in every if not one.children) - 1e-12


# --- what is drawn from


@pytest.mark.parametrize("method", [Sample(), Sample(0.3), Sample(3.0, top_k=4), Sample(top_p=0.6), Sample(min_p=0.2),
                                    Sample(1.7, 6, 0.8, 0.1)], ids=str)  # fmt: skip
def test_the_choices_are_those_that_sampling_draws_from(method: Sample) -> None:
    model = gpt()
    logits_1V = prepare(model, PROMPT).logits_BV
    found = choices(model, logits_1V, method, 5)
    drawn_V = method.filtered(without_begin(logits_1V, model.begin)).softmax(-1)[0]
    assert found.drawn_K.tolist() == drawn_V[found.token_K].tolist()
    assert found.kept == int((drawn_V > 0).sum())
    assert float(found.drawn_K.sum()) + found.rest[1] == pytest.approx(1)
    own_V = logits_1V[0].double().softmax(-1)
    assert found.p_K.tolist() == pytest.approx(own_V[found.token_K].tolist())
    assert float(found.p_K.sum()) + found.rest[0] == pytest.approx(1 - float(own_V[model.begin]))
    assert model.begin not in found.token_K.tolist()
    own_V[model.begin] = 0
    bits = [-float((p[p > 0] * p[p > 0].log2()).sum()) for p in (own_V / own_V.sum(), drawn_V)]
    assert found.entropy == pytest.approx(bits)


# --- top attention


@pytest.mark.parametrize("model", [
    gpt(), gpt(attention="linear"), gpt(attention="dense"), gpt(attention="local"), gpt(positions="learned"),
    attentive(),
], ids=["full", "linear", "dense", "local", "learned", "attentive"])  # fmt: skip
@pytest.mark.parametrize("layers", ["last", "all"])
def test_top_attention_is_the_largest_of_the_maps(model: Any, layers: Any) -> None:
    x_N = [token % (model.vocab - 1) for token in range(3, 200, 2)]
    assert find_view(model, "token-maps")
    reading = top_attention(model, x_N, 4, layers)
    maps = attention_over(model, x_N).layers
    chosen = maps[-1:] if layers == "last" else maps
    a_TT = (
        torch.stack([a_HTT.mean(0) for a_HTT in chosen]).mean(0)[:-1].float()
    )  # the last row predicts what is not there
    best = a_TT.topk(4)
    torch.testing.assert_close(reading.share_NK, best.values, atol=1e-5, rtol=1e-4)
    sure_NK = (a_TT.gather(1, reading.place_NK.clamp(min=0)) - reading.share_NK).abs() < 1e-5
    assert bool((sure_NK | (reading.place_NK < 0)).all())
    assert reading.place_NK[0, 1:].tolist() == [-1] * 3  # the first had begin alone, or nothing
    assert bool((reading.place_NK <= torch.arange(len(x_N))[:, None]).all())


def test_counts_have_no_attention() -> None:
    assert find_view(ngram(order=3), "token-maps") is None
    assert find_view(recurrent(GRU), "token-maps") is None


# --- two readings side by side


def test_spans_end_where_both_have_a_tokens_end() -> None:
    spans = align([1, 1, 1, 1, 1, 1], [2, 3, 1])
    assert [(span.first, span.second, span.bytes) for span in spans] == [
        ((0, 2), (0, 1), 2), ((2, 5), (1, 2), 3), ((5, 6), (2, 3), 1)]  # fmt: skip
    assert [span.bytes for span in align([2, 3, 2], [3, 2, 2])] == [5, 2]
    assert align([], []) == []


def test_a_token_of_no_bytes_goes_with_the_one_before_it() -> None:
    assert [(span.first, span.second) for span in align([0, 2, 0, 1], [1, 1, 1, 0])] == [
        ((0, 3), (0, 2)), ((3, 4), (2, 4))]  # fmt: skip
    assert [(span.first, span.second) for span in align([0], [])] == [((0, 1), (0, 0))]


def test_texts_of_other_lengths_are_not_laid_side_by_side() -> None:
    with pytest.raises(UserError, match="the same bytes: one reads 2, the other 3"):
        align([2], [1, 2])
