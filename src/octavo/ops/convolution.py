"""Causal convolutions: what comes out at a token depends on it and on tokens before it.

B batch, T tokens, P tokens before them, S = P + T, D units, K taps of a kernel, the last of which is for the token
itself; W = K D.
"""

from __future__ import annotations

import torch
from torch import Tensor


def windows(x_BSD: Tensor, K: int, dilation: int = 1) -> Tensor:
    """windows_BTW: for each token but the first P = (K - 1) dilation, the K vectors that its convolution sees."""
    T = x_BSD.shape[1] - (K - 1) * dilation
    return torch.cat([x_BSD[:, k * dilation : k * dilation + T] for k in range(K)], -1)


def depthwise_convolution(x_BSD: Tensor, kernel_KD: Tensor, bias_D: Tensor) -> Tensor:
    """y_t = Σ_k w_k ⊙ x_{t - K + 1 + k} + b for each token but the first K - 1: every unit by itself."""
    K, T = kernel_KD.shape[0], x_BSD.shape[1] - kernel_KD.shape[0] + 1
    y_BTD = bias_D.expand(x_BSD.shape[0], T, -1)
    for k in range(K):
        y_BTD = torch.addcmul(y_BTD, x_BSD[:, k : k + T], kernel_KD[k])
    return y_BTD
