"""What came of scoring models on two domains: a pair of readings for each model, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from octavo.config import plain_json
from octavo.experiments.domains.scoring import MARK, Reading, gap
from octavo.experiments.table import Column, marked_name, page_table, show_bits
from octavo.pages.sections import notebook_view


@dataclass(frozen=True)
class ModelResult:
    """A model's readings of both excerpts; a family is a model with and without preprocessing."""

    name: str
    title: str
    family: str
    home: Reading
    away: Reading
    overlap: float = 0.0  # the share of an excerpt that stands in the training text
    run: str = ""  # the path of its folder

    @property
    def steps(self) -> str:
        return ", ".join(self.home.steps)

    @property
    def label(self) -> str:
        return self.home.label

    @property
    def marked_name(self) -> str:
        return marked_name(self.name, self.home.adaptive) + (" *" if self.label else "")

    @property
    def gap(self) -> float:
        return self.away.bits_per_byte - self.home.bits_per_byte


def perplexity(value: float) -> str:
    """Four digits, more where the number is larger."""
    return f"{value:#.4g}".rstrip(".") if value < 1e4 else f"{value:,.0f}" if math.isfinite(value) else "infinite"


def show_gap(bits: float, form: str = "+.3f") -> str:
    """Bits per byte with their sign, infinity as a word."""
    return format(bits, form) if math.isfinite(bits) else "infinite"


@dataclass(frozen=True)
class DomainsRow:
    """A model and a text."""

    model: Annotated[str, Column("model", lambda row: row.marked_model, align="left", of_row=True)]
    title: str
    text: Annotated[str, Column("text", align="left")]
    tokens: Annotated[int | None, Column("tokens", lambda value: f"{value:,}")] = None
    token_perplexity: Annotated[float | None, Column("ppl/token", perplexity, "perplexity of a token")] = None
    character_perplexity: Annotated[float | None, Column("ppl/char", perplexity, "perplexity of a character")] = None
    bits_per_byte: Annotated[float | None, Column("bits/byte", lambda row: row.shown_bits, of_row=True)] = None
    unknown_rate: Annotated[
        float | None, Column("unknown", lambda value: f"{value:.1%}", "share of words that had to be spelt")
    ] = None
    comparable: bool = True
    error: str | None = None
    adaptive: bool = False  # whether the model went on learning while it was scored

    @property
    def marked_model(self) -> str:
        return marked_name(self.model, self.adaptive)

    @property
    def shown_bits(self) -> str:
        if self.bits_per_byte is None:
            return "failed "
        return show_bits(self.bits_per_byte) + (" " if self.comparable else "*")


@dataclass(frozen=True)
class Domains:
    """Everything that was measured."""

    models: tuple[ModelResult, ...]
    excerpts: tuple[tuple[str, bytes], ...]  # of both texts: the name and the bytes as they were
    folder: Path
    command: str = ""
    failed: dict[str, str] = field(default_factory=dict)  # models without a result, and why

    @property
    def rows(self) -> list[DomainsRow]:
        """The table: two rows for each model, and one for each that failed."""
        return rows_of(self.models, self.failed)

    def to_json(self) -> dict[str, Any]:
        texts = [{"name": name, "bytes": len(data), "unk_marks": data.count(MARK)} for name, data in self.excerpts]
        models = [
            {"run": one.run, "family": one.family, "title": one.title, "overlap": one.overlap,
             "readings": [one.home.to_json(), one.away.to_json()], "gap": one.gap,
             "gap_by_group": gap(one.home, one.away)}
            for one in self.models
        ]  # fmt: skip
        return {"texts": texts, "models": plain_json(models), "failed": self.failed}

    def __repr__(self) -> str:
        texts, models = " and ".join(name for name, _ in self.excerpts), len(self.models)
        failed = f"; failed: {', '.join(self.failed)}" if self.failed else ""
        return f"<octavo domains {texts}: {models} model{'s' * (models != 1)}{failed}>"

    def _repr_html_(self) -> str:
        return notebook_view(page_table(self.rows))


def rows_of(models: Sequence[ModelResult], failed: dict[str, str]) -> list[DomainsRow]:
    """A row for each model and text."""
    return [
        DomainsRow(one.name, one.title, reading.text, reading.tokens, reading.token_perplexity,
                   reading.character_perplexity, reading.bits_per_byte, reading.unknown_rate, not one.label,
                   adaptive=reading.adaptive)
        for one in models for reading in (one.home, one.away)
    ] + [DomainsRow(name, "", "", error=error) for name, error in failed.items()]  # fmt: skip
