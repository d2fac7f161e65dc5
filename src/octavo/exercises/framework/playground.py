"""Interactive exercises: five that somebody can turn the numbers of, each a function of milliseconds.

Every function returns `series` (name and points), `axes` (labels of x and y), `log` (of x and y), `told` (one sentence
that says what is seen) and perhaps `rows` (a table, its first row the titles). They compute what the exercise of the
same id computes, by a faster way; tests hold one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.exercises.framework.inputs import Option, Parameter, Play, Rows, Table

Array = NDArray[np.float64]
POINTS = 49  # of a curve
FINEST, FURTHEST, PLACES = 1e-4, 9.0, 1201  # of the integral over noise: its finest step, its ends, its points
SMALLEST = 1e-300  # what is smaller is left out of a logarithmic figure


def seen(
    curves: Sequence[tuple[str, Iterable[float], Iterable[float]]], axes: tuple[str, str], log: tuple[bool, bool],
    told: str, rows: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:  # fmt: skip
    """The answer in the form that all have; what a logarithmic axis cannot hold is left out."""
    series = []
    for name, xs, ys in curves:
        points = [[float(x), float(y)] for x, y in zip(xs, ys, strict=True)
                  if math.isfinite(y) and (y > SMALLEST or not log[1])]  # fmt: skip
        series.append({"name": name, "points": points})
    found = {"series": series, "axes": list(axes), "log": list(log), "told": told}
    return found | ({"rows": [list(row) for row in rows]} if rows else {})


# ---------------------------------------------------------------------- noise in a key


def noise_points(centre: float) -> tuple[Array, Array]:
    """Standard normal noise as points with weights; they lie close together around `centre`, where weights change."""
    most = math.asinh((FURTHEST + abs(centre)) / FINEST)
    u = np.linspace(-most, most, PLACES)
    z = centre + FINEST * np.sinh(u)
    weight = np.exp(-(z**2) / 2) * np.cosh(u)
    return z, weight / weight.sum()


def variances(w_BZ: Array, weight_Z: Array) -> list[float]:
    mean_B1 = (w_BZ @ weight_Z)[:, None]
    found: list[float] = ((w_BZ - mean_B1) ** 2 @ weight_Z).tolist()
    return found


def head_variances(b_B: Array, noise: float, keys: int) -> tuple[list[float], list[float], list[float]]:
    """Of the weight of one head, of the mean of two, and of the mean of two where the key was not turned round."""
    z, weight = noise_points(0.0)
    one = variances(0.5 * (1 + np.tanh(b_B[:, None] * noise * z / 2)), weight)
    z, weight = noise_points(-1 / noise)
    length = 1 + noise * z
    first = 1 / (1 + (keys - 1) * np.exp(np.clip(-b_B[:, None] * length, -700, 700)))
    second = np.exp(-b_B[:, None]) / (1 + (keys - 1) * np.exp(-b_B[:, None]))
    two, kept = (first + second) / 2, np.where(length > 0, weight, 0)
    return one, variances(two, weight), variances(two, kept / kept.sum())


def key_noise(length: float, noise: float, keys: int) -> dict[str, Any]:
    """The variance of the share of value a over the query's length."""
    b = np.append(np.logspace(-0.5, 3.5, POINTS), length)
    one, two, kept = head_variances(b, noise, keys)
    told = (
        f"At length {length:g} the share of one head has the variance {one[-1]:.4f}, that of two heads {two[-1]:.4f}, "
        f"and {kept[-1]:.2g} where the noise does not turn the key round: a longer query makes one head worse."
    )
    curves = [("one head", b[:-1], one[:-1]), ("two heads", b[:-1], two[:-1]), ("two, not turned", b[:-1], kept[:-1])]
    return seen(curves, ("length of the query", "variance"), (True, False), told)


# ---------------------------------------------------------------------- saturation


def spread_scores(count: int) -> Array:
    """Scores as a normal distribution has them, evenly, with variance one."""
    from scipy.special import ndtri

    z = ndtri((np.arange(count) + 0.5) / count)
    return np.asarray(z / z.std())


def saturated(z_BN: Array) -> tuple[list[float], list[float]]:
    """The largest weight, and the size of all derivatives (the root of the sum of their squares), row by row."""
    a_BN = np.exp(z_BN - z_BN.max(-1, keepdims=True))
    a_BN /= a_BN.sum(-1, keepdims=True)
    others_NN = 1 - np.eye(a_BN.shape[1])
    rest_BN = a_BN @ others_NN  # 1 - a, without the subtraction
    pairs_B = ((a_BN**2) @ others_NN * a_BN**2).sum(-1)
    return a_BN.max(-1).tolist(), np.sqrt(((a_BN * rest_BN) ** 2).sum(-1) + pairs_B).tolist()


def saturation(scale: float, count: int) -> dict[str, Any]:
    """The largest weight and the derivatives over the scale of the scores."""
    scales = np.append(np.logspace(-1, 2, POINTS), scale)
    largest, size = saturated(scales[:, None] * spread_scores(count))
    told = (
        f"Scores with a standard deviation of {scale:g}, as queries and keys of size {scale**2:.4g} give without "
        f"scaling: the largest of {count} weights is {largest[-1]:.4f}, and the derivatives are {size[-1]:.2g} in size."
    )
    curves = [("largest weight", scales[:-1], largest[:-1]), ("derivatives", scales[:-1], size[:-1])]
    return seen(curves, ("standard deviation of the scores", "size"), (True, True), told)


# ---------------------------------------------------------------------- singular values


def power(base: float, steps: int) -> float:
    """base ** steps, and 0 where that is too small for a number."""
    return math.exp(steps * math.log(base)) if steps * math.log(base) > math.log(SMALLEST) else 0.0


def gradient_growth(singular: float, steps: int, slope: float) -> dict[str, Any]:
    """The length of a gradient after some steps, over the singular value that all of W's are equal to."""
    values = np.linspace(0.5, 1.5, 2 * POINTS + 3).tolist()
    curves = [(f"{t} steps", values, [power(s * slope, t) for s in values]) for t in sorted({steps, 10, 100})]
    now, edge = power(singular * slope, steps), 1 / slope
    fate = "stays" if singular * slope == 1 else "grows" if singular * slope > 1 else "vanishes"
    told = (
        f"After {steps} steps a singular value of {singular:g} has multiplied a gradient by {now:.4g}: it {fate}; with "
        f"a slope of {slope:g} the edge is at {edge:.4g}."
    )
    return seen(curves, ("singular value", "length of the gradient"), (False, True), told)


# ---------------------------------------------------------------------- patterns

PATTERNS: dict[str, tuple[str, Callable[[int, int], int]]] = {  # name -> what it says, pairs by side and window
    "full": ("every patch sees every other", lambda n, _: n**4),
    "local": ("as many as the window before it and behind it, in row order", lambda n, w: near(n * n, w)),
    "neighbourhood": ("rows and columns up to the window away", lambda n, w: near(n, w) ** 2),
    "block": ("blocks of as many as the window, in row order", lambda n, w: n * n // w * w**2 + (n * n % w) ** 2),
    "axial": ("its row and its column", lambda n, _: n * n * (2 * n - 1)),
    "global": ("as many extra tokens in front as the window, which all see all", lambda n, w: w * (2 * n * n + w)),
}


def near(tokens: int, window: int) -> int:
    """Pairs at most so far apart on a line."""
    r = min(window, tokens - 1)
    return tokens * (2 * r + 1) - r * (r + 1)


def pattern_cost(pattern: str, side: int, window: int) -> dict[str, Any]:
    """The exact number of pairs over the side of the grid, and all patterns for this one."""
    sides = [n for n in range(2, 65) if n <= 16 or n % 4 == 0]
    drawn = dict.fromkeys(("full", pattern))
    curves = [(name, sides, [PATTERNS[name][1](n, window) for n in sides]) for name in drawn]
    every, pairs = side**4, PATTERNS[pattern][1](side, window)
    told = (
        f"On a grid of {side} by {side}, {pattern} attention has {pairs:,} pairs, {pairs / every:.2%} of the {every:,} "
        "of full attention."
    )
    rows = [("pattern", "what a patch sees", "pairs")]
    rows += [(name, says, f"{count(side, window):,}") for name, (says, count) in PATTERNS.items()]
    return seen(curves, ("side of the grid", "pairs"), (True, True), told, rows)


# ---------------------------------------------------------------------- greedy


def greedy_or_best(table: Rows) -> dict[str, Any]:
    """Greedy decoding against the most probable text of two tokens; the first token is the row."""
    first = max(range(len(table)), key=lambda i: math.fsum(table[i]))
    greedy = first, max(range(len(table[first])), key=lambda j: table[first][j])
    best = max(((i, j) for i, row in enumerate(table) for j in range(len(row))), key=lambda at: table[at[0]][at[1]])
    chances = {"greedy": table[greedy[0]][greedy[1]], "best": table[best[0]][best[1]]}
    failed = chances["best"] > chances["greedy"] * (1 + 1e-12)
    best = best if failed else greedy  # a tie is no failure
    told = (
        f"Greedy writes {greedy[0]} {greedy[1]}, which has the probability {chances['greedy']:.4f}; the most probable "
        f"text is {best[0]} {best[1]} with {chances['best']:.4f}: "
        + ("greedy misses it." if failed else "greedy finds it.")
    )
    curves = [
        (name, (1, 2), (math.fsum(table[at[0]]), chances[name])) for name, at in (("greedy", greedy), ("best", best))
    ]
    rows = [["first", *(f"then {j}" for j in range(len(table[0]))), "together"]]
    rows += [[str(i), *(f"{one:.4f}" for one in row), f"{math.fsum(row):.4f}"] for i, row in enumerate(table)]
    found = seen(curves, ("tokens written", "probability so far"), (False, False), told, rows)
    return found | {"greedy": {"path": list(greedy), "probability": chances["greedy"]},
                    "best": {"path": list(best), "probability": chances["best"]}, "failed": failed}  # fmt: skip


LENGTH = Parameter("length", "length of the query", 0.5, 2000, 0.1, 10, log=True)
WINDOW = Parameter("window", "window", 1, 32, 1, 4)
PLAYGROUND: dict[str, Play] = {
    "key-noise": Play("One head or two under noise in a key", "average-two-heads-noise", (
        LENGTH, Parameter("noise", "noise in the key's length", 0.05, 2, 0.01, round(math.sqrt(0.5), 4)),
        Parameter("keys", "keys", 2, 100, 1, 10)), key_noise),
    "saturation": Play("When a softmax is sure of itself", "score-scale", (
        Parameter("scale", "standard deviation of the scores", 0.1, 100, 0.1, 8, log=True),
        Parameter("count", "scores", 2, 64, 1, 16)), saturation),
    "gradient-growth": Play("Vanish or explode", "vanishing-exploding", (
        Parameter("singular", "singular value", 0.5, 1.5, 0.01, 1.1), Parameter("steps", "steps", 1, 300, 1, 50),
        Parameter("slope", "slope of the nonlinearity", 0.05, 1, 0.05, 1)), gradient_growth),
    "pattern-cost": Play("What a sparse pattern costs", "sparse-patterns-grid", (
        Option("pattern", "pattern", {name: says for name, (says, _) in PATTERNS.items()}, "local"),
        Parameter("side", "side of the grid", 2, 64, 1, 16), WINDOW), pattern_cost),
    "greedy": Play("Greedy against the most probable text", "greedy-or-best", (
        Table("table", "how likely each text of two tokens is", 2, 3, [[3, 2], [0, 4]]),), greedy_or_best),
}  # fmt: skip
