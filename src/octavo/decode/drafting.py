"""Who drafts for speculative decoding: any language model, or an n-gram by what it has seen come next.

A draft may be drawn from any distribution q, as long as q is what it is judged by; so q may be whatever is cheap.

B = 1 row, T time, V vocabulary, E tokens that q gives a chance, N drafted tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import LanguageModel, device_of
from octavo.decode.greedy import Greedy, Prompt, check_prompt, without_begin
from octavo.decode.sample import Sample
from octavo.models import NGram


class Luck(Protocol):
    """What is random in speculative decoding."""

    def token(self, p_1V: Tensor) -> Tensor:
        """A token drawn with these probabilities, x_1."""

    def accepted(self, chance_N: Tensor) -> int:
        """How many tokens pass one after the other, each with its chance, before the first that does not."""


class Guess(NamedTuple):
    """A drafted token and the distribution that it was drawn from."""

    token: int
    chance: float  # q of the token
    q_E: Tensor
    tokens_E: Tensor | None  # the tokens that q_E is about; None, all of the vocabulary

    def whole(self, like_1V: Tensor) -> Tensor:
        """q over the whole vocabulary, q_1V."""
        q_E = self.q_E.to(like_1V)
        if self.tokens_E is None:
            return q_E[None]
        return torch.zeros_like(like_1V).index_copy_(1, self.tokens_E.to(like_1V.device), q_E[None])


def draft_of(model: LanguageModel[Any], prompt: Prompt, sample: Sample | Greedy, begin: int) -> Written | SeenNext:
    """The cheapest way in which a model drafts after a prompt; `begin` must not be written."""
    looks_up = getattr(model, "drafts_by_lookup", False) and device_of(model).type == "cpu"
    kind = SeenNext if looks_up else Written
    return kind(model, prompt, sample, begin)  # type: ignore[arg-type]


def distribution(method: Sample | Greedy, logits_BV: Tensor) -> Tensor:
    """What the method draws from, p_BV in double precision; greedy decoding draws its one token for certain."""
    if isinstance(method, Greedy):
        best_B1 = method.choose(logits_BV, None)[:, None]
        return torch.zeros_like(logits_BV, dtype=torch.float64).scatter_(-1, best_B1, 1.0)
    return method.filtered(logits_BV).softmax(-1)


def absorbed(model: LanguageModel[Any], prompt: Prompt) -> tuple[Any, Tensor]:
    """The model's state before the last token of begin and the prompt, and that token, x_11."""
    x_T = torch.as_tensor(prompt, dtype=torch.long, device=device_of(model))
    check_prompt(model, 0, x_T)
    x_1T, state = model.prepend_begin(x_T[None]), model.start(1)
    for t in range(0, len(x_T), model.max_scored_tokens):
        _, state = model.token_log_probs(
            state, x_1T[:, t : t + model.max_scored_tokens + 1]
        )  # which absorbs all but the last
    return state, x_1T[:, -1:]


class Written:
    """A model that writes on by itself, with the same method as the one that it drafts for."""

    def __init__(self, model: LanguageModel[Any], prompt: Prompt, sample: Sample | Greedy, begin: int) -> None:
        state, self.rest_1T = absorbed(model, prompt)  # what is yet to be absorbed: one token or two
        self.session, self.sample, self.count = model.session(state), sample, 0
        zeros_V = torch.zeros(model.vocab, dtype=torch.float64, device=self.rest_1T.device)
        self.begin_V = without_begin(zeros_V, begin)  # to be added to logits
        self.even_V = self.begin_V.softmax(-1)

    def guess(self, count: int, luck: Luck) -> list[Guess]:
        """The next tokens; a model that sees no possible one, or no numbers, has them all alike."""
        guesses: list[Guess] = []
        x_1T = self.rest_1T
        for _ in range(count):
            logits_1V = self.session.step(x_1T[:, 0]) if x_1T.shape[1] == 1 else self.session.absorb(x_1T)[:, -1]
            q_1V = distribution(self.sample, logits_1V + self.begin_V)
            q_1V = torch.where(q_1V.isnan(), self.even_V, q_1V)
            x_1T = luck.token(q_1V)[:, None]
            token = int(x_1T)
            guesses.append(Guess(token, float(q_1V[0, token]), q_1V[0], None))
        self.count, self.last_11 = count, x_1T
        return guesses

    def hear(self, accepted: int, token: int) -> None:
        """Go back to behind the accepted tokens; the last guess has not been absorbed."""
        y_11 = self.rest_1T.new_full((1, 1), token)
        if not self.count:
            self.rest_1T = torch.cat([self.rest_1T, y_11], 1)
        elif accepted == self.count:
            self.rest_1T = torch.cat([self.last_11, y_11], 1)
        else:
            self.session.rewind(self.count - 1 - accepted)
            self.rest_1T = y_11


class SeenNext:
    """An n-gram that drafts only what it has seen come next, after as much of the text as it has seen at all.

    q is its own distribution over those tokens, scaled to sum to one. They are few, so a guess takes no work over the
    vocabulary. After a token that it has never seen followed by anything, it drafts nothing.
    """

    def __init__(self, model: NGram, prompt: Prompt, sample: Sample | Greedy, begin: int) -> None:
        self.model, self.sample, self.begin = model, sample, begin
        tables = (model.first_C, model.word_M, model.alpha_M, model.gamma_C, model.words_V)
        self.first_C, self.word_M, self.alpha_M, self.gamma_C, self.words_V = (one.numpy() for one in tables)
        state, x_11 = absorbed(model, prompt)
        self.path = [self._next(state[0].tolist(), int(x_11))]  # the state, and those behind each guess

    def guess(self, count: int, luck: Luck) -> list[Guess]:
        """The next tokens, up to where nothing was seen to follow."""
        guesses: list[Guess] = []
        while len(guesses) < count:
            tokens_E, p_E = self._seen(self.path[-1])
            if not len(tokens_E):
                break
            q_1E = distribution(self.sample, torch.from_numpy(p_E).log()[None])
            which = int(luck.token(q_1E))
            token = int(tokens_E[which])
            guesses.append(Guess(token, float(q_1E[0, which]), q_1E[0], torch.from_numpy(tokens_E)))
            self.path.append(self._next(self.path[-1], token))
        return guesses

    def hear(self, accepted: int, token: int) -> None:
        """Go on behind the accepted tokens and the model's own."""
        self.path = [self._next(self.path[accepted], token)]

    def _next(self, state: list[int], token: int) -> list[int]:
        """The nodes of the contexts that end with the token, from the empty one up; those not there are left out."""
        if token == self.model.newline:
            return [0, 1 + self.model.begin][: self.model.config.order]
        longer = [0]
        for node in state[: self.model.config.order - 1]:
            child = self._child(node, token)
            if child < 0:
                break  # a context is there only if all its ends are
            longer.append(child)
        return longer

    def _children(self, node: int) -> tuple[int, int]:
        """The first node that continues a context, and the one behind the last."""
        return (int(self.first_C[node]), int(self.first_C[node + 1])) if node + 1 < len(self.first_C) else (0, 0)

    def _child(self, node: int, token: int) -> int:
        """The node of a context followed by the token; -1 where there is none."""
        low, high = self._children(node)
        place = low + int(np.searchsorted(self.word_M[low:high], token))
        return place if place < high and self.word_M[place] == token else -1

    def _seen(self, state: list[int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The tokens that followed the longest context that any did, and the probabilities of those above zero."""
        longest, low, high = len(state) - 1, 0, 0
        while longest and low == high:
            low, high = self._children(state[longest])
            longest -= low == high
        tokens_E = self.word_M[low:high].astype(np.int64)
        p_E = self.words_V[tokens_E]
        for node in state[1 : longest + 1]:
            p_E = self.gamma_C[node] * p_E + self._alpha(node, tokens_E)
        kept_E = (p_E > 0) & (tokens_E != self.begin)
        return tokens_E[kept_E], p_E[kept_E]

    def _alpha(self, node: int, tokens_E: NDArray[np.int64]) -> NDArray[np.float64]:
        """What a context's own continuations give these tokens."""
        low, high = self._children(node)
        place_E = np.searchsorted(self.word_M[low:high], tokens_E)
        place_E[place_E == high - low] = 0
        found_E = self.word_M[low:high][place_E] == tokens_E if high > low else np.zeros(len(tokens_E), bool)
        alpha_E: NDArray[np.float64] = np.where(found_E, self.alpha_M[low + place_E], 0.0).astype(np.float64)
        return alpha_E
