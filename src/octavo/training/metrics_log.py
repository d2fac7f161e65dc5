"""What a user sees of training while it runs: a line on standard error, and metrics.jsonl for everything else."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import IO, TYPE_CHECKING, Any

from octavo.errors import UserError
from octavo.io.json_text import parse_json
from octavo.io.old_records import current_metrics
from octavo.io.progress import show_left

if TYPE_CHECKING:
    from octavo.training.checkpoint import Position
    from octavo.training.stage import Stage


class Log:
    """metrics.jsonl: one object a line, added as training goes."""

    def __init__(self, path: Path | None, length: int = 0) -> None:
        """Go on after the first `length` bytes: what a killed run wrote after its last checkpoint is written again."""
        self.rows: list[dict[str, Any]] = []
        self.file: IO[bytes] | None = None
        self.waiting = b""  # what a full disk has not taken yet
        if path is not None:
            self.file = open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: SIM115
            self.rows, end = rows_and_length(self.file.read(length))
            self.file.seek(end)
            self.file.truncate()

    def add(self, row: dict[str, Any]) -> None:
        """Add a row; what cannot be written now is tried again with the next one."""
        self.rows.append(row)
        if self.file is not None:
            self.waiting += json.dumps(row, allow_nan=False).encode() + b"\n"
            with suppress(OSError):
                while self.waiting:
                    self.waiting = self.waiting[self.file.write(self.waiting) :]

    def length(self) -> int:
        """Bytes written."""
        return self.file.tell() if self.file is not None else 0

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def worth_logging(step: int) -> bool:
    """Every step at first, then one in ten, one in a hundred: a few thousand rows whatever the length."""
    return step % (1 if step <= 2000 else 10 if step <= 20_000 else 100) == 0


def read_rows(data: bytes) -> list[dict[str, Any]]:
    """The objects of a metrics.jsonl; a line that is none ends it."""
    return rows_and_length(data)[0]


def rows_and_length(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The objects of a metrics.jsonl up to a line that is none, and the bytes that they take."""
    rows, end = [], 0
    for line in data.splitlines(keepends=True):
        try:
            row = parse_json(line)
        except ValueError:
            break
        if not isinstance(row, dict) or not line.endswith(b"\n"):
            break
        rows.append(current_metrics(row))
        end += len(line)
    return rows, end


class Screen:
    """One line that is written over on a terminal; elsewhere, a line for each check."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.last = 0.0

    def show(self, text: str, keep: bool = False) -> None:
        """Show the line; one to `keep` stays, and is all that is printed where there is no terminal."""
        if self.quiet or (not keep and (not self.live or time.monotonic() - self.last < 0.25)):
            return
        self.last = time.monotonic()
        if not self.live:
            print(text, file=sys.stderr, flush=True)
            return
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        print(f"\r\x1b[K{text[: width - 1]}", end="\n" if keep else "", file=sys.stderr, flush=True)


def progress_line(
    stage: Stage, at: Position, spent: float, losses: Collection[float], measured: Mapping[str, float], peak: float
) -> str:  # fmt: skip
    """How far training has come: the mean of the last losses, what was measured, the speed and the time left.

    `peak`: operations a second of all devices.
    """
    speed, loss = at.examples / max(at.seconds, 1e-9), fmean(losses) if losses else math.nan
    busy = f", {3 * stage.flops_per_example * speed / peak:.0%} of peak" if stage.flops_per_example else ""
    best = {f"best {stage.best}": at.best_value} if at.best_value is not None else {}
    numbers = {**stage.describe_loss(loss), **(measured or best)}
    shown = "".join(f"  {name.replace('_', ' ')} {value:.4f}" for name, value in numbers.items())
    mean = f"mean of the last {len(losses)} steps" if len(losses) > 1 else "of the last step"
    return (
        f"{f'{stage.name}  ' if stage.name else ''}{min(1.0, spent):4.0%}  step {at.step:,}  loss {loss:.4f} "
        f"({mean}){shown}  {speed:,.0f} {stage.unit}/s{busy}  {show_left(at.seconds / max(spent, 1e-9) * (1 - spent))}"
    )


class TensorBoard:
    """The same numbers as TensorBoard events, where the extra is installed."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("--tensorboard needs the extra: pip install 'octavo[tensorboard]'") from error
        self.writer = SummaryWriter(str(folder))

    def add(self, row: dict[str, Any]) -> None:
        for key, value in row.items():
            if key not in ("step", "seconds", "tokens") and isinstance(value, int | float):
                self.writer.add_scalar(key, value, row["step"])

    def close(self) -> None:
        self.writer.close()
