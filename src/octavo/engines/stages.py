"""Stages of a long job: folders that appear under their names when they are whole, and a record of what they are of.

A killed job leaves its finished stages; the same job, given again, goes on from them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io.files import whole_folder, write_text
from octavo.io.json_text import read_json_file
from octavo.io.partial_files import sweep_all

RECORD, FORMAT = "stages.json", 2


def stages_folder(out: Path | None) -> Path:
    """Where the stages of a job lie until its result stands at `out`."""
    if out is None:
        return Path(tempfile.mkdtemp(prefix="octavo-counting-"))
    return out.absolute().with_name(f".{out.name}.stages")


class Stages:
    """A job's folder. `job` says what is computed from what: stages of another job are deleted."""

    def __init__(self, folder: Path, job: Mapping[str, Any]) -> None:
        self.folder, self.job = folder, json.loads(json.dumps(dict(job)))
        self.seconds: dict[str, float] = {}
        self.resumed: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        sweep_all(folder)
        if not self._take_over():
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self._write()

    def _take_over(self) -> bool:
        """Whether the folder's finished stages are of this job."""
        path = self.folder / RECORD
        if not path.is_file():
            if any(self.folder.iterdir()):
                raise UserError(f"{self.folder} holds no stages of octavo's but something else; choose another folder")
            return False
        try:
            record = read_json_file(path, "delete the folder and give the command again")
            seconds = {str(name): float(value) for name, value in record["stages"].items()}
            known = record["format"] == FORMAT and record["job"] == self.job
        except (UserError, LookupError, TypeError, ValueError, AttributeError):
            return False  # what is damaged is computed again
        if not known:
            return False
        self.seconds = {name: value for name, value in seconds.items() if (self.folder / name).is_dir()}
        self.resumed = list(self.seconds)
        return True

    def run(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder of a stage; where it is not finished yet, `make` fills a new one, which need not exist before."""
        path = self.folder / name
        if name in self.seconds:
            return path
        began = time.perf_counter()
        shutil.rmtree(path, ignore_errors=True)
        with whole_folder(path) as work:
            make(work / "rows")
        self.seconds[name] = time.perf_counter() - began
        self._write()
        return path

    def rows(self, name: str) -> Path:
        """The folder of a finished stage's Parquet files."""
        return self.folder / name / "rows"

    def remove(self, name: str) -> None:
        """Delete the rows of a stage that no later one needs; it stays finished."""
        shutil.rmtree(self.rows(name), ignore_errors=True)

    def _write(self) -> None:
        record = {"format": FORMAT, "job": self.job, "stages": self.seconds}
        write_text(self.folder / RECORD, json.dumps(record, indent=1) + "\n")

    def delete(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
