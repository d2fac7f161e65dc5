"""The settings of a transformer: its size, and which part stands in each place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from octavo.config import Context, Heads, Layers, Length, LengthOrZero, Range, Share, Width, check_ranges
from octavo.errors import UserError
from octavo.models.parts.checks import check_choices
from octavo.ops.attention.kinds import (
    ATTENTION_KINDS,
    AttentionKind,
    attention_kind,
    cache_length,
    kinds_with,
    text_pattern,
)
from octavo.ops.attention.patterns import Pattern

ABSOLUTE_POSITIONS = ("learned", "sinusoidal")

RENAMED_FEED_FORWARD = {"feed": "feed_forward", "feed_width": "feed_forward_width"}  # settings of version 0.1


SHARED_SETTINGS = (
    "width", "layers", "heads", "context", "positions", "norm", "norm_eps", "bias", "qk_norm", "feed_forward",
    "feed_forward_width", "dropout", "init",
)  # fmt: skip


def shared_parts(config: Any, **others: Any) -> GPTConfig:
    """The settings of the parts that all transformers share: those that a config has itself, and others."""
    return GPTConfig(**{name: getattr(config, name) for name in SHARED_SETTINGS if hasattr(config, name)} | others)


@dataclass(frozen=True)
class GPTConfig:
    """How a transformer is made."""

    RENAMED: ClassVar[dict[str, str]] = {"mix": "attention", "reach": "attention_window"} | RENAMED_FEED_FORWARD

    width: Width = 128
    """The size of a token's vector."""
    layers: Layers = 4
    """Number of blocks, each of attention and a feed-forward layer."""
    heads: Heads = 4
    """Number of attention heads, each with its share of the width."""
    kv_heads: Annotated[int, Range(0, 1 << 12)] = 0
    """Heads of keys and values: fewer than heads is grouped-query attention; 0: as many as heads."""
    context: Context = 64
    """Context length: tokens that a token attends to, itself included."""
    stride: LengthOrZero = 0
    """How far a full context moves, its rest being read again; 0: token by token, or where it cannot, by half of it."""
    attention: str = "full"
    """Attention kind: full, local, strided, block, global (patterns), latent, linear, dense, random (synthesizers)."""
    attention_window: Length = 32
    """local: the last so many tokens; strided: and every so many-th before; block: its size; global: and the first."""
    features: Literal["elu", "relu", "random"] = "elu"
    """linear: the feature map; random are positive random features, which estimate softmax attention."""
    head_decay: Literal["none", "fixed"] = "none"
    """linear: fixed: a token leaves 1/2 of the first head's sums, 7/8 of the next one's, 31/32, ...; none: all."""
    latent_width: Annotated[int, Range(0, 1 << 16)] = 0
    """latent: the size of the vector that keys and values of a token are made from; 0: half of the width."""
    positions: Literal["rotary", "learned", "sinusoidal", "alibi", "none"] = "rotary"
    """Position encoding."""
    rotary_base: Annotated[float, Range(1, 1e15, above=True)] = 10000.0
    """rotary: the base of the frequencies (theta)."""
    qk_norm: bool = True
    """RMS norm of queries and keys, or latents; --no-qk-norm: no norm, as in GPT-2."""
    feed_forward: Literal["gelu", "gelu-exact", "relu2", "gated"] = "gated"
    """The feed-forward layer: an MLP with GELU (tanh or exact) or squared ReLU, or gated (SwiGLU)."""
    feed_forward_width: Annotated[int, Range(0, 1 << 20)] = 0
    """Its inner width; 0: four times the width, or 8/3 times if gated."""
    experts: Annotated[int, Range(0, 1 << 10)] = 0
    """Mixture of experts: feed-forward layers of a block, a few of which process each token; 0: one for all tokens."""
    experts_per_token: Annotated[int, Range(1, 1 << 10)] = 2
    """experts: how many of them process each token."""
    norm: Literal["rms", "layer"] = "rms"
    """The norm before each part."""
    norm_eps: Annotated[float, Range(0, 1.0, above=True)] = 1e-5
    """Added to the mean square, for numerical stability."""
    bias: bool = False
    """Biases in products and norms, as GPT-2 has them; synthesizers, latents, gated layers and RMS norms have none."""
    tied: bool = True
    """Take the embeddings as output weights too; --no-tied gives the output weights of its own."""
    dropout: Share = 0.0
    """Dropout: of embeddings, and of what each part adds to the residual stream."""
    init: Literal["zero", "gpt2"] = "zero"
    """zero: what each part adds is nothing at first. gpt2: normal with deviation 0.02, less where parts add up."""
    begin: Annotated[int, Range(-1, 1 << 24)] = -1
    """The token that opens a sequence; -1: the tokenizer's, or the last."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)
        kind = attention_kind(self.attention, "text")
        self._check_heads()
        if not 0 <= self.stride <= self.context - 1:
            raise UserError(
                f"stride must be below context: stride={self.stride}, context={self.context}; try --stride 0"
            )
        if self.positions == "alibi" and kind.family not in ("softmax", "latent"):
            raise UserError(
                f"alibi belongs to scores, which attention={self.attention} has none of; try --positions none"
            )
        if self.positions == "sinusoidal" and self.width % 2:
            raise UserError(
                f"sinusoidal positions are pairs, so width must be even: {self.width}; try --width {self.width + 1}"
            )
        if 0 < self.experts < self.experts_per_token:
            raise UserError(
                f"experts_per_token must be at most experts: experts={self.experts}, "
                f"experts_per_token={self.experts_per_token}; try --experts-per-token {self.experts}"
            )
        if self.absolute and self.context < 2:
            raise UserError("a context that is read again must have at least 2 tokens: context=1; try --context 64")

    def check_use(self) -> None:
        """Refuse settings that nothing reads, before a model is trained: whoever gives them expects something."""
        for name in ("attention_window", "features", "head_decay", "latent_width"):
            kinds = kinds_with(name)
            if self.attention not in kinds and getattr(self, name) != getattr(type(self), name):
                raise UserError(
                    f"{name} belongs to attention {' or '.join(kinds)}: attention={self.attention}, "
                    f"{name}={getattr(self, name)}; "
                    f"leave it out, or try --attention {kinds[0]}"
                )

        if not self.experts and self.experts_per_token != type(self).experts_per_token:
            raise UserError(
                f"experts_per_token belongs to a mixture of experts: experts=0, experts_per_token="
                f"{self.experts_per_token}; leave it out, or try --experts 8"
            )

    def _check_heads(self) -> None:
        if self.width % self.heads:
            near = [h for h in range(1, self.width + 1) if self.width % h == 0 and h <= 2 * self.heads][-2:]
            tries = " or ".join(f"--heads {h}" for h in near)
            raise UserError(f"heads must divide width: width={self.width}, heads={self.heads}; try {tries}")
        if self.kv_heads < 0 or self.heads % (self.kv_heads or self.heads):
            raise UserError(
                f"kv_heads must divide heads: heads={self.heads}, kv_heads={self.kv_heads}; try --kv-heads 1, or 0"
            )
        if self.kind.family == "latent" and self.kv_heads:
            raise UserError(
                f"latent attention makes keys and values of every head from one latent: kv_heads={self.kv_heads}; "
                "leave it out, and try --latent-width"
            )
        if self.positions == "rotary" and self.rotary_size % 2:
            even = [h for h in range(1, self.heads) if self.width % (2 * h) == 0][-1:]
            raise UserError(
                f"rotary positions turn pairs, so width / heads must be even: {self.width} / {self.heads}; "
                f"try {''.join(f'--heads {h} or ' for h in even)}--positions none"
            )

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def rotary_size(self) -> int:
        """How many numbers of a query or key rotary positions turn: all, or of latent attention a part of its own."""
        if self.positions != "rotary" or self.kind.family == "synthesizer":
            return 0
        return max(2, self.head_size // 4 * 2) if self.kind.family == "latent" else self.head_size

    @property
    def latent(self) -> int:
        """The width of latent attention's latents."""
        return self.latent_width or max(1, self.width // 2)

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def inner(self) -> int:
        """The feed-forward layer's inner width."""
        if self.feed_forward_width:
            return self.feed_forward_width
        return (8 * self.width // 3 + 7) // 8 * 8 if self.feed_forward == "gated" else 4 * self.width

    @property
    def absolute(self) -> bool:
        """Whether positions are counted from the beginning of a context, so that a full one must be read again."""
        return self.stride > 0 or self.positions in ABSOLUTE_POSITIONS or not self.kind.relative

    @property
    def moves(self) -> int:
        """How far an absolute context moves when it is full."""
        return self.stride or max(1, self.context // 2)

    @property
    def cached(self) -> int:
        """The length of the KV cache where positions are relative."""
        return cache_length(self.kind, self.context, self.attention_window)

    @property
    def cached_tokens(self) -> int:
        """How many tokens a cache holds: where positions are absolute, those of the context that is being read."""
        return self.context if self.absolute else self.cached

    @property
    def kind(self) -> AttentionKind:
        return ATTENTION_KINDS[self.attention]

    @property
    def pattern(self) -> Pattern:
        """Which earlier tokens a token attends to, by softmax attention."""
        return text_pattern(self.kind, self.context, self.attention_window)
