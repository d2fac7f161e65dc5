"""Images as sequences of patches, and where a patch stands in two dimensions.

B batch, C channels, H and W pixels down and across, P side of a patch, h = H / P rows and w = W / P columns of patches,
N = h w patches in row order, D width, K size of a query or key.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.positions import rotary_angles, sinusoids


def cut(x_BCHW: Tensor, P: int) -> Tensor:
    """x_BNF: each patch as one vector of F = C P P pixels, in the order of a convolution's weights."""
    x_BChPwP: Tensor = x_BCHW.unflatten(3, (-1, P)).unflatten(2, (-1, P))
    return x_BChPwP.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def embed(x_BCHW: Tensor, weight_DCPP: Tensor, bias_D: Tensor | None = None) -> Tensor:
    """x_BND = W patch + b: a convolution whose steps are as long as its kernel is wide."""
    return F.linear(cut(x_BCHW, weight_DCPP.shape[-1]), weight_DCPP.flatten(1), bias_D)


def rows_and_columns(h: int, w: int, device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """The row and the column of each of the N patches."""
    n_N = torch.arange(h * w, device=device)
    return n_N // w, n_N % w


def sinusoids_2d(
    h: int, w: int, D: int, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> Tensor:
    """p_ND: half of the numbers encode the row, the other half the column."""
    check_quarters(D, "width")
    row_N, column_N = rows_and_columns(h, w, device)
    return torch.cat([sinusoids(row_N, D // 2, dtype=dtype), sinusoids(column_N, D // 2, dtype=dtype)], -1)


def rotary_2d(
    h: int, w: int, K: int, base: float = 100.0, dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:  # fmt: skip
    """angles_NK for `positions.rotate`: half of the pairs turn with the row, half with the column, so that a score
    depends on how many rows and columns lie between two patches. Grids are small: so is the base.
    """
    check_quarters(K, "width / heads")
    row_N, column_N = rows_and_columns(h, w, device)
    by_row, by_column = (rotary_angles(place_N, K // 2, base, dtype).chunk(2, -1) for place_N in (row_N, column_N))
    return torch.cat([torch.cat(pair, -1) for pair in zip(by_row, by_column, strict=True)], -1)


def check_quarters(size: int, what: str) -> None:
    """Rows and columns each take pairs of numbers."""
    if size < 4 or size % 4:
        near = max(4, (size + 3) // 4 * 4)
        raise UserError(
            f"these positions take pairs for rows and pairs for columns, so {what} must be a multiple of 4: {size}; "
            f"try {near}, or --positions learned"
        )
