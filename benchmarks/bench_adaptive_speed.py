"""How fast an adaptive run reads, compresses and restores its held-out text, and whether the archive is the claim.

python benchmarks/bench_adaptive_speed.py RUN [--bytes 50000] [--rounds 3]

Any run whose model learns while it reads: an adaptive n-gram model or an adaptive mixture. One process, the model
loaded and its loops compiled before; by the clock and by processor time, medians of the rounds with their spread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import octavo
from measure import median_spread, parser, print_header, print_machine, print_row
from octavo.scoring.range_coder import decode_tokens, encode_tokens
from octavo.tasks.corpus import held_out

WARM_UP_TOKENS = 300


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("run")
    arguments.add_argument("--bytes", type=int, default=50_000)
    arguments.add_argument("--rounds", type=int, default=3)
    args = arguments.parse_args()
    print_machine()
    run = octavo.load(args.run)
    text = held_out(run)[1].read()[: args.bytes]
    x_T = torch.from_numpy(np.asarray(run.tokenizer.encode(text), np.int64))
    model = run.model
    rates: dict[str, list[tuple[float, float]]] = {"scoring": [], "compressing": [], "restoring": []}
    decode_tokens(model, encode_tokens(model, x_T[:WARM_UP_TOKENS], 1), WARM_UP_TOKENS, 1)
    model.score(x_T[None, :WARM_UP_TOKENS])
    for _ in range(args.rounds):
        spent, logp_1T = timed(lambda: model.score(x_T[None]))
        rates["scoring"].append(spent)
        spent, words = timed(lambda: encode_tokens(model, x_T, 1))
        rates["compressing"].append(spent)
        spent, again_T = timed(lambda words=words: decode_tokens(model, words, len(x_T), 1))  # type: ignore[misc]
        rates["restoring"].append(spent)
        if not torch.equal(again_T, x_T):
            raise SystemExit("the text that came out is not the one that went in")
    claim = float(-logp_1T.double().sum()) / math.log(2) / 8
    print_header("", "kB/s", "kB/s of processor time")
    for name, seconds in rates.items():
        print_row(
            name, *(median_spread([len(text) / one / 1e3 for one in part]) for part in zip(*seconds, strict=True))
        )
    print(
        f"{len(text):,} bytes, {8 * claim / len(text):.4f} bits per byte: claimed {claim:,.0f} bytes, coded "
        f"{len(words):,} without the header ({len(words) / claim - 1:+.3%})"
    )


def timed(work: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """The seconds that a call took by the clock and of the processor, and what it returned."""
    began, worked = time.perf_counter(), time.process_time()
    result = work()
    return (time.perf_counter() - began, time.process_time() - worked), result


if __name__ == "__main__":
    main()
