"""octavo translate, what eval and inspect do with a run that translates, and the report on one that was trained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from octavo.cli.flags import Files, RunPath
from octavo.cli.output import note, print_json, print_table, write_page
from octavo.core import seeded_generator
from octavo.decode import Beam, Greedy, Sample
from octavo.errors import UserError
from octavo.models.cost.parts import parameter_count
from octavo.scoring.metrics import Translated
from octavo.tasks.task import pick_device
from octavo.tasks.translation import TASK
from octavo.tasks.translation_alignment import LONGEST, Alignment, align
from octavo.tasks.translation_page import alignment_page
from octavo.tasks.translator import Method, Translator

InFile = Annotated[Positional[str], arg(metavar="FILE")]
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
    page: str | None = None,
    seed: int = 0,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Translate texts, or the lines of a file: a line each, in several languages with tabs between.

    Example: octavo translate runs/en-de --text "A dog runs through the snow."

    Args:
        run: A run folder.
        file: A file with a text in each line; - is standard input.
        text: A text, instead of a file; --text may be given again.
        into: Target languages; without it, all that the run knows.
        method: beam: the best of several; greedy: always the likeliest token; sample: by chance.
        beam: How many translations the beam keeps.
        length_penalty: How much of a long translation's lower probability is made up for; 0: nothing.
        page: Where to write a page that shows what each token attended to, such as attention.html.
        seed: For sampling.
        device: auto, cpu or cuda.
        json: Print JSON.
    """
    texts = _texts(file, text)
    loaded = _load(run, device)
    methods: dict[str, Method] = {"beam": Beam(beam, length_penalty), "greedy": Greedy(), "sample": Sample()}
    found = loaded.into(texts, into, methods[method], seeded_generator(seed))
    if page is not None:
        _write_page(loaded, texts, found, page)
    if json:
        rows = [{"text": text, **{one: found[one][n] for one in found}} for n, text in enumerate(texts)]
        print_json({"run": run, "translations": rows})
        return
    for columns in zip(*found.values(), strict=True):
        print("\t".join(" ".join(column.split()) if len(columns) > 1 else column for column in columns))


def eval_(run: RunPath, files: Files = (), beam: int = 5, device: str = "auto", json: bool = False) -> None:
    """BLEU and chrF of a run that translates, on the pairs held out for it; or on others.

    Example: octavo eval runs/en-de

    Args:
        run: A run folder.
        files: A TSV file, or a file of sources and one of each target, line by line.
        beam: How many translations the beam keeps; 1 is greedy.
        device: auto, cpu or cuda.
        json: Print JSON.
    """
    loaded = _load(run, device)
    figures = TASK.evaluate(loaded, files, method=Beam(beam, 1.0))
    if json:
        print_json({"run": run, "languages": {one: figure.to_json() for one, figure in figures.items()}})
    else:
        _print_figures(figures)


def inspect(run: RunPath, text: str | None = None, into: str = "", out: str | None = None, json: bool = False) -> None:
    """What a run that translates is; with --text, what of the source each token of the translation attends to.

    Example: octavo inspect runs/en-de --text "A dog runs." --out attention.html

    Args:
        run: A run folder.
        text: A sentence to translate.
        into: The target language; without it, the first.
        out: Where to write a page with the figures.
        json: Print JSON.
    """
    loaded = _load(run, "cpu")
    if text is None:
        numbers = parameter_count(loaded.model)
        record = {"run": run, "parameters": numbers, "languages": list(loaded.languages), **loaded.record}
        print_json(record) if json else print(f"{loaded.summary()}\n  parameters {numbers:,}")
        return
    one = align(loaded, text, language=into)
    if out is not None:
        write_page(out, alignment_page(PAGE_TITLE, loaded.summary(), [one]))
    print_json(one.to_json()) if json else _print_alignment(one)


def _load(run: str, device: str) -> Translator:
    loaded = Translator.load(run)
    if loaded.unfinished:
        note(f"{run}: its training is not finished; these are its weights so far")
    loaded.model.to(pick_device(device))
    return loaded


def _texts(file: str, text: Sequence[str]) -> list[str]:
    if bool(file) == bool(text):
        raise UserError("give what to translate: either --text TEXT or a file with a text in each line")
    if text:
        return list(text)
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}; check the name") from error
    return data.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n") if data else []


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


def _print_figures(figures: dict[str, Translated]) -> None:
    rows = [
        (one, f"{figure.bleu:.2f}", f"{figure.chrf:.2f}", f"{figure.exact:.1%}", f"{figure.sentences:,}")
        for one, figure in figures.items()
    ]
    print_table(("into", "BLEU", "chrF", "exact", "texts"), rows)
    first = next(iter(figures.values()))
    print(f"BLEU: {first.signature}\nchrF: {first.chrf_signature}")


def report(run: Translator, json: bool) -> None:
    """How it was trained and what it scores."""
    figures = run.record.get("result", {}).get("languages", {})
    if json:
        print_json({"run": str(run.path), "train_seconds": run.record["train_seconds"], "languages": figures})
        return
    training = run.record["training"]
    print(run.summary())
    print(f"trained in {run.record['train_seconds']:.0f} s, {training['steps']:,} steps: {training['why']}")
    if figures:
        _print_figures({one: Translated(**figure) for one, figure in figures.items()})
    print(f"the run is in {run.path}; next:")
    print(f"  octavo translate {run.path} --text TEXT\n  octavo inspect {run.path} --text TEXT")
