"""A transformer of ours as a folder that transformers' AutoModelForCausalLM and AutoTokenizer load."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import safetensors.torch

from octavo import __version__
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.exchange.formats import CONFIG
from octavo.exchange.huggingface_import import GENERATION, SHAPES, TENSORS, TOKENIZER, TOKENIZER_CONFIG
from octavo.exchange.tokenizer_json import Written, tokenizer_json
from octavo.io.files import whole_folder
from octavo.models import name_of, spec_of
from octavo.models.parts.config import GPTConfig
from octavo.text.tokenizers.base import Tokenizer

MARK = "exported_by"  # in config.json: what octavo wrote it may replace
WRITTEN = {CONFIG, GENERATION, TENSORS, TOKENIZER, TOKENIZER_CONFIG}


def write_huggingface(model: LanguageModel[Any], tokenizer: Tokenizer, folder: str | Path) -> list[str]:
    """Write the folder, in place of one that octavo wrote before; returns what the user should know."""
    shape = _shape_of(model)
    check_target(Path(folder))
    ids = {"bos_token_id": model.begin, "eos_token_id": model.begin}
    settings = shape.settings_from(model.config, model.vocab) | ids
    written = tokenizer_json(tokenizer)
    with whole_folder(folder) as work:
        ours = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
        kind = str(ours["embedding_VD"].dtype).removeprefix("torch.")
        safetensors.torch.save_file(shape.to_theirs(ours, model.config), work / TENSORS, {"format": "pt"})
        files: dict[str, Mapping[str, Any]] = {
            CONFIG: settings | {"dtype": kind, MARK: f"octavo {__version__}"},
            GENERATION: ids,
        }
        if written is not None:
            files |= {TOKENIZER: written.parts, TOKENIZER_CONFIG: _tokenizer_config(written, model.config)}
        for name, values in files.items():
            (work / name).write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (work / TENSORS).chmod((work / CONFIG).stat().st_mode)  # the library lets nobody else read it
    if written is None:
        return [f"the {tokenizer.name} tokenizer has no tokenizer.json: ids are the same, but text needs octavo"]
    return []


def _tokenizer_config(written: Written, config: GPTConfig) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": written.begin, "eos_token": written.begin,
        "model_max_length": config.context, "clean_up_tokenization_spaces": False,
    }  # fmt: skip


def _shape_of(model: LanguageModel[Any]) -> ModuleType:
    """The foreign shape that the model has; refused with what would have to be different for the nearest."""
    if "hf" not in spec_of(model).exports:
        raise UserError(
            f"only transformers have a Hugging Face form: this is of model {name_of(model)}; export a gpt run"
        )
    wrong = {kind: _differences(shape, model.config) for kind, shape in SHAPES.items()}
    kind = min(wrong, key=lambda one: len(wrong[one]))
    if wrong[kind]:
        differences = ", ".join(f"{name} is {getattr(model.config, name)}" for name in wrong[kind])
        flags = " ".join(_flag(*one) for one in wrong[kind].items())
        raise UserError(
            f"Hugging Face has no decoder of this shape: {differences}; the nearest is {kind}: train with {flags}"
        )
    return SHAPES[kind]


def _differences(shape: ModuleType, config: GPTConfig) -> dict[str, Any]:
    """The settings that the shape cannot have as they are, each with what it can have."""
    if config.kv_heads == config.heads:  # which 0 says too
        config = dataclasses.replace(config, kv_heads=0)
    return {name: known[0] for name, known in shape.SHAPE.items() if getattr(config, name) not in known}


def _flag(name: str, value: Any) -> str:
    """The setting as it is given to octavo train."""
    flag = name.replace("_", "-")
    return f"--{flag} {value}" if not isinstance(value, bool) else f"--{flag}" if value else f"--no-{flag}"


def check_target(folder: Path) -> None:
    """Refuse a place where something of the user's would be lost."""
    if not os.path.lexists(folder):
        return
    names = set(os.listdir(folder)) if folder.is_dir() else {""}
    try:
        ours = MARK in json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        ours = False
    if names and (not ours or names - WRITTEN):
        raise UserError(f"{folder} exists, and holds more than an export of octavo; choose another target")
