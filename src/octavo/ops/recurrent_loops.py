"""A GRU over one sequence, and its gradient through time, as loops over numbers: where a step is a product of a matrix
and one vector, calling a library for each costs as much as the sum.

The equations are those of `octavo.ops.recurrent.gru_after` and of `octavo.ops.backprop_through_time.GRUThroughTime`.
Sums are taken in one order, whatever the number of threads. Products are of the arrays' precision, gates of double.

T time, I inputs, D hidden units, G = 3 D (r, z, n), V vocabulary, Y layers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.ops.compiled import compiled

Array = NDArray[Any]


@compiled
def add_product(y_N: Array, w_MN: Array, x_M: Array) -> None:
    """y += x W, row after row; four rows in one pass over y are the same sums in the same order."""
    whole = len(x_M) // 4 * 4
    for m in range(0, whole, 4):
        a, b, c, d = x_M[m], x_M[m + 1], x_M[m + 2], x_M[m + 3]
        for n in range(len(y_N)):
            y_N[n] = (((y_N[n] + w_MN[m, n] * a) + w_MN[m + 1, n] * b) + w_MN[m + 2, n] * c) + w_MN[m + 3, n] * d
    for m in range(whole, len(x_M)):
        a = x_M[m]
        for n in range(len(y_N)):
            y_N[n] += w_MN[m, n] * a


@compiled
def sigmoid(a: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(a, -700.0), 700.0)))


@compiled
def gru_step(rzu_G: Array, n_D: Array, before_D: Array, h_D: Array, hh_DG: Array) -> None:
    """h after one input. W x and the biases stand in rzu (for u its bias alone) and in n; the gates replace them."""
    D = len(h_D)
    add_product(rzu_G, hh_DG, before_D)
    for i in range(2 * D):
        rzu_G[i] = sigmoid(np.float64(rzu_G[i]))
    for i in range(D):
        n_D[i] = 2.0 * sigmoid(2.0 * (np.float64(n_D[i]) + np.float64(rzu_G[i]) * np.float64(rzu_G[2 * D + i]))) - 1.0
        n, z = np.float64(n_D[i]), np.float64(rzu_G[D + i])
        h_D[i] = n + z * (np.float64(before_D[i]) - n)


@compiled
def gru_forward(rzu_TG: Array, n_TD: Array, h_TD: Array, hh_DG: Array) -> None:
    """All steps; h_TD has the first state in front."""
    for t in range(len(n_TD)):
        gru_step(rzu_TG[t], n_TD[t], h_TD[t], h_TD[t + 1], hh_DG)


@compiled
def gru_backward(
    dout_TD: Array, rzu_TG: Array, n_TD: Array, h_TD: Array, hh_GD: Array, da_TG: Array, dh_side_TG: Array,
    carried_D: Array,
) -> None:  # fmt: skip
    """The gradients of what enters the gates, from W x (r, z, n) and from U h (r, z, u), and of the first state."""
    D = len(carried_D)
    for t in range(len(n_TD) - 1, -1, -1):
        for i in range(D):
            r, z, u = np.float64(rzu_TG[t, i]), np.float64(rzu_TG[t, D + i]), np.float64(rzu_TG[t, 2 * D + i])
            n, dh = np.float64(n_TD[t, i]), np.float64(dout_TD[t, i]) + np.float64(carried_D[i])
            dn = (1.0 - n * n) * (1.0 - z) * dh
            dr, dz = r * (1.0 - r) * u * dn, z * (1.0 - z) * (np.float64(h_TD[t, i]) - n) * dh
            da_TG[t, i], da_TG[t, D + i], da_TG[t, 2 * D + i] = dr, dz, dn
            dh_side_TG[t, i], dh_side_TG[t, D + i], dh_side_TG[t, 2 * D + i] = dr, dz, dn * r
            carried_D[i] = dh * z
        add_product(carried_D, hh_GD, dh_side_TG[t])


@compiled
def gru_token(
    x: int, t: int, embedding_VD: Array, ih_YDG: Array, hh_YDG: Array, bias_YG: Array, bias_n_YD: Array, wx_VG: Array,
    known_V: Array, h_YTD: Array, rzu_YTG: Array, n_YTD: Array,
) -> None:  # fmt: skip
    """One token through all layers: their gates and states at place t. W x of the first layer is computed once for
    each token that occurs.
    """
    D = h_YTD.shape[2]
    for y in range(len(h_YTD)):
        rzu_G, n_D = rzu_YTG[y, t], n_YTD[y, t]
        if y == 0 and not known_V[x]:
            wx_VG[x, :] = 0
            add_product(wx_VG[x], ih_YDG[0], embedding_VD[x])
            known_V[x] = True
        wx_G = wx_VG[x]
        if y > 0:
            wx_G = wx_VG[len(known_V)]  # a row of its own behind those of the tokens
            wx_G[:] = 0
            add_product(wx_G, ih_YDG[y], h_YTD[y - 1, t + 1])
        for i in range(2 * D):
            rzu_G[i] = wx_G[i] + bias_YG[y, i]
        for i in range(D):
            rzu_G[2 * D + i], n_D[i] = bias_YG[y, 2 * D + i], wx_G[2 * D + i] + bias_n_YD[y, i]
        gru_step(rzu_G, n_D, h_YTD[y, t], h_YTD[y, t + 1], hh_YDG[y])


@compiled
def rms_step(w_P: Array, g_P: Array, square_P: Array, numbers_4: Array) -> None:
    """v ← β v + (1 - β) g²; w ← w - η g / (√v + ε), in one pass; numbers: β, 1 - β, η, ε."""
    beta, rest, rate, epsilon = numbers_4[0], numbers_4[1], numbers_4[2], numbers_4[3]
    for i in range(len(w_P)):
        square = beta * square_P[i] + rest * g_P[i] * g_P[i]
        square_P[i] = square
        w_P[i] -= rate * g_P[i] / (math.sqrt(square) + epsilon)
