"""The byte costs of a run: scored, saved, and the confidence interval of their mean. N bytes of the text."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.scoring.bits_per_byte import Score, score_bytes
from octavo.tasks.run import Run
from octavo.text import Split

MAX_BLOCKS = 40
MIN_BLOCK_BYTES = 16
CONFIDENCE = 0.95


def score_run(run: Run, text: Split, name: str) -> tuple[Score, NDArray[np.float64]]:
    """The score of a run that may be compared with others."""
    if not run.comparable:
        raise UserError(
            f"only models that can restore every byte are compared, and {run.name} loses some: its tokenizer is "
            f"{run.tokenizer.name}, its preprocessing {' '.join(run.record.get('preprocess', ())) or 'none'}; "
            "leave it out, or train one with a lossless tokenizer"
        )
    score, bits_N = score_bytes(run.model, run.tokenizer, text, name)
    if math.isnan(score.bits):
        raise UserError(f"{run.name} gives probabilities that are not numbers; train it with a lower learning rate")
    return score, bits_N


def save_byte_costs(bits_N: NDArray[np.float64], path: Path) -> None:
    """Write the bits of every byte as a NumPy file, in half precision."""
    data = io.BytesIO()
    np.save(data, bits_N.astype(np.float16))
    with whole_file(path) as file:
        file.write(data.getvalue())


def block_interval(bits_N: NDArray[np.float64]) -> tuple[tuple[float, float] | None, str]:
    """The 95 % confidence interval of the bits per byte, from blocks of equal length, and what it is over.

    Neighbouring bytes are not independent, blocks nearly are. The interval says how far another text of the same kind
    may lie from this one, not how far another training run may.
    """
    count = min(MAX_BLOCKS, len(bits_N) // MIN_BLOCK_BYTES)
    if count < 2 or not np.isfinite(bits_N).all():
        return None, ""
    means = [float(block.mean()) for block in np.array_split(bits_N, count)]
    return t_interval(means), f"over {count} blocks of the text"


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's confidence interval of the mean."""
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    half = quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return mean - half, mean + half
