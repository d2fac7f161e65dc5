"""The tables of an adaptive n-gram model as arrays, and how a node is found.

N nodes, one for each n-gram; S slots of the look-up table; K contexts of 0 to n - 1 tokens; C classes of contexts;
J counts of 0, 1, 2, and 3 or more; L tokens that can be taken back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from octavo.ops.compiled import compiled

Array = NDArray[Any]

COUNT, TOTAL, ONES, TWOS, MORE, NEWEST_CHILD, SIBLING, WORD = range(8)  # fields of a node
FIELDS = 8
NONE = -1
CLASSES = 15  # of contexts, by how often and with how many different tokens they were continued
MIN_DISCOUNT = 0.02  # and as far below the count that it is taken from
UNDO_TOKENS = 64  # that can be taken back
SLOTS_PER_NODE = 2
NODES, READ, UNDOABLE = range(3)  # numbers in `size`


class Tables(NamedTuple):
    """Everything that reading changes, and the first children of the nodes that it began with."""

    node_NF: Array  # int32; the counts that Kneser-Ney takes: occurrences, below the highest order extensions
    key_N: Array  # int64: parent * V + word
    slot_S: Array  # int32: which node is here, or NONE
    first_C: Array  # int32: where the children of each of the first contexts begin
    discount_KCJ: Array
    square_KCJ: Array  # sums of squared gradients, by which a discount's steps shrink
    context_K: Array  # int64: the node of each context in front of the next token, or NONE
    size: Array  # int64: nodes, tokens read, tokens that can be taken back
    undo_LI: Array  # int64: of the last tokens, the token, the nodes before it, its contexts and their classes
    undo_discount_LKJ: Array  # and the discounts that it changed, with their sums of squares
    undo_square_LKJ: Array


@compiled
def find(tables: Tables, key: int) -> tuple[int, int]:
    """The node of a key, or NONE, and its slot, or the one where it belongs."""
    mask = len(tables.slot_S) - 1
    mixed = ((key ^ (key >> 31)) & 0x7FFFFFFF) * 0x9E3779B1
    slot = (mixed ^ (mixed >> 20)) & mask
    while True:
        node = tables.slot_S[slot]
        if node == NONE or tables.key_N[node] == key:
            return node, slot
        slot = (slot + 1) & mask


@compiled
def enter_nodes(tables: Tables, start: int, end: int) -> None:
    """Put nodes into the look-up table."""
    for node in range(start, end):
        _, slot = find(tables, tables.key_N[node])
        tables.slot_S[slot] = node
