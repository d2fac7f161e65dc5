"""What tests/training/test_distributed.py has two nodes do, one process each, one thing after the other."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

import octavo
from octavo.training.loop import Loop

SETTINGS: dict[str, Any] = {
    "width": 16, "layers": 1, "batch_size": 4, "sequence_length": 8, "budget": "20steps", "evaluations": 3,
    "checkpoint_seconds": 0.0,
    "precision": "float32", "measure": False,
}  # fmt: skip
# The features are weights that are not learnt. Matrices of one shape are orthogonalised in bfloat16, which rounds a
# gated layer's differences up to more than CLOSE.
GPT: dict[str, Any] = {"heads": 2, "attention": "linear", "features": "random", "feed_forward": "relu2"}


class StoppedError(Exception):
    """Training was cut off."""


def cut_off(where: int, train: Any, *arguments: Any, **settings: Any) -> None:
    """Train, and fall over at a step."""
    step = Loop.step

    def falls(loop: Loop, spent: float) -> None:
        if loop.position.step == where:
            raise StoppedError
        step(loop, spent)

    Loop.step = falls  # type: ignore[method-assign]
    try:
        train(*arguments, **settings)
    except StoppedError:
        return
    finally:
        Loop.step = step  # type: ignore[method-assign]


if __name__ == "__main__":
    text, folder = Path(sys.argv[1]), Path(sys.argv[2])

    assert os.environ["GROUP_WORLD_SIZE"] == "2", "there must be two nodes, not two processes of one"
    dist.init_process_group("gloo")
    octavo.train("gru", text, out=folder / "two", **SETTINGS)
    for name in ("two-dropped", "two-dropped-again"):
        octavo.train("gru", text, out=folder / name, **SETTINGS, dropout=0.3)
    octavo.train("lstm", text, out=folder / "pieces", **SETTINGS, accumulate=2)
    for optimizer in ("adamw", "muon"):
        octavo.train(
            "gru", text, out=folder / f"shards-{optimizer}", **SETTINGS, optimizer=optimizer, shard=True, ema=0.5
        )
    octavo.train("gpt", text, out=folder / "two-gpt", **SETTINGS, **GPT, accumulate=2)
    octavo.train("gpt", text, out=folder / "shards-gpt", **SETTINGS, **GPT, shard=True)
    cut_off(11, octavo.train, "gru", text, out=folder / "two-then-one", **SETTINGS)
    cut_off(11, octavo.train, "gru", text, out=folder / "shards-then-one", **SETTINGS, shard=True)
    octavo.resume(folder / "one-then-two", measure=False)
    octavo.resume(folder / "one-then-shards", measure=False)
    dist.barrier()
    dist.destroy_process_group()
