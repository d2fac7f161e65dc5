"""Attention patterns of a vision transformer: pairs by formula, and the time of forward and backward.

python benchmarks/bench_vision.py [--device cuda] [--grids 16 32 64]

`masked` computes every pair of patches and hides the forbidden ones; `grid` cuts the keys by rows and columns, and is
the default from 256 patches on. Pairs are those that the pattern allows; computed, those that the grid path computes.
Times are medians (spread); on a CPU processor time of one thread, which other work on the machine disturbs least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from measure import median_spread, parser, print_header, print_machine, print_row, time_rounds
from octavo.core import seeded_generator
from octavo.ops import channel_attention as channel
from octavo.ops.attention import FULL, Axial, Neighbourhood, Pattern
from octavo.ops.attention import image_patterns as grid

HEADS, SIZE, IMAGES = 4, 16, 8


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--grids", type=int, nargs="+", default=[7, 16, 32])
    arguments.add_argument("--repeats", type=int, default=5)
    args = arguments.parse_args()
    torch.set_num_threads(1)
    print_machine()
    print(f"{IMAGES} images, {HEADS} heads of {SIZE}, forward and backward, float32, on {args.device}\n")
    print_header("patches", "pattern", "pairs", "of all", "computed", "masked, ms", "grid, ms")
    for n in args.grids:
        measure_grid(n, torch.device(args.device), args.repeats)


def measure_grid(n: int, device: torch.device, repeats: int) -> None:
    """One row for each pattern on n x n patches."""
    patterns: dict[str, Pattern] = {
        "full": FULL, "local, 3 x 3": Neighbourhood(n, n, 1), "local + token": Neighbourhood(n, n, 1, 1),
        "axial": Axial(n, n),
    }  # fmt: skip
    for name, pattern in patterns.items():
        S = n * n + getattr(pattern, "globals", 0)
        inputs, pairs, computed = make_inputs(S, device), S * S, S * S
        paths: list[grid.GridPath] = ["masked"]
        if isinstance(pattern, Axial | Neighbourhood):
            pairs, computed = grid.pairs(pattern), grid.computed(pattern)
            paths.append("grid")
        times = milliseconds({path: partial(attend, inputs, pattern, path) for path in paths}, repeats, device)
        print_row(f"{n} x {n}", name, f"{pairs:,}", f"{pairs / S**2:.1%}", f"{computed:,}", times["masked"],
                  times.get("grid", ""))  # fmt: skip
    q, k, v = make_inputs(n * n, device)
    times = milliseconds({"channels": lambda: channel.attend_channels(q, k, v).sum().backward()}, repeats, device)
    pairs = channel.channel_operations(n * n, HEADS * SIZE, HEADS) // (4 * HEADS * SIZE)
    print_row(f"{n} x {n}", "channels", f"{pairs:,}", f"{pairs / n**4:.1%}", f"{pairs:,}", times["channels"], "")


def make_inputs(S: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of S positions."""
    q, k, v = (
        torch.randn(IMAGES, HEADS, S, SIZE, generator=seeded_generator(i)).to(device).requires_grad_() for i in range(3)
    )
    return q, k, v


def attend(inputs: tuple[Tensor, Tensor, Tensor], pattern: Pattern, path: grid.GridPath) -> None:
    grid.attend_patches(*inputs, pattern, path).sum().backward()


def milliseconds(jobs: Mapping[str, Callable[[], object]], repeats: int, device: torch.device) -> dict[str, str]:
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times = time_rounds(jobs, repeats, clock=clock)
    return {name: median_spread([1e3 * each for each in seconds], 1) for name, seconds in times.items()}


if __name__ == "__main__":
    main()
