"""A kernel is used only after it has agreed with the reference, in value and gradient, once for each size and device.

No GPU is needed: functions in single precision, right or wrong, stand in for the compiled kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.ops import linear
from octavo.ops.linear import kernels
from octavo.ops.linear.kernels import KERNELS, Kernel, Outputs

T = 70  # more than a chunk
CPU = torch.device("cpu")


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


GIVEN = (drawn(1, 2, T, 16, seed=1), drawn(1, 2, T, 16, seed=2), drawn(1, 2, T, 32, seed=3))
DECAYS_BHT1 = F.logsigmoid(drawn(1, 2, T, 1, seed=4) + 1)
RIGHT = KERNELS["decay"].reference


def wrong_value(*given: Tensor) -> Outputs:
    y, S = RIGHT(*given)
    return y * 1.01, S


def wrong_gradient_of_the_decays(q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor) -> Outputs:
    return RIGHT(q, k, v, 1.01 * g - 0.01 * g.detach(), S)


def no_gradient_of_the_state(q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor) -> Outputs:
    return RIGHT(q, k, v, g, S.detach() + 0 * S)


def not_a_number(*given: Tensor) -> Outputs:
    y, S = RIGHT(*given)
    return y, S / 0 * 0


def crash(*given: Tensor) -> Outputs:
    raise RuntimeError("out of resource: shared memory\nand a second line")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing was compared yet, every tensor could be given to a kernel, and afterwards all is as before."""
    monkeypatch.setattr(kernels, "unsupported_reason", lambda *_: None)
    kernels.forget_comparisons()
    yield
    kernels.forget_comparisons()


def use(monkeypatch: pytest.MonkeyPatch, attend: Callable[..., Outputs]) -> list[int]:
    """Put the function in the kernel's place; the lengths of what it is given are listed."""
    lengths: list[int] = []

    def counted(*given: Tensor) -> Outputs:
        lengths.append(given[0].shape[2])
        return attend(*given)

    monkeypatch.setitem(KERNELS, "decay", Kernel(counted, RIGHT))
    return lengths


def test_a_right_kernel_is_compared_once_and_then_used(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = use(monkeypatch, RIGHT)
    for _ in range(2):
        y, S = linear.attend_decaying(*GIVEN, DECAYS_BHT1)
    assert lengths == [kernels.CHECKED_TOKENS, T, T]
    for ours, theirs in zip((y, S), linear.attend_decaying(*GIVEN, DECAYS_BHT1, path="recurrent"), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("attend", "problem"),
    [
        (wrong_value, r"is off by 1\.0e-02 of the norm, at most 1\.0e-04 is allowed"),
        (wrong_gradient_of_the_decays, r"is off by 1\.0e-02 of the norm"),
        (no_gradient_of_the_state, r"is off by 1\.0e\+00 of the norm"),
        (not_a_number, r"is off by inf of the norm"),
        (crash, r"fails with RuntimeError: out of resource: shared memory on cpu; PyTorch's products are taken"),
    ],
)
def test_a_wrong_kernel_warns_once_in_one_line_and_is_not_used(
    attend: Callable[..., Outputs], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = use(monkeypatch, attend)
    with pytest.warns(RuntimeWarning, match=rf"\(decay, K=16, V=32, torch\.float32\) {problem}") as caught:
        first = linear.attend_decaying(*GIVEN, DECAYS_BHT1)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    second = linear.attend_decaying(*GIVEN, DECAYS_BHT1)  # warnings are errors: a second one would be seen
    assert lengths == [kernels.CHECKED_TOKENS]
    expected = linear.attend_decaying(*GIVEN, DECAYS_BHT1, path="chunked")
    for results in (first, second):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(results, expected, strict=True))


def test_each_size_precision_and_kind_is_compared_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = use(monkeypatch, RIGHT)
    assert kernels.is_right("decay", 16, 32, torch.float32, CPU)
    assert kernels.is_right("decay", 32, 32, torch.float32, CPU)
    monkeypatch.setitem(KERNELS, "decay", Kernel(wrong_value, RIGHT))
    assert kernels.is_right("decay", 16, 32, torch.float32, CPU)  # as it was found
    with pytest.warns(RuntimeWarning, match=r"K=32, V=16"):
        assert not kernels.is_right("decay", 32, 16, torch.float32, CPU)
    assert len(lengths) == 2


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bound_lets_the_rounding_of_a_right_kernel_pass(kind: kernels.Kind, dtype: torch.dtype) -> None:
    """The reference itself in the precision of the kernel's products is well within the bound."""
    reference = KERNELS[kind].reference

    def rounded(*given: Tensor) -> Outputs:
        out = reference(*(x.float() for x in given))
        return out[0].to(dtype), *out[1:]

    example = kernels.example(kind, 64, 64, dtype, CPU)
    assert kernels.largest_error(Kernel(rounded, reference), example) < kernels.LARGEST_ERROR[dtype] / 2


def test_the_comparison_disturbs_nothing_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has gradients where none are wanted, full precision under autocast, and random numbers of its own."""
    use(monkeypatch, RIGHT)
    before = torch.get_rng_state()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert kernels.is_right("decay", 16, 16, torch.float32, CPU)
    with torch.no_grad():
        assert kernels.is_right("decay", 16, 32, torch.float32, CPU)
    assert torch.equal(before, torch.get_rng_state())


def test_a_compiled_model_takes_the_comparison_as_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RIGHT)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        right = kernels.is_right("decay", q.shape[-1], v.shape[-1], v.dtype, v.device)
        return q.sum() if right else k.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's compiler about itself
        assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(*GIVEN), GIVEN[0].sum())


def test_to_the_compiler_the_comparison_is_a_constant() -> None:
    marked = torch.compiler.assume_constant_result(lambda: None)
    assert vars(marked).items() <= vars(kernels.is_right).items()
    assert vars(marked)
