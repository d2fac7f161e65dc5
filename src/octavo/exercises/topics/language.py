"""Language models: maximum likelihood of bags and n-grams in exact fractions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import sympy
import torch

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.models.bag import Bag, BagConfig
from octavo.models.ngram import NGram, NGramConfig
from octavo.pages.figures.lines import Series, lines

SENTENCE = "to be or not to be".split()
COUNTS = {"a": "whole", "b": "whole"}


def bag(words: Sequence[str]) -> tuple[Bag, list[str]]:
    """octavo's maximum-likelihood bag of these words, and the words by their ids."""
    known = sorted(set(words))
    x_N = torch.tensor([known.index(word) for word in words])
    return Bag.fit(x_N, BagConfig(k=0), len(known) + 1), known


def best_share() -> Finding:
    a, b = symbols(COUNTS)
    p = sympy.Symbol("p", positive=True)
    (found,) = sympy.solve(sympy.diff(a * sympy.log(p) + b * sympy.log(1 - p), p), p)
    return Finding(found, "SymPy: where the derivative of a ln p + b ln(1 - p) is zero")


def counted_share() -> Finding:
    model, known = bag(SENTENCE)
    return Finding(float(model.logp_V[known.index("to")].exp()), "octavo's bag with k = 0")


def sentence_bits() -> Finding:
    model, known = bag(SENTENCE)
    bits = -sum(float(model.logp_V[known.index(word)]) for word in SENTENCE) / math.log(2)
    return Finding(bits, "octavo's bag charges the six words")


def is_maximum() -> Finding:
    counts = np.array(list(Counter(SENTENCE).values()))
    best = float(counts @ np.log(counts / counts.sum()))
    others = np.random.default_rng(1).dirichlet(np.ones(4), 20_000)
    most = float((np.log(others) @ counts).max())
    return Finding(
        verdict(most <= best),
        f"20,000 random distributions: at best {most:.4f} nats, relative frequencies {best:.4f}",
        "more or not",
    )


def orders_differ() -> Finding:
    model, known = bag(SENTENCE)
    sums = {
        round(sum(float(model.logp_V[known.index(word)]) for word in order), 9)
        for order in (SENTENCE, SENTENCE[::-1], sorted(SENTENCE))
    }
    return Finding(verdict(len(sums) == 1), f"three orders, log-probabilities {sorted(sums)}", "to 1e-9")


def orders_counted() -> Finding:
    p = np.linspace(0.0005, 0.9995, 1000)
    plain = 5 * np.log(p) + 3 * np.log(1 - p)
    one, two = (float(p[(plain + extra).argmax()]) for extra in (0.0, math.log(math.comb(8, 5))))
    return Finding(
        verdict(one != two),
        f"5 of 8 words: the best share is {one:.4f} without and {two:.4f} with the 56 orders",
        "steps of 0.001",
    )


def all_possible() -> Finding:
    model, known = bag(SENTENCE)
    seen = bool((model.logp_V[: len(known)] > -math.inf).all())
    _, larger = bag([*SENTENCE, "question"])
    unseen = Bag.fit(torch.tensor([larger.index(word) for word in SENTENCE]), BagConfig(k=0), len(larger) + 1)
    impossible = float(unseen.logp_V[larger.index("question")])
    return Finding(verdict(impossible > -math.inf, seen), f"the log-probability of a word of count 0 is {impossible}")


BAG = Exercise(
    id="bag-maximum-likelihood",
    title="The bag of words and maximum likelihood",
    question="A bag of words draws every word independently from one distribution. It is fitted to a text by maximum "
    "likelihood.",
    answer="The log-likelihood is the sum of count times ln p. Under `sum(w, p_w) = 1` its only maximum is at the "
    "relative frequencies: for any other p it is lower by N times the divergence of p from them. At the maximum a text "
    "of N words costs N times its own entropy. Order plays no part, and counting the orders of a bag adds a constant "
    "that does not move the maximum. A word that was not seen gets probability zero.",
    figure=lambda: lines([Series("likelihood",
        [(p / 100, (p / 100) ** 5 * (1 - p / 100) ** 3 * 1000) for p in range(101)])],
        "A word that is 5 of 8: the likelihood of its probability p, times 1,000, is highest at 5/8.",
        ("p", "likelihood times 1,000")),
    parts=[
        Part("share", "A word occurs a times, all others b times. Which probability does it get?",
             Formula("a/(a + b)", COUNTS), "symbolic", best_share,
             why="The derivative of `a*ln(p) + b*ln(1 - p)` is zero where `a/p = b/(1 - p)`, so `a*(1 - p) = b*p`.",
             wrong={"gave the odds": "a/b", "added one to the counts": "(a + 1)/(a + b + 2)"}),
        Part("to", "Which probability does 'to' get from the text 'to be or not to be'?", Number("1/3"), "exact",
             counted_share, why="It is 2 of the 6 words, and relative frequencies are most likely.",
             wrong={"divided by the number of different words": 0.5, "gave all different words the same": 0.25}),
        Part("bits", "How many bits does that text cost under its own bag?",
             Number("2*log(3)/log(2)*2 + 2*log(6)/log(2)"), "exact", sentence_bits,
             why="Four words of probability 1/3, two of 1/6: `4*1.585 + 2*2.585`.",
             wrong={"gave the four words the same": 12, "gave all six places a word of their own": 15.509775,
                    "counted in nats": 7.9779676}),
        Part("maximum", "No other distribution gives the text a higher probability.", Truth("true"), "numeric",
             is_maximum,
             why="The difference is N times the sum of `q*ln(q/p)`, q the frequencies, which is never negative.",
             wrong={"thought that smoothing fits the same text better": False}),
        Part("order", "The bag gives every order of the same words the same probability.", Truth("true"), "numeric",
             orders_differ, why="Products do not depend on the order of their factors.",
             wrong={"considered only a model with contexts": False}),
        Part("orders", "Counting the possible orders of the words in the likelihood changes the estimate.",
             Truth("false"), "numeric", orders_counted,
             why="Their number depends on the counts only, not on p: a constant factor.",
             wrong={"assumed a constant factor to move the maximum": True}),
        Part("unseen", "The fitted model gives every text over the same vocabulary a probability above zero.",
             Truth("nearly", only_if="every word of the vocabulary was seen"), "exact", all_possible,
             why="A relative frequency of zero is a probability of zero, and one such word is enough.",
             wrong={"forgot words that never occurred": True}),
    ],
)  # fmt: skip


def table_entries(free: bool) -> Finding:
    points = []
    for v, n in ((2, 1), (2, 3), (3, 2), (4, 3), (5, 2)):
        contexts = Counter(one[:-1] for one in product(range(v), repeat=n))
        entries = sum(
            size - 1 if free else size for size in contexts.values()
        )  # the last of a row follows from the rest
        points.append(IntervalAt({"V": v, "n": n}, entries, entries))
    return Finding(points, "all n-grams of small vocabularies listed and counted")


def fillable() -> Finding:
    points = []
    for t, n in ((10, 1), (10, 3), (25, 5)):
        text = list(range(t))  # all different: as many n-grams as there can be
        grams = {tuple(text[i : i + n]) for i in range(t) if i + n <= t}
        points.append(IntervalAt({"T": t, "n": n}, len(grams), len(grams)))
    return Finding(points, "texts without a repetition, their n-grams counted")


VN = {"V": "whole", "n": "whole"}
TABLES = Exercise(
    id="ngram-table-sizes",
    title="How large n-gram tables are",
    question="A vocabulary has V tokens, and an n-gram model has one probability for each token after each n - 1 "
    "tokens.",
    answer="`V^n` entries in `V^(n-1)` rows, of which one in each row follows from the others: `V^(n-1)*(V - 1)` are "
    "free. For V = 10,000 and n = 3 that is a million million, yet a text of T tokens has at most `T - n + 1` "
    "different n-grams: almost all of the table is zero, which is why models store only what was seen and must say "
    "something about the rest.",
    figure=lambda: lines([Series(f"V = {v:,}", [(n, float(v) ** n) for n in range(1, 6)]) for v in (50, 1000, 50_000)],
        "Entries of the table. No text fills more of it than it has tokens.", ("n", "entries"), log_y=True,
        references=[("a billion tokens", 1e9)]),
    parts=[
        Part("entries", "How many entries does the table have?", Formula("V^n", VN), "exact",
             lambda: table_entries(False), why="Every sequence of n tokens is one.",
             wrong={"used a table for each place": "n*V", "exchanged the two": "n^V"}, only_if={"n = 2": "V^2"}),
        Part("free", "How many of them are free?", Formula("V^(n - 1)*(V - 1)", VN), "exact",
             lambda: table_entries(True), why="Each of the `V^(n - 1)` rows sums to one.",
             wrong={"forgot that rows sum to one": "V^n", "let only the whole table sum to one": "V^n - 1"}),
        Part("trigram", "How many entries for V = 10,000 and n = 3?", Number(10**12, rel=0), "exact",
             lambda: Finding(math.prod([10_000] * 3), "multiplied"),
             why="`10000^3`: every one of 10,000 tokens after every pair of them.",
             wrong={"used the bigram table": 10**8, "left the context out": 30_000}),
        Part("seen", "How many different n-grams can a text of T tokens have at most, T >= n?",
             Formula("T - n + 1", {"T": "whole", "n": "whole"}), "exact", fillable,
             why="One begins at each place but the last n - 1.",
             wrong={"let one begin at every place": "T", "forgot that a place remains": "T - n"}),
    ],
)  # fmt: skip


def sums(
    text: Sequence[str], length: int, leave_last_out: bool, circle: bool = False
) -> dict[tuple[str, ...], Fraction]:
    """For each context of length - 1 tokens, the sum over w of count(context w) / count(context), exactly."""
    text = [*text, *text[: length - 1]] if circle else list(text)
    grams = Counter(tuple(text[i : i + length]) for i in range(len(text) - length + 1))
    last = len(text) - length + (1 if leave_last_out or circle else 2)
    contexts = Counter(tuple(text[i : i + length - 1]) for i in range(last))
    return {context: Fraction(sum(c for gram, c in grams.items() if gram[:-1] == context), count)
            for context, count in contexts.items()}  # fmt: skip


def random_texts() -> list[list[str]]:
    rng = np.random.default_rng(2)
    return [rng.choice(list("abc"), 40).tolist() for _ in range(50)]


def sums_to_one() -> Finding:
    tried = [(text, length) for text in random_texts() for length in (2, 3, 4)]
    plain = [set(sums(text, length, False).values()) == {Fraction(1)} for text, length in tried]
    mended = [set(sums(text, length, True).values()) == {Fraction(1)} for text, length in tried]
    note = (
        f"{len(tried)} texts and lengths in exact fractions: all rows sum to 1 in {sum(plain)}, "
        f"with the last left out in {sum(mended)}"
    )
    return Finding(verdict(all(plain), all(mended)), note)


def rows_hit() -> Finding:
    wrong = {
        sum(one != 1 for one in sums(text, length, False).values()) for text in random_texts() for length in (2, 3, 4)
    }
    return Finding(
        max(wrong), f"150 texts and lengths: the number of rows that do not sum to 1 is always one of {sorted(wrong)}"
    )


def last_row() -> Finding:
    points = []
    for n in (1, 2, 5):
        text = [*"ab" * (n - 1), "a"]  # a occurs n times, the last time at the end
        found = float(sums(text, 2, False)[("a",)])
        points.append(IntervalAt({"n": n}, found, found))
    return Finding(points, "texts in which the last token occurs 1, 2 and 5 times, exact fractions")


def library_conditional() -> Finding:
    model = NGram.fit(torch.tensor([0, 1, 0, 1, 0], dtype=torch.int32), NGramConfig(order=2, estimator="mle"), 3)
    logits, _ = model.step(model.start(1), torch.tensor([0]))
    return Finding(
        float(logits[0].softmax(-1)[1]), "octavo's n-gram model of order 2 with maximum likelihood on a b a b a"
    )


def circle_mends() -> Finding:
    every = all(set(sums(text, length, False, circle=True).values()) == {Fraction(1)}
                for text in random_texts() for length in (2, 3, 4))  # fmt: skip
    return Finding(verdict(every), "150 texts and lengths read in a circle, exact fractions")


CONDITIONALS = Exercise(
    id="ngram-last-token",
    title="Why the last token must be left out",
    question="Conditionals are estimated by dividing counts: of L-grams by counts of (L - 1)-grams, the contexts. The "
    "text is finite.",
    answer="A context's L-grams are its occurrences with a token behind them. The last L - 1 tokens of the text are an "
    "occurrence without one, so their row sums to `(n - 1)/n` where they occur n times, and to zero where they occur "
    "only there. Every other row sums to one. Counting contexts without the last place mends it; so does reading the "
    "text in a circle, at the price of L - 1 n-grams that nobody wrote.",
    figure=lambda: lines([Series("sum of the row", [(n, (n - 1) / n) for n in range(1, 21)])],
        "What the probabilities after the text's last context sum to, by how often it occurs.",
        ("occurrences n", "sum")),
    parts=[
        Part("naive", "Text: a b a b a. What is the sum over w of count(a w)/count(a)?", Number("2/3"), "exact",
             lambda: Finding(float(sums("ababa", 2, False)[("a",)]), "exact fractions"),
             why="ab occurs twice, a three times: the last a has no successor, but is counted below the line.",
             wrong={"mistook it for a distribution": 1, "counted the text's pairs": "4/5"}),
        Part("right", "What is p(b | a) for this text?", Number(1), "exact", library_conditional,
             why="Each a that is followed by anything is followed by b.",
             wrong={"counted the last a too": "2/3", "used the share of b": "2/5"}),
        Part("sum", "L-gram counts divided by (L - 1)-gram counts are distributions.",
             Truth("nearly", only_if="the last L - 1 tokens are not counted as a context"), "exact", sums_to_one,
             why="Only then is a context's count the number of L-grams that begin with it.",
             wrong={"forgot that the text's last context has no successor": True}),
        Part("rows", "How many rows does the mistake spoil?", Number(1, rel=0), "exact", rows_hit,
             why="Only the context that ends the text.",
             wrong={"thought all are spoilt": 27, "considered only L - 1 of them": 3}),
        Part("lacks", "The last context occurs n times in all. What does its row sum to?",
             Formula("(n - 1)/n", {"n": "whole"}), "exact", last_row, why="n - 1 of its occurrences have a successor.",
             wrong={"mistook it for a distribution": "1", "mistook the text for endless": "n/(n + 1)"}),
        Part("circle", "Reading the text in a circle makes every row sum to one.", Truth("true"), "exact", circle_mends,
             why="Then every place has a successor, the last one the first token.",
             wrong={"thought that n-grams across the end spoil the sums": False}),
    ],
)  # fmt: skip

EXERCISES = (BAG, TABLES, CONDITIONALS)
