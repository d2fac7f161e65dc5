"""Efficient attention: what encoder, cross and decoder layers cost, and who depends on whom."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from octavo.cost import Shape, cost_of_config
from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.topics.efficient import counted, empty, two_layers
from octavo.exercises.topics.linear_attention import drawn, first
from octavo.models.bert import BertConfig
from octavo.ops.attention import CAUSAL, FULL, Pattern, reference
from octavo.pages.figures.lines import Series, lines


def projections(tokens: int, k: int, how_many: int) -> int:
    return how_many * counted(lambda: empty(tokens, k) @ empty(k, k))


def feed(tokens: int, k: int) -> int:
    return counted(lambda: empty(tokens, k) @ empty(k, 4 * k) @ empty(4 * k, k))


def looking(queries: int, keys: int, k: int) -> int:
    return counted(
        lambda: reference.attend_reference(empty(1, 1, queries, k), empty(1, 1, keys, k), empty(1, 1, keys, k))
    )


def encoder_layer(n: int, k: int) -> int:
    return projections(n, k, 4) + looking(n, n, k) + feed(n, k)


def cross_layer(n: int, m: int, k: int) -> int:
    return projections(m, k, 2) + projections(n, k, 2) + looking(m, n, k)


def decoder_layer(n: int, m: int, k: int) -> int:
    return projections(m, k, 4) + looking(m, m, k) + cross_layer(n, m, k) + feed(m, k)


def encoder_cost() -> Finding:
    points = []
    for n, k in ((10, 16), (128, 64), (500, 32)):
        operations = encoder_layer(n, k)
        configs = (BertConfig(width=k, layers=layers, heads=1, context=512, tasks=()) for layers in (1, 2))
        one, two = (cost_of_config("bert", config, 8192, Shape(window=n)).total("forward") for config in configs)
        assert two - one == operations, "a layer of octavo's BERT costs what is counted here"
        points.append(IntervalAt({"N": n, "k": k}, operations, operations))
    return Finding(points, "PyTorch's counter; octavo's cost of a BERT with one layer more says the same")


def cross_cost() -> Finding:
    points = [
        IntervalAt({"N": n, "M": m, "k": k}, cross_layer(n, m, k), cross_layer(n, m, k))
        for n, m, k in ((10, 7, 16), (128, 200, 64))
    ]
    return Finding(points, "PyTorch's counter on two sizes")


def decoder_cost() -> Finding:
    points = [
        IntervalAt({"N": n, "M": m, "k": k}, decoder_layer(n, m, k), decoder_layer(n, m, k))
        for n, m, k in ((10, 7, 16), (128, 200, 64))
    ]
    return Finding(points, "PyTorch's counter on two sizes")


def pairs_overtake() -> Finding:
    points = []
    for k in (8, 16, 32):
        n = first(lambda n: 2 * looking(n, n, k) > encoder_layer(n, k))  # noqa: B023
        points.append(IntervalAt({"k": k}, n - 1, n))
    return Finding(points, "the first N at which the pairs cost more than the rest, and the one before")


def growth() -> Finding:
    def doubling(n: int, k: int) -> float:
        return encoder_layer(2 * n, k) / encoder_layer(n, k)

    short, long = doubling(64, 512), doubling(512 * 600, 512)
    return Finding(
        verdict(short > 3.9, long > 3.9),
        f"k = 512: twice the tokens cost {short:.2f} times as much at N = 64, {long:.2f} times at N = 600 k",
    )


def second_share() -> Finding:
    first = encoder_layer(128, 512) + decoder_layer(128, 128, 512)
    share = Fraction(decoder_layer(128, 128, 512), first)
    return Finding(share, f"one layer each: {first:,} operations for one language, {share} of that for the next")


def second_weights() -> Finding:
    points = []
    for k in (8, 64):
        layer = [empty(k, k) for _ in range(8)] + [empty(k, 4 * k), empty(4 * k, k)]
        points.append(IntervalAt({"k": k}, sum(w.numel() for w in layer), sum(w.numel() for w in layer)))
    return Finding(points, "the sizes of the ten matrices added up")


def encoded(x_ND: Tensor, w_DD: Tensor) -> Tensor:
    h = (x_ND @ w_DD)[None, None]
    result: Tensor = reference.attend_reference(h, h, h, FULL)[0, 0]
    return result


@dataclass(frozen=True)
class Translator(Pattern):
    """Who sees whom in an encoder and a decoder: all see the `source` tokens in front, the target also its past."""

    source: int

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (s < self.source) | ((s <= t) & (t >= self.source))


def by_the_target(pattern: Pattern) -> float:
    """The largest derivative of the source's results after two layers by a target token."""
    x_ND, y_MD = drawn(5, 4), drawn(3, 4, seed=2)
    jacobian = torch.autograd.functional.jacobian(lambda y: two_layers(torch.cat([x_ND, y]), pattern)[1][:5], y_MD)
    return float(jacobian.abs().max())


def decoder_in_encoder() -> Finding:
    apart, mixed = by_the_target(Translator(5)), by_the_target(FULL)
    return Finding(
        verdict(apart == 0),
        "two layers: the largest derivative of a source token's result by a target "
        f"token is {apart}; were all to see all it would be {mixed:.2f}",
        "exactly 0",
    )


def no_gradient() -> Finding:
    x, y, w = drawn(5, 4), drawn(3, 4, seed=2), drawn(4, 4, seed=3).requires_grad_()
    memory = encoded(x, w)
    loss = reference.attend_reference(y[None, None], memory[None, None], memory[None, None]).square().sum()
    largest = float(torch.autograd.grad(loss, w)[0].abs().max())
    return Finding(
        verdict(largest == 0),
        f"the largest derivative of the decoder's loss by an encoder's weight is {largest:.1f}",
        "exactly 0",
    )


def source_in_front() -> Finding:
    masked, mixed = by_the_target(CAUSAL), by_the_target(FULL)
    return Finding(
        verdict(mixed == 0, masked == 0),
        f"the largest derivative by the target is {mixed:.2f} where all see all, {masked} under the mask",
        "exactly 0",
    )


NMK = {"N": "whole", "M": "whole", "k": "whole"}
ENCODER_DECODER = Exercise(
    id="encoder-decoder-cost",
    title="What encoder, cross and decoder layers cost",
    question="A translator of width k reads N source tokens and writes M target tokens. Its networks between attention "
    "have the inner width 4k. Count the operations of products, multiplication and addition, hidden pairs included.",
    answer="An encoder layer takes `24*N*k^2 + 4*N^2*k`: projections 8, network 16, pairs. Cross attention takes `4*(M "
    "+ N)*k^2 + 4*N*M*k`, a decoder layer with it `28*M*k^2 + 4*N*k^2 + 4*M^2*k + 4*N*M*k`. The famous `N^2*k` is most "
    "of an encoder layer only from N = 6 k on; at k = 512 that is 3,072 tokens. The encoder never sees the target, so "
    "it runs once for any number of target words or languages: a second language costs a decoder's run, 34/59 of the "
    "first at N = M = 128.",
    figure=lambda: lines(
     [Series(f"k = {k}", [(n, 4 * n * n * k / (24 * n * k * k + 4 * n * n * k)) for n in (2**i for i in range(4,
     18))])
      for k in (64, 512, 4096)],
     "The share of the pairs in an encoder layer's cost: one half at N = 6k.", ("tokens N", "share"), log_x=True),
    parts=[
        Part("encoder", "What does an encoder layer cost?", Formula("24*N*k^2 + 4*N^2*k", {"N": "whole", "k": "whole"}),
             "counted", encoder_cost,
             why="Four projections `8*N*k^2`, two products with all pairs `4*N^2*k`, a network `16*N*k^2`.",
             wrong={"only the pairs": "4*N^2*k", "left out the network": "8*N*k^2 + 4*N^2*k",
                    "counted a multiplication and an addition as one": "12*N*k^2 + 2*N^2*k"}),
        Part("cross", "What does cross attention cost, with its four projections?",
             Formula("4*M*k^2 + 4*N*k^2 + 4*N*M*k", NMK), "counted", cross_cost,
             why="Queries and results are of the target, keys and values of the source.",
             wrong={"projected only target tokens": "8*M*k^2 + 4*N*M*k", "only the pairs": "4*N*M*k",
                    "paired the target with itself": "4*M*k^2 + 4*N*k^2 + 4*M^2*k"}),
        Part("decoder", "What does a decoder layer cost: self-attention, cross attention, network?",
             Formula("28*M*k^2 + 4*N*k^2 + 4*M^2*k + 4*N*M*k", NMK), "counted", decoder_cost,
             why="`8*M*k^2 + 4*M^2*k`, then cross attention, then `16*M*k^2`.",
             wrong={"forgot cross attention": "24*M*k^2 + 4*M^2*k",
                    "forgot self-attention": "20*M*k^2 + 4*N*k^2 + 4*N*M*k"}),
        Part("overtakes", "From which N on is `4*N^2*k` more than half of an encoder layer?",
             Formula("6*k", {"k": "whole"}), "counted", pairs_overtake,
             why="The pairs are half where they cost as much as the rest, `4*N^2*k = 24*N*k^2`; divide by `4*N*k`.",
             wrong={"compared only the powers": "k", "thought of pairs as always most": "1"},
             only_if={"the layer has no network": "2*k"}),
        Part("square", "Twice as many tokens make an encoder layer four times as dear.", Truth("nearly",
             only_if="N is many times 6k, so that the pairs are nearly all of the cost"), "counted", growth,
             why="The factor is `2*(24*k + 8*N)/(24*k + 4*N)`: 2 for short texts, 3 at N = 6k, 4 only in the limit.",
             wrong={"thought of the pairs alone": True}),
        Part("second", "N = M = 128, k = 512, one layer each. What share of the first translation's cost does a "
             "translation into a second language with its own decoder add?", Number("34/59", rel=1e-9), "counted",
             second_share, why="`(32*k + 8*N)/(56*k + 12*N)`: the encoder's results are there already.",
             wrong={"ran the encoder again": 1, "left out the pairs": "4/7", "halved the cost": 0.5}),
        Part("weights", "How many weights does the second language's own decoder layer add, without biases and norms?",
             Formula("16*k^2", {"k": "whole"}), "counted", second_weights,
             why="Four matrices for self-attention, four for cross attention, and two of k by 4k.",
             wrong={"forgot cross attention": "12*k^2", "counted the encoder too": "28*k^2"},
             only_if={"both languages share one decoder, and a token names the language": "k"}),
        Part("independent", "What the encoder computes does not depend on the target.", Truth("true"), "autograd",
             decoder_in_encoder, why="Cross attention reads from the encoder, and nothing goes back.",
             wrong={"took the arrow of cross attention the wrong way round": False}),
        Part("gradient", "So the decoder's loss has no gradient by the encoder's weights.", Truth("false"), "autograd",
             no_gradient,
             why="The values flow one way, the gradients the other: the encoder is trained by the decoder's loss.",
             wrong={"took independence of the values for independence of the gradients": True}),
        Part("prefix", "In one network that reads source and target in a row, the source's results do not depend on "
             "the target either.", Truth("nearly", only_if="the source's tokens may not look at the target's, as under "
             "a causal mask"), "numeric", source_in_front,
             why="A mask makes the source an encoder; without it everything is mixed.",
             wrong={"took reading from left to right for a mask": True}),
    ],
)  # fmt: skip

EXERCISES = (ENCODER_DECODER,)
