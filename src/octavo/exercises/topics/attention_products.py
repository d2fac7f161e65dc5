"""Multiplications of single attention sublayers, and of one new token with a KV cache.

M source tokens, N target tokens or tokens in the cache, k and D widths. A multiplication with its addition counts once.
"""

from __future__ import annotations

from functools import cache

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_attention_flops, count_flops, meta, normal, tabulated
from octavo.ops.attention import CAUSAL
from octavo.ops.attention.reference import attend_reference
from octavo.pages.figures.charts import Series, lines

SIZES = ((10, 7, 16), (128, 200, 64), (50, 60, 8))  # source, target, width
WIDTHS = (8, 64, 512, 1024)  # for one sentence
COUNTED = "half of the FLOPs that PyTorch counts, three sizes"


@cache
def project(tokens: int, width: int, matrices: int = 1) -> int:
    """Multiplications of some square projections."""
    return matrices * count_flops(lambda: meta(tokens, width) @ meta(width, width)) // 2


@cache
def attend(queries: int, keys: int, width: int) -> int:
    """Multiplications of scores and weighted sums in octavo's attention."""
    return count_attention_flops(queries, keys, width) // 2


def self_attention(tokens: int, width: int) -> int:
    return project(tokens, width, 4) + attend(tokens, tokens, width)


def cross_attention(source: int, target: int, width: int) -> int:
    return project(target, width, 2) + project(source, width, 2) + attend(target, source, width)


def pairs_share(tokens: int, width: int) -> float:
    return attend(tokens, tokens, width) / self_attention(tokens, width)


def threshold() -> Finding:
    points = []
    for k in (3, 8, 12):
        equal = next(m for m in range(1, 10 * k) if attend(m, m, k) == project(m, k, 4))
        points.append(IntervalAt({"k": k}, equal, equal))
    return Finding(points, "the M at which pairs and projections take the same, counted for three widths")


def pairs_only() -> Finding:
    shares = {k: pairs_share(50, k) for k in WIDTHS}
    listed = ", ".join(f"{share:.0%} for k = {k}" for k, share in shares.items())
    return Finding(verdict(min(shares.values()) > 0.5), f"the share of the pairs for 50 tokens: {listed}")


SUBLAYERS = Exercise(
    id="sublayer-multiplications", title="The multiplications of each attention sublayer",
    where={"projected": lambda M, k: project(M, k, 4), "paired": lambda M, k: attend(M, M, k), "sentence": 50,
           "width": 512, "narrow": WIDTHS[0], "wide": WIDTHS[-1], "k": (3, 5, 8), "M": (4, 7, 10), "N": (5, 6, 9),
           "own": lambda N, k: self_attention(N, k), "crossed": lambda M, N, k: cross_attention(M, N, k),
           "causal": lambda N: CAUSAL.pairs(N, N), "both": lambda k: k + k},
    question="An encoder-decoder transformer of width k reads M source tokens and writes N target tokens. Count the "
    "multiplications of single sublayers: four k × k projections (queries, keys, values, output), the scores, and "
    "the weighted sums. Masked pairs are computed too, unless the question says otherwise.",
    answer="Self-attention over M tokens takes `4*M*k^2`{projected} for projections and `2*M^2*k`{paired} for pairs; "
    "cross-attention takes `2*N*k^2 + 2*M*k^2 + 2*M*N*k`{cross}. The quadratic term is half of it only for "
    "`2*k`{threshold} tokens. Sentences have tens of tokens and k is in the hundreds, so the quadratic term is the "
    "smaller part: 5%{share} for 50{sentence} tokens and a width of 512{width}. For the same reason a second target "
    "language adds mainly projections, not pairs.",
    figure=lambda: lines([Series(f"k = {k}", [(m, m / (2 * k + m)) for m in (2**i for i in range(3, 15))])
        for k in (64, 512)], "The share of scores and weighted sums in self-attention: one half at M = 2k.",
        ("tokens M", "share"), log_x=True),
    parts=[
        Part("encoder", "How many does the encoder's self-attention take?", Formula("4*M*k^2 + "
             "2*M^2*k", {"M": "whole", "k": "whole"}),
             "counted", tabulated("M k", [(10, 16), (128, 64), (50, 8)], COUNTED)(self_attention),
             why="Four projections of M tokens, then all pairs of them, with k multiplications for the score and k "
             "for the weighted sum.",
             wrong={"left out the projections": ("2*M^2*k", lambda M, k: attend(M, M, k)),
                    "left out the output projection":
                    ("3*M*k^2 + 2*M^2*k", lambda M, k: project(M, k, 3) + attend(M, M, k)),
                    "left out the weighted sums":
                    ("4*M*k^2 + M^2*k", lambda M, k: project(M, k, 4) + attend(M, M, k) // 2)}),
        Part("cross", "How many does cross-attention take?", Formula("2*N*k^2 + 2*M*k^2 + "
             "2*M*N*k", {"M": "whole", "N": "whole",
             "k": "whole"}), "counted", tabulated("M N k", SIZES, COUNTED)(cross_attention),
             why="Queries and outputs of N tokens, keys and values of M tokens, and `M*N` pairs.",
             wrong={"left out the projections": ("2*M*N*k", lambda M, N, k: attend(N, M, k)),
                    "projected the target only":
                    ("4*N*k^2 + 2*M*N*k", lambda M, N, k: project(N, k, 4) + attend(N, M, k))}),
        Part("decoder", "How many does the decoder's self-attention take?", Formula("4*N*k^2 + "
             "2*N^2*k", {"N": "whole", "k": "whole"}),
             "counted", tabulated("N k", [(7, 16), (200, 64), (60, 8)], COUNTED)(self_attention),
             why="As in the encoder, over the target.",
             wrong={"left out the projections": ("2*N^2*k", lambda N, k: attend(N, N, k)),
                    "used half of the pairs, but masked pairs are computed":
                    ("4*N*k^2 + N^2*k", lambda N, k: project(N, k, 4) + attend(N, N, k) // 2)}),
        Part("unmasked", "How many multiplications do its pairs need if those that are masked are skipped?",
             Formula("N*(N + 1)*k", {"N": "whole", "k": "whole"}), "counted",
             tabulated("N k", [(7, 16), (200, 64), (60, 8)], "the pairs of octavo's causal pattern, times 2 k")(
                 lambda n, k: 2 * k * CAUSAL.pairs(n, n)),
             why="`N*(N + 1)/2`{causal} pairs, `2*k`{both} multiplications each.",
             wrong={"halved the square": ("N^2*k", lambda N, k: attend(N, N, k) // 2),
                    "left out the weighted sums": ("N*(N + 1)*k/2", lambda N, k: k * CAUSAL.pairs(N, N)),
                    "forgot that a token attends to itself":
                    ("N*(N - 1)*k", lambda N, k: 2 * k * (CAUSAL.pairs(N, N) - N))}),
        Part("threshold", "For which M do the pairs take as many multiplications as the projections in the encoder's "
             "self-attention?",
             Formula("2*k",
             {"k": "whole"}), "counted",
             threshold, where={"M": lambda k: 2 * k}, why="There scores and weighted sums take as much as the four "
             "projections: `2*M*k = 4*k^2` per token.",
             wrong={"compared only the powers": ("k", lambda k: k),
                    "counted the feed-forward network too": ("6*k", lambda k: (4 + 8) * k * k / (2 * k))}),
        Part("share",
             "What fraction of the multiplications of the encoder's self-attention belongs to the pairs, for "
             "50{sentence} tokens and a width of 512{width}?",
             Number("50/1074"), "counted", lambda: Finding(pairs_share(50, 512), "counted by PyTorch"),
             why="`2*M^2*k/(4*M*k^2 + 2*M^2*k) = M/(2*k + M)`, here `50/(2*512 + 50)`{}.",
             wrong={"left out the projections": (1, lambda: attend(50, 50, 512) / attend(50, 50, 512)),
                    "compared M with k": ("50/562", lambda: 50 / (50 + 512))}),
        Part("pairs-only",
             "With 50{sentence} tokens, most multiplications of self-attention belong to the pairs, for any width "
             "from 8{narrow} to 1024{wide}.",
             Truth("false"), "counted", pairs_only, why="Only where there are more than `2*k`{threshold} tokens.",
             wrong={"assumed that sequences are longer than k": True}),
        Part("second-language",
             "The encoder's outputs are reused for another target language. How many multiplications do the two "
             "attention sublayers of a decoder layer take for N tokens?",
             Formula("6*N*k^2 + 2*M*k^2 + 2*N^2*k + 2*M*N*k", {"M": "whole", "N": "whole", "k": "whole"}), "counted",
             tabulated("M N k", SIZES, COUNTED)(lambda m, n, k: self_attention(n, k) + cross_attention(m, n, k)),
             why="`4*N*k^2 + 2*N^2*k`{own} for self-attention and `2*N*k^2 + 2*M*k^2 + 2*M*N*k`{crossed} for "
             "cross-attention.",
             wrong={"left out the projections":
                    ("2*N^2*k + 2*M*N*k", lambda M, N, k: attend(N, N, k) + attend(N, M, k)),
                    "treated k as a constant": ("N^2 + M*N", lambda M, N: N * N + M * N),
                    "ran the encoder again":
                    ("6*N*k^2 + 6*M*k^2 + 2*N^2*k + 2*M*N*k + 2*M^2*k",
                    lambda M, N, k: self_attention(M, k) + self_attention(N, k) + cross_attention(M, N, k))}),
    ])  # fmt: skip


def recomputed() -> Finding:
    points = []
    for n in (1, 7, 30):
        x_TD = normal(n + 1, 4, seed=n)[None, None]
        before = attend_reference(x_TD[:, :, :n], x_TD[:, :, :n], x_TD[:, :, :n], CAUSAL)[0, 0]
        after = attend_reference(x_TD, x_TD, x_TD, CAUSAL)[0, 0]
        changed = 1 + int((before - after[:n]).abs().amax(-1).gt(1e-12).sum())
        points.append(IntervalAt({"N": n, "D": 4}, changed, changed))
    return Finding(points, "outputs that are new or differ when one token is appended to 1, 7 and 30")


CACHED = ((7, 16), (100, 64), (1023, 32))
ND = {"N": "whole", "D": "whole"}
NEW = Exercise(
    id="new-token-projections", title="Everything a new token computes with a KV cache",
    where={"one": lambda D: project(1, D), "new": lambda N: N + 1},
    question="N tokens have been processed by one causal attention layer of width D with query, key, value and "
    "output projections, and their keys and values are cached. Another token arrives. Count multiplications.",
    answer="Its own query, key and value: `3*D^2`{projections}; its scores with all keys, its own included, and as "
    "many weighted values: `2*(N + 1)*D`{products}; its output projection: `D^2`{one}. One output is new, and no "
    "other changes. The key and the value, `2*D`{cache} numbers, are added to the cache. Up to `2*D - 1`{crossover} "
    "cached tokens, the projections cost more than everything that depends on the length.",
    parts=[
        Part("projections", "How many do its query, key and value take?", Formula("3*D^2", ND), "counted",
             tabulated("N D", CACHED, "half of the FLOPs that PyTorch counts, three sizes")(
                 lambda n, d: project(1, d, 3)),
             why="Three products of a vector with a D × D matrix. The other tokens' are in the cache.",
             wrong={"projected all tokens again": ("3*(N + 1)*D^2", lambda N, D: project(N + 1, D, 3)),
                    "computed key and value only": ("2*D^2", lambda D: project(1, D, 2))}),
        Part("products", "How many do its scores and the weighted sum take?", Formula("2*(N + 1)*D", ND), "counted",
             tabulated("N D", CACHED, "half of the FLOPs that PyTorch counts, three sizes")(
                 lambda n, d: attend(1, n + 1, d)),
             why="`N + 1`{new} dot products of length D, and as many values of length D times a weight.",
             wrong={"forgot its own key": ("2*N*D", lambda N, D: attend(1, N, D)),
                    "computed all rows": ("2*(N + 1)^2*D", lambda N, D: attend(N + 1, N + 1, D))}),
        Part("total", "How many does it take in all, with the output projection?", Formula("4*D^2 + 2*(N + "
             "1)*D", ND), "counted",
             tabulated("N D", CACHED, "half of the FLOPs that PyTorch counts, three sizes")(
                 lambda n, d: project(1, d, 4) + attend(1, n + 1, d)),
             why="`3*D^2`{projections}, `2*(N + 1)*D`{products} and `D^2`{one}.",
             wrong={"left out the projections": ("2*(N + 1)*D", lambda N, D: attend(1, N + 1, D)),
                    "left out the output projection":
                    ("3*D^2 + 2*(N + 1)*D", lambda N, D: project(1, D, 3) + attend(1, N + 1, D))}),
        Part("outputs", "How many outputs are new or change?", Formula("1", ND), "numeric", recomputed,
             why="Earlier tokens do not attend to the new one.",
             wrong={"computed all outputs again": ("N + 1", lambda N: N + 1),
                    "forgot the new one itself": ("0", lambda: 0)}),
        Part("cache", "How many numbers does the cache gain?", Formula("2*D", ND), "counted",
             tabulated("N D", CACHED, "the entries of one key and one value, counted")(
                 lambda n, d: meta(1, d).numel() + meta(1, d).numel()),
             why="A key and a value. Its query is never needed again.",
             wrong={"kept the query too": ("3*D", lambda D: 3 * D), "kept the scores": ("N + 1", lambda N: N + 1)}),
        Part("crossover", "For which N do the four projections cost as much as scores and weighted sum?",
             Formula("2*D - 1", {"D": "whole"}), "counted",
             lambda: Finding([IntervalAt({"D": d}, *[next(n for n in range(10 * d)
                 if attend(1, n + 1, d) >= project(1, d, 4))] * 2) for d in (8, 32)],
                 "the first N at which they are equal, for two widths"),
             why="There `2*(N + 1)*D = 4*D^2`.",
             wrong={"compared with one projection": ("D/2 - 1", lambda D: D * D / (2 * D) - 1),
                    "compared only the powers": ("D", lambda D: D)}, where={"N": lambda D: 2 * D - 1}),
    ])  # fmt: skip

EXERCISES = (SUBLAYERS, NEW)
