"""Attention maps: what each head of each layer attends to while a model reads a text, and the tokens attended to most.

T the tokens read, begin first; H heads, S tokens that a row lies over, K features, or tokens attended to most; N tokens
of a text.

A row is what a token attended to when it was new, which is what its prediction was made from. Where a full context is
left and its last tokens are read again, their rows stay those of the first time; the tokens after them attend to what
the new context holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.inspection.views import PIECE, call_source, find_view, pieces, require_view
from octavo.io.cooperative import Turn, in_turns
from octavo.models.parts.checks import check_numbers
from octavo.models.views import TokenMaps, View
from octavo.ops.attention import CAUSAL
from octavo.ops.linear import fixed_decays
from octavo.ops.linear.reference import ratio
from octavo.ops.tracing import trace

TOP_TOKENS = 5  # with the greatest weight
STEPS = 32  # tokens of a recurrent network read in one turn
MOSTLY = 0.5  # the share of its attention that makes a head one of a kind
SPREAD = 0.9  # the share of the greatest possible entropy from which a head attends to everything alike
MAX_MAP_WEIGHTS = 1 << 28  # weights in the maps of one text: 1 GB in single precision

Layers = Literal["last", "all"]
Reads = Literal["back", "both ways", "other"]  # what came before, the whole text, or another text


@dataclass(frozen=True, eq=False)
class AttentionHead:
    """One map, and what can be said of it; layers and heads count from 1."""

    layer: int
    head: int
    a_TS: Tensor
    visible_T: Tensor
    reads: Reads = "back"

    @cached_property
    def entropies(self) -> Tensor:
        """The bits of each row: 0 where one token gets everything, log2(n) where n tokens get the same."""
        nats_TS: Tensor = torch.special.entr(self.a_TS.double())
        return nats_TS.sum(-1) / math.log(2)

    @cached_property
    def spreads(self) -> Tensor:
        """The entropy as a share of its maximum, log2(number of visible tokens); 0 where there is no choice."""
        most_T = self.visible_T.double().clamp_min(1).log2()
        return torch.where(most_T > 0, self.entropies / most_T.clamp_min(1e-9), 0.0)

    @cached_property
    def distances(self) -> Tensor:
        """How many tokens away each row attends on average."""
        place_T = torch.arange(len(self.a_TS), dtype=torch.float64)
        return (self.a_TS.double() * (place_T[:, None] - place_T).abs()).sum(-1)

    @property
    def _chosen(self) -> slice:
        """The rows of means: where a text is read in order, all but begin's, which has nothing but itself."""
        return slice(1 if self.reads == "back" else 0, None)

    @property
    def entropy(self) -> float:
        return float(self.entropies[self._chosen].mean())

    @property
    def spread(self) -> float:
        """Over the tokens that have a choice."""
        chosen_T = self.spreads[self.visible_T > 1]
        return float(chosen_T.mean()) if len(chosen_T) else 0.0

    @property
    def distance(self) -> float:
        return float(self.distances[self._chosen].mean())

    @cached_property
    def itself(self) -> float:
        return float(self.a_TS.diagonal()[self._chosen].double().mean())

    @cached_property
    def previous(self) -> float:
        return float(self.a_TS.diagonal(-1).double().mean())

    @cached_property
    def first(self) -> float:
        """Mean attention weight on the token that opens the text: how much of an attention sink it is."""
        return float(self.a_TS[self._chosen, 0].double().mean())

    @property
    def kind(self) -> str:
        """What the head mostly does, where that can be said in a word."""
        opening = "attention sink" if self.reads == "back" else "first token"
        shares = {"previous token": self.previous, opening: self.first, "itself": self.itself}
        name, share = max(shares.items(), key=lambda one: one[1])
        return name if share >= MOSTLY else "spread" if self.spread >= SPREAD else ""

    @property
    def name(self) -> str:
        return f"layer {self.layer} head {self.head}"

    def statistics(self) -> dict[str, Any]:
        """All of it in numbers; where the columns are another text, places have no meaning, and are None."""
        places = ("distance", "itself", "previous", "first", "kind")
        known = {key: getattr(self, key) if self.reads != "other" else None for key in places}
        width = {"entropy": self.entropy, "spread": self.spread}
        return {"layer": self.layer, "head": self.head, **width, **known, "kind": known["kind"] or ""}


def heads_of(maps: TokenMaps, reads: Reads = "back") -> tuple[AttentionHead, ...]:
    """Every head, layer by layer."""
    return tuple(
        AttentionHead(layer, head, a_TS, maps.visible_T, reads)
        for layer, a_HTS in enumerate(maps.layers, 1) for head, a_TS in enumerate(a_HTS, 1)
    )  # fmt: skip


class RowBlock(NamedTuple):
    """The attention of tokens that were read at once: rows from token `start` on, columns from token `first` on."""

    start: int
    first: int
    layers: list[Tensor]  # a_HTS
    visible_T: Tensor


def attention_over(
    model: LanguageModel[Any], x_T: Sequence[int], turn: Turn = nullcontext, view: View | None = None
) -> TokenMaps:
    """The model's view of kind token-maps (its first, if none is named): read begin and the tokens, and collect the
    weights of each token's attention."""
    view = view or require_view(model, "token-maps")
    known = {"layer-attention": partial(lay_out, layer_rows), "memory-attention": partial(lay_out, _memory_rows)}
    return call_source(view, known, model, x_T, turn)  # type: ignore[no-any-return]


@torch.no_grad()
def lay_out(
    rows: Callable[..., Iterator[RowBlock]], model: LanguageModel[Any], x_T: Sequence[int], turn: Turn,
    view: View | None = None,
) -> TokenMaps:  # fmt: skip
    """The rows of begin and the tokens as maps over all of them."""
    found: list[Tensor] = []
    visible, T = [], len(x_T) + 1
    with eval_mode(model):
        for start, first, layers, visible_T in in_turns(rows(model, [model.begin, *x_T]), turn):
            wide = torch.promote_types(layers[0].dtype, torch.float32)
            found = found or [torch.zeros(len(a_HTS), T, T, dtype=wide) for a_HTS in layers]
            for a_HTT, a_HTS in zip(found, layers, strict=True):
                a_HTT[:, start : start + len(visible_T), first : first + a_HTS.shape[-1]] = a_HTS
            visible.append(visible_T.cpu())
    return TokenMaps(tuple(check_numbers(a_HTT, "attention weights") for a_HTT in found), torch.cat(visible))


def layer_rows(model: Any, x_T: Sequence[int], layers: Layers = "all", piece: int = PIECE) -> Iterator[RowBlock]:
    """Of a transformer's layers, or the last of them: keys end with the newest token. `piece` tokens are read at once;
    the rows are the same for any number, and 1 is decoding with a cache.

    Linear attention has maps in effect: each query's match with every key so far, as a share of all. The state holds
    the sum of what was read, not the keys one by one, so they are kept here.
    """
    is_linear, chosen = model.config.kind.family == "linear", slice(-1 if layers == "last" else 0, None)
    pattern = model.config.pattern if model.config.kind.text is not None else CAUSAL
    keys: list[Tensor] = []
    for one in pieces(model, x_T, piece):
        if is_linear:
            new = one.shown["keys"][chosen]
            keys = [torch.cat(both, 2) for both in zip(keys, new, strict=True)] if keys else new
            rows = []
            for q_1HTK, k_1HSK in zip(one.shown["queries"][chosen], keys, strict=True):
                wide = torch.promote_types(q_1HTK.dtype, torch.float32)
                p_HTS = (q_1HTK[0].to(wide) @ k_1HSK[0].to(wide).mT).tril(one.start)
                if model.config.head_decay == "fixed":
                    p_HTS = p_HTS * _faded(p_HTS, one.start)
                rows.append(ratio(p_HTS, p_HTS.sum(-1, keepdim=True)))
        else:
            rows = [a_1HTS[0] for a_1HTS in one.shown["attention"][chosen]]
        T, S = one.end - one.start, rows[0].shape[-1]
        yield RowBlock(one.start, one.end - S, rows, pattern.mask(T, S).sum(-1))


def _faded(p_HTS: Tensor, start: int) -> Tensor:
    """What fixed decays leave of a key that was read t - s tokens before."""
    H, T, S = p_HTS.shape
    age_TS = (torch.arange(start, start + T)[:, None] - torch.arange(S)).clamp_min(0).to(p_HTS.device)
    return (fixed_decays(H, p_HTS.device)[:, None, None] * age_TS).exp().to(p_HTS.dtype)


def _memory_rows(model: LanguageModel[Any], x_T: Sequence[int]) -> Iterator[RowBlock]:
    """As of one head: at each step the network shows weights over its memory, which ends with the last token before."""
    state = model.start(1)
    for start in range(0, len(x_T), STEPS):
        tokens = x_T[start : start + STEPS]
        a_1TS = torch.zeros(1, len(tokens), start + len(tokens), dtype=torch.float64)
        visible_T = torch.zeros(len(tokens), dtype=torch.long)
        for n, token in enumerate(tokens):
            with trace() as shown:
                _, state = model.step(state, torch.tensor([token], device=device_of(model)))
            for weights_1M in shown.get("attention", []):
                visible_T[n] = weights_1M.shape[1]
                a_1TS[0, n, start + n - weights_1M.shape[1] : start + n] = weights_1M[0].cpu()
        yield RowBlock(start, 0, [a_1TS], visible_T)


class TopAttention(NamedTuple):
    """For each token, what its prediction attended to most: place 0 is begin, place n the n-th token of the text."""

    place_NK: Tensor  # the greatest weight first; -1 where there are fewer
    share_NK: Tensor  # of all attention of the row, the mean over the heads


@torch.no_grad()
def top_attention(
    model: LanguageModel[Any], x_N: Sequence[int], count: int = TOP_TOKENS, layers: Layers = "last",
    turn: Turn = nullcontext,
) -> TopAttention:  # fmt: skip
    """The `count` tokens with the greatest weight in the rows that predicted each token, the mean over the heads of the
    last layer or of all layers. The maps are made a piece at a time, and `turn` is entered for each piece."""
    view, x_T = require_view(model, "token-maps"), [model.begin, *x_N[:-1]] if x_N else []
    if callable(view.source):
        maps = attention_over(model, x_T[1:], turn, view)
        blocks = iter([RowBlock(0, 0, list(maps.layers[-1 if layers == "last" else 0 :]), maps.visible_T)])
    else:
        blocks = _memory_rows(model, x_T) if view.source == "memory-attention" else layer_rows(model, x_T, layers)
    found = [(torch.zeros(0, count, dtype=torch.long), torch.zeros(0, count))]
    with eval_mode(model):
        for block in in_turns(blocks, turn):
            a_TS = torch.stack([a_HTS.float().mean(0) for a_HTS in block.layers]).mean(0)
            best = a_TS.topk(min(count, a_TS.shape[1]))
            missing = (0, count - best.values.shape[1])
            share_TK, place_TK = F.pad(best.values, missing).cpu(), F.pad(best.indices + block.first, missing).cpu()
            found.append((torch.where(share_TK > 0, place_TK, -1), share_TK))
    return TopAttention(*map(torch.cat, zip(*found, strict=True)))


def head_count(model: LanguageModel[Any]) -> int:
    """How many maps the model's attention has."""
    view = find_view(model, "token-maps")
    one = view is None or view.source == "memory-attention"
    return 1 if one else int(getattr(model.config, "layers", 1) * getattr(model.config, "heads", 1))


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
    begin = sorted((one for one in heads if one.first >= MOSTLY), key=lambda one: -one.first)
    if previous:
        lines.append("mostly to the previous token attends " + _listed([(one, one.previous) for one in previous]))
    if begin:
        sinks = _listed([(one, one.first) for one in begin])
        lines.append(f"the begin token is an attention sink, which takes most of the weight, of {sinks}")
    return lines


def _listed(heads: Sequence[tuple[AttentionHead, float]], most: int = 6) -> str:
    names = ", ".join(f"{one.name} ({share:.0%})" for one, share in heads[:most])
    return names + (f" and {len(heads) - most} more" if len(heads) > most else "")
