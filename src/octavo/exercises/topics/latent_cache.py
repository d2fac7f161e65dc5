"""Latent attention: what is remembered of a token, what a step costs in two forms, and why positions stand apart.

S tokens read, H heads, K size of a key or value of a head, M size of a latent, R size of the rotary key.
"""

from __future__ import annotations

import torch

from octavo.core import tensors_of
from octavo.exercises import Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_flops, meta, normal, tabulate
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.ops.attention import CAUSAL
from octavo.ops.attention.latent import attend_latent
from octavo.ops.positions import rotary_angles, rotate
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
WHOLE = {"H": "whole", "K": "whole"}
LATENT = {"M": "whole", "R": "whole"}
SHAPES = ((2, 4, 5), (3, 8, 9), (1, 12, 4))  # H, K, M: R is half of K


def remembered(H: int, K: int, M: int, attention: str) -> int:
    """Numbers that octavo's transformer of one layer has in its state for one more token."""
    model = GPT(GPTConfig(width=H * K, heads=H, layers=1, attention=attention, latent_width=M), 7)
    sizes = []
    for length in (3, 4):
        state = model.absorb(model.start(1), torch.zeros(1, length, dtype=torch.long))[1]
        sizes.append(sum(t.numel() for t in tensors_of(state[2])))
    return sizes[1] - sizes[0]


def full_cache() -> Finding:
    points = [(H, K) for H, K, _ in SHAPES]
    table = tabulate("H K", points, lambda H, K: remembered(H, K, 1, "full"))
    return Finding(table, "states of octavo's transformer after 3 and 4 tokens")


def latent_cache() -> Finding:
    points = [(M, K // 2, H, K) for H, K, M in SHAPES]
    table = tabulate("M R _ _", points, lambda M, R, H, K: remembered(H, K, M, "latent"))
    return Finding(table, "states of octavo's transformer after 3 and 4 tokens")


# ---------------------------------------------------------------------- two forms


def expansion(S: int, H: int, K: int, M: int) -> int:
    """Operations to make the keys and values of all heads from S latents."""
    return count_flops(lambda: meta(S, M) @ meta(M, 2 * H * K))


def absorbed_scores(S: int, H: int, M: int, R: int) -> int:
    """Operations of the scores of one query in every head with S latents and rotary keys."""
    return count_flops(lambda: meta(H, M + R) @ meta(M + R, S))


def making_keys() -> Finding:
    points = [(9, 2, 4, 5), (30, 3, 8, 9), (1, 1, 12, 4)]
    return Finding(tabulate("S H K M", points, expansion), "PyTorch's FLOP counter, three sizes")


def meeting_latents() -> Finding:
    points = [(9, 2, 5, 2), (30, 3, 9, 4), (1, 1, 4, 6)]
    return Finding(tabulate("S H M R", points, absorbed_scores), "PyTorch's FLOP counter, three sizes")


def same_result() -> Finding:
    H, K, M, R = 3, 4, 6, 2
    given = (normal(1, H, 5, K + R, seed=1), normal(1, 9, M + R, seed=2), normal(H * K, M, seed=3),
             normal(H * K, M, seed=4))  # fmt: skip
    one, other = (attend_latent(*given, CAUSAL, form=form) for form in ("expanded", "absorbed"))
    off = float((one - other).abs().max())
    return Finding(verdict(off < TOLERANCE), f"5 queries, 9 latents, 3 heads: they differ by {off:.0e}", "to 1e-10")


def rotated_keys() -> Finding:
    """The vector that a query's product with the rotated key of a latent is a product with, at two places."""
    query_K, key_KM = normal(4, seed=1), normal(4, 6, seed=2)
    turned_PMK = [rotate(key_KM.T, rotary_angles(torch.tensor([place]), 4, dtype=torch.float64)) for place in (3, 5)]
    one_M, other_M = (turned_MK @ query_K for turned_MK in turned_PMK)
    off = float((one_M - other_M).abs().max())
    note = f"a latent at place 3 and at place 5 would need query vectors that differ by {off:.2f}"
    return Finding(verdict(off < TOLERANCE), note, "to 1e-10")


CACHE = Exercise(
    id="latent-cache", title="A cache of latents",
    question="In multi-head latent attention, a token is remembered by a latent c of M numbers and by one rotary key "
    "of R numbers that all H heads share. Head h has the key `U_k*c` and the value `U_v*c`, of K numbers each, where "
    "U_k and U_v are matrices K × M of its own; its query has K numbers that meet this key, and R that meet the rotary "
    "key. Count the multiplications and additions of matrix products.",
    where={"U_k": torch.ones(2, 3).numpy(), "U_v": torch.ones(2, 3).numpy(), "c": torch.ones(3, 1).numpy(),
           "q": torch.ones(1, 2).numpy()},
    answer="A token takes `M + R`{latent} numbers a layer instead of `2*H*K`{full}. To make the keys and values of S "
    "latents takes `4*S*H*K*M`{expanded} operations at every step. If instead `T(U_k)` is applied to the query once, "
    "its scores with all latents take `2*S*H*(M + R)`{absorbed}, and the result is the same. That works because "
    "nothing stands between `U_k` and c; a rotation by the place of the key would.",
    figure=lambda: lines([
        Series("keys and values", [(S, S * remembered(4, 32, 1, "full")) for S in (2**i for i in range(4, 14))]),
        Series("latents", [(S, S * remembered(4, 32, 64, "latent")) for S in (2**i for i in range(4, 14))])],
        "Numbers that a layer remembers: 4 heads of 32, latents of 64.", ("tokens S", "numbers"), True, True),
    parts=[
        Part("full", "How many numbers does a layer of ordinary multi-head attention remember for each token?",
             Formula("2*H*K", WHOLE), "counted", full_cache, why="A key and a value of K numbers in each of H heads.",
             wrong={"forgot the values": ("H*K", lambda H, K: H * K),
                    "counted one head": ("2*K", lambda K: 2 * K)}),
        Part("latent", "And a layer of latent attention?", Formula("M + R", LATENT), "counted", latent_cache,
             why="The latent, and the rotary key; neither has a head of its own.",
             wrong={"forgot the rotary key": ("M", lambda M: M),
                    "remembered a latent for keys and one for values": ("2*M + R", lambda M, R: 2 * M + R)}),
        Part("expanded", "How many operations does it take to make the keys and values of all heads from S latents?",
             Formula("4*S*H*K*M", {"S": "whole", **WHOLE, "M": "whole"}), "counted", making_keys,
             why="Two matrices of K M numbers in each of H heads, two operations for each number and latent.",
             wrong={"forgot the values": ("2*S*H*K*M", lambda S, H, K, M: S * H * K * M * 2),
                    "made them for one head": ("4*S*K*M", lambda S, K, M: expansion(int(S), 1, int(K), int(M)))}),
        Part("absorbed", "The query of each head is first multiplied by `T(U_k)`, once. How many operations do its "
             "scores with S remembered tokens then take, in all H heads?",
             Formula("2*S*H*(M + R)", {"S": "whole", "H": "whole", **LATENT}), "counted", meeting_latents,
             why="Each score is a product of M numbers with the latent and of R with the rotary key.",
             wrong={"left out the rotary key":
                    ("2*S*H*M", lambda S, H, M: absorbed_scores(int(S), int(H), int(M), 0)),
                    "let all heads share one score":
                    ("2*S*(M + R)", lambda S, M, R: absorbed_scores(int(S), 1, int(M), int(R)))}),
        Part("same", "Both ways give the same attention, up to rounding.", Truth("true"), "numeric", same_result,
             why="`q*(U_k*c)` is `(q*U_k)*c`, and a weighted sum of `U_v*c` is U_v times the weighted sum of c.",
             wrong={"took the second for an approximation": False}),
        Part("rotated", "It would also work if the key `U_k*c` itself were rotated by its place.", Truth("false"),
             "numeric", rotated_keys,
             why="The rotation stands between query and U_k and is another one for every token, so no single vector "
             "meets all latents. That is why a key of its own carries the place.",
             wrong={"took the rotation for a part of U_k": True}),
    ])  # fmt: skip

EXERCISES = (CACHE,)
