"""Translating: pairs of like length, label smoothing, an average of the weights.

N pairs, B of a batch, T tokens of a target, V vocabulary.

    run = octavo.train("seq2seq", "multi30k-en-de", budget="10min", out="runs/en-de")
    run.translate(["A dog runs."])
    octavo.evaluate(run)["de"].bleu
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from octavo.config import Length, check_ranges
from octavo.core import seeded_generator
from octavo.datasets.pairs import MULTI30K, NAMED, Lines, Pairs, open_pairs, read_lines
from octavo.datasets.sources import SOURCES, where
from octavo.decode import Greedy
from octavo.errors import UserError
from octavo.models import find_spec
from octavo.models.encoder_decoder import EncoderDecoder
from octavo.ops.cross_entropy import nats_of
from octavo.scoring.metrics import Translated, load_sacrebleu
from octavo.tasks.pair_batches import IGNORE, PairBatches, encode_lines
from octavo.tasks.task import Recipe, Task
from octavo.tasks.translator import BEAM, Translator, ids_of
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.registry import tokenizer_class, tokenizer_settings
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.stage import Objective, Stage

# Without cuDNN: it makes plans for every new shape, nearly every batch has one, and a step took 12 times as long.
ANY_SHAPE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class PairsConfig:
    """The pairs and their tokens."""

    tokenizer: str = "bpe"
    """bpe, word, char, byte, or another tokenizer that is installed."""
    target_tokenizer: str = "same"
    """Another one for targets, where it is not the same."""
    vocab_size: Length = 8000
    """bpe, word: tokens of a vocabulary."""
    shared: bool = True
    """One vocabulary for sources and targets; --no-shared learns one for each side."""
    valid: tuple[str, ...] = ()
    """Pairs to choose the best weights by: a TSV file, or several files line by line; else some are held out."""
    test: tuple[str, ...] = ()
    """Pairs to measure on, in the same way."""
    encoding: str = "utf-8"
    """The encoding of the files: utf-8, latin-1, utf-16, cp1252, or any other of Python's."""
    keep: Literal["right", "bleu", "last"] = "right"
    """The weights kept: that predict most target tokens, whose greedy translations are best, or the last."""

    RENAMED: ClassVar[dict[str, str]] = {"size": "vocab_size", "tokens": "batch_size"}

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in {self.tokenizer, self.target_tokenizer} - {"same"}:
            tokenizer_class(name)  # which refuses what is not installed
        if self.shared and self.target_tokenizer not in ("same", self.tokenizer):
            raise UserError(
                f"different tokenizers cannot be shared: {self.tokenizer}, {self.target_tokenizer}; try --no-shared"
            )

    def learn(self, lines: Lines) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of sources and targets."""
        targets = [line for column in lines.targets for line in column]
        if self.shared:
            one = _learnt(self.tokenizer, [*lines.sources, *targets], self.vocab_size)
            return one, one
        second = self.tokenizer if self.target_tokenizer == "same" else self.target_tokenizer
        return _learnt(self.tokenizer, lines.sources, self.vocab_size), _learnt(second, targets, self.vocab_size)


def _learnt(name: str, lines: Sequence[str], size: int) -> Tokenizer:
    chunks = [Chunk("\n".join(lines).encode("utf-8", "surrogateescape"))]
    kind = tokenizer_class(name)
    sized = {"vocab_size": size} if "vocab_size" in kind.Settings.__dataclass_fields__ else {}
    return kind.learn(chunks, tokenizer_settings(name, sized))


class TranslationTask(Task[Translator, Pairs]):
    """A text in another language for every text."""

    name, purpose, data_key = "translation", "translate", "pairs"
    run_class = Translator
    data_help = (
        "multi30k-en-de (or other pairs of en, de, fr; -en-de-fr for two targets), kjv-asv, cmudict; a TSV file of "
        "source, tab, target; or a file of sources and one of targets, line by line. --batch-size counts tokens here: "
        "of the longer side of a batch, in which pairs of like length stand together."
    )
    example = "multi30k-en-de --budget 10min"
    settings = PairsConfig()
    loop = LoopConfig(budget="10min", batch_size=4096)
    optimizer = OptimizerConfig(label_smoothing=0.1, ema=0.99)

    def check(self, recipe: Recipe) -> None:
        load_sacrebleu()

    def open(self, recipe: Recipe, source: Sequence[str], folder: Path | None = None) -> Pairs:
        return open_pairs(source, recipe.settings.valid, recipe.settings.test, recipe.settings.encoding)

    def named_data(self) -> dict[str, str]:
        files = {name: SOURCES["multi30k" if name in MULTI30K else name] for name in NAMED if name != "asv-kjv"}
        return {name: source.title for name, source in files.items() if where(source.name)}

    def describe(self, recipe: Recipe, source: Sequence[str], data: Pairs) -> dict[str, Any]:
        counts = {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)}
        about = {"name": data.name, "source": list(source), "split": data.split, "sha256": data.identity, **counts}
        return {"pairs": about}

    def create(self, recipe: Recipe, data: Pairs) -> Translator:
        one, other = recipe.settings.learn(data.train)
        sizes = ids_of(one), ids_of(other), len(data.languages) - 1
        model: Any = find_spec(recipe.model).model(recipe.config, *sizes)
        model.initialise(seeded_generator(recipe.seed))
        return Translator(model, one, other, data.languages)

    def stage(self, recipe: Recipe, run: Translator, data: Pairs, device: torch.device, number: int) -> Stage:
        tokens, keep = recipe.loop.batch_size or self.loop.batch_size, recipe.settings.keep
        train, valid = (batches_of(run, lines, tokens, recipe.seed, device) for lines in (data.train, data.valid))

        def validate() -> Mapping[str, float]:
            measured = predicted_tokens(run.model, valid)
            if keep == "bleu":
                measured["bleu"] = float(np.mean([one.bleu for one in run.measure(data.valid, Greedy()).values()]))
            return measured

        return Stage(
            run.model, PairLoss(run.model, recipe.optimizer.label_smoothing), train, recipe.optimizer,
            recipe.loop.budget, validate=validate, best="" if keep == "last" else keep,
            around=lambda: sdpa_kernel(ANY_SHAPE),
        )  # fmt: skip

    def choices(self, run: Translator) -> int:
        return run.target_tokenizer.vocab

    def measure(self, recipe: Recipe, run: Translator, data: Pairs) -> None:
        run.record["result"] = {"languages": {one: found.to_json() for one, found in run.measure(data.test).items()}}

    def evaluate(self, run: Translator, source: Any = None, **settings: Any) -> dict[str, Translated]:
        """BLEU and chrF by language: of the run's own test pairs, or of all pairs of a place that is named."""
        lines = read_lines(source, settings.get("encoding", "utf-8")) if source else run.data().test
        if len(lines.targets) != len(run.languages) - 1:
            wanted, given = ", ".join(run.languages[1:]), len(lines.targets)
            raise UserError(
                f"there must be a target for each of {wanted}: {given} given; give as many columns or files"
            )
        return run.measure(lines, settings.get("method", BEAM))


TASK = TranslationTask()


class PairLoss(Objective):
    """Cross-entropy of the targets' tokens, the sources given."""

    def forward(self, state: Any, part: tuple[Tensor, ...]) -> tuple[Tensor, Any]:
        source_BS, lengths_B, before_BT, after_BT = part
        scores_BTV = self.model.scores(self.model.hidden(source_BS, lengths_B, before_BT))
        return nats_of(scores_BTV.flatten(0, 1), after_BT.flatten(), IGNORE, self.smoothing), state


@torch.no_grad()
def predicted_tokens(model: EncoderDecoder, batches: PairBatches) -> dict[str, float]:
    """The share of the targets' tokens that are predicted, those before them given, and the nats of one."""
    right = nats = count = torch.zeros((), dtype=torch.float64, device=batches.device)
    for at_B in batches.in_order():
        source_BS, lengths_B, before_BT, after_BT = batches.batch(at_B).tensors
        scores_BTV = model.scores(model.hidden(source_BS, lengths_B, before_BT))
        right = right + (scores_BTV.argmax(-1) == after_BT).sum()
        nats = nats + nats_of(scores_BTV.flatten(0, 1), after_BT.flatten(), IGNORE)
        count = count + (after_BT != IGNORE).sum()
    return {"right": float(right / count), "nats": float(nats / count)}


def batches_of(run: Translator, lines: Lines, tokens: int, seed: int, device: torch.device) -> PairBatches:
    """The pairs of all languages as tokens; those longer than the model's context are left out."""
    sources = encode_lines(run.source_tokenizer, lines.sources * len(lines.targets), run.source_tokenizer.begin)
    targets = encode_lines(run.target_tokenizer, [line for column in lines.targets for line in column], run.model.end)
    begin_N = np.repeat([run.model.language(n) for n in range(len(lines.targets))], len(lines))
    longest_N = np.maximum(sources.lengths, targets.lengths)
    fits = np.flatnonzero(longest_N <= min(run.model.config.context, tokens))
    if not len(fits):
        raise UserError(f"no pair fits: context={run.model.config.context}, batch_size={tokens}; try larger ones")
    return PairBatches(sources.take(fits), targets.take(fits), begin_N[fits], tokens, seed, device)
