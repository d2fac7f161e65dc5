"""Tagging words: train a sequence tagger, measure it beside the commonest tag of each word.

N sentences, B of a batch, T words of the longest, C tags.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from octavo.config import Range, check_ranges
from octavo.core import seeded_generator, single_thread
from octavo.datasets.labels import listed
from octavo.datasets.tagged import Tagged, TaggedConfig, read_tagged
from octavo.errors import UserError
from octavo.io.run_folder import read_record
from octavo.models.tagger import SequenceTagger
from octavo.scoring.tagging import Answers, TaggingScore, is_bio, is_well_formed, score_tags
from octavo.tasks.tagger import Tagger
from octavo.tasks.task import Recipe, Task
from octavo.tasks.trained_run import models_of
from octavo.text.word_features import WordReader
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.stage import Objective, RowBatch, Stage


@dataclass(frozen=True)
class TaggingConfig(TaggedConfig):
    """The tagged sentences, and how often they are read."""

    epochs: Annotated[int, Range(1, 1_000_000)] = 5
    """How often to read every sentence, where there is no other --budget."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass
class TaggingData:
    """What is learnt from and what is measured on; `held` chooses the end, with early stopping."""

    learn: Tagged
    test: Tagged
    fitted: Tagged | None = None  # of which the weights are learnt
    held: Tagged | None = None


class TaggingTask(Task[Tagger, TaggingData]):
    """A tag for every word of a sentence."""

    name, purpose, data_key, data_kind = "tagging", "tag words", "data", "tagged"
    train_verb = "tag train"
    run_class = Tagger
    data_help = (
        "porttinari (parts of speech), hironsan (names), or files: a word, a tab and its tag on a line, a blank line "
        "between sentences; or CoNLL-U."
    )
    example = "porttinari"
    settings = TaggingConfig()
    loop = LoopConfig(budget="", batch_size=32, precision="float32")
    optimizer = OptimizerConfig(optimizer="adamw", learning_rate=0.004, weight_decay=0.01, warmup=0.0)

    def configs(self, model: str) -> tuple[str, dict[str, Any]]:
        known = models_of(self.name)
        if model not in known:
            raise UserError(f"there is no tagger {model!r}; taggers are {listed(list(known))}")
        return super().configs(model)

    def check(self, recipe: Recipe) -> None:
        if recipe.optimizer.label_smoothing:
            raise UserError(
                f"label smoothing is of single tags, and the loss is of whole sentences: label_smoothing="
                f"{recipe.optimizer.label_smoothing}; leave it out"
            )

    def open(self, recipe: Recipe, source: Sequence[str], folder: Path | None = None) -> TaggingData:
        settings: TaggingConfig = recipe.settings
        whole = read_tagged(list(source), settings)
        if settings.test:
            return TaggingData(whole, read_tagged(list(settings.test), settings, whole.names))
        return TaggingData(*whole.last_tenth())

    def describe(self, recipe: Recipe, source: Sequence[str], data: TaggingData) -> dict[str, Any]:
        parts = {name: {"sentences": len(part), "words": part.words, "sha256": part.sha256}
                 for name, part in (("learnt", data.learn), ("test", data.test))}  # fmt: skip
        return {"data": {"source": list(map(str, source)), **parts}}

    def identity(self, record: Mapping[str, Any]) -> Any:
        return [record["data"][part]["sha256"] for part in ("learnt", "test")]

    # ------------------------------------------------------------------ training

    def create(self, recipe: Recipe, data: TaggingData) -> Tagger:
        data.fitted, data.held = data.learn.last_tenth() if recipe.loop.patience else (data.learn, None)
        config, names = recipe.config, data.learn.names
        reader = WordReader.learn(data.fitted.sentences, config.affixes, config.min_count)
        model = SequenceTagger(config, reader.rows, len(names))
        model.initialise(seeded_generator(recipe.seed))
        well_formed = is_bio(names) and all(is_well_formed([names[c] for c in tags]) for tags in data.learn.tags)
        return Tagger(model, reader, names, well_formed)

    def recreate(self, recipe: Recipe, data: TaggingData, path: Path) -> Tagger:
        return self.create(recipe, data).placed(path, read_record(path))

    def stage(self, recipe: Recipe, run: Tagger, data: TaggingData, device: torch.device, number: int) -> Stage:
        assert data.fitted is not None
        batches = SentenceBatches(data.fitted, run.reader, recipe.loop.batch_size or self.loop.batch_size, recipe.seed)
        held, learn = data.held, data.fitted
        return Stage(
            run.model, TagLoss(run.model), batches, recipe.optimizer,
            recipe.loop.budget or f"{batches.steps * recipe.settings.epochs}steps", steps_per_epoch=batches.steps,
            examples_per_step=batches.batch_size, around=single_thread, usable=False,
            validate=(lambda: {"accuracy": measure(run, held, learn).accuracy}) if held is not None else None,
            best="accuracy" if held is not None else "",
        )  # fmt: skip

    def choices(self, run: Tagger) -> int:
        return len(run.tags)

    def measure(self, recipe: Recipe, run: Tagger, data: TaggingData) -> None:
        run.record["result"] = measure(run, data.test, data.learn).to_json()

    def evaluate(self, run: Tagger, source: Any = None, **settings: Any) -> TaggingScore:
        """How good a tagger is on tagged sentences; without any, on those held out of its training."""
        if not source:
            data = run.data("name a file of tagged sentences")
            return measure(run, data.test, data.learn)
        given = [source] if isinstance(source, str | Path) else source
        return measure(run, read_tagged([*map(str, given)], settings.get("reading", TaggedConfig()), run.tags), None)


TASK = TaggingTask()


POOL_BATCHES = 16  # whose sentences are sorted by length together, so that little of a batch is padding


class SentenceBatches:
    """The n-th batch, which depends on n alone: every epoch has an order of its own."""

    def __init__(self, data: Tagged, reader: WordReader, batch_size: int, seed: int) -> None:
        self.x = [torch.from_numpy(reader.read(words)) for words in data.sentences]
        self.y = [torch.tensor(tags) for tags in data.tags]
        self.seed, self.batch_size = seed, min(batch_size, len(data))
        self.steps = len(data) // self.batch_size
        self.arranged: tuple[int, NDArray[np.int64]] = (-1, np.zeros((0, 0), np.int64))  # the last epoch's

    def __call__(self, step: int) -> RowBatch:
        epoch, place = divmod(step, self.steps)
        at_B = self._order(epoch)[place].tolist()
        lengths_B = torch.tensor([len(self.y[n]) for n in at_B])
        x_BTF = pad_sequence([self.x[n] for n in at_B], batch_first=True)
        y_BT = pad_sequence([self.y[n] for n in at_B], batch_first=True)
        return RowBatch((x_BTF, lengths_B, y_BT), float(lengths_B.sum()))

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """The sentences of each of the epoch's batches: drawn, sorted within pools, and the batches drawn again."""
        if self.arranged[0] != epoch:
            chance = np.random.default_rng((self.seed, epoch))
            order_N = chance.permutation(len(self.x))[: self.steps * self.batch_size]
            lengths_N = np.array([len(self.y[n]) for n in order_N])
            pool_N = np.arange(len(order_N)) // (POOL_BATCHES * self.batch_size)
            batches = order_N[np.lexsort((lengths_N, pool_N))].reshape(self.steps, self.batch_size)
            self.arranged = epoch, batches[chance.permutation(self.steps)]
        return self.arranged[1]


class TagLoss(Objective):
    """-log p of the true tags of each sentence, in the sum; a batch's is divided by its words."""

    def forward(self, state: Any, part: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Any]:
        return self.model.loss(*part).sum(), state


# ---------------------------------------------------------------------- measuring


def measure(run: Tagger, data: Tagged, learn: Tagged | None) -> TaggingScore:
    """How good it is on some sentences, beside the tags that their words have most often in the training part."""
    found = run.tag(data.sentences)
    number = {name: c for c, name in enumerate(run.tags)}
    words = [word for sentence in data.sentences for word in sentence]
    common, otherwise = commonest_tags(learn) if learn is not None else ({}, 0)
    return score_tags(
        Answers(
            torch.cat([one.p_TC for one in found]) if found else torch.zeros(0, len(run.tags)),
            torch.tensor([number[tag] for one in found for tag in one.tags], dtype=torch.long),
            torch.tensor([c for tags in data.tags for c in tags], dtype=torch.long),
            torch.tensor([run.reader.knows(word) for word in words], dtype=torch.bool),
            torch.tensor([common.get(word, otherwise) for word in words], dtype=torch.long) if common else None,
            [len(one.words) for one in found],
        ), run.tags,
    )  # fmt: skip


def commonest_tags(data: Tagged) -> tuple[dict[str, int], int]:
    """The tag that each word has most often, and the one that words seen once have most often."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for words, tags in zip(data.sentences, data.tags, strict=True):
        for word, tag in zip(words, tags, strict=True):
            counts[word][tag] += 1
    common = {word: min(some, key=lambda c: (-some[c], c)) for word, some in counts.items()}
    once = Counter(common[word] for word, some in counts.items() if some.total() == 1)
    rare = once or Counter(c for tags in data.tags for c in tags)
    return common, min(rare, key=lambda c: (-rare[c], c))
