"""The public functions: train, load, evaluate, generate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.config import from_json, no_such_setting, with_current_names
from octavo.core import seeded_generator
from octavo.decode import Beam, Exact, Greedy, Method, Sample, Speculative
from octavo.decode import generate as generate_tokens
from octavo.errors import UserError
from octavo.models import find_spec, preset
from octavo.scoring.bits_per_byte import NOT_COMPARABLE, Score, score_text, total
from octavo.tasks.count_training import TextConfig, train_counts
from octavo.tasks.language_page import page_maker
from octavo.tasks.language_training import Recipe, train_neural
from octavo.tasks.language_training import resume as resume_training
from octavo.tasks.mixture_training import train_mix
from octavo.tasks.registry import OTHERS, refuse_others, resume_task, train_task
from octavo.tasks.run import Run, load, read_record
from octavo.text import Split, open_text, text_in_memory
from octavo.text.preprocess import apply
from octavo.text.token_store import fingerprint
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

__all__ = ["METHODS", "Run", "Score", "evaluate", "generate", "load", "resume", "train"]

OF_A_MIXTURE = ("field", "errors", "valid")  # the rest of how text becomes tokens is as its parts have it
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
    """Train a model (bag, ngram, gru, gpt, ..., mix) on a file, a folder or a named source; keyword settings are the
    model's, the text's and, of a neural model, the training's: order=7, tokenizer="word", width=256, budget="3min", ...

    vit, davit, seq2seq, seq2seq-recurrent, bert and facts are trained too, and give what their own modules give.
    """
    if model in OTHERS:
        refuse_others(model, parts, measure)
        return train_task(model, corpus, out, seed, device, settings)  # type: ignore[no-any-return]
    model, usual = preset(model)
    config, text, *how = _configs(model, usual, settings)
    return train_with_page(model, corpus, text, config, out, parts, seed, device, measure, tuple(how))


def _configs(model: str, usual: Any, settings: dict[str, Any]) -> list[Any]:
    """The settings as the configs of the model, the text and, for a neural model, the loop and the optimizers."""
    spec = find_spec(model)
    classes: list[type] = [
        spec.config,
        TextConfig,
        *((LoopConfig, OptimizerConfig) if spec.trained_by_gradient else ()),
    ]
    names = [[field.name for field in dataclasses.fields(one)] for one in classes]
    for one in classes:
        settings = with_current_names(one, settings)
    if spec.fitting == "mixture":
        names[1] = list(OF_A_MIXTURE)
    for key in settings:
        if not any(key in known for known in names):
            known = [name for some in names for name in some]
            raise no_such_setting(model, key, [*known, "out", "parts", "seed", "device", "measure"])
    plain = {key: _plain(value) for key, value in settings.items()}  # paths may be given as such
    given = [{key: value for key, value in plain.items() if key in known} for known in names]
    given[0] = dataclasses.asdict(usual) | given[0]
    return [from_json(one, values) for one, values in zip(classes, given, strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def train_with_page(
    model: str, corpus: Any, text: TextConfig, config: Any, out: str | Path | None, parts: Sequence[str | Path] = (),
    seed: int = 0, device: str = "auto", measure: bool = True, how: tuple[Any, ...] = (),
) -> Run:  # fmt: skip
    """Train from made configs; a run that is measured and saved gets its report.html.

    `how` are the loop's and the optimizers' configs of a neural model; without them, the usual.
    """
    spec = find_spec(model)
    if spec.trained_by_gradient:
        loop, optim = how or (LoopConfig(), OptimizerConfig())
        page = page_maker(model, corpus, text, config, out, seed, (), loop, optim) if out is not None else None
        return train_neural(Recipe(model, config, text, loop, optim, seed, device), corpus, out, measure, page)
    page = page_maker(model, corpus, text, config, out, seed, parts) if out is not None else None
    if spec.fitting == "mixture":
        if device != "auto":
            raise UserError(f"a mixture's weights are learnt where its parts lie: device={device}; leave it out")
        return train_mix(corpus, parts, config, out, text, seed, measure, page)
    return train_counts(model, corpus, text, config, out, seed, device, measure, page)


def resume(path: str | Path, *, budget: str | None = None, measure: bool = True) -> Run:
    """Go on with the training of a run that was stopped or killed, as if it had not been; or, with a larger budget, of
    any neural run.
    """
    if (other := resume_task(path, budget)) is not None:
        return other  # type: ignore[no-any-return]
    record = read_record(path)
    recipe = Recipe.of(record)
    loop = dataclasses.replace(recipe.loop, budget=budget) if budget else recipe.loop
    sources = record.get("corpus", {}).get("source", [])
    page = page_maker(
        recipe.model, sources, recipe.text, recipe.config, path, recipe.seed, (), loop, recipe.optim
    )  # fmt: skip
    return resume_training(path, budget, measure, page)


def evaluate(
    run: Run, text: str | bytes | Path | Sequence[str | Path], *, field: str = "text", errors: str = "strict"
) -> Score:
    """What the run's model pays for a text: a str or bytes is the text itself, a Path a file, a folder or a source;
    a list of those becomes a row for each, and a total.
    """
    _check_run(run)
    label = label_of(run, errors)
    if isinstance(text, str | bytes):
        named = [("text", text_in_memory(_bytes_of(text), run.record.get("preprocess", ())))]
    else:
        paths = [text] if isinstance(text, Path) else list(text)
        named = [(str(path), open_for(run, path, field, errors)) for path in paths]
    if not named:
        raise UserError("there is nothing to score: the list of files is empty; name at least one")
    scores = [score_text(run.model, run.tokenizer, split, name, label) for name, split in named]
    return total(", ".join(name for name, _ in named), scores, label)


def _check_run(run: Any) -> None:
    if not isinstance(run, Run):
        raise UserError(f"a run is asked for, not {type(run).__name__} {run!r}; get one with octavo.load(PATH)")


def open_for(run: Run, source: str | Path, field: str = "text", errors: str = "strict") -> Split:
    """A text as the run's tokenizer wants it: with the preprocessing the run was trained with."""
    errors = "raw" if run.tokenizer.reads_raw_bytes and errors == "strict" else errors
    return open_text(source, field=field, errors=errors, preprocess=run.record.get("preprocess", ()))  # type: ignore[arg-type]


def label_of(run: Run, errors: str = "strict") -> str:
    """What must stand beside the run's figures for text that was read this way."""
    return "" if run.comparable and errors != "replace" else NOT_COMPARABLE


def generate(
    run: Run, prompt: str = "", max_tokens: int = 200, method: str | Method = "sample", seed: int = 0,
    *, draft: Run | None = None, draft_tokens: int | None = None, **settings: Any,
) -> str:  # fmt: skip
    """The text that follows the prompt, without it; settings are the method's: temperature, top_k, top_p, width, ...

    A `draft`, a run with the same tokenizer and a cheaper model, changes only the speed: see `Speculative`.
    """
    _check_run(run)
    if settings and not isinstance(method, str):
        raise UserError(f"{type(method).__name__} has its settings already: {', '.join(settings)} cannot be given too")
    chosen = make_method(method, settings) if isinstance(method, str) else method
    check_amount("max_tokens", max_tokens, 0)
    chosen = with_draft(run, draft, draft_tokens, chosen)
    (y_T,) = generate_tokens(run.model, [encode_prompt(run, prompt)], max_tokens, chosen, seeded_generator(seed))
    return run.tokenizer.decode(y_T.tolist()).decode("utf-8", "replace")


def with_draft(run: Run, draft: Run | None, tokens: int | None, method: Method) -> Method:
    """The method with a draft model, where there is one; its tokenizer must be the run's."""
    if draft is None:
        if tokens is not None:
            raise UserError(f"draft_tokens is how long drafts are: {tokens}, but nothing drafts; name a draft too")
        return method
    _check_run(draft)
    if not isinstance(method, Sample | Greedy):
        name = type(method).__name__
        raise UserError(f"a draft serves sampling and greedy decoding, not {name}; leave out the draft or the method")
    if fingerprint(run.tokenizer) != fingerprint(draft.tokenizer):
        both = ", ".join(f"{one.name} ({one.tokenizer.name}, {one.tokenizer.vocab} tokens)" for one in (run, draft))
        raise UserError(f"a draft must have the run's own tokenizer: {both}; train one with the other's tokenizer.json")
    settings = {} if tokens is None else {"tokens": tokens}
    return Speculative(draft.model, sample=method, **settings)


def encode_prompt(run: Run, prompt: str) -> list[int]:
    """The prompt as the model would have met it in its training text: after the run's preprocessing."""
    x_T: list[int] = run.tokenizer.encode(apply(run.record.get("preprocess", ()), _bytes_of(prompt))).tolist()
    return x_T


def check_amount(name: str, value: int, least: int) -> None:
    """Refuse too small a number."""
    if type(value) is not int or value < least:
        raise UserError(f"{name} must be at least {least}: {name}={value!r}; try {name}={max(1, least)}")


def _bytes_of(text: str | bytes) -> bytes:
    """UTF-8; what Python keeps of a terminal's undecodable bytes becomes those bytes again."""
    try:
        return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise UserError(
            f"the text must be Unicode: character {error.start:,} is half a surrogate pair; leave it out"
        ) from error


def make_method(name: str, settings: dict[str, Any]) -> Method:
    """The decoding method of that name."""
    if name not in METHODS:
        raise UserError(f"there is no method {name!r}; methods are {', '.join(METHODS)}")
    method: Method = from_json(METHODS[name], settings)
    return method
