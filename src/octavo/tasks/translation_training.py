"""How a model learns to translate: pairs of like length, label smoothing, an average of the weights.

N pairs, B of a batch, T tokens of a target, V vocabulary.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from octavo.config import from_json
from octavo.core import seeded_generator
from octavo.datasets.pairs import Lines, Pairs, open_pairs
from octavo.decode import Greedy
from octavo.errors import UserError
from octavo.io.run_folder import METRICS, REPORT, STATE, check_out, read_record
from octavo.models.encoder_decoder import EncoderDecoder
from octavo.ops.cross_entropy import nats_of
from octavo.scoring.translation import load_sacrebleu
from octavo.tasks.count_training import pick_device
from octavo.tasks.pair_batches import IGNORE, PairBatch, PairBatches, Rows, encode_lines
from octavo.tasks.translator import KINDS, Translator, load_translator
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.registry import tokenizer_class, tokenizer_settings
from octavo.training.batch_loop import Fit, fit
from octavo.training.checkpoint import FILE
from octavo.training.optimizer import OptimizerConfig
from octavo.training.schedule import Budget

Page = Callable[[Translator, Lines, list[dict[str, Any]]], str]
Kind = Literal["bpe", "word", "char", "byte"]
# Without cuDNN: it makes plans for every new shape, nearly every batch has one, and a step took 12 times as long.
ANY_SHAPE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
OPTIM = OptimizerConfig(label_smoothing=0.1, ema=0.99)  # where nothing else is asked for


@dataclass(frozen=True)
class PairsConfig:
    """The pairs and their tokens."""

    tokenizer: Kind = "bpe"
    """What texts are cut into."""
    target_tokenizer: Literal["same", "bpe", "word", "char", "byte"] = "same"
    """Another one for targets, where it is not the same."""
    size: int = 8000
    """bpe, word: tokens of a vocabulary."""
    shared: bool = True
    """One vocabulary for sources and targets; --no-shared learns one for each side."""
    valid: tuple[str, ...] = ()
    """Pairs to choose the best weights by: a TSV file, or several files line by line; else some are held out."""
    test: tuple[str, ...] = ()
    """Pairs to measure on, in the same way."""

    def __post_init__(self) -> None:
        if self.shared and self.target_tokenizer not in ("same", self.tokenizer):
            raise UserError(
                f"different tokenizers cannot be shared: {self.tokenizer}, {self.target_tokenizer}; try --no-shared"
            )

    def learn(self, lines: Lines) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of sources and targets."""
        targets = [line for column in lines.targets for line in column]
        if self.shared:
            one = _learnt(self.tokenizer, [*lines.sources, *targets], self.size)
            return one, one
        second = self.tokenizer if self.target_tokenizer == "same" else self.target_tokenizer
        return _learnt(self.tokenizer, lines.sources, self.size), _learnt(second, targets, self.size)


@dataclass(frozen=True)
class PairLoopConfig:
    """How long, and with what batches."""

    budget: str = "10min"
    """How long to train: 180s, 10min, 2h or 5000steps."""
    tokens: int = 4096
    """Places of a batch, on the longer side; pairs of like length go together."""
    checks: int = 10
    """How often the pairs held out for choices are looked at."""
    keep: Literal["right", "bleu", "last"] = "right"
    """The weights kept: that foresee most target tokens, whose greedy translations are best, or the last."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: products in bfloat16 where the machine has instructions for them."""

    def __post_init__(self) -> None:
        if Budget.parse(self.budget).kind == "tokens":
            raise UserError(f"translating counts steps or seconds: budget={self.budget!r}; try 5000steps or 10min")
        for name in ("tokens", "checks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1: {name}={getattr(self, name)}; leave it out")


@dataclass(frozen=True)
class TranslationRecipe:
    """All that a trained model depends on but the pairs."""

    model: str
    config: Any
    pairs: PairsConfig = PairsConfig()
    loop: PairLoopConfig = PairLoopConfig()
    optim: OptimizerConfig = OPTIM
    seed: int = 0
    device: str = "auto"

    def to_json(self) -> dict[str, Any]:
        kept = {"pairs": asdict(self.pairs), "loop": asdict(self.loop), "optim": asdict(self.optim)}
        return {**kept, "device": self.device}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> TranslationRecipe:
        """That of a saved run."""
        try:
            training = told["training"]
            return cls(
                told["model"], from_json(KINDS[told["model"]][1], told["config"]),
                from_json(PairsConfig, training["pairs"]), from_json(PairLoopConfig, training["loop"]),
                from_json(OptimizerConfig, training["optim"]), int(told["seed"]), str(training["device"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the run does not say how it was trained: {error!r}; train it anew") from error


def train_translator(
    recipe: TranslationRecipe, source: Sequence[str], out: str | Path | None = None, quiet: bool = False,
    page: Page | None = None,
) -> Translator:  # fmt: skip
    """Learn from pairs and measure on those held out; with `out`, the run is saved as it goes."""
    if out is not None:
        check_out(out)
    load_sacrebleu()  # before the work, not behind it
    pairs = open_pairs(source, recipe.pairs.valid, recipe.pairs.test)
    one, other = recipe.pairs.learn(pairs.train)
    model = KINDS[recipe.model][0](recipe.config, one.vocab, other.vocab, len(pairs.languages) - 1)
    model.initialise(seeded_generator(recipe.seed))
    run = Translator(model, one, other, pairs.languages, _record(recipe, source, pairs))
    if out is not None:  # so that it can be taken up again, whenever it is killed
        run.save(out)
    return _go_on(run, recipe, pairs, quiet, page)


def resume_translator(
    path: str | Path, budget: str | None = None, quiet: bool = False, page: Page | None = None
) -> Translator:
    """Go on with training that was stopped, as if it had not been; or, with a larger budget, with a finished run."""
    recipe = TranslationRecipe.of(read_record(path))
    recipe = replace(recipe, loop=replace(recipe.loop, budget=budget or recipe.loop.budget))
    run = load_translator(path)
    if not Path(path, STATE, FILE).is_file():
        raise UserError(f"{path} has no {STATE}/{FILE}, so it cannot be taken up again; train it anew")
    pairs = pairs_of(run)
    run.record["training"] = {**recipe.to_json(), "finished": False}
    return _go_on(run, recipe, pairs, quiet, page)


def pairs_of(run: Translator) -> Pairs:
    """The pairs that a run was trained and measured on, if they are still the same."""
    about, recipe = (
        run.record.get("pairs"),
        TranslationRecipe.of({**run.record, "model": run.name, "config": asdict(run.model.config)}),
    )
    if not isinstance(about, dict) or not isinstance(about.get("source"), list):
        raise UserError("the run does not say on which pairs it was trained; name some")
    pairs = open_pairs([str(one) for one in about["source"]], recipe.pairs.valid, recipe.pairs.test)
    if pairs.identity != about.get("sha256"):
        raise UserError(
            f"the pairs of {' '.join(about['source'])} are not those the run was trained on; name others, or train anew"
        )
    return pairs


def objective_of(model: EncoderDecoder, smoothing: float, batch: PairBatch) -> Tensor:
    """The nats of a target's token, on average."""
    scores_BTV = model.scores(model.hidden(batch.source_BS, batch.lengths_B, batch.before_BT))
    nats = nats_of(scores_BTV.flatten(0, 1), batch.after_BT.flatten(), IGNORE, smoothing)
    return nats / (batch.after_BT != IGNORE).sum()


@torch.no_grad()
def foreseen(model: EncoderDecoder, batches: PairBatches) -> dict[str, float]:
    """How many of the targets' tokens are foreseen, those before them given, and what one costs."""
    right = nats = count = torch.zeros((), dtype=torch.float64, device=batches.device)
    for at_B in batches.in_order():
        batch = batches.batch(at_B)
        scores_BTV = model.scores(model.hidden(batch.source_BS, batch.lengths_B, batch.before_BT))
        right = right + (scores_BTV.argmax(-1) == batch.after_BT).sum()
        nats = nats + nats_of(scores_BTV.flatten(0, 1), batch.after_BT.flatten(), IGNORE)
        count = count + (batch.after_BT != IGNORE).sum()
    return {"right": float(right / count), "nats": float(nats / count)}


def batches_of(run: Translator, lines: Lines, tokens: int, seed: int, device: torch.device) -> PairBatches:
    """The pairs of all languages as tokens; those longer than the model's context are left out."""
    sources = encode_lines(run.source_tokenizer, lines.sources * len(lines.targets), run.source_tokenizer.begin)
    targets = encode_lines(run.target_tokenizer, [line for column in lines.targets for line in column], run.model.end)
    begin_N = np.repeat([run.model.language(n) for n in range(len(lines.targets))], len(lines))
    longest_N = np.maximum(sources.lengths, targets.lengths)
    fits = np.flatnonzero(longest_N <= min(run.model.config.context, tokens))
    if not len(fits):
        raise UserError(f"no pair fits: context={run.model.config.context}, tokens={tokens}; try larger ones")
    return PairBatches(_rows(sources, fits), _rows(targets, fits), begin_N[fits], tokens, seed, device)


def _go_on(run: Translator, recipe: TranslationRecipe, pairs: Pairs, quiet: bool, page: Page | None) -> Translator:
    """Train from wherever the run's folder says it is, measure, save."""
    device, loop = pick_device(recipe.device), recipe.loop
    train = batches_of(run, pairs.train, loop.tokens, recipe.seed, device)
    valid = batches_of(run, pairs.valid, loop.tokens, recipe.seed, device)

    def check() -> dict[str, float]:
        told = foreseen(run.model, valid)
        if loop.keep == "bleu":
            told["bleu"] = float(np.mean([one.bleu for one in run.measure(pairs.valid, Greedy()).values()]))
        return told

    run.model.train()
    with sdpa_kernel(ANY_SHAPE):
        told = fit(
            run.model, lambda batch: objective_of(run.model, recipe.optim.label_smoothing, batch), train,
            budget=loop.budget, optim=recipe.optim, seed=recipe.seed, device=device, precision=loop.precision,
            check=check, checks=loop.checks, keep_best=None if loop.keep == "last" else loop.keep, folder=run.path,
            quiet=quiet,
        )  # fmt: skip
    run.model.eval()
    return _finished(run, recipe, pairs, told, page)


def _finished(run: Translator, recipe: TranslationRecipe, pairs: Pairs, told: Fit, page: Page | None) -> Translator:
    figures = {language: one.to_json() for language, one in run.measure(pairs.test).items()}
    run.record |= {
        "train_seconds": told.seconds, "result": {"languages": figures, "best": told.best},
        "training": {**recipe.to_json(), "finished": True, "steps": told.steps, "why": told.why},
    }  # fmt: skip
    if run.path is not None:
        rows = "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in told.history)
        texts = {METRICS: rows} | ({REPORT: page(run, pairs.test, told.history)} if page else {})
        run.save(run.path, texts, keep=[STATE])
    return run


def _record(recipe: TranslationRecipe, source: Sequence[str], pairs: Pairs) -> dict[str, Any]:
    counts = {"train": len(pairs.train), "valid": len(pairs.valid), "test": len(pairs.test)}
    return {
        "seed": recipe.seed,
        "pairs": {"name": pairs.name, "source": list(source), "split": pairs.split, "sha256": pairs.identity, **counts},
        "training": {**recipe.to_json(), "finished": False},
        "made_with": {"python": platform.python_version(), "torch": torch.__version__},
    }  # fmt: skip


def _learnt(name: str, lines: Sequence[str], size: int) -> Tokenizer:
    chunks = [Chunk("\n".join(lines).encode("utf-8", "surrogateescape"))]
    kind = tokenizer_class(name)
    sized = {"vocab_size": size} if hasattr(kind.Settings, "vocab_size") else {}
    return kind.learn(chunks, tokenizer_settings(name, sized))


def _rows(rows: Rows, at: np.ndarray[Any, Any]) -> Rows:
    """Some of them."""
    parts = [rows.x[rows.start_N1[n] : rows.start_N1[n + 1]] for n in at.tolist()]
    return Rows(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))
