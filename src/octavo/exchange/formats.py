"""The formats of models that other programs read and write: how each is recognised, read and written.

Recognising a format needs neither torch nor numpy: readers and writers are imported when they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import UserError
from octavo.io.compressed import stream
from octavo.io.json_text import read_json_file
from octavo.io.run_folder import is_others_config

if TYPE_CHECKING:
    from octavo.core import LanguageModel
    from octavo.exchange.imported import ImportedModel
    from octavo.models.spec import ModelSpec
    from octavo.text.tokenizers.base import Tokenizer

CONFIG = "config.json"
GGUF_MAGIC, GGUF_SUFFIX = b"GGUF", ".gguf"
ARPA_SUFFIX, ARPA_START = ".arpa", b"\\data\\"
NOT_ARPA = {  # what is taken for an ARPA file, by its first bytes, and what to do about it
    b"\x1f\x8b": "a gzip archive: let its name end in .gz",
    b"mmap lm": "a binary of KenLM: give the ARPA file it was built from",
}


@dataclass(frozen=True)
class Format:
    """A format of models. Reader and writer are named as MODULE.FUNCTION below octavo.exchange."""

    title: str
    recognises: Callable[[Path], bool]
    reader: str = ""
    """read(path, tokenizer): the imported model; with another tokenizer of the same ids in place of the file's."""
    writer: str = ""
    """write(model, tokenizer, target): writes the model and returns notes for the user."""
    suffix: str = ""
    """What the name of a target ends in."""
    precisions: tuple[str, ...] = ()
    """What its weights can be stored in, the usual one first; none: as the model has them."""
    loads_directly: bool = True
    """Whether such a file or folder can be used in the place of a run, without importing it first."""

    def read(self, path: str | Path, tokenizer: Tokenizer | None = None) -> ImportedModel:
        imported: ImportedModel = _function(self.reader)(path, tokenizer)
        return imported

    def write(
        self, model: LanguageModel[Any], tokenizer: Tokenizer, target: str | Path, precision: str | None = None
    ) -> list[str]:
        """Write the model; returns notes for the user."""
        if precision is not None and precision not in self.precisions:
            kinds = ", ".join(self.precisions)
            remedy = f"choose one of {kinds}" if kinds else "leave --precision out"
            raise UserError(f"{self.title} cannot be written with precision {precision}; {remedy}")
        options = {} if precision is None else {"precision": precision}
        notes: list[str] = _function(self.writer)(model, tokenizer, target, **options)
        return notes


def is_gguf(path: Path) -> bool:
    """Whether a file begins or is named like a GGUF file."""
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC or path.suffix == GGUF_SUFFIX
    except OSError:
        return False


def is_huggingface(folder: Path) -> bool:
    """Whether a folder has the config.json of a Hugging Face model."""
    return (folder / CONFIG).is_file() and is_others_config(folder)


def is_arpa(path: Path) -> bool:
    """Whether a file is named or begins like an ARPA file, or is what ARPA files are taken for."""
    if not path.is_file() or ARPA_SUFFIX in path.suffixes:
        return path.is_file()
    first = next(stream(path), b"")
    return ARPA_START in first or first.startswith(tuple(NOT_ARPA))


FORMATS: dict[str, Format] = {
    "hf": Format(
        "a Hugging Face folder of a GPT-2, Llama, Mistral, Qwen3, Mamba-2 or BERT", is_huggingface,
        reader="huggingface_import.read_huggingface", writer="huggingface_export.write_huggingface", suffix="-hf",
    ),
    "gguf": Format(
        "a GGUF file of a Llama, Qwen3 or GPT-2", is_gguf, reader="gguf.read_llamacpp", writer="gguf.write_llamacpp",
        suffix=GGUF_SUFFIX, precisions=("float16", "q8_0", "float32"),
    ),
    "onnx": Format("an ONNX file", lambda path: False, writer="onnx_export.write_onnx", suffix=".onnx"),
    "arpa": Format(
        "an ARPA file of n-grams", is_arpa, reader="arpa.read_model", writer="arpa.write_model", suffix=ARPA_SUFFIX,
        loads_directly=False,
    ),
}  # fmt: skip


READABLE = ", ".join(format.title for format in FORMATS.values() if format.reader)


def formats_for(spec: ModelSpec) -> tuple[str, ...]:
    """The formats that a model can be written in, the usual one first: its own, and ONNX, which takes every network."""
    network = spec.task == "language" and spec.trained_by_gradient
    return (*spec.exports, *(["onnx"] if network else []))


def format_by_name(target: str | Path) -> str | None:
    """The format whose files are named like the target; None: it is a folder's name, or says nothing."""
    suffixes = Path(target).suffixes
    return next((name for name, format in FORMATS.items() if format.suffix in suffixes), None)


def find_format(path: str | Path) -> Format | None:
    """The format of a file or folder, if it is one that can be read."""
    return next((format for format in FORMATS.values() if format.recognises(Path(path))), None)


def is_foreign(path: str | Path) -> bool:
    """Whether there is a model of another format that can be loaded as it stands: a GGUF file or a folder."""
    return any(format.loads_directly and format.recognises(Path(path)) for format in FORMATS.values())


def read_foreign(path: str | Path, tokenizer: Tokenizer | None = None) -> ImportedModel:
    """The model of a file or folder of another format, with its own tokenizer or with one that has the same ids."""
    format = find_format(path)
    if format is None:
        raise UserError(f"{path} is not a model that can be read; give {READABLE}")
    return format.read(path, tokenizer)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    values = read_json_file(path, "fetch the model again")
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold a JSON object: it holds a {type(values).__name__}; fetch the model again")
    return values


def _function(named: str) -> Callable[..., Any]:
    module, name = named.split(".")
    function: Callable[..., Any] = getattr(import_module(f"octavo.exchange.{module}"), name)
    return function
