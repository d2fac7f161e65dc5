"""Recurrent networks on tiny Shakespeare: speed beside a plain torch loop, and the score after 180 s of training.

The peer is what one writes first: torch.nn.GRU or LSTM, 2 layers of 256, Adam at 0.002, gradients clipped at 1, the
state carried from window to window; the same batch and window, float32. Its model is scored as ours is, on the whole
last tenth of the text with the state carried.

python benchmarks/bench_recurrent.py --speed             (a minute: tokens a second, checkpoints, resuming)
python benchmarks/bench_recurrent.py --quality           (a quarter of an hour: 180 s of training each, and the mixture)
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from measure import (
    median_spread,
    octavo_command,
    parser,
    print_header,
    print_machine,
    print_row,
    rates,
    run_command,
    time_rounds,
)
from octavo.core import seeded_generator
from octavo.costs.roofline import matmul_rate
from octavo.models import MODELS
from octavo.models.recurrent import RecurrentConfig
from octavo.text import learn_and_tokenize, open_corpus
from octavo.text.validation_chunks import hold_out
from octavo.training.distributed import Team
from octavo.training.language_stage import Streams, TrainingText, language_stage
from octavo.training.loop import Loop
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

VOCAB, WIDTH, LAYERS, BATCH, WINDOW = 257, 256, 2, 128, 32
ROUNDS, STEPS = 7, 4
BUDGET_SECONDS = 180.0
SHAPES = (("gru", 128, 32), ("lstm", 128, 32), ("rnn", 128, 32), ("gru", 32, 128), ("lstm", 32, 128))
CPU = torch.device("cpu")


class Plain(nn.Module):
    """torch.nn.GRU or LSTM between an embedding and a linear layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.recurrent = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[kind](WIDTH, WIDTH, LAYERS)
        self.output = nn.Linear(WIDTH, VOCAB)
        self.optimizer = torch.optim.Adam(self.parameters(), 0.002)
        self.state: Any = None

    def forward(self, x_TB: Tensor) -> Tensor:
        h_TBD, self.state = self.recurrent(self.embedding(x_TB), self.state)
        logits_TBV: Tensor = self.output(h_TBD)
        return logits_TBV

    def step(self, x_BT: Tensor, fresh: bool) -> None:
        """One window."""
        x_TB = x_BT.t()
        if fresh or self.state is None:
            self.state = None
        elif isinstance(self.state, tuple):
            self.state = tuple(part.detach() for part in self.state)
        else:
            self.state = self.state.detach()
        loss = F.cross_entropy(self(x_TB[:-1]).flatten(0, 1), x_TB[1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        self.optimizer.step()

    @torch.no_grad()
    def bits_per_byte(self, x_N: Tensor) -> float:
        """Of a text that begins with the begin token, with the state carried."""
        self.state, nats = None, 0.0
        for start in range(0, len(x_N) - 1, 4096):
            x_T = x_N[start : start + 4097]
            nats += float(F.cross_entropy(self(x_T[:-1, None]).flatten(0, 1).double(), x_T[1:], reduction="sum"))
        return nats / math.log(2) / (len(x_N) - 1)


def streams(batch: int, window: int) -> Streams:
    corpus = open_corpus("shakespeare", errors="raw")
    _, store = learn_and_tokenize("byte", corpus)
    return Streams(hold_out(store.tokens, VOCAB - 1).train_N, VOCAB - 1, batch, window, 0)


def ours(kind: str, text: Streams, precision: Any = "auto", optimizer: Any = "muon") -> Loop:
    model: Any = MODELS[kind].model(RecurrentConfig(), VOCAB)
    model.initialise(seeded_generator(0))
    config = LoopConfig(batch_size=text.batch_size, sequence_length=text.sequence_length, precision=precision)
    chunks = torch.empty(0, 0, dtype=torch.int64)
    optimizer_config = OptimizerConfig(optimizer=optimizer)
    stage = language_stage(model, TrainingText(text, chunks, 1, 1.0), optimizer_config, config.budget)
    return Loop(stage, config, Team(0, 1, CPU), 0, quiet=True)


def speed() -> None:
    """Training steps of the plain loop, of octavo's default, and of octavo with the plain loop's settings."""
    flops = {
        name: matmul_rate(CPU, dtype) for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    }
    print(f"{LAYERS} layers of {WIDTH}; median (spread) of {ROUNDS} rounds of {STEPS} steps")
    print(
        f"products of large matrices: {', '.join(f'{name} {rate / 1e9:.0f} GFLOP/s' for name, rate in flops.items())}\n"
    )
    print_header("model", "batch x window", "", "tokens/s", "times plain torch", "of the machine's products")
    for kind, batch, window in SHAPES:
        text, numbers, plain = streams(batch, window), count(), Plain(kind)
        auto, same = ours(kind, text), ours(kind, text, "float32", "adamw")

        def plain_step(plain: Plain = plain, text: Streams = text, numbers: Any = numbers) -> None:
            batch = text.at(next(numbers))
            plain.step(batch.x_BT, batch.fresh)

        low = "bfloat16" if auto.precision.low else "float32"
        steps = {
            ("plain torch", "float32"): plain_step,
            ("octavo", low): lambda auto=auto: auto.step(0.5),
            ("octavo, float32 and AdamW", "float32"): lambda same=same: same.step(0.5),
        }
        seconds = time_rounds({name: step for (name, _), step in steps.items()}, ROUNDS, STEPS)
        speeds = {name: rates(batch * window, each) for name, each in seconds.items()}
        for name, dtype in steps:
            share = f"{median(speeds[name]) * 3 * auto.stage.flops_per_example / flops[dtype]:.0%} in {dtype}"
            ratio = f"{median(speeds[name]) / median(speeds['plain torch']):.2f}"
            print_row(kind, f"{batch} x {window}", name, median_spread(speeds[name], 0), ratio, share)


def checkpoints() -> None:
    """What saving a checkpoint costs, and how long it takes to resume a killed run."""
    with tempfile.TemporaryDirectory() as folder:
        loop = ours("gru", streams(BATCH, WINDOW))
        loop.folder, loop.best = Path(folder), {name: p.detach().clone() for name, p in loop.tensors.items()}
        loop.step(0.5)
        seconds, interval = time_rounds({"save": loop._save}, 9)["save"], LoopConfig().checkpoint_seconds
        times = median_spread([1e3 * each for each in seconds], 0)
        print(
            f"\ncheckpoint of the gru: {times} ms, every {interval:.0f} s: {median(seconds) / interval:.2%} of the time"
        )
        out = Path(folder, "gru")
        flags = ("--budget", "20s", "--checkpoint-seconds", "1", "--no-measure", "--force", "--out", out)
        process = subprocess.Popen(octavo_command("train", "gru", "shakespeare", *flags), stderr=subprocess.DEVNULL)
        log = out / "metrics.jsonl"
        while process.poll() is None and not log.exists():
            time.sleep(0.1)
        time.sleep(5)  # of training
        process.kill()
        process.wait()
        least, began = log.stat().st_size, time.perf_counter()
        process = subprocess.Popen(octavo_command("resume", out), stderr=subprocess.DEVNULL)
        while process.poll() is None and log.stat().st_size <= least:  # resuming first truncates it
            least = min(least, log.stat().st_size)
            time.sleep(0.01)
        print(f"resume, from the command to its first step: {time.perf_counter() - began:.1f} s", flush=True)
        process.kill()
        process.wait()


def quality(kinds: list[str]) -> None:
    """Bits per byte after 180 s of training each, ours by the command line, and of the mixture with the 7-gram."""
    corpus = open_corpus("shakespeare", errors="raw")
    valid_N = torch.from_numpy(np.frombuffer(b"\0" + corpus.valid.read(), np.uint8).astype(np.int64))
    valid_N[0] = VOCAB - 1
    print_header("", "bits/byte", "seconds", "")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        for kind in kinds:
            record = train_octavo(
                kind, "--tokenizer", "byte", "--budget", f"{BUDGET_SECONDS:g}s", "--out", Path(folder, kind)
            )
            print_row(f"octavo {kind}", f"{record['bits_per_byte']:.4f}", f"{record['train_seconds']:.0f}", "")
            if kind == kinds[0]:
                ngram, network = Path(folder, "ngram"), Path(folder, kind)
                record = train_octavo("ngram", "--order", "7", "--out", ngram)
                print_row("7-gram", f"{record['bits_per_byte']:.4f}", f"{record['train_seconds']:.1f}", "")
                record = train_octavo("mix", "--parts", ngram, network, "--out", Path(folder, "mix"))
                total = f"{time.perf_counter() - began:.0f}"
                print_row("mixture of both, all commands included", f"{record['bits_per_byte']:.4f}", total, "")
        for kind in kinds:
            plain = Plain(kind)
            whole = Streams(learn_and_tokenize("byte", corpus)[1].tokens, VOCAB - 1, 32, 128, 0)
            began, step = time.perf_counter(), 0
            while time.perf_counter() - began < BUDGET_SECONDS:
                window = whole.at(step)
                plain.step(window.x_BT, window.fresh)
                step += 1
            details = f"batch 32, window 128, {step:,} steps, {step * 32 * 128 / BUDGET_SECONDS:,.0f} tokens/s"
            print_row(f"plain {kind}", f"{plain.bits_per_byte(valid_N):.4f}", f"{BUDGET_SECONDS:.0f}", details)


def train_octavo(model: str, *flags: str | Path) -> dict[str, Any]:
    """The result of a training command on tiny Shakespeare."""
    record: dict[str, Any] = json.loads(
        run_command(octavo_command("train", model, "shakespeare", *flags, "--json")).output
    )
    return record


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--speed", action="store_true")
    arguments.add_argument("--quality", action="store_true")
    arguments.add_argument("--kinds", nargs="+", default=["gru", "lstm"])
    args = arguments.parse_args()
    print_machine()
    if args.speed or not args.quality:
        speed()
        checkpoints()
    if args.quality or not args.speed:
        quality(args.kinds)


if __name__ == "__main__":
    main()
