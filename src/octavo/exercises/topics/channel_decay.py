"""Gated linear attention (GLA): every channel of a key forgets by itself, and why chunks are short."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import bisect, count_flops, meta, normal, tabulate, tabulated
from octavo.models.linear_attention.config import GatedLinearConfig
from octavo.models.linear_attention.gla import GatedLinearMixer
from octavo.ops import linear
from octavo.ops.linear.decaying import MIN_LOG_DECAY
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
QUARTER, LONG = 0.25, 100  # what a token keeps of every channel, and the tokens of a text
Rows = list[list[float]]
CASES: list[tuple[Rows, Rows, Rows, Rows]] = [  # queries, keys, values, decays; a row a token
    ([[1, 0]], [[1, 2]], [[3]], [[0.5, 0.5]]),
    ([[0, 0], [1, 2]], [[1, 1], [0, 0]], [[4], [7]], [[0.1, 0.2], [0.5, 0.25]]),
    ([[1, -1], [2, 0], [1, 1]], [[1, 0], [0, 1], [1, 1]], [[1, 2], [3, 4], [5, 6]], [[1, 1], [0.9, 0.5], [0.8, 0.25]]),
]


def read_state(q: Rows, k: Rows, v: Rows, a: Rows) -> Rows:
    """What each token reads: S_ij = a_i S_ij + k_i v_j, then the sum over i of q_i S_ij."""
    S = [[0.0] * len(v[0]) for _ in k[0]]
    outputs = []
    for t in range(len(q)):
        S = [[a[t][i] * S[i][j] + k[t][i] * v[t][j] for j in range(len(v[0]))] for i in range(len(S))]
        outputs.append([sum(q[t][i] * S[i][j] for i in range(len(S))) for j in range(len(v[0]))])
    return outputs


def decayed_after(q: Rows, k: Rows, v: Rows, a: Rows) -> Rows:
    """A token's decay multiplies what it writes itself too."""
    return read_state(q, [[x * d for x, d in zip(*rows, strict=True)] for rows in zip(k, a, strict=True)], v, a)


def mean_decay(q: Rows, k: Rows, v: Rows, a: Rows) -> Rows:
    return read_state(q, k, v, [[sum(row) / len(row)] * len(row) for row in a])


def library_outputs() -> Finding:
    outputs = []
    for q, k, v, a in CASES:
        q_11TK, k_11TK, v_11TV, a_11TK = (torch.tensor([[x]], dtype=torch.float64) for x in (q, k, v, a))
        outputs.append(linear.attend_decaying(q_11TK, k_11TK, v_11TV, a_11TK.log())[0][0, 0].tolist())
    return Finding(outputs, "octavo's gated linear attention of three short texts, in chunks")


def decays_of_token(H: int, K: int) -> int:
    """The decays that octavo's GLA computes for one token."""
    mixer = GatedLinearMixer(GatedLinearConfig(width=H * K, heads=H))
    heads = normal(1, H, 1, K, seed=1).float()
    given, _ = mixer.inputs(normal(1, 1, H * K, seed=2).float(), heads, heads, heads, [])
    return given.g_BHTJ.numel()


def decay_counts() -> Finding:
    table = tabulate("H K", [(1, 4), (2, 8), (4, 6)], decays_of_token)
    return Finding(table, "what octavo's layer of gated linear attention computes for a token, three sizes")


@tabulated("a b n", [(0.9, 0.5, 3), (0.7, 0.2, 1), (0.99, 0.3, 2)], "octavo's map of all pairs", rel=1e-10)
def weight_after(a: float, b: float, n: int) -> float:
    ones_11TK = torch.ones(1, 1, n + 1, 2, dtype=torch.float64)
    g_11TK = torch.tensor([a, b], dtype=torch.float64).log().expand_as(ones_11TK)
    return float(linear.decaying_weights(ones_11TK, ones_11TK, g_11TK)[0, 0, n, 0])


def same_as_head() -> Finding:
    q, k, v = (normal(1, 2, 37, 5, seed=seed) for seed in (1, 2, 3))
    g_BHT1 = -normal(1, 2, 37, 1, seed=4).abs()
    one, other = (linear.attend_decaying(q, k, v, g)[0] for g in (g_BHT1, g_BHT1.expand_as(q)))
    off = float((one - other).abs().max())
    return Finding(verdict(off < TOLERANCE), f"37 tokens, 2 heads: the results differ by {off:.0e}", "to 1e-10")


# ---------------------------------------------------------------------- one product of matrices


def one_product(q_TK: Tensor, k_TK: Tensor, decay: float) -> Tensor:
    """The weights of all pairs from queries times the decay so far and keys divided by it."""
    G_T1 = math.log(decay) * torch.arange(1, len(q_TK) + 1, dtype=q_TK.dtype)[:, None]
    return ((q_TK * G_T1.exp()) @ (k_TK * (-G_T1).exp()).T).tril()


def largest_error(q_TK: Tensor, k_TK: Tensor) -> float:
    """How far that is from octavo's weights, which never divide, in single or double precision."""
    g_11TK = torch.full((1, 1, *q_TK.shape), math.log(QUARTER), dtype=torch.float64)
    right_TT = linear.decaying_weights(q_TK.double()[None, None], k_TK.double()[None, None], g_11TK)[0, 0]
    return float((one_product(q_TK, k_TK, QUARTER).double() - right_TT).abs().nan_to_num(math.inf).max())


def product_overflows() -> Finding:
    q, k = normal(LONG, 4, seed=1), normal(LONG, 4, seed=2)
    unit_q, unit_k = (x / x.norm(dim=1, keepdim=True) for x in (q, k))
    errors = {
        "as it stands": largest_error(q.float(), k.float()), "double": largest_error(q, k),
        "unit": largest_error(unit_q.float(), unit_k.float()),
        "positive": largest_error(q.abs().float(), k.abs().float()),
    }  # fmt: skip
    note = ", ".join(f"{name}: {error:.0e}" for name, error in errors.items())
    holds = {name: error < TOLERANCE for name, error in errors.items()}
    return Finding(verdict(holds.pop("as it stands"), holds), f"largest errors: {note}", "to 1e-10")


def is_finite(x: float) -> bool:
    """Whether exp(x) is a number in single precision."""
    return bool(torch.tensor(x, dtype=torch.float32).exp().isfinite())


def longest_chunk() -> Finding:
    tokens = next(n for n in range(1, 1000) if not is_finite(-MIN_LOG_DECAY * (n + 1)))
    return Finding(tokens, "exponentials in single precision, token by token")


def chunk_slope(C: int, D: int) -> int:
    """Operations that octavo's chunks take for each further token, counted."""
    q_11TD, S_11DD = meta(1, 1, C, D), meta(1, 1, D, D)
    return count_flops(lambda: linear.attend_decaying(q_11TD, q_11TD, q_11TD, q_11TD, None, S_11DD, chunk=C)) // C


def pairs_cost(N: int, D: int) -> int:
    """Operations of the map of all pairs and of its product with the values."""
    return count_flops(lambda: meta(N, D) @ meta(D, N)) + count_flops(lambda: meta(N, N) @ meta(N, D))


def crossing() -> Finding:
    points = [(16, 8), (4, 32), (8, 5)]
    table = tabulate("C D", points, lambda C, D: chunk_slope(C, D) / pairs_cost(1, D), rel=1e-12)
    return Finding(table, "PyTorch counts one cost that grows as N and one that grows as its square: where they meet")


GLA = Exercise(
    id="gla", title="Gated linear attention: every channel forgets by itself",
    question="A head of gated linear attention has a matrix S as state, of K rows and V columns. Channel i of the keys "
    "is row i of S, and the token's decay of this row is `a_i`, between zero and one: row i is multiplied by `a_i`, "
    "then k_i times the value v is added to it. The query reads `q*S`. For a text, G is the sum of the logarithms of "
    "the decays of a channel, up to and with this token.",
    where={"K": 8, "V": 4, "quarter": QUARTER, "long": LONG, "a": (0.9, 0.5), "least": MIN_LOG_DECAY,
           "kept": math.exp(MIN_LOG_DECAY),
           "limit": lambda: bisect(lambda x: not is_finite(x), 0.0, 200.0), "beyond": lambda: LONG * -math.log(QUARTER),
           "all_pairs": lambda N, D: pairs_cost(N, D), "pairs": lambda N, C, D: N * pairs_cost(C, D) // C,
           "states": lambda N, C, D: N * (chunk_slope(C, D) - pairs_cost(C, D) // C), "N": 48, "C": 16, "D": (4, 8),
           "sixteen": lambda: linear.decaying.CHANNEL_CHUNK},
    answer="A token has `H*K`{decays} decays in a layer, instead of one for each head. The weight of an earlier token "
    "is a sum over the channels, each decayed by what lies between; since `exp(G_t - G_s)` is a product of one factor "
    "for the query and one for the key, all weights are one product of matrices. But the key's factor `exp(-G_s)` "
    "grows without a bound, and overflows in single precision once G is below minus 88.72{limit}. So octavo takes "
    "the product inside short chunks only, counts G from the chunk's beginning, and lets a channel keep at least "
    "`exp(-5)`{kept} of what it holds in a step.",
    figure=lambda: lines([
        Series(f"decay {a:g}", [(n, -n * math.log10(a)) for n in range(0, 101, 5)]) for a in (0.25, 0.5, 0.9, 0.99)],
        "How large the factor exp(-G) of a key gets, as a power of ten; single precision ends at 38.",
        ("tokens since the decays are counted", "power of ten"), references=[("single precision", 38.53)]),
    parts=[
        Part("decays", "How many decays does a token have in a layer of H heads with keys of K numbers?",
             Formula("H*K", {"H": "whole", "K": "whole"}), "counted", decay_counts,
             why="One for each channel of each head's keys; the V numbers of a row of S share it.",
             wrong={"gave each head one": ("H", lambda H: H), "gave each row one for all heads": ("K", lambda K: K)}),
        Part("weight", "A head has two channels, whose decays are a and b at every token; all queries and keys are "
             "`list(1, 1)`{ones}. What does a value count for n tokens after it was written?",
             Formula("a^n + b^n", {"a": "share", "b": "share", "n": "whole"}), "numeric", weight_after,
             where={"ones": 1},
             why="Each channel keeps its own power, and the query adds both.",
             wrong={"let its own token decay it too": ("a^(n + 1) + b^(n + 1)", lambda a, b, n: a**n * a + b**n * b),
                    "gave the head the mean decay":
                        ("2*((a + b)/2)^n", lambda a, b, n: sum([((a + b) / 2) ** n] * 2)),
                    "multiplied the channels": ("a^n*b^n", lambda a, b, n: (a * b) ** n)}),
        Part("same", "If all channels of a head have the same decay at each token, the head computes the same as one "
             "whose state has a single decay.", Truth("true"), "numeric", same_as_head,
             why="A diagonal matrix with one number on it is that number.",
             wrong={"thought that channels mix": False}),
        Part("function", "Write a function that returns what each token reads. Its arguments are lists with a row for "
             "each token: queries, keys, values and decays, all of one head.",
             Function("read_state", read_state, CASES, "read_state(q, k, v, a: lists of rows) -> list of rows"),
             "numeric", library_outputs,
             why="A token's decays act on what was in the state before; what it writes itself is read whole.",
             wrong={"let its own token decay it too": decayed_after, "gave the head the mean decay": mean_decay}),
        Part("overflow", "The weight of token s for token t is a sum over channels of `q_t*exp(G_t)*k_s*exp(-G_s)`. "
             "Below which G does `exp(-G)` overflow in single precision, where the largest number is about "
             "`3.4028*10^38`{largest}?", Number("-88.7228", digits=4), "numeric",
             lambda: Finding(-bisect(lambda x: not is_finite(x), 0.0, 200.0), "bisection with single precision"),
             why="`-G` must be at most the natural logarithm of that number, 88.72{limit}.",
             where={"largest": torch.finfo(torch.float32).max},
             wrong={"took the logarithm to base ten": ("-38.53", lambda: -round(math.log10(3.4028e38), 2)),
                    "took the logarithm to base two": (-128, lambda: -math.log2(2**128))}),
        Part("product", "A text has 100{long} tokens, and each leaves 0.25{quarter} of every channel. Queries times "
             "`exp(G)`, keys times `exp(-G)` and one product of matrices, in single precision, with the pairs of later "
             "keys set to zero afterwards, give the right weights.",
             Truth("nearly", Choice("double", {"unit": "queries and keys have length one",
             "positive": "queries and keys are positive", "double": "it is computed in double precision instead"})),
             "numeric", product_overflows,
             why="At the last token `-G`{beyond} is 138.6{beyond}, beyond the 88.72{limit} of single precision, and "
             "zero times infinity is not a number. Double precision ends at about 709.8{double_limit}.",
             where={"G": lambda beyond: -beyond, "double_limit": math.log(torch.finfo(torch.float64).max)},
             wrong={"thought that the two factors cancel before they are rounded": True}),
        Part("chunk", "octavo takes `-5`{least} for every logarithm of a decay that is below it, and counts G from the "
             "beginning of each chunk. How many tokens may a chunk have at most, so that no `exp(-G)` overflows in "
             "single precision?", Number(17, rel=0), "counted", longest_chunk,
             why="`17*5 = 85` is below 88.72{limit}, and `18*5 = 90` is not. octavo takes 16{sixteen}.",
             wrong={"rounded up": (18, lambda: math.ceil(128 * math.log(2) / 5)),
                    "took one off G for each token": (88, lambda: math.floor(128 * math.log(2)))}),
        Part("crossover", "Keys and values have D numbers. Above which N (a real number) do chunks of C tokens take "
             "fewer operations of matrix products than the map of all N tokens and its product with the values?",
             Formula("C + D", {"C": "whole", "D": "whole"}), "counted", crossing,
             why="The map takes `4*N^2*D`{all_pairs}, the chunks `4*N*C*D`{pairs} for the pairs inside them and "
             "`4*N*D^2`{states} for reading the state and writing to it.",
             wrong={"left out the state": ("C", lambda C: C), "left out the pairs": ("D", lambda D: D)}),
    ])  # fmt: skip

EXERCISES = (GLA,)
