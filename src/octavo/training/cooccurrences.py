"""Count co-occurrences as GloVe does, as a relational program: exact sums on an engine that need not hold them.

    X_ij = sum over places where j stands at most `window` words from i, in the same line or document, of 1 / distance

A sum of fractions depends on its order, so integers are added: every 1 / distance is so many times 1 / scale, with
scale = lcm(1, ..., window), and the total is divided once, in the end. A pair is one 64-bit integer, as an n-gram is.

    words         token ids, without those that take no place in a window; `begin` stands where a line ends
    neighbours    key0, count    one row for two words near each other, as they are read: 1 / distance, times scale
    pairs         key0, count    summed: the left word and the right one; of symmetric counts, the lower id first
    sorted        key0, count    sorted, and of symmetric counts each pair in both orders

N tokens, B places of a batch, V vocabulary, M rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.config import Range, check_ranges
from octavo.engines.engine import Engine, integer_schema
from octavo.engines.stages import Stages
from octavo.errors import UserError
from octavo.io.progress import Advance
from octavo.models.ngram.packed_keys import KeyLayout
from octavo.models.ngram.relational import windows_schema
from octavo.text.token_shards import TokenShards, finish_shards, open_part, write_shard
from octavo.text.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    import pyarrow

BATCH_PLACES = 1 << 19  # places of the text whose neighbours are listed at once
COPY_TOKENS = 1 << 22  # read and written at once
MOST_TOTAL = (1 << 63) - 1  # of what the engines add up
EXACT = 1 << 53  # integers up to here are exact as 64-bit floats
PAIRS, SORTED, WORDS = "pairs", "sorted", "words"
WORD_COUNTS, KEPT = "counts.npy", "kept.npy"
WORD_COLUMNS = ("file", "id", "count")


@dataclass(frozen=True)
class CooccurrenceConfig:
    """Which words are near each other, and how much."""

    window: Annotated[int, Range(1, 10_000)] = 10
    """The context window: words at most this far away count as neighbours."""
    symmetric: bool = True
    """Count neighbours on both sides; --no-symmetric takes those on the left only."""
    distance_weighting: bool = True
    """Count a neighbour as 1 / distance; --no-distance-weighting counts each as 1."""
    RENAMED: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def scale(self) -> int:
        """What every weight is an integer of, when multiplied by it."""
        return math.lcm(*range(1, self.window + 1)) if self.distance_weighting else 1

    def weight_units(self, distance: int) -> int:
        """The weight of a neighbour, times `scale`."""
        return self.scale // distance if self.distance_weighting else 1

    def check_sums(self, words: int) -> None:
        """Refuse a window whose sums over a text of so many words could be larger than the engines' integers."""
        scale = self.scale
        largest = 2 * words * sum(scale // distance for distance in range(1, self.window + 1))
        if self.distance_weighting and (scale > EXACT or largest > MOST_TOTAL):
            raise UserError(
                f"sums of 1 / distance are kept as integers of 63 bits: window={self.window} over {words:,} words may "
                "need more; try --window 15, or --no-distance-weighting"
            )


def takes_place(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Whether each token takes a place in the window: white space between words and unknown words do not."""
    is_taken_V = np.ones(tokenizer.vocab, np.bool_)
    if tokenizer.unit == "words":
        is_taken_V[:] = [bool(tokenizer.token_bytes(token).strip()) for token in range(tokenizer.vocab)]
    if (unknown := getattr(tokenizer, "unknown", None)) is not None:
        is_taken_V[unknown] = False
    is_taken_V[tokenizer.begin] = False
    return is_taken_V


def count_words(
    engine: Engine, stages: Stages, source: TokenShards, tokenizer: Tokenizer, end: int | None
) -> tuple[TokenShards, NDArray[np.int64]]:
    """The first stage: the tokens that take places, `begin` where a document or a line ends, and each one's count."""

    def make(folder: Path) -> None:
        folder.mkdir()
        is_kept_V = takes_place(tokenizer)
        is_kept_V[tokenizer.begin] = True
        if end is not None:
            is_kept_V[end] = True
        np.save(folder / KEPT, is_kept_V)
        write = partial(write_words, source=source, begin=tokenizer.begin, end=end, folder=str(folder.absolute()))
        engine.open_batches("words_read", list(map(str, range(source.files))), write, integer_schema(WORD_COLUMNS))
        engine.write("SELECT file, id, count FROM words_read", folder / WORDS)
        engine.open_parquet(WORDS, folder / WORDS)
        size_F, count_V = np.zeros(source.files, np.int64), np.zeros(tokenizer.vocab, np.int64)
        for sums, column in ((size_F, "file"), (count_V, "id")):
            query = f"SELECT {column}, CAST(sum(count) AS BIGINT) FROM {WORDS} GROUP BY {column}"
            rows = np.array(engine.rows(query), np.int64).reshape(-1, 2)
            sums[rows[:, 0]] = rows[:, 1]
        finish_shards(folder, size_F)
        count_V[tokenizer.begin] = 0
        np.save(folder / WORD_COUNTS, count_V)

    folder = stages.run(WORDS, make) / "rows"
    return TokenShards(str(folder.absolute()), source.dtype), np.load(folder / WORD_COUNTS)


def write_words(
    number: str, source: TokenShards, begin: int, end: int | None, folder: str
) -> Iterator[pyarrow.RecordBatch]:
    """Write the words of one file of tokens, and count each: also `begin`, so the counts say how many there are."""
    import pyarrow

    is_kept_V, x_N = np.load(Path(folder, KEPT)), source.shard(int(number))
    count_V = np.zeros(len(is_kept_V), np.int64)

    def words() -> Iterator[NDArray[Any]]:
        for start in range(0, len(x_N), COPY_TOKENS):
            x_B = np.array(x_N[start : start + COPY_TOKENS])
            x_B = x_B[is_kept_V[x_B]]
            if end is not None:
                x_B[x_B == end] = begin
            np.add(count_V, np.bincount(x_B, minlength=len(count_V)), out=count_V)
            yield x_B

    write_shard(folder, int(number), words(), source.dtype)
    (word_W,) = count_V.nonzero()
    columns = [np.full(len(word_W), int(number)), word_W, count_V[word_W]]
    yield pyarrow.record_batch(columns, integer_schema(WORD_COLUMNS))


def read_neighbours(part: str, config: CooccurrenceConfig, vocab: int, begin: int) -> Iterator[pyarrow.RecordBatch]:
    """The neighbours on the right of the words in a part of a file of words."""
    words, first, last = open_part(part)
    for start in range(first, last, BATCH_PLACES):
        places = min(BATCH_PLACES, last - start)
        yield from neighbour_batches(words.read(start, start + places + config.window), places, config, vocab, begin)


def neighbour_batches(
    x_N: NDArray[Any], places: int, config: CooccurrenceConfig, vocab: int, begin: int
) -> Iterator[pyarrow.RecordBatch]:
    """The neighbours of the first `places` words, a batch a distance; the words after them are only neighbours.

    No window reaches over `begin`. A word that is its own neighbour counts from both places.
    """
    import pyarrow

    layout = KeyLayout(vocab)
    left_B = x_N[:places].astype(np.int64)
    is_open_B = left_B != begin
    for distance in range(1, min(config.window, len(x_N) - 1) + 1):
        right_B = x_N[distance : distance + places].astype(np.int64)
        left_B, is_open_B = left_B[: len(right_B)], is_open_B[: len(right_B)]
        is_open_B = is_open_B & (right_B != begin)
        left_M, right_M = left_B[is_open_B], right_B[is_open_B]
        count_M = np.full(len(left_M), config.weight_units(distance), np.int64)
        if config.symmetric:
            count_M[left_M == right_M] *= 2
            left_M, right_M = np.minimum(left_M, right_M), np.maximum(left_M, right_M)
        yield pyarrow.record_batch([*layout.pack([left_M + 1, right_M + 1]), count_M], pair_schema(layout))


def pair_schema(layout: KeyLayout) -> pyarrow.Schema:
    """The columns of neighbours and pairs: a key of two words, and a count."""
    return windows_schema(layout, 2)


def both_orders_sql(table: str, layout: KeyLayout) -> str:
    """A subquery: every pair as it stands, and those of two different words the other way round too."""
    first, second = layout.word_sql(0), layout.word_sql(1)
    turned = f"(({second} << {layout.shift(0)}) | ({first} << {layout.shift(1)}))"
    return (
        f"(SELECT key0, count FROM {table} "
        f"UNION ALL SELECT {turned} AS key0, count FROM {table} WHERE {first} <> {second}) AS both_orders"
    )


def grouped_sql(table: str, layout: KeyLayout) -> str:
    """The sum of each pair's rows."""
    (key,) = layout.columns(2)
    return f"SELECT {key}, CAST(sum(count) AS BIGINT) AS count FROM {table} GROUP BY {key}"


def count_pairs(
    engine: Engine, stages: Stages, source: TokenShards, config: CooccurrenceConfig, tokenizer: Tokenizer,
    advance: Advance,
) -> None:  # fmt: skip
    """The stages after the words: the sum of each pair, and the sorted table."""
    layout = KeyLayout(tokenizer.vocab)

    def make_pairs(folder: Path) -> None:
        read = partial(read_neighbours, config=config, vocab=tokenizer.vocab, begin=tokenizer.begin)
        engine.open_batches("neighbours", source.parts(), read, pair_schema(layout))
        engine.write(grouped_sql("neighbours", layout), folder)

    def make_sorted(folder: Path) -> None:
        engine.open_parquet(PAIRS, stages.rows(PAIRS))
        table = both_orders_sql(PAIRS, layout) if config.symmetric else PAIRS
        engine.write(f"SELECT key0, count FROM {table} ORDER BY key0", folder)

    for name, make in ((PAIRS, make_pairs), (SORTED, make_sorted)):
        stages.run(name, make)
        advance(1)
    stages.remove(PAIRS)
