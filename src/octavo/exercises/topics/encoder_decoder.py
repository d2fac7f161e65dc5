"""Encoder-decoder transformers: the cost of encoder, cross-attention and decoder layers, and their dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from octavo.costs import Shape, cost_of_config
from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_attention_flops, count_flops, meta, normal, tabulate, tabulated
from octavo.exercises.topics.attention_cost import two_layers
from octavo.exercises.topics.linear_attention import first_size
from octavo.models.bert import BertConfig
from octavo.ops.attention import CAUSAL, FULL, Pattern
from octavo.ops.attention.reference import attend_reference
from octavo.pages.figures.charts import Series, lines


def projections(tokens: int, k: int, count: int) -> int:
    return count * count_flops(lambda: meta(tokens, k) @ meta(k, k))


def feed_forward(tokens: int, k: int) -> int:
    return count_flops(lambda: meta(tokens, k) @ meta(k, 4 * k) @ meta(4 * k, k))


def feed_source(N: int, k: int) -> int:
    return feed_forward(N, k)


def feed_target(M: int, k: int) -> int:
    return feed_forward(M, k)


def encoder_rest(k: int) -> int:
    """What an encoder layer costs per token without pairs."""
    return projections(1, k, 4) + feed_forward(1, k)


def decoder_rest(k: int) -> int:
    """What a decoder layer costs per token without pairs, with as many source tokens."""
    return projections(1, k, 8) + feed_forward(1, k)


def encoder_layer(n: int, k: int) -> int:
    return projections(n, k, 4) + count_attention_flops(n, n, k) + feed_forward(n, k)


def cross_layer(n: int, m: int, k: int) -> int:
    return projections(m, k, 2) + projections(n, k, 2) + count_attention_flops(m, n, k)


def decoder_layer(n: int, m: int, k: int) -> int:
    return projections(m, k, 4) + count_attention_flops(m, m, k) + cross_layer(n, m, k) + feed_forward(m, k)


@tabulated("N k", ((10, 16), (128, 64), (500, 32)),
    "PyTorch's FLOP counter; octavo's cost model of one more BERT layer gives the same")  # fmt: skip
def encoder_cost(n: int, k: int) -> int:
    operations = encoder_layer(n, k)
    configs = (BertConfig(width=k, layers=layers, heads=1, context=512, tasks=()) for layers in (1, 2))
    one, two = (cost_of_config("bert", config, 8192, Shape(window=n)).total("forward") for config in configs)
    assert two - one == operations, "a layer of octavo's BERT costs what is counted here"
    return operations


def pairs_overtake() -> Finding:
    for k in (8, 16, 32):
        n = first_size(lambda n: 2 * count_attention_flops(n, n, k) > encoder_layer(n, k))  # noqa: B023
        assert n - 1 <= half_pairs(k) <= n, "the counts must cross where their growth says"
    table = tabulate("k", [(8,), (16,), (32,)], half_pairs, rel=1e-12)
    return Finding(table, "PyTorch counts pairs, whose cost grows as the square of N, and a rest that grows as N")


def half_pairs(k: int) -> float:
    """The N at which the pairs cost as much as the rest of an encoder layer."""
    return (encoder_layer(1, k) - count_attention_flops(1, 1, k)) / count_attention_flops(1, 1, k)


def growth() -> Finding:
    def doubling(n: int, k: int) -> float:
        return encoder_layer(2 * n, k) / encoder_layer(n, k)

    short, long = doubling(64, 512), doubling(512 * 600, 512)
    note = f"k = 512: doubling the tokens multiplies the cost by {short:.2f} at N = 64, {long:.2f} times at N = 600 k"
    under = {"long": long > 3.9, "wide": doubling(16, 4096) > 3.9, "balanced": doubling(6 * 512, 512) > 3.9}
    return Finding(verdict(short > 3.9, under), note)


def second_share() -> Finding:
    total = encoder_layer(128, 512) + decoder_layer(128, 128, 512)
    share = Fraction(decoder_layer(128, 128, 512), total)
    return Finding(share, f"one layer each: {total:,} operations for one language, {share} of that for the second")


@tabulated("k", [(8,), (64,)], "the sizes of the ten matrices added up")
def second_weights(k: int) -> int:
    return sum(w.numel() for w in [*(meta(k, k) for _ in range(8)), meta(k, 4 * k), meta(4 * k, k)])


def encoded(x_ND: Tensor, w_DD: Tensor) -> Tensor:
    h = (x_ND @ w_DD)[None, None]
    result: Tensor = attend_reference(h, h, h, FULL)[0, 0]
    return result


@dataclass(frozen=True)
class EncoderDecoderPattern(Pattern):
    """Encoder and decoder as one pattern: all attend to the `source` tokens, target tokens also to their past."""

    source: int

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (s < self.source) | ((s <= t) & (t >= self.source))


@dataclass(frozen=True)
class TargetOnlyPattern(Pattern):
    """Target tokens attend to target tokens only, the `source` tokens to all."""

    source: int

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (t < self.source) | (s >= self.source)


def target_derivative(pattern: Pattern) -> float:
    """The largest derivative of the source's outputs after two layers with respect to a target token."""
    x_ND, y_MD = normal(5, 4, seed=1), normal(3, 4, seed=2)
    jacobian = torch.autograd.functional.jacobian(lambda y: two_layers(torch.cat([x_ND, y]), pattern)[1][:5], y_MD)
    return float(jacobian.abs().max())


def decoder_in_encoder() -> Finding:
    separate, mixed = target_derivative(EncoderDecoderPattern(5)), target_derivative(FULL)
    note = (
        f"two layers: the largest derivative of a source output by a target token is {separate}; with full "
        f"attention it would be {mixed:.2f}"
    )
    return Finding(verdict(separate == 0), note, "exactly 0")


def no_gradient() -> Finding:
    x, y, w = normal(5, 4, seed=1), normal(3, 4, seed=2), normal(4, 4, seed=3).requires_grad_()
    memory = encoded(x, w)
    loss = attend_reference(y[None, None], memory[None, None], memory[None, None]).square().sum()
    largest = float(torch.autograd.grad(loss, w)[0].abs().max())
    note = f"the largest derivative of the decoder's loss by an encoder weight is {largest:.1f}"
    return Finding(verdict(largest == 0), note, "exactly 0")


def source_in_front() -> Finding:
    masked, mixed = target_derivative(CAUSAL), target_derivative(FULL)
    note = f"the largest derivative by the target is {mixed:.2f} with full attention, {masked} with the causal mask"
    reversed_, x_TD = target_derivative(TargetOnlyPattern(5)), normal(8, 4, seed=1)
    once = torch.autograd.functional.jacobian(lambda x: two_layers(x, FULL)[0][:5], x_TD)[:, :, 5:]
    under = {"no-target": masked == 0, "reversed": reversed_ == 0, "single": bool((once == 0).all())}
    return Finding(verdict(mixed == 0, under), note, "exactly 0")


NMK = {"N": "whole", "M": "whole", "k": "whole"}
ENCODER_DECODER = Exercise(
    id="encoder-decoder-cost", title="What encoder, cross-attention and decoder layers cost",
    question="An encoder-decoder transformer of width k reads N source tokens and writes M target tokens. Its "
    "feed-forward networks have inner width `4*k`{inner}. Count the multiplications and additions of matrix products, "
    "masked pairs included.",
    where={"inner": lambda k: sum(k for _ in range(4)), "project": lambda N, k: projections(N, k, 4), "feed":
        feed_source,
           "pairs": lambda N, k: count_attention_flops(N, N, k), "width": 512, "limit": half_pairs(512), "tokens": 128,
           "self_attention": lambda M, k: projections(M, k, 4) + count_attention_flops(M, M, k), "feed_target":
               feed_target,
           "divisor": lambda N, k: N * count_attention_flops(1, 1, k),
           "factor": lambda N, k: encoder_layer(2 * N, k) / encoder_layer(N, k)},
    answer="An encoder layer takes `24*N*k^2 + 4*N^2*k`{encoder}: `8*N*k^2`{project} for projections, "
    "`16*N*k^2`{feed} for the feed-forward network, `4*N^2*k`{pairs} for the pairs. Cross-attention takes `4*(M + "
    "N)*k^2 + 4*N*M*k`{cross}, a decoder layer with it `28*M*k^2 + 4*N*k^2 + 4*M^2*k + 4*N*M*k`{decoder}. The "
    "quadratic term is more than half of an encoder layer only above `6*k`{overtakes} tokens; at a width of "
    "512{width} that is 3,072{limit}. The encoder does not depend on the target, so it runs once for any number of "
    "target tokens or languages: a second language costs one run of a decoder, 34/59{second} of the first translation "
    "at that width with 128{tokens} tokens each.",
    figure=lambda: lines([Series(f"k = {k}", [(n, 4 * n * n * k / (24 * n * k * k + 4 * n * n * k))
        for n in (2**i for i in range(4, 18))]) for k in (64, 512, 4096)],
        "The fraction of an encoder layer's cost spent on pairs: one half at N = 6k.", ("tokens N", "fraction"),
        log_x=True),
    parts=[
        Part("encoder", "What does an encoder layer cost?", Formula("24*N*k^2 + 4*N^2*k", {"N": "whole", "k": "whole"}),
             "counted", encoder_cost,
             why="Four projections `8*N*k^2`{project}, two products with all pairs `4*N^2*k`{pairs}, a feed-forward "
             "network `16*N*k^2`{feed}.",
             wrong={"counted only the pairs": ("4*N^2*k", lambda N, k: count_attention_flops(N, N, k)),
                    "left out the feed-forward network":
                        ("8*N*k^2 + 4*N^2*k", lambda N, k: projections(N, k, 4) + count_attention_flops(N, N, k)),
                    "counted a multiplication and an addition as one":
                        ("12*N*k^2 + 2*N^2*k", lambda N, k: encoder_layer(N, k) // 2)}),
        Part("cross", "What does cross-attention cost, with its four projections?",
             Formula("4*M*k^2 + 4*N*k^2 + 4*N*M*k", NMK), "counted",
             tabulated("N M k", ((10, 7, 16), (128, 200, 64)), "PyTorch's FLOP counter, two sizes")(cross_layer),
             why="Queries and outputs belong to the target, keys and values to the source.",
             wrong={"projected only target tokens":
                        ("8*M*k^2 + 4*N*M*k", lambda N, M, k: projections(M, k, 4) + count_attention_flops(M, N, k)),
                    "counted only the pairs": ("4*N*M*k", lambda N, M, k: count_attention_flops(M, N, k)),
                    "paired the target with itself": ("4*M*k^2 + 4*N*k^2 + 4*M^2*k", lambda N, M, k: projections(M, k,
                        2)
                        + projections(N, k, 2) + count_attention_flops(M, M, k))}),
        Part("decoder", "What does a decoder layer cost: self-attention, cross-attention and feed-forward network?",
             Formula("28*M*k^2 + 4*N*k^2 + 4*M^2*k + 4*N*M*k", NMK), "counted",
             tabulated("N M k", ((10, 7, 16), (128, 200, 64)), "PyTorch's FLOP counter, two sizes")(decoder_layer),
             why="`8*M*k^2 + 4*M^2*k`{self_attention}, then cross-attention, then `16*M*k^2`{feed_target}.",
             wrong={"forgot cross-attention": ("24*M*k^2 + 4*M^2*k", lambda M, k: encoder_layer(M, k)),
                    "forgot self-attention": ("20*M*k^2 + 4*N*k^2 + 4*N*M*k",
                        lambda N, M, k: cross_layer(N, M, k) + feed_forward(M, k))}),
        Part("overtakes", "Above which N is `4*N^2*k`{N*N*divisor/N} more than half of the cost of an encoder layer?",
             Formula("6*k", {"k": "whole"}), "counted", pairs_overtake,
             why="The pairs are half of it where they cost as much as the rest, `4*N^2*k = 24*N*k^2`; divide by "
             "`4*N*k`{divisor}.", where={"N": half_pairs},
             wrong={"compared only the powers": ("k", lambda k: meta(k).numel()),
                    "thought that the pairs always dominate": ("1", lambda: meta(1).numel())},
             only_if={"the layer has no feed-forward network":
                          ("2*k", lambda k: projections(1, k, 4) / count_attention_flops(1, 1, k))}),
        Part("square", "Twice as many tokens make an encoder layer four times as "
             "expensive.", Truth("nearly", Choice("long", {
             "balanced": "N is `6*k`{overtakes}", "wide": "k is much larger than N",
             "long": "N is much larger than `6*k`{overtakes}, so that the pairs dominate the cost"})), "counted",
                 growth,
             why="The factor is `2*(24*k + 8*N)/(24*k + 4*N)`{factor}: two for short sequences, three at "
             "`6*k`{overtakes}, four only in the limit.", wrong={"considered only the pairs": True}),
        Part("second", "`N = M = 128`, `k = 512`, one layer each. What fraction of the cost of the first translation "
             "does a translation into a second language, with its own decoder, add?", Number("34/59"), "counted",
             second_share, why="`(32*k + 8*N)/(56*k + 12*N)`{}: the outputs of the encoder are reused.",
             where={"N": 128, "M": 128, "k": 512},
             wrong={"ran the encoder again": (1, lambda: decoder_layer(128, 128, 512) / decoder_layer(128, 128, 512)),
                    "left out the pairs": ("4/7", lambda:
                        1 - encoder_rest(512) / (encoder_rest(512) + decoder_rest(512))),
                    "halved the cost": (0.5, lambda: encoder_layer(128, 512) / (2 * encoder_layer(128, 512)))}),
        Part("weights", "How many weights does the decoder layer of the second language add, without biases and norms?",
             Formula("16*k^2", {"k": "whole"}), "counted", second_weights,
             why="Four matrices for self-attention, four for cross-attention, and two of size k by `4*k`{inner}.",
             wrong={"forgot cross-attention": ("12*k^2", lambda k: 4 * meta(k, k).numel() + 2 * meta(k, 4 * k).numel()),
                    "counted the encoder too": ("28*k^2", lambda k: 12 * meta(k, k).numel() + 4 * meta(k,
                        4 * k).numel())},
             only_if={"both languages share one decoder, and a token names the language":
                          ("k", lambda k: meta(1, k).numel())}),
        Part("independent", "The outputs of the encoder do not depend on the target.", Truth("true", Choice("", {
             "equal": "source and target are equally long",
             "causal": "the decoder is causal", "single": "there is only one layer"})), "autograd",
             decoder_in_encoder, why="Cross-attention reads from the encoder, and nothing flows back.",
             wrong={"reversed the direction of cross-attention": False}),
        Part("gradient", "The decoder's loss has no gradient with respect to the encoder's weights.", Truth("false"),
             "autograd", no_gradient,
             why="Activations flow one way, gradients the other: the encoder is trained by the decoder's loss.",
             wrong={"confused dependence of activations with dependence of gradients": True}),
        Part("prefix", "In one network that reads source and target as one sequence, the source's outputs do not "
             "depend on the target either.", Truth("nearly", Choice("no-target", {
             "reversed": "target tokens do not attend to source tokens", "single": "there is only one layer",
             "no-target": "source tokens do not attend to target tokens, as with a causal mask"})), "numeric",
                 source_in_front,
             why="With the mask the source acts as an encoder; without it, it depends on the target.",
             wrong={"mistook the order of the tokens for a mask": True}),
    ])  # fmt: skip

EXERCISES = (ENCODER_DECODER,)
