"""Maximum likelihood for bags of words and n-gram models, in exact fractions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product

import mpmath
import numpy as np
import sympy
import torch

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulate, tabulated
from octavo.exercises.framework.symbolic import symbols
from octavo.models.bag import Bag, BagConfig
from octavo.models.ngram import NGram, NGramConfig
from octavo.pages.figures.charts import Series, lines

SENTENCE = "to be or not to be".split()
COUNTS = {"a": "whole", "b": "whole"}


def bag(words: Sequence[str]) -> tuple[Bag, list[str]]:
    """octavo's maximum-likelihood bag of these words, and its vocabulary in order of token ids."""
    vocabulary = sorted(set(words))
    x_N = torch.tensor([vocabulary.index(word) for word in words])
    return Bag.fit(x_N, BagConfig(k=0), len(vocabulary) + 1), vocabulary


def most_likely_share() -> Finding:
    a, b = symbols(COUNTS)
    p = sympy.Symbol("p", positive=True)
    (found,) = sympy.solve(sympy.diff(a * sympy.log(p) + b * sympy.log(1 - p), p), p)
    return Finding(found, "SymPy: the root of the derivative of a ln p + b ln(1 - p)")


def counted_share() -> Finding:
    model, vocabulary = bag(SENTENCE)
    return Finding(float(model.logp_V[vocabulary.index("to")].exp()), "octavo's bag with k = 0")


def sentence_bits() -> Finding:
    model, vocabulary = bag(SENTENCE)
    bits = -sum(float(model.logp_V[vocabulary.index(word)]) for word in SENTENCE) / math.log(2)
    return Finding(bits, "the cost of the six words under octavo's bag")


def is_maximum() -> Finding:
    counts = np.array(list(Counter(SENTENCE).values()))
    best = float(counts @ np.log(counts / counts.sum()))
    others = np.random.default_rng(1).dirichlet(np.ones(4), 20_000)
    best_other = float((np.log(others) @ counts).max())
    note = f"20,000 random distributions: log-likelihood at most {best_other:.4f}; relative frequencies {best:.4f}"
    return Finding(verdict(best_other <= best), note, "any larger")


def orders_differ() -> Finding:
    model, vocabulary = bag(SENTENCE)
    sums = {
        round(sum(float(model.logp_V[vocabulary.index(word)]) for word in order), 9)
        for order in (SENTENCE, SENTENCE[::-1], sorted(SENTENCE))
    }
    return Finding(verdict(len(sums) == 1), f"three orders, log-probabilities {sorted(sums)}", "to 1e-9")


def orders_counted() -> Finding:
    p = np.linspace(0.0005, 0.9995, 1000)
    plain = 5 * np.log(p) + 3 * np.log(1 - p)
    without, with_orders = (float(p[(plain + extra).argmax()]) for extra in (0.0, math.log(math.comb(8, 5))))
    note = f"5 of 8 words: the best p is {without:.4f} without and {with_orders:.4f} with the 56 orders"
    return Finding(verdict(without != with_orders), note, "steps of 0.001")


def all_possible() -> Finding:
    model, vocabulary = bag(SENTENCE)
    seen = bool((model.logp_V[: len(vocabulary)] > -math.inf).all())
    _, larger = bag([*SENTENCE, "question"])
    unseen = Bag.fit(torch.tensor([larger.index(word) for word in SENTENCE]), BagConfig(k=0), len(larger) + 1)
    impossible = float(unseen.logp_V[larger.index("question")])
    under = {"all-seen": seen, "short": impossible > -math.inf, "known": impossible > -math.inf}  # whatever the length
    return Finding(verdict(impossible > -math.inf, under), f"the log-probability of a word of count 0 is {impossible}")


BAG = Exercise(
    id="bag-maximum-likelihood", title="The bag of words and maximum likelihood",
    question="A bag of words draws every word independently from one distribution. It is fitted to a text by maximum "
    "likelihood.",
    where={"p": lambda a, b: mpmath.mpf(a) / (a + b), "words": len(SENTENCE), "twice": SENTENCE.count("to"),
           "share_of_to": 2 / 6, "share_of_or": 1 / 6},
    answer="The log-likelihood is the sum, over all words, of count times log-probability. Subject to probabilities "
    "that sum to one its only maximum is at the relative frequencies q: for any other p it is lower by N times the KL "
    "divergence of p from q. At the maximum a text of N words costs N times its entropy. The order of the words does "
    "not matter, and counting the possible orders adds a constant that does not move the maximum. An unseen word has "
    "probability zero.",
    figure=lambda: lines([Series("likelihood",
        [(p / 100, (p / 100) ** 5 * (1 - p / 100) ** 3 * 1000) for p in range(101)])],
        "A word occurs 5 times among 8: the likelihood of p, times 1,000, is largest at 5/8.",
        ("p", "likelihood times 1,000")),
    parts=[
        Part("share", "A word occurs a times, all others together b times. What is its estimated probability?",
             Formula("a/(a + b)", COUNTS), "symbolic", most_likely_share,
             why="The derivative of `a*ln(p) + b*ln(1 - p)`{a*ln(p) + b*ln(b/(a + b))} is zero where `a/p = b/(1 - "
             "p)`, so `a*(1 - p) = b*p`.",
             wrong={"gave the odds": ("a/b", lambda a, b: mpmath.mpf(a) / b),
                    "added one to the counts":
                        ("(a + 1)/(a + b + 2)", lambda a, b: mpmath.mpf(a + 1) / sum(one + 1 for one in (a, b)))}),
        Part("to", "What is the estimated probability of 'to' for the text 'to be or not to be'?", Number("1/3"),
             "exact", counted_share, why="It is 2{twice} of the 6{words} words, and the relative frequency maximizes "
             "the likelihood.",
             wrong={"divided by the number of distinct words": (0.5, lambda: SENTENCE.count("to") / len(set(SENTENCE))),
                    "gave all distinct words the same probability": (0.25, lambda: 1 / len(set(SENTENCE)))}),
        Part("bits", "How many bits does the text 'to be or not to be' cost under its own bag of words?",
             Number("(4*ln(3) + 2*ln(6))/ln(2)"), "exact", sentence_bits,
             why="Four words of probability 1/3{share_of_to}, two of 1/6{share_of_or}: `(4*ln(3) + 2*ln(6))/ln(2) = "
             "11.51`.",
             wrong={"gave the four distinct words the same probability":
                        (12, lambda: len(SENTENCE) * math.log2(len(set(SENTENCE)))),
                    "gave each of the six words the same probability":
                        (15.509775, lambda: len(SENTENCE) * math.log2(len(SENTENCE))),
                    "counted in nats": (7.97796758, lambda: sentence_bits().value * math.log(2))}),
        Part("maximum", "No other distribution gives the text a higher probability.", Truth("true", Choice("", {
             "long": "the text is long",
             "all-seen": "every word of the vocabulary occurs in it", "distinct": "no two counts are "
             "equal"})), "numeric",
             is_maximum,
             why="The difference is N times the sum of `q*ln(q/p)`, the KL divergence from the frequencies q, which is "
             "never negative.", wrong={"thought that smoothing fits the training text better": False}),
        Part("order", "The bag assigns every order of the same words the same probability.", Truth("true", Choice("", {
             "long": "the text is long",
             "all-seen": "every word of the vocabulary occurs in it", "distinct": "no word occurs twice"})), "numeric",
             orders_differ, why="Products do not depend on the order of their factors.",
             wrong={"considered a model with context": False}),
        Part("orders", "Counting the possible orders of the words in the likelihood changes the estimate.",
             Truth("false"), "numeric", orders_counted,
             why="Their number depends only on the counts, not on p: it is a constant factor.",
             wrong={"thought that a constant factor moves the maximum": True}),
        Part("unseen", "The fitted model assigns every text over the same vocabulary a positive probability.",
             Truth("nearly", Choice("all-seen", {"short": "the new text is short", "known": "the text has no new word",
             "all-seen": "every word of the vocabulary occurs in the training text"})), "exact", all_possible,
             why="A word with count zero has probability zero, and one such word is enough.",
             wrong={"forgot words that never occur": True}),
    ])  # fmt: skip


def table_entries(free: bool) -> Finding:
    def count(v: int, n: int) -> int:
        contexts = Counter(gram[:-1] for gram in product(range(v), repeat=n))
        return sum(size - 1 if free else size for size in contexts.values())  # one entry of a row follows from the rest

    table = tabulate("V n", ((2, 1), (2, 3), (3, 2), (4, 3), (5, 2)), count)
    return Finding(table, "all n-grams of small vocabularies listed and counted")


@tabulated("T n", ((10, 1), (10, 3), (25, 5)), "the n-grams of texts without repetitions, counted")
def distinct_ngrams(t: int, n: int) -> int:  # a text without repetitions has as many n-grams as possible
    return len({tuple(range(t)[i : i + n]) for i in range(t) if i + n <= t})


VN = {"V": "whole", "n": "whole"}
VOCABULARY, ORDER = 10_000, 3
TABLES = Exercise(
    id="ngram-table-sizes", title="How large n-gram tables are",
    question="A vocabulary has V tokens, and an n-gram model has one probability for each token after each context of "
    "the tokens before it.",
    where={"V": (2, 3, 4), "n": (3, 2, 3), "rows": lambda V, n: len(set(product(range(V), repeat=n - 1))),
           "size": VOCABULARY, "order": ORDER, "shorter": lambda n: n - 1},
    answer="`V^n` entries in `V^(n-1)`{rows} rows, and one entry in each row follows from the others: `V^(n-1)*(V - "
    "1)`{free} are free. With 10,000{size} tokens and n = 3{order} there are `10^12`{trigram} entries, yet a text of "
    "T tokens has at most `T - n + 1`{seen} distinct n-grams: almost all counts are zero, which is why models store "
    "only the observed n-grams and need smoothing for the rest.",
    figure=lambda: lines([Series(f"V = {v:,}", [(n, float(v) ** n) for n in range(1, 6)]) for v in (50, 1000, 50_000)],
        "Entries of the table. A text cannot fill more entries than it has tokens.", ("n", "entries"), log_y=True,
        references=[("a billion tokens", 1e9)]),
    parts=[
        Part("entries", "How many entries does the table have?", Formula("V^n", VN), "exact",
             lambda: table_entries(False), why="One for every sequence of n tokens.",
             wrong={"added instead of multiplying": ("n*V", lambda V, n: sum(V for _ in range(n))),
                    "swapped V and n": ("n^V", lambda V, n: math.prod([n] * V))},
             only_if={"the model is a bigram model": ("V^2", {"n": 2})}),
        Part("free", "How many entries of the table are free parameters?", Formula("V^(n - 1)*(V - 1)", VN), "exact",
             lambda: table_entries(True), why="Each of the `V^(n - 1)`{rows} rows sums to one.",
             wrong={"forgot that rows sum to one": ("V^n", lambda V, n: math.prod([V] * n)),
                    "normalized only the whole table": ("V^n - 1", lambda V, n: math.prod([V] * n) - 1)}),
        Part("trigram", "How many entries are there for 10,000{size} tokens and n = "
             "3{order}?", Number(10**12, rel=0), "exact",
             lambda: Finding(math.prod([VOCABULARY] * ORDER), "multiplied"),
             why="`10000^3`{}: each of 10,000{size} tokens after every pair of tokens.",
             wrong={"used the bigram table": (10**8, lambda: VOCABULARY * VOCABULARY),
                    "ignored the context": (30_000, lambda: VOCABULARY * ORDER)}),
        Part("seen", "How many distinct n-grams can a text of T tokens have at most, with T at least n?",
             Formula("T - n + 1", {"T": "whole", "n": "whole"}, ("T", "n")), "exact", distinct_ngrams,
             why="One starts at each position but the last `n - 1`{shorter}.",
             wrong={"started one at every position": ("T", lambda T: len(range(T))),
                    "subtracted one too many": ("T - n", lambda T, n: T - n)}),
    ])  # fmt: skip


def row_sums(
    text: Sequence[str], length: int, skip_last: bool, circular: bool = False
) -> dict[tuple[str, ...], Fraction]:
    """For each context of length - 1 tokens, the exact sum over w of count(context w) / count(context)."""
    text = [*text, *text[: length - 1]] if circular else list(text)
    grams = Counter(tuple(text[i : i + length]) for i in range(len(text) - length + 1))
    last = len(text) - length + (1 if skip_last or circular else 2)
    contexts = Counter(tuple(text[i : i + length - 1]) for i in range(last))
    return {context: Fraction(sum(c for gram, c in grams.items() if gram[:-1] == context), count)
            for context, count in contexts.items()}  # fmt: skip


def random_texts() -> list[list[str]]:
    rng = np.random.default_rng(2)
    return [rng.choice(list("abc"), 40).tolist() for _ in range(50)]


def sums_to_one() -> Finding:
    tried = [(text, length) for text in random_texts() for length in (2, 3, 4)]
    plain = [set(row_sums(text, length, False).values()) == {Fraction(1)} for text, length in tried]
    skipped = [set(row_sums(text, length, True).values()) == {Fraction(1)} for text, length in tried]
    note = (
        f"{len(tried)} texts and lengths in exact fractions: all rows sum to 1 in {sum(plain)}, "
        f"with the last context left out in {sum(skipped)}"
    )
    first = [set(row_sums(text[1:], length, False).values()) == {Fraction(1)} for text, length in tried]
    long = [set(row_sums(text * 5, length, False).values()) == {Fraction(1)} for text, length in tried]
    under = {"no-last": all(skipped), "no-first": all(first), "long": all(long)}
    return Finding(verdict(all(plain), under), note)


def affected_rows() -> Finding:
    wrong = {
        sum(one != 1 for one in row_sums(text, length, False).values())
        for text in random_texts()
        for length in (2, 3, 4)
    }
    note = f"150 texts and lengths: the number of rows that do not sum to 1 is always in {sorted(wrong)}"
    return Finding(max(wrong), note)


@tabulated("n", [(1,), (2,), (5,)], "texts in which the last token occurs 1, 2 and 5 times, exact fractions")
def last_row(n: int) -> float:  # a occurs n times, the last time at the end
    return float(row_sums([*"ab" * (n - 1), "a"], 2, False)[("a",)])


def library_conditional() -> Finding:
    model = NGram.fit(torch.tensor([0, 1, 0, 1, 0], dtype=torch.int32), NGramConfig(order=2, estimator="mle"), 3)
    logits, _ = model.step(model.start(1), torch.tensor([0]))
    note = "octavo's n-gram model of order 2 with maximum likelihood on a b a b a"
    return Finding(float(logits[0].softmax(-1)[1]), note)


def circular_sums() -> Finding:
    every = all(set(row_sums(text, length, False, circular=True).values()) == {Fraction(1)}
                for text in random_texts() for length in (2, 3, 4))  # fmt: skip
    return Finding(verdict(every), "150 texts and lengths read as circular, exact fractions")


CONDITIONALS = Exercise(
    id="ngram-last-token", title="Why the last context must not be counted",
    question="Conditional probabilities are estimated by dividing counts of L-grams by counts of their contexts, which "
    "are one token shorter. The text is finite.",
    where={"shorter": lambda L: L - 1, "L": (2, 3, 4), "n": (1, 2, 5)},
    answer="An L-gram is a context followed by a token. The last `L - 1`{shorter} tokens of the text are a context "
    "without a following token, so their row sums to `(n - 1)/n`{lacks} if they occur n times, and to zero if they "
    "occur only there. Every other row sums to one. Not counting the last context repairs it; so does treating the "
    "text as circular, at the price of `L - 1`{shorter} n-grams that are not in the text.",
    figure=lambda: lines([Series("sum of the row", [(n, (n - 1) / n) for n in range(1, 21)])],
        "The sum of the probabilities after the last context, by how often it occurs.", ("occurrences n", "sum")),
    parts=[
        Part("naive", "The text is a b a b a. What is the sum over w of count(a w)/count(a)?", Number("2/3"), "exact",
             lambda: Finding(float(row_sums("ababa", 2, False)[("a",)]), "exact fractions"),
             why="ab occurs twice, a three times: the last a has no successor, but is counted in the denominator.",
             wrong={"assumed that it is a distribution": (1, lambda: float(row_sums("ababa", 2, True)[("a",)])),
                    "divided the number of pairs by the number of tokens":
                        ("4/5", lambda: len(list(pairwise("ababa"))) / len("ababa"))}),
        Part("right", "What is p(b | a) for this text?", Number(1), "exact", library_conditional,
             why="Every a that has a successor is followed by b.",
             wrong={"counted the last a too": ("2/3", lambda: "ababa".count("ab") / "ababa".count("a")),
                    "gave the relative frequency of b": ("2/5", lambda: "ababa".count("b") / len("ababa"))}),
        Part("sum", "Counts of L-grams divided by counts of their contexts are distributions.",
             Truth("nearly", Choice("no-last", {"no-first": "the first token is left out", "long": "the text is long",
             "no-last": "the last `L - 1`{shorter} tokens are not counted as a context"})), "exact", sums_to_one,
             why="Only then is the count of a context the number of L-grams that start with it.",
             wrong={"forgot that the last context has no successor": True}),
        Part("rows", "If the last context is counted, how many rows do not sum to "
             "one?", Number(1, rel=0), "exact", affected_rows,
             why="Only the context that ends the text.",
             wrong={"thought that all are wrong": (27, lambda: len(set(product("abc", repeat=3)))),
                    "counted one for each token of the context": (3, lambda: len("abc"))}),
        Part("lacks", "The last context occurs n times in all, and all of them are counted. What does its row sum to?",
             Formula("(n - 1)/n", {"n": "whole"}), "exact", last_row, why="All but one of its n occurrences have a "
                  "successor.",
             wrong={"assumed that it is a distribution": ("1", lambda n: mpmath.mpf(n) / n),
                    "assumed an infinite text": ("n/(n + 1)", lambda n: mpmath.mpf(n) / len(range(n + 1)))}),
        Part("circle", "Treating the text as circular makes every row sum to one.", Truth("true", Choice("", {
             "long": "the text is long",
             "repeats": "the last context occurs elsewhere too", "bigrams": "contexts have one token"})), "exact",
             circular_sums, why="Then every position has a successor; that of the last is the first token.",
             wrong={"thought that n-grams across the end change the sums": False}),
    ])  # fmt: skip

EXERCISES = (BAG, TABLES, CONDITIONALS)
