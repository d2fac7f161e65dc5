"""The KT estimator and context tree weighting of a short string of two letters, as bits."""

from __future__ import annotations

import math

import mpmath
import torch

from octavo.exercises import Exercise, Finding, Formula, Number, Part
from octavo.exercises.framework.evidence import tabulated
from octavo.models.context_tree import ContextTree, ContextTreeConfig, bits_of
from octavo.models.context_tree_fit import count_decisions, fit_context_tree, weigh
from octavo.models.ngram.counting import Vocabulary, count_ngrams
from octavo.pages.figures.charts import bars

BITS = (0, 1, 0)  # aba
BEGIN, VOCAB = 2, 3
GAMMA = math.gamma(2.5) * math.gamma(1.5) / (math.pi * math.gamma(4))  # P_e of two zeros and a one


def opened(bits: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([BEGIN, *bits], dtype=torch.int32)


def tree(bits: tuple[int, ...] = BITS) -> ContextTree:
    """octavo's context tree of depth 1 of the bits."""
    return fit_context_tree(opened(bits), ContextTreeConfig(1), VOCAB)


def kt(bits: tuple[int, ...]) -> float:
    """P_e: bit by bit (n + 1/2) / (n_0 + n_1 + 1)."""
    return math.prod((bits[:t].count(bit) + 0.5) / (t + 1) for t, bit in enumerate(bits))


def weighted(bits: tuple[int, ...] = BITS) -> float:
    """P_w of the empty context."""
    levels = list(count_ngrams(opened(bits), 2, Vocabulary(VOCAB, BEGIN)))
    counts = [count_decisions(level, VOCAB, bits_of(VOCAB)) for level in levels]
    return math.exp(weigh(levels, counts, VOCAB, bits_of(VOCAB))[0])


def contexts_product(bits: tuple[int, ...] = BITS) -> float:
    """The product of P_e over the contexts of one token, begin included."""
    before = (BEGIN, *bits[:-1])
    return math.prod(kt(tuple(b for a, b in zip(before, bits, strict=True) if a == c)) for c in (0, 1, BEGIN))


def after_zero(bits: tuple[int, ...] = BITS) -> float:
    return float(tree(bits)(torch.tensor([[BEGIN, 0]]))[0, -1, 1].exp())


@tabulated("n", [(1,), (2,), (5,)], "octavo's context tree of so many zeros")
def one_after_zeros(n: int) -> float:
    return float(tree((0,) * n).one_E[0])


CTW = Exercise(
    id="context-tree-weighting", title="Context tree weighting of three letters",
    question="The text aba, of an alphabet of a and b, is weighted by a context tree with at most one letter of "
    "context. The estimator is that of Krichevsky and Trofimov (KT): relative frequencies, with one half added to both "
    "counts. The first letter has a context of its own, the beginning.",
    where={"n": (1, 2, 5), "half": 0.5, "kt_p": lambda: kt(BITS), "product": lambda: contexts_product(),
           "root": lambda: float(tree().one_E[0]), "leaf": lambda: kt((1, 1)) / kt((1,)),
           "ended": lambda: kt(BITS) / 2, "all": lambda: weighted()},
    answer="Each context has seen a single letter, at a cost of one half: with the letter before it known, the text "
    "gets `1/8`{product}, without it `1/16`{kt_p}. So the split has gained weight, from one half to two thirds, and "
    "the next prediction is closer to what the longer context says.",
    figure=lambda: bars([("no context", kt(BITS)), ("the letter before", contexts_product()),
        ("weighted", weighted())], "The probability of the text aba.", 4),
    parts=[
        Part("zeros", "What is the KT probability of a b after n times a?", Formula("1/(2*n + 2)", {"n": "whole"}),
             "exact", one_after_zeros, why="`(1/2)/(n + 1)`{zeros}: one half of no b, and one half twice in the sum.",
             wrong={"added one to each count": ("1/(n + 2)", lambda n: mpmath.mpf(1) / (n + 2)),
                    "left out what is added in the denominator": ("1/(2*n)", lambda n: mpmath.mpf(1) / (n + n))}),
        Part("kt", "What is the KT probability of aba without any context?", Number("1/16"), "exact",
             lambda: Finding(kt(BITS), f"letter by letter; by gamma functions {GAMMA:.6f}"),
             why="`1/2*1/4*1/2`{}.",
             wrong={"added one to each count": ("1/12", lambda: 1 / 2 * 1 / 3 * 2 / 4),
                    "gave every letter one half": ("1/8", lambda: 0.5 ** len(BITS))}),
        Part("weighted", "What is the weighted probability of aba?", Number("3/32"), "exact",
             lambda: Finding(weighted(), "octavo's context tree"),
             why="Half of `1/16`{kt_p} and half of `1/2*1/2*1/2`{product}: one letter after the beginning, one after "
             "a, one after b.",
             wrong={"added without weights": ("3/16", lambda: kt(BITS) + contexts_product()),
                    "took the better of the two": ("1/8", lambda: max(kt(BITS), contexts_product()))}),
        Part("share", "How probable is it, after this text, that no context is used?", Number("1/3"), "exact",
             lambda: Finding(float(tree().stop_E[0]), "octavo's context tree"),
             why="It is `1/2*1/16`{ended} of the `3/32`{all}.",
             wrong={"kept the weight from before": ("1/2", lambda: kt(BITS) / (2 * kt(BITS))),
                    "gave the share of the context": ("2/3", lambda: 1 - float(tree().stop_E[0]))}),
        Part("next", "What is the probability that b follows aba?", Number("5/8"), "exact",
             lambda: Finding(after_zero(), "octavo's context tree; the weighted probabilities of abab and aba give "
                                           f"{weighted((*BITS, 1)) / weighted():.6f}"),
             why="Without context `3/8`{root}, after a `3/4`{leaf}: `1/3*3/8 + 2/3*3/4`{}.",
             wrong={"used no context": ("3/8", lambda: kt((*BITS, 1)) / kt(BITS)),
                    "used the context alone": ("3/4", lambda: contexts_product((*BITS, 1)) / contexts_product()),
                    "gave both one half": ("9/16", lambda: (float(tree().one_E[0]) + kt((1, 1)) / kt((1,))) / 2)}),
    ])  # fmt: skip

EXERCISES = (CTW,)
