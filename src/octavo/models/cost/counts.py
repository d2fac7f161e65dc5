"""What models that count cost: look-ups take no products, but tables.

N tokens, V vocabulary, D dimensions of a vector, H hidden units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear

if TYPE_CHECKING:
    from octavo.models.bigram import BigramConfig
    from octavo.models.ngram import NGramConfig


def bag_cost(config: Any, V: int, shape: Shape) -> Cost:
    """One probability in double precision a token."""
    return Cost("bag", V, shape, (), (Cache(),), 8 * V)


def ngram_nodes_at_most(V: int, order: int, tokens: int) -> list[int]:
    """N-grams of 1, 2, ... tokens that a text can have: no more than there are, and no more than it has places."""
    words = min(V, tokens) if tokens else V
    return [V, *(min(words**n, tokens) for n in range(2, order + 1))]


def ngram_cost(config: NGramConfig, V: int, shape: Shape, dtypes: Mapping[str, torch.dtype]) -> Cost:
    """Tables at most as large as the text allows; the state is a node for each length of context, none to order - 1."""
    tables = ngram_bytes_at_most(V, config, shape.text, dtypes)
    return Cost("ngram", V, shape, (), (Cache(constant=config.order),), tables, tables_at_most=True)


def ngram_bytes_at_most(V: int, config: NGramConfig, tokens: int, dtypes: Mapping[str, torch.dtype]) -> int:
    """The tables of a text of so many tokens, if no n-gram came twice: an upper bound."""
    size = {name: torch.empty(0, dtype=dtype).element_size() for name, dtype in dtypes.items()}
    nodes = [1, *ngram_nodes_at_most(V, config.order, tokens)]
    total, contexts = sum(nodes), sum(nodes[:-1])
    return (
        total * size["word_M"] + (total + 1) * size["alpha_M"]
        + (contexts + 1) * size["first_C"] + contexts * size["gamma_C"]
    )  # fmt: skip


def bigram_cost(config: BigramConfig, V: int, shape: Shape) -> Cost:
    """A look-up, a hidden layer and the output; begin is never predicted. What is saved is what autograd would keep."""
    N, D, H = shape.tokens, config.dim, config.hidden
    parts = (
        Part("embeddings", V * D, saved=N * D, saved_bytes=8 * N),
        _by_adam(linear("hidden", N, [(H, D)], bias=H, saved=N * H)),
        _by_adam(linear("output", N, [(V - 1, H)], bias=V - 1), saved_bytes=N * (4 * V + 8) + 4),
    )
    return Cost("bigram", V, shape, parts, (Cache(),))


def _by_adam(part: Part, saved_bytes: int = 0) -> Part:
    """Its training has an Adam of its own, for everything."""
    return replace(part, matrices=0, saved_bytes=saved_bytes)
