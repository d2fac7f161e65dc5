"""n-gram models against hand sums, brute force and exact fractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from examples import NEWLINE, VOCAB, ngram, text
from octavo.errors import UserError
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.ngram.counting import Vocabulary, Workspace, count_ngrams
from octavo.models.ngram.estimators import FALLBACK, discounts

IDS = Vocabulary(VOCAB, VOCAB - 1)
A, B, C, BEGIN = 0, 1, 2, 3  # a vocabulary of three words and begin


def fit(words: list[int], vocab: int = 4, **config: object) -> NGram:
    return NGram.fit(torch.tensor([vocab - 1, *words], dtype=torch.int32), NGramConfig(**config), vocab)  # type: ignore[arg-type]


def p(model: NGram, context: list[int]) -> Tensor:
    """The distribution after the context, begin absorbed first."""
    return model(torch.tensor([[model.begin, *context]]))[0, -1].exp()


def test_maximum_likelihood_bigram_is_the_ratio_of_counts() -> None:
    model = fit([A, B, A, B, A, C], order=2, estimator="mle")
    torch.testing.assert_close(p(model, [A]), torch.tensor([0, 2 / 3, 1 / 3, 0], dtype=torch.float64))
    torch.testing.assert_close(p(model, [B]), torch.tensor([1.0, 0, 0, 0], dtype=torch.float64))


def test_trigram_backs_off_to_bigram_when_unseen() -> None:
    words = [A, B, A, B, A, C]
    trigram, bigram = fit(words, order=3, estimator="mle"), fit(words, order=2, estimator="mle")
    assert torch.equal(p(trigram, [C, B]), p(bigram, [B]))


def test_the_last_gram_of_a_sequence_is_no_context() -> None:
    """Counting every C as a context (1 + the final one) would make p(. | C) sum to 1/2; exact fractions show it."""
    words = [C, A, B, C]
    followed = Counter(pairwise(words))
    as_context = sum(n for (first, _), n in followed.items() if first == C)
    everywhere = words.count(C)
    assert Fraction(followed[C, A], as_context) == 1
    assert Fraction(followed[C, A], everywhere) == Fraction(1, 2)
    assert float(p(fit(words, order=2, estimator="mle"), [C]).sum()) == 1.0


def test_a_context_that_only_ends_a_text_hands_everything_down() -> None:
    model = fit([A, B, A, C], order=2, estimator="mle")
    assert torch.equal(p(model, [C]), p(fit([A, B, A, C], order=1, estimator="mle"), []))


def test_add_k_is_the_textbook_formula() -> None:
    model = fit([A, B, A, B, A, C], order=2, estimator="add-k", k=0.5)
    expected = torch.tensor([0.5, 2.5, 1.5, 0], dtype=torch.float64) / (3 + 0.5 * 3)
    torch.testing.assert_close(p(model, [A]), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(p(model, [C]), torch.tensor([1, 1, 1, 0], dtype=torch.float64) / 3)


def test_stupid_backoff_is_the_published_score_scaled_to_one() -> None:
    words = [A, B, A, B, A, C]
    model = fit(words, order=2, estimator="stupid", factor=0.4)
    unigram = torch.tensor([3 / 6, 2 / 6, 1 / 6])
    score = torch.tensor([0.4 * unigram[A], 2 / 3, 1 / 3, 0], dtype=torch.float64)
    torch.testing.assert_close(p(model, [A]), score / score.sum(), rtol=1e-6, atol=1e-9)


def brute_force_kneser_ney(words: list[int], context: tuple[int, ...], w: int, order: int, vocab: int) -> float:
    """Modified Kneser-Ney by its definition, with dictionaries and recursion; one sequence, opened by begin."""
    x = [vocab - 1, *words]
    grams = {k: Counter(tuple(x[i : i + k]) for i in range(len(x) - k + 1)) for k in range(1, order + 1)}
    grams[1].pop((vocab - 1,))

    def adjusted(k: int) -> dict[tuple[int, ...], int]:
        if k == order:
            return dict(grams[k])
        return {g: n if g[0] == vocab - 1 else sum(h[1:] == g for h in grams[k + 1]) for g, n in grams[k].items()}

    def probability(context: tuple[int, ...], w: int) -> float:
        k = len(context) + 1
        a = adjusted(k)
        d = (0.0, *discounts(torch.tensor(list(a.values()))))
        follow = {g[-1]: n for g, n in a.items() if g[:-1] == context}
        lower = probability(context[1:], w) if context else 1 / (vocab - 1)
        if not sum(follow.values()):
            return lower
        gamma = sum(d[min(n, 3)] for n in follow.values()) / sum(follow.values())
        n = follow.get(w, 0)
        return (n - d[min(n, 3)]) / sum(follow.values()) + gamma * lower

    return probability(context, w)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_kneser_ney_equals_its_definition(order: int) -> None:
    words = (text(150)[1:] % 5).tolist()
    model = fit(words, vocab=6, order=order)
    for context in ([], [words[0]], words[:3], words[7:12], [4, 4, 4]):
        after = tuple([5, *context][max(0, len(context) + 2 - order) :])
        expected = [brute_force_kneser_ney(words, after, w, order, 6) for w in range(5)]
        torch.testing.assert_close(
            p(model, context)[:5], torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0
        )


@pytest.mark.parametrize(
    "counts", [[], [1], [1, 1, 1], [2, 2], [5, 5, 9], [1, 2], [1] * 9 + [2], [1, 2, 3, 4, 4, 4, 4]]
)
def test_discounts_never_fail_and_stay_below_the_count(counts: list[int]) -> None:
    found = discounts(torch.tensor(counts, dtype=torch.int32))
    assert all(0 <= d <= i for i, d in enumerate(found, 1))


def test_discounts_are_chen_and_goodmans_where_the_data_allow() -> None:
    counts = torch.tensor([1] * 60 + [2] * 20 + [3] * 10 + [4] * 6)
    y = 60 / 100
    assert discounts(counts) == pytest.approx((1 - 2 * y * 20 / 60, 2 - 3 * y * 10 / 20, 3 - 4 * y * 6 / 10))
    assert discounts(torch.tensor([7, 7])) == FALLBACK


@pytest.mark.parametrize("words", [[A], [A, A], [A] * 50, [A, B] * 30, [A, B, C]])
def test_tiny_and_artificial_texts_train(words: list[int]) -> None:
    for order in (1, 2, 5):
        assert float(p(fit(words, order=order), words[-3:]).sum()) == pytest.approx(1, abs=1e-12)


def test_counting_in_chunks_changes_nothing() -> None:
    x_N = text(3000)
    whole = list(count_ngrams(x_N, 5, IDS))
    for chunk in (1, 37, 500):
        for level, again in zip(whole, count_ngrams(x_N, 5, IDS, Workspace(chunk)), strict=True):
            for name in ("context_M", "word_M", "count_M", "extension_M"):
                assert torch.equal(getattr(level, name), getattr(again, name)), (chunk, name)


@pytest.mark.parametrize("sentences", [False, True])
def test_counting_in_mapped_files_changes_nothing_and_leaves_nothing(sentences: bool, tmp_path: Path) -> None:
    config = NGramConfig(order=4, sentences=sentences)
    plain = NGram.fit(text(3000), config, VOCAB, NEWLINE)
    for chunk in (7, 500, None):
        mapped = NGram.fit(text(3000), config, VOCAB, NEWLINE, Workspace(chunk, tmp_path))
        for name, tensor in plain.state_dict().items():
            assert torch.equal(mapped.state_dict()[name], tensor), (chunk, name)
    assert list(tmp_path.iterdir()) == []


def test_counts_are_those_of_a_dictionary() -> None:
    x_N = torch.cat([text(200), text(100, seed=5)])  # two sequences, each opened by begin
    x, begin = x_N.tolist(), VOCAB - 1
    expected = Counter(tuple(x[i : i + 3]) for i in range(len(x) - 2) if begin not in x[i + 1 : i + 3])
    _, two, three = count_ngrams(x_N, 3, IDS)
    pairs = list(zip(two.context_M.tolist(), two.word_M.tolist(), strict=True))
    found = {
        (*pairs[c], w): n
        for c, w, n in zip(three.context_M.tolist(), three.word_M.tolist(), three.count_M.tolist(), strict=True)
    }
    assert found == expected


def test_nothing_is_learnt_across_the_border_of_two_sequences() -> None:
    x_N = torch.tensor([BEGIN, A, B, BEGIN, C, A], dtype=torch.int32)
    model = NGram.fit(x_N, NGramConfig(order=2, estimator="mle"), 4)
    assert float(p(model, [])[A]) == 0.5
    assert float(p(model, [])[C]) == 0.5
    assert torch.equal(
        p(model, [B]), NGram.fit(x_N, NGramConfig(order=1, estimator="mle"), 4)(torch.tensor([[BEGIN]]))[0, 0].exp()
    )


def test_sentences_start_over_after_each_newline() -> None:
    model = ngram(order=4, sentences=True)
    fresh = model(torch.tensor([[model.begin]]))[0, -1]
    after = model(torch.tensor([[model.begin, 5, 2, NEWLINE]]))[0, -1]
    assert torch.equal(after, fresh)


def test_sentences_count_as_if_each_began_with_begin() -> None:
    """An n-gram that restarts at newlines equals one trained on the text with begin put after every newline."""
    x_N = text(2000)
    opened = [token for x in x_N.tolist() for token in ([x, VOCAB - 1] if x == NEWLINE else [x])]
    plain = NGram.fit(torch.tensor(opened, dtype=torch.int32), NGramConfig(order=4), VOCAB)
    restarting = NGram.fit(x_N, NGramConfig(order=4, sentences=True), VOCAB, NEWLINE)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(restarting.state_dict()[name], tensor), name


def test_pruning_keeps_what_occurs_more_often_and_the_words() -> None:
    full, pruned = ngram(order=3), ngram(order=3, prune=(0, 1, 2))
    _, two, three = count_ngrams(text(), 3, IDS)
    kept = int((two.count_M > 1).sum()) + int((three.count_M > 2).sum())
    assert len(pruned.word_M) == 1 + VOCAB + kept < len(full.word_M)


@pytest.mark.parametrize(
    "config",
    [{"order": 0}, {"estimator": "add-k", "k": 0.0}, {"prune": (2, 1)}, {"estimator": "stupid", "factor": 1.5}],
)
def test_settings_that_make_no_sense_are_refused(config: dict[str, object]) -> None:
    with pytest.raises(UserError):
        NGramConfig(**config)  # type: ignore[arg-type]


def test_damaged_tables_are_refused() -> None:
    model = ngram(order=3)
    tensors = dict(model.state_dict())
    for name, place, value in (("word_M", 5, VOCAB), ("first_C", 3, 10**6), ("word_M", 9, -1)):
        damaged = {key: tensor.clone() for key, tensor in tensors.items()}
        damaged[name][place] = value
        with pytest.raises(UserError, match="damaged"):
            NGram(model.config, VOCAB).load_tensors(damaged)
    with pytest.raises(UserError, match="another model"):
        NGram(model.config, VOCAB).load_tensors({"word_M": tensors["word_M"]})


@pytest.mark.parametrize("estimator", ["kneser-ney", "mle", "add-k", "stupid"])
@pytest.mark.parametrize("prune", [(), (0, 0, 1)])
def test_tables_that_octavo_made_are_probabilities(estimator: str, prune: tuple[int, ...]) -> None:
    model = ngram(order=4, estimator=estimator, prune=prune)
    NGram(model.config, VOCAB).load_tensors(dict(model.state_dict()))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("alpha_M", lambda tensor: tensor * 50),
        ("alpha_M", lambda tensor: tensor / 2),
        ("alpha_M", lambda tensor: tensor.index_fill(0, torch.tensor([7]), torch.nan)),
        ("alpha_M", lambda tensor: tensor.index_fill(0, torch.tensor([7]), torch.inf)),
        ("alpha_M", lambda tensor: -tensor),
        ("gamma_C", lambda tensor: tensor * 1.00001),
        ("gamma_C", lambda tensor: tensor.index_fill(0, torch.tensor([4]), 0.0)),
        ("gamma_C", lambda tensor: tensor.index_fill(0, torch.tensor([4]), torch.nan)),
        ("gamma_C", lambda tensor: tensor - 1),
    ],
)
def test_tables_that_are_no_probabilities_are_refused(name: str, change: Callable[[Tensor], Tensor]) -> None:
    model = ngram(order=3)
    tensors = dict(model.state_dict())
    with pytest.raises(UserError, match=r"sum to 1: .* they sum to|finite|negative"):
        NGram(model.config, VOCAB).load_tensors(tensors | {name: change(tensors[name])})


def test_mass_that_negative_entries_pay_for_is_refused() -> None:
    """Every sum is one, but an n-gram below zero lends the others of its context what they do not have."""
    model = ngram(order=3, estimator="stupid")
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    context = int((tensors["first_C"].diff() > 1).nonzero()[3])
    first = int(tensors["first_C"][context])
    tensors["alpha_M"][first] += 0.9
    tensors["alpha_M"][first + 1] -= 0.9
    with pytest.raises(UserError, match="must not be negative: one of"):
        NGram(model.config, VOCAB).load_tensors(tensors)


@pytest.mark.gpu
def test_the_gpu_counts_and_predicts_what_the_cpu_does() -> None:
    x_N = text(20_000)
    cpu, gpu = (NGram.fit(x_N.to(device), NGramConfig(order=5), VOCAB) for device in ("cpu", "cuda"))
    x_BT = text(500, seed=9)[None, 1:].long()
    torch.testing.assert_close(gpu.score(x_BT.cuda()).cpu(), cpu.score(x_BT), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("vocab", [5_000_000, 12_000_000])  # 12 million: the table grows so that a slot holds its key
def test_huge_vocabularies_are_found_too(vocab: int) -> None:
    x_N = torch.tensor([vocab - 1, 3, vocab - 7, 3, vocab - 7, 9], dtype=torch.int32)
    model = NGram.fit(x_N, NGramConfig(order=2, estimator="mle"), vocab)
    context, word = torch.tensor([1 + 3, 1 + 3, vocab]), torch.tensor([vocab - 7, 9, 3])
    found = model.index.child(context, word)
    assert (found != model.none).tolist() == [True, False, True]
    assert model.word_M[found[0]] == vocab - 7


def test_one_token_alone_has_no_log_probabilities_of_the_models_precision() -> None:
    model = NGram.fit(torch.tensor([4, 0, 1, 2, 0, 1, 3]).int(), NGramConfig(order=2), 5)
    for precision in (torch.float32, torch.float64):
        logp_BT, _ = model.to(precision).token_log_probs(model.start(2), torch.tensor([[4], [4]]))
        assert (logp_BT.shape, logp_BT.dtype) == ((2, 0), model.gamma_C.dtype)
    assert model.gamma_C.dtype == torch.float64
