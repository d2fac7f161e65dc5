"""How a model was trained, on its page: the loss curve, what happened on the way, and samples along it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from octavo.pages.figures.lines import Series, lines
from octavo.pages.markup import NOTHING, join
from octavo.pages.sections import facts, paragraph, section, table, verbatim

Rows = Sequence[Mapping[str, Any]]

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
