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


def ngram_cost(config: NGramConfig, V: int, shape: Shape, dtypes: Mapping[str, torch.dtype]) -> Cost:
    """Tables at most as large as the text allows, if no n-gram came twice; the state is a node for each length of
    context, none to order - 1.
    """
    size = {name: torch.empty(0, dtype=dtype).element_size() for name, dtype in dtypes.items()}
    words = min(V, shape.text) if shape.text else V
    nodes = [1, V, *(min(words**n, shape.text) for n in range(2, config.order + 1))]  # of each length
    total, contexts = sum(nodes), sum(nodes[:-1])
    tables = (
        total * size["word_M"] + (total + 1) * size["alpha_M"]
        + (contexts + 1) * size["first_C"] + contexts * size["gamma_C"]
    )  # fmt: skip
    return Cost("ngram", V, shape, (), (Cache(constant=config.order),), tables, tables_at_most=True)


def bigram_cost(config: BigramConfig, V: int, shape: Shape) -> Cost:
    """A look-up, a hidden layer and the output; begin is never predicted. What is saved is what autograd would save."""
    N, D, H = shape.tokens, config.dim, config.hidden
    output = linear("output", N, [(V - 1, H)], bias=V - 1, muon=False)
    parts = (
        Part("embeddings", V * D, saved=N * D, saved_bytes=8 * N),
        linear("hidden", N, [(H, D)], bias=H, saved=N * H, muon=False),  # training has an Adam of its own
        replace(output, saved_bytes=N * (4 * V + 8) + 4),
    )
    return Cost("bigram", V, shape, parts, (Cache(),))
