"""From a text to a run: tokenise, fit, measure on the held-out part, write a sample, save."""

from __future__ import annotations

import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from octavo.core import seeded_generator
from octavo.decode import Sample, generate
from octavo.errors import UserError
from octavo.io.memory import available
from octavo.models import MODELS, language_models
from octavo.models.ngram.counting import Workspace
from octavo.models.spec import FitContext, Fitted
from octavo.scoring.bits_per_byte import NOT_COMPARABLE, score_text
from octavo.tasks.run import METRICS, REPORT, SAMPLES, TOKENIZER, Run, check_out, read_record, save
from octavo.text import TOKENIZERS, Corpus, Split, Store, Tokenizer, learn_and_tokenize, open_corpus
from octavo.text.reading import STDIN
from octavo.text.tokenizers.registry import reads_raw_bytes

IN_MEMORY = 1 << 28  # bytes of text; the tokens of a larger one are mapped from a file
PER_TOKEN = 48  # bytes of memory that a token takes while it is counted
COPIED = 1 << 22  # tokens turned into 32-bit integers at once
SAMPLE_TOKENS = 300

Rows = Sequence[dict[str, Any]]  # of metrics.jsonl
Page = Callable[[Run, Split, str, Rows], str]  # the run, the held-out text, a sample and the metrics to a page


@dataclass(frozen=True)
class TextConfig:
    """Which text, and how it becomes tokens."""

    tokenizer: str = "byte"
    """byte, char, word, bpe, or the path of a tokenizer.json, or of a run: then the tokenizer of that run."""
    vocab_size: int | None = None
    """bpe, word, wordpiece: the number of tokens, or of words at most."""
    min_count: int | None = None
    """word, char, closed: words or characters that occur less often are written as bytes, or are <unk>."""
    split: Literal["words", "space"] | None = None
    """word: split at spaces and punctuation, or at spaces alone."""
    valid: tuple[str, ...] = ()
    """Text to measure on; without it the last tenth of the corpus."""
    field: str = "text"
    """JSON lines, parquet: where the text is."""
    errors: Literal["strict", "replace", "raw"] = "strict"
    """What is not UTF-8: refuse it, replace it, or keep the bytes (the byte tokenizer always keeps them)."""
    preprocess: tuple[str, ...] = ()
    """Steps that lose information (lower, digits, ptb, sentences): the result is then not comparable."""
    RENAMED: ClassVar[dict[str, str]] = {"size": "vocab_size"}

    def __post_init__(self) -> None:
        if self.tokenizer not in TOKENIZERS and Path(self.tokenizer).is_dir():
            read_record(self.tokenizer)  # which refuses what is not a run
            object.__setattr__(self, "tokenizer", str(Path(self.tokenizer) / TOKENIZER))

    def open(self, source: str | Path | Sequence[str | Path]) -> Corpus:
        """The corpus, split."""
        errors = "raw" if reads_raw_bytes(self.tokenizer) and self.errors == "strict" else self.errors
        return open_corpus(
            source, field=self.field, errors=errors, preprocess=self.preprocess, valid=list(self.valid) or None
        )

    def tokenizer_options(self) -> dict[str, Any]:
        """The settings of the tokenizer that are given."""
        options = {"vocab_size": self.vocab_size, "min_count": self.min_count, "split": self.split}
        return {name: value for name, value in options.items() if value is not None}


def train_counts(
    model: str, source: Any, text: TextConfig, config: Any, out: str | Path | None, seed: int = 0,
    device: str = "auto", measure: bool = True, page: Page | None = None,
) -> Run:  # fmt: skip
    """Fit a count model (bag, ngram) on the training part of a text."""
    began = time.perf_counter()
    check_before_work(out, seed)
    corpus = text.open(source)
    with room_on_disk(out, corpus.train.size) as folder:
        mapped = folder / "train.bin" if folder else None
        tokenizer, store = learn_and_tokenize(text.tokenizer, corpus, mapped, **text.tokenizer_options())
        workspace = _workspace(len(store), folder)
        fitted = fit_counts(model, store_tensor(store, device, workspace), config, tokenizer, seed, workspace.folder)
    record = record_of(corpus, text.field, text.valid, seed, time.perf_counter() - began, len(store))
    record["notes"] += fitted.notes
    return finish(Run(fitted.model.cpu(), tokenizer, record), corpus, out, seed, measure, page, fitted.history)


def store_tensor(store: Store, device: str = "cpu", workspace: Workspace = Workspace()) -> Tensor:  # noqa: B008
    """The tokens as 32-bit integers on the device."""
    if store.tokens.dtype == np.int32:
        return torch.from_numpy(store.tokens).to(pick_device(device))
    x_N = workspace.integers(len(store))
    for start in range(0, len(store), COPIED):
        x_N[start : start + COPIED] = torch.from_numpy(store.tokens[start : start + COPIED].astype(np.int32))
    return x_N.to(pick_device(device))


def pick_device(device: str) -> torch.device:
    """auto is the GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"there is no kind of device called {device!r}; try auto, cpu or cuda") from error
    if chosen.type not in ("cpu", "cuda"):
        raise UserError(f"device must be auto, cpu or cuda: device={device}; try --device auto")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {device} needs a CUDA GPU, {torch.cuda.device_count()} are here; try --device cpu")
    return chosen


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


def finish(
    run: Run, corpus: Corpus, out: str | Path | None, seed: int, measure: bool, page: Page | None, history: Rows = (),
    keep: Sequence[str] = (),
) -> Run:  # fmt: skip
    """Measure, sample, save, all at once: the folder appears with its page in it.

    `history` are the rows of metrics.jsonl so far, `keep` what stays of the folder that stands there.
    """
    extra = {}
    if measure:
        label = "" if run.comparable and corpus.comparable else NOT_COMPARABLE
        score = score_text(run.model, run.tokenizer, corpus.valid, "validation", label)
        run.record["result"] = score.to_json()
        extra[SAMPLES] = sample(run, seed)
        history = [*history, run.record["result"]]
        if page is not None:
            extra[REPORT] = page(run, corpus.valid, extra[SAMPLES], history)
    run.model.cpu()
    extra[METRICS] = "".join(json.dumps(row, allow_nan=False) + "\n" for row in history)
    return save(run, out, extra, keep) if out is not None else run


def sample(run: Run, seed: int, tokens: int = SAMPLE_TOKENS) -> str:
    """Text the model writes from nothing."""
    (x_T,) = generate(run.model, [[]], tokens, Sample(), seeded_generator(seed))
    return run.tokenizer.decode(x_T.tolist()).decode("utf-8", "replace")


def record_of(
    corpus: Corpus, field: str, valid: Sequence[str], seed: int, seconds: float, tokens: int
) -> dict[str, Any]:  # fmt: skip
    told = corpus.describe()
    return {
        "corpus": {"name": ", ".join(told["source"]), **told, "field": field, "valid_source": list(valid)},
        "preprocess": told["preprocess"],
        "notes": list(corpus.notes),
        "seed": seed,
        "train_seconds": seconds,
        "train_tokens": tokens,
        "made_with": {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()},
    }


def held_out(run: Run) -> tuple[str, Split]:
    """The text that the run was measured on, read again, and its name; refused where it cannot be had any more."""
    corpus = reopened(run.name, run.record, "valid", "name a file to score, or train it again")
    return f"{run.record['corpus'].get('name', '')}, the held-out part", corpus.valid


def learnt_text(run: Run) -> Split:
    """The text the run was trained on, read again; refused where it cannot be had any more."""
    return reopened(run.name, run.record, "train", "train it again, on a file").train


def reopened(name: str, record: Mapping[str, Any], part: Literal["train", "valid"], remedy: str) -> Corpus:
    """The corpus of a run's record, read again as it was then; refused where that part of it is gone or has changed."""
    told = record.get("corpus", {})
    sources = [*told.get("source", ()), *(told.get("valid_source", ()) if part == "valid" else ())]
    if not sources or STDIN in sources:
        why = "was trained on standard input, which is gone" if sources else "does not say what it was trained on"
        raise UserError(f"{name} {why}; {remedy}")
    corpus = open_corpus(told["source"], **reading(record))
    if getattr(corpus, part).sha256 != told.get(part, {}).get("sha256"):
        raise UserError(f"{', '.join(sources)} has changed since {name} was trained; {remedy}")
    return corpus


def reading(record: Mapping[str, Any]) -> dict[str, Any]:
    """How a run's own text was read: the keywords of `open_corpus`."""
    corpus = record.get("corpus", {})
    return {
        "field": corpus.get("field", "text"),
        "errors": corpus.get("errors", "strict"),
        "preprocess": corpus.get("preprocess", ()),
        "valid": corpus.get("valid_source") or None,
    }


def check_before_work(out: str | Path | None, seed: int) -> None:
    """What would only fail when the model is trained is refused before."""
    seeded_generator(seed)
    if out is not None:
        check_out(out)


@contextmanager
def room_on_disk(out: str | Path | None, size: int) -> Iterator[Path | None]:
    """A folder, gone afterwards, for what a large text's tokens and counts are mapped from; None for a small one."""
    if size <= IN_MEMORY:
        yield None
        return
    beside = Path(out).absolute().parent if out is not None else Path(tempfile.gettempdir())
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=beside, prefix=".octavo.", suffix=".tokens") as folder:
        yield Path(folder)


def _workspace(tokens: int, folder: Path | None) -> Workspace:
    """Counts are mapped from files, which is slower, only where memory would be short."""
    return Workspace(folder=folder if tokens * PER_TOKEN > available() / 2 else None)
