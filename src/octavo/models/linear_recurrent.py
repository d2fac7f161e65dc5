"""Linear recurrent language models: blocks of a recurrence without a matrix or a tanh between states, and an MLP.

B batch, T tokens, N = B × T, V vocabulary, D width, E units of a state, F inner width of the MLP, K taps of the short
convolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

from torch import Tensor, nn

from octavo.config import Layers, Range, Share, Width, check_ranges
from octavo.errors import UserError
from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear, output, repeated
from octavo.models.cost.transformer import feed_forward_part, feed_forward_saved, norms
from octavo.models.parts.block import Block, in_product_precision
from octavo.models.parts.checks import check_choices
from octavo.models.parts.config import GPTConfig
from octavo.models.parts.feed_forward import FEED_FORWARDS, Norm
from octavo.models.parts.linear_recurrence import MIXERS
from octavo.models.recurrent import Embedded, gates_view, layers_of, short_budget
from octavo.models.spec import Candidate, ModelSpec
from octavo.models.views import GRADIENT_FLOW, Tap

State = tuple[tuple[Tensor, Tensor], ...]  # of each block
Taps = Annotated[int, Range(1, 64)]
Radius = Annotated[float, Range(0, 1.0, above=True, below=True)]


def check_order(config: Any, low: str, high: str) -> None:
    """Refuse a range that is empty."""
    least, most = getattr(config, low), getattr(config, high)
    if least >= most:
        flag = low.replace("_", "-")
        raise UserError(f"{low} must be below {high}: {low}={least}, {high}={most}; try --{flag} {most / 2:g}")


@dataclass(frozen=True)
class LinearRecurrentConfig:
    """What all linear recurrent networks have."""

    init: ClassVar[str] = "zero"  # what each part adds is nothing at first, as in a transformer with --init zero

    width: Width = 192
    """The size of a token's vector."""
    layers: Layers = 3
    """How many blocks, each of a recurrence and a feed-forward layer."""
    state_width: Annotated[int, Range(0, 1 << 18)] = 0
    """Units of each block's state; 0: as many as width."""
    feed_forward_width: Annotated[int, Range(0, 1 << 20)] = 0
    """The inner width of the gated feed-forward layer (SwiGLU); 0: 8/3 times the width."""
    dropout: Share = 0.0
    """Dropout: of embeddings, of what each part adds, and before the output."""
    tied: bool = True
    """Take the embeddings as output weights too; --no-tied gives the output weights of its own."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)

    @property
    def units(self) -> int:
        """E, the units of a state."""
        return self.state_width or self.width

    @property
    def parts(self) -> GPTConfig:
        """The settings of norms and feed-forward layers, which transformers have too."""
        return GPTConfig(
            width=self.width, layers=self.layers, heads=1, positions="none", dropout=self.dropout,
            feed_forward_width=self.feed_forward_width,
        )  # fmt: skip


@dataclass(frozen=True)
class MinGRUConfig(LinearRecurrentConfig):
    """How a minGRU is made."""

    convolution: Taps = 4
    """Tokens that the convolution before the recurrence sees, unit by unit; 1: the token alone."""


@dataclass(frozen=True)
class MinLSTMConfig(MinGRUConfig):
    """How a minLSTM is made."""

    forget_bias: Annotated[float, Range(-1000, 1000.0)] = 1.0
    """The bias the forget gate starts with, so that the state at first remembers."""


@dataclass(frozen=True)
class RGLRUConfig(MinGRUConfig):
    """How a network of real-gated linear recurrent units is made."""

    smallest_share: Radius = 0.05
    """The smallest share of a unit's state that is left after a token at first, where its gate is open."""
    largest_share: Radius = 0.99
    """The largest such share."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order(self, "smallest_share", "largest_share")


@dataclass(frozen=True)
class LRUConfig(LinearRecurrentConfig):
    """How a network of linear recurrent units is made."""

    smallest_radius: Radius = 0.5
    """The smallest |λ| at first: the share of a unit's state that is left after a token."""
    largest_radius: Radius = 0.99
    """The largest |λ| at first."""
    largest_phase: Annotated[float, Range(0, 6.2832, above=True)] = 6.2832
    """The largest angle of λ at first, which says how quickly a state turns; small ones suit long dependencies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order(self, "smallest_radius", "largest_radius")


class RecurrentBlock(Block):
    """x + recurrence(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, kind: str, config: LinearRecurrentConfig) -> None:
        super().__init__(config.parts)
        self.config = config
        self.norm1 = Norm(config.parts)
        self.mixer: Any = MIXERS[kind](config)
        self.norm2 = Norm(config.parts)
        self.feed_forward: Any = FEED_FORWARDS[config.parts.feed_forward](config.parts)

    def initialise(self, config: Any, generator: Any) -> None:
        self.mixer.initialise(config, generator)
        for part in (self.norm1, self.norm2, self.feed_forward):
            part.initialise(config.parts, generator)

    def apply_parts(self, mix: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The stream after the block, and the recurrence's new state; `mix` is the mixer's absorb or step."""
        y, state = mix(self.norm1(x), state)
        x = x + self.drop(y)
        return x + self.drop(self.feed_forward(self.norm2(x))), state


class LinearRecurrent(Embedded):
    """What the four networks share: a stack of blocks, and a norm before the output."""

    kind: ClassVar[str]
    config: LinearRecurrentConfig
    default_batch_shape = (4096, 64)  # of a window of tokens in parallel, twice as many take no more calls

    def __init__(self, config: LinearRecurrentConfig, vocab: int) -> None:
        super().__init__(config, vocab)
        self.blocks: Any = nn.ModuleList(RecurrentBlock(self.kind, config) for _ in range(config.layers))
        self.norm = Norm(config.parts)

    def initialise(self, generator: Any) -> None:
        super().initialise(generator)
        for block in self.blocks:
            block.initialise(self.config, generator)
        self.norm.initialise(self.config.parts, generator)

    def start(self, batch: int) -> State:
        return tuple(block.mixer.start(batch) for block in self.blocks)

    def step(self, state: State, x_B: Tensor) -> tuple[Tensor, State]:
        x_BD, after = in_product_precision(self.embed(x_B)), []
        for block, before in zip(self.blocks, state, strict=True):
            x_BD, last = block.apply_parts(block.mixer.step, x_BD, before)
            after.append(last)
        return self.logits(self.drop(self.norm(x_BD))), tuple(after)

    def absorb(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        x_BTD, after = in_product_precision(self.embed(x_BT)), []
        for block, before in zip(self.blocks, state, strict=True):
            x_BTD, last = block.apply_parts(block.mixer.absorb, x_BTD, before)
            after.append(last)
        return self.logits(self.drop(self.norm(x_BTD))), tuple(after)

    def name_state_parts(self, parts: list[Tensor]) -> dict[str, list[Tensor]]:
        """A state's tensors, or gradients with respect to them, by name: all, and layer by layer."""
        named = {"state": parts}
        if (layers := len(parts) // 2) > 1:
            named |= {f"layer {l + 1}": parts[2 * l : 2 * l + 2] for l in range(layers)}
        return named


class MinGRU(LinearRecurrent):
    """A GRU whose gate and candidate do not see the state."""

    kind = "mingru"


class MinLSTM(LinearRecurrent):
    """An LSTM whose gates and candidate do not see the state, and which has one state, not two."""

    kind = "minlstm"


class LRU(LinearRecurrent):
    """Complex states, each turned and shrunk by the same number at every token."""

    kind = "lru"


class RGLRU(LinearRecurrent):
    """Real states that a gate shrinks, beside a branch that gates what is read."""

    kind = "rglru"


HIDDEN = Tap("hidden", "the state", signed=True, unbounded=True)
CANDIDATE = Tap("candidate", "what could be stored", signed=True, unbounded=True)
TAPS: dict[str, tuple[Tap, ...]] = {
    "mingru": (Tap("update", "how much of the state is replaced by the candidate"), CANDIDATE, HIDDEN),
    "minlstm": (
        Tap("input", "how much of the candidate is let in"), Tap("forget", "how much of the state is retained"),
        CANDIDATE, HIDDEN,
    ),
    "lru": (HIDDEN,),
    "rglru": (
        Tap("recurrence", "how quickly the state is forgotten"), Tap("input", "how much of the input is let in"),
        Tap("retained", "how much of the state is retained"), HIDDEN,
    ),
}  # fmt: skip
EQUATIONS: dict[str, str] = {
    "mingru": """z_t = σ(W_z u_t + b_z)
n_t = W_n u_t + b_n
h_t = (1 - z_t) ⊙ h_{t-1} + z_t ⊙ n_t
y_t = O h_t, u_t the short convolution of norm(x_t)""",
    "minlstm": """f_t = σ(W_f u_t + b_f)
i_t = σ(W_i u_t + b_i)
n_t = W_n u_t + b_n
h_t = f_t / (f_t + i_t) ⊙ h_{t-1} + i_t / (f_t + i_t) ⊙ n_t
y_t = O h_t, u_t the short convolution of norm(x_t)""",
    "lru": """h_t = λ ⊙ h_{t-1} + γ ⊙ B norm(x_t), with λ = exp(-exp(ν) + i exp(θ))
y_t = Re(C h_t) + d ⊙ norm(x_t)""",
    "rglru": """r_t = σ(W_r u_t + b_r)
i_t = σ(W_i u_t + b_i)
a_t = σ(-Λ)^(8 r_t)
h_t = a_t ⊙ h_{t-1} + √(1 - a_t²) ⊙ i_t ⊙ u_t
y_t = O (GELU(G norm(x_t)) ⊙ h_t), u_t the short convolution of U norm(x_t)""",
}
READ_OUT = """x_t ← x_t + y_t
x_t ← x_t + MLP(norm(x_t))
p(token_{t+1} | token_1 .. token_t) = softmax(E norm(x_t) + b)"""


def mixer_cost(kind: str, config: Any, shape: Shape) -> tuple[Part, Cache]:
    """A block's recurrence, and the sums in its state: products with weights, and what each equation saves."""
    N, B, D, E = shape.tokens, shape.batch, config.width, config.units
    if kind == "lru":
        saved = 4 * N * E + 2 * B * E + 6 * E  # B x and h, both complex; the state before; λ, γ and what they come from
        part = linear("recurrence", N, [(2 * E, D), (D, 2 * E)], bias=3 * E + D, saved=saved)
        return part, Cache(constant=2 * E, least_size=4)
    P, W = config.convolution - 1, convolved_width(kind, config)
    shapes, bias, values = {
        "mingru": ([(E, D)] * 2 + [(D, E)], 2 * E, 4),  # z, n, a and h
        "minlstm": (
            [(E, D)] * 3 + [(D, E)],
            3 * E,
            8,
        ),  # of both logarithms three, then f, i, n and h, less what is one
        "rglru": ([(E, D)] * 2 + [(E, E)] * 2 + [(D, E)], 3 * E, 11),  # r, i, a, the root's, h, the gate's, products
    }[kind]
    saved = values * N * E + B * E + (E if kind == "rglru" else 0)
    saved += B * P * W + (2 if kind == "rglru" else 1) * N * W  # what is convolved is the norm's result, or one more
    mixer = linear("recurrence", N, shapes, bias, saved)
    return mixer + Part("", (P + 2) * W, read=(P + 2) * W), Cache(constant=E, least_size=4)


def convolved_width(kind: str, config: Any) -> int:
    """The width at which a block's short convolution stands."""
    return config.units if kind == "rglru" else config.width  # type: ignore[no-any-return]


def linear_recurrent_cost(kind: str, config: Any, V: int, shape: Shape) -> Cost:
    """Every part, those of all blocks together, and the state."""
    N, D, L = shape.tokens, config.width, config.layers
    dropped = N * D if config.dropout else 0
    mixer, state = mixer_cost(kind, config, shape)
    feed_forward = feed_forward_part(config.parts, N, feed_forward_saved(config.parts, N) + dropped)
    parts = (
        Part("embeddings", V * D, saved=dropped),
        repeated(replace(mixer, saved=mixer.saved + dropped), L),
        repeated(feed_forward, L),
        norms(config.parts, 2 * L + 1, (2 * L + 1) * N * (2 * D + 1)),
        replace(output(N, V, D, config.tied, bias=V), saved=dropped, saved_bytes=N * (4 * V + 8) + 4),
    )
    state = replace(state, constant=L * state.constant)
    past = () if kind == "lru" else (Cache(constant=L * (config.convolution - 1) * convolved_width(kind, config)),)
    return Cost(kind, V, shape, parts, (state, *past))


def _spec(model: type[LinearRecurrent], config: type, title: str, description: str) -> ModelSpec:
    kind = model.kind
    return ModelSpec(
        kind, title, description, "recurrent", model, config, cost=partial(linear_recurrent_cost, kind),
        views=(gates_view(*TAPS[kind]), GRADIENT_FLOW),
        candidates=lambda seconds, device: [
            Candidate(kind, title, kind, short_budget(seconds), only_if_named=kind != "mingru")
        ],
        summarise=lambda model, tokens:
            f"{title} of {tokens}, {layers_of(model.config.layers)} of {model.config.width}",
        equation=f"{EQUATIONS[kind]}\n{READ_OUT}",
    )  # fmt: skip


MINGRU_SPEC = _spec(MinGRU, MinGRUConfig, "minGRU", "a GRU whose gate sees the tokens alone, so that all train at once")
MINLSTM_SPEC = _spec(MinLSTM, MinLSTMConfig, "minLSTM", "an LSTM whose gates see the tokens alone")
LRU_SPEC = _spec(LRU, LRUConfig, "LRU", "a linear recurrent unit: complex states, the same recurrence at every token")
RGLRU_SPEC = _spec(RGLRU, RGLRUConfig, "RG-LRU", "a real-gated linear recurrent unit, as in Griffin and Hawk")
