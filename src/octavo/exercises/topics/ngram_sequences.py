"""Counts of n-grams over several sequences, and why both L-gram and (L - 1)-gram counts are stored; exact fractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import torch

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.models.ngram import NGram, NGramConfig

SEQUENCES = ("abab", "abb", "ba")
Grams = Counter[tuple[str, ...]]


def grams(sequences: Sequence[Sequence[str]], length: int) -> Grams:
    """All n-grams of this length, none across the end of a sequence."""
    return Counter(tuple(one[i : i + length]) for one in sequences for i in range(len(one) - length + 1))


def followed(sequences: Sequence[Sequence[str]], context: Sequence[str]) -> int:
    """How many occurrences of a context have a successor."""
    longer = grams(sequences, len(context) + 1)
    return sum(count for gram, count in longer.items() if gram[:-1] == tuple(context))


def row_sum(sequences: Sequence[Sequence[str]], context: Sequence[str]) -> Fraction:
    """The sum over w of count(context w) / count(context), every occurrence of the context counted."""
    return Fraction(followed(sequences, context), grams(sequences, len(context))[tuple(context)])


def conditional(sequences: Sequence[Sequence[str]], context: str, token: str) -> Fraction:
    """The estimate whose rows sum to one: contexts without a successor are not counted."""
    return Fraction(grams(sequences, len(context) + 1)[*context, token], followed(sequences, context))


def library_conditional() -> Finding:
    """octavo's bigram model of the three sequences, each opened by the begin token."""
    tokens = [token for one in SEQUENCES for token in (2, *("ab".index(x) for x in one))]
    model = NGram.fit(torch.tensor(tokens, dtype=torch.int32), NGramConfig(order=2, estimator="mle"), 3)
    logits, _ = model.step(model.start(1), torch.tensor([1]))
    exact = conditional(SEQUENCES, "b", "b")
    note = f"octavo's n-gram model of order 2 with maximum likelihood; in exact fractions {exact}"
    return Finding(float(logits[0].softmax(-1)[1]), note)


@tabulated("n f", [(1, 1), (4, 1), (5, 2), (7, 7)], "sequences of a, of which f end with it, exact fractions")
def final_rule(n: int, f: int) -> float:
    """n occurrences of the context a, f of them at the end of a sequence."""
    return float(row_sum([*["ab"] * (n - f), *["a"] * f], "a"))


def left_out_context() -> Finding:
    """Which context of every sequence must be left out for all rows to sum to one; contexts of one to three tokens."""
    rng = np.random.default_rng(9)
    sets = [["".join(rng.choice(list("ab"), rng.integers(5, 12))) for _ in range(4)] for _ in range(30)]
    repaired = {"last": True, "first": True, "none": True}
    for sequences in sets:
        for L in (2, 3, 4):
            for name, part in (("last", slice(0, -1)), ("first", slice(1, None)), ("none", slice(None))):
                contexts = Counter(one for text in sequences for one in [tuple(text[i : i + L - 1])
                                   for i in range(len(text) - L + 2)][part])  # fmt: skip
                repaired[name] &= all(followed(sequences, one) == n for one, n in contexts.items())
    [found] = [name for name, holds in repaired.items() if holds]
    return Finding(
        found, "30 random sets of four sequences, contexts of one, two and three tokens: only this repairs all"
    )


def deficient_rows() -> Finding:
    rng = np.random.default_rng(4)
    worst = []
    for length in (2, 3, 4):
        for count in (1, 3, 6):
            sequences = ["".join(rng.choice(list("ab"), rng.integers(4, 12))) for _ in range(count)]
            contexts = grams(sequences, length - 1)
            worst.append((count, sum(row_sum(sequences, context) != 1 for context in contexts)))
    note = "nine random sets: sequences and deficient rows " + ", ".join(f"{s}: {rows}" for s, rows in worst)
    return Finding(verdict(all(rows <= s for s, rows in worst)), note)


def with_end(sequences: Sequence[str]) -> list[str]:
    return [one + "$" for one in sequences]


def end_repairs() -> Finding:
    closed = with_end(SEQUENCES)
    sums = {x: row_sum(closed, x) for x in "ab"}
    return Finding(
        verdict(set(sums.values()) == {Fraction(1)}), f"row sums with an end token: {sums['a']}, {sums['b']}"
    )


SEVERAL = Exercise(
    id="ngram-sequences", title="The last context of several sequences",
    where={"all_a": lambda: grams(SEQUENCES, 1)[("a",)], "all_b": lambda: grams(SEQUENCES, 1)[("b",)],
           "ab": lambda: grams(SEQUENCES, 2)[("a", "b")], "followed": lambda: followed(SEQUENCES, "b"),
           "joined_b": lambda: followed(["".join(SEQUENCES)], "b"),
           "naive": lambda: grams(SEQUENCES, 2)[("b", "b")] / grams(SEQUENCES, 1)[("b",)]},
    question="The training data are three sequences: abab, abb and ba. Conditional probabilities are estimated as "
    "count(context w)/count(context). No n-gram crosses the end of a sequence.",
    answer="a occurs 4{all_a} times, once at an end; b occurs 5{all_b} times, twice at an end. So the row of a sums "
    "to 3/4{row-a} and that of b to 3/5{row-b}. The rule: the last context of every sequence must not be counted, "
    "because nothing follows it. If a context occurs n times, f of them at the end of a sequence, its row sums to "
    "`(n - f)/n`{rule}. Then p(b | b) is 1/3{conditional}, not 1/5{naive}. Joining the sequences into one text does "
    "not help: it invents n-grams across the ends. An end token does help, and takes the missing share.",
    parts=[
        Part("row-a", "What is the sum over w of count(a w)/count(a)?", Number("3/4"), "exact",
             lambda: Finding(row_sum(SEQUENCES, "a"), "exact fractions"),
             why="ab occurs 3{ab} times, a occurs 4{all_a} times; the a that ends ba has no successor.",
             wrong={"assumed that it is a distribution": (1, lambda: 1),
                    "counted the end of every sequence as one of a": ("1/4", lambda: (4 - len(SEQUENCES)) / 4)}),
        Part("row-b", "What is the sum over w of count(b w)/count(b)?", Number("3/5"), "exact",
             lambda: Finding(row_sum(SEQUENCES, "b"), "exact fractions"),
             why="ba occurs twice and bb once, b occurs 5{all_b} times; abab and abb end with it.",
             wrong={"assumed that it is a distribution": (1, lambda: 1),
                    "left the last b of one sequence out of the count":
                    ("3/4", lambda: followed(SEQUENCES, "b") / (5 - 1))}),
        Part("conditional", "What is p(b | b)?", Number("1/3"), "exact", library_conditional,
             why="Of the 3{followed} occurrences of b that have a successor, one is followed by b.",
             wrong={"counted the last b of every sequence too":
                    ("1/5", lambda: grams(SEQUENCES, 2)[("b", "b")] / grams(SEQUENCES, 1)[("b",)]),
                    "joined the sequences into one text":
                    ("2/5", lambda: float(conditional(["".join(SEQUENCES)], "b", "b"))),
                    "gave the relative frequency of b":
                    ("5/9", lambda: grams(SEQUENCES, 1)[("b",)] / sum(map(len, SEQUENCES)))}),
        Part("joined", "What would p(b | b) be if the three were joined, in this order, into one text?", Number("2/5"),
             "exact", lambda: Finding(conditional(["".join(SEQUENCES)], "b", "b"), "exact fractions"),
             why="abababbba has bb twice, once across an end, and 5{joined_b} occurrences of b with a successor.",
             wrong={"did not count the pairs across the ends":
                    ("1/3", lambda: float(conditional(SEQUENCES, "b", "b")))}),
        Part("which",
             "In general, contexts are one token shorter than the n-grams. Which context of every sequence must not be "
             "counted?", Choice("last", {"last": "its last one", "first": "its first one", "none": "all are counted"}),
             "exact", left_out_context, why="It is the only one that no n-gram starts with."),
        Part("rule",
             "A context occurs n times in all, f of them at the end of a sequence. What does its row sum to if all n "
             "are counted?", Formula("(n - f)/n", {"n": "whole", "f": "whole"}), "exact", final_rule,
             why="All but f of its n occurrences have a successor.",
             wrong={"counted one end only": ("(n - 1)/n", lambda n: (n - 1) / n),
                    "assumed that it is a distribution": ("1", lambda: 1)}),
        Part("rows", "With S sequences, at most S rows do not sum to one.", Truth("true"), "exact", deficient_rows,
             why="Only the last context of a sequence lacks a successor, and a sequence has one last context.",
             wrong={"thought that every row is affected": False}),
        Part("end-token", "With an end token after every sequence, all rows of a and b sum to one.", Truth("true"),
             "exact", end_repairs, why="Then every a and every b has a successor, which may be the end.",
             wrong={"thought that the end token itself needs a successor": False}),
        Part("end-share", "With an end token after every sequence, what is p(end | b)?", Number("2/5"), "exact",
             lambda: Finding(conditional(with_end(SEQUENCES), "b", "$"), "exact fractions"),
             why="Two of the five b's end their sequence: the share that was missing from its row.",
             wrong={"gave the share of sequences that end with b":
                    ("2/3", lambda: sum(one.endswith("b") for one in SEQUENCES) / len(SEQUENCES)),
                    "divided by all tokens":
                    ("2/9", lambda: sum(one.endswith("b") for one in SEQUENCES) / sum(map(len, SEQUENCES)))}),
    ])  # fmt: skip


V_SIZE = 6


def counted_text(seed: int, size: int = 400) -> list[str]:
    return [str(one) for one in np.random.default_rng(seed).integers(0, V_SIZE, size)]


def conditionals_of(counts: Grams) -> dict[tuple[str, ...], Fraction]:
    contexts: Grams = Counter()
    for gram, count in counts.items():
        contexts[gram[:-1]] += count
    return {gram: Fraction(count, contexts[gram[:-1]]) for gram, count in counts.items()}


def conditionals(text: Sequence[str], length: int) -> dict[tuple[str, ...], Fraction]:
    return conditionals_of(grams([text], length))


def changed_counts() -> Finding:
    text = counted_text(1)
    before, after = ([grams([one], 3), grams([one[:-1]], 2)] for one in (text[:-1], text))
    changed = sum(a[gram] != b[gram] for b, a in zip(before, after, strict=True) for gram in a)
    return Finding(changed, "one token appended to 399 random ones: trigram and context counts that differ")


@tabulated("V", [(2,), (4,), (9,)], "texts in which every token has followed the context, one token appended")
def changed_conditionals(size: int) -> int:
    tokens = [str(one) for one in range(size)]
    text = [token for one in tokens for token in ("x", one)] + ["x"]
    before, after = conditionals(text, 2), conditionals([*text, "0"], 2)
    return sum(after[gram] != before[gram] for gram in before)


def merging(of_counts: bool) -> Finding:
    one, other = counted_text(1, 40), counted_text(2, 200)
    together = grams([one, other], 2)
    if of_counts:
        return Finding(verdict(grams([one], 2) + grams([other], 2) == together), "two random texts, counts added")
    right = conditionals_of(together)
    both = conditionals(one, 2), conditionals(other, 2)
    mean = {gram: (both[0].get(gram, Fraction(0)) + both[1].get(gram, Fraction(0))) / 2 for gram in right}
    off = max(abs(mean[gram] - right[gram]) for gram in right)
    return Finding(verdict(off == 0), f"two random texts: averaged conditionals are off by up to {float(off):.2f}")


def extra_numbers() -> Finding:
    ratios = []
    for length in (2, 3, 4):
        for seed in range(20):
            longer = grams([counted_text(seed)], length)
            ratios.append(len({gram[:-1] for gram in longer}) / len(longer))
    note = f"60 random texts and lengths: contexts per L-gram from {min(ratios):.2f} to {max(ratios):.2f}"
    return Finding(verdict(max(ratios) <= 1), note)


def full_tables() -> Finding:
    text = counted_text(3)
    stored, full = len(grams([text], 4)) + len(grams([text[:-1]], 3)), V_SIZE**4 + V_SIZE**3
    note = f"400 tokens of {V_SIZE}: {stored} counts of 4-grams and contexts are stored, the full tables have {full:,}"
    return Finding(verdict(stored >= full), note)


BOTH = Exercise(
    id="ngram-both-counts", title="Why the counts of n-grams and of their contexts are stored",
    where={"full_tables": lambda V, L: len([*product(range(V), repeat=L)]) + len([*product(range(V), repeat=L - 1)]),
           "V": (2, 3), "L": (2, 3, 4)},
    question="An L-gram model could store its conditional probabilities. Usually the counts of L-grams and of their "
    "contexts, which are one token shorter, are stored instead, and divided when a probability is asked for. V is "
    "the size of the vocabulary.",
    answer="Counts add up: a new token changes two of them, new text is added, and parts counted on several machines "
    "are merged, all exactly. A conditional probability cannot be updated without the count of its context, and one "
    "token changes a whole row. The context counts cost little: there are at most as many contexts as L-grams, and "
    "only what occurs is stored, not `V^L + V^(L-1)`{full_tables} numbers. The counts of the contexts are also the "
    "L-gram counts of the next shorter model, which smoothing and back-off need.",
    parts=[
        Part("update",
             "One token is appended to the text. How many stored counts change, L-grams and contexts together?",
             Number(2, rel=0), "counted", changed_counts,
             why="One L-gram is new, and the context in front of it has one more successor.",
             wrong={"forgot the context": (1, lambda: 1), "counted a row of the table": (6, lambda: V_SIZE)}),
        Part("update-conditionals",
             "If conditional probabilities are stored, how many change, if all V tokens have been seen after this "
             "context?", Formula("V", {"V": "whole"}), "counted", changed_conditionals,
             why="Their common denominator grows by one.",
             wrong={"changed only the entry of the token": ("1", lambda: 1),
                    "changed the whole table": ("V^2", lambda V: V * V)}),
        Part("merge", "The counts of two texts, added, are the counts of both texts together.", Truth("true"), "exact",
             lambda: merging(True), why="Each occurrence is counted in exactly one of the two.",
             wrong={"thought that texts of different lengths must be weighted": False}),
        Part("merge-conditionals",
             "The mean of the conditional probabilities of two texts is that of both texts together.",
             Truth("false"), "exact", lambda: merging(False),
             why="Each must be weighted by the count of its context, which is not stored.",
             wrong={"averaged as if contexts were equally frequent": True}),
        Part("extra", "The number of distinct contexts is never above the number of distinct L-grams.", Truth("true"),
             "counted", extra_numbers,
             why="Every context that counts is the beginning of at least one L-gram.",
             wrong={"thought that the context counts double the table in any case": False}),
        Part("tables",
             "Storing both takes at least `V^L + V^(L-1)`{full_tables} numbers.",
             Truth("false"), "counted", full_tables,
             why="Only n-grams that occur are stored, and a text has at most as many of them as tokens.",
             wrong={"counted possible n-grams, not observed ones": True}),
    ])  # fmt: skip

EXERCISES = (SEVERAL, BOTH)
