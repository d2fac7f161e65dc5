"""One token at a time: absorb the prompts, choose the next token of every row, feed it back.

B batch (one row a prompt), T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.errors import UserError
from octavo.io.cooperative import Turn

Prompt = Tensor | Sequence[int]

MAX_PROMPT_TOKENS = 64  # absorbed by one call, which returns logits for all of them: this bounds their memory
CHECK_EVERY = 16  # tokens: on a GPU, asking whether all is well means waiting for it


class Choice(Protocol):
    """A way to pick the next token of every row from its logits alone."""

    def choose(self, logits_BV: Tensor, generator: torch.Generator | None) -> Tensor:
        """The next token of each row."""


@dataclass(frozen=True)
class Greedy:
    """Always the most probable next token; of equals, the one with the lowest id."""

    def choose(self, logits_BV: Tensor, generator: torch.Generator | None) -> Tensor:
        """The next token of each row; nothing is random."""
        return logits_BV.argmax(-1)


class Group(NamedTuple):
    """The rows of a batch whose prompts are equally long, so that they can share one state."""

    rows_B: Tensor
    logits_BV: Tensor
    state: Any


@torch.no_grad()
def stream(
    model: LanguageModel[Any],
    prompts: Sequence[Prompt],
    max_tokens: int,
    method: Choice,
    generator: torch.Generator | None = None,
    stop: Sequence[int] = (),
) -> Iterator[Tensor]:
    """`octavo.decode.stream` of a method that chooses from logits alone."""
    if not prompts:
        return
    with eval_mode(model):
        groups = absorb_prompts(model, prompts)
        sessions = [model.session(group.state, max_tokens) for group in groups]
        in_row_order = torch.cat([group.rows_B for group in groups]).argsort()
        logits_BV = torch.cat([group.logits_BV for group in groups])[in_row_order]
        check_every = CHECK_EVERY if logits_BV.is_cuda else 1
        stop_S = torch.tensor(list(stop), dtype=torch.long, device=logits_BV.device)
        done_B = torch.zeros(len(prompts), dtype=torch.bool, device=logits_BV.device)
        begin_V = without_begin(logits_BV.new_zeros(1, model.vocab), model.begin)  # to be added, which is cheaper
        for n in range(1, max_tokens + 1):
            logits_BV = logits_BV + begin_V
            if n % check_every == 0 or n == max_tokens:
                check_choosable(logits_BV)
            x_B = method.choose(logits_BV, generator)
            x_B = x_B.masked_fill(done_B, model.begin) if stop else x_B
            yield x_B
            done_B = done_B | torch.isin(x_B, stop_S) if stop else done_B
            if n == max_tokens or (stop and bool(done_B.all())):
                return
            if len(sessions) == 1:
                logits_BV = sessions[0].step(x_B)
            else:
                parts = [session.step(x_B[group.rows_B]) for session, group in zip(sessions, groups, strict=True)]
                logits_BV = torch.cat(parts)[in_row_order]


def absorb_prompts(model: LanguageModel[Any], prompts: Sequence[Prompt], turn: Turn = nullcontext) -> list[Group]:
    """Absorb begin and then each prompt, some tokens at a time, and `turn` is entered for each of these calls; prompts
    of one length go through the model together.
    """
    device = device_of(model)
    x_by_row = [torch.as_tensor(prompt, dtype=torch.long, device=device) for prompt in prompts]
    for row, x_T in enumerate(x_by_row):
        check_prompt(model, row, x_T)
    groups = []
    for length in sorted({len(x_T) for x_T in x_by_row}):
        rows = [row for row, x_T in enumerate(x_by_row) if len(x_T) == length]
        x_BT = model.prepend_begin(torch.stack([x_by_row[row] for row in rows]))
        state = model.start(len(rows))
        for chunk_BT in x_BT.split(MAX_PROMPT_TOKENS, 1):
            with turn(), torch.no_grad(), eval_mode(model):
                logits_BTV, state = model.absorb(state, chunk_BT)
        groups.append(Group(torch.tensor(rows, device=device), logits_BTV[:, -1], state))
    return groups


def without_begin(logits_BV: Tensor, begin: int) -> Tensor:
    """The same logits with begin made impossible: it opens a sequence and is never emitted."""
    return logits_BV.index_fill(-1, torch.tensor([begin], device=logits_BV.device), -torch.inf)


def check_choosable(logits_BV: Tensor) -> None:
    """Refuse rows in which no token is possible."""
    best_B = logits_BV.amax(-1)
    if not bool((best_B > -torch.inf).all()):
        row = int((~(best_B > -torch.inf)).nonzero()[0])
        raise UserError(
            f"a next token needs a probability above zero: row {row} of the batch has none (its best logit is "
            f"{float(best_B[row])}); smooth the model, or train it again if the logits are not numbers"
        )


def check_prompt(model: LanguageModel[Any], row: int, x_T: Tensor) -> None:
    """Refuse what the model cannot have as a prompt."""
    if x_T.dim() != 1:
        raise UserError(f"a prompt is one sequence of token ids: prompt {row} has shape {tuple(x_T.shape)}")
    if len(x_T) and (int(x_T.min()) < 0 or int(x_T.max()) >= model.vocab):
        raise UserError(
            f"prompt tokens must lie between 0 and {model.vocab - 1}: prompt {row} holds {int(x_T.min())} to "
            f"{int(x_T.max())}; encode it with the model's own tokenizer"
        )
