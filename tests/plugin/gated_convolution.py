"""A gated convolutional language model (Dauphin et al. 2017), in one file outside octavo.

B batch, T tokens, V vocabulary, D width, K kernel size, P = K - 1, S = P + T, C = K D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear, output, repeated
from octavo.models.spec import ModelSpec
from octavo.models.views import GRADIENT_FLOW, Tap, TokenDetail, TokenTable, View
from octavo.ops.tracing import tap

State = tuple[Tensor, ...]  # of each layer, the last K - 1 vectors that it was given, past_BPD


@dataclass(frozen=True)
class ConvolutionConfig:
    """The settings of a gated convolution."""

    width: int = 64
    """The size of a token's vector."""
    layers: int = 2
    """How many convolutions."""
    kernel: int = 4
    """How many tokens each convolution sees, the current one included."""

    def __post_init__(self) -> None:
        if min(self.width, self.layers) < 1 or self.kernel < 2:
            raise UserError(f"width and layers must be at least 1, kernel 2: {self}; try --width 64 --kernel 4")


class GatedConvolution(LanguageModel[State]):
    """In each layer h = z c + (1 - z) x: gate z and candidate c are convolutions over the last K inputs x."""

    config: ConvolutionConfig

    def __init__(self, config: ConvolutionConfig, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        self.embedding_VD = nn.Parameter(torch.empty(vocab, config.width))
        shape = (2 * config.width, config.kernel * config.width)
        self.weights = nn.ParameterList(torch.empty(shape) for _ in range(config.layers))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights that training starts from."""
        for weight in self.parameters():
            weight.data.normal_(0, weight.shape[1] ** -0.5, generator=generator)

    def start(self, batch: int) -> State:
        """Nothing has been read: zeros."""
        D, P = self.config.width, self.config.kernel - 1
        return tuple(self.embedding_VD.new_zeros(batch, P, D) for _ in self.weights)

    def step(self, state: State, x_B: Tensor) -> tuple[Tensor, State]:
        """The definition: one token a row."""
        h_BD, after = F.embedding(x_B, self.embedding_VD), []
        for past_BPD, weight in zip(state, self.weights, strict=True):
            window_BKD = torch.cat([past_BPD, h_BD[:, None]], 1)
            z_BD, c_BD = F.linear(window_BKD.flatten(1), weight).chunk(2, -1)
            z_BD, c_BD = tap("gate", z_BD.sigmoid()), tap("candidate", c_BD.tanh())
            h_BD = z_BD * c_BD + (1 - z_BD) * h_BD
            after.append(window_BKD[:, 1:])
        return F.linear(h_BD, self.embedding_VD), tuple(after)

    def absorb(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        """The same for many tokens at once: every window of K inputs is one row of a matrix product."""
        h_BTD, after, T = F.embedding(x_BT, self.embedding_VD), [], x_BT.shape[1]
        for past_BPD, weight in zip(state, self.weights, strict=True):
            inputs_BSD = torch.cat([past_BPD, h_BTD], 1)
            windows_BTC = torch.cat([inputs_BSD[:, k : k + T] for k in range(self.config.kernel)], -1)
            z_BTD, c_BTD = F.linear(windows_BTC, weight).chunk(2, -1)
            h_BTD = z_BTD.sigmoid() * c_BTD.tanh() + (1 - z_BTD.sigmoid()) * h_BTD
            after.append(inputs_BSD[:, T:])
        return F.linear(h_BTD, self.embedding_VD), tuple(after)

    @property
    def receptive_field(self) -> int:
        """Every layer sees K - 1 tokens further back; a long text can then be scored in parallel."""
        return self.config.layers * (self.config.kernel - 1) + 1


def cost(config: ConvolutionConfig, vocab: int, shape: Shape) -> Cost:
    """Exact parameters, operations and bytes of state."""
    N, D, K = shape.tokens, config.width, config.kernel
    layers = repeated(linear("convolutions", N, [(2 * D, K * D)], saved=N * (K + 5) * D), config.layers)
    parts = Part("embeddings", vocab * D), layers, output(N, vocab, D, tied=True)
    return Cost("gated-convolution", vocab, shape, parts, (Cache(constant=config.layers * (K - 1) * D),))


def receptive_fields(model: Any, x_N: list[int]) -> TokenTable:
    """A view of its own: how many tokens before each one the model can see."""
    most = model.receptive_field
    seen = [min(n + 1, most) for n in range(len(x_N))]  # begin is a token too
    details = tuple(TokenDetail(n / most, f"predicted from {n} tokens", (("tokens", str(n)),)) for n in seen)
    return TokenTable("How many tokens each prediction can depend on.", ("what", "count"), details)


SPEC = ModelSpec(
    name="gated-convolution",
    title="gated convolution",
    description="convolutions with gates over the last few tokens",
    family="convolution",
    model=GatedConvolution,
    config=ConvolutionConfig,
    cost=cost,
    views=(
        View("gates", "Gates", "token-rows", "tapped-values",
             (Tap("gate", "how much is new"), Tap("candidate", "what could be added", signed=True))),
        GRADIENT_FLOW,
        View("field", "Receptive field", "token-table", receptive_fields),
    ),
    summarise=lambda model, tokens: f"gated convolution of {tokens}, {model.config.layers} layers",
)  # fmt: skip
