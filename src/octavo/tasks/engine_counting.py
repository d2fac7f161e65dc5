"""Fit a model to counts that an engine made: which engine serves, the stages of the job, and the model in the end.

tokens      the text's token ids, in a file          (the tokenizer beside it)
order...    the counts, see `models.ngram.relational`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from octavo.engines import check_engine, has_engine
from octavo.engines.choice import EngineChoice
from octavo.engines.stages import Stages, stages_folder
from octavo.errors import UserError
from octavo.io.memory import available
from octavo.models.ngram.counting import MOST_TOKENS
from octavo.models.spec import EngineFit, Fitted
from octavo.tasks.corpus import COUNTING_BYTES_PER_TOKEN, MAX_BYTES_IN_MEMORY, TextConfig
from octavo.text import Corpus, Split, Tokenizer, TokenStore, learn_and_tokenize, load_tokenizer, save_tokenizer
from octavo.text.token_store import id_type, map_ids

TOKENS, IDS, TOKENIZER = "tokens", "ids.bin", "tokenizer.json"


@dataclass(frozen=True)
class EngineConfig(EngineChoice):
    """What counts the n-grams."""

    engine: Literal["auto", "memory", "duckdb", "spark"] = "auto"  # type: ignore[assignment]  # more than the others
    """memory counts in memory; duckdb in files, within --memory-limit; spark on a cluster. The tables are the same.
    auto takes memory as long as it lasts, then duckdb."""
    memory_limit: str = ""
    """duckdb, spark: such as 2GB; by default half of what is free. Of a cluster, what each executor has."""

    def choose(self, tokens: int) -> str:
        """memory, duckdb or spark for a text of so many tokens."""
        if self.engine != "auto":
            return self.engine
        fits = tokens <= MOST_TOKENS and tokens * COUNTING_BYTES_PER_TOKEN <= available()
        return "memory" if fits or not has_engine("duckdb") else "duckdb"


@dataclass
class CountingJob:
    """A model's fit to counts of an engine: its stages, and where the result will be."""

    config: EngineConfig
    stages: Stages
    out: Path | None

    @classmethod
    def of_text(cls, config: EngineConfig, corpus: Corpus, text: TextConfig, job: Mapping[str, Any],
                out: Path | None) -> CountingJob:  # fmt: skip
        """The job of counting a text; stages that a killed one of the same text and settings left are taken over."""
        read = {"text": corpus.train.sha256, "tokenizer": [text.tokenizer, text.tokenizer_options()]}
        return cls(config, Stages(stages_folder(out), {**read, **job}), out)

    def tokenize(self, corpus: Corpus, text: TextConfig) -> tuple[Tokenizer, TokenStore]:
        """The first stage: the tokenizer, learnt on the training part, and its tokens in a file."""

        def make(folder: Path) -> None:
            folder.mkdir()
            tokenizer, _ = learn_and_tokenize(text.tokenizer, corpus, folder / IDS, **text.tokenizer_options())
            save_tokenizer(tokenizer, folder / TOKENIZER)

        self.stages.run(TOKENS, make)
        folder = self.stages.rows(TOKENS)
        tokenizer = load_tokenizer(folder / TOKENIZER)
        ids_N = map_ids(folder / IDS, id_type(tokenizer))
        return tokenizer, TokenStore(ids_N, np.zeros(0, np.int64))

    def fit(self, engine: str, fit: EngineFit, config: Any, tokenizer: Tokenizer) -> Fitted:
        """The model, its tables mapped from files of the stages."""
        ids = self.stages.rows(TOKENS) / IDS
        resumed = ", ".join(self.stages.resumed)
        notes = [f"went on from the finished stages {resumed}"] if resumed else []
        with self.config.open(self.stages.folder, engine) as running:
            fitted = fit(running, self.stages, ids, config, tokenizer)
        return fitted._replace(notes=[*notes, *fitted.notes])

    def close(self, finished: bool) -> None:
        """Delete the stages, unless the job was stopped and the same command can go on from them."""
        if finished or self.out is None:
            self.stages.delete()


def job_for(
    config: EngineConfig | None, corpus: Corpus, text: TextConfig, job: Mapping[str, Any], out: Path | None
) -> CountingJob | None:
    """The job of an engine, where one counts or may have to; None where memory is sure to serve."""
    if config is None or config.engine == "memory":
        return None
    if config.engine == "auto" and (corpus.train.size <= MAX_BYTES_IN_MEMORY or not has_engine("duckdb")):
        return None
    if config.engine != "auto":
        check_engine(config.engine)
    return CountingJob.of_text(config, corpus, text, job, out)


def engine_of(counting: EngineConfig) -> str:
    """The engine that makes folders of counts, which memory does not."""
    if counting.engine == "memory":
        raise UserError("folders of counts are made by an engine: engine=memory; try --engine duckdb")
    name = "duckdb" if counting.engine == "auto" else counting.engine
    check_engine(name)
    return name


def open_whole(sources: Sequence[str], text: TextConfig) -> Corpus:
    """A corpus of which nothing is held out, unless it is named: a model of its counts is measured on another text."""
    corpus = text.open(list(sources))
    if text.valid:
        return corpus
    whole = corpus.train.text
    return replace(corpus, train=Split(whole, 0, whole.size))


def modified_times(folder: Path) -> list[int]:
    """What changes when a folder of counts is written anew."""
    return sorted(path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
