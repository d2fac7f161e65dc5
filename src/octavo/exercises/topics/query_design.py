"""Queries for one head and for two when the keys are noisy, with mean and covariance of the noise as they are given.

mu means of the keys, t variance of the small noise, b length of a query along each mean, n number of keys.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import bisect, normal, tabulate, tabulated
from octavo.exercises.topics.noisy_keys import NOISE, normal_mean, sigmoid
from octavo.ops.attention.reference import attend_reference

Array = NDArray[np.float64]
LARGE = 0.5  # variance of key a along its mean
SHORT = 20  # length of a query along each mean, in two questions
CLOSE = 1e-3  # of attention weights
POINTS = ((2.0, 0.1, 4), (5.0, 0.01, 8), (0.5, 0.3, 6))  # b, t, size of the keys


def orthonormal(size: int, seed: int = 0) -> Tensor:
    """Orthonormal means, as rows."""
    rows: Tensor = torch.linalg.qr(normal(size, size, seed=seed))[0]
    return rows


def covariance(mu_D: Tensor, t: float, along: float) -> Tensor:
    """t I + along mu muᵀ."""
    return t * torch.eye(len(mu_D), dtype=torch.float64) + along * torch.outer(mu_D, mu_D)


def score_moments(b: float, t: float, size: int, along: float) -> tuple[float, float]:
    """Mean and variance of the score of a key, for the query along the means of keys a and b; exact, by matrices."""
    mu_ND = orthonormal(size, seed=size)
    q_D = b * (mu_ND[0] + mu_ND[1])
    return float(q_D @ mu_ND[0]), float(q_D @ covariance(mu_ND[0], t, along) @ q_D)


def query_square(b: float, size: int) -> float:
    """The squared norm of the query."""
    mu_ND = orthonormal(size, seed=size)
    return float((b * (mu_ND[0] + mu_ND[1])).square().sum())


def key_square(t: float, d: int) -> float:
    """E |k|^2 = |mu|^2 plus the trace of the covariance."""
    mu_D = orthonormal(d, seed=d)[0]
    return float(mu_D @ mu_D + covariance(mu_D, t, LARGE).trace())


@tabulated("n b", ((3, 2.0), (10, 1.0), (50, 4.0)), "octavo's attention with noise of variance 1e-20", rel=1e-7)
def small_noise(n: int, b: float) -> float:
    mu_ND = orthonormal(n, seed=n)
    k_ND = mu_ND + 1e-10 * normal(n, n, seed=1)
    q_D, v_NN = b * (mu_ND[0] + mu_ND[1]), torch.eye(n, dtype=torch.float64)
    return float(attend_reference(q_D[None, None, None], k_ND[None, None], v_NN[None, None], scale=1.0)[0, 0, 0, 0])


def output_variance() -> Finding:
    rows = []
    z = np.random.default_rng(5).normal(size=20_000)
    for b, seed in ((1.0, 1), (10.0, 2)):
        w = sigmoid(b * NOISE * z)
        v = np.random.default_rng(seed).normal(size=(2, 3))
        c = w[:, None] * v[0] + (1 - w)[:, None] * v[1]
        rows.append((float(w.var()), float(np.linalg.norm(v[0] - v[1])), float(c.var(0).sum())))
    points = {(variance, length): total for variance, length, total in rows}
    table = tabulate("U L", list(points), lambda *at: points[at], rel=1e-9)
    return Finding(table, "20,000 outputs each for two lengths of the query: the sum of the variances of their entries")


def sampled_outputs() -> Array:
    """20,000 outputs in three dimensions."""
    w = sigmoid(SHORT * NOISE * np.random.default_rng(5).normal(size=20_000))
    v = np.random.default_rng(1).normal(size=(2, 3))
    outputs: Array = w[:, None] * v[0] + (1 - w)[:, None] * v[1]
    return outputs


def covariance_rank() -> Finding:
    rank = int(np.linalg.matrix_rank(np.cov(sampled_outputs().T)))
    return Finding(rank, "the covariance of 20,000 outputs with three entries")


def output_mean() -> Finding:
    mean = normal_mean(lambda z: sigmoid(SHORT * NOISE * z))
    return Finding(mean, f"numerical integral for b = {SHORT}")


def balanced() -> Finding:
    """The bounds of z by bisection, the probability by the normal distribution function."""
    bound = bisect(lambda z: float(sigmoid(np.array(SHORT * NOISE * z))) >= 0.75, 0.0, 5.0)
    z = np.random.default_rng(6).normal(size=1_000_000)
    w = sigmoid(SHORT * NOISE * z)
    drawn = float(((w > 0.25) & (w < 0.75)).mean())
    note = f"the normal distribution function up to z = {bound:.5f}; a million draws give {drawn:.4f}"
    return Finding(math.erf(bound / math.sqrt(2)), note)


def stays_near_average() -> Finding:
    distance = normal_mean(lambda z: np.abs(sigmoid(SHORT * NOISE * z) - 0.5))
    note = f"b = {SHORT}: the mean distance of the output from the average is {distance:.2f} of that between the two "
    "values"
    return Finding(verdict(distance < 0.1), note, "below 0.1")


BT = {"b": "positive", "t": "positive"}
LONG_KEY = Exercise(
    id="long-key", title="One head and a key of varying length",
    where={"large": LARGE, "short": SHORT, "b": (0.5, 2.0, 5.0), "t": (0.1, 0.3), "d": (4, 6, 8),
           "other": lambda b, t, d: score_moments(b, t, d, 0.0)[1], "square": lambda b, d: query_square(b, d),
           "trace": lambda t, d: key_square(t, d) - 1, "spread": lambda: SHORT * NOISE,
           "bound": lambda: math.log(0.75 / 0.25)},
    question="Keys are drawn from normal distributions with orthonormal means. All have covariance `t*I` with a tiny "
    "t, but the first key has in addition the variance 1/2{large} along its own mean. The query is `q = b*(mu_1 + "
    "mu_2)`.",
    answer="With tiny noise everywhere, the weights are those of the means: nearly one half each for a long query. "
    "With the large covariance, the score of the first key has mean b and variance `b^2*(1/2 + 2*t)`{score-variance}, "
    "against `2*t*b^2`{other} for the second key. The difference of the two scores is multiplied by b, so a long "
    "query, which is needed to suppress the other keys, makes the output jump between the two values. The variance of "
    "the output is that of the weight, times the squared distance of the values; it does not have the covariance of "
    "the key.",
    parts=[
        Part("small-noise", "All n keys have covariance `t*I`, and t goes to zero. What is the weight of the first "
             "value?",
             Formula("1/(2 + (n - 2)*exp(-b))", {"n": "whole", "b": "positive"}), "numeric", small_noise,
             why="The keys are then their means: two scores are b, the others are zero.",
             wrong={"forgot the other keys": ("1/2", lambda: 1 / 2),
                    "counted all n of them": ("1/(2 + n*exp(-b))", lambda n, b: 1 / (2 + n * mpmath.exp(-b)))}),
        Part("score-mean", "The first key has the large covariance. What is the mean of its score, `dot(k_1, q)`?",
             Formula("b", BT), "numeric",
             tabulated("b t _", POINTS, "the product of mean and query, three sizes", rel=1e-9)(
                 lambda b, t, size: score_moments(b, t, size, LARGE)[0]),
             why="`dot(mu_1, q) = b*(dot(mu_1, mu_1) + dot(mu_1, mu_2))`, and the means are orthonormal.",
             wrong={"added both means": ("2*b", lambda b: b + b),
                    "added the variance": ("b*(1 + t)", lambda b, t: b + b * t)}),
        Part("score-variance", "The first key has the large covariance. What is the variance of its "
             "score?", Formula("b^2*(1/2 + 2*t)", BT), "numeric",
             tabulated("b t _", POINTS, "query times covariance times query, three sizes", rel=1e-9)(
                 lambda b, t, size: score_moments(b, t, size, LARGE)[1]),
             why="The small noise contributes t times the squared norm of q, which is `2*b^2`{square}; the noise "
             "along the mean contributes half of the squared product of mean and query, which is b.",
             wrong={"did not multiply by the query": ("1/2 + t", lambda t: LARGE + t),
                    "forgot that the query has two directions":
                    ("b^2*(1/2 + t)", lambda b, t: b * b * LARGE + t * b * b),
                    "gave that of the second key": ("2*t*b^2", lambda b, t: t * (b * b + b * b))}),
        Part("key-norm", "What is the mean squared norm of the first key, if it has d entries?",
             Formula("3/2 + d*t", {"d": "whole", "t": "positive"}), "numeric",
             tabulated("t d", ((0.1, 4), (0.01, 8), (0.3, 6)), "squared mean plus trace, three sizes", rel=1e-9)(
                 key_square),
             why="The squared mean is one, and the trace of the covariance is `d*t + 1/2`{trace}.",
             wrong={"forgot the mean": ("1/2 + d*t", lambda d, t: LARGE + d * t),
                    "forgot the small noise": ("3/2", lambda: 1 + LARGE)}),
        Part("output-variance",
             "The weight of the first value has variance U, the values have distance L, other keys are ignored. What "
             "is the sum of the variances of the output's entries?",
             Formula("U*L^2", {"U": "positive", "L": "positive"}), "numeric", output_variance,
             why="`c = v_2 + w*(v_1 - v_2)`: only w is random.",
             wrong={"did not square the distance": ("U*L", lambda U, L: U * L),
                    "took the variance of the weight": ("U", lambda U: U)}),
        Part("output-mean",
             "Other keys and the small noise are ignored. The mean of the output is a weighted mean of the two "
             "values. What is the weight of the first value in it?", Number("1/2"), "numeric", output_mean,
             why="The log-odds of the weight are symmetric about zero.",
             wrong={"put the mean length, not the score difference, into the sigmoid":
                    (0.7310585786, lambda: float(sigmoid(np.array(1.0))))}),
        Part("covariance",
             "The values differ by `v_1 - v_2`, and the weight of the first value has variance U. What is the rank of "
             "the covariance matrix of the output?", Number(1, rel=0), "numeric", covariance_rank,
             why="All outputs lie on the line between the two values: the covariance is U times the outer product of "
             "the difference with itself.",
             wrong={"thought that it is the covariance of the key, with noise in all directions": (3, lambda: 3)}),
        Part("balanced",
             "For `b = 20` and negligible t, what is the probability that the weight of the first value lies between "
             "one quarter and three quarters?", Number(0.0619202759), "numeric", balanced,
             why="The log-odds of the weight have standard deviation `20/sqrt(2)`{spread}; they must lie within "
             "`ln(3)`{bound} of zero.",
             wrong={"thought that the average is typical": (1, lambda: 1.0),
                    "used a uniform weight": (0.5, lambda: 0.75 - 0.25)}, where={"b": SHORT}),
        Part("near-average",
             "With `b = 20`, the distance of the output from the mean of the two values is on average less than a "
             "tenth of the distance between the values.", Truth("false"), "numeric", stays_near_average,
             why="The weight is mostly close to zero or one.",
             wrong={"took the mean of the weight for its typical value": True}, where={"b": SHORT}),
    ])  # fmt: skip


def two_heads(means: list[list[float]], keys: list[list[float]], a: int, b: int) -> list[list[float]]:
    """The attention weights of two heads, whose queries are long multiples of the means of keys a and b."""
    return [_weights([40 * x for x in means[one]], keys) for one in (a, b)]


def _weights(query: list[float], keys: list[list[float]]) -> list[float]:
    scores = [sum(x * y for x, y in zip(query, key, strict=True)) for key in keys]
    top = max(scores)
    e = [math.exp(score - top) for score in scores]
    return [x / sum(e) for x in e]


def _same_query(means: list[list[float]], keys: list[list[float]], a: int, b: int) -> list[list[float]]:
    query = [40 * (x + y) for x, y in zip(means[a], means[b], strict=True)]
    return [_weights(query, keys)] * 2


def _short_queries(means: list[list[float]], keys: list[list[float]], a: int, b: int) -> list[list[float]]:
    return [_weights(means[one], keys) for one in (a, b)]


def _wanted_weights(means: list[list[float]], keys: list[list[float]], a: int, b: int) -> list[list[float]]:
    return [[float(i == one) for i in range(len(keys))] for one in (a, b)]


def noisy_case(
    size: int, seed: int, length: float, a: int, b: int
) -> tuple[list[list[float]], list[list[float]], int, int]:
    """Means, keys with little noise of which key a has another length, and the places of the two values."""
    mu_ND = orthonormal(size, seed)
    k_ND = mu_ND + 0.005 * normal(size, size, seed=seed + 1)
    k_ND[a] *= length
    return mu_ND.mul(1e6).round().div(1e6).tolist(), k_ND.mul(1e6).round().div(1e6).tolist(), a, b


UNIT = torch.eye(4, dtype=torch.float64).tolist()
BACKWARDS = (UNIT, [[-0.6 * x for x in UNIT[0]], *UNIT[1:]], 0, 1)  # key a points away from its mean
NOISY_CASES = [
    noisy_case(4, 1, 1.0, 0, 2), noisy_case(5, 2, 1.8, 3, 1), noisy_case(6, 3, 0.5, 2, 5), BACKWARDS,
]  # fmt: skip


def copied_values() -> Finding:
    """octavo's attention with far longer queries: the weights no longer depend on how long they are."""
    results = []
    for means, keys, a, b in NOISY_CASES:
        q_TD, k_SD = 1000 * torch.tensor(means, dtype=torch.float64)[[a, b]], torch.tensor(keys, dtype=torch.float64)
        values = torch.eye(len(keys), dtype=torch.float64)
        weights = attend_reference(q_TD[None, None], k_SD[None, None], values[None, None], scale=1.0)[0, 0]
        results.append(weights.tolist())
    return Finding(results, "octavo's attention with queries of norm 1000, four sets of keys; one key points backwards")


def head_variance(b: float, n: int, queries: str) -> float:
    """The variance of the weight of value a in the mean of two heads, given that the score of key a is positive."""
    low = -1 / NOISE
    z = np.linspace(low, 12, 240_001)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    score = b * (1 + NOISE * z)
    if queries == "different":  # the first head's other keys have score 0, the second never attends to a
        w = 0.5 / (1 + (n - 1) * np.exp(-score))
    else:
        w = 1 / (1 + np.exp(b - score) + (n - 2) * np.exp(-score))
    mean = float((w * density).sum())
    return float(((w - mean) ** 2 * density).sum())


def same_query_helps() -> Finding:
    z = np.random.default_rng(7).normal(size=100_000)
    one = sigmoid(SHORT * NOISE * z)
    both = (one + one) / 2
    note = f"b = {SHORT}, 100,000 draws: variance {one.var():.4f} with one head, {both.var():.4f} with two"
    return Finding(verdict(bool(both.var() < one.var() - 1e-12)), note, "any smaller")


def longer_helps() -> Finding:
    variances = {b: head_variance(b, 10, "different") for b in (5.0, 20.0, 100.0, 500.0)}
    listed = ", ".join(f"{v:.5f} for b = {b:g}" for b, v in variances.items())
    falls = list(variances.values()) == sorted(variances.values(), reverse=True)
    note = f"ten keys, given a positive score: variance {listed}"
    return Finding(verdict(falls and variances[500.0] < 0.001), note, "below 0.001 at the end")


def one_head_longer() -> Finding:
    variances = {b: head_variance(b, 10, "same") for b in (5.0, 20.0, 100.0)}
    listed = ", ".join(f"{v:.4f} for b = {b:g}" for b, v in variances.items())
    return Finding(
        verdict(variances[100.0] < variances[5.0]),
        f"ten keys, given a positive score: variance {listed}",
        "any smaller",
    )


TWO_HEADS = Exercise(
    id="two-heads-found", title="Find queries for two heads", where={"close": CLOSE},
    question="Keys are drawn around orthonormal means with tiny noise, but the first key also varies in length. The "
    "output is the mean of the outputs of two heads with queries `q_1` and `q_2`. Find queries, in terms of the means, "
    "for which it is close to the average of the values of the first two keys, however long the first one is.",
    answer="`q_1 = s*mu_1` and `q_2 = s*mu_2` with a large s: each head copies one value. The length of the first key "
    "now changes only a margin that is large anyway, so the output hardly varies as long as the key does not point "
    "backwards. Two heads that share the query of a single head gain nothing: they make the same error.",
    parts=[
        Part("weights",
             "Write a function that chooses two queries, each a multiple of one mean and long enough, and returns "
             "the attention weights of both heads, with the query of the first for key a and that of the second for "
             "key b, each right to 0.001{close}. Scores are dot products without scaling; a and b are indices into the "
             "lists of means and keys.",
             Function("two_heads", two_heads, NOISY_CASES,
             "two_heads(means: list of lists, keys: list of lists, a: integer, b: integer) -> [weights, weights]",
             rel=0.0, abs=CLOSE), "numeric", copied_values,
             why="A query along one mean has a large score with that key alone.",
             wrong={"gave both heads the query of a single head": _same_query, "returned the wanted weights without "
             "attention":
                    _wanted_weights, "left the queries short":
                    _short_queries}),
        Part("same-query",
             "Two heads with the same query `b*(mu_1 + mu_2)` have an output with smaller variance than one head.",
             Truth("false"), "monte carlo", same_query_helps,
             why="Their outputs are equal in every draw, so averaging changes nothing.",
             wrong={"thought that averaging always reduces the variance": True}),
        Part("longer",
             "With different queries, and given that the score of the first key is positive, longer queries reduce the "
             "variance of the output, down to zero.", Truth("true"), "numeric", longer_helps,
             why="The weight of the first value in the first head goes to one for every positive length of the key.",
             wrong={"thought that a long query amplifies the noise, as with one head": False}),
        Part("one-head-longer",
             "With one head and the query `b*(mu_1 + mu_2)`, longer queries also reduce the variance.",
             Truth("false"), "numeric", one_head_longer,
             why="There the two scores compete, and b multiplies the noise in their difference.",
             wrong={"thought that one head behaves like two": True}),
    ])  # fmt: skip

EXERCISES = (LONG_KEY, TWO_HEADS)
