"""From the outcomes of a comparison's cells to its rows: means over seeds, sums over parts and stages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, harmonic_mean
from typing import Any

from octavo.experiments.cell import Outcome
from octavo.experiments.compare.config import Candidate
from octavo.experiments.compare.intervals import t_interval
from octavo.experiments.compare.rows import COMPRESSOR, PRETRAINED, CompareRow
from octavo.scoring.proof import failure_in_words, is_proved


def key_of(name: str, seed: int) -> str:
    """The key of a candidate's cell of a seed."""
    return name if seed == 0 else f"{name}-seed{seed}"


def row_of(candidate: Candidate, outcomes: Mapping[str, Outcome], seeds: int) -> CompareRow | None:
    """The row of a candidate whose cells are all there."""
    keys = [key_of(candidate.name, seed) for seed in range(seeds)]
    found = [outcomes[key] for key in keys if key in outcomes]
    complete = candidate.family in (COMPRESSOR, PRETRAINED) or not candidate.is_random or len(found) == len(keys)
    if not found or not complete:
        return None
    error = next((one.error for one in found if one.error is not None), None)
    if error is not None:
        return CompareRow(candidate.name, candidate.title, candidate.family, error=error)
    rows = [replace(CompareRow.of(one.value["row"]), flops=total_flops(one, outcomes)) for one in found]
    row = mean_row(rows) if len(rows) > 1 else rows[0]
    proof = outcomes.get(f"proof-{candidate.name}")
    if proof is None or proof.error is not None or is_proved(proof.value["proof"]):
        return row
    return replace(row, bits_per_byte=None, low=None, high=None, error=failure_in_words(proof.value["proof"]))


def block_bits_of(names: Sequence[str], outcomes: Mapping[str, Outcome], seeds: int) -> dict[str, list[list[float]]]:
    """What each model paid for the blocks of the held-out text, seed by seed."""
    bits = {}
    for name in names:
        keys = [key for seed in range(seeds) if (key := key_of(name, seed)) in outcomes]
        found = [outcomes[key].value.get("block_bits", ()) for key in keys]
        if found and all(found):
            bits[name] = [[math.inf if part is None else part for part in bits_K] for bits_K in found]
    return bits


def mean_row(rows: Sequence[CompareRow]) -> CompareRow:
    """The row of a model that was trained with several seeds."""

    def known(key: str) -> list[Any]:
        return [value for row in rows if (value := getattr(row, key)) is not None]

    bits = [row.bits_per_byte or 0.0 for row in rows]
    mean = fmean(bits)
    low, high = t_interval(bits) if math.isfinite(mean) else (None, None)
    means: dict[str, Any] = {
        key: fmean(values) if (values := known(key)) else None for key in ("seconds", "flops", "generation_rate")
    }
    rates = [rate for rate in known("score_rate") if rate]
    return replace(
        rows[0], bits_per_byte=mean, low=low, high=high, interval=f"over {len(rows)} seeds" if low is not None else "",
        **means, score_rate=harmonic_mean(rates) if rates else None, memory=max(known("memory"), default=None),
        impossible=sum(row.impossible for row in rows),
    )  # fmt: skip


def total_flops(outcome: Outcome, outcomes: Mapping[str, Outcome]) -> float | None:
    """Of training a candidate; of a mixture, with its parts'."""
    values = [outcome.value, *(outcomes[key].value for key in outcome.cell.settings.get("parts", ()))]
    flops = [value["row"]["flops"] for value in values]
    return None if None in flops else sum(flops)


def stage_seconds(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """What the stages of all cells took together."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for outcome in outcomes.values():
        whole = {"compressor": "compressors", "proof": "proof"}.get(outcome.cell.work)
        stages = {whole: outcome.seconds} if whole else outcome.value.get("stages", {})
        for stage, value in stages.items():
            seconds[stage] += value
    return dict(seconds)
