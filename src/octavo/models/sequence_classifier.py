"""A sequence classifier: an encoder reads a text's words in their order, in both directions; its output is pooled.

B texts, T words of the longest, N words of all, V rows of the table, D width of a vector, E what the encoder says of a
word, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Count, CountOrZero, Heads, Layers, Share, Width, check_ranges
from octavo.models.cost.parts import Cost, Shape, attention_products
from octavo.models.dan import Head, HeadConfig, classifier_cost
from octavo.models.encoders import ENCODERS, EncoderName, dropped
from octavo.models.parts.checks import check_choices
from octavo.models.parts.config import GPTConfig
from octavo.models.spec import ModelSpec
from octavo.ops.linear_chain import is_token
from octavo.text.bag_of_ngrams import UNSEEN, Bags

MAX_PASS_WORDS = 1 << 15  # padding included, that are read together outside training


@dataclass(frozen=True)
class SequenceClassifierConfig:
    """How a sequence classifier is made."""

    ngrams: ClassVar[int] = 1  # what is read is words alone, in their order
    buckets: ClassVar[int] = 0

    encoder: EncoderName = "gru"
    """What reads the words: a recurrent network, a transformer, or none, which leaves every word to itself."""
    bidirectional: bool = True
    """Read from both ends; --no-bidirectional: from the first word to the last."""
    pooling: Literal["mean", "max"] = "mean"
    """How a text's vector is made of what the encoder says of its words: their mean, or of each unit the maximum."""
    vectors: str = ""
    """Start from these word vectors (glove-6b-50d, or a text file); without, they are learnt from nothing."""
    width: Width = 128
    """Width of a word's vector and of the encoder in each direction; with `vectors`, theirs."""
    layers: Layers = 1
    """Layers of the encoder."""
    heads: Heads = 4
    """transformer: number of attention heads."""
    dropout: Share = 0.5
    """Dropout: of the words' vectors, between layers and of the text's vector."""
    word_dropout: Share = 0.3
    """The share of words that training leaves out of each text."""
    min_count: Count = 2
    """Words that occur less often are left out, unless they have a vector to start from."""
    spare: CountOrZero = 50_000
    """So many words of `vectors` are kept though training has not seen them."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)
        if self.encoder == "transformer":
            GPTConfig(width=self.width, layers=self.layers, heads=self.heads)  # which checks that they go together


class SequenceClassifier(nn.Module):
    """logits = W pool(h_1 .. h_T) + b, where h is what the encoder says of each word."""

    def __init__(self, config: SequenceClassifierConfig, rows: int, width: int, classes: int) -> None:
        super().__init__()
        self.config, self.vocab = config, rows
        self.vectors_VD = nn.Parameter(torch.empty(rows, width))
        encoder: Any = ENCODERS[config.encoder](replace(config, width=width))
        self.encoder = encoder
        self.head = Head(HeadConfig(layers=0, dropout=config.dropout), encoder.width, classes)

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.vectors_VD, std=0.1, generator=generator)
        self.encoder.initialise(generator)
        self.head.initialise(generator)

    def forward(self, bags: Bags) -> Tensor:
        logits_BC: Tensor = self.head(self.text_vectors(bags))
        return logits_BC

    def text_vectors(self, bags: Bags) -> Tensor:
        """x_BE, each text's vector, pooled from its words'; of a text without words, zero."""
        if self.training:
            return self._pooled(self._without_some(bags))
        x_BE = self.vectors_VD.new_zeros(len(bags), self.encoder.width)
        for rows_P in passes(bags.sizes):
            x_BE = x_BE.index_copy(0, rows_P, self._pooled(bags.take(rows_P)).to(x_BE.dtype))
        return x_BE

    def _without_some(self, bags: Bags) -> Bags:
        """Without the words that training drops."""
        share = self.config.word_dropout
        if not share:
            return bags
        kept_N = torch.rand(bags.ids_N.shape, device=bags.ids_N.device) >= share
        return Bags(bags.ids_N[kept_N], F.pad(kept_N.cumsum(0), (1, 0))[bags.offsets_B1])

    def _pooled(self, bags: Bags) -> Tensor:
        lengths_B, x_BT = bags.sizes, padded(bags)
        if not x_BT.numel():
            return self.vectors_VD.new_zeros(len(bags), self.encoder.width)
        x_BTD = dropped(self, F.embedding(x_BT, self.vectors_VD))
        h_BTE = self.encoder(x_BTD, lengths_B)
        is_word_BT1 = is_token(lengths_B, x_BT.shape[1])[..., None]
        if self.config.pooling == "mean":
            return torch.where(is_word_BT1, h_BTE, 0).sum(1) / lengths_B.clamp(min=1)[:, None].to(h_BTE.dtype)
        max_BE = torch.where(is_word_BT1, h_BTE, -torch.inf).amax(1)
        return torch.where(lengths_B[:, None] > 0, max_BE, 0)


def padded(bags: Bags) -> Tensor:
    """x_BT: each text's words in a row, padding behind them."""
    T = int(bags.sizes.max()) if len(bags) else 0
    place_T = torch.arange(T, device=bags.ids_N.device)
    x_BT = torch.full((len(bags), T), UNSEEN, dtype=torch.long, device=bags.ids_N.device)
    x_BT[place_T < bags.sizes[:, None]] = bags.ids_N.long()
    return x_BT


def passes(sizes_B: Tensor) -> Iterator[Tensor]:
    """The texts in passes of like length, so that little is padding and a few long texts take no memory."""
    order_B = sizes_B.argsort(stable=True)
    first, sizes = 0, sizes_B[order_B].tolist()
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or (end + 1 - first) * sizes[end] > MAX_PASS_WORDS:
            yield order_B[first:end]
            first = end


def sequence_classifier_cost(config: SequenceClassifierConfig, sizes: dict[str, int], shape: Shape) -> Cost:
    with torch.device("meta"):
        model = SequenceClassifier(config, sizes["words"] + 1, config.width, sizes["classes"])
    cost = classifier_cost("sequence-classifier", model, sizes["words"], shape)
    if config.encoder != "transformer":
        return cost
    pairs = 4 * shape.tokens * shape.window * config.width * config.layers
    return replace(cost, parts=(*cost.parts, attention_products("attention", pairs, pairs, shape.kernel)))


SPEC = ModelSpec(
    "sequence-classifier", "sequence classifier", "a class for a text: an encoder in both directions, pooled",
    "classifier", SequenceClassifier, SequenceClassifierConfig, task="classification", cost=sequence_classifier_cost,
    equation="""h_t = [→h_t, ←h_t], what the encoder says of word t from both sides
x = mean of h_1 .. h_T, or unit by unit their maximum
p(class | text) = softmax(W x + b)""",
)  # fmt: skip
