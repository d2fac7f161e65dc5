"""The tokenizers by name, built in and installed, and how they are saved and loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.config import configs_from, no_such_setting
from octavo.errors import UserError, did_you_mean
from octavo.io.files import whole_file
from octavo.io.json_text import read_json_file
from octavo.text.tokenizers.base import KIND, Tokenizer
from octavo.text.tokenizers.bpe import Bpe
from octavo.text.tokenizers.byte import Byte
from octavo.text.tokenizers.char import Char
from octavo.text.tokenizers.closed_vocabulary import ClosedVocabulary
from octavo.text.tokenizers.word import Word
from octavo.text.tokenizers.wordpiece import SPECIAL, WordPiece

# octavo.text adds those of installed packages, when all that they may import is there.
TOKENIZERS: dict[str, type[Tokenizer]] = {
    "byte": Byte,
    "char": Char,
    "word": Word,
    "bpe": Bpe,
    "wordpiece": WordPiece,
    "closed": ClosedVocabulary,
}


def tokenizer_class(name: str) -> type[Tokenizer]:
    """The class of the tokenizer of that name."""
    if name not in TOKENIZERS:
        advice = did_you_mean(name, TOKENIZERS, f"known are {', '.join(TOKENIZERS)}")
        raise UserError(f"there is no tokenizer named {name!r}; {advice}")
    return TOKENIZERS[name]


def tokenizer_settings(name: str, options: Mapping[str, Any]) -> Any:
    """The tokenizer's settings with these options; one that it does not have is refused."""
    (settings,) = configs_from(f"the tokenizer {name}", [tokenizer_class(name).Settings()], options)
    return settings


def reads_raw_bytes(name: str) -> bool:
    """Whether the tokenizer of that name reads files that need not be UTF-8; not so for the path of a file."""
    return name in TOKENIZERS and TOKENIZERS[name].reads_raw_bytes


def load_tokenizer(source: Mapping[str, Any] | str | Path) -> Tokenizer:
    """The tokenizer that `to_json` described, given that or a file of it; a Hugging Face tokenizer.json serves too."""
    if isinstance(source, Mapping):
        return _from_values(dict(source), "this JSON")
    values = read_json_file(source, "make the tokenizer again")
    return _from_values(values, str(source))


def load_given(path: str, options: Mapping[str, Any]) -> Tokenizer:
    """A tokenizer that is not learnt; it takes no settings."""
    if options:
        raise no_such_setting(f"the tokenizer {path}", next(iter(options)), ())
    return load_tokenizer(path)


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write the tokenizer so that `load_tokenizer` gives it back."""
    with whole_file(path) as file:
        file.write(json.dumps(tokenizer.to_json(), separators=(",", ":")).encode())


def _from_values(values: Any, place: str) -> Tokenizer:
    if isinstance(values, dict) and KIND not in values and isinstance(values.get("model"), dict):
        vocab = values["model"].get("vocab")
        bert = values["model"].get("type") == "WordPiece" and isinstance(vocab, dict) and {*SPECIAL} <= {*vocab}
        return WordPiece(values) if bert else Bpe(values)
    if not isinstance(values, dict) or not isinstance(values.get(KIND), str):
        raise UserError(f"{place} does not describe a tokenizer: it must have {KIND!r} or be a tokenizer.json")
    return tokenizer_class(values[KIND]).from_json(values)
