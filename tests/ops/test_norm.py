"""RMS norm by hand equals PyTorch's, in value and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from octavo.ops.norm import layer_norm, rms_norm


@pytest.mark.parametrize("shape", [(1,), (3, 1), (2, 5, 7), (2, 3, 4, 8)])
@pytest.mark.parametrize("weighted", [True, False])
def test_by_hand_equals_pytorchs_in_value_and_gradient(shape: tuple[int, ...], weighted: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(shape[-1], generator=generator, dtype=torch.float64).requires_grad_() if weighted else None
    leaves = [x] if weight is None else [x, weight]
    dy = torch.randn(shape, generator=generator, dtype=torch.float64)
    results = []
    for path in ("plain", "by_hand"):
        y = rms_norm(x, weight, 1e-3, path)
        results.append([y, *torch.autograd.grad(y, leaves, dy)])
    for plain, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_a_zero_vector_stays_zero_with_a_finite_gradient() -> None:
    x = torch.zeros(3, requires_grad=True)
    y = rms_norm(x, path="by_hand")
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert y.tolist() == [0.0] * 3
    assert bool(torch.isfinite(dx).all())


def test_a_second_derivative_by_hand_is_refused_and_not_wrong() -> None:
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    (dx,) = torch.autograd.grad(rms_norm(x, path="by_hand")[0].square(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


@pytest.mark.gpu
@pytest.mark.parametrize("norm", [rms_norm, layer_norm])
def test_a_norm_keeps_its_precision_under_autocast(norm: Any) -> None:
    x = torch.randn(3, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        y = norm(x, torch.ones(8, device="cuda", dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), norm(x.float(), torch.ones(8, device="cuda")), rtol=1e-2, atol=1e-2)


def test_vectors_have_a_mean_square_of_one() -> None:
    y = rms_norm(torch.tensor([[3.0, 4.0]]).requires_grad_(), eps=1e-12)
    assert y.tolist() == [pytest.approx([3 / 12.5**0.5, 4 / 12.5**0.5])]
