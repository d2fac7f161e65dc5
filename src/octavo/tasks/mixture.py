"""Mixtures of trained runs: the weights are learnt on pieces of the training part that no part has learnt from.

I parts, N tokens, P pieces, L tokens of a piece.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.core import LanguageModel, eval_mode
from octavo.errors import UserError
from octavo.models import MODELS, spec_of
from octavo.models.adaptive_mix import AdaptiveMix
from octavo.models.context_reader import id_kinds
from octavo.models.parts.even_split import EvenSplit
from octavo.tasks.corpus import fit_counts, learnt_text, reading
from octavo.tasks.run import Run, load
from octavo.text import Corpus, fingerprint, open_corpus, tokenize
from octavo.text.overlap import MAX_OVERLAP, overlap
from octavo.text.validation_chunks import Held, hold_out

END_TOKENS, END_SHARE = 1 << 17, 0.2  # of the training part that an adaptive mixture reads as if it were new, at most
PROBED = 1 << 20  # bytes of the held-out part searched for in what a part was trained on


@dataclass(frozen=True)
class MixtureConfig:
    """What is mixed, and the text to measure on."""

    parts: tuple[str, ...] = ()
    """Two or more run folders with the same tokenizer."""
    valid: tuple[str, ...] = ()
    """Text to measure on; without it, as the first part has it."""
    field: str = "text"
    """JSON lines, parquet: where the text is; without it, as the first part has it."""
    errors: Literal["strict", "replace", "raw"] = "strict"
    """What is not UTF-8: refuse it, replace it, or keep the bytes; without it, as the first part has it."""
    encoding: str = "utf-8"
    """The encoding of the text, such as latin-1 or utf-16; without it, as the first part has it."""


def open_mixture(
    settings: MixtureConfig, source: Sequence[str], least: int = 2
) -> tuple[Corpus, list[Run], dict[str, Any]]:
    """The text, read as the first part's was but for what the settings say; the parts; and how it was read."""
    runs = [load(part) for part in settings.parts]
    _check_parts(runs, least)
    own = list(source) == runs[0].record.get("corpus", {}).get("source")
    usual = MixtureConfig()
    said = {key: getattr(settings, key) for key in ("field", "errors", "encoding", "valid")
            if getattr(settings, key) != getattr(usual, key)}  # fmt: skip
    as_first = {**reading(runs[0].record), **({} if own else {"valid": None})}  # its validation files are its own
    return open_corpus(list(source), **(as_first | said)), runs, as_first | said


def fit_mixture(model: str, config: Any, corpus: Corpus, runs: Sequence[Run]) -> Run:
    """Mix trained runs; the weights are learnt on chunks of the training part that the parts have not seen."""
    tokenizer = runs[0].tokenizer
    held = hold_out(tokenize(corpus.train, tokenizer).tokens, runs[0].model.begin)
    if not held.pieces_PL.size:
        raise UserError(f"the text is too small to hold chunks out: {corpus.train.size} bytes; give a longer one")
    began = time.perf_counter()
    known = [_is_known(run, corpus) for run in runs]
    kind: Any = MODELS[model].model
    parts = [
        _fitted_on(run, held.train_N, held) if known else run.model for run, known in zip(runs, known, strict=True)
    ]
    mixture, learner, tokens = kind(config, [run.model for run in runs]), kind(config, parts), 0
    with eval_mode(learner), torch.no_grad():
        if MODELS[model].is_adaptive:
            tokens = _learn_on_the_end(learner, runs, known, held)
        tokens += learner.learn_pieces(torch.from_numpy(held.pieces_PL.astype(np.int64)))
    mixture.take_weights(learner)
    seconds = time.perf_counter() - began + sum(run.record.get("train_seconds", 0.0) for run in runs)
    mixed = [{"run": run.name, "model": run.summary()} for run in runs]
    record: dict[str, Any] = {"train_tokens": tokens, "train_seconds": seconds, "mixed": mixed}
    if other := [f"{run.name}: {name}" for run in runs for name in run.record.get("other_text", ())]:
        record["other_text"] = other
    return Run(mixture, tokenizer, record)


def _learn_on_the_end(learner: AdaptiveMix, runs: Sequence[Run], known: Sequence[bool], held: Held) -> int:
    """Learn the weights of what counts on the end of the training part, and return how many tokens that is.

    Counts are made again without that end. Networks have seen it, so there they are not asked.
    """
    train_N, tokenizer = held.train_N, runs[0].tokenizer
    cut = len(train_N) - min(END_TOKENS, int(END_SHARE * len(train_N)))
    head_N, end_N = (torch.from_numpy(part.astype(np.int64)) for part in (train_N[:cut], train_N[cut:]))
    silent = EvenSplit(learner.vocab, learner.begin, learner.shape.leaves)
    parts = [
        silent
        if seen and spec_of(run.model).trained_by_gradient
        else _fitted_on(run, train_N[:cut], held)
        if seen
        else run.model
        for run, seen in zip(runs, known, strict=True)
    ]
    early = AdaptiveMix(learner.config, parts)
    early.learn_contexts(head_N, id_kinds(lambda v: tokenizer.decode([v]), early.vocab))
    early.learn_text(end_N)
    learner.take_weights(early)
    return len(end_N)


def _is_known(run: Run, corpus: Corpus) -> bool:
    """Whether a part was trained on the training part of the text; one of another text must not know the rest."""
    trained = run.record.get("corpus", {})
    if trained.get("train", {}).get("sha256") == corpus.train.sha256:
        return True
    if any(_overlap(one, other) for one in trained.get("source", ()) for other in corpus.source):
        raise UserError(
            f"{run.name} was trained on another part of {', '.join(corpus.source)}, or the text has changed since, "
            "so the weights might be learnt on text that it has seen; train it again, on the same part"
        )
    _check_unseen(run, corpus)
    return False


def _fitted_on(run: Run, x_N: NDArray[Any], held: Held) -> LanguageModel[Any]:
    """The model as it would be had it seen these tokens alone; a network, which has not seen the pieces, as it is."""
    if run.record.get("training", {}).get("held") == held.identity:
        return run.model
    spec, config = spec_of(run.model), run.model.config
    if spec.fit is None or getattr(config, "estimator", None) == "arpa":
        raise UserError(f"{run.name} has seen the text that weights are learnt on; mix its parts directly")
    counted = torch.from_numpy(x_N.astype(np.int32))
    return fit_counts(spec.name, counted, config, run.tokenizer, run.record.get("seed", 0)).model


def _check_unseen(run: Run, corpus: Corpus) -> None:
    """Two files may hold the same text: then the mixture would be measured on what a part has learnt by heart."""
    try:
        known = overlap(learnt_text(run).chunks(), corpus.valid.read()[:PROBED])
    except UserError:  # what it learnt from cannot be had any more
        return
    if known >= MAX_OVERLAP:
        raise UserError(
            f"{known:.0%} of the held-out part of {', '.join(corpus.source)} stands in what {run.name} was trained on; "
            "mix it on another text"
        )


def _overlap(one: str, other: str) -> bool:
    """Whether two names of texts mean the same file, or one a folder with the other in it."""
    a, b = os.path.realpath(one), os.path.realpath(other)
    return one == other or os.path.commonpath([a, b]) in (a, b)


def _check_parts(runs: Sequence[Run], least: int) -> None:
    """Parts of a mixture must predict the same tokens of the same text."""
    names = ", ".join(f"{run.name} ({run.tokenizer.name})" for run in runs) or "none"
    if len(runs) < least or len({fingerprint(run.tokenizer) for run in runs}) > 1:
        wanted = "two or more --parts" if least == 2 else "one or more --parts"
        raise UserError(f"a mixture needs {wanted} with the same tokenizer: {names}; train them alike")
    steps = [" ".join(run.record.get("preprocess", ())) or "none" for run in runs]
    if len(set(steps)) > 1:
        raise UserError(f"a mixture needs parts with the same preprocessing: {names} have {'; '.join(steps)}")
