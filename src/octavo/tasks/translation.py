"""Translating from Python: train, load, translate, evaluate and look at alignments.

from octavo import translation
run = translation.train("seq2seq", "multi30k-en-de", budget="10min", out="runs/en-de")
run.translate(["A dog runs."])
translation.evaluate(run)["de"].bleu
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.config import configs_from
from octavo.datasets.pairs import open_pairs, read_lines
from octavo.errors import UserError
from octavo.scoring.translation import Translated
from octavo.tasks.translation_alignment import Alignment, align
from octavo.tasks.translation_page import translation_page
from octavo.tasks.translation_training import (
    OPTIM,
    PairLoopConfig,
    PairsConfig,
    TranslationRecipe,
    pairs_of,
    resume_translator,
    train_translator,
)
from octavo.tasks.translator import BEAM, KINDS, Method, Translator, load_translator

__all__ = ["Alignment", "Translator", "align", "evaluate", "load", "open_pairs", "resume", "train"]

load = load_translator


def resume(path: str | Path, budget: str | None = None, quiet: bool = False) -> Translator:
    """Go on with training that was stopped, as if it had not been; or, with a larger budget, with a finished run."""
    return resume_translator(path, budget, quiet, translation_page)


def train(
    model: str, source: str | Path | Sequence[str | Path], *, out: str | Path | None = None, seed: int = 0,
    device: str = "auto", quiet: bool = False, **settings: Any,
) -> Translator:  # fmt: skip
    """Train seq2seq or seq2seq-recurrent on pairs: a named source, a TSV file, or files line by line. Keyword settings
    are the model's, the pairs', the training's and the optimizers': width=256, size=8000, budget="10min", rate=0.004.
    """
    if model not in KINDS:
        raise UserError(f"there is no model {model!r} that translates; there are {', '.join(KINDS)}")
    usual = KINDS[model][1](), PairsConfig(), PairLoopConfig(), OPTIM
    config, pairs, loop, optim = configs_from(model, usual, settings, ("out", "seed", "device", "quiet"))
    sources = [str(source)] if isinstance(source, str | Path) else [str(one) for one in source]
    return train_translator(
        TranslationRecipe(model, config, pairs, loop, optim, seed, device), sources, out, quiet, translation_page
    )


def evaluate(run: Translator, source: Sequence[str] = (), method: Method = BEAM) -> dict[str, Translated]:
    """BLEU and chrF by language: of the run's own test pairs, or of all pairs of a place that is named."""
    lines = read_lines(source) if source else pairs_of(run).test
    if len(lines.targets) != len(run.languages) - 1:
        wanted, given = ", ".join(run.languages[1:]), len(lines.targets)
        raise UserError(f"there must be a target for each of {wanted}: {given} given; give as many columns or files")
    return run.measure(lines, method)
