"""Linear and local attention on a GPU beside PyTorch's fused softmax attention, forward and backward in bfloat16.

    python benchmarks/bench_attention.py --linear      (batch 2, 12 heads of 64, 16,384 tokens; then 512 to 65,536)
    python benchmarks/bench_attention.py --local       (batch 1, 12 heads of 64, 65,536 tokens, window 256)
    python benchmarks/bench_attention.py --profile     (where linear attention's time goes, program by program)

Times are medians of 20 calls between CUDA events, with their spread, after calls that compile and warm up; every
comparison is made in the same run. The features are applied before the clock starts. Errors are distances to the
recurrence, or to the plain equation, in double precision on the same rounded inputs, relative to the norm.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.errors import UserError
from octavo.ops import linear
from octavo.ops.attention import CAUSAL, Local, attend
from octavo.training.metrics_log import matmul_rate

REPEATS, WARM_UP = 20, 5
HEADS, SIZE = 12, 64
LENGTHS = tuple(512 << i for i in range(8))
WINDOW = 256
DEVICE = torch.device("cuda")
LOW = torch.bfloat16

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Times(NamedTuple):
    """Milliseconds of each call."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{self.median:8.3f} ms ({min(self.values):.3f} to {max(self.values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for part in ("linear", "local", "profile"):
        parser.add_argument(f"--{part}", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA GPU, and there is none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, median of {REPEATS} (least to most)")
    if args.linear:
        compare_linear()
        cross_over()
    if args.local:
        compare_local()
    if args.profile:
        profile()


def inputs(B: int, T: int, positive: bool) -> list[Tensor]:
    """q, k, v with the heads of a token side by side, as a projection leaves them."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    q, k, v = (torch.randn(B, T, HEADS, SIZE, device=DEVICE, generator=generator).transpose(1, 2) for _ in range(3))
    if positive:
        q, k = linear.features("elu", q, k)
    return [x.to(LOW) for x in (q, k, v)]


def timed(f: Attention, given: Sequence[Tensor], backward: bool = True) -> Times:
    """The times of one forward, and with it one backward pass."""
    given = [x.detach().requires_grad_(backward) for x in given]
    dy = torch.randn_like(f(*given))
    values = []
    for i in range(WARM_UP + REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        y = f(*given)
        if backward:
            torch.autograd.grad(y, given, dy)
        end.record()
        torch.cuda.synchronize()
        if i >= WARM_UP:
            values.append(begin.elapsed_time(end))
    return Times(values)


def by_linear(path: linear.Path, chunk: int | None = None) -> Attention:
    return lambda q, k, v: linear.attend_linear(q, k, v, path=path, chunk=chunk)[0]


def by_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def errors(f: Attention, truth: Attention, given: Sequence[Tensor]) -> str:
    """How far y, dq, dk and dv are from the truth in double precision."""
    results = []
    for g, dtype in ((f, LOW), (truth, torch.float64)):
        leaves = [x.detach().to(dtype).requires_grad_() for x in given]
        y = g(*leaves)
        dy = torch.randn(y.shape, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(2)).to(LOW)
        results.append([y, *torch.autograd.grad(y, leaves, dy.to(dtype))])
    far = [((a.double() - b).norm() / b.norm()).item() for a, b in zip(*results, strict=True)]
    return ", ".join(f"{name} {error:.1e}" for name, error in zip(("y", "dq", "dk", "dv"), far, strict=True))


def compare_linear(B: int = 2, T: int = 16_384) -> None:
    """The kernel with each size of chunk, the chunked path, and softmax attention."""
    given, softmax_given = inputs(B, T, True), inputs(B, T, False)
    print(f"\nlinear attention, causal: batch {B}, {HEADS} heads of {SIZE}, {T:,} tokens, bfloat16")
    softmax = timed(by_sdpa, softmax_given)
    rows: list[tuple[str, Attention]] = [(f"kernel, chunk {chunk}", by_linear("kernel", chunk)) for chunk in (64, 128)]
    rows += [("kernel, its own chunk", by_linear("kernel")), ("chunked", by_linear("chunked"))]
    for name, f in rows:
        both, forward = timed(f, given), timed(f, given, backward=False)
        print(f"{name:22} {both}   forward alone {forward}   {softmax.median / both.median:.1f} times softmax's speed")
    print(f"{'softmax (SDPA)':22} {softmax}   forward alone {timed(by_sdpa, softmax_given, backward=False)}")
    # The least: forward q, k, v read and y written; backward q, k, v, y, dy read and dq, dk, dv written.
    floor = 12 * B * T * HEADS * SIZE * 2 / copy_rate() * 1e3
    print(f"each of its tensors read or written once would take {floor:.3f} ms at {copy_rate() / 1e12:.2f} TB/s")
    short = inputs(B, 512, True)
    print(f"error on 512 tokens: {errors(by_linear('kernel'), by_linear('recurrent'), short)}")


def cross_over(B: int = 2) -> None:
    """From which length linear attention is the faster one."""
    print(f"\nforward and backward, batch {B}: tokens, linear, softmax")
    for T in LENGTHS:
        ours, theirs = timed(by_linear("auto"), inputs(B, T, True)), timed(by_sdpa, inputs(B, T, False))
        print(f"{T:7,} {ours}  {theirs}  {theirs.median / ours.median:6.2f} times")


def compare_local(B: int = 1, T: int = 65_536) -> None:
    """Every path that can serve a causal window, against what the machine could do."""
    given, pattern = inputs(B, T, False), CAUSAL & Local(WINDOW)
    pairs = T * WINDOW - WINDOW * (WINDOW - 1) // 2
    operations = 14 * B * HEADS * pairs * SIZE  # two products forward, five backward, of 2 K each for a pair
    moved = 12 * B * T * HEADS * SIZE * 2
    rates = matmul_rate(DEVICE, LOW), copy_rate()
    floor = max(operations / rates[0], moved / rates[1]) * 1e3
    print(f"\nlocal attention, window {WINDOW}: batch {B}, {HEADS} heads of {SIZE}, {T:,} tokens, bfloat16")
    print(f"this machine: {rates[0] / 1e12:.0f} TFLOP/s, {rates[1] / 1e9:.0f} GB/s; so at least {floor:.3f} ms")
    small = inputs(B, 2048, False)
    for path in ("flex", "band"):

        def local(q: Tensor, k: Tensor, v: Tensor, path: str = path) -> Tensor:
            return attend(q, k, v, pattern, path=path)  # type: ignore[arg-type]

        try:
            times = timed(local, given)
        except UserError as reason:
            print(f"{path:6} cannot: {reason}")
            continue
        seconds = times.median / 1e3
        print(f"{path:6} {times}  {operations / seconds / 1e12:.0f} TFLOP/s, {moved / seconds / 1e9:.0f} GB/s, "
              f"{times.median / floor:.1f} times the least; "
              f"errors {errors(local, lambda q, k, v: attend(q, k, v, pattern, path='plain'), small)}")  # fmt: skip
    print(f"all before (SDPA, causal) {timed(by_sdpa, given)}")


def profile(B: int = 2, T: int = 16_384) -> None:
    """The GPU's own time in each program of the kernel, without what Python takes to launch them."""
    given = [x.requires_grad_() for x in inputs(B, T, True)]
    for chunk in (64, 128):
        f = by_linear("kernel", chunk)
        dy = torch.randn_like(f(*given))
        torch.autograd.grad(f(*given), given, dy)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(REPEATS):
                torch.autograd.grad(f(*given), given, dy)
            torch.cuda.synchronize()
        print(f"\nchunk {chunk}, microseconds a call")
        for row in sorted(seen.key_averages(), key=lambda row: -row.device_time_total):
            if row.device_time_total > 0:
                print(f"{row.device_time_total / REPEATS:9.1f}  {row.key[:80]}")


def copy_rate() -> float:
    """Bytes a second that a large copy reads and writes."""
    x, y = (torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    values = []
    for _ in range(WARM_UP + REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        y.copy_(x)
        end.record()
        torch.cuda.synchronize()
        values.append(begin.elapsed_time(end))
    return 2 * x.numel() / (statistics.median(values[WARM_UP:]) / 1e3)


if __name__ == "__main__":
    main()
