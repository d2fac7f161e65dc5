"""What every folder of counts has, of n-grams or of co-occurrences: a record of a format, a tokenizer, sorted rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from octavo.config import from_json
from octavo.errors import UserError
from octavo.io.files import write_text
from octavo.io.json_text import read_json_file
from octavo.text.token_store import fingerprint
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.registry import load_tokenizer, save_tokenizer

TOKENIZER, FORMAT = "tokenizer.json", 1


class CountsRecord(Protocol):
    """What counts are of."""

    @property
    def vocab(self) -> int: ...


Record = TypeVar("Record", bound=CountsRecord)


class Counted(Protocol):
    """A folder of counts that was read."""

    @property
    def path(self) -> Path: ...
    @property
    def record(self) -> Any: ...
    @property
    def tokenizer(self) -> Tokenizer: ...


def read_counts_record(path: Path, name: str, kind: type[Record], rows: str, what: str) -> tuple[Record, Tokenizer]:
    """The folder's record and tokenizer; what is foreign, of another format or lacks its rows is refused.

    `name` is the record's file, `rows` the folder of the rows; `what` says what was counted, and by which verb.
    """
    if not (path / name).is_file():
        raise UserError(f"{path} is no folder of {what.format('TEXT --out FOLDER')} makes one")
    values = read_json_file(path / name, "count again")
    if not isinstance(values, dict) or values.get("format") != FORMAT or not isinstance(values.get("counts"), dict):
        known = values.get("format") if isinstance(values, dict) else None
        raise UserError(f"{path / name} is of format {known!r}, this octavo reads {FORMAT}; count again")
    record, tokenizer = from_json(kind, values["counts"]), load_tokenizer(path / TOKENIZER)
    check_files(path, tokenizer.vocab == record.vocab and any((path / rows).glob("*.parquet")))
    return record, tokenizer


def check_files(path: Path, is_sound: bool) -> None:
    """Refuse a folder whose files contradict each other."""
    if not is_sound:
        raise UserError(f"{path} is damaged: its files do not fit each other; count again")


def write_counts_record(folder: Path, name: str, record: Any, tokenizer: Tokenizer) -> None:
    """Write the record and the tokenizer."""
    save_tokenizer(tokenizer, folder / TOKENIZER)
    write_text(folder / name, json.dumps({"format": FORMAT, "counts": asdict(record)}, indent=1) + "\n")


def check_addable(folders: Sequence[Counted], names: Sequence[str]) -> None:
    """Refuse to add counts of different things: their records must agree in `names`, and their tokenizers."""
    first = folders[0]
    for other in folders[1:]:
        for name in names:
            ours, theirs = getattr(first.record, name), getattr(other.record, name)
            if ours != theirs:
                raise UserError(f"counts to add must have one {name}: {first.path} has {ours}, {other.path} {theirs}")
        if fingerprint(other.tokenizer) != fingerprint(first.tokenizer):
            raise UserError(
                f"counts to add must be of one tokenizer: {first.path} and {other.path} have two; count the second "
                f"text with --tokenizer {first.path / TOKENIZER}"
            )
