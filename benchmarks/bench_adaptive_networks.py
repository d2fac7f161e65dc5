"""How a network should learn while it reads: optimizer, learning rate and segment, on text held out of training.

python benchmarks/bench_adaptive_networks.py TEXT... [--models gru gpt] [--seeds 3] [--tokens 400000] [--runs FOLDER]

Only the first 90 % of each text is read, the part that `octavo train` trains on: its first 80 % train the networks, its
next 10 % are scored, so the last tenth of the text, on which octavo reports, chooses nothing. Each row is a setting:
the bits per byte of the adaptive model minus those of the fixed one, the mean over texts and seeds, the least and the
greatest; and how many times as long scoring took. A trained run is stored in --runs and used again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import octavo
from measure import parser, print_header, print_machine, print_row
from octavo.models.dynamic_evaluation import AdaptiveConfig, adapted
from octavo.scoring.bits_per_byte import Score, score_text
from octavo.tasks.run import Run
from octavo.text import text_in_memory

TRAINING_SHARE, LEARNT_SHARE, SCORED_SHARE = 0.9, 0.8, 0.1
RATES: dict[str, tuple[float, ...]] = {
    "sgd": (0.003, 0.01, 0.03, 0.1), "rms": (5e-5, 1e-4, 2e-4, 3e-4), "adam": (5e-5, 1e-4, 2e-4, 3e-4),
}  # fmt: skip
TRAINED_AS: dict[str, dict[str, Any]] = {  # as `octavo compare` trains them where time is short
    "gru": {"width": 192, "batch_size": 32, "muon_learning_rate": 0.05},
}
SEGMENTS = (16, 32, 64, 128, 256)


class Setting(NamedTuple):
    """What is tried."""

    optimizer: str
    learning_rate: float
    segment: int
    mean_square_decay: float
    decay: float

    @property
    def config(self) -> AdaptiveConfig:
        return AdaptiveConfig(**self._asdict())


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("texts", nargs="+", type=Path)
    arguments.add_argument("--models", nargs="+", default=["gru", "gpt"])
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--tokens", type=int, default=400_000, help="of training")
    arguments.add_argument("--scored-bytes", type=int, default=50_000, help="of each text, at most")
    arguments.add_argument("--optimizers", nargs="+", default=[*RATES], choices=[*RATES])
    arguments.add_argument("--rates", nargs="+", type=float, help="in place of each optimizer's own")
    arguments.add_argument("--segments", nargs="+", type=int, default=SEGMENTS)
    arguments.add_argument("--mean-square-decays", nargs="+", type=float, default=[0.999])
    arguments.add_argument("--decays", nargs="+", type=float, default=[0.0])
    arguments.add_argument("--runs", type=Path, default=Path("runs/adaptive"))
    arguments.add_argument("--out", type=Path, help="write every result, as JSON, to this file too")
    args = arguments.parse_args()
    print_machine()
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    for text, model, seed in itertools.product(args.texts, args.models, range(args.seeds)):
        run, held_out = trained(text, model, seed, args)
        fixed = scored(run, held_out[: args.scored_bytes], None)
        for setting in settings(args):
            adaptive = scored(run, held_out[: args.scored_bytes], setting)
            results.append({
                "text": text.stem, "model": model, "seed": seed, **setting._asdict(), "fixed": fixed.bits_per_byte,
                "gain": adaptive.bits_per_byte - fixed.bits_per_byte, "slower": adaptive.seconds / fixed.seconds,
            })  # fmt: skip
            if args.out:
                args.out.write_text(json.dumps(results, indent=1))
    print_results(results)


def settings(args: argparse.Namespace) -> Iterator[Setting]:
    for optimizer in args.optimizers:
        rates = args.rates or RATES[optimizer]
        for one in itertools.product(rates, args.segments, args.mean_square_decays, args.decays):
            yield Setting(optimizer, *one)


def trained(text: Path, model: str, seed: int, args: argparse.Namespace) -> tuple[Run, bytes]:
    """A run on the beginning of a text's training part, and the bytes after it."""
    data = text.read_bytes()
    data = data[: int(TRAINING_SHARE * len(data))]
    cut, end = (int(share * len(data)) for share in (LEARNT_SHARE, LEARNT_SHARE + SCORED_SHARE))
    folder = args.runs / f"{text.parent.name}-{text.stem}-{model}-{args.tokens}-{seed}"
    if not folder.exists():
        args.runs.mkdir(parents=True, exist_ok=True)
        learnt, held_out = (args.runs / f"{text.parent.name}-{text.stem}-{part}.txt" for part in ("learnt", "held-out"))
        learnt.write_bytes(data[:cut])
        held_out.write_bytes(data[cut:end])
        octavo.train(
            model, learnt, out=folder, valid=[str(held_out)], seed=seed, budget=f"{args.tokens}tokens", measure=False,
            **TRAINED_AS.get(model, {}),
        )  # fmt: skip
    return octavo.load(folder), data[cut:end]


def scored(run: Run, data: bytes, setting: Setting | None) -> Score:
    model = run.model if setting is None else adapted(run.model, setting.config)
    return score_text(model, run.tokenizer, text_in_memory(data), "held out")


def print_results(results: list[dict[str, Any]]) -> None:
    """A table for each model, the best setting first."""
    grouped: dict[str, dict[tuple[Any, ...], list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        setting = tuple(result[name] for name in Setting._fields)
        for model in (result["model"], "all"):
            grouped[model][setting].append(result)
    for model, found in grouped.items():
        print(f"\n{model}: {len(next(iter(found.values())))} texts and seeds")
        print_header(*(name.replace("_", " ") for name in Setting._fields), "bits per byte - fixed", "times as long")
        for setting, rows in sorted(found.items(), key=lambda one: statistics.mean(row["gain"] for row in one[1])):
            gains = [row["gain"] for row in rows]
            shown = f"{statistics.mean(gains):+.4f} ({min(gains):+.4f} to {max(gains):+.4f})"
            print_row(*setting, shown, f"{statistics.median(row['slower'] for row in rows):.1f}")


if __name__ == "__main__":
    main()
