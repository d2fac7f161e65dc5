"""A trained classifier: the model, what turns texts into its inputs, and the classes; saved and loaded as a folder.

N texts, C classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from octavo.config import from_json
from octavo.core import single_thread
from octavo.errors import UserError
from octavo.io.run_folder import TOKENIZER, read_json
from octavo.io.tensors import read_tensors
from octavo.models import MODELS
from octavo.models.loading import filled
from octavo.tasks.task import Contents, TrainedRun, record_for
from octavo.tasks.text_vectors import Base, VectorReader, describe_base, find_base
from octavo.text.bag_of_ngrams import HashedReader, KnownReader, batches_of
from octavo.text.chunks import thread_map

CLASSIFIERS = {"linear": MODELS["linear-classifier"], "dan": MODELS["dan"], "head": MODELS["head"]}
SIZES = {"linear": ("rows", "classes"), "dan": ("rows", "width", "classes"), "head": ("width", "classes")}
READER = "reader_"  # begins the names of the tensors that are the reader's


@dataclass
class Classifier(TrainedRun):
    """Gives every text a probability for every class."""

    task: ClassVar[str] = "classification"
    name: str
    model: nn.Module
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
        return (logits_NC / self.temperature).float().cpu()

    def probabilities(self, texts: Sequence[str]) -> Tensor:
        """p_NC; each row sums to one."""
        return self.logits(texts).softmax(1)

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The most probable class of each text."""
        return [self.classes[c] for c in self.logits(texts).argmax(1).tolist()]

    @property
    def sizes(self) -> dict[str, int]:
        """The whole numbers beside the config that the model's constructor takes."""
        width = getattr(self.model, "vectors_VD", torch.empty(0, getattr(self.reader, "width", 0))).shape[1]
        known = {"rows": getattr(self.reader, "rows", 0), "width": width, "classes": len(self.classes)}
        return {name: known[name] for name in SIZES[self.name]}

    def summary(self) -> str:
        """One line: the model, its classes and examples."""
        data = self.record.get("data", {})
        learnt = f", learnt from {data['learnt']['examples']:,} examples" if "learnt" in data else ""
        return f"{self.name}, {len(self.classes)} classes{learnt}"

    def __repr__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"<octavo classifier{where}: {self.summary()}>"


def contents_of(run: Classifier) -> Contents:
    """What a run's folder holds."""
    record: dict[str, Any] = {"model": run.name, "config": asdict(run.model.config), "sizes": run.sizes,  # type: ignore[call-overload]
                              "classes": run.classes, "temperature": run.temperature}  # fmt: skip
    tensors, texts = dict(run.model.state_dict()), {}
    if isinstance(run.reader, HashedReader):
        tensors[f"{READER}rows_F"] = torch.from_numpy(run.reader.rows_F)
    elif isinstance(run.reader, KnownReader):
        texts[TOKENIZER] = json.dumps({"words": run.reader.words}, ensure_ascii=False)
    else:
        record["base"] = describe_base(run.reader.base)
        tensors |= {f"{READER}mean_D": run.reader.mean_D, f"{READER}spread_D": run.reader.spread_D}
    return Contents(record, tensors, texts)


def load_classifier(path: str | Path, base: Base | None = None) -> Classifier:
    """The classifier in a folder; `base` stands in for the model that a head was trained on."""
    path = Path(path)
    record = record_for(path, Classifier.task)
    training = record.get("training")
    if isinstance(training, Mapping) and not training.get("finished", True):
        raise UserError(f"{path}: its training is not finished; go on with: octavo resume {path}")
    try:
        return _loaded(path, record, base)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged or foreign: {error!r}; train it again") from error


def _loaded(path: Path, record: dict[str, Any], base: Base | None) -> Classifier:
    name, classes, temperature = record["model"], record["classes"], record["temperature"]
    if name not in CLASSIFIERS:
        raise ValueError(f"there is no classifier {name!r}")
    if not isinstance(classes, list) or len(classes) < 2 or not all(isinstance(one, str) for one in classes):
        raise ValueError("classes must be two names or more")
    if type(temperature) is not float or not 0 < temperature < 1e6:
        raise ValueError(f"temperature={temperature!r}")
    sizes = record["sizes"]
    config: Any = from_json(CLASSIFIERS[name].config, record["config"])
    if set(sizes) != set(SIZES[name]) or not all(type(n) is int and n > 0 for n in sizes.values()):
        raise ValueError(f"sizes={sizes!r}")
    tensors = read_tensors(path)
    of_reader = {key.removeprefix(READER): tensors.pop(key) for key in list(tensors) if key.startswith(READER)}
    model: Any = filled(lambda: CLASSIFIERS[name].model(config, **sizes), tensors, getattr(config, "layers", 0))
    reader = _reader(path, record, config, of_reader, base)
    made = Classifier(name, model, reader, classes, temperature, path=path)
    if made.sizes != sizes:
        raise ValueError(f"sizes={sizes!r}, but there are {made.sizes!r}")
    known = ("format", "octavo", "task", "model", "config", "sizes", "classes", "temperature", "base")
    made.record = {key: value for key, value in record.items() if key not in known}
    return made


def _reader(path: Path, record: Mapping[str, Any], config: Any, tensors: dict[str, Tensor], base: Base | None) -> Any:
    """What turns texts into the model's inputs, checked: a row beyond the table would be read from elsewhere."""
    if record["model"] == "linear":
        rows_F = tensors["rows_F"].numpy()
        if rows_F.dtype != np.int32 or rows_F.shape != (1 << config.bits,):
            raise ValueError(f"rows_F must be {1 << config.bits} whole numbers of 32 bits")
        if rows_F.min() < 0 or rows_F.max() >= record["sizes"]["rows"]:
            raise ValueError("rows_F points outside the table")
        return HashedReader(config.ngrams, rows_F)
    if record["model"] == "dan":
        words = read_json(path / TOKENIZER).get("words")
        if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
            raise ValueError("words must be a list of strings")
        if len(set(words)) < len(words) or any(re.search(r"\s", word) for word in words):
            raise ValueError("words must be all different, and without spaces")
        return KnownReader(words, config.ngrams, config.buckets)
    return VectorReader(base or find_base(record["base"]), tensors["mean_D"], tensors["spread_D"])
