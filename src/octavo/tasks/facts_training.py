"""Pretraining that teaches facts: a GPT learns texts by heart by filling in their spans, then to answer questions.

N texts or questions, B of a batch, T tokens of a row, C tokens of the longest text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from octavo.core import seeded_generator
from octavo.datasets.people import names_people, open_people
from octavo.datasets.questions import MARK, Knowledge, Pair, open_knowledge
from octavo.errors import UserError
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.ops import cross_entropy
from octavo.tasks.span_corruption import MARKS, SPAN, corrupted_rows, draw_cuts
from octavo.text.chunks import Chunk
from octavo.text.question_tokens import mark_of, question_rows, shuffled, text_rows
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.char import Char
from octavo.training.batch_loop import Fit, fit
from octavo.training.optimizer import OptimizerConfig
from octavo.training.precision import compiled

Rows = tuple[Tensor, Tensor]  # x_BT, and target_BT of the token behind each; `begin` is not asked for
USUAL = GPTConfig(width=256, layers=4, heads=8, context=128)
MUON_LEARNING_RATE = 0.02  # Muon's, which suits a GPT
KEPT = 7 / 8  # of the context is the most that is kept of a text
PASSES, PASSES_ALONE = 10, 75  # over the questions, after pretraining and without it


@dataclass(frozen=True)
class FactsConfig:
    """How a model is taught facts."""

    pretraining: bool = True
    """--no-pretraining learns from the questions alone."""
    pretrain_passes: int = 650
    """Over the text."""
    pretrain_batch: int = 128
    """Texts between two changes of the weights."""
    pretrain_rate: float = 0.006
    """The learning rate of pretraining at its highest."""
    span: float = SPAN
    """The share of a text that is hidden, on average."""
    mixed: float = 0.0
    """The share of questions among the texts of pretraining; 0 leaves them for finetuning."""
    passes: int = 0
    """Over the questions; 0: 10, or 75 without pretraining."""
    batch: int = 256
    """Questions between two changes of the weights."""
    rate: float = 0.0006
    """The learning rate of finetuning at its highest."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """muon: the matrices inside the model by Muon, everything else by AdamW. adamw: everything by AdamW."""
    muon_learning_rate: float = 0.0
    """Muon's rate in pretraining, 0: what suits the model; in finetuning it is less as the other rate is."""
    weight_decay: float = 0.1
    """Of the matrices inside the model."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: products in bfloat16 where the machine has instructions for them."""

    def __post_init__(self) -> None:
        for name, least in (("pretrain_passes", 1), ("pretrain_batch", 1), ("batch", 1), ("passes", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}: {name}={getattr(self, name)}; leave it out")
        if not 0 < self.span <= 0.5:
            raise UserError(f"span must be above 0 and at most 0.5: span={self.span}; leave it out")
        if not 0 <= self.mixed < 1:
            raise UserError(f"mixed must be at least 0 and below 1: mixed={self.mixed}; try --mixed 0.25")
        for rate in (self.pretrain_rate, self.rate):
            self.optim(rate)  # which refuses what cannot be

    @property
    def over_questions(self) -> int:
        """Passes of finetuning."""
        return self.passes or (PASSES if self.pretraining else PASSES_ALONE)

    def optim(self, rate: float, warmup: float = 0.05) -> OptimizerConfig:
        """How the weights are changed at this rate; Muon's is less than its highest as this one is."""
        highest = max(self.pretrain_rate, self.rate)
        muon_learning_rate = (self.muon_learning_rate or MUON_LEARNING_RATE) * rate / highest
        return OptimizerConfig(self.optimizer, rate, muon_learning_rate, self.weight_decay, warmup)


def open_facts(source: str | Path, seed: int = 0) -> Knowledge:
    """birthplaces, made-up people (people, people-500) or a folder."""
    return open_people(str(source), seed) if names_people(source) else open_knowledge(source)


def fresh_model(known: Knowledge, config: GPTConfig, seed: int) -> tuple[GPT, Char]:
    """A model that knows nothing yet, and the characters of the texts and questions as its tokens."""
    config.check_use()
    told = "\n".join([MARK, *known.text, *(part for pair in known.train for part in pair)])
    tokenizer = Char.learn([Chunk(told.encode())])
    model = GPT(config, tokenizer.vocab)
    model.initialise(seeded_generator(seed))
    return model, tokenizer


# ---------------------------------------------------------------------- batches


class Texts:
    """The n-th batch of spoilt texts, and of questions where some are mixed in; it depends on n alone."""

    def __init__(
        self, known: Knowledge, tokenizer: Tokenizer, how: FactsConfig, context: int, seed: int, device: torch.device
    ) -> None:
        if not known.text:
            raise UserError(f"there is no text to pretrain on in {known.name}; give some, or --no-pretraining")
        self.longest = min(int(KEPT * context), context - MARKS)
        x_NC, self.length_N = text_rows(tokenizer, known.text, self.longest)
        self.x_NC, self.tokenizer, self.how, self.seed = x_NC.to(device), tokenizer, how, seed
        self.mark, self.T = mark_of(tokenizer), x_NC.shape[1] + MARKS
        asked = round(how.mixed * how.pretrain_batch)
        self.batch = how.pretrain_batch - asked
        self.order = shuffled(len(x_NC), self.batch, seed)
        self.questions = Questions(known.train, tokenizer, context, asked, seed, device) if asked else None
        if self.questions is not None:
            self.T = max(self.T, self.questions.x_NT.shape[1])

    @property
    def steps(self) -> int:
        """Of all passes."""
        return -(-self.how.pretrain_passes * len(self.x_NC) // self.batch)

    def __call__(self, step: int) -> Rows:
        text_B = self.order(step)
        cut = draw_cuts(self.length_N[text_B], self.longest, self.seed, step, text_B, self.how.span)
        begin = self.tokenizer.begin
        numbers_B = torch.from_numpy(text_B).to(self.x_NC.device)
        target_BT = corrupted_rows(self.x_NC, numbers_B, cut, self.mark, begin, self.T)
        x_BT = torch.cat([torch.full_like(target_BT[:, :1], begin), target_BT[:, :-1]], 1)
        if self.questions is None:
            return x_BT, target_BT
        return joined([(x_BT, target_BT), self.questions(step)], begin)


class Questions:
    """The n-th batch of questions; it depends on n alone."""

    def __init__(
        self, pairs: Sequence[Pair], tokenizer: Tokenizer, context: int, batch: int, seed: int, device: torch.device
    ) -> None:
        x_NT, target_NT = question_rows(tokenizer, pairs, context)
        self.x_NT, self.target_NT, self.batch = x_NT.to(device), target_NT.to(device), batch
        self.order = shuffled(len(x_NT), batch, seed)

    def steps(self, passes: int) -> int:
        return -(-passes * len(self.x_NT) // self.batch)

    def __call__(self, step: int) -> Rows:
        at_B = torch.from_numpy(self.order(step)).to(self.x_NT.device)
        return self.x_NT[at_B], self.target_NT[at_B]


def joined(parts: Sequence[Rows], begin: int) -> Rows:
    """The rows of several batches as one."""
    T = max(x_BT.shape[1] for x_BT, _ in parts)
    xs, targets = zip(*((_widened(x, T, begin), _widened(target, T, begin)) for x, target in parts), strict=True)
    return torch.cat(xs), torch.cat(targets)


def _widened(x_BT: Tensor, T: int, begin: int) -> Tensor:
    return torch.cat([x_BT, x_BT.new_full((len(x_BT), T - x_BT.shape[1]), begin)], 1)


def answer_loss(model: GPT, rows: Rows) -> Tensor:
    """The nats of a token that is asked for, on average."""
    x_BT, target_BT = rows
    h_BTD, _ = model.read(model.start(len(x_BT)), x_BT)
    nats = cross_entropy.nats(h_BTD.flatten(0, 1), model.output_weight, target_BT.flatten(), model.begin)
    return nats / (target_BT != model.begin).sum()


# ---------------------------------------------------------------------- the two stages


def pretrain(
    model: GPT, tokenizer: Tokenizer, known: Knowledge, how: FactsConfig, seed: int, device: torch.device,
    folder: Path | None = None, quiet: bool = False,
) -> Fit:  # fmt: skip
    """Learn the texts, spoilt anew at every step."""
    texts = Texts(known, tokenizer, how, model.config.context, seed, device)
    return _fit(model, texts, texts.steps, how, how.pretrain_rate, seed, device, folder, quiet)


def finetune(
    model: GPT, tokenizer: Tokenizer, known: Knowledge, how: FactsConfig, seed: int, device: torch.device,
    folder: Path | None = None, quiet: bool = False,
) -> Fit:  # fmt: skip
    """Learn to answer the questions; nothing but their answers is learnt."""
    asked = Questions(known.train, tokenizer, model.config.context, min(how.batch, len(known.train)), seed, device)
    steps = asked.steps(how.over_questions)
    return _fit(model, asked, steps, how, how.rate, seed, device, folder, quiet)


def finetune_on(
    model: GPT, tokenizer: Tokenizer, pairs: Sequence[Pair], old: Sequence[Pair], steps: int, how: FactsConfig,
    seed: int, device: torch.device, quiet: bool = False,
) -> Fit:  # fmt: skip
    """Learn new pairs; half of every batch are old ones, where there are any, so that these are not forgotten."""
    context, half = model.config.context, max(1, how.batch // 2)
    new = Questions(pairs, tokenizer, context, min(half, len(pairs)), seed, device)
    again = Questions(old, tokenizer, context, min(half, len(old)), seed, device) if old else None

    def batch_at(step: int) -> Rows:
        return joined([new(step), *([again(step)] if again else [])], model.begin)

    return _fit(model, batch_at, steps, how, how.rate, seed, device, None, quiet)


def _fit(
    model: GPT, batch_at: Callable[[int], Rows], steps: int, how: FactsConfig, rate: float, seed: int,
    device: torch.device, folder: Path | None, quiet: bool,
) -> Fit:  # fmt: skip
    model.train()
    with compiled(model.repeated_blocks, "absorb", device):
        told = fit(
            model, lambda rows: answer_loss(model, rows), batch_at, budget=f"{steps}steps", optim=how.optim(rate),
            seed=seed, device=device, precision=how.precision, folder=folder, quiet=quiet,
        )  # fmt: skip
    model.eval()
    return told


def settings_of(source: str, known: Knowledge, config: GPTConfig, how: FactsConfig, seed: int) -> dict[str, Any]:
    """All that a run depends on, as plain JSON values."""
    told: dict[str, Any] = json.loads(json.dumps({
        "source": source, "sha256": known.identity, "model": asdict(config), "how": asdict(how), "seed": seed,
    }))  # fmt: skip
    return told


def thinned(history: Sequence[Mapping[str, Any]], most: int = 100) -> list[list[float]]:
    """Step and loss of some of a stage's rows, for its curve."""
    rows = [[row["step"], row["loss"]] for row in history if "loss" in row]
    places = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)
    return [rows[place] for place in places.tolist()]
