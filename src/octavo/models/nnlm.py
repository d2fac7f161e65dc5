"""The neural n-gram: the vectors of the last n - 1 tokens, side by side, go through one hidden layer.

B batch, T tokens, P = n - 2 tokens before, S = P + T, N = B × T, V vocabulary, D size of a token's vector,
C = (n - 1) D, H hidden units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Range, Share, Width, check_ranges
from octavo.core import LanguageModel
from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear
from octavo.models.parts.feed_forward import zero
from octavo.models.recurrent import init_matrix, short_budget
from octavo.models.spec import Candidate, ModelSpec
from octavo.models.views import Tap, View
from octavo.ops.convolution import windows
from octavo.ops.tracing import tap

SCORED_TOKENS = 1 << 14  # by one call; more would only take memory


@dataclass(frozen=True)
class NNLMConfig:
    """How a neural n-gram is made."""

    order: Annotated[int, Range(2, 1 << 10)] = 9
    """n: each token is predicted from the n - 1 before it."""
    width: Width = 64
    """The size of a token's vector."""
    hidden: Width = 512
    """Hidden units."""
    direct: bool = False
    """Connect the vectors with the output directly too, beside the hidden layer."""
    dropout: Share = 0.0
    """Dropout: of the vectors and of the hidden layer."""

    def __post_init__(self) -> None:
        check_ranges(self)


class NNLM(LanguageModel[Tensor]):
    """The state is the last n - 2 tokens, past_BP: with the token that `step` is given, they are what counts.

    Before a text stand begin tokens, as many as are needed.
    """

    config: NNLMConfig

    def __init__(self, config: NNLMConfig, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        C, H = (config.order - 1) * config.width, config.hidden
        self.embedding_VD = nn.Parameter(torch.empty(vocab, config.width))
        self.hidden_HC = nn.Parameter(torch.empty(H, C))
        self.hidden_bias_H = nn.Parameter(torch.empty(H))
        self.output_VH = nn.Parameter(torch.empty(vocab, H))
        self.output_bias_V = nn.Parameter(torch.empty(vocab))
        self.direct_VC = nn.Parameter(torch.empty(vocab, C)) if config.direct else None

    def initialise(self, generator: torch.Generator) -> None:
        """Vectors of a mean square of one; what the direct connection adds is nothing at first."""
        self.embedding_VD.data.copy_(torch.empty(self.embedding_VD.shape).normal_(generator=generator))
        init_matrix(self.hidden_HC, "xavier", generator)
        init_matrix(self.output_VH, "xavier", generator)
        zero(self.hidden_bias_H, self.output_bias_V, self.direct_VC)

    def start(self, batch: int) -> Tensor:
        device = self.embedding_VD.device
        return torch.full((batch, self.config.order - 2), self.begin, dtype=torch.long, device=device)

    def step(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        """The definition."""
        context_BS = torch.cat([state, x_B[:, None].long()], 1)
        x_BC = self.drop(F.embedding(context_BS, self.embedding_VD)).flatten(1)
        return self.logits(x_BC), context_BS[:, 1:]

    def absorb(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Every token's n - 1 vectors are one row of a matrix product."""
        tokens_BS = torch.cat([state, x_BT.long()], 1)
        x_BSD = self.drop(F.embedding(tokens_BS, self.embedding_VD))
        return self.logits(windows(x_BSD, self.config.order - 1)), tokens_BS[:, x_BT.shape[1] :]

    def logits(self, x_C: Tensor) -> Tensor:
        """b + U tanh(d + H x), and with the direct connection W x too."""
        h = tap("hidden", F.linear(x_C, self.hidden_HC, self.hidden_bias_H).tanh())
        y = F.linear(self.drop(h), self.output_VH, self.output_bias_V)
        return y if self.direct_VC is None else y + F.linear(x_C, self.direct_VC)

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout) if self.training and self.config.dropout else x

    @property
    def receptive_field(self) -> int:
        return self.config.order - 1

    @property
    def context_policy(self) -> str:
        return f"the last {self.config.order - 1} tokens"

    @property
    def max_scored_tokens(self) -> int:
        return min(SCORED_TOKENS, super().max_scored_tokens)


def nnlm_cost(config: NNLMConfig, V: int, shape: Shape) -> Cost:
    """A look-up, a hidden layer, the output, and the direct connection."""
    N, D, H, P = shape.tokens, config.width, config.hidden, config.order - 2
    read = shape.batch * P + N
    C = (config.order - 1) * D
    hidden = linear("hidden", N, [(H, C)], bias=H, saved=N * C + N * H)
    products = [(V, H), (V, C)] if config.direct else [(V, H)]
    logits = replace(linear("output", N, products, bias=V, muon=False), saved_bytes=N * (4 * V + 8) + 4)
    if config.dropout:
        hidden = replace(hidden, saved=hidden.saved + 2 * N * H)  # what was dropped, and what is left
    parts = (
        Part("embeddings", V * D, saved=read * D if config.dropout else 0, saved_bytes=8 * read),
        hidden,
        logits,
    )
    return Cost("nnlm", V, shape, parts, (Cache(),))  # the state is tokens, not numbers


SPEC = ModelSpec(
    "nnlm", "neural n-gram", "a network with one hidden layer that sees the last n - 1 tokens", "feed-forward",
    NNLM, NNLMConfig, cost=nnlm_cost,
    views=(View("gates", "Hidden units", "token-rows", "tapped-values",
                (Tap("hidden", "the output of the layer", signed=True),)),),
    candidates=lambda seconds, device: [
        Candidate("nnlm", "neural n-gram", "nnlm", short_budget(seconds), only_if_named=True)
    ],
    summarise=lambda model, tokens:
        f"neural {model.config.order}-gram of {tokens}, {model.config.hidden} hidden units",
    equation="""x = (E[token_{t-n+2}], .., E[token_t])
h = tanh(H x + d)
p(token_{t+1} | token_{t-n+2} .. token_t) = softmax(U h + W x + b); W x only with --direct""",
)  # fmt: skip
