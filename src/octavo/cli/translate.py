"""octavo translate, what eval and inspect do with a run that translates, and the report on one that was trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tyro.conf import UseAppendAction

from octavo.cli.flags import Device, Encoding, Files, InFile, MaybeNewPath, RunPath, read_file
from octavo.cli.inspect import show_description
from octavo.cli.output import Output, note, print_table, write_page
from octavo.decode import Beam
from octavo.errors import UserError
from octavo.inspection.api import describe_run
from octavo.io.encoding import UTF8, decode_text
from octavo.scoring.metrics import Translated
from octavo.tasks.device import place
from octavo.tasks.predictions import translate as translate_texts
from octavo.tasks.translation import TASK
from octavo.tasks.translation_alignment import LONGEST, Alignment, align
from octavo.tasks.translation_page import alignment_page
from octavo.tasks.translator import Translator

PAGE_TITLE = "What the translation attended to"
DRAWN = 20  # translations of a page of alignments


def translate(
    run: RunPath,
    file: InFile = "",
    text: UseAppendAction[tuple[str, ...]] = (),
    into: tuple[str, ...] = (),
    method: Literal["beam", "greedy", "sample"] = "beam",
    beam: int = 5,
    length_penalty: float = 1.0,
    page: MaybeNewPath = None,
    seed: int = 0,
    device: Device = "auto",
    encoding: Encoding = UTF8,
) -> Output:
    """Translate texts, or the lines of a file: a line each, in several languages with tabs between.

    Example: octavo translate runs/en-de --text "A dog runs through the snow."

    Args:
        file: A file with a text in each line; - is standard input.
        text: A text, instead of a file; --text may be given again.
        into: Target languages; without it, all that the run knows.
        method: beam: the best of several; greedy: always the likeliest token; sample: by chance.
        beam: How many translations the beam keeps.
        length_penalty: How much of a long translation's lower probability is made up for; 0: nothing.
        page: Where to write a page that shows what each token attended to, such as attention.html.
        seed: For sampling.
    """
    if bool(file) == bool(text):
        raise UserError("give what to translate: either --text TEXT or a file with a text in each line")
    content = decode_text(read_file(file), file, encoding) if file else ""
    texts = list(text) or (content.removesuffix("\n").split("\n") if content else [])
    loaded = _load(run, device)
    found = translate_texts(
        loaded, texts, into=into, method=method, beam=beam, length_penalty=length_penalty, seed=seed, device=device
    )
    if page is not None:
        _write_page(loaded, texts, found, page)
    rows = [{"text": text, **{one: found[one][n] for one in found}} for n, text in enumerate(texts)]
    lines = [
        "\t".join(" ".join(column.split()) if len(columns) > 1 else column for column in columns)
        for columns in zip(*found.values(), strict=True)
    ]
    return Output({"run": run, "translations": rows}, *lines)


def eval_(run: RunPath, files: Files = (), beam: int = 5, device: Device = "auto") -> Output:
    """BLEU and chrF of a run that translates, on the pairs held out for it; or on others.

    Example: octavo eval runs/en-de

    Args:
        files: A TSV file, or a file of sources and one of each target, line by line.
        beam: How many translations the beam keeps; 1 is greedy.
    """
    scores = TASK.evaluate(_load(run, device), files, method=Beam(beam, 1.0))
    result = {"run": run, "languages": {language: score.to_json() for language, score in scores.items()}}
    return Output(result, lambda: print_result(result))


def inspect(
    run: RunPath, text: str | None = None, into: str = "", out: MaybeNewPath = None, device: Device = "auto"
) -> Output:
    """What a run that translates is; with --text, what of the source each token of the translation attends to.

    Example: octavo inspect runs/en-de --text "A dog runs." --out attention.html

    Args:
        text: A sentence to translate.
        into: The target language; without it, the first.
        out: Where to write a page with the figures.
    """
    loaded = _load(run, "cpu" if text is None else device)
    if text is None:
        return show_description(describe_run(loaded))
    one = align(loaded, text, language=into)
    if out is not None:
        write_page(out, alignment_page(PAGE_TITLE, loaded.summary(), [one]))
    return Output(one.to_json, lambda: _print_alignment(one))


def _load(run: str, device: str) -> Translator:
    loaded = Translator.load(run)
    if loaded.unfinished:
        note(f"{run}: its training is not finished; these are its weights so far")
    return place(loaded, device)


def _write_page(loaded: Translator, texts: Sequence[str], found: dict[str, list[str]], page: str) -> None:
    """The attention of the first translations; a text that is empty or too long to draw is left out."""
    aligned, left = [], 0
    for language, outputs in found.items():
        for text, output in zip(texts[:DRAWN], outputs[:DRAWN], strict=True):
            try:
                aligned.append(align(loaded, text, output, language))
            except UserError:
                left += 1
    if left:
        note(f"{left} texts are not drawn: a text to look at has from 1 to {LONGEST - 1} tokens")
    write_page(page, alignment_page(PAGE_TITLE, loaded.summary(), aligned))


def _print_alignment(one: Alignment) -> None:
    print(f"{one.text}\n{one.translation}\n")
    rows = [
        (token, one.source[at], f"{weights[at]:.0%}")
        for token, at, weights in zip(one.target, one.strongest, one.mean.tolist(), strict=True)
    ]
    print_table(("written", "attends most to", "share"), rows, left=(0, 1))


def print_result(result: dict[str, Any]) -> None:
    """BLEU and chrF of each language."""
    scores = {language: Translated(**score) for language, score in result["languages"].items()}
    rows = [
        (language, f"{score.bleu:.2f}", f"{score.chrf:.2f}", f"{score.exact:.1%}", f"{score.sentences:,}")
        for language, score in scores.items()
    ]
    print_table(("into", "BLEU", "chrF", "exact", "texts"), rows)
    first = next(iter(scores.values()))
    print(f"BLEU: {first.signature}\nchrF: {first.chrf_signature}")
