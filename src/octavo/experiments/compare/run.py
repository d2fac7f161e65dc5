"""The climb: every rung is trained within its budget, measured on the same bytes and kept; then the page is written."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from octavo.config import from_json
from octavo.core import single_thread
from octavo.datasets.sources import MODEL_SOURCES, fetch_model
from octavo.errors import Stopped, UserError
from octavo.experiments.compare.candidates import RUNGS, Rung, parts_of_mixture
from octavo.experiments.compare.cell import claim, measured, trained
from octavo.experiments.compare.compressors import compressor_row
from octavo.experiments.compare.cost import mixing_flops, peak_memory, training_flops
from octavo.experiments.compare.figures import read_curves
from octavo.experiments.compare.page import write_page
from octavo.experiments.compare.plan import CompareConfig, Text, place_of, scored_part
from octavo.experiments.compare.result_store import Kept, Measured, row_of
from octavo.experiments.compare.rows import Comparison, Row
from octavo.experiments.compare.terminal import Watch, watching
from octavo.experiments.compare.verdict import advice
from octavo.experiments.domains.scoring import KNOWN, seen_share
from octavo.scoring.proof import proof_of
from octavo.tasks.count_training import learnt_text, pick_device
from octavo.tasks.mixture_training import PROBED
from octavo.tasks.run import METRICS, Run, load
from octavo.text import Split
from octavo.training.metrics_log import read_rows

LISTS = {"models", "pretrained", "valid"}  # settings that are lists, of which one may be given alone
LOOKED_AT = 1 << 20  # bytes of the held-out text that the page looks at


def compare(text: Text, *, out: str | Path | None = None, watch: Watch | None = None, **settings: Any) -> Comparison:
    """Train every model of the ladder on a text, measure all on the same held-out bytes, and write a page.

    Bytes, or a string of several lines, are the text itself; a Path, a list, or a string of one short line name files,
    folders or sources (`compare("shakespeare")`). Settings are those of `CompareConfig`: models, budget, total, quick,
    seeds, pretrained, tokenizer, ... Called again with the same ones, it goes on where it was stopped.
    """
    for key in LISTS & settings.keys():
        several = [settings[key]] if isinstance(settings[key], str | Path) else settings[key]
        settings[key] = list(map(str, several))
    return Climb(text, from_json(CompareConfig, settings), out, watch or watching()).run()


class Climb:
    """One comparison, from wherever its folder says that it is."""

    def __init__(self, text: Text, config: CompareConfig, out: str | Path | None, watch: Watch) -> None:
        self.config, self.watch, self.place = config, watch, place_of(text, out)
        self.corpus = config.text.open(self.place.sources)
        self.held_out = scored_part(self.corpus, config)
        told = {"name": self.place.name, **self.corpus.describe(), "scored": self.held_out.describe()}
        self.kept = Kept.open(self.place, config, told)
        self.device = pick_device(config.device)
        self.guests = named_apart(config.pretrained)
        self.kept.asked += list(self.guests)

    def run(self) -> Comparison:
        """All rungs, then the proof of the best, the advice and the page."""
        rungs = (*self.config.rungs, *(Rung(name, name, "pretrained", path) for name, path in self.guests.items()))
        with self.watch, redirect_stderr(self.watch.stream):
            try:
                for i, rung in enumerate(rungs, 1):
                    self.watch.began(rung.name, i, len(rungs), self.config.seconds_each if rung.budgeted else None)
                    self._climb(rung)
                comparison = self._conclude()
            except KeyboardInterrupt as error:
                done = sum(row.error is None for row in self.kept.rows.values())
                told = f"stopped; {done} of {len(rungs)} rows are finished and kept; go on with:"
                number = error.code - 128 if isinstance(error, Stopped) else signal.SIGINT
                raise Stopped(f"{told} {self.place.command(self.config)}", number) from error
        if comparison.best is None:
            errors = "; ".join(f"{row.model}: {row.error}" for row in comparison if row.error)
            raise UserError(
                f"no model could be trained and measured: {errors or 'none was asked for; add to --models'}"
            )
        return comparison

    def _climb(self, rung: Rung) -> None:
        """Make the rung's row, unless it is there; what fails becomes a row that says why."""
        there = self.kept.rows.get(rung.name)
        if there is None or (rung.model == "mix" and there.title != self._mixture()[0].title):
            try:
                there = self._row(rung)
            except Exception as error:  # whatever it is, the other rungs can do without this one
                there = Row(rung.name, rung.title, rung.family, error=in_one_line(error))
                self.watch.note(f"{rung.name} failed: {there.error}")
            self.kept.rows[rung.name] = there
            self.kept.save()
        self.watch.rows(self.kept.comparison().rows)

    def _row(self, rung: Rung) -> Row:
        if rung.family == "compressor":
            with self.kept.timed("compressors"):
                return compressor_row(rung, self.corpus.train, self.held_out.read())
        if rung.family == "pretrained":
            return self._guest(rung)
        parts: list[str] = []
        if rung.model == "mix":
            rung, parts = self._mixture()
            self._forget_other(rung)
        seeds = self.config.seeds if rung.drawn or any(RUNGS[part].drawn for part in parts) else 1
        several = [self._measured(rung, seed, parts) for seed in range(seeds)]
        return row_of(rung.name, rung.title, rung.family, several, self.held_out.size)

    def _measured(self, rung: Rung, seed: int, parts: Sequence[str]) -> Measured:
        """Train and measure one run, unless that is done."""
        name, there = of_seed(rung.name, seed), self.kept.runs
        if name in there:
            return there[name]
        names = [of_seed(part, seed) if of_seed(part, seed) in there else part for part in parts]
        path, device = self.place.folder / name, self.device if rung.budgeted else torch.device("cpu")
        with self.kept.timed("training"), peak_memory(device) as peak:
            run = trained(self.kept, rung, seed, path, [self.place.folder / part for part in names])
        found = measured(self.kept, run, name, path, self.held_out, device, peak.bytes)
        if parts:
            flops = mixing_flops(run, [there[part].flops for part in names], run.record["train_tokens"])
        else:
            flops = training_flops(run, read_rows((path / METRICS).read_bytes()), self.corpus.train)
        there[name] = replace(found, flops=flops)
        self.kept.save()
        return there[name]

    def _mixture(self) -> tuple[Rung, list[str]]:
        """The rung of the mixture, named after its parts, and these."""
        runs = {name: one for name, one in self.kept.runs.items() if name in self.kept.asked and name in RUNGS}
        figures = {name: one.held_out for name, one in runs.items() if one.held_out is not None}
        tokenizers = {name: one.tokenizer for name, one in runs.items()}
        parts = parts_of_mixture(self.config.rungs, tokenizers, figures)
        if len(parts) < 2:
            raise UserError(
                "a mixture needs an n-gram and a network, or two networks, with one tokenizer: "
                f"{', '.join(parts) or 'none'} can be had; add to --models"
            )
        return replace(RUNGS["mix"], title=f"mixture of {', '.join(parts[:-1])} and {parts[-1]}"), parts

    def _forget_other(self, mixture: Rung) -> None:
        """A mixture of other parts, or one that was not finished, is made anew: it takes seconds."""
        for seed in range(self.config.seeds):
            name = of_seed(mixture.name, seed)
            if name not in self.kept.runs or mixture.name in self.kept.rows:
                self.kept.runs.pop(name, None)
                shutil.rmtree(self.place.folder / name, ignore_errors=True)

    def _guest(self, rung: Rung) -> Row:
        """A model that is brought along, and only measured."""
        path, run = self._brought(rung.name)
        try:
            seen = seen_share(learnt_text(run).blocks(), self.held_out.read()[:PROBED])
        except UserError:  # what it learnt from cannot be had
            seen = 0.0
        if seen >= KNOWN:
            raise UserError(f"{seen:.0%} of the held-out text stands in what {rung.name} was trained on; leave it out")
        found = measured(self.kept, run, rung.name, path, self.held_out, self.device)
        self.kept.runs[rung.name] = found
        title = f"brought along: {run.summary().split(', on ')[0]}"
        row = row_of(rung.name, title, rung.family, [found], self.held_out.size)
        return row if "train_seconds" in run.record else replace(row, seconds=None)

    def _brought(self, name: str) -> tuple[Path, Run]:
        given = Path(self.guests[name])
        path = fetch_model(str(given)) if str(given) in MODEL_SOURCES and not given.exists() else given
        return path, load(path)

    def _conclude(self) -> Comparison:
        """The proof, the advice, the page."""
        comparison = self.kept.comparison()
        best, proof = comparison.best, self.kept.proof
        if best is not None and (proof is None or proof["model"] != best.model):
            self.watch.note(f"proving the best figure: {best.model} compresses the held-out text, and restores it")
            with self.kept.timed("proof"):
                self.kept.proof = self._proved(best)
        self.watch.note("writing the page")
        with self.kept.timed("page"):
            curves = {name: shares(points) for name, points in read_curves(comparison).items()}
            self.kept.advice = advice(comparison.rows, curves, str(self.device))
            part = Split(
                self.held_out.text, self.held_out.start, self.held_out.start + min(LOOKED_AT, self.held_out.size)
            )
            write_page(self.kept.comparison(), part.read())
        return self.kept.save()

    def _proved(self, best: Row) -> dict[str, Any]:
        """Compress the held-out text with the best run, of several seeds the first, and restore it."""
        run = self._brought(best.model)[1] if best.model in self.guests else load(self.place.folder / best.model)
        claimed = claim(self.kept.runs[best.model], self.held_out.size)
        with single_thread():
            proof = proof_of(run.model, run.tokenizer, run.identity, claimed, self.held_out.read())
        return {"model": best.model, **proof}


def of_seed(name: str, seed: int) -> str:
    """The name of the run that a row has of a seed."""
    return name if seed == 0 else f"{name}-seed{seed}"


def shares(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A curve over the share of its time, not over its seconds."""
    return [(x / points[-1][0], y) for x, y in points]


def named_apart(paths: Sequence[str]) -> dict[str, str]:
    """A name for each model that is brought along, unlike that of every other row."""
    named: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        stem = Path(path).absolute().name.removesuffix(".gguf")
        names = (stem, *(f"{stem}-{i}" for i in range(2, len(paths) + len(RUNGS) + 2)))
        named[next(name for name in names if name not in named and name not in RUNGS)] = path
    return named


def in_one_line(error: Exception) -> str:
    """What went wrong."""
    told = " ".join(str(error).split())
    if isinstance(error, UserError):
        return told
    if isinstance(error, MemoryError) or "out of memory" in told or "allocate memory" in told:
        return "out of memory; try a smaller text, or a machine with more"
    return f"{type(error).__name__}: {told}"
