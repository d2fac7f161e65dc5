"""Masked words: a BERT learns from raw text, in which words are hidden and sentences exchanged.

B rows, T tokens of a row, N masked tokens, P pairs of sentences, D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.config import Length
from octavo.core import eval_mode, seeded_generator
from octavo.errors import UserError
from octavo.models import find_spec
from octavo.models.bert import Bert, BertConfig
from octavo.models.parts.checks import check_numbers
from octavo.ops.attention.patterns import Texts
from octavo.ops.cross_entropy import nats_of
from octavo.tasks.corpus import describe_corpus
from octavo.tasks.encoder import Encoder
from octavo.tasks.masking import NOTHING, Ahead, MaskConfig, Masked, MaskedBatch, MaskedPart
from octavo.tasks.sentences import Sentences, documents
from octavo.tasks.task import Recipe, Task
from octavo.text.corpus import Corpus, open_corpus
from octavo.text.tokenizers.wordpiece import WordPiece, WordPieceSettings
from octavo.training.loop_config import LoopConfig
from octavo.training.stage import Objective, Stage

VALIDATION_BATCHES, TEST_BATCHES = 4, 16  # of the text held out for choices, and of that which is reported


@dataclass(frozen=True)
class MaskedConfig(MaskConfig):
    """The text, its vocabulary, and what is hidden of it."""

    vocab_size: Length = 8192
    """Words and parts of words of the vocabulary."""
    valid: tuple[str, ...] = ()
    """Text to measure on; without it the last tenth of the corpus."""
    field: str = "text"
    """JSON lines, parquet: where the text is."""
    encoding: str = "utf-8"
    """The encoding of the text: utf-8, latin-1, utf-16, cp1252, or any other of Python's."""

    RENAMED: ClassVar[dict[str, str]] = {"size": "vocab_size"}


class MaskedTask(Task[Encoder, Corpus]):
    """The hidden words of a text."""

    name, purpose, data_key = "masked", "fill in masked words", "corpus"
    run_class = Encoder
    data_help = "A named source (octavo data list), a file, several, a folder, or - for standard input."
    example = "shakespeare --budget 5min --tasks words order"
    settings = MaskedConfig()
    loop = LoopConfig(budget="5min", batch_size=32)

    def check(self, recipe: Recipe) -> None:
        config: BertConfig = recipe.config
        if not config.tasks:
            raise UserError("a BERT learns from a task at least: tasks is empty; try --tasks words next")
        if config.context < 16 or config.segments < 2:
            raise UserError(
                f"pairs need a context of 16 tokens or more and 2 segments: context={config.context}, "
                f"segments={config.segments}; try --context 128"
            )

    def open(self, recipe: Recipe, source: Sequence[str], folder: Path | None = None) -> Corpus:
        how: MaskedConfig = recipe.settings
        return open_corpus(list(source), field=how.field, encoding=how.encoding, valid=list(how.valid) or None)

    def describe(self, recipe: Recipe, source: Sequence[str], data: Corpus) -> dict[str, Any]:
        return describe_corpus(data, recipe.settings.field, recipe.settings.valid)

    def identity(self, record: Mapping[str, Any]) -> Any:
        return record["corpus"]["train"]["sha256"]

    def create(self, recipe: Recipe, data: Corpus) -> Encoder:
        tokenizer = WordPiece.learn(data.train.chunks(), WordPieceSettings(recipe.settings.vocab_size))
        model: Any = find_spec(recipe.model).model(recipe.config, tokenizer.vocab)
        model.initialise(seeded_generator(recipe.seed))
        return Encoder(model, tokenizer)

    def stage(self, recipe: Recipe, run: Encoder, data: Corpus, device: torch.device, number: int) -> Stage:
        learnt, held = Sentences.of(documents(data.train), run.tokenizer).parted()
        learnt.check("the training part")
        ahead, best, model = Ahead(self._batches(recipe, run, learnt, recipe.seed).at), "", run.model
        validation: list[MaskedBatch] = []
        if len(held) >= 4 and len(held.anchors_A):
            batches = self._batches(recipe, run, held, recipe.seed + 1)
            validation = [batches.at(n) for n in range(VALIDATION_BATCHES)]
            task = "words" if "words" in recipe.config.tasks else recipe.config.tasks[0]
            best = "replaced_balanced" if task == "replaced" else f"{task}_accuracy"

        def validate() -> Mapping[str, float]:
            measured = measure_masked(model, validation)
            return {name: measured[name] for name in measured if name != "masked_words"}

        tokens = self._rows(recipe) * recipe.config.context
        return Stage(
            model, MaskedLoss(model, recipe.optimizer.label_smoothing), ahead, recipe.optimizer, recipe.loop.budget,
            unit="tokens", examples_per_step=tokens, steps_per_epoch=max(1, len(learnt.tokens_N) // tokens),
            validate=validate if validation else None, best=best, fixed_shapes=True, around=lambda: closing(ahead),
        )  # fmt: skip

    def choices(self, run: Encoder) -> int:
        model = run.model  # its losses are added up, so that their answers multiply
        yes_or_no = sum(head is not None for head in (model.next, model.order, model.replaced))
        return int(2**yes_or_no) * (model.vocab if model.words is not None else 1)

    def _rows(self, recipe: Recipe) -> int:
        return recipe.loop.batch_size or self.loop.batch_size

    def _batches(self, recipe: Recipe, run: Encoder, sentences: Sentences, seed: int) -> Masked:
        config = run.model.config
        return Masked(
            sentences, run.tokenizer, config.tasks, self._rows(recipe), config.context, seed, recipe.settings
        )  # fmt: skip

    def measure(self, recipe: Recipe, run: Encoder, data: Corpus) -> None:
        valid = Sentences.of(documents(data.valid), run.tokenizer)
        valid.check("the part to measure on")
        batches = self._batches(recipe, run, valid, 0)
        measured = [batches.at(n) for n in range(TEST_BATCHES)]
        run.record["result"] = measure_masked(run.model, measured)
        run.record["training"]["padding"] = sum(batch.waste for batch in measured) / len(measured)


TASK = MaskedTask()


class MaskedLoss(Objective):
    """The mean cross-entropy of each task's answers, added up; nothing here waits for a GPU."""

    def forward(self, state: Any, part: MaskedPart) -> tuple[Tensor, Any]:
        losses = losses_of(self.model, part.batch, self.smoothing, part.counts)
        return torch.stack(list(losses.values())).sum(), state


def losses_of(
    model: Bert, batch: MaskedBatch, smoothing: float = 0.0, counts: Mapping[str, int] | None = None
) -> dict[str, Tensor]:
    """The mean loss of each task, in nats an answer; `counts` are the answers that a mean is over."""
    return {
        task: _nats(logits, target, smoothing) / (
            max(1, counts[task]) if counts is not None else (target != NOTHING).sum().clamp(min=1)
        )
        for task, (logits, target) in questions(model, batch).items()
    }  # fmt: skip


def questions(model: Bert, batch: MaskedBatch) -> dict[str, tuple[Tensor, Tensor]]:
    """For each task what the model says and what is right: logits_NV of several answers, or scores_N of yes."""
    h_ND = encoded(model, batch).flatten(0, 1)
    found = {}
    if model.words is not None:
        found["words"] = model.word_logits(h_ND[batch.chosen_N]), batch.target_N
    if model.next is not None or model.order is not None:
        pooled_PD = model.pool(h_ND[batch.first_P])
        if model.next is not None:
            found["next"] = model.next(pooled_PD), batch.next_P
        if model.order is not None:
            found["order"] = model.order(pooled_PD), batch.order_P
    if model.replaced is not None:
        found["replaced"] = model.replaced(h_ND), batch.replaced_BT.flatten()
    return found


def _nats(logits: Tensor, target_N: Tensor, smoothing: float = 0.0) -> Tensor:
    """In sum; what is not asked costs nothing."""
    if logits.dim() == 2:
        return nats_of(logits, target_N, NOTHING, smoothing)
    scores_N = logits if logits.dtype == torch.float64 else logits.float()
    asked_N = target_N != NOTHING
    nats_N = F.binary_cross_entropy_with_logits(scores_N, (target_N == 1).to(scores_N), reduction="none")
    return (nats_N * asked_N).sum()


def encoded(model: Bert, batch: MaskedBatch) -> Tensor:
    """h_BTD of the rows, in which each text sees itself alone."""
    return model.encode(batch.x_BT, batch.segment_BT, batch.place_BT, Texts(batch.text_BT))


@torch.no_grad()
def measure_masked(model: Bert, batches: Iterable[MaskedBatch]) -> dict[str, float]:
    """How often each task is answered rightly; of replaced words the mean of both kinds, so that 0.5 is chance."""
    nats, kept = 0.0, dict[str, list[Tensor]]()
    device = model.embedding_VD.device
    with eval_mode(model):
        for batch in batches:
            for task, (logits, target_N) in questions(model, batch.to(device)).items():
                guess_N = logits.argmax(-1) if logits.dim() == 2 else (logits > 0).long()
                kept.setdefault(task, []).append(torch.stack([guess_N, target_N])[:, target_N != NOTHING])
                nats += float(_nats(logits, target_N)) if task == "words" else 0.0
    measured: dict[str, float] = {}
    check_numbers(torch.tensor(nats / max(1, sum(part.shape[1] for part in kept.get("words", ())))).exp(), "the losses")
    for task, parts in kept.items():
        guess_N, target_N = torch.cat(parts, 1)
        right_N = (guess_N == target_N).double()
        if task == "replaced":
            both = [right_N[target_N == kind].mean() for kind in (0, 1)]
            measured["replaced_balanced"] = float(sum(both)) / 2
        else:
            measured[f"{task}_accuracy"] = float(right_N.mean())
        if task == "words":
            measured |= {"words_perplexity": math.exp(nats / max(1, len(right_N))), "masked_words": len(right_N)}
    return measured
