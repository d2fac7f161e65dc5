"""Fit a model to counts that an engine made: which engine serves, the stages of the job, and the model in the end.

text        what was unpacked here, where others can read it
vocabulary  the tokenizer, see `text.relational_tokens`
tokens      the text's token ids, in files
order...    the counts, see `models.ngram.relational`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from octavo.engines import check_engine, has_engine
from octavo.engines.choice import EngineChoice
from octavo.engines.engine import Engine
from octavo.engines.stages import Stages, stages_folder
from octavo.errors import UserError
from octavo.io.memory import available
from octavo.models.ngram.counting import MOST_TOKENS
from octavo.models.spec import EngineFit, Fitted
from octavo.tasks.corpus import COUNTING_BYTES_PER_TOKEN, MAX_BYTES_IN_MEMORY, TextConfig
from octavo.text import Corpus, Split, Tokenizer
from octavo.text.relational_tokens import learn_and_tokenize_parts
from octavo.text.text_parts import TextParts, copy_split, parts_of_sources, parts_of_split
from octavo.text.token_shards import TokenShards

TEXT = "text"
Opened = Corpus | TextParts  # a text that this process reads, or one that only its parts' readers do


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
    opened: Opened
    text: TextConfig

    @classmethod
    def of_text(cls, config: EngineConfig, opened: Opened, text: TextConfig, job: Mapping[str, Any],
                out: Path | None) -> CountingJob:  # fmt: skip
        """The job of counting a text; stages that a killed one of the same text and settings left are taken over."""
        known = opened.train.sha256 if isinstance(opened, Corpus) else opened.identity
        read = {"text": known, "tokenizer": [text.tokenizer, text.tokenizer_options()]}
        return cls(config, Stages(stages_folder(out), {**read, **job}), out, opened, text)

    def open(self) -> Engine:
        """The engine; where memory may serve in the end, the one that tokenises until then."""
        return self.config.open(self.stages.folder, "duckdb" if self.config.engine == "auto" else "")

    def tokenize(self, engine: Engine) -> tuple[Tokenizer, TokenShards]:
        """The first stages: the tokenizer, learnt on the training part, and its tokens in files."""
        options = self.text.tokenizer_options()
        tokenizer, tokens = learn_and_tokenize_parts(engine, self.stages, self._parts(), self.text.tokenizer, options)
        self.stages.remove(TEXT)
        return tokenizer, tokens

    def _parts(self) -> TextParts:
        if not isinstance(self.opened, Corpus):
            return self.opened
        split = self.opened.train
        if split.text.path is None:
            self.stages.run(TEXT, lambda folder: copy_split(split, folder))
        return parts_of_split(split, self.stages.rows(TEXT))

    def fit(self, engine: Engine, fit: EngineFit, config: Any, tokenizer: Tokenizer, tokens: TokenShards) -> Fitted:
        """The model, its tables mapped from files of the stages."""
        resumed = ", ".join(self.stages.resumed)
        notes = [f"went on from the finished stages {resumed}"] if resumed else []
        fitted = fit(engine, self.stages, Path(tokens.folder), config, tokenizer)
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


def open_whole(sources: Sequence[str], text: TextConfig) -> Opened:
    """A text of which nothing is held out, unless it is named: a model of its counts is measured on another text.

    Files are not read here, but by those who have parts of them; what only this process can read is unpacked.
    """
    if parts := parts_of_sources(sources, text.field, text.reading_errors(), text.encoding, text.preprocess):
        return parts
    corpus = text.open(list(sources))
    if text.valid:
        return corpus
    whole = corpus.train.text
    return replace(corpus, train=Split(whole, 0, whole.size))


def modified_times(folder: Path) -> list[int]:
    """What changes when a folder of counts is written anew."""
    return sorted(path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
