"""Linear recurrences: a small one by hand, how steps are put together, the gradient, and what cannot be scanned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal, tabulate, tabulated
from octavo.ops.linear_recurrence import linear_recurrence
from octavo.ops.recurrent import Weights, gru_step

A, B = (2.0, 3.0, 0.5, 4.0), (1.0, 2.0, 4.0, 3.0)
PAIRS = ((2.0, 3.0, 5.0, 7.0), (0.5, -1.0, 0.25, 4.0), (-1.0, 2.0, 3.0, -2.0))  # a, b, then c, d
TOKENS = 1000
TOLERANCE = 1e-10


def last_state(a: Sequence[float], b: Sequence[float], before: float = 0.0) -> float:
    """octavo's recurrence of one unit, by doubling."""
    a_1T1, b_1T1 = (torch.tensor(one, dtype=torch.float64).view(1, -1, 1) for one in (a, b))
    h_1T1 = linear_recurrence(a_1T1, b_1T1, torch.full((1, 1), before, dtype=torch.float64), "doubling")
    return float(h_1T1[0, -1])


def by_hand() -> Finding:
    return Finding(last_state(A, B), "octavo's linear recurrence over the four tokens, by doubling")


@tabulated("a b c d", PAIRS, "octavo's recurrence over two tokens from the state zero, three pairs", rel=1e-12)
def joined_input(a: float, b: float, c: float, d: float) -> float:
    return last_state((a, c), (b, d))


@tabulated(
    "a b c d", PAIRS, "how far octavo's state after two tokens moves when the one before moves by one", rel=1e-12
)
def joined_factor(a: float, b: float, c: float, d: float) -> float:
    return last_state((a, c), (b, d), 1.0) - last_state((a, c), (b, d))


class CountCalls(TorchDispatchMode):
    """How often a product is added to a sum, number by number."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is torch.ops.aten.addcmul.default
        return func(*args, **(kwargs or {}))


def rounds(path: Any, tokens: int = TOKENS) -> int:
    """The products with a sum that octavo computes for one text, less the one for the state before."""
    a_1T1 = torch.full((1, tokens, 1), 0.5)
    counter = CountCalls()  # type: ignore[no-untyped-call]
    with counter:
        linear_recurrence(a_1T1, a_1T1, path=path)
    return counter.calls - 1


def doubling_rounds() -> Finding:
    return Finding(rounds("doubling"), "calls counted while octavo computes the states of 1000 tokens by doubling")


def gradient() -> Finding:
    points = ((0.5, 2.0, 3.0, 7.0), (-1.0, 0.25, 4.0, 2.0), (3.0, 3.0, -2.0, 0.5))

    def by_autograd(a: float, p: float, q: float, s: float) -> float:
        a_1T1 = torch.tensor([a, p, q], dtype=torch.float64).view(1, 3, 1).requires_grad_()
        before = torch.full((1, 1), s, dtype=torch.float64)
        h_1T1 = linear_recurrence(a_1T1, torch.zeros_like(a_1T1), before, "sequential")
        (slope,) = torch.autograd.grad(h_1T1[0, -1, 0], a_1T1)
        return float(slope[0, 0, 0])

    return Finding(tabulate("a p q s", points, by_autograd, rel=1e-12), "autograd through octavo's recurrence")


def gru_is_linear() -> Finding:
    """A map that is linear but for a constant takes the middle of two states to the middle of their images."""
    w = Weights(normal(9, 2, seed=1), normal(9, 3, seed=2), normal(9, seed=3), normal(9, seed=4))
    x, one, other = normal(1, 2, seed=5), normal(1, 3, seed=6), normal(1, 3, seed=7)

    def after(h: Tensor) -> Tensor:
        state: Tensor = gru_step(x, h, w)
        return state

    off = float((after((one + other) / 2) - (after(one) + after(other)) / 2).abs().max())
    note = f"octavo's GRU takes the middle of two states to a place {off:.2f} from the middle of their images"
    return Finding(verdict(off < TOLERANCE), note, "to 1e-10")


def mingru_is_linear() -> Finding:
    a_11D, b_11D, (one, other) = normal(1, 1, 3, seed=1).sigmoid(), normal(1, 1, 3, seed=2), normal(2, 1, 3, seed=3)

    def after(h: Tensor) -> Tensor:
        return linear_recurrence(a_11D, b_11D, h)

    off = float((after((one + other) / 2) - (after(one) + after(other)) / 2).abs().max())
    return Finding(verdict(off < TOLERANCE), f"the middle of two states goes to the middle, to {off:.0e}", "to 1e-10")


def _from_state(before: float) -> float:
    h = before
    for a, b in zip(A, B, strict=True):
        h = a * h + b
    return h


def _swapped() -> float:
    h = 0.0
    for a, b in zip(A, B, strict=True):
        h = b * h + a
    return h


SCAN = Exercise(
    id="linear-recurrence", title="A linear recurrence, token by token and all at once",
    where={"a1": A[0], "a2": A[1], "a3": A[2], "a4": A[3], "b1": B[0], "b2": B[1], "b3": B[2], "b4": B[3],
           "T": TOKENS, "h1": lambda: last_state(A[:1], B[:1]), "h2": lambda: last_state(A[:2], B[:2]),
           "h3": lambda: last_state(A[:3], B[:3]), "zero": 0, "last": lambda: rounds("doubling") - 1,
           "seen": lambda: 2 ** (rounds("doubling") - 1)},
    question="A linear recurrence changes its state by `h_new = a*h_old + b`, where a and b come from the token alone. "
    "The state before the first token is zero, unless something else is said.",
    answer="Token by token it is one product and one sum each. Two tokens (a, b) and then (c, d) do together what one "
    "token (`a*c`, `c*b + d`) does; putting pairs together is associative, so all states are found in rounds, each of "
    "which doubles how many tokens a pair stands for: 10{rounds} rounds for 1000{T} tokens. A GRU cannot be computed "
    "so, because its gates see the state; a minGRU can.",
    parts=[
        Part("state", "The four tokens have the factors 2{a1}, 3{a2}, 0.5{a3}, 4{a4} and the inputs 1{b1}, 2{b2}, "
             "4{b3}, 3{b4}, in this order. What is the state after the last one?", Number(29, rel=0), "exact", by_hand,
             why="The states are 1{h1}, 5{h2}, 6.5{h3} and `4*6.5 + 3 = 29`.",
             wrong={"started from one": (41, lambda: _from_state(1.0)),
                    "swapped factors and inputs": (89.5, _swapped),
                    "left out the last input": (26, lambda: last_state(A, (*B[:3], 0.0))),
                    "added up the inputs": (10, lambda: sum(B))}),
        Part("joined-factor", "A token (a, b) is followed by a token (c, d). Both together are one token; what is its "
             "factor?", Formula("a*c", dict.fromkeys("abcd", "real")), "exact", joined_factor,
             why="`c*(a*h + b) + d = a*c*h + c*b + d`: the factor of h.",
             wrong={"added the factors": ("a + c", lambda a, c: sum((a, c))),
                    "took the second alone": ("c", lambda c: c)}),
        Part("joined-input", "And what is its input?", Formula("c*b + d", dict.fromkeys("abcd", "real")), "exact",
             joined_input, why="`c*(a*h + b) + d = a*c*h + c*b + d`: what remains without h.",
             wrong={"added the inputs": ("b + d", lambda b, d: sum((b, d))),
                    "put them together in the other order": ("a*d + b", lambda a, b, d: a * d + b)}),
        Part("rounds", "In each round every pair is put together with the one that ends where it begins, so that it "
             "stands for twice as many tokens. After how many rounds are all states of 1000{T} tokens known?",
             Number(10, rel=0), "counted", doubling_rounds,
             why="After 9{last} rounds a pair stands for at most 512{seen} tokens, which are too few.",
             wrong={"went token by token": (999, lambda: TOKENS - 1),
                    "rounded down": (9, lambda: math.floor(math.log2(TOKENS)))}),
        Part("gradient", "Three tokens have the factors a, p and q; the state before them is s, and no token has an "
             "input. What is the derivative of the last state with respect to a?",
             Formula("p*q*s", {"a": "real", "p": "real", "q": "real", "s": "real"}), "autograd", gradient,
             why="The last state is `q*p*a*s`. In general it is what the later factors leave of the state before.",
             wrong={"left out the state": ("p*q", lambda p, q: p * q),
                    "left its own factor in": ("a*p*q*s", lambda a, p, q, s: a * p * q * s)}),
        Part("gru", "For a given token, the step of a GRU is such a recurrence.", Truth("false"), "numeric",
             gru_is_linear,
             why="The state goes through its gates and its candidate, so the step is not linear in the state.",
             wrong={"thought that gates are factors like any other": True}),
        Part("mingru", "For a given token, the step of a minGRU, whose gate and candidate see the token alone, is such "
             "a recurrence.", Truth("true"), "numeric", mingru_is_linear,
             why="With the gate z and the candidate n the factor is what z leaves of the state, and the input `z*n`.",
             wrong={"thought that a gate makes it nonlinear": False}),
    ])  # fmt: skip

EXERCISES = (SCAN,)
