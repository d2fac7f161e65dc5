"""The table of a comparison: a row for each model, and the comparison that holds them."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from octavo.config import from_json
from octavo.errors import UserError
from octavo.scoring.bits_per_byte import finite

RESULT = "comparison.json"
CSV = "comparison.csv"
FORMAT = 1
Family = Literal["counts", "recurrent", "attention", "mixture", "pretrained", "compressor"]


@dataclass(frozen=True)
class Row:
    """One model; None where something is not known or does not apply."""

    model: str
    title: str
    family: Family
    bits_per_byte: float | None = None
    """Of the held-out text; infinite where the model holds a token of it impossible, None where the model failed."""
    low: float | None = None
    high: float | None = None
    interval: str = ""
    """What the 95 % interval from low to high is over."""
    seconds: float | None = None
    """Of training."""
    parameters: int | None = None
    flops: float | None = None
    """Of training: two for each product of two numbers that were multiplied and added, forwards and backwards."""
    score_rate: float | None = None
    """Tokens a second, reading."""
    write_rate: float | None = None
    """Tokens a second, writing."""
    memory: int | None = None
    """Bytes at the peak of training, beyond what the process held before."""
    bytes: int | None = None
    """Of the model on disk."""
    run: str | None = None
    """Its folder, seen from that of the comparison; with several seeds, that of the first."""
    charges: str | None = None
    """A .npy file, seen from the folder of the comparison: the bits that each byte of the held-out text cost."""
    policy: str = ""
    impossible: int = 0
    dominated: bool = False
    best: bool = False
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what is infinite becomes null."""
        return {key: finite(value) if isinstance(value, float) else value for key, value in asdict(self).items()}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Row:
        """The row that `to_json` told of."""
        infinite = told.get("impossible", 0) > 0 and told.get("error") is None
        return from_json(cls, told) if not infinite else cls(**{**told, "bits_per_byte": math.inf})

    @property
    def trained(self) -> bool:
        """Whether it was made here: not a compressor, and not brought along."""
        return self.family not in ("compressor", "pretrained")


COLUMNS = tuple(one.name for one in fields(Row))


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison: rows from best to worst, and what makes them comparable."""

    rows: tuple[Row, ...]
    corpus: dict[str, Any]
    """name, source (a list), train and valid with bytes, sha256: as a run's record has it."""
    proof: dict[str, Any] | None = None
    """Of the best row: model, claimed_bytes, archive_bytes, archive_bits_per_byte, restored, difference."""
    settings: dict[str, Any] = field(default_factory=dict)
    """budget (in words), models, seeds, seed, device, tokenizer."""
    machine: dict[str, Any] = field(default_factory=dict)
    """system, processor, cores, memory, device."""
    versions: dict[str, str] = field(default_factory=dict)
    """octavo, python, torch, numpy."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What the stages took: training, scoring, writing, compressors, proof, page."""
    command: str = ""
    """Makes it all again."""
    folder: Path | None = None
    advice: tuple[str, ...] = ()
    """The recommendation, sentence by sentence."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, model: str) -> Row:
        for row in self.rows:
            if row.model == model:
                return row
        raise UserError(f"there is no row {model!r}; rows are {', '.join(row.model for row in self.rows)}")

    def __contains__(self, model: object) -> bool:
        return any(row.model == model for row in self.rows)

    @property
    def best(self) -> Row | None:
        """The row with the fewest bits per byte, compressors aside; None where every model failed."""
        return next((row for row in self.rows if row.best), None)

    def column(self, name: str) -> list[Any]:
        """One value of every row, in their order."""
        if name not in COLUMNS:
            raise UserError(f"there is no column {name!r}; columns are {', '.join(COLUMNS)}")
        return [getattr(row, name) for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        more = {"rows": [row.to_json() for row in self.rows], "advice": list(self.advice), "format": FORMAT}
        return told | more | {"folder": str(self.folder) if self.folder else None}

    @classmethod
    def of(cls, told: Mapping[str, Any], folder: Path | None = None) -> Comparison:
        """The comparison that `to_json` told of."""
        known = {one.name: told[one.name] for one in fields(cls) if one.name in told}
        rows = tuple(Row.of(row) for row in told["rows"])
        return cls(**{**known, "rows": rows, "advice": tuple(told["advice"]), "folder": folder})

    def to_csv(self) -> str:
        """A line for each row, below a line of names."""
        lines = io.StringIO()
        writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in self.rows)
        return lines.getvalue()

    def to_pandas(self) -> Any:
        """A data frame, where pandas is installed."""
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError as error:
            raise UserError("to_pandas needs pandas, which is not installed; try pip install pandas") from error
        return pandas.DataFrame([asdict(row) for row in self.rows], columns=list(COLUMNS))

    def _repr_html_(self) -> str:
        from octavo.experiments.compare.page import comparison_html  # which needs these rows

        return comparison_html(self)


def read_comparison(folder: str | Path) -> Comparison:
    """The comparison that a folder holds."""
    path = Path(folder) / RESULT
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["format"] != FORMAT:
            raise ValueError(f"it is of format {told['format']!r}, this octavo reads {FORMAT}")
        return Comparison.of(told, Path(folder))
    except (OSError, ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(f"{path} is no comparison, or damaged: {error}; run octavo compare again") from error
