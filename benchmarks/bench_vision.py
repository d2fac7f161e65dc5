"""The patterns of a vision transformer: what their formula says, and how long they take, there and back.

python benchmarks/bench_vision.py [--device cuda] [--grids 16 32 64]

`masked` computes every pair of patches and hides the forbidden ones; `grid` cuts the keys by rows and columns, and is
what is taken from 256 patches on. Pairs are those that the pattern allows; computed, those that the grid path takes.
"""

from __future__ import annotations

import argparse
import time

import torch

from octavo.core import seeded_generator
from octavo.ops import channel_attention as channel
from octavo.ops.attention import FULL, Axial, Neighbourhood, Pattern
from octavo.ops.attention import image_patterns as grid
from octavo.ops.channel_attention import channel_operations

HEADS, SIZE, IMAGES = 4, 16, 8


def seconds(device: torch.device, repeats: int, call: object) -> float:
    """The fastest of several; on a CPU its time, on one thread, which other work on the machine disturbs least."""
    best, clock = float("inf"), time.perf_counter if device.type == "cuda" else time.process_time
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = clock()
        call()  # type: ignore[operator]
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, clock() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--grids", type=int, nargs="+", default=[7, 16, 32])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_num_threads(1)
    print(f"{IMAGES} images, {HEADS} heads of {SIZE}, forward and backward, float32, on {device}")
    print("| patches | pattern | pairs | of all | computed | masked, ms | grid, ms |")
    print("|---|---|---|---|---|---|---|")
    for n in given.grids:
        patterns: dict[str, Pattern] = {
            "full": FULL, "local, 3 x 3": Neighbourhood(n, n, 1), "local + token": Neighbourhood(n, n, 1, 1),
            "axial": Axial(n, n),
        }  # fmt: skip
        for name, pattern in patterns.items():
            S = n * n + getattr(pattern, "globals", 0)
            q, k, v = (
                torch.randn(IMAGES, HEADS, S, SIZE, generator=seeded_generator(i)).to(device).requires_grad_()
                for i in range(3)
            )

            def there_and_back(path: grid.GridPath, pattern: Pattern = pattern, inputs=(q, k, v)) -> None:  # type: ignore[no-untyped-def]
                grid.attend_patches(*inputs, pattern, path).sum().backward()

            masked = seconds(device, given.repeats, lambda go=there_and_back: go("masked"))
            if pattern == FULL:
                print(f"| {n} x {n} | {name} | {S * S:,} | 100 % | {S * S:,} | {masked * 1e3:.1f} | |")
                continue
            assert isinstance(pattern, Axial | Neighbourhood)
            cut = seconds(device, given.repeats, lambda go=there_and_back: go("grid"))
            pairs, computed = grid.pairs(pattern), grid.computed(pattern)
            print(
                f"| {n} x {n} | {name} | {pairs:,} | {pairs / S**2:.1%} | {computed:,} | {masked * 1e3:.1f} | "
                f"{cut * 1e3:.1f} |"
            )
        q, k, v = (torch.randn(IMAGES, HEADS, n * n, SIZE, device=device, requires_grad=True) for _ in range(3))
        time_ms = 1e3 * seconds(
            device, given.repeats, lambda q=q, k=k, v=v: channel.attend_channels(q, k, v).sum().backward()
        )  # fmt: skip
        as_pairs = channel_operations(n * n, HEADS * SIZE, HEADS) // (4 * HEADS * SIZE)
        print(f"| {n} x {n} | channels | {as_pairs:,} | {as_pairs / n**4:.1%} | {as_pairs:,} | {time_ms:.1f} | |")


if __name__ == "__main__":
    main()
