"""Rows for pretraining a BERT, each full of pairs of sentences, spoilt anew at every step.

B rows, T tokens of a row, N masked tokens of all rows, P pairs of all rows.

Several pairs stand in a row and do not see each other, and the last is drawn to the length that is left, so nothing is
padded but a few places behind a document that was too short. What a step reads is a function of the seed and the
step alone: a run that is resumed reads the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.config import Range, check_ranges
from octavo.errors import UserError
from octavo.tasks.sentences import Sentences
from octavo.text.tokenizers.wordpiece import WordPiece

FOLLOWS, RANDOM, SWAPPED = 0, 1, 2  # what the second sentence of a pair is to the first
AROUND = 3  # special tokens of a pair: one in front, one behind each sentence
SHORTEST = AROUND + 5  # tokens that are worth a pair
LONG = 0.5  # of the pairs take all that is left of their row: long texts must be learnt too
NOTHING = -100  # a target that is not asked for
TRIES = 32  # draws before what does not fit is taken all the same

T = TypeVar("T")


@dataclass(frozen=True)
class MaskConfig:
    """How text is spoilt."""

    share: Annotated[float, Range(0, 1.0)] = 0.15
    """Of the tokens, to be predicted."""
    masked: Annotated[float, Range(0, 1.0)] = 0.8
    """Of those, hidden behind [MASK]."""
    random: Annotated[float, Range(0, 1.0)] = 0.1
    """Of those, replaced by any token; the rest stays as it is."""
    replaced: Annotated[float, Range(0, 1.0)] = 0.15
    """Of the other tokens, if that is a task: replaced by one that occurs as often as it does in the text."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.masked + self.random > 1:
            raise UserError(f"masked and random are parts of one: {self.masked} + {self.random}; leave them out")


class MaskedBatch(NamedTuple):
    """What one step reads, and what it is asked. Places of tokens are counted over all rows, one behind the other."""

    x_BT: Tensor
    segment_BT: Tensor
    place_BT: Tensor  # within the token's own text
    text_BT: Tensor  # which text of its row; -1 behind the last
    chosen_N: Tensor  # where tokens are to be predicted
    target_N: Tensor  # which they were
    first_P: Tensor  # where texts begin
    next_P: Tensor  # 0 if the second sentence follows, 1 if it is from elsewhere, NOTHING if it is not asked
    order_P: Tensor  # 0 if they are in order, 1 if swapped, NOTHING if it is not asked
    replaced_BT: Tensor  # 1 if the token was replaced, 0 if not, NOTHING if it is not asked

    def to(self, device: torch.device) -> MaskedBatch:
        """On another device."""
        return MaskedBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def targets(self) -> float:
        """The loss is a sum of means already, each over the answers of its task."""
        return 1.0

    @property
    def fresh(self) -> bool:
        return True

    @property
    def rows(self) -> int:
        return len(self.x_BT)

    @property
    def examples(self) -> int:
        return self.x_BT.numel()

    @property
    def counts(self) -> dict[str, int]:
        """How many answers each task asks for."""
        asked = {"next": self.next_P, "order": self.order_P, "replaced": self.replaced_BT}
        return {"words": len(self.target_N)} | {task: int((t != NOTHING).sum()) for task, t in asked.items()}

    def part(self, start: int, end: int, device: torch.device) -> MaskedPart:
        """Some rows, and the answers of all of them, which the means are over."""
        counts, T = self.counts, self.x_BT.shape[1]
        if (start, end) == (0, self.rows):
            return MaskedPart(self.to(device), counts)
        chosen_N, first_P = ((t >= start * T) & (t < end * T) for t in (self.chosen_N, self.first_P))
        x_BT, segment_BT, place_BT, text_BT = (t[start:end] for t in self[:4])
        some = MaskedBatch(
            x_BT, segment_BT, place_BT, text_BT, self.chosen_N[chosen_N] - start * T, self.target_N[chosen_N],
            self.first_P[first_P] - start * T, self.next_P[first_P], self.order_P[first_P],
            self.replaced_BT[start:end],
        )  # fmt: skip
        return MaskedPart(some.to(device), counts)

    @property
    def waste(self) -> float:
        """The share of places that hold nothing."""
        return float((self.text_BT < 0).double().mean())


class MaskedPart(NamedTuple):
    """Some rows of a batch, and how many answers all of them ask for, by task."""

    batch: MaskedBatch
    counts: dict[str, int]


@dataclass(frozen=True)
class Masked:
    """Batches of spoilt rows, by step."""

    sentences: Sentences
    tokenizer: WordPiece
    tasks: Sequence[str]
    rows: int
    length: int
    seed: int
    config: MaskConfig = MaskConfig()

    def at(self, step: int) -> MaskedBatch:
        """The batch of a step."""
        rng, known = np.random.default_rng((self.seed, step)), self.tokenizer
        x_BT = np.full((self.rows, self.length), known.pad, np.int64)
        segment_BT, place_BT = np.zeros_like(x_BT), np.zeros_like(x_BT)
        text_BT = np.full_like(x_BT, -1)
        firsts, kinds = [], []
        for b in range(self.rows):
            at = text = 0
            while self.length - at >= SHORTEST:
                one, other, kind = self._fitting(rng, self.length - at)
                tokens = np.concatenate([[known.first], one, [known.end], other, [known.end]])
                cut, end = len(one) + 2, at + len(tokens)
                x_BT[b, at:end], text_BT[b, at:end] = tokens, text
                segment_BT[b, at + cut : end] = 1
                place_BT[b, at:end] = np.arange(len(tokens))
                firsts.append(b * self.length + at)
                kinds.append(kind)
                at, text = end, text + 1
        spoilt_BT, chosen_BT, replaced_BT = self._spoil(rng, x_BT)
        kind_P = np.array(kinds, np.int64)
        parts = (
            spoilt_BT, segment_BT, place_BT, text_BT, np.flatnonzero(chosen_BT), x_BT[chosen_BT],
            np.array(firsts, np.int64), np.where(kind_P == SWAPPED, NOTHING, kind_P),
            np.where(kind_P == RANDOM, NOTHING, kind_P // SWAPPED), replaced_BT,
        )  # fmt: skip
        return MaskedBatch(*map(torch.from_numpy, parts))

    # ------------------------------------------------------------------ pairs of sentences

    def _fitting(self, rng: np.random.Generator, room: int) -> tuple[NDArray[Any], NDArray[Any], int]:
        """A pair that leaves nothing of the room, or enough for another; documents that end too soon are put back."""
        for _ in range(TRIES):
            one, other, kind = self._pair(rng, room)
            left = room - len(one) - len(other) - AROUND
            if not 0 < left < SHORTEST:
                break
        return one, other, kind

    def _pair(self, rng: np.random.Generator, room: int) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Two stretches of text that fill the room or, half the time, less of it; and what they are to each other."""
        sentences = self.sentences
        if rng.random() >= LONG and room >= 2 * SHORTEST:
            shorter = int(rng.integers(SHORTEST, room + 1))
            room = room if room - shorter < SHORTEST else shorter
        body = room - AROUND
        i = int(sentences.anchors_A[rng.integers(len(sentences.anchors_A))])
        most = int(rng.integers(body // 4, body - body // 4 + 1))
        j = min(self._behind(i, most), int(sentences.last_S[i]) - 1)  # one sentence is left for what follows
        one = self._cut(rng, i, j, most)
        # What the tasks ask about, one answer as often as the other.
        asked = [FOLLOWS, *([RANDOM] if "next" in self.tasks else ()), *([SWAPPED] if "order" in self.tasks else ())]
        kind = int(rng.choice(asked))
        k = j if kind != RANDOM else self._elsewhere(rng, i)
        other = self._cut(rng, k, self._behind(k, body - len(one)), body - len(one))
        return (other, one, kind) if kind == SWAPPED else (one, other, kind)

    def _behind(self, i: int, tokens: int) -> int:
        """The sentence behind those, from i on, that have so many tokens; no later than the document ends."""
        sentences = self.sentences
        enough = int(np.searchsorted(sentences.start_S, sentences.start_S[i] + tokens, side="left"))
        return max(i + 1, min(enough, int(sentences.last_S[i])))

    def _cut(self, rng: np.random.Generator, i: int, j: int, most: int) -> NDArray[Any]:
        """The tokens of sentences i to j, but for those too many: of the beginning or of the end, by lot.

        Were it always the end of the second, a ragged end would tell which of the two came first.
        """
        begin, end = int(self.sentences.start_S[i]), int(self.sentences.start_S[j])
        spare = max(0, end - begin - most)
        begin, end = (begin + spare, end) if rng.random() < 0.5 else (begin, end - spare)
        return self.sentences.tokens_N[begin:end]

    def _elsewhere(self, rng: np.random.Generator, i: int) -> int:
        """A sentence of another document or, where there is one alone, of a place far from the first."""
        sentences = self.sentences
        alone = sentences.document_S[0] == sentences.document_S[-1]
        for _ in range(TRIES):
            k = int(rng.integers(len(sentences)))
            far = abs(int(sentences.start_S[k] - sentences.start_S[i])) > 2 * self.length
            if far if alone else sentences.document_S[k] != sentences.document_S[i]:
                return k
        return 0 if 2 * i > len(sentences) else len(sentences) - 1  # the text is one document, or short

    # ------------------------------------------------------------------ spoiling

    def _spoil(self, rng: np.random.Generator, x_BT: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The rows with tokens hidden and replaced; which were chosen; and whether the others were replaced."""
        config, known = self.config, self.tokenizer
        real_BT = ~np.isin(x_BT, [known.pad, known.first, known.end])
        chosen_BT = np.zeros_like(real_BT)
        spoilt_BT, replaced_BT = x_BT.copy(), np.full_like(x_BT, NOTHING)
        if "words" in self.tasks:
            chosen_BT = some_of(rng, real_BT, config.share)
            luck_BT = rng.random(x_BT.shape)
            any_BT = known.ordinary[rng.integers(len(known.ordinary), size=x_BT.shape)]
            spoilt_BT = np.where(chosen_BT & (luck_BT < config.masked + config.random), any_BT, spoilt_BT)
            spoilt_BT = np.where(chosen_BT & (luck_BT < config.masked), known.mask, spoilt_BT)
        if "replaced" in self.tasks:
            judged_BT = real_BT & ~chosen_BT
            # A token of any place of the text: it comes as often as it does there.
            drawn_BT = self.sentences.tokens_N[rng.integers(len(self.sentences.tokens_N), size=x_BT.shape)]
            hit_BT = judged_BT & (rng.random(x_BT.shape) < config.replaced)
            spoilt_BT = np.where(hit_BT, drawn_BT, spoilt_BT)
            replaced_BT = np.where(judged_BT, (spoilt_BT != x_BT).astype(np.int64), NOTHING)
        return spoilt_BT, chosen_BT, replaced_BT


def some_of(rng: np.random.Generator, real_BT: NDArray[Any], share: float) -> NDArray[Any]:
    """Of each row's real places so large a share, to the nearest one, and one at least."""
    luck_BT = np.where(real_BT, rng.random(real_BT.shape), 2.0)
    wanted_B = np.maximum(1, np.rint(share * real_BT.sum(1))).astype(int) if share else np.zeros(len(real_BT), int)
    rank_BT = luck_BT.argsort(1).argsort(1)
    chosen_BT: NDArray[Any] = (rank_BT < wanted_B[:, None]) & real_BT
    return chosen_BT


class Ahead(Generic[T]):
    """A function of the step whose next value is made in a thread while this one is used."""

    def __init__(self, at: Callable[[int], T]) -> None:
        self.at, self.pool = at, ThreadPoolExecutor(1)
        self.waiting: dict[int, Future[T]] = {}

    def __call__(self, step: int) -> T:
        found = self.waiting.pop(step, None) or self.pool.submit(self.at, step)
        self.waiting = {step + 1: self.pool.submit(self.at, step + 1)}
        return found.result()

    def close(self) -> None:
        """Let the thread go."""
        self.pool.shutdown(wait=True, cancel_futures=True)
