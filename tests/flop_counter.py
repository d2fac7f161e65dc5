"""PyTorch's FLOP counter, completed by the operations that it does not know."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count


def flop_counter() -> FlopCounterMode:
    """PyTorch's FlopCounterMode, with four operations that it does not know: its own kernel of attention on a CPU, by
    the formula that it has for the same kernel on a GPU, and products written as `addmm_` and `mv`.
    """
    aten = torch.ops.aten
    return FlopCounterMode(display=False, custom_mapping={
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward:
            lambda dy, q, k, v, *_, **__: sdpa_backward_flop_count(dy, q, k, v),
        aten.addmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * b[1],
        aten.mv: lambda a, _, **__: 2 * a[0] * a[1],
    })  # fmt: skip
