"""Top attention: the few tokens that a model attended to most when it predicted each token.

N tokens of a text, T those of a piece, H heads, S tokens that a row lies over, K of them that are returned, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.inspect.activations import pieces
from octavo.inspect.attention_maps import attention_over
from octavo.inspect.views import find_view, require_view
from octavo.models import GPT
from octavo.models.views import TokenMaps
from octavo.ops.linear.reference import ratio
from octavo.ops.tracing import trace

MOST = 5
Layers = Literal["last", "all"]
Turn = Callable[[], AbstractContextManager[None]]


class TopAttention(NamedTuple):
    """For each token, what its prediction attended to most: place 0 is begin, place n the n-th token of the text."""

    place_NK: Tensor  # the greatest weight first; -1 where there are fewer
    share_NK: Tensor  # of all attention of the row, the mean over the heads


def has_attention(model: LanguageModel[Any]) -> bool:
    """Whether the model has a view of attention."""
    return find_view(model, "token-maps") is not None


@torch.no_grad()
def top_attention(
    model: LanguageModel[Any], x_N: Sequence[int], count: int = MOST, layers: Layers = "last", turn: Turn = nullcontext,
) -> TopAttention:  # fmt: skip
    """The `count` tokens with the greatest weight in the rows that predicted each token, the mean over the heads of the
    last layer or of all layers. The maps are made a piece at a time, and `turn` is entered for each piece."""
    found = [(torch.zeros(0, count, dtype=torch.long), torch.zeros(0, count))]
    with eval_mode(model):
        rows = _rows(model, [model.begin, *x_N[:-1]] if x_N else [], layers)
        while True:
            with turn():
                if (row := next(rows, None)) is None:
                    break
                found.append(_most(*row, count))
    place_NK, share_NK = map(torch.cat, zip(*found, strict=True))
    return TopAttention(place_NK, share_NK)


def _rows(model: LanguageModel[Any], x_T: Sequence[int], layers: Layers) -> Iterator[tuple[Tensor, int]]:
    """The rows a_TS of each piece, and the place of their first column."""
    view = require_view(model, "token-maps")
    if view.source == "memory-attention":
        return _recurrent_rows(model, x_T)
    if view.source == "layer-attention":
        gpt = cast(GPT, model)
        return (_linear_rows if gpt.config.kind.family == "linear" else _softmax_rows)(gpt, x_T, layers)
    return _own_rows(attention_over(model, x_T[1:], view=view), layers)


def _own_rows(maps: TokenMaps, layers: Layers) -> Iterator[tuple[Tensor, int]]:
    """Those of a model that computes its maps itself."""
    chosen = maps.layers[-1:] if layers == "last" else maps.layers
    yield torch.stack([a_HTT.float().mean(0) for a_HTT in chosen]).mean(0), 0


def _softmax_rows(model: GPT, x_T: Sequence[int], layers: Layers) -> Iterator[tuple[Tensor, int]]:
    for one in pieces(model, x_T):
        chosen = one.shown["attention"][-1:] if layers == "last" else one.shown["attention"]
        a_TS = sum(a_1HTS[0].float().mean(0) for a_1HTS in chosen) / len(chosen)
        assert isinstance(a_TS, Tensor)
        yield a_TS, one.end - a_TS.shape[1]


def _linear_rows(model: GPT, x_T: Sequence[int], layers: Layers) -> Iterator[tuple[Tensor, int]]:
    """Each query's match with every key so far; the state holds only their sum, so the keys are kept here."""
    chosen = range(model.config.layers)[-1:] if layers == "last" else range(model.config.layers)
    keys: dict[int, list[Tensor]] = {layer: [] for layer in chosen}
    for one in pieces(model, x_T):
        a_TS = torch.zeros(one.end - one.start, one.end)
        for layer in chosen:
            keys[layer].append(one.shown["keys"][layer][0].float())
            k_HSK, q_HTK = torch.cat(keys[layer], 1), one.shown["queries"][layer][0].float()
            p_HTS = (q_HTK @ k_HSK.mT).tril(one.start)
            a_TS += ratio(p_HTS, p_HTS.sum(-1, keepdim=True)).mean(0).cpu()
        yield a_TS / len(chosen), 0


def _recurrent_rows(model: LanguageModel[Any], x_T: Sequence[int]) -> Iterator[tuple[Tensor, int]]:
    """A recurrent network attends to the states before its own, those that its memory still has."""
    state = model.start(1)
    for t, token in enumerate(x_T):
        with trace() as shown:
            _, state = model.step(state, torch.tensor([token], device=device_of(model)))
        a_1M = shown["attention"][-1] if "attention" in shown else torch.zeros(1, 0)
        yield a_1M.float(), t - a_1M.shape[1]


def _most(a_TS: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    best = a_TS.topk(min(count, a_TS.shape[1]))
    missing = count - best.values.shape[1]
    share_TK = torch.nn.functional.pad(best.values, (0, missing)).cpu()
    place_TK = torch.nn.functional.pad(best.indices + first, (0, missing)).cpu()
    return torch.where(share_TK > 0, place_TK, -1), share_TK
