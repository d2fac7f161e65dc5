"""The folder of a comparison while it is made: what is finished is kept, and found again.

comparison.json   the rows, what they have in common, and what each run came to
comparison.csv    the rows
report.html       the page; figures/ has its figures
NAME/             the run of a row; NAME-seed1/ that of another seed
charges/NAME.npy  the bits that every byte of the held-out text cost
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from octavo.config import from_json
from octavo.errors import UserError
from octavo.experiments.compare.byte_costs import t_interval
from octavo.experiments.compare.plan import CompareConfig, Place, check_new, machine, versions
from octavo.experiments.compare.rows import FORMAT, RESULT, Comparison, Row
from octavo.experiments.compare.verdict import ranked
from octavo.io.files import whole_file
from octavo.scoring.bits_per_byte import finite

SAME = ("train", "valid")


@dataclass(frozen=True)
class Measured:
    """What one run came to."""

    bits: float | None
    """Of all of the held-out text; None: infinite."""
    tokens: int
    impossible: int
    score_seconds: float
    seconds: float
    parameters: int
    flops: float | None
    write_rate: float | None
    memory: int | None
    bytes: int
    run: str
    charges: str
    policy: str
    low: float | None
    high: float | None
    interval: str
    held_out: float | None
    """Bits per byte of the pieces held out of training, by which a mixture's parts are chosen."""
    tokenizer: str
    """Its fingerprint."""


class Kept:
    """What is finished of a comparison, and the file that says so."""

    def __init__(self, place: Place, config: CompareConfig, corpus: Mapping[str, Any]) -> None:
        self.place, self.config, self.corpus = place, config, dict(corpus)
        self.asked = [rung.name for rung in config.rungs]
        self.rows: dict[str, Row] = {}
        self.runs: dict[str, Measured] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.proof: dict[str, Any] | None = None
        self.advice: tuple[str, ...] = ()

    @classmethod
    def open(cls, place: Place, config: CompareConfig, corpus: Mapping[str, Any]) -> Kept:
        """What the folder holds of just this comparison; another one's, or something else, is refused."""
        kept = cls(place, config, corpus)
        path = place.folder / RESULT
        if not path.is_file():
            check_new(place.folder)
            kept.save()
            return kept
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            if told["format"] != FORMAT:
                raise ValueError(f"format {told['format']!r}")
            kept._check(told)
            kept.runs = {name: from_json(Measured, one) for name, one in told["runs"].items()}
            kept.rows = {one["model"]: Row.of(one) for one in told["rows"] if one["error"] is None}
            kept.seconds.update(told["seconds"])
            kept.proof = told["proof"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error!r}; delete {place.folder}, or choose another --out") from error
        return kept

    def _check(self, told: Mapping[str, Any]) -> None:
        """What is there must be of the same text, made in the same way."""
        theirs, ours = told["corpus"], self.corpus
        remedy = f"choose another --out, or delete {self.place.folder}"
        if any(theirs[part]["sha256"] != ours[part]["sha256"] for part in SAME):
            raise UserError(
                f"{self.place.folder} is a comparison of another text, {theirs['name']}, or it has changed; {remedy}"
            )
        binding = self.config.binding()
        if other := [key for key, value in binding.items() if told["settings"].get(key) != value]:
            was = ", ".join(f"{key} {told['settings'].get(key)}, not {binding[key]}" for key in other)
            raise UserError(f"{self.place.folder} is a comparison with other settings: {was}; {remedy}")

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the seconds within to a stage."""
        began = perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += perf_counter() - began

    def comparison(self) -> Comparison:
        """What there is so far of what was asked for."""
        rows = [row for row in self.rows.values() if row.model in self.asked]
        return Comparison(
            ranked(rows), self.corpus, self.proof, self.config.told(), machine(self.config.device), versions(),
            dict(self.seconds), self.place.command(self.config), self.place.folder, self.advice,
        )  # fmt: skip

    def save(self) -> Comparison:
        """Write the file anew, whole; rows that were not asked for this time stay in it."""
        comparison = self.comparison()
        shown = {row.model for row in comparison}
        told = comparison.to_json()
        told["rows"] += [row.to_json() for row in self.rows.values() if row.model not in shown]
        told["runs"] = {name: asdict(one) for name, one in self.runs.items()}
        with whole_file(self.place.folder / RESULT) as file:
            file.write((json.dumps(told, indent=1, allow_nan=False) + "\n").encode())
        return comparison


def row_of(name: str, title: str, family: Any, several: list[Measured], size: int) -> Row:
    """The row of a model: of one run, or the mean of several seeds'."""
    first = several[0]
    bits = [float("inf") if one.bits is None else one.bits / size for one in several]
    mean = sum(bits) / len(bits)
    low, high, interval = first.low, first.high, first.interval
    if len(several) > 1:
        (low, high), interval = t_interval(bits) if finite(mean) else (None, None), f"over {len(several)} seeds"
    flops, writing = ([getattr(one, key) for one in several] for key in ("flops", "write_rate"))
    return Row(
        name, title, family, mean, low, high, interval if low is not None else "",
        sum(one.seconds for one in several) / len(several), first.parameters, _mean(flops),
        sum(one.tokens for one in several) / max(1e-9, sum(one.score_seconds for one in several)), _mean(writing),
        max((one.memory for one in several if one.memory is not None), default=None), first.bytes, first.run,
        first.charges, first.policy, sum(one.impossible for one in several),
    )  # fmt: skip


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
