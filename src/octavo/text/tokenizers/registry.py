"""The tokenizers by name, and how they are saved and loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.text.tokenizers.bpe import Bpe
from octavo.text.tokenizers.byte import Byte
from octavo.text.tokenizers.char import Char
from octavo.text.tokenizers.closed_vocabulary import Closed
from octavo.text.tokenizers.protocol import Tokenizer
from octavo.text.tokenizers.word import Word

TOKENIZERS: dict[str, type[Byte] | type[Char] | type[Word] | type[Bpe]] = {
    "byte": Byte,
    "char": Char,
    "word": Word,
    "bpe": Bpe,
}


def tokenizer_class(name: str) -> type[Byte] | type[Char] | type[Word] | type[Bpe]:
    """The class of the tokenizer of that name."""
    if name not in TOKENIZERS:
        raise UserError(f"there is no tokenizer named {name!r}; known are {', '.join(TOKENIZERS)}")
    return TOKENIZERS[name]


def load_tokenizer(source: Mapping[str, Any] | str | Path) -> Tokenizer:
    """The tokenizer that `to_json` described, given that or a file of it; a Hugging Face file serves too."""
    if isinstance(source, Mapping):
        return _from_values(dict(source), "this JSON")
    try:
        values = json.loads(Path(source).read_bytes())
    except OSError as error:
        raise UserError(f"cannot read the tokenizer {source}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the tokenizer {source} is damaged, it is not JSON: {error}; make it again") from error
    return _from_values(values, str(source))


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write the tokenizer so that `load_tokenizer` gives it back."""
    with whole_file(path) as file:
        file.write(json.dumps(tokenizer.to_json(), separators=(",", ":")).encode())


def _from_values(values: Any, place: str) -> Tokenizer:
    if isinstance(values, dict) and "octavo_tokenizer" not in values and "model" in values:
        return Bpe(values)
    if not isinstance(values, dict) or not isinstance(values.get("octavo_tokenizer"), str):
        raise UserError(
            f"{place} does not describe a tokenizer: it must have 'octavo_tokenizer' or be a tokenizer.json"
        )
    if values["octavo_tokenizer"] == Closed.name:  # not among TOKENIZERS: it is read from a file, never learnt
        return Closed.from_json(values)
    return tokenizer_class(values["octavo_tokenizer"]).from_json(values)
