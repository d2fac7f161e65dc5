"""Cross-entropy by rows equals the plain equation, in value and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from octavo.ops import cross_entropy

IGNORE = 10


def inputs(rows: int, vocab: int = 11, width: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    h_ND = torch.randn(rows, width, generator=generator, dtype=torch.float64).requires_grad_()
    weight_VD = torch.randn(vocab, width, generator=generator, dtype=torch.float64).requires_grad_()
    return h_ND, weight_VD, torch.randint(0, vocab, (rows,), generator=generator)


@pytest.mark.parametrize("rows", [0, 1, 2, 63])
@pytest.mark.parametrize("at_once", [1, 40, 1 << 20])
def test_rows_at_a_time_cost_what_all_at_once_cost(monkeypatch: pytest.MonkeyPatch, rows: int, at_once: int) -> None:
    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", {"cpu": at_once})
    h_ND, weight_VD, target_N = inputs(rows)
    expected = F.cross_entropy(h_ND @ weight_VD.t(), target_N, ignore_index=IGNORE, reduction="sum")
    found = cross_entropy.nats(h_ND, weight_VD, target_N, IGNORE, path="chunked")
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(3 * found, (h_ND, weight_VD)), torch.autograd.grad(3 * expected, (h_ND, weight_VD)),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 20, 63])
@pytest.mark.parametrize("at_once", [1, 40, 1 << 20])
def test_without_a_gradient_rows_at_a_time_cost_the_same(
    monkeypatch: pytest.MonkeyPatch, rows: int, at_once: int
) -> None:
    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", {"cpu": at_once})
    h_ND, weight_VD, target_N = inputs(rows)
    with torch.no_grad():
        chunked, plain = (
            cross_entropy.nats(h_ND, weight_VD, target_N, IGNORE, path=path) for path in ("chunked", "plain")
        )
    torch.testing.assert_close(chunked, plain, rtol=1e-12, atol=1e-12)


def test_a_second_derivative_by_rows_is_refused_and_not_zero() -> None:
    h_ND, weight_VD, target_N = inputs(3)
    nats = cross_entropy.nats(h_ND, weight_VD, target_N, IGNORE, path="chunked")
    (dh_ND,) = torch.autograd.grad(nats.square(), h_ND, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dh_ND.sum().backward()


def test_label_smoothing_takes_the_plain_path() -> None:
    h_ND, weight_VD, target_N = inputs(20)
    expected = F.cross_entropy(
        h_ND @ weight_VD.t(), target_N, ignore_index=IGNORE, reduction="sum", label_smoothing=0.1
    )
    torch.testing.assert_close(cross_entropy.nats(h_ND, weight_VD, target_N, IGNORE, 0.1, path="chunked"), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_equals_the_equation(dtype: torch.dtype) -> None:
    h_ND, weight_VD, target_N = inputs(100, vocab=50_257, width=64)
    h, w = (t.detach().to("cuda", dtype).requires_grad_() for t in (h_ND / 8, weight_VD))
    target = target_N.cuda()
    found = cross_entropy.nats(h, w, target, 50_256, path="chunked")
    expected = F.cross_entropy(h.double() @ w.double().t(), target, ignore_index=50_256, reduction="sum")
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(found.double(), expected, rtol=close["rtol"], atol=0)
    for ours, theirs in zip(torch.autograd.grad(found, (h, w)), torch.autograd.grad(expected, (h, w)), strict=True):
        torch.testing.assert_close(ours, theirs, **close)
