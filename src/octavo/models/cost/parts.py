"""What a part of a model costs: parameters, products, and what is saved for the backward pass.

B rows of a batch, T tokens of a row at once, P tokens before them, S = P + T, N = B × T tokens in all.

A product of (N, I) with (I, O) takes 2 N I O floating-point operations: a multiplication and an addition each. Only
products are counted, as PyTorch's counter does; what is done number by number (norms, activations, softmax) is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from octavo.models.parts.checks import check_not_negative, check_positive

Kernel = Literal["fused", "plain"]


@dataclass(frozen=True)
class Shape:
    """How many tokens are worked on at once."""

    batch: int = 1
    """B, rows."""
    window: int = 1
    """T, tokens of a row."""
    past: int = 0
    """P, tokens of a row that were read before."""
    text: int = 0
    """Tokens of the whole text: bounds the tables of a model that counts it; 0: not known."""
    kernel: Kernel = "fused"
    """fused: attention never holds its weights and computes them twice; plain: as the equations stand."""
    source: int = 0
    """Of an encoder-decoder: tokens of the source of a row; the window is then of each target."""
    languages: int = 1
    """Of an encoder-decoder: targets of each source."""

    def __post_init__(self) -> None:
        check_positive("batch", self.batch, 8)
        check_positive("window", self.window, 8)
        check_not_negative("past", self.past, "try 0")

    @property
    def tokens(self) -> int:
        """N."""
        return self.batch * self.window * self.languages


@dataclass(frozen=True)
class Part:
    """One part; operations and what is saved are of all N tokens together."""

    name: str
    parameters: int = 0
    matrices: int = 0
    """Those of the parameters that Muon changes: matrices that are no tables."""
    idle: int = 0
    """Those that one token does without: of experts that it is not routed to."""
    fixed: int = 0
    """Those that are drawn once and never learnt."""
    read: int = 0
    """Weights that a token cannot do without: all of a matrix, nothing of a table of which a token reads one row."""
    forward: int = 0
    """Operations of the products that are computed."""
    needed: int = 0
    """Operations of those that the result depends on: a pair of tokens that may not see each other needs none."""
    backward: int = 0
    saved: int = 0
    """Numbers saved for the backward pass, of the precision that products are computed in."""
    saved_bytes: int = 0
    """Bytes saved whatever the precision: indices, masks, sums in single precision."""
    copies: int = 0
    """Weights of which a copy is saved too, because they are put side by side for one product."""
    half_copies: int = 0
    """Weights of which a copy is saved where products are in half precision, those of `copies` included."""

    def __add__(self, other: Part) -> Part:
        """Both as one part, with this one's name."""
        numbers = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self)[1:])
        return Part(self.name, *numbers)


@dataclass(frozen=True)
class Cache:
    """What a row carries from token to token, in numbers."""

    per_token: int = 0
    tokens: int | None = None
    """How many tokens are remembered at most; None: all."""
    constant: int = 0
    least_size: int = 0
    """Bytes of a number, at least: sums are saved in single precision whatever the weights are in."""

    def bytes(self, past: int, size: int) -> int:
        """After so many tokens, with numbers of so many bytes."""
        tokens = past if self.tokens is None else min(past, self.tokens)
        return (self.constant + self.per_token * tokens) * max(size, self.least_size)


@dataclass(frozen=True)
class Cost:
    """A model's parts at one shape."""

    model: str
    vocab: int
    shape: Shape
    parts: tuple[Part, ...]
    caches: tuple[Cache, ...] = ()
    table_bytes: int = 0
    """Counts and probabilities in look-up tables, not learnt by gradients."""
    table_entries: int = 0
    """How many there are: one for each n-gram, or for each token's probability."""
    tables_at_most: bool = False
    """Whether the tables are those of the worst text, because the real one is not known."""
    unit: Literal["token", "image", "source"] = "token"
    """What its model reads one by one. Of images and sources, what is saved for the backward pass is not counted."""

    def total(self, what: str) -> int:
        """The sum of one quantity over the parts."""
        return sum(getattr(part, what) for part in self.parts)

    @property
    def parameters(self) -> int:
        return self.total("parameters")

    @property
    def active_parameters(self) -> int:
        """Those that process one token."""
        return self.parameters - self.total("idle")

    def per_token(self, what: str) -> float:
        return self.total(what) / self.shape.tokens

    @property
    def units(self) -> int:
        """Tokens, images or sources of the shape."""
        return self.shape.tokens if self.unit == "token" else self.shape.batch

    def cache_bytes(self, past: int, size: int) -> int:
        """What a row carries after so many tokens, with numbers of so many bytes."""
        return sum(cache.bytes(past, size) for cache in self.caches)

    @property
    def training_flops(self) -> int:
        """There and back."""
        return self.total("forward") + self.total("backward")


def linear(
    name: str, N: int, shapes_OI: Sequence[tuple[int, int]], bias: int = 0, saved: int = 0, muon: bool = True
) -> Part:
    """Products with weights: in the backward pass one as large for the input's gradient, and one for the weights'."""
    weights = sum(O * I for O, I in shapes_OI)
    forward = 2 * N * weights
    return Part(
        name, weights + bias, weights if muon else 0, read=weights + bias, forward=forward, needed=forward,
        backward=2 * forward, saved=saved, half_copies=weights,
    )  # fmt: skip


def attention_products(
    name: str, forward: int, needed: int, kernel: Kernel, saved: int = 0, saved_bytes: int = 0
) -> Part:
    """Scores and sums. A fused kernel does not save the weights, so the backward pass computes the scores again: five
    products for two.
    """
    backward = 2 * forward if kernel == "plain" else 5 * forward // 2
    return Part(name, forward=forward, needed=needed, backward=backward, saved=saved, saved_bytes=saved_bytes)


def output(N: int, V: int, D: int, tied: bool, bias: int = 0) -> Part:
    """The product with a row for each token of the vocabulary; tied, its weights are the embeddings'."""
    part = linear("output", N, [(V, D)], bias, muon=False)
    return replace(part, parameters=bias) if tied else part


def repeated(part: Part, times: int) -> Part:
    """The same part so many times."""
    return replace(part, **{f.name: times * getattr(part, f.name) for f in fields(part) if f.name != "name"})
