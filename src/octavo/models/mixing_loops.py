"""The loops of an adaptive mixture: distributions of several experts become one, by weights that are learnt on the way.

A token is a path of L bits from the root of a binary tree over the ids. At a node, expert i gives the bit 1 the share
q_i of its mass there. With x_i = ln(q_i / (1 - q_i)), after these what hashed contexts and a match say of the bit
(`context_tables`), and the last x a constant,

    y_s = Σ_i w_si x_i                  one sum for each selector s, whose weights depend on something known
    p_s = σ(y_s)
    p   = σ(Σ_s v_s y_s)                the selectors' sums, mixed again
    p'  = (p + a_1(p) + a_2(p)) / 3     calibrated: a table for each of two contexts says what such a p was worth

and after the bit b:  w_si += η (b - p_s) x_i,  v_s += η' (b - p) y_s  (the gradients of log p_s and of log p), and the
two entries of a table that are next to p move towards b.

All that is learnt is one vector θ: the weights w, then v, then the tables. T time, I experts, W inputs, V vocabulary,
S selectors, P numbers in θ, J entries of the journal by which tokens are taken back.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.models import context_tables as contexts
from octavo.models.context_tables import ContextTables
from octavo.ops.compiled import compiled

Array = NDArray[Any]

SELECTORS = 5  # by context class and depth, node, last token, context class and node, length of the match and depth
NODES = 256  # that selectors tell apart
TOKENS = 256
BINS = 24  # of a calibration table, over the logits from -MAX_BIN_LOGIT to MAX_BIN_LOGIT
MAX_BIN_LOGIT = 8.0
MIN_SHARE = 1e-6  # of an expert for a bit
MIN_P = 2.0**-22  # of the mixture for a bit
MAX_LOGIT = 18.0
BIAS = 0.3  # the constant input
CONTEXT_WEIGHT = 0.05  # of each context before anything was learnt
CALIBRATION_RATE = 0.02


class Shape(NamedTuple):
    """What the loops need to know besides θ; all numbers, so that it goes into compiled code."""

    experts: int
    contexts: int  # inputs that do not come from an expert
    classes: int
    leaves: int  # ids that can come: all but begin where that is the last one
    bits: int
    calibration: int  # contexts of each calibration table, a power of two
    rate: float
    final_rate: float


class Path(NamedTuple):
    """What learning needs of each bit of a token: L bits on the path."""

    x_LW: Array
    row_LS: Array
    start_L2: Array
    y_LS: Array
    out_L4: Array  # p, the lower bin and how far p is above it


class Known(NamedTuple):
    """What is known in front of a token, besides what the experts say of it."""

    kind: int  # the context class
    last: int
    before: int


@compiled
def new_path(shape: Shape) -> Path:
    """Room for a token's bits."""
    L = shape.bits
    return Path(
        np.empty((L, input_count(shape))), np.empty((L, SELECTORS), np.int64), np.empty((L, 2), np.int64),
        np.empty((L, SELECTORS)), np.empty((L, 4)),
    )  # fmt: skip


@compiled
def input_count(shape: Shape) -> int:
    """How many inputs are weighted: the constant is the last one."""
    return shape.experts + shape.contexts + 1


@compiled
def selector_rows(shape: Shape) -> int:
    """How many sets of weights there are."""
    by_class = shape.classes * (shape.bits + NODES)
    return by_class + NODES + TOKENS + contexts.MATCH_KINDS * shape.bits


@compiled
def theta_size(shape: Shape) -> int:
    """How many numbers are learnt."""
    weights = selector_rows(shape) * input_count(shape)
    return weights + shape.classes * SELECTORS + 2 * shape.calibration * BINS


def first_theta(shape: Shape, share_I: Array) -> Array:
    """What is known before anything was learnt: the experts by their shares, the contexts a little, and p as it is."""
    theta_P = np.zeros(theta_size(shape))
    weights = selector_rows(shape) * input_count(shape)
    w_RW = theta_P[:weights].reshape(-1, input_count(shape))
    w_RW[:, : shape.experts] = share_I
    w_RW[:, shape.experts : -1] = CONTEXT_WEIGHT
    theta_P[weights : weights + shape.classes * SELECTORS] = 1 / SELECTORS
    logits = np.linspace(-MAX_BIN_LOGIT, MAX_BIN_LOGIT, BINS)
    theta_P[weights + shape.classes * SELECTORS :].reshape(-1, BINS)[:] = 1 / (1 + np.exp(-logits))
    return theta_P


@compiled
def tree_sums(p_IV: Array, shape: Shape, mass_IN: Array) -> None:
    """The mass below each node of the tree: node 1 is the root, node n has the children 2 n and 2 n + 1."""
    first = 1 << shape.bits
    for i in range(shape.experts):
        mass_IN[i, first : first + shape.leaves] = p_IV[i, : shape.leaves]
        mass_IN[i, first + shape.leaves :] = 0.0
        for node in range(first - 1, 0, -1):
            mass_IN[i, node] = mass_IN[i, 2 * node] + mass_IN[i, 2 * node + 1]


@compiled
def is_open(shape: Shape, node: int, depth: int) -> bool:
    """Whether both children of a node have ids that can come; else the bit is 0, and nothing has to be predicted."""
    return ((2 * node + 1) << (shape.bits - depth - 1)) - (1 << shape.bits) < shape.leaves


@compiled
def logistic(y: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(y, -MAX_LOGIT), MAX_LOGIT)))


@compiled
def inputs(mass_IN: Array, shape: Shape, tables: ContextTables, node: int, depth: int, x_I: Array) -> None:
    """The experts' logits of the bit at a node, what the contexts say of it, and the constant."""
    for i in range(shape.experts):
        above = mass_IN[i, node]
        q = mass_IN[i, 2 * node + 1] / above if above > 0.0 else 0.5
        q = min(max(q, MIN_SHARE), 1.0 - MIN_SHARE)
        x_I[i] = math.log(q / (1.0 - q))
    if shape.contexts > 0:
        contexts.bit_inputs(tables, shape.bits, node, depth, x_I, shape.experts)
    x_I[shape.experts + shape.contexts] = BIAS


@compiled
def rows_of(shape: Shape, tables: ContextTables, kind: int, last: int, node: int, depth: int, row_S: Array) -> None:
    """The set of weights that each selector chooses: by context class, last token, place in the tree, and match."""
    part, matched = node % NODES, 0
    if shape.contexts > 0 and contexts.matched_bit(tables, shape.bits, node, depth) != contexts.NONE:
        matched = contexts.match_kind(tables)
    row_S[0] = kind * shape.bits + depth
    row_S[1] = shape.classes * shape.bits + part
    row_S[2] = shape.classes * shape.bits + NODES + last % TOKENS
    row_S[3] = shape.classes * shape.bits + NODES + TOKENS + kind * NODES + part
    row_S[4] = shape.classes * (shape.bits + NODES) + NODES + TOKENS + matched * shape.bits + depth


@compiled
def table_starts(shape: Shape, last: int, before: int, node: int, start_2: Array) -> None:
    """Where the two calibration tables of this place begin: by the last token, and by the last two."""
    first = selector_rows(shape) * input_count(shape) + shape.classes * SELECTORS
    mask = shape.calibration - 1
    one = ((last + 1) * 257 + node) & mask
    two = (((last + 1) * 31337 + (before + 1)) * 611 + node * 7) & 0x7FFFFFFF
    start_2[0] = first + one * BINS
    start_2[1] = first + (shape.calibration + ((two ^ (two >> 15)) & mask)) * BINS


@compiled
def predict_bit(
    theta_P: Array, shape: Shape, kind: int, x_I: Array, row_S: Array, start_2: Array, y_S: Array, out_4: Array
) -> float:
    """p' of the bit 1; y_S and what learning needs are filled in: p, the lower bin and how far p is above it."""
    width = input_count(shape)
    final = selector_rows(shape) * width + kind * SELECTORS
    y = 0.0
    for s in range(SELECTORS):
        y_S[s] = 0.0
        for i in range(width):
            y_S[s] += theta_P[row_S[s] * width + i] * x_I[i]
        y_S[s] = min(max(y_S[s], -MAX_LOGIT), MAX_LOGIT)
        y += theta_P[final + s] * y_S[s]
    p = logistic(y)
    place = (min(max(y, -MAX_BIN_LOGIT), MAX_BIN_LOGIT) / MAX_BIN_LOGIT + 1.0) / 2.0 * (BINS - 1)
    low = min(int(place), BINS - 2)
    above = place - low
    out_4[0], out_4[1], out_4[2] = p, low, above
    calibrated = p
    for a in range(2):
        calibrated += theta_P[start_2[a] + low] * (1.0 - above) + theta_P[start_2[a] + low + 1] * above
    return min(max(calibrated / 3.0, MIN_P), 1.0 - MIN_P)


@compiled
def learn_bit(
    theta_P: Array, shape: Shape, kind: int, bit: int, x_I: Array, row_S: Array, start_2: Array, y_S: Array,
    out_4: Array, journal_J: Array, old_J: Array, size: Array,
) -> None:  # fmt: skip
    """One step of everything that was used for a bit."""
    width = input_count(shape)
    final, remembers = selector_rows(shape) * width + kind * SELECTORS, len(journal_J) > 0
    for s in range(SELECTORS):
        miss, first = shape.rate * (bit - logistic(y_S[s])), row_S[s] * width
        for i in range(width if remembers else 0):
            put(theta_P, first + i, miss * x_I[i], journal_J, old_J, size)
        for i in range(0 if remembers else width):  # the same, in a form that the compiler makes fast
            theta_P[first + i] += miss * x_I[i]
    miss = shape.final_rate * (bit - out_4[0])
    for s in range(SELECTORS):
        put(theta_P, final + s, miss * y_S[s], journal_J, old_J, size)
    low, above = int(out_4[1]), out_4[2]
    for a in range(2):
        at = start_2[a] + low
        put(theta_P, at, CALIBRATION_RATE * (1.0 - above) * (bit - theta_P[at]), journal_J, old_J, size)
        put(theta_P, at + 1, CALIBRATION_RATE * above * (bit - theta_P[at + 1]), journal_J, old_J, size)


@compiled
def put(theta_P: Array, at: int, change: float, journal_J: Array, old_J: Array, size: Array) -> None:
    """Change a number, and remember what it was where there is a journal."""
    if size[0] < len(journal_J):
        journal_J[size[0]], old_J[size[0]] = at, theta_P[at]
        size[0] += 1
    theta_P[at] += change


@compiled
def predict_node(
    theta_P: Array, shape: Shape, tables: ContextTables, mass_IN: Array, known: Known, node: int, depth: int, path: Path
) -> float:
    """p' of the bit 1 at a node; what learning needs is filled in at its depth."""
    inputs(mass_IN, shape, tables, node, depth, path.x_LW[depth])
    rows_of(shape, tables, known.kind, known.last, node, depth, path.row_LS[depth])
    table_starts(shape, known.last, known.before, node, path.start_L2[depth])
    return predict_bit(
        theta_P, shape, known.kind, path.x_LW[depth], path.row_LS[depth], path.start_L2[depth], path.y_LS[depth],
        path.out_L4[depth],
    )  # fmt: skip


@compiled
def learn_token(
    theta_P: Array, shape: Shape, tables: ContextTables, known: Known, word: int, path: Path, journal_J: Array,
    old_J: Array, size: Array,
) -> None:  # fmt: skip
    """One step for every bit of a token whose bits were predicted, and the contexts behind it."""
    for depth in range(shape.bits):
        node, bit = (word + (1 << shape.bits)) >> (shape.bits - depth), (word >> (shape.bits - 1 - depth)) & 1
        if is_open(shape, node, depth):
            learn_bit(
                theta_P, shape, known.kind, bit, path.x_LW[depth], path.row_LS[depth], path.start_L2[depth],
                path.y_LS[depth], path.out_L4[depth], journal_J, old_J, size,
            )  # fmt: skip
        elif shape.contexts > 0:
            contexts.find_slots(tables, node, depth)
    if shape.contexts > 0:
        contexts.read_token(tables, shape.bits, word, True)


@compiled
def read_token(
    theta_P: Array, shape: Shape, tables: ContextTables, mass_IN: Array, known: Known, word: int, learn: bool,
    journal_J: Array, old_J: Array, size: Array,
) -> float:  # fmt: skip
    """log p of a token, by the bits on its path; all of them are then learnt from together."""
    path, log_p = new_path(shape), 0.0
    for depth in range(shape.bits):
        node, bit = (word + (1 << shape.bits)) >> (shape.bits - depth), (word >> (shape.bits - 1 - depth)) & 1
        if is_open(shape, node, depth):
            p = predict_node(theta_P, shape, tables, mass_IN, known, node, depth, path)
            log_p += math.log(p if bit == 1 else 1.0 - p)
    if learn:
        learn_token(theta_P, shape, tables, known, word, path, journal_J, old_J, size)
    return log_p


@compiled
def mixed_distribution(
    theta_P: Array, shape: Shape, tables: ContextTables, mass_IN: Array, known: Known, p_N: Array, p_V: Array
) -> None:
    """The distribution of the next token: at every node the mass is shared between its children."""
    path = new_path(shape)
    p_N[1] = 1.0
    for depth in range(shape.bits):
        for node in range(1 << depth, 2 << depth):
            p = 0.0
            if is_open(shape, node, depth):
                p = predict_node(theta_P, shape, tables, mass_IN, known, node, depth, path)
            p_N[2 * node], p_N[2 * node + 1] = p_N[node] * (1.0 - p), p_N[node] * p
    first = 1 << shape.bits
    p_V[:] = 0.0
    p_V[: shape.leaves] = p_N[first : first + shape.leaves]


@compiled
def read_tokens(
    theta_P: Array, shape: Shape, tables: ContextTables, p_TIV: Array, kind_T: Array, x_T: Array, begin: int, last: int,
    before: int, log_p_T: Array,
) -> None:  # fmt: skip
    """log p of each token of x_T by the experts' distributions in front of it; it is then learnt from."""
    mass_IN = np.empty((shape.experts, 2 << shape.bits))
    none_J, old_J, size = np.empty(0, np.int64), np.empty(0), np.zeros(1, np.int64)
    for t in range(len(x_T)):
        if x_T[t] == begin:
            log_p_T[t] = -math.inf
            if shape.contexts > 0:
                contexts.read_token(tables, shape.bits, begin, False)
        else:
            tree_sums(p_TIV[t], shape, mass_IN)
            known = Known(kind_T[t], last, before)
            log_p_T[t] = read_token(theta_P, shape, tables, mass_IN, known, x_T[t], True, none_J, old_J, size)
        last, before = x_T[t], last


@compiled
def undo(theta_P: Array, journal_J: Array, old_J: Array, size: Array, until: int) -> None:
    """Put back what was changed since the journal had so many entries."""
    while size[0] > until:
        size[0] -= 1
        theta_P[journal_J[size[0]]] = old_J[size[0]]


def journal_size(shape: Shape, tokens: int) -> int:
    """The entries that so many tokens take at most."""
    return tokens * shape.bits * (SELECTORS * (input_count(shape) + 1) + 4)
