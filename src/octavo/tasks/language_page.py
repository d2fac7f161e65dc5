"""The page of a language model: its score and how it was counted, its surprisal, samples, training and parts."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from octavo import __version__
from octavo.core import LanguageModel
from octavo.models import spec_of
from octavo.models.views import Bars, Table
from octavo.pages.figures.charts import Series, bars, lines
from octavo.pages.markup import NOTHING, join
from octavo.pages.sections import (
    code,
    facts,
    paragraph,
    render_page,
    reproduce,
    score,
    section,
    table,
    verbatim,
    versions,
)
from octavo.pages.surprisal import Piece, annotated_text, surprisal_legend, whole_characters
from octavo.scoring.token_costs import token_costs
from octavo.tasks.corpus import SAMPLE_TOKENS
from octavo.tasks.run import Run
from octavo.tasks.run_facts import bits_per_byte, number, stored, title_of, train_command
from octavo.tasks.task import Recipe, Rows, find_task
from octavo.text import Split
from octavo.text.token_display import display_token
from octavo.text.tokenizers.base import Tokenizer

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
    run: Run, name: str, held_out: bytes, sample: str, commands: Sequence[str], rows: Rows = ()
) -> str:  # fmt: skip
    """The whole page; `held_out` is the beginning of the text that the run was measured on."""
    corpus = run.record.get("corpus", {})
    result, seed = run.record.get("result", {}), run.record.get("seed", 0)
    made = {"octavo": __version__, **run.record.get("made_with", {}), "seed": seed}
    if "train_seconds" in run.record:
        made["training"] = f"{run.record['train_seconds']:.2f} s, {run.record['train_tokens']:,} tokens"
    return render_page(title_of(run), f"The run {name}, trained on {corpus.get('name', 'an unknown text')}.", [
        _result(result, bits_per_byte(run)),
        _surprisal(run, held_out),
        _passages(result.get("passages", [])),
        section("Sample", paragraph(f"Generated without a prompt, with seed {seed}:"), verbatim(sample)),
        training_section(rows, run.record),
        _model(run),
        _corpus(corpus),
        reproduce(commands, versions(made)),
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


OPENING_BYTES = 600


def opening(split: Split, limit: int = OPENING_BYTES) -> bytes:
    """The first bytes of the first document, up to the end of a line, a word or at least a character."""
    first = next(split.chunks(), None)
    if first is None:
        return b""
    later = first.starts[first.starts > 0]
    data = first.data[: int(later[0]) if len(later) else None]
    return data[: readable_end(data, limit)]


def readable_end(data: bytes, limit: int) -> int:
    """Where to end a text of at most so many bytes: after a line, a word or at least a character."""
    if len(data) <= limit:
        return len(data)
    ends = (data.rfind(separator, limit // 2, limit) + 1 for separator in (b"\n", b" "))
    return next(filter(None, ends), character_start(data, limit))


def character_start(data: bytes, at: int) -> int:
    """The same place, or a little before it where it lies inside a character."""
    for start in range(at, max(at - 4, -1), -1):
        if start >= len(data) or data[start] & 0xC0 != 0x80:
            return start
    return at  # not UTF-8


def annotate(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Piece]:
    """The text in pieces that are whole characters, each with its cost in bits; the first follows the begin token."""
    return whole_characters(
        (tokenizer.token_bytes(token), cost)
        for tokens_W, bits_W in token_costs(model, [tokenizer.encode(data)])
        for token, cost in zip(tokens_W.tolist(), bits_W.tolist(), strict=True)
    )


SHOWN_SAMPLES, SHOWN_EVENTS = 4, 20
SAMPLE_CHARACTERS = 160
SMOOTHED_POINTS = 60  # of the training curve, each the mean of its neighbours
MIN_LOG_POINTS = 10  # from which on the steps are on a logarithmic axis
CHUNKS = (
    " The validation chunks are spread over the training part and are never trained on; the result is that of the text "
    "measured in the end."
)
AT_THE_END = (
    " First the end of the training part was held out, to find the number of steps after which the loss stops falling; "
    "then the model was trained again from the start on all of it, for that many."
)


def training_section(rows: Rows, record: Mapping[str, Any]) -> Markup:
    """The whole section; empty where nothing was trained step by step."""
    figure = loss_curve(rows, record)
    if not figure:
        return NOTHING
    return section("Training", figure, facts(_facts(record)), _events(rows), _samples(rows))


def loss_curve(rows: Rows, record: Mapping[str, Any]) -> Markup:
    """Bits per byte over the steps, of the training text and of the validation chunks; a bigram's loss in nats."""
    in_bits = any("bits_per_byte" in row and "step" in row for row in rows)
    unit, key = ("bits per byte", "bits_per_byte") if in_bits else ("nats per token", "loss")
    first, second = _passes(_points(rows, key))
    validation = _points(rows, "held_out_bits_per_byte" if in_bits else "held_out")
    curves = [
        Series("training", _smooth(first)), Series("validation", validation),
        Series("second training, on all of it", _smooth(second)),
    ]  # fmt: skip
    result = record.get("result", {}).get("bits_per_byte")
    references = [("result", float(result))] if in_bits and result is not None else []
    caption = "The loss over the steps." + (CHUNKS if in_bits else AT_THE_END if validation else "")
    drawn = [curve for curve in curves if curve.points]
    return lines(drawn, caption, ("step", unit), log_x=len(first) > MIN_LOG_POINTS, references=references)


def _points(rows: Rows, key: str) -> list[tuple[float, float]]:
    return [
        (float(row["step"]), float(row[key]))
        for row in rows
        if isinstance(row.get("step"), int) and isinstance(row.get(key), int | float) and "event" not in row
    ]


def _passes(points: list[tuple[float, float]]) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The points up to where the steps begin again, and the rest: a bigram is trained twice."""
    restart = next((i for i in range(1, len(points)) if points[i][0] <= points[i - 1][0]), len(points))
    return points[:restart], points[restart:]


def _smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Means over stretches that grow with the step, as a logarithmic axis shows them."""
    if len(points) <= SMOOTHED_POINTS:
        return list(points)
    edges = sorted({round(math.exp(math.log(len(points)) * i / SMOOTHED_POINTS)) for i in range(SMOOTHED_POINTS + 1)})
    stretches = [points[low:high] for low, high in zip([0, *edges[:-1]], edges, strict=True)]
    return [
        (sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in stretches if part
    ]  # fmt: skip


def _facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    training = record.get("training", {})
    if not training:
        return []
    tokens, seconds = record.get("train_tokens", 0), max(record.get("train_seconds", 0.0), 1e-9)
    steps, epoch = training.get("steps", 0), max(1, training.get("steps_per_epoch", 1))
    return [
        ("steps", f"{steps:,}, {steps / epoch:.1f} epochs"),
        ("batch", f"{training.get('streams', 0):,} parallel streams of {training.get('sequence_length', 0):,} tokens"),
        ("speed", f"{tokens / seconds:,.0f} tokens per second, in {training.get('precision')}"),
        ("processes", str(training.get("processes", 1))),
        ("validation", f"{training.get('held_tokens', 0):,} tokens, never trained on"),
        ("stopped because", str(training.get("why", "not yet"))),
    ]


def _events(rows: Rows) -> Markup:
    events = [row for row in rows if "event" in row and isinstance(row.get("step"), int)]
    if not events:
        return NOTHING
    cells = [(f"{row['step']:,}", str(row["event"]), str(row.get("why", ""))) for row in events[:SHOWN_EVENTS]]
    more = f"and {len(events) - SHOWN_EVENTS} more" if len(events) > SHOWN_EVENTS else ""
    events_table = table(("step", "event", "reason"), cells, numeric=(0,))
    return join(paragraph("Events:"), events_table, paragraph(more) if more else "")


def _samples(rows: Rows) -> Markup:
    """What it wrote at a few evaluations, the first and the last among them."""
    written = [row for row in rows if row.get("sample") and isinstance(row.get("step"), int)]
    if len(written) < 2:
        return NOTHING
    places = sorted({round(i * (len(written) - 1) / (SHOWN_SAMPLES - 1)) for i in range(SHOWN_SAMPLES)})
    parts = [paragraph("Samples during training, always with the same seed:")]
    for row in (written[place] for place in places):
        sample = verbatim(str(row["sample"])[:SAMPLE_CHARACTERS])
        parts += [paragraph(f"after step {row['step']:,}", quiet=True), sample]
    return join(*parts)
