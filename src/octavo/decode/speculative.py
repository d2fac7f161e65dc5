"""Speculative decoding: a cheap model drafts a few tokens, the model checks them all in one call.

A drafted token x is accepted with probability min(1, p(x) / q(x)), p being the model's distribution and q the draft's;
the first one that is not is replaced by a draw from (p - q)+, scaled to sum to one. A token written this way has
exactly the distribution p, whatever q is: a bad draft costs time, never quality.

B = 1 row, T time, N drafted tokens, M = N + 1 places that the model judges, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from octavo.core import MAX_REWIND_TOKENS, LanguageModel, device_of, eval_mode
from octavo.decode.drafting import Guess, Luck, absorbed, distribution, draft_of
from octavo.decode.greedy import Greedy, Prompt, check_choosable, without_begin
from octavo.decode.sample import Sample, draw
from octavo.errors import UserError


@dataclass(frozen=True)
class Speculative:
    """Write what `sample` alone would write, in fewer calls of the model: `draft` guesses `tokens` at a time."""

    draft: LanguageModel[Any]
    tokens: int = 4
    sample: Sample | Greedy = field(default_factory=Sample)

    def __post_init__(self) -> None:
        if not isinstance(self.draft, LanguageModel):
            raise UserError(f"draft must be a language model: it is a {type(self.draft).__name__}; give a run's model")
        if type(self.tokens) is not int or not 1 <= self.tokens <= MAX_REWIND_TOKENS:
            raise UserError(f"a draft needs 1 to {MAX_REWIND_TOKENS} tokens: tokens={self.tokens!r}; try 4")
        if not isinstance(self.sample, Sample | Greedy):
            raise UserError(
                f"only sampling and greedy decoding can be drafted for: {type(self.sample).__name__}; decode without"
            )


class Round(NamedTuple):
    """What one draft and its check came to."""

    tokens: list[int]  # those written: the accepted ones, and one that the model chose itself
    drafted: int
    accepted: int
    calls: int  # of the model; the prompt's are not counted


class Tally(NamedTuple):
    """What several rounds came to."""

    tokens: int
    drafted: int
    accepted: int
    calls: int

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> Tally:
        """The sum of the rounds."""
        counted = [(len(one.tokens), one.drafted, one.accepted, one.calls) for one in rounds]
        return cls(*(sum(column) for column in zip((0, 0, 0, 0), *counted, strict=True)))

    @property
    def accepted_share(self) -> float:
        """How much of what was drafted was accepted."""
        return self.accepted / max(1, self.drafted)

    @property
    def tokens_per_call(self) -> float:
        """How many tokens a call of the model gave; plain decoding gives one."""
        return self.tokens / max(1, self.calls)


@dataclass(frozen=True)
class Dice:
    """Luck from a random generator."""

    generator: torch.Generator

    def token(self, p_1V: Tensor) -> Tensor:
        """A token drawn with these probabilities, x_1."""
        return draw(p_1V, self.generator)

    def accepted(self, chance_N: Tensor) -> int:
        """How many tokens pass one after the other, each with its chance, before the first that does not."""
        u_N = torch.rand(len(chance_N), generator=self.generator, dtype=torch.float64, device=self.generator.device)
        return int((u_N.to(chance_N.device) < chance_N).long().cumprod(0).sum())


@dataclass(frozen=True)
class Certain:
    """Greedy decoding's luck, of which it needs none: its distributions have one token each."""

    def token(self, p_1V: Tensor) -> Tensor:
        """The token that has all the probability, x_1."""
        return p_1V.argmax(-1)

    def accepted(self, chance_N: Tensor) -> int:
        """How many tokens are the model's own choice before the first that is not."""
        return int((chance_N == 1).long().cumprod(0).sum())


def chance(p_NV: Tensor, q_N: Tensor, x_N: Tensor) -> Tensor:
    """With which probability each drafted token is accepted: min(1, p(x) / q(x)); q_N is that of the tokens."""
    p_N = p_NV.gather(-1, x_N[:, None]).squeeze(-1)
    return (p_N / q_N).clamp(max=1.0)


def leftover(p_1V: Tensor, q_1V: Tensor) -> Tensor:
    """What a rejected token is replaced from: (p - q)+, scaled to sum to one."""
    rest_1V = (p_1V - q_1V).clamp(min=0)
    total_11 = rest_1V.sum(-1, keepdim=True)
    # Where p = q nothing is rejected, but for rounding; then p is as good.
    return torch.where(total_11 > 0, rest_1V / total_11, p_1V)


@torch.no_grad()
def speculate(
    model: LanguageModel[Any],
    prompt: Prompt,
    max_tokens: int,
    method: Speculative,
    luck: Luck,
    stop: Sequence[int] = (),
) -> Iterator[Round]:
    """Continue one prompt, round by round, until max_tokens or a stop token is written."""
    check_pair(model, method.draft)
    with eval_mode(model), eval_mode(method.draft):
        state, last_11 = absorbed(model, prompt)
        session, draft = model.session(state, max_tokens), draft_of(method.draft, prompt, method.sample, model.begin)
        left, ends = max_tokens, set(stop)
        while left > 0:
            calls = session.calls
            guesses = draft.guess(min(method.tokens, left - 1), luck)  # the last token is the model's own
            x_1N = last_11.new_tensor([[guess.token for guess in guesses]], dtype=torch.long)
            logits_MV = without_begin(session.absorb(torch.cat([last_11, x_1N], 1))[0], model.begin)
            accepted, token = _judge(method.sample, logits_MV, x_1N[0], guesses, luck)
            tokens = [*(guess.token for guess in guesses[:accepted]), token]
            end = next((i + 1 for i, token in enumerate(tokens) if token in ends), len(tokens))
            left = 0 if tokens[end - 1] in ends else left - end
            if left:
                session.rewind(len(guesses) - accepted)
                last_11 = last_11.new_tensor([[token]])
                draft.hear(accepted, token)
            yield Round(tokens[:end], len(guesses), min(accepted, end), session.calls - calls)


@torch.no_grad()
def stream_speculative(
    model: LanguageModel[Any],
    prompts: Sequence[Prompt],
    max_tokens: int,
    method: Speculative,
    generator: torch.Generator | None = None,
    stop: Sequence[int] = (),
) -> Iterator[Tensor]:
    """`stream` with drafts: rows may accept different numbers of tokens, so each is decoded by itself."""
    with eval_mode(model), eval_mode(method.draft):  # for all rows, because they take turns
        rows = [
            (token for one in speculate(model, prompt, max_tokens, method, luck, stop) for token in one.tokens)
            for prompt, luck in zip(prompts, lucks(method, generator, len(prompts)), strict=True)
        ]
        while rows:
            column = [next(row, model.begin) for row in rows]
            if all(token == model.begin for token in column):
                return
            yield torch.tensor(column, device=device_of(model))


def lucks(method: Speculative, generator: torch.Generator | None, count: int) -> Sequence[Luck]:
    """Luck for each row, of its own: a row reads as many random numbers as its drafts need, whatever the others do."""
    if isinstance(method.sample, Greedy):
        return [Certain()] * count
    if generator is None:
        raise ValueError("sampling draws from the generator it is given: pass torch.Generator().manual_seed(seed)")
    seeds = torch.randint(1 << 62, (count,), generator=generator, device=generator.device).tolist()
    return [Dice(torch.Generator(generator.device).manual_seed(seed)) for seed in seeds]


def check_pair(model: LanguageModel[Any], draft: LanguageModel[Any]) -> None:
    """Refuse a draft whose tokens are not the model's. It may open its sequences with another one."""
    if model.vocab != draft.vocab:
        raise UserError(
            f"a draft must have the model's tokenizer: the model has {model.vocab} tokens, the draft {draft.vocab}; "
            f"train one of them with the other's tokenizer"
        )


def _judge(
    sample: Sample | Greedy, logits_MV: Tensor, x_N: Tensor, guesses: Sequence[Guess], luck: Luck
) -> tuple[int, int]:
    """How many drafted tokens are accepted, and the token that the model puts after them."""
    p_MV, accepted = distribution(sample, logits_MV), 0
    if guesses:
        q_N = torch.tensor([guess.chance for guess in guesses], dtype=p_MV.dtype, device=p_MV.device)
        accepted = luck.accepted(chance(p_MV[:-1], q_N, x_N))
    check_choosable(logits_MV[accepted : accepted + 1])  # what comes after a rejected token need not be possible
    p_1V = p_MV[accepted : accepted + 1]
    if accepted < len(guesses):
        p_1V = leftover(p_1V, guesses[accepted].whole(p_1V))
    return accepted, int(luck.token(p_1V))
