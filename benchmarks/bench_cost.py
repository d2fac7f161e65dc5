"""Predicted (`octavo cost`) against measured training speed of every neural model on this machine, at two sizes.

Predictions and trainings alternate, so that other work on the machine disturbs both alike. Training is octavo's own
loop on tiny Shakespeare's bytes; its speed is that between its first and its last step, without the final evaluation.

python benchmarks/bench_cost.py                    (a quarter of an hour)
python benchmarks/bench_cost.py --only gpt --size small --rounds 1
python benchmarks/bench_cost.py --size large --longest 0.8     (steps of more than 0.8 s are timed in parts)
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Any

import octavo
from measure import median_spread, parser, print_header, print_machine, print_row
from octavo.cli import main as command
from octavo.models import preset
from octavo.tasks.cost_record import CostSettings, piece_of
from octavo.training.step_timing import time_steps

RECURRENT, TRANSFORMER = {"width": 512}, {"width": 256, "layers": 6, "context": 128}
LARGE_SETTINGS: dict[str, dict[str, Any]] = {
    "rnn": RECURRENT, "gru": RECURRENT, "lstm": RECURRENT, "rnn-attention": {"width": 384},
    "gpt": TRANSFORMER, "local": TRANSFORMER, "linear": TRANSFORMER, "synthesizer": TRANSFORMER,
}  # fmt: skip
BYTE_VOCAB = 257  # the bytes and the begin token
MAX_ERROR = 0.25  # of a prediction, relative


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--only", nargs="*", default=list(LARGE_SETTINGS), choices=list(LARGE_SETTINGS))
    arguments.add_argument("--size", choices=("small", "large", "both"), default="both")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=7, help="of training, each time")
    arguments.add_argument("--longest", type=float, help="seconds of a step above which parts of it are timed")
    args = arguments.parse_args()
    print_machine()
    print(f"{args.rounds} rounds of {args.seconds:g} s of training\n")
    print_header("model", "predicted, tokens/s", "measured, tokens/s", "predicted / measured")
    wrong = [
        name
        for name in args.only
        for size in ("small", "large")
        if args.size in (size, "both") and not compare(name, LARGE_SETTINGS[name] if size == "large" else {}, args)
    ]
    print(f"\n{len(wrong)} medians are off by more than {MAX_ERROR:.0%}" + (f": {', '.join(wrong)}" if wrong else ""))


def compare(name: str, settings: dict[str, Any], args: Namespace) -> bool:
    """One row: both speeds and their ratio; whether the ratio's median is near one."""
    predicted, measured = [], []
    for _ in range(args.rounds):
        predicted.append(prediction(name, settings) if not args.longest else in_parts(name, settings, args.longest))
        measured.append(training(name, settings, args.seconds))
    ratios = [p / m for p, m in zip(predicted, measured, strict=True)]
    title = " ".join([name, *(f"{key} {value}" for key, value in settings.items())])
    print_row(title, median_spread(predicted, 0), median_spread(measured, 0), median_spread(ratios))
    return abs(median(ratios) - 1) <= MAX_ERROR


def prediction(name: str, settings: dict[str, Any]) -> float:
    """Tokens per second, as the command predicts."""
    out = io.StringIO()
    flags = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    with contextlib.redirect_stdout(out):
        assert command(["cost", name, *flags, "--json"]) == 0
    cost: dict[str, Any] = json.loads(out.getvalue())
    assert cost["predictions"][0]["how"] == "timed", f"{name} was not timed"
    return float(cost["predicted_tokens_per_second"])


def in_parts(name: str, settings: dict[str, Any], longest: float) -> float:
    """Tokens per second from fewer layers and tokens, if a step would take longer than so many seconds."""
    model, usual = preset(name)
    piece = piece_of(model, dataclasses.replace(usual, **settings), BYTE_VOCAB, 0, 0, CostSettings())
    timing = time_steps(piece, CostSettings().machines()[0].flops, longest=longest)
    assert timing is not None, f"{name} cannot be cut so far; try --longest {2 * longest:g}"
    return timing.tokens_per_second


def training(name: str, settings: dict[str, Any], seconds: float) -> float:
    """Tokens per second of the loop. A row has the tokens after a step, and the clock before it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        out = Path(folder) / "run"
        octavo.train(name, "shakespeare", out=str(out), tokenizer="byte", budget=f"{seconds}s", evaluations=1,
                     measure=False, **settings)  # fmt: skip
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    assert len(steps) > 1, f"{seconds} s are too few for {name}: {len(steps)} steps; try --seconds {4 * seconds:g}"
    return float((steps[-1]["tokens"] - steps[0]["tokens"]) / (steps[-1]["seconds"] - steps[0]["seconds"]))


if __name__ == "__main__":
    main()
