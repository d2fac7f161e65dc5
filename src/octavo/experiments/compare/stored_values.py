"""What the cells of a comparison have stored, checked when it is read back: a damaged one is measured again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from octavo.config import from_json
from octavo.errors import UserError
from octavo.experiments.cell import Outcome
from octavo.experiments.compare.rows import CompareRow


@dataclass(frozen=True)
class StoredRun:
    """What is stored of a model that was measured."""

    row: dict  # type: ignore[type-arg]
    bits: float | None
    tokens: int
    stages: dict  # type: ignore[type-arg]
    block_bits: tuple[float | None, ...]
    validation_bits_per_byte: float | None
    tokenizer: str
    summary: str
    files: tuple[str, ...] = ()
    hashes: dict = field(default_factory=dict)  # type: ignore[type-arg]


@dataclass(frozen=True)
class StoredProof:
    """What is stored of a proof."""

    name: str
    claimed_bytes: float
    archive_bytes: int
    archive_bits_per_byte: float
    restored: bool
    difference: float
    bytes: int
    held_out_bytes: int
    seconds: float
    allowed_seconds: float
    proved: bool = True


def check_stored(outcome: Outcome) -> None:
    """Refuse an outcome that is not one of its work."""
    value: dict[str, Any] = outcome.value
    if outcome.cell.work == "proof":
        from_json(StoredProof, value["proof"])
        return
    CompareRow.of(value["row"])
    if outcome.cell.work != "compressor":
        stored = from_json(StoredRun, value)
        if not all(isinstance(seconds, int | float) for seconds in stored.stages.values()):
            raise UserError("the seconds of the stages must be numbers")
    elif not isinstance(value.get("block_bits", []), list):
        raise UserError("block_bits must be a list")
