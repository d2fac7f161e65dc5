"""The Triton kernels of linear attention that forgets are checked against the recurrence in double precision.

On a GPU they are compiled; without one, Triton's interpreter runs the same programs on the CPU: install triton beside
PyTorch and set TRITON_INTERPRET=1. The interpreter cannot multiply bfloat16, so there float16 stands for it.
"""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops import linear
from octavo.ops.linear import kernels
from octavo.ops.linear.kernels import KERNEL_SIZES, KERNEL_WIDEST, KERNELS, Kind

INTERPRETER = find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), *(["cpu"] if INTERPRETER else [])]
KINDS: tuple[Kind, ...] = tuple(kind for kind in KERNELS if kind != "plain")  # which has tests of its own
SINGLE = 1e-5  # of the norm
ROUNDED = {torch.bfloat16: 2**-7, torch.float16: 2**-10}  # a few roundings, of half a unit in the last place each
SHIPPED = [
    (dtype, K, V)
    for dtype, widest in KERNEL_WIDEST.items()
    for K, V in product(KERNEL_SIZES, repeat=2)
    if max(K, V) <= widest
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Where the kernels run: on a GPU, or in the interpreter."""
    return str(request.param)


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def case(kind: Kind, T: int, K: int, V: int, dtype: torch.dtype, device: str, B: int = 1, H: int = 2) -> list[Tensor]:
    """q, k, v, the gates and the state as a model makes them: the heads of a token lie side by side."""
    q, k, v = (drawn(B, T, H, size, seed=i).transpose(1, 2) * size**-0.25 for i, size in enumerate((K, K, V)))
    rest = [F.logsigmoid(drawn(B, H, T, seed=4) + 1), drawn(B, H, K, V, seed=6)]
    if kind == "decay with sums":
        rest.append(drawn(B, H, K, seed=7))
    if kind == "delta rule":
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        rest.insert(1, 2 * drawn(B, H, T, seed=8).sigmoid())
    return [*(x.to(device, dtype) for x in (q, k, v)), *(x.to(device) for x in rest)]


def recurrence(kind: Kind, q: Tensor, k: Tensor, v: Tensor, g: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    """The definition, step by step; sums are what a column of ones beside the values gives."""
    if kind != "decay with sums":
        *beta, S = rest
        return linear.attend_decaying(q, k, v, g[..., None], *(beta or [None]), S, path="recurrent")
    S, z = rest
    y, den, S = linear.attend_with_sums(q, k, v, g[..., None], torch.cat([S, z[..., None]], -1), path="recurrent")
    return y, den[..., 0], S[..., :-1], S[..., -1]


def hold(kind: Kind, given: list[Tensor], bound: float, chunk: int | None = None) -> None:
    """Values and gradients stay within `bound` of the recurrence: of its norm, or of one if that is less."""

    def attend(*given: Tensor) -> tuple[Tensor, ...]:
        return KERNELS[kind].attend(*given, **({"chunk": chunk} if chunk else {}))

    ours = kernels.values_and_gradients(attend, [x.detach() for x in given])
    theirs = kernels.values_and_gradients(
        lambda *given: recurrence(kind, *given), [x.detach().double() for x in given]
    )  # fmt: skip
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).norm().item() < bound * max(other.norm().item(), 1.0)


def test_without_a_gpu_the_programs_run_in_the_interpreter() -> None:
    if not INTERPRETER:
        pytest.skip("needs Triton's interpreter for the tests of the kernels: install triton, set TRITON_INTERPRET=1")
    from octavo.ops.linear import triton_attention

    assert triton_attention.INTERPRETED


@pytest.mark.parametrize("T", [1, 31, 33, 70])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_equal_the_recurrence_in_value_and_gradient(kind: Kind, T: int, device: str) -> None:
    hold(kind, case(kind, T, 16, 16, torch.float32, device, B=2), SINGLE)


@pytest.mark.parametrize(("K", "V"), [(16, 32), (64, 16)])
@pytest.mark.parametrize("chunk", [16, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_heads_and_chunks_change_nothing(kind: Kind, chunk: int, K: int, V: int, device: str) -> None:
    hold(kind, case(kind, 70, K, V, torch.float32, device, H=1), SINGLE, chunk)


@pytest.mark.parametrize(("K", "V"), [(64, 64), (128, 32)])
@pytest.mark.parametrize("kind", KINDS)
def test_low_precision_is_as_good_as_its_own_rounding(kind: Kind, K: int, V: int, device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float16
    hold(kind, case(kind, 150, K, V, dtype, device, H=1), ROUNDED[dtype])


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "K", "V"), SHIPPED)
@pytest.mark.parametrize("kind", KINDS)
def test_every_size_that_is_shipped_is_right_on_this_gpu(kind: Kind, dtype: torch.dtype, K: int, V: int) -> None:
    hold(kind, case(kind, 1147, K, V, dtype, "cuda"), ROUNDED.get(dtype, 5 * SINGLE))
    assert kernels.is_right(kind, K, V, dtype, torch.device("cuda"))


@pytest.mark.parametrize("kind", KINDS)
def test_many_chunks_are_scanned_in_more_than_one_go(kind: Kind, device: str) -> None:
    hold(kind, case(kind, 16 * 17 + 3, 16, 16, torch.float32, device, H=1), SINGLE, chunk=16)


@pytest.mark.parametrize("strength", [0.0, 3e4])
@pytest.mark.parametrize("kind", KINDS)
def test_any_decay_is_taken_from_none_to_all_in_a_step(kind: Kind, strength: float, device: str) -> None:
    given = case(kind, 70, 16, 16, torch.float32, device, H=1)
    given[3] = -strength * given[3].exp()  # exp(3e4) would be infinite, and its inverse zero
    hold(kind, given, 5 * SINGLE)


def test_any_layout_in_memory_gives_the_same(device: str) -> None:
    """Queries that all heads share, as Mamba-2's, decays that all tokens share, slices of one projection."""
    q, k, v, g, S = case("decay", 40, 16, 16, torch.float32, device)
    q, g = q[:, :1].expand_as(k), g[..., :1].expand_as(g)
    strange = [
        [q, k, v, g, S],
        [q, *torch.cat([k, v], -1).split(16, -1), g, S.mT.contiguous().mT],
        [q.contiguous(), k.mT.contiguous().mT, v.contiguous(), g, S],
    ]
    expected = KERNELS["decay"].attend(*(x.contiguous() for x in strange[0]))
    for given in strange:
        for ours, theirs in zip(KERNELS["decay"].attend(*given), expected, strict=True):
            assert torch.equal(ours, theirs)
    hold("decay", strange[0], SINGLE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_is_expanded_or_missing_is_taken(kind: Kind, device: str) -> None:
    results = []
    for attend in (KERNELS[kind].attend, KERNELS[kind].reference):
        given = [x.requires_grad_() for x in case(kind, 20, 16, 16, torch.float32, device)]
        y, *rest = attend(*given)
        only_y = torch.autograd.grad(y.sum(), given[:4], retain_graph=True)  # a gradient of ones without memory
        results.append([*only_y, *torch.autograd.grad(rest[-1].sum(), given[1:2])])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cut", [1, 33, 64])
def test_cutting_anywhere_changes_nothing_when_the_state_is_carried(cut: int, device: str) -> None:
    q, k, v, g, S, z = case("decay with sums", 75, 16, 16, torch.float32, device)
    g_BHT1, S_BHKW = g[..., None], torch.cat([S, z[..., None]], -1)
    whole = linear.attend_with_sums(q, k, v, g_BHT1, S_BHKW, path="kernel")
    parts = []
    for part in (slice(0, cut), slice(cut, 75)):
        inputs = (x[:, :, part] for x in (q, k, v, g_BHT1))
        y, den, S_BHKW = linear.attend_with_sums(*inputs, S_BHKW, path="kernel")
        parts.append((y, den))
    joined = [torch.cat(ends, 2) for ends in zip(*parts, strict=True)]
    for ours, theirs in zip([*joined, S_BHKW], whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_auto_takes_the_kernels_for_long_texts_after_they_agreed(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what a model computes is the same with them and without."""
    lengths = []

    def counted(*given: Tensor) -> tuple[Tensor, ...]:
        lengths.append(given[0].shape[2])
        return kernels.attend_decay(*given)

    monkeypatch.setitem(KERNELS, "decay", KERNELS["decay"]._replace(attend=counted))
    monkeypatch.setattr(kernels, "CHECKED_TOKENS", 150)  # the interpreter is slow
    kernels.forget_comparisons()
    for T in (64, 65, 66):
        q, k, v, g, S = case("decay", T, 16, 16, torch.float32, device)
        ours = linear.attend_decaying(q, k, v, g[..., None], None, S)
        for one, other in zip(
            ours, linear.attend_decaying(q, k, v, g[..., None], None, S, path="chunked"), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert lengths == [kernels.CHECKED_TOKENS, 65, 66]


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_can_be_compiled_into_a_model(kind: Kind, device: str) -> None:
    def model(*given: Tensor) -> Tensor:
        return sum((x.square().sum() for x in KERNELS[kind].attend(*given)), torch.zeros((), device=device))

    results = []
    for f in (torch.compile(model, backend="aot_eager", fullgraph=True), model):
        leaves = [x.detach().requires_grad_() for x in case(kind, 70, 16, 16, torch.float32, device)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch's compiler about itself
            loss = f(*leaves)
        results.append([loss, *torch.autograd.grad(loss, leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
