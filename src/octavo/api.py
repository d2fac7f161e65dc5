"""The public functions: train, load, evaluate, generate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from octavo.config import from_json
from octavo.decode import Beam, Exact, Greedy, Method, Sample
from octavo.decode import generate as generate_tokens
from octavo.errors import UserError
from octavo.models import CONFIGS
from octavo.run import Run, load
from octavo.scoring.bits import NOT_COMPARABLE, Score, score_text, total
from octavo.text import Split, open_text, text_in_memory
from octavo.training import TextConfig, train_counts, train_mix

__all__ = ["METHODS", "Run", "Score", "evaluate", "generate", "load", "train"]

METHODS: dict[str, type] = {"sample": Sample, "greedy": Greedy, "beam": Beam, "exact": Exact}


def train(
    model: str,
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    parts: Sequence[str | Path] = (),
    seed: int = 0,
    device: str = "auto",
    measure: bool = True,
    **settings: Any,
) -> Run:
    """Train a model (bag, ngram, mix) on a file, a folder or a named source; keyword settings are the model's and the
    text's: order=7, estimator="kneser-ney", tokenizer="word", min_count=2, ...
    """
    if model not in CONFIGS:
        raise UserError(f"there is no model {model!r}; models are {', '.join(CONFIGS)}")
    text_fields = {field.name for field in dataclasses.fields(TextConfig)}
    text = from_json(TextConfig, {key: value for key, value in settings.items() if key in text_fields})
    config: Any = from_json(CONFIGS[model], {key: value for key, value in settings.items() if key not in text_fields})
    if model == "mix":
        return train_mix(corpus, parts, config, out, seed=seed, measure=measure)
    return train_counts(model, corpus, text, config, out, seed, device, measure)


def evaluate(run: Run, text: str | bytes | Path | Sequence[Path], *, field: str = "text") -> Score:
    """What the run's model pays for a text: a str or bytes is the text itself, a Path a file, a folder or a source."""
    if isinstance(text, str | bytes):
        named = {"text": text_in_memory(text, run.record.get("preprocess", ()))}
    else:
        paths = [text] if isinstance(text, Path) else list(text)
        named = {str(path): open_for(run, path, field) for path in paths}
    scores = [score_text(run.model, run.tokenizer, split, name) for name, split in named.items()]
    return total(", ".join(named), scores, label_of(run))


def open_for(run: Run, source: str | Path, field: str = "text", errors: str = "strict") -> Split:
    """A text as the run's tokenizer wants it: with the preprocessing the run was trained with."""
    errors = "raw" if run.tokenizer.name == "byte" and errors == "strict" else errors
    return open_text(source, field=field, errors=errors, preprocess=run.record.get("preprocess", ()))  # type: ignore[arg-type]


def label_of(run: Run) -> str:
    """What must stand beside the run's figures."""
    return "" if run.comparable else NOT_COMPARABLE


def generate(
    run: Run, prompt: str = "", max_tokens: int = 200, method: str | Method = "sample", seed: int = 0, **settings: Any
) -> str:
    """Text that continues the prompt; settings are the method's: temperature, top_k, top_p, min_p, width, ..."""
    chosen = make_method(method, settings) if isinstance(method, str) else method
    x_T = run.tokenizer.encode(prompt.encode())
    generator = torch.Generator().manual_seed(seed)
    (y_T,) = generate_tokens(run.model, [x_T.tolist()], max_tokens, chosen, generator)
    return run.tokenizer.decode(y_T.tolist()).decode("utf-8", "replace")


def make_method(name: str, settings: dict[str, Any]) -> Method:
    """The decoding method of that name."""
    if name not in METHODS:
        raise UserError(f"there is no method {name!r}; methods are {', '.join(METHODS)}")
    method: Method = from_json(METHODS[name], settings)
    return method
