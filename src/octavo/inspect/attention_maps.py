"""What each head of each layer looks at while a model reads a text.

T the tokens read, begin first; H heads, S tokens that a row lies over, K features.

A row is what a token looked at when it was new, which is what its prediction was made from. Where a full context is
left and its last tokens are read again, their rows stay those of the first time; the tokens after them look at what
the new context holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, eval_mode
from octavo.errors import UserError
from octavo.inspect.activations import PIECE, pieces
from octavo.inspect.gates import Gates, gates_over
from octavo.io.cooperative import Turn, in_turns
from octavo.models import GPT, RNNAttention
from octavo.ops.attention import CAUSAL, Pattern
from octavo.ops.linear import linear_weights
from octavo.tasks.run import Run

MOSTLY = 0.5  # the share of its looks that makes a head one of a kind
SPREAD = 0.9  # the share of the greatest possible entropy from which a head looks at everything alike
FULL_MAPS = 1 << 28  # numbers in the maps of one look: 1 GB in single precision


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
        """How many tokens back each row looks on average."""
        place_T = torch.arange(len(self.a_TT), dtype=torch.float64)
        a_TT = self.a_TT.double()
        return a_TT.sum(-1) * place_T - a_TT @ place_T

    # Means are over every token but begin, which has nothing but itself to look at.

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
        return float(self.a_TT[1:, 0].double().mean())

    @property
    def kind(self) -> str:
        """What the head mostly does, where that can be said in a word."""
        shares = {"previous token": self.previous, "begin": self.begin, "itself": self.itself}
        name, share = max(shares.items(), key=lambda one: one[1])
        return name if share >= MOSTLY else "spread" if self.spread >= SPREAD else ""

    @property
    def name(self) -> str:
        return f"layer {self.layer} head {self.head}"


@dataclass(frozen=True, eq=False)
class Maps:
    """The maps of every layer, a_HTT each: lower triangular, rows sum to one; 0 is what cannot be seen."""

    layers: tuple[Tensor, ...]
    visible_T: Tensor  # how many tokens each can see, itself included where it can

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """Layer by layer."""
        return tuple(
            Head(layer, head, a_TT, self.visible_T)
            for layer, a_HTT in enumerate(self.layers, 1) for head, a_TT in enumerate(a_HTT, 1)
        )  # fmt: skip


def attention_over(
    of: Run | LanguageModel[Any], x_T: Sequence[int], piece: int = PIECE, turn: Turn = nullcontext
) -> Maps:
    """Read begin and then the tokens, `piece` of them at once, and note what each looks at.

    The maps are the same however many are read at once: 1 is decoding with a cache.
    """
    model = of.model if isinstance(of, Run) else of
    if isinstance(model, RNNAttention):
        return from_rows(gates_over(model, x_T, turn), model.config.memory)
    if not isinstance(model, GPT):
        raise UserError(f"{type(model).__name__} has no attention to look at; the models that have are gpt and "
                        "rnn-attention")  # fmt: skip
    with torch.no_grad(), eval_mode(model):
        return (_linear_maps if model.config.kind.family == "linear" else _maps)(
            model, [model.begin, *x_T], piece, turn
        )


def _maps(model: GPT, x_T: Sequence[int], piece: int, turn: Turn) -> Maps:
    """The rows as the layers show them, laid out over all tokens: what is looked at ends with the newest token."""
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
    return Maps(tuple(found), torch.cat(visible))


def _linear_maps(model: GPT, x_T: Sequence[int], piece: int, turn: Turn) -> Maps:
    """The maps that linear attention has in effect: each query's match with every key so far, as a share of all.

    The state holds the sum of what was read, not the keys one by one, so queries and keys are kept here.
    """
    read = [(one.shown["queries"], one.shown["keys"]) for one in in_turns(pieces(model, x_T, piece), turn)]
    maps = []
    for layer in range(model.config.layers):
        with turn():
            q_1HTK, k_1HTK = (torch.cat([one[which][layer] for one in read], 2) for which in (0, 1))
            maps.append(linear_weights(q_1HTK, k_1HTK)[0].cpu())
    return Maps(tuple(maps), torch.arange(1, len(x_T) + 1))


def _pattern(model: GPT) -> Pattern:
    return model.config.pattern if model.config.kind.family == "softmax" else CAUSAL


def from_rows(gates: Gates, memory: int) -> Maps:
    """The attention of a recurrent network, which looks at the states before its own, as the map of one head."""
    T = len(gates.attention)
    a_1TT = torch.zeros(1, T, T, dtype=torch.float64)
    for t, row in enumerate(gates.attention):
        a_1TT[0, t, : len(row)] = torch.tensor(row, dtype=torch.float64)
    return Maps((a_1TT,), torch.arange(T).clamp(max=memory or T))


def most_tokens(model: LanguageModel[Any]) -> int:
    """How many tokens may be looked at before the maps take too much room."""
    return math.isqrt(FULL_MAPS // (model.config.layers * model.config.heads)) if isinstance(model, GPT) else FULL_MAPS


def in_words(maps: Maps) -> list[str]:
    """The heads worth a look: the most local, the most spread, and those that have one habit."""
    heads = maps.heads
    near, wide = min(heads, key=lambda one: one.distance), max(heads, key=lambda one: one.spread)
    told = []
    if len(heads) > 1:
        told.append(f"the most local is {near.name}: it looks {near.distance:.1f} tokens back on average")
        told.append(f"the most spread is {wide.name}: {wide.entropy:.1f} bits, {wide.spread:.0%} of what is possible")
    previous = sorted((one for one in heads if one.previous >= MOSTLY), key=lambda one: -one.previous)
    begin = sorted((one for one in heads if one.begin >= MOSTLY), key=lambda one: -one.begin)
    if previous:
        told.append("mostly at the previous token looks " + _listed([(one, one.previous) for one in previous]))
    if begin:
        told.append("at begin, where looking costs nothing, rests " + _listed([(one, one.begin) for one in begin]))
    return told


def _listed(heads: Sequence[tuple[Head, float]], most: int = 6) -> str:
    told = ", ".join(f"{one.name} ({share:.0%})" for one, share in heads[:most])
    return told + (f" and {len(heads) - most} more" if len(heads) > most else "")
