"""GloVe's co-occurrences: count them in a text into a folder, and add folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from octavo.engines.stages import Stages, stages_folder
from octavo.errors import UserError
from octavo.io.progress import progress
from octavo.models.ngram.model import sentence_end
from octavo.models.ngram.packed_keys import KeyLayout
from octavo.tasks.corpus import TextConfig
from octavo.tasks.engine_counting import CountingJob, EngineConfig, Opened, engine_of, modified_times, open_whole
from octavo.text import Corpus
from octavo.training.cooccurrence_folder import (
    CooccurrenceFolder,
    CooccurrenceRecord,
    check_rows,
    check_same_kind,
    is_cooccurrence_folder,
    packed_pairs_sql,
    read_cooccurrence_folder,
    write_cooccurrence_folder,
)
from octavo.training.cooccurrences import (
    SORTED,
    CooccurrenceConfig,
    count_pairs,
    count_words,
    grouped_sql,
)

CLOSED = TextConfig(tokenizer="closed")  # words between white space, as GloVe's own programs read them


def count_cooccurrences(
    sources: Sequence[str], out: Path, config: CooccurrenceConfig = CooccurrenceConfig(),  # noqa: B008
    sentences: bool = False, text: TextConfig = CLOSED, counting: EngineConfig = EngineConfig(),  # noqa: B008
    binary: bool = False,
) -> CooccurrenceFolder:  # fmt: skip
    """Count a text's co-occurrences into a folder; a killed job goes on from its finished stages."""
    engine = engine_of(counting)
    opened = open_whole(sources, text)
    kind = [config.window, config.symmetric, config.distance_weighting]
    job = CountingJob.of_text(counting, opened, text, {"cooccurrences": kind, "sentences": sentences}, out)
    with job.open() as running, progress(f"counting co-occurrences on {engine}", 4, "stages") as advance:
        tokenizer, text_tokens = job.tokenize(running)
        end = sentence_end(sentences, tokenizer.newline)
        words, count_V = count_words(running, job.stages, text_tokens, tokenizer, end)
        tokens = int(count_V.sum())
        config.check_sums(tokens)
        advance(1)
        record = CooccurrenceRecord(
            config.window, config.symmetric, config.distance_weighting, sentences, config.scale, tokens, 0,
            tokenizer.vocab, tuple(map(str, sources)), _hash_of(opened, engine),
        )  # fmt: skip
        count_pairs(running, job.stages, words, config, tokenizer, advance)
        counted = write_cooccurrence_folder(job.stages.rows(SORTED), count_V, record, tokenizer, out, binary)
        advance(1)
    job.close(finished=True)
    return counted


def _hash_of(opened: Opened, engine: str) -> str:
    """The hash of the text, by which runs know vectors that have seen their last tenth.

    It takes one reader of the whole text: none on a cluster, whose text may be larger than one machine reads in a day.
    """
    if isinstance(opened, Corpus):
        return opened.train.sha256
    return "" if engine == "spark" else opened.hash_text()


def are_cooccurrences(folders: Sequence[Path]) -> bool:
    """Whether all are folders of co-occurrences; some of them is refused."""
    kinds = {path: is_cooccurrence_folder(path) for path in folders}
    if len(set(kinds.values())) > 1:
        pairs, other = (next(path for path in folders if kinds[path] is kind) for kind in (True, False))
        raise UserError(f"counts to add must be of one kind: {pairs} has co-occurrences, {other} does not; add others")
    return bool(kinds) and all(kinds.values())


def merge_cooccurrences(
    folders: Sequence[Path], out: Path, counting: EngineConfig = EngineConfig(), binary: bool = False  # noqa: B008
) -> CooccurrenceFolder:  # fmt: skip
    """Add the co-occurrences of several folders, of one tokenizer and window."""
    if len(folders) < 2:
        raise UserError(f"at least two folders of counts are added: {len(folders)} given")
    read = [read_cooccurrence_folder(path) for path in folders]
    check_same_kind(read)
    first, layout = read[0], KeyLayout(read[0].record.vocab)
    tokens, sources = sum(one.record.tokens for one in read), [name for one in read for name in one.record.sources]
    first.record.config.check_sums(tokens)
    count_V = sum((one.counts() for one in read), np.zeros(first.record.vocab, np.int64))
    record = replace(first.record, tokens=tokens, sources=tuple(sources), sha256="")
    engine = engine_of(counting)
    given = [[str(one.path.absolute()), modified_times(one.path)] for one in read]
    stages = Stages(stages_folder(out), {"cooccurrences": given})
    with counting.open(stages.folder, engine) as running:

        def make(rows: Path) -> None:
            for number, folder in enumerate(read):
                running.open_parquet(f"given{number}", folder.rows)
                check_rows(running, f"given{number}", folder)
            parts = " UNION ALL ".join(packed_pairs_sql(f"given{i}", layout) for i in range(len(read)))
            running.write(f"{grouped_sql(f'({parts}) AS given', layout)} ORDER BY key0", rows)

        stages.run(SORTED, make)
        merged = write_cooccurrence_folder(stages.rows(SORTED), count_V, record, first.tokenizer, out, binary)
    stages.delete()
    return merged
