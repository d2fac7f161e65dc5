"""The table of a comparison: a row for each model, and the comparison that holds them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from octavo.config import from_json, plain_json
from octavo.errors import UserError
from octavo.experiments.runner import check_recorded_numbers
from octavo.experiments.table import ADAPTIVE_MARK, Column, keys_of, show_amount, show_bits, show_seconds, to_csv
from octavo.io.files import size, thousands
from octavo.io.json_text import read_json_file
from octavo.io.run_folder import COMPARISON, NUMBER, PART_OF_TEXT, wrong_kind

RESULT = COMPARISON
CSV = "comparison.csv"
FORMAT = 2
COMPRESSOR, PRETRAINED, MIXTURE = "compressor", "pretrained", "mixture"  # families beside those of the models
NOT_PROVED = "not proved"  # begins the error of a row whose result its archive does not confirm
NOT_NEURAL = ("counts", MIXTURE, PRETRAINED, COMPRESSOR)


@dataclass(frozen=True)
class CompareRow:
    """One model; None where something is not known or does not apply."""

    model: Annotated[str, Column("model", align="left")]
    title: Annotated[str, Column("", align="left", rank=9, outputs=("terminal",))]
    family: str
    bits_per_byte: Annotated[
        float | None, Column("bits/byte", lambda row: row.shown_bits, "bits per byte of the held-out text", of_row=True)
    ] = None  # infinite where a token of the held-out text has probability zero, None where the model failed
    best: Annotated[
        bool, Column("", lambda row: row.shown_marks, "", "left", of_row=True, outputs=("terminal",))
    ] = False  # fmt: skip
    adaptive: bool = False  # whether it goes on learning from the held-out text while it scores it
    dominated: bool = False
    behind: Annotated[
        float | None, Column("behind", lambda row: row.shown_behind, "bits per byte more than the row above, on the "
                             "same blocks; a tie where the 95 % interval holds zero", rank=3, of_row=True)
    ] = None  # fmt: skip
    behind_low: float | None = None
    behind_high: float | None = None
    tie: bool = False  # with the row above: the text does not tell them apart
    low: Annotated[
        float | None, Column("95 %", lambda row: row.shown_interval, "95 % confidence interval", rank=4, of_row=True)
    ] = None
    high: float | None = None
    interval: str = ""  # what the 95 % interval from low to high is over
    seconds: Annotated[float | None, Column("train s", show_seconds, "seconds of training", rank=1)] = None
    parameters: Annotated[int | None, Column("params", thousands, "weights, or n-grams", rank=5)] = None
    flops: Annotated[
        float | None, Column("FLOPs", show_amount, "floating-point operations of training", rank=7)
    ] = None  # fmt: skip
    score_rate: Annotated[float | None, Column("read/s", show_amount, "tokens scored a second", rank=3)] = None
    generation_rate: Annotated[float | None, Column("write/s", show_amount, "tokens generated a second", rank=6)] = None
    memory: Annotated[int | None, Column("memory", size, "of training, at its peak", rank=8)] = None
    """Bytes beyond what the process held before."""
    bytes: Annotated[int | None, Column("size", size, "the model's files on disk", rank=2)] = None
    run: str | None = None  # its folder, seen from that of the comparison; with several seeds, that of the first
    byte_costs: str | None = None
    """A .npy file, seen from the folder of the comparison: the cost in bits of each byte of the held-out text."""
    policy: str = ""  # how much context each token was scored with
    context: int | None = None  # tokens before it that the probability of a token can depend on; None: all of them
    impossible: int = 0  # tokens with probability zero
    tokenizer: Annotated[str, Column("tokens", help="the tokenizer", rank=4, align="left", if_varies=True)] = ""
    variant_of: str = ""  # the row whose model it is with another tokenizer
    chosen: str = ""  # which larger size was chosen for the device and the budget, and why; empty: the usual one
    error: str | None = None

    @property
    def trained(self) -> bool:
        """Whether it was trained here: not a compressor, and not pretrained."""
        return self.family not in (COMPRESSOR, PRETRAINED)

    @property
    def is_neural(self) -> bool:
        """Whether it is a network that was trained here; packages may add families of their own."""
        return self.family not in NOT_NEURAL

    @property
    def is_finite(self) -> bool:
        """Whether it has a result, and one that is finite."""
        return self.error is None and self.bits_per_byte is not None and math.isfinite(self.bits_per_byte)

    @property
    def shown_bits(self) -> str:
        if self.error is not None:
            return "not proved" if self.error.startswith(NOT_PROVED) else "failed"
        return "failed" if self.bits_per_byte is None else show_bits(self.bits_per_byte)

    @property
    def shown_marks(self) -> str:
        """The best, the dominated and the adaptive rows of a table on a terminal."""
        return ("*" if self.best else "-" if self.dominated else "") + (ADAPTIVE_MARK if self.adaptive else "")

    @property
    def shown_behind(self) -> str:
        return "" if self.behind is None else "tie" if self.tie else f"{self.behind:+.4f}"

    @property
    def shown_interval(self) -> str:
        return f"{self.low:.3f}–{self.high:.3f}" if self.low is not None and self.high is not None else ""

    @property
    def style(self) -> str:
        """On a terminal."""
        return "bold" if self.best else "dim" if self.dominated or self.error else ""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> CompareRow:
        """The row of a JSON object; what is not of its kind, or not possible, is refused."""
        row = from_json(cls, record)
        check_recorded_numbers(record)
        if (row.bits_per_byte or 0.0) < 0 or row.impossible < 0:
            raise UserError(f"bits per byte must not be negative: {row.model} has {row.bits_per_byte}")
        infinite = row.impossible > 0 and row.error is None
        if row.bits_per_byte is None and row.error is None and not infinite:
            raise UserError(f"a row without bits per byte must say why: {row.model} does not")
        return replace(row, bits_per_byte=math.inf) if infinite else row


KINDS: dict[str, Any] = {  # what comparison.json may hold beside its rows
    "corpus": {"name": str, **dict.fromkeys(("train", "valid", "scored"), PART_OF_TEXT)},
    "proof": {"model": str, "claimed_bytes": NUMBER, "archive_bytes": int, "difference": NUMBER, "bytes": int,
              "held_out_bytes": int, "seconds": NUMBER, "allowed_seconds": NUMBER},
    "settings": {"models": list, "seeds": int, "seed": int, "device": str, "budget": str},
    "machine": {}, "versions": {},
    "seconds": dict.fromkeys(("training", "scoring", "generation", "compressors", "sizes", "proof", "page"), NUMBER),
    "command": str, "advice": list,
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison: rows from best to worst, and what makes them comparable."""

    rows: tuple[CompareRow, ...]
    corpus: dict[str, Any]  # name, source (a list), train and valid with bytes, sha256: as a run's record has it
    proof: dict[str, Any] | None = None
    """Of the best row: model, claimed_bytes, archive_bytes, archive_bits_per_byte, restored, difference; bytes of the
    held_out_bytes were proved in so many seconds, of the allowed_seconds; or error. None before it is finished."""
    settings: dict[str, Any] = field(default_factory=dict)  # budget (in words), models, seeds, seed, device, tokenizer
    machine: dict[str, Any] = field(default_factory=dict)  # system, processor, cores, memory, device
    versions: dict[str, str] = field(default_factory=dict)  # octavo, python, torch, numpy
    seconds: dict[str, float] = field(default_factory=dict)
    """What the stages took: training, scoring, generation, compressors, proof, page."""
    command: str = ""  # reproduces it
    folder: Path | None = None
    advice: tuple[str, ...] = ()  # the recommendation, sentence by sentence

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[CompareRow]:
        return iter(self.rows)

    def __getitem__(self, model: str) -> CompareRow:
        for row in self.rows:
            if row.model == model:
                return row
        raise UserError(f"there is no row {model!r}; rows are {', '.join(row.model for row in self.rows)}")

    def __contains__(self, model: object) -> bool:
        return any(row.model == model for row in self.rows)

    @property
    def best(self) -> CompareRow | None:
        """The row with the fewest bits per byte, compressors aside; None where every model failed."""
        return next((row for row in self.rows if row.best), None)

    @property
    def best_words(self) -> str:
        """What the best row is: where an adaptive row of any kind needs fewer bits, only the best fixed model."""
        best = self.best
        if best is None or best.adaptive:
            return "best model"
        bits = best.bits_per_byte or 0.0
        beaten = any(row.adaptive and row.is_finite and (row.bits_per_byte or 0.0) < bits for row in self.rows)
        return "best fixed model" if beaten else "best model"

    @property
    def is_part_measured(self) -> bool:
        """Whether the held-out text was too long to be measured as a whole."""
        scored, whole = (self.corpus.get(part, {}).get("bytes", 0) for part in ("scored", "valid"))
        return bool(scored < whole) if scored else False

    @property
    def measured_part(self) -> str:
        """The part of the held-out text that every row was measured on."""
        whole = self.corpus.get("valid", {}).get("bytes", 0)
        return f"the first {self.corpus['scored']['bytes']:,} of the {whole:,} bytes" if self.is_part_measured else (
            f"the {whole:,} bytes"
        )  # fmt: skip

    @property
    def failed(self) -> Sequence[CompareRow]:
        """The rows without a result."""
        return [row for row in self.rows if row.error is not None]

    @property
    def is_complete(self) -> bool:
        """Whether no row failed, and the proof, where there is one, could be done."""
        return not self.failed and (self.proof is None or self.proof.get("error") is None)

    def file(self, name: str | None) -> Path | None:
        """The file of a name that is seen from the folder, where it is there."""
        path = self.folder / name if self.folder is not None and name else None
        return path if path is not None and path.is_file() else None

    def column(self, name: str) -> list[Any]:
        """One value of every row, in their order."""
        if name not in keys_of(CompareRow):
            raise UserError(f"there is no column {name!r}; columns are {', '.join(keys_of(CompareRow))}")
        return [getattr(row, name) for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**plain_json(self), "format": FORMAT}

    @classmethod
    def of(cls, record: Mapping[str, Any], folder: Path | None = None) -> Comparison:
        """The comparison of a JSON object; what is not of its kind is refused."""
        known = {one.name: record[one.name] for one in fields(cls) if one.name in record}
        rows = tuple(CompareRow.of(row) for row in record["rows"])
        check_recorded_numbers(known)
        if wrong := wrong_kind({key: value for key, value in known.items() if value is not None}, KINDS):
            raise UserError(wrong)
        return cls(**{**known, "rows": rows, "advice": tuple(record["advice"]), "folder": folder})

    def to_csv(self) -> str:
        """A line for each row, below a line of names."""
        return to_csv(CompareRow, self.rows)

    def to_pandas(self) -> Any:
        """A data frame, where pandas is installed."""
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError as error:
            raise UserError("to_pandas needs pandas, which is not installed; pip install 'octavo[pandas]'") from error
        return pandas.DataFrame([asdict(row) for row in self.rows], columns=list(keys_of(CompareRow)))

    def __repr__(self) -> str:
        words = "best" if self.best_words == "best model" else f"the {self.best_words}"
        best = f"{self.best.model} is {words}, {self.best.shown_bits} bits per byte" if self.best else (
            "none has a result"
        )  # fmt: skip
        failed = f"; without a result: {', '.join(row.model for row in self.failed)}" if self.failed else ""
        return f"<octavo comparison of {len(self)} models on {self.corpus.get('name', 'a text')}: {best}{failed}>"

    def _repr_html_(self) -> str:
        from octavo.experiments.compare.page import comparison_html  # which needs these rows

        return comparison_html(self)


def read_comparison(folder: str | Path) -> Comparison:
    """The comparison that a folder holds."""
    path = Path(folder) / RESULT
    try:
        record = read_json_file(path, "run it again")
        if record["format"] != FORMAT:
            raise ValueError(f"it is of format {record['format']!r}, this octavo reads {FORMAT}")
        return Comparison.of(record, Path(folder))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, UserError) as error:
        raise UserError(f"{path} is no comparison, or damaged: {error}; run octavo compare again") from error
