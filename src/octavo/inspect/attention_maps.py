"""Attention maps: what each head of each layer attends to while a model reads a text.

T the tokens read, begin first; H heads, S tokens that a row lies over, K features.

A row is what a token attended to when it was new, which is what its prediction was made from. Where a full context is
left and its last tokens are read again, their rows stay those of the first time; the tokens after them attend to what
the new context holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.inspect.activations import PIECE, pieces
from octavo.inspect.views import call_source, find_view, require_view
from octavo.io.cooperative import Turn, in_turns
from octavo.models import GPT
from octavo.models.views import TokenMaps, View
from octavo.ops.attention import CAUSAL, Pattern
from octavo.ops.linear import linear_weights
from octavo.ops.tracing import trace

STEPS = 32  # tokens of a recurrent network read in one turn
MOSTLY = 0.5  # the share of its attention that makes a head one of a kind
SPREAD = 0.9  # the share of the greatest possible entropy from which a head attends to everything alike
MAX_MAP_WEIGHTS = 1 << 28  # weights in the maps of one text: 1 GB in single precision


@dataclass(frozen=True, eq=False)
class Head:
    """One map, and what can be said of it; layers and heads count from 1."""

    layer: int
    head: int
    a_TT: Tensor
    visible_T: Tensor

    @cached_property
    def entropies(self) -> Tensor:
        """The bits of each row: 0 where one token gets everything, log2(n) where n tokens get the same."""
        nats_TT: Tensor = torch.special.entr(self.a_TT.double())
        return nats_TT.sum(-1) / math.log(2)

    @cached_property
    def spreads(self) -> Tensor:
        """The entropy as a share of its maximum, log2(number of visible tokens); 0 where there is no choice."""
        most_T = self.visible_T.double().clamp_min(1).log2()
        return torch.where(most_T > 0, self.entropies / most_T.clamp_min(1e-9), 0.0)

    @cached_property
    def distances(self) -> Tensor:
        """How many tokens back each row attends on average."""
        place_T = torch.arange(len(self.a_TT), dtype=torch.float64)
        a_TT = self.a_TT.double()
        return a_TT.sum(-1) * place_T - a_TT @ place_T

    # Means are over every token but begin, which has nothing but itself to attend to.

    @property
    def entropy(self) -> float:
        return float(self.entropies[1:].mean())

    @property
    def spread(self) -> float:
        """Over the tokens that have a choice."""
        chosen_T = self.spreads[self.visible_T > 1]
        return float(chosen_T.mean()) if len(chosen_T) else 0.0

    @property
    def distance(self) -> float:
        return float(self.distances[1:].mean())

    @cached_property
    def itself(self) -> float:
        return float(self.a_TT.diagonal()[1:].double().mean())

    @cached_property
    def previous(self) -> float:
        return float(self.a_TT.diagonal(-1).double().mean())

    @cached_property
    def begin(self) -> float:
        """Mean attention weight on the begin token: how much of an attention sink it is."""
        return float(self.a_TT[1:, 0].double().mean())

    @property
    def kind(self) -> str:
        """What the head mostly does, where that can be said in a word."""
        shares = {"previous token": self.previous, "attention sink": self.begin, "itself": self.itself}
        name, share = max(shares.items(), key=lambda one: one[1])
        return name if share >= MOSTLY else "spread" if self.spread >= SPREAD else ""

    @property
    def name(self) -> str:
        return f"layer {self.layer} head {self.head}"


def heads_of(maps: TokenMaps) -> tuple[Head, ...]:
    """Every head, layer by layer."""
    return tuple(
        Head(layer, head, a_TT, maps.visible_T)
        for layer, a_HTT in enumerate(maps.layers, 1) for head, a_TT in enumerate(a_HTT, 1)
    )  # fmt: skip


def attention_over(
    model: LanguageModel[Any], x_T: Sequence[int], turn: Turn = nullcontext, view: View | None = None
) -> TokenMaps:
    """The model's view of kind token-maps (its first, if none is named): read begin and the tokens, and collect the
    weights of each token's attention."""
    view = view or require_view(model, "token-maps")
    known = {"layer-attention": layer_attention, "memory-attention": memory_attention}
    return call_source(view, known, model, x_T, turn)  # type: ignore[no-any-return]


def layer_attention(
    model: LanguageModel[Any], x_T: Sequence[int], turn: Turn, view: View | None = None, piece: int = PIECE
) -> TokenMaps:
    """Of a transformer, `piece` tokens read at once. The maps are the same for any: 1 is decoding with a cache."""
    gpt = cast(GPT, model)
    with torch.no_grad(), eval_mode(model):
        return (_linear_maps if gpt.config.kind.family == "linear" else _maps)(gpt, [model.begin, *x_T], piece, turn)


@torch.no_grad()
def memory_attention(model: LanguageModel[Any], x_T: Sequence[int], turn: Turn, view: View | None = None) -> TokenMaps:
    """Of a recurrent network with attention to the states before its own, as the map of one head: at each step it
    shows weights over its memory, which ends with the last token before."""
    state, tokens = model.start(1), [model.begin, *x_T]
    T = len(tokens)
    a_1TT = torch.zeros(1, T, T, dtype=torch.float64)
    visible_T = torch.zeros(T, dtype=torch.long)
    for first in range(0, T, STEPS):
        with turn(), eval_mode(model):
            for t, token in enumerate(tokens[first : first + STEPS], first):
                with trace() as shown:
                    _, state = model.step(state, torch.tensor([token], device=device_of(model)))
                for weights_1M in shown.get("attention", []):
                    visible_T[t] = weights_1M.shape[1]
                    a_1TT[0, t, t - weights_1M.shape[1] : t] = weights_1M[0].cpu()
    return TokenMaps((a_1TT,), visible_T)


def _maps(model: GPT, x_T: Sequence[int], piece: int, turn: Turn) -> TokenMaps:
    """The rows as the layers show them, laid out over all tokens: keys end with the newest token."""
    T, layers = len(x_T), model.config.layers
    found: list[Tensor] = []
    visible = []
    for one in in_turns(pieces(model, x_T, piece), turn):
        rows = [a_1HTS[0] for a_1HTS in one.shown["attention"]]
        wide, S = torch.promote_types(rows[0].dtype, torch.float32), rows[0].shape[-1]
        found = found or [torch.zeros(model.config.heads, T, T, dtype=wide) for _ in range(layers)]
        for a_HTT, a_HTS in zip(found, rows, strict=True):
            a_HTT[:, one.start : one.end, one.end - S : one.end] = a_HTS
        visible.append(_pattern(model).mask(one.end - one.start, S).sum(-1))
    return TokenMaps(tuple(found), torch.cat(visible))


def _linear_maps(model: GPT, x_T: Sequence[int], piece: int, turn: Turn) -> TokenMaps:
    """The maps that linear attention has in effect: each query's match with every key so far, as a share of all.

    The state holds the sum of what was read, not the keys one by one, so queries and keys are kept here.
    """
    read = [(one.shown["queries"], one.shown["keys"]) for one in in_turns(pieces(model, x_T, piece), turn)]
    maps = []
    for layer in range(model.config.layers):
        with turn():
            q_1HTK, k_1HTK = (torch.cat([one[which][layer] for one in read], 2) for which in (0, 1))
            maps.append(linear_weights(q_1HTK, k_1HTK)[0].cpu())
    return TokenMaps(tuple(maps), torch.arange(1, len(x_T) + 1))


def _pattern(model: GPT) -> Pattern:
    return model.config.pattern if model.config.kind.family == "softmax" else CAUSAL


def head_count(model: LanguageModel[Any]) -> int:
    """How many maps the model's attention has."""
    view = find_view(model, "token-maps")
    layered = view is not None and view.source == "layer-attention"
    return int(model.config.layers * model.config.heads) if layered else 1


def most_tokens(model: LanguageModel[Any]) -> int:
    """How many tokens may be read before the maps take too much memory."""
    return math.isqrt(MAX_MAP_WEIGHTS // head_count(model))


def in_words(maps: TokenMaps) -> list[str]:
    """The heads that stand out: the most local, the most spread, and those that attend mostly to one place."""
    heads = heads_of(maps)
    near, wide = min(heads, key=lambda one: one.distance), max(heads, key=lambda one: one.spread)
    lines = []
    if len(heads) > 1:
        lines.append(f"the most local is {near.name}: it attends {near.distance:.1f} tokens back on average")
        lines.append(f"the most spread is {wide.name}: {wide.entropy:.1f} bits, {wide.spread:.0%} of what is possible")
    previous = sorted((one for one in heads if one.previous >= MOSTLY), key=lambda one: -one.previous)
    begin = sorted((one for one in heads if one.begin >= MOSTLY), key=lambda one: -one.begin)
    if previous:
        lines.append("mostly to the previous token attends " + _listed([(one, one.previous) for one in previous]))
    if begin:
        sinks = _listed([(one, one.begin) for one in begin])
        lines.append(f"the begin token is an attention sink, which takes most of the weight, of {sinks}")
    return lines


def _listed(heads: Sequence[tuple[Head, float]], most: int = 6) -> str:
    names = ", ".join(f"{one.name} ({share:.0%})" for one, share in heads[:most])
    return names + (f" and {len(heads) - most} more" if len(heads) > most else "")
