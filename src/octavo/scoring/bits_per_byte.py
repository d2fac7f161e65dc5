"""Bits per byte: the bits of every token, the first one included, over the length of the raw text.

N bytes of a text, W tokens that were scored together.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.config import plain_json
from octavo.core import STATE_CARRIED, LanguageModel
from octavo.errors import UserError
from octavo.io.progress import progress
from octavo.pages.sections import notebook_view, paragraph, table
from octavo.scoring.token_costs import token_costs
from octavo.text import Split, Tokenizer, Tokens
from octavo.text.chunks import rechunk

PASSAGE = 32  # tokens in a passage shown as surprising
PASSAGES = 5
NOT_COMPARABLE = "not comparable"
ADAPTIVE = "adaptive"  # stands beside the number of a model that went on learning while it was scored
OTHER_TEXT = "used other text"  # than the training part: pretrained vectors, for one; it may be the reported text


@dataclass
class Score:
    """The cost of a text under a model."""

    name: str
    bits: float
    bytes: int
    tokens: int
    seconds: float
    impossible: int = 0  # tokens with probability zero: then bits is infinite
    words: int = 0  # of the text; 0 where the tokenizer has no words
    unknown_words: int = 0  # those that had to be spelt out
    policy: str = STATE_CARRIED
    label: str = ""
    rows: list[Score] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    adaptive: bool = False  # whether the model went on learning while it was scored

    def __post_init__(self) -> None:
        if not self.bits >= 0:  # which NaN is not either
            raise UserError(
                f"the bits of a text must be 0 or more: {self.bits:.4g} for {self.name or 'this text'}; the model's "
                "probabilities are wrong"
            )

    @property
    def bits_per_byte(self) -> float:
        return self.bits / self.bytes if self.bytes else math.nan

    @property
    def shown(self) -> str:
        """Bits per byte as tables show them, with the word that must stand beside an adaptive model's."""
        return f"{self.bits_per_byte:.4f}" + (f" {ADAPTIVE}" if self.adaptive else "")

    @property
    def bits_per_token(self) -> float:
        return self.bits / self.tokens if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        """2 to the bits per token; e to the nats per token is the same number."""
        return math.inf if self.bits_per_token > 1023 else 2.0**self.bits_per_token

    @property
    def unknown_rate(self) -> float | None:
        """The share of the words that had to be spelt out."""
        return self.unknown_words / self.words if self.words else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a number that is not finite becomes null."""
        numbers = {key: plain_json(getattr(self, key)) for key in NUMBERS}
        record = {"name": self.name, **numbers, "policy": self.policy, "label": self.label, "adaptive": self.adaptive}
        rows = {"files": [row.to_json() for row in self.rows]} if self.rows else {}
        return record | rows | ({"passages": plain_json(self.passages)} if self.passages else {})

    def __repr__(self) -> str:
        label = "".join(f", {one}" for one in (ADAPTIVE if self.adaptive else "", self.label) if one)
        return f"<octavo score of {self.name}: {self.bits_per_byte:.4f} bits per byte of {self.bytes:,} bytes{label}>"

    def _repr_html_(self) -> str:
        rows = [(s.name, s.shown, f"{s.perplexity:.4g}", f"{s.tokens:,}", f"{s.bytes:,}") for s in (*self.rows, self)]
        columns = ("text", "bits/byte", "perplexity", "tokens", "bytes")
        return notebook_view(table(columns, rows, numeric=range(1, 5)), paragraph(self.label) if self.label else "")


NUMBERS = (
    "bits_per_byte", "bits_per_token", "perplexity", "bits", "bytes", "tokens", "seconds", "impossible", "unknown_rate",
)  # fmt: skip


@dataclass(order=True)
class Passage:
    """Some consecutive tokens and what a byte of them costs."""

    bits_per_byte: float
    text: str
    offset: int  # in bytes, from the start of the text
    name: str = ""  # of the text


def score_text(
    model: LanguageModel[Any], tokenizer: Tokenizer, text: Split, name: str, label: str = "",
    watch: Callable[[Tokens, NDArray[Any]], None] | None = None,
) -> Score:  # fmt: skip
    """The score of a text's documents under a model; `watch` is given the tokens and their bits as they come."""
    bits, tokens, impossible, offset = 0.0, 0, 0, 0
    worst: list[Passage] = []
    began = time.perf_counter()
    with progress(f"scoring {name}", text.size, "bytes") as advance:
        for tokens_W, bits_W in token_costs(model, tokenizer.encode_chunks(text.chunks())):
            bits += float(bits_W.sum())
            tokens += len(tokens_W) - int((tokens_W == model.begin).sum())
            impossible += int(np.isinf(bits_W).sum())
            passages, size = _surprising(tokenizer, tokens_W, bits_W, offset, name)
            worst = heapq.nlargest(PASSAGES, worst + passages)
            offset += size
            if watch is not None:
                watch(tokens_W, bits_W)
            advance(size)
    seconds = time.perf_counter() - began
    unknown, words = _unknown_words(tokenizer, text)
    return Score(
        name, bits, text.size, tokens, seconds, impossible, words, unknown, model.context_policy, label,
        passages=worst, adaptive=model.adaptive,
    )  # fmt: skip


def _unknown_words(tokenizer: Tokenizer, text: Split) -> tuple[int, int]:
    """How many words the vocabulary lacks, and how many words there are."""
    counts = [
        tokenizer.count_unknown(document)
        for block in rechunk(text.chunks(), tokenizer.split_point)
        for document in filter(None, block.documents())  # no word crosses documents
    ]
    return sum(unknown for unknown, _ in counts), sum(words for _, words in counts)


def total(name: str, scores: Iterable[Score], label: str = "") -> Score:
    """The scores of several documents as one."""
    rows = list(scores)
    worst = heapq.nlargest(PASSAGES, (p for row in rows for p in row.passages))
    return Score(
        name, math.fsum(row.bits for row in rows), sum(row.bytes for row in rows), sum(row.tokens for row in rows),
        math.fsum(row.seconds for row in rows), sum(row.impossible for row in rows),
        sum(row.words for row in rows), sum(row.unknown_words for row in rows),
        "; ".join(dict.fromkeys(row.policy for row in rows)), label, rows if len(rows) > 1 else [], worst,
        any(row.adaptive for row in rows),
    )  # fmt: skip


def _surprising(
    tokenizer: Tokenizer, tokens_W: Tokens, bits_W: NDArray[Any], offset: int, name: str
) -> tuple[list[Passage], int]:
    """The window's passages whose bytes cost most, and how many bytes the window has."""
    if not len(tokens_W):
        return [], 0
    starts = np.arange(0, len(tokens_W), PASSAGE)
    bits = np.add.reduceat(bits_W, starts)
    likely = np.sort(np.argsort(-bits, kind="stable")[: 4 * PASSAGES])  # spelling is slow, so only for these
    found, at, before = [], 0, 0
    for i in likely.tolist():
        before += len(tokenizer.decode(tokens_W[at : starts[i]]))
        spelt = tokenizer.decode(tokens_W[starts[i] : starts[i] + PASSAGE])
        text = spelt.decode("utf-8", "replace")
        found.append(Passage(float(bits[i]) / max(1, len(spelt)), text, offset + before, name))
        at = int(starts[i])
    return heapq.nlargest(PASSAGES, found), before + len(tokenizer.decode(tokens_W[at:]))


class ByteCosts:
    """Spreads the bits of tokens evenly over the bytes that they stand for, window by window of `score_text`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.lengths: dict[int, int] = {}
        self.parts: list[NDArray[np.float64]] = []
        self.carried = 0.0  # bits of tokens without bytes, which are added to the next byte

    def __call__(self, tokens_W: Tokens, bits_W: NDArray[Any]) -> None:
        length_W = self._lengths(tokens_W)
        has_bytes_W = length_W > 0
        length_G = length_W[has_bytes_W]
        # The bits of a token without bytes go to the next one that has some.
        group_W: NDArray[np.int64] = np.cumsum(has_bytes_W) - has_bytes_W
        bits_G = np.bincount(group_W, bits_W, len(length_G) + 1)
        bits_G[0] += self.carried
        self.carried = float(bits_G[-1])
        self.parts.append(np.repeat(bits_G[:-1] / length_G, length_G))

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
