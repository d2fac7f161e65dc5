"""The page of a language model: its score and how it was counted, its surprisal, samples, training and parts."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from octavo import __version__
from octavo.models import spec_of
from octavo.models.views import Bars, Table
from octavo.pages.figures.bars import bars
from octavo.pages.markup import NOTHING, join
from octavo.pages.sections import code, facts, paragraph, render_page, reproduce, score, section, table, verbatim
from octavo.pages.surprisal import annotated_text, surprisal_legend
from octavo.tasks.corpus import SAMPLE_TOKENS
from octavo.tasks.reproduce import train_command
from octavo.tasks.run import Run
from octavo.tasks.run_facts import bits_per_byte, number, stored, title_of
from octavo.tasks.surprisal import annotate, opening
from octavo.tasks.task import Recipe, Rows, find_task
from octavo.tasks.training_section import training_section
from octavo.text import Split
from octavo.text.token_display import display_token

HOW_COUNTED = (
    "Every token costs the bits that the model's probability says, −log₂ p, the first token included. The sum is "
    "divided by the length of the raw text, so models with different tokens can be compared. The held-out text was "
    "used for nothing but this measurement."
)


def language_page(recipe: Recipe, run: Run, valid: Split, sample: str, rows: Rows, out: Path) -> str:
    """The page of a run that is saved."""
    commands = [
        train_command(find_task("language"), recipe, run.record["corpus"]["source"], out),
        shlex.join(["octavo", "eval", str(out), "--prove"]),
        shlex.join(["octavo", "generate", str(out), "--max-tokens", str(SAMPLE_TOKENS), "--seed", str(recipe.seed)]),
    ]  # fmt: skip
    return run_page(run, out.name, opening(valid), sample, commands, rows)


def run_page(
    run: Run, name: str, held_out: bytes, sample: str, commands: Sequence[str], rows: Sequence[Mapping[str, Any]] = ()
) -> str:  # fmt: skip
    """The whole page; `held_out` is the beginning of the text that the run was measured on."""
    corpus = run.record.get("corpus", {})
    result = run.record.get("result", {})
    return render_page(title_of(run), f"The run {name}, trained on {corpus.get('name', 'an unknown text')}.", [
        _result(result, bits_per_byte(run)),
        _surprisal(run, held_out),
        _passages(result.get("passages", [])),
        section("Sample", paragraph(f"Generated without a prompt, with seed {run.record.get('seed', 0)}:"),
                verbatim(sample)),
        training_section(rows, run.record),
        _model(run),
        _corpus(corpus),
        reproduce(commands, facts(_made_with(run.record))),
    ])  # fmt: skip


def _result(result: Mapping[str, Any], bits: float) -> Markup:
    unit = "" if math.isnan(bits) else "bits per byte of held-out text; uncompressed text has 8"
    parts = [score(number(bits), unit)]
    if result.get("label"):
        parts.append(paragraph(f"This result is {result['label']}: information was lost before scoring."))
    if result.get("impossible"):
        parts.append(paragraph(
            f"{result['impossible']:,} of {result['tokens']:,} held-out tokens have probability zero, and one is "
            "enough to make the sum infinite. That is what smoothing is for."
        ))  # fmt: skip
    pairs = [("tokens", f"{result['tokens']:,}"), ("held-out text", f"{result['bytes']:,} bytes")]
    if result.get("bits") is not None:
        total = f"{result['bits']:,.0f} bits, the size of a file of {result['bits'] / 8:,.0f} bytes"
        perplexity = f"{result['perplexity']:.4g} per token ({result['bits_per_token']:.4f} bits)"
        pairs = [("total cost", total), *pairs, ("perplexity", perplexity)]
    if result.get("unknown_rate") is not None:
        pairs.append(("unknown words", f"{result['unknown_rate']:.2%}, spelt out in bytes, which are counted"))
    pairs.append(("context", result["policy"]))
    return section("Bits per byte", *parts, facts(pairs), paragraph(HOW_COUNTED, quiet=True))


def _surprisal(run: Run, held_out: bytes) -> Markup:
    explained = (
        f"The first {len(held_out):,} bytes of the held-out text. The colour is the cost of each token, in bits per "
        "byte; point at a token to read it."
    )
    pieces = annotate(run.model, run.tokenizer, held_out)
    return section("Surprisal", paragraph(explained), surprisal_legend(), annotated_text(pieces))


def _passages(passages: Sequence[Mapping[str, Any]]) -> Markup:
    if not passages:
        return NOTHING
    rows = [
        (number(math.inf if p["bits_per_byte"] is None else p["bits_per_byte"]), f"{p['offset']:,}",
         code(p["text"].replace("\n", "↵")))
        for p in passages
    ]  # fmt: skip
    return section("The most surprising passages", table(("bits/byte", "at byte", "text"), rows, numeric=(0, 1)))


def _model(run: Run) -> Markup:
    details = spec_of(run.model).details
    found = details(run.model, lambda token: display_token(run.tokenizer, token)) if details is not None else None
    match found:
        case Bars(caption, rows, digits):
            figure = bars(rows, caption, digits=digits)
        case Table("", (), rows):
            figure = facts((name, value) for name, value in rows)
        case Table(caption, titles, rows):
            figure = join(paragraph(caption), table(titles, rows, numeric=range(len(titles))))
        case _:
            figure = NOTHING
    return section("Model", paragraph(f"It stores {stored(run.model)}."), figure)


def _corpus(corpus: Mapping[str, Any]) -> Markup:
    pairs = [("name", corpus.get("name", "unknown"))]
    for part, name in (("train", "training text"), ("valid", "held-out text")):
        if part in corpus:
            size, documents = corpus[part]["bytes"], corpus[part]["documents"]
            pairs.append((name, f"{size:,} bytes in {documents:,} {'document' if documents == 1 else 'documents'}"))
            pairs.append(("its sha256", corpus[part]["sha256"]))
    if corpus.get("preprocess"):
        pairs.append(("preprocessing", ", ".join(corpus["preprocess"])))
    return section("Text", facts(pairs))


def _made_with(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    made = {"octavo": __version__, **record.get("made_with", {}), "seed": record.get("seed", 0)}
    if "train_seconds" in record:
        made["training"] = f"{record['train_seconds']:.2f} s, {record['train_tokens']:,} tokens"
    return [(name, str(value)) for name, value in made.items()]
