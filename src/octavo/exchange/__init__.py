"""Models that others made, in; ours, out in the formats that others read."""

from __future__ import annotations

from pathlib import Path

from octavo.exchange.gguf import is_gguf, read_llamacpp
from octavo.exchange.huggingface_export import write_huggingface
from octavo.exchange.huggingface_import import is_huggingface, read_huggingface
from octavo.exchange.imported import Foreign

__all__ = ["Foreign", "is_foreign", "read_foreign", "write_huggingface"]

GGUF = ".gguf"


def is_foreign(path: str | Path) -> bool:
    """Whether there is a model of another format that can be loaded as it stands: a GGUF file or a folder."""
    path = Path(path)
    return is_gguf(path) or path.suffix == GGUF if path.is_file() else is_huggingface(path)


def read_foreign(path: str | Path) -> Foreign:
    """The model of a GGUF file or of a Hugging Face folder."""
    return read_llamacpp(path) if Path(path).is_file() else read_huggingface(path)
