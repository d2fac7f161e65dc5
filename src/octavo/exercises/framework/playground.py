"""Five interactive exercises: functions of a few milliseconds that compute curves from the inputs a reader sets.

Every function returns `series` (name and points), `axes` (labels of x and y), `log` (whether x and y are logarithmic),
`summary` (a sentence about the chosen values) and perhaps `rows` (a table whose first row is the header). They compute
what the exercise of the same id computes, by a faster method; tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError

Array = NDArray[np.float64]
Rows = list[list[float]]
CURVE_POINTS = 49
FINEST_STEP, NOISE_RANGE, NOISE_POINTS = 1e-4, 9.0, 1201  # of the integral over noise
SMALLEST_SHOWN = 1e-300  # smaller values are left out of a logarithmic figure


@dataclass(frozen=True)
class Parameter:
    """A number from `low` to `high`; a `step` of one means integers, `log` a logarithmic slider."""

    kind: ClassVar[str] = "number"
    name: str
    label: str
    low: float
    high: float
    step: float
    value: float
    log: bool = False

    def validate(self, given: Any) -> float:
        """The number; a UserError if it is not valid."""
        if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
            raise UserError(f"{self.name} must be a number: it is {str(given)[:40]!r}; try {self.value:g}")
        if not self.low <= given <= self.high:
            raise UserError(f"{self.name} must be from {self.low:g} to {self.high:g}: it is {given:g}")
        if self.step >= 1 and given != round(given):
            raise UserError(f"{self.name} must be a whole number: it is {given:g}; try {round(given)}")
        return int(given) if self.step >= 1 else float(given)


@dataclass(frozen=True)
class Option:
    """One of a few named options."""

    kind: ClassVar[str] = "option"
    name: str
    label: str
    options: Mapping[str, str]  # name -> meaning
    value: str

    def validate(self, given: Any) -> str:
        """The name; a UserError if there is no such option."""
        if not isinstance(given, str) or given not in self.options:
            raise UserError(f"{self.name} must be one of {', '.join(self.options)}: it is {str(given)[:40]!r}")
        return given


@dataclass(frozen=True)
class Table:
    """Rows of equal length with non-negative numbers."""

    kind: ClassVar[str] = "table"
    name: str
    label: str
    min_size: int  # rows, and numbers in a row
    max_size: int
    value: Rows

    def validate(self, given: Any) -> Rows:
        """The rows, scaled so that they sum to one; a UserError if they are not valid."""
        rows = given if isinstance(given, list | tuple) else ()
        sizes = {len(row) if isinstance(row, list | tuple) else 0 for row in rows}
        if len(sizes) != 1 or not all(self.min_size <= size <= self.max_size for size in (len(rows), *sizes)):
            raise UserError(f"{self.name} must be {self.min_size} to {self.max_size} rows of equally many numbers, "
                            f"{self.min_size} to {self.max_size}; try {self.value}")  # fmt: skip
        for x in (x for row in rows for x in row):
            if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x) or x < 0:
                raise UserError(f"{self.name} holds numbers that are not negative: one is {str(x)[:40]!r}; write 0")
        total = sum(x for row in rows for x in row)
        if not 0 < total < math.inf:
            raise UserError(f"the numbers of {self.name} must add up to more than 0: they add up to {total:g}")
        return [[x / total for x in row] for row in rows]


Input = Parameter | Option | Table


@dataclass(frozen=True)
class InteractiveExercise:
    """An interactive exercise: its inputs, and `function`, which validates their values and computes the curves."""

    title: str
    exercise_id: str
    parameters: Sequence[Input]
    compute: Callable[..., dict[str, Any]] = field(repr=False)

    def function(self, /, **values: Any) -> dict[str, Any]:
        """Curves, axes and a summary, ready for JSON; inputs that are not given have their default value."""
        known = {one.name: one for one in self.parameters}
        if unknown := sorted(set(values) - set(known)):
            raise UserError(f"there is no input {unknown[0]!r}; the inputs are {', '.join(known)}")
        return self.compute(**{name: one.validate(values.get(name, one.value)) for name, one in known.items()})

    def describe(self) -> dict[str, Any]:
        """The inputs, for a page that draws the controls."""
        controls = [{"kind": one.kind, **{name: getattr(one, name) for name in one.__dataclass_fields__}}
                    for one in self.parameters]  # fmt: skip
        return {"title": self.title, "exercise_id": self.exercise_id, "parameters": controls}


def plot_data(
    curves: Sequence[tuple[str, Iterable[float], Iterable[float]]], axes: tuple[str, str], log: tuple[bool, bool],
    summary: str, rows: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:  # fmt: skip
    """The result in the common format; points that a logarithmic axis cannot show are left out."""
    series = []
    for name, xs, ys in curves:
        points = [[float(x), float(y)] for x, y in zip(xs, ys, strict=True)
                  if math.isfinite(y) and (y > SMALLEST_SHOWN or not log[1])]  # fmt: skip
        series.append({"name": name, "points": points})
    result = {"series": series, "axes": list(axes), "log": list(log), "summary": summary}
    return result | ({"rows": [list(row) for row in rows]} if rows else {})


# ---------------------------------------------------------------------- noise in a key


def noise_quadrature(centre: float) -> tuple[Array, Array]:
    """Points and weights for integrals over standard normal noise, dense around `centre`."""
    end = math.asinh((NOISE_RANGE + abs(centre)) / FINEST_STEP)
    u = np.linspace(-end, end, NOISE_POINTS)
    z = centre + FINEST_STEP * np.sinh(u)
    weight = np.exp(-(z**2) / 2) * np.cosh(u)
    return z, weight / weight.sum()


def variances(w_BZ: Array, weight_Z: Array) -> list[float]:
    mean_B1 = (w_BZ @ weight_Z)[:, None]
    result: list[float] = ((w_BZ - mean_B1) ** 2 @ weight_Z).tolist()
    return result


def head_variances(b_B: Array, noise: float, keys: int) -> tuple[list[float], list[float], list[float]]:
    """The variance of one head's weight, of the mean of two heads, and of that mean given that the key did not flip."""
    z, weight = noise_quadrature(0.0)
    one_head = variances(0.5 * (1 + np.tanh(b_B[:, None] * noise * z / 2)), weight)
    z, weight = noise_quadrature(-1 / noise)
    length = 1 + noise * z
    first = 1 / (1 + (keys - 1) * np.exp(np.clip(-b_B[:, None] * length, -700, 700)))
    second = np.exp(-b_B[:, None]) / (1 + (keys - 1) * np.exp(-b_B[:, None]))
    two_heads, not_flipped = (first + second) / 2, np.where(length > 0, weight, 0)
    return one_head, variances(two_heads, weight), variances(two_heads, not_flipped / not_flipped.sum())


def key_noise(length: float, noise: float, keys: int) -> dict[str, Any]:
    """The variance of the weight of value a, by the length of the query."""
    b = np.append(np.logspace(-0.5, 3.5, CURVE_POINTS), length)
    one, two, not_flipped = head_variances(b, noise, keys)
    summary = (
        f"With a query of length {length:g} the weight of value a has variance {one[-1]:.4f} with one head, "
        f"{two[-1]:.4f} with two heads, and {not_flipped[-1]:.2g} with two heads if the noise does not flip the key: "
        "a longer query makes one head worse."
    )
    curves = [("one head", b[:-1], one[:-1]), ("two heads", b[:-1], two[:-1]),
              ("two, key not flipped", b[:-1], not_flipped[:-1])]  # fmt: skip
    return plot_data(curves, ("length of the query", "variance"), (True, False), summary)


# ---------------------------------------------------------------------- saturation


def normal_scores(count: int) -> Array:
    """Evenly spaced quantiles of a normal distribution, with variance one."""
    from scipy.special import ndtri

    z = ndtri((np.arange(count) + 0.5) / count)
    return np.asarray(z / z.std())


def softmax_saturation(z_BN: Array) -> tuple[list[float], list[float]]:
    """The largest weight, and the Frobenius norm of the softmax Jacobian, for each row of scores."""
    a_BN = np.exp(z_BN - z_BN.max(-1, keepdims=True))
    a_BN /= a_BN.sum(-1, keepdims=True)
    others_NN = 1 - np.eye(a_BN.shape[1])
    rest_BN = a_BN @ others_NN  # 1 - a, without the subtraction
    pairs_B = ((a_BN**2) @ others_NN * a_BN**2).sum(-1)
    return a_BN.max(-1).tolist(), np.sqrt(((a_BN * rest_BN) ** 2).sum(-1) + pairs_B).tolist()


def saturation(scale: float, count: int) -> dict[str, Any]:
    """The largest weight and the norm of the Jacobian, by the scale of the scores."""
    scales = np.append(np.logspace(-1, 2, CURVE_POINTS), scale)
    largest, norm = softmax_saturation(scales[:, None] * normal_scores(count))
    summary = (
        f"Scores with standard deviation {scale:g}, as unscaled queries and keys of size {scale**2:.4g} have: the "
        f"largest of {count} attention weights is {largest[-1]:.4f}, and the Jacobian of the softmax has norm "
        f"{norm[-1]:.2g}."
    )
    curves = [("largest weight", scales[:-1], largest[:-1]), ("norm of the Jacobian", scales[:-1], norm[:-1])]
    return plot_data(curves, ("standard deviation of the scores", "value"), (True, True), summary)


# ---------------------------------------------------------------------- singular values


def power(base: float, steps: int) -> float:
    """base ** steps, and 0 where that underflows."""
    return math.exp(steps * math.log(base)) if steps * math.log(base) > math.log(SMALLEST_SHOWN) else 0.0


def gradient_growth(singular: float, steps: int, slope: float) -> dict[str, Any]:
    """The norm of a gradient after some steps, by the singular value (all singular values of W are equal)."""
    values = np.linspace(0.5, 1.5, 2 * CURVE_POINTS + 3).tolist()
    curves = [(f"{t} steps", values, [power(s * slope, t) for s in values]) for t in sorted({steps, 10, 100})]
    fate = "keeps its norm" if singular * slope == 1 else "explodes" if singular * slope > 1 else "vanishes"
    summary = (
        f"After {steps} steps with singular value {singular:g} a gradient is multiplied by "
        f"{power(singular * slope, steps):.4g}: it {fate}. With slope {slope:g} the boundary is at {1 / slope:.4g}."
    )
    return plot_data(curves, ("singular value", "norm of the gradient"), (False, True), summary)


# ---------------------------------------------------------------------- attention patterns

PATTERNS: dict[str, tuple[str, Callable[[int, int], int]]] = {  # name -> description, pairs by side and window
    "full": ("every patch attends to every patch", lambda n, _: n**4),
    "local": ("a window of patches on either side, in row order", lambda n, w: pairs_within(n * n, w)),
    "neighbourhood": ("rows and columns up to a window away", lambda n, w: pairs_within(n, w) ** 2),
    "block": ("blocks as long as the window, in row order", lambda n, w: n * n // w * w**2 + (n * n % w) ** 2),
    "axial": ("its row and its column", lambda n, _: n * n * (2 * n - 1)),
    "global": ("a window of global tokens in front, which attend to all", lambda n, w: w * (2 * n * n + w)),
}


def pairs_within(tokens: int, window: int) -> int:
    """The number of pairs at most a window apart on a line."""
    r = min(window, tokens - 1)
    return tokens * (2 * r + 1) - r * (r + 1)


def pattern_cost(pattern: str, side: int, window: int) -> dict[str, Any]:
    """The exact number of query-key pairs by the side of the grid, and that of all patterns for this side."""
    sides = [n for n in range(2, 65) if n <= 16 or n % 4 == 0]
    curves = [(name, sides, [PATTERNS[name][1](n, window) for n in sides]) for name in dict.fromkeys(("full", pattern))]
    full, pairs = side**4, PATTERNS[pattern][1](side, window)
    summary = (
        f"On a {side} by {side} grid, {pattern} attention has {pairs:,} pairs, {pairs / full:.2%} of the {full:,} "
        "of full attention."
    )
    rows = [("pattern", "a patch attends to", "pairs")]
    rows += [(name, description, f"{count(side, window):,}") for name, (description, count) in PATTERNS.items()]
    return plot_data(curves, ("side of the grid", "pairs"), (True, True), summary, rows)


# ---------------------------------------------------------------------- greedy decoding


def greedy_or_best(table: Rows) -> dict[str, Any]:
    """Greedy decoding against the most probable text of two tokens; the first token is the row."""
    first = max(range(len(table)), key=lambda i: math.fsum(table[i]))
    greedy = first, max(range(len(table[first])), key=lambda j: table[first][j])
    best = max(((i, j) for i, row in enumerate(table) for j in range(len(row))), key=lambda at: table[at[0]][at[1]])
    probabilities = {"greedy": table[greedy[0]][greedy[1]], "best": table[best[0]][best[1]]}
    failed = probabilities["best"] > probabilities["greedy"] * (1 + 1e-12)
    best = best if failed else greedy  # a tie is not a failure
    summary = (
        f"Greedy decoding writes {greedy[0]} {greedy[1]} with probability {probabilities['greedy']:.4f}; the most "
        f"probable text is {best[0]} {best[1]} with {probabilities['best']:.4f}: "
        + ("greedy misses it." if failed else "greedy finds it.")
    )
    curves = [(name, (1, 2), (math.fsum(table[at[0]]), probabilities[name]))
              for name, at in (("greedy", greedy), ("best", best))]  # fmt: skip
    rows = [["first", *(f"then {j}" for j in range(len(table[0]))), "total"]]
    rows += [[str(i), *(f"{p:.4f}" for p in row), f"{math.fsum(row):.4f}"] for i, row in enumerate(table)]
    result = plot_data(curves, ("tokens written", "probability so far"), (False, False), summary, rows)
    return result | {"greedy": {"path": list(greedy), "probability": probabilities["greedy"]},
                     "best": {"path": list(best), "probability": probabilities["best"]}, "failed": failed}  # fmt: skip


LENGTH = Parameter("length", "length of the query", 0.5, 2000, 0.1, 10, log=True)
WINDOW = Parameter("window", "window", 1, 32, 1, 4)
PLAYGROUND: dict[str, InteractiveExercise] = {
    "key-noise": InteractiveExercise("One head or two under noise in a key", "average-two-heads-noise", (
        LENGTH, Parameter("noise", "noise in the length of the key", 0.05, 2, 0.01, round(math.sqrt(0.5), 4)),
        Parameter("keys", "keys", 2, 100, 1, 10)), key_noise),
    "saturation": InteractiveExercise("When a softmax saturates", "score-scale", (
        Parameter("scale", "standard deviation of the scores", 0.1, 100, 0.1, 8, log=True),
        Parameter("count", "scores", 2, 64, 1, 16)), saturation),
    "gradient-growth": InteractiveExercise("Vanishing or exploding gradients", "vanishing-exploding", (
        Parameter("singular", "singular value", 0.5, 1.5, 0.01, 1.1), Parameter("steps", "steps", 1, 300, 1, 50),
        Parameter("slope", "slope of the nonlinearity", 0.05, 1, 0.05, 1)), gradient_growth),
    "pattern-cost": InteractiveExercise("The cost of a sparse pattern", "sparse-patterns-grid", (
        Option("pattern", "pattern", {name: description for name, (description, _) in PATTERNS.items()}, "local"),
        Parameter("side", "side of the grid", 2, 64, 1, 16), WINDOW), pattern_cost),
    "greedy": InteractiveExercise("Greedy decoding against the most probable text", "greedy-or-best", (
        Table("table", "probability of each text of two tokens", 2, 3, [[3, 2], [0, 4]]),), greedy_or_best),
}  # fmt: skip
