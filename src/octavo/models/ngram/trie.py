"""The n-grams of every order as one tree in breadth-first order, and its batched look-up.

Node 0 is the empty context, nodes 1 to V are the words, then come the 2-grams, and so on; the children of node c,
first_C[c] to first_C[c + 1] - 1, are the n-grams that continue it, sorted by word. So c * V + word grows from node to
node, through all orders.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MIX = -7046029254386353131  # 2^64 divided by the golden ratio, odd: multiplying by it spreads keys over the high bits
SLOTS_PER_NODE = 1.5


@dataclass
class Index:
    """An open-addressing table from (context, word) to node, built by a sort instead of by insertions.

    Keys sorted by their home slot h go to slot i + max over j <= i of (h_j - j): just where linear probing would
    put them. A look-up walks from the home slot until it meets its key or an empty slot.
    """

    table_S2: Tensor  # key, node
    slots: int
    vocab: int
    none: int  # the answer for what is not there

    @staticmethod
    def build(first_C: Tensor, word_M: Tensor, vocab: int) -> Index:
        nodes = len(word_M)
        key_M = parents(first_C, nodes)[1:] * vocab + word_M[1:]
        slots = max(8, int(nodes * SLOTS_PER_NODE))
        home_M, by_home_M = _home(key_M, slots).sort(stable=True)
        rank_M = torch.arange(len(home_M), device=word_M.device)
        slot_M = rank_M + (home_M - rank_M).cummax(0).values if len(home_M) else home_M
        length = max(slots, int(slot_M[-1]) + 1 if len(slot_M) else 0) + 1  # the last slot is always empty
        table_S2 = torch.full((length, 2), -1, dtype=torch.int64, device=word_M.device)
        table_S2[slot_M, 0] = key_M[by_home_M]
        table_S2[slot_M, 1] = by_home_M + 1
        table_S2[:, 1].masked_fill_(table_S2[:, 1] < 0, nodes)
        return Index(table_S2, slots, vocab, nodes)

    def child(self, context: Tensor, word: Tensor) -> Tensor:
        """The node of each context followed by the word; `none` where there is no such n-gram."""
        shape = torch.broadcast_shapes(context.shape, word.shape)
        key_Q = (context * self.vocab + word).reshape(-1)
        slot_Q = _home(key_Q, self.slots)
        row_Q2 = self.table_S2.index_select(0, slot_Q)
        node_Q = torch.where(row_Q2[:, 0] == key_Q, row_Q2[:, 1], self.none)
        left = ((row_Q2[:, 0] != key_Q) & (row_Q2[:, 0] >= 0)).nonzero().squeeze(1)
        slot, key = slot_Q[left], key_Q[left]
        while len(left):
            slot = slot + 1
            row = self.table_S2.index_select(0, slot)
            found = row[:, 0] == key
            node_Q[left[found]] = row[found, 1]
            on = ~found & (row[:, 0] >= 0)
            left, slot, key = left[on], slot[on], key[on]
        return node_Q.reshape(shape)


def parents(first_C: Tensor, nodes: int) -> Tensor:
    """The parent of every node; the root's is given as 0, itself."""
    inner = torch.arange(len(first_C) - 1, device=first_C.device)
    below_root = torch.repeat_interleave(inner, first_C.diff(), output_size=nodes - 1)
    return torch.cat([below_root.new_zeros(1), below_root])


def _home(key: Tensor, slots: int) -> Tensor:
    """A slot for each key: the high 32 bits of a multiplicative hash, scaled to the number of slots."""
    mixed = (key ^ (key >> 29)) * MIX
    return ((mixed >> 32) & 0xFFFFFFFF) * slots >> 32
