"""A bigram language model over word vectors: its gradient, its training from GloVe, its perplexity.

x vector of the last word, h hidden units, p probabilities of the next word, V vocabulary.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from octavo.core import seeded_generator
from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import dataset, normal, tabulated
from octavo.exercises.framework.exercise import MissingDataError
from octavo.models.bigram import Bigram, BigramConfig, Pairs, Weights, loss_and_gradient
from octavo.models.bigram_training import PairCounts, fit_bigram, held_out_loss
from octavo.pages.figures.charts import Series, lines
from octavo.text.word_vectors import read_vectors

VOCABULARY = 2000  # the most frequent words, one token for all others, and begin
WORDS = 1000  # of an untrained model
STEPS, SEEDS = 150, (0, 1)
FULL_STEPS, FULL_SEEDS = 400, (0, 1, 2, 3, 4, 5)
FEW_WORDS = 20_000  # of the smaller training text
GLOVE = "glove-6b-50d"


def word_gradient(x: list[float], W1: list[list[float]], b1: list[float], W2: list[list[float]], b2: list[float],
                  counts: list[float]) -> list[float]:  # fmt: skip
    """The gradient of -sum(counts * log p) by x, for h = sigmoid(x W1 + b1), p = softmax(h W2 + b2)."""
    return _backward((x, W1, b1, W2, b2, counts), float(sum(counts)))


def _backward(case: Sequence[Any], total: float, slope: bool = True) -> list[float]:
    x, W1, b1, W2, b2, counts = (np.array(one) for one in case)
    h = 1 / (1 + np.exp(-(x @ W1 + b1)))
    e = np.exp(h @ W2 + b2)
    delta = total * e / e.sum() - counts
    back = delta @ W2.T * (h * (1 - h) if slope else 1)
    return (back @ W1.T).tolist()  # type: ignore[no-any-return]


def _as_one_label(*case: Any) -> list[float]:
    return _backward(case, 1.0)


def _without_slope(*case: Any) -> list[float]:
    return _backward(case, float(sum(case[-1])), slope=False)


def random_case(seed: int) -> tuple[Any, ...]:
    D, H, Y = 3, 4, 5
    shapes = ((D,), (D, H), (H,), (H, Y), (Y,))
    weights = [normal(*shape, seed=10 * seed + i).mul(100).round().div(100).tolist() for i, shape in enumerate(shapes)]
    return (*weights, [3.0, 0.0, 1.0, 0.0, 2.0] if seed else [0.0, 1.0, 0.0, 0.0, 0.0])


CASES = [random_case(0), random_case(1)]


def by_autograd() -> Finding:
    results, worst = [], 0.0
    for x, *weights, counts in CASES:
        x_D, W1, b1, W2, b2 = (torch.tensor(one, dtype=torch.float64) for one in (x, *weights))
        x_D.requires_grad_()
        logp = (torch.sigmoid(x_D @ W1 + b1) @ W2 + b2).log_softmax(-1)
        (gradient,) = torch.autograd.grad(-(torch.tensor(counts, dtype=torch.float64) * logp).sum(), x_D)
        results.append(gradient.tolist())
        seen = torch.tensor(counts).nonzero().flatten()
        pairs = Pairs(torch.zeros_like(seen), seen, torch.tensor(counts, dtype=torch.float64)[seen])
        own = loss_and_gradient(Weights(x_D.detach()[None], W1, b1, W2, b2), pairs)[1].x_CD[0]
        worst = max(worst, float((own - gradient).abs().max()))
    return Finding(results, f"autograd, two networks; octavo's own gradient of its bigram model differs by {worst:.0e}")


@tabulated("n m p", ((7, 2, 0.25), (5, 5, 0.9), (4, 0, 0.5)), "octavo's gradient of its bigram model", rel=1e-9)
def logit_gradient(n: int, m: int, p: float) -> float:
    """By the logit of a word of probability p that followed m of n times; the bias of the output has that gradient."""
    zeros = torch.zeros(1, 1, dtype=torch.float64)
    b2 = torch.tensor([p, 1 - p], dtype=torch.float64).log()
    weights = Weights(zeros, zeros, zeros[0], torch.zeros(1, 2, dtype=torch.float64), b2)
    pairs = Pairs(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([m, n - m], dtype=torch.float64))
    return float(loss_and_gradient(weights, pairs)[1].b2_Y[0])


class TokenizedText(NamedTuple):
    """Tiny Shakespeare as tokens of a closed vocabulary: nine tenths to train on, one to measure on."""

    words: list[str]  # of the vocabulary, in order of their tokens
    train_N: Tensor
    held_N: Tensor

    @property
    def vocab(self) -> int:
        return len(self.words) + 2  # unknown and begin


def split_words(text: str) -> list[str]:
    """Words in lower case and signs of punctuation."""
    return re.findall(r"[a-z']+|[^\sa-z']", text.lower())


@cache
def shakespeare() -> TokenizedText:
    words = split_words(dataset("shakespeare").read_text(encoding="utf-8"))
    cut = len(words) * 9 // 10
    common = [word for word, _ in Counter(words[:cut]).most_common(VOCABULARY - 2)]
    token = {word: n for n, word in enumerate(common)}
    tokens = [token.get(word, len(common)) for word in words]
    begin = len(common) + 1
    return TokenizedText(common, torch.tensor([begin, *tokens[:cut]]), torch.tensor([begin, *tokens[cut:]]))


@cache
def glove() -> tuple[Tensor, Tensor]:
    """The vectors of the vocabulary, zero where there is none, and which have one."""
    dataset(GLOVE)
    text = shakespeare()
    found = read_vectors(GLOVE, set(text.words))
    place = {word: n for n, word in enumerate(found.words)}
    vectors_VD, known_V = torch.zeros(text.vocab, found.rows_WD.shape[1]), torch.zeros(text.vocab, dtype=torch.bool)
    for token, word in enumerate(text.words):
        if word in place:
            vectors_VD[token], known_V[token] = torch.from_numpy(found.rows_WD[place[word]].copy()), True
    return vectors_VD, known_V


class Trained(NamedTuple):
    """Losses in nats a word."""

    held_out: float
    curve: tuple[tuple[int, float], ...]  # steps and training loss
    training: float


@cache
def trained(seed: int, steps: int, from_glove: bool, words: int = 0) -> Trained:
    """The losses of a bigram model trained for some steps on the training text, or on its first words."""
    text = shakespeare()
    train_N = text.train_N[:words] if words else text.train_N
    curve: list[dict[str, Any]] = []
    vectors_VD, known_V = glove() if from_glove else (None, None)
    config = BigramConfig(steps=steps, patience=0)
    generator = seeded_generator(seed)
    model = fit_bigram(train_N, config, text.vocab, generator, vectors_VD, known_V, curve.append)
    with torch.no_grad():
        held, own = (held_out_loss(model, PairCounts(tokens, text.vocab)) for tokens in (text.held_N, train_N))
    return Trained(held, tuple((row["step"], row["loss"]) for row in curve), own)


def bag_loss() -> float:
    """Nats a held-out word under add-one relative frequencies."""
    text = shakespeare()
    counts = Counter(text.train_N[1:].tolist())
    total = sum(counts.values()) + text.vocab - 1
    return -sum(math.log((counts[token] + 1) / total) for token in text.held_N[1:].tolist()) / (len(text.held_N) - 1)


def pair_entropy() -> float:
    """Nats a word of the training text under the relative frequencies of its own pairs: no bigram model has less."""
    text = shakespeare()
    pairs = Counter(zip(text.train_N[:-1].tolist(), text.train_N[1:].tolist(), strict=True))
    contexts = Counter(text.train_N[:-1].tolist())
    return -sum(n * math.log(n / contexts[context]) for (context, _), n in pairs.items()) / (len(text.train_N) - 1)


def learns(steps: int = STEPS) -> Finding:
    held, bag = trained(0, steps, True).held_out, bag_loss()
    note = f"{steps} steps from GloVe vectors: perplexity {math.exp(held):.1f} on held-out words, bag "
    f"{math.exp(bag):.1f}"
    return Finding(verdict(held < bag), note, "any lower")


def above_bound(steps: int = STEPS) -> Finding:
    own, least = trained(0, steps, True).training, pair_entropy()
    note = f"training loss {own:.3f} nats a word after {steps} steps; the pairs have a conditional entropy of "
    f"{least:.3f}"
    return Finding(verdict(own < least), note, "any lower")


def glove_helps(seeds: tuple[int, ...] = SEEDS) -> Finding:
    losses = {kind: [math.exp(trained(seed, STEPS, kind == "GloVe", FEW_WORDS).held_out) for seed in seeds]
              for kind in ("GloVe", "random")}  # fmt: skip
    listed = ", ".join(f"{kind} {' '.join(f'{x:.1f}' for x in values)}" for kind, values in losses.items())
    note = f"{FEW_WORDS:,} training words, {len(seeds)} seeds, held-out perplexity from vectors: {listed}"
    return Finding(verdict(max(losses["GloVe"]) < min(losses["random"])), note, "with every seed")


def best_model(steps: int = STEPS) -> Finding:
    """Held-out perplexity; pairs that never occurred have probability zero under relative frequencies."""
    text = shakespeare()
    seen = set(zip(text.train_N[:-1].tolist(), text.train_N[1:].tolist(), strict=True))
    new = sum(pair not in seen for pair in zip(text.held_N[:-1].tolist(), text.held_N[1:].tolist(), strict=True))
    perplexity = {"neural": math.exp(trained(0, steps, True).held_out), "bag": math.exp(bag_loss()),
                  "relative": math.inf if new else 0.0}  # fmt: skip
    note = f"neural {perplexity['neural']:.1f}, bag {perplexity['bag']:.1f}; {new:,} held-out pairs never occurred"
    return Finding(min(perplexity, key=lambda name: perplexity[name]), note, "any lower")


def untrained() -> Finding:
    model = Bigram(BigramConfig(), WORDS + 1)
    model.initialise(seeded_generator(0))
    with torch.no_grad():
        logits, _ = model.step(None, torch.tensor([7]))
    return Finding(
        float((-logits.double().log_softmax(-1)[0, 3]).exp()), "octavo's untrained bigram, 1,000 words and begin"
    )


def curve_figure() -> str:
    try:
        curve = list(trained(0, STEPS, True).curve)
    except MissingDataError:
        return ""
    return lines([Series("training loss",
    curve)], "The loss of the bigram model in nats a word, from GloVe vectors.", ("step", "loss"))  # fmt: skip


BIGRAM = Exercise(
    id="vector-bigram", title="A bigram language model over word vectors", figure=curve_figure,
    where={"words": WORDS, "steps": STEPS, "few": FEW_WORDS},
    question="A neural bigram model has a vector x for the last word, hidden units `h = sigmoid(x*W_1 + b_1)` and "
    "probabilities `p = softmax(h*W_2 + b_2)` for the next word; vectors are rows. Words may start from GloVe "
    "vectors. It is trained on the first nine tenths of Tiny Shakespeare and measured on the rest.",
    answer="All occurrences of a context share one forward pass, so their gradient with respect to a logit is the "
    "expected count minus the observed one, and the chain rule does the rest. Untrained, the model is uniform and its "
    "perplexity is the size of the vocabulary. Trained, it beats the bag of words, but not the entropy of the pairs of "
    "its own training text, which bounds every model of pairs. On new text it beats relative frequencies of pairs, "
    "which give some pairs probability zero. GloVe vectors help most where the training text is short.",
    parts=[
        Part("word-gradient",
             "Write a function for the gradient of the loss with respect to x, where counts[y] says how often word y "
             "followed this context.", Function("word_gradient", word_gradient, CASES,
             "word_gradient(x, W1, b1, W2, b2, counts: lists; matrices as lists of rows) -> list"), "autograd",
             by_autograd, why="With `n = sum(y, counts_y)` and `delta = n*p - counts`: `delta*T(W_2)`, times the "
             "slope of the sigmoid elementwise, times `T(W_1)`.",
             wrong={"used the gradient of a single label": _as_one_label, "left out the slope of the sigmoid":
                    _without_slope}),
        Part("counts",
             "A context occurs n times, and a word of probability p followed it m times. What is the gradient of the "
             "summed loss with respect to that word's logit?", Formula("n*p - "
             "m", {"n": "whole", "m": "whole", "p": "share"}),
             "numeric", logit_gradient, why="Each occurrence contributes p, and one less where the word followed.",
             wrong={"used one occurrence": ("p - m", lambda p, m: p - m),
                    "used the wrong sign": ("m - n*p", lambda n, m, p: m - n * p),
                    "used a single label": ("p - 1", lambda p: p - 1)}),
        Part("uniform",
             "All output weights and biases are zero, and there are 1,000{words} words. What is the perplexity?",
             Number(1000), "numeric", untrained, why="All words are equally probable.",
             wrong={"gave the loss in nats": ("ln(1000)", lambda: math.log(WORDS)),
                    "gave it in bits": ("ln(1000)/ln(2)", lambda: math.log2(WORDS))}),
        Part("learns",
             "After 150{steps} steps its perplexity on the held-out text is below that of a bag of words.",
             Truth("true"),
             "trained", learns, full=lambda: learns(FULL_STEPS), why="It knows the last word, which the bag ignores.",
             wrong={"thought that so few steps are not enough": False}),
        Part("bound",
             "With enough hidden units and steps, the model's loss on the training text can fall below the conditional "
             "entropy of the next word given the last, counted in that text.", Truth("false"), "trained", above_bound,
             full=lambda: above_bound(FULL_STEPS),
             why="For each context the relative frequencies minimize the loss, and the entropy is what they reach.",
             wrong={"thought that a network can outdo counting on the same pairs": True}),
        Part("perplexity", "Which of these has the lowest perplexity on the held-out text?",
             Choice("neural", {"neural": "the neural bigram", "bag": "a bag of words with add-one counts",
                               "relative": "relative frequencies of pairs"}), "trained", best_model,
             full=lambda: best_model(FULL_STEPS),
             why="Relative frequencies give a pair that never occurred probability zero, so their perplexity is "
             "infinite."),
        Part("glove",
             "With only 20,000{few} words of training text, starting from GloVe vectors gives a lower held-out "
             "perplexity than starting from random ones.", Truth("true"), "trained", glove_helps,
             full=lambda: glove_helps(FULL_SEEDS),
             why="Words with similar vectors share what is learnt about either of them.",
             wrong={"thought that training makes the start irrelevant": False}),
    ])  # fmt: skip

EXERCISES = (BIGRAM,)
