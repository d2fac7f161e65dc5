"""Speculative decoding: a cheap model drafts a few tokens, the model checks them all in one call.

A drafted token x is accepted with probability min(1, p(x) / q(x)), p being the model's distribution and q the draft's;
the first one that is not is replaced by a draw from (p - q)+, scaled to sum to one. A token written this way has
exactly the distribution p, whatever q is: a bad draft costs time, never quality.

B = 1 row, T time, N drafted tokens, M = N + 1 places that the model judges, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, evaluating
from octavo.decode.greedy import Greedy, Prompt, check_choosable, check_prompt, without_begin
from octavo.decode.sample import Sample, draw
from octavo.errors import UserError

# A model that cannot give its state in the middle of a call absorbs confirmed tokens again with the next draft, in the
# same call; when more than so many have gathered, a call of their own is cheaper than dragging them along.
GATHERED = 8


@dataclass(frozen=True)
class Speculative:
    """Write what `sample` alone would write, in fewer calls of the model: `draft` guesses `tokens` at a time."""

    draft: LanguageModel[Any]
    tokens: int = 4
    sample: Sample | Greedy = field(default_factory=Sample)

    def __post_init__(self) -> None:
        if not isinstance(self.draft, LanguageModel):
            raise UserError(f"draft must be a language model: it is a {type(self.draft).__name__}; give a run's model")
        if type(self.tokens) is not int or self.tokens < 1:
            raise UserError(f"a draft needs at least 1 token: tokens={self.tokens!r}; try 4")
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


class Luck(Protocol):
    """What is random in speculative decoding."""

    def token(self, p_1V: Tensor) -> Tensor:
        """A token drawn with these probabilities, x_1."""

    def accepted(self, chance_N: Tensor) -> int:
        """How many tokens pass one after the other, each with its chance, before the first that does not."""


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


def chance(p_NV: Tensor, q_NV: Tensor, x_N: Tensor) -> Tensor:
    """With which probability each drafted token is accepted: min(1, p(x) / q(x))."""
    p_N, q_N = (d_NV.gather(-1, x_N[:, None]).squeeze(-1) for d_NV in (p_NV, q_NV))
    return (p_N / q_N).clamp(max=1.0)


def leftover(p_1V: Tensor, q_1V: Tensor) -> Tensor:
    """What a rejected token is replaced from: (p - q)+, scaled to sum to one."""
    rest_1V = (p_1V - q_1V).clamp(min=0)
    total_11 = rest_1V.sum(-1, keepdim=True)
    # Where p = q nothing is rejected, but for rounding; then p is as good.
    return torch.where(total_11 > 0, rest_1V / total_11, p_1V)


def distribution(method: Sample | Greedy, logits_BV: Tensor) -> Tensor:
    """What the method draws from, p_BV in double precision; greedy decoding draws its one token for certain."""
    if isinstance(method, Greedy):
        best_B1 = method.choose(logits_BV, None)[:, None]
        return torch.zeros_like(logits_BV, dtype=torch.float64).scatter_(-1, best_B1, 1.0)
    return method.filtered(logits_BV).softmax(-1)


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
    with evaluating(model), evaluating(method.draft):
        yield from _rounds(model, prompt, max_tokens, method, luck, stop)


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
    check_pair(model, method.draft)
    with evaluating(model), evaluating(method.draft):
        rows = [
            (token for one in _rounds(model, prompt, max_tokens, method, luck, stop) for token in one.tokens)
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
    """Refuse a draft whose tokens are not the model's."""
    if (model.vocab, model.begin) != (draft.vocab, draft.begin):
        raise UserError(
            f"a draft must have the model's tokenizer: the model has {model.vocab} tokens, the draft {draft.vocab}; "
            f"train one of them with the other's tokenizer"
        )


class _Place(NamedTuple):
    """Where a model stands in a sequence: a state, and the tokens after it that it has yet to absorb, one or more."""

    state: Any
    rest_1T: Tensor


class _Draft(NamedTuple):
    """Drafted tokens, what each was drawn from, and the draft model's place after none, one, ... of them."""

    x_1N: Tensor
    q_NV: Tensor
    places: list[_Place]


def _rounds(
    model: LanguageModel[Any], prompt: Prompt, max_tokens: int, method: Speculative, luck: Luck, stop: Sequence[int]
) -> Iterator[Round]:
    """`speculate`, for whoever has switched dropout off already."""
    at, draft_at = _begin(model, prompt), _begin(method.draft, prompt)
    left, ends = max_tokens, set(stop)
    zeros_V = torch.zeros(model.vocab, dtype=torch.float64, device=draft_at.rest_1T.device)
    begin_V = without_begin(zeros_V, model.begin)  # to be added to logits
    while left > 0:
        draft = _write_draft(method, draft_at, min(method.tokens, left - 1), luck, begin_V)
        x_1N = draft.x_1N.to(at.rest_1T.device)
        seen_1T = torch.cat([at.rest_1T, x_1N], 1)
        logits_1TV, states = _along(model, at.state, seen_1T)
        logits_MV = without_begin(logits_1TV[0, at.rest_1T.shape[1] - 1 :], model.begin)
        accepted, y_1 = _judge(method.sample, logits_MV, x_1N[0], draft.q_NV.to(logits_MV.device), luck)
        tokens = [*x_1N[0, :accepted].tolist(), int(y_1)]
        end = next((i + 1 for i, token in enumerate(tokens) if token in ends), len(tokens))
        left = 0 if tokens[end - 1] in ends else left - end
        again = 0
        if left:
            at, again = _advance(model, at, seen_1T[:, : at.rest_1T.shape[1] + accepted], y_1, states)
        draft_at = _draft_place(draft, accepted, y_1, draft_at.rest_1T.device)
        yield Round(tokens[:end], x_1N.shape[1], min(accepted, end), 1 + again)


def _begin(model: LanguageModel[Any], prompt: Prompt) -> _Place:
    """The model before the last token of begin and the prompt."""
    x_T = torch.as_tensor(prompt, dtype=torch.long, device=device_of(model))
    check_prompt(model, 0, x_T)
    x_1T, state = model.after_begin(x_T[None]), model.start(1)
    for t in range(0, len(x_T), model.window):
        _, state = model.charge(state, x_1T[:, t : t + model.window + 1])  # which absorbs all but the last
    return _Place(state, x_1T[:, -1:])


def _write_draft(method: Speculative, at: _Place, count: int, luck: Luck, begin_V: Tensor) -> _Draft:
    """Let the draft model write on; it is not called where nothing may be drafted.

    A draft may see no possible token, or have logits that are no numbers: then all tokens are alike to it.
    """
    if not count:
        return _Draft(at.rest_1T[:, :0], begin_V.new_empty(0, len(begin_V)), [at])
    drawn, q, places = [], [], []
    state, rest_1T, even_V = at.state, at.rest_1T, begin_V.softmax(-1)
    for _ in range(count):
        for x_1 in rest_1T.unbind(1):
            logits_1V, state = method.draft.step(state, x_1)
        q_1V = distribution(method.sample, logits_1V + begin_V)
        q_1V = torch.where(q_1V.isnan(), even_V, q_1V)
        x_1 = luck.token(q_1V)
        places.append(_Place(state, rest_1T[:, :0]))
        q.append(q_1V)
        drawn.append(x_1)
        rest_1T = x_1[:, None]
    return _Draft(torch.stack(drawn, 1), torch.cat(q), [*places, _Place(state, rest_1T)])


def _draft_place(draft: _Draft, accepted: int, y_1: Tensor, device: torch.device) -> _Place:
    """Where the draft model goes on: after the accepted tokens, the model's own still to be absorbed."""
    place = draft.places[accepted]
    return _Place(place.state, torch.cat([place.rest_1T, y_1[:, None].to(device)], 1))


def _judge(sample: Sample | Greedy, logits_MV: Tensor, x_N: Tensor, q_NV: Tensor, luck: Luck) -> tuple[int, Tensor]:
    """How many drafted tokens are accepted, and the token that the model puts after them."""
    p_MV = distribution(sample, logits_MV)
    accepted = luck.accepted(chance(p_MV[:-1], q_NV, x_N)) if len(x_N) else 0
    check_choosable(logits_MV[accepted : accepted + 1])  # what comes after a rejected token need not be possible
    p_1V = p_MV[accepted : accepted + 1]
    if accepted < len(x_N):
        p_1V = leftover(p_1V, q_NV[accepted : accepted + 1])
    return accepted, luck.token(p_1V)


class _States(NamedTuple):
    """What a call of the model leaves: the state after its `length` tokens and, where it can, the one after any t."""

    length: int
    last: Any
    after: Callable[[int], Any] | None


def _along(model: LanguageModel[Any], state: Any, x_1T: Tensor) -> tuple[Tensor, _States]:
    """`absorb`, with the states along the way where they cost nothing."""
    T = x_1T.shape[1]
    if type(model).absorb is LanguageModel.absorb:  # a scan comes past every state
        logits, states = [], []
        for x_1 in x_1T.unbind(1):
            logits_1V, state = model.step(state, x_1)
            logits.append(logits_1V)
            states.append(state)
        return torch.stack(logits, 1), _States(T, state, lambda t: states[t - 1])
    if (along := getattr(model, "along", None)) is not None:
        logits_1TV, after = along(state, x_1T)
        return logits_1TV, _States(T, after(T), after)
    logits_1TV, last = model.absorb(state, x_1T)
    return logits_1TV, _States(T, last, None)


def _advance(
    model: LanguageModel[Any], at: _Place, kept_1T: Tensor, y_1: Tensor, states: _States
) -> tuple[_Place, int]:
    """The model's place after the tokens that are kept, y_1 still to be absorbed; and how many calls that took."""
    kept = kept_1T.shape[1]
    if kept == states.length:
        return _Place(states.last, y_1[:, None]), 0
    if states.after is not None:
        return _Place(states.after(kept), y_1[:, None]), 0
    if kept < GATHERED:
        return _Place(at.state, torch.cat([kept_1T, y_1[:, None]], 1)), 0
    return _Place(model.absorb(at.state, kept_1T)[1], y_1[:, None]), 1
