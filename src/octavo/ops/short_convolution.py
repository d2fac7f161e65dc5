"""A short causal convolution of each channel by itself, over the last C tokens.

B batch, T tokens, C tokens of the convolution, P = C - 1 that came before, E channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def short_convolution(
    x_BTE: Tensor, past_BPE: Tensor, weight_CE: Tensor, bias_E: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """y_t = w_C x_t + w_{C-1} x_{t-1} + .. + w_1 x_{t-P} + b, and the last P inputs, which the next tokens need.

    A sum of C products is as fast as a convolution of so few tokens, and the same on every device.
    """
    T, P = x_BTE.shape[1], past_BPE.shape[1]
    inputs_BSE = torch.cat([past_BPE.to(x_BTE.dtype), x_BTE], 1) if P else x_BTE
    weight_CE = weight_CE.to(x_BTE.dtype)
    y_BTE = inputs_BSE[:, :T] * weight_CE[0]
    for c in range(1, P + 1):
        y_BTE = torch.addcmul(y_BTE, inputs_BSE[:, c : c + T], weight_CE[c])
    if bias_E is not None:
        y_BTE = y_BTE + bias_E.to(x_BTE.dtype)
    return y_BTE, inputs_BSE[:, T:]
