"""An n-gram model whose counts an engine makes: equal to `NGram.fit` to the last bit, out of memory's way."""

from __future__ import annotations

from pathlib import Path

from octavo.engines.engine import Engine
from octavo.engines.stages import Stages
from octavo.io.progress import Advance, progress
from octavo.models.ngram.config import NGramConfig
from octavo.models.ngram.counting import Vocabulary
from octavo.models.ngram.level_files import read_orders
from octavo.models.ngram.model import NGram
from octavo.models.ngram.relational import count_levels, count_windows
from octavo.models.ngram.table_files import fit_tables, takes_whole_orders
from octavo.text.token_shards import TokenShards
from octavo.text.token_store import id_type
from octavo.text.tokenizers.base import Tokenizer

TABLES = "tables"  # the folder of the files that the model's tables are mapped from


def fit_tokens(engine: Engine, stages: Stages, tokens: Path, config: NGramConfig, tokenizer: Tokenizer) -> NGram:
    """Count the token ids of a folder of shards and estimate the model."""
    model = NGram(config, tokenizer.vocab, tokenizer.newline)
    source = TokenShards(str(tokens.absolute()), id_type(tokenizer).str)
    with progress(f"counting {config.order}-grams on {engine.name}", config.order + 2, "stages") as advance:
        count_windows(engine, stages, source, config.order, vocabulary_of(model), advance)
        return fit_counts(engine, stages, model, advance)


def vocabulary_of(model: NGram) -> Vocabulary:
    """The ids that mean something to counting."""
    return Vocabulary(model.vocab, model.begin, model.newline)


def fit_counts(engine: Engine, stages: Stages, model: NGram, advance: Advance) -> NGram:
    """Estimate the model from the counts of its highest order, which stand among the stages."""
    order, vocabulary = model.config.order, vocabulary_of(model)
    count_levels(engine, stages, order, vocabulary, advance)
    folder = stages.folder / TABLES
    folder.mkdir(exist_ok=True)
    fit_tables(model, read_orders(stages, order, vocabulary, folder, takes_whole_orders(model.config)), folder)
    advance(1)
    return model
