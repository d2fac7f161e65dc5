"""What BERT costs, from its shape alone: an encoder, in which every token sees every other.

What is kept for the way back is by the same rules as for the transformer's parts; no BERT stands here to hold it to.

B batch, T tokens, N = B × T, D width, H heads, F inner width, V vocabulary, P positions, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from octavo.cost.parts import Cost, Part, Shape, linear, repeated
from octavo.errors import UserError


@dataclass(frozen=True)
class BertShape:
    """The sizes of a BERT, and which heads stand on it."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    vocab: int = 30522
    positions: int = 512
    segments: int = 2
    pooler: bool = True
    mlm: str = "none"
    """The head that fills in masked tokens: none, tied (its last matrix is the embeddings') or untied."""
    nsp: bool = False
    """The head that says whether one sentence follows the other."""

    def __post_init__(self) -> None:
        if self.mlm not in ("none", "tied", "untied"):
            raise UserError(f"mlm must be none, tied or untied: mlm={self.mlm!r}; try tied")


def bert_parts(bert: BertShape, shape: Shape) -> tuple[Part, ...]:
    """Every part, those of all layers together; heads only where the shape has them."""
    N, B, D, L, T = shape.tokens, shape.batch, bert.width, bert.layers, shape.window
    if bert.positions < T:
        raise UserError(f"there are {bert.positions} positions: window={T}; try --window {bert.positions}")
    F, norms = bert.inner, 2 * L + 1
    forward = L * 4 * B * T * T * D
    back = 5 * forward // 2 if shape.kernel == "fused" else 2 * forward
    parts = [
        Part("embeddings", bert.vocab * D),
        Part("positions", bert.positions * D),
        Part("segments", bert.segments * D),
        Part("norms", norms * 2 * D, read=norms * 2 * D, kept=norms * N * (2 * D + 2)),
        repeated(linear("queries, keys, values", N, [(D, D)] * 3, bias=3 * D, kept=3 * N * D), L),
        Part("attention", forward=forward, needed=forward, backward=back, kept=L * N * (D + bert.heads)),
        repeated(linear("out", N, [(D, D)], bias=D), L),
        repeated(linear("feed-forward", N, [(F, D), (D, F)], bias=F + D, kept=2 * N * F), L),
    ]
    if bert.pooler:
        parts.append(linear("pooler", B, [(D, D)], bias=D, kept=2 * B * D))  # of each text's first token
    if bert.mlm != "none":
        parts.append(mlm_part(bert, N))
    if bert.nsp:
        parts.append(linear("next sentence", B, [(2, D)], bias=2))
    return tuple(parts)


def mlm_part(bert: BertShape, N: int) -> Part:
    """A layer of the width, a norm, and the product with the vocabulary, at every token."""
    D, V = bert.width, bert.vocab
    part = linear("masked tokens", N, [(D, D), (V, D)], bias=D + 2 * D + V, kept=N * (4 * D + 2))
    own = part.parameters - (V * D if bert.mlm == "tied" else 0)
    return replace(part, parameters=own, matrices=D * D, kept_bytes=N * (4 * V + 8))


def bert_cost(bert: BertShape, shape: Shape) -> Cost:
    """An encoder carries nothing from token to token."""
    return Cost("bert", bert.vocab, shape, bert_parts(bert, shape))
