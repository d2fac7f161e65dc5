"""The gated delta rule: what is overwritten and what fades, its matrix, and the gradient descent that it is."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import bisect, normal, tabulate
from octavo.ops.linear.decaying_reference import step
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10


def unit_key(size: int, seed: int = 1) -> Tensor:
    key_K: Tensor = normal(size, seed=seed)
    unit_K: Tensor = key_K / key_K.norm()
    return unit_K


def write(S_KV: Tensor, key_K: Tensor, value_V: Tensor, s: float, a: float = 1.0) -> Tensor:
    """octavo's state after one token of strength s and decay a."""
    beta_11, g_111 = (torch.full(size, x, dtype=torch.float64) for size, x in (((1, 1), s), ((1, 1, 1), math.log(a))))
    return step(key_K[None, None], key_K[None, None], value_V[None, None], g_111, beta_11, S_KV[None, None])[1][0, 0]


def answer_after(c: float, b: float, s: float, a: float, *, across: bool) -> float:
    """What a key reads that read c before: the key that the value b is written with, or an orthogonal one."""
    key, other = unit_key(5), unit_key(5, seed=2)
    other = other - (other @ key) * key
    read = other / other.norm() if across else key
    S_KV = write((c * read)[:, None], key, torch.tensor([b], dtype=torch.float64), s, a)
    return float(read @ S_KV[:, 0])


def along() -> Finding:
    points = [(c, b, s, a) for c in (2.0, -1.0) for b in (3.0, 0.5) for s, a in ((0.25, 0.9), (0.75, 0.5))]
    table = tabulate("c b s a", points, lambda *at: answer_after(*at, across=False), abs=TOLERANCE)
    return Finding(table, "one step of octavo's gated delta rule")


def across() -> Finding:
    points = [(c, b, s, a) for c in (2.0, -1.0) for b, s, a in ((3.0, 0.25, 0.9), (0.5, 0.75, 0.5))]
    table = tabulate("c _ s a", points, lambda *at: answer_after(*at, across=True), abs=TOLERANCE)
    return Finding(table, "one step of octavo's gated delta rule, read with an orthogonal key")


def transition(K: int, s: float, a: float = 1.0) -> Tensor:
    """What octavo's step multiplies the state by: the state after a token of the value zero, from the identity."""
    return write(torch.eye(K, dtype=torch.float64), unit_key(K), torch.zeros(K, dtype=torch.float64), s, a)


def determinant() -> Finding:
    points = [(K, s, a) for K in (2, 3, 6) for s, a in ((0.25, 0.9), (0.75, 0.5))]
    table = tabulate("K s a", points, lambda K, s, a: float(transition(K, s, a).det()), rel=1e-9)
    return Finding(table, "determinants of what octavo's step multiplies the state by")


def grows(s: float) -> bool:
    return float(torch.linalg.eigvalsh(transition(4, s)).abs().max()) > 1 + 1e-12


def largest_strength() -> Finding:
    return Finding(bisect(grows, 0.0, 10.0), "eigenvalues of octavo's transition of 4 channels, by bisection")


def descent() -> Finding:
    """Half the squared error of what the key reads, one step of gradient descent with the strength as learning rate."""
    S_KV, key_K, value_V, s = normal(5, 3, seed=3).requires_grad_(), unit_key(5), normal(3, seed=4), 0.3
    loss = ((value_V - key_K @ S_KV) ** 2).sum() / 2
    (gradient_KV,) = torch.autograd.grad(loss, S_KV)
    off = float((S_KV - s * gradient_KV - write(S_KV, key_K, value_V, s)).detach().abs().max())
    return Finding(verdict(off < TOLERANCE), f"5 channels, 3 values: they differ by {off:.0e}", "to 1e-10")


def order_matters() -> Finding:
    S_KV, one, other = normal(5, 3, seed=3), unit_key(5), unit_key(5, seed=2)
    right_angle = other - (other @ one) * one
    right_angle = right_angle / right_angle.norm()
    v, w = normal(3, seed=4), normal(3, seed=5)

    def off(other: Tensor, w: Tensor, s: float, t: float) -> float:
        first = write(write(S_KV, one, v, s), other, w, t)
        return float((first - write(write(S_KV, other, w, t), one, v, s)).abs().max())

    differences = {
        "as it stands": off(other, w, 0.3, 0.8), "orthogonal": off(right_angle, w, 0.3, 0.8),
        "strength": off(other, w, 0.5, 0.5), "whole": off(other, w, 1.0, 1.0), "value": off(other, v, 0.3, 0.8),
    }  # fmt: skip
    note = ", ".join(f"{name} {x:.2g}" for name, x in differences.items())
    holds = {name: x < TOLERANCE for name, x in differences.items()}
    return Finding(
        verdict(holds.pop("as it stands"), holds), f"two tokens in both orders differ by: {note}", "to 1e-10"
    )


SYMBOLS = {"c": "real", "b": "real", "s": "share", "a": "share"}
DELTA = Exercise(
    id="gated-deltanet", title="The gated delta rule: overwrite one value, let the others fade",
    question="A token with the key k of length one, the value v, the strength s and the decay a changes the state to "
    "`a*(I - s*k*T(k))*S + s*k*T(v)`, where I is the identity of K rows. A key of length one reads "
    "`T(k)*S`. With a of one this is the delta rule of DeltaNet, with a below one that of gated DeltaNet.",
    where={"a": 0.9, "s": 0.3, "along_value": lambda a, s: a - a * s},
    answer="Along the key, what was read is replaced by a mixture of it and of the new value; across it, all that "
    "happens is the decay. So the matrix of a step has the eigenvalue `a*(1 - s)`{along_value} once and a for all "
    "other directions. With a of one, a step is one of gradient descent on half the squared error of what the key "
    "reads, with s as learning rate; above a strength of 2{stable} it overshoots so far that states grow.",
    figure=lambda: lines([
        Series("along the key", [(s / 20, float(transition(4, s / 20).det())) for s in range(61)]),
        Series("across it", [(s / 20, 1.0) for s in range(61)])],
        "Eigenvalues of a step without decay, by the strength.", ("strength s", "eigenvalue")),
    parts=[
        Part("along", "The key k reads the number c in the state before the token. What does it read after the token, "
             "if the value is the number b?", Formula("a*(1 - s)*c + s*b", SYMBOLS), "numeric", along,
             why="`T(k)*k` is one, so the state's answer is multiplied by `a*(1 - s)`{along_value}, and `s*b` is "
             "added.",
             wrong={"let what is written decay too": ("a*((1 - s)*c + s*b)", lambda c, b, s, a: a * (c + s * (b - c))),
                    "left out the decay": ("(1 - s)*c + s*b", lambda c, b, s: c + s * (b - c)),
                    "took nothing out": ("a*c + s*b", lambda c, b, s, a: a * c + s * b)}),
        Part("across", "Another key of length one is orthogonal to k, and reads c before the token. What does it read "
             "after it?", Formula("a*c", {"c": "real", "s": "share", "a": "share"}), "numeric", across,
             why="`T(k)` times the other key is zero: only the decay reaches it.",
             wrong={"took some of it out": ("a*(1 - s)*c", lambda c, s, a: a * c - a * s * c),
                    "left out the decay": ("c", lambda c: c)}),
        Part("determinant", "What is the determinant of the matrix that S is multiplied by, for keys of K numbers?",
             Formula("a^K*(1 - s)", {"K": "whole", "s": "share", "a": "share"}), "numeric", determinant,
             why="The product of the eigenvalues: `a*(1 - s)`{along_value} along k, and a in the other directions.",
             wrong={"let every direction lose s": ("(a*(1 - s))^K", lambda K, s, a: (a - a * s) ** K),
                    "counted one direction": ("a*(1 - s)", lambda s, a: a - a * s)}),
        Part("stable", "Let s be any positive number. Without decay, which is the largest for which no state can grow "
             "by being multiplied by the matrix of a step?", Number(2), "numeric", largest_strength,
             why="The eigenvalue along k is `1 - s`{plain_value}, which falls below minus one beyond that.",
             where={"plain_value": lambda s: 1 - s},
             wrong={"thought that overshooting is growing": (1, lambda: bisect(lambda s: bool(transition(4,
             s).det() < 0), 0.0, 10.0))}),
        Part("descent", "Without decay, a token is one step of gradient descent on half the squared length of "
             "`T(v) - T(k)*S`, with the learning rate s.", Truth("true"), "autograd", descent,
             why="The gradient with respect to S is `k*(T(k)*S - T(v))`.",
             wrong={"took it for a sum of products, as in linear attention": False}),
        Part("order", "Without decay, the state after two tokens does not depend on their order.", Truth("nearly",
             Choice("orthogonal", {"orthogonal": "their keys are orthogonal", "strength": "both strengths are equal",
                                   "whole": "both strengths are one", "value": "both values are equal"})), "numeric",
             order_matters,
             why="Sums of products can be exchanged, but the second token overwrites what the first wrote, as far as "
             "their keys overlap.", wrong={"took the delta rule for a sum": True}),
    ])  # fmt: skip

EXERCISES = (DELTA,)
