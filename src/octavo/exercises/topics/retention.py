"""Retention: heads that forget at fixed paces, and queries and keys that are turned by their positions."""

from __future__ import annotations

import math

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import bisect, normal, tabulated
from octavo.models.linear_attention.config import RetentionConfig
from octavo.models.linear_attention.mixer import Inputs
from octavo.models.linear_attention.retention import RetentionMixer
from octavo.ops import linear
from octavo.ops.positions import rotary_angles, rotate
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
HEADS, TOKENS = 8, 9000  # of the first four heads' states, nothing changes any more after so many tokens
LAST = 3


def inputs(T: int, position: int = 0, x_BTD: Tensor | None = None) -> Inputs:
    """What octavo's retention of 8 heads of 4 channels reads, of random queries and keys from this position on."""
    mixer = RetentionMixer(RetentionConfig(width=4 * HEADS, heads=HEADS)).double()
    q, k, v = (normal(1, HEADS, T, 4, seed=seed) for seed in (1, 2, 3))
    x_BTD = normal(1, T, 4 * HEADS, seed=4) if x_BTD is None else x_BTD
    return mixer.inputs(x_BTD, q, k, v, [torch.tensor([position])])[0]


def kept(h: int) -> float:
    """What octavo's head keeps of its state at a token."""
    return float(inputs(1).g_BHTJ[0, h, 0, 0].exp())


@tabulated("h", [(0,), (1,), (4,)], "where what octavo's head keeps, to the power t, is one half", rel=1e-9)
def half_life(h: int) -> float:
    share = kept(h)
    return bisect(lambda t: share**t <= 0.5, 0.0, 1e5)


@tabulated("h", [(0,), (1,), (LAST,)], "octavo's recurrence with the head's decay, after 9000 tokens", rel=1e-9)
def settled(h: int) -> float:
    ones_11T1 = torch.ones(1, 1, TOKENS, 1, dtype=torch.float64)
    return float(linear.attend_decaying(ones_11T1, ones_11T1, ones_11T1, ones_11T1 * math.log(kept(h)))[0][0, 0, -1])


@tabulated("g n", [(0.9, 1), (0.75, 2), (0.97, 5)], "octavo's map of all pairs, of turned queries and keys", rel=1e-9)
def turned_weight(g: float, n: int) -> float:
    """Of queries and keys that are all (1, 0) before they are turned, by one radian a token."""
    x_11TK = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(1, 1, n + 1, 2)
    x_11TK = rotate(x_11TK, rotary_angles(torch.arange(n + 1), 2, dtype=torch.float64))
    g_11T1 = torch.full((1, 1, n + 1, 1), math.log(g), dtype=torch.float64)
    return float(linear.decaying_weights(x_11TK, x_11TK, g_11T1)[0, 0, n, 0])


def only_distance() -> Finding:
    one, other = (inputs(9, position) for position in (0, 1000))
    weights = [linear.decaying_weights(x.q_BHTK, x.k_BHTK, x.g_BHTJ) for x in (one, other)]
    off = float((weights[0] - weights[1]).abs().max())
    note = f"weights of 9 tokens at the positions from 0 and from 1000 on: they differ by {off:.0e}"
    return Finding(verdict(off < TOLERANCE), note, "to 1e-10")


def chosen_by_token() -> Finding:
    """Whether octavo's decays have a gradient with respect to the tokens or to a weight, or differ between tokens."""
    x_BTD = normal(1, 9, 4 * HEADS, seed=5).requires_grad_()
    g_BHTJ = inputs(9, 0, x_BTD).g_BHTJ
    depends = g_BHTJ.requires_grad or bool((g_BHTJ != g_BHTJ[:, :, :1]).any())
    return Finding(verdict(depends), "the decays of 9 random tokens: equal, and without a gradient", "exactly 0")


def _share(h: int) -> mpmath.mpf:
    return 1 - mpmath.mpf(2) ** -(5 + h)


RETENTION = Exercise(
    id="retention", title="Retention: heads with fixed paces",
    question="The heads of a retentive network are counted from zero. At every token head h multiplies its state by "
    "`g = 1 - 2^(-5 - h)` and adds `k*T(v)`; the query reads `q*S`. Queries and keys are turned by an angle that is "
    "proportional to their position.",
    where={"g": lambda h: _share(h), "h": (0, 1, 3), "share": 0.5, "kept": lambda: kept(0)},
    answer="The first head keeps `31/32`{kept} of its state, and each further head forgets half as fast. Half is "
    "forgotten after `log(1/2)/log(1 - 2^(-5 - h))`{half-life} tokens, and if all tokens write the same, the state "
    "approaches `2^(5 + h)`{settled} of them. Since both the decay and the turning depend on distances alone, so does "
    "the weight of a pair. Nothing about the decays is learnt, and no token can change them.",
    figure=lambda: lines([
        Series(f"head {h}", [(n, kept(h) ** n) for n in range(0, 301, 5)]) for h in range(4)],
        "What is left of what was written, so many tokens later.", ("tokens", "share left")),
    parts=[
        Part("half-life", "After how many tokens (a real number) has head h forgotten half of what was in its state?",
             Formula("log(1/2)/log(1 - 2^(-5 - h))", {"h": "whole"}), "numeric", half_life,
             where={"n": lambda g: mpmath.log(mpmath.mpf(1) / 2) / mpmath.log(g)}, why="`g^n = 1/2`; take logarithms.",
             wrong={"forgot the same number at each token":
                        ("2^(4 + h)", lambda h: (1 / (1 - _share(h))) / 2),
                    "added up all that is left": ("2^(5 + h)", lambda h: 1 / (1 - _share(h)))}),
        Part("settled", "The product of every turned query and key is one, and so are all values. Which number does "
             "what head h reads approach?",
             Formula("2^(5 + h)", {"h": "whole"}), "numeric", settled,
             why="The sum of all powers of g is `1/(1 - g) = 2^(5 + h)`.",
             wrong={"took the weights for shares": ("1", lambda h: _share(h) / _share(h)),
                    "left out the newest token": ("2^(5 + h) - 1", lambda h: _share(h) / (1 - _share(h)))}),
        Part("turned", "A head has keys of two channels, which are turned by one radian a token. All queries and keys "
             "are the same vector of length one before they are turned. What does a value count for n tokens after "
             "it was written, in n and the head's g?", Formula("g^n*cos(n)", {"g": "share", "n": "whole"}), "numeric",
             turned_weight,
             why="The angle between query and key is n radians, and both have length one.",
             wrong={"forgot the turning": ("g^n", lambda g, n: math.prod([g] * n)),
                    "turned once": ("g^n*cos(1)", lambda g, n: math.prod([g] * n) * mpmath.cos(1))}),
        Part("distance", "If a text moves to later positions, all weights between its own tokens stay the "
             "same.", Truth("true"),
             "numeric", only_distance,
             why="The product of a turned query and a turned key depends on the difference of their angles.",
             wrong={"thought that turning stands for absolute positions": False}),
        Part("chosen", "What a token says decides how much its heads forget.", Truth("false"), "autograd",
             chosen_by_token, why="g depends on the head alone; gla, mamba2 and mlstm let the token decide.",
             wrong={"mistook it for gated linear attention": True}),
    ])  # fmt: skip

EXERCISES = (RETENTION,)
