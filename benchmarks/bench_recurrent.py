"""Recurrent networks on tiny Shakespeare: speed beside a plain torch loop, and what three minutes of training reach.

The peer is what one writes first: torch.nn.GRU or LSTM, 2 layers of 256, Adam at 0.002, gradients clipped at 1, the
state carried from window to window; the same batch and window, float32. Its model is scored as ours is, on the whole
last tenth of the text with the state carried.

python benchmarks/bench_recurrent.py --speed             (a minute: tokens a second, checkpoints, resuming)
python benchmarks/bench_recurrent.py --quality           (a quarter of an hour: 180 s of training each, and the mixture)
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from measure import octavo as command
from octavo.core import seeded_generator
from octavo.models import MODELS
from octavo.models.recurrent import RecurrentConfig
from octavo.text import learn_and_tokenize, open_corpus
from octavo.text.validation_chunks import hold_out
from octavo.training.distributed import Team
from octavo.training.loop import Loop
from octavo.training.loop_config import LoopConfig
from octavo.training.loss import TrainingText, language_stage
from octavo.training.metrics_log import matmul_rate
from octavo.training.optimizer import OptimizerConfig
from octavo.training.streams import Streams

VOCAB, WIDTH, LAYERS, BATCH, WINDOW = 257, 256, 2, 128, 32
ROUNDS, STEPS = 7, 4
BUDGET = 180.0
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
        """Of a text, begin in front of it, with the state carried."""
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
    model = MODELS[kind].model(RecurrentConfig(), VOCAB)
    model.initialise(seeded_generator(0))
    config = LoopConfig(batch_size=text.batch_size, sequence_length=text.sequence_length, precision=precision)
    chunks = torch.empty(0, 0, dtype=torch.int64)
    optimizer_config = OptimizerConfig(optimizer=optimizer)
    stage = language_stage(model, TrainingText(text, chunks, 1, 1.0), optimizer_config, config.budget)
    return Loop(stage, config, Team(0, 1, CPU), 0, quiet=True)


def speed() -> None:
    """Rounds of a few steps in turn, so that the machine's moods fall on all of them."""
    print(
        f"{LAYERS} layers of {WIDTH}, {torch.get_num_threads()} threads; tokens a second, median (spread) of {ROUNDS}"
    )
    peak = {name: matmul_rate(CPU, dtype) for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))}
    print(f"the machine's products: {', '.join(f'{k} {v / 1e9:.0f} GFLOP/s' for k, v in peak.items())}")
    for kind, batch, window in (
        ("gru", 128, 32),
        ("lstm", 128, 32),
        ("rnn", 128, 32),
        ("gru", 32, 128),
        ("lstm", 32, 128),
    ):
        text = streams(batch, window)
        plain, auto, same = Plain(kind), ours(kind, text), ours(kind, text, "float32", "adamw")
        rivals = {
            "plain torch": lambda i, plain=plain, text=text: plain.step(text.at(i).x_BT, text.at(i).fresh),
            "octavo": lambda i, auto=auto: auto.step(0.5),
            "octavo, float32 and AdamW": lambda i, same=same: same.step(0.5),
        }
        took: dict[str, list[float]] = {name: [] for name in rivals}
        for round_ in range(ROUNDS + 1):
            for name, step in rivals.items():
                began = time.perf_counter()
                for i in range(STEPS):
                    step(round_ * STEPS + i)
                if round_:  # the first is for warming up
                    took[name].append(STEPS * batch * window / (time.perf_counter() - began))
        flops = 3 * auto.model.flops_per_token()
        base = statistics.median(took["plain torch"])
        print(f"\n{kind}, batch {batch}, window {window}")
        for name, values in took.items():
            low = "float32" if "float32" in name or "plain" in name or not auto.precision.low else "bfloat16"
            share, ratio = statistics.median(values) * flops / peak[low], statistics.median(values) / base
            spread = f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
            print(f"  {name:<28}{spread:>34}   {ratio:4.2f} of plain torch, {share:.0%} of {low} products", flush=True)


def checkpoints() -> None:
    """What saving costs, and how long a killed run takes to be back at work."""
    with tempfile.TemporaryDirectory() as folder:
        loop = ours("gru", streams(BATCH, WINDOW))
        loop.folder, loop.best = Path(folder), {name: p.detach().clone() for name, p in loop.named.items()}
        loop.step(0.5)
        saves = []
        for _ in range(9):
            began = time.perf_counter()
            loop._save()
            saves.append(time.perf_counter() - began)
        share = statistics.median(saves) / LoopConfig().checkpoint_seconds
        spread = f"{1e3 * statistics.median(saves):.0f} ms ({1e3 * min(saves):.0f} to {1e3 * max(saves):.0f})"
        print(
            f"\ncheckpoint of the gru: {spread}, every {LoopConfig().checkpoint_seconds:.0f} s: {share:.2%} of the time"
        )
        out = Path(folder, "gru")
        flags = ("--budget", "20s", "--save-every", "1", "--no-measure", "--out", out)
        process = subprocess.Popen(
            list(map(str, command("train", "gru", "shakespeare", *flags))), stderr=subprocess.PIPE
        )
        time.sleep(12)
        process.kill()
        process.wait()
        log = out / "metrics.jsonl"
        least, began = log.stat().st_size, time.perf_counter()
        process = subprocess.Popen(list(map(str, command("resume", out))), stderr=subprocess.DEVNULL)
        while process.poll() is None and log.stat().st_size <= least:  # resuming cuts off what it will write again
            least = min(least, log.stat().st_size)
            time.sleep(0.01)
        print(f"resume, from the command to its first step: {time.perf_counter() - began:.1f} s", flush=True)
        process.kill()
        process.wait()


def quality(kinds: list[str]) -> None:
    """Three minutes of training each, ours by the command line, and the mixture with the 7-gram."""
    corpus = open_corpus("shakespeare", errors="raw")
    valid_N = torch.from_numpy(np.frombuffer(b"\0" + corpus.valid.read(), np.uint8).astype(np.int64))
    valid_N[0] = VOCAB - 1
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        for kind in kinds:
            told = _octavo(
                "train", kind, "shakespeare", "--tokenizer", "byte", "--budget", "180s", "--out", Path(folder, kind)
            )
            print(f"octavo {kind:<6}{told['bits_per_byte']:.4f} bits/byte, {told['train_seconds']:.0f} s", flush=True)
            if kind == kinds[0]:
                kn7 = _octavo("train", "ngram", "shakespeare", "--order", "7", "--out", Path(folder, "kn7"))
                mix = _octavo("train", "mix", "shakespeare", "--parts", Path(folder, "kn7"), Path(folder, kind),
                              "--out", Path(folder, "mix"))  # fmt: skip
                took = f"everything, starts and scoring included: {time.perf_counter() - began:.0f} s"
                both = f"7-gram {kn7['bits_per_byte']:.4f}, mixed with the {kind} {mix['bits_per_byte']:.4f} bits/byte"
                print(f"{both}; {took}", flush=True)
        for kind in kinds:
            plain = Plain(kind)
            whole = Streams(learn_and_tokenize("byte", corpus)[1].tokens, VOCAB - 1, 32, 128, 0)
            began, step = time.perf_counter(), 0
            while time.perf_counter() - began < BUDGET:
                window = whole.at(step)
                plain.step(window.x_BT, window.fresh)
                step += 1
            rate = f"batch 32, window 128, {step:,} steps, {step * 32 * 128 / BUDGET:,.0f} tokens/s"
            print(f"plain  {kind:<6}{plain.bits_per_byte(valid_N):.4f} bits/byte, {rate}", flush=True)


def _octavo(*arguments: str | Path) -> dict[str, Any]:
    done = subprocess.run(list(map(str, command(*arguments, "--json"))), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--kinds", nargs="+", default=["gru", "lstm"])
    args = parser.parse_args()
    if args.speed or not args.quality:
        speed()
        checkpoints()
    if args.quality or not args.speed:
        quality(args.kinds)


if __name__ == "__main__":
    main()
