"""The neural bigram: its gradient by hand, its training on counts, its probabilities."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from examples import VOCAB, text
from laws import LAWS
from octavo.core import LanguageModel, scan, seeded_generator
from octavo.errors import UserError
from octavo.models import bigram_training as training
from octavo.models.bigram import Bigram, BigramConfig, Pairs, Weights, forward_pass, loss_and_gradient, pair_logp
from octavo.models.bigram_training import SPEC, PairCounts, chances, count_pairs, fit_bigram, held_out_loss
from octavo.models.spec import FitContext
from octavo.ops.tracing import trace
from octavo.text import Word, text_in_memory

BEGIN = VOCAB - 1
PAIRS = Pairs(torch.tensor([0, 0, 1, 3]), torch.tensor([2, 5, 0, 4]), torch.tensor([2.0, 0.5, 3.0, 1.0]).double())


def weights(contexts: int = 4, dim: int = 3, hidden: int = 5, outputs: int = 6) -> Weights:
    g = seeded_generator(3)
    shapes = ((contexts, dim), (dim, hidden), (hidden,), (hidden, outputs), (outputs,))
    return Weights(*(torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes))


def plain_loss(w: Weights, pairs: Pairs) -> Tensor:
    logp_CY = forward_pass(w)[1].log_softmax(1)
    return -(pairs.n_P * logp_CY[pairs.row_P, pairs.next_P]).sum()


def drawn(**config: Any) -> Bigram:
    model = Bigram(BigramConfig(**{"dim": 4, "hidden": 5} | config), VOCAB)
    model.initialise(seeded_generator(1))
    with torch.no_grad():
        model.W2_HY.copy_(torch.randn(model.W2_HY.shape, generator=seeded_generator(2)))
    return model.double().requires_grad_(False)


def perplexity(model: LanguageModel[Any], x_N: Tensor) -> float:
    with torch.no_grad():
        return math.exp(-float(model.token_log_probs(None, x_N[None].long())[0].mean()))


def test_the_hand_gradient_is_that_of_autograd() -> None:
    w = Weights(*(tensor.requires_grad_() for tensor in weights()))
    expected = torch.autograd.grad(plain_loss(w, PAIRS), w)
    loss, found = loss_and_gradient(w, PAIRS)
    torch.testing.assert_close(loss, plain_loss(w, PAIRS).detach(), rtol=1e-13, atol=1e-13)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-13)


def test_the_hand_gradient_is_that_of_finite_differences() -> None:
    w, small = weights(), 1e-6
    _, found = loss_and_gradient(w, PAIRS)
    for tensor, gradient in zip(w, found, strict=True):
        for i in range(tensor.numel()):
            flat = tensor.view(-1)
            before = flat[i].item()
            flat[i] = before + small
            up = float(plain_loss(w, PAIRS))
            flat[i] = before - small
            down = float(plain_loss(w, PAIRS))
            flat[i] = before
            assert gradient.reshape(-1)[i].item() == pytest.approx((up - down) / (2 * small), rel=1e-6, abs=1e-7)


def test_one_unit_by_hand() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    two = torch.tensor([[math.log(4), 0.0]], dtype=torch.float64)
    w = Weights(one * 0, one, one[0] * 0, two, torch.zeros_like(two[0]))
    h, logits = forward_pass(w)  # h = sigmoid(0) = 1/2, the logits log 2 and 0: p = 2/3 and 1/3
    assert h.item() == 0.5
    assert logits.softmax(1)[0].tolist() == pytest.approx([2 / 3, 1 / 3], rel=1e-14)
    loss, d = loss_and_gradient(w, Pairs(torch.tensor([0]), torch.tensor([0]), torch.tensor([3.0]).double()))
    assert float(loss) == pytest.approx(3 * math.log(3 / 2), rel=1e-14)
    assert d.b2_Y.tolist() == pytest.approx([-1.0, 1.0], rel=1e-14)  # 3 (p - 1) and 3 p
    assert d.W2_HY[0].tolist() == pytest.approx([-0.5, 0.5], rel=1e-14)
    assert d.b1_H.item() == pytest.approx(-math.log(4) / 4, rel=1e-14)  # -1 · log 4 · h (1 - h)


def test_logits_of_any_size_neither_overflow_nor_lose_the_gradient() -> None:
    w = weights()
    w = w._replace(b2_Y=w.b2_Y + 1e4, W2_HY=w.W2_HY * 1e3)
    loss, gradient = loss_and_gradient(w, PAIRS)
    assert loss.isfinite()
    assert all(part.isfinite().all() for part in gradient)


def test_pair_probabilities_are_the_softmaxes_however_the_contexts_are_chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    w = weights()
    expected = forward_pass(w)[1].log_softmax(1)[PAIRS.row_P, PAIRS.next_P]
    for numbers in (1, 7, 1 << 23):
        monkeypatch.setattr("octavo.models.bigram.MAX_LOGITS", numbers)
        torch.testing.assert_close(pair_logp(w, PAIRS.row_P, PAIRS.next_P), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("length", [1, 2, 63])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_trained_bigram_obeys_the_laws(law: Callable[[LanguageModel[Any], int], None], length: int) -> None:
    model = fit_bigram(text(), BigramConfig(dim=4, hidden=6, steps=100), VOCAB, seeded_generator(1))
    law(model.double().requires_grad_(False), length)


@pytest.mark.parametrize("length", [1, 2, 63])
def test_absorbing_and_charging_agree_with_steps(length: int) -> None:
    model, x_BT = drawn(), torch.randint(0, VOCAB, (3, length), generator=seeded_generator(length))
    by_step, _ = scan(model, None, x_BT)
    torch.testing.assert_close(model.absorb(None, x_BT)[0], by_step, rtol=1e-12, atol=1e-12)
    expected = by_step[:, :-1].log_softmax(-1).gather(-1, x_BT[:, 1:, None]).squeeze(-1)
    torch.testing.assert_close(model.token_log_probs(None, x_BT)[0], expected, rtol=1e-12, atol=1e-12)


def test_begin_is_never_predicted_and_the_rest_sums_to_one() -> None:
    p_BV, _ = drawn().predict(None, torch.arange(VOCAB))
    assert p_BV[:, BEGIN].tolist() == [0.0] * VOCAB
    torch.testing.assert_close(p_BV.sum(1), torch.ones(VOCAB).double(), rtol=0, atol=1e-14)
    logp, _ = drawn().token_log_probs(None, torch.tensor([[3, BEGIN, 2]]))
    assert logp[0, 0] == -math.inf
    assert logp[0, 1].isfinite()


def test_a_trace_shows_the_hidden_layer_at_every_token_and_changes_no_figure() -> None:
    model, x_BT = drawn(), torch.tensor([[BEGIN, 1, 2, 1]])
    plain, _ = model.token_log_probs(None, x_BT)
    with trace() as found:
        traced, _ = model.token_log_probs(None, x_BT)
    assert found["hidden"][0].shape == (1, 3, 5)
    torch.testing.assert_close(traced, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 3, 64, 1 << 24])
def test_pairs_are_counted_as_a_loop_would_and_begin_follows_nothing(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(training, "COUNTED", chunk)
    x = [*text(100).tolist(), BEGIN, 4, 4, 4]
    expected = Counter((a, b) for a, b in pairwise(x) if b != BEGIN)
    key_P, n_P = count_pairs(torch.tensor(x, dtype=torch.int32), VOCAB)
    assert {(k // VOCAB, k % VOCAB): n for k, n in zip(key_P.tolist(), n_P.tolist(), strict=True)} == expected
    assert key_P.tolist() == sorted(key_P.tolist())


def test_the_pairs_of_some_contexts_are_theirs_alone_and_weighed() -> None:
    counts = PairCounts(torch.tensor([BEGIN, 1, 2, 1, 2, 1, 3, 5, 5]), VOCAB)
    pairs = counts.of(torch.tensor([5, 1, 7]), torch.tensor([10.0, 2.0, 1.0]))  # nothing was counted after 7
    assert pairs.row_P.tolist() == [0, 1, 1]
    assert pairs.next_P.tolist() == [5, 2, 3]
    assert pairs.n_P.tolist() == [10.0, 4.0, 2.0]


def test_chances_sum_to_the_batch_and_never_pass_one() -> None:
    n_V = torch.tensor([1000.0, 400, 30, 20, 10, 5, 0, 1])
    q_V = chances(n_V, 4)
    assert float(q_V.sum()) == pytest.approx(4, rel=1e-5)
    assert q_V[6] == 0
    assert bool(((q_V > 0) == (n_V > 0)).all())
    assert float(q_V.max()) <= 1
    assert chances(n_V, 100)[n_V > 0].tolist() == [1.0] * 7
    # To the power 3/4: 125, 64, 27, 27, 8 and five ones, 256 in all. Of a batch of 4, the second is taken for certain.
    tied_V = chances(torch.tensor([625.0, 256, 81, 81, 16, 1, 1, 1, 1, 1], dtype=torch.float64), 4)
    assert tied_V.tolist() == pytest.approx([1, 1, *(2 * size / 67 for size in (27, 27, 8, 1, 1, 1, 1, 1))])


def test_a_step_over_some_contexts_has_on_average_the_whole_tables_gradient() -> None:
    counts = PairCounts(text(), VOCAB)
    model = drawn().float()
    everything = torch.arange(VOCAB)
    _, whole = loss_and_gradient(model.weights(), counts.of(everything, torch.ones(VOCAB) / counts.total))
    q_V, g = chances(counts.n_V, 5), seeded_generator(0)
    mean = torch.zeros_like(whole.W2_HY)
    for _ in range(4000):
        context_C = (torch.rand(VOCAB, generator=g) < q_V).nonzero()[:, 0]
        pairs = counts.of(context_C, 1 / (q_V[context_C] * counts.total))
        mean += loss_and_gradient(model.weights(context_C), pairs)[1].W2_HY / 4000
    assert float((mean - whole.W2_HY).norm() / whole.W2_HY.norm()) < 0.05


def test_training_nears_the_entropy_of_the_counts() -> None:
    x_N = text(6000)
    counts = PairCounts(x_N, VOCAB)
    floor = math.exp(-float((counts.n_P * (counts.n_P / counts.n_V[counts.context_P]).log()).sum()) / counts.total)
    model = fit_bigram(x_N, BigramConfig(dim=8, hidden=12, patience=0), VOCAB, seeded_generator(0))
    assert floor <= perplexity(model, x_N) < floor * 1.02


def test_training_starts_from_the_bag_of_words() -> None:
    x_N = text()
    model = fit_bigram(x_N, BigramConfig(steps=0), VOCAB, seeded_generator(0))
    counts = torch.bincount(x_N[1:], minlength=VOCAB)[:BEGIN].double() + 1
    with torch.no_grad():
        p_BV, _ = model.predict(None, torch.tensor([0, 7]))
    torch.testing.assert_close(p_BV[:, :BEGIN], (counts / counts.sum()).expand(2, -1), rtol=1e-5, atol=1e-7)


def test_the_same_seed_trains_the_same_model() -> None:
    one, same, other = (fit_bigram(text(), BigramConfig(steps=60), VOCAB, seeded_generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.W2_HY, same.W2_HY)
    assert not torch.equal(one.W2_HY, other.W2_HY)


def test_training_stops_where_held_out_text_gets_no_better_and_then_uses_all_of_the_text() -> None:
    random = torch.randint(0, BEGIN, (400,), generator=seeded_generator(5))  # there is nothing to learn but the bag
    reported: list[dict[str, float]] = []
    model = fit_bigram(random, BigramConfig(patience=2, steps=3000), VOCAB, seeded_generator(0), report=reported.append)
    evaluations = [row for row in reported if "held_out" in row]
    best = min(evaluations, key=lambda row: row["held_out"])["step"]
    assert evaluations[-1]["step"] == best + 100 < 3000
    assert [row["step"] for row in reported if "held_out" not in row][-1] == best
    assert all(part.isfinite().all() for part in model.weights())


def test_known_vectors_are_kept_and_the_others_drawn_like_them() -> None:
    vectors_VD = torch.randn(500, 6, generator=seeded_generator(1)) * torch.tensor([5.0, 1, 1, 1, 1, 0.1]) + 3
    known_V = torch.arange(500) < 250
    model = fit_bigram(
        text(vocab=500),
        BigramConfig(dim=6, steps=0),
        500,
        seeded_generator(0),
        vectors_VD.where(known_V[:, None], 0),
        known_V,
    )
    torch.testing.assert_close(model.x_VD[:250].detach(), vectors_VD[:250], rtol=1e-5, atol=1e-5)
    drawn_VD, known_VD = model.x_VD[250:].detach(), vectors_VD[:250]
    assert ((drawn_VD.mean(0) - known_VD.mean(0)).abs() < 0.3 * known_VD.std(0)).all()
    torch.testing.assert_close(drawn_VD.std(0), known_VD.std(0), rtol=0.2, atol=0)


def test_vectors_of_every_token_are_all_kept() -> None:
    vectors_VD = torch.randn(VOCAB, 6, generator=seeded_generator(1))
    model = fit_bigram(text(), BigramConfig(dim=6, steps=0), VOCAB, seeded_generator(0), vectors_VD)
    torch.testing.assert_close(model.x_VD.detach(), vectors_VD, rtol=1e-5, atol=1e-5)


def test_measuring_the_vectors_otherwise_changes_no_answer() -> None:
    model = drawn().float()
    with torch.no_grad():
        before, _ = model.predict(None, torch.arange(VOCAB))
        mean_D, spread_D = training._standardise(model)
        torch.testing.assert_close(model.x_VD.mean(0), torch.zeros(4), rtol=0, atol=1e-6)
        expected, _ = model.predict(None, torch.arange(VOCAB))
        training._put_back(model, mean_D, spread_D)
        after, _ = model.predict(None, torch.arange(VOCAB))
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(before, expected)


def test_vectors_of_another_size_and_vectors_of_nobody_are_refused() -> None:
    with pytest.raises(UserError, match=r"dim must be that of the vectors: dim=50, they have 7; try --dim 7"):
        fit_bigram(text(), BigramConfig(), VOCAB, seeded_generator(0), torch.zeros(VOCAB, 7))
    with pytest.raises(UserError, match=r"0 tokens have a vector; use a word tokenizer"):
        fit_bigram(
            text(), BigramConfig(dim=7), VOCAB, seeded_generator(0), torch.zeros(VOCAB, 7), torch.zeros(VOCAB).bool()
        )


def test_a_text_without_pairs_is_refused() -> None:
    with pytest.raises(UserError, match="a bigram learns from pairs of tokens: the text has 1 tokens"):
        fit_bigram(torch.tensor([BEGIN]), BigramConfig(), VOCAB, seeded_generator(0))


def test_a_few_tokens_with_nothing_to_hold_out_are_trained_on_all_the_same() -> None:
    model = fit_bigram(torch.tensor([BEGIN, 1, 2]), BigramConfig(steps=100), VOCAB, seeded_generator(0))
    with torch.no_grad():
        assert model.predict(None, torch.tensor([1]))[0].argmax() == 2


@pytest.mark.parametrize(
    "wrong", [{"dim": 0}, {"hidden": 0}, {"batch": 0}, {"steps": -1}, {"patience": -1}, {"rate": 0.0}, {"rate": 1e30}]
)
def test_settings_that_make_no_model_are_refused(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(UserError, match=f"{name} must .*{name}=.*; try --{name} "):
        BigramConfig(**wrong)


def test_training_from_a_file_of_vectors_says_how_many_words_it_has(tmp_path: Any) -> None:
    data = b"the cat and the dog and the cat and the dog " * 20
    tokenizer = Word.learn(text_in_memory(data).chunks())
    x_N = torch.from_numpy(tokenizer.encode(data))
    (tmp_path / "v.txt").write_text("the 1 0 0\ncat 0 1 0\ndog 0 1 1\n")
    config = BigramConfig(vectors=str(tmp_path / "v.txt"), dim=3, steps=50)
    assert SPEC.fit is not None
    fitted = SPEC.fit(x_N, config, tokenizer, FitContext())
    assert "have a vector" in fitted.notes[-1]
    assert fitted.model.vocab == tokenizer.vocab
    assert [origin.name for origin in fitted.learnt_from] == [f"vectors {tmp_path / 'v.txt'}"]
    plain = SPEC.fit(x_N, BigramConfig(steps=50), tokenizer, FitContext())
    assert not plain.notes
    assert not plain.learnt_from
    assert plain.model.x_VD.shape == (tokenizer.vocab, 50)


def test_held_out_loss_is_what_charge_says() -> None:
    model, x_N = drawn(), text(200, seed=4)
    expected = math.log(perplexity(model, x_N))
    assert held_out_loss(model, PairCounts(x_N, VOCAB)) == pytest.approx(expected, rel=1e-6)
