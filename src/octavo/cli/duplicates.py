"""octavo data duplicates: a text without the lines or documents that repeat others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from octavo.cli.flags import Corpora, Encoding, Field, NewPath
from octavo.cli.output import Output, note
from octavo.engines.choice import EngineChoice
from octavo.io.encoding import UTF8


def remove(
    corpus: Corpora,
    out: NewPath,
    near: bool = False,
    similarity: float = 0.8,
    shingle: Annotated[int, arg(metavar="N")] = 5,
    shingle_unit: Literal["character", "word"] = "character",
    unit: Literal["line", "document"] = "line",
    field: Field = "text",
    errors: Literal["strict", "replace"] = "strict",
    encoding: Encoding = UTF8,
    choice: EngineChoice = EngineChoice(),  # noqa: B008
) -> Output:
    """Remove lines or documents that repeat an earlier one, to the byte or nearly; killed, the same command goes on.

    The folder gets text.txt (text.jsonl where there are several documents), removed.tsv and duplicates.json.

    Example: octavo data duplicates shakespeare --near --out unique

    Args:
        out: The folder to write to.
        near: Near duplicates too: MinHash finds pairs, and their similarity is computed.
        similarity: Least Jaccard similarity of the shingles of near duplicates.
        shingle: Characters or words of a shingle.
        shingle_unit: What a shingle consists of.
        unit: What is compared and removed; documents are files, records of JSON lines or rows of Parquet.
        errors: What is not UTF-8: refuse it, or replace it.
        choice: What finds them, and with how much memory.
    """
    from octavo.text.duplicates import DuplicatesConfig, remove_duplicates, summary  # here: others start without numpy

    config = DuplicatesConfig(unit, near, similarity, shingle, shingle_unit)
    removal = remove_duplicates(corpus, Path(out), config, choice, field, errors, encoding)
    if removal.resumed:
        note(f"went on from the finished stages {', '.join(removal.resumed)}")
    gone = removal.exact + removal.near
    words = [
        f"{removal.units:,} {unit}s, {removal.bytes:,} bytes: {removal.exact:,} exact"
        + (f" and {removal.near:,} near" if near else "") + " duplicates removed; "
        f"{removal.units - gone:,} {unit}s, {removal.bytes_kept:,} bytes stay",
    ]  # fmt: skip
    if near:
        bands = config.bands
        words.append(
            f"a pair of similarity {similarity:g} was compared with probability {bands.probability(similarity):.3f}, "
            f"a closer one with a higher one ({bands.bands} bands of {bands.rows} MinHash values)"
        )
    words += [f"what was removed: {Path(out, 'removed.tsv')}; next:", f"  octavo train ngram {removal.text}"]
    return Output({"out": out, "text": str(removal.text), **summary(removal)}, "\n".join(words))
