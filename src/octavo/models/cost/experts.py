"""What a mixture of experts costs: all of its weights are there, and those of the chosen experts are used.

N tokens, X experts, J of them for each token, D width, A = N J pairs of a token and its expert.
"""

from __future__ import annotations

from dataclasses import replace

from octavo.models.cost.parts import Part, linear
from octavo.models.parts.config import GPTConfig

INDEX_BYTES = 8


def expert_parts(config: GPTConfig, N: int, one: Part, dropped: int) -> tuple[Part, Part]:
    """The router, and the experts, of which `one` processes all pairs.

    Of the router are saved its probabilities and choices, in single precision; of the experts the tokens in their
    order, what each gives, and its weight.
    """
    X, J, D = config.experts, config.experts_per_token, config.width
    A = N * J
    chosen = INDEX_BYTES * A + (4 * (A + N) if J > 1 else 0)
    router = linear("router", N, [(X, D)], bias=X)
    router = replace(router, saved_bytes=4 * N * X + chosen + 4 * X)
    experts = replace(
        one, name="experts", parameters=X * one.parameters, matrices=X * one.matrices,
        idle=(X - J) * one.parameters, read=min(X, A) * one.read, half_copies=X * one.half_copies,
        saved=one.saved + A * (2 * D + 1) + dropped, saved_bytes=2 * INDEX_BYTES * A,
    )  # fmt: skip
    return router, experts
