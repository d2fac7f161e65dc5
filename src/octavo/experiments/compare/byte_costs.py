"""What each byte of the held-out text costs a model, scored once and kept, and how sure the mean is.

N bytes of the text, W tokens of a window.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.scoring.bits_per_byte import Score, score_text
from octavo.scoring.parallel import charges_in_pieces, policy_in_pieces
from octavo.tasks.run import Run
from octavo.text import Split, Tokenizer, Tokens

BLOCKS = 40
SURE = 0.95
GRID = 100_000  # steps of the angle that a quantile of Student's t is found with
SMALLEST_BLOCK = 16  # bytes


class ByBytes:
    """Lays the bits of tokens evenly over the bytes that they stand for, as `score_text` comes by."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.lengths: dict[int, int] = {}
        self.parts: list[NDArray[np.float32]] = []
        self.owed = 0.0  # bits of tokens without bytes, which the next byte pays

    def __call__(self, tokens_W: Tokens, bits_W: NDArray[Any]) -> None:
        length_W = self._lengths(tokens_W)
        owed_W = np.where(length_W == 0, bits_W, 0.0)
        if owed_W.any() or self.owed:
            bits_W = self._passed_on(bits_W, length_W)
        some_W = length_W > 0
        each = bits_W[some_W] / length_W[some_W]
        self.parts.append(np.repeat(each, length_W[some_W]).astype(np.float32))

    def _passed_on(self, bits_W: NDArray[Any], length_W: NDArray[np.int64]) -> NDArray[Any]:
        """The bits with those of tokens without bytes added to the next token that has some."""
        paid_W = np.array(bits_W)
        for i, (bits, length) in enumerate(zip(bits_W.tolist(), length_W.tolist(), strict=True)):
            paid_W[i] = bits + self.owed if length else 0.0
            self.owed = 0.0 if length else self.owed + bits
        return paid_W

    def _lengths(self, tokens_W: Tokens) -> NDArray[np.int64]:
        unique, where_W = np.unique(tokens_W, return_inverse=True)
        for token in unique.tolist():
            if token not in self.lengths:
                self.lengths[token] = 0 if token == self.tokenizer.begin else len(self.tokenizer.spelling(token))
        return np.array([self.lengths[token] for token in unique.tolist()], np.int64)[where_W]

    def laid_out(self) -> NDArray[np.float32]:
        """The bits of every byte."""
        bits_N = np.concatenate([np.zeros(0, np.float32), *self.parts])
        if self.owed and len(bits_N):
            bits_N[-1] += self.owed
        return bits_N


def score_bytes(run: Run, text: Split, name: str) -> tuple[Score, NDArray[np.float32]]:
    """What the run's model pays for the text, and for each byte of it; what loses information is refused."""
    if not run.comparable:
        raise UserError(
            f"only models that can give every byte back are compared, and {run.name} loses some: its tokenizer is "
            f"{run.tokenizer.name}, its preprocessing {' '.join(run.record.get('preprocess', ())) or 'none'}; "
            "leave it out, or train one with a lossless tokenizer"
        )
    by_bytes = ByBytes(run.tokenizer)
    score = score_text(run.model, run.tokenizer, text, name, watch=by_bytes, read=charges_in_pieces)
    score.policy = policy_in_pieces(run.model)
    bits_N = by_bytes.laid_out()
    if len(bits_N) != text.size:
        raise UserError(
            f"all models must be charged for the same bytes: the text has {text.size:,}, and the tokens of {run.name} "
            f"spell {len(bits_N):,}; leave it out"
        )
    if math.isnan(score.bits):
        raise UserError(
            f"{run.name} gives probabilities that are not numbers; train it again with a lower --learning-rate"
        )
    return score, bits_N


def keep(bits_N: NDArray[np.float32], path: Path) -> None:
    """Write the bits of every byte, in half precision, which NumPy reads."""
    data = io.BytesIO()
    np.save(data, bits_N.astype(np.float16))
    with whole_file(path) as file:
        file.write(data.getvalue())


def kept(path: Path) -> NDArray[np.float32]:
    """What `keep` wrote."""
    try:
        read: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged: {error}; delete its folder and compare again") from error
    return read.astype(np.float32)


def over_blocks(bits_N: NDArray[np.float32]) -> tuple[tuple[float, float] | None, str]:
    """The 95 % interval of the bits per byte, from blocks of equal length, and what it is over.

    Neighbouring bytes are not independent, blocks nearly are. The interval says how far another text of the same kind
    may lie from this one, not how far another training run may.
    """
    count = min(BLOCKS, len(bits_N) // SMALLEST_BLOCK)
    if count < 2 or not np.isfinite(bits_N).all():
        return None, ""
    means = [float(block.mean(dtype=np.float64)) for block in np.array_split(bits_N, count)]
    return t_interval(means), f"over {count} blocks of the text"


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the mean of what the values were drawn from lies, with 95 % confidence, by Student's t."""
    half = t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return mean - half, mean + half


def t_quantile(freedom: int, sure: float = SURE) -> float:
    """Between minus and plus this lies the share `sure` of Student's t.

    With t = sqrt(f) tan a, the density of the angle a is proportional to cos(a) to the power f - 1.
    """
    step = math.pi / 2 / GRID
    middle = (np.arange(GRID) + 0.5) * step
    share = np.cumsum(np.cos(middle) ** (freedom - 1))
    angle = np.interp(sure, share / share[-1], middle + step / 2)
    return math.sqrt(freedom) * math.tan(float(angle))
