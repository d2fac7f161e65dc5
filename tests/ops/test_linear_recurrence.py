"""Linear recurrences: every path equals the definition in value and gradient, at odd lengths, real and complex."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.ops.linear_recurrence import FAST, NUMBERS_WORTH_A_CALL, Path, convolve_powers, linear_recurrence

EXACT = {"rtol": 1e-11, "atol": 1e-12}
LENGTHS = (1, 2, 3, 7, 63, 101)
REAL, COMPLEX = torch.float64, torch.complex128
CHUNKS = [("doubling", 0), *(("chunked", chunk) for chunk in (0, 1, 4, 63, 1000))]


def case(T: int, dtype: torch.dtype, B: int = 2, D: int = 3, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """a with |a| ≤ 1 and of any sign, b, and a state before."""
    generator = seeded_generator(seed)
    a, b, h = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((B, T, D), (B, T, D), (B, D)))
    a = a / a.abs().clamp_min(1)
    return tuple(x.requires_grad_() for x in (a, b, h))  # type: ignore[return-value]


def gradients(h_BTD: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of a loss that depends on every state in another way, real and imaginary parts apart."""
    weight = torch.randn(h_BTD.shape, generator=seeded_generator(9), dtype=h_BTD.dtype)
    return torch.autograd.grad((h_BTD * weight).abs().square().sum(), inputs)


def test_three_steps_by_hand() -> None:
    a, b = torch.tensor([[[0.5], [2.0], [-1.0]]]), torch.tensor([[[1.0], [3.0], [4.0]]])
    for path in ("sequential", "chunked", "doubling"):
        assert linear_recurrence(a, b, path=path).flatten().tolist() == [1.0, 5.0, -1.0]
        assert linear_recurrence(a, b, torch.tensor([[8.0]]), path=path).flatten().tolist() == [5.0, 13.0, -9.0]


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize(("path", "chunk"), CHUNKS)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_path_equals_the_definition_in_value_and_gradient(
    path: Path, chunk: int, length: int, dtype: torch.dtype
) -> None:
    inputs = case(length, dtype)
    reference, fast = linear_recurrence(*inputs, "sequential"), linear_recurrence(*inputs, path, chunk)
    torch.testing.assert_close(fast, reference, **EXACT)
    for one, expected in zip(gradients(fast, inputs), gradients(reference, inputs), strict=True):
        torch.testing.assert_close(one, expected, **EXACT)


@pytest.mark.parametrize("path", FAST)
def test_the_gradient_is_that_of_finite_differences(path: Path) -> None:
    for dtype in (REAL, COMPLEX):
        assert torch.autograd.gradcheck(lambda *x: linear_recurrence(*x, path), case(5, dtype))


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_convolution_equals_the_recurrence_where_a_is_constant(length: int, dtype: torch.dtype) -> None:
    a, b, h = case(length, dtype)
    a_D = a[0, 0].detach().requires_grad_()
    for state in (None, h):
        inputs = (a_D, b) if state is None else (a_D, b, h)
        reference, fast = linear_recurrence(a_D, b, state, "sequential"), convolve_powers(a_D, b, state)
        torch.testing.assert_close(fast, reference, rtol=1e-9, atol=1e-11)
        for one, expected in zip(gradients(fast, inputs), gradients(reference, inputs), strict=True):
            torch.testing.assert_close(one, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("path", "chunk"), [("sequential", 0), *CHUNKS])
def test_a_carried_state_continues_the_text(path: Path, chunk: int) -> None:
    a, b, h = case(23, REAL)
    whole = linear_recurrence(a, b, h, path, chunk)
    for cut in (0, 1, 11, 22, 23):
        left = linear_recurrence(a[:, :cut], b[:, :cut], h, path, chunk)
        right = linear_recurrence(a[:, cut:], b[:, cut:], left[:, -1] if cut else h, path, chunk)
        torch.testing.assert_close(torch.cat([left, right], 1), whole, **EXACT)


def test_many_numbers_a_token_are_one_chunk_and_give_the_same() -> None:
    a, b, h = case(9, REAL, B=2, D=NUMBERS_WORTH_A_CALL // 2)
    torch.testing.assert_close(linear_recurrence(a, b, h), linear_recurrence(a, b, h, "sequential"), **EXACT)


def test_only_a_and_the_states_are_saved_for_the_backward_pass() -> None:
    a, b, h = case(50, REAL)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.numel()), t)[1], lambda t: t):
        linear_recurrence(a, b, h)
    assert sorted(saved) == [h.numel(), a.numel(), b.numel()]


@pytest.mark.parametrize("path", FAST)
def test_long_products_neither_overflow_nor_become_nan(path: Path) -> None:
    """A factor of 1e-30 and one of -1 in turn, in single precision, where its powers are all zero."""
    a = torch.tensor([1e-30, -1.0]).repeat(300)[None, :, None]
    b = torch.ones(1, 600, 1)
    h = linear_recurrence(a, b, path=path)
    torch.testing.assert_close(h, linear_recurrence(a.double(), b.double(), path="sequential").float())
    assert math.isclose(float(h[0, -1]), 0.0, abs_tol=1e-6)


def test_low_precision_is_summed_in_single() -> None:
    a, b = torch.full((1, 200, 1), 0.5).bfloat16(), torch.ones(1, 200, 1).bfloat16()
    assert linear_recurrence(a, b).dtype == torch.float32
    assert convolve_powers(a[0, 0], b).dtype == torch.float32


def test_an_unknown_path_is_refused() -> None:
    a, b, h = case(2, REAL)
    with pytest.raises(UserError, match="path must be one of auto, sequential, chunked, doubling: path=fast; try auto"):
        linear_recurrence(a, b, h, "fast")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="chunk must not be negative: chunk=-1"):
        linear_recurrence(a, b, h, "chunked", -1)
