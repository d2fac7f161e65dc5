"""Linear attention that forgets: its state, one update of the delta rule by hand, its chunks and what they cost."""

from __future__ import annotations

import mpmath
import numpy as np
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_flops, meta, normal, tabulate
from octavo.ops import linear
from octavo.ops.linear.decaying_reference import step
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
STRENGTHS = (0.25, 0.5, 1.0)


# ---------------------------------------------------------------------- the state


def state_numbers(h: int, k: int, v: int, n: int) -> int:
    """The numbers of the state after n tokens."""
    queries = normal(1, h, n, k, seed=1)
    _, S = linear.attend_decaying(queries, queries, normal(1, h, n, v, seed=2), torch.zeros(1, h, n, 1).double())
    return S.numel()


def state_size() -> Finding:
    points = [(h, k, v, n) for h, k, v in ((1, 4, 3), (2, 5, 8), (4, 2, 2)) for n in (1, 9, 70)]
    return Finding(tabulate("H K V N", points, state_numbers), "states of octavo's recurrence after up to 70 tokens")


def decayed_weight(g: float, n: int) -> float:
    """What a value counts for n tokens after it was written, of what it counts for at once."""
    ones = torch.ones(1, 1, n + 1, 1, dtype=torch.float64)
    a_1HTT = linear.decaying_weights(ones, ones, ones * float(mpmath.log(g)))
    return float(a_1HTT[0, 0, n, 0] / a_1HTT[0, 0, 0, 0])


def decay() -> Finding:
    points = [(g, n) for g in (0.5, 0.9, 0.96875) for n in (1, 2, 7)]
    return Finding(tabulate("g n", points, decayed_weight, rel=TOLERANCE), "the map of all pairs, with one decay")


# ---------------------------------------------------------------------- one update


def updated(a: float, b: float, s: float | None, key: Tensor, read: Tensor) -> float:
    """A state that answers a to a key of length one is given the value b with strength s (none: it is added), and read
    with another."""
    q_1HK, k_1HK = read.view(1, 1, -1), key.view(1, 1, -1)
    S_1HKV = a * k_1HK[..., None]
    v_1HV, g_1HJ = torch.full((1, 1, 1), float(b)).double(), torch.zeros(1, 1, 1).double()
    beta = None if s is None else torch.full((1, 1), float(s)).double()
    return float(step(q_1HK, k_1HK, v_1HV, g_1HJ, beta, S_1HKV)[0])


def unit_key() -> Tensor:
    key_K: Tensor = normal(6, seed=3)
    unit_K: Tensor = key_K / key_K.norm()
    return unit_K


def answer_after(a: float, b: float, s: float) -> float:
    return updated(float(a), float(b), float(s), unit_key(), unit_key())


def added() -> Finding:
    points = [(a, b) for a in (2.0, -1.0, 0.5) for b in (3.0, -0.75)]
    table = tabulate("a b", points, lambda a, b: updated(a, b, None, unit_key(), unit_key()), abs=TOLERANCE)
    return Finding(table, "one step of octavo's recurrence without decay")


def overwritten() -> Finding:
    points = [(a, b, s) for a in (2.0, -1.5) for b in (3.0, 0.5) for s in STRENGTHS]
    return Finding(tabulate("a b s", points, answer_after, abs=TOLERANCE), "one step of octavo's delta rule")


def other_keys() -> Finding:
    key, holds = unit_key(), {}
    others = normal(50, 6, seed=4)
    at_right_angles = others - (others @ key)[:, None] * key
    tried = {
        "any": others, "orthogonal": at_right_angles, "unit": others / others.norm(dim=1, keepdim=True),
        "positive": others.abs(),
    }  # fmt: skip
    for name, vectors in tried.items():
        moved = [updated(2.0, 5.0, 0.5, key, one) - float(2.0 * key @ one) for one in vectors]
        holds[name] = max(map(abs, moved)) < TOLERANCE
    note = f"50 vectors of each kind; at right angles nothing changes: {holds['orthogonal']}"
    return Finding(verdict(holds.pop("any"), holds), note, "to 1e-10")


# ---------------------------------------------------------------------- chunks


def same_in_chunks() -> Finding:
    q, k, v = (normal(1, 2, 37, 5, seed=seed) for seed in (1, 2, 3))
    k = k / k.norm(dim=-1, keepdim=True)
    g, beta = -normal(1, 2, 37, 1, seed=4).abs(), normal(1, 2, 37, seed=5).sigmoid()
    one_by_one, _ = linear.attend_decaying(q, k, v, g, beta, path="recurrent")
    differences = [
        float((linear.attend_decaying(q, k, v, g, beta, path="chunked", chunk=chunk)[0] - one_by_one).abs().max())
        for chunk in (1, 4, 8, 37)
    ]
    note = f"37 tokens in chunks of 1, 4, 8 and 37: they differ by at most {max(differences):.0e}"
    return Finding(verdict(max(differences) > TOLERANCE), note, "to 1e-10")


def chunk_cost(n: int, c: int, k: int, v: int) -> int:
    q, values, g = meta(1, 1, n, k), meta(1, 1, n, v), meta(1, 1, n, 1)
    return count_flops(lambda: linear.attend_decaying(q, q, values, g, None, meta(1, 1, k, v), path="chunked", chunk=c))


def cost_of_chunks() -> Finding:
    points = [(m * c, c, k, v) for m, c, k, v in ((1, 4, 3, 5), (6, 8, 2, 7), (3, 16, 16, 4), (10, 2, 6, 6))]
    return Finding(tabulate("N C K V", points, chunk_cost), "PyTorch's FLOP counter on octavo's chunks, four sizes")


def pairs_cost(N: int, C: int, K: int, V: int) -> int:
    """Of the maps inside the chunks alone."""
    chunk = count_flops(lambda: meta(C, K) @ meta(K, C)) + count_flops(lambda: meta(C, C) @ meta(C, V))
    return N * chunk // C


def state_cost(N: int, K: int, V: int) -> int:
    """Of reading the state and of writing to it."""
    return 2 * count_flops(lambda: meta(N, K) @ meta(K, V))


WHOLE = {"N": "whole", "C": "whole", "K": "whole", "V": "whole"}
RECURRENCE = Exercise(
    id="matrix-state", title="A state that forgets and overwrites",
    question="A head of linear attention keeps a matrix S of K rows and V columns. A token with key k and value v "
    "writes to it, and a query q reads `q*S`. The state either decays before it is written to, `S = g*S_0 + k*T(v)`, "
    "or the delta rule moves what the state answers to k toward v. Count the multiplications and additions of matrix "
    "products.",
    where={"S": lambda g, S_0, k, v: g * S_0 + np.outer(k, v), "S_0": np.array([[1.0, 2.0], [0.5, -1.0]]),
           "k": np.array([[0.6], [0.8]]), "v": np.array([[2.0], [3.0]]), "g": 0.5, "q": np.array([[1.0, 1.0]]),
           "pairs": pairs_cost, "states": state_cost, "whole": lambda N, K, V: pairs_cost(N, N, K, V)},
    answer="The state has `H*K*V`{state} numbers in a layer of H heads, however many tokens were read. Decay "
    "multiplies a value by `g^n`{decay} in n tokens. Where the state answers a to a key of length one, adding makes "
    "that `a + b`{added}, and the delta rule of strength s `a + s*(b - a)`{delta}: at full strength the old value is "
    "gone. In chunks of C tokens the same result takes `2*N*C*(K + V) + 4*N*K*V`{chunks} operations, against "
    "`2*N^2*(K + V)`{whole} for the map of all pairs.",
    figure=lambda: lines([
        Series("all pairs", [(n, chunk_cost(n, n, 64, 64)) for n in (2**i for i in range(6, 13))]),
        Series("chunks of 64", [(n, chunk_cost(n, 64, 64, 64)) for n in (2**i for i in range(6, 13))])],
        "Operations of one head with keys and values of 64 numbers, counted.", ("tokens N", "operations"), True, True),
    parts=[
        Part("state", "How many numbers is the state of a layer of H heads after N tokens?",
             Formula("H*K*V", {"H": "whole", "K": "whole", "V": "whole", "N": "whole"}), "counted", state_size,
             why="Each head has one matrix; what is read changes its numbers, not how many there are.",
             wrong={"kept the keys and values of all tokens": ("N*H*(K + V)", lambda H, K, V, N: N * H * (K + V)),
                    "counted one vector of each": ("H*(K + V)", lambda H, K, V: H * (K + V))}),
        Part("decay", "A head's decay is g. By what is a value multiplied n tokens after it was written?",
             Formula("g^n", {"g": "share", "n": "whole"}), "numeric", decay,
             why="It is written after the decay of its own token, and every later token multiplies it once more.",
             wrong={"let its own token decay it too": ("g^(n + 1)", lambda g, n: decayed_weight(g, int(n) + 1)),
                    "multiplied instead of raising to a power": ("n*g", lambda g, n: n * decayed_weight(g, 1))}),
        Part("added", "The state answers the number a to a key k of length one. Without decay and delta rule, k is "
             "written with the value b. What does the state answer to k now?",
             Formula("a + b", {"a": "real", "b": "real"}), "numeric", added,
             why="Sums only grow: k reads both values at once.",
             wrong={"replaced the value": ("b", lambda a, b: answer_after(a, b, 1.0)),
                    "took the mean": ("(a + b)/2", lambda a, b: answer_after(a, b, 0.5))}),
        Part("delta", "And with the delta rule of strength s?",
             Formula("a + s*(b - a)", {"a": "real", "b": "real", "s": "share"}), "numeric", overwritten,
             why="What is written along k is s times the difference between b and what k reads already, which is a.",
             wrong={"forgot to take the old value out": ("a + s*b", lambda a, b, s: a + s * b),
                    "took the old value out whole": ("s*b", lambda b, s: s * b),
                    "forgot the strength": ("b", lambda a, b: answer_after(a, b, 1.0))}),
        Part("others", "A step of the delta rule leaves unchanged what other keys read.", Truth("nearly", Choice(
             "orthogonal", {"orthogonal": "they are orthogonal to the key that is written",
                            "unit": "they have length one", "positive": "their entries are not negative"})),
             "numeric", other_keys,
             why="What is added to the state is a multiple of `k*T(u)` for some vector u, and `q*k` is what q reads of "
             "it.",
             wrong={"forgot that other keys overlap with this one": True}),
        Part("same", "Reading a text in chunks, with the map of all pairs inside a chunk and the state between chunks, "
             "is an approximation of the recurrence.", Truth("false"), "numeric", same_in_chunks,
             why="It is the same sum in another order: what was written before the chunk comes from the state, the "
             "rest from the map.", wrong={"took chunks for windows": True}),
        Part("chunks", "With one decay for the head and without the delta rule, what do N tokens cost in chunks of C, "
             "where C divides N?", Formula("2*N*C*(K + V) + 4*N*K*V", WHOLE), "counted", cost_of_chunks,
             why="Inside the chunks `2*N*C*(K + V)`{pairs}, for the map and for its product with the values; to read "
             "the state and to write to it `4*N*K*V`{states}.",
             wrong={"left out the state": ("2*N*C*(K + V)", lambda N, C, K, V: pairs_cost(N, C, K, V)),
                    "left out the pairs": ("4*N*K*V", lambda N, K, V: state_cost(N, K, V)),
                    "took the map of all pairs": ("2*N^2*(K + V)", lambda N, K, V: pairs_cost(N, N, K, V))}),
    ])  # fmt: skip

EXERCISES = (RECURRENCE,)
