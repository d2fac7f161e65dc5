"""Answers to questions, each with the probability that the model gives to the whole of it.

B questions, W candidates of each, T tokens of a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.decode.beam import Beam, beam_search
from octavo.decode.greedy import Greedy, stream
from octavo.errors import UserError
from octavo.text.question_tokens import mark_of, prompt_of
from octavo.text.tokenizers.base import Tokenizer

LONGEST = 48  # tokens of an answer
MAX_QUESTIONS = 256  # answered in one batch


class Answer(NamedTuple):
    """What the model says, how probable it holds the whole of that, and what else a beam has found."""

    text: str
    confidence: float
    others: tuple[tuple[str, float], ...] = ()


def prompts_within(tokenizer: Tokenizer, questions: Sequence[str], context: int) -> list[list[int]]:
    """What the answers follow; a question that leaves no room for an answer within the context is refused."""
    prompts = [prompt_of(tokenizer, question) for question in questions]
    for question, prompt in zip(questions, prompts, strict=True):
        if len(prompt) + 1 >= context:
            raise UserError(
                f"a question must leave room for its answer: {len(prompt) + 1} tokens of {context}, "
                f"{question[:40]!r}; ask a shorter one"
            )
    return prompts


def answer_questions(
    model: LanguageModel[Any], tokenizer: Tokenizer, questions: Sequence[str], beam: int = 1, context: int = 1 << 30
) -> list[Answer]:
    """The answers, token by token the most probable ones or, with a beam, the most probable of those it has found.

    A question that leaves no room for an answer within the context is refused.
    """
    if beam < 1:
        raise UserError(f"beam must be at least 1: beam={beam}; 1 takes the most probable token each time")
    prompts = prompts_within(tokenizer, questions, context)
    order = sorted(range(len(prompts)), key=lambda n: len(prompts[n]))  # those of one length go together
    found: dict[int, Answer] = {}
    for first in range(0, len(order), MAX_QUESTIONS):
        at = order[first : first + MAX_QUESTIONS]
        some = [prompts[n] for n in at]
        room = min(LONGEST, context - 1 - max(map(len, some)))
        said = _greedy(model, tokenizer, some, room) if beam == 1 else _beams(model, tokenizer, some, room, beam)
        found.update(zip(at, said, strict=True))
    return [found[n] for n in range(len(questions))]


def _greedy(model: LanguageModel[Any], tokenizer: Tokenizer, prompts: list[list[int]], room: int) -> list[Answer]:
    mark = mark_of(tokenizer)
    said_BT = torch.stack(list(stream(model, prompts, room, Greedy(), stop=(mark,))), 1).tolist()
    answers = [[token for token in row if token != model.begin] for row in said_BT]
    logp_B = log_probability(model, prompts, answers)
    return [
        Answer(_spelt(tokenizer, row, mark), math.exp(logp)) for row, logp in zip(answers, logp_B.tolist(), strict=True)
    ]


def _beams(
    model: LanguageModel[Any], tokenizer: Tokenizer, prompts: list[list[int]], room: int, width: int
) -> list[Answer]:
    mark, found = mark_of(tokenizer), []
    for ranked in beam_search(model, prompts, room, Beam(width), (mark,), best=width):
        answers = [(_spelt(tokenizer, one.tokens.tolist(), mark), math.exp(min(0.0, one.logp))) for one in ranked]
        found.append(Answer(*answers[0], tuple(answers[1:])))
    return found


def _spelt(tokenizer: Tokenizer, tokens: list[int], mark: int) -> str:
    whole = tokens[: tokens.index(mark)] if mark in tokens else tokens
    return tokenizer.decode(whole).decode("utf-8", "replace").strip()


@torch.no_grad()
def log_probability(
    model: LanguageModel[Any], prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> Tensor:
    """log p_B of each answer behind its prompt, the mark at its end included: the sum over its tokens."""
    begin, device = model.begin, device_of(model)
    rows = [[begin, *prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    T = max(map(len, rows))
    x_BT = torch.tensor([row + [begin] * (T - len(row)) for row in rows], device=device)
    asked_BT = torch.zeros(x_BT.shape, dtype=torch.bool, device=device)
    for b, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        asked_BT[b, 1 + len(prompt) : len(row)] = True
    with eval_mode(model):
        logp_BTV = model(x_BT[:, :-1]).log_softmax(-1, dtype=torch.float64)
    logp_BT = logp_BTV.gather(-1, x_BT[:, 1:, None]).squeeze(-1)
    logp_B: Tensor = (logp_BT * asked_BT[:, 1:]).sum(1)
    return logp_B.cpu()
