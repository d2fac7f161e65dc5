"""An n-gram's session on a CPU: the sums of `NGram.predict` in numpy, whose calls take a fraction of torch's.

B batch, V vocabulary, K contexts of 0 to n - 1 words, R = B (K - 1) contexts but the empty ones, E continuations of all
of them, Q queries, F slots that a key may lie in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import LanguageModel, Session
from octavo.models.ngram.trie import NODE_BITS, ODD, STEP_BITS, Index

if TYPE_CHECKING:
    from octavo.models.ngram.model import NGram

Array = NDArray[Any]


class NGramSession(Session[Tensor]):
    """Looks contexts up in the model's own tables; the state is the model's."""

    def __init__(self, model: NGram, state: Tensor, index: Index) -> None:
        super().__init__(model, state)
        self.index = index
        self.vocab, self.none, self.order = model.vocab, model.none, model.config.order
        self.first_C, self.word_M = model.first_C.numpy(), model.word_M.numpy()
        self.alpha_M, self.gamma_C, self.words_V = model.alpha_M.numpy(), model.gamma_C.numpy(), model.words_V.numpy()
        self.newline, self.begun_K = model.newline, model.begun(state.device).numpy()
        self.table_S, self.homes = index.table_S.numpy(), index.homes
        self.half, self.mask = index.key_bits // 2, (1 << index.key_bits) - 1
        self.steps_F = np.arange(index.farthest + 1)

    def step(self, x_B: Tensor) -> Tensor:
        return self.predict(x_B).log()

    def predict(self, x_B: Tensor) -> Tensor:
        before = self.state
        state_BK = self._next(before.numpy(), x_B.numpy())
        self._state = torch.from_numpy(state_BK)
        self._record(before, x_B[:, None])
        return torch.from_numpy(self._distribution(state_BK))

    def fork(self) -> NGramSession:
        return NGramSession(self.model, self.state, self.index)  # type: ignore[arg-type]

    def _next(self, state_BK: Array, x_B: Array) -> Array:
        """The state after x_B: each context, one word longer."""
        after_BK = np.empty_like(state_BK)
        after_BK[:, 0] = state_BK[:, 0]
        after_BK[:, 1:] = self._children((state_BK[:, :-1] * self.vocab + x_B[:, None]).ravel()).reshape(len(x_B), -1)
        if self.newline is not None:
            after_BK[x_B == self.newline] = self.begun_K
        return after_BK

    def _children(self, key_Q: Array) -> Array:
        """The node of each key, as `Index.child` finds it."""
        mixed_Q = (key_Q ^ (key_Q >> self.half)) * ODD & self.mask
        mixed_Q ^= mixed_Q >> self.half
        rest_Q, slot_Q = np.divmod(mixed_Q, self.homes)
        entry_QF = self.table_S[slot_Q[:, None] + self.steps_F]
        found_QF = entry_QF >> NODE_BITS == (rest_Q << STEP_BITS)[:, None] + self.steps_F
        node_Q = ((entry_QF & (1 << NODE_BITS) - 1) * found_QF).sum(1)
        node_Q[node_Q == 0] = self.none  # node 0, the root, is nobody's child
        children_Q: Array = node_Q
        return children_Q

    def _distribution(self, state_BK: Array) -> Array:
        """p_BV of the next token: what continues each context, times the gammas of all longer contexts."""
        batch, longer = len(state_BK), self.order - 1
        context_R = np.minimum(state_BK[:, 1:], len(self.gamma_C) - 1).ravel()
        down_BJ = np.ones((batch, longer + 1))
        down_BJ[:, :-1] = self.gamma_C[context_R].reshape(batch, longer)
        down_BJ = down_BJ[:, ::-1].cumprod(1)[:, ::-1]
        p_BV = down_BJ[:, :1] * self.words_V
        end_R = self.first_C[context_R + 1].astype(np.int64)
        fanout_R = end_R - self.first_C[context_R]
        row_E = np.repeat(np.arange(len(context_R)), fanout_R)
        node_E = (end_R - fanout_R.cumsum())[row_E] + np.arange(len(row_E))
        cell_E = row_E // max(1, longer) * self.vocab + self.word_M[node_E]
        mass_E = down_BJ[:, 1:].ravel()[row_E] * self.alpha_M[node_E]
        p_BV += np.bincount(cell_E, mass_E, p_BV.size).reshape(p_BV.shape)
        np.maximum(p_BV, 0, out=p_BV)  # an ARPA file's rounding may leave a hair below zero
        distribution_BV: Array = p_BV
        return distribution_BV


class SessionOnCPU(Session[Tensor]):
    """A session of a model's copy on the CPU, for a model on another device: a look-up there is many kernels, which
    take longer to start than numpy takes in all. Tokens go to the CPU, and one distribution comes back.
    """

    def __init__(self, model: LanguageModel[Tensor], session: Session[Tensor], device: torch.device) -> None:
        self.model, self.session, self.device = model, session, device

    @property
    def state(self) -> Tensor:
        return self.session.state.to(self.device)

    @state.setter
    def state(self, state: Tensor) -> None:
        self.session.state = state.cpu()

    def step(self, x_B: Tensor) -> Tensor:
        return self.session.step(x_B.cpu()).to(self.device)

    def predict(self, x_B: Tensor) -> Tensor:
        return self.session.predict(x_B.cpu()).to(self.device)

    def absorb(self, x_BT: Tensor) -> Tensor:
        self.calls += 1
        return self.session.absorb(x_BT.cpu()).to(self.device)

    def context_class(self) -> Tensor:
        return self.session.context_class().to(self.device)

    def rewind(self, count: int) -> None:
        self.session.rewind(count)

    def fork(self) -> SessionOnCPU:
        return SessionOnCPU(self.model, self.session.fork(), self.device)
