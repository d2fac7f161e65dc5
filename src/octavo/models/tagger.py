"""A sequence tagger: an encoder of the words, a score for every tag of every word, and a linear chain over the tags.

B sentences, T words of the longest, F features of a word, V rows of their table, D width, E what the encoder says of a
word, C tags.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Count, Heads, Layers, Range, Share, Width, check_ranges
from octavo.models.cost.parts import Cost, Part, Shape, attention_products, linear
from octavo.models.encoders import ENCODERS, EncoderName, dropped
from octavo.models.parts.checks import check_choices
from octavo.models.parts.config import GPTConfig
from octavo.models.spec import ModelSpec
from octavo.ops.linear_chain import Chain, best_paths, is_token, log_partition, marginals, path_scores

MAX_AFFIX = 8
FORBIDDEN = -1e4  # the score of a pair of tags that cannot be: finite, so that a wrong text still has a loss


@dataclass(frozen=True)
class TaggerConfig:
    """How a sequence tagger is made."""

    encoder: EncoderName = "gru"
    """What reads the words: a recurrent network, a transformer, or none, which leaves every word to itself."""
    bidirectional: bool = True
    """Read from both ends, so that a word's tag depends on what follows, too; --no-bidirectional: on what precedes."""
    crf: bool = True
    """Score pairs of neighbouring tags and decode the best sequence (a linear-chain CRF); --no-crf: each by itself."""
    width: Width = 128
    """The size of a word's vector, and of the encoder's in each direction."""
    layers: Layers = 1
    """Layers of the encoder."""
    heads: Heads = 4
    """transformer: number of attention heads."""
    dropout: Share = 0.3
    """Dropout: of the words' vectors, between layers and of what the encoder says."""
    affixes: Annotated[int, Range(0, MAX_AFFIX)] = 4
    """The first and the last so many characters of a word are features too, which unknown words share; 0: none."""
    min_count: Count = 2
    """Features that occur less often are left out."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)
        if self.encoder == "transformer":
            GPTConfig(width=self.width, layers=self.layers, heads=self.heads)  # which checks that they go together


class SequenceTagger(nn.Module):
    """e = W encoder(x) + b, where x is the sum of the vectors of a word's features; and the scores of the chain."""

    def __init__(self, config: TaggerConfig, features: int, tags: int) -> None:
        super().__init__()
        self.config, self.vocab, self.tags = config, features, tags
        self.features_VD = nn.Parameter(torch.empty(features, config.width))
        encoder: Any = ENCODERS[config.encoder](config)
        self.encoder = encoder
        self.score_CE = nn.Parameter(torch.empty(tags, encoder.width))
        self.bias_C = nn.Parameter(torch.empty(tags))
        self.start_C = nn.Parameter(torch.empty(tags)) if config.crf else None
        self.transition_CC = nn.Parameter(torch.empty(tags, tags)) if config.crf else None
        self.end_C = nn.Parameter(torch.empty(tags)) if config.crf else None
        self.penalty: tuple[Tensor, Tensor] | None = None

    @property
    def sizes(self) -> dict[str, int]:
        return {"features": self.vocab, "tags": self.tags}

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights that training starts from; the chain starts at zero."""
        scale = (2 * self.config.affixes + 3) ** -0.5  # of a sum of so many vectors
        self.features_VD.data.copy_(torch.randn(self.features_VD.shape, generator=generator) * scale)
        self.encoder.initialise(generator)
        self.score_CE.data.copy_(nn.init.xavier_uniform_(torch.empty(self.score_CE.shape), generator=generator))
        for one in (self.bias_C, self.start_C, self.transition_CC, self.end_C):
            if one is not None:
                one.data.zero_()

    def forbid(self, start_C: Tensor, pair_CC: Tensor) -> None:
        """Keep some tags from beginning a sentence, and some from following others."""
        self.penalty = FORBIDDEN * start_C.float(), FORBIDDEN * pair_CC.float()

    @property
    def chain(self) -> Chain:
        """The scores of neighbouring tags; without a CRF all are zero."""
        bias_C = self.bias_C.float()
        if self.start_C is None or self.transition_CC is None or self.end_C is None:
            return Chain(torch.zeros_like(bias_C), bias_C.new_zeros(len(bias_C), len(bias_C)), torch.zeros_like(bias_C))
        chain = Chain(self.start_C.float(), self.transition_CC.float(), self.end_C.float())
        if self.penalty is None:
            return chain
        start_C, pair_CC = (one.to(bias_C.device) for one in self.penalty)
        return Chain(chain.start_C + start_C, chain.transition_CC + pair_CC, chain.end_C)

    def forward(self, x_BTF: Tensor, lengths_B: Tensor) -> Tensor:
        """e_BTC, the score of every tag at every word; 0 stands for no feature."""
        B, T, _ = x_BTF.shape
        if not T:
            return self.score_CE.new_zeros(B, 0, self.tags)
        x_ND = F.embedding_bag(x_BTF.flatten(0, 1), self.features_VD, mode="sum", padding_idx=0)
        x_BTD = dropped(self, x_ND.view(B, T, -1))
        h_BTE = dropped(self, self.encoder(x_BTD, lengths_B))
        return F.linear(h_BTE, self.score_CE, self.bias_C).float()

    def loss(self, x_BTF: Tensor, lengths_B: Tensor, y_BT: Tensor) -> Tensor:
        """-log p_B of the given tags of each sentence."""
        e_BTC = self(x_BTF, lengths_B)
        if not self.config.crf:
            y_BT = torch.where(is_token(lengths_B, y_BT.shape[1]), y_BT, -100)
            loss_BT = F.cross_entropy(e_BTC.transpose(1, 2), y_BT, reduction="none")
            return loss_BT.sum(1)
        chain = self.chain
        return log_partition(chain, e_BTC, lengths_B) - path_scores(chain, e_BTC, y_BT, lengths_B)

    def decode(self, x_BTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """The best tags y_BT of each sentence, and the probability p_BTC of every tag at every word."""
        e_BTC, chain = self(x_BTF, lengths_B), self.chain
        return best_paths(chain, e_BTC, lengths_B)[0], marginals(chain, e_BTC, lengths_B)


def tagger_cost(config: TaggerConfig, sizes: dict[str, int], shape: Shape) -> Cost:
    """Every matrix is one product with each word, but the table, of which a word reads a few rows; the sums over pairs
    of tags are no products."""
    with torch.device("meta"):
        model = SequenceTagger(config, sizes["features"], sizes["tags"])
    parts = []
    for name, weight in model.named_parameters():
        is_table = weight.dim() != 2 or name in ("features_VD", "transition_CC") or "kernel" in name
        part = Part(name, weight.numel(), read=0 if name == "features_VD" else weight.numel())
        product = linear(name, shape.tokens, [(weight.shape[0], weight.shape[-1])], muon=False)
        parts.append(part if is_table else replace(product, matrices=product.parameters))
    if config.encoder == "transformer":
        pairs = 4 * shape.tokens * shape.window * config.width * config.layers
        parts.append(attention_products("attention", pairs, pairs, shape.kernel))
    return Cost("tagger", sizes["features"], shape, tuple(parts))


SPEC = ModelSpec(
    "tagger", "sequence tagger", "a tag for every word: an encoder and a linear-chain CRF; see also tag", "tagger",
    SequenceTagger, TaggerConfig, task="tagging", cost=tagger_cost,
    equation="""x_t = Σ_f E[f], over the features f of word t: itself, its first and last characters, its shape
h_t = [→h_t, ←h_t], what the encoder says of word t from both sides
s(y) = start(y_1) + Σ_t (W h_t + b)(y_t) + Σ_t A(y_{t-1}, y_t) + end(y_n)
p(y | x) = exp(s(y)) / Σ_y' exp(s(y'))""",
)  # fmt: skip
