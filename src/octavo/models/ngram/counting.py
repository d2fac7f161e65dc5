"""Count n-grams: pack a context and a word into one integer, sort, count the runs.

N tokens, M k-grams of one order, C contexts, P places of a chunk, V vocabulary. A k-gram is known by its rank among
the sorted k-grams of its order, so a (k+1)-gram is one integer, rank * V + word, however long it is. The places where
the k-grams end, kept in the order of their ranks, are cut into chunks of whole contexts: each chunk is sorted alone,
so the sort's buffers stay small, and the results follow one another in the right order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from octavo.errors import UserError

WORDS_CHUNK = 1 << 22  # places of words sorted at once where memory is short
CPU_CHUNK = 1 << 19  # places sorted at once: the buffers of a few MB stay in the cache and are used again
GPU_CHUNK = 1 << 27
MOST_TOKENS = (1 << 31) - 2  # places and ranks are 32-bit integers


@dataclass
class Level:
    """All k-grams of one order k, sorted by context (a rank among the (k-1)-grams), then by word."""

    contexts: int  # how many (k-1)-grams there are, with or without a successor
    context_M: Tensor  # all but the last word of each k-gram
    word_M: Tensor  # the last word of each k-gram
    count_M: Tensor  # how often it occurs
    extension_M: Tensor  # how many distinct words precede it; where none can (after begin), how often it occurs
    last: bool  # whether it is the highest order

    def __len__(self) -> int:
        return len(self.word_M)


@dataclass(frozen=True)
class Vocabulary:
    """The ids that mean something to counting."""

    size: int
    begin: int  # opens a sequence; the last id
    end: int | None = None  # ends a sentence: what follows it follows `begin` instead


@dataclass(frozen=True)
class Workspace:
    """Where counting keeps what grows with the text, and how many places it sorts at once."""

    chunk: int | None = None
    folder: Path | None = None  # where memory is short: what grows with the text is mapped from files here

    def integers(self, count: int, device: torch.device | None = None) -> Tensor:
        """Room for 32-bit integers; what is never written takes no memory (on a GPU it does)."""
        if self.folder is None or not count or (device is not None and device.type != "cpu"):
            return torch.empty(count, dtype=torch.int32, device=device)
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:  # its name goes at once, its bytes with the tensor
            return torch.from_file(file.name, shared=True, size=count, dtype=torch.int32)


def count_ngrams(
    x_N: Tensor,
    order: int,
    vocabulary: Vocabulary,
    workspace: Workspace = Workspace(),  # noqa: B008  it is frozen
    report: Callable[[float], None] = lambda places: None,
) -> Iterator[Level]:
    """The k-grams of x_N for k = 1 to `order`; none reaches across a begin token or has it as its last word.

    The last (k-1)-gram of a sequence has no successor. It is a k-gram of the level below, but no context here:
    a context's total is the sum over the k-grams that continue it, so conditionals sum to one.
    """
    if len(x_N) > MOST_TOKENS:
        raise UserError(f"at most {MOST_TOKENS:,} tokens can be counted: {len(x_N):,} given; use a part of the text")
    level, run_C, place_N = _words(x_N, vocabulary, order == 1, workspace)
    id_N = x_N  # the rank of the k-gram that ends at each place that has one
    begun = vocabulary.begin  # k-grams from this rank on start with the begin token
    report(len(x_N))
    for k in range(2, order + 1):
        above, run_C, place_N, id_N = _extend(
            level, run_C, place_N, id_N, x_N, vocabulary, workspace, k == order, report
        )
        level.extension_M[begun:] = level.count_M[begun:]
        begun = int(torch.searchsorted(above.context_M, torch.tensor(begun).to(above.context_M)))
        if k == order:  # free them before the estimator takes its share
            del x_N, place_N, id_N, run_C
        yield level
        level = above
        del above
    yield level


def _words(x_N: Tensor, vocabulary: Vocabulary, last: bool, workspace: Workspace) -> tuple[Level, Tensor, Tensor]:
    """Every word of the vocabulary is a 1-gram, seen or not; `begin` is one that is never predicted.

    Also how many places each word has as a context, and the places in the words' order.
    """
    count_V = torch.bincount(x_N, minlength=vocabulary.size).int()
    count_V[vocabulary.begin] = 0
    word_V = torch.arange(vocabulary.size, dtype=torch.int32, device=x_N.device)
    extension_V = count_V if last else torch.zeros_like(count_V)
    level = Level(1, torch.zeros_like(word_V), word_V, count_V, extension_V, last)
    if last:
        return level, count_V, x_N
    context_N = x_N
    if vocabulary.end is not None:
        context_N = (
            workspace.integers(len(x_N), x_N.device).copy_(x_N).masked_fill_(x_N == vocabulary.end, vocabulary.begin)
        )
    run_V = torch.bincount(context_N, minlength=vocabulary.size).int()
    return level, run_V, _places_of_words(context_N, run_V, workspace)


def _places_of_words(word_N: Tensor, run_V: Tensor, workspace: Workspace) -> Tensor:
    """All places in the order of the words that stand there."""
    if workspace.folder is None:
        return word_N.sort(stable=True).indices.int()
    place_N = workspace.integers(len(word_N), word_N.device)
    for (low, high), (start, end) in _chunks(run_V, workspace.chunk or WORDS_CHUNK):
        parts = [
            ((part >= low) & (part < high)).nonzero().squeeze(1) + i * WORDS_CHUNK
            for i, part in enumerate(word_N.split(WORDS_CHUNK))
        ]
        found_P = torch.cat(parts)
        place_N[start:end] = found_P[word_N.index_select(0, found_P).sort(stable=True).indices]
    return place_N


def _extend(
    below: Level,
    run_C: Tensor,
    place_N: Tensor,
    id_N: Tensor,
    x_N: Tensor,
    vocabulary: Vocabulary,
    workspace: Workspace,
    last: bool,
    report: Callable[[float], None],
) -> tuple[Level, Tensor, Tensor, Tensor]:
    """The k-grams from the (k-1)-grams; how many places each has as a context; the places; the rank at each place.

    New places overwrite place_N from its front: there are never more of them than were read. Ranks where no k-gram
    ends are left unset; nothing ever asks for them.
    """
    vocab, begin, end_word = vocabulary.size, vocabulary.begin, vocabulary.end
    chunk = workspace.chunk or (CPU_CHUNK if x_N.device.type == "cpu" else GPU_CHUNK)
    next_N = workspace.integers(len(id_N), x_N.device) if not last else id_N
    context_M, word_M, count_M = (
        workspace.integers(len(place_N), x_N.device) for _ in range(3)
    )  # as many as there could be
    made = kept = 0
    for (low, high), (start, end) in _chunks(run_C, chunk):
        place_P = place_N[start:end].long() + 1
        word_P = x_N.index_select(0, place_P.clamp(max=len(x_N) - 1))
        goes_on_P = (word_P != begin) & (place_P < len(x_N))
        context_P = torch.repeat_interleave(run_C[low:high], output_size=end - start).long()
        key_P, by_key_P = (context_P * vocab + word_P)[goes_on_P].sort(stable=True)
        place_P = place_P[goes_on_P].index_select(0, by_key_P)
        key_m, rank_P, count_m = torch.unique_consecutive(key_P, return_inverse=True, return_counts=True)
        any_place_m = place_P.index_select(0, count_m.cumsum(0) - count_m)
        suffix_m = id_N.index_select(0, any_place_m)  # the k-gram without its first word
        below.extension_M.scatter_add_(0, suffix_m.long(), torch.ones_like(suffix_m))
        new = slice(made, made + len(key_m))
        context_M[new], word_M[new], count_M[new] = key_m // vocab + low, key_m % vocab, count_m
        if not last:
            next_N.index_copy_(0, place_P, (rank_P + made).int())
            if end_word is not None:
                place_P = place_P[(word_M[new] != end_word)[rank_P]]
            place_N[kept : kept + len(place_P)] = place_P
            kept += len(place_P)
        made += len(key_m)
        report(end - start)
    context_M, word_M, count_M = context_M[:made], word_M[:made], count_M[:made]
    run_M = count_M if end_word is None else count_M.masked_fill(word_M == end_word, 0)
    extension_M = count_M if last else torch.zeros_like(count_M)
    return Level(len(below), context_M, word_M, count_M, extension_M, last), run_M, place_N[:kept], next_N


def _chunks(run_C: Tensor, chunk: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges of contexts and of their places, about `chunk` places each; a context is never cut."""
    if not len(run_C):
        return
    until_C = run_C.cumsum(0)
    total = int(until_C[-1])
    marks = torch.arange(chunk, max(chunk, total), chunk, device=run_C.device)
    highs = torch.cat([torch.searchsorted(until_C, marks) + 1, marks.new_tensor([len(run_C)])]).unique()
    ends = until_C[highs - 1]
    low = start = 0
    for high, end in zip(highs.tolist(), ends.tolist(), strict=True):
        yield (low, high), (start, end)
        low, start = high, end
