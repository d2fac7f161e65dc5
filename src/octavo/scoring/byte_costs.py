"""The cost in bits of each byte of a text. N bytes of the text, W tokens that were scored together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.scoring.bits_per_byte import Score, score_text
from octavo.text import Split, Tokenizer, Tokens


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
                self.lengths[token] = 0 if token == self.tokenizer.begin else len(self.tokenizer.token_bytes(token))
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
