"""Transformers beside nanoGPT, in one run: its own recipe for a CPU, and GPT-2's shape on a GPU.

The peer is nanoGPT's model in the loop that its README gives (clone it yourself): on a CPU 4 layers, 4 heads, width
128, context 64, batch 12, 2,000 steps, AdamW at 0.001 falling to a tenth, no dropout. Its validation loss is that of
the whole last tenth of tiny Shakespeare in windows of 64. Ours is given in the same windows, each from nothing, and as
octavo counts, with the state carried.

python benchmarks/bench_gpt.py --nanogpt PATH --speed      (a minute)
python benchmarks/bench_gpt.py --nanogpt PATH --quality    (five minutes: its 2,000 steps, then our model for that time,
                                                            for a third of it and for a sixth)
python benchmarks/bench_gpt.py --nanogpt PATH --gpu        (two minutes on an H200: GPT-2 124M in bfloat16)
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import octavo
from octavo.core import seeded_generator
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.text import open_corpus
from octavo.training.loss import NextToken
from octavo.training.optimizer import OptimizerConfig, Optimizers, gradient_norm

BATCH, CONTEXT, STEPS = 12, 64, 2000
SHAPE = {"width": 128, "layers": 4, "heads": 4, "context": CONTEXT}
GPT2 = {"positions": "learned", "norm": "layer", "feed_forward": "gelu", "qk_norm": False, "init": "gpt2"}
ROUNDS = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="a clone of nanoGPT")
    for part in ("speed", "quality", "gpu"):
        parser.add_argument(f"--{part}", action="store_true")
    args = parser.parse_args()
    sys.path.insert(0, str(args.nanogpt))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if args.speed:
        speed()
    if args.quality:
        quality()
    if args.gpu:
        if not torch.cuda.is_available():
            sys.exit("this part of the benchmark needs a CUDA GPU, and there is none here")
        gpu()


# ---------------------------------------------------------------------- one step of each


def peer_step(device: str, batch: int, context: int, vocab: int, compiled: bool, **shape: int) -> Callable[[], None]:
    """nanoGPT's model, one step of its loop on random tokens."""
    import model as nanogpt  # type: ignore[import-not-found]

    with contextlib.redirect_stdout(io.StringIO()):
        model = nanogpt.GPT(
            nanogpt.GPTConfig(block_size=context, vocab_size=vocab, dropout=0.0, bias=False, **shape)
        ).to(device)
        optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), device)
    model = torch.compile(model) if compiled else model
    x_BT = torch.randint(0, vocab, (batch, context + 1), device=device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            _, loss = model(x_BT[:, :-1].contiguous(), x_BT[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def our_step(
    device: str, batch: int, config: GPTConfig, vocab: int, optimizer: str, low: bool, compiled: bool = False
) -> Callable[[], None]:
    """Our model, one step as the loop does it, on random tokens, each window from nothing as the peer's."""
    model = GPT(config, vocab)
    model.initialise(seeded_generator(0))
    model = model.to(device)
    optimizers = Optimizers(model, OptimizerConfig(optimizer=optimizer))  # type: ignore[arg-type]
    objective: Any = torch.compile(NextToken(model), dynamic=False) if compiled else NextToken(model)
    x_BT = torch.randint(0, vocab - 1, (batch, config.context + 1), device=device)

    def step() -> None:
        optimizers.zero()
        with torch.autocast(device, torch.bfloat16, enabled=low):
            nats, _ = objective(model.start(batch), x_BT)
        (nats / (batch * config.context)).backward()
        gradient_norm(model, 1.0)
        optimizers.step(0.5, 1.0)

    return step


def take_turns(ways: dict[str, Callable[[], None]], tokens: int, rounds: int) -> None:
    """Tokens a second of each, median and spread; in turns, so that a busy spell of the machine meets all."""
    for step in ways.values():
        for _ in range(3):
            step()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, step in ways.items():
            _finish()
            began = time.perf_counter()
            step()
            _finish()
            seconds[name].append(time.perf_counter() - began)
    for name, times in seconds.items():
        middle, low, high = (tokens / q for q in (statistics.median(times), max(times), min(times)))
        print(f"  {name:42s} {middle:10,.0f} tokens/s  ({low:,.0f} to {high:,.0f})", flush=True)


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def speed() -> None:
    print(f"\ntraining, CPU, {SHAPE}, batch {BATCH}")
    config = GPTConfig(**SHAPE)
    take_turns({
        "nanoGPT, float32, AdamW": peer_step("cpu", BATCH, CONTEXT, 65, False, n_layer=4, n_head=4, n_embd=128),
        "octavo, float32, AdamW": our_step("cpu", BATCH, config, 257, "adamw", False),
        "octavo, bfloat16 products, AdamW": our_step("cpu", BATCH, config, 257, "adamw", True),
        "octavo, bfloat16 products, Muon (default)": our_step("cpu", BATCH, config, 257, "muon", True),
    }, BATCH * CONTEXT, ROUNDS)  # fmt: skip


def gpu() -> None:
    torch.set_float32_matmul_precision("high")
    config = GPTConfig(width=768, layers=12, heads=12, context=1024, **GPT2)  # type: ignore[arg-type]
    for batch in (12, 64):
        print(f"\ntraining, {torch.cuda.get_device_name()}, GPT-2 124M, bfloat16, context 1,024, batch {batch}")
        ways = {
            "nanoGPT, compiled": peer_step("cuda", batch, 1024, 50304, True, n_layer=12, n_head=12, n_embd=768),
            "octavo, --compile on": our_step("cuda", batch, config, 50304, "adamw", True, True),
        }
        take_turns(ways, batch * 1024, 10)
        torch._dynamo.reset()


# ---------------------------------------------------------------------- what a minute and a half reaches


def quality() -> None:
    corpus = open_corpus("shakespeare")
    train, valid = (
        np.frombuffer(b"".join(block.data for block in part.chunks()), np.uint8)
        for part in (corpus.train, corpus.valid)
    )
    theirs, seconds = peer_trained(train, valid)
    print(f"\nnanoGPT, {STEPS} steps: {theirs:.4f} nats in windows of {CONTEXT}, after {seconds:.1f} s")
    ways = {"octavo": {}, "octavo, each window by itself (--stride 32)": {"stride": CONTEXT // 2}}
    for name, settings in ways.items():
        for part in (1, 3, 6):
            with contextlib.redirect_stderr(io.StringIO()):
                budget = f"{seconds / part:.2f}s"
                run = octavo.train("gpt", "shakespeare", **SHAPE, **settings, budget=budget, checks=1, device="cpu")
            in_windows = loss_in_windows(run.model, valid)
            as_octavo_counts = run.record["result"]["bits_per_byte"] * math.log(2)
            print(
                f"{name}, after {run.record['train_seconds']:.1f} s: {in_windows:.4f} nats in windows of {CONTEXT}, "
                f"{as_octavo_counts:.4f} with: {run.model.context_policy} ({run.record['train_tokens']:,} tokens)",
                flush=True,
            )  # fmt: skip


def peer_trained(train: Any, valid: Any) -> tuple[float, float]:
    """nanoGPT's loss after its CPU recipe, and the seconds of its steps."""
    import model as nanogpt  # type: ignore[import-not-found]

    torch.manual_seed(1337)
    letters = np.unique(train)
    ids = np.zeros(256, np.int64)
    ids[letters] = np.arange(len(letters))
    with contextlib.redirect_stdout(io.StringIO()):
        model = nanogpt.GPT(nanogpt.GPTConfig(
            block_size=CONTEXT, vocab_size=len(letters), n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False
        ))  # fmt: skip
        optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    x_N = torch.from_numpy(ids[train])
    began = time.perf_counter()
    for step in range(STEPS):
        warm, done = step / 100, (step - 100) / (STEPS - 100)
        rate = 1e-3 * warm if warm < 1 else 1e-4 + 0.5 * (1 + math.cos(math.pi * done)) * 9e-4
        for group in optimizer.param_groups:
            group["lr"] = rate
        at_B = torch.randint(len(x_N) - CONTEXT, (BATCH,)).tolist()
        x_BT, y_BT = (torch.stack([x_N[a + more : a + more + CONTEXT] for a in at_B]) for more in (0, 1))
        _, loss = model(x_BT, y_BT)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - began
    model.eval()
    logits = lambda x_BT: model(x_BT, x_BT)[0]  # noqa: E731 - with targets it gives the logits of all places
    return loss_in_windows(logits, ids[valid]), seconds


@torch.no_grad()
def loss_in_windows(logits_of: Callable[[torch.Tensor], torch.Tensor], valid: Any) -> float:
    """Nats a token over the whole split, cut into windows of 64 that are read from nothing; the rest is left out."""
    x_N = torch.from_numpy(np.asarray(valid, np.int64))
    rows = (len(x_N) - 1) // CONTEXT
    x_RT, y_RT = (x_N[more : more + rows * CONTEXT].view(rows, CONTEXT) for more in (0, 1))
    nats = 0.0
    for x_BT, y_BT in zip(x_RT.split(64), y_RT.split(64), strict=True):
        logits_BTV = logits_of(x_BT).float()
        nats += float(torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), y_BT.flatten(), reduction="sum"))
    return nats / (rows * CONTEXT)


if __name__ == "__main__":
    main()
