"""A comparison: its cells are planned and run, then their outcomes become rows, advice and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from octavo.config import from_json
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Outcome, describe_texts, first_part, identity_of, last_part, open_texts
from octavo.experiments.compare.advice import Evidence, advice, rank_rows
from octavo.experiments.compare.compressors import MAX_KNOWN_BYTES
from octavo.experiments.compare.config import (
    Candidate,
    CompareConfig,
    Place,
    Text,
    parts_of_mixture,
    place_of,
    why_no_mixture,
)
from octavo.experiments.compare.cost import describe_machine, versions
from octavo.experiments.compare.figures import read_curves
from octavo.experiments.compare.forecast import PAGE_SECONDS, expected_seconds
from octavo.experiments.compare.intervals import BlockCosts
from octavo.experiments.compare.outcomes import block_bits_of, key_of, row_of, stage_seconds
from octavo.experiments.compare.page import write_page
from octavo.experiments.compare.proof import PROOF_SHARE
from octavo.experiments.compare.rows import COMPRESSOR, MIXTURE, PRETRAINED, RESULT, CompareRow, Comparison
from octavo.experiments.compare.sizing import StoredSizes, sized
from octavo.experiments.compare.stored_values import check_stored
from octavo.experiments.division import PlannedExperiment, lock_for
from octavo.experiments.execution import LOCAL, Execution, open_executor
from octavo.experiments.executor import Executor
from octavo.experiments.progress import Progress, default_progress
from octavo.experiments.runner import Runner
from octavo.io.files import write_text
from octavo.models import find_spec
from octavo.scoring.proof import is_proved
from octavo.text.overlap import REPEAT_BYTES, overlap

LISTS = {"models", "pretrained", "valid"}  # settings that are lists, of which one may be given alone
PAGE_BYTES = 1 << 20  # of the held-out text that the page shows passages of


def compare(
    text: Text, *, out: str | Path | None = None, jobs: int = 1, on: str = LOCAL, cores: int = 1,
    progress: Progress | None = None, **settings: Any,
) -> Comparison:  # fmt: skip
    """Train every candidate on a text, measure all on the same held-out bytes, and write a page.

    Args:
        text: Bytes, or a string of several lines, are the text itself; a Path, a list, or a string of one short line
            name files, folders or sources.
        out: The folder for the page and the runs; by default runs/compare-NAME. The same call resumes it.
        jobs: How many candidates are trained at a time, each in a process of its own.
        on: "local" is this machine, "ray" and "ray://HOST" a Ray cluster.
        cores: How many cores each candidate asks for on Ray.
        progress: Where progress is shown; by default on standard error.
        **settings: Those of `CompareConfig`: models, budget, total, quick, seeds, pretrained, tokenizer, ...

    Returns:
        The rows from best to worst, with `best`, `advice`, `to_pandas()` and `to_json()`; a notebook shows the table
        and a figure.

    Raises:
        UserError: There is no such text, model or setting.

    Examples:
        >>> found = octavo.compare("book.txt", models=["bag", "kn3"], out="runs/two")
        >>> found
        <octavo comparison of 2 models on book: kn3 is best, ... bits per byte>
        >>> found["kn3"].bits_per_byte < found["bag"].bits_per_byte
        True
        >>> found.to_pandas()["model"].tolist()
        ['kn3', 'bag']
    """
    execution = Execution(jobs, on, cores)
    comparing = open_comparison(text, out=out, execution=execution, progress=progress, **settings)
    comparing.run()
    return comparing.prove()


def open_comparison(
    text: Text, *, out: str | Path | None = None, execution: Execution = Execution(),  # noqa: B008
    cell: str = "", progress: Progress | None = None, **settings: Any,
) -> Comparing:  # fmt: skip
    """What `compare` does, in two parts: `run` gives all rows and the page, `prove` adds the proof to them.

    For `cell`, the only one that `run_cell` is then called with, others may work in the folder meanwhile.
    """
    for key in LISTS & settings.keys():
        several = [settings[key]] if isinstance(settings[key], str | Path) else settings[key]
        settings[key] = list(map(str, several))
    config, place = from_json(CompareConfig, settings), place_of(text, out)
    return Comparing(place, config, execution, progress or default_progress(), cell)


class Comparing(PlannedExperiment):
    """One comparison, from wherever its folder says that it is."""

    def __init__(
        self, place: Place, config: CompareConfig, execution: Execution, progress: Progress, cell: str = ""
    ) -> None:
        self.progress, self.place = progress, place
        self.command = place.command(config, execution.words)
        with ExitStack() as stack:
            executor = stack.enter_context(open_executor(execution))
            stack.enter_context(lock_for(place.folder, cell))
            self.place.save_text()
            self._open(config, executor)
            super().__init__(place.words(config), stack.pop_all())  # given back when the proof is done

    def _open(self, config: CompareConfig, executor: Executor) -> None:
        """Open the text and what is stored, and plan the cells."""
        corpus = config.text.open(self.place.sources)
        for line in corpus.notes:
            self.progress.note(line)
        self.config = config = config.for_text(corpus.train.bytes_per_character())
        self.held_out = config.scored_part(corpus)
        self.corpus = {"name": self.place.name, **corpus.describe(), "scored": self.held_out.describe()}
        self.data = describe_texts(corpus, corpus.train, self.held_out, config.valid, config.field)
        self.pretrained = config.pretrained_candidates
        common = {"corpus": self.corpus, "settings": config.common}
        store = self.place.open_store(common, self._differs)
        self.sizes = StoredSizes(self.place.folder)
        self.candidates = sized(config.candidates, config, corpus.train.size, self.sizes)
        for one in self.candidates:
            if one.chosen:
                self.progress.note(f"{one.name}: {one.chosen}")
        self.mixtures = [one for one in self.candidates if one.family == MIXTURE]
        self.sentences: tuple[str, ...] = ()
        later = config.prove + config.seeds * len(self.mixtures)  # cells that depend on others
        self.runner = Runner(
            store, self.progress, self._rows, len(self.plan()) + later, executor.jobs, self.command, executor,
            expected_seconds, check_stored,
        )  # fmt: skip
        self.runner.last_seconds = PAGE_SECONDS

    def run(self, collect: bool = False) -> Comparison:
        """All cells but the proof, then the advice and the page.

        With `collect`, other commands must have executed what does not depend on other cells.
        """
        with ExitStack() as stack:
            stack.push(self.lock)
            with self.progress, self.runner.stoppable():
                proof = [Cell("proof", "proof", "", data=self.data)] if self.config.prove else []
                self.runner.later = [*(self._cell(one, 0) for one in self.mixtures), *proof]
                (self.runner.collect if collect else self.runner.run)(self.plan())
                for number, mixture in enumerate(self.mixtures, 1):
                    self.runner.later = [*(self._cell(one, 0) for one in self.mixtures[number:]), *proof]
                    self._run_mixture(mixture)
                self._find_proofs()
                comparison = self._conclude()
            if comparison.best is None:
                errors = "; ".join(f"{row.model}: {row.error}" for row in comparison.failed)
                raise UserError(
                    f"no model could be trained and measured: {errors or 'none was asked for; add to --models'}"
                )
            if self.config.prove:
                stack.pop_all()
        return comparison

    def prove(self) -> Comparison:
        """Let the best model compress the held-out text and restore it; table, page and record get the proof added.

        A model whose proof fails is out of the comparison, and the next best one is proved.
        """
        if not self.config.prove:
            return self._comparison()
        with self.lock, self.progress, self.runner.stoppable():
            self.runner.later = ()
            self.progress.show_rows(())  # the table has been shown
            while (best := self._comparison().best) is not None:
                cell = self._proof(best)
                if cell.key in self.runner.outcomes and self._is_settled(cell):
                    break
                self.runner.run([cell])
                if self._is_settled(cell):
                    break
                self.runner.count += 1
            return self._conclude()

    def _find_proofs(self) -> None:
        """Take up the proofs that are stored, so that a model whose proof failed is not the best of the table."""
        while self.config.prove and (best := self._comparison().best) is not None:
            cell = self._proof(best)
            stored = self.runner.store.find(cell, check_stored)
            if stored is None or cell.key in self.runner.outcomes:
                return
            self.runner.outcomes[cell.key] = stored

    def _is_settled(self, cell: Cell) -> bool:
        """Whether a proof holds, or could not be done at all; if not, its model is out."""
        outcome = self.runner.outcomes[cell.key]
        return outcome.error is not None or is_proved(outcome.value["proof"])

    def _differs(self, common: Mapping[str, Any]) -> str:
        """How the comparison in the folder differs from this one."""
        theirs = common["corpus"]
        if any(theirs[part]["sha256"] != self.corpus[part]["sha256"] for part in ("train", "valid")):
            return f"of another text, {theirs['name']}, or it has changed"
        settings = common["settings"]
        other = [f"{key} {settings.get(key)}, not {value}" for key, value in self.config.common.items()
                 if settings.get(key) != value]  # fmt: skip
        return f"with other settings: {', '.join(other)}" if other else ""

    # ------------------------------------------------------------------ cells

    def plan(self) -> list[Cell]:
        """The cells that do not depend on others: a cell for each candidate and seed."""
        cells = []
        for one in self.candidates:
            if one.family == COMPRESSOR:
                cells.append(Cell(one.name, "compressor", one.model, data=self.data, title=one.name))
            elif one.family != MIXTURE:
                cells += [self._cell(one, seed) for seed in range(self.config.seeds if one.is_random else 1)]
        for one in self.pretrained:
            options = {"seed": self.config.seed, "title": one.title, "family": PRETRAINED,
                       "device": self.config.picked_device}  # fmt: skip
            data = self.data | identity_of(Path(one.model))
            cells.append(Cell(one.name, "pretrained", one.model, data=data, options=options))
        return cells

    def _cell(self, candidate: Candidate, seed: int, parts: Sequence[str] = ()) -> Cell:
        settings = {"parts": list(parts)} if parts else {
            "tokenizer": self.config.tokenizer, **candidate.settings, "device": self.config.device
        }  # fmt: skip
        options = {"seed": self.config.seed, "title": candidate.title, "family": candidate.family,
                   "variant_of": candidate.variant_of}  # fmt: skip
        if candidate.chosen:
            options["chosen"] = candidate.chosen
        if parts and self.config.picked_device != "cpu":  # where the networks among the parts score soonest
            options["device"] = self.config.picked_device
        budget = self.config.each if candidate.by_gradient else ""
        title = f"{candidate.name}, {self.config.each} of training" if budget else candidate.name
        return Cell(
            key_of(candidate.name, seed), "candidate", candidate.model, settings, self.data,
            self.config.seed + seed, budget, options, title,
        )  # fmt: skip

    def _run_mixture(self, mixture: Candidate) -> None:
        """Plan and run the mixture of the best n-gram and networks."""
        outcomes = self.runner.outcomes
        names = [one.name for one in self.candidates if one.name in outcomes]
        runs = {name: value for name in names if "tokenizer" in (value := outcomes[name].value)}
        validation = {name: bits for name, value in runs.items() if (bits := value["validation_bits_per_byte"])}
        tokenizers = {name: value["tokenizer"] for name, value in runs.items()}
        adaptive = find_spec(mixture.model).is_adaptive
        families = mixture.part_families
        among = [one for one in self.candidates if not families or one.family in families]
        parts = parts_of_mixture(among, tokenizers, validation, adaptive)
        if len(parts) < (1 if families else 2):
            unmeasured = [one.name for one in self.candidates
                          if one.by_gradient and one.name in runs and one.name not in validation]  # fmt: skip
            reason = why_no_mixture(parts, families, unmeasured)
            self.runner.finish(Outcome(self._cell(mixture, 0), error=reason))
            return
        listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
        mixture = replace(mixture, title=f"{mixture.title} of {listed}")
        by_name = {one.name: one for one in self.candidates}
        seeds = self.config.seeds if any(by_name[part].is_random for part in parts) else 1
        self.runner.run([
            self._cell(mixture, seed, [key if (key := key_of(part, seed)) in outcomes else part for part in parts])
            for seed in range(seeds)
        ])  # fmt: skip

    def _proof(self, best: CompareRow) -> Cell:
        """Compressing the held-out text with the best run, of several seeds the first."""
        trained = self.runner.outcomes[best.model]
        before = sum(one.seconds for one in self.runner.outcomes.values() if one.cell.work != "proof")
        options = {key: trained.value[key] for key in ("bits", "tokens")} | {
            "pretrained": best.family == PRETRAINED, "seconds": round(PROOF_SHARE * before, 1)
        }  # fmt: skip
        model = trained.cell.model if best.family == PRETRAINED else best.model
        return Cell(
            f"proof-{best.model}", "proof", model, {"of": trained.cell.training}, self.data, options=options,
            title=f"proof: {best.model} compresses the held-out text and restores it",
        )  # fmt: skip

    # ------------------------------------------------------------------ outcomes

    def _rows(self, _: Mapping[str, Outcome]) -> tuple[CompareRow, ...]:
        """The rows so far, which are also written."""
        return self._save(self._comparison()).rows

    def _comparison(self) -> Comparison:
        outcomes = self.runner.outcomes
        every, seeds = (*self.candidates, *self.pretrained), self.config.seeds
        rows = [row for one in every if (row := row_of(one, outcomes, seeds)) is not None]
        ranked = rank_rows(rows, self._blocks())
        proofs = {(model := one.cell.key.removeprefix("proof-")): one.value.get("proof", {"error": one.error})
                  | {"model": model} for one in outcomes.values() if one.cell.work == "proof"}  # fmt: skip
        best = next((row.model for row in ranked if row.best), None)
        timed = {"sizes": self.sizes.seconds} if self.sizes.seconds else {}
        return Comparison(
            ranked, self.corpus, proofs.get(best or next(reversed(proofs), "")), self.config.to_json(),
            describe_machine(self.config.device), versions(), stage_seconds(outcomes) | timed, self.command,
            self.place.folder, self.sentences,
        )  # fmt: skip

    def _blocks(self) -> BlockCosts:
        names = [one.name for one in (*self.candidates, *self.pretrained)]
        return BlockCosts(self.held_out.size, block_bits_of(names, self.runner.outcomes, self.config.seeds))

    def _conclude(self) -> Comparison:
        """The advice, the page and the final record."""
        self.progress.stage("writing the page")
        began = perf_counter()
        comparison = self._comparison()
        curves = {  # over the share of the time
            name: [(x / points[-1][0], y) for x, y in points] for name, points in read_curves(comparison).items()
        }
        train, held_out = open_texts(self.data)
        repeated = overlap(last_part(train, MAX_KNOWN_BYTES).chunks(), held_out.read(), REPEAT_BYTES)
        evidence = Evidence(self._blocks(), curves, self.config.picked_device, repeated)
        self.sentences = advice(comparison.rows, evidence)
        comparison = replace(comparison, advice=self.sentences)
        write_page(comparison, first_part(self.held_out, PAGE_BYTES).read())
        page = comparison.seconds.get("page", 0.0) + perf_counter() - began
        return self._save(replace(comparison, seconds=comparison.seconds | {"page": page}))

    def _save(self, comparison: Comparison) -> Comparison:
        write_text(self.place.folder / RESULT, json.dumps(comparison.to_json(), indent=1, allow_nan=False) + "\n")
        return comparison
