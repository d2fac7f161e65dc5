"""The back-off path adds up to the model's own probability, and what it tells of contexts is what was counted."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch

from octavo.inspection.token_tables import backoff, votes
from octavo.models import Bag, Mix, NGram
from octavo.models.bag import BagConfig
from octavo.models.mix import MixConfig
from octavo.models.ngram import NGramConfig

VOCAB, BEGIN, NEWLINE = 9, 8, 3


def text(length: int, seed: int, low: int = 0) -> list[int]:
    luck = random.Random(seed)
    x = [low]
    for _ in range(length - 1):
        x.append((2 * x[-1] + luck.choice((0, 0, 1, 3))) % (VOCAB - 1))
    return x


LEARNT, READ = text(300, 1), [*text(90, 2), 0, 5, 0, 5]  # 5 never comes after 0


def ngram(**config: Any) -> NGram:
    newline = NEWLINE if config.get("sentences") else None
    return NGram.fit(torch.tensor([BEGIN, *LEARNT]).int(), NGramConfig(**config), VOCAB, newline)


@pytest.mark.parametrize(
    "config",
    [
        {"order": 1}, {"order": 4}, {"order": 4, "prune": (0, 0, 1)}, {"order": 4, "sentences": True},
        {"order": 3, "estimator": "mle"}, {"order": 3, "estimator": "add-k", "k": 0.5},
        {"order": 4, "estimator": "stupid"},
    ],
    ids=str,
)  # fmt: skip
def test_what_the_contexts_give_sums_to_the_probability_that_the_model_gives(config: dict[str, Any]) -> None:
    model = ngram(**config)
    path = backoff(model, READ)
    torch.testing.assert_close(path.p_N.log(), model.score(torch.tensor([READ]))[0], rtol=0, atol=0)
    summed_N = path.share_NK.sum(1) + path.uniform_N
    torch.testing.assert_close(summed_N, path.p_N, rtol=1e-13, atol=1e-15)


def test_the_path_is_that_of_the_model_s_own_look_up() -> None:
    model = ngram(order=4)
    x_1N = torch.tensor([READ])
    begun_1K = model.predict(model.start(1), torch.tensor([BEGIN]))[1]
    contexts, nodes = model.matches(begun_1K, x_1N)
    p_1N = model.probability(x_1N, zip(contexts, nodes, strict=True))
    assert torch.equal(backoff(model, READ).p_N, p_1N[0])


def continuations(k: int) -> dict[tuple[int, ...], set[int]]:
    """What followed each context of k tokens, counted by hand."""
    x = [BEGIN, *LEARNT]
    found: dict[tuple[int, ...], set[int]] = {}
    for n in range(k, len(x)):
        if n:
            found.setdefault(tuple(x[n - k : n]), set()).add(x[n])
    return found


def test_contexts_seen_and_their_different_continuations_are_those_of_the_training_text() -> None:
    path, order = backoff(ngram(order=4), READ), 4
    before = [BEGIN, *READ]
    for k in range(1, order):
        known = continuations(k)
        for n, token in enumerate(READ):
            after = known.get(tuple(before[n + 1 - k : n + 1]), set()) if n + 1 >= k else set()
            assert int(path.followed_NK[n, k]) == len(after)
            assert bool(path.found_NK[n, k]) == (token in after)
            if not after:  # nothing is known: all is handed down
                assert (float(path.alpha_NK[n, k]), float(path.gamma_NK[n, k])) == (0.0, 1.0)
    assert not path.seen_NK[-1, 3]  # 0 5 0 never came
    answered = [max(k for k in range(order) if path.found_NK[n, k] or k == 0) for n in range(len(READ))]
    assert path.matched_length_N.tolist() == answered


def test_add_k_gives_its_counts_back_exactly() -> None:
    path = backoff(ngram(order=3, estimator="add-k", k=0.3), READ)
    learnt, before = [BEGIN, *LEARNT], [BEGIN, *READ]
    threes = Counter(zip(learnt, learnt[1:], learnt[2:], strict=False))
    pairs = Counter(pairwise(learnt[:-1]))
    assert path.counts_N2 is not None
    for n in range(1, len(READ)):
        context = (before[n - 1], before[n])
        assert path.counts_N2[n].tolist() == [threes[*context, READ[n]], pairs[context]]


def test_other_estimators_claim_no_counts() -> None:
    assert backoff(ngram(order=3), READ).counts_N2 is None
    assert backoff(ngram(order=3, estimator="mle"), READ).counts_N2 is None


def test_a_mixture_s_weighted_votes_sum_to_its_probability() -> None:
    bag = Bag.fit(torch.tensor([BEGIN, *LEARNT]), BagConfig(), VOCAB)
    mix = Mix(MixConfig(), [ngram(order=3), bag])
    held = torch.tensor([[BEGIN, *text(80, 5)]])
    logp_I1N, _ = mix.part_log_probs(mix.start(1), held)
    mix.learn(logp_I1N[:, 0], mix.token_context_classes(mix.start(1), held)[0])
    long = READ * 4  # more than one piece
    turns = []
    found = votes(mix, long, turn=lambda: turns.append(1) or _nothing())  # type: ignore[func-returns-value]
    assert len(turns) == 2
    torch.testing.assert_close(found.p_N.log(), mix.score(torch.tensor([long]))[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.weight_NI.sum(1), torch.ones(len(long), dtype=torch.float64))
    torch.testing.assert_close(found.p_NI[:, 1].log(), bag.score(torch.tensor([long]))[0])
    torch.testing.assert_close(found.share_NI.sum(1), found.p_N)
    assert len(found.weight_NI.unique(dim=0)) > 1  # the weights do depend on the context


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()
