"""Attention among the patches of an image without the pairs that a pattern forbids; checked against `attend`.

B batch, H heads, S = G + N tokens: G global tokens in front, then N = h w patches in row order.
K size of a head, R rows that a row of patches attends to, M keys of a patch.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from octavo.ops.attention.dispatch import attend
from octavo.ops.attention.patterns import FULL, Axial, Neighbourhood, Pattern
from octavo.ops.attention.reference import scale_of
from octavo.ops.tracing import is_tracing

GridPath = Literal["auto", "masked", "grid"]
MIN_GRID_PATCHES = 256  # below, cutting the keys up costs more than the pairs it saves


def attend_patches(q_BHSK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, pattern: Pattern, path: GridPath = "auto") -> Tensor:
    """y_BHSK. `masked` computes every pair and hides the forbidden ones; `grid` cuts the keys by rows and columns."""
    if path == "auto":
        path = "grid" if is_faster(pattern) and not is_tracing() else "masked"
    if path == "masked" or not isinstance(pattern, Axial | Neighbourhood):
        return attend(q_BHSK, k_BHSK, v_BHSK, pattern)
    G, size = pattern.globals, (pattern.height, pattern.width)
    (q_BHGK, q), (k_BHGK, k), (v_BHGK, v) = (_parted(x, G, size) for x in (q_BHSK, k_BHSK, v_BHSK))
    q = q * scale_of(q_BHSK, None)
    attend_grid = _axial if isinstance(pattern, Axial) else _near
    y_BHNK = attend_grid(q, k, v, k_BHGK, v_BHGK, getattr(pattern, "radius", 0))
    if not G:
        return y_BHNK
    return torch.cat([attend(q_BHGK, k_BHSK, v_BHSK, FULL), y_BHNK], 2)


def is_faster(pattern: Pattern) -> bool:
    """Whether the grid is large enough, and the pattern sparse enough, for the grid path to be faster."""
    if not isinstance(pattern, Axial | Neighbourhood):
        return False
    N = pattern.height * pattern.width
    return N >= MIN_GRID_PATCHES and 2 * computed(pattern) < (N + pattern.globals) ** 2


def computed(pattern: Axial | Neighbourhood) -> int:
    """The pairs that the grid path computes, the few that it hides included."""
    h, w, G = pattern.height, pattern.width, pattern.globals
    keys = h + w if isinstance(pattern, Axial) else min(2 * pattern.radius + 1, h) * w
    return h * w * (keys + G) + G * (h * w + G)


def pairs(pattern: Axial | Neighbourhood) -> int:
    """The pairs that the pattern allows, by its formula: `pattern.pairs(S, S)` counts the same one by one."""
    h, w, G = pattern.height, pattern.width, pattern.globals
    if isinstance(pattern, Axial):
        allowed = h * w * (h + w - 1)
    else:
        allowed = _near_on_a_line(h, pattern.radius) * _near_on_a_line(w, pattern.radius)
    return allowed + 2 * G * h * w + G * G


def _near_on_a_line(n: int, radius: int) -> int:
    """Pairs of n places in a row at most `radius` apart: n (2 r + 1) - r (r + 1), for a line longer than that."""
    r = min(radius, n - 1)
    return n * (2 * r + 1) - r * (r + 1)


def _parted(x_BHSK: Tensor, G: int, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The tokens in front, and the patches as the rows and columns they are: (B, H, h, w, K)."""
    patches: Tensor = x_BHSK[:, :, G:].unflatten(2, size)
    return x_BHSK[:, :, :G], patches


def _axial(q: Tensor, k: Tensor, v: Tensor, k_BHGK: Tensor, v_BHGK: Tensor, _: int) -> Tensor:
    """One softmax over a patch's row and its column; the patch itself, which is in both, is hidden in the column."""
    h, w = q.shape[2:4]
    in_row_BHhww = q @ k.mT
    in_column_BHhwh = (q.transpose(2, 3) @ k.transpose(2, 3).mT).transpose(2, 3)
    itself_h1h = torch.eye(h, dtype=torch.bool, device=q.device)[:, None]
    in_column_BHhwh = in_column_BHhwh.masked_fill(itself_h1h, torch.finfo(q.dtype).min)
    in_front_BHhwG = q @ k_BHGK[:, :, None].mT
    a = torch.cat([in_row_BHhww, in_column_BHhwh, in_front_BHhwG], -1).softmax(-1).to(v.dtype)
    by_row, by_column, in_front = a.split([w, h, k_BHGK.shape[2]], -1)
    y = by_row @ v + (by_column.transpose(2, 3) @ v.transpose(2, 3)).transpose(2, 3) + in_front @ v_BHGK[:, :, None]
    y_BHNK: Tensor = y.flatten(2, 3)
    return y_BHNK


def _near(q: Tensor, k: Tensor, v: Tensor, k_BHGK: Tensor, v_BHGK: Tensor, radius: int) -> Tensor:
    """Each row of patches meets the R rows around it, of which the columns too far away are hidden."""
    h, w = q.shape[2:4]
    R = min(2 * radius + 1, h)
    row_h = torch.arange(h, device=q.device)
    rows_hR = (row_h - radius).clamp(0, h - R)[:, None] + torch.arange(R, device=q.device)
    k_BHhMK, v_BHhMK = (x[:, :, rows_hR].flatten(3, 4) for x in (k, v))
    column_w = torch.arange(w, device=q.device)
    near_hR = (rows_hR - row_h[:, None]).abs() <= radius
    near_ww = (column_w[:, None] - column_w).abs() <= radius
    hidden_hwM = ~(near_hR[:, None, :, None] & near_ww[:, None]).flatten(2)
    near_BHhwM = (q @ k_BHhMK.mT).masked_fill(hidden_hwM, torch.finfo(q.dtype).min)
    in_front_BHhwG = q @ k_BHGK[:, :, None].mT
    a = torch.cat([near_BHhwM, in_front_BHhwG], -1).softmax(-1).to(v.dtype)
    by_near, in_front = a.split([R * w, k_BHGK.shape[2]], -1)
    y_BHNK: Tensor = (by_near @ v_BHhMK + in_front @ v_BHGK[:, :, None]).flatten(2, 3)
    return y_BHNK
