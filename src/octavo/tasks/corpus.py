"""The text of a language model: how it is read and becomes tokens, how counts of it are fitted, and how it is read
again for a saved run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from octavo.config import Count, Length, check_ranges
from octavo.core import seeded_generator
from octavo.decode import Sample, generate
from octavo.errors import UserError
from octavo.io.encoding import UTF8
from octavo.io.memory import available
from octavo.io.partial_files import TemporaryFolder
from octavo.io.run_folder import TOKENIZER, read_record
from octavo.models import MODELS, language_models
from octavo.models.ngram.counting import Workspace
from octavo.models.spec import FitContext, Fitted
from octavo.tasks.run import Run
from octavo.text import TOKENIZERS, Corpus, Split, Tokenizer, TokenStore, open_corpus
from octavo.text.reading import STDIN, Errors
from octavo.text.tokenizers.registry import reads_raw_bytes

MAX_BYTES_IN_MEMORY = 1 << 28  # of text; the tokens of a larger one are mapped from a file
COUNTING_BYTES_PER_TOKEN = 48
COPY_TOKENS = 1 << 22  # turned into 32-bit integers at once
SAMPLE_TOKENS = 300


@dataclass(frozen=True)
class TextConfig:
    """Which text, and how it becomes tokens."""

    tokenizer: str = "byte"
    """byte, char, word, bpe, or the path of a tokenizer.json, or of a run: then the tokenizer of that run."""
    vocab_size: Length | None = None
    """bpe, word, wordpiece, closed: the number of tokens, or of words at most."""
    min_count: Count | None = None
    """word, char, closed: words or characters that occur less often are written as bytes, or are <unk>."""
    split: Literal["words", "space"] | None = None
    """word: split at spaces and punctuation, or at spaces alone."""
    valid: tuple[str, ...] = ()
    """Text to measure on; without it the last tenth of the corpus."""
    field: str = "text"
    """JSON lines, parquet: where the text is."""
    errors: Literal["strict", "replace", "raw"] = "strict"
    """What is not UTF-8: refuse it, replace it, or keep the bytes (the byte tokenizer always keeps them)."""
    encoding: str = "utf-8"
    """The encoding of the text: utf-8, latin-1, utf-16, cp1252, or any other of Python's."""
    preprocess: tuple[str, ...] = ()
    """Steps that lose information (lower, digits, ptb, sentences): the result is then not comparable."""
    RENAMED: ClassVar[dict[str, str]] = {"size": "vocab_size"}

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.tokenizer not in TOKENIZERS and Path(self.tokenizer).is_dir():
            read_record(self.tokenizer)  # which refuses what is not a run
            object.__setattr__(self, "tokenizer", str(Path(self.tokenizer) / TOKENIZER))

    def open(self, source: str | Path | Sequence[str | Path]) -> Corpus:
        """The corpus, split."""
        return open_corpus(
            source, field=self.field, errors=self.reading_errors(), encoding=self.encoding, preprocess=self.preprocess,
            valid=list(self.valid) or None,
        )  # fmt: skip

    def reading_errors(self) -> Errors:
        """What is done with bytes that are not UTF-8: a tokenizer of bytes keeps them."""
        return "raw" if reads_raw_bytes(self.tokenizer) and self.errors == "strict" else self.errors

    def tokenizer_options(self) -> dict[str, Any]:
        """The settings of the tokenizer that are given."""
        options = {"vocab_size": self.vocab_size, "min_count": self.min_count, "split": self.split}
        return {name: value for name, value in options.items() if value is not None}


def store_tensor(store: TokenStore, device: str | torch.device = "cpu", workspace: Workspace = Workspace()) -> Tensor:  # noqa: B008
    """The tokens as 32-bit integers on the device."""
    if store.tokens.dtype == np.int32:
        return torch.from_numpy(store.tokens).to(device)
    x_N = workspace.integers(len(store))
    for start in range(0, len(store), COPY_TOKENS):
        x_N[start : start + COPY_TOKENS] = torch.from_numpy(store.tokens[start : start + COPY_TOKENS].astype(np.int32))
    return x_N.to(device)


def fit_counts(
    model: str, x_N: Tensor, config: Any, tokenizer: Tokenizer, seed: int = 0,
    folder: Path | None = None,
) -> Fitted:  # fmt: skip
    """A model that is fitted to counts of the text; `folder` is for tables that memory has no room for."""
    check_begin(model, tokenizer)
    fit = MODELS[model].fit if model in MODELS else None
    if fit is None:
        known = ", ".join(spec.name for spec in language_models() if spec.fit)
        raise UserError(f"there is no count model {model!r}; models are {known}")
    return fit(x_N, config, tokenizer, FitContext(seed, folder))


def check_begin(model: str, tokenizer: Tokenizer, begin: int = -1) -> None:
    """A model must open sequences with the token that the tokenizer opens them with; -1 stands for the last."""
    opens = tokenizer.vocab - 1 if begin < 0 else begin
    if opens != tokenizer.begin:
        remedy = "leave --begin out" if begin >= 0 else "train a gpt, or use another --tokenizer"
        raise UserError(
            f"the tokenizer opens texts with token {tokenizer.begin} of {tokenizer.vocab}, "
            f"and this {model} with {opens}; {remedy}"
        )


def sample(run: Run, seed: int, tokens: int = SAMPLE_TOKENS) -> str:
    """Text the model writes from nothing."""
    (x_T,) = generate(run.model, [[]], tokens, Sample(), seeded_generator(seed))
    return run.tokenizer.decode(x_T.tolist()).decode("utf-8", "replace")


def describe_corpus(corpus: Corpus, field: str, valid: Sequence[str]) -> dict[str, Any]:
    """The text for a run's record: its parts with their hashes, and how it was read."""
    described = corpus.describe()
    about = {"name": ", ".join(described["source"]), **described, "field": field, "valid_source": list(valid)}
    return {"corpus": about, "preprocess": described["preprocess"], "notes": list(corpus.notes)}


def held_out(run: Run) -> tuple[str, Split]:
    """The text that the run was measured on, read again, and its name; refused where it cannot be had any more."""
    corpus = reopened(run.name, run.record, "valid", "name a file to score, or train it again")
    return f"{run.record['corpus'].get('name', '')}, the held-out part", corpus.valid


def learnt_text(run: Run) -> Split:
    """The text the run was trained on, read again; refused where it cannot be had any more."""
    return reopened(run.name, run.record, "train", "train it again, on a file").train


def reopened(name: str, record: Mapping[str, Any], part: Literal["train", "valid"], remedy: str) -> Corpus:
    """The corpus of a run's record, read again as it was then; refused where that part of it is gone or has changed."""
    described = record.get("corpus", {})
    sources = [*described.get("source", ()), *(described.get("valid_source", ()) if part == "valid" else ())]
    if not sources or STDIN in sources:
        why = "was trained on standard input, which is gone" if sources else "does not say what it was trained on"
        raise UserError(f"{name} {why}; {remedy}")
    corpus = open_corpus(described["source"], **reading(record))
    if getattr(corpus, part).sha256 != described.get(part, {}).get("sha256"):
        raise UserError(f"{', '.join(sources)} has changed since {name} was trained; {remedy}")
    return corpus


def reading(record: Mapping[str, Any]) -> dict[str, Any]:
    """How a run's own text was read: the keywords of `open_corpus`."""
    corpus = record.get("corpus", {})
    return {
        "field": corpus.get("field", "text"),
        "errors": corpus.get("errors", "strict"),
        "encoding": corpus.get("encoding", UTF8),
        "preprocess": corpus.get("preprocess", ()),
        "valid": corpus.get("valid_source") or None,
    }


def temporary_folder(out: Path | None, size: int) -> TemporaryFolder | None:
    """A folder for what a large text's tokens and counts are mapped from; None for a small one."""
    if size <= MAX_BYTES_IN_MEMORY:
        return None
    beside = out.absolute().parent if out is not None else Path(tempfile.gettempdir())
    beside.mkdir(parents=True, exist_ok=True)
    return TemporaryFolder(beside)


def workspace_for(tokens: int, folder: Path | None) -> Workspace:
    """Counts are mapped from files, which is slower, only where memory would be short."""
    return Workspace(folder=folder if tokens * COUNTING_BYTES_PER_TOKEN > available() / 2 else None)
