"""What reads for an adaptive n-gram model: its tables in one place of a text, and a session of several.

T time, V vocabulary, N nodes, C contexts, K contexts of 0 to n - 1 tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import Session
from octavo.errors import UserError
from octavo.models.ngram import adaptive_nodes as layout
from octavo.models.ngram import adaptive_tables as loops

if TYPE_CHECKING:
    from octavo.models.ngram.adaptive import AdaptiveNGram

READ_TOKENS = 1 << 13  # at a time
SPARE_TOKENS = 1 << 12  # that new tables have room for


class Reader:
    """Tables of an adaptive model, and the tokens that they have read."""

    def __init__(self, model: AdaptiveNGram) -> None:
        self.model, self.order = model, model.config.order
        self.codes = (model.begin, -1 if model.newline is None else model.newline, model.vocab)
        self.tables = first_tables(model)
        self.read_T = np.zeros(SPARE_TOKENS, np.int32)
        self.length = 0

    def copy(self) -> Reader:
        """Another reader at the same place."""
        other = object.__new__(Reader)
        other.__dict__ |= self.__dict__
        first_C = self.tables.first_C  # which nothing changes
        other.tables = layout.Tables(*(part if part is first_C else part.copy() for part in self.tables))
        other.read_T = self.read_T.copy()
        return other

    @property
    def history_T(self) -> NDArray[np.int32]:  # noqa: N802
        return self.read_T[: self.length]

    @property
    def undoable(self) -> int:
        """How many tokens can be taken back."""
        return int(self.tables.size[layout.UNDOABLE])

    @property
    def context_class(self) -> int:
        return int(loops.matched_length(self.tables))

    def read(self, x_T: NDArray[np.integer]) -> None:
        """Learn from tokens."""
        self.probabilities(x_T)

    def probabilities(
        self, x_T: NDArray[np.integer], learn: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Read tokens: the probability of each, and the context class in front of it."""
        p_T, class_T, rate = np.zeros(len(x_T)), np.zeros(len(x_T), np.int64), self.model.config.discount_rate
        for start in range(0, len(x_T), READ_TOKENS):  # so that tables grow by what is needed, not by what might be
            part = slice(start, start + READ_TOKENS)
            self.take(x_T[part])
            loops.read_tokens(
                self.tables, x_T[part].astype(np.int64), *self.codes, rate, learn, p_T[part], class_T[part]
            )
        return p_T, class_T

    def distributions(self, x_T: NDArray[np.integer]) -> NDArray[np.float64]:
        """Read tokens: the distribution of the token after each of them."""
        self.take(x_T)
        p_TV = np.empty((len(x_T), self.model.vocab))
        rate = self.model.config.discount_rate
        loops.read_distributions(self.tables, x_T.astype(np.int64), *self.codes, rate, p_TV)
        return p_TV

    def order_distributions(self, x_T: NDArray[np.integer]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Read tokens: the distributions by every length of context after each, and the context class there."""
        self.take(x_T)
        p_TKV = np.empty((len(x_T), self.order, self.model.vocab))
        class_T, rate = np.zeros(len(x_T), np.int64), self.model.config.discount_rate
        loops.read_order_distributions(self.tables, x_T.astype(np.int64), *self.codes, rate, p_TKV, class_T)
        return p_TKV, class_T

    def undo(self, count: int) -> None:
        """Forget the last tokens as if they had not been read."""
        begin, _, vocab = self.codes
        for _ in range(count):
            loops.undo_token(self.tables, begin, vocab)
        self.length -= count

    def take(self, x_T: NDArray[np.integer]) -> None:
        """Make room for tokens, and note that they are read."""
        end = self.length + len(x_T)
        if end > len(self.read_T):
            self.read_T = np.concatenate([self.read_T, np.zeros(2 * end - len(self.read_T), np.int32)])
        self.read_T[self.length : end] = x_T
        self.length = end
        needed = int(self.tables.size[layout.NODES]) + self.order * len(x_T)
        if needed > len(self.tables.key_N):
            self.tables = larger_tables(self.tables, needed + needed // 2)


def first_tables(model: AdaptiveNGram) -> layout.Tables:
    """The tables of a model that has read nothing since its training."""
    first_C, word_M, count_M = (tensor.numpy() for tensor in (model.first_C, model.word_M, model.count_M))
    nodes, contexts, order = len(word_M), len(first_C) - 1, model.config.order
    capacity = nodes + max(order * SPARE_TOKENS, nodes // 4)
    parent_m = np.repeat(np.arange(contexts), np.diff(first_C))  # of every node but the root
    node_NF = np.zeros((capacity, layout.FIELDS), np.int32)
    node_NF[:nodes, layout.COUNT], node_NF[:nodes, layout.WORD] = count_M, word_M
    node_NF[:contexts, layout.TOTAL] = np.bincount(parent_m, count_M[1:], contexts)
    for field, of_count in (
        (layout.ONES, count_M[1:] == 1),
        (layout.TWOS, count_M[1:] == 2),
        (layout.MORE, count_M[1:] >= 3),
    ):
        node_NF[:contexts, field] = np.bincount(parent_m, of_count, contexts)
    node_NF[:, layout.NEWEST_CHILD] = node_NF[:, layout.SIBLING] = layout.NONE
    key_N = np.full(capacity, -1, np.int64)
    key_N[1:nodes] = parent_m * model.vocab + word_M[1:]
    context_K = np.full(order, layout.NONE, np.int64)
    context_K[0] = 0
    undone = (layout.UNDO_TOKENS, order, 4)
    tables = layout.Tables(
        node_NF, key_N, np.zeros(0, np.int32), first_C, model.discount_KCJ.numpy().copy(),
        model.square_KCJ.numpy().copy(), context_K,
        np.array([nodes, 0, 0]), np.zeros((layout.UNDO_TOKENS, 2 + 2 * order), np.int64), np.zeros(undone),
        np.zeros(undone),
    )  # fmt: skip
    return _indexed(tables)


def larger_tables(tables: layout.Tables, capacity: int) -> layout.Tables:
    """The same tables with room for more nodes."""
    more = capacity - len(tables.key_N)
    node_NF = np.concatenate([tables.node_NF, np.zeros((more, layout.FIELDS), np.int32)])
    key_N = np.concatenate([tables.key_N, np.full(more, -1, np.int64)])
    return _indexed(tables._replace(node_NF=node_NF, key_N=key_N))


def _indexed(tables: layout.Tables) -> layout.Tables:
    """The tables with a look-up table of their size."""
    slots = 1 << (layout.SLOTS_PER_NODE * len(tables.key_N) - 1).bit_length()
    tables = tables._replace(slot_S=np.full(slots, layout.NONE, np.int32))
    layout.enter_nodes(tables, 1, int(tables.size[layout.NODES]))
    return tables


class AdaptiveNGramSession(Session[Tensor]):
    """Readers of its own, one for each row."""

    def __init__(self, model: AdaptiveNGram, state: Tensor) -> None:
        self.readers: list[Reader] = []
        super().__init__(model, state)

    @property
    def state(self) -> Tensor:
        """The tokens read so far."""
        rows = [reader.history_T.copy() for reader in self.readers]
        return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, 0, dtype=torch.int32)

    @state.setter
    def state(self, state: Tensor) -> None:
        model: AdaptiveNGram = self.model  # type: ignore[assignment]
        self.readers = model.pool.readers_at(state.numpy())
        self.back = 0

    def step(self, x_B: Tensor) -> Tensor:
        return self.predict(x_B).log()

    def predict(self, x_B: Tensor) -> Tensor:
        return self._read(x_B[:, None])[:, 0]

    def absorb(self, x_BT: Tensor) -> Tensor:
        self.calls += 1
        return self._read(x_BT).log()

    def _read(self, x_BT: Tensor) -> Tensor:
        p_BTV = [reader.distributions(x_T) for reader, x_T in zip(self.readers, x_BT.numpy(), strict=True)]
        self.back = min(self.back + x_BT.shape[1], layout.UNDO_TOKENS)
        return torch.from_numpy(np.stack(p_BTV))

    def order_distributions(self, x_B: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Process one token of each row: p_BKV by every length of context, and the context classes."""
        found = [
            reader.order_distributions(x_T) for reader, x_T in zip(self.readers, x_B.numpy()[:, None], strict=True)
        ]
        self.back = min(self.back + 1, layout.UNDO_TOKENS)
        p_BTKV, class_BT = (np.stack(part) for part in zip(*found, strict=True))
        return p_BTKV[:, 0], class_BT[:, 0]

    def context_class(self) -> Tensor:
        return torch.tensor([reader.context_class for reader in self.readers])

    def rewind(self, count: int) -> None:
        if not 0 <= count <= self.back:
            raise UserError(f"only the last {self.back} tokens can be taken back: count={count}; fork before instead")
        self.back -= count
        for reader in self.readers:
            reader.undo(count)

    def fork(self) -> AdaptiveNGramSession:
        other = object.__new__(AdaptiveNGramSession)
        other.model, other.back = self.model, 0
        other.readers = [reader.copy() for reader in self.readers]
        return other
