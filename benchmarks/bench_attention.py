"""Linear and local attention on a GPU beside PyTorch's fused softmax attention, forward and backward in bfloat16.

    python benchmarks/bench_attention.py --linear      (batch 2, 12 heads of 64, 16,384 tokens; then 512 to 65,536)
    python benchmarks/bench_attention.py --local       (batch 1, 12 heads of 64, 65,536 tokens, window 256)
    python benchmarks/bench_attention.py --profile     (linear attention's time, kernel by kernel)

Times are medians (spread) of 20 calls between CUDA events, after calls that compile and warm up; every comparison is
made in the same run. The feature map is applied before the clock starts. Errors are distances to the recurrence, or to
the plain equation, in double precision on the same rounded inputs, relative to the norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from measure import (
    copy_bandwidth,
    median_spread,
    parser,
    print_header,
    print_machine,
    print_profile,
    print_row,
    require_gpu,
    time_on_gpu,
)
from octavo.costs.roofline import matmul_rate
from octavo.errors import UserError
from octavo.ops import linear
from octavo.ops.attention import CAUSAL, Local, attend

REPEATS = 20
HEADS, SIZE = 12, 64
LENGTHS = tuple(512 << i for i in range(8))
WINDOW = 256
DEVICE = torch.device("cuda")
LOW = torch.bfloat16

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def main() -> None:
    arguments = parser(__doc__)
    for flag in ("--linear", "--local", "--profile"):
        arguments.add_argument(flag, action="store_true")
    args = arguments.parse_args()
    require_gpu()
    print_machine()
    if args.linear:
        compare_linear()
        compare_lengths()
    if args.local:
        compare_local()
    if args.profile:
        profile()


def make_inputs(B: int, T: int, positive: bool) -> list[Tensor]:
    """q, k, v with the heads of a token side by side, as a projection leaves them."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    q, k, v = (torch.randn(B, T, HEADS, SIZE, device=DEVICE, generator=generator).transpose(1, 2) for _ in range(3))
    if positive:
        q, k = linear.features("elu", q, k)
    return [x.to(LOW) for x in (q, k, v)]


def time_attention(attention: Attention, inputs: Sequence[Tensor], backward: bool = True) -> list[float]:
    """Milliseconds of a forward pass, with the backward pass unless it is left out."""
    leaves = [x.detach().requires_grad_(backward) for x in inputs]
    dy = torch.randn_like(attention(*leaves))

    def call() -> None:
        y = attention(*leaves)
        if backward:
            torch.autograd.grad(y, leaves, dy)

    return [1e3 * seconds for seconds in time_on_gpu(call, REPEATS)]


def milliseconds(values: Sequence[float]) -> str:
    return median_spread(values, 3)


def by_linear(path: linear.Path, chunk: int | None = None) -> Attention:
    return lambda q, k, v: linear.attend_linear(q, k, v, path=path, chunk=chunk)[0]


def by_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def relative_errors(attention: Attention, reference: Attention, inputs: Sequence[Tensor]) -> str:
    """Of y, dq, dk and dv, against the reference in double precision."""
    results = []
    for function, dtype in ((attention, LOW), (reference, torch.float64)):
        leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
        y = function(*leaves)
        dy = torch.randn(y.shape, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(2)).to(LOW)
        results.append([y, *torch.autograd.grad(y, leaves, dy.to(dtype))])
    errors = [((a.double() - b).norm() / b.norm()).item() for a, b in zip(*results, strict=True)]
    return ", ".join(f"{name} {error:.1e}" for name, error in zip(("y", "dq", "dk", "dv"), errors, strict=True))


def compare_linear(B: int = 2, T: int = 16_384) -> None:
    """The kernel with each chunk size, the chunked path, and softmax attention."""
    inputs, softmax_inputs = make_inputs(B, T, True), make_inputs(B, T, False)
    print(f"\nlinear attention, causal: batch {B}, {HEADS} heads of {SIZE}, {T:,} tokens, bfloat16; milliseconds\n")
    softmax = time_attention(by_sdpa, softmax_inputs)
    variants: list[tuple[str, Attention]] = [(f"kernel, chunk {size}", by_linear("kernel", size)) for size in (64, 128)]
    variants += [("kernel, default chunk", by_linear("kernel")), ("chunked", by_linear("chunked"))]
    print_header("", "forward and backward", "forward", "speed, times softmax's")
    for name, attention in variants:
        both, forward = time_attention(attention, inputs), time_attention(attention, inputs, backward=False)
        print_row(name, milliseconds(both), milliseconds(forward), f"{median(softmax) / median(both):.1f}")
    forward = time_attention(by_sdpa, softmax_inputs, backward=False)
    print_row("softmax (SDPA)", milliseconds(softmax), milliseconds(forward), "1.0")
    # The least: forward q, k, v read and y written; backward q, k, v, y, dy read and dq, dk, dv written.
    bandwidth = copy_bandwidth()
    floor = 12 * B * T * HEADS * SIZE * 2 / bandwidth * 1e3
    print(f"\neach tensor read or written once would take {floor:.3f} ms at {bandwidth / 1e12:.2f} TB/s")
    errors = relative_errors(by_linear("kernel"), by_linear("recurrent"), make_inputs(B, 512, True))
    print(f"relative errors on 512 tokens: {errors}")


def compare_lengths(B: int = 2) -> None:
    """From which length on linear attention is faster than softmax attention."""
    print(f"\nforward and backward, batch {B}; milliseconds\n")
    print_header("tokens", "linear", "softmax", "ratio")
    for T in LENGTHS:
        ours = time_attention(by_linear("auto"), make_inputs(B, T, True))
        softmax = time_attention(by_sdpa, make_inputs(B, T, False))
        print_row(f"{T:,}", milliseconds(ours), milliseconds(softmax), f"{median(softmax) / median(ours):.2f}")


def compare_local(B: int = 1, T: int = 65_536) -> None:
    """Every path that can serve a causal window, against the limits of the machine."""
    inputs, small, pattern = make_inputs(B, T, False), make_inputs(B, 2048, False), CAUSAL & Local(WINDOW)
    pairs = T * WINDOW - WINDOW * (WINDOW - 1) // 2
    operations = 14 * B * HEADS * pairs * SIZE  # two products forward, five backward, of 2 K each for a pair
    moved = 12 * B * T * HEADS * SIZE * 2
    flops, bandwidth = matmul_rate(DEVICE, LOW), copy_bandwidth()
    floor = max(operations / flops, moved / bandwidth) * 1e3
    print(f"\nlocal attention, window {WINDOW}: batch {B}, {HEADS} heads of {SIZE}, {T:,} tokens, bfloat16")
    print(f"this machine: {flops / 1e12:.0f} TFLOP/s, {bandwidth / 1e9:.0f} GB/s; so at least {floor:.3f} ms\n")
    print_header("path", "milliseconds", "TFLOP/s", "GB/s", "times the least", "relative errors")
    for path in ("flex", "band"):

        def local(q: Tensor, k: Tensor, v: Tensor, path: str = path) -> Tensor:
            return attend(q, k, v, pattern, path=path)  # type: ignore[arg-type]

        try:
            times = time_attention(local, inputs)
        except UserError as error:
            print(f"{path} is refused: {error}")
            continue
        seconds = median(times) / 1e3
        errors = relative_errors(local, lambda q, k, v: attend(q, k, v, pattern, path="plain"), small)
        print_row(path, milliseconds(times), f"{operations / seconds / 1e12:.0f}", f"{moved / seconds / 1e9:.0f}",
                  f"{median(times) / floor:.1f}", errors)  # fmt: skip
    print(f"\nSDPA, causal, without a window: {milliseconds(time_attention(by_sdpa, inputs))} ms")


def profile(B: int = 2, T: int = 16_384) -> None:
    """The time of each kernel, without what Python takes to launch them."""
    leaves = [x.requires_grad_() for x in make_inputs(B, T, True)]
    for chunk in (64, 128):
        attention = by_linear("kernel", chunk)
        dy = torch.randn_like(attention(*leaves))

        def call(attention: Attention = attention, dy: Tensor = dy) -> None:
            torch.autograd.grad(attention(*leaves), leaves, dy)

        call()
        print(f"\nchunk {chunk}\n")
        print_profile(call, REPEATS)


if __name__ == "__main__":
    main()
