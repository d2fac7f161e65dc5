"""What each token of a text costs, what the model expected instead, and how much context it used.

T time, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from octavo.core import LanguageModel, device_of, evaluating
from octavo.models import NGram
from octavo.text.tokenizer import Tokenizer

CANDIDATES = 3
BEGIN = "▷"  # how the begin token, which stands for no text, is shown


@dataclass(frozen=True)
class Surprise:
    """One token as the model saw it coming."""

    token: str
    bits: float
    rank: int  # 1: the model's first choice
    candidates: tuple[tuple[str, float], ...]  # the likeliest tokens with their probabilities
    context: int | None  # n-gram: tokens of context in the longest n-gram that ends with this token; else None


@torch.no_grad()
def surprises(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Surprise]:
    """Every token of a short text. Works through `step`, so it serves every model."""
    told = []
    with evaluating(model):
        state, last = model.start(1), model.begin
        for token in tokenizer.encode(data).tolist():
            logits_1V, state = model.step(state, torch.tensor([last], device=device_of(model)))
            logp_V = logits_1V[0].double().log_softmax(-1)
            best = logp_V.topk(min(CANDIDATES, model.vocab))
            candidates = tuple(
                (BEGIN if i == model.begin else shown(tokenizer, i), math.exp(p))
                for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                if p > -math.inf
            )
            bits, rank = -float(logp_V[token]) / math.log(2), int((logp_V > logp_V[token]).sum()) + 1
            told.append(Surprise(shown(tokenizer, token), bits, rank, candidates, _matched(model, state, token)))
            last = token
    return told


def shown(tokenizer: Tokenizer, token: int) -> str:
    """A token as text on one line: what a terminal would act on, a carriage return for instance, is spelt out."""
    text = tokenizer.spelling(token).decode("utf-8", "backslashreplace").replace("\n", "⏎").replace(" ", "␣")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _matched(model: LanguageModel[Any], state: Any, token: int) -> int | None:
    """How many tokens of context the longest n-gram that ends with this token has."""
    if not isinstance(model, NGram):
        return None
    node_1K = model.index.child(state, torch.tensor([[token]], device=device_of(model)))
    return int((node_1K != model.none).sum()) - 1
