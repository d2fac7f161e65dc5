"""The loops of an n-gram model that goes on counting while it reads: they read its tables and change them.

K contexts of 0 to n - 1 tokens; C classes of contexts; J counts of 0, 1, 2, and 3 or more; T time; V vocabulary.
"""

from __future__ import annotations

import math

import numpy as np

from octavo.models.ngram.adaptive_nodes import (
    COUNT,
    FIELDS,
    MIN_DISCOUNT,
    MORE,
    NEWEST_CHILD,
    NODES,
    NONE,
    ONES,
    READ,
    SIBLING,
    TOTAL,
    TWOS,
    UNDO_TOKENS,
    UNDOABLE,
    WORD,
    Array,
    Tables,
    find,
)
from octavo.ops.compiled import compiled


@compiled
def context_class(total: int, kinds: int) -> int:
    """The class of a context that was continued `total` times, by `kinds` different tokens."""
    if kinds <= 1:
        return 0 if total <= 1 else 1 if total == 2 else 2 if total <= 4 else 3 if total <= 8 else 4
    if kinds == 2:
        return 5 if total <= 3 else 6 if total <= 8 else 7
    if kinds <= 4:
        return 8 if total <= 8 else 9 if total <= 24 else 10
    if kinds <= 10:
        return 11 if total <= 30 else 12
    return 13 if total <= 200 else 14


@compiled
def back_off(tables: Tables, k: int, context: int) -> tuple[int, float]:
    """The class of a context of k tokens, and gamma: what it leaves to the shorter one, 1 where it knows nothing."""
    node_NF = tables.node_NF
    total = node_NF[context, TOTAL]
    if total == 0:
        return NONE, 1.0
    ones, twos, more = node_NF[context, ONES], node_NF[context, TWOS], node_NF[context, MORE]
    c = context_class(total, ones + twos + more)
    d_J = tables.discount_KCJ[k, c]
    return c, (d_J[1] * ones + d_J[2] * twos + d_J[3] * more) / total


@compiled
def discounted(tables: Tables, k: int, c: int, node: int, total: int) -> float:
    """alpha of a node: its share of its context's continuations, less the discount."""
    count = tables.node_NF[node, COUNT] if node != NONE else 0
    return (count - tables.discount_KCJ[k, c, min(count, 3)]) / total if count > 0 else 0.0


@compiled
def add_continuations(tables: Tables, k: int, c: int, context: int, scale: float, p_V: Array) -> None:
    """Add alpha, scaled, of each token that has followed a context of k tokens."""
    node_NF, first_C = tables.node_NF, tables.first_C
    total = node_NF[context, TOTAL]
    if context < len(first_C) - 1:
        for node in range(first_C[context], first_C[context + 1]):
            p_V[node_NF[node, WORD]] += scale * discounted(tables, k, c, node, total)
    node = node_NF[context, NEWEST_CHILD]
    while node != NONE:
        p_V[node_NF[node, WORD]] += scale * discounted(tables, k, c, node, total)
        node = node_NF[node, SIBLING]


@compiled
def distribution(tables: Tables, begin: int, p_V: Array) -> None:
    """The probability of each token that may come next: p = alpha + gamma p, from the shortest context up."""
    down = 1.0  # what the longer contexts leave to this one
    p_V[:] = 0.0
    for k in range(len(tables.context_K) - 1, -1, -1):
        context = tables.context_K[k]
        if context == NONE:
            continue
        c, gamma = back_off(tables, k, context)
        if c == NONE:
            continue
        add_continuations(tables, k, c, context, down, p_V)
        down *= gamma
    p_V += down / (len(p_V) - 1)
    p_V[begin] = 0.0


@compiled
def order_distributions(tables: Tables, begin: int, p_KV: Array) -> None:
    """The distribution by the contexts of up to k tokens, for each k: what a mixture may weigh one by one."""
    for k in range(len(p_KV)):
        if k == 0:
            p_KV[0] = 1.0 / (p_KV.shape[1] - 1)
            p_KV[0, begin] = 0.0
        else:
            p_KV[k] = p_KV[k - 1]
        context = tables.context_K[k]
        if context == NONE:
            continue
        c, gamma = back_off(tables, k, context)
        if c == NONE:
            continue
        p_KV[k] *= gamma
        add_continuations(tables, k, c, context, 1.0, p_KV[k])


@compiled
def learn_discounts(
    tables: Tables, rate: float, p: float, class_K: Array, count_K: Array, gamma_K: Array, below_K: Array
) -> None:
    """One step of the discounts on log p of the token that came, from the longest context down.

    p_k = (n - D_n) / T + (D_1 n_1 + D_2 n_2 + D_3 n_3) / T p_{k-1}, so dp_k/dD_j = (n_j p_{k-1} - [n = j]) / T, and
    dp_k/dp_{k-1} = gamma_k. Steps shrink with the square root of the summed squares of the gradients (Adagrad).
    """
    d_log_p = 1.0 / p
    for k in range(len(class_K) - 1, -1, -1):
        c = class_K[k]
        if c == NONE:
            continue
        context = tables.context_K[k]
        total = tables.node_NF[context, TOTAL]
        for j in range(1, 4):
            came = 1.0 if min(count_K[k], 3) == j else 0.0
            slope = d_log_p * (tables.node_NF[context, ONES + j - 1] * below_K[k] - came) / total
            tables.square_KCJ[k, c, j] += slope * slope
            moved = tables.discount_KCJ[k, c, j] + rate * slope / math.sqrt(1.0 + tables.square_KCJ[k, c, j])
            tables.discount_KCJ[k, c, j] = min(max(moved, MIN_DISCOUNT), j - MIN_DISCOUNT)
        d_log_p *= gamma_K[k]


@compiled
def count_token(tables: Tables, word: int, vocab: int, node_K: Array) -> None:
    """Count a token after every context.

    After the longest context its count rises; after a shorter one only if the n-gram one longer had not been seen
    before, because that count is of the different tokens in front of it.
    """
    node_NF, new = tables.node_NF, True
    for k in range(len(node_K) - 1, -1, -1):
        context = tables.context_K[k]
        if context == NONE:
            continue
        node = node_K[k]
        if node == NONE:
            node = tables.size[NODES]
            tables.size[NODES] += 1
            key = context * vocab + word
            _, slot = find(tables, key)
            tables.slot_S[slot], tables.key_N[node] = node, key
            for field in range(FIELDS):
                node_NF[node, field] = 0
            node_NF[node, NEWEST_CHILD], node_NF[node, WORD] = NONE, word
            node_NF[node, SIBLING], node_NF[context, NEWEST_CHILD] = node_NF[context, NEWEST_CHILD], node
            node_K[k] = node
        if new:
            count = node_NF[node, COUNT]
            node_NF[node, COUNT] += 1
            node_NF[context, TOTAL] += 1
            if count < 3:
                node_NF[context, ONES + count] += 1
                if count > 0:
                    node_NF[context, ONES + count - 1] -= 1
            new = count == 0


@compiled
def token_probability(
    tables: Tables, word: int, vocab: int, node_K: Array, class_K: Array, count_K: Array, gamma_K: Array, below_K: Array
) -> float:
    """p of the next token; of each context its n-gram, class, count and gamma, and p below it, are filled in."""
    p = 1.0 / (vocab - 1)
    for k in range(len(node_K)):
        context = tables.context_K[k]
        if context == NONE:
            continue
        node_K[k], _ = find(tables, context * vocab + word)
        class_K[k], gamma_K[k] = back_off(tables, k, context)
        below_K[k] = p
        if class_K[k] != NONE:
            count_K[k] = tables.node_NF[node_K[k], COUNT] if node_K[k] != NONE else 0
            total = tables.node_NF[context, TOTAL]
            p = discounted(tables, k, class_K[k], node_K[k], total) + gamma_K[k] * p
    return p


@compiled
def move_contexts(tables: Tables, word: int, begin: int, newline: int, node_K: Array) -> None:
    """The contexts in front of the token after this one."""
    if word in (begin, newline):
        open_sequence(tables, begin)
        return
    for k in range(len(node_K) - 1, 0, -1):
        tables.context_K[k] = node_K[k - 1]


@compiled
def read_token(tables: Tables, word: int, begin: int, newline: int, vocab: int, rate: float, learn: bool) -> float:
    """The probability of the next token, which is then learnt from; 0 for begin, which only opens a sequence."""
    order = len(tables.context_K)
    node_K, class_K, count_K = np.full(order, NONE), np.full(order, NONE), np.zeros(order, np.int64)
    gamma_K, below_K = np.ones(order), np.zeros(order)
    p = 0.0
    if word != begin:
        p = token_probability(tables, word, vocab, node_K, class_K, count_K, gamma_K, below_K)
    if learn:
        save_undo(tables, word, class_K)
        if word != begin:
            if rate > 0.0:
                learn_discounts(tables, rate, p, class_K, count_K, gamma_K, below_K)
            count_token(tables, word, vocab, node_K)
    move_contexts(tables, word, begin, newline, node_K)
    return p


@compiled
def open_sequence(tables: Tables, begin: int) -> None:
    """Nothing but begin is known: the contexts are the empty one and begin alone."""
    tables.context_K[:] = NONE
    tables.context_K[0] = 0
    if len(tables.context_K) > 1:
        tables.context_K[1] = 1 + begin


@compiled
def save_undo(tables: Tables, word: int, class_K: Array) -> None:
    """Remember what the next token is about to change; the oldest of the remembered tokens is forgotten."""
    order = len(class_K)
    at = tables.size[READ] % UNDO_TOKENS
    row_I = tables.undo_LI[at]
    row_I[0], row_I[1] = word, tables.size[NODES]
    row_I[2 : 2 + order], row_I[2 + order :] = tables.context_K, class_K
    for k in range(order):
        if class_K[k] != NONE:
            tables.undo_discount_LKJ[at, k] = tables.discount_KCJ[k, class_K[k]]
            tables.undo_square_LKJ[at, k] = tables.square_KCJ[k, class_K[k]]
    tables.size[READ] += 1
    tables.size[UNDOABLE] = min(tables.size[UNDOABLE] + 1, UNDO_TOKENS)


@compiled
def undo_token(tables: Tables, begin: int, vocab: int) -> None:
    """Forget the last token as if it had not been read."""
    node_NF = tables.node_NF
    tables.size[READ] -= 1
    tables.size[UNDOABLE] -= 1
    at = tables.size[READ] % UNDO_TOKENS
    row_I = tables.undo_LI[at]
    word, nodes, order = row_I[0], row_I[1], len(tables.context_K)
    tables.context_K[:] = row_I[2 : 2 + order]
    for k in range(order):
        c = row_I[2 + order + k]
        if c != NONE:
            tables.discount_KCJ[k, c] = tables.undo_discount_LKJ[at, k]
            tables.square_KCJ[k, c] = tables.undo_square_LKJ[at, k]
    if word == begin:
        return
    new = True
    for k in range(order - 1, -1, -1):
        context = tables.context_K[k]
        if context == NONE or not new:
            continue
        node, _ = find(tables, context * vocab + word)
        node_NF[node, COUNT] -= 1
        node_NF[context, TOTAL] -= 1
        count = node_NF[node, COUNT]
        if count < 3:
            node_NF[context, ONES + count] -= 1
            if count > 0:
                node_NF[context, ONES + count - 1] += 1
        new = count == 0
    while tables.size[NODES] > nodes:  # the last one made goes first, so the look-up table has no holes
        node = tables.size[NODES] - 1
        _, slot = find(tables, tables.key_N[node])
        tables.slot_S[slot] = NONE
        parent = tables.key_N[node] // vocab
        node_NF[parent, NEWEST_CHILD] = node_NF[node, SIBLING]
        tables.size[NODES] -= 1


@compiled
def matched_length(tables: Tables) -> int:
    """The length of the longest context that has been continued before."""
    for k in range(len(tables.context_K) - 1, 0, -1):
        context = tables.context_K[k]
        if context != NONE and tables.node_NF[context, TOTAL] > 0:
            return k
    return 0


@compiled
def read_tokens(
    tables: Tables, x_T: Array, begin: int, newline: int, vocab: int, rate: float, learn: bool, p_T: Array,
    class_T: Array,
) -> None:  # fmt: skip
    """The probability of each token and the matched length before it; with `learn`, each is learnt from."""
    for t in range(len(x_T)):
        class_T[t] = matched_length(tables)
        p_T[t] = read_token(tables, x_T[t], begin, newline, vocab, rate, learn)


@compiled
def read_distributions(
    tables: Tables, x_T: Array, begin: int, newline: int, vocab: int, rate: float, p_TV: Array
) -> None:
    """The distribution of the next token after each token that is read."""
    for t in range(len(x_T)):
        read_token(tables, x_T[t], begin, newline, vocab, rate, True)
        distribution(tables, begin, p_TV[t])


@compiled
def read_order_distributions(
    tables: Tables, x_T: Array, begin: int, newline: int, vocab: int, rate: float, p_TKV: Array, class_T: Array
) -> None:
    """The distributions by every length of context after each token that is read, and the matched length there."""
    for t in range(len(x_T)):
        read_token(tables, x_T[t], begin, newline, vocab, rate, True)
        order_distributions(tables, begin, p_TKV[t])
        class_T[t] = matched_length(tables)
