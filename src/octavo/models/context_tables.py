"""The loops of hashed contexts and of a match: what an adaptive mixture knows of the text besides what its parts say.

A token is a path of L bits from the root of a binary tree over the ids (`mixing_loops`). Each context c is something
that is known of the text so far: the last one to six tokens, the letters of the word and the words before it, tokens
further back, the place in the line and the line above. For each context and node a slot has

    p_c = the share of ones that came here, after n of them:  p_c ← p_c + (b - p_c) / (n + 1.5)

and the mixture is given ln(a / (1 - a)) and 2 a - 1, where a = A_c(n, p_c) is what such a p after n bits was worth so
far, a table of each context that moves towards the bits. The match is the longest earlier place that the last tokens
stand at: its next token predicts the bits of its path with the share of such predictions, by the match's length, that
came true.

C contexts, S slots of each, N kinds of n, Q bins of p, F numbers of a place, L tokens that can be taken back, T time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.ops.compiled import compiled

Array = NDArray[Any]

CONTEXTS = 18
INPUTS = 2 * CONTEXTS + 2  # that the mixture is given: two of each context, two of the match
MAX_COUNT = 30  # of bits that a slot remembers: what is older fades
COUNT_KINDS, BINS = 8, 24
MAX_BIN_LOGIT = 8.0
MAP_RATE = 0.01
MATCH_RATE = 0.004
MATCH_TOKENS = 6  # by which an earlier place is found
MIN_MATCH, MAX_MATCH = 3, 32  # tokens that must agree there, and that are compared
MATCH_KINDS = 32  # of a match's length
MIN_P = 1.0 / (1 << 16)
UNDO_TOKENS = 64  # that can be taken back
NONE = -1

P_UNITS = 1 << 12  # of p, each with its place among the bins
BIN_PLACES = np.minimum(  # among the bins of A, of each p
    (np.clip(np.log((np.arange(P_UNITS) + 0.5) / (P_UNITS - 0.5 - np.arange(P_UNITS))) / MAX_BIN_LOGIT, -1, 1) + 1)
    / 2 * (BINS - 1), BINS - 1 - 1e-9,
)  # fmt: skip

LETTER, NEWLINE = 1, 2  # kinds of ids
READ, UNDOABLE, WORD, WORD_1, WORD_2, LINE, LINE_BEFORE, MATCH, MATCHED, HASHES = range(10)  # fields of a place
FIELDS = HASHES + CONTEXTS


class ContextTables(NamedTuple):
    """Everything that reading changes, and the text read so far."""

    slot_CS: Array  # uint32: p in 16 bits, a check of the hash in 8, n in 8
    map_M: Array  # float64: A of each context, kind of n and bin; then of each length of a match, how often it was true
    last_H: Array  # int32: where the text went on after the tokens of this hash
    kind_V: Array  # uint8: whether an id is of letters, or a line's end
    text_T: Array  # int32
    place_F: Array  # int64: what is known of the place in the text, and the hashes of its contexts
    found_DC: Array  # int64: at each depth of the path, the slots that were found last, or NONE
    hash_DC: Array  # int64: and by which hashes
    undo_place_LF: Array  # and the same before each of the last tokens; what they changed follows
    undo_last_L2: Array  # int64: slot of last_H, and what was there
    undo_count_L2: Array  # int64: how many slots, how many numbers of the maps
    undo_slot_LE2: Array  # int64: which slot, flat, and what was there
    undo_map_LE: Array  # int64
    undo_old_LE: Array  # float64


@compiled
def mixed_hash(a: int, b: int) -> int:
    """32 bits of two numbers."""
    a, b = int(a), int(b)
    h = (a * 0x2545F491 + b * 0x9E3779B1 + 0x7F4A7C15) & 0xFFFFFFFF
    h ^= h >> 15
    h = (h * 0x85EBCA6B) & 0xFFFFFFFF
    return h ^ (h >> 13)


@compiled
def token_at(tables: ContextTables, back: int) -> int:
    """The token so many before the next one, NONE where the text is shorter."""
    at = tables.place_F[READ] - back
    return int(tables.text_T[at]) if at >= 0 else NONE


@compiled
def hash_contexts(tables: ContextTables) -> None:
    """The hashes of all contexts in front of the next token."""
    place_F = tables.place_F
    c1, c2, c3, c4 = token_at(tables, 1), token_at(tables, 2), token_at(tables, 3), token_at(tables, 4)
    word, word_1, word_2 = place_F[WORD], place_F[WORD_1], place_F[WORD_2]
    column = place_F[READ] - place_F[LINE]  # 1 at the beginning of a line
    above = NONE
    if place_F[LINE_BEFORE] + column < place_F[LINE]:
        above = int(tables.text_T[place_F[LINE_BEFORE] + column])
    first = int(tables.text_T[place_F[LINE] + 1]) if column > 1 else NONE
    h = 0
    for k in range(6):  # the last tokens
        h = mixed_hash(h, token_at(tables, k + 1))
        place_F[HASHES + k] = h
    place_F[HASHES + 6] = mixed_hash(word, 1)
    place_F[HASHES + 7] = mixed_hash(word, word_1)
    place_F[HASHES + 8] = mixed_hash(mixed_hash(word, word_1), word_2)
    place_F[HASHES + 9] = mixed_hash(word, word_2)
    place_F[HASHES + 10] = mixed_hash(c2, c3)
    place_F[HASHES + 11] = mixed_hash(mixed_hash(c2, c3), c4)
    place_F[HASHES + 12] = mixed_hash(c3, c4)
    place_F[HASHES + 13] = mixed_hash(c1, c3)
    place_F[HASHES + 14] = mixed_hash(above, c1)
    place_F[HASHES + 15] = mixed_hash(min(column, 255), c1)
    place_F[HASHES + 16] = mixed_hash(mixed_hash(word, first), min(column, 3))
    place_F[HASHES + 17] = mixed_hash(mixed_hash(c1, c2), min(column, 32))
    for c in range(CONTEXTS):
        place_F[HASHES + c] = mixed_hash(place_F[HASHES + c], c)


@compiled
def slot_at(tables: ContextTables, c: int, at: int) -> int:
    """What a slot holds."""
    return int(np.int64(tables.slot_CS[c, at]))


@compiled
def find_slots(tables: ContextTables, node: int, depth: int) -> None:
    """Look up the slot of each context and a node: it is one of two neighbours."""
    last = int(tables.slot_CS.shape[1]) - 1
    for c in range(CONTEXTS):
        hashed = mixed_hash(tables.place_F[HASHES + c], node)
        at, check = hashed & last, hashed >> 24
        tables.hash_DC[depth, c], tables.found_DC[depth, c] = hashed, NONE
        for neighbour in range(2):
            slot = slot_at(tables, c, at ^ neighbour)
            if (slot & 255) > 0 and ((slot >> 8) & 255) == check:
                tables.found_DC[depth, c] = at ^ neighbour
                break


@compiled
def logit(p: float) -> float:
    p = min(max(p, MIN_P), 1.0 - MIN_P)
    return math.log(p / (1.0 - p))


@compiled
def map_place(c: int, slot: int) -> tuple[int, float]:
    """Where A of a slot's n and p begins, and how far p is above the lower of two bins."""
    n = slot & 255
    kind = n if n < 4 else 4 if n < 6 else 5 if n < 10 else 6 if n < 24 else 7
    place = BIN_PLACES[slot >> 20]
    low = int(place)
    return (c * COUNT_KINDS + kind) * BINS + low, place - low


@compiled
def match_kind(tables: ContextTables) -> int:
    """The kind of the match's length, 0 where there is none."""
    length = int(tables.place_F[MATCHED])
    return min(length, 15) if length < 16 else min(16 + (length - 16) // 4, MATCH_KINDS - 1)


@compiled
def matched_bit(tables: ContextTables, bits: int, node: int, depth: int) -> int:
    """The bit that the match expects at a node, NONE where it expects another path."""
    if tables.place_F[MATCHED] == 0:
        return NONE
    expected = int(tables.text_T[tables.place_F[MATCH]])
    if (expected + (1 << bits)) >> (bits - depth) != node:
        return NONE
    return (expected >> (bits - 1 - depth)) & 1


@compiled
def bit_inputs(tables: ContextTables, bits: int, node: int, depth: int, x_I: Array, first: int) -> None:
    """What the contexts and the match say of the bit at a node, from x_I[first] on."""
    find_slots(tables, node, depth)
    for c in range(CONTEXTS):
        at = tables.found_DC[depth, c]
        x_I[first + 2 * c] = x_I[first + 2 * c + 1] = 0.0
        if at != NONE:
            low, above = map_place(c, slot_at(tables, c, at))
            a = tables.map_M[low] * (1.0 - above) + tables.map_M[low + 1] * above
            x_I[first + 2 * c], x_I[first + 2 * c + 1] = logit(a), 2.0 * a - 1.0
    x_I[first + INPUTS - 2] = x_I[first + INPUTS - 1] = 0.0
    bit = matched_bit(tables, bits, node, depth)
    if bit != NONE:
        a = tables.map_M[CONTEXTS * COUNT_KINDS * BINS + match_kind(tables)]
        sign = 1.0 if bit == 1 else -1.0
        x_I[first + INPUTS - 2], x_I[first + INPUTS - 1] = sign * logit(a), sign * (2.0 * a - 1.0)


@compiled
def learn_bit(tables: ContextTables, bits: int, node: int, depth: int, bit: int) -> None:
    """Every context's slot that was found, and what it was worth, move towards a bit."""
    for c in range(CONTEXTS):
        hashed, at = int(tables.hash_DC[depth, c]), int(tables.found_DC[depth, c])
        if at == NONE:  # the neighbour that has seen less makes room
            at = hashed & (tables.slot_CS.shape[1] - 1)
            if (slot_at(tables, c, at) & 255) > (slot_at(tables, c, at ^ 1) & 255):
                at ^= 1
            slot = (1 << 31) | ((hashed >> 24) << 8)
        else:
            slot = slot_at(tables, c, at)
            low, above = map_place(c, slot)
            put(tables, low, MAP_RATE * (1.0 - above) * (bit - tables.map_M[low]))
            put(tables, low + 1, MAP_RATE * above * (bit - tables.map_M[low + 1]))
        n, p = slot & 255, slot >> 16
        p += int((bit * 65535 - p) / (n + 1.5))
        put_slot(tables, c, at, (p << 16) | (slot & 0xFF00) | min(n + 1, MAX_COUNT))
    expected = matched_bit(tables, bits, node, depth)
    if expected != NONE:
        at = CONTEXTS * COUNT_KINDS * BINS + match_kind(tables)
        put(tables, at, MATCH_RATE * ((1.0 if expected == bit else 0.0) - tables.map_M[at]))


@compiled
def put(tables: ContextTables, at: int, change: float) -> None:
    """Change a number of the maps, and remember what it was."""
    row = tables.place_F[READ] % UNDO_TOKENS
    entry = tables.undo_count_L2[row, 1]
    tables.undo_map_LE[row, entry], tables.undo_old_LE[row, entry] = at, tables.map_M[at]
    tables.undo_count_L2[row, 1] = entry + 1
    tables.map_M[at] += change


@compiled
def put_slot(tables: ContextTables, c: int, at: int, slot: int) -> None:
    """Change a slot, and remember what it was."""
    row = tables.place_F[READ] % UNDO_TOKENS
    entry = tables.undo_count_L2[row, 0]
    tables.undo_slot_LE2[row, entry, 0] = c * tables.slot_CS.shape[1] + at
    tables.undo_slot_LE2[row, entry, 1] = tables.slot_CS[c, at]
    tables.undo_count_L2[row, 0] = entry + 1
    tables.slot_CS[c, at] = slot


@compiled
def begin_token(tables: ContextTables) -> None:
    """Open the row in which what the next token changes is remembered; the oldest of those rows is forgotten."""
    row = tables.place_F[READ] % UNDO_TOKENS
    tables.undo_place_LF[row] = tables.place_F
    tables.undo_count_L2[row] = 0
    tables.undo_last_L2[row, 0] = NONE


@compiled
def end_token(tables: ContextTables, word: int) -> None:
    """Move behind a token: the text, its words and lines, the match, and the contexts in front of the next one."""
    place_F = tables.place_F
    row, at = place_F[READ] % UNDO_TOKENS, place_F[READ]
    if place_F[MATCHED] > 0 and tables.text_T[place_F[MATCH]] == word:
        place_F[MATCH] += 1
        place_F[MATCHED] += 1
    else:
        place_F[MATCH] = place_F[MATCHED] = 0
    tables.text_T[at] = word
    place_F[READ] += 1
    place_F[UNDOABLE] = min(place_F[UNDOABLE] + 1, UNDO_TOKENS)
    kind = tables.kind_V[word]
    if kind == LETTER:
        place_F[WORD] = mixed_hash(place_F[WORD], word + 33 if 64 < word < 91 else word + 1)  # A as a
    elif place_F[WORD] != 0:
        place_F[WORD_2], place_F[WORD_1], place_F[WORD] = place_F[WORD_1], place_F[WORD], 0
    if kind == NEWLINE:
        place_F[LINE_BEFORE], place_F[LINE] = place_F[LINE], at
    if at + 1 >= MATCH_TOKENS:
        find_match(tables, row)
    hash_contexts(tables)


@compiled
def find_match(tables: ContextTables, row: int) -> None:
    """Where the last tokens stood before, if nothing is followed yet; and remember that they stand here."""
    place_F, hashed = tables.place_F, 0
    for back in range(1, MATCH_TOKENS + 1):
        hashed = mixed_hash(hashed, token_at(tables, back))
    hashed &= len(tables.last_H) - 1
    found = int(tables.last_H[hashed])
    if place_F[MATCHED] == 0 and found > 0:
        length = 0
        while (
            length < MAX_MATCH and length < found and tables.text_T[found - 1 - length] == token_at(tables, length + 1)
        ):
            length += 1
        if length >= MIN_MATCH:
            place_F[MATCH], place_F[MATCHED] = found, length
    tables.undo_last_L2[row, 0], tables.undo_last_L2[row, 1] = hashed, found
    tables.last_H[hashed] = place_F[READ]


@compiled
def read_token(tables: ContextTables, bits: int, word: int, learn: bool) -> None:
    """Move behind a token, and let the slots that were found along its path learn its bits."""
    begin_token(tables)
    for depth in range(bits if learn else 0):
        node, bit = (word + (1 << bits)) >> (bits - depth), (word >> (bits - 1 - depth)) & 1
        learn_bit(tables, bits, node, depth, bit)
    end_token(tables, word)


@compiled
def read_tokens(tables: ContextTables, bits: int, begin: int, x_T: Array) -> None:
    """Learn from tokens; begin is not learnt from."""
    for word in x_T:
        for depth in range(bits if word != begin else 0):
            find_slots(tables, (word + (1 << bits)) >> (bits - depth), depth)
        read_token(tables, bits, word, word != begin)


@compiled
def undo_token(tables: ContextTables) -> None:
    """Forget the last token as if it had not been read."""
    row, slots = (tables.place_F[READ] - 1) % UNDO_TOKENS, tables.slot_CS.shape[1]
    for entry in range(tables.undo_count_L2[row, 0] - 1, -1, -1):
        at = tables.undo_slot_LE2[row, entry, 0]
        tables.slot_CS[at // slots, at % slots] = tables.undo_slot_LE2[row, entry, 1]
    for entry in range(tables.undo_count_L2[row, 1] - 1, -1, -1):
        tables.map_M[tables.undo_map_LE[row, entry]] = tables.undo_old_LE[row, entry]
    if tables.undo_last_L2[row, 0] != NONE:
        tables.last_H[tables.undo_last_L2[row, 0]] = tables.undo_last_L2[row, 1]
    undoable = tables.place_F[UNDOABLE]
    tables.place_F[:] = tables.undo_place_LF[row]
    tables.place_F[UNDOABLE] = undoable - 1


def first_maps() -> Array:
    """A before anything was learnt: p as it is; and of a match, more the longer it is."""
    p_Q = 1 / (1 + np.exp(-np.linspace(-MAX_BIN_LOGIT, MAX_BIN_LOGIT, BINS)))
    true_K = 1 - 1 / (np.arange(MATCH_KINDS) + 2.0)
    return np.concatenate([np.tile(p_Q, CONTEXTS * COUNT_KINDS), true_K])


def first_place() -> Array:
    """Before any token, in a first line."""
    place_F = np.zeros(FIELDS, np.int64)
    place_F[LINE] = place_F[LINE_BEFORE] = NONE
    return place_F
