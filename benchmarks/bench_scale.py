"""How often the intervals of a power law hold the truth, in simulations where it is known.

python benchmarks/bench_scale.py
"""

from __future__ import annotations

import argparse

import numpy as np

from octavo.experiments.scale import Law, fit_law

LONGEST, NOISE, FURTHER = 1e6, 0.003, 10
CASES = (  # what it is, lengths, seeds of each, the truth
    ("4 lengths, no floor", 4, 1, Law(0.0, (2.2,), (0.08,), (LONGEST,))),
    ("5 lengths", 5, 1, Law(1.6, (0.6,), (0.35,), (LONGEST,))),
    ("5 lengths, 3 seeds", 5, 3, Law(1.6, (0.6,), (0.35,), (LONGEST,))),
    ("8 lengths", 8, 1, Law(1.6, (0.6,), (0.35,), (LONGEST,))),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=100)
    times = parser.parse_args().times
    print(f"{times} simulations each, noise {NOISE:.1%}; how often the 95 % interval holds the truth")
    print(f"{'':22}{'exponent':>10}{'10 times':>10}{'its width':>11}")
    for name, lengths, seeds, truth in CASES:
        x_N = np.repeat(LONGEST / 2.0 ** np.arange(lengths), seeds)
        hits, widths = np.zeros(2), []
        for seed in range(times):
            noise_N = 1 + NOISE * np.random.default_rng(seed).standard_normal(len(x_N))
            fit = fit_law(x_N[:, None], truth(x_N) * noise_N, seed=seed)
            further = fit.interval(FURTHER * LONGEST)
            wanted = (truth.exponent[0], truth(FURTHER * LONGEST))
            hits += [one.low <= true <= one.high for one, true in zip((fit.exponent(), further), wanted, strict=True)]
            widths.append(further.high - further.low)
        print(f"{name:22}{hits[0] / times:10.0%}{hits[1] / times:10.0%}{np.median(widths):11.3f}", flush=True)


if __name__ == "__main__":
    main()
