"""Coverage of the confidence intervals of a fitted power law, in simulations where the law is known.

python benchmarks/bench_scale.py
"""

from __future__ import annotations

import numpy as np

from measure import median_spread, parser, print_header, print_row
from octavo.experiments.scale import Law, fit_law

LONGEST, NOISE, EXTRAPOLATION = 1e6, 0.003, 10
CASES = (  # description, lengths, seeds of each, true law
    ("4 lengths, no floor", 4, 1, Law(0.0, (2.2,), (0.08,), (LONGEST,))),
    ("5 lengths", 5, 1, Law(1.6, (0.6,), (0.35,), (LONGEST,))),
    ("5 lengths, 3 seeds", 5, 3, Law(1.6, (0.6,), (0.35,), (LONGEST,))),
    ("8 lengths", 8, 1, Law(1.6, (0.6,), (0.35,), (LONGEST,))),
)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--simulations", type=int, default=100)
    simulations = arguments.parse_args().simulations
    print(f"{simulations} simulations each, noise {NOISE:.1%}; how often the 95 % interval contains the true value\n")
    print_header("", "exponent", f"value at {EXTRAPOLATION} times the length", "width of its interval")
    for name, lengths, seeds, truth in CASES:
        x_N = np.repeat(LONGEST / 2.0 ** np.arange(lengths), seeds)
        hits, widths = np.zeros(2), []
        for seed in range(simulations):
            noise_N = 1 + NOISE * np.random.default_rng(seed).standard_normal(len(x_N))
            fit = fit_law(x_N[:, None], truth(x_N) * noise_N, seed=seed)
            intervals = fit.exponent(), fit.interval(EXTRAPOLATION * LONGEST)
            values = truth.exponent[0], truth(EXTRAPOLATION * LONGEST)
            hits += [each.low <= value <= each.high for each, value in zip(intervals, values, strict=True)]
            widths.append(intervals[1].high - intervals[1].low)
        print_row(name, *(f"{share:.0%}" for share in hits / simulations), median_spread(widths, 3))


if __name__ == "__main__":
    main()
