"""A model read from another format: its settings, the model with its tensors, its tokenizer, and where it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.models import build
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.base import Tokenizer

# Parts of a tokenizer.json: the byte-level pattern; an added token but for id, text and whether it is special.
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


class ImportedModel(NamedTuple):
    """A model, its tokenizer, and the beginning of a run's record."""

    model: LanguageModel[Any]
    tokenizer: Tokenizer
    record: dict[str, Any]


def with_tokenizer(imported: ImportedModel, tokenizer: Tokenizer | None) -> ImportedModel:
    """The model with another tokenizer, which must have the model's ids; one without any text is refused."""
    model = imported.model
    if tokenizer is None:
        return imported
    if (tokenizer.vocab, tokenizer.begin) != (model.vocab, model.begin):
        raise UserError(
            f"the tokenizer must have the model's ids: it has {tokenizer.vocab:,} and begins with "
            f"{tokenizer.begin:,}, the model has {model.vocab:,} and begins with {model.begin:,}; name another run"
        )
    return ImportedModel(model, tokenizer, imported.record | {"notes": []})


def built(config: Any, vocab: int, begin: int, tensors: Mapping[str, Tensor], model: str = "gpt") -> LanguageModel[Any]:
    """The model with these tensors; a config that does not belong to them is refused before memory is taken."""
    described = dataclasses.asdict(dataclasses.replace(config, begin=begin))
    return build({"model": model, "config": described, "vocab": vocab}, tensors)


def untied(tensors: dict[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """The tensors without output weights that are only a copy of the embeddings."""
    output, embedding = tensors.get("output_VD"), tensors["embedding_VD"]
    if not tied or output is None:
        return tensors
    if output.shape != embedding.shape or not torch.equal(output, embedding):
        raise UserError(
            "tied output weights are the embeddings, and the file has others; "
            "set tie_word_embeddings in config.json to false"
        )
    return {name: tensor for name, tensor in tensors.items() if name != "output_VD"}


class TokenIds(Tokenizer):
    """Knows how many ids there are and which one opens a sequence; whatever needs text is refused."""

    name = "ids"
    unit = "token ids"
    lossless = False

    def __init__(self, vocab: int, begin: int, why: str) -> None:
        super().__init__([b""] * vocab, begin)
        self._why = why

    @classmethod
    def learn(cls, chunks: Iterable[Chunk], settings: Any = None) -> NoReturn:
        raise UserError("token ids without a text have no tokenizer to learn; name another tokenizer")

    @property
    def newline(self) -> None:
        return None

    def _refuse(self, *values: Any, **named: Any) -> NoReturn:
        raise UserError(self._why)

    encode = decode = token_bytes = split_point = to_json = _refuse

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> NoReturn:
        raise UserError("token ids without a text have no tokenizer to load; name another tokenizer")
