"""What models that count cost: look-ups take no products, but tables.

N tokens, V vocabulary, D dimensions of a vector, H hidden units.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from octavo.cost.parts import Cache, Part, Shape, linear
from octavo.models.bigram import BigramConfig
from octavo.models.ngram import NGramConfig
from octavo.models.ngram.model import DTYPES


def bag_bytes(V: int) -> int:
    """One probability in double precision a token."""
    return 8 * V


def ngram_nodes_at_most(V: int, order: int, tokens: int) -> list[int]:
    """N-grams of 1, 2, ... tokens that a text can have: no more than there are, and no more than it has places."""
    words = min(V, tokens) if tokens else V
    return [V, *(min(words**n, tokens) for n in range(2, order + 1))]


def ngram_bytes_at_most(V: int, config: NGramConfig, tokens: int) -> int:
    """The tables of a text of so many tokens, if no n-gram came twice: an upper bound."""
    size = {name: torch.empty(0, dtype=dtype).element_size() for name, dtype in DTYPES.items()}
    nodes = [1, *ngram_nodes_at_most(V, config.order, tokens)]
    total, contexts = sum(nodes), sum(nodes[:-1])
    return (
        total * size["word_M"] + (total + 1) * size["alpha_M"]
        + (contexts + 1) * size["first_C"] + contexts * size["gamma_C"]
    )  # fmt: skip


def ngram_cache(config: NGramConfig) -> Cache:
    """A node for each length of context, from none to order - 1."""
    return Cache(constant=config.order)


def bigram_parts(config: BigramConfig, V: int, shape: Shape) -> tuple[Part, ...]:
    """A look-up, a hidden layer and the output; begin is never predicted. What is kept is what autograd would keep."""
    N, D, H = shape.tokens, config.dim, config.hidden
    return (
        Part("embeddings", V * D, kept=N * D, kept_bytes=8 * N),
        _by_adam(linear("hidden", N, [(H, D)], bias=H, kept=N * H)),
        _by_adam(linear("output", N, [(V - 1, H)], bias=V - 1), kept_bytes=N * (4 * V + 8) + 4),
    )


def _by_adam(part: Part, kept_bytes: int = 0) -> Part:
    """Its training has an Adam of its own, for everything."""
    return replace(part, matrices=0, kept_bytes=kept_bytes)
