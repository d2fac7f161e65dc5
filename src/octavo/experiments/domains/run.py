"""Models on excerpts of two domains: trained on the first text, or runs that are there already."""

from __future__ import annotations

import builtins
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from octavo.config import plain_json
from octavo.core import single_thread
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json, Outcome, first_part, identity_of, train_or_resume
from octavo.experiments.division import PlannedExperiment, lock_for
from octavo.experiments.domains.page import REPORTED_OVERLAP, domains_page
from octavo.experiments.domains.result import Domains, DomainsRow, ModelResult, rows_of
from octavo.experiments.domains.scoring import Reading, Vocabulary, excerpt, read
from octavo.experiments.execution import LOCAL, Execution, open_executor
from octavo.experiments.progress import Progress, default_progress
from octavo.experiments.runner import Runner, Store, check_folder, failures
from octavo.io.encoding import UTF8
from octavo.io.files import write_text
from octavo.io.run_folder import REPORT
from octavo.models import MODELS, find_spec
from octavo.tasks.corpus import learnt_text
from octavo.tasks.device import pick_device, place
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


@dataclass(frozen=True)
class DomainsRequest:
    """What `domains` is asked for."""

    runs: list[str]
    texts: list[str]
    bytes: int
    steps: tuple[str, ...]
    out: Path
    budget: str = "30s"
    seed: int = 0
    encoding: str = UTF8
    device: str = "auto"
    candidates: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=lambda: CANDIDATES)

    @property
    def names(self) -> list[str]:
        """The texts' names, or their paths where two have one name."""
        names = [Path(text).name for text in self.texts]
        return names if len(set(names)) == len(names) else self.texts

    @property
    def reading(self) -> dict[str, str]:
        """How the texts are read, where that is not the usual way."""
        return {"encoding": self.encoding} if self.encoding != UTF8 else {}

    @property
    def place(self) -> dict[str, str]:
        """Where models compute, where one was named."""
        return {"device": str(pick_device(self.device))} if self.device != "auto" else {}

    @property
    def command(self) -> list[str]:
        """The words that reproduce it, or resume it."""
        words = ["octavo", "domains", *self.runs, "--texts", *self.texts, "--bytes", str(self.bytes)]
        words += ["--encoding", self.encoding] if self.reading else []
        words += ["--device", self.device] if self.device != "auto" else []
        words += [] if self.runs else ["--preprocess", *self.steps, "--budget", self.budget, "--seed", str(self.seed)]
        return [*words, "--out", str(self.out)]

    def open_excerpts(self) -> tuple[tuple[str, builtins.bytes], ...]:
        """Each text's name and the bytes that are scored; an empty one is refused before any training."""
        originals = tuple(
            (name, open_excerpt(text, self.bytes, self.encoding).read())
            for name, text in zip(self.names, self.texts, strict=True)
        )
        for name, original in originals:
            excerpt(name, original, self.steps)
        return originals


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
    on: str = LOCAL,
    cores: int = 1,
    encoding: str = UTF8,
    device: str = "auto",
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
        on: "local" is this machine, "ray" and "ray://HOST" a Ray cluster.
        cores: How many cores each model asks for on Ray.
        encoding: The encoding of the texts: "utf-8", "latin-1", "utf-16", ...
        device: Where networks are trained and all models compute: "auto", "cpu", "cuda", "cuda:1" or "mps".
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
    request = DomainsRequest(
        list(map(str, runs)), list(map(str, texts)), bytes, tuple(preprocess), Path(out), budget, seed, encoding,
        device, CANDIDATES if candidates is None else candidates,
    )  # fmt: skip
    return DomainsExperiment(request, Execution(jobs, on, cores), progress).run()


class DomainsExperiment(PlannedExperiment):
    """One table of domains, from wherever its folder says that it is."""

    def __init__(
        self, request: DomainsRequest, execution: Execution = Execution(), progress: Progress | None = None,  # noqa: B008
        cell: str = "",
    ) -> None:  # fmt: skip
        """`cell`: the only one that is then run; others may work in the folder meanwhile."""
        self.request, self.folder = request, request.out
        _check(request.runs, request.texts, request.bytes, request.steps, request.budget)
        check_folder(self.folder, KIND)
        progress = progress or default_progress()
        self.originals = request.open_excerpts()
        self.cells = _cells(request, self.originals, progress)
        self.command = shlex.join([*request.command, *execution.words])
        with ExitStack() as stack:
            executor = stack.enter_context(open_executor(execution))
            stack.enter_context(lock_for(self.folder, cell))
            self.runner = Runner(
                Store.open(self.folder, KIND, {}), progress, self._rows, len(self.cells), executor.jobs, self.command,
                executor, check=partial(_result, folder=self.folder),
            )  # fmt: skip
            super().__init__(request.command, stack.pop_all())

    def plan(self) -> list[Cell]:
        return self.cells

    def run(self, collect: bool = False) -> Domains:
        """All cells, then the page; with `collect`, other commands must have executed the cells."""
        folder, originals = self.folder, self.originals
        with self.lock, self.runner.progress:
            outcomes = (self.runner.collect if collect else self.runner.run)(self.cells)
            found, failed = self._results(outcomes), failures(outcomes)
            with self.runner.stoppable():
                if found:
                    write_text(folder / REPORT, domains_page(found, originals, folder, self.command, failed))
        if not found:
            raise UserError(f"no model could be measured: {'; '.join(f'{key}: {why}' for key, why in failed.items())}")
        return Domains(found, originals, folder, self.command, failed)

    def _results(self, outcomes: Mapping[str, Outcome]) -> tuple[ModelResult, ...]:
        return tuple(_result(one, self.folder) for one in outcomes.values() if one.error is None)

    def _rows(self, outcomes: Mapping[str, Outcome]) -> list[DomainsRow]:
        return rows_of(self._results(outcomes), failures(outcomes))


def _cells(request: DomainsRequest, originals: Sequence[tuple[str, bytes]], progress: Progress) -> list[Cell]:
    """A cell for each named run; without any, for each candidate."""
    reading = request.reading
    options = {"names": request.names, "texts": request.texts, "bytes": [len(data) for _, data in originals]} | reading
    options |= request.place
    if request.runs:
        return _named(request.runs, options, originals, progress)
    home = request.texts[0]
    train = {one: open_corpus(home, errors="raw", preprocess=one, **reading).train for one in ((), request.steps)}
    shares = {one: _overlap(home, split, one, originals, progress) for one, split in train.items()}
    data = {"sources": [home], "sha256": train[()].sha256} | reading
    return _plan(request.candidates, data, request.budget, request.seed, options, shares)


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
            key, also = "-".join([name, *steps]), dict[str, Any]({"preprocess": list(steps)} if steps else {})
            within = budget if find_spec(model).trained_by_gradient else ""
            about = options | {"family": name, "overlap": overlapping}
            also |= {"device": options["device"]} if within and "device" in options else {}
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
    place(run, cell.options.get("device", "auto"), sum(cell.options["bytes"]))
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
