"""Tokenise a text as a relational program: parts of it are read wherever the engine works, and no one reads all of it.

    counted       word, count    the words of each part, as they are read
    vocabulary    word, count    summed, those that `min_count` leaves in; by falling count, then by their bytes
    tokens        part, tokens   how many tokens each part has; the ids themselves are in files, one a part

The tokenizer, the tokens and their order are those of `learn_and_tokenize`. A tokenizer that learns from more than how
often words occur (the merges of bpe, the pieces of wordpiece) is learnt by the process that gives the command.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.engines.engine import Engine, integer_schema
from octavo.engines.stages import Stages
from octavo.errors import UserError
from octavo.io.progress import Advance, progress
from octavo.text.text_parts import Cut, TextParts, read_part
from octavo.text.token_shards import TokenShards, finish_shards, write_shard
from octavo.text.token_store import fingerprint, id_type
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.registry import (
    load_given,
    load_tokenizer,
    save_tokenizer,
    tokenizer_class,
    tokenizer_settings,
)

if TYPE_CHECKING:
    import pyarrow

COUNTED, VOCABULARY, TOKENS, TOKENIZER = "counted", "vocabulary", "tokens", "tokenizer.json"
SIZE_COLUMNS = ("part", "tokens")
WORDS_BATCH = 1 << 17  # words with their counts handed to the engine at once


def learn_and_tokenize_parts(
    engine: Engine, stages: Stages, parts: TextParts, name: str, options: Mapping[str, Any]
) -> tuple[Tokenizer, TokenShards]:
    """A tokenizer, learnt or (a `name` that ends in .json) loaded, and the text's tokens: two stages."""

    def make_tokenizer(folder: Path) -> None:
        folder.mkdir()
        save_tokenizer(_learn(engine, parts, name, options, folder), folder / TOKENIZER)

    with progress(f"tokenizing on {engine.name}", 2, "stages") as advance:
        stages.run(VOCABULARY, make_tokenizer)
        advance(1)
        path = stages.rows(VOCABULARY) / TOKENIZER
        tokenizer = load_tokenizer(path)
        return tokenizer, _tokenize(engine, stages, parts, tokenizer, path, advance)


def _learn(engine: Engine, parts: TextParts, name: str, options: Mapping[str, Any], folder: Path) -> Tokenizer:
    if name.endswith(".json"):
        return load_given(name, options)
    kind, settings = tokenizer_class(name), tokenizer_settings(name, options)
    if not kind.learns_words:
        return kind.learn(parts.chunks(), settings)
    engine.open_batches(COUNTED, parts.describe(), partial(count_part, name=name, settings=settings), word_schema(),
                        slow=True)  # fmt: skip
    engine.write(vocabulary_sql(settings.min_count), folder / VOCABULARY)
    words = _read_words(folder / VOCABULARY)
    return kind.from_words(list(itertools.islice(words, getattr(settings, "vocab_size", None))), settings)


def word_schema() -> pyarrow.Schema:
    """The columns of words and their counts."""
    import pyarrow

    return pyarrow.schema([("word", pyarrow.binary()), ("count", pyarrow.int64())])


def count_part(described: str, name: str, settings: Any) -> Iterator[pyarrow.RecordBatch]:
    """The words of a part, each once."""
    import pyarrow

    kind = tokenizer_class(name)
    cut = _cut_of(kind.from_words([], settings))
    words, count_W = kind.count_words(read_part(described).chunks(cut), settings)
    for i in range(0, len(words), WORDS_BATCH):
        columns = [pyarrow.array(words[i : i + WORDS_BATCH], pyarrow.binary()), count_W[i : i + WORDS_BATCH]]
        yield pyarrow.record_batch(columns, word_schema())


def vocabulary_sql(min_count: int) -> str:
    """The words that occur often enough; blobs are compared byte by byte, as Python compares bytes."""
    summed = f"SELECT word, CAST(sum(count) AS BIGINT) AS count FROM {COUNTED} GROUP BY word"
    return f"SELECT word, count FROM ({summed}) AS summed WHERE count >= {min_count} ORDER BY count DESC, word"


def _read_words(folder: Path) -> Iterator[bytes]:
    """The vocabulary in its order."""
    import pyarrow.parquet

    for path in sorted(folder.glob("*.parquet")):
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["word"]):
                yield from batch.column(0).to_pylist()


def _tokenize(
    engine: Engine, stages: Stages, parts: TextParts, tokenizer: Tokenizer, path: Path, advance: Advance
) -> TokenShards:
    dtype = id_type(tokenizer).str

    def make(folder: Path) -> None:
        folder.mkdir()
        write = partial(write_part, tokenizer=str(path.absolute()), identity=fingerprint(tokenizer),
                        folder=str(folder.absolute()), dtype=dtype)  # fmt: skip
        engine.open_batches(TOKENS, parts.describe(), write, integer_schema(SIZE_COLUMNS), slow=True)
        size_P: NDArray[np.int64] = np.zeros(len(parts.parts), np.int64)
        for part, tokens in engine.rows(f"SELECT part, tokens FROM {TOKENS}"):
            size_P[part] = tokens
        if not size_P.any():
            raise UserError(f"there is no text in {', '.join(parts.files[:3])}: a corpus needs at least 2 bytes")
        finish_shards(folder, size_P)

    stages.run(TOKENS, make)
    advance(1)
    return TokenShards(str(stages.rows(TOKENS).absolute()), dtype)


def write_part(
    described: str, tokenizer: str, identity: str, folder: str, dtype: str
) -> Iterator[pyarrow.RecordBatch]:  # fmt: skip
    """Write the tokens of a part into its file; how many there are."""
    import pyarrow

    part, loaded = read_part(described), _loaded(tokenizer, identity)
    tokens = write_shard(folder, part.number, loaded.encode_chunks(part.chunks(_cut_of(loaded))), dtype)
    yield pyarrow.record_batch([pyarrow.array([part.number]), pyarrow.array([tokens])], integer_schema(SIZE_COLUMNS))


@lru_cache(1)
def _loaded(path: str, identity: str) -> Tokenizer:
    """The tokenizer of a file, read once by each process; another one may have had the same path."""
    return load_tokenizer(path)


def _cut_of(tokenizer: Tokenizer) -> Cut:
    return Cut(tokenizer.split_point, tokenizer.splits_locally)
