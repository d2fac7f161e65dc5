"""Transformers beside nanoGPT, in one run: its own recipe for a CPU, and GPT-2's shape on a GPU.

The peer is nanoGPT's model in the loop that its README gives (clone it yourself): on a CPU 4 layers, 4 heads, width
128, context 64, batch 12, 2,000 steps, AdamW at 0.001 falling to a tenth, no dropout. Its validation loss is that of
the whole last tenth of tiny Shakespeare in separate windows of 64. Ours is given in the same windows, and as octavo
scores, with the state carried.

python benchmarks/bench_gpt.py --nanogpt PATH --speed      (a minute)
python benchmarks/bench_gpt.py --nanogpt PATH --quality    (five minutes: its 2,000 steps, then our model for that time,
                                                            for a third of it and for a sixth)
python benchmarks/bench_gpt.py --nanogpt PATH --gpu        (two minutes on an H200: GPT-2 124M in bfloat16)
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import octavo
from measure import median_spread, parser, print_header, print_machine, print_row, rates, require_gpu, time_rounds
from octavo.core import seeded_generator
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.text import open_corpus
from octavo.training.language_stage import NextToken
from octavo.training.optimizer import OptimizerConfig, Optimizers, gradient_norm

BATCH, CONTEXT, STEPS = 12, 64, 2000
SHAPE: dict[str, Any] = {"width": 128, "layers": 4, "heads": 4, "context": CONTEXT}
GPT2: dict[str, Any] = {
    "positions": "learned",
    "norm": "layer",
    "feed_forward": "gelu",
    "qk_norm": False,
    "init": "gpt2",
}
ROUNDS = 40


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--nanogpt", type=Path, required=True, help="a clone of nanoGPT")
    for flag in ("--speed", "--quality", "--gpu"):
        arguments.add_argument(flag, action="store_true")
    args = arguments.parse_args()
    sys.path.insert(0, str(args.nanogpt))
    print_machine()
    if args.speed:
        speed()
    if args.quality:
        quality()
    if args.gpu:
        require_gpu()
        gpu()


# ---------------------------------------------------------------------- training speed


def peer_step(device: str, batch: int, context: int, vocab: int, compiled: bool, **shape: int) -> Callable[[], None]:
    """nanoGPT's model, one step of its loop on random tokens."""
    nanogpt: Any = import_module("model")  # of the clone

    with contextlib.redirect_stdout(io.StringIO()):
        model = nanogpt.GPT(
            nanogpt.GPTConfig(block_size=context, vocab_size=vocab, dropout=0.0, bias=False, **shape)
        ).to(device)
        optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), device)
    objective: Any = torch.compile(model) if compiled else model
    x_BT = torch.randint(0, vocab, (batch, context + 1), device=device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            _, loss = objective(x_BT[:, :-1].contiguous(), x_BT[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def our_step(
    device: str, batch: int, config: GPTConfig, vocab: int, optimizer: Any, low: bool, compiled: bool = False
) -> Callable[[], None]:
    """Our model, one step as the loop does it, on random tokens, without a carried state, as the peer."""
    model = GPT(config, vocab)
    model.initialise(seeded_generator(0))
    model = model.to(device)
    optimizers = Optimizers(model, OptimizerConfig(optimizer=optimizer))
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


def compare(steps: dict[str, Callable[[], None]], tokens: int, rounds: int) -> None:
    """Tokens per second of each training step."""
    print_header("", "tokens/s")
    for name, seconds in time_rounds(steps, rounds, warm_up=3).items():
        print_row(name, median_spread(rates(tokens, seconds), 0))


def speed() -> None:
    print(f"\ntraining, CPU, {SHAPE}, batch {BATCH}\n")
    config = GPTConfig(**SHAPE)
    compare({
        "nanoGPT, float32, AdamW": peer_step("cpu", BATCH, CONTEXT, 65, False, n_layer=4, n_head=4, n_embd=128),
        "octavo, float32, AdamW": our_step("cpu", BATCH, config, 257, "adamw", False),
        "octavo, bfloat16 products, AdamW": our_step("cpu", BATCH, config, 257, "adamw", True),
        "octavo, bfloat16 products, Muon (default)": our_step("cpu", BATCH, config, 257, "muon", True),
    }, BATCH * CONTEXT, ROUNDS)  # fmt: skip


def gpu() -> None:
    torch.set_float32_matmul_precision("high")
    config = GPTConfig(width=768, layers=12, heads=12, context=1024, **GPT2)
    for batch in (12, 64):
        print(f"\ntraining, {torch.cuda.get_device_name()}, GPT-2 124M, bfloat16, context 1,024, batch {batch}\n")
        steps = {
            "nanoGPT, compiled": peer_step("cuda", batch, 1024, 50304, True, n_layer=12, n_head=12, n_embd=768),
            "octavo, --compile on": our_step("cuda", batch, config, 50304, "adamw", True, True),
        }
        compare(steps, batch * 1024, 10)
        torch._dynamo.reset()


# ---------------------------------------------------------------------- loss after the same training time


def quality() -> None:
    corpus = open_corpus("shakespeare")
    train, valid = (
        np.frombuffer(b"".join(block.data for block in part.chunks()), np.uint8)
        for part in (corpus.train, corpus.valid)
    )
    peer_loss, seconds = train_peer(train, valid)
    print(f"\nnats per token on the last tenth, in windows of {CONTEXT} and as octavo scores\n")
    print_header("", "seconds", "tokens", f"in windows of {CONTEXT}", "as octavo scores", "context")
    print_row(f"nanoGPT, {STEPS} steps", f"{seconds:.1f}", f"{STEPS * BATCH * CONTEXT:,}", f"{peer_loss:.4f}", "", "")
    for name, settings in {"octavo": dict[str, Any](), "octavo, separate windows": {"stride": CONTEXT // 2}}.items():
        for part in (1, 3, 6):
            with contextlib.redirect_stderr(io.StringIO()):
                budget = f"{seconds / part:.2f}s"
                run = octavo.train(
                    "gpt", "shakespeare", **SHAPE, **settings, budget=budget, evaluations=1, device="cpu"
                )
            in_windows, record = loss_in_windows(run.model, valid), run.record
            scored = f"{record['result']['bits_per_byte'] * math.log(2):.4f}"
            print_row(name, f"{record['train_seconds']:.1f}", f"{record['train_tokens']:,}", f"{in_windows:.4f}",
                      scored, run.model.context_policy)  # fmt: skip


def train_peer(train: Any, valid: Any) -> tuple[float, float]:
    """nanoGPT's loss after its CPU recipe, and the seconds of its steps."""
    nanogpt: Any = import_module("model")  # of the clone

    torch.manual_seed(1337)
    characters = np.unique(train)
    ids = np.zeros(256, np.int64)
    ids[characters] = np.arange(len(characters))
    with contextlib.redirect_stdout(io.StringIO()):
        model = nanogpt.GPT(nanogpt.GPTConfig(
            block_size=CONTEXT, vocab_size=len(characters), n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False
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
    logits = lambda x_BT: model(x_BT, x_BT)[0]  # noqa: E731 - with targets it gives the logits of all positions
    return loss_in_windows(logits, ids[valid]), seconds


@torch.no_grad()
def loss_in_windows(logits_of: Callable[[torch.Tensor], torch.Tensor], valid: Any) -> float:
    """Nats per token over the whole split, cut into separate windows of 64; an incomplete last one is left out."""
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
