"""Models on excerpts of two domains: trained on the first text, or runs that are there already."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from octavo.config import plain_json
from octavo.core import single_thread
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json, Outcome, first_part, identity_of, train_or_resume
from octavo.experiments.domains.page import REPORTED_OVERLAP, domains_page
from octavo.experiments.domains.result import Domains, DomainsRow, ModelResult, rows_of
from octavo.experiments.domains.scoring import Reading, Vocabulary, excerpt, read
from octavo.experiments.progress import Progress, default_progress
from octavo.experiments.runner import Runner, Store, check_folder, failures, locked_folder
from octavo.io.encoding import UTF8
from octavo.io.files import write_text
from octavo.io.run_folder import REPORT
from octavo.models import MODELS, find_spec
from octavo.tasks.corpus import learnt_text
from octavo.tasks.run import load
from octavo.tasks.run_page import title_of
from octavo.text import Split, open_corpus
from octavo.text.overlap import MAX_OVERLAP, overlap
from octavo.text.preprocess import check_steps
from octavo.text.reading import STDIN
from octavo.training.schedule import Budget

KIND = "domains table"
STEPS = ("lower",)
VOCABULARIES: dict[tuple[str, ...], Vocabulary] = {}  # of training texts, which several runs of a process share


CANDIDATES: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # trained on the first text: model and settings, by name
    "bag-bytes": ("bag", {"tokenizer": "byte"}),
    "bag-chars": ("bag", {"tokenizer": "char"}),
    "bag-words": ("bag", {"tokenizer": "word"}),
    "kn5-bytes": ("ngram", {"tokenizer": "byte", "order": 5}),
    "kn5-chars": ("ngram", {"tokenizer": "char", "order": 5}),
    "kn3-words": ("ngram", {"tokenizer": "word", "order": 3}),
    "bigram-words": ("bigram", {"tokenizer": "word"}),
    "rnn-chars": ("rnn", {"tokenizer": "char"}),
    "gru-chars": ("gru", {"tokenizer": "char"}),
    "lstm-chars": ("lstm", {"tokenizer": "char"}),
    "rnn-attention-chars": ("rnn-attention", {"tokenizer": "char"}),
    "gru-words": ("gru", {"tokenizer": "word", "size": 5000, "batch_size": 64}),
}


def domains(
    runs: Sequence[str | Path] = (),
    *,
    texts: Sequence[str] = ("shakespeare", "wikitext-2"),
    bytes: int = 20_000,
    preprocess: Sequence[str] = STEPS,
    out: str | Path = "runs/domains",
    budget: str = "30s",
    seed: int = 0,
    jobs: int = 1,
    encoding: str = UTF8,
    candidates: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
    progress: Progress | None = None,
) -> Domains:
    """Score models on excerpts of two texts, and find which words make the difference.

    Args:
        runs: Folders of runs to measure. Without any, the candidates are trained on the first text, each a second
            time with preprocessing.
        texts: Two files or named sources; of each, the first bytes of the part that is held out are scored.
        bytes: How many bytes of each text.
        preprocess: What the second of each pair does to its text: lower, digits, ptb, sentences.
        out: The folder for the page and the runs; what is finished there is used again.
        budget: How long each neural model may train.
        seed: For the training.
        jobs: How many models to work on at a time.
        encoding: The encoding of the texts: "utf-8", "latin-1", "utf-16", ...
        candidates: Model and settings, by name, in place of the usual ones.
        progress: Where progress is shown; by default on standard error.

    Returns:
        The models with their readings of both texts and the gap between them, and `rows` for a table.

    Raises:
        UserError: There are not two texts, or one is empty.

    Examples:
        >>> octavo.domains(["runs/kn3"], texts=["book.txt", "other.txt"], bytes=500, out="runs/domains")
        <octavo domains book.txt and other.txt: 1 model>
    """
    named, texts, steps, folder = list(map(str, runs)), list(map(str, texts)), tuple(preprocess), Path(out)
    _check(named, texts, bytes, steps, budget)
    check_folder(folder, KIND)
    names = [Path(text).name for text in texts]
    names = names if len(set(names)) == len(names) else texts
    originals = tuple(
        (name, open_excerpt(text, bytes, encoding).read()) for name, text in zip(names, texts, strict=True)
    )
    for name, original in originals:
        excerpt(name, original, steps)  # an empty one is refused before any training
    options = {"names": names, "texts": texts, "bytes": [len(data) for _, data in originals]}
    reading = {"encoding": encoding} if encoding != UTF8 else {}
    options |= reading
    progress = progress or default_progress()
    if named:
        cells = _named(named, options, originals, progress)
    else:
        train = {one: open_corpus(texts[0], errors="raw", preprocess=one, **reading).train for one in ((), steps)}
        shares = {one: _overlap(texts[0], split, one, originals, progress) for one, split in train.items()}
        data = {"sources": [texts[0]], "sha256": train[()].sha256} | reading
        cells = _plan(CANDIDATES if candidates is None else candidates, data, budget, seed, options, shares)

    def results(outcomes: Mapping[str, Outcome]) -> tuple[ModelResult, ...]:
        return tuple(_result(one, folder) for one in outcomes.values() if one.error is None)

    def rows(outcomes: Mapping[str, Outcome]) -> list[DomainsRow]:
        return rows_of(results(outcomes), failures(outcomes))

    words = ["octavo", "domains", *named, "--texts", *texts, "--bytes", str(bytes)]
    words += ["--encoding", encoding] if reading else []
    words += [] if named else ["--preprocess", *steps, "--budget", budget, "--seed", str(seed)]
    command = shlex.join([*words, "--out", str(folder)])
    with locked_folder(folder), progress:
        store = Store.open(folder, KIND, {})
        runner = Runner(store, progress, rows, len(cells), jobs, command, check=partial(_result, folder=folder))
        outcomes = runner.run(cells)
        found, failed = results(outcomes), failures(outcomes)
        with runner.stoppable():
            if found:
                write_text(folder / REPORT, domains_page(found, originals, folder, command, failed))
    if not found:
        raise UserError(f"no model could be measured: {'; '.join(f'{key}: {why}' for key, why in failed.items())}")
    return Domains(found, originals, folder, command, failed)


def _check(runs: Sequence[str], texts: Sequence[str], bytes: int, steps: tuple[str, ...], budget: str) -> None:
    """What would only fail after the training is refused before."""
    check_steps(steps)
    Budget.parse(budget)
    if len(texts) != 2 or len(set(texts)) != 2:
        raise UserError(f"--texts must be two different texts: got {' '.join(texts) or 'none'}; try two names or files")
    if STDIN in texts:
        raise UserError("the texts are read several times, and standard input can be read once; name files")
    if bytes < 1:
        raise UserError(f"--bytes must be at least 1: got {bytes}; try --bytes 20000")
    if runs and steps != STEPS:
        raise UserError("--preprocess is for the models that are trained here; a named run keeps its own: leave it out")


def _plan(
    candidates: Mapping[str, tuple[str, Mapping[str, Any]]], data: Json, budget: str, seed: int, options: Json,
    shares: Mapping[tuple[str, ...], float],
) -> list[Cell]:  # fmt: skip
    """A cell for each candidate that this octavo has a model for, with and without preprocessing.

    `shares` says what of the excerpts stands in the training text, by the steps of preprocessing.
    """
    cells = []
    for name, (model, settings) in candidates.items():
        for steps, overlapping in shares.items() if model in MODELS else ():
            key, also = "-".join([name, *steps]), {"preprocess": list(steps)} if steps else {}
            within = budget if find_spec(model).trained_by_gradient else ""
            about = options | {"family": name, "overlap": overlapping}
            cells.append(Cell(key, "domains", model, {**settings, **also}, data, seed, within, about, key))
    return cells


def _named(
    runs: Sequence[str], options: Json, originals: Sequence[tuple[str, bytes]], progress: Progress
) -> list[Cell]:
    """A cell for each run that is there already; each is a family of its own."""
    cells = []
    for i, path in enumerate(runs, 1):
        run = load(path)
        overlapping = _overlap(run.name, learnt_text(run), tuple(run.record.get("preprocess", ())), originals, progress)
        about, data = options | {"family": run.name, "overlap": overlapping}, identity_of(Path(path))
        cells.append(Cell(f"run{i}-{run.name}", "domains", path, {}, data, options=about))
    return cells


def _overlap(
    name: str, train: Split, steps: tuple[str, ...], originals: Sequence[tuple[str, bytes]], progress: Progress
) -> float:
    """The largest share of an excerpt that stands in a training text; half of one or more is refused."""
    shares = [overlap(train.chunks(), excerpt(text, data, steps).data) for text, data in originals]
    for (text, _), share in zip(originals, shares, strict=True):
        if share >= MAX_OVERLAP:
            raise UserError(
                f"{name} was trained on the excerpt of {text} itself ({share:.0%} of it); name another of "
                "--texts, or train the run without --valid, so that the last tenth is held out"
            )
        if share >= REPORTED_OVERLAP:
            what = f"{share:.0%} of the excerpt of {text}"
            progress.note(f"{name}: {what} is in its training text, so its result is too good")
    return max(shares)


def _result(outcome: Outcome, folder: Path) -> ModelResult:
    cell, value, about = outcome.cell, outcome.value, outcome.cell.options
    home, away = (Reading.of(record) for record in value["readings"])
    run = str(folder / cell.key) if cell.is_trained_here else cell.model
    if not isinstance(value["name"], str) or not isinstance(value["title"], str):
        raise UserError(f"name and title must be words: {value['name']!r}, {value['title']!r}")
    return ModelResult(value["name"], value["title"], about["family"], home, away, about["overlap"], run)


def measure_run(cell: Cell, folder: Path) -> Json:
    """Score the excerpts with a run, which is trained first where the cell is not of a run that is there."""
    encoding = cell.options.get("encoding", UTF8)
    run = (
        train_or_resume(cell, folder, cell.data["sources"], encoding=encoding)
        if cell.is_trained_here
        else load(cell.model)
    )
    steps = tuple(run.record.get("preprocess", ()))
    train = learnt_text(run)
    key = (train.sha256, *steps)
    if key not in VOCABULARIES:
        VOCABULARIES[key] = Vocabulary.learn(train)
    texts = zip(cell.options["names"], cell.options["texts"], cell.options["bytes"], strict=True)
    with single_thread():
        readings = [
            read(
                run.model,
                run.tokenizer,
                excerpt(name, open_excerpt(text, bytes, encoding).read(), steps),
                VOCABULARIES[key],
            )
            for name, text, bytes in texts
        ]
    return {
        "readings": plain_json(readings), "title": title_of(run), "name": run.name, "files": cell.run_files,
        "summary": ", ".join(f"{reading.bits_per_byte:.4f}" for reading in readings) + " bits per byte",
    }  # fmt: skip


def open_excerpt(text: str, bytes: int, encoding: str = UTF8) -> Split:
    """The first bytes of the part of a text that is held out of training."""
    return first_part(open_corpus(text, errors="raw", encoding=encoding).valid, bytes)
