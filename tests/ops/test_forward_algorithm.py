"""Hidden Markov models against sums over all paths, and against hmmlearn.

B batch, T time, S hidden states, V vocabulary.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from octavo.core import seeded_generator
from octavo.ops import hidden_markov
from octavo.ops.hidden_markov import (
    HiddenMarkov,
    expected_counts,
    forward,
    forward_by_steps,
    forward_in_chunks,
    state_probabilities,
    viterbi,
)

S, V, BEGIN = 3, 5, 5
EXACT = {"rtol": 1e-11, "atol": 1e-12}


def drawn(states: int = S, seed: int = 1) -> HiddenMarkov:
    """Random probabilities; the token V is begin."""
    generator = seeded_generator(seed)
    logits = [2 * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in
              ((states,), (states, states), (V + 1, states))]  # fmt: skip
    return HiddenMarkov(logits[0].softmax(0), logits[1].softmax(1), logits[2].softmax(0), BEGIN)


def text(length: int, batch: int = 2, seed: int = 3, begins: bool = True) -> Tensor:
    return torch.randint(0, V + begins, (batch, length), generator=seeded_generator(seed))


def paths(m: HiddenMarkov, x: list[int]) -> dict[tuple[int, ...], float]:
    """The joint probability of the tokens and every path of hidden states, one product each."""
    found = {}
    for z in itertools.product(range(len(m.start_S)), repeat=len(x)):
        p = float(m.start_S[z[0]])
        for t, (state, token) in enumerate(zip(z, x, strict=True)):
            p *= float(m.emission_VS[token, state]) * (float(m.transition_SS[z[t - 1], state]) if t else 1.0)
        found[z] = p
    return found


def test_the_forward_algorithm_by_hand() -> None:
    """Two states: π = (1, 0); A stays with 3/4; E = (1/2, 1/2) and (0, 1). After one token 1, q = (3/4, 1/4), so the
    next one is 1 with probability 3/4 · 1/2 + 1/4 · 1 = 5/8; after it b = (3/5, 2/5), and q = (11/20, 9/20)."""
    m = HiddenMarkov(
        torch.tensor([1.0, 0.0]), torch.tensor([[0.75, 0.25], [0.25, 0.75]]), torch.tensor([[0.5, 0.0], [0.5, 1.0]]), 2
    )  # fmt: skip
    q_1TS = forward_by_steps(m._replace(emission_VS=torch.cat([m.emission_VS, torch.zeros(1, 2)])), m.start_S[None],
                             torch.tensor([[1, 1]]))  # fmt: skip
    torch.testing.assert_close(q_1TS, torch.tensor([[[0.75, 0.25], [0.55, 0.45]]]))
    assert float(q_1TS[0, 0] @ m.emission_VS[1]) == 0.625


@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_next_token_is_as_probable_as_the_sum_over_all_paths_says(length: int) -> None:
    m, x = drawn(), text(length, 1, begins=False)[0].tolist()
    before = sum(paths(m, x).values())
    expected = torch.tensor([sum(paths(m, [*x, v]).values()) / before for v in range(V)], dtype=torch.float64)
    q_BTS = forward_by_steps(m, m.start_S[None], torch.tensor([x]))
    torch.testing.assert_close((m.emission_VS @ q_BTS[0, -1])[:V], expected, **EXACT)


@pytest.mark.parametrize("length", [1, 2, 3, 31, 100])
def test_chunks_equal_steps_in_value_and_gradient(length: int) -> None:
    x_BT, q_BS = text(length), drawn(seed=7).emission_VS[:2].softmax(1)
    results = []
    for path in (forward_by_steps, forward_in_chunks):
        leaves = [one.clone().requires_grad_() for one in (*drawn()[:3], q_BS)]
        q_BTS = path(HiddenMarkov(*leaves[:3], BEGIN), leaves[3], x_BT)
        weight_BTS = torch.randn(q_BTS.shape, generator=seeded_generator(4), dtype=torch.float64)
        (q_BTS * weight_BTS).sum().backward()
        results.append((q_BTS, [leaf.grad for leaf in leaves]))
    torch.testing.assert_close(results[0], results[1], **EXACT)


def test_chunks_equal_steps_where_one_state_nearly_excludes_a_text() -> None:
    """From the wrong first state the text has a probability below what a float holds: its weight is still right."""
    m = drawn()
    A_SS = torch.full((S, S), 1e-12, dtype=torch.float64).fill_diagonal_(1 - 2e-12)
    e_VS = torch.full((V + 1, S), 1e-9, dtype=torch.float64)
    e_VS[0, 0] = e_VS[1, 1] = e_VS[2, 2] = 1 - 5e-9
    m = HiddenMarkov(m.start_S, A_SS, e_VS, BEGIN)
    x_BT = torch.cat([torch.full((1, 1500), 1), torch.full((1, 1500), 2)], 1)
    torch.testing.assert_close(forward_in_chunks(m, m.start_S[None], x_BT), forward_by_steps(m, m.start_S[None], x_BT),
                               rtol=1e-9, atol=1e-12)  # fmt: skip


@pytest.mark.parametrize("numbers", [1 << 24, 40 * 2 * S**2])
def test_the_way_that_is_taken_makes_no_difference(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    """Also where only 40 tokens of a text are read at once."""
    monkeypatch.setattr(hidden_markov, "MAX_CHUNKED_NUMBERS", numbers)
    m, x_BT = drawn(), text(130)
    torch.testing.assert_close(forward(m, m.start_S.expand(2, -1), x_BT),
                               forward_by_steps(m, m.start_S.expand(2, -1), x_BT), **EXACT)  # fmt: skip


def test_begin_forgets_what_was_before() -> None:
    m = drawn()
    q_BTS = forward_by_steps(m, m.start_S[None], torch.tensor([[1, 2, BEGIN]]))
    assert torch.equal(q_BTS[0, -1], m.start_S)


def test_expected_counts_are_those_of_all_paths() -> None:
    """Two sequences of different lengths, the shorter one padded."""
    m = drawn()
    rows = [[0, 3, 3, 1], [2, 4]]
    start_S, pair_SS, emission_VS, logp = torch.zeros(S), torch.zeros(S, S), torch.zeros(V + 1, S), 0.0
    for x in rows:
        joint = paths(m, x)
        total = sum(joint.values())
        logp += math.log(total)
        for z, p in joint.items():
            start_S[z[0]] += p / total
            for t, state in enumerate(z):
                emission_VS[x[t], state] += p / total
                if t:
                    pair_SS[z[t - 1], state] += p / total
    x_PT = torch.tensor([rows[0], [*rows[1], 0, 0]])
    found = expected_counts(m, x_PT, torch.tensor([[True] * 4, [True, True, False, False]]))
    torch.testing.assert_close(found[:3], (start_S.double(), pair_SS.double(), emission_VS.double()),
                               rtol=1e-6, atol=1e-6)  # fmt: skip
    assert found.log_likelihood == pytest.approx(logp, abs=1e-12)


@pytest.mark.parametrize("length", [1, 2, 6])
def test_the_viterbi_path_is_the_best_of_all_paths(length: int) -> None:
    m, x = drawn(seed=length), text(length, 1, begins=False)[0].tolist()
    joint = paths(m, x)
    best = max(joint, key=lambda z: joint[z])
    path_T, logp = viterbi(m, torch.tensor(x))
    assert tuple(path_T.tolist()) == best
    assert logp == pytest.approx(math.log(joint[best]), abs=1e-12)


def test_state_probabilities_are_those_of_all_paths() -> None:
    m, x = drawn(), [0, 3, 3, 1, 2]
    expected_TS = torch.zeros(5, S, dtype=torch.float64)
    joint = paths(m, x)
    for z, p in joint.items():
        for t, state in enumerate(z):
            expected_TS[t, state] += p / sum(joint.values())
    torch.testing.assert_close(state_probabilities(m, torch.tensor(x)), expected_TS, **EXACT)


def test_hmmlearn_gives_the_same_likelihood_path_and_state_probabilities() -> None:
    from hmmlearn import hmm

    m, x_T = drawn(), text(200, 1, begins=False)[0]
    theirs = hmm.CategoricalHMM(S)
    theirs.startprob_, theirs.transmat_ = m.start_S.numpy(), m.transition_SS.numpy()
    theirs.emissionprob_ = (m.emission_VS[:V] / m.emission_VS[:V].sum(0)).T.numpy()
    ours = m._replace(emission_VS=torch.from_numpy(theirs.emissionprob_.T.copy()))
    column = x_T[:, None].numpy()
    counts = expected_counts(ours, x_T[None], torch.ones(1, 200, dtype=torch.bool))
    assert counts.log_likelihood == pytest.approx(theirs.score(column), abs=1e-8)
    path_T, logp = viterbi(ours, x_T)
    their_logp, their_path = theirs.decode(column)
    assert logp == pytest.approx(their_logp, abs=1e-8)
    assert path_T.tolist() == their_path.tolist()
    torch.testing.assert_close(state_probabilities(ours, x_T), torch.from_numpy(theirs.predict_proba(column)))
