"""The page of one run: what it is, what it scores and how that was counted, what surprises it, what it writes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo import __version__
from octavo.models import spec_of
from octavo.models.views import Bars, Table
from octavo.pages.figures.bars import bars
from octavo.pages.frame import definitions, document, paragraph, section, shown, table, verbatim
from octavo.pages.surprisal import coloured, legend
from octavo.tasks.count_training import SAMPLE_TOKENS, Page, TextConfig
from octavo.tasks.reproduce import train_command
from octavo.tasks.run import Run
from octavo.tasks.run_facts import bits_per_byte, number, stored, title_of
from octavo.tasks.surprisal import opening, pieces
from octavo.tasks.training_section import training_section
from octavo.text.token_display import display_token

NEWLINE = "\n"
LIKELIEST = 12  # tokens of a bag that are drawn

WHAT_IS_CHARGED = (
    "Every token is charged the bits that the model's probability says it costs, −log₂ p, the first token "
    "included. The sum is divided by the length of the raw text, so models with different tokens can be compared. "
    "The held-out text has chosen nothing: it was only read to be measured."
)


def page_maker(
    model: str,
    source: Any,
    text: TextConfig,
    config: Any,
    out: str | Path,
    seed: int,
    parts: Sequence[str | Path] = (),
    *how: Any,
) -> Page:
    """What training calls with the run, the held-out text, a sample and the metrics to get the page."""
    commands = [
        train_command(model, source, text, config, out, seed, parts, *how),
        shlex.join(["octavo", "eval", str(out), "--prove"]),
        shlex.join(["octavo", "generate", str(out), "--max-tokens", str(SAMPLE_TOKENS), "--seed", str(seed)]),
    ]  # fmt: skip
    return lambda run, valid, sample, rows: run_page(run, Path(out).name, opening(valid), sample, commands, rows)


def run_page(
    run: Run, name: str, held_out: bytes, sample: str, commands: Sequence[str], rows: Sequence[Mapping[str, Any]] = ()
) -> str:  # fmt: skip
    """The whole page; `held_out` is the beginning of the text that the run was measured on."""
    corpus = run.record.get("corpus", {})
    lead = paragraph(f"The run {name}, trained on {corpus.get('name', 'an unknown text')}.")
    return document(title_of(run), lead, [
        _result(run.record.get("result", {}), bits_per_byte(run)),
        _surprise(run, held_out),
        _passages(run.record.get("result", {}).get("passages", [])),
        section("What it writes", paragraph(f"From nothing, with seed {run.record.get('seed', 0)}:"), verbatim(sample)),
        training_section(rows, run.record),
        _inside(run),
        _corpus(corpus),
        _reproduce(run.record, commands),
    ])  # fmt: skip


def _result(result: dict[str, Any], bits: float) -> str:
    unit = "" if math.isnan(bits) else " <small>bits per byte of held-out text; 8 is the text as it is</small>"
    parts = [f'<p class="number">{number(bits)}{unit}</p>']
    if result.get("label"):
        parts.append(paragraph(f"This figure is {result['label']}: information was lost before scoring."))
    if result.get("impossible"):
        parts.append(paragraph(
            f"{result['impossible']:,} of {result['tokens']:,} held-out tokens have probability zero, and one is "
            "enough to make the sum infinite. That is what smoothing is for."
        ))  # fmt: skip
    told = [("charged", f"{result['tokens']:,} tokens"), ("divided by", f"{result['bytes']:,} bytes")]
    if result.get("bits") is not None:
        told.insert(0, ("paid", f"{result['bits']:,.0f} bits, the size of a file of {result['bits'] / 8:,.0f} bytes"))
        told.append(("perplexity", f"{result['perplexity']:.4g} a token ({result['bits_per_token']:.4f} bits)"))
    if result.get("unknown_rate") is not None:
        told.append(("unknown words", f"{result['unknown_rate']:.2%}, spelt out in bytes and paid for"))
    told.append(("context", result["policy"]))
    return section("Bits per byte", *parts, definitions(told), paragraph(WHAT_IS_CHARGED, "quiet"))


def _surprise(run: Run, held_out: bytes) -> str:
    explained = (
        f"The first {len(held_out):,} bytes of the held-out text. The colour is what the model paid for each token, in "
        "bits per byte; point at a token to read the figure."
    )
    return section(
        "What surprises it", paragraph(explained), legend(), coloured(pieces(run.model, run.tokenizer, held_out))
    )


def _passages(passages: Sequence[dict[str, Any]]) -> str:
    if not passages:
        return ""
    rows = [
        (number(math.inf if p["bits_per_byte"] is None else p["bits_per_byte"]), f"{p['offset']:,}",
         f"<code>{shown(p['text'].replace(NEWLINE, '↵'))}</code>")
        for p in passages
    ]  # fmt: skip
    return section("The most surprising passages", table(("bits/byte", "at byte", "text"), rows, right=(0, 1)))


def _inside(run: Run) -> str:
    details = spec_of(run.model).details
    found = details(run.model, lambda token: display_token(run.tokenizer, token)) if details is not None else None
    match found:
        case Bars(caption, rows, digits):
            figure = bars(rows, caption, digits=digits)
        case Table("", (), rows):
            figure = definitions([(name, value) for name, value in rows])
        case Table(caption, titles, rows):
            columns = table(
                tuple(map(shown, titles)), [tuple(map(shown, row)) for row in rows], right=range(len(titles))
            )
            figure = paragraph(caption) + columns
        case _:
            figure = ""
    return section("Inside", paragraph(f"It is made of {stored(run.model)}."), figure)


def _corpus(corpus: dict[str, Any]) -> str:
    told = [("name", corpus.get("name", "unknown"))]
    for part, name in (("train", "learnt from"), ("valid", "measured on")):
        if part in corpus:
            size, documents = corpus[part]["bytes"], corpus[part]["documents"]
            told.append((name, f"{size:,} bytes in {documents:,} {'document' if documents == 1 else 'documents'}"))
            told.append(("its sha256", corpus[part]["sha256"]))
    if corpus.get("preprocess"):
        told.append(("changed first", ", ".join(corpus["preprocess"])))
    return section("The text", definitions(told))


def _reproduce(record: dict[str, Any], commands: Sequence[str]) -> str:
    made = {"octavo": __version__, **record.get("made_with", {})}
    told = [*made.items(), ("seed", str(record.get("seed", 0)))]
    if "train_seconds" in record:
        told.append(("training", f"{record['train_seconds']:.2f} s, {record['train_tokens']:,} tokens"))
    return section("Make it again", verbatim("\n".join(commands)), definitions([(k, str(v)) for k, v in told]))
