"""What `octavo cost` says training takes, beside what it takes: every neural model on this machine, at two sizes.

Prediction and training take turns, so that a busy spell of the machine meets both. Training is octavo's own loop on
tiny Shakespeare's bytes; its speed is that between its first and its last step, the check at the end left out.

python benchmarks/bench_cost.py                    (a quarter of an hour)
python benchmarks/bench_cost.py --only gpt --size small --rounds 1
python benchmarks/bench_cost.py --size large --longest 0.8     (steps of more than 0.8 s are timed in parts)
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

import octavo
from measure import middle
from octavo.cli import main as command
from octavo.cli.cost_time import Asked, here, piece_of, this_machine
from octavo.models import preset
from octavo.training.step_timing import time_steps

RECURRENT, TRANSFORMER = {"width": 512}, {"width": 256, "layers": 6, "context": 128}
LARGER: dict[str, dict[str, int]] = {
    "rnn": RECURRENT, "gru": RECURRENT, "lstm": RECURRENT, "rnn-attention": {"width": 384},
    "gpt": TRANSFORMER, "local": TRANSFORMER, "linear": TRANSFORMER, "synthesizer": TRANSFORMER,
}  # fmt: skip
BYTES = 257  # and begin
WITHIN = 0.25  # how far off a prediction may be


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(LARGER), choices=list(LARGER))
    parser.add_argument("--size", choices=("small", "large", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=7, help="of training, each time")
    parser.add_argument("--longest", type=float, help="seconds of a step above which parts of it are timed")
    args = parser.parse_args()
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {threads} threads, {args.rounds} rounds of {args.seconds:g} s of training")
    print(f"{'model':<44} {'predicted, tokens/s':>30} {'measured, tokens/s':>30} {'predicted / measured':>24}")
    far = [
        name
        for name in args.only
        for size in ("small", "large")
        if args.size in (size, "both") and not compare(name, LARGER[name] if size == "large" else {}, args)
    ]
    print(f"{len(far)} medians are further off than {WITHIN:.0%}" + (f": {', '.join(far)}" if far else ""))


def compare(name: str, settings: dict[str, int], args: argparse.Namespace) -> bool:
    """One line: medians of both and of their ratio, with the spread; whether the ratio's median is near one."""
    predicted, measured = [], []
    for _ in range(args.rounds):
        predicted.append(prediction(name, settings) if not args.longest else in_parts(name, settings, args.longest))
        measured.append(training(name, settings, args.seconds))
    ratios = [p / m for p, m in zip(predicted, measured, strict=True)]
    title = " ".join([name, *(f"{key} {value}" for key, value in settings.items())])
    print(f"{title:<44} {spread(predicted):>30} {spread(measured):>30} {middle(ratios):>24}", flush=True)
    return abs(statistics.median(ratios) - 1) <= WITHIN


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def prediction(name: str, settings: dict[str, int]) -> float:
    """Tokens a second, as the command tells it."""
    out = io.StringIO()
    flags = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    with contextlib.redirect_stdout(out):
        assert command(["cost", name, *flags, "--json"]) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    assert found["predictions"][0]["how"] == "timed", f"{name} was not timed"
    return float(found["predicted_tokens_per_second"])


def in_parts(name: str, settings: dict[str, int], longest: float) -> float:
    """Tokens a second from fewer layers and tokens, if a step would take longer than so many seconds."""
    model, usual = preset(name)
    piece = piece_of(model, dataclasses.replace(usual, **settings), BYTES, 0, 0, Asked())
    found = time_steps(piece, this_machine(Asked()).flops, here(), longest)
    assert found is not None, f"{name} cannot be cut so far; try --longest {2 * longest:g}"
    return found.tokens_per_second


def training(name: str, settings: dict[str, int], seconds: float) -> float:
    """Tokens a second of the loop. A row has the tokens after a step, and the clock before it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        out = Path(folder) / "run"
        octavo.train(name, "shakespeare", out=str(out), tokenizer="byte", budget=f"{seconds}s", checks=1,
                     measure=False, **settings)  # fmt: skip
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    assert len(steps) > 1, f"{seconds} s are too few for {name}: {len(steps)} steps; try --seconds {4 * seconds:g}"
    return float((steps[-1]["tokens"] - steps[0]["tokens"]) / (steps[-1]["seconds"] - steps[0]["seconds"]))


if __name__ == "__main__":
    main()
