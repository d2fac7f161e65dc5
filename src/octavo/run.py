"""The run folder: what was trained, on what, with which tokenizer, and how good it is.

    config.json        the model's settings, the corpus, the seed, the versions, the result
    tokenizer.json     the tokenizer, whole
    model.safetensors  the tensors and nothing else; never a pickle
    metrics.jsonl      one object a measurement
    samples.txt        text the model wrote
    report.html        a page that opens offline

The folder is written under another name and renamed when it is complete, so a killed run leaves the last good one.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.files import whole_folder
from octavo.models import build, describe
from octavo.text import load_tokenizer
from octavo.text.tokenizer import Tokenizer
from octavo.version import VERSION

CONFIG, TOKENIZER, TENSORS, METRICS, SAMPLES = (
    "config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "samples.txt",
)  # fmt: skip
SAFE_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
FORMAT = 1  # of the folder; a reader refuses what it does not know


@dataclass
class Run:
    """A trained model with everything needed to use it and to say where it came from."""

    model: LanguageModel[Any]
    tokenizer: Tokenizer
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @property
    def name(self) -> str:
        """What to call it: the folder's name, else the model's."""
        return self.path.name if self.path else str(describe(self.model)["model"])

    @property
    def comparable(self) -> bool:
        """Whether its bits per byte may stand beside another's: nothing was lost on the way to tokens."""
        return self.tokenizer.lossless and not self.record.get("preprocess")

    @cached_property
    def identity(self) -> bytes:
        """A hash of the model and the tokenizer: what an archive must be opened with."""
        digest = hashlib.sha256(json.dumps([describe(self.model), self.tokenizer.to_json()], sort_keys=True).encode())
        for key, tensor in sorted(self.model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.digest()

    def forward(self, x_BT: Tensor) -> Tensor:
        """The model's logits_BTV."""
        logits_BTV: Tensor = self.model(x_BT)
        return logits_BTV

    __call__ = forward

    def __repr__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"<octavo run {self.name!r}{where}: {self.summary()}>"

    def summary(self) -> str:
        """One line: the model, the corpus, the result."""
        told = describe(self.model)
        shape = ", ".join(f"{key} {value}" for key, value in told["config"].items() if value not in ((), False))
        corpus = self.record.get("corpus", {}).get("name", "unknown text")
        result = self.record.get("result", {}).get("bits_per_byte")
        number = f", {result:.4f} bits per byte" if result is not None else ""
        return f"{told['model']} ({shape}), {self.tokenizer.name} tokens, on {corpus}{number}"

    def _repr_html_(self) -> str:
        return f"<p><b>octavo run {html.escape(self.name)}</b><br>{html.escape(self.summary())}</p>"


def save(run: Run, path: str | Path, extra: Mapping[str, str] | None = None) -> Run:
    """Write the folder, in place of the run that stood there; anything else that stands there is refused."""
    path = Path(path)
    if path.exists() and not (path / CONFIG).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is there already and is not a run; choose another --out")
    told = {"format": FORMAT, "octavo": VERSION, **describe(run.model), **run.record}
    with whole_folder(path) as folder:
        write_tensors(run.model.state_dict(), folder / TENSORS)
        (folder / TOKENIZER).write_text(json.dumps(run.tokenizer.to_json(), ensure_ascii=False), encoding="utf-8")
        (folder / CONFIG).write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / METRICS).write_text(json.dumps(run.record.get("result", {})) + "\n", encoding="utf-8")
        for name, text in (extra or {}).items():
            (folder / name).write_text(text, encoding="utf-8")
    run.path = path
    return run


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A safetensors file, tensor by tensor: the library's own writer first copies all of them into memory."""
    header: dict[str, Any] = {}
    end = 0
    for key, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[key] = {"dtype": SAFE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)  # the tensors then begin at a multiple of eight
    with open(path, "wb") as file:
        file.write(len(told).to_bytes(8, "little") + told)
        for tensor in tensors.values():
            file.write(tensor.cpu().contiguous().numpy().data)


def load(path: str | Path) -> Run:
    """The run in a folder. Reading it runs no code of the folder's; what is damaged or foreign is refused."""
    path = Path(path)
    told = read_record(path)
    tokenizer = load_tokenizer(_json(path / TOKENIZER))
    try:
        tensors = safetensors.torch.load_file(path / TENSORS)
    except FileNotFoundError as error:
        raise UserError(f"{path} has no {TENSORS}: the run is not complete; train it again") from error
    except safetensors.SafetensorError as error:
        raise UserError(f"{path / TENSORS} is damaged or foreign: {error}; train the run again") from error
    model = build(told, tensors)
    if model.vocab != tokenizer.vocab:
        raise UserError(f"{path}: the model knows {model.vocab} tokens, the tokenizer {tokenizer.vocab}; train again")
    record = {key: value for key, value in told.items() if key not in (*describe(model), "format", "octavo")}
    return Run(model, tokenizer, record, path)


def read_record(path: str | Path) -> dict[str, Any]:
    """config.json of a run folder."""
    path = Path(path)
    if not (path / CONFIG).is_file():
        near = f"; runs here: {', '.join(map(str, found))}" if (found := find_runs(path.parent)[:5]) else ""
        raise UserError(f"{path} is not a run: it has no {CONFIG}{near or '; make one with octavo train'}")
    told = _json(path / CONFIG)
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        version = told.get("format") if isinstance(told, dict) else None
        raise UserError(f"{path / CONFIG} is of format {version!r}, this octavo reads {FORMAT}; train the run again")
    return told


def find_runs(folder: str | Path) -> list[Path]:
    """The run folders directly in a folder or one below, by name."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    return sorted(found.parent for pattern in (f"*/{CONFIG}", f"*/*/{CONFIG}") for found in folder.glob(pattern)
                  if not any(part.startswith(".") for part in found.relative_to(folder).parts))  # fmt: skip


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged: {error}; train the run again") from error
