"""A linear-chain CRF by hand: the best tags, the sum over all, and what the gradient counts."""

from __future__ import annotations

import itertools
import math

import torch

from octavo.exercises import Exercise, Finding, Formula, Number, Part
from octavo.exercises.framework.evidence import tabulated
from octavo.ops.linear_chain import Chain, best_paths, log_partition, marginals
from octavo.pages.figures.charts import bars

NOUN, VERB = 0, 1
CHAIN = Chain(torch.zeros(2).double(), torch.tensor([[0.0, 2.0], [1.0, 0.0]]).double(), torch.zeros(2).double())
SCORES = torch.tensor([[[2.0, 1.0], [1.0, 0.0], [2.0, 0.0]]]).double()  # of noun and verb at each of three words
LENGTHS = torch.tensor([3])
NAMES = "NV"


def score(tags: tuple[int, ...]) -> float:
    """The sum of the scores of the words and of the pairs of neighbours."""
    words = sum(float(SCORES[0, t, tag]) for t, tag in enumerate(tags))
    return words + sum(float(CHAIN.transition_CC[pair]) for pair in itertools.pairwise(tags))


def sequences(length: int = 3) -> list[tuple[int, ...]]:
    return list(itertools.product(range(2), repeat=length))


def spelt(tags: tuple[int, ...]) -> str:
    return "".join(NAMES[tag] for tag in tags)


def best() -> Finding:
    y_1T, s_1 = best_paths(CHAIN, SCORES, LENGTHS)
    named = spelt(tuple(y_1T[0].tolist()))
    return Finding(
        float(s_1), f"octavo's Viterbi path {named}; the best of the eight sums is {max(map(score, sequences())):g}"
    )


def total() -> Finding:
    listed = log_sum(sequences())
    return Finding(float(log_partition(CHAIN, SCORES, LENGTHS)), f"octavo's forward algorithm; all eight: {listed:.4f}")


def verb_second() -> Finding:
    weights = {tags: math.exp(score(tags)) for tags in sequences()}
    listed = sum(weight for tags, weight in weights.items() if tags[1] == VERB) / sum(weights.values())
    p = float(marginals(CHAIN, SCORES, LENGTHS)[0, 1, VERB])
    return Finding(p, f"octavo's forward-backward; all eight: {listed:.4f}")


def gradient() -> Finding:
    """Of log Z with respect to the score of a verb behind a noun, by automatic differentiation."""
    transition_CC = CHAIN.transition_CC.clone().requires_grad_()
    log_partition(CHAIN._replace(transition_CC=transition_CC), SCORES, LENGTHS).sum().backward()
    assert transition_CC.grad is not None
    return Finding(float(transition_CC.grad[NOUN, VERB]), "automatic differentiation of octavo's log-partition")


def greedy() -> float:
    """The score of each word's own best tag."""
    return score(tuple(SCORES[0].argmax(1).tolist()))


def log_sum(some: list[tuple[int, ...]]) -> float:
    """The logarithm of the sum of exp(score)."""
    return math.log(sum(math.exp(score(tags)) for tags in some))


@tabulated("C T", ((2, 3), (3, 4), (4, 2)), "the sums of the recursion listed and counted")
def viterbi_sums(c: int, t: int) -> int:
    return sum(len(list(itertools.product(range(c), repeat=2))) for _ in range(1, t))


def sequence_figure() -> str:
    rows = [(spelt(tags), score(tags)) for tags in sequences()]
    return bars(rows, "The score of each sequence of tags: N noun, V verb.", 1)


LINEAR_CHAIN = Exercise(
    id="linear-chain", title="Tags by a linear-chain CRF", figure=sequence_figure,
    question="Three words are tagged as nouns (N) or verbs (V). The scores of a noun are 2{n1}, 1{n2} and 2{n3}, those "
    "of a verb 1{v1}, 0{v2} and 0{v3}. A verb behind a noun adds 2{nv}, a noun behind a verb adds 1{vn}, equal "
    "neighbours add 0{same}. The probability of a sequence is proportional to the exponential of its score.",
    where={**{f"{name}{t + 1}": float(SCORES[0, t, tag]) for t in range(3) for tag, name in enumerate("nv")},
           "nv": float(CHAIN.transition_CC[NOUN, VERB]), "vn": float(CHAIN.transition_CC[VERB, NOUN]),
           "same": float(CHAIN.transition_CC[NOUN, NOUN]), "nvn": lambda: score((NOUN, VERB, NOUN)),
           "nnn": lambda: score((NOUN, NOUN, NOUN)), "count": len(sequences()),
           "four": sum(score(tags) == score((NOUN, NOUN, NOUN)) for tags in sequences()),
           "C": (2, 3, 4), "T": (3, 2, 2)},
    answer="The best sequence and the sum over all of them are one recursion, with the maximum or with the sum of "
    "exponentials: of what ends with each tag, only the best, or the sum, is needed for what follows. And the gradient "
    "of the sum counts how often a pair of tags is expected, which training moves to how often it is there.",
    parts=[
        Part("best", "What is the score of the best sequence of tags?", Number(7), "exact", best,
             why="Noun, verb, noun: `2 + 0 + 2`{4} for the words and `2 + 1`{3} for the pairs. Three nouns have only "
             "5{nnn}.",
             wrong={"took the best tag of each word by itself": (5, greedy),
                    "left out the pairs of neighbours":
                        (4, lambda: float(sum(SCORES[0, t, tag] for t, tag in enumerate((NOUN, VERB, NOUN)))))}),
        Part("total", "What is log Z, the logarithm of the sum of the exponentials of all scores?",
             Number("ln(exp(7) + 4*exp(5) + 2*exp(4) + exp(1))", digits=4), "exact", total,
             why="One of the 8{count} sequences has 7{best}, 4{four} have 5{nnn}, and all of them add to the sum.",
             wrong={"took the best sequence alone": (7, lambda: best().value),
                    "left out the best sequence": ("ln(4*exp(5) + 2*exp(4) + exp(1))",
                        lambda: log_sum([tags for tags in sequences() if tags != (NOUN, VERB, NOUN)]))}),
        Part("marginal", "With what probability is the second word a verb?",
             Number("(exp(7) + 2*exp(4) + exp(1)) / (exp(7) + 4*exp(5) + 2*exp(4) + exp(1))"), "exact", verb_second,
             why="The share of the sequences with a verb there: N V N, N V V, V V N and V V V.",
             wrong={"took the scores of the second word alone": ("1 / (1 + exp(1))",
                        lambda: float(SCORES[0, 1].softmax(0)[VERB]))}),
        Part("gradient", "What is the derivative of log Z with respect to the score of a verb behind a noun?",
             Number("(exp(7) + 2*exp(5) + exp(4)) / (exp(7) + 4*exp(5) + 2*exp(4) + exp(1))"), "autograd", gradient,
             why="The expected number of such pairs: N V N, N N V, V N V and N V V have one each.",
             wrong={"counted the pairs of the best sequence": (1, lambda: float(sum(
                        pair == (NOUN, VERB) for pair in itertools.pairwise((NOUN, VERB, NOUN)))))}),
        Part("work", "There are C tags and T words. How many sums of a score so far and a pair's score does the "
             "Viterbi algorithm compute?",
             Formula("(T - 1)*C^2", {"C": "whole", "T": "whole"}), "exact", viterbi_sums,
             why="From each of C tags to each of C tags, between neighbours.",
             wrong={"counted all sequences": ("C^T", lambda C, T: math.prod([C] * T))}),
    ])  # fmt: skip

EXERCISES = (LINEAR_CHAIN,)
