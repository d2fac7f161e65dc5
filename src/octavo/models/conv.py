"""Causal convolutions with gates and dilation: each layer sees K inputs, further apart the higher it stands.

B batch, T tokens, P tokens before, S = P + T, N = B × T, V vocabulary, D width, K taps of a kernel, C = K D.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Layers, Range, Share, Width, check_ranges
from octavo.errors import UserError
from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear, output, repeated
from octavo.models.cost.transformer import norms
from octavo.models.parts.block import in_product_precision
from octavo.models.parts.checks import check_choices
from octavo.models.parts.config import GPTConfig
from octavo.models.parts.feed_forward import Norm, zero
from octavo.models.recurrent import Embedded, gates_view, init_matrix, layers_of, short_budget
from octavo.models.spec import Candidate, ModelSpec
from octavo.models.views import GRADIENT_FLOW, Tap, TokenDetail, TokenTable, View
from octavo.ops.convolution import windows
from octavo.ops.tracing import tap

State = tuple[Tensor, ...]  # of each layer its last inputs, past_BPD
SCORED_TOKENS = 1 << 14  # by one call; more would only take memory
MAX_LOGITS = 1 << 25  # of one call: 128 MB
MAX_RECEPTIVE_FIELD = 1 << 20  # tokens: a state holds this many vectors


@dataclass(frozen=True)
class ConvConfig:
    """How a convolutional network is made."""

    init: ClassVar[str] = "zero"  # what each layer adds is nothing at first, as in a transformer with --init zero

    width: Width = 128
    """The size of a token's vector."""
    layers: Layers = 6
    """How many convolutions."""
    kernel: Annotated[int, Range(2, 1 << 10)] = 3
    """K: inputs that each convolution sees, the current token's included."""
    dilation: Annotated[int, Range(1, 1 << 10)] = 2
    """How many times as far apart these are in each layer as in the one below; 1: side by side in all."""
    cycle: Annotated[int, Range(0, 1 << 12)] = 0
    """After so many layers they stand side by side again; 0: never."""
    gate: Literal["tanh", "linear"] = "tanh"
    """What the gate is multiplied with: the tanh of a convolution (WaveNet), or the convolution itself (GLU)."""
    dropout: Share = 0.0
    """Dropout: of embeddings, of what each layer adds, and before the output."""
    tied: bool = True
    """Take the embeddings as output weights too; --no-tied gives the output weights of its own."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)
        if self.receptive_field > MAX_RECEPTIVE_FIELD:
            raise UserError(
                f"the receptive field must be at most {MAX_RECEPTIVE_FIELD:,} tokens: layers={self.layers}, "
                f"kernel={self.kernel}, dilation={self.dilation}, cycle={self.cycle}; try --cycle 8"
            )

    @property
    def dilations(self) -> list[int]:
        """Of each layer, how far apart its inputs are."""
        return [self.dilation ** (l % (self.cycle or self.layers)) for l in range(self.layers)]

    @property
    def receptive_field(self) -> int:
        """1 + Σ (K - 1) dilation."""
        return 1 + (self.kernel - 1) * sum(self.dilations)

    @property
    def norm(self) -> GPTConfig:
        """The settings of a norm."""
        return GPTConfig(width=self.width, heads=1, positions="none")


class ConvolutionLayer(nn.Module):
    """x + O (σ(a) ⊙ tanh(c)), where a and c are causal convolutions of norm(x)."""

    def __init__(self, config: ConvConfig, dilation: int) -> None:
        super().__init__()
        D, self.kernel, self.dilation = config.width, config.kernel, dilation
        self.tanh = config.gate == "tanh"
        self.norm = Norm(config.norm)
        self.gate_DC, self.candidate_DC = (nn.Parameter(torch.empty(D, config.kernel * D)) for _ in range(2))
        self.gate_bias_D, self.candidate_bias_D = (nn.Parameter(torch.empty(D)) for _ in range(2))
        self.out_DD = nn.Parameter(torch.empty(D, D))

    def initialise(self, config: ConvConfig, generator: torch.Generator) -> None:
        self.norm.initialise(config.norm, generator)
        init_matrix(self.gate_DC, "xavier", generator)
        init_matrix(self.candidate_DC, "xavier", generator)
        zero(self.gate_bias_D, self.candidate_bias_D, self.out_DD)

    def start(self, batch: int) -> Tensor:
        """Zeros before the text."""
        return self.out_DD.new_zeros(batch, (self.kernel - 1) * self.dilation, self.out_DD.shape[0])

    def absorb(self, x_BTD: Tensor, past_BPD: Tensor) -> tuple[Tensor, Tensor]:
        """What is added to the stream, and the inputs that tokens to come will see."""
        inputs_BSD = torch.cat([past_BPD.to(x_BTD.dtype), self.norm(x_BTD)], 1)
        y_BTD = self.combine(windows(inputs_BSD, self.kernel, self.dilation))
        return y_BTD, inputs_BSD[:, x_BTD.shape[1] :].to(past_BPD.dtype)

    def step(self, x_BD: Tensor, past_BPD: Tensor) -> tuple[Tensor, Tensor]:
        """The definition: every dilation-th of the inputs."""
        inputs_BSD = torch.cat([past_BPD.to(x_BD.dtype), self.norm(x_BD)[:, None]], 1)
        return self.combine(inputs_BSD[:, :: self.dilation].flatten(1)), inputs_BSD[:, 1:].to(past_BPD.dtype)

    def combine(self, window_C: Tensor) -> Tensor:
        z = tap("gate", F.linear(window_C, self.gate_DC, self.gate_bias_D).sigmoid())
        c = F.linear(window_C, self.candidate_DC, self.candidate_bias_D)
        c = tap("candidate", c.tanh() if self.tanh else c)
        return F.linear(z * c, self.out_DD)


class Conv(Embedded):
    """A stack of causal convolutions with a residual connection each, and a norm before the output."""

    config: ConvConfig
    default_batch_shape = (4096, 64)

    def __init__(self, config: ConvConfig, vocab: int) -> None:
        super().__init__(config, vocab)
        self.layers: Any = nn.ModuleList(ConvolutionLayer(config, dilation) for dilation in config.dilations)
        self.norm = Norm(config.norm)

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        for layer in self.layers:
            layer.initialise(self.config, generator)
        self.norm.initialise(self.config.norm, generator)

    def start(self, batch: int) -> State:
        return tuple(layer.start(batch) for layer in self.layers)

    def step(self, state: State, x_B: Tensor) -> tuple[Tensor, State]:
        x_BD, after = in_product_precision(self.embed(x_B)), []
        for layer, past_BPD in zip(self.layers, state, strict=True):
            y_BD, last_BPD = layer.step(x_BD, past_BPD)
            x_BD = x_BD + self.drop(y_BD)
            after.append(last_BPD)
        return self.logits(self.drop(self.norm(x_BD))), tuple(after)

    def absorb(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        x_BTD, after = in_product_precision(self.embed(x_BT)), []
        for layer, past_BPD in zip(self.layers, state, strict=True):
            y_BTD, last_BPD = layer.absorb(x_BTD, past_BPD)
            x_BTD = x_BTD + self.drop(y_BTD)
            after.append(last_BPD)
        return self.logits(self.drop(self.norm(x_BTD))), tuple(after)

    @property
    def receptive_field(self) -> int:
        return self.config.receptive_field

    @property
    def context_policy(self) -> str:
        return f"the last {self.config.receptive_field} tokens"

    @property
    def max_scored_tokens(self) -> int:
        return min(SCORED_TOKENS, MAX_LOGITS // self.vocab)


def conv_cost(config: ConvConfig, V: int, shape: Shape) -> Cost:
    """Every part, those of all layers together, and the inputs that are remembered."""
    N, D, L, K = shape.tokens, config.width, config.layers, config.kernel
    dropped = N * D if config.dropout else 0
    saved = N * (K + 3) * D + dropped  # the windows, the gate, the candidate, and what it lets through
    layer = linear("convolutions", N, [(D, K * D), (D, K * D), (D, D)], bias=2 * D, saved=saved)
    parts = (
        Part("embeddings", V * D, saved=dropped),
        repeated(layer, L),
        norms(config.norm, L + 1, (L + 1) * N * (D + 1) + N * D),  # of a layer's the result stands in the windows
        replace(output(N, V, D, config.tied, bias=V), saved=dropped, saved_bytes=N * (4 * V + 8) + 4),
    )
    return Cost("conv", V, shape, parts, (Cache(constant=(config.receptive_field - 1) * D),))


def seen_tokens(model: Any, x_N: list[int]) -> TokenTable:
    """How many tokens each prediction can depend on, begin among them, and how far apart a layer's inputs are."""
    most, kernel = model.config.receptive_field, model.config.kernel
    layers = tuple(
        (f"layer {l}", ", ".join(f"-{k * dilation}" if k else "0" for k in reversed(range(kernel))))
        for l, dilation in enumerate(model.config.dilations, 1)
    )
    seen = [min(n + 1, most) for n in range(len(x_N))]
    details = tuple(TokenDetail(n / most, f"predicted from {n} of at most {most} tokens", layers) for n in seen)
    return TokenTable("How many tokens each prediction can depend on.", ("layer", "inputs"), details)


SPEC = ModelSpec(
    "conv", "causal convolutions", "causal convolutions with gates and dilation", "convolution", Conv, ConvConfig,
    cost=conv_cost,
    views=(
        gates_view(Tap("gate", "how much of the candidate is let through"),
                   Tap("candidate", "what could be added", signed=True, unbounded=True)),
        GRADIENT_FLOW,
        View("field", "Receptive field", "token-table", seen_tokens),
    ),
    candidates=lambda seconds, device: [
        Candidate("conv", "causal convolutions", "conv", short_budget(seconds), only_if_named=True)
    ],
    summarise=lambda model, tokens:
        f"causal convolutions of {tokens}, {layers_of(model.config.layers)} of {model.config.width}, "
        f"over {model.config.receptive_field} tokens",
    equation="""u_t = norm(x_t), and δ the layer's dilation
z_t = σ(Σ_k Z_k u_{t-kδ} + b_z)
c_t = tanh(Σ_k C_k u_{t-kδ} + b_c), k from 0 to K - 1
x_t ← x_t + O (z_t ⊙ c_t)
p(token_{t+1} | token_1 .. token_t) = softmax(E norm(x_t) + b)""",
)  # fmt: skip
