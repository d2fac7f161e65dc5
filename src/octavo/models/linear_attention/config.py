"""The settings of the linear recurrent models: what they share, and what one of them has besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from octavo.config import Heads, Layers, Range, Share, Width, check_ranges
from octavo.errors import UserError
from octavo.models.parts.checks import check_choices
from octavo.models.parts.config import GPTConfig, shared_parts

FeedForward = Literal["gated", "gelu", "gelu-exact", "relu2", "none"]
Convolution = Annotated[int, Range(0, 256)]


@dataclass(frozen=True)
class LinearAttentionConfig:
    """How a linear recurrent model is made."""

    width: Width = 128
    """The size of a token's vector."""
    layers: Layers = 4
    """Number of blocks, each of a recurrent mixer and a feed-forward layer."""
    heads: Heads = 4
    """Number of heads, each with a state of its own and its share of the width."""
    convolution: Convolution = 4
    """Short convolution: what the mixer reads is made of the last so many tokens; 0: of each token alone."""
    feed_forward: FeedForward = "gated"
    """The feed-forward layer: gated (SwiGLU), an MLP with GELU (tanh or exact) or squared ReLU, or none."""
    feed_forward_width: Annotated[int, Range(0, 1 << 20)] = 0
    """Its inner width; 0: four times the width, or 8/3 times if gated."""
    norm_eps: Annotated[float, Range(0, 1.0, above=True)] = 1e-5
    """Added to the mean square, for numerical stability."""
    tied: bool = True
    """Take the embeddings as output weights too; --no-tied gives the output weights of its own."""
    dropout: Share = 0.0
    """Dropout: of embeddings, and of what each part adds to the residual stream."""
    begin: Annotated[int, Range(-1, 1 << 24)] = -1
    """The token that opens a sequence; -1: the tokenizer's, or the last."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)
        if self.inner % self.heads:
            near = [h for h in range(1, self.inner + 1) if self.inner % h == 0 and h <= 2 * self.heads][-2:]
            tries = " or ".join(f"--heads {h}" for h in near)
            raise UserError(f"heads must divide {self.inner_rule}, heads={self.heads}; try {tries}")

    @property
    def inner(self) -> int:
        """The width of all heads together."""
        return self.width

    @property
    def inner_rule(self) -> str:
        return f"width: width={self.width}"

    @property
    def head_size(self) -> int:
        return self.inner // self.heads

    @property
    def past(self) -> int:
        """How many earlier tokens the convolution needs."""
        return max(0, self.convolution - 1)

    @property
    def absolute(self) -> bool:
        """Positions are never counted from the beginning of a context: there is none."""
        return False

    @property
    def parts(self) -> GPTConfig:
        """The settings of the parts that transformers have too: norms, the feed-forward layer."""
        kind = "gated" if self.feed_forward == "none" else self.feed_forward
        return shared_parts(self, heads=1, feed_forward=kind, positions="none")


@dataclass(frozen=True)
class RetentionConfig(LinearAttentionConfig):
    """How a retentive network is made."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_size % 2:
            even = [h for h in range(1, self.heads) if self.width % (2 * h) == 0][-1:]
            raise UserError(
                f"retention turns pairs, so width / heads must be even: {self.width} / {self.heads}; "
                f"try {f'--heads {even[0]}' if even else f'--width {2 * self.width}'}"
            )


@dataclass(frozen=True)
class GatedLinearConfig(LinearAttentionConfig):
    """How a model of gated linear attention is made."""

    decay_rank: Annotated[int, Range(1, 1 << 12)] = 16
    """The width through which the decays of all channels are computed."""


@dataclass(frozen=True)
class Mamba2Config(LinearAttentionConfig):
    """How a Mamba-2 model is made."""

    layers: Layers = 8
    """Number of blocks, each of a mixer alone, unless it has a feed-forward layer."""
    feed_forward: FeedForward = "none"
    """The feed-forward layer: gated (SwiGLU), an MLP with GELU (tanh or exact) or squared ReLU, or none."""
    expand: Annotated[int, Range(1, 64)] = 2
    """The mixer's inner width, in widths."""
    state_size: Width = 32
    """The size of keys and queries (B and C), which all heads share."""

    @property
    def inner(self) -> int:
        return self.expand * self.width

    @property
    def inner_rule(self) -> str:
        return f"expand times width: expand={self.expand}, width={self.width}"
