"""What octavo knows about n-gram models that go on counting while they read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from octavo.io.progress import progress
from octavo.models.cost.parts import Cache, Cost, Shape
from octavo.models.ngram.adaptive import AdaptiveNGram, AdaptiveNGramConfig
from octavo.models.ngram.counting import Workspace
from octavo.models.spec import Candidate, FitContext, Fitted, ModelSpec
from octavo.models.views import Table, TokenDetail, TokenTable, View
from octavo.text.tokenizers.base import Tokenizer

NODE_BYTES = 64  # of a state's tables: a node with its key, and its share of the look-up table
SAVED_BYTES = 12  # of a node in the file
SHADE_BITS = 8.0  # more or less than from the training text alone, between the two ends of the shades


def _fit(x_N: Tensor, config: AdaptiveNGramConfig, tokenizer: Tokenizer, context: FitContext) -> Fitted:
    with progress(f"counting {config.order}-grams", len(x_N) * config.order, "look-ups") as advance:
        workspace = Workspace(folder=context.folder)
        return Fitted(AdaptiveNGram.fit(x_N, config, tokenizer.vocab, tokenizer.newline, workspace, advance))


def _cost(config: AdaptiveNGramConfig, V: int, shape: Shape) -> Cost:
    """Tables at most as large as the text allows, if no n-gram came twice; a state has a copy of them."""
    words = min(V, shape.text) if shape.text else V
    total = sum((1, V, *(min(words**n, shape.text) for n in range(2, config.order + 1))))
    caches = (Cache(constant=total * NODE_BYTES),)
    return Cost("adaptive-ngram", V, shape, (), caches, total * SAVED_BYTES, total - 1, tables_at_most=True)


def _learnt_while_reading(model: AdaptiveNGram, x_N: Sequence[int]) -> TokenTable:
    """What each token cost as the text was read, and what it would have cost had nothing been learnt from the text."""
    x_1N = torch.tensor([list(x_N)], dtype=torch.long)
    known_N = model.token_context_classes(model.start(1), model.prepend_begin(x_1N))[0].tolist()
    bits_N, fixed_N = (
        (logp_N / -math.log(2)).tolist() for logp_N in (model.score(x_1N)[0], model.fixed_log_probs(x_1N[0]))
    )
    details = [
        TokenDetail(
            min(1.0, max(0.0, 0.5 + (before - bits) / SHADE_BITS)), f"{bits:.2f} bits as it was read",
            (("as the text was read", f"{bits:.2f}"), ("from the training text alone", f"{before:.2f}")),
            notes=(f"The longest context that had been continued before has {known} tokens.",),
        )
        for bits, before, known in zip(bits_N, fixed_N, known_N, strict=True)
    ]  # fmt: skip
    return TokenTable(
        "Colour: what reading the text so far has gained or cost.", ("model", "bits"), tuple(details),
        legend=("costs more", "the same", "costs less"),
    )  # fmt: skip


def _discounts(model: AdaptiveNGram, spell: Callable[[int], str]) -> Table:
    """The discounts that reading the training text has taught, on average over the classes of contexts."""
    rows = tuple((str(k), *(f"{d:.2f}" for d in d_J[1:].tolist())) for k, d_J in enumerate(model.discount_KCJ.mean(1)))
    caption = "What is taken from the counts after each length of context, on average over the kinds of contexts."
    return Table(caption, ("tokens of context", "count 1", "count 2", "count 3 or more"), rows)


SPEC = ModelSpec(
    "adaptive-ngram", "adaptive n-gram", "an n-gram model (Kneser-Ney) that goes on counting while it reads",
    "counts", AdaptiveNGram, AdaptiveNGramConfig, fitting="counts", gpu="none", fit=_fit, cost=_cost,
    candidates=lambda seconds, device: [Candidate("kn8-adaptive", "8-gram, adaptive", "adaptive-ngram", {"order": 8})],
    views=(View("learnt", "Learnt while reading", "token-table", _learnt_while_reading),), details=_discounts,
    summarise=lambda model, tokens: f"{model.config.order}-gram of {tokens}, Kneser-Ney, adaptive",
    entries="n-grams", count_entries=lambda model: max(0, len(model.word_M) - 1),
    equation="""p(w | c) = (n(c w) - D) / T + γ p(w | c′), γ = (D₁ n₁ + D₂ n₂ + D₃ n₃) / T, T = Σ_v n(c v)
n₁, n₂, n₃: how many tokens have followed c once, twice, more often; D: by count, length and kind of the context
after each token, n(c w) and what follows from it goes up, and D moves along ∂ log p / ∂D""",
)  # fmt: skip
