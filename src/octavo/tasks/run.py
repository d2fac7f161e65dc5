"""A run of a language model: the model, its tokenizer, and its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.exchange import is_foreign, read_foreign
from octavo.io.run_folder import METRICS, TOKENIZER, read_json, read_record
from octavo.io.tensors import read_tensors
from octavo.models import build, describe
from octavo.scoring.bits_per_byte import NOT_COMPARABLE, OTHER_TEXT
from octavo.tasks.run_rows import result_label
from octavo.tasks.trained_run import TrainedRun
from octavo.text import load_tokenizer
from octavo.text.tokenizers.base import Tokenizer


@dataclass(repr=False)
class Run(TrainedRun):
    """A language model with everything needed to use it and to say where it came from."""

    task: ClassVar[str] = "language"
    model: LanguageModel[Any]
    tokenizer: Tokenizer
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @property
    def comparable(self) -> bool:
        """Whether its bits per byte may stand beside another's: nothing was lost on the way to tokens."""
        return self.tokenizer.lossless and not self.record.get("preprocess")

    def label(self, comparable: bool = True) -> str:
        """What must stand beside its bits per byte; `comparable` says whether the scored text kept its bytes."""
        lost = "" if comparable and self.comparable else NOT_COMPARABLE
        return ", ".join(filter(None, [lost, OTHER_TEXT if self.record.get("other_text") else ""]))

    @cached_property
    def identity(self) -> bytes:
        """A hash of the model and the tokenizer: what an archive must be opened with."""
        about = json.dumps([describe(self.model), self.tokenizer.to_json()], sort_keys=True)
        return weights_digest(about, self.model).digest()

    def forward(self, x_BT: Tensor) -> Tensor:
        """The model's logits_BTV."""
        logits_BTV: Tensor = self.model(x_BT)
        return logits_BTV

    __call__ = forward

    def manner(self) -> str:
        return f", {self.tokenizer.name} tokens"

    def result_in_words(self) -> str:
        label = result_label(self.record)
        return super().result_in_words() + (f" ({label})" if label else "")

    # ------------------------------------------------------------------ its folder

    def description(self) -> dict[str, Any]:
        return describe(self.model)

    def texts(self) -> dict[str, str]:
        metrics = json.dumps(self.record.get("result", {}), allow_nan=False) + "\n"
        return {TOKENIZER: json.dumps(self.tokenizer.to_json(), ensure_ascii=False), METRICS: metrics}

    @classmethod
    def read_folder(cls, path: Path, record: dict[str, Any], **given: Any) -> Self:
        tokenizer, tensors = read_tokenizer(path), read_tensors(path)
        _check_agreement(record, tokenizer)
        return cls(build(record, tensors), tokenizer)


def weights_digest(about: str, model: nn.Module) -> hashlib._Hash:
    """The hash of a description and of the weights."""
    digest = hashlib.sha256(about.encode())
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest


def load(path: str | Path) -> Run:
    """The language model in a folder, or one of another format as a run: a GGUF file, or a folder of Hugging Face's.

    Reading it runs no code of the folder's; what is damaged or foreign is refused.
    """
    path = Path(path)
    if is_foreign(path):
        return Run(*read_foreign(path), path)
    record = read_record(path)
    if record["task"] != "facts":
        return Run.load(path, record)
    from octavo.tasks.facts_run import FactsRun

    return FactsRun.load(path, record)  # which is a language model too


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


def _check_agreement(record: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """The model and its parts must speak the tokenizer's language, before any memory is taken for them."""
    for part in record["parts"] if isinstance(record.get("parts"), list) else ():
        if isinstance(part, Mapping):
            _check_agreement(part, tokenizer)
    vocab, newline = record.get("vocab", tokenizer.vocab), record.get("newline")
    if type(vocab) is not int or vocab != tokenizer.vocab:
        raise UserError(f"the model knows {vocab} tokens, the tokenizer {tokenizer.vocab}; train again")
    begin = config.get("begin", -1) if isinstance(config := record.get("config"), Mapping) else -1
    if "vocab" in record and (vocab - 1 if begin == -1 else begin) != tokenizer.begin:
        raise UserError(f"the model begins with token {begin}, the tokenizer with {tokenizer.begin}; train again")
    if newline is not None and (type(newline) is not int or newline != tokenizer.newline):
        raise UserError(f"the model's newline is {newline!r}, the tokenizer's {tokenizer.newline}; train again")
