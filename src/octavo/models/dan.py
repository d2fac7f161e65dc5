"""Classifiers: an MLP as head, the deep averaging network (Iyyer et al. 2015) below it, and a linear model.

N words of all texts, B texts, V rows of the table, D width of a vector, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Amount, Count, CountOrZero, Range, Share, Width, check_ranges
from octavo.models.cost.parts import Cost, Part, Shape, linear
from octavo.models.spec import ModelSpec
from octavo.text.bag_of_ngrams import Bags

MOST_BITS = 28
MAX_NGRAMS = 16  # words: the table of a text's n-grams has a column for each length


@dataclass(frozen=True)
class HeadConfig:
    """Settings of the MLP."""

    hidden: Width = 100
    """Width of the hidden layers."""
    layers: Annotated[int, Range(0, 1 << 12)] = 1
    """Number of hidden layers; 0: a single linear layer."""
    dropout: Share = 0.3
    """Dropout probability of each layer's inputs."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Head(nn.Module):
    """A ReLU MLP: x' = max(0, W x + b) for each hidden layer, then logits."""

    def __init__(self, config: HeadConfig, width: int, classes: int) -> None:
        super().__init__()
        self.config = config
        widths = [width, *[config.hidden] * config.layers]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.out = nn.Linear(widths[-1], classes)

    def initialise(self, generator: torch.Generator) -> None:
        """Kaiming-uniform hidden layers, a Xavier-uniform output layer, zero biases."""
        for one in self.layers:
            nn.init.kaiming_uniform_(one.weight, nonlinearity="relu", generator=generator)  # type: ignore[arg-type]
            nn.init.zeros_(one.bias)  # type: ignore[arg-type]
        nn.init.xavier_uniform_(self.out.weight, generator=generator)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_BD: Tensor) -> Tensor:
        for one in self.layers:
            x_BD = F.relu(one(F.dropout(x_BD, self.config.dropout, self.training)))
        logits_BC: Tensor = self.out(F.dropout(x_BD, self.config.dropout, self.training))
        return logits_BC


@dataclass(frozen=True)
class DanConfig:
    """The deep averaging network."""

    vectors: str = ""
    """Start from these word vectors (glove-6b-50d, or a text file); without, they are learnt from nothing."""
    width: Width = 100
    """Width of a word's vector, where it is learnt from nothing."""
    hidden: Width = 100
    """Width of the layers above the average."""
    layers: Annotated[int, Range(0, 1 << 12)] = 2
    """How many; 0: the classes are read off the average."""
    dropout: Share = 0.3
    """The share of a layer's inputs that training leaves out."""
    word_dropout: Share = 0.3
    """The share of words that training leaves out of each text."""
    ngrams: Annotated[int, Range(1, MAX_NGRAMS)] = 1
    """2: pairs of neighbours have vectors too, 3: threes as well."""
    buckets: Annotated[int, Range(1, 1 << MOST_BITS)] = 1 << 16
    """How many vectors the n-grams share."""
    min_count: Count = 2
    """Words that occur less often are left out, unless they have a vector to start from."""
    spare: CountOrZero = 50_000
    """So many words of `vectors` are kept though training has not seen them."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Dan(nn.Module):
    """The average of a text's word vectors, and layers above it."""

    def __init__(self, config: DanConfig, rows: int, width: int, classes: int) -> None:
        super().__init__()
        self.config, self.vocab = config, rows
        self.vectors_VD = nn.Parameter(torch.empty(rows, width))
        self.head = Head(HeadConfig(config.hidden, config.layers, config.dropout), width, classes)

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.vectors_VD, std=0.1, generator=generator)
        self.head.initialise(generator)

    def text_vectors(self, bags: Bags) -> Tensor:
        """x_BD: the mean of each text's vectors, in training without the words that are dropped."""
        if not (self.training and self.config.word_dropout):
            return F.embedding_bag(bags.ids_N, self.vectors_VD, bags.offsets_B1, mode="mean", include_last_offset=True)
        kept_N = torch.rand(bags.ids_N.shape, device=bags.ids_N.device) >= self.config.word_dropout
        sum_BD = F.embedding_bag(
            bags.ids_N, self.vectors_VD, bags.offsets_B1, mode="sum", include_last_offset=True,
            per_sample_weights=kept_N.to(self.vectors_VD.dtype),
        )  # fmt: skip
        kept_N1 = F.pad(kept_N.cumsum(0), (1, 0))
        count_B = kept_N1[bags.offsets_B1].diff().clamp(min=1)
        return sum_BD / count_B[:, None]

    def forward(self, bags: Bags) -> Tensor:
        logits_BC: Tensor = self.head(self.text_vectors(bags))
        return logits_BC


@dataclass(frozen=True)
class LinearConfig:
    """A weight for each word, n-gram and class."""

    ngrams: Annotated[int, Range(1, MAX_NGRAMS)] = 2
    """2: words and pairs of neighbours, 3: threes too, 1: words alone."""
    bits: Annotated[int, Range(1, MOST_BITS)] = 20
    """N-grams are hashed into 2 to this power slots."""
    smooth: Annotated[float, Range(0, 1e9, above=True)] = 1.0
    """Added to every count of the Naive Bayes weights that the fit starts from."""
    penalty: Amount = 0.1
    """How strongly weights are held to the Naive Bayes ones."""
    steps: Annotated[int, Range(0, 1_000_000)] = 15
    """Of the fit (L-BFGS); 0: Naive Bayes alone."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Linear(nn.Module):
    """logits = sum of the weights of a text's n-grams / √(how many they are) + b."""

    def __init__(self, config: LinearConfig, rows: int, classes: int) -> None:
        super().__init__()
        self.config = config
        self.weights_VC = nn.Parameter(torch.zeros(rows, classes))
        self.bias_C = nn.Parameter(torch.zeros(classes))

    def forward(self, bags: Bags) -> Tensor:
        sum_BC = F.embedding_bag(bags.ids_N, self.weights_VC, bags.offsets_B1, mode="sum", include_last_offset=True)
        return sum_BC * lengths_scale(bags)[:, None] + self.bias_C

    def strengths(self) -> Tensor:
        """strength_V: how much each n-gram says about the class."""
        strength_V: Tensor = (self.weights_VC - self.weights_VC.mean(1, keepdim=True)).norm(dim=1)
        return strength_V


def lengths_scale(bags: Bags) -> Tensor:
    """1 / √n of each text's n n-grams."""
    return bags.sizes.clamp(min=1).to(torch.float32).rsqrt()


def grown(model: Any, further_UD: Tensor) -> Any:
    """The model with vectors for words that training has not seen behind those that it has."""
    whole_VD = torch.cat([model.vectors_VD.detach(), further_UD.to(model.vectors_VD)])
    width: Any = whole_VD.shape[1]
    with torch.device("meta"):
        larger = type(model)(model.config, len(whole_VD), width, model.head.out.out_features)
    larger.load_state_dict(model.state_dict() | {"vectors_VD": whole_VD}, assign=True)
    return larger


def classifier_cost(name: str, model: nn.Module, words: int, shape: Shape) -> Cost:
    """Every matrix is one product with each word, those of the head one with each text; of the table of words, a word
    reads a row."""
    parts = []
    for key, weight in model.named_parameters():
        is_table = weight.dim() != 2 or key == "vectors_VD" or "kernel" in key
        part = Part(key, weight.numel(), read=0 if key == "vectors_VD" else weight.numel())
        tokens = shape.batch if key.startswith("head.") else shape.tokens
        product = linear(key, tokens, [(weight.shape[0], weight.shape[-1])], muon=False)
        parts.append(part if is_table else replace(product, matrices=product.parameters))
    return Cost(name, words, shape, tuple(parts))


def dan_cost(config: DanConfig, sizes: dict[str, int], shape: Shape) -> Cost:
    rows = 1 + sizes["words"] + (config.buckets if config.ngrams > 1 else 0)
    with torch.device("meta"):
        model = Dan(config, rows, config.width, sizes["classes"])
    return classifier_cost("dan", model, sizes["words"], shape)


HEAD_EQUATION = "x ← max(0, W x + b), layer by layer\np(class | text) = softmax(V x + c)"
DAN_SPEC = ModelSpec(
    "dan", "deep averaging network", "the average of a text's word vectors, then hidden layers", "classifier", Dan,
    DanConfig, task="classification", cost=dan_cost,
    equation=f"x = mean of the vectors of the text's words\n{HEAD_EQUATION}",
)  # fmt: skip
LINEAR_SPEC = ModelSpec(
    "linear-classifier", "linear classifier", "one weight for each n-gram and class", "classifier", Linear,
    LinearConfig, task="classification",
    equation="p(class | text) = softmax(Σ_g w_g / √G + b), over the text's G n-grams g",
)  # fmt: skip
HEAD_SPEC = ModelSpec(
    "head", "classifier head", "hidden layers on the vectors of a trained model", "classifier", Head, HeadConfig,
    task="classification",
    equation=f"x = the text's vector under the model below\n{HEAD_EQUATION}",
)  # fmt: skip
