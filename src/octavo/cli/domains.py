"""octavo domains: every model on excerpts of two domains, in the same unit, and which words make the difference."""

from __future__ import annotations

import json as json_format
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from tyro.conf import Positional, arg

from octavo import __version__
from octavo.cli.output import note, print_json, print_table
from octavo.core import single_thread
from octavo.errors import UserError
from octavo.experiments.domains.page import MIN_LEAKED_SHARE, Measured, domains_page, perplexity
from octavo.experiments.domains.scoring import (
    GROUPS,
    KNOWN,
    MARK,
    Excerpt,
    Vocabulary,
    excerpt,
    first_bytes,
    gap,
    read,
    seen_share,
)
from octavo.io.files import whole_file
from octavo.models import MODELS
from octavo.scoring.bits_per_byte import NOT_COMPARABLE, finite
from octavo.tasks import api
from octavo.tasks.count_training import learnt_text
from octavo.tasks.run import CONFIG, REPORT, STATE, Run, load
from octavo.tasks.run_facts import number
from octavo.text import open_corpus
from octavo.text.preprocess import check_steps
from octavo.text.reading import STDIN
from octavo.training.checkpoint import FILE
from octavo.training.schedule import Budget

Runs = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...")]
STEPS = ("lower",)
TRAINED = "trained.json"  # in OUT: how each run of the ladder was made, so that a finished one is used again


class Recipe(NamedTuple):
    """One rung of the ladder; those that learn step by step get the budget."""

    name: str
    model: str
    settings: dict[str, Any]
    budgeted: bool = False


LADDER = (
    Recipe("bag-bytes", "bag", {"tokenizer": "byte"}),
    Recipe("bag-chars", "bag", {"tokenizer": "char"}),
    Recipe("bag-words", "bag", {"tokenizer": "word"}),
    Recipe("kn5-bytes", "ngram", {"tokenizer": "byte", "order": 5}),
    Recipe("kn5-chars", "ngram", {"tokenizer": "char", "order": 5}),
    Recipe("kn3-words", "ngram", {"tokenizer": "word", "order": 3}),
    Recipe("bigram-words", "bigram", {"tokenizer": "word"}),
    Recipe("rnn-chars", "rnn", {"tokenizer": "char"}, True),
    Recipe("gru-chars", "gru", {"tokenizer": "char"}, True),
    Recipe("lstm-chars", "lstm", {"tokenizer": "char"}, True),
    Recipe("rnn-attention-chars", "rnn-attention", {"tokenizer": "char"}, True),
    Recipe("gru-words", "gru", {"tokenizer": "word", "size": 5000, "batch_size": 64}, True),
)


@dataclass(frozen=True)
class Learnt:
    """What a run learnt from: its words, and the share of each excerpt that stands in it."""

    vocabulary: Vocabulary
    seen: tuple[float, ...]


def domains(
    runs: Runs = (),
    texts: tuple[str, ...] = ("shakespeare", "wikitext-2"),
    bytes: int = 20_000,
    preprocess: tuple[str, ...] = STEPS,
    out: str = "runs/domains",
    budget: str = "30s",
    seed: int = 0,
    json: bool = False,
) -> None:
    """Perplexity and bits per byte of models on excerpts of two texts, and which words cause the difference.

    Without runs, models are trained on the first text, each a second time with preprocessing; finished ones in --out
    are used again.

    Example: octavo domains --out runs/domains

    Args:
        runs: Run folders to measure.
        texts: Two texts; of each, the first bytes of the part that is held out of training are scored.
        bytes: How many bytes of each text.
        preprocess: What the second of each pair does to its text: lower, digits, ptb, sentences.
        out: The folder for the page, and for the runs that are trained.
        budget: How long each neural model may train.
        seed: For the training.
        json: Print JSON.
    """
    folder = Path(out)
    _check(runs, texts, bytes, preprocess, budget, folder)
    names = list(map(_short, texts)) if len(set(map(_short, texts))) == len(texts) else list(texts)
    held = [open_corpus(text, errors="raw").valid for text in texts]
    originals = [(name, first_bytes(part.read(), bytes)) for name, part in zip(names, held, strict=True)]
    for name, original in originals:
        excerpt(name, original, preprocess)  # an empty one is refused before any training
    found = [("", load(run)) for run in runs] or _ladder(folder, texts[0], preprocess, budget, seed)
    with single_thread():
        measured = _measured(found, originals)
    command = _command(runs, texts, bytes, preprocess, out, budget, seed)
    with whole_file(folder / REPORT) as file:
        file.write(domains_page(measured, originals, folder, command).encode())
    if json:
        print_json(_told(measured, originals, folder / REPORT))
    else:
        _print_result(measured, originals, folder / REPORT)


def _short(text: str) -> str:
    """The last part of a path."""
    return Path(text).name


def _check(
    runs: tuple[str, ...], texts: tuple[str, ...], bytes: int, preprocess: tuple[str, ...], budget: str, out: Path
) -> None:  # fmt: skip
    """What would only fail after the training is refused before."""
    check_steps(preprocess)
    Budget.parse(budget)
    if len(texts) != 2 or len(set(texts)) != 2:
        raise UserError(f"--texts must be two different texts: got {' '.join(texts) or 'none'}; try two names or files")
    if STDIN in texts:
        raise UserError("the texts are read several times, and standard input can be read once; name files")
    if bytes < 1:
        raise UserError(f"--bytes must be at least 1: got {bytes}; try --bytes 20000")
    if runs and preprocess != STEPS:
        raise UserError("--preprocess is for the models that are trained here; a named run keeps its own: leave it out")
    if (out / CONFIG).is_file():
        raise UserError(f"--out must be a folder for a page and several runs, and {out} is itself a run; name another")


def _ladder(folder: Path, corpus: str, steps: tuple[str, ...], budget: str, seed: int) -> list[tuple[str, Run]]:
    """Every rung that this octavo has a model for, and its twin with preprocessing, each with its family's name."""
    recipes = [recipe for recipe in LADDER if recipe.model in MODELS]
    twins = [()] + ([steps] if steps else [])
    sha256 = open_corpus(corpus, errors="raw").train.sha256
    runs = []
    for i, recipe in enumerate(recipes):
        for j, twin in enumerate(twins):
            name = "-".join([recipe.name, *twin])
            settings = recipe.settings | ({"preprocess": twin} if twin else {})
            settings |= {"budget": budget} if recipe.budgeted else {}
            made = [
                __version__,
                recipe.model,
                corpus,
                sha256,
                seed,
                settings | ({"preprocess": list(twin)} if twin else {}),
            ]
            run = _finished(folder, name, made)
            if run is None:
                note(f"training {i * len(twins) + j + 1} of {len(recipes) * len(twins)}: {name}")
                _give_up(folder / name)
                run = api.train(recipe.model, corpus, out=folder / name, seed=seed, **settings)
                _remember(folder, name, made)
            runs.append((recipe.name, run))
    return runs


def _finished(folder: Path, name: str, made: list[Any]) -> Run | None:
    """The run of that name, if it is whole and was made just so."""
    try:
        return load(folder / name) if _remembered(folder).get(name) == made else None
    except UserError:
        return None


def _give_up(run: Path) -> None:
    """What was stopped while the ladder was made is trained anew: it lasts no longer than the budget."""
    (run / STATE / FILE).unlink(missing_ok=True)


def _remembered(folder: Path) -> dict[str, Any]:
    try:
        told = json_format.loads((folder / TRAINED).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _remember(folder: Path, name: str, made: list[Any]) -> None:
    told = _remembered(folder) | {name: made}
    with whole_file(folder / TRAINED) as file:
        file.write(json_format.dumps(told, indent=1).encode())


def _measured(found: list[tuple[str, Run]], originals: list[tuple[str, bytes]]) -> list[Measured]:
    """Each run's readings of both excerpts; runs that learnt from the same text share what is known of it."""
    known: dict[tuple[str, ...], Learnt] = {}
    measured = []
    for family, run in found:
        steps = tuple(run.record.get("preprocess", ()))
        excerpts = [excerpt(name, original, steps) for name, original in originals]
        train = learnt_text(run)
        key = (train.sha256, *steps)
        if key not in known:
            seen = tuple(seen_share(train.blocks(), text.data) for text in excerpts)
            known[key] = Learnt(Vocabulary.learn(train), seen)
        _check_unseen(run, excerpts, known[key].seen)
        home, away = (read(run.model, run.tokenizer, text, known[key].vocabulary) for text in excerpts)
        measured.append(Measured(run, family or run.name, home, away, max(known[key].seen)))
    return measured


def _check_unseen(run: Run, excerpts: list[Excerpt], seen: tuple[float, ...]) -> None:
    """A model must not be measured on what it learnt by heart."""
    for text, share in zip(excerpts, seen, strict=True):
        if share >= KNOWN:
            raise UserError(
                f"{run.name} was trained on the excerpt of {text.name} itself ({share:.0%} of it); name another of "
                "--texts, or train the run without --valid, so that the last tenth is held out"
            )
        if share >= MIN_LEAKED_SHARE:
            note(
                f"{run.name}: {share:.0%} of the excerpt of {text.name} stands in its training text, which flatters it"
            )


def _told(measured: list[Measured], originals: list[tuple[str, bytes]], page: Path) -> dict[str, Any]:
    return {
        "texts": [{"name": name, "bytes": len(data), "unk_marks": data.count(MARK)} for name, data in originals],
        "models": [
            {"run": str(one.run.path), "family": one.family, "title": one.title, "seen": one.seen,
             "readings": [one.home.to_json(), one.away.to_json()],
             "gap": finite(one.gap),
             "gap_by_group": {group: finite(bits) for group, bits in gap(one.home, one.away).items()}}
            for one in measured
        ],
        "page": str(page),
    }  # fmt: skip


def _print_result(measured: list[Measured], originals: list[tuple[str, bytes]], page: Path) -> None:
    (home, first), (away, second) = originals
    print(f"The first {len(first):,} bytes of {home} and {len(second):,} of {away} that are held out of training.\n")
    titles = ("model", "text", "tokens", "ppl/token", "ppl/char", "bits/byte", "unknown")
    print_table(titles, [_row(one, i) for one in measured for i in (0, 1)], left=(0, 1))
    if any(one.label for one in measured):
        print(f"\n*: {NOT_COMPARABLE}. Preprocessing threw information away before scoring; the bits\n"
              "   are divided by the bytes as they were, but they no longer give those bytes back.")  # fmt: skip
    print(f"\nWhat a byte of {away} costs beyond one of {home}, and which words cause it:\n")
    rows = [
        (one.name, _signed(one.gap), *map(_signed, gap(one.home, one.away).values()))
        for one in measured
    ]  # fmt: skip
    print_table(("model", "gap", *GROUPS), rows)
    for name, data in originals:
        if marks := data.count(MARK):
            print(f"\n{name} holds {marks} literal <unk> marks where its makers removed a rare word; they are\n"
                  "scored as the five characters they are.")  # fmt: skip
    print("\nCompare models by bits per byte, never by the perplexity of a token.")
    print(f"The page with the figure and the words: {page}")


def _row(one: Measured, i: int) -> tuple[str, ...]:
    reading = (one.home, one.away)[i]
    star = "*" if one.label else " "
    unknown = f"{reading.unknown_rate:.1%}" if reading.unknown_rate is not None else ""
    return (
        one.name if i == 0 else "", reading.text, f"{reading.tokens:,}", perplexity(reading.token_perplexity),
        perplexity(reading.character_perplexity), f"{number(reading.bits_per_byte)}{star}", unknown,
    )  # fmt: skip


def _signed(bits: float) -> str:
    return f"{bits:+.3f}" if math.isfinite(bits) else "infinite"


def _command(
    runs: tuple[str, ...], texts: tuple[str, ...], bytes: int, steps: tuple[str, ...], out: str, budget: str, seed: int
) -> str:
    """What makes the page again."""
    words = ["octavo", "domains", *runs, "--texts", *texts, "--bytes", str(bytes)]
    words += [] if runs else ["--preprocess", *steps, "--budget", budget, "--seed", str(seed)]
    return shlex.join([*words, "--out", out])
