"""What a comparison is asked to do: which text, which models, for how long."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from octavo import __version__
from octavo.errors import UserError
from octavo.experiments.compare.candidates import Rung, chosen
from octavo.experiments.domains.scoring import first_bytes
from octavo.io.files import whole_file
from octavo.tasks.count_training import TextConfig, pick_device
from octavo.text import Corpus, Split
from octavo.text.reading import STDIN
from octavo.training.schedule import Budget

EACH, QUICK = "60s", "26s"  # of training, for a neural model
SHORT = 60.0  # seconds: in less, a network gets further with fewer checks, a recurrent one with smaller steps
CHECKS = 4  # instead of the usual ten, each of which takes most of a second
SMALL_BATCH = 32  # rows; 550,000 tokens of Shakespeare make a GRU of 2.37 bits per byte, 750,000 in the usual 128 2.51
NARROW = 192  # of a GRU: 2.16 bits per byte of the pieces held out after 20 s, 2.20 with the usual 256 after 25 s
LEAST_SCORED = 1 << 17  # bytes of held-out text
SCORED_A_SECOND = 1 << 11  # and how many more for each second of training beyond
OWN_TEXT = "text.txt"
LONGEST_NAME = 200  # characters; a longer string is a text, not the name of one

Text = str | bytes | Path | Sequence[str | Path]


@dataclass(frozen=True)
class CompareConfig:
    """What to compare, and how long each model may take."""

    models: tuple[str, ...] = ()
    """Names of the ladder (gru), its families (recurrent) or patterns (kn*); without any, all of it."""
    budget: str = ""
    """How long each neural model is trained: 60s, 5min, 2000steps or 2Mtokens; by default 60s."""
    total: str = ""
    """The same for all neural models together, in equal shares."""
    quick: bool = False
    """A budget that is done in a few minutes."""
    seeds: int = 1
    """Train what begins with random weights so many times, and show the mean."""
    pretrained: tuple[str, ...] = ()
    """Models that are only measured: run folders, GGUF files, Hugging Face folders, or smollm2."""
    tokenizer: str = "byte"
    """byte, char, word or bpe, or a tokenizer.json."""
    valid: tuple[str, ...] = ()
    """Text to measure on; without it the last tenth of the text."""
    field: str = "text"
    """JSON lines, parquet: where the text is."""
    bytes: int = 0
    """Measure on at most so many bytes; 0: so many that measuring takes little beside the training."""
    seed: int = 0
    device: str = "auto"
    """auto, cpu or cuda."""

    def __post_init__(self) -> None:
        given = [f"--{name}" for name in ("budget", "total", "quick") if getattr(self, name)]
        if len(given) > 1:
            raise UserError(f"how long to train can be said in one way: {' and '.join(given)} were given; choose one")
        for budget in filter(None, (self.budget, self.total)):
            Budget.parse(budget)
        if self.seeds < 1 or self.bytes < 0:
            raise UserError(f"seeds must be at least 1 and bytes not negative: {self.seeds}, {self.bytes}; try 3 and 0")
        chosen(self.models)
        pick_device(self.device)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """What is compared, in the ladder's order."""
        return chosen(self.models)

    @property
    def each(self) -> str:
        """The budget of one neural model."""
        if not self.total:
            return self.budget or (QUICK if self.quick else EACH)
        total, share = Budget.parse(self.total), max(1, self.seeds * sum(rung.budgeted for rung in self.rungs))
        unit = {"seconds": "s"}.get(total.kind, total.kind)
        amount = total.amount / share if total.kind == "seconds" else max(1, total.amount // share)
        return f"{amount:.9g}{unit}"

    @property
    def seconds_each(self) -> float | None:
        """The budget of one neural model, where it is a time."""
        budget = Budget.parse(self.each)
        return budget.amount if budget.kind == "seconds" else None

    def loop(self, rung: Rung) -> dict[str, Any]:
        """How a rung is trained: for how long, and, where that is short, with what suits it."""
        if not rung.budgeted:
            return {}
        how: dict[str, Any] = {"budget": self.each}
        if self.seconds_each is not None and self.seconds_each < SHORT:
            how["evaluations"] = CHECKS
            how |= {"batch_size": SMALL_BATCH} if rung.family == "recurrent" else {}
            how |= {"width": NARROW} if rung.model == "gru" else {}
        return how

    @property
    def text(self) -> TextConfig:
        """How the text is read."""
        return TextConfig(tokenizer=self.tokenizer, valid=self.valid, field=self.field)

    def binding(self) -> dict[str, Any]:
        """What all rows must have in common, so that a comparison can be gone on with."""
        alike = {name: getattr(self, name) for name in ("seeds", "tokenizer", "field", "bytes", "seed")}
        return alike | {"budget": self.each, "device": str(pick_device(self.device)), "octavo": __version__}

    def flags(self) -> list[str]:
        """The words of a command line that say the same."""
        words: list[str] = []
        for one in fields(self):
            value = getattr(self, one.name)
            if value == one.default:
                continue
            flag = "--with" if one.name == "pretrained" else f"--{one.name}"
            words += [flag, *([] if value is True else map(str, value if isinstance(value, tuple) else (value,)))]
        return words

    def told(self) -> dict[str, Any]:
        """The settings as the page shows them."""
        kept = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return kept | self.binding() | {"models": [rung.name for rung in self.rungs]}


@dataclass(frozen=True)
class Place:
    """Where the text is, and the folder for what comes of it."""

    sources: list[str]
    folder: Path
    name: str

    def command(self, config: CompareConfig) -> str:
        """Makes it all again, or goes on with it."""
        return shlex.join(["octavo", "compare", *self.sources, *config.flags(), "--out", str(self.folder)])


def place_of(text: Text, out: str | Path | None) -> Place:
    """What was named, and where the comparison goes.

    Bytes are the text itself; a Path, or a list, are files, folders and named sources. A string of one short line is
    such a name too, and a longer one the text itself.
    """
    if isinstance(text, bytes) or (isinstance(text, str) and ("\n" in text or len(text) > LONGEST_NAME)):
        return _written(text, out)
    sources = [str(text)] if isinstance(text, str | Path) else list(map(str, text))
    if STDIN in sources:
        raise UserError("a comparison reads its text several times, and standard input can be read once; name a file")
    name = "-".join(Path(source).stem for source in sources[:3])
    return Place(sources, Path(out) if out is not None else Path("runs") / f"compare-{name}", name)


def _written(text: str | bytes, out: str | Path | None) -> Place:
    """A text of the caller's own goes into the folder, because it is read again when the comparison is gone on with."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    folder = Path(out) if out is not None else Path("runs") / f"compare-{hashlib.sha256(data).hexdigest()[:8]}"
    path = folder / OWN_TEXT
    if path.is_file() and path.read_bytes() != data:
        raise UserError(f"{folder} is a comparison of another text; choose another out")
    if not path.is_file():
        check_new(folder)
        with whole_file(path) as file:
            file.write(data)
    return Place([str(path)], folder, "text")


def check_new(folder: Path) -> None:
    """Refuse a place where something stands that is not a comparison."""
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    if folder.is_dir() and {one.name for one in folder.iterdir()} <= {OWN_TEXT}:
        return
    raise UserError(f"{folder} is there already and is not a comparison; choose another --out")


def scored_part(corpus: Corpus, config: CompareConfig) -> Split:
    """The part of the held-out text that every model is measured on: its beginning, or all of it."""
    limit = config.bytes or LEAST_SCORED + int(SCORED_A_SECOND * min(config.seconds_each or 0.0, 600.0))
    valid = corpus.valid
    if valid.size <= limit:
        return valid
    data = Split(valid.text, valid.start, valid.start + limit + 4).read()
    return Split(valid.text, valid.start, valid.start + max(1, len(first_bytes(data, limit))))


def machine(device: str) -> dict[str, Any]:
    """What the figures were measured on."""
    chosen_device = pick_device(device)
    told: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}", "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(), "device": str(chosen_device),
    }  # fmt: skip
    if chosen_device.type == "cuda":
        told["gpu"] = torch.cuda.get_device_name(chosen_device)
    if hasattr(os, "sysconf"):
        told["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return told


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def versions() -> dict[str, str]:
    """What made the figures."""
    return {
        "octavo": __version__, "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip
