"""The linear chain against sums over all sequences of tags, in double precision.

B sentences, T tokens of the longest, C tags.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from octavo.core import seeded_generator
from octavo.ops.bidirectional import both_directions
from octavo.ops.linear_chain import Chain, best_paths, log_partition, marginals, path_scores

C, LENGTHS = 3, (4, 1, 0, 2, 5)
EXACT = {"rtol": 1e-11, "atol": 1e-12}


def drawn(seed: int = 1) -> tuple[Chain, Tensor, Tensor]:
    """Random scores of a chain and of the tokens of sentences of different lengths, padded with large ones."""
    generator = seeded_generator(seed)
    shapes = ((C,), (C, C), (C,), (len(LENGTHS), max(LENGTHS), C))
    start_C, transition_CC, end_C, e_BTC = (2 * torch.randn(s, generator=generator, dtype=torch.double) for s in shapes)
    for b, n in enumerate(LENGTHS):
        e_BTC[b, n:] += 50
    return Chain(start_C, transition_CC, end_C), e_BTC, torch.tensor(LENGTHS)


def score(chain: Chain, e_TC: Tensor, y: tuple[int, ...]) -> Tensor:
    """The sum of the definition, term by term."""
    total = chain.start_C[y[0]] + chain.end_C[y[-1]] + sum(e_TC[t, tag] for t, tag in enumerate(y))
    return total + sum(
        (chain.transition_CC[a, b] for a, b in itertools.pairwise(y)), torch.zeros((), dtype=torch.double)
    )


def scores(chain: Chain, e_TC: Tensor) -> dict[tuple[int, ...], Tensor]:
    return {y: score(chain, e_TC, y) for y in itertools.product(range(C), repeat=len(e_TC))}


def test_two_tags_and_two_tokens_by_hand() -> None:
    """s(00) = 1 + 2, s(01) = 1 + 0, s(10) = 0 + 0 + 1, s(11) = 3: Z = 2 e³ + 2 e; the last path wins by its end."""
    chain = Chain(torch.tensor([1.0, 0.0]), torch.tensor([[2.0, 0.0], [1.0, 3.0]]), torch.tensor([0.0, 0.1]))
    e_BTC, lengths_B = torch.zeros(1, 2, 2), torch.tensor([2])
    z = math.exp(3) + math.exp(1.1) + math.exp(1) + math.exp(3.1)
    assert float(log_partition(chain, e_BTC, lengths_B)) == pytest.approx(math.log(z), abs=1e-6)
    y_BT, s_B = best_paths(chain, e_BTC, lengths_B)
    assert (y_BT.tolist(), float(s_B)) == ([[1, 1]], pytest.approx(3.1))
    p_BTC = marginals(chain, e_BTC, lengths_B)
    assert float(p_BTC[0, 0, 0]) == pytest.approx((math.exp(3) + math.exp(1.1)) / z, abs=1e-6)


def test_the_log_partition_is_the_logarithm_of_the_sum_over_all_sequences_in_value_and_gradient() -> None:
    """The gradients are expected counts: of the first tag, of pairs of tags, of the last, of each token's."""
    leaves = [one.clone().requires_grad_() for one in (*drawn()[0], drawn()[1])]
    chain, e_BTC = Chain(*leaves[:3]), leaves[3]
    logz_B = log_partition(chain, e_BTC, torch.tensor(LENGTHS))
    logz_B.sum().backward()
    counts = [torch.zeros_like(one) for one in leaves]
    for b, n in enumerate(LENGTHS):
        if not n:
            assert logz_B[b].item() == 0
            continue
        found = scores(*(Chain(*(one.detach() for one in chain)), e_BTC.detach()[b, :n]))
        expected = torch.stack(list(found.values())).logsumexp(0)
        torch.testing.assert_close(logz_B[b].detach(), expected, **EXACT)
        for y, s in found.items():
            p = (s - expected).exp()
            counts[0][y[0]] += p
            counts[2][y[-1]] += p
            for t, tag in enumerate(y):
                counts[3][b, t, tag] += p
            for before, after in itertools.pairwise(y):
                counts[1][before, after] += p
    torch.testing.assert_close([one.grad for one in leaves], counts, **EXACT)


def test_marginals_are_those_of_all_sequences_and_the_gradient_of_the_log_partition() -> None:
    chain, e_BTC, lengths_B = drawn(2)
    leaf = e_BTC.clone().requires_grad_()
    log_partition(chain, leaf, lengths_B).sum().backward()
    p_BTC = marginals(chain, e_BTC, lengths_B)
    torch.testing.assert_close(p_BTC, leaf.grad, **EXACT)
    torch.testing.assert_close(p_BTC.sum((1, 2)), lengths_B.double(), **EXACT)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_viterbi_path_is_the_best_of_all_sequences(seed: int) -> None:
    chain, e_BTC, lengths_B = drawn(seed)
    y_BT, s_B = best_paths(chain, e_BTC, lengths_B)
    for b, n in enumerate(LENGTHS):
        found = scores(chain, e_BTC[b, :n]) if n else {(): torch.tensor(0.0)}
        best = max(found, key=lambda y: float(found[y]))
        assert y_BT[b].tolist() == [*best, *[0] * (max(LENGTHS) - n)]
        assert float(s_B[b]) == pytest.approx(float(found[best]), abs=1e-11)
    torch.testing.assert_close(path_scores(chain, e_BTC, y_BT, lengths_B), s_B, **EXACT)


def test_padding_changes_nothing() -> None:
    chain, e_BTC, lengths_B = drawn()
    for function in (log_partition, lambda *given: best_paths(*given)[1], lambda *given: marginals(*given)[:, :1]):
        together = function(chain, e_BTC, lengths_B)
        for b, n in enumerate(LENGTHS):
            if n:
                alone = function(chain, e_BTC[b : b + 1, :n], lengths_B[b : b + 1])
                torch.testing.assert_close(alone[0], together[b], rtol=0, atol=0)


def test_reading_backwards_begins_at_each_rows_end() -> None:
    """A running sum from both ends, of rows of 3 and of 1 tokens."""
    x_TBI = torch.tensor([[1.0, 10], [2, 99], [4, 99], [99, 99]])[..., None]
    there, back = both_directions(lambda x: x.cumsum(0), lambda x: x.cumsum(0), x_TBI, torch.tensor([3, 1]))
    assert there[:3, 0, 0].tolist() == [1, 3, 7]
    assert back[:3, 0, 0].tolist() == [7, 6, 4]
    assert (float(there[0, 1, 0]), float(back[0, 1, 0])) == (10, 10)
