"""Beam search: at every length, keep the few best continuations of the few best beginnings.

B prompts, W hypotheses of each, N = B * W rows of the model's batch, T time, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from octavo.core import LanguageModel, eval_mode, select
from octavo.decode.greedy import Group, Prompt, absorb_prompts, without_begin
from octavo.errors import UserError


@dataclass(frozen=True)
class Beam:
    """Keep `width` hypotheses, ranked by log p / ((5 + length) / 6) ** length_penalty."""

    width: int = 4
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UserError(f"width must be at least 1: {self.width}; width 1 is greedy decoding")
        if self.length_penalty < 0:
            raise UserError(f"length_penalty must be at least 0: {self.length_penalty}; 0 ranks by log p alone")


class Hypothesis(NamedTuple):
    """A continuation of a prompt, its log-probability and the score it was ranked by."""

    tokens: Tensor
    logp: float
    score: float


class _Hypotheses(NamedTuple):
    """What is known of every hypothesis of every prompt, best first."""

    x_BWT: Tensor
    logp_BW: Tensor
    length_BW: Tensor
    done_BW: Tensor

    def score(self, alpha: float) -> Tensor:
        return self.logp_BW / _penalty(self.length_BW, alpha)


@torch.no_grad()
def beam_search(
    model: LanguageModel[Any],
    prompts: Sequence[Prompt],
    max_tokens: int,
    method: Beam,
    stop: Sequence[int] = (),
    best: int = 1,
) -> list[list[Hypothesis]]:
    """The `best` hypotheses of each prompt, best first; fewer where fewer have a probability above zero.

    A hypothesis ends with a stop token or at max_tokens. One that has ended stays in the beam and competes with
    its score, so the search is over when the whole beam has ended.
    """
    if not 1 <= best <= method.width:
        raise UserError(f"best must lie between 1 and the beam's width: best={best}, width={method.width}")
    found: dict[int, list[Hypothesis]] = {}
    with eval_mode(model):
        for group in absorb_prompts(model, prompts):
            hypotheses = deque(_search(model, group, max_tokens, method, stop), 1).pop()
            for b, row in enumerate(group.rows_B.tolist()):
                found[row] = _ranked(hypotheses, b, method.length_penalty)[:best]
                if not found[row]:
                    raise UserError(
                        f"a continuation needs a probability above zero: prompt {row} has none; smooth the model"
                    )
    return [found[row] for row in range(len(prompts))]


def stream_beam(
    model: LanguageModel[Any], group: Group, max_tokens: int, method: Beam, stop: Sequence[int] = ()
) -> Iterator[list[Hypothesis]]:
    """The hypotheses after each token, best first, from where a prompt has been absorbed; the last are the result."""
    for beams in _search(model, group, max_tokens, method, stop):
        yield _ranked(beams, 0, method.length_penalty)


def _search(
    model: LanguageModel[Any], group: Group, max_tokens: int, method: Beam, stop: Sequence[int]
) -> Iterator[_Hypotheses]:
    """The hypotheses after each token, first after none."""
    B, device = len(group.rows_B), group.rows_B.device
    stop_S = torch.tensor(list(stop), dtype=torch.long, device=device)
    zero_BW = torch.zeros(B, 1, dtype=torch.long, device=device)
    beams = _Hypotheses(zero_BW.new_empty(B, 1, 0), zero_BW.double(), zero_BW, zero_BW.bool())
    logits_NV, state = group.logits_BV, group.state
    yield beams
    for left in reversed(range(max_tokens)):
        logp_NV = without_begin(logits_NV.double().log_softmax(-1), model.begin)
        W = beams.logp_BW.shape[1]
        beams, parent_BW = _extend(beams, logp_NV.view(B, W, -1), model.begin, stop_S, method)
        yield beams
        if not left or bool(beams.done_BW.all()):
            break
        rows_N = (torch.arange(B, device=device)[:, None] * W + parent_BW).flatten()
        logits_NV, state = model.step(select(state, rows_N), beams.x_BWT[:, :, -1].flatten())


def _extend(
    beams: _Hypotheses, next_BWV: Tensor, begin: int, stop_S: Tensor, method: Beam
) -> tuple[_Hypotheses, Tensor]:
    """The best hypotheses one token longer, and which of the old ones each continues."""
    V = next_BWV.shape[-1]
    # What has ended can only be followed by begin, which stands for nothing and costs nothing.
    nothing_V = torch.full_like(next_BWV[0, 0], -torch.inf).index_fill(0, torch.tensor([begin]).to(stop_S.device), 0.0)
    next_BWV = torch.where(beams.done_BW[..., None], nothing_V, next_BWV)
    length_BW = beams.length_BW + ~beams.done_BW
    logp_BWV = beams.logp_BW[..., None] + next_BWV
    score_BWV = logp_BWV / _penalty(length_BW, method.length_penalty)[..., None]
    flat = score_BWV.flatten(1)
    at_BW = flat.topk(min(method.width, flat.shape[1])).indices
    parent_BW, x_BW = at_BW // V, at_BW % V
    logp_BW = logp_BWV.flatten(1).gather(1, at_BW)
    old_BWT = beams.x_BWT.gather(1, parent_BW[..., None].expand(-1, -1, beams.x_BWT.shape[2]))
    # An impossible hypothesis (a beam wider than there are continuations) counts as ended.
    ended_BW = beams.done_BW.gather(1, parent_BW) | torch.isin(x_BW, stop_S) | logp_BW.isneginf()
    x_BWT = torch.cat([old_BWT, x_BW[..., None]], -1)
    return _Hypotheses(x_BWT, logp_BW, length_BW.gather(1, parent_BW), ended_BW), parent_BW


def _penalty(length_BW: Tensor, alpha: float) -> Tensor:
    """GNMT's length penalty (Wu et al. 2016, equation 14)."""
    return ((5 + length_BW.double()) / 6) ** alpha


def _ranked(beams: _Hypotheses, b: int, alpha: float) -> list[Hypothesis]:
    logp_W, score_W = beams.logp_BW[b].tolist(), beams.score(alpha)[b].tolist()
    lengths_W = beams.length_BW[b].tolist()
    return [
        Hypothesis(beams.x_BWT[b, w, :length], logp, score)
        for w, (length, logp, score) in enumerate(zip(lengths_W, logp_W, score_W, strict=True))
        if logp > -torch.inf
    ]
