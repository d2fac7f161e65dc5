"""What counting alone achieves on the same text and tokens, as baselines, and where a run stands among them.

N tokens, P pieces, L tokens of a piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.core import LanguageModel
from octavo.models import spec_of
from octavo.models.bag import BagConfig
from octavo.models.ngram import NGramConfig
from octavo.scoring.bits_per_byte import score_text
from octavo.tasks.corpus import fit_counts, learnt_text
from octavo.tasks.run import Run
from octavo.text import Split, Tokenizer, tokenize
from octavo.text.validation_chunks import hold_out
from octavo.training.diagnosis.curve import TrainingCurve
from octavo.training.diagnosis.finding import Finding, Verdict

ORDERS = (2, 3, 4, 5)  # beyond, byte n-grams of a small text gain little, and those of words nothing
COUNTED = 20_000_000  # bytes of the training part at most: in bytes as tokens, some 20 s on two cores and 1.0 GB
SCORED = 1 << 18  # bytes of the validation part where the run's own result has to be computed again
TIE = 0.01  # as good as a baseline: within so much of it


@dataclass(frozen=True)
class Baseline:
    """One counted model: its cost on the validation part, and on the chunks that the curve is measured on."""

    name: str
    order: int  # tokens of its n-grams, the predicted one included; 1 is the bag
    bits_per_byte: float
    held_out: float | None = None


@dataclass(frozen=True)
class Baselines:
    """The baselines, the run's own result on the same text, and how they were found."""

    rows: tuple[Baseline, ...]
    own: float
    impossible: int = 0
    counted: int = 0  # bytes
    whole: bool = True  # whether all of the training part was counted

    def find(self, order: int) -> Baseline:
        return next(row for row in self.rows if row.order == order)

    def for_curve(self, row: Baseline) -> float:
        """What the held-out curve is compared with: the same pieces where they could be had."""
        return row.bits_per_byte if row.held_out is None else row.held_out


def measure_baselines(run: Run, valid: Split) -> Baselines:
    """Count the run's training part and score its validation part; the run itself is scored only where it was not."""
    result = run.record.get("result", {})
    own, impossible = result.get("bits_per_byte"), int(result.get("impossible") or 0)
    if impossible:
        own = math.inf
    if own is None or valid.size > COUNTED:
        valid = valid.first(SCORED)
        score = score_text(run.model, run.tokenizer, valid, "validation")
        own, impossible = score.bits_per_byte, score.impossible
    train = learnt_text(run)
    part = train.first(COUNTED)
    x_N, pieces_PL = _learnt_from(run, tokenize(part, run.tokenizer).tokens)
    rows = []
    for order in (1, *ORDERS):
        config: Any = BagConfig() if order == 1 else NGramConfig(order=order)
        kind, name = ("bag", f"bag of {run.tokenizer.unit}") if order == 1 else ("ngram", f"{order}-gram")
        model = fit_counts(kind, torch.from_numpy(x_N.astype(np.int32)), config, run.tokenizer).model
        bits = score_text(model, run.tokenizer, valid, name).bits_per_byte
        rows.append(Baseline(name, order, bits, piece_bits(model, run.tokenizer, pieces_PL)))
    return Baselines(tuple(rows), float(own), impossible, part.size, part.size == train.size)


def _learnt_from(run: Run, x_N: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The tokens that the run learnt from, and the validation chunks taken out of them, if they are the run's own."""
    training = run.record.get("training")
    if isinstance(training, dict):
        held = hold_out(x_N, run.tokenizer.begin)
        if held.pieces_PL.size and held.identity == training.get("held"):
            return held.train_N, held.pieces_PL
    return x_N, np.empty((0, 0), np.int64)


@torch.no_grad()
def piece_bits(model: LanguageModel[Any], tokenizer: Tokenizer, pieces_PL: NDArray[Any]) -> float | None:
    """Bits per byte of pieces that are each read from their own beginning, as the checks of training read them."""
    if not pieces_PL.size:
        return None
    logp_PL = model.score(torch.from_numpy(pieces_PL.astype(np.int64)))
    scored = logp_PL[torch.from_numpy(pieces_PL != model.begin)]  # a document's begin inside a piece is free
    return float(-scored.double().sum()) / math.log(2) / max(1, sum(len(tokenizer.decode(x_L)) for x_L in pieces_PL))


def passed(curve: TrainingCurve, baseline: float) -> int | None:
    """The step of the first check that is below a baseline."""
    return next((check.step for check in curve.checks if check.bits < baseline), None)


def place(own: float, rows: Sequence[Baseline]) -> str:
    """Between which baselines a result stands, in words."""
    beaten = [row for row in rows if own < (1 - TIE) * row.bits_per_byte]
    tied = [row for row in rows if row not in beaten and own <= (1 + TIE) * row.bits_per_byte]
    above = [row for row in rows if row not in (*beaten, *tied)]
    places = []
    if beaten:
        places.append(f"better than the {min(beaten, key=lambda row: row.bits_per_byte).name}")
    if tied:
        places.append(f"as good as the {tied[0].name}")
    if above:
        places.append(f"worse than the {max(above, key=lambda row: row.bits_per_byte).name}")
    return ", ".join(places)


def compare_with_baselines(
    baselines: Baselines, curve: TrainingCurve, model: LanguageModel[Any], longer: str = "", ill: bool = True
) -> Finding:  # fmt: skip
    """Where the run's result stands among what counting achieves.

    `longer` is how to train for longer, if that helps; `ill` whether other findings say what is wrong.
    """
    name, own = "baselines", baselines.own
    # A model must equal the n-gram of its own order; one with a state, the 2-gram.
    field = model.receptive_field if spec_of(model).fitting == "counts" else None
    wanted = baselines.find(min(2 if field is None else 1 + field, max(ORDERS)))
    best = min(baselines.rows, key=lambda row: row.bits_per_byte)
    # Where a baseline has no result for the same pieces, the curve is of other text, and shows only what was beaten.
    rows = [
        asdict(row) | {"passed_at": passed(curve, baselines.for_curve(row)) if known else None}
        for row in baselines.rows for known in [row.held_out is not None or own < row.bits_per_byte]
    ]  # fmt: skip
    values = {"bits_per_byte": own, "baselines": rows, "counted_bytes": baselines.counted, "whole": baselines.whole}
    measured, expected = f"{own:.4f} bits per byte", f"{wanted.name}: {wanted.bits_per_byte:.4f}"
    how = "" if baselines.whole else f" (baselines counted on the first {baselines.counted / 1e6:.0f} MB of the text)"
    other = curve.checks and any(row.held_out is None for row in baselines.rows)
    about = " The curve is of other held-out text than the baselines, so the steps are approximate." if other else ""
    why = f"{place(own, baselines.rows)}{how}.{about}"
    if not math.isfinite(own):
        infinite = f"{baselines.impossible:,} tokens are impossible for the model, so its bits are infinite."
        smoother = ("an estimator that leaves nothing out: --estimator kneser-ney", "more smoothing: --k 1")
        return Finding(name, "warning", "infinite", expected, infinite, smoother, values, "impossible tokens")
    verdict: Verdict = "ok"
    condition = "behind counting"
    shorter = best.order <= (field or 0)
    if shorter and own > (1 + TIE) * best.bits_per_byte and own > (1 + TIE) * wanted.bits_per_byte:
        fewer = (f"a lower --order {best.order}", "an estimator that backs off: --estimator kneser-ney")
        goal = f"at most the {best.name}: {best.bits_per_byte:.4f}"
        return Finding(name, "warning", measured, goal, why, fewer, values, "order too high")
    if own > (1 + TIE) * wanted.bits_per_byte:
        verdict = "warning"
    elif own > (1 + TIE) * best.bits_per_byte and spec_of(model).fitting != "counts":
        verdict, expected = "note", f"{best.name}: {best.bits_per_byte:.4f}"
    if verdict == "ok":
        return Finding(name, verdict, measured, f"at most the {expected}", why, (), values)
    sizes = {flag: getattr(model.config, flag, 0) for flag in ("width", "hidden")}
    tries = (longer, *(f"a wider model: --{flag} {2 * size}" for flag, size in sizes.items() if size))
    if own > baselines.find(1).bits_per_byte:  # more weights do not mend what has learnt nothing
        tries = ("what the other findings say",) if ill else (longer,)
    advice = tuple(filter(None, tries))
    return Finding(name, verdict, measured, f"at most the {expected}", why, advice, values, condition)
