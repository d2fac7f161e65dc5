"""The node of a context followed by a word, by binary search in the model's sorted tables: with no other table beside
them, they may lie in a file that does not fit into memory.

Q queries, C nodes that can be contexts, M nodes; `trie` says what the tables mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.errors import UserError

CONTEXTS = 1 << 18  # whose continuations are checked at once


@dataclass(frozen=True)
class SortedSearch:
    """Answers as `Index` does. Queries are sorted first, so that a batch walks through the file once a round."""

    first_C: Tensor
    word_M: Tensor
    vocab: int

    @property
    def device(self) -> torch.device:
        return self.word_M.device

    @property
    def none(self) -> int:
        """The answer for what is not there."""
        return len(self.word_M)

    def child(self, context: Tensor, word: Tensor) -> Tensor:
        """The node of each context followed by the word; `none` where there is no such n-gram."""
        context, word = torch.broadcast_tensors(context, word)
        context_Q, word_Q = context.reshape(-1), word.reshape(-1)
        node_Q = torch.full_like(context_Q, self.none)
        known = (context_Q < len(self.first_C) - 1).nonzero().squeeze(1)
        key, query = torch.unique(context_Q[known] * self.vocab + word_Q[known], return_inverse=True)
        node_Q[known] = self._find(key // self.vocab, key % self.vocab)[query]
        return node_Q.view(context.shape)

    def _find(self, context_Q: Tensor, word_Q: Tensor) -> Tensor:
        low_Q, end_Q = self.first_C[context_Q].long(), self.first_C[context_Q + 1].long()
        high_Q = end_Q.clone()
        while len(open_q := (low_Q < high_Q).nonzero().squeeze(1)):
            low, high = low_Q[open_q], high_Q[open_q]
            middle = (low + high) // 2
            below = self.word_M[middle] < word_Q[open_q]
            low_Q[open_q] = torch.where(below, middle + 1, low)
            high_Q[open_q] = torch.where(below, high, middle)
        is_there_Q = (low_Q < end_Q) & (self.word_M[low_Q.clamp(max=self.none - 1)] == word_Q)
        return torch.where(is_there_Q, low_Q, self.none)


def check_sorted(first_C: Tensor, word_M: Tensor) -> None:
    """Refuse tables in which the words after a context do not ascend: a search would miss some."""
    for start in range(0, len(first_C) - 1, CONTEXTS):
        first_c = first_C[start : start + CONTEXTS + 1]
        words = word_M[int(first_c[0]) : int(first_c[-1])]
        falls = (words.diff() <= 0).nonzero().squeeze(1) + 1 + int(first_c[0])
        if not bool(torch.isin(falls, first_c).all()):
            raise UserError("the words after a context of an n-gram model must ascend: the file is damaged or foreign; "
                            "train the model again")  # fmt: skip
