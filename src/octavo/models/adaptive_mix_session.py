"""What reads for an adaptive mixture: what it knows in one place of a text, and a session over its parts' sessions.

B batch, T time, V vocabulary, I experts, P numbers that are learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from octavo.core import MAX_REWIND_TOKENS, Session
from octavo.errors import UserError
from octavo.models import mixing_loops as loops
from octavo.models.context_reader import ContextReader
from octavo.models.mixing_loops import Array
from octavo.models.ngram.adaptive_reader import AdaptiveNGramSession

if TYPE_CHECKING:
    from octavo.models.adaptive_mix import AdaptiveMix, State


class MixReader:
    """What a mixture knows in one place of a text: θ, its contexts, and what the experts said of the next token."""

    def __init__(
        self, model: AdaptiveMix, theta_P: Array, p_IV: Array, recent_3: Array, context: ContextReader
    ) -> None:
        self.context = context
        self.shape, self.begin = model.shape, model.begin
        self.theta_P, self.p_IV = theta_P.copy(), p_IV.copy()
        self.last, self.before, self.kind = recent_3.tolist()
        nodes = 2 << self.shape.bits
        self.mass_IN, self.p_N, self.p_V = np.empty((self.shape.experts, nodes)), np.empty(nodes), np.empty(model.vocab)
        self.journal_J, self.old_J, self.size = np.empty(0, np.int64), np.empty(0), np.zeros(1, np.int64)
        loops.tree_sums(self.p_IV, self.shape, self.mass_IN)

    @property
    def known(self) -> loops.Known:
        return loops.Known(self.kind, self.last, self.before)

    def read(self, word: int, p_IV: Array, kind: int) -> Array:
        """Learn from a token, hear what the experts say next, and mix it."""
        self.learn(word)
        self.hear(word, p_IV, kind)
        loops.mixed_distribution(
            self.theta_P, self.shape, self.context.tables, self.mass_IN, self.known, self.p_N, self.p_V
        )
        return self.p_V

    def hear(self, word: int, p_IV: Array, kind: int) -> None:
        """Stand behind a token: what the experts say next."""
        self.last, self.before, self.kind, self.p_IV = word, self.last, kind, p_IV
        loops.tree_sums(p_IV, self.shape, self.mass_IN)

    def learn(self, word: int, learn: bool = True) -> float:
        """log p of the token that came, which is learnt from; begin is not."""
        if learn and self.shape.contexts:
            self.context.make_room(1)
        if word == self.begin:
            if learn and self.shape.contexts:
                self.context.read(np.array([word]))
            return -np.inf
        return loops.read_token(
            self.theta_P, self.shape, self.context.tables, self.mass_IN, self.known, word, learn, self.journal_J,
            self.old_J, self.size,
        )  # fmt: skip

    def score(self, x_T: Array, p_TIV: Array, kind_T: Array, log_p_T: Array) -> None:
        """log p of every token but the first; the last one is not learnt from, since the next call begins with it."""
        self.learn(int(x_T[0]))
        last, before, inner = int(x_T[0]), self.last, len(p_TIV) - 1
        if self.shape.contexts:
            self.context.make_room(inner)
        loops.read_tokens(
            self.theta_P, self.shape, self.context.tables, p_TIV[:inner], kind_T[:inner], x_T[1:-1], self.begin, last,
            before, log_p_T[:inner],
        )  # fmt: skip
        self.last, self.before = int(x_T[-2]), int(x_T[-3]) if len(x_T) > 2 else self.last
        self.kind, self.p_IV = int(kind_T[-1]), p_TIV[-1]
        loops.tree_sums(self.p_IV, self.shape, self.mass_IN)
        log_p_T[-1] = self.learn(int(x_T[-1]), learn=False)

    def forget_journal(self, entries: int) -> None:
        """Drop the oldest entries of the journal."""
        left = int(self.size[0]) - entries
        for array in (self.journal_J, self.old_J):
            array[:left] = array[entries : entries + left].copy()
        self.size[0] = left

    def __copy__(self) -> MixReader:
        """Another one at the same place."""
        other = object.__new__(MixReader)
        arrays = {name: value.copy() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        other.__dict__ |= vars(self) | arrays
        other.context = self.context.copy() if self.shape.contexts else self.context
        return other

    def undo(self, mark: int, tokens: int) -> None:
        """Forget the last tokens, down to a mark of the journal."""
        loops.undo(self.theta_P, self.journal_J, self.old_J, self.size, mark)
        if self.shape.contexts:
            self.context.undo(tokens)


class AdaptiveMixSession(Session[Any]):
    """Sessions of the parts, and what the mixture knows, changed in place."""

    def __init__(self, model: AdaptiveMix, state: State, tokens: int = 1 << 30) -> None:
        self.tokens = tokens
        super().__init__(model, state)

    @property
    def state(self) -> State:
        mix: AdaptiveMix = self.model  # type: ignore[assignment]
        return tuple(session.state for session in self.sessions), *mix.joined(self.readers)

    @state.setter
    def state(self, state: State) -> None:
        mix: AdaptiveMix = self.model  # type: ignore[assignment]
        states, *own = state
        self.sessions = [part.session(s, self.tokens) for part, s in zip(mix.experts, states, strict=True)]
        self.readers = mix.readers(*own)  # which are this session's own from here on
        entries = loops.journal_size(mix.shape, MAX_REWIND_TOKENS + 1)
        for reader in self.readers:
            reader.journal_J, reader.old_J = np.empty(entries, np.int64), np.empty(entries)
        self.trails: list[list[tuple[Any, ...]]] = [[] for _ in self.readers]  # of each row, how it was before a token

    def step(self, x_B: Tensor) -> Tensor:
        return self.predict(x_B).log()

    def predict(self, x_B: Tensor) -> Tensor:
        p_BIV, kind_B = next_distributions(self.model, self.sessions, x_B)  # type: ignore[arg-type]
        p_BV = []
        for reader, trail, x, p_IV, kind in zip(self.readers, self.trails, x_B.tolist(), p_BIV, kind_B, strict=True):
            if len(trail) == MAX_REWIND_TOKENS:
                gone = trail[1][0]
                reader.forget_journal(gone)
                trail[:] = [(mark - gone, *rest) for mark, *rest in trail[1:]]
            trail.append((int(reader.size[0]), reader.last, reader.before, reader.kind, reader.p_IV))
            p_BV.append(reader.read(x, p_IV, int(kind)).copy())
        return torch.from_numpy(np.stack(p_BV))

    def absorb(self, x_BT: Tensor) -> Tensor:
        self.calls += 1
        if not x_BT.shape[1]:
            return self.model.absorb(self.state, x_BT)[0]
        return torch.stack([self.step(x_B) for x_B in x_BT.unbind(1)], 1)

    def context_class(self) -> Tensor:
        return torch.tensor([reader.kind for reader in self.readers])

    def rewind(self, count: int) -> None:
        held = min(map(len, self.trails), default=0)
        if not 0 <= count <= held:
            raise UserError(f"only the last {held} tokens can be taken back: count={count}; fork before instead")
        for session in self.sessions:
            session.rewind(count)
        for reader, trail in zip(self.readers, self.trails, strict=True):
            for _ in range(count):
                mark, reader.last, reader.before, reader.kind, reader.p_IV = trail.pop()
                reader.undo(mark, 1)
            loops.tree_sums(reader.p_IV, reader.shape, reader.mass_IN)

    def fork(self) -> AdaptiveMixSession:
        other = object.__new__(AdaptiveMixSession)
        other.model, other.tokens = self.model, self.tokens
        other.sessions = [session.fork() for session in self.sessions]
        other.readers = [copy(reader) for reader in self.readers]
        other.trails = [[] for _ in self.readers]  # a fork need not be able to take back what came before it
        return other


def next_distributions(mix: AdaptiveMix, sessions: Sequence[Session[Any]], x_B: Tensor) -> tuple[Array, Array]:
    """p_BIV of the token after x_B by every expert, and the context classes there."""
    found, kind_B = [], np.zeros(len(x_B), np.int64)
    for i, session in enumerate(sessions):
        if isinstance(session, AdaptiveNGramSession):
            p_BIV, class_B = session.order_distributions(x_B)
        else:
            p_BIV = session.predict(x_B)[:, None].detach().numpy()
            class_B = session.context_class().numpy() if i == mix.gate and mix.shape.classes > 1 else kind_B
        kind_B = class_B if i == mix.gate else kind_B
        found.append(p_BIV)
    return np.concatenate(found, 1), kind_B
