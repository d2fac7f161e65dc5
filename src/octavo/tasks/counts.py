"""Counts without a model: count texts into a folder, add folders, and fit a model to one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.engines.engine import Engine
from octavo.engines.stages import Stages, stages_folder
from octavo.errors import UserError
from octavo.io.partial_files import TemporaryFolder
from octavo.io.progress import progress
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.ngram.count_folder import (
    CountFolder,
    CountRecord,
    check_same_kind,
    read_count_folder,
    take_counts,
    write_count_folder,
)
from octavo.models.ngram.counting import Vocabulary
from octavo.models.ngram.engine_fit import fit_counts
from octavo.models.ngram.model import sentence_end
from octavo.models.ngram.relational import count_windows, level_name
from octavo.models.ngram.text_counts import import_text_counts
from octavo.tasks.corpus import TextConfig
from octavo.tasks.engine_counting import CountingJob, EngineConfig, engine_of, modified_times, open_whole
from octavo.tasks.run import Run


def count_texts(
    sources: Sequence[str], out: Path, order: int = 5, sentences: bool = False, text: TextConfig = TextConfig(),  # noqa: B008
    counting: EngineConfig = EngineConfig(),  # noqa: B008
) -> CountFolder:  # fmt: skip
    """Count all of a text's n-grams into a folder; a killed job goes on from its finished stages."""
    engine = engine_of(counting)
    NGramConfig(order=order, sentences=sentences)
    opened = open_whole(sources, text)
    job = CountingJob.of_text(counting, opened, text, {"order": order, "sentences": sentences, "counts": 1}, out)
    with job.open() as running:
        tokenizer, tokens = job.tokenize(running)
        vocabulary = Vocabulary(tokenizer.vocab, tokenizer.begin, sentence_end(sentences, tokenizer.newline))
        record = CountRecord(order, sentences, len(tokens), tokenizer.vocab, tuple(map(str, sources)))
        with progress(f"counting {order}-grams on {engine}", 2, "stages") as advance:
            count_windows(running, job.stages, tokens, order, vocabulary, advance)
            running.open_parquet("counted", job.stages.rows(level_name(order)))
            write_count_folder(running, "counted", record, tokenizer, out)
            advance(1)
    job.close(finished=True)
    return CountFolder(out, record, tokenizer)


def merge_counts(folders: Sequence[Path], out: Path, counting: EngineConfig = EngineConfig()) -> CountFolder:  # noqa: B008
    """Add the counts of several folders, of one tokenizer and order."""
    if len(folders) < 2:
        raise UserError(f"at least two folders of counts are added: {len(folders)} given")
    read = [read_count_folder(path) for path in folders]
    check_same_kind(read)
    order = read[0].record.order
    tokens, sources = sum(one.record.tokens for one in read), [name for one in read for name in one.record.sources]
    record = replace(read[0].record, tokens=tokens, sources=tuple(sources))
    with _counted(read, order, counting, out) as (engine, stages):
        engine.open_parquet("counted", stages.rows(level_name(order)))
        write_count_folder(engine, "counted", record, read[0].tokenizer, out)
    return CountFolder(out, record, read[0].tokenizer)


def import_counts(files: Sequence[Path], out: Path, counting: EngineConfig = EngineConfig()) -> CountFolder:  # noqa: B008
    """A folder of counts out of lines that others wrote: words, a tab, a count."""
    name = engine_of(counting)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    work = TemporaryFolder(out.absolute().parent)
    try:
        with counting.open(work.path, name) as engine:
            return import_text_counts(engine, files, work.path / "tables", out)
    finally:
        work.cleanup()


def train_counts(
    counts: Path, config: NGramConfig, out: Path | None, counting: EngineConfig = EngineConfig(),  # noqa: B008
) -> Run:  # fmt: skip
    """A model fitted to a folder of counts, as if it had been fitted to the text."""
    began = time.perf_counter()
    folder = read_count_folder(counts)
    if config.order > folder.record.order:
        known = folder.record.order
        raise UserError(f"{counts} has n-grams of {known} tokens: order={config.order}; try --order {known}")
    if config.sentences != folder.record.sentences:
        way = "with" if folder.record.sentences else "without"
        raise UserError(f"{counts} was counted {way} --sentences: sentences={config.sentences}; give the same")
    model = NGram(config, folder.tokenizer.vocab, folder.tokenizer.newline)
    with _counted([folder], config.order, counting, out) as (engine, stages):
        with progress(f"fitting {config.order}-grams on {engine.name}", config.order + 1, "stages") as advance:
            fit_counts(engine, stages, model, advance)
        record: dict[str, Any] = {
            "corpus": {"name": ", ".join(folder.record.sources)}, "train_tokens": folder.record.tokens,
            "train_seconds": time.perf_counter() - began, "notes": [], "engine": engine.name,
        }  # fmt: skip
        run = Run(model, folder.tokenizer, record)
        return run if out is None else run.save(out)


@contextmanager
def _counted(
    folders: Sequence[CountFolder], order: int, counting: EngineConfig, out: Path | None
) -> Iterator[tuple[Engine, Stages]]:
    """An engine, and stages of which the first is the folders' counts; they are deleted in the end."""
    name = engine_of(counting)
    identity = {"counts": [[str(one.path.absolute()), modified_times(one.path)] for one in folders], "order": order}
    stages = Stages(stages_folder(out), identity)
    with counting.open(stages.folder, name) as engine:
        take_counts(engine, stages, folders, order)
        yield engine, stages
    stages.delete()
