"""Decoding against brute force over every sequence, hand sums and counted frequencies."""

from __future__ import annotations

import heapq
import math
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from octavo.decode import Beam, Exact, Greedy, Sample, beam_search, exact_search, generate, stream
from octavo.decode.sample import keep_min_p, keep_top_k, keep_top_p
from octavo.errors import UserError
from tiny_models import Dropped, Markov, Recurrent, every_sequence, random_markov

PROMPTS = [[0, 1, 2], [], [2], [1, 1, 0], [0]]


def seeded_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def logits(*p: float) -> Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


def possible(logits_BV: Tensor) -> list[int]:
    return (logits_BV[0] > -torch.inf).nonzero()[:, 0].tolist()


def greedy_fails() -> Markov:
    """After begin (3): 0 with 0.6, 1 with 0.4. After 0 all three are alike; after 1 comes 2 with 0.9."""
    p = [[1 / 3, 1 / 3, 1 / 3, 0], [0.05, 0.05, 0.9, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0.6, 0.4, 0, 0]]
    return Markov(torch.tensor(p, dtype=torch.float64).log())


def test_greedy_takes_the_best_token_given_all_before() -> None:
    model, x = Recurrent(6), [model_begin := 5]
    for _ in range(12):
        x.append(int(model(torch.tensor([x]))[0, -1, :model_begin].argmax()))
    assert generate(model, [[]], 12, Greedy())[0].tolist() == x[1:]


@pytest.mark.parametrize("seed", range(5))
def test_rows_and_unequal_prompts_decode_as_they_do_alone(seed: int) -> None:
    model = Recurrent(6, seed=seed)
    for method in (Greedy(), Beam(3), Exact()):
        together = generate(model, PROMPTS, 4, method)
        alone = [generate(model, [prompt], 4, method)[0] for prompt in PROMPTS]
        assert [x.tolist() for x in together] == [x.tolist() for x in alone]


def test_a_prompt_longer_than_a_piece_is_absorbed_whole() -> None:
    model, prompt = Recurrent(6), torch.randint(0, 5, (150,), generator=seeded_generator())
    best = model(model.prepend_begin(prompt[None]))[0, -1, :5].argmax()
    assert generate(model, [prompt], 1, Greedy())[0].tolist() == [int(best)]


def test_begin_is_never_emitted_even_when_it_is_most_probable() -> None:
    model = random_markov(4)
    model.get_buffer("logits_VV")[:, model.begin] = 50.0
    for method in (Greedy(), Sample(), Beam(3), Exact()):
        (x_T,) = generate(model, [[]], 4, method, seeded_generator())
        assert len(x_T) == 4
        assert model.begin not in x_T.tolist()


def test_sampled_frequencies_are_the_softmax() -> None:
    model = random_markov(9, scale=1.0)
    N = 20_000
    x_N = next(stream(model, [[3]] * N, 1, Sample(temperature=0.7), seeded_generator()))
    p_V = (model.get_buffer("logits_VV")[3, :8] / 0.7).softmax(-1)
    assert chisquare(x_N.bincount(minlength=8).numpy(), (N * p_V).numpy()).pvalue > 1e-3


def test_filtered_tokens_are_never_drawn_and_the_rest_is_renormalised() -> None:
    model = Markov(logits(0.4, 0.3, 0.2, 0.1, 1e-9).expand(5, -1).clone())
    x_N = next(stream(model, [[]] * 9_000, 1, Sample(top_k=2), seeded_generator()))
    counts = x_N.bincount(minlength=5)
    assert counts[2:].sum() == 0
    assert abs(int(counts[0]) / 9_000 - 4 / 7) < 4 * math.sqrt(4 / 7 * 3 / 7 / 9_000)


def test_top_k_keeps_k_and_the_ties_of_the_last() -> None:
    assert possible(keep_top_k(logits(0.1, 0.4, 0.3, 0.2), 2)) == [1, 2]
    assert possible(keep_top_k(logits(0.2, 0.4, 0.2, 0.2), 2)) == [0, 1, 2, 3]
    assert possible(keep_top_k(logits(0.1, 0.9), 7)) == [0, 1]


def test_top_p_keeps_the_fewest_that_reach_p() -> None:
    p = logits(0.125, 0.5, 0.25, 0.125)
    assert possible(keep_top_p(p, 0.4)) == [1]
    assert possible(keep_top_p(p, 0.5)) == [1]
    assert possible(keep_top_p(p, 0.51)) == [1, 2]
    assert possible(keep_top_p(p, 0.8)) == [0, 1, 2]
    assert possible(keep_top_p(p, 1.0)) == [0, 1, 2, 3]


def test_min_p_is_relative_to_the_best() -> None:
    p = logits(0.1, 0.5, 0.26, 0.14)
    assert possible(keep_min_p(p, 0.5)) == [1, 2]
    assert possible(keep_min_p(p, 0.25)) == [1, 2, 3]
    assert possible(keep_min_p(p, 1.0)) == [1]
    assert possible(keep_min_p(p, 0.0)) == [0, 1, 2, 3]


def test_filters_compose_as_temperature_top_k_top_p_min_p() -> None:
    p = logits(0.4, 0.3, 0.2, 0.1)
    # top-k 2 leaves 4/7 and 3/7; top-p 0.55 is reached by 4/7 alone, though not by 0.4.
    assert possible(Sample(top_k=2, top_p=0.55).filtered(p)) == [0]
    assert possible(Sample(top_p=0.55).filtered(p)) == [0, 1]
    # squared (temperature 1/2): 16, 9, 4, 1 of 30, so 16/30 + 9/30 reach 0.8 where 0.4 + 0.3 do not.
    assert possible(Sample(temperature=0.5, top_p=0.8).filtered(p)) == [0, 1]
    assert possible(Sample(top_p=0.8).filtered(p)) == [0, 1, 2]


def test_the_same_seed_gives_the_same_text_and_leaves_the_global_generator_alone() -> None:
    model, before = Recurrent(20), torch.get_rng_state()
    first, again, other = (
        generate(model, PROMPTS[:1], 40, Sample(), seeded_generator(s))[0].tolist() for s in (1, 1, 2)
    )
    assert first == again != other
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("seed", range(4))
def test_beam_of_width_one_is_greedy(seed: int) -> None:
    model = Recurrent(7, seed=seed)
    greedy, beam = (generate(model, PROMPTS, 9, method) for method in (Greedy(), Beam(1)))
    assert [x.tolist() for x in greedy] == [x.tolist() for x in beam]


@pytest.mark.parametrize("seed", range(6))
def test_exact_search_and_the_widest_beam_equal_brute_force(seed: int) -> None:
    for model in (Recurrent(4, seed=seed), random_markov(4, seed)):
        x_NT, logp_N = every_sequence(model, [1, 0], 5)
        best = x_NT[logp_N.argmax()].tolist()
        found = exact_search(model, [1, 0], 5, Exact())
        ranked = beam_search(model, [[1, 0]], 5, Beam(4**5), best=3**5)[0]
        assert found.tokens.tolist() == best == ranked[0].tokens.tolist()
        assert found.logp == pytest.approx(float(logp_N.max()), abs=1e-10)
        every = torch.tensor([h.logp for h in ranked], dtype=torch.float64)
        assert torch.allclose(every, logp_N.sort(descending=True).values, atol=1e-10)


def test_expanding_one_node_at_a_time_finds_the_same_with_no_more_work() -> None:
    model = Recurrent(4, seed=3)
    one, many = (exact_search(model, [], 6, Exact(together=n)) for n in (1, 64))
    assert one.tokens.tolist() == many.tokens.tolist()
    assert one.expanded <= many.expanded


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("together", [1, 7])
def test_exact_search_expands_and_stores_only_what_may_lead_to_something_better(
    seed: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, length, stored = Recurrent(4, seed=seed), 5, list[tuple[int, ...]]()
    push = heapq.heappush

    def counted(heap: Any, node: Any) -> None:
        stored.append(node[1])
        push(heap, node)

    monkeypatch.setattr(heapq, "heappush", counted)
    found = exact_search(model, [], length, Exact(together=together))
    cost = {
        tuple(x_T.tolist()): -float(logp)
        for short in range(1, length + 1)
        for x_T, logp in zip(*every_sequence(model, [], short), strict=True)
    }
    best, waiting, expanded, expected = math.inf, [()], 0, []
    while waiting and cost.get(waiting[0], 0.0) < best:
        nodes = [x for x in waiting[:together] if cost.get(x, 0.0) < best]
        expanded += len(nodes)
        promising = [child for x in nodes for token in range(3) if cost[child := (*x, token)] < best]
        best = min([best, *(cost[x] for x in promising if len(x) == length)])
        expected += [x for x in promising if len(x) < length]
        open_ones = [*waiting[len(nodes) :], *(x for x in promising if len(x) < length)]
        waiting = sorted(open_ones, key=lambda x: cost[x])
    assert found.expanded == expanded
    assert sorted(stored) == sorted(expected)


def test_a_node_that_waits_is_not_expanded_once_something_better_is_known() -> None:
    # Stop (2) at once has 0.3; 0 then something 0.65 / 3; 1, which waits too, 0.05.
    p = [[1 / 3, 1 / 3, 1 / 3, 0]] * 3 + [[0.65, 0.05, 0.3, 0]]
    found = exact_search(Markov(torch.tensor(p, dtype=torch.float64).log()), [], 3, Exact(together=8), stop=[2])
    assert (found.tokens.tolist(), found.expanded) == ([2], 2)  # nothing, and 0


def test_greedy_misses_the_most_probable_sequence() -> None:
    model = greedy_fails()
    assert generate(model, [[]], 2, Greedy())[0][0] == 0  # 0.6 / 3 = 0.2
    found = exact_search(model, [], 2, Exact())
    assert found.tokens.tolist() == [1, 2]  # 0.4 * 0.9 = 0.36
    assert found.logp == pytest.approx(math.log(0.36))
    assert generate(model, [[]], 2, Beam(2))[0].tolist() == [1, 2]


def test_exact_search_gives_up_at_its_limit() -> None:
    flat = Markov(torch.zeros(5, 5, dtype=torch.float64))
    with pytest.raises(UserError, match="limit=10 nodes"):
        exact_search(flat, [], 8, Exact(limit=10))


def test_the_length_penalty_chooses_between_short_and_long() -> None:
    # Stop (2) at once: 0.6, log -0.511. Or 0 0 0 0: 0.4 * 0.9**3, log -1.232, which alpha 3 divides by 1.5**3.
    p = [[0.9, 0.0, 0.1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0.4, 0.0, 0.6, 0]]
    model = Markov(torch.tensor(p, dtype=torch.float64).log())
    (short,) = beam_search(model, [[]], 4, Beam(2), stop=[2])[0]
    (long,) = beam_search(model, [[]], 4, Beam(2, length_penalty=3.0), stop=[2])[0]
    assert short.tokens.tolist() == [2]
    assert long.tokens.tolist() == [0, 0, 0, 0]
    assert short.logp == short.score == pytest.approx(math.log(0.6))
    assert long.score == pytest.approx(math.log(0.4 * 0.9**3) / 1.5**3)


def test_rows_end_with_their_stop_token_and_the_stream_with_the_last_row() -> None:
    cycle = Markov(10 * torch.eye(5, dtype=torch.float64).roll(1, 1))  # 0 1 2 3, then begin
    assert [x.tolist() for x in generate(cycle, [[0], [1]], 9, Greedy(), stop=[3])] == [[1, 2, 3], [2, 3]]
    columns = [x.tolist() for x in stream(cycle, [[0], [1]], 9, Greedy(), stop=[3])]
    assert columns == [[1, 2], [2, 3], [3, cycle.begin]]


def test_exact_search_ends_at_stop_tokens_as_brute_force_does() -> None:
    model = Recurrent(4, seed=1)
    ends: dict[tuple[int, ...], float] = {}
    for length in range(1, 5):
        for x_T, logp in zip(*every_sequence(model, [], length), strict=True):
            x = x_T.tolist()
            if 2 not in x[:-1] and (x[-1] == 2 or length == 4):
                ends[tuple(x)] = float(logp)
    found = exact_search(model, [], 4, Exact(), stop=[2])
    assert tuple(found.tokens.tolist()) == max(ends, key=lambda x: ends[x])


def test_streaming_leaves_the_callers_gradients_and_the_models_mode_as_they_were() -> None:
    model = Dropped(8)
    texts = [generate(model, [[1]], 20, Greedy())[0].tolist() for _ in range(3)]
    assert texts[0] == texts[1] == texts[2]  # dropout was off
    assert model.training
    assert model.dropout.training
    columns = stream(model, [[1]], 3, Greedy())
    next(columns)
    assert torch.is_grad_enabled()


def test_nothing_asked_nothing_given() -> None:
    model = Recurrent(4)
    for method in (Greedy(), Sample(), Beam(), Exact()):
        assert [x.tolist() for x in generate(model, [[1], []], 0, method, seeded_generator())] == [[], []]
        assert generate(model, [], 3, method, seeded_generator()) == []


def test_a_row_without_a_possible_token_is_refused() -> None:
    model = Markov(torch.full((3, 3), -torch.inf, dtype=torch.float64))
    for method in (Greedy(), Sample(), Beam(), Exact()):
        with pytest.raises(UserError, match="smooth the model"):
            generate(model, [[]], 2, method, seeded_generator())


def test_wrong_values_are_refused_with_the_rule() -> None:
    for wrong, rule in (
        (lambda: Sample(temperature=0), "temperature must be above 0"),
        (lambda: Sample(top_k=0), "top_k must be at least 1"),
        (lambda: Sample(top_p=0), "top_p must be above 0"),
        (lambda: Sample(min_p=2), "min_p must lie between"),
        (lambda: Beam(0), "width must be at least 1"),
        (lambda: Beam(2, -1), "length_penalty must be"),
        (lambda: Exact(0), "limit and together"),
        (lambda: generate(Recurrent(4), [[4]], 1, Greedy()), "prompt tokens must lie between 0 and 3"),
        (lambda: beam_search(Recurrent(4), [[1]], 1, Beam(2), best=3), "best=3, width=2"),
    ):
        with pytest.raises(UserError, match=rule):
            wrong()
    with pytest.raises(ValueError, match="generator"):
        generate(Recurrent(4), [[1]], 1, Sample())
