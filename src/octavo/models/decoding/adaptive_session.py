"""Decoding with a network that learns while it reads: the network's own session from one step of the optimizer to the
next.

B batch, which is 1; S tokens of a segment, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from octavo.core import MAX_REWIND_TOKENS, Session, map_state
from octavo.errors import UserError
from octavo.models.decoding.recurrent_session import GRUSession, session_with_gates
from octavo.models.parts.weights import WeightCopy, recordable

if TYPE_CHECKING:
    from octavo.models.dynamic_evaluation import AdaptiveState, DynamicEvaluation


class Segment(NamedTuple):
    """What reads the tokens between two steps of the optimizer."""

    first: int
    """Tokens that this session had processed before."""
    before: Any
    """The network's state there."""
    weights: WeightCopy
    session: Session[Any]


class AdaptiveSession(Session["AdaptiveState"]):
    """One sequence. Weights are copied once a segment, so that a step of the optimizer can be taken back."""

    segment: Segment

    def __init__(self, model: DynamicEvaluation, state: AdaptiveState) -> None:
        self.model = self.dynamic = model
        self.state = state

    @property
    def state(self) -> AdaptiveState:
        from octavo.models.dynamic_evaluation import AdaptiveState

        running = map_state(self.segment.session.state, recordable)
        return AdaptiveState(running, self.segment.before, self.seen_1S, self.segment.weights.learnt)

    @state.setter
    def state(self, state: AdaptiveState) -> None:
        self.processed, self.held = 0, 0  # tokens, and how many of them can be taken back
        self.left: deque[tuple[Segment, Tensor]] = deque()  # the segments before, and their tokens
        self.seen_1S = state.seen_BS
        self._open(state.before, state.running, WeightCopy(self.dynamic.base, self.dynamic.adaptation, state.learnt))

    def step(self, x_B: Tensor) -> Tensor:
        if self.seen_1S.shape[1] == self.dynamic.adaptation.segment:
            self._learn(x_B)
        logits_BV = self.segment.session.step(x_B)
        self._read(x_B[:, None])
        return logits_BV

    def absorb(self, x_BT: Tensor) -> Tensor:
        self.calls += 1
        logits = [self.segment.session.absorb(x_BT[:, :0])]
        while x_BT.shape[1]:
            if self.seen_1S.shape[1] == self.dynamic.adaptation.segment:
                self._learn(x_BT[:, 0])
            new_BN = x_BT[:, : self.dynamic.adaptation.segment - self.seen_1S.shape[1]]
            logits.append(self.segment.session.absorb(new_BN))
            self._read(new_BN)
            x_BT = x_BT[:, new_BN.shape[1] :]
        return torch.cat(logits, 1)

    def rewind(self, count: int) -> None:
        if not 0 <= count <= self.held:
            raise UserError(f"only the last {self.held} tokens can be taken back: count={count}; fork before instead")
        self.held -= count
        to = self.processed - count
        while (
            count and self.left and to <= self.segment.first
        ):  # the step there was made with a token that is forgotten
            self.processed = self.segment.first
            self.segment, self.seen_1S = self.left.pop()
        back = self.processed - to
        if back:
            self.segment.session.rewind(back)
            self.seen_1S = self.seen_1S[:, :-back]
        self.processed = to

    def fork(self) -> AdaptiveSession:
        other = copy(self)
        other.segment = self.segment._replace(session=self.segment.session.fork())
        other.left, other.held = deque(), 0  # a fork need not be able to take back what came before it
        return other

    def _open(self, before: Any, running: Any, weights: WeightCopy) -> None:
        with torch.no_grad():
            session = session_with_gates(weights.model, running, self.dynamic.adaptation.segment)
        self.segment = Segment(self.processed, before, weights, session)

    def _learn(self, x_B: Tensor) -> None:
        """One step of the optimizer, now that the token after the segment is known."""
        running = map_state(self.segment.session.state, recordable)
        weights = self.segment.weights.branch()
        session, S = self.segment.session, self.seen_1S.shape[1]
        known = None
        if isinstance(session, GRUSession) and session.count == S:  # else some were processed before it began
            known = session.absorb_again
        weights.read_and_learn(self.segment.before, self.seen_1S, x_B, known)
        self.left.append((self.segment, self.seen_1S))
        self.seen_1S = self.seen_1S[:, :0]
        self._open(running, running, weights)

    def _read(self, new_BN: Tensor) -> None:
        """Tokens were processed."""
        self.seen_1S = torch.cat([self.seen_1S, new_BN], 1)
        self.processed += new_BN.shape[1]
        self.held = min(MAX_REWIND_TOKENS, self.held + new_BN.shape[1])
        while self.left and self.processed - MAX_REWIND_TOKENS > self._left_at():
            self.left.popleft()

    def _left_at(self) -> int:
        """Tokens that had been processed when the oldest of the segments before was left."""
        return self.left[1][0].first if len(self.left) > 1 else self.segment.first
