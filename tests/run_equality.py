"""Two run folders that must be the same to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from octavo.io.run_folder import METRICS, TENSORS
from octavo.training.checkpoint import Checkpoint


def rows(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the clock."""
    found = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in found]


def assert_same(run: Path, other: Path) -> None:
    assert rows(run) == rows(other)
    assert (run / TENSORS).read_bytes() == (other / TENSORS).read_bytes()
    one, two = Checkpoint.load(run), Checkpoint.load(other)
    one.position.seconds = two.position.seconds = one.position.log_bytes = two.position.log_bytes = 0
    assert one.position == two.position
    for kind in one.tensors:
        torch.testing.assert_close(one.tensors[kind], two.tensors[kind], rtol=0, atol=0)
