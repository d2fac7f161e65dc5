"""The public functions for runs: train, resume, load, evaluate, generate, tokenize."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.config import from_json
from octavo.core import device_of, seeded_generator
from octavo.decode import Beam, Exact, Greedy, Method, Sample, Speculative
from octavo.decode import generate as generate_tokens
from octavo.errors import UserError
from octavo.exchange import is_foreign
from octavo.io.encoding import UTF8
from octavo.io.run_folder import find_run, read_record
from octavo.models import adaptive_variant
from octavo.scoring.bits_per_byte import Score, score_text, total
from octavo.tasks.adaptive import adaptive_run
from octavo.tasks.device import place
from octavo.tasks.run import Run
from octavo.tasks.run import load as load_language_run
from octavo.tasks.task import find_task, task_for
from octavo.tasks.trained_run import TrainedRun
from octavo.tasks.training_run import resume_run, train_run
from octavo.text import Split, open_text, text_in_memory
from octavo.text.preprocess import apply
from octavo.text.token_display import display_token
from octavo.text.token_store import fingerprint

__all__ = ["METHODS", "Run", "Score", "evaluate", "generate", "load", "resume", "tokenize", "train"]

METHODS: dict[str, type] = {"sample": Sample, "greedy": Greedy, "beam": Beam, "exact": Exact}


def train(
    model: str,
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    parts: Sequence[str | Path] = (),
    adaptive: bool = False,
    seed: int = 0,
    device: str = "auto",
    measure: bool = True,
    force: bool = False,
    **settings: Any,
) -> Any:
    """Train a model on a text of your own, or on a named one.

    Args:
        model: The name of a model: bag, ngram, bigram, nnlm, rnn, gru, lstm, rnn-attention, mingru, minlstm,
            lru, rglru, conv, gpt, mix, ...; or of another task: bert, seq2seq, vit, linear-classifier,
            dan, sequence-classifier, head, tagger, facts.
        corpus: A file, a folder or a named source, or a list of them.
        out: The folder the run is saved to; without it the run is only in memory.
        parts: Of a mixture: the runs to mix, or their folders.
        adaptive: Of an n-gram model: one that goes on counting while it reads.
        seed: The same seed gives the same run.
        device: Where it is trained: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is the GPU where there is one.
        measure: Score the held-out part of the text after training.
        force: Replace a finished run at `out`, when the new one is finished; without it, that is refused.
        **settings: The model's, the task's and, of a model that is trained step by step, the loop's and the
            optimizer's: order=7, tokenizer="word", width=256, budget="3min".

    Returns:
        The run: model, tokenizer and record. Of another task, what a run of that task is.

    Raises:
        UserError: There is no such model, text or setting; the message names the nearest one.

    Examples:
        >>> run = octavo.train("ngram", "book.txt", order=3, tokenizer="byte")
        >>> run
        <octavo run 'ngram': ngram (order 3, ...
    """
    model = adaptive_variant(model) if adaptive else model
    task = task_for(model)
    given = {**settings, **({"parts": list(parts)} if parts else {})}
    recipe = task.recipe(model, given, seed, device, ("parts",))
    sources = [corpus] if isinstance(corpus, str | Path) else corpus
    return train_run(task, recipe, [str(source) for source in sources], out, measure, force=force)


def resume(
    path: str | Path, *, budget: str | None = None, measure: bool = True, device: str | None = None
) -> Any:  # fmt: skip
    """Resume training that was stopped or killed, as if it had not been; or train longer with a larger budget.

    Args:
        path: The folder of the run.
        budget: A new budget, in place of the one it was trained with: "3min", "2000steps", "5Mtokens".
        measure: Score the held-out part of the text afterwards.
        device: Go on there; without it, where it was trained. Another device rounds differently.

    Returns:
        The run, trained to its end.

    Raises:
        UserError: There is nothing to resume in the folder.

    Examples:
        >>> octavo.resume("runs/gru", budget="30steps")
        <octavo run 'gru' at runs/gru: gru (...
    """
    return resume_run(path, budget, measure, device=device)


def load(path: str | Path) -> Any:
    """Open the run in a folder, of whatever task.

    Args:
        path: A run's folder; or a language model of another format: a GGUF file, or a Hugging Face folder.

    Returns:
        The run. Reading it executes nothing that is in the folder.

    Raises:
        UserError: There is no run, or it is damaged or foreign.

    Examples:
        >>> run = octavo.load("runs/kn3")
        >>> run.tokenizer.name, run.model.config.order
        ('byte', 3)
    """
    path = find_run(path)
    if is_foreign(path):
        return load_language_run(path)
    record = read_record(path)
    return find_task(record["task"]).run_class.load(path, record)


def open_run(run: Any) -> Any:
    """The run itself, or the one at a path."""
    return load(run) if isinstance(run, str | Path) else run


def evaluate(
    run: Any, text: str | bytes | Path | Sequence[str | Path] | None = None, *, field: str = "text",
    errors: str = "strict", encoding: str = UTF8, adaptive: bool = False,
    adaptive_learning_rate: float | None = None, adaptive_segment: int | None = None, device: str = "auto",
) -> Any:  # fmt: skip
    """Measure how good a run is: of a language model, the bits that a text costs.

    Args:
        run: A run, or the path of its folder.
        text: A str or bytes is the text itself; a Path is a file, a folder or a named source; a list of paths gives a
            row for each and a total. Without a text, the run's own held-out data, or what else its task evaluates.
        field: The field of JSON lines or Parquet that holds the text.
        errors: What is not UTF-8: "strict" refuses it, "replace" replaces it, "raw" keeps the bytes.
        encoding: The encoding of files: "utf-8", "latin-1", "utf-16", ...
        adaptive: Let a network go on learning while it reads; every token is scored before it is learnt from.
        adaptive_learning_rate: How fast, in place of the default.
        adaptive_segment: The tokens that it reads between two steps, in place of the default.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        The score: `bits_per_byte`, `bits`, `perplexity`, and the most surprising `passages`. Of another task, its
        own measures.

    Raises:
        UserError: There is nothing to score, or it is not text.

    Examples:
        >>> score = octavo.evaluate("runs/kn3", "to be or not to be")
        >>> score.bytes, 0 < score.bits_per_byte < 8
        (18, True)
        >>> score.bits == octavo.evaluate("runs/kn3", b"to be or not to be").bits
        True
    """
    run = open_run(run)
    if isinstance(run, Run) or adaptive:
        run = adaptive_run(language_run(run), adaptive, adaptive_learning_rate, adaptive_segment)
    if isinstance(run, TrainedRun) and (text is None or not isinstance(run, Run)):
        return find_task(run.task).evaluate(place(run, device), text)
    run = language_run(run)
    assert text is not None
    label = label_of(run, errors)
    if isinstance(text, str | bytes):
        named = [("text", text_in_memory(bytes_of(text), run.record.get("preprocess", ())))]
    else:
        paths = [text] if isinstance(text, Path) else list(text)
        named = [(str(path), open_for(run, path, field, errors, encoding)) for path in paths]
    if not named:
        raise UserError("there is nothing to score: the list of files is empty; name at least one")
    place(run, device, sum(split.size for _, split in named))
    scores = [score_text(run.model, run.tokenizer, split, name, label) for name, split in named]
    return total(", ".join(name for name, _ in named), scores, label)


def tokenize(run: Run | str | Path, text: str | bytes) -> list[str]:
    """Split a text into the tokens that a run's model reads, as they are shown on pages.

    Args:
        run: A run of a language model, or the path of its folder.
        text: The text.

    Returns:
        The tokens; a space is shown as ␣, and what has no sign of its own in the same way.

    Raises:
        UserError: The run is not one of a language model.

    Examples:
        >>> octavo.tokenize("runs/kn3", "to be")
        ['t', 'o', '␣', 'b', 'e']
    """
    reader = language_run(run)
    return [display_token(reader.tokenizer, token) for token in encode_prompt(reader, text)]


def language_run(run: Any) -> Run:
    """The run of a language model itself, or the one at a path; anything else is refused."""
    found = open_run(run)
    if not isinstance(found, Run):
        raise UserError(f"a run is asked for, not {type(found).__name__} {found!r}; get one with octavo.load(PATH)")
    return found


def open_for(run: Run, source: str | Path, field: str = "text", errors: str = "strict", encoding: str = UTF8) -> Split:
    """A text as the run's tokenizer wants it: with the preprocessing the run was trained with."""
    errors = "raw" if run.tokenizer.reads_raw_bytes and errors == "strict" else errors
    steps, how = run.record.get("preprocess", ()), {"errors": errors, "encoding": encoding}
    return open_text(source, field=field, preprocess=steps, **how)  # type: ignore[arg-type]


def label_of(run: Run, errors: str = "strict") -> str:
    """What must stand beside the run's figures for text that was read this way."""
    return run.label(errors != "replace")


def generate(
    run: Run | str | Path, prompt: str = "", max_tokens: int = 200, method: str | Method = "sample", seed: int = 0,
    *, draft: Run | str | Path | None = None, draft_tokens: int | None = None, device: str = "auto",
    **settings: Any,
) -> str:  # fmt: skip
    """Let a language model continue a prompt.

    Args:
        run: A run, or the path of its folder.
        prompt: What the text begins with.
        max_tokens: How many tokens to write.
        method: "sample", "greedy", "beam" or "exact", or a decoding method of octavo.decode.
        seed: The same seed writes the same text.
        draft: A run with the same tokenizer and a cheaper model, which guesses ahead; it changes only the speed.
        draft_tokens: How many tokens the draft guesses at a time; by default 4.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.
        **settings: The method's: temperature, top_k, top_p, min_p, width, length_penalty, limit.

    Returns:
        The text that follows the prompt, without it.

    Raises:
        UserError: There is no such method or setting.

    Examples:
        >>> once = octavo.generate("runs/kn3", prompt="to ", max_tokens=20, seed=1)
        >>> once == octavo.generate("runs/kn3", prompt="to ", max_tokens=20, seed=1)
        True
    """
    writer, drafter = language_run(run), None if draft is None else language_run(draft)
    if settings and not isinstance(method, str):
        raise UserError(f"{type(method).__name__} has its settings already: {', '.join(settings)} cannot be given too")
    chosen = make_method(method, settings) if isinstance(method, str) else method
    check_amount("max_tokens", max_tokens, 0)
    writer, drafter = placed_writers(writer, drafter, device, max_tokens)
    chosen = with_draft(writer, drafter, draft_tokens, chosen)
    (y_T,) = generate_tokens(writer.model, [encode_prompt(writer, prompt)], max_tokens, chosen, seeded_generator(seed))
    return writer.tokenizer.decode(y_T.tolist()).decode("utf-8", "replace")


def placed_writers(run: Run, draft: Run | None, device: str, tokens: int) -> tuple[Run, Run | None]:
    """The run that is to write so many tokens and its draft, both on one device."""
    place(run, device, tokens)
    return run, None if draft is None else place(draft, str(device_of(run.model)))


def with_draft(run: Run, draft: Run | None, tokens: int | None, method: Method) -> Method:
    """The method with a draft model, where there is one; its tokenizer must be the run's."""
    if draft is None:
        if tokens is not None:
            raise UserError(f"draft_tokens is how long drafts are: {tokens}, but nothing drafts; name a draft too")
        return method
    if not isinstance(method, Sample | Greedy):
        name = type(method).__name__
        raise UserError(f"a draft serves sampling and greedy decoding, not {name}; leave out the draft or the method")
    if fingerprint(run.tokenizer) != fingerprint(draft.tokenizer):
        both = ", ".join(f"{one.name} ({one.tokenizer.name}, {one.tokenizer.vocab} tokens)" for one in (run, draft))
        raise UserError(f"a draft must have the run's own tokenizer: {both}; train one with the other's tokenizer.json")
    settings = {} if tokens is None else {"tokens": tokens}
    return Speculative(draft.model, sample=method, **settings)


def encode_prompt(run: Run, prompt: str | bytes) -> list[int]:
    """The prompt as the model would have met it in its training text: after the run's preprocessing."""
    x_T: list[int] = run.tokenizer.encode(apply(run.record.get("preprocess", ()), bytes_of(prompt))).tolist()
    return x_T


def check_amount(name: str, value: int, least: int) -> None:
    """Refuse too small a number."""
    if type(value) is not int or value < least:
        raise UserError(f"{name} must be at least {least}: {name}={value!r}; try {name}={max(1, least)}")


def bytes_of(text: str | bytes) -> bytes:
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
