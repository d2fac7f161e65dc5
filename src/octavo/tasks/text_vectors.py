"""Texts as vectors by a model that was trained for something else: a language model's last state, a BERT's average.

N texts, B of them at once, T tokens, D width of the vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, tensors_of
from octavo.errors import UserError
from octavo.exchange.bert import is_bert
from octavo.io.progress import progress
from octavo.io.run_folder import CONFIG, read_record
from octavo.tasks.encoder import NAMED, load_encoder
from octavo.tasks.pair_batches import batches_by_length
from octavo.tasks.run import Run, load

TOKENS_PER_BATCH = 1 << 14  # tokens that a batch may hold


class Base(Protocol):
    """Whatever can turn texts into vectors. One with a `path` and an `identity` is found again by them."""

    def encode(self, texts: Sequence[str], /) -> Tensor:
        """vectors_ND."""
        ...


@dataclass(frozen=True)
class LanguageBase:
    """The state of a language model after a text: what it would write the next token from.

    A transformer's is its last layer's vector after the last token; a recurrent network's, all that it carries on.
    """

    run: Run

    @property
    def path(self) -> Path | None:
        return self.run.path

    @property
    def identity(self) -> str:
        return self.run.identity.hex()

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> Tensor:
        """Texts of the same length are read together, so none is padded."""
        model, device = self.run.model.eval(), device_of(self.run.model)
        tokens = [self.run.tokenizer.encode(text.encode("utf-8", "replace")) for text in texts]
        length_N, found = np.array([len(one) for one in tokens], np.int64), [torch.empty(0)] * len(texts)
        with progress("reading texts", len(texts), "texts") as advance:
            for length in np.unique(length_N):
                for rows in batches_by_length(length_N + 1, np.flatnonzero(length_N == length), TOKENS_PER_BATCH):
                    x_BT = torch.tensor([tokens[n].tolist() for n in rows], dtype=torch.int64, device=device)
                    for n, vector_D in zip(rows, last_state(model, model.prepend_begin(x_BT)), strict=True):
                        found[n] = vector_D
                    advance(len(rows))
        return torch.stack(found)


def last_state(model: LanguageModel[Any], x_BT: Tensor) -> Tensor:
    """The vectors of some sequences of one length, on the CPU."""
    if hasattr(model, "output_weight"):
        reader: Any = model
        h_BTD: Tensor = reader.read(model.start(len(x_BT)), x_BT)[0]
        return h_BTD[:, -1].float().cpu()
    _, state = model.absorb(model.start(len(x_BT)), x_BT)
    parts = [t.flatten(1) for t in tensors_of(state) if t.is_floating_point() and t.dim() == 2]
    if not parts:
        raise UserError(
            "a head needs a model that carries a vector from token to token, as rnn, gru, lstm and gpt do: "
            f"a {type(model).__name__} carries none; choose another --base"
        )
    return torch.cat(parts, 1).float().cpu()


class VectorReader:
    """Texts to vectors, each number of which was made of mean 0 and spread 1 on the training texts."""

    def __init__(self, base: Base, mean_D: Tensor, spread_D: Tensor) -> None:
        if mean_D.dim() != 1 or mean_D.shape != spread_D.shape or not bool((spread_D > 0).all()):
            raise UserError("the vectors' means and spreads must be as many, and spreads above 0; train it again")
        self.base, self.mean_D, self.spread_D = base, mean_D, spread_D

    @classmethod
    def learn(cls, base: Base, texts: Sequence[str]) -> tuple[VectorReader, Tensor]:
        """Returns the texts' vectors too."""
        x_ND = base.encode(texts)
        reader = cls(base, x_ND.mean(0), x_ND.std(0).clamp(min=1e-6))
        return reader, (x_ND - reader.mean_D) / reader.spread_D

    @property
    def width(self) -> int:
        return len(self.mean_D)

    def read(self, texts: Sequence[str]) -> Tensor:
        return (self.base.encode(texts) - self.mean_D) / self.spread_D


def open_base(source: str | Path) -> Base:
    """The model of a run's folder, or a pretrained one: any that reads text."""
    path = Path(source)
    is_encoder = str(source) in NAMED or is_bert(path)
    if is_encoder or ((path / CONFIG).is_file() and read_record(path)["task"] == "masked"):
        return load_encoder(source)
    return LanguageBase(load(path))


def describe_base(base: Any) -> dict[str, str]:
    """Where it is, and which one it is."""
    path = getattr(base, "path", None)
    return {"path": "" if path is None else str(path), "identity": str(getattr(base, "identity", ""))}


def find_base(description: Any) -> Base:
    """The base that a saved head tells of; another is refused."""
    path = description.get("path") if isinstance(description, Mapping) else None
    if not isinstance(path, str) or not path:
        raise UserError("this head's base was never saved; give it as `base` in Python")
    base = open_base(path)
    if describe_base(base)["identity"] != description.get("identity"):
        raise UserError(f"{path} is not the model that the head was trained on any more; train the head again")
    return base
