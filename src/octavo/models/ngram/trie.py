"""The n-grams of every order as one tree in breadth-first order, and its batched look-up.

Node 0 is the empty context, nodes 1 to V are the words, then come the 2-grams, and so on; the children of node c,
first_C[c] to first_C[c + 1] - 1, are the n-grams that continue it, sorted by word. M nodes, S slots, Q queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.io.memory import expect_random_access

ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 divided by the golden ratio, as a signed number
SLOTS_PER_NODE = 2
NODE_BITS = 31
STEP_BITS = 10  # a key lies at most so many steps (a power of two) behind its home slot
REST_BITS = 63 - NODE_BITS - STEP_BITS
EMPTY = -1
CHUNK = 1 << 20  # nodes entered or checked at once
FEW = 1 << 17  # slots read at once where queries are few
MANY_UNKNOWN = 0.7  # where fewer of the contexts than this are known, only those are searched


@dataclass
class Index:
    """An open-addressing table from (context, word) to node, eight bytes a slot and no false answers.

    The key c * V + w is mixed by a bijection of b-bit numbers. The result modulo the number of slots is the home slot,
    so only the quotient, `rest`, needs storing: with the number of steps from the home slot it gives the key back.
    A slot holds rest, steps and node.
    """

    table_S: Tensor
    key_bits: int
    homes: int  # slots that can be a home; a few more follow for the steps of the last ones
    vocab: int
    none: int  # the answer for what is not there
    farthest: int = 0  # steps of the key that lies farthest from its home

    @property
    def device(self) -> torch.device:
        return self.table_S.device

    @staticmethod
    def build(first_C: Tensor, word_M: Tensor, vocab: int) -> Index:
        nodes = len(word_M)
        key_bits = ((nodes + 1) * vocab).bit_length()
        homes = max(16, SLOTS_PER_NODE * nodes, 1 << max(0, key_bits - REST_BITS))  # so that rest has room
        table_S = torch.empty(homes + 2 * (1 << STEP_BITS), dtype=torch.int64, device=word_M.device)
        index = Index(expect_random_access(table_S).fill_(EMPTY), key_bits, homes, vocab, nodes)
        for start in range(1, nodes, CHUNK):  # some at a time, the root left out
            node_m = torch.arange(start, min(start + CHUNK, nodes), device=word_M.device)
            index._enter(node_m, parents(first_C, node_m) * vocab + word_M[node_m])
        return index

    def _enter(self, node_Q: Tensor, key_Q: Tensor) -> None:
        """Everyone writes into its slot if it is free and looks who was last; those who lost go one step on."""
        slot_Q, tag_Q = self._home(key_Q)
        for step in range(1 << STEP_BITS):
            self.farthest = max(self.farthest, step)
            entry_Q = tag_Q << NODE_BITS | node_Q
            free_Q = self.table_S.index_select(0, slot_Q) == EMPTY
            self.table_S.index_copy_(0, slot_Q[free_Q], entry_Q[free_Q])
            left = (self.table_S.index_select(0, slot_Q) != entry_Q).nonzero().squeeze(1)
            if not len(left):
                return
            slot_Q, tag_Q, node_Q = slot_Q[left] + 1, tag_Q[left] + 1, node_Q[left]
        raise AssertionError("a run of slots is longer than the step counter")

    def child(self, context: Tensor, word: Tensor) -> Tensor:
        """The node of each context followed by the word; `none` where there is no such n-gram."""
        context, word = torch.broadcast_tensors(context, word)
        shape, context_Q, word_Q = context.shape, context.reshape(-1), word.reshape(-1)
        known = (context_Q != self.none).nonzero().squeeze(1) if len(context_Q) > CHUNK >> 4 else context_Q
        if len(known) >= MANY_UNKNOWN * len(context_Q):
            return self._find(context_Q * self.vocab + word_Q).view(shape)
        node_Q = torch.full_like(context_Q, self.none)
        key = context_Q.index_select(0, known) * self.vocab + word_Q.index_select(0, known)
        return node_Q.index_copy_(0, known, self._find(key)).view(shape)

    def _find(self, key_Q: Tensor) -> Tensor:
        slot_Q, tag_Q = self._home(key_Q)
        if len(key_Q) * self.farthest < FEW:
            return self._find_few(slot_Q, tag_Q)
        entry_Q = self.table_S.index_select(0, slot_Q)
        found_Q = entry_Q >> NODE_BITS == tag_Q
        node_Q = torch.where(found_Q, entry_Q & (1 << NODE_BITS) - 1, self.none)
        left = (found_Q | (entry_Q == EMPTY)).logical_not_().nonzero().squeeze(1)
        slot, tag = slot_Q.index_select(0, left), tag_Q.index_select(0, left)
        while len(left):
            slot, tag = slot + 1, tag + 1
            if len(left) * self.farthest < FEW:
                return node_Q.index_copy_(0, left, self._find_few(slot, tag))
            entry = self.table_S.index_select(0, slot)
            found = entry >> NODE_BITS == tag
            node_Q.index_copy_(0, left, torch.where(found, entry & (1 << NODE_BITS) - 1, self.none))
            on = (found | (entry == EMPTY)).logical_not_().nonzero().squeeze(1)
            left, slot, tag = (values.index_select(0, on) for values in (left, slot, tag))
        return node_Q

    def _find_few(self, slot_Q: Tensor, tag_Q: Tensor) -> Tensor:
        """All slots from here on that could hold the key, at once: for few queries, calls cost more than memory."""
        steps_F = torch.arange(self.farthest + 1, device=slot_Q.device)
        entry_QF = self.table_S.unfold(0, len(steps_F), 1).index_select(0, slot_Q)
        found_QF = entry_QF >> NODE_BITS == tag_Q[:, None] + steps_F
        node_Q = ((entry_QF & (1 << NODE_BITS) - 1) * found_QF).sum(1)
        return torch.where(node_Q > 0, node_Q, self.none)  # node 0, the root, is nobody's child

    def _home(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """The slot where the search for a key begins, and what must stand there: its rest, and no steps."""
        half, mask = self.key_bits // 2, (1 << self.key_bits) - 1
        mixed = (key ^ (key >> half)) * ODD & mask
        mixed = mixed ^ (mixed >> half)
        rest = mixed // self.homes
        return mixed - rest * self.homes, rest << STEP_BITS


def index_bytes(nodes: int) -> int:
    """How much memory the table of so many nodes takes."""
    return 8 * SLOTS_PER_NODE * nodes


def parents(first_C: Tensor, node_m: Tensor) -> Tensor:
    """The parent of each node: the last context whose continuations do not begin behind it."""
    return torch.searchsorted(first_C, node_m.to(first_C.dtype), right=True) - 1
