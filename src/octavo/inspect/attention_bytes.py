"""The attention maps of any model as bytes, for pages that draw them: many maps of a long text in little memory.

L layers, H heads, T queries, S keys. A byte b stands for a weight of (b / 255) squared: small
weights, of which a long text has most, keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import eval_mode
from octavo.errors import UserError
from octavo.inspect.attention_maps import MOSTLY, SPREAD, Head, attention_over, head_count, heads_of, in_words
from octavo.inspect.inspection import MAX_TOKENS, tokens_of
from octavo.io.cooperative import Turn, in_turns
from octavo.models.views import View
from octavo.ops.tracing import trace
from octavo.tasks.encoder import Encoder
from octavo.tasks.run import Run
from octavo.tasks.translation_alignment import align
from octavo.tasks.translator import Translator
from octavo.text.token_display import BEGIN, display_token

MAX_WEIGHTS = 1 << 26  # of all maps of a text, in single precision: 256 MB
SMALL = 48  # rows and columns of a map that is one of many on a page


@dataclass(frozen=True)
class HeadStatistics:
    """What can be said of one head in numbers; None where that has no meaning. Layers and heads count from 1."""

    layer: int
    head: int
    entropy: float  # bits: how widely it attends
    spread: float  # as a share of what is possible
    distance: float | None = None  # tokens between query and key, on average
    itself: float | None = None
    previous: float | None = None
    first: float | None = None  # on the token that opens the text
    kind: str = ""


@dataclass(frozen=True, eq=False)
class AttentionBytes:
    """Every head's map as bytes, with the tokens along its sides."""

    queries: tuple[str, ...]  # T
    keys: tuple[str, ...]  # S
    maps_LHTS: NDArray[np.uint8]
    statistics: tuple[HeadStatistics, ...]
    notes: tuple[str, ...] = ()  # sentences about heads that stand out
    truncated: bool = False  # whether the text was longer
    translation: str = ""

    def small(self) -> Iterator[NDArray[np.uint8]]:
        """The maps, layer by layer, at most SMALL rows and columns each, which are means of weights."""
        _, _, T, S = self.maps_LHTS.shape
        rows, columns = _into(T), _into(S)
        for map_TS in self.maps_LHTS.reshape(-1, T, S):
            yield as_bytes(_means(_means(_weights(map_TS), rows, 0), columns, 1))


def as_bytes(a: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Weights from 0 to 1 as bytes."""
    made: NDArray[np.uint8] = np.rint(255 * np.sqrt(np.clip(a, 0, 1))).astype(np.uint8)
    return made


def _weights(bytes_TS: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.square(bytes_TS.astype(np.float32) / 255)


def _into(length: int) -> NDArray[np.int64]:
    """Where each of at most SMALL nearly equal parts begins."""
    return np.arange(min(length, SMALL)) * length // min(length, SMALL)


def _means(a: NDArray[np.float32], begins: NDArray[np.int64], axis: int) -> NDArray[np.float32]:
    sizes = np.diff(np.append(begins, a.shape[axis])).astype(np.float32)
    total: NDArray[np.float32] = np.add.reduceat(a, begins, axis)
    return np.divide(total, np.expand_dims(sizes, 1 - axis), dtype=np.float32)


def most_tokens(heads: int) -> int:
    """How many tokens are read, begin left out, so that all maps have at most MAX_WEIGHTS weights."""
    return max(1, min(MAX_TOKENS, math.isqrt(MAX_WEIGHTS // max(1, heads)) - 1))


def attention_bytes(
    of: Run | Encoder | Translator, text: str, language: str = "", turn: Turn = nullcontext, view: View | None = None
) -> AttentionBytes:
    """What every head attends to while the text is read; of a translator, while the translation is written."""
    if isinstance(of, Run):
        return _of_a_run(of, text, turn, view)
    return _of_an_encoder(of, text, turn) if isinstance(of, Encoder) else _of_a_translator(of, text, language, turn)


def _of_a_run(run: Run, text: str, turn: Turn, view: View | None) -> AttentionBytes:
    whole = tokens_of(run, text)
    if not whole:
        raise UserError("there is nothing to read: the text is empty; write a sentence or two")
    x_N = whole[: most_tokens(head_count(run.model))]
    maps = attention_over(run.model, x_N, turn, view)
    tokens = (BEGIN, *(display_token(run.tokenizer, token) for token in x_N))
    statistics = tuple(in_turns((_statistics(head) for head in heads_of(maps)), turn))
    with turn():
        notes = tuple(in_words(maps))
    return AttentionBytes(tokens, tokens, _all_bytes(maps.layers, turn), statistics, notes, len(whole) > len(x_N))


def _statistics(head: Head) -> HeadStatistics:
    if len(head.a_TT) < 2:
        return HeadStatistics(head.layer, head.head, 0.0, 0.0)
    return HeadStatistics(head.layer, head.head, head.entropy, head.spread, head.distance, head.itself, head.previous,
                  head.begin, head.kind)  # fmt: skip


def _all_bytes(layers: Sequence[Tensor], turn: Turn) -> NDArray[np.uint8]:
    """maps_LHTS, a head a turn."""
    made = in_turns((as_bytes(a_TS.float().numpy()) for a_HTS in layers for a_TS in a_HTS), turn)
    maps = np.stack(list(made))
    return maps.reshape(len(layers), -1, *maps.shape[1:])


def _of_an_encoder(of: Encoder, text: str, turn: Turn) -> AttentionBytes:
    tokenizer = of.tokenizer
    (found,) = tokenizer.encode_texts([text], typed=True)
    most = min(of.model.config.context - 2, most_tokens(of.model.config.layers * of.model.config.heads))
    x_T = [tokenizer.first, *found.tolist()[:most], tokenizer.end]
    with turn(), torch.no_grad(), eval_mode(of.model), trace() as traced:
        of.model.encode(torch.tensor([x_T], device=next(of.model.parameters()).device))
    layers = [a_1HTT[0].float().cpu() for a_1HTT in traced["attention"]]
    tokens = tuple(tokenizer.token(token) for token in x_T)
    statistics = in_turns((_both_ways(l, h, a) for l, a_H in enumerate(layers, 1) for h, a in enumerate(a_H, 1)), turn)
    return AttentionBytes(tokens, tokens, _all_bytes(layers, turn), tuple(statistics), truncated=len(found) > most)


def _both_ways(layer: int, head: int, a_TT: Tensor) -> HeadStatistics:
    """The statistics of a head that sees the whole text."""
    a_TT = a_TT.double()
    entropy, spread = _width(a_TT)
    place_T = torch.arange(len(a_TT), dtype=torch.float64)
    distance = float((a_TT * (place_T[:, None] - place_T).abs()).sum(1).mean())
    itself, previous, first = (float(one.mean()) for one in (a_TT.diagonal(), a_TT.diagonal(-1), a_TT[:, 0]))
    shares = {"itself": itself, "previous token": previous, "first token": first}
    name = max(shares, key=lambda one: shares[one])
    kind = name if shares[name] >= MOSTLY else "spread" if spread >= SPREAD else ""
    return HeadStatistics(layer, head, entropy, spread, distance, itself, previous, first, kind)


def _width(a_TS: Tensor) -> tuple[float, float]:
    """Mean bits of the rows, and that as a share of the most that is possible."""
    bits = float(torch.special.entr(a_TS.double()).sum(1).mean()) / math.log(2)
    return bits, bits / math.log2(a_TS.shape[1]) if a_TS.shape[1] > 1 else 0.0


def _of_a_translator(of: Translator, text: str, language: str, turn: Turn) -> AttentionBytes:
    found = align(of, text, language=language, turn=turn)
    statistics = tuple(
        HeadStatistics(layer, head, *_width(a_TS))
        for layer, a_HTS in enumerate(found.a_LHTS, 1) for head, a_TS in enumerate(a_HTS, 1)
    )  # fmt: skip
    maps = _all_bytes(tuple(found.a_LHTS), turn)
    return AttentionBytes(found.target, found.source, maps, statistics, translation=found.translation)
