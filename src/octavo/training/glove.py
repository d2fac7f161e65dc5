"""GloVe: word vectors whose products predict how often words stand near each other.

    X_ij = sum over places where j stands at most `window` words from i, in the same document, of 1 / distance
    J    = 1/2 sum of f(X_ij) (w_i · c_j + b_i + d_j - log X_ij)²,     f(X) = min(1, (X / x_max)^0.75)

Each word has a vector w as the one in the middle and c as the one near it; its result is w + c. The table is
symmetric, so only i <= j is stored, and each pair is learnt in both directions.

N words of the text, W words known, D dimensions, P pairs, M pairs in a step.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.config import Count, LearningRate, Length, Range, Width, check_ranges
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.exchange.arpa import token_names
from octavo.io.limits import check_memory
from octavo.io.progress import Advance, progress
from octavo.models.bigram_training import Report
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.word import Word, WordSettings
from octavo.text.word_vectors import Vectors, word_of
from octavo.training.cooccurrence_folder import CooccurrenceFolder, by_falling_count

CHUNK_WORDS = 1 << 18  # words whose neighbours are counted at a time
STEP = 1 << 14  # pairs in a step of training, or as many as there are words
POWER, MOST = 0.75, 100.0  # of the weight f; as in the paper
Summed = tuple[NDArray[np.int64], NDArray[np.float64]]  # keys in order, and the sum of each one's values

BREAK = -1  # between documents, in a list of words
OF_COUNTING = ("window", "min_count", "vocab_size", "lower")  # settings that a folder of counts has behind it
PAIR_BYTES = 48  # of memory for a pair of a folder: its ids, its weight, and what they are copied to


@dataclass(frozen=True)
class GloveConfig:
    """How GloVe vectors are trained."""

    dim: Width = 50
    """Dimensions of a vector."""
    window: Annotated[int, Range(1, 10_000)] = 10
    """The context window: words at most this far away count as neighbours."""
    min_count: Count = 5
    """Leave out words that occur less often; those around them move together."""
    vocab_size: Length | None = None
    """The number of words at most; the most frequent are taken."""
    lower: bool = True
    """Lower-case all words; --no-lower makes capitals words of their own."""
    epochs: Annotated[int, Range(1, 1_000_000)] = 25
    """Passes over all pairs."""
    learning_rate: LearningRate = 0.2
    """AdaGrad's learning rate; higher than the paper's 0.05, because a step sums the gradients of many pairs."""
    budget: Annotated[float, Range(0, 1e9, above=True)] | None = None
    """Stop after so many seconds of training."""
    RENAMED: ClassVar[dict[str, str]] = {"size": "vocab_size", "rate": "learning_rate"}

    def __post_init__(self) -> None:
        check_ranges(self)


class Near(NamedTuple):
    """How much the words i_P and j_P stand near each other, i_P <= j_P; no pair is there twice."""

    i_P: NDArray[np.int64]
    j_P: NDArray[np.int64]
    x_P: NDArray[np.float64]


def words_of(blocks: Iterable[Chunk], config: GloveConfig) -> tuple[list[str], NDArray[np.int32]]:
    """The words to know, most frequent first, and the text as their numbers, with BREAK between documents."""
    tokenizer, blocks_of_tokens = Word.learn_and_encode(lambda: blocks, WordSettings(min_count=1))
    token_N = np.concatenate([np.zeros(0, np.int32), *blocks_of_tokens])
    number: dict[str, int] = {}
    spelt = [word_of(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab)]
    forms = [word.lower() if word and config.lower else word for word in spelt]
    # White space goes the way of words that are left out: it takes no place in the window.
    number_V = np.array([-2 if form is None else number.setdefault(form, len(number)) for form in forms])
    number_V[tokenizer.begin] = BREAK
    number_N = number_V[token_N]
    count_W = np.bincount(number_N[number_N >= 0], minlength=len(number))
    order_W = np.argsort(-count_W, kind="stable")[: config.vocab_size]
    kept_W = order_W[count_W[order_W] >= config.min_count]
    place_W = np.full(len(number) + 2, -2, np.int32)  # the last two are for -2 and BREAK
    place_W[BREAK] = BREAK
    place_W[kept_W] = np.arange(len(kept_W))
    word_N = place_W[number_N]
    spellings = list(number)
    return [spellings[i] for i in kept_W], word_N[word_N != -2]


def count_near(word_N: NDArray[np.int32], words: int, window: int, advance: Advance | None = None) -> Near:
    """The table X, a chunk of the text at a time: memory is taken for the pairs, not for the places they stand at."""
    document_N = np.cumsum(word_N == BREAK)
    merged: Summed = (np.zeros(0, np.int64), np.zeros(0))
    waiting: list[Summed] = []
    for start in range(0, len(word_N), CHUNK_WORDS):
        keys, values = [], []
        for distance in range(1, window + 1):
            a = slice(start, max(start, min(start + CHUNK_WORDS, len(word_N) - distance)))
            b = slice(start + distance, a.stop + distance)
            one, other = word_N[a].astype(np.int64), word_N[b].astype(np.int64)
            near = (document_N[a] == document_N[b]) & (one >= 0) & (other >= 0)
            one, other = one[near], other[near]
            keys.append(np.minimum(one, other) * words + np.maximum(one, other))
            values.append(np.where(one == other, 2.0, 1.0) / distance)  # a word is near itself twice: from both places
        waiting.append(_summed(np.concatenate(keys), np.concatenate(values)))
        if sum(len(key_P) for key_P, _ in waiting) > len(merged[0]):  # so that each pair is merged only a few times
            merged, waiting = _merged([merged, *waiting]), []
        if advance is not None:
            advance(min(CHUNK_WORDS, len(word_N) - start))
    key_P, x_P = _merged([merged, *waiting])
    return Near(key_P // max(1, words), key_P % max(1, words), x_P)


def _merged(parts: list[Summed]) -> Summed:
    return _summed(np.concatenate([key_P for key_P, _ in parts]), np.concatenate([x_P for _, x_P in parts]))


def _summed(key_N: NDArray[np.int64], value_N: NDArray[np.float64]) -> Summed:
    """Each key once, with the sum of its values."""
    key_P, place_N = np.unique(key_N, return_inverse=True)
    x_P: NDArray[np.float64] = np.bincount(place_N, value_N, len(key_P)).astype(np.float64, copy=False)
    return key_P, x_P


def glove_gradient(
    w_MD: Tensor, c_MD: Tensor, b_M: Tensor, d_M: Tensor, logx_M: Tensor, f_M: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """J of some pairs, and its gradient by w_MD, by c_MD, and by b_M, which is that by d_M too."""
    error_M = (w_MD * c_MD).sum(1) + b_M + d_M - logx_M
    slope_M = f_M * error_M
    loss = (slope_M * error_M).sum() / 2
    return loss, slope_M[:, None] * c_MD, slope_M[:, None] * w_MD, slope_M


class Glove:
    """Vectors in training: row i of `middle` and of `near` is a word's vector with its bias behind it."""

    def __init__(self, words: int, dim: int, generator: torch.Generator) -> None:
        self.middle, self.near = ((torch.rand(words, dim + 1, generator=generator) - 0.5) / dim for _ in range(2))
        self.squares = [torch.ones_like(self.middle), torch.ones_like(self.near)]  # AdaGrad's, from one as in the paper

    def step(self, i_M: Tensor, j_M: Tensor, logx_M: Tensor, f_M: Tensor, rate: float) -> float:
        """One step of AdaGrad; the sum of the pairs' losses before it."""
        w, c = self.middle[i_M], self.near[j_M]
        loss, dw_MD, dc_MD, db_M = glove_gradient(w[:, :-1], c[:, :-1], w[:, -1], c[:, -1], logx_M, f_M)
        for table, square, at_M, d_MD in zip(
            (self.middle, self.near), self.squares, (i_M, j_M), (dw_MD, dc_MD), strict=True
        ):
            sum_WD = torch.zeros_like(table).index_add_(0, at_M, torch.cat([d_MD, db_M[:, None]], 1))
            square.addcmul_(sum_WD, sum_WD)
            table.addcdiv_(sum_WD, square.sqrt(), value=-rate)
        return float(loss)

    def vectors(self) -> NDArray[np.float32]:
        """The result: the sum of both vectors of a word."""
        return (self.middle + self.near)[:, :-1].numpy()


def learn_near(
    near: Near, words: int, config: GloveConfig, generator: torch.Generator, report: Report | None = None
) -> NDArray[np.float32]:
    """Vectors of the words, from the table; `report` gets the loss of each epoch, a pair's mean."""
    i_P, j_P = torch.from_numpy(near.i_P), torch.from_numpy(near.j_P)
    logx_P = torch.from_numpy(near.x_P).log().float()
    f_P = torch.from_numpy(np.minimum(1.0, (near.x_P / MOST) ** POWER)).float()
    glove, size, began = Glove(words, config.dim, generator), max(STEP, words), time.perf_counter()
    with progress("learning vectors", config.epochs * len(i_P), "pairs") as advance:
        for epoch in range(1, config.epochs + 1):
            loss = 0.0
            for at_M in torch.randperm(len(i_P), generator=generator).split(size):
                i_M, j_M, logx_M, f_M = i_P[at_M], j_P[at_M], logx_P[at_M], f_P[at_M]
                other = i_M != j_M  # a word with itself has one direction only
                both = torch.cat([i_M, j_M[other]]), torch.cat([j_M, i_M[other]])
                logx, f = torch.cat([logx_M, logx_M[other]]), torch.cat([f_M, f_M[other]])
                loss += glove.step(*both, logx, f, config.learning_rate)
                advance(len(at_M))
                if config.budget is not None and time.perf_counter() - began > config.budget:
                    return glove.vectors()
            if report is not None:
                report({"step": epoch, "loss": loss / len(i_P)})
    return glove.vectors()


def train_glove(
    blocks: Iterable[Chunk], config: GloveConfig, seed: int = 0, report: Report | None = None
) -> tuple[Vectors, dict[str, Any]]:
    """Word vectors of a text, and what they were learnt from: words, pairs, tokens, seconds."""
    began = time.perf_counter()
    generator = seeded_generator(seed)
    words, word_N = words_of(blocks, config)
    if len(words) < 2:
        raise UserError(
            f"the text has {len(words)} words that occur at least {config.min_count} times; give a longer text, "
            "or a smaller --min-count"
        )
    with progress("counting neighbours", len(word_N), "words") as advance:
        near = count_near(word_N, len(words), config.window, advance)
    rows_WD = learn_near(near, len(words), config, generator, report)
    summary = {"words": len(words), "pairs": len(near.x_P), "tokens": int((word_N >= 0).sum())}
    return Vectors(words, rows_WD), summary | {"seconds": time.perf_counter() - began}


def train_on_counts(
    folder: CooccurrenceFolder, config: GloveConfig, seed: int = 0, report: Report | None = None
) -> tuple[Vectors, dict[str, Any]]:
    """Word vectors of a folder of co-occurrences, as `train_glove` learns them of a text."""
    began = time.perf_counter()
    for name in OF_COUNTING:
        if getattr(config, name) != getattr(GloveConfig(), name):
            raise UserError(
                f"{name} is for learning from a text: {folder.path} is counted, and {name}={getattr(config, name)}; "
                f"leave --{name.replace('_', '-')} out, or count again with it"
            )
    words, near = read_near(folder)
    if len(words) < 2:
        raise UserError(f"{folder.path} has {len(words)} words, and vectors need two; count a longer text")
    rows_WD = learn_near(near, len(words), config, seeded_generator(seed), report)
    summary = {"words": len(words), "pairs": len(near.x_P), "tokens": folder.record.tokens}
    return Vectors(words, rows_WD), summary | {"seconds": time.perf_counter() - began}


def read_near(folder: CooccurrenceFolder) -> tuple[list[str], Near]:
    """The words of a folder of co-occurrences, most frequent first, and its table X."""
    if not folder.record.symmetric:
        raise UserError(
            f"vectors are learnt from the words on both sides: {folder.path} has symmetric=False; count again without "
            "--no-symmetric"
        )
    check_memory(PAIR_BYTES * folder.record.pairs, f"reading {folder.path}", "count again with a smaller --vocab-size")
    names, count_V = token_names(folder.tokenizer), folder.counts()
    known = by_falling_count(count_V, names)
    place_V = np.full(len(names), -1)
    place_V[known] = np.arange(len(known))
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    for w1_M, w2_M, x_M in folder.pairs():
        once = w1_M <= w2_M  # each pair stands there in both orders
        i_M, j_M = place_V[w1_M[once]], place_V[w2_M[once]]
        parts.append((np.minimum(i_M, j_M), np.maximum(i_M, j_M), x_M[once]))
    near = Near(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    if (near.i_P < 0).any():
        raise UserError(f"{folder.path} is damaged: its pairs do not fit its words; count again")
    return [names[token] for token in known], near
