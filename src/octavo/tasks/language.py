"""Language modelling: the next token of a text, by gradient, by counting, or as a mixture of trained runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from octavo.core import LanguageModel, seeded_generator
from octavo.errors import UserError
from octavo.io.partial_files import TemporaryFolder
from octavo.models import MODELS, find_spec
from octavo.scoring.bits_per_byte import Score, score_text
from octavo.tasks.corpus import (
    TextConfig,
    check_begin,
    describe_corpus,
    fit_counts,
    held_out,
    reopened,
    sample,
    store_tensor,
    temporary_folder,
    workspace_for,
)
from octavo.tasks.device import pick_device
from octavo.tasks.engine_counting import CountingJob, EngineConfig, job_for
from octavo.tasks.mixture import MixtureConfig, fit_mixture, open_mixture
from octavo.tasks.run import Run
from octavo.tasks.task import Recipe, Rows, Task
from octavo.text import Corpus, Split, Tokenizer, TokenStore, learn_and_tokenize, tokenize
from octavo.text.validation_chunks import hold_out
from octavo.text.word_vectors import Origin
from octavo.training.language_stage import Streams, TrainingText, language_stage
from octavo.training.stage import Stage

CHECK_SAMPLE_TOKENS = 120  # of the text written at each evaluation


@dataclass
class LanguageData:
    """A corpus, and its tokens once there is a tokenizer."""

    corpus: Corpus
    parts: list[Run] = field(default_factory=list)  # of a mixture
    reading: Mapping[str, Any] = field(default_factory=dict)  # of a mixture: how its first part's text was read
    folder: TemporaryFolder | None = None
    store: TokenStore | None = None
    job: CountingJob | None = None  # of an engine that counts what memory has no room for

    @property
    def tokens_file(self) -> Path | None:
        """Where the tokens of a large text are mapped from, one file a process."""
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        return self.folder.path / f"train{rank}.bin" if self.folder else None


class LanguageTask(Task[Run, LanguageData]):
    """The next token of a text."""

    name, purpose, data_key = "language", "predict the next token", "corpus"
    run_class = Run
    data_help = "A named source (octavo data list), a file, several, a folder, or - for standard input."
    example = "shakespeare --budget 3min"
    settings = TextConfig()

    def configs(self, model: str) -> tuple[str, dict[str, Any]]:
        name, usual = super().configs(model)
        spec = find_spec(model)
        if spec.fitting == "mixture":
            usual["settings"] = MixtureConfig()
        if not spec.trained_by_gradient:
            usual = {key: usual[key] for key in ("config", "settings")}
        if spec.fit_by_engine is not None:
            usual["counting"] = EngineConfig()
        return name, usual

    def check(self, recipe: Recipe) -> None:
        if hasattr(recipe.config, "check_use"):
            recipe.config.check_use()
        if find_spec(recipe.model).fitting == "mixture" and recipe.device != "auto":
            raise UserError(f"a mixture's weights are learnt where its parts lie: device={recipe.device}; leave it out")

    def open(self, recipe: Recipe, source: Sequence[str], folder: Path | None = None) -> LanguageData:
        if find_spec(recipe.model).fitting == "mixture":
            least = 1 if getattr(recipe.config, "contexts", False) else 2  # which predict, too
            return LanguageData(*open_mixture(recipe.settings, source, least))
        corpus = recipe.settings.open(list(source))
        counted = find_spec(recipe.model).counting_job(recipe.config)
        if job := job_for(recipe.counting, corpus, recipe.settings, counted, folder):
            return LanguageData(corpus, job=job)
        return LanguageData(corpus, folder=temporary_folder(folder, corpus.train.size))

    def describe(self, recipe: Recipe, source: Sequence[str], data: LanguageData) -> dict[str, Any]:
        read = {"field": recipe.settings.field, "valid": recipe.settings.valid, **data.reading}
        return describe_corpus(data.corpus, read["field"], read["valid"] or ())

    def identity(self, record: Mapping[str, Any]) -> Any:
        return record["corpus"]["train"]["sha256"]

    def reopen(self, record: Mapping[str, Any], name: str, remedy: str = "train it anew") -> LanguageData:
        corpus = reopened(name, record, "train", remedy)
        return LanguageData(corpus, folder=temporary_folder(Path(name), corpus.train.size))

    def close(self, data: LanguageData, finished: bool = True) -> None:
        if data.job is not None:
            data.job.close(finished)
        if data.folder is not None:
            data.folder.cleanup()

    # ------------------------------------------------------------------ fitted at once

    def fits(self, recipe: Recipe) -> bool:
        return not find_spec(recipe.model).trained_by_gradient

    def fit(self, recipe: Recipe, data: LanguageData) -> tuple[Run, Rows]:
        if find_spec(recipe.model).fitting == "mixture":
            return fit_mixture(recipe.model, recipe.config, data.corpus, data.parts), ()
        if data.job is not None:
            return self._fit_by_engine(recipe, data, data.job)
        tokenizer, store = self._learn_tokens(recipe, data)
        folder = data.folder.path if data.folder else None
        workspace = workspace_for(len(store), folder)
        x_N = store_tensor(store, pick_device(recipe.device), workspace)
        fitted = fit_counts(recipe.model, x_N, recipe.config, tokenizer, recipe.seed, workspace.folder)
        notes = [*data.corpus.notes, *fitted.notes]
        record: dict[str, Any] = {"train_tokens": len(store), "notes": notes}
        if other := other_text(fitted.learnt_from, data.corpus.train):
            record["other_text"] = other
        return Run(fitted.model.cpu(), tokenizer, record), fitted.history

    def _fit_by_engine(self, recipe: Recipe, data: LanguageData, job: CountingJob) -> tuple[Run, Rows]:
        fit = find_spec(recipe.model).fit_by_engine
        assert fit is not None
        with job.open() as running:
            tokenizer, tokens = job.tokenize(running)
            engine = job.config.choose(len(tokens))
            if engine == "memory":
                x_N = store_tensor(tokens.load(), pick_device(recipe.device))
                fitted = fit_counts(recipe.model, x_N, recipe.config, tokenizer, recipe.seed)
            else:
                fitted = job.fit(running, fit, recipe.config, tokenizer, tokens)
        record = {"train_tokens": len(tokens), "notes": [*data.corpus.notes, *fitted.notes], "engine": engine}
        return Run(fitted.model.cpu(), tokenizer, record), fitted.history

    def _learn_tokens(self, recipe: Recipe, data: LanguageData) -> tuple[Tokenizer, TokenStore]:
        text: TextConfig = recipe.settings
        return learn_and_tokenize(text.tokenizer, data.corpus, data.tokens_file, **text.tokenizer_options())

    # ------------------------------------------------------------------ trained step by step

    def create(self, recipe: Recipe, data: LanguageData) -> Run:
        tokenizer, data.store = self._learn_tokens(recipe, data)
        return Run(untrained_model(recipe, tokenizer), tokenizer)

    def untrained(self, recipe: Recipe, run: Run, data: LanguageData) -> Run:
        return Run(untrained_model(recipe, run.tokenizer), run.tokenizer)

    def suited(self, recipe: Recipe, run: Run) -> Recipe:
        return super().suited(recipe, run).replace(loop=recipe.loop.suiting(run.model))

    def recreate(self, recipe: Recipe, data: LanguageData, path: Path) -> Run:
        run = Run.load(path)
        data.store = tokenize(data.corpus.train, run.tokenizer, data.tokens_file)
        return run

    def stage(self, recipe: Recipe, run: Run, data: LanguageData, device: torch.device, number: int) -> Stage:
        text = training_text(recipe, run, data)
        writer = Run(run.model, run.tokenizer)
        return language_stage(
            run.model, text, recipe.optimizer, recipe.loop.budget,
            sample=lambda: sample(writer, recipe.seed, CHECK_SAMPLE_TOKENS),
        )  # fmt: skip

    def describe_training(self, run: Run, data: LanguageData, stage: Stage) -> dict[str, Any]:
        assert data.store is not None
        held, tokens = hold_out(data.store.tokens, run.model.begin), max(1, len(data.store) - len(data.store.starts))
        first = stage.batch(0)
        return {
            "held": held.identity, "held_tokens": int(held.pieces_PL.size), "streams": first.rows,
            "sequence_length": first.examples // first.rows, "bytes_per_token": data.corpus.train.size / tokens,
        }  # fmt: skip

    # ------------------------------------------------------------------ the finished run

    def measure(self, recipe: Recipe, run: Run, data: LanguageData) -> str:
        label = run.label(data.corpus.comparable)
        run.record["result"] = score_text(run.model, run.tokenizer, data.corpus.valid, "validation", label).to_json()
        return sample(run, recipe.seed)

    def evaluate(self, run: Run, source: Any = None, **settings: Any) -> Score:
        name, text = held_out(run)
        return score_text(run.model, run.tokenizer, text, name, run.label())


TASK = LanguageTask()


def other_text(learnt_from: Sequence[Origin], train: Split) -> list[str]:
    """What was learnt from text that is not the training part, or from one that nobody knows."""
    return [origin.name for origin in learnt_from if origin.text_sha256 != train.sha256]


def untrained_model(recipe: Recipe, tokenizer: Tokenizer) -> LanguageModel[Any]:
    """The model as training starts with it, its sequences opened as the tokenizer opens them."""
    config = recipe.config
    if getattr(config, "begin", 0) < 0 and tokenizer.begin != tokenizer.vocab - 1:
        config = replace(config, begin=tokenizer.begin)
    check_begin(recipe.model, tokenizer, getattr(config, "begin", -1))
    model: LanguageModel[Any] = MODELS[recipe.model].model(config, tokenizer.vocab)  # type: ignore[assignment]
    model.initialise(seeded_generator(recipe.seed))
    return model


def training_text(recipe: Recipe, run: Run, data: LanguageData) -> TrainingText:
    """The tokens as streams, and the chunks that are held out of them."""
    assert data.store is not None
    store, model = data.store, run.model
    held = hold_out(store.tokens, model.begin)
    if len(held.train_N) < 2:
        raise UserError(f"a text of {len(store)} tokens is too short to learn from; give a longer one")
    loop = recipe.loop
    streams = Streams.fitting(held.train_N, model.begin, loop.batch_size, loop.sequence_length, recipe.seed)
    chunks_PL = torch.from_numpy(held.pieces_PL.astype("int64"))
    opened_PL = model.prepend_begin(chunks_PL) if chunks_PL.numel() else chunks_PL
    chunk_bytes = sum(len(run.tokenizer.decode(chunk)) for chunk in held.pieces_PL)
    predicted = max(1, len(store) - len(store.starts))
    return TrainingText(streams, opened_PL, chunk_bytes, data.corpus.train.size / predicted)
