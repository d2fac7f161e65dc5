"""From a text to a run: tokenise, fit, measure on the held-out part, write a sample, save."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel, seeded
from octavo.decode import Sample, generate
from octavo.errors import UserError
from octavo.memory import available
from octavo.models import MODELS, Bag, Mix, NGram
from octavo.models.ngram.count import Workspace
from octavo.progress import progress
from octavo.run import REPORT, SAMPLES, Run, check_out, load, save
from octavo.scoring.bits import NOT_COMPARABLE, score_text
from octavo.text import (
    Corpus,
    Split,
    Store,
    Tokenizer,
    encode_blocks,
    fingerprint,
    learn_and_tokenize,
    open_corpus,
    tokenize,
)  # fmt: skip
from octavo.text.read import STDIN

TAIL = 0.05  # of the training part: what choices such as mixture weights are made on
IN_MEMORY = 1 << 28  # bytes of text; the tokens of a larger one are mapped from a file
COUNTED = 48  # bytes of memory that a token takes while it is counted
COPIED = 1 << 22  # tokens turned into 32-bit integers at once
SAMPLE_TOKENS = 300

Page = Callable[[Run, Split, str], str]  # the run, the held-out text and a sample to a page: the caller's to make


@dataclass(frozen=True)
class TextConfig:
    """Which text, and how it becomes tokens."""

    tokenizer: str = "byte"
    """byte, char, word, bpe, or the path of a tokenizer.json."""
    size: int | None = None
    """How many words, or BPE tokens, to know at most."""
    min_count: int = 2
    """word: spell out words that occur less often."""
    split: Literal["words", "space"] = "words"
    """word: cut at spaces and punctuation, or at spaces alone."""
    valid: tuple[str, ...] = ()
    """Text to measure on; without it the last tenth of the corpus."""
    field: str = "text"
    """JSON lines, parquet: where the text is."""
    errors: Literal["strict", "replace", "raw"] = "strict"
    """What is not UTF-8: refuse it, replace it, or keep the bytes (the byte tokenizer always keeps them)."""
    preprocess: tuple[str, ...] = ()
    """Steps that lose information (lower, digits, ptb, sentences): the result is then not comparable."""

    def open(self, source: str | Path | Sequence[str | Path]) -> Corpus:
        """The corpus, split."""
        errors = "raw" if self.tokenizer == "byte" and self.errors == "strict" else self.errors
        return open_corpus(
            source, field=self.field, errors=errors, preprocess=self.preprocess, valid=list(self.valid) or None
        )

    def tokenizer_options(self) -> dict[str, Any]:
        """What the tokenizer of that name takes."""
        if self.tokenizer == "word":
            return {"size": self.size, "min_count": self.min_count, "split": self.split}
        return {"size": self.size} if self.size is not None else {}


def train_counts(
    model: str, source: Any, text: TextConfig, config: Any, out: str | Path | None, seed: int = 0,
    device: str = "auto", measure: bool = True, page: Page | None = None,
) -> Run:  # fmt: skip
    """Fit a count model (bag, ngram) on the training part of a text."""
    began = time.perf_counter()
    _check_before_work(out, seed)
    corpus = text.open(source)
    with _room_on_disk(out, corpus.train.size) as folder:
        mapped = folder / "train.bin" if folder else None
        tokenizer, store = learn_and_tokenize(text.tokenizer, corpus, mapped, **text.tokenizer_options())
        workspace = _workspace(len(store), folder)
        fitted = _fit(model, store_tensor(store, device, workspace), config, tokenizer, workspace)
    record = _record(corpus, text.field, text.valid, seed, time.perf_counter() - began, len(store))
    run = Run(fitted.cpu(), tokenizer, record)
    return _finish(run, corpus, out, seed, measure, page)


def train_mix(
    source: Any, parts: Sequence[str | Path], config: Any, out: str | Path | None, text: TextConfig | None = None,
    seed: int = 0, measure: bool = True, page: Page | None = None,
) -> Run:  # fmt: skip
    """Mix trained runs; the weights are learnt on a tail of the training part that the parts have not seen.

    The text is read as the first part's was; of `text`, only the field, the errors and the validation files count.
    """
    began = time.perf_counter()
    _check_before_work(out, seed)
    runs = [load(part) for part in parts]
    _check_parts(runs)
    tokenizer, read_as = runs[0].tokenizer, _reading_of_mix(runs[0], source, text or TextConfig())
    corpus = open_corpus(source, **read_as)
    head, tail = _head_and_tail(corpus.train)
    twins = [_without_the_tail(run, corpus, head) for run in runs]
    mix, twin = Mix(config, [run.model for run in runs]), Mix(config, twins)
    tokens = learn_weights(twin, encode_blocks(tokenizer, tail.blocks()))
    mix.logw_GI = twin.logw_GI
    seconds = time.perf_counter() - began
    record = _record(corpus, read_as["field"], read_as["valid"] or (), seed, seconds, tokens)
    record["mixed"] = [{"run": run.name, "model": run.summary()} for run in runs]
    record["train_seconds"] += sum(run.record.get("train_seconds", 0.0) for run in runs)
    return _finish(Run(mix, tokenizer, record), corpus, out, seed, measure, page)


@torch.no_grad()
def learn_weights(mix: Mix, tokens: Any) -> int:
    """Expectation-maximisation of the mixture weights over the tokens of a text; returns how many served."""
    state, last, logps, classes = mix.start(1), None, [], []
    for block in tokens:
        for start in range(0, len(block), mix.window):
            window = block[start : start + mix.window].astype(np.int64)
            x_1W = torch.from_numpy(window if last is None else np.concatenate([last, window]))[None]
            class_1W = mix.class_along(state, x_1W)
            logp_I1W, state = mix.charge_parts(state, x_1W)
            possible_W = (logp_I1W[:, 0] > -torch.inf).any(0) & (x_1W[0, 1:] != mix.begin)
            classes.append(class_1W[0, possible_W])
            logps.append(logp_I1W[:, 0, possible_W])
            last = window[-1:]
    class_N = torch.cat(classes)
    mix.learn(torch.cat(logps, 1), class_N)
    return len(class_N)


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


def _fit(
    model: str,
    x_N: Tensor,
    config: Any,
    tokenizer: Tokenizer,
    workspace: Workspace = Workspace(),  # noqa: B008
) -> LanguageModel[Any]:
    if model == "bag":
        return Bag.fit(x_N, config, tokenizer.vocab)
    if model != "ngram":
        raise UserError(f"there is no count model {model!r}; models are {', '.join(MODELS)}")
    with progress(f"counting {config.order}-grams", len(x_N) * config.order, "look-ups") as advance:
        return NGram.fit(x_N, config, tokenizer.vocab, tokenizer.newline, workspace, advance)


def _finish(run: Run, corpus: Corpus, out: str | Path | None, seed: int, measure: bool, page: Page | None) -> Run:
    """Measure, sample, save, all at once: the folder appears with its page in it."""
    extra = {}
    if measure:
        label = "" if run.comparable and corpus.comparable else NOT_COMPARABLE
        score = score_text(run.model, run.tokenizer, corpus.valid, "validation", label)
        run.record["result"] = score.to_json()
        extra[SAMPLES] = sample(run, seed)
        if page is not None:
            extra[REPORT] = page(run, corpus.valid, extra[SAMPLES])
    return save(run, out, extra) if out is not None else run


def sample(run: Run, seed: int, tokens: int = SAMPLE_TOKENS) -> str:
    """Text the model writes from nothing."""
    (x_T,) = generate(run.model, [[]], tokens, Sample(), seeded(seed))
    return run.tokenizer.decode(x_T.tolist()).decode("utf-8", "replace")


def _record(
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


def _head_and_tail(train: Split) -> tuple[Split, Split]:
    cut = train.start + int(train.size * (1 - TAIL))
    if not train.start < cut < train.end:
        raise UserError(f"the text is too small to hold a tail out: {train.size} bytes; give a longer one")
    return Split(train.text, train.start, cut), Split(train.text, cut, train.end)


def _without_the_tail(run: Run, corpus: Corpus, head: Split) -> LanguageModel[Any]:
    """The model as it would be had it not seen the tail: count models are fitted again, on the rest."""
    trained = run.record.get("corpus", {})
    if trained.get("train", {}).get("sha256") != corpus.train.sha256:
        if any(_overlap(one, other) for one in trained.get("source", ()) for other in corpus.source):
            raise UserError(
                f"{run.name} was trained on another part of {', '.join(corpus.source)}, or the text has changed since, "
                "so the weights might be learnt on text that it has seen; train it again, on the same part"
            )
        return run.model  # it was trained on another text, so it has not seen this one's tail
    config = run.model.config
    if isinstance(run.model, Mix) or getattr(config, "estimator", None) == "arpa":
        raise UserError(f"{run.name} has seen the text that weights are learnt on; mix its parts directly")
    model = "bag" if isinstance(run.model, Bag) else "ngram"
    return _fit(model, store_tensor(tokenize(head, run.tokenizer)), config, run.tokenizer)


def _overlap(one: str, other: str) -> bool:
    """Whether two names of texts mean the same file, or one a folder with the other in it."""
    a, b = os.path.realpath(one), os.path.realpath(other)
    return one == other or os.path.commonpath([a, b]) in (a, b)


def held_out(run: Run) -> tuple[str, Split]:
    """The text that the run was measured on, read again, and its name; refused where it cannot be had any more."""
    corpus = run.record.get("corpus", {})
    sources = [*corpus.get("source", ()), *corpus.get("valid_source", ())]
    if not sources or STDIN in sources:
        why = "was trained on standard input, which is gone" if sources else "does not say what it was trained on"
        raise UserError(f"{run.name} {why}; name a file to score")
    valid = open_corpus(corpus["source"], **_reading(run)).valid
    if valid.sha256 != corpus.get("valid", {}).get("sha256"):
        raise UserError(
            f"{', '.join(sources)} has changed since {run.name} was trained; name a file to score, or train it again"
        )
    return f"{corpus.get('name', '')}, the held-out part", valid


def _reading(run: Run) -> dict[str, Any]:
    """How the run's own text was read: the keywords of `open_corpus`."""
    corpus = run.record.get("corpus", {})
    return {
        "field": corpus.get("field", "text"),
        "errors": corpus.get("errors", "strict"),
        "preprocess": corpus.get("preprocess", ()),
        "valid": corpus.get("valid_source") or None,
    }


def _reading_of_mix(first: Run, source: Any, text: TextConfig) -> dict[str, Any]:
    """As the first part's text was read, but for what the user says; its validation files belong to its own text."""
    sources = [str(source)] if isinstance(source, str | Path) else list(map(str, source))
    own = sources == first.record.get("corpus", {}).get("source")
    unsaid = TextConfig()
    said = {
        key: getattr(text, key) for key in ("field", "errors", "valid") if getattr(text, key) != getattr(unsaid, key)
    }
    return {**_reading(first), **({} if own else {"valid": None}), **said}


def _check_parts(runs: Sequence[Run]) -> None:
    """Parts of a mixture must predict the same tokens of the same text."""
    names = ", ".join(f"{run.name} ({run.tokenizer.name})" for run in runs) or "none"
    if len(runs) < 2 or len({fingerprint(run.tokenizer) for run in runs}) > 1:
        raise UserError(f"a mixture needs two or more --parts with the same tokenizer: {names}; train them alike")
    steps = [" ".join(run.record.get("preprocess", ())) or "none" for run in runs]
    if len(set(steps)) > 1:
        raise UserError(f"a mixture needs parts with the same preprocessing: {names} have {'; '.join(steps)}")


def _check_before_work(out: str | Path | None, seed: int) -> None:
    """What would only fail when the model is trained is refused before."""
    seeded(seed)
    if out is not None:
        check_out(out)


@contextmanager
def _room_on_disk(out: str | Path | None, size: int) -> Iterator[Path | None]:
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
    return Workspace(folder=folder if tokens * COUNTED > available() / 2 else None)
