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
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.exchange import is_foreign, read_foreign
from octavo.io.run_folder import (
    BOARD,
    CONFIG,
    METRICS,
    OURS,
    REPORT,
    SAMPLES,
    STATE,
    TENSORS,
    TOKENIZER,
    check_out,
    find_runs,
    read_json,
    read_record,
)
from octavo.io.tensors import read_tensors
from octavo.models import build, describe
from octavo.pages.markup import element
from octavo.pages.sections import notebook_view, paragraph
from octavo.tasks.task import Contents, TrainedRun, record_for, save_run
from octavo.text import load_tokenizer
from octavo.text.tokenizers.base import Tokenizer

__all__ = [
    "BOARD", "CONFIG", "METRICS", "OURS", "REPORT", "SAMPLES", "STATE", "TENSORS", "TOKENIZER", "Run", "check_out",
    "find_runs", "load", "read_record", "read_tokenizer", "save",
]  # fmt: skip


@dataclass
class Run(TrainedRun):
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
        description = describe(self.model)
        plain = {field.name: field.default for field in dataclasses.fields(self.model.config)}
        settings = [(k, v) for k, v in description["config"].items() if k in ("order", "estimator") or v != plain[k]]
        shape = ", ".join(f"{key} {value}" for key, value in settings)
        corpus = self.record.get("corpus", {}).get("name", "unknown text")
        model = f"{description['model']} ({shape})" if shape else description["model"]
        return f"{model}, {self.tokenizer.name} tokens, on {corpus}{self._figure()}"

    def _figure(self) -> str:
        if self.unfinished:
            return ", training not finished"
        result = self.record.get("result", {})
        if result.get("bits_per_byte") is None:
            return ""
        label = f" ({result['label']})" if result.get("label") else ""
        return f", {result['bits_per_byte']:.4f} bits per byte{label}"

    def _repr_html_(self) -> str:
        return notebook_view(paragraph(element("b", f"octavo run {self.name}")), paragraph(self.summary()))


def contents_of(run: Run) -> Contents:
    """What a run's folder holds."""
    tokenizer = json.dumps(run.tokenizer.to_json(), ensure_ascii=False)
    metrics = json.dumps(run.record.get("result", {}), allow_nan=False) + "\n"
    return Contents(describe(run.model), run.model.state_dict(), {TOKENIZER: tokenizer, METRICS: metrics})


save = save_run


def load(path: str | Path) -> Run:
    """The run in a folder, or a model of another format as one: a GGUF file, or a folder of Hugging Face's.

    Reading it runs no code of the folder's; what is damaged or foreign is refused.
    """
    path = Path(path)
    if is_foreign(path):
        return Run(*read_foreign(path), path)
    record = read_record(path)
    if record["task"] not in ("language", "facts"):
        record_for(path, "language", record)
    tokenizer, tensors = read_tokenizer(path), read_tensors(path)
    _check_agreement(record, tokenizer, path)
    try:
        model = build(record, tensors)
    except UserError as error:
        raise UserError(f"{path} is damaged or foreign: {error}") from error
    own = (*describe(model), "format", "octavo", *(("task",) if record["task"] == "language" else ()))
    about = {key: value for key, value in record.items() if key not in own}
    return Run(model, tokenizer, about, path)


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a run's folder."""
    path = folder / TOKENIZER
    values = read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold a JSON object: it holds a {type(values).__name__}; train the run again")
    try:
        return load_tokenizer(values)
    except UserError as error:
        raise UserError(f"{path} is damaged or foreign: {error}; train the run again") from error


def _check_agreement(record: Mapping[str, Any], tokenizer: Tokenizer, path: Path) -> None:
    """The model and its parts must speak the tokenizer's language, before any memory is taken for them."""
    for part in record["parts"] if isinstance(record.get("parts"), list) else ():
        if isinstance(part, Mapping):
            _check_agreement(part, tokenizer, path)
    vocab, newline = record.get("vocab", tokenizer.vocab), record.get("newline")
    if type(vocab) is not int or vocab != tokenizer.vocab:
        raise UserError(f"{path}: the model knows {vocab} tokens, the tokenizer {tokenizer.vocab}; train again")
    begin = config.get("begin", -1) if isinstance(config := record.get("config"), Mapping) else -1
    if "vocab" in record and (vocab - 1 if begin == -1 else begin) != tokenizer.begin:
        raise UserError(
            f"{path}: the model begins with token {begin}, the tokenizer with {tokenizer.begin}; train again"
        )
    if newline is not None and (type(newline) is not int or newline != tokenizer.newline):
        raise UserError(f"{path}: the model's newline is {newline!r}, the tokenizer's {tokenizer.newline}; train again")
