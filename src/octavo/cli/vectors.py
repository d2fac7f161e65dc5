"""octavo vectors: learn word vectors from a text, and look at any: neighbours, analogies, a check."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from octavo.cli.flags import Corpora, Encoding, Field, Force, new_path, run_action, run_command
from octavo.cli.output import Output, Table, note, print_table
from octavo.errors import UserError
from octavo.inspection.word_similarity import WordVectors, check, vectors
from octavo.io.encoding import UTF8
from octavo.models.parts.checks import check_positive
from octavo.training.glove import GloveConfig

VectorFile = Annotated[Positional[str], arg(metavar="FILE", help="A file of vectors, or glove-6b-50d.")]
WordList = Annotated[Positional[tuple[str, ...]], arg(metavar="WORD...", help_behavior_hint="(at least one)")]

USAGE = """usage: octavo vectors CORPUS... --out FILE      learn vectors from a text
       octavo vectors --cooccurrences FOLDER    learn them from what octavo count cooccurrences counted
       octavo vectors near FILE WORD...         the words nearest to each word
       octavo vectors analogy FILE A B C        A is to B as C is to what
       octavo vectors check FILE                analogies and similarities from a small list of octavo's own

FILE is GloVe's or word2vec's text format, also compressed, or glove-6b-50d. Each takes --json; --help shows more.

example: octavo vectors shakespeare --out plays.txt
"""


def run_vectors(argv: list[str]) -> None:
    """Dispatch near, analogy and check; anything else is a corpus to learn from."""
    if argv and argv[0] not in ACTIONS:
        if argv[0] in ("-h", "--help"):
            print(USAGE, end="")
        run_command(train, "octavo vectors", argv)
        return
    run_action("vectors", USAGE, ACTIONS, argv)


def train(
    corpus: Corpora,
    config: GloveConfig = GloveConfig(),  # noqa: B008
    out: str = "vectors.txt",
    header: bool = False,
    whole_text: bool = False,
    cooccurrences: str | None = None,
    field: Field = "text",
    errors: Literal["strict", "replace"] = "strict",
    encoding: Encoding = UTF8,
    force: Force = False,
    seed: int = 0,
) -> Output:
    """Learn GloVe vectors from the training part of a text, the first nine tenths, and write them as text.

    Example: octavo vectors shakespeare --out plays.txt

    Args:
        config: The vectors.
        out: The file they are written to.
        header: Begin the file with word2vec's line of counts.
        whole_text: Learn from the last tenth too, on which models are measured; runs that use the vectors say so.
        cooccurrences: Instead of a text: a folder that octavo count cooccurrences wrote.
        errors: What is not UTF-8: refuse it or replace it.
        seed: Of the random start and order.
    """
    if bool(corpus) == bool(cooccurrences):
        raise UserError("name a text to learn from, or counts: octavo vectors CORPUS --out FILE, or --cooccurrences")
    _check_out(out, corpus)
    with new_path(out, force):
        learnt = vectors(
            corpus or None, seed=seed, whole_text=whole_text, field=field, errors=errors, encoding=encoding,
            cooccurrences=cooccurrences, **vars(config),
        )  # fmt: skip
        learnt.save(out, header)
    summary, losses = learnt.summary, learnt.summary["loss"]
    epochs = f", the loss fell from {losses[0]:.4f} to {losses[-1]:.4f} a pair" if losses else ""
    words = (
        f"{summary['words']:,} words, {summary['pairs']:,} pairs of words near each other{epochs}\n"
        f"learnt from {summary['text']['part']}, {summary['tokens']:,} words, in {summary['seconds']:.1f} s\n"
        f"the vectors are in {out}, their text's hash in {out}.json; next:\n"
        f"  octavo vectors near {out} {learnt.words[len(learnt) // 10]}\n"
        f"  octavo train bigram CORPUS --tokenizer word --vectors {out} --dim {config.dim}"
    )
    return Output({"file": out, **learnt.to_json()}, words)


def near(file: VectorFile, words: WordList, count: int = 10) -> Output:
    """The words whose vectors are at the smallest angles to each word's.

    Example: octavo vectors near glove-6b-50d king queen

    Args:
        words: The words.
        count: How many to show.
    """
    if not words:
        raise UserError(f"name a word: octavo vectors near {file} king")
    opened = _open(file, count)
    found = {word: opened.nearest(word, count) for word in words}
    shown = [(word, _shown(rows)) for word, rows in found.items()]
    data = {word: _as_json(rows) for word, rows in found.items()}
    return Output(data, Table(("word", "near it"), shown, left=(0, 1)))


def analogy(file: VectorFile, a: Positional[str], b: Positional[str], c: Positional[str], count: int = 5) -> Output:
    """A is to B as C is to what: the words nearest to B - A + C.

    Example: octavo vectors analogy glove-6b-50d man king woman

    Args:
        a: The first word.
        b: What it is to.
        c: The third word.
        count: How many answers to show.
    """
    rows = _open(file, count).analogy(a, b, c, count)
    return Output(_as_json(rows), f"{a} is to {b} as {c} is to: {_shown(rows)}")


def check_(file: VectorFile) -> Output:
    """Ask analogies and similarities from a small list of octavo's own.

    Example: octavo vectors check glove-6b-50d
    """
    result = check(_open(file))
    return Output({"file": file, **result}, lambda: _print_check(result))


def _print_check(result: dict[str, Any]) -> None:
    rows = [(kind, f"{got['right']} of {got['asked']}", f"{got['asked']} of {got['of']}")
            for kind, got in result["analogies"].items()]  # fmt: skip
    print(f"{result['words']:,} words of {result['dim']} dimensions")
    print_table(("analogies", "right", "have vectors"), rows)
    similar = result["similarity"]
    if similar["spearman"] is not None:
        print(f"similarity: Spearman's rho {similar['spearman']:.2f} over {similar['pairs']} of {similar['of']} pairs")
    print("both lists are octavo's own and small: they separate sound vectors from broken ones, no more")


def _check_out(out: str, corpus: tuple[str, ...]) -> None:
    """What would only fail when the vectors are learnt is refused before, and so is writing over the text."""
    if any(os.path.exists(name) and os.path.exists(out) and os.path.samefile(name, out) for name in corpus):
        raise UserError(f"{out} is the text to learn from; choose another --out")
    above = next(folder for folder in Path(out).absolute().parents if os.path.exists(folder))
    if os.path.isdir(out) or not os.path.isdir(above) or not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {out}: it must be a file in a folder you can write to; choose another --out")


def _open(file: str, count: int = 1) -> WordVectors:
    check_positive("count", count, 10)
    read = vectors(file=file)
    note(*read.vectors.notes)
    return read


def _as_json(rows: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [{"word": word, "cosine": cosine} for word, cosine in rows]


def _shown(rows: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{word} {cosine:.2f}" for word, cosine in rows)


ACTIONS: dict[str, Callable[..., Output]] = {"near": near, "analogy": analogy, "check": check_}
