"""Facts: a GPT learns texts by heart by filling in their spans, and then to answer questions: two stages.

N texts or questions, B of a batch, T tokens of a row, C tokens of the longest text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.config import LearningRate, Length, Range, Share, check_ranges
from octavo.core import seeded_generator
from octavo.datasets.people import names_people, open_people
from octavo.datasets.questions import MARK, Knowledge, Pair, open_knowledge
from octavo.datasets.sources import SOURCES, where
from octavo.decode.answers import prompts_within
from octavo.errors import UserError
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.ops import cross_entropy
from octavo.tasks.facts_run import FactsRun, answering_run, measure
from octavo.tasks.span_corruption import MARKS, SPAN, corrupted_rows, draw_cuts
from octavo.tasks.task import Recipe, Task
from octavo.text.chunks import Chunk
from octavo.text.question_tokens import mark_of, question_rows, shuffled, text_rows
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.char import Char
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import MUON_LEARNING_RATE, OptimizerConfig
from octavo.training.stage import Objective, RowBatch, Stage

PRETRAINING, FINETUNING = "pretraining", "finetuning"
KEPT_SHARE = 7 / 8  # of the context is the most that is kept of a text
EPOCHS, EPOCHS_ALONE = 10, 75  # over the questions, after pretraining and without it
VALIDATION_STEP = 10  # with early stopping, every so many questions to learn are held out


@dataclass(frozen=True)
class FactsConfig:
    """How a model is taught facts. --batch-size, --learning-rate and --budget are of the finetuning."""

    pretraining: bool = True
    """--no-pretraining learns from the questions alone."""
    pretrain_epochs: Annotated[int, Range(1, 1_000_000)] = 650
    """Over the text."""
    pretrain_batch_size: Length = 128
    """Texts between two updates of the weights."""
    pretrain_learning_rate: LearningRate = 0.006
    """The learning rate of pretraining at its highest."""
    span: Annotated[float, Range(0, 0.5, above=True)] = SPAN
    """The share of a text that is hidden, on average."""
    mixed: Share = 0.0
    """The share of questions among the texts of pretraining; 0 leaves them for finetuning."""
    encoding: str = "utf-8"
    """The encoding of the files: utf-8, latin-1, utf-16, cp1252, or any other of Python's."""
    epochs: Annotated[int, Range(0, 1_000_000)] = 0
    """Over the questions, where there is no other --budget; 0: 10, or 75 without pretraining."""

    RENAMED: ClassVar[dict[str, str]] = {
        "pretrain_passes": "pretrain_epochs", "pretrain_batch": "pretrain_batch_size",
        "pretrain_rate": "pretrain_learning_rate", "passes": "epochs",
    }  # fmt: skip

    def __post_init__(self) -> None:
        check_ranges(self)


class FactsTask(Task[FactsRun, Knowledge]):
    """The answers to questions about what a text says."""

    name, purpose, data_key = "facts", "answer questions", "corpus"
    takes_file = False
    run_class = FactsRun
    data_help = "birthplaces; people or people-500, made-up ones; or a folder with text.txt, train.tsv and dev.tsv."
    example = "people-160 --width 64 --layers 2 --heads 4 --pretrain-epochs 60 --epochs 40"
    settings = FactsConfig()
    loop = LoopConfig(budget="", batch_size=256)
    optimizer = OptimizerConfig(learning_rate=0.0006, warmup=0.05)
    config = GPTConfig(width=256, layers=4, heads=8, context=128)

    def configs(self, model: str) -> tuple[str, dict[str, Any]]:
        _, usual = super().configs("gpt")
        return "gpt", usual | {"config": self.config}

    def check(self, recipe: Recipe) -> None:
        recipe.config.check_use()

    def open(self, recipe: Recipe, source: Sequence[str], folder: Path | None = None) -> Knowledge:
        if len(source) != 1:
            raise UserError(f"facts are of one source: got {len(source)}; name birthplaces, people-500 or a folder")
        return (
            open_people(source[0], recipe.seed)
            if names_people(source[0])
            else open_knowledge(source[0], recipe.settings.encoding)
        )

    def named_data(self) -> dict[str, str]:
        found = {name: SOURCES[name].title for name in ("birthplaces",) if where(name)}
        made_up = where("names") and where("cities")
        return found | (dict.fromkeys(("people-160", "people-500"), "made-up people") if made_up else {})

    def describe(self, recipe: Recipe, source: Sequence[str], data: Knowledge) -> dict[str, Any]:
        about = {"name": data.name, "source": list(source), "sha256": data.identity}
        counts = {"texts": len(data.text), "learnt": len(data.train), "asked": len(data.dev)}
        return {"corpus": about, "facts": {"frame": list(data.frame), **counts}}

    def create(self, recipe: Recipe, data: Knowledge) -> FactsRun:
        model, tokenizer = fresh_model(data, recipe.config, recipe.seed)
        asked = [pair.question for pair in (*data.dev, *data.never)]  # before it trains, not when it is measured
        prompts_within(tokenizer, asked, model.config.context)
        return FactsRun(model, tokenizer)

    def stage_names(self, recipe: Recipe) -> Sequence[str]:
        return (PRETRAINING, FINETUNING) if recipe.settings.pretraining else (FINETUNING,)

    def stage_of(self, record: Mapping[str, Any], stage: int) -> int:
        """Runs of version 0.1 say it in the record instead of the checkpoint."""
        second = record.get("facts", {}).get("stage") == FINETUNING and bool(record["training"].get("stages"))
        return 1 if second else stage

    def stage(self, recipe: Recipe, run: FactsRun, data: Knowledge, device: torch.device, number: int) -> Stage:
        name, model = self.stage_names(recipe)[number], run.model
        if name == PRETRAINING:
            texts = CorruptedTexts(data, run.tokenizer, recipe.settings, model.config.context, recipe.seed, device)
            optimizer = optimizer_of(recipe, pretraining=True)
            return Stage(model, AnswerLoss(model), texts, optimizer, f"{texts.steps}steps", name, fixed_shapes=True)
        held = data.train[::VALIDATION_STEP] if recipe.loop.patience else []
        pairs = [pair for pair in data.train if pair not in set(held)] if held else data.train
        rows = min(recipe.loop.batch_size or self.loop.batch_size, len(pairs))
        asked = Questions(pairs, run.tokenizer, model.config.context, rows, recipe.seed, device)
        epochs = recipe.settings.epochs or (EPOCHS if recipe.settings.pretraining else EPOCHS_ALONE)
        return Stage(
            model, AnswerLoss(model), asked, optimizer_of(recipe), recipe.loop.budget or f"{asked.steps(epochs)}steps",
            name, examples_per_step=rows, steps_per_epoch=asked.steps(1), fixed_shapes=True,
            validate=(lambda: {"exact_match": run.right_share(held)}) if held else None,
            best="exact_match" if held else "",
        )  # fmt: skip

    def measure(self, recipe: Recipe, run: FactsRun, data: Knowledge) -> None:
        run.record["result"] = measure(answering_run(run), data, recipe.settings.pretraining)

    def choices(self, run: FactsRun) -> int:
        return run.tokenizer.vocab

    def evaluate(self, run: FactsRun, source: Any = None, **settings: Any) -> dict[str, Any]:
        """How many of its own held-out questions it answers exactly, and how sure it is."""
        pretrained = any(stage["name"] == PRETRAINING for stage in run.record["training"]["stages"])
        return measure(answering_run(run), run.data(), pretrained)


TASK = FactsTask()


def optimizer_of(recipe: Recipe, pretraining: bool = False) -> OptimizerConfig:
    """That of a stage: Muon's learning rate is less than its highest as the other one is."""
    rates = (recipe.settings.pretrain_learning_rate, recipe.optimizer.learning_rate)
    rate = rates[0] if pretraining else rates[1]
    muon = (recipe.optimizer.muon_learning_rate or MUON_LEARNING_RATE) * rate / max(rates)
    return replace(recipe.optimizer, learning_rate=rate, muon_learning_rate=muon)


def fresh_model(known: Knowledge, config: GPTConfig, seed: int) -> tuple[GPT, Char]:
    """A model that knows nothing yet, and the characters of the texts and questions as its tokens."""
    text = "\n".join([MARK, *known.text, *(part for pair in known.train for part in pair)])
    tokenizer = Char.learn([Chunk(text.encode())])
    model = GPT(config, tokenizer.vocab)
    model.initialise(seeded_generator(seed))
    return model, tokenizer


class AnswerLoss(Objective):
    """Cross-entropy of the tokens that are asked for; `begin` is not."""

    def forward(self, state: Any, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        x_BT, target_BT = part
        model = self.model
        h_BTD, _ = model.read(model.start(len(x_BT)), x_BT)
        return cross_entropy.nats(h_BTD.flatten(0, 1), model.output_weight, target_BT.flatten(), model.begin), state


# ---------------------------------------------------------------------- batches


class CorruptedTexts:
    """The n-th batch of texts with spans hidden, and of questions where some are mixed in; it depends on n alone."""

    def __init__(
        self, known: Knowledge, tokenizer: Tokenizer, settings: FactsConfig, context: int, seed: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        if not known.text:
            raise UserError(f"there is no text to pretrain on in {known.name}; give some, or --no-pretraining")
        self.longest = min(int(KEPT_SHARE * context), context - MARKS)
        x_NC, self.length_N = text_rows(tokenizer, known.text, self.longest)
        self.x_NC, self.tokenizer, self.settings, self.seed = x_NC.to(device), tokenizer, settings, seed
        self.mark, self.T = mark_of(tokenizer), x_NC.shape[1] + MARKS
        asked = round(settings.mixed * settings.pretrain_batch_size)
        self.batch_size = settings.pretrain_batch_size - asked
        self.order = shuffled(len(x_NC), self.batch_size, seed)
        self.questions = Questions(known.train, tokenizer, context, asked, seed, device) if asked else None
        if self.questions is not None:
            self.T = max(self.T, self.questions.x_NT.shape[1])

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return -(-self.settings.pretrain_epochs * len(self.x_NC) // self.batch_size)

    def __call__(self, step: int) -> RowBatch:
        text_B = self.order(step)
        cut = draw_cuts(self.length_N[text_B], self.longest, self.seed, step, text_B, self.settings.span)
        begin = self.tokenizer.begin
        numbers_B = torch.from_numpy(text_B).to(self.x_NC.device)
        target_BT = corrupted_rows(self.x_NC, numbers_B, cut, self.mark, begin, self.T)
        x_BT = torch.cat([torch.full_like(target_BT[:, :1], begin), target_BT[:, :-1]], 1)
        batch = RowBatch((x_BT, target_BT), float(cut.kept_B.sum() + MARKS * len(text_B)))
        return joined([batch, *([self.questions(step)] if self.questions else [])], begin)


class Questions:
    """The n-th batch of questions; it depends on n alone."""

    def __init__(
        self, pairs: Sequence[Pair], tokenizer: Tokenizer, context: int, batch_size: int, seed: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        x_NT, target_NT = question_rows(tokenizer, pairs, context)
        self.asked_N = (target_NT != tokenizer.begin).sum(1)
        self.x_NT, self.target_NT, self.batch_size = x_NT.to(device), target_NT.to(device), batch_size
        self.order = shuffled(len(x_NT), batch_size, seed)

    def steps(self, epochs: int) -> int:
        return -(-epochs * len(self.x_NT) // self.batch_size)

    def __call__(self, step: int) -> RowBatch:
        at_B = torch.from_numpy(self.order(step))
        targets, at_B = float(self.asked_N[at_B].sum()), at_B.to(self.x_NT.device)
        return RowBatch((self.x_NT[at_B], self.target_NT[at_B]), targets)


def joined(parts: Sequence[RowBatch], begin: int) -> RowBatch:
    """The rows of several batches as one."""
    T = max(part.tensors[0].shape[1] for part in parts)
    wide = ([F.pad(x_BT, (0, T - x_BT.shape[1]), value=begin) for x_BT in part.tensors] for part in parts)
    return RowBatch(tuple(map(torch.cat, zip(*wide, strict=True))), sum(part.targets for part in parts))
