"""Latent attention: its equation head by head, and two forms that agree with it in value and gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from octavo.ops.attention import CAUSAL, FULL, Local, Pattern
from octavo.ops.attention.latent import absorbs, attend_latent
from octavo.ops.positions import alibi_bias

EXACT = {"rtol": 1e-10, "atol": 1e-12}
B, H, K, M = 2, 3, 5, 7


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(T: int, S: int, R: int, M: int = M) -> tuple[Tensor, ...]:
    shapes = ((B, H, T, K + R), (B, S, M + R), (H * K, M), (H * K, M))
    return tuple(normal(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes))


def by_hand(q_BHTQ: Tensor, z_BSZ: Tensor, key_EM: Tensor, value_EM: Tensor, pattern: Pattern) -> Tensor:
    """Token by token and head by head: k_s = [U_k c_s, k^R_s], v_s = U_v c_s, y_t = sum of softmax(q_t k_s) v_s."""
    (_, _, T, Q), S, width = q_BHTQ.shape, z_BSZ.shape[1], key_EM.shape[1]
    mask_TS = pattern.mask(T, S)
    rows = []
    for b in range(B):
        for h in range(H):
            mine = slice(h * K, (h + 1) * K)
            keys = [torch.cat([key_EM[mine] @ z_Z[:width], z_Z[width:]]) for z_Z in z_BSZ[b]]
            values = [value_EM[mine] @ z_Z[:width] for z_Z in z_BSZ[b]]
            for t in range(T):
                seen = [s for s in range(S) if mask_TS[t, s]]
                e = torch.stack([q_BHTQ[b, h, t] @ keys[s] for s in seen]) / Q**0.5
                rows.append(e.softmax(0) @ torch.stack([values[s] for s in seen]))
    return torch.stack(rows).view(B, H, T, K)


@pytest.mark.parametrize("form", ["expanded", "absorbed"])
@pytest.mark.parametrize(("T", "S", "R"), [(1, 1, 2), (1, 9, 2), (3, 7, 4), (5, 5, 2), (5, 11, 0)])
@pytest.mark.parametrize("pattern", [CAUSAL, CAUSAL & Local(3), FULL], ids=str)
def test_both_forms_are_the_equation_in_value_and_gradient(form: str, T: int, S: int, R: int, pattern: Pattern) -> None:
    given = inputs(T, S, R)
    expected = by_hand(*given, pattern)
    found = attend_latent(*given, pattern, form=form)  # type: ignore[arg-type, misc]
    torch.testing.assert_close(found, expected, **EXACT)
    weights = normal(*found.shape, seed=9)
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), given),
        torch.autograd.grad((expected * weights).sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(one, other, **EXACT)


@pytest.mark.parametrize("width", [1, 4, 12])
def test_both_forms_agree_with_a_bias_and_latents_of_any_width(width: int) -> None:
    given, bias_HTS = inputs(3, 9, 2, width), alibi_bias(H, 3, 9, torch.float64)
    expanded, absorbed = (
        attend_latent(*given, CAUSAL, bias_HTS=bias_HTS, form=form)  # type: ignore[arg-type, misc]
        for form in ("expanded", "absorbed")
    )
    torch.testing.assert_close(expanded, absorbed, **EXACT)


def test_decoding_is_absorbed_and_training_is_expanded() -> None:
    assert absorbs(T=1, S=500, K=32, M=64, R=16)
    assert not absorbs(T=64, S=64, K=32, M=64, R=16)
    assert not absorbs(T=64, S=128, K=32, M=64, R=16)
    assert not absorbs(T=1, S=1, K=32, M=8, R=16), "nothing was read before"
