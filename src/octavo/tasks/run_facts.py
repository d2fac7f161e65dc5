"""What the pages and tables say about a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from octavo.core import LanguageModel
from octavo.models import GPT, Bag, Bigram, Mix, NGram, RNNAttention, name_of
from octavo.models.parts.config import SYNTHESIZERS, WINDOWED_ATTENTION
from octavo.models.recurrent import Recurrent
from octavo.tasks.run import TENSORS, TOKENIZER, Run

PLURALS = {"byte": "bytes", "char": "characters", "word": "words", "bpe": "BPE tokens"}
ESTIMATORS = {
    "kneser-ney": "Kneser-Ney", "mle": "maximum likelihood", "add-k": "add-k", "stupid": "stupid backoff",
    "arpa": "read from an ARPA file",
}  # fmt: skip


def title_of(run: Run) -> str:
    """What the model is, in a few words: 7-gram of bytes, Kneser-Ney."""
    return _titled(run.model, PLURALS.get(run.tokenizer.name, f"{run.tokenizer.name} tokens"))


def _titled(model: LanguageModel[Any], tokens: str) -> str:
    if isinstance(model, NGram):
        return f"{model.config.order}-gram of {tokens}, {ESTIMATORS[model.config.estimator]}"
    if isinstance(model, Bag):
        return f"bag of {tokens}, add-{model.config.k:g}"
    if isinstance(model, Bigram):
        return f"neural bigram of {tokens}, {model.config.hidden} hidden units"
    if isinstance(model, Recurrent):
        return f"{type(model).__name__} of {tokens}, {_layers(model.config.layers)} of {model.config.width}"
    if isinstance(model, RNNAttention):
        return f"{model.config.cell.upper()} with attention, of {tokens}, {model.config.width} units"
    if isinstance(model, GPT):
        return f"{_kind(model)} of {tokens}, {_layers(model.config.layers)} of {model.config.width}"
    if isinstance(model, Mix):
        return f"mix of {', '.join(short_title(part) for part in model.parts)} of {tokens}"
    return f"{type(model).__name__} over {tokens}"


def _kind(model: GPT) -> str:
    """What a transformer's tokens look at."""
    config = model.config
    if config.attention in SYNTHESIZERS:
        return f"{config.attention} synthesizer"
    return "transformer" if config.attention == "full" else f"transformer with {config.attention} attention,"


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def short_title(model: LanguageModel[Any]) -> str:
    """A part of a mixture: 7-gram, bag."""
    return f"{model.config.order}-gram" if isinstance(model, NGram) else name_of(model)


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
    ngrams, others = entries_of(model)
    told = [f"{ngrams:,} n-grams"] if ngrams else []
    return ", ".join(told + ([f"{others:,} numbers"] if others else []))


def entries_of(model: LanguageModel[Any]) -> tuple[int, int]:
    """How many n-grams a model keeps, and how many other numbers."""
    if isinstance(model, NGram):
        return sum(model.sizes()), 0
    if isinstance(model, Mix):
        counts = [entries_of(part) for part in model.parts]
        return sum(ngrams for ngrams, _ in counts), sum(others for _, others in counts) + model.logw_GI.numel()
    return 0, sum(tensor.numel() for tensor in model.state_dict().values())


def parts_of(model: GPT) -> list[tuple[str, str]]:
    """Which part stands in each place of a transformer."""
    config = model.config
    shared = f", {config.groups} of keys and values" if config.groups != config.heads else ""
    reach = f", reach {config.attention_window}" if config.attention in WINDOWED_ATTENTION else ""
    features = f", {config.features} features" if config.attention == "linear" else ""
    return [
        ("parameters", f"{sum(p.numel() for p in model.parameters()):,}"),
        ("blocks", f"{config.layers}, of width {config.width}"),
        ("looks by", f"{config.attention}{reach}{features}; heads: {config.heads}{shared}"),
        ("positions", config.positions), ("context", f"{config.context} tokens"),
        ("feed_forward", f"{config.feed_forward}, {config.inner} wide"), ("norm", config.norm),
        ("cost", f"{model.flops_per_token():,} operations to read a token"),
    ]  # fmt: skip


def bytes_on_disk(path: Path) -> int:
    """The files that using the model takes: its tensors and its tokenizer."""
    return sum((path / name).stat().st_size for name in (TENSORS, TOKENIZER))
