"""What each token of a text costs, what the model expected instead, and how much context it used.

N tokens of a text, T those of a piece, K candidates, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, evaluating
from octavo.models import NGram
from octavo.text.tokenizer import Tokenizer

CANDIDATES = 3
PIECE = 256  # tokens that are read at once
BEGIN = "▷"  # how the begin token, which stands for no text, is shown


@dataclass(frozen=True)
class Surprise:
    """One token as the model saw it coming."""

    token: str
    bits: float
    rank: int  # 1: the model's first choice
    candidates: tuple[tuple[str, float], ...]  # the likeliest tokens with their probabilities
    context: int | None  # n-gram: tokens of context in the longest n-gram that ends with this token; else None


@dataclass(frozen=True, eq=False)
class Reading:
    """Every token of a text as the model saw it coming; the first was foreseen from begin alone."""

    x_N: Tensor
    bits_N: Tensor
    rank_N: Tensor  # 1: the model's first choice
    top_NK: Tensor  # the likeliest tokens, the likeliest first
    p_NK: Tensor  # their probabilities
    context_N: Tensor | None  # n-gram: tokens of context in the longest n-gram that ends with each token; else None


@torch.no_grad()
def read(
    model: LanguageModel[Any], x_N: Sequence[int], candidates: int = CANDIDATES,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Reading:  # fmt: skip
    """Read a text a piece at a time, and keep what was expected of each token; `turn` is entered for each piece."""
    device, count = device_of(model), min(candidates, model.vocab)
    x_1N = torch.tensor([list(x_N)], dtype=torch.long, device=device)
    before_1N = model.after_begin(x_1N)[:, :-1]
    found: list[tuple[Tensor, ...]] = []
    state, piece = model.start(1), max(1, min(PIECE, model.window))
    for start in range(0, len(x_N), piece):
        with turn(), evaluating(model):
            logits_1TV, state = model.absorb(state, before_1N[:, start : start + piece])
            found.append(_told(logits_1TV[0], x_1N[0, start : start + piece], count))
    none = (torch.zeros(0), torch.zeros(0, dtype=torch.long), torch.zeros(0, count, dtype=torch.long),
            torch.zeros(0, count))  # fmt: skip
    bits_N, rank_N, top_NK, p_NK = map(torch.cat, zip(*found, strict=True)) if found else none
    return Reading(x_1N[0].cpu(), bits_N, rank_N, top_NK, p_NK, _matched(model, x_1N))


def _told(logits_TV: Tensor, x_T: Tensor, count: int) -> tuple[Tensor, ...]:
    logp_TV = logits_TV.log_softmax(-1, dtype=torch.float64)
    own_T1 = logp_TV.gather(1, x_T[:, None])
    best = logp_TV.topk(count)
    rank_T = (logp_TV > own_T1).sum(1) + 1
    return (-own_T1[:, 0] / math.log(2)).cpu(), rank_T.cpu(), best.indices.cpu(), best.values.exp().cpu()


def surprises(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Surprise]:
    """Every token of a short text, spelt out."""
    told = read(model, tokenizer.encode(data).tolist())
    contexts = told.context_N.tolist() if told.context_N is not None else [None] * len(told.x_N)
    every = zip(told.x_N.tolist(), told.bits_N.tolist(), told.rank_N.tolist(), told.top_NK.tolist(),
                told.p_NK.tolist(), contexts, strict=True)  # fmt: skip
    return [
        Surprise(shown(tokenizer, token), bits, rank, tuple(
            (BEGIN if i == model.begin else shown(tokenizer, i), p) for i, p in zip(top, ps, strict=True) if p > 0
        ), context)
        for token, bits, rank, top, ps, context in every
    ]  # fmt: skip


def shown(tokenizer: Tokenizer, token: int) -> str:
    """A token as text on one line: what a terminal would act on, a carriage return for instance, is spelt out."""
    text = tokenizer.spelling(token).decode("utf-8", "backslashreplace").replace("\n", "⏎").replace(" ", "␣")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _matched(model: LanguageModel[Any], x_1N: Tensor) -> Tensor | None:
    """How many tokens of context the longest n-gram that ends with each token has."""
    if not isinstance(model, NGram) or not x_1N.shape[1]:
        return None
    begun_1K = model.absorb(model.start(1), x_1N.new_full((1, 1), model.begin))[1]
    _, nodes = model.matches(begun_1K, x_1N)
    return (torch.stack(nodes, -1)[0] != model.none).sum(-1).cpu() - 1
