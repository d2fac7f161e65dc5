"""The bag of words: every token is drawn from one distribution; there is no state.

B batch, T time, N tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.config import Amount, check_ranges
from octavo.core import LanguageModel
from octavo.models.cost.parts import Cache, Cost
from octavo.models.parts.checks import check_distribution
from octavo.models.spec import Fitted, ModelSpec
from octavo.models.views import Bars, View

LIKELIEST = 20  # tokens that a page shows


@dataclass(frozen=True)
class BagConfig:
    """How a bag-of-words model is made."""

    k: Amount = 1.0
    """Added to every token's count; 0 gives maximum likelihood, and probability zero to what was never seen."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Bag(LanguageModel[None]):
    """p(w) = (count(w) + k) / (N + k (V - 1)); the begin token is never drawn."""

    logp_V: Tensor
    begin_resets = True
    max_scored_tokens = 1 << 20
    receptive_field = 0

    def __init__(self, config: BagConfig, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        self.register_buffer("logp_V", torch.full((vocab,), -torch.inf, dtype=torch.float64))

    @classmethod
    def fit(cls, x_N: Tensor, config: BagConfig, vocab: int) -> Bag:
        """Count x_N, in which the begin token opens every sequence."""
        model = cls(config, vocab)
        weight_V = torch.bincount(x_N, minlength=vocab).double() + config.k
        weight_V[model.begin] = 0
        model.logp_V = (weight_V / weight_V.sum()).log()
        return model

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        super().load_tensors(tensors)
        check_distribution(self.logp_V, "the bag's probabilities")

    def start(self, batch: int) -> None:
        return None

    def step(self, state: None, x_B: Tensor) -> tuple[Tensor, None]:
        return self.logp_V.repeat(len(x_B), 1), None

    def absorb(self, state: None, x_BT: Tensor) -> tuple[Tensor, None]:
        return self.logp_V.repeat(*x_BT.shape, 1), None

    def token_log_probs(self, state: None, x_BT: Tensor) -> tuple[Tensor, None]:
        return self.logp_V[x_BT[:, 1:]], None


def _likeliest(model: Bag, spell: Callable[[int], str]) -> Bars:
    best = model.logp_V.exp().topk(min(LIKELIEST, model.vocab - 1))
    rows = zip(map(spell, best.indices.tolist()), (100 * best.values).tolist(), strict=True)
    return Bars("The most probable tokens, in per cent; ␣ is a space, ⏎ the end of a line.", tuple(rows), digits=2)


SPEC = ModelSpec(
    "bag", "bag: how often each token occurs", "how often each token occurs, whatever came before", "counts",
    Bag, BagConfig, fitting="counts",
    fit=lambda x_N, config, tokenizer, context: Fitted(Bag.fit(x_N, config, tokenizer.vocab)),
    cost=lambda config, V, shape: Cost("bag", V, shape, (), (Cache(),), 8 * V, V),  # float64 probabilities
    views=(View("unigram", "Unigram", "token-table", "unigram"),),
    summarise=lambda model, tokens: f"bag of {tokens}, add-{model.config.k:g}", details=_likeliest,
    log_tables=("logp_V",),
    equation="p(w) = (n(w) + k) / Σ_v (n(v) + k)",
)  # fmt: skip
