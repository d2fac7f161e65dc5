"""What the pages and tables say about a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from octavo.core import LanguageModel
from octavo.models import spec_of, stored_entries
from octavo.tasks.run import TENSORS, TOKENIZER, Run


def title_of(run: Run) -> str:
    """What the model is, in a few words: 7-gram of bytes, Kneser-Ney."""
    tokens = run.tokenizer.unit
    spec = spec_of(run.model)
    return f"{spec.title} over {tokens}" if spec.summarise is None else spec.summarise(run.model, tokens)


def bits_per_byte(run: Run) -> float:
    """The held-out result: infinite where a token was impossible, nan where nothing was measured."""
    result = run.record.get("result") or {}
    value = result.get("bits_per_byte")
    if value is not None:
        return float(value)
    return math.inf if result.get("impossible") else math.nan


def number(bits: float) -> str:
    """Bits per byte with four places, infinity as a word."""
    return f"{bits:.4f}" if math.isfinite(bits) else "infinite" if math.isinf(bits) else "not measured"


def stored(model: LanguageModel[Any]) -> str:
    """What a model is made of: its n-grams, or its numbers."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(stored_entries(model).items()) if count)


def bytes_on_disk(path: Path) -> int:
    """The files that using the model takes: its tensors and its tokenizer."""
    return sum((path / name).stat().st_size for name in (TENSORS, TOKENIZER))
