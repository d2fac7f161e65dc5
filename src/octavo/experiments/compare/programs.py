"""Compressors that are programs of their own: found on the path, run in a temporary folder within limits.

zpaq's level 5 chooses its memory by the size of the file, also where a block size is given with it, and would give the
training text alone less than both texts together. So it gets in full the method that level 5 selects for a text, in its
manual's third form of -method, where the block size is the memory of every table: streaming, blocks of 2^n MiB that
hold both texts, no preprocessing; then two words, the column, orders 0 to 6, the longest match and sparse contexts,
mixed and refined. paq8px's memory depends on its level alone.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.datasets.bounded_process import OUTPUT, LimitError, run_bounded
from octavo.errors import UserError

TEXT = "text"  # the file that a program reads; it has this name for every size, because archives hold names
MEMORY_BYTES = 1 << 32
START_SECONDS = 60.0  # beside what each byte may take
MAX_REASON = 200  # characters of what a program said
LEAST_ZPAQ_BLOCK = 4  # 16 MiB, which hold both texts unless a lot of text is scored
ZPAQ_MODEL = "0w2c0,1010,255i1c256ci1,1,1,1,1,1,2ac0,2,0,255i1c0,3,0,0,255i1c0,4,0,0,0,255i1mm16ts19t0"


@dataclass(frozen=True)
class Program:
    """A program that compresses TEXT of its working folder into one other file there."""

    words: Callable[[int], list[str]]  # of its command line, for texts of up to so many bytes
    slowest: float  # bytes a second; one that is slower is ended


def zpaq_words(most: int) -> list[str]:
    """One block for every text of up to so many bytes; a little of it is zpaq's own."""
    block = max(LEAST_ZPAQ_BLOCK, math.ceil(math.log2((most + 8192) / (1 << 20))))
    return ["a", "archive.zpaq", TEXT, "-method", f"s{block},{ZPAQ_MODEL}", "-threads", "1"]


PROGRAMS = {"zpaq": Program(zpaq_words, 10_000.0), "paq8px": Program(lambda most: ["-8", TEXT], 500.0)}


def is_installed(name: str) -> bool:
    """Whether the program is on the path."""
    return shutil.which(name) is not None


def archive_size(name: str, data: bytes, most: int) -> int:
    """Bytes of the archive that a program makes of a text, with memory for texts of up to `most` bytes."""
    program, path = PROGRAMS[name], shutil.which(name)
    if path is None:
        raise UserError(f"{name} needs the program {name}, which is no longer on the path; install it again")
    with tempfile.TemporaryDirectory(prefix=f"octavo-{name}-") as name_of_folder:
        folder = Path(name_of_folder)
        (folder / TEXT).write_bytes(data)
        command = ["program", str(folder), str(Path(path).absolute()), *program.words(most)]
        seconds = START_SECONDS + len(data) / program.slowest
        try:
            done = run_bounded(command, folder, 2 * len(data), seconds, memory=MEMORY_BYTES)
        except LimitError as error:
            raise UserError(f"{name} was ended: {error}; give less text, or leave it out of --models") from error
        archives = [one for one in folder.iterdir() if one.name not in (TEXT, OUTPUT)]
        size = archives[0].stat().st_size if len(archives) == 1 and archives[0].is_file() else 0
    if done.code or not size:
        how = f"ended with exit code {done.code}" if done.code else "wrote no archive"
        raise UserError(f"{name} {how}: {last_line(done.output)}; leave it out of --models, or install another version")
    return size


def last_line(output: str) -> str:
    """The end of what a program said, in which it mostly says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return "".join(one if one.isprintable() else "?" for one in lines[-1][:MAX_REASON]) if lines else "it said nothing"
