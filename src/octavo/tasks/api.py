"""The public functions: train, load, evaluate, generate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.config import from_json
from octavo.core import seeded_generator
from octavo.decode import Beam, Exact, Greedy, Method, Sample, Speculative
from octavo.decode import generate as generate_tokens
from octavo.errors import UserError
from octavo.exchange import is_foreign
from octavo.io.run_folder import read_record
from octavo.scoring.bits_per_byte import Score, score_text, total
from octavo.tasks.run import Run
from octavo.tasks.run import load as load_language_run
from octavo.tasks.task import find_task, task_for
from octavo.tasks.trained_run import TrainedRun
from octavo.tasks.training_run import resume_run, train_run
from octavo.text import Split, open_text, text_in_memory
from octavo.text.preprocess import apply
from octavo.text.token_store import fingerprint

__all__ = ["METHODS", "Run", "Score", "evaluate", "generate", "load", "resume", "train"]

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
) -> Any:
    """Train a model on a file, a folder or a named source; keyword settings are the model's, the task's and, of a model
    that is trained step by step, the loop's and the optimizer's: order=7, tokenizer="word", width=256, budget="3min".

    Language models (bag, ngram, gru, gpt, ..., mix) give a Run; vit, davit, seq2seq, seq2seq-recurrent, bert, dan, head
    and facts what a run of their task is.
    """
    task = task_for(model)
    given = {**settings, **({"parts": list(parts)} if parts else {})}
    recipe = task.recipe(model, given, seed, device, ("parts",))
    sources = [corpus] if isinstance(corpus, str | Path) else corpus
    return train_run(task, recipe, [str(source) for source in sources], out, measure)


def resume(path: str | Path, *, budget: str | None = None, measure: bool = True) -> Any:
    """Go on with the training of a run that was stopped or killed, as if it had not been; or, with a larger budget, of
    any run that was trained step by step.
    """
    return resume_run(path, budget, measure)


def load(path: str | Path) -> Any:
    """The run in a folder, of whatever task, or a language model of another format as one: a GGUF file, or a folder of
    Hugging Face's. Reading it runs no code of the folder's; what is damaged or foreign is refused.
    """
    if is_foreign(Path(path)):
        return load_language_run(path)
    record = read_record(path)
    return find_task(record["task"]).run_class.load(path, record)


def open_run(run: Any) -> Any:
    """The run itself, or the one at a path."""
    return load(run) if isinstance(run, str | Path) else run


def evaluate(
    run: Any, text: str | bytes | Path | Sequence[str | Path] | None = None, *, field: str = "text",
    errors: str = "strict",
) -> Any:  # fmt: skip
    """How good a run is, by its task: of a language model, the bits that a text costs, where a str or bytes is the text
    itself, a Path a file, a folder or a source, and a list of those becomes a row for each, and a total. Without a
    text, or whatever else the task evaluates, on the run's own held-out data.
    """
    if isinstance(run, TrainedRun) and (text is None or not isinstance(run, Run)):
        return find_task(run.task).evaluate(run, text)
    _check_run(run)
    assert text is not None
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
    return run.label(errors != "replace")


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
