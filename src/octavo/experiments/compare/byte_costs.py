"""The cost in bits of each byte of a text, and the confidence interval of their mean.

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
from scipy.special import stdtrit

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.scoring.bits_per_byte import Score, score_text
from octavo.tasks.run import Run
from octavo.text import Split, Tokenizer, Tokens

MAX_BLOCKS = 40
MIN_BLOCK_BYTES = 16
CONFIDENCE = 0.95


class ByteCosts:
    """Spreads the bits of tokens evenly over the bytes that they stand for, window by window of `score_text`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.lengths: dict[int, int] = {}
        self.parts: list[NDArray[np.float64]] = []
        self.carried = 0.0  # bits of tokens without bytes, which are added to the next byte

    def __call__(self, tokens_W: Tokens, bits_W: NDArray[Any]) -> None:
        length_W = self._lengths(tokens_W)
        empty_W = np.where(length_W == 0, bits_W, 0.0)
        if empty_W.any() or self.carried:
            bits_W = self._carry(bits_W, length_W)
        some_W = length_W > 0
        self.parts.append(np.repeat(bits_W[some_W] / length_W[some_W], length_W[some_W]))

    def _carry(self, bits_W: NDArray[Any], length_W: NDArray[np.int64]) -> NDArray[Any]:
        """The bits with those of tokens without bytes added to the next token that has some."""
        carried_W = np.array(bits_W)
        for i, (bits, length) in enumerate(zip(bits_W.tolist(), length_W.tolist(), strict=True)):
            carried_W[i] = bits + self.carried if length else 0.0
            self.carried = 0.0 if length else self.carried + bits
        return carried_W

    def _lengths(self, tokens_W: Tokens) -> NDArray[np.int64]:
        unique, where_W = np.unique(tokens_W, return_inverse=True)
        for token in unique.tolist():
            if token not in self.lengths:
                self.lengths[token] = 0 if token == self.tokenizer.begin else len(self.tokenizer.spelling(token))
        return np.array([self.lengths[token] for token in unique.tolist()], np.int64)[where_W]

    def bits_of_bytes(self) -> NDArray[np.float64]:
        """The bits of every byte."""
        bits_N = np.concatenate([np.zeros(0), *self.parts])
        if self.carried and len(bits_N):
            bits_N[-1] += self.carried
        return bits_N


def score_bytes(
    model: LanguageModel[Any], tokenizer: Tokenizer, text: Split, name: str
) -> tuple[Score, NDArray[np.float64]]:
    """The score of a text, and the bits of each byte of it; a tokenizer that loses information is refused."""
    if not tokenizer.lossless:
        raise UserError(
            f"the tokenizer {tokenizer.name} loses some of the text, so its tokens do not cover the bytes; "
            "name runs with the tokenizer byte, char, word or bpe"
        )
    costs = ByteCosts(tokenizer)
    score = score_text(model, tokenizer, text, name, watch=costs)
    bits_N = costs.bits_of_bytes()
    if len(bits_N) != text.size:
        raise UserError(
            f"a score is of all bytes of a text: it has {text.size:,}, and its tokens ({tokenizer.name}) spell "
            f"{len(bits_N):,}; leave this model out"
        )
    return score, bits_N


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
