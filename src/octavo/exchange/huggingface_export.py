"""A transformer of ours as a folder that transformers' AutoModelForCausalLM and AutoTokenizer load.

Its tokenizer.json is of the tokenizers library, and gives the same ids for the same text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from torch import Tensor

from octavo import __version__
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.exchange.decoders import SHAPES, fitting
from octavo.exchange.formats import CONFIG
from octavo.exchange.huggingface_import import GENERATION, TENSORS, TOKENIZER, TOKENIZER_CONFIG
from octavo.exchange.imported import ADDED
from octavo.exchange.mamba2 import Mamba2Shape
from octavo.io.files import whole_folder
from octavo.io.tensors import write_tensors
from octavo.models import name_of, spec_of
from octavo.models.parts.config import GPTConfig
from octavo.text.tokenizers.base import Tokenizer

BEGIN = "<|begin|>"
MARK = "exported_by"  # in config.json: what octavo wrote it may replace
GREEDY = {"do_sample": False}  # else transformers' pipeline draws at random, which no two programs do alike
WRITTEN = {CONFIG, GENERATION, TENSORS, TOKENIZER, TOKENIZER_CONFIG}


def write_huggingface(model: LanguageModel[Any], tokenizer: Tokenizer, folder: str | Path) -> list[str]:
    """Write the folder, in place of one that octavo wrote before; returns what the user should know."""
    if "hf" not in spec_of(model).exports:
        raise UserError(
            f"only gpt and mamba2 have a Hugging Face form: this is of model {name_of(model)}; export a run of these"
        )
    shape: Any = Mamba2Shape()
    if (kind := name_of(model)) != shape.model:
        kind = fitting(SHAPES, model.config, "Hugging Face")
        shape = SHAPES[kind]
    check_target(Path(folder))
    ids = {"bos_token_id": model.begin, "eos_token_id": model.begin}
    settings = {"model_type": kind} | shape.settings_from(model.config, model.vocab) | ids
    written = tokenizer_json(tokenizer)
    ours = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    dtype = str(ours["embedding_VD"].dtype).removeprefix("torch.")
    files = {
        CONFIG: settings | {"dtype": dtype},
        GENERATION: ids | GREEDY | {"pad_token_id": model.begin, "suppress_tokens": [model.begin]},
    }
    if written is not None:
        files |= {TOKENIZER: written.parts, TOKENIZER_CONFIG: {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": written.begin, "eos_token": written.begin,
            "pad_token": written.begin, "clean_up_tokenization_spaces": False,
        }}  # fmt: skip
    write_folder(Path(folder), shape.to_theirs(ours, model.config), files)
    notes = context_note(model.config, "transformers")
    if written is None:
        notes.append(f"the {tokenizer.name} tokenizer has no tokenizer.json: ids are the same, but text needs octavo")
    return notes


def write_folder(folder: Path, tensors: Mapping[str, Tensor], files: Mapping[str, Mapping[str, Any]]) -> None:
    """The tensors and the JSON files, in place of a folder that octavo wrote before; config.json says who wrote it."""
    with whole_folder(folder) as work:
        write_tensors(tensors, work / TENSORS, {"format": "pt"})
        for name, values in files.items():
            marked = {**values, MARK: f"octavo {__version__}"} if name == CONFIG else values
            (work / name).write_text(json.dumps(marked, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def context_note(config: GPTConfig, program: str) -> list[str]:
    """What another program does beyond the context that octavo does not, where it makes a difference."""
    if not config.absolute:
        return []
    return [
        f"octavo's window moves by {config.moves} when its {config.context} tokens are full, which {program} cannot: "
        "beyond them logits differ"
    ]


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


# ---------------------------------------------------------------------- the tokenizer


class Written(NamedTuple):
    """A tokenizer.json, and what its token that opens sequences is called."""

    parts: dict[str, Any]
    begin: str


def tokenizer_json(tokenizer: Tokenizer) -> Written | None:
    """The tokenizer for others, with `begin` put before every text; None where the library cannot say what it does."""
    parts = tokenizer.huggingface_json()
    if parts is None:
        return None
    added: list[dict[str, Any]] = list(parts.get("added_tokens") or ())
    begin = next((token["content"] for token in added if token["id"] == tokenizer.begin), None)
    if begin is None:
        begin = _unused(parts)
        added.append({"id": tokenizer.begin, "content": begin, **ADDED, "special": True})
    written = parts | {"version": "1.0", "added_tokens": added, "post_processor": _opening(begin, tokenizer.begin)}
    return Written(written, begin) if _has_ids(written, begin, tokenizer) else None


def _unused(parts: dict[str, Any]) -> str:
    """A name for the token that opens sequences, which no other token has."""
    taken = {*parts["model"]["vocab"], *(token["content"] for token in parts.get("added_tokens") or ())}
    name = BEGIN
    while name in taken:
        name = f"<{name}>"
    return name


def _opening(name: str, number: int) -> dict[str, Any]:
    """Puts the token before every text, as every sequence here begins with it."""
    token, text, second = (
        {"SpecialToken": {"id": name, "type_id": 0}},
        *({"Sequence": {"id": which, "type_id": i}} for i, which in enumerate("AB")),
    )
    special = {name: {"id": name, "ids": [number], "tokens": [name]}}
    return {"type": "TemplateProcessing", "single": [token, text], "pair": [token, text, second],
            "special_tokens": special}  # fmt: skip


def _has_ids(parts: dict[str, Any], begin: str, tokenizer: Tokenizer) -> bool:
    """Whether the library gives every token the id that it has here: it numbers added tokens as it sees fit."""
    ids = tokenizers.Tokenizer.from_str(json.dumps(parts)).get_vocab(with_added_tokens=True)
    wanted = {token["content"]: token["id"] for token in parts["added_tokens"]} | parts["model"]["vocab"]
    return ids[begin] == tokenizer.begin and all(ids.get(name) == number for name, number in wanted.items())
