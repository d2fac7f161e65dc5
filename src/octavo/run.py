"""The run folder: what was trained, on what, with which tokenizer, and how good it is.

    config.json        the model's settings, the corpus, the seed, the versions, the result
    tokenizer.json     the tokenizer, whole
    model.safetensors  the tensors and nothing else; never a pickle
    metrics.jsonl      one object a measurement
    samples.txt        text the model wrote
    report.html        a page that opens offline
    state/             what training needs to go on: optimizers, the place in the text

The folder is written under another name and renamed when it is complete, so a killed run leaves the last good one.
Reading it runs no code that is in it, and every value is checked before it is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import html
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.exchange import is_foreign, read_foreign
from octavo.files import PART, whole_folder
from octavo.memory import expect_random_access
from octavo.models import build, describe
from octavo.text import load_tokenizer
from octavo.text.tokenizer import Tokenizer
from octavo.version import VERSION

CONFIG, TOKENIZER, TENSORS, METRICS, SAMPLES, REPORT, STATE, BOARD = OURS = (
    "config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "samples.txt", "report.html", "state",
    "tensorboard",
)  # fmt: skip
SAFE_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
FORMAT = 1  # of the folder; a reader refuses what it does not know
NUMBER: tuple[type, ...] = (int, float)
PART_OF_TEXT: dict[str, Any] = {"bytes": int, "documents": int, "sha256": str}
KINDS: dict[str, Any] = {  # what config.json may hold, where it is there at all
    "model": str,
    "corpus": {"name": str, "source": list, "errors": str, "field": str, "preprocess": list, "valid_source": list,
               "train": PART_OF_TEXT, "valid": PART_OF_TEXT},
    "preprocess": list, "notes": list, "seed": int, "train_seconds": NUMBER, "train_tokens": int,
    "result": {"bits_per_byte": (*NUMBER, type(None)), "impossible": int, "tokens": int, "label": str},
}  # fmt: skip


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
        return self.path.absolute().name if self.path else str(describe(self.model)["model"])

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
        plain = {field.name: field.default for field in dataclasses.fields(self.model.config)}
        told_of = [(k, v) for k, v in told["config"].items() if k in ("order", "estimator") or v != plain[k]]
        shape = ", ".join(f"{key} {value}" for key, value in told_of)
        corpus = self.record.get("corpus", {}).get("name", "unknown text")
        model = f"{told['model']} ({shape})" if shape else told["model"]
        return f"{model}, {self.tokenizer.name} tokens, on {corpus}{self._figure()}"

    @property
    def unfinished(self) -> bool:
        """Whether its training was stopped before its end."""
        training = self.record.get("training")
        return isinstance(training, Mapping) and not training.get("finished")

    def _figure(self) -> str:
        if self.unfinished:
            return ", training not finished"
        result = self.record.get("result", {})
        if result.get("bits_per_byte") is None:
            return ""
        label = f" ({result['label']})" if result.get("label") else ""
        return f", {result['bits_per_byte']:.4f} bits per byte{label}"

    def _repr_html_(self) -> str:
        return f"<p><b>octavo run {html.escape(self.name)}</b><br>{html.escape(self.summary())}</p>"


def save(run: Run, path: str | Path, extra: Mapping[str, str] | None = None, keep: Sequence[str] = ()) -> Run:
    """Write the folder, in place of the run that stood there; anything else that stands there is refused.

    What the old folder has of the names in `keep` goes into the new one.
    """
    path = Path(path)
    check_out(path)
    told = {**run.record, "format": FORMAT, "octavo": VERSION, **describe(run.model)}
    with whole_folder(path) as folder:
        write_tensors(run.model.state_dict(), folder / TENSORS)
        texts = {
            TOKENIZER: json.dumps(run.tokenizer.to_json(), ensure_ascii=False),
            CONFIG: json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
            METRICS: json.dumps(run.record.get("result", {}), allow_nan=False) + "\n",
            **(extra or {}),
        }
        for name, text in texts.items():
            # A name or a word that is not UTF-8 holds lone surrogates, which JSON can spell only as an escape.
            (folder / name).write_bytes(text.encode("utf-8", "backslashreplace"))
        for name in keep:
            if (path / name).is_dir():
                shutil.copytree(path / name, folder / name, ignore=shutil.ignore_patterns(f".*{PART}"))
    run.path = path
    return run


def check_out(path: str | Path) -> None:
    """Refuse a place where a run cannot be written, or where something of the user's would be lost by it."""
    path = Path(path)
    if not os.path.lexists(path):
        above = next(folder for folder in path.absolute().parents if os.path.exists(folder))
        if not os.path.isdir(above) or not os.access(above, os.W_OK | os.X_OK):
            raise UserError(
                f"cannot write {path}: {above} is not a folder that can be written to; choose another --out"
            )
        return
    names = set(os.listdir(path)) if os.path.isdir(path) else {""}
    try:
        if names:
            read_record(path)
    except UserError as error:
        raise UserError(f"{path} is there already and is not a run; choose another --out") from error
    if foreign := sorted(names - set(OURS)):
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise UserError(f"{path} holds what octavo did not put there: {shown}; move that, or choose another --out")


def write_tensors(tensors: Mapping[str, Tensor], path: Path, about: Mapping[str, str] | None = None) -> None:
    """A safetensors file, tensor by tensor: the library's own writer first copies all of them into memory."""
    with open(path, "wb") as file:
        stream_tensors(tensors, file, about)


def stream_tensors(tensors: Mapping[str, Tensor], file: IO[bytes], about: Mapping[str, str] | None = None) -> None:
    """The tensors in the safetensors format, with some text `about` them in its header."""
    header: dict[str, Any] = {"__metadata__": dict(about)} if about else {}
    end = 0
    for key, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[key] = {"dtype": SAFE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)  # the tensors then begin at a multiple of eight
    file.write(len(told).to_bytes(8, "little") + told)
    for tensor in tensors.values():
        file.write(tensor.detach().cpu().contiguous().numpy().data)


def load(path: str | Path) -> Run:
    """The run in a folder, or a model of another format as one: a GGUF file, or a folder of Hugging Face's.

    Reading it runs no code of the folder's; what is damaged or foreign is refused.
    """
    path = Path(path)
    if is_foreign(path):
        return Run(*read_foreign(path), path)
    told = read_record(path)
    tokenizer = read_tokenizer(path)
    try:
        # Copies, because a mapped file is read page by page, in the order of the look-ups, which takes far longer.
        mapped = safetensors.torch.load_file(path / TENSORS)
        tensors = {key: _copied(tensor) for key, tensor in mapped.items()}
        del mapped
    except FileNotFoundError as error:
        raise UserError(f"{path} has no {TENSORS}: the run is not complete; train it again") from error
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise UserError(f"{path / TENSORS} is damaged or foreign: {error}; train the run again") from error
    _check_agreement(told, tokenizer, path)
    try:
        model = build(told, tensors)
    except UserError as error:
        raise UserError(f"{path} is damaged or foreign: {error}") from error
    record = {key: value for key, value in told.items() if key not in (*describe(model), "format", "octavo")}
    return Run(model, tokenizer, record, path)


def _copied(tensor: Tensor) -> Tensor:
    """A copy in memory of its own; half precision saves room on the disk, and is computed with in single."""
    dtype = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
    return expect_random_access(torch.empty_like(tensor, dtype=dtype)).copy_(tensor)


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a run's folder."""
    path = folder / TOKENIZER
    values = _json(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold a JSON object: it holds a {type(values).__name__}; train the run again")
    try:
        return load_tokenizer(values)
    except UserError as error:
        raise UserError(f"{path} is damaged or foreign: {error}; train the run again") from error


def _check_agreement(told: Mapping[str, Any], tokenizer: Tokenizer, path: Path) -> None:
    """The model and its parts must speak the tokenizer's language, before any memory is taken for them."""
    for part in told["parts"] if isinstance(told.get("parts"), list) else ():
        if isinstance(part, Mapping):
            _check_agreement(part, tokenizer, path)
    vocab, newline = told.get("vocab", tokenizer.vocab), told.get("newline")
    if type(vocab) is not int or vocab != tokenizer.vocab:
        raise UserError(f"{path}: the model knows {vocab} tokens, the tokenizer {tokenizer.vocab}; train again")
    begin = config.get("begin", -1) if isinstance(config := told.get("config"), Mapping) else -1
    if "vocab" in told and (vocab - 1 if begin == -1 else begin) != tokenizer.begin:
        raise UserError(
            f"{path}: the model begins with token {begin}, the tokenizer with {tokenizer.begin}; train again"
        )
    if newline is not None and (type(newline) is not int or newline != tokenizer.newline):
        raise UserError(f"{path}: the model's newline is {newline!r}, the tokenizer's {tokenizer.newline}; train again")


def read_record(path: str | Path) -> dict[str, Any]:
    """config.json of a run folder, with every value of the kind that it should be."""
    path = Path(path)
    if not (path / CONFIG).is_file():
        near = f"; runs here: {', '.join(map(str, found))}" if (found := find_runs(path.parent)[:5]) else ""
        raise UserError(f"{path} is not a run: it has no {CONFIG}{near or '; make one with octavo train'}")
    told = _json(path / CONFIG)
    if not isinstance(told, dict) or "octavo" not in told:
        raise UserError(
            f"{path} is not a run: its {CONFIG} is not one of octavo's; name a folder that octavo train made"
        )
    if told.get("format") != FORMAT:
        raise UserError(
            f"{path / CONFIG} is of format {told.get('format')!r}, this octavo reads {FORMAT}; train the run again"
        )
    if wrong := _wrong_kind(told, KINDS):
        raise UserError(f"{path / CONFIG} is damaged: {wrong}; train the run again")
    return told


def _wrong_kind(told: Mapping[str, Any], kinds: Mapping[str, Any], above: str = "") -> str:
    """What is not of its kind, in words; empty if all is well."""
    for key, kind in kinds.items():
        if key not in told:
            continue
        value, name = told[key], f"{above}{key}"
        if isinstance(kind, dict) and isinstance(value, dict):
            if wrong := _wrong_kind(value, kind, f"{name}."):
                return wrong
        elif isinstance(kind, dict) or isinstance(value, bool) or not isinstance(value, kind):
            return f"{name} is {json.dumps(value)[:40]}"
        elif kind is list and not all(isinstance(item, str) for item in value):
            return f"{name} must be a list of strings"
    return ""


def find_runs(folder: str | Path) -> list[Path]:
    """The run folders directly in a folder or one below, by name."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    return sorted(found.parent for pattern in (f"*/{CONFIG}", f"*/*/{CONFIG}") for found in folder.glob(pattern)
                  if not any(part.startswith(".") for part in found.relative_to(folder).parts))  # fmt: skip


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is missing or damaged: {error}; train the run again") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
