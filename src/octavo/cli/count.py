"""octavo count: n-gram counts and co-occurrences without a model, in files, and their sums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from octavo.cli.flags import Corpora, Files, NewPath, run_action, run_command
from octavo.cli.output import Output
from octavo.errors import UserError
from octavo.models.ngram.count_folder import CountFolder
from octavo.tasks.cooccurrences import CLOSED, are_cooccurrences, count_cooccurrences, merge_cooccurrences
from octavo.tasks.corpus import TextConfig
from octavo.tasks.counts import count_texts, import_counts, merge_counts
from octavo.tasks.engine_counting import EngineConfig
from octavo.training.cooccurrence_folder import CooccurrenceFolder
from octavo.training.cooccurrences import CooccurrenceConfig

Binary = Annotated[
    bool, arg(help="Co-occurrences: also write vocab.txt and cooccurrence.bin, from which Stanford's GloVe trains.")
]

USAGE = """usage: octavo count CORPUS... --out FOLDER                 count the n-grams of a text
       octavo count cooccurrences CORPUS... --out FOLDER   count which words stand near each other, as GloVe does
       octavo count merge FOLDER... --out FOLDER           add counts of the same tokenizer and order or window
       octavo count import FILE... --out FOLDER            read counts of others: lines of words, a tab, a count

octavo train ngram --counts FOLDER makes a model of n-grams, octavo vectors --cooccurrences FOLDER word vectors.
Each takes --json; --help shows more.

example: octavo count shakespeare --order 3 --tokenizer word --out counts/plays
"""


def run_count(argv: list[str]) -> None:
    """Dispatch cooccurrences, merge and import; anything else is a text to count."""
    if argv and argv[0] not in ACTIONS:
        if argv[0] in ("-h", "--help"):
            print(USAGE, end="")
        run_command(count, "octavo count", argv)
        return
    run_action("count", USAGE, ACTIONS, argv)


def count(
    corpus: Corpora,
    out: NewPath,
    order: int = 5,
    sentences: bool = False,
    text: TextConfig = TextConfig(),  # noqa: B008
    counting: EngineConfig = EngineConfig(),  # noqa: B008
) -> Output:
    """Count the n-grams of a text into Parquet files, within a limit of memory; killed, the same command goes on.

    Example: octavo count shakespeare --order 3 --tokenizer word --out counts/plays

    Args:
        out: The folder of counts.
        order: Tokens in the longest n-gram.
        sentences: Forget everything at the end of each line, as KenLM does.
        text: How the text becomes tokens.
        counting: What counts, and with how much memory.
    """
    return _report(count_texts(corpus, Path(out), order, sentences, text, counting))


def cooccurrences(
    corpus: Corpora,
    out: NewPath,
    config: CooccurrenceConfig = CooccurrenceConfig(),  # noqa: B008
    sentences: bool = False,
    binary: Binary = False,
    text: TextConfig = CLOSED,
    counting: EngineConfig = EngineConfig(),  # noqa: B008
) -> Output:
    """Count how often words stand near each other, as GloVe does, with exact sums; killed, the same command goes on.

    Example: octavo count cooccurrences shakespeare --window 10 --min-count 5 --sentences --out counts/near

    Args:
        out: The folder of counts.
        config: What is counted.
        sentences: No window reaches over the end of a line.
        text: How words are found (closed: between white space).
        counting: What counts, and with how much memory.
    """
    return _report_pairs(count_cooccurrences(corpus, Path(out), config, sentences, text, counting, binary))


def merge(
    folders: Files,
    out: NewPath,
    binary: Binary = False,
    counting: EngineConfig = EngineConfig(),  # noqa: B008
) -> Output:
    """Add the counts of several texts, which were counted with one tokenizer and order, or window.

    Example: octavo count merge counts/one counts/two --out counts/both

    Args:
        folders: Folders of counts.
        out: The folder of their sums.
        counting: What counts, and with how much memory.
    """
    paths = [Path(folder) for folder in folders]
    if are_cooccurrences(paths):
        return _report_pairs(merge_cooccurrences(paths, Path(out), counting, binary))
    if binary:
        raise UserError("--binary is for folders of co-occurrences: these have n-grams; leave it out")
    return _report(merge_counts(paths, Path(out), counting))


def import_(files: Files, out: NewPath, counting: EngineConfig = EngineConfig()) -> Output:  # noqa: B008
    """Read counts that others made, of all orders: lines of words, a tab and a count, as SRILM writes them.

    Example: octavo count import counts.txt.gz --out counts/theirs

    Args:
        files: Files of lines, plain or compressed.
        out: The folder of counts.
        counting: What counts, and with how much memory.
    """
    if not files:
        raise UserError("name files of counts: octavo count import FILE... --out FOLDER")
    return _report(import_counts([Path(file) for file in files], Path(out), counting))


def _report(counted: CountFolder) -> Output:
    record = counted.record
    data = {"counts": str(counted.path), **vars(record)}
    return Output(
        data,
        f"{record.order}-grams of {record.tokens:,} {counted.tokenizer.name} tokens\n"
        f"the counts are in {counted.path}; next:\n  octavo train ngram --counts {counted.path}",
    )


def _report_pairs(counted: CooccurrenceFolder) -> Output:
    record = counted.record
    data = {"cooccurrences": str(counted.path), **vars(record)}
    return Output(
        data,
        f"{record.pairs:,} pairs of {record.tokens:,} {counted.tokenizer.name} tokens, window {record.window}\n"
        f"the counts are in {counted.path}; next:\n  octavo vectors --cooccurrences {counted.path} --out vectors.txt",
    )


ACTIONS: dict[str, Callable[..., Any]] = {"cooccurrences": cooccurrences, "merge": merge, "import": import_}
