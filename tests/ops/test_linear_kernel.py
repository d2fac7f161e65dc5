"""The Triton kernel of linear attention is checked against the recurrence, in value and gradient.

On a GPU it is compiled; without one, Triton's interpreter runs the same programs on the CPU: install triton beside
PyTorch and set TRITON_INTERPRET=1. The interpreter cannot multiply bfloat16, so there float16 stands for it.
"""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.ops import linear

INTERPRETER = find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETER else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Where the kernel runs: on a GPU, or in the interpreter."""
    return str(request.param)


def low_precision(device: str) -> torch.dtype:
    return torch.bfloat16 if device == "cuda" else torch.float16


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def case(T: int, K: int, V: int, dtype: torch.dtype, device: str, B: int = 1, H: int = 2) -> list[Tensor]:
    """q, k, v, S, z as a model makes them: the heads of a token lie side by side."""
    q, k = linear.features("elu", *(drawn(B, T, H, K, seed=seed).transpose(1, 2) for seed in (1, 2)))
    v = drawn(B, T, H, V, seed=3).transpose(1, 2)
    S, z = drawn(B, H, K, V, seed=4), drawn(B, H, K, seed=5).exp()
    return [*(x.to(device, dtype) for x in (q, k, v)), S.to(device), z.to(device)]


def attend(given: list[Tensor], path: str, chunk: int | None) -> tuple[Tensor, ...]:
    q, k, v, *state = given
    if (
        path == "kernel" and v.dtype == torch.float16
    ):  # the interpreter's stand-in; `linear.attend_linear` would refuse it
        from octavo.ops.linear import triton_attention as kernel

        y, after = kernel.attend_triton(q, k, v, tuple(state) if state else linear.start(q, v), chunk)  # type: ignore[arg-type]
    else:
        y, after = linear.attend_linear(q, k, v, tuple(state) if state else None, path=path, chunk=chunk)  # type: ignore[arg-type]
    return y, *after


def values_and_gradients(given: list[Tensor], path: str, chunk: int | None = None) -> list[Tensor]:
    """y, the last state and the gradients of everything given, for a loss that weighs all that comes out."""
    given = [x.detach().requires_grad_() for x in given]
    out = attend(given, path, chunk)
    weights = [drawn(*x.shape, seed=10 + i).to(x.device) for i, x in enumerate(out)]
    loss = sum((x.double() * w).sum() for x, w in zip(out, weights, strict=True))
    return [*out, *torch.autograd.grad(loss, given)]  # type: ignore[arg-type]


def hold(given: list[Tensor], chunk: int | None, bound: float) -> None:
    """The kernel stays within `bound` of the recurrence in double precision: of its norm, or of one if that is less."""
    ours = values_and_gradients(given, "kernel", chunk)
    truth = values_and_gradients([x.double() for x in given], "recurrent")
    for one, other in zip(ours, truth, strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).norm().item() < bound * max(other.norm().item(), 1.0)


def test_without_a_gpu_the_programs_run_in_the_interpreter() -> None:
    if not INTERPRETER:
        pytest.skip("needs Triton's interpreter for the tests of the kernel: install triton, set TRITON_INTERPRET=1")
    from octavo.ops.linear import triton_attention as kernel

    assert kernel.INTERPRETED


@pytest.mark.parametrize("T", [1, 2, 63, 64, 65, 200])
def test_the_kernel_equals_the_recurrence_in_value_and_gradient(T: int, device: str) -> None:
    given = case(T, 16, 16, torch.float32, device, B=2)
    hold(given, 64, bound=1e-5)
    hold(given[:3], 64, bound=1e-5)  # without a state before


@pytest.mark.parametrize(("K", "V"), [(16, 32), (64, 16), (64, 64)])
@pytest.mark.parametrize("chunk", [16, 32, None])
def test_sizes_of_heads_and_chunks_change_nothing(K: int, V: int, chunk: int | None, device: str) -> None:
    hold(case(70, K, V, torch.float32, device, H=1), chunk, bound=1e-5)


@pytest.mark.parametrize(("K", "V"), [(64, 64), (128, 128), (16, 128), (128, 32)])
def test_low_precision_is_as_good_as_its_own_rounding(K: int, V: int, device: str) -> None:
    # Half a unit in the last place is 2**-9 of a bfloat16; a few roundings follow one another on the way.
    hold(case(150, K, V, low_precision(device), device, H=1), None, bound=4 * 2**-9)


def test_many_chunks_are_scanned_in_more_than_one_go(device: str) -> None:
    hold(case(16 * 35 + 3, 16, 16, torch.float32, device, H=1), 16, bound=1e-5)


def test_any_layout_in_memory_gives_the_same(device: str) -> None:
    q, k, v, *state = case(40, 16, 16, torch.float32, device)
    expected = attend([q, k, v, *state], "kernel", 16)
    qkv = torch.cat([q, k, v], -1)  # slices of one tensor, as a single projection makes them
    strange = [*qkv.split(16, -1)], [x.contiguous() for x in (q, k, v)], [x.mT.contiguous().mT for x in (q, k, v)]
    for given in strange:
        for ours, theirs in zip(attend([*given, *state], "kernel", 16), expected, strict=True):
            assert torch.equal(ours, theirs)


def test_a_gradient_that_is_expanded_or_missing_is_taken(device: str) -> None:
    results = []
    for path in ("kernel", "recurrent"):
        given = [x.requires_grad_() for x in case(20, 16, 16, torch.float32, device)]
        y, S, _ = attend(given, path, 16 if path == "kernel" else None)
        only_y = torch.autograd.grad(y.sum(), given, retain_graph=True)  # a gradient of ones without memory of its own
        only_S = torch.autograd.grad(S.sum(), given[1:4])
        results.append([*only_y, *only_S])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_cutting_anywhere_changes_nothing_when_the_state_is_carried(device: str) -> None:
    given = case(75, 16, 16, torch.float32, device)
    whole = values_and_gradients(given, "kernel", 16)
    q, k, v, S, z = leaves = [x.detach().requires_grad_() for x in given]
    parts, state = [], (S, z)
    for a, b in ((0, 1), (1, 33), (33, 75)):
        y, *after = attend([q[:, :, a:b], k[:, :, a:b], v[:, :, a:b], *state], "kernel", 16)
        parts.append(y)
        state = after[0], after[1]
    out = [torch.cat(parts, 2), *state]
    loss = sum((x.double() * drawn(*x.shape, seed=10 + i).to(x.device)).sum() for i, x in enumerate(out))
    for ours, theirs in zip([*out, *torch.autograd.grad(loss, leaves)], whole, strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_query_that_matches_nothing_gets_zeros_and_no_gradient(device: str) -> None:
    q, k, v, *_ = case(40, 16, 16, torch.float32, device)
    k = k.clone()
    k[:, :, :20] = 0
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    y, *_ = attend(leaves, "kernel", 16)
    dq, dk, dv = torch.autograd.grad(y.square().sum(), leaves)
    assert bool((y[:, :, :20] == 0).all())
    assert bool((dq[:, :, :20] == 0).all())
    assert bool((dq[:, :, 20:] != 0).any())
    assert bool((dk.isfinite() & dv.isfinite()).all())


def test_a_small_past_is_not_lost_before_a_large_key(device: str) -> None:
    k = torch.ones(1, 1, 48, 16, device=device)
    k[0, 0, 31] = 1e12
    v = torch.arange(48.0, device=device)[:, None].expand(1, 1, 48, 16)
    y, *_ = attend([torch.ones_like(k), k, v], "kernel", 16)
    expected = torch.arange(31, device=device) / 2
    torch.testing.assert_close(y[0, 0, :31, 0], expected, rtol=1e-5, atol=1e-5)


def test_auto_takes_the_kernel_for_long_texts_of_fitting_sizes(device: str) -> None:
    def chosen(T: int, K: int, dtype: torch.dtype, chunk: int | None = None) -> str:
        x = torch.ones(1, 1, T, K, device=device, dtype=dtype)
        return linear.choose(x, x, chunk)

    assert [chosen(T, 64, torch.bfloat16) for T in (1, 64, 65)] == ["recurrent", "parallel", "kernel"]
    assert [chosen(65, K, torch.float32) for K in (16, 24, 64, 128)] == ["kernel", "chunked", "kernel", "chunked"]
    assert [chosen(65, 64, dtype) for dtype in (torch.float64, torch.float16)] == ["chunked"] * 2
    assert chosen(65, 64, torch.bfloat16, chunk=48) == "chunked"


def test_a_chunk_that_the_kernel_cannot_take_is_refused(device: str) -> None:
    given = case(20, 16, 16, torch.float32, device)
    with pytest.raises(UserError, match=r"chunk must be one of \[16, 32, 64\] here: chunk=48; try chunk=64"):
        attend(given, "kernel", 48)


def test_the_kernel_can_be_compiled_into_a_model(device: str) -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linear.attend_linear(*linear.features("relu", q, k), v * 2, path="kernel")[0].square().sum()

    given = case(70, 16, 16, torch.float32, device)[:3]
    results = []
    for f in (torch.compile(model, backend="aot_eager", fullgraph=True), model):
        leaves = [x.detach().requires_grad_() for x in given]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch's compiler about itself
            loss = f(*leaves)
        results.append([loss, *torch.autograd.grad(loss, leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
