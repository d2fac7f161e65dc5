"""Speculative decoding writes what plain decoding writes: by exact enumeration, by counts, and token for token.

The statistical tests have fixed seeds, so that they pass or fail for good; each would fail a right program for one
seed in a thousand (P below).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

import octavo
from octavo import UserError
from octavo.cli import main
from octavo.core import MIN_CATCH_UP_TOKENS, LanguageModel
from octavo.decode import Beam, Greedy, Sample, Speculative, Tally, generate, lucks, speculate, stream
from octavo.decode.drafting import SeenNext, distribution, draft_of
from octavo.decode.greedy import without_begin
from octavo.decode.speculative import Dice, chance, leftover
from octavo.models import GPT, GRU, NGram
from octavo.models.ngram import NGramConfig
from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import RecurrentConfig
from octavo.tasks.run import Run
from tiny_models import Dropped, Markov, Recurrent, random_markov

P = 1e-3
METHODS = [
    Sample(), Sample(temperature=0.6), Sample(top_k=2), Sample(top_p=0.7), Sample(min_p=0.3),
    Sample(temperature=1.5, top_k=3, top_p=0.9, min_p=0.1), Greedy(),
]  # fmt: skip
PROMPTS = [[0, 1, 2], [], [2], [1, 1, 0], [0]]


def seeded_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_p(vocab: int, seed: int, zeros: int = 0) -> Tensor:
    logits_1V = 3 * torch.randn(1, vocab, generator=seeded_generator(seed), dtype=torch.float64)
    logits_1V[0, torch.randperm(vocab, generator=seeded_generator(seed))[:zeros]] = -torch.inf
    return logits_1V.softmax(-1)


class AtOnce(Recurrent):
    """A model whose `absorb` is its own and does not give the states on its way, as a fused kernel's does not."""

    def absorb(self, state: Any, x_BT: Tensor) -> tuple[Tensor, Any]:
        return super().absorb(state, x_BT)


def transformer(vocab: int, seed: int = 5, positions: str = "rotary", scale: float = 3.0) -> GPT:
    """A tiny one, whose session keeps keys in place; its context is so short that it is soon left."""
    config = GPTConfig(width=8, layers=1, heads=2, context=6, positions=positions, init="gpt2")  # type: ignore[arg-type]
    model = GPT(config, vocab).double().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(
            scale * torch.randn(parameter.shape, generator=seeded_generator(seed)) * parameter.shape[-1] ** -0.5
        )
    return model


def learned(vocab: int, seed: int = 5, scale: float = 3.0) -> GPT:
    """The same with learned positions: a full context is read again."""
    return transformer(vocab, seed, "learned", scale)


class Script:
    """Luck that follows a list of outcomes, the first ones where the list ends, and knows how probable they were."""

    def __init__(self, outcomes: list[int]) -> None:
        self.outcomes, self.at = outcomes, 0
        self.chances: list[list[float]] = []

    def pick(self, chances: list[float]) -> int:
        self.chances.append(chances)
        if self.at == len(self.outcomes):
            self.outcomes.append(next(i for i, chance_ in enumerate(chances) if chance_ > 0))
        self.at += 1
        return self.outcomes[self.at - 1]

    def token(self, p_1V: Tensor) -> Tensor:
        return torch.tensor([self.pick(p_1V[0].tolist())])

    def accepted(self, chance_N: Tensor) -> int:
        passed, ways = 1.0, []
        for one in chance_N.tolist():
            ways.append(passed * (1 - one))
            passed *= one
        return self.pick([*ways, passed])

    @property
    def probability(self) -> float:
        p = 1.0
        for outcome, chances in zip(self.outcomes, self.chances, strict=True):
            p *= chances[outcome]
        return p

    def next(self) -> list[int] | None:
        """The outcomes of the next script in order; None after the last."""
        for i in reversed(range(len(self.outcomes))):
            for other in range(self.outcomes[i] + 1, len(self.chances[i])):
                if self.chances[i][other] > 0:
                    return [*self.outcomes[:i], other]
        return None


def every_way(model: LanguageModel[Any], prompt: list[int], length: int, method: Speculative) -> Iterator[Any]:
    """Every course that decoding can take: the tokens it writes and its probability."""
    outcomes: list[int] | None = []
    while outcomes is not None:
        script = Script(outcomes)
        yield (
            tuple(x for one in speculate(model, prompt, length, method, script) for x in one.tokens),
            script.probability,
        )
        outcomes = script.next()


def plain(model: LanguageModel[Any], prompt: list[int], length: int, sample: Any) -> dict[tuple[int, ...], float]:
    """The distribution over continuations when each token is drawn from the filtered distribution, by `forward`."""
    found = {}
    for x in product(range(model.begin), repeat=length):
        logits_TV = model(torch.tensor([[model.begin, *prompt, *x]]))[0, len(prompt) : -1]
        p_TV = distribution(sample, without_begin(logits_TV, model.begin))
        found[x] = float(p_TV.gather(1, torch.tensor(x)[:, None]).prod())
    return {x: p for x, p in found.items() if p > 0}


KINDS = [Recurrent, AtOnce, transformer, learned]


# --- exact, without a single random number


@pytest.mark.parametrize("zeros", [0, 2])
@pytest.mark.parametrize("seed", range(20))
def test_an_accepted_or_replaced_token_has_exactly_the_models_distribution(seed: int, zeros: int) -> None:
    p_1V, q_1V = random_p(6, seed, zeros), random_p(6, seed + 100, zeros)
    x_N = torch.arange(6)[q_1V[0] > 0]  # what the draft can propose
    q_N = q_1V[0, x_N]
    accept_N = chance(p_1V.expand(len(x_N), -1), q_N, x_N)
    written_V = torch.zeros(6, dtype=torch.float64).index_add_(0, x_N, q_N * accept_N)
    written_V += (q_N * (1 - accept_N)).sum() * leftover(p_1V, q_1V)[0]
    assert torch.allclose(written_V, p_1V[0], rtol=0, atol=1e-15)


def test_the_rule_by_hand() -> None:
    p_1V, q_1V = (torch.tensor([row], dtype=torch.float64) for row in ([0.5, 0.25, 0.25], [0.25, 0.75, 0.0]))
    assert chance(p_1V, q_1V[:, 0], torch.tensor([0])).tolist() == [1.0]
    assert chance(p_1V, q_1V[:, 1], torch.tensor([1])).tolist() == [1 / 3]
    assert leftover(p_1V, q_1V).tolist() == [[0.5, 0.0, 0.5]]  # 0.25 and 0.25 more than the draft gives
    assert leftover(p_1V, p_1V).tolist() == p_1V.tolist()


@pytest.mark.parametrize("sample", METHODS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_course_of_decoding_summed_gives_the_plain_distribution(kind: Any, sample: Any) -> None:
    model, draft = kind(4, seed=1, scale=0.7), random_markov(4, seed=2, scale=0.7)
    written: Counter[tuple[int, ...]] = Counter()
    for x, p in every_way(model, [1, 0], 3, Speculative(draft, 2, sample)):
        written[x] += p
    expected = plain(model, [1, 0], 3, sample)
    assert written.keys() == expected.keys()
    assert max(abs(written[x] - expected[x]) for x in expected) < 1e-13
    assert sum(written.values()) == pytest.approx(1, abs=1e-13)


def test_a_draft_without_any_opinion_still_leaves_the_distribution_as_it_is() -> None:
    model, draft = Recurrent(3, seed=4, scale=0.7), Markov(torch.full((3, 3), -torch.inf, dtype=torch.float64))
    for hopeless in (draft, Markov(torch.full((3, 3), torch.nan, dtype=torch.float64))):
        written: Counter[tuple[int, ...]] = Counter()
        for x, p in every_way(model, [], 3, Speculative(hopeless, 2)):
            written[x] += p
        assert dict(written) == pytest.approx(plain(model, [], 3, Sample()), abs=1e-13)


# --- an n-gram drafts what it has seen come next


def seen_ngram(order: int = 3, seed: int = 3, length: int = 40, vocab: int = 4, **settings: Any) -> NGram:
    x_N = torch.randint(vocab - 1, (length,), generator=seeded_generator(seed), dtype=torch.int32)
    x_N[0] = vocab - 1
    return NGram.fit(x_N, NGramConfig(order=order, **settings), vocab)


@pytest.mark.parametrize("sample", METHODS, ids=str)
@pytest.mark.parametrize("length", [5, 12])
def test_every_course_with_drafts_of_seen_tokens_only_gives_the_plain_distribution(length: int, sample: Any) -> None:
    model, draft = Recurrent(4, seed=1, scale=0.7), seen_ngram(length=length)
    assert isinstance(draft_of(draft, [1, 0], sample, 3), SeenNext)
    written: Counter[tuple[int, ...]] = Counter()
    for x, p in every_way(model, [1, 0], 3, Speculative(draft, 2, sample)):
        written[x] += p
    expected = plain(model, [1, 0], 3, sample)
    assert written.keys() == expected.keys()
    assert max(abs(written[x] - expected[x]) for x in expected) < 1e-13


@pytest.mark.parametrize(
    "settings", [{}, {"estimator": "mle"}, {"estimator": "add-k"}, {"estimator": "stupid"}, {"prune": (0, 0, 1)}]
)
@pytest.mark.parametrize("order", [2, 4])
def test_seen_tokens_are_guessed_with_the_ngrams_own_probabilities(order: int, settings: dict[str, Any]) -> None:
    """Of the distribution over the vocabulary, what is left is that of the longest context's own continuations."""
    draft = seen_ngram(order, length=60, vocab=6, **settings if order > 2 else {})
    x_T = torch.randint(5, (30,), generator=seeded_generator(8)).tolist()
    guesser, state = SeenNext(draft, [], Sample(), begin=0), draft.start(1)
    for token in [draft.begin, *x_T]:
        p_1V, state = draft.predict(state, torch.tensor([token]))
        if token != draft.begin:
            guesser.hear(0, token)
        (guess,) = guesser.guess(1, Dice(seeded_generator())) or [None]
        followed = [words for k in range(1, order) if (words := continuations(draft, int(state[0, k])))]
        seen = [w for w in followed[-1] if w != 0 and p_1V[0, w] > 0] if followed else []
        if not seen:
            assert guess is None
            continue
        assert guess.tokens_E.tolist() == seen
        expected_E = p_1V[0, seen] / p_1V[0, seen].sum()
        torch.testing.assert_close(guess.q_E, expected_E, rtol=1e-6, atol=1e-9)
        assert guess.chance == pytest.approx(float(guess.q_E[seen.index(guess.token)]))


def continuations(model: NGram, node: int) -> list[int]:
    """The words that follow a context, from the tables."""
    if node >= len(model.first_C) - 1:
        return []
    return model.word_M[int(model.first_C[node]) : int(model.first_C[node + 1])].tolist()


@pytest.mark.parametrize("kind", ["recurrent", "transformer", "learned positions", "n-gram"])
@pytest.mark.parametrize("accepted", range(4))
@pytest.mark.parametrize("method", [Greedy(), Sample()])
def test_a_draft_goes_on_from_what_was_accepted_as_one_that_starts_there(kind: str, accepted: int, method: Any) -> None:
    kinds = {"recurrent": lambda: Recurrent(5), "transformer": lambda: transformer(5),
             "learned positions": lambda: learned(5), "n-gram": lambda: seen_ngram(vocab=5, length=80)}  # fmt: skip
    model, text = kinds[kind](), [0, 1]
    draft = draft_of(model, text, method, model.begin)
    for seed in range(3):
        guesses = draft.guess(3, lucks(Speculative(model, sample=method), seeded_generator(seed), 1)[0])
        kept = min(accepted, len(guesses))
        draft.hear(kept, 2)
        text = [*text, *(guess.token for guess in guesses[:kept]), 2]
        fresh = draft_of(model, text, method, model.begin)
        ours, theirs = (one.guess(2, Script([])) for one in (draft, fresh))
        assert [guess.token for guess in ours] == [guess.token for guess in theirs]
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine.q_E, other.q_E, rtol=1e-10, atol=1e-12)
        draft.hear(0, 1)
        text = [*text, 1]


def test_an_ngram_that_knows_no_context_drafts_nothing() -> None:
    model, draft = Recurrent(4), seen_ngram(order=1)
    rounds = list(speculate(model, [1], 5, Speculative(draft, 3), Dice(seeded_generator())))
    assert [(len(one.tokens), one.drafted, one.calls) for one in rounds] == [(1, 0, 1)] * 5


def test_lines_begin_anew_for_an_ngram_of_sentences() -> None:
    draft = NGram.fit(
        torch.tensor([3, 0, 1, 2, 0, 1, 2, 1, 0, 2]).int(), NGramConfig(order=3, sentences=True), 4, newline=2
    )
    guesser, state = SeenNext(draft, [0, 1, 2], Greedy(), begin=3), draft.start(1)
    for token in (3, 0, 1, 2):
        p_1V, state = draft.predict(state, torch.tensor([token]))
    assert guesser.guess(1, Dice(seeded_generator()))[0].token == int(p_1V.argmax()) == 0


def test_the_drafts_own_begin_need_not_be_the_models() -> None:
    """An n-gram's begin is the last token, that of a pretrained model may be any: it must not be written."""
    model, draft = transformer(5), seen_ngram(vocab=5, length=80)
    model.begin = 1
    assert draft.begin == 4
    for sample in (Sample(), Greedy()):
        (x_T,) = generate(model, [[2]], 60, Speculative(draft, 3, sample), seeded_generator())
        assert len(x_T) == 60
        assert 1 not in x_T.tolist()
    expected = generate(model, [[2]], 60, Greedy())[0].tolist()
    assert x_T.tolist() == expected


# --- counted, with the dice


@pytest.mark.parametrize("sample", [METHODS[0], METHODS[3], METHODS[5]], ids=str)
def test_counted_continuations_of_three_tokens_have_the_plain_distribution(sample: Sample) -> None:
    model, draft, N = random_markov(5, 3, scale=1.0), random_markov(5, 8, scale=1.0), 800
    rows = generate(model, [[2]] * N, 3, Speculative(draft, 3, sample), seeded_generator(0))
    counts = Counter(tuple(x_T.tolist()) for x_T in rows)
    expected = plain(model, [2], 3, sample)
    assert counts.keys() <= expected.keys()
    often = [x for x in expected if N * expected[x] >= 5]  # where the chi-square's approximation holds
    seen, hoped = ([N * table[x] if table is expected else table[x] for x in often] for table in (counts, expected))
    seen, hoped = [*seen, N - sum(seen)], [*hoped, N - sum(hoped)]
    if hoped[-1] < 5:
        seen, hoped = [*seen[:-2], sum(seen[-2:])], [*hoped[:-2], sum(hoped[-2:])]
    assert chisquare(seen, hoped).pvalue > P


def test_a_wrong_rule_would_be_noticed() -> None:
    model, draft, N = random_markov(5, 3, scale=1.0), random_markov(5, 8, scale=1.0), 800
    rows = generate(draft, [[2]] * N, 1, Sample(), seeded_generator(0))  # every draft accepted
    p_V = model.get_buffer("logits_VV")[2, :4].softmax(-1)
    assert chisquare(torch.cat(rows).bincount(minlength=4).numpy(), (N * p_V).numpy()).pvalue < P


# --- token for token


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_greedy_with_a_draft_is_plain_greedy(kind: Any, tokens: int) -> None:
    model = kind(7, seed=5)
    expected = [x.tolist() for x in generate(model, PROMPTS, 24, Greedy())]
    for draft in (random_markov(7, 1), Recurrent(7, seed=6), kind(7, seed=5)):
        assert [x.tolist() for x in generate(model, PROMPTS, 24, Speculative(draft, tokens, Greedy()))] == expected


def test_a_prompt_longer_than_the_models_window_is_absorbed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x_T = Recurrent(6), torch.randint(5, (50,), generator=seeded_generator())
    expected = generate(model, [x_T], 5, Greedy())[0].tolist()
    for window in (1, 7, 49, 50, 51):
        monkeypatch.setattr(Recurrent, "max_scored_tokens", window)
        assert generate(model, [x_T], 5, Speculative(model, 2, Greedy()))[0].tolist() == expected


@pytest.mark.parametrize("kind", [transformer, learned])
def test_a_transformer_drafts_for_another_over_many_contexts(kind: Any) -> None:
    model, drafts = kind(9, seed=3), [kind(9, seed=3), kind(9, seed=4), learned(9, seed=3), seen_ngram(vocab=9)]
    expected = generate(model, [[1, 2], [3]], 60, Greedy())
    for draft in drafts:
        written = generate(model, [[1, 2], [3]], 60, Speculative(draft, 6, Greedy()))
        assert [x.tolist() for x in written] == [x.tolist() for x in expected]


@pytest.mark.parametrize("seed", range(3))
def test_a_gru_and_its_neighbour_write_plain_greedys_text(seed: int) -> None:
    models = []
    for one in (seed, seed + 50):
        model = GRU(RecurrentConfig(width=12, layers=2), 9).double()
        model.initialise(seeded_generator(one))
        models.append(model)
    x_T = torch.randint(8, (150,), generator=seeded_generator(seed))
    expected = generate(models[0], [x_T], 60, Greedy())[0].tolist()
    assert generate(models[0], [x_T], 60, Speculative(models[1], 3, Greedy()))[0].tolist() == expected


def test_a_model_drafting_for_itself_is_always_accepted() -> None:
    model = Recurrent(8, seed=2)
    for sample in METHODS:
        tally = Tally.of(speculate(model, [1], 50, Speculative(model, 4, sample), Dice(seeded_generator())))
        assert (tally.tokens, tally.accepted, tally.drafted, tally.calls) == (50, 40, 40, 10)
        assert (tally.accepted_share, tally.tokens_per_call) == (1.0, 5.0)


def test_a_draft_that_is_never_right_costs_calls_but_no_tokens() -> None:
    right, wrong = (Markov(50 * torch.eye(5, dtype=torch.float64).roll(shift, 1)) for shift in (1, 2))
    model = AtOnce(5)
    model.step = right.step  # type: ignore[method-assign, assignment]
    rounds = list(speculate(model, [0], 3, Speculative(wrong, 4), Dice(seeded_generator())))
    assert [one.tokens for one in rounds] == [[1], [2], [3]]
    assert [one.accepted for one in rounds] == [0, 0, 0]
    assert [one.drafted for one in rounds] == [2, 1, 0]  # never more than could be written
    assert Tally.of([]).accepted_share == Tally.of([]).tokens_per_call == 0


def test_confirmed_tokens_are_absorbed_again_in_the_same_call_until_they_are_many() -> None:
    model, draft = AtOnce(8, seed=1), random_markov(8, 3)
    seen: list[int] = []
    absorb = model.absorb
    model.absorb = lambda state, x_BT: (seen.append(x_BT.shape[1]), absorb(state, x_BT))[1]  # type: ignore[method-assign]
    rounds = list(speculate(model, [1], 80, Speculative(draft, 3), Dice(seeded_generator())))
    assert Tally.of(rounds).calls == len(seen) - 1  # one was the prompt's
    assert [len(one.tokens) for one in rounds] == [one.accepted + 1 for one in rounds]
    assert any(one.calls == 2 for one in rounds)
    assert max(seen) <= MIN_CATCH_UP_TOKENS + 3


def test_the_same_seed_gives_the_same_text_and_leaves_the_global_generator_alone() -> None:
    model, draft, before = Recurrent(20), random_markov(20), torch.get_rng_state()
    texts = [generate(model, PROMPTS, 20, Speculative(draft), seeded_generator(s)) for s in (1, 1, 2)]
    first, again, other = ([x.tolist() for x in text] for text in texts)
    assert first == again != other
    assert torch.equal(before, torch.get_rng_state())
    alone = [
        [x for one in speculate(model, prompt, 20, Speculative(draft), luck) for x in one.tokens]
        for prompt, luck in zip(PROMPTS, lucks(Speculative(draft), seeded_generator(1), 5), strict=True)
    ]
    assert alone == first  # whatever the other rows do


def test_rows_end_with_their_stop_token_also_in_the_middle_of_a_draft() -> None:
    cycle = Markov(50 * torch.eye(5, dtype=torch.float64).roll(1, 1))  # 0 1 2 3, then begin
    for tokens in (1, 2, 3, 8):
        method = Speculative(cycle, tokens, Greedy())
        assert [x.tolist() for x in generate(cycle, [[0], [1]], 9, method, stop=[3])] == [[1, 2, 3], [2, 3]]
        columns = [x.tolist() for x in stream(cycle, [[0], [1]], 9, method, stop=[3])]
        assert columns == [[1, 2], [2, 3], [3, cycle.begin]]
        assert Tally.of(speculate(cycle, [0], 9, method, Dice(seeded_generator()), [3])).tokens == 3


def test_begin_is_never_emitted_even_when_both_models_want_it() -> None:
    model = random_markov(4)
    model.get_buffer("logits_VV")[:, model.begin] = 50.0
    for sample in METHODS:
        (x_T,) = generate(model, [[]], 30, Speculative(model, 3, sample), seeded_generator())
        assert len(x_T) == 30
        assert model.begin not in x_T.tolist()


def test_dropout_is_off_in_both_models_and_the_modes_are_given_back() -> None:
    model, draft = Dropped(8), Dropped(8, seed=1)
    texts = [generate(model, [[1], [2]], 20, Speculative(draft, 3, Greedy())) for _ in range(3)]
    assert texts[0][0].tolist() == texts[1][0].tolist() == texts[2][0].tolist()
    assert [x.tolist() for x in texts[0]] == [x.tolist() for x in generate(model, [[1], [2]], 20, Greedy())]
    assert all(part.training for one in (model, draft) for part in one.modules())
    columns = stream(model, [[1]], 3, Speculative(draft, 3), seeded_generator())
    next(columns)
    assert torch.is_grad_enabled()


def test_nothing_asked_nothing_given() -> None:
    model = Recurrent(4)
    assert [x.tolist() for x in generate(model, [[1], []], 0, Speculative(model), seeded_generator())] == [[], []]
    assert generate(model, [], 3, Speculative(model), seeded_generator()) == []
    assert len(generate(model, [[]], 1, Speculative(model), seeded_generator())[0]) == 1


def test_a_model_without_a_possible_token_is_refused() -> None:
    model = Markov(torch.full((3, 3), -torch.inf, dtype=torch.float64))
    with pytest.raises(UserError, match="smooth the model"):
        generate(model, [[]], 2, Speculative(random_markov(3)), seeded_generator())


def test_wrong_values_are_refused_with_the_rule() -> None:
    model = Recurrent(4)
    for wrong, rule in (
        (lambda: Speculative(model, 0), "a draft needs 1 to 16 tokens: tokens=0"),
        (lambda: Speculative(model, 17), "a draft needs 1 to 16 tokens: tokens=17"),
        (lambda: Speculative("kn5"), "draft must be a language model: it is a str"),  # type: ignore[arg-type]
        (lambda: Speculative(model, 4, Beam()), "only sampling and greedy"),  # type: ignore[arg-type]
        (
            lambda: generate(model, [[]], 3, Speculative(Recurrent(5)), seeded_generator()),
            "model has 4 tokens, the draft 5",
        ),
        (
            lambda: generate(model, [[9]], 3, Speculative(model), seeded_generator()),
            "prompt tokens must lie between 0 and 3",
        ),
    ):
        with pytest.raises(UserError, match=rule):
            wrong()
    with pytest.raises(ValueError, match="generator"):
        generate(model, [[1]], 1, Speculative(model))


# --- runs


TEXT = "the quick brown fox jumps over the lazy dog. Café, naïve, ÆØÅ!\n" * 25


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("speculative")
    (path / "text.txt").write_text(TEXT, encoding="utf-8")
    for name, settings in {"kn2": {"order": 2}, "kn5": {"order": 5}, "words": {"tokenizer": "word"}}.items():
        octavo.train("ngram", path / "text.txt", out=path / name, measure=False, **settings)  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Run]:
    return {name: octavo.load(folder / name) for name in ("kn2", "kn5", "words")}


def test_a_run_drafts_for_another_from_python(runs: dict[str, Run]) -> None:
    run, draft = runs["kn5"], runs["kn2"]
    assert octavo.generate(run, "the ", 40, "greedy", draft=draft) == octavo.generate(run, "the ", 40, "greedy")
    once = octavo.generate(run, "the ", 40, seed=1, draft=draft, draft_tokens=2, temperature=0.8)
    assert once == octavo.generate(run, "the ", 40, seed=1, draft=draft, draft_tokens=2, temperature=0.8)
    assert len(once.encode()) >= 40


def test_a_run_is_trained_with_the_tokenizer_of_another_to_draft_for_it(
    runs: dict[str, Run], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs["words"]
    draft = octavo.train("ngram", folder / "text.txt", order=2, tokenizer=folder / "words", measure=False)
    assert draft.tokenizer.to_json() == run.tokenizer.to_json()
    assert octavo.generate(run, "the ", 20, "greedy", draft=draft) == octavo.generate(run, "the ", 20, "greedy")
    words = ["train", "bag", str(folder / "text.txt"), "--no-measure", "--out", str(folder / "bag")]
    assert main([*words, "--tokenizer", str(folder / "words")]) == 0
    assert octavo.load(folder / "bag").tokenizer.to_json() == run.tokenizer.to_json()
    capsys.readouterr()
    assert main([*words, "--tokenizer", str(folder)]) == 2
    assert f"{folder} is not a run: it has no config.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draft": "words"}, r"a draft must have the run's own tokenizer: kn5 \(byte, 257 tokens\), words \(word, "),
        ({"draft": "kn2", "method": "beam"}, "a draft serves sampling and greedy decoding, not Beam"),
        ({"draft": "kn2", "draft_tokens": 0}, "1 to 16 tokens: tokens=0"),
        ({"draft_tokens": 3}, "draft_tokens is how long drafts are: 3, but nothing drafts"),
    ],
)
def test_drafts_that_do_not_fit_are_refused(
    runs: dict[str, Run], folder: Path, arguments: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {key: runs[value] if key == "draft" else value for key, value in arguments.items()}
    with pytest.raises(UserError, match=message):
        octavo.generate(runs["kn5"], **given)
    paths = {key: folder / value if key == "draft" else value for key, value in arguments.items()}
    flags = [str(word) for key, value in paths.items() for word in (f"--{key.replace('_', '-')}", value)]
    assert main(["generate", str(folder / "kn5"), *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("octavo: ")


def test_runs_may_be_given_by_their_paths(runs: dict[str, Run], folder: Path) -> None:
    by_paths = octavo.generate(folder / "kn5", prompt="the ", max_tokens=30, draft=folder / "kn2")
    assert by_paths == octavo.generate(runs["kn5"], prompt="the ", max_tokens=30, draft=runs["kn2"])


def test_the_command_line_writes_with_a_draft_and_tells_what_it_was_good_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    words = ["generate", str(folder / "kn5"), "--prompt", "the ", "--max-tokens", "40"]
    draft = ["--draft", str(folder / "kn2"), "--draft-tokens", "3"]

    def generate_cli(*more: str) -> Any:
        assert main([*words, *more]) == 0
        return capsys.readouterr()

    greedy = generate_cli("--method", "greedy")
    drafted = generate_cli("--method", "greedy", *draft)
    assert drafted.out == greedy.out
    assert greedy.err == ""
    for part in ("% of the draft's tokens accepted, ", " tokens a call of the model, ", " tokens/s\n"):
        assert part in drafted.err
    assert drafted.err.count("\n") == 1
    found = json.loads(generate_cli("--count", "3", "--seed", "4", "--json", *draft).out)
    assert len(set(found["texts"])) == 3
    assert 0 < found["accepted"] < 1
    assert 1 < found["tokens_per_call"] < 4
    assert found["tokens_per_second"] > 0
    assert generate_cli("--seed", "4", *draft).out == "the " + found["texts"][0] + "\n"
    assert (
        generate_cli("--count", "3", "--seed", "4", *draft).out
        == "\n---\n".join("the " + x for x in found["texts"]) + "\n"
    )
    assert "accepted" not in json.loads(generate_cli("--json").out)
