"""What a model looked at when it foresaw each token: the few tokens with most of its attention.

N tokens of a text, T those of a piece, H heads, S tokens that a row lies over, K of them that are told, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.inspect.activations import pieces
from octavo.models import GPT, RNNAttention
from octavo.ops.linear.reference import ratio
from octavo.ops.tracing import trace

MOST = 5
Layers = Literal["last", "all"]
Turn = Callable[[], AbstractContextManager[None]]


class Looked(NamedTuple):
    """For each token, where its prediction looked: place 0 is begin, place n the n-th token of the text."""

    place_NK: Tensor  # the most looked at first; -1 where there are fewer
    share_NK: Tensor  # of all attention of the row, the heads taken alike


def looks(model: LanguageModel[Any]) -> bool:
    """Whether the model has attention to be told of."""
    return isinstance(model, GPT | RNNAttention)


@torch.no_grad()
def looked_at(
    model: LanguageModel[Any], x_N: Sequence[int], count: int = MOST, layers: Layers = "last", turn: Turn = nullcontext,
) -> Looked:  # fmt: skip
    """The `count` most looked at by the rows that foresaw each token, the mean over the heads of the last layer or of
    all layers. The maps are made a piece at a time, and `turn` is entered for each piece."""
    found = [(torch.zeros(0, count, dtype=torch.long), torch.zeros(0, count))]
    with eval_mode(model):
        rows = _rows(model, [model.begin, *x_N[:-1]] if x_N else [], layers)
        while True:
            with turn():
                if (row := next(rows, None)) is None:
                    break
                found.append(_most(*row, count))
    place_NK, share_NK = map(torch.cat, zip(*found, strict=True))
    return Looked(place_NK, share_NK)


def _rows(model: LanguageModel[Any], x_T: Sequence[int], layers: Layers) -> Iterator[tuple[Tensor, int]]:
    """The rows a_TS of each piece, and the place of their first column."""
    if isinstance(model, RNNAttention):
        return _recurrent_rows(model, x_T)
    if not isinstance(model, GPT):
        raise TypeError(f"{type(model).__name__} has no attention; ask looks() first")
    return (_linear_rows if model.config.kind.family == "linear" else _softmax_rows)(model, x_T, layers)


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


def _recurrent_rows(model: RNNAttention, x_T: Sequence[int]) -> Iterator[tuple[Tensor, int]]:
    """A recurrent network looks at the states before its own, those that its memory still has."""
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
