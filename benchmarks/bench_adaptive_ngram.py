"""An n-gram model that goes on counting: which order and step size, on text held out of training; and how fast it is.

python benchmarks/bench_adaptive_ngram.py choose TEXT... [--orders 6 7 8] [--rates 0.02 0.05 0.1]
python benchmarks/bench_adaptive_ngram.py speed [--rounds 5] [--order 7]

choose: only the first 90 % of each text is read, the part that `octavo train` trains on: its first 90 % are counted,
the rest is scored; the last tenth of the text, on which octavo reports, chooses nothing. Beside it stands the fixed
model of the same order. speed: tiny Shakespeare, one thread; the whole command is not measured, but its parts:
counting, making the tables that a reader changes, scoring the last tenth, compressing it with the model's own coder and
restoring it, medians of the rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import median_spread, parser, print_header, print_machine, print_row
from octavo.datasets.sources import where
from octavo.models.ngram import AdaptiveNGram, AdaptiveNGramConfig, NGram, NGramConfig
from octavo.scoring.range_coder import decode_tokens, encode_tokens

BEGIN, VOCAB = 256, 257
TRAINING_SHARE = 0.9


def main() -> None:
    arguments = parser(__doc__)
    verbs = arguments.add_subparsers(dest="verb", required=True)
    choosing = verbs.add_parser("choose")
    choosing.add_argument("texts", nargs="+", type=Path)
    choosing.add_argument("--orders", nargs="+", type=int, default=[5, 6, 7, 8])
    choosing.add_argument("--rates", nargs="+", type=float, default=[0.05])
    choosing.add_argument("--most-bytes", type=int, default=1_000_000, help="of each text's training part")
    timing = verbs.add_parser("speed")
    timing.add_argument("--rounds", type=int, default=5)
    timing.add_argument("--order", type=int, default=7)
    args = arguments.parse_args()
    print_machine()
    torch.set_num_threads(1)
    choose(args) if args.verb == "choose" else measure_speed(args)


def halves(data: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens that are counted, opened by begin, and those that are scored."""
    x_N = np.frombuffer(data, np.uint8)
    cut = int(TRAINING_SHARE * len(x_N))
    counted = np.concatenate([[BEGIN], x_N[:cut]]).astype(np.int32)
    return torch.from_numpy(counted), torch.from_numpy(x_N[cut:].astype(np.int64))


def bits_per_byte(model: Any, x_T: torch.Tensor) -> float:
    return float(-model.score(x_T[None]).mean()) / float(np.log(2))


def choose(args: argparse.Namespace) -> None:
    print_header("text", "order", "fixed", *(f"adaptive, rate {rate:g}" for rate in args.rates))
    for text in args.texts:
        data = text.read_bytes()
        counted, scored = halves(data[: int(TRAINING_SHARE * len(data))][: args.most_bytes])
        for order in args.orders:
            fixed = NGram.fit(counted, NGramConfig(order=order), VOCAB)
            cells = [f"{bits_per_byte(fixed, scored):.4f}"]
            for rate in args.rates:
                config = AdaptiveNGramConfig(order=order, discount_rate=rate)
                cells.append(f"{bits_per_byte(AdaptiveNGram.fit(counted, config, VOCAB), scored):.4f}")
            print_row(f"{text.parent.name}/{text.name}", order, *cells)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def measure_speed(args: argparse.Namespace) -> None:
    text = where("shakespeare")
    if text is None:
        raise SystemExit("this benchmark reads tiny Shakespeare, which is not installed: octavo data get shakespeare")
    counted, scored = halves(Path(text).read_bytes())
    config = AdaptiveNGramConfig(order=args.order)
    AdaptiveNGram.fit(counted[:1000], config, VOCAB).score(scored[None, :100])  # compiles
    seconds: dict[str, list[float]] = {"count": [], "tables": [], "score": [], "compress": [], "restore": []}
    for _ in range(args.rounds):
        spent, model = timed(lambda: AdaptiveNGram.fit(counted, config, VOCAB))
        seconds["count"].append(spent)
        spent, _ = timed(lambda model=model: model.fresh_reader())  # type: ignore[misc]
        seconds["tables"].append(spent)
        spent, _ = timed(lambda model=model: model.score(scored[None]))  # type: ignore[misc]
        seconds["score"].append(spent)
        spent, packed = timed(lambda model=model: encode_tokens(model, scored, 1))  # type: ignore[misc]
        seconds["compress"].append(spent)
        spent, again = timed(lambda model=model, packed=packed: decode_tokens(model, packed, len(scored), 1))  # type: ignore[misc]
        seconds["restore"].append(spent)
        assert torch.equal(again, scored)
    print(
        f"{bits_per_byte(model, scored):.4f} bits per byte claimed, {8 * len(packed) / len(scored):.4f} in the archive"
    )
    print_header("", "seconds", "kB/s")
    for name, values in seconds.items():
        size = len(counted) if name in ("count", "tables") else len(scored)
        print_row(name, median_spread(values, 3), median_spread([size / one / 1e3 for one in values], 0))


if __name__ == "__main__":
    main()
