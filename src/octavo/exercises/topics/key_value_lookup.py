"""Key-value lookup: what query, key and value projections add to raw dot products, and what a synthesizer lacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.pages.figures.charts import bars

Array = NDArray[np.float64]


def attend_unscaled(q_TK: Array, k_SK: Array, v_SV: Array) -> Array:
    """Attention with unscaled dot products as scores."""
    scores_TS = q_TK @ k_SK.T
    e_TS = np.exp(scores_TS - scores_TS.max(-1, keepdims=True))
    output: Array = (e_TS / e_TS.sum(-1, keepdims=True)) @ v_SV
    return output


def tokens(b: float, c_times: float = 0.0, d_times: float = 0.0) -> tuple[Array, Array]:
    """u_a to u_d of norm b, and the three tokens x_1 = u_d + u_b, x_2 = u_a + ..., x_3 = u_c + u_b."""
    u = b * np.eye(4)
    return u, np.stack([u[3] + u[1], u[0] + c_times * u[2] + d_times * u[3], u[2] + u[1]])


def what_c2_is() -> Finding:
    u, x = tokens(5.0)
    c2 = attend_unscaled(x, x, x)[1]
    options = {"u_a": u[0], "u_b": u[1], "mean": x.mean(0), "x_1": x[0]}
    nearest = min(options, key=lambda name: float(np.linalg.norm(options[name] - c2)))
    note = f"norm 5: its distance from c_2 is {np.linalg.norm(options[nearest] - c2):.0e}"
    return Finding(nearest, note, "the nearest one")


def own_share(b: float) -> float:
    """The weight of the second token in its own output."""
    u, x = tokens(b)
    return float(attend_unscaled(x, x, x)[1] @ u[0]) / b**2


own_weight = tabulated("b", [(0.5,), (1.0,), (2.0,)], "the weight of u_a in c_2, to 1e-12", abs=1e-12)(own_share)


def first_weight(scores: Sequence[Any]) -> Any:
    """The softmax weight of the first score, with 50 digits."""
    return 1 / mpmath.fsum(mpmath.exp(one - scores[0]) for one in scores)


def squared_distance(w: float) -> float:
    """The squared distance from u_b of a mean of the tokens with the weights w, 1 - 2 w and w, in units of b."""
    u, x = tokens(1.0)
    return float(np.square(np.array([w, 1 - 2 * w, w]) @ x - u[1]).sum())


def nearest_by_adding(b: float) -> float:
    """The smallest distance of c_2 from u_b, in units of b, when a multiple of u_c or u_d is added to x_2."""
    tried = [tokens(b, **{name: times / 20}) for name in ("c_times", "d_times") for times in range(-400, 401)]
    return min(float(np.linalg.norm(attend_unscaled(x, x, x)[1] - u[1])) / b for u, x in tried)


def adding_helps() -> Finding:
    nearest = {b: nearest_by_adding(b) for b in (1.0, 2.0, 5.0, 10.0)}
    listed = "; ".join(f"norm {b:g}: at best {distance:.2f} norms away" for b, distance in nearest.items())
    note = f"multiples from -20 to 20 of u_c and of u_d; {listed}"
    return Finding(verdict(min(nearest.values()) < 0.1), note, "within a tenth of the norm")


def nearest_mean() -> Finding:
    u, x = tokens(1.0)
    shares = np.array([(i, j, 400 - i - j) for i in range(401) for j in range(401 - i)]) / 400
    return Finding(float(np.linalg.norm(shares @ x - u[1], axis=1).min()), "all weights in steps of 1/400")


def attends_to_itself() -> Finding:
    rng, holds = np.random.default_rng(1), {}
    for equal in (False, True):
        x = rng.normal(size=(500, 6, 3))
        x = x / np.linalg.norm(x, axis=-1, keepdims=True) if equal else x
        attended = (x @ x.transpose(0, 2, 1)).argmax(-1)
        holds[equal] = float((attended == np.arange(6)).mean())
    note = f"3,000 tokens: {holds[False]:.1%} attend most to themselves; with equal norms {holds[True]:.1%}"
    few, positive = rng.normal(size=(500, 2, 3)), rng.random((500, 6, 3))
    of_few, of_positive = ((x @ x.transpose(0, 2, 1)).argmax(-1) == np.arange(x.shape[1]) for x in (few, positive))
    under = {"norms": holds[True] == 1, "few": bool(of_few.all()), "positive": bool(of_positive.all())}
    return Finding(verdict(holds[False] == 1, under), note, "every token")


def with_projections(*u: Sequence[float], query: bool = True, value: bool = True) -> list[list[float]]:
    """c_1 and c_2 with Q = (u_d u_a' + u_c u_d')/b^2, K = I, V = (u_b u_b' - u_c u_c')/b^2, or with Q or V = I."""
    u_a, u_b, u_c, u_d = (np.array(vector) for vector in u)
    Q, V = ((np.outer(a, b) + sign * np.outer(c, d)) / (u_a @ u_a)
            for a, b, sign, c, d in ((u_d, u_a, 1, u_c, u_d), (u_b, u_b, -1, u_c, u_c)))  # fmt: skip
    x = np.stack([u_d + u_b, u_a, u_c + u_b])
    outputs: list[list[float]] = attend_unscaled(x @ Q.T if query else x, x, x @ V.T if value else x)[:2].tolist()
    return outputs


without_projections = partial(with_projections, query=False, value=False)
without_values = partial(with_projections, value=False)
ROTATED = np.linalg.qr(np.array([[1.0, 2, 0, 1], [0, 1, 3, 1], [2, 0, 1, 1], [1, 1, 1, 4]]))[0].T
CASES: list[tuple[Any, ...]] = [  # short vectors too, at which attention is far from its limit
    tuple((b * axes).tolist()) for b, axes in ((6.0, np.eye(4)), (8.0, ROTATED), (1.0, np.eye(4)), (1.5, ROTATED))
]


def the_limit(*u: Sequence[float]) -> list[list[float]]:
    """u_b - u_c and u_b, to which c_1 and c_2 tend as b grows."""
    return [(np.array(u[1]) - np.array(u[2])).tolist(), list(u[1])]


def by_hand() -> Finding:
    """c_1 and c_2 from the scores, which the orthogonal vectors make simple: b^2 for one token, 0 for the others."""
    results = []
    for _, u_b, u_c, _ in CASES:
        b, c = np.array(u_b), np.array(u_c)
        values = np.stack([b, np.zeros(4), b - c])  # V applied to the three tokens
        high = math.exp(float(b @ b))
        outputs = [
            (weights @ values / (high + 2)).tolist() for weights in (np.array([1, 1, high]), np.array([high, 1, 1]))
        ]
        results.append(outputs)
    return Finding(results, "softmax of the scores b^2, 0 and 0 by hand, for norms 1, 1.5, 6 and 8")


def raw_figure() -> str:
    b, u = 6.0, 6 * np.eye(4)
    raw, projected = (float(np.linalg.norm(np.array(make(*u.tolist())[1]) - u[1])) / b
                      for make in (without_projections, with_projections))  # fmt: skip
    return bars(
        [("raw", raw), ("and adding", nearest_by_adding(b)), ("any mean", nearest_mean().value),
         ("Q, K, V", projected)],
        "The distance of c_2 from u_b in units of b = 6: raw dot products, with the best multiple added to x_2, the "
        "best weighted mean of the tokens, and with the three matrices.", 2,
    )  # fmt: skip


RAW = Exercise(
    id="raw-dot-products", title="What raw dot products cannot do", figure=raw_figure,
    where={"u_b": np.eye(4)[:, 1:2] * 2.0, "u_c": np.eye(4)[:, 2:3] * 2.0, "u_a": np.eye(4)[:, :1] * 2.0,
           "u_d": np.eye(4)[:, 3:] * 2.0, "V": np.diag([0.0, 1.0, -1.0, 0.0]), "b": 2.0, "I": np.eye(4), "K": np.eye(4),
           "Q": np.eye(4)[:, 3:] @ np.eye(4)[:1] + np.eye(4)[:, 2:3] @ np.eye(4)[3:], "x": np.array([1.0, -2.0]),
           "own": lambda b, s: float(np.square(tokens(b, 0.0, float(s))[1][1]).sum()),
           "other": lambda b, s: float(np.dot(*tokens(b, 0.0, float(s))[1][:2])),
           "order": lambda b: (1 - own_share(b)) / (2 * own_share(b)), "own_score": lambda b:
               np.square(tokens(b)[0][0]).sum(),
           "gap": lambda b: min(b * b * (1 + s * s - s) for s in np.linspace(-2, 2, 401)), "w": (0.1, 0.25, 0.4),
           "squared": squared_distance, "middle": lambda w: 1 - w - w, "square": lambda x: float(x @ x),
           "best": lambda: min(np.linspace(0, 0.5, 501), key=squared_distance), "remaining": lambda best: 1 - 2 * best},
    question="`u_a, u_b, u_c, u_d` are orthogonal, each of a large norm b. The tokens are `x_1 = u_d + "
    "u_b`, `x_2 = u_a`, `x_3 = u_c + u_b`. First, queries, keys and values are the tokens themselves, with unscaled "
    "dot products as scores; `c_i` is the output for token i.",
    answer="The second token attends only to itself, so `c_2` is nearly `u_a`. Adding a multiple s of `u_d` or `u_c` "
    "to it raises its score with another token, but its score with itself even more: `(1 + s^2)*b^2`{own} against "
    "`s*b^2`{other}. And without a value matrix the output is a weighted mean of tokens, none of which is `u_b` "
    "alone. Projections solve it: `Q*u_a = u_d` and `Q*u_d = u_c` select the token to attend to, `K = I`, and V keeps "
    "`u_b` and negates `u_c`, `V = (u_b*T(u_b) - u_c*T(u_c))/b^2`; then `c_2 = u_b` and `c_1 = u_b - u_c`, up to a "
    "weight of order `exp(-b^2)`{order}.",
    parts=[
        Part("c2", "What is `c_2` close to?", Choice("u_a", {"u_a": "the second token copies itself",
             "u_b": "the common part of the two others", "mean": "the mean of the tokens", "x_1": "the first token"}),
             "numeric", what_c2_is,
             why="Its scores are zero, `b^2`{own_score} and zero, so nearly all weight is on itself, and its value is "
             "`u_a`."),
        Part("share", "What is the weight of the second token in `c_2`?", Formula("1/(1 + "
             "2*exp(-b^2))", {"b": "positive"}),
             "numeric", own_weight, why="Two other scores are zero: `exp(b^2)/(exp(b^2) + 2)`{}.",
             wrong={"used b as the score": ("1/(1 + 2*exp(-b))", lambda b: first_weight([b, 0, 0])),
                    "forgot one of the other tokens": ("1/(1 + exp(-b^2))", lambda b: first_weight([b * b, 0]))}),
        Part("adding", "Adding a suitable multiple of `u_c` or `u_d` to `x_2` brings `c_2` close to `u_b`.",
             Truth("false"), "numeric", adding_helps,
             why="With `x_2 = u_a + s*u_d` the scores are `s*b^2`{other}, `(1 + s^2)*b^2`{own} and zero. The second is "
             "the largest by at least `3*b^2/4`{gap}, whatever s is.", wrong={"forgot that its score with itself grows "
             "even more": True}),
        Part("mean", "With arbitrary attention weights, how close to `u_b`, in units of b, can a weighted mean of the "
             "tokens be?", Number("sqrt(2/5)"), "numeric", nearest_mean,
             why="With weights w, `1 - 2*w`{middle} and w the squared distance is `2*(1 - 2*w)^2 + 2*w^2`{squared} in "
             "units of the squared norm: smallest at w = 2/5{best}, where a weight of 1/5{remaining} on the second "
             "token reduces the parts along `u_c` and `u_d`.",
             wrong={"gave the second token no weight": ("1/sqrt(2)", lambda: math.sqrt(squared_distance(0.5))),
                    "thought that the other vectors cancel": (0, lambda: np.square(np.eye(4)[1] - np.eye(4)[1]).sum()),
                    "used one token only": (1, lambda: np.linalg.norm(tokens(1.0)[1][0] - np.eye(4)[1]))}),
        Part("itself", "With raw dot products every token attends most to itself.",
             Truth("nearly", Choice("norms", {"few": "there are only two tokens", "norms":
                  "all tokens have the same norm",
             "positive": "all entries of the tokens are positive"})), "numeric", attends_to_itself,
             why="`dot(x, y) <= norm(x)*norm(y)` is at most `norm(x)^2`{square} if the norm of y does not exceed that "
             "of x; a longer y can have a larger score.",
             wrong={"forgot that a longer token has larger dot products": True}),
        Part("projections", "Write a function that builds `Q = (u_d*T(u_a) + u_c*T(u_d))/b^2`, `K = I` and `V = "
             "(u_b*T(u_b) - u_c*T(u_c))/b^2` from the four vectors, of any norm b, and returns the outputs `c_1` and "
             "`c_2` of attention with unscaled scores.", Function("outputs", with_projections, CASES,
             "outputs(u_a, u_b, u_c, u_d: lists of 4 numbers) -> list of 2 lists of 4 numbers", rel=1e-6, abs=1e-9),
             "numeric", by_hand,
             why="`Q*x_2 = u_d` matches `x_1` alone, and V makes it `u_b`; `Q*x_1 = u_c` matches `x_3` alone, and V "
             "makes it `u_b - u_c`.",
             wrong={"used raw dot products": without_projections, "left V out": without_values,
                    "gave the limit for large b, without attention": the_limit}),
    ])  # fmt: skip

EXERCISES = (RAW,)
