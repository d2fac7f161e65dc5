"""Scores between patches or channels, and what features save: the sums, not the attention weights.

N tokens, D size of a value, F features.
"""

from __future__ import annotations

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_flops, meta, normal, tabulated
from octavo.exercises.topics.attention_cost import channel_ratio

PATCHES, CHANNELS = 256, 512


def score_multiplications(vectors: int, size: int) -> int:
    """One multiplication for each entry of each dot product."""
    return count_flops(lambda: meta(vectors, size) @ meta(size, vectors)) // 2


CHANNEL_SCORES = Exercise(
    id="channel-scores", title="Scores between patches and between channels",
    where={"side": 16, "N": PATCHES, "D": CHANNELS, "layer_ratio": lambda: channel_ratio().value},
    question="An image has 16{side} × 16{side} patches with embeddings of size 512{D}. Count only the "
    "multiplications of the scores: between patches, dot products over all channels; between channels, dot products "
    "over all patches.",
    answer="`256^2*512 = 33554432` between patches, `512^2*256 = 67108864` between channels: the ratio is `D/N = 2`. "
    "The weighted sums take as many again on either side, and the projections take the same on both, so the ratio of "
    "whole layers is smaller: 1.2{layer_ratio}.",
    parts=[
        Part("patches", "How many do the scores between patches take?", Number(33_554_432, rel=0), "counted",
             lambda: Finding(score_multiplications(PATCHES, CHANNELS), "half of the FLOPs that PyTorch counts"),
             why="256{N} × 256{N} dot products of 512{D} entries.",
             wrong={"counted one patch": (131_072, lambda: score_multiplications(PATCHES, CHANNELS) // PATCHES),
                    "swapped patches and channels": (67_108_864, lambda: score_multiplications(CHANNELS, PATCHES))}),
        Part("channels", "How many do the scores between channels take?", Number(67_108_864, rel=0), "counted",
             lambda: Finding(score_multiplications(CHANNELS, PATCHES), "half of the FLOPs that PyTorch counts"),
             why="512{D} × 512{D} dot products of 256{N} entries.",
             wrong={"counted one channel": (131_072, lambda: score_multiplications(CHANNELS, PATCHES) // CHANNELS),
                    "swapped patches and channels": (33_554_432, lambda: score_multiplications(PATCHES, CHANNELS))}),
        Part("ratio", "How many times as many multiplications do the scores between channels "
             "take?", Number(2), "counted",
             lambda: Finding(score_multiplications(CHANNELS, PATCHES) / score_multiplications(PATCHES, CHANNELS),
                 "the quotient of the two counts"),
             why="`D^2*N/(N^2*D) = D/N`.",
             wrong={"inverted it": (0.5, lambda: PATCHES / CHANNELS),
                    "squared it": (4, lambda: (CHANNELS / PATCHES) ** 2)}),
    ])  # fmt: skip


def normalizers_agree() -> float:
    """How far the normalizing sums from the summed features are from those of the weights; relative."""
    q_NF, k_NF = normal(40, 6).exp(), normal(40, 6, seed=1).exp()
    sums = (q_NF @ k_NF.T).sum(1)
    return float(((q_NF @ k_NF.sum(0) - sums).abs() / sums).max())


@tabulated("N F", ((10, 4), (300, 16), (64, 64)), "half of the FLOPs that PyTorch counts, three sizes")
def normalizers(n: int, f: int) -> int:
    assert normalizers_agree() < 1e-12, "both ways give the same sums"
    return count_flops(lambda: meta(n, f) @ meta(f, 1)) // 2


@tabulated("N F", ((10, 4), (300, 16), (64, 64)), "half of the FLOPs that PyTorch counts, three sizes")
def all_weights(n: int, f: int) -> int:
    return count_flops(lambda: meta(n, f) @ meta(f, n)) // 2


def outputs_cost(n: int, d: int, f: int) -> int:
    """The two products and the normalizing sums of linear attention."""
    return count_flops(lambda: meta(n, f) @ (meta(f, n) @ meta(n, d))) // 2 + normalizer_cost(n, f)


def normalizer_cost(n: int, f: int) -> int:
    return count_flops(lambda: meta(n, f) @ meta(f, 1)) // 2


def weights_linear() -> Finding:
    cost = {n: count_flops(lambda: meta(n, 16) @ meta(16, n)) // 2 for n in (64, 128)}  # noqa: B023
    factor = cost[128] / cost[64]
    return Finding(verdict(factor <= 2), f"twice as many tokens: {factor:g} times as many multiplications")


def proportional_to_width() -> Finding:
    factor = outputs_cost(1000, 128, 128) / outputs_cost(1000, 64, 64)
    note = f"1,000 tokens, as many features as the width: doubling the width multiplies the cost by {factor:.2f}"
    return Finding(verdict(factor < 2.1), note)


NF = {"N": "whole", "F": "whole"}
FEATURES = Exercise(
    id="feature-weights", title="What features save, and what they do not",
    where={"pairs": lambda N: len([(n, m) for n in range(N) for m in range(N)]),
           "at_width": lambda N, D: outputs_cost(N, D, D)},
    question="The exponential of a score is replaced by the dot product of F features of the key and of the query. "
    "The normalizing sum is then `dot(sum(m, phi(k_m)), phi(q_n))`. There are N tokens with values of size D. Count "
    "multiplications.",
    answer="The sum of the keys' features is computed once, by additions alone, and each query needs one dot product "
    "with it: `N*F` for all normalizing sums. But there are `N^2`{pairs} attention weights, and computing them all "
    "still takes `N^2*F`{all-weights}. What becomes linear in N is the output, because the weights are never formed: "
    "`2*N*F*D + N*F`{outputs}. With as many features as the width that is `2*N*D^2 + N*D`{at_width}, which is not "
    "proportional to `N*D`.",
    parts=[
        Part("normalizers", "How many do all N normalizing sums take?", Formula("N*F", NF), "counted", normalizers,
             why="One dot product of length F for each query; the features of the keys are only added.",
             wrong={"summed over the pairs": ("N^2*F", lambda N, F: N * N * F),
                    "counted the additions of the features": ("2*N*F", lambda N, F: N * F + N * F)}),
        Part("all-weights", "How many do the numerators of all attention weights "
             "take?", Formula("N^2*F", NF), "counted",
             all_weights, why="There are `N^2`{pairs} of them, each a dot product of length F.",
             wrong={"thought that the factorization helps here too": ("N*F", lambda N, F: normalizer_cost(N, F))}),
        Part("linear-weights", "With features, computing all attention weights takes time linear in N.",
             Truth("false"), "counted", weights_linear, why="There are `N^2`{pairs} of them.",
             wrong={"confused the weights with the outputs": True}),
        Part("outputs", "How many do all outputs take, normalizing sums included, if the weights are never formed?",
             Formula("2*N*F*D + N*F", {"N": "whole", "F": "whole", "D": "whole"}), "counted",
             tabulated("N D F", ((10, 3, 4), (300, 8, 16), (64, 64, 64)),
                 "half of the FLOPs that PyTorch counts, three sizes")(outputs_cost),
             why="`N*F*D` to sum features times values, `N*F*D` to read them with the queries, `N*F` to normalize.",
             wrong={"counted one product": ("N*F*D + N*F", lambda N, F, D: N * F * D + normalizer_cost(N, F)),
                    "formed the weights": ("N^2*F + N^2*D", lambda N, F, D: N * N * F + N * N * D)}),
        Part("linear", "With F = D, the outputs take a number of multiplications proportional to `N*D`.",
             Truth("false"),
             "counted",
             proportional_to_width, why="They take `2*N*D^2 + N*D`{at_width}: a D × D matrix is read by N queries.",
             wrong={"forgot that the sum of features times values is a matrix": True}),
    ])  # fmt: skip

EXERCISES = (CHANNEL_SCORES, FEATURES)
