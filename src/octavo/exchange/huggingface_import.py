"""Folders of Hugging Face's transformers in: config.json, model.safetensors and tokenizer.json become a transformer.

Nothing in the folder is run. A pickle, which could be, is refused; so is whatever config.json says that would make
another model of the weights than ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.exchange.decoders import SHAPES
from octavo.exchange.formats import CONFIG, read_object
from octavo.exchange.imported import ADDED, BYTE_LEVEL, ImportedModel, TokenIds, built, untied, with_tokenizer
from octavo.exchange.mamba2 import Mamba2Shape
from octavo.exchange.shapes import Shape
from octavo.io.encoding import read_text
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.bpe import Bpe

TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER, TOKENIZER_CONFIG, VOCAB, MERGES = "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"
GENERATION = "generation_config.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")
WEIGHTS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def read_huggingface(folder: str | Path, tokenizer: Tokenizer | None = None) -> ImportedModel:
    """The model and the tokenizer in a folder; without a tokenizer, one that knows ids only."""
    folder = Path(folder)
    values = read_object(folder / CONFIG)
    try:
        shape = _shape_of(values)
        config, vocab = shape.config_of(values)
        made: Any = config
        ours = untied(shape.to_ours(read_weights(folder), made), config.tied)
        if (rows := len(ours["embedding_VD"])) != vocab or not vocab:  # before a tokenizer of that size is made
            raise UserError(f"every token must have an embedding: vocab_size={vocab:,}, the file has {rows:,}")
        own, notes = _tokenizer(folder, values, vocab)
        model = built(config, vocab, own.begin, ours, shape.model)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    record = {"corpus": {"name": folder.absolute().name}, "notes": notes}
    record |= {"imported": {"file": str(folder), "format": "hf"}}
    return with_tokenizer(ImportedModel(model, own, record), tokenizer)


def _shape_of(values: Mapping[str, Any]) -> Shape | Mamba2Shape:
    shapes: dict[str, Shape | Mamba2Shape] = {**SHAPES, Mamba2Shape.model: Mamba2Shape()}
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in shapes:
        raise UserError(
            f"models of type {', '.join(shapes)} can be read: config.json says {kind!r}; take another model"
        )
    if values.get("quantization_config") is not None:
        raise UserError("quantised weights are read from GGUF files only; take the model as it was before that")
    return shapes[kind]


# ---------------------------------------------------------------------- weights


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder's one file, or of the several that an index names, in single precision."""
    tensors: dict[str, Tensor] = {}
    for file in _files(folder):
        try:
            found = safetensors.torch.load_file(file)
        except FileNotFoundError as error:
            raise UserError(f"{file.name} is missing; fetch the model again") from error
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
            raise UserError(f"{file.name} is damaged or cut off: {error}; fetch the model again") from error
        for name, tensor in found.items():
            if tensor.is_floating_point() and tensor.dtype not in WEIGHTS:
                raise UserError(f"weights must be of 16 to 64 bits: {name} is {tensor.dtype}; take another model")
            if name in tensors:
                raise UserError(f"a tensor must stand in one file: {name} stands in several; fetch the model again")
            # A copy: a mapped file is read page by page, whenever a product first needs it. What is not floating is no
            # weight, and stays what it is, to be left out or refused.
            dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
            tensors[name] = torch.empty_like(tensor, dtype=dtype).copy_(tensor)
    return tensors


def _files(folder: Path) -> list[Path]:
    if (folder / TENSORS).is_file():
        return [folder / TENSORS]
    if not (folder / INDEX).is_file():
        pickles = [name for name in PICKLES if (folder / name).exists()]
        if not pickles:
            raise UserError(f"there is no {TENSORS}; fetch the model again")
        raise UserError(
            f"{pickles[0]} is not read: a pickle can run any code. Where you trust it, convert it with transformers: "
            "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OTHER, safe_serialization=True)"
        )
    places = read_object(folder / INDEX).get("weight_map")
    names = sorted(set(map(str, places.values()))) if isinstance(places, Mapping) else []
    if not names or any(Path(name).name != name or not name.endswith(".safetensors") for name in names):
        raise UserError(f"{INDEX} must name .safetensors files beside it: {names[:3]}; it is damaged")
    if missing := next((name for name in names if not (folder / name).is_file()), None):
        raise UserError(f"{missing} is missing; fetch the model again")
    return [folder / name for name in names]


# ---------------------------------------------------------------------- the tokenizer


def _tokenizer(folder: Path, values: Mapping[str, Any], vocab: int) -> tuple[Tokenizer, list[str]]:
    """The folder's tokenizer with the special token that opens its sequences, and what must be said of it."""
    if (folder / TOKENIZER).is_file():
        parts = read_object(folder / TOKENIZER)
    elif (folder / VOCAB).is_file() and (folder / MERGES).is_file():
        parts = _parts_of_gpt2(folder, values)
    else:
        begin = next((number for number in _ids(values) if 0 <= number < vocab), vocab - 1)  # some id must
        why = (
            f"{folder} has no {TOKENIZER}, so text has no tokens here, only token ids have a meaning; "
            f"put the {TOKENIZER} that the model was trained with into the folder"
        )
        return TokenIds(vocab, begin, why), [f"there is no {TOKENIZER}: only token ids can be scored"]
    special = _special(parts)
    named = [special.get(content) for content in _special_contents(folder)]
    found = [number for number in (*_ids(values), *named) if number in special.values()]
    if not found:
        raise UserError(
            f"a special token must open every sequence: bos_token_id is {values.get('bos_token_id')!r}, and "
            f"{TOKENIZER} has the special tokens {list(special)[:5]}; set bos_token_id in {CONFIG} to one's id"
        )
    return Bpe(parts, begin=found[0], size=vocab), []


def _special(parts: Mapping[str, Any]) -> dict[str, int]:
    """The ids of the special tokens of a tokenizer.json; what is no such token is left to the library to refuse."""
    added = parts.get("added_tokens")
    tokens = [token for token in added if isinstance(token, Mapping)] if isinstance(added, list) else []
    named = [(token.get("content"), token.get("id")) for token in tokens if token.get("special") is True]
    return {content: number for content, number in named if isinstance(content, str) and type(number) is int}


def _ids(values: Mapping[str, Any]) -> Iterator[int]:
    """The ids that config.json has for the beginning and the end of a text, in that order."""
    for key in ("bos_token_id", "eos_token_id"):
        found = values.get(key)
        yield from (number for number in (found if isinstance(found, list) else [found]) if type(number) is int)


def _special_contents(folder: Path) -> Iterator[str]:
    """What tokenizer_config.json calls the tokens that begin and end a text."""
    settings = read_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
    for key in ("bos_token", "eos_token"):
        token = settings.get(key)
        content = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(content, str):
            yield content


def _parts_of_gpt2(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """vocab.json and merges.txt, as GPT-2 was published with, as one tokenizer.json."""
    vocab = read_object(folder / VOCAB)
    lines = read_text(folder / MERGES).split("\n")
    pairs = [line.split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    if wrong := next((pair for pair in pairs if len(pair) != 2), None):
        raise UserError(f"every line of {MERGES} must be of two tokens: {' '.join(wrong)!r} is not")
    spelt = {number: token for token, number in vocab.items() if type(number) is int}
    contents = {spelt[number] for number in _ids(values) if number in spelt}
    special = [content for content in chain(_special_contents(folder), sorted(contents)) if content in vocab]
    added = [{"id": vocab[content], "content": content, **ADDED, "special": True} for content in dict.fromkeys(special)]
    return {
        "version": "1.0", "normalizer": None, "pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL, "added_tokens": added,
        "model": {"type": "BPE", "vocab": vocab, "merges": pairs},
    }  # fmt: skip
