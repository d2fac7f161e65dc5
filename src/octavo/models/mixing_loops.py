"""The loops of an adaptive mixture: distributions of several experts become one, by weights that are learnt on the way.

A token is a path of L bits from the root of a binary tree over the ids. At a node, expert i gives the bit 1 the share
q_i of its mass there. With x_i = ln(q_i / (1 - q_i)), and x_I a constant,

    y_s = Σ_i w_si x_i                  one sum for each selector s, whose weights depend on something known
    p_s = σ(y_s)
    p   = σ(Σ_s v_s y_s)                the selectors' sums, mixed again
    p'  = (p + a_1(p) + a_2(p)) / 3     calibrated: a table for each of two contexts says what such a p was worth

and after the bit b:  w_si += η (b - p_s) x_i,  v_s += η' (b - p) y_s  (the gradients of log p_s and of log p), and the
two entries of a table that are next to p move towards b.

All that is learnt is one vector θ: the weights w, then v, then the tables. T time, I experts, V vocabulary, S
selectors, P numbers in θ, J entries of the journal by which tokens are taken back.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.ops.compiled import compiled

Array = NDArray[Any]

SELECTORS = 4  # by matched length and bit, by node, by last token, by matched length and node
NODES = 256  # that selectors tell apart
TOKENS = 256
BINS = 24  # of a calibration table, over the logits from -MAX_BIN_LOGIT to MAX_BIN_LOGIT
MAX_BIN_LOGIT = 8.0
MIN_SHARE = 1e-6  # of an expert for a bit
MIN_P = 2.0**-22  # of the mixture for a bit
MAX_LOGIT = 18.0
BIAS = 0.3  # the constant input
CALIBRATION_RATE = 0.02


class Shape(NamedTuple):
    """What the loops need to know besides θ; all numbers, so that it goes into compiled code."""

    experts: int
    classes: int
    leaves: int  # ids that can come: all but begin where that is the last one
    bits: int
    calibration: int  # contexts of each calibration table, a power of two
    rate: float
    final_rate: float


@compiled
def selector_rows(shape: Shape) -> int:
    """How many sets of weights there are."""
    return shape.classes * shape.bits + NODES + TOKENS + shape.classes * NODES


@compiled
def theta_size(shape: Shape) -> int:
    """How many numbers are learnt."""
    weights = selector_rows(shape) * (shape.experts + 1)
    return weights + shape.classes * SELECTORS + 2 * shape.calibration * BINS


def first_theta(shape: Shape) -> Array:
    """What is known before anything was learnt: the experts' mean in the logarithmic domain, and p as it is."""
    theta_P = np.zeros(theta_size(shape))
    weights = selector_rows(shape) * (shape.experts + 1)
    theta_P[:weights].reshape(-1, shape.experts + 1)[:, : shape.experts] = 1 / shape.experts
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
def inputs(mass_IN: Array, shape: Shape, node: int, x_I: Array) -> None:
    """The experts' logits of the bit at a node, and the constant."""
    for i in range(shape.experts):
        above = mass_IN[i, node]
        q = mass_IN[i, 2 * node + 1] / above if above > 0.0 else 0.5
        q = min(max(q, MIN_SHARE), 1.0 - MIN_SHARE)
        x_I[i] = math.log(q / (1.0 - q))
    x_I[shape.experts] = BIAS


@compiled
def rows_of(shape: Shape, kind: int, last: int, node: int, depth: int, row_S: Array) -> None:
    """The set of weights that each selector chooses: by matched length, last token, and place in the tree."""
    part = node % NODES
    row_S[0] = kind * shape.bits + depth
    row_S[1] = shape.classes * shape.bits + part
    row_S[2] = shape.classes * shape.bits + NODES + last % TOKENS
    row_S[3] = shape.classes * shape.bits + NODES + TOKENS + kind * NODES + part


@compiled
def table_starts(shape: Shape, last: int, before: int, node: int, start_2: Array) -> None:
    """Where the two calibration tables of this place begin: by the last token, and by the last two."""
    tables = selector_rows(shape) * (shape.experts + 1) + shape.classes * SELECTORS
    mask = shape.calibration - 1
    one = ((last + 1) * 257 + node) & mask
    two = (((last + 1) * 31337 + (before + 1)) * 611 + node * 7) & 0x7FFFFFFF
    start_2[0] = tables + one * BINS
    start_2[1] = tables + (shape.calibration + ((two ^ (two >> 15)) & mask)) * BINS


@compiled
def predict_bit(
    theta_P: Array, shape: Shape, kind: int, x_I: Array, row_S: Array, start_2: Array, y_S: Array, out_4: Array
) -> float:
    """p' of the bit 1; y_S and what learning needs are filled in: p, the lower bin and how far p is above it."""
    width = shape.experts + 1
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
    width = shape.experts + 1
    final = selector_rows(shape) * width + kind * SELECTORS
    for s in range(SELECTORS):
        miss = shape.rate * (bit - logistic(y_S[s]))
        for i in range(width):
            put(theta_P, row_S[s] * width + i, miss * x_I[i], journal_J, old_J, size)
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
def read_token(
    theta_P: Array, shape: Shape, mass_IN: Array, kind: int, last: int, before: int, word: int, learn: bool,
    journal_J: Array, old_J: Array, size: Array,
) -> float:  # fmt: skip
    """log p of a token, by the bits on its path; all of them are then learnt from together."""
    x_LI, y_LS = np.empty((shape.bits, shape.experts + 1)), np.empty((shape.bits, SELECTORS))
    out_L4 = np.empty((shape.bits, 4))
    row_LS, start_L2 = np.empty((shape.bits, SELECTORS), np.int64), np.empty((shape.bits, 2), np.int64)
    log_p = 0.0
    for depth in range(shape.bits):
        node, bit = (word + (1 << shape.bits)) >> (shape.bits - depth), (word >> (shape.bits - 1 - depth)) & 1
        if is_open(shape, node, depth):
            inputs(mass_IN, shape, node, x_LI[depth])
            rows_of(shape, kind, last, node, depth, row_LS[depth])
            table_starts(shape, last, before, node, start_L2[depth])
            p = predict_bit(
                theta_P, shape, kind, x_LI[depth], row_LS[depth], start_L2[depth], y_LS[depth], out_L4[depth]
            )
            log_p += math.log(p if bit == 1 else 1.0 - p)
    for depth in range(shape.bits if learn else 0):
        node, bit = (word + (1 << shape.bits)) >> (shape.bits - depth), (word >> (shape.bits - 1 - depth)) & 1
        if is_open(shape, node, depth):
            learn_bit(
                theta_P, shape, kind, bit, x_LI[depth], row_LS[depth], start_L2[depth], y_LS[depth], out_L4[depth],
                journal_J, old_J, size,
            )  # fmt: skip
    return log_p


@compiled
def mixed_distribution(
    theta_P: Array, shape: Shape, mass_IN: Array, kind: int, last: int, before: int, p_N: Array, p_V: Array
) -> None:
    """The distribution of the next token: at every node the mass is shared between its children."""
    x_I, y_S, out_4 = np.empty(shape.experts + 1), np.empty(SELECTORS), np.empty(4)
    row_S, start_2 = np.empty(SELECTORS, np.int64), np.empty(2, np.int64)
    p_N[1] = 1.0
    for depth in range(shape.bits):
        for node in range(1 << depth, 2 << depth):
            p = 0.0
            if is_open(shape, node, depth):
                inputs(mass_IN, shape, node, x_I)
                rows_of(shape, kind, last, node, depth, row_S)
                table_starts(shape, last, before, node, start_2)
                p = predict_bit(theta_P, shape, kind, x_I, row_S, start_2, y_S, out_4)
            p_N[2 * node], p_N[2 * node + 1] = p_N[node] * (1.0 - p), p_N[node] * p
    first = 1 << shape.bits
    p_V[:] = 0.0
    p_V[: shape.leaves] = p_N[first : first + shape.leaves]


@compiled
def read_tokens(
    theta_P: Array, shape: Shape, p_TIV: Array, kind_T: Array, x_T: Array, begin: int, last: int, before: int,
    log_p_T: Array,
) -> None:  # fmt: skip
    """log p of each token of x_T by the experts' distributions in front of it; it is then learnt from."""
    mass_IN = np.empty((shape.experts, 2 << shape.bits))
    none_J, old_J, size = np.empty(0, np.int64), np.empty(0), np.zeros(1, np.int64)
    for t in range(len(x_T)):
        if x_T[t] == begin:
            log_p_T[t] = -math.inf
        else:
            tree_sums(p_TIV[t], shape, mass_IN)
            log_p_T[t] = read_token(theta_P, shape, mass_IN, kind_T[t], last, before, x_T[t], True, none_J, old_J, size)
        last, before = x_T[t], last


@compiled
def undo(theta_P: Array, journal_J: Array, old_J: Array, size: Array, until: int) -> None:
    """Put back what was changed since the journal had so many entries."""
    while size[0] > until:
        size[0] -= 1
        theta_P[journal_J[size[0]]] = old_J[size[0]]


def journal_size(shape: Shape, tokens: int) -> int:
    """The entries that so many tokens take at most."""
    return tokens * shape.bits * (SELECTORS * (shape.experts + 2) + 4)
