"""What tests of comparisons have in common."""

from __future__ import annotations

import io
from typing import Any

from octavo.config import plain_json
from octavo.experiments.compare import Comparison
from octavo.experiments.progress import Progress

MEASURED_TIMES = ("seconds", "score_rate", "generation_rate", "memory", "best", "dominated")


def quiet() -> Progress:
    return Progress(io.StringIO())


def untimed(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """The rows without what a clock has measured."""
    rows = {row.model: plain_json(row) for row in comparison}
    return {model: {key: row[key] for key in row if key not in MEASURED_TIMES} for model, row in rows.items()}
