"""The Triton kernels of linear attention: which tensors they take, and the comparison with the reference implementation
that each must pass on this device before it is used.

Compilers have given wrong gradients for single sizes of such kernels, on single kinds of GPU. So "auto" takes a kernel
only after it has agreed, in value and gradient, with the reference in double precision on a small random input: once in
a process for each kind, size, precision and device. Otherwise it warns, and PyTorch's products are taken.

B batch, H heads, T tokens, K size of a key, V size of a value.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops.linear import decaying_reference, reference
from octavo.ops.linear.sums import in_chunks, without_autocast
from octavo.ops.linear.wy_form import wy_form

Kind = Literal["plain", "decay", "decay with sums", "delta rule"]
Outputs = tuple[Tensor, ...]

HAS_TRITON = find_spec("triton") is not None
KERNEL_SIZES = (16, 32, 64, 128)  # of K and V: what a GPU's matrix units take
KERNEL_WIDEST = {torch.bfloat16: 128, torch.float32: 64}  # what one program's registers hold
KERNEL_ROWS = 65535  # the second dimension of a CUDA grid
CHECKED_TOKENS = 1147  # the last chunk is not full; chunks of 64 are more than are scanned in one go
LARGEST_ERROR = {torch.bfloat16: 2**-6, torch.float32: 1e-4}  # of the norm; a bfloat16 is rounded by up to 2^-9


class Kernel(NamedTuple):
    """A kernel beside the reference it must agree with: functions of the same tensors, with the same outputs."""

    attend: Callable[..., Outputs]
    reference: Callable[..., Outputs]


# ---------------------------------------------------------------------- the kernels


def attend_plain(q: Tensor, k: Tensor, v: Tensor, S: Tensor, z: Tensor) -> Outputs:
    from octavo.ops.linear.triton_attention import attend_triton

    y, state = attend_triton(q, k, v, (S, z))
    return y, *state


def attend_decay(q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor, chunk: int | None = None) -> Outputs:
    from octavo.ops.linear.triton_decaying import attend_triton_decaying

    y, _, S, _ = attend_triton_decaying(q, k, v, g, S, None, chunk)
    return y, S


def attend_decay_with_sums(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor, z: Tensor, chunk: int | None = None
) -> Outputs:
    from octavo.ops.linear.triton_decaying import attend_triton_decaying

    return attend_triton_decaying(q, k, v, g, S, z, chunk)


def attend_delta(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S: Tensor, chunk: int | None = None
) -> Outputs:
    """PyTorch solves the chunks' triangular systems, all at once in single precision; the kernels do the rest."""
    from octavo.ops.linear.triton_decaying import best_chunk
    from octavo.ops.linear.triton_delta import attend_triton_delta

    chunk, T = chunk or best_chunk(k.shape[-1], v.shape[-1], v.dtype), k.shape[2]
    with without_autocast(k):
        one = (x.float() for x in (k, v, beta[..., None], g[..., None]))
        k_BHNCK, v_BHNCV, beta_BHNC1, g_BHNC1 = (in_chunks(x, chunk) for x in one)
        G_BHNC1 = g_BHNC1.cumsum(3)
        between_BHNCC = decaying_reference.decay_between(G_BHNC1)
        systems = wy_form(k_BHNCK, v_BHNCV, beta_BHNC1, G_BHNC1.exp(), lambda q, k: (q @ k.mT) * between_BHNCC)
    u, w = (x.flatten(2, 3)[:, :, :T].to(v.dtype) for x in systems)
    return attend_triton_delta(q, k, u, w, g, S, chunk)


# ---------------------------------------------------------------------- the reference implementation of each


def plain_reference(q: Tensor, k: Tensor, v: Tensor, S: Tensor, z: Tensor) -> Outputs:
    y, state = reference.parallel(q, k, v, (S, z))
    return y, *state


def decay_reference(q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor) -> Outputs:
    return decaying_reference.parallel(q, k, v, g[..., None], None, S)


def decay_with_sums_reference(q: Tensor, k: Tensor, v: Tensor, g: Tensor, S: Tensor, z: Tensor) -> Outputs:
    """Sums are what a column of ones beside the values gives."""
    y, S = decay_reference(q, k, F.pad(v, (0, 1), value=1.0), g, torch.cat([S, z[..., None]], -1))
    return y[..., :-1], y[..., -1], S[..., :-1], S[..., -1]


def delta_reference(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S: Tensor) -> Outputs:
    return decaying_reference.parallel(q, k, v, g[..., None], beta, S)


KERNELS: dict[Kind, Kernel] = {
    "plain": Kernel(attend_plain, plain_reference),
    "decay": Kernel(attend_decay, decay_reference),
    "decay with sums": Kernel(attend_decay_with_sums, decay_with_sums_reference),
    "delta rule": Kernel(attend_delta, delta_reference),
}


# ---------------------------------------------------------------------- which tensors they take


def unsupported_reason(q_BHTK: Tensor, v_BHTV: Tensor) -> str | None:
    """Why the Triton kernels cannot take these tensors; None if they can."""
    (B, H, T, K), V = q_BHTK.shape, v_BHTV.shape[-1]
    if not HAS_TRITON:
        return "triton is not installed"
    if v_BHTV.dtype not in KERNEL_WIDEST:
        return f"values must be float32 or bfloat16, not {v_BHTV.dtype}"
    sizes = [size for size in KERNEL_SIZES if size <= KERNEL_WIDEST[v_BHTV.dtype]]
    if K not in sizes or V not in sizes:
        return f"K and V must be of {sizes} in {v_BHTV.dtype}: K={K}, V={V}"
    if T < 1 or not 1 <= B * H <= KERNEL_ROWS:
        return f"there must be a token, and at most {KERNEL_ROWS} rows of them: T={T}, B={B}, H={H}"
    from octavo.ops.linear.triton_attention import INTERPRETED

    if not (v_BHTV.is_cuda or INTERPRETED):
        return f"the tensors must be on a CUDA device, not on {v_BHTV.device}"
    return None


def serves(kind: Kind, q_BHTK: Tensor, v_BHTV: Tensor) -> bool:
    """Whether a kernel can take these tensors, and has agreed with the reference."""
    if unsupported_reason(q_BHTK, v_BHTV):
        return False
    right: bool = is_right(kind, q_BHTK.shape[-1], v_BHTV.shape[-1], v_BHTV.dtype, v_BHTV.device)
    return right


def require_support(q_BHTK: Tensor, v_BHTV: Tensor) -> None:
    """Refuse what the kernels cannot take."""
    if reason := unsupported_reason(q_BHTK, v_BHTV):
        raise UserError(f'path "kernel" cannot be taken: {reason}; try path="auto"')


# ---------------------------------------------------------------------- whether they are right


def is_right(kind: Kind, K: int, V: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernel agrees with the reference on this device; to torch.compile a constant."""
    return _is_right(kind, K, V, dtype, device)


# What torch.compiler.assume_constant_result sets; calling it would import the compiler, which takes a second.
is_right._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _is_right(kind: Kind, K: int, V: int, dtype: torch.dtype, device: torch.device) -> bool:
    try:
        with torch.inference_mode(False), torch.enable_grad():
            error = largest_error(KERNELS[kind], example(kind, K, V, dtype, device))
        problem = f"is off by {error:.1e} of the norm, at most {LARGEST_ERROR[dtype]:.1e} is allowed"
        right = error <= LARGEST_ERROR[dtype]
    except Exception as failure:  # whatever a compiler does: the model can still be computed
        problem, right = f"fails with {type(failure).__name__}: {failure}".splitlines()[0], False
    if not right:
        warnings.warn(
            f"the Triton kernel of linear attention ({kind}, K={K}, V={V}, {dtype}) {problem} on {device}; "
            "PyTorch's products are taken, which are slower", RuntimeWarning, stacklevel=2,
        )  # fmt: skip
    return right


def forget_comparisons() -> None:
    """Compare each kernel once more before it is used again."""
    _is_right.cache_clear()


def example(kind: Kind, K: int, V: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Random tensors and a state, from a generator of their own: the global ones stay where they are."""
    generator, T, heads = torch.Generator().manual_seed(0), CHECKED_TOKENS, (1, 2)
    q, k = (torch.randn(*heads, T, K, generator=generator) * K**-0.25 for _ in range(2))
    v, S = (torch.randn(*heads, n, V, generator=generator) for n in (T, K))
    g = F.logsigmoid(torch.randn(*heads, T, generator=generator) + 2)
    z = torch.rand(*heads, K, generator=generator) * T**0.5
    if kind == "plain":  # whose features are positive
        q, k = q.exp(), k.exp()
    elif kind == "delta rule":  # whose keys are of length one
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    beta = torch.rand(*heads, T, generator=generator)
    given = {"plain": [S, z], "decay": [g, S], "decay with sums": [g, S, z], "delta rule": [g, beta, S]}[kind]
    return [*(x.to(device, dtype) for x in (q, k, v)), *(x.to(device) for x in given)]


def largest_error(kernel: Kernel, given: Sequence[Tensor]) -> float:
    """The largest distance of an output or a gradient from the reference in double precision, relative to its norm."""
    with without_autocast(given[0]):
        ours = values_and_gradients(kernel.attend, [x.detach() for x in given])
        theirs = values_and_gradients(kernel.reference, [x.detach().double() for x in given])
    errors = [(a.double() - b).norm() / b.norm().clamp_min(1.0) for a, b in zip(ours, theirs, strict=True)]
    return float(torch.stack(errors).nan_to_num(nan=torch.inf).max())


def values_and_gradients(attend: Callable[..., Outputs], given: list[Tensor]) -> list[Tensor]:
    """The outputs, and the gradients of all that is given for a loss that weighs every number of every output."""
    leaves, generator = [x.requires_grad_() for x in given], torch.Generator().manual_seed(1)
    out = attend(*leaves)
    weights = [torch.randn(x.shape, generator=generator).to(x.device, x.dtype) for x in out]
    return [*(x.detach() for x in out), *torch.autograd.grad(out, leaves, weights)]
