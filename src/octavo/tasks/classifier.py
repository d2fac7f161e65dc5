"""A trained classifier: the model, what turns texts into its inputs, and the classes; saved and loaded as a folder.

N texts, C classes.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from octavo.core import single_thread
from octavo.io.run_folder import TOKENIZER, read_json
from octavo.io.tensors import read_tensors
from octavo.models.parts.checks import check_numbers
from octavo.tasks.text_vectors import Base, VectorReader, describe_base, find_base
from octavo.tasks.trained_run import TrainedRun, read_model
from octavo.text.bag_of_ngrams import HashedReader, KnownReader, batches_of
from octavo.text.chunks import thread_map

READER = "reader_"  # begins the names of the tensors that are the reader's


@dataclass(repr=False)
class Classifier(TrainedRun):
    """Gives every text a probability for every class."""

    task: ClassVar[str] = "classification"
    model: Any
    reader: Any
    """Has `read(texts)`, which gives what the model takes."""
    classes: list[str]
    temperature: float = 1.0
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    def logits(self, texts: Sequence[str]) -> Tensor:
        """logits_NC, divided by the temperature."""
        self.model.eval()
        if not texts:
            return torch.zeros(0, len(self.classes))
        if isinstance(self.reader, VectorReader):
            return self._logits(texts)
        with single_thread():  # each: batches of texts have threads of their own
            return torch.cat(list(thread_map(self._logits, batches_of(texts))))

    @torch.inference_mode()
    def _logits(self, texts: Sequence[str]) -> Tensor:
        device = next(self.model.parameters()).device
        logits_NC: Tensor = self.model(self.reader.read(texts).to(device))
        return check_numbers((logits_NC / self.temperature).float().cpu(), "the scores of the classes")

    def probabilities(self, texts: Sequence[str]) -> Tensor:
        """p_NC; each row sums to one."""
        return self.logits(texts).softmax(1)

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The most probable class of each text."""
        return [self.classes[c] for c in self.logits(texts).argmax(1).tolist()]

    def manner(self) -> str:
        return f", {len(self.classes)} classes"

    @property
    def sizes(self) -> dict[str, int]:
        width = getattr(self.model, "vectors_VD", torch.empty(0, getattr(self.reader, "width", 0))).shape[1]
        known = {"rows": getattr(self.reader, "rows", 0), "width": width, "classes": len(self.classes)}
        return {name: known[name] for name in list(inspect.signature(type(self.model)).parameters)[1:]}

    # ------------------------------------------------------------------ its folder

    def description(self) -> dict[str, Any]:
        about = {"classes": self.classes, "temperature": self.temperature}
        base = {"base": describe_base(self.reader.base)} if isinstance(self.reader, VectorReader) else {}
        return super().description() | about | base

    def tensors(self) -> Mapping[str, Tensor]:
        reader, of_reader = self.reader, dict[str, Tensor]()
        if isinstance(reader, HashedReader):
            of_reader = {"rows_F": torch.from_numpy(reader.rows_F)}
        elif isinstance(reader, VectorReader):
            of_reader = {"mean_D": reader.mean_D, "spread_D": reader.spread_D}
        return {**super().tensors(), **{f"{READER}{name}": tensor for name, tensor in of_reader.items()}}

    def texts(self) -> dict[str, str]:
        known = isinstance(self.reader, KnownReader)
        return {TOKENIZER: json.dumps({"words": self.reader.words}, ensure_ascii=False)} if known else {}

    @classmethod
    def load(cls, path: str | Path, record: dict[str, Any] | None = None, **given: Any) -> Self:
        """The classifier in a folder; `base` stands in for the model that a head was trained on."""
        return super().load(path, record, **given).check_finished()

    @classmethod
    def read_folder(cls, path: Path, record: dict[str, Any], base: Base | None = None, **given: Any) -> Self:
        classes, temperature = record["classes"], record["temperature"]
        if not isinstance(classes, list) or len(classes) < 2 or not all(isinstance(one, str) for one in classes):
            raise ValueError("classes must be two names or more")
        if type(temperature) is not float or not 0 < temperature < 1e6:
            raise ValueError(f"temperature={temperature!r}")
        tensors = read_tensors(path)
        of_reader = {key.removeprefix(READER): tensors.pop(key) for key in list(tensors) if key.startswith(READER)}
        model = read_model(record, tensors)
        made = cls(model, _reader(path, record, model.config, of_reader, base), classes, temperature)
        if made.sizes != record["sizes"]:
            raise ValueError(f"sizes={record['sizes']!r}, but there are {made.sizes!r}")
        return made


def _reader(path: Path, record: Mapping[str, Any], config: Any, tensors: dict[str, Tensor], base: Base | None) -> Any:
    """What turns texts into the model's inputs, checked: a row beyond the table would be read from elsewhere."""
    if hasattr(config, "bits"):  # it reads words and n-grams by their hashes
        rows_F = tensors["rows_F"].numpy()
        if rows_F.dtype != np.int32 or rows_F.shape != (1 << config.bits,):
            raise ValueError(f"rows_F must be {1 << config.bits} whole numbers of 32 bits")
        if rows_F.min() < 0 or rows_F.max() >= record["sizes"]["rows"]:
            raise ValueError("rows_F points outside the table")
        return HashedReader(config.ngrams, rows_F)
    if hasattr(config, "buckets"):  # it reads the words that it knows, and the others by their hashes
        known = read_json(path / TOKENIZER)
        words = known.get("words") if isinstance(known, dict) else None
        if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
            raise ValueError("words must be a list of strings")
        if len(set(words)) < len(words) or any(re.search(r"\s", word) for word in words):
            raise ValueError("words must be all different, and without spaces")
        return KnownReader(words, config.ngrams, config.buckets)
    return VectorReader(base or find_base(record["base"]), tensors["mean_D"], tensors["spread_D"])
