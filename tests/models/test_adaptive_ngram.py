"""An n-gram model that goes on counting: checked against counts in dictionaries, and against the fixed model."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from examples import NEWLINE, VOCAB, adaptive_ngram, ngram, text
from octavo.errors import UserError
from octavo.models import build, describe
from octavo.models.ngram import AdaptiveNGram, AdaptiveNGramConfig
from octavo.models.ngram.adaptive_nodes import MIN_DISCOUNT, UNDO_TOKENS
from octavo.models.ngram.adaptive_tables import context_class
from octavo.models.ngram.estimators import discounts
from octavo.ops.compiled import HAS_NUMBA
from octavo.scoring import range_coder

BEGIN = VOCAB - 1
Gram = tuple[int, ...]


class CountedTexts:
    """The reference: two texts are counted anew, in dictionaries, whenever a probability is asked for; the second one
    goes on.
    """

    def __init__(self, order: int, first: Sequence[int], then: Sequence[int]) -> None:
        self.order, self.first, self.tokens = order, first, then

    def counts(self) -> dict[Gram, int]:
        """What Kneser-Ney takes: occurrences of the longest n-grams and of those that begin with begin; of all others
        how many different tokens precede them."""
        occurs: Counter[Gram] = Counter()
        before: dict[Gram, set[int]] = defaultdict(set)
        for tokens in (self.first, self.tokens):
            for end in range(1, len(tokens)):
                for k in range(1, min(self.order, end + 1) + 1):
                    gram = tuple(tokens[end - k + 1 : end + 1])
                    occurs[gram] += 1
                    if end - k >= 0:
                        before[gram].add(tokens[end - k])
        return {
            gram: n if len(gram) == self.order or gram[0] == BEGIN else len(before[gram]) for gram, n in occurs.items()
        }

    def probability(self, word: int, discount: dict[tuple[int, int, int], float]) -> float:
        """p(word | the tokens so far); the discounts are by length of context, its class, and the count."""
        counts, p = self.counts(), 1 / (VOCAB - 1)
        for k in range(min(self.order - 1, len(self.tokens)) + 1):
            context = tuple(self.tokens[len(self.tokens) - k :])
            after = {gram[-1]: n for gram, n in counts.items() if gram[:-1] == context}
            total = sum(after.values())
            if not total:
                continue
            c = context_class(total, len(after))
            d = {j: discount[k, c, j] for j in (1, 2, 3)}
            n = after.get(word, 0)
            gamma = sum(d[min(m, 3)] for m in after.values()) / total
            p = (n - d[min(n, 3)] if n else 0) / total + gamma * p
        return p


def test_every_probability_is_what_counting_the_whole_text_anew_gives() -> None:
    first, more = text(40), text(30, seed=5)[1:]
    model = AdaptiveNGram.fit(first, AdaptiveNGramConfig(order=3, discount_rate=0.0), VOCAB)
    table = model.discount_KCJ
    discount = {(k, c, j): float(table[k, c, j]) for k in range(3) for c in range(table.shape[1]) for j in (1, 2, 3)}
    # A new text opens with begin; its n-grams are counted as if it stood behind the first text.
    logp_T = model.score(more[None].long())[0]
    for t in (0, 1, 2, 7, 15, 28):
        counted = CountedTexts(3, first.tolist(), [BEGIN, *more[:t].tolist()])
        assert math.isclose(counted.probability(int(more[t]), discount), float(logp_T[t].exp()), rel_tol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_before_it_has_read_anything_it_predicts_what_the_fixed_model_of_the_same_text_predicts(order: int) -> None:
    adaptive, fixed = adaptive_ngram(order=order, discount_rate=0.0), ngram(order=order)
    begin_B = torch.tensor([BEGIN])
    p_BV, _ = adaptive.predict(adaptive.start(1), begin_B)
    expected_BV, _ = fixed.predict(fixed.start(1), begin_B)
    torch.testing.assert_close(p_BV, expected_BV, rtol=1e-6, atol=1e-7)


def test_the_costs_from_the_training_text_alone_are_those_of_the_fixed_model() -> None:
    adaptive, fixed = adaptive_ngram(order=4, discount_rate=0.0), ngram(order=4)
    x_T = text(200, seed=3)[1:].long()
    expected = fixed.score(x_T[None])[0]
    found = adaptive.fixed_log_probs(x_T)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_step_of_a_discount_is_along_the_gradient_of_the_log_probability() -> None:
    """One token is read; Adagrad's step is rate * g / sqrt(1 + g^2), so the gradient g can be read off it, and central
    differences of log p in each discount give the same."""
    rate, x_T = 1e-3, text(50, seed=3)[1:].long()
    model = adaptive_ngram(order=3, discount_rate=0.0)
    model.square_KCJ = torch.zeros_like(model.square_KCJ)
    model.config = AdaptiveNGramConfig(order=3, discount_rate=rate)
    reader = model.pool.readers_at(np.array([[BEGIN]], np.int32))[0]
    before = reader.tables.discount_KCJ.copy()
    squares = reader.tables.square_KCJ.copy()
    reader.probabilities(x_T[:1].numpy())
    moved_KCJ = reader.tables.discount_KCJ - before
    grown_KCJ = reader.tables.square_KCJ - squares
    touched = np.argwhere(grown_KCJ > 0)
    assert len(touched)
    for k, c, j in touched:
        g = math.copysign(math.sqrt(grown_KCJ[k, c, j]), moved_KCJ[k, c, j])
        logs = []
        for shift in (1e-5, -1e-5):
            shifted = adaptive_ngram(order=3, discount_rate=0.0)
            shifted.discount_KCJ = model.discount_KCJ.clone()
            shifted.discount_KCJ[k, c, j] += shift
            logs.append(float(shifted.score(x_T[None, :1])[0, 0]))
        assert math.isclose((logs[0] - logs[1]) / 2e-5, g, rel_tol=1e-4, abs_tol=1e-9)


def test_discounts_begin_as_the_training_text_has_them_and_stay_below_their_counts() -> None:
    model = AdaptiveNGram.fit(text(), AdaptiveNGramConfig(order=1, discount_rate=0.0), VOCAB)
    expected = discounts(model.count_M[1:])
    torch.testing.assert_close(model.discount_KCJ[0, 0, 1:].tolist(), list(expected))
    eager = AdaptiveNGram.fit(text(), AdaptiveNGramConfig(order=3, discount_rate=1.0), VOCAB)
    assert bool((eager.discount_KCJ[..., 1:] >= MIN_DISCOUNT).all())
    assert bool((eager.discount_KCJ[..., 1:] <= torch.tensor([1.0, 2.0, 3.0]) - MIN_DISCOUNT).all())


def test_a_text_that_comes_again_costs_less_the_second_time() -> None:
    model, x_T = adaptive_ngram(order=5), torch.randint(0, BEGIN, (300,), generator=torch.Generator().manual_seed(4))
    bits_T = -model.score(torch.cat([x_T, x_T])[None])[0] / math.log(2)
    assert float(bits_T[300:].mean()) < 0.5 * float(bits_T[:300].mean())


@pytest.mark.parametrize("order", [1, 3, 5])
def test_tokens_that_are_taken_back_leave_the_tables_as_they_were_to_the_last_bit(order: int) -> None:
    model, x_T = adaptive_ngram(order=order, sentences=True), text(200, seed=9)[1:].numpy()
    reader = model.pool.readers_at(np.array([[BEGIN]], np.int32))[0]
    reader.probabilities(x_T[:100])
    before = reader.copy()
    reader.probabilities(x_T[100 : 100 + UNDO_TOKENS])
    reader.undo(UNDO_TOKENS)
    nodes = int(reader.tables.size[0])
    for name in ("node_NF", "key_N"):
        ours, theirs = getattr(reader.tables, name), getattr(before.tables, name)
        assert np.array_equal(ours[:nodes], theirs[:nodes]), name
    for name in ("slot_S", "discount_KCJ", "square_KCJ", "context_K"):
        assert np.array_equal(getattr(reader.tables, name), getattr(before.tables, name)), name
    session = model.session(model.start(1))
    session.absorb(torch.tensor([[BEGIN, 1]]))
    with pytest.raises(UserError, match="only the last 2 tokens can be taken back"):
        session.rewind(3)


def test_tables_grow_with_the_text() -> None:
    model = adaptive_ngram(order=5)
    x_1T = torch.randint(0, BEGIN, (1, 40_000), generator=torch.Generator().manual_seed(2))
    whole = model.score(x_1T)
    session = model.session(model.start(1))
    session.absorb(model.prepend_begin(x_1T)[:, :-1][:, :20_000])
    p_1V = session.predict(x_1T[:, 19_999])
    assert math.isclose(float(p_1V[0, x_1T[0, 20_000]].log()), float(whole[0, 20_000]), rel_tol=1e-12)


def test_its_own_coder_writes_what_the_score_claims_and_gives_the_tokens_back() -> None:
    model, x_T = adaptive_ngram(order=4), text(5000, seed=7)[1:].long()
    claimed = -float(model.score(x_T[None]).sum()) / math.log(2) / 8
    packed = range_coder.encode_tokens(model, x_T, 1)
    assert range_coder.archive_version(model, 1) == range_coder.OWN_CODER_VERSION
    assert abs(len(packed) - claimed) <= 0.001 * claimed + 12
    assert torch.equal(range_coder.decode_tokens(model, packed, len(x_T), 1), x_T)
    by_sessions = range_coder.encode_tokens(model, x_T[:500], 1, version=range_coder.SESSION_VERSION)
    assert torch.equal(
        range_coder.decode_tokens(model, by_sessions, 500, 1, version=range_coder.SESSION_VERSION), x_T[:500]
    )


def test_plain_python_and_compiled_loops_give_the_same_numbers(tmp_path: Path) -> None:
    program = """
import sys, torch
from examples import adaptive_ngram, text
from octavo.scoring.range_coder import encode_tokens
model, x_T = adaptive_ngram(order=4), text(400, seed=7)[1:].long()
torch.save([model.discount_KCJ, model.score(x_T[None]), torch.tensor(list(encode_tokens(model, x_T, 1)))], sys.argv[1])
"""
    if not HAS_NUMBA:
        pytest.skip("numba is not installed: pip install -e '.[fast]'")
    found = []
    for disabled in "01":
        file = tmp_path / disabled
        env = os.environ | {"NUMBA_DISABLE_JIT": disabled}
        subprocess.run([sys.executable, "-c", program, file], check=True, env=env, cwd=Path(__file__).parents[1])
        found.append(torch.load(file))
    for compiled, plain in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-14, atol=0)


def test_saved_and_damaged_tables(tmp_path: Path) -> None:
    model = adaptive_ngram(order=3, sentences=True)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    again = build(describe(model), tensors)
    assert isinstance(again, AdaptiveNGram)
    assert again.newline == NEWLINE
    for name, value in (("count_M", -1), ("discount_KCJ", 9.0), ("word_M", VOCAB), ("first_C", 7)):
        damaged = {key: tensor.clone() for key, tensor in tensors.items()}
        damaged[name].view(-1)[-1] = value
        with pytest.raises(UserError, match="damaged"):
            build(describe(model), damaged)


def test_threads_that_share_a_model_get_the_results_of_each_alone() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = adaptive_ngram(order=4)
    texts = [text(300, seed=seed)[None, 1:].long() for seed in range(8)]
    expected = [adaptive_ngram(order=4).score(x_1T) for x_1T in texts]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(model.score, texts), expected, strict=True):
            assert torch.equal(found, wanted)


def test_it_has_the_ngrams_of_the_fixed_model() -> None:
    assert adaptive_ngram(order=4).sizes() == ngram(order=4).sizes()
    assert sum(adaptive_ngram(order=4).sizes()) == len(adaptive_ngram(order=4).word_M) - 1
