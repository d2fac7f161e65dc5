"""What each token of a text costs, what the model expected instead, and how much context it used.

N tokens of a text, T those of a piece, K candidates, V vocabulary.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode, single_thread
from octavo.errors import UserError
from octavo.io.cooperative import Turn
from octavo.models import NGram
from octavo.scoring.token_costs import checked_bits, token_bits, window_tokens
from octavo.text.token_display import BEGIN, display_token
from octavo.text.tokenizers.base import Tokenizer

CANDIDATES = 3
ADAPTIVE_PIECE = 512  # tokens of a turn that are read and learnt from
PIECE = 256  # tokens read at once: their distributions take memory
MAX_PROBABILITIES = 1 << 20  # of an n-gram model, by one look-up: few tokens make calls cost more than look-ups
CACHED_PROBABILITIES, MIN_DISTRIBUTIONS = 1 << 17, 16  # of these, made at once


@dataclass(frozen=True)
class Surprise:
    """One token, its surprisal and what the model expected."""

    token: str
    bits: float
    rank: int  # 1: the model's first choice
    candidates: tuple[tuple[str, float], ...]  # the likeliest tokens with their probabilities
    context: int | None  # n-gram: tokens of context in the longest n-gram that ends with this token; else None


@dataclass(frozen=True, eq=False)
class Reading:
    """Every token of a text with its surprisal; the first was predicted from begin alone."""

    x_N: Tensor
    bits_N: Tensor
    rank_N: Tensor  # 1: the model's first choice
    top_NK: Tensor  # the likeliest tokens, the likeliest first
    p_NK: Tensor  # their probabilities
    context_N: Tensor | None  # n-gram: tokens of context in the longest n-gram that ends with each token; else None
    scored_N: Tensor | None  # n-gram: log p as scoring looks it up, which differs in the last digits; else None


@torch.no_grad()
def read(
    model: LanguageModel[Any], x_N: Sequence[int], candidates: int = CANDIDATES, turn: Turn = nullcontext
) -> Reading:
    """Read a text a piece at a time, and keep what was expected of each token; `turn` is entered for each piece."""
    count, counts = min(candidates, model.vocab), hasattr(model, "matches")
    x_1N = torch.tensor(x_N, dtype=torch.long, device=device_of(model)).view(1, -1)
    before_1N = model.prepend_begin(x_1N)[:, :-1]
    none, found = torch.zeros(0), [_nothing(count)]
    state = model.start(1)
    whole = window_tokens(model, len(x_N) + 1)  # as scoring reads it, so that the sum of the bits is the score
    longest = max_batch_tokens(model) if counts else min(whole, ADAPTIVE_PIECE) if model.adaptive else whole
    for start in range(0, len(x_N), longest):
        x_1T, before_1T = (one_1N[:, start : start + longest] for one_1N in (x_1N, before_1N))
        with turn(), eval_mode(model), single_thread() if counts else nullcontext():
            if counts:
                everything_1T = torch.ones_like(x_1T, dtype=torch.bool)
                entries, state = _count_lookup(cast(NGram, model), state, before_1T, x_1T, everything_1T, count)
                found.append(entries)
            else:
                logits_1TV, state = model.absorb(state, before_1T)
                found.append((*_summarise(logits_1TV[0], x_1T[0], count), none, none))
    *columns, context_N, scored_N = map(torch.cat, zip(*found, strict=True))
    extra = (context_N.long(), scored_N) if counts and len(x_N) else (None, None)
    return Reading(x_1N[0].cpu(), *columns, *extra)


def max_batch_tokens(model: LanguageModel[Any]) -> int:
    """How many tokens of texts `read_batch` reads together, exactly as each is read alone; 0 where it cannot.

    Only what a table gives is the same to the last bit: a matrix product rounds otherwise when it has other rows.
    """
    return max(PIECE, MAX_PROBABILITIES // model.vocab) if hasattr(model, "matches") else 0


@torch.no_grad()
def read_batch(model: LanguageModel[Any], texts: Sequence[Sequence[int]], candidates: int) -> list[Reading]:
    """Some texts, none of them empty, of `max_batch_tokens` together at most, by one look-up."""
    lengths, device = [len(x_N) for x_N in texts], device_of(model)
    x_BT = torch.zeros(len(texts), max(lengths), dtype=torch.long, device=device)
    for x_T, x_N in zip(x_BT, texts, strict=True):
        x_T[: len(x_N)] = torch.tensor(x_N, dtype=torch.long)
    is_text_BT = torch.arange(x_BT.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]
    with eval_mode(model), single_thread():
        before_BT, state = model.prepend_begin(x_BT)[:, :-1], model.start(len(texts))
        entries, _ = _count_lookup(
            cast(NGram, model), state, before_BT, x_BT, is_text_BT, min(candidates, model.vocab)
        )  # fmt: skip
    columns = (x_BT[is_text_BT].cpu(), *entries)
    return [Reading(*parts) for parts in zip(*(column.split(lengths) for column in columns), strict=True)]


def _nothing(count: int) -> tuple[Tensor, ...]:
    """What `read` finds of no token."""
    doubles, integers = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.long)
    return doubles, integers, integers.view(0, count), doubles.view(0, count), torch.zeros(0), doubles


def _count_lookup(
    model: NGram, state: Tensor, before_BT: Tensor, x_BT: Tensor, is_text_BT: Tensor, count: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Of the tokens that are text, row by row: their summary, how much context the longest n-gram has, and log p as it
    is scored; and the state. One look-up gives them all; distributions are made few at a time, so that they stay in the
    processor's cache."""
    begun = model.predict(state, before_BT[:, 0])[1]
    contexts, nodes = model.matches(begun, x_BT)
    scored_BT = model.probability(x_BT, zip(contexts, nodes, strict=True)).log()
    context_BTK, node_RK = torch.stack(contexts, -1), torch.stack(nodes, -1)[is_text_BT]
    rows = min(PIECE, max(MIN_DISTRIBUTIONS, CACHED_PROBABILITIES // model.vocab))
    pieces = zip(context_BTK[is_text_BT].split(rows), x_BT[is_text_BT].split(rows), strict=True)
    found = [_summarise_probabilities(model.distribution(some_RK), x_R, count) for some_RK, x_R in pieces]
    context_R = (node_RK != model.none).sum(-1) - 1
    columns = (*map(torch.cat, zip(*found, strict=True)), context_R.cpu(), scored_BT[is_text_BT].cpu())
    return columns, context_BTK[:, -1]


def _summarise(logits_TV: Tensor, x_T: Tensor, count: int) -> tuple[Tensor, ...]:
    logp_TV = logits_TV.log_softmax(-1)  # in the precision of scoring
    own_T1 = logp_TV.gather(1, x_T[:, None])
    bits_T = torch.from_numpy(checked_bits(token_bits(own_T1[:, 0])))
    best = logp_TV.topk(count)
    rank_T = (logp_TV > own_T1).sum(1) + 1
    return bits_T, rank_T.cpu(), best.indices.cpu(), best.values.double().exp().cpu()


def _summarise_probabilities(p_TV: Tensor, x_T: Tensor, count: int) -> tuple[Tensor, ...]:
    """The same from what is proportional to probabilities, with a logarithm for each token and not for each of V."""
    total_T1, own_T1 = p_TV.sum(1, keepdim=True), p_TV.gather(1, x_T[:, None])
    best = p_TV.topk(count)
    rank_T = (p_TV > own_T1).sum(1) + 1
    bits_T = torch.from_numpy(checked_bits(token_bits((own_T1 / total_T1)[:, 0].log())))
    return bits_T, rank_T.cpu(), best.indices.cpu(), (best.values / total_T1).cpu()


def surprises(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Surprise]:
    """Every token of a short text, spelt out."""
    reading = read(model, tokenizer.encode(data).tolist())
    contexts = reading.context_N.tolist() if reading.context_N is not None else [None] * len(reading.x_N)
    every = zip(reading.x_N.tolist(), reading.bits_N.tolist(), reading.rank_N.tolist(), reading.top_NK.tolist(),
                reading.p_NK.tolist(), contexts, strict=True)  # fmt: skip
    return [
        Surprise(display_token(tokenizer, token), bits, rank, tuple(
            (BEGIN if i == model.begin else display_token(tokenizer, i), p)
            for i, p in zip(top, ps, strict=True) if p > 0
        ), context)
        for token, bits, rank, top, ps, context in every
    ]  # fmt: skip


class Span(NamedTuple):
    """The same bytes as tokens first[0] to first[1] - 1 of one reader and second[0] to second[1] - 1 of the other."""

    first: tuple[int, int]
    second: tuple[int, int]
    bytes: int


def align(first: Sequence[int], second: Sequence[int]) -> list[Span]:
    """The spans of two texts that are given as how many bytes each token has. A token of no bytes goes with the token
    before it."""
    if sum(first) != sum(second):
        raise UserError(f"the two must read the same bytes: one reads {sum(first):,}, the other {sum(second):,}")
    ends = [list(accumulate(sizes)) for sizes in (first, second)]
    spans: list[Span] = []
    i = j = start = 0
    # Both have read something, and the same; of texts without bytes, that is at their end.
    for end in sorted({*ends[0]} & {*ends[1]} - {0}) or ([0] if first or second else []):
        after_i, after_j = (bisect.bisect_right(one, end) for one in ends)
        spans.append(Span((i, after_i), (j, after_j), end - start))
        i, j, start = after_i, after_j, end
    return spans
