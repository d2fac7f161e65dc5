"""Channel attention (DaViT): channels attend to channels, over all positions.

B batch, G groups of channels, N positions, C channels of a group, D = G C channels.

    a = softmax over d of (qᵀ k / sqrt(N)),   y_c = sum over d of a_cd v_d

It is ordinary (spatial) attention with positions and channels exchanged: a channel is a token, and its N values are
that token's vector. The map is C x C instead of N x N, so it is cheap for large images and covers all of them;
for the same reason it is not causal, and has its place in encoders only.
"""

from __future__ import annotations

from torch import Tensor

from octavo.errors import UserError
from octavo.ops.tracing import tap


def attend_channels(q_BGNC: Tensor, k_BGNC: Tensor, v_BGNC: Tensor) -> Tensor:
    """y_BGNC = v aᵀ: every channel becomes a mean of its group's channels."""
    if not q_BGNC.shape == k_BGNC.shape == v_BGNC.shape:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q_BGNC, k_BGNC, v_BGNC))
        raise UserError(
            f"q, k and v must all have shape (B, G, N, C): {shapes}; channels attend over the same positions"
        )
    return v_BGNC @ tap("channels", channel_weights(q_BGNC, k_BGNC)).mT


def channel_weights(q_BGNC: Tensor, k_BGNC: Tensor) -> Tensor:
    """a_BGCC, the attention weights of the channels of a group: rows sum to one."""
    N = q_BGNC.shape[-2]
    e_BGCC: Tensor = (q_BGNC.mT @ k_BGNC) * N**-0.5
    return e_BGCC.softmax(-1)


def in_groups(x_BND: Tensor, groups: int) -> Tensor:
    """x_BGNC: the channels in groups that lie side by side."""
    D = x_BND.shape[-1]
    if groups < 1 or D % groups:
        fitting = max(g for g in range(1, D + 1) if D % g == 0 and g <= max(groups, 1))
        raise UserError(f"groups must divide the channels: channels={D}, groups={groups}; try groups={fitting}")
    x_BNGC: Tensor = x_BND.unflatten(-1, (groups, D // groups))
    return x_BNGC.transpose(1, 2)


def channel_operations(N: int, D: int, groups: int = 1) -> int:
    """Floating-point operations of its two products for one image: qᵀ k and v aᵀ take 2 N D C each, C = D / G."""
    return 4 * N * D * (D // groups)
