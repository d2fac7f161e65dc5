"""How a model was trained, on its page: the loss curve, what happened on the way, what it wrote meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.pages.figures.lines import Series, lines
from octavo.pages.frame import definitions, paragraph, section, shown, table, verbatim

Rows = Sequence[Mapping[str, Any]]

SHOWN_SAMPLES = 4
SAMPLE = 160  # characters of each
IN_PIECES = (
    " The pieces held out are spread over the training part and are never learnt from; the result is that of the text "
    "measured in the end."
)
AT_THE_END = (
    " First the end of the training part was held out, to find after how many steps nothing better comes; then all of "
    "it was learnt from, anew, for as many."
)
SMOOTHED = 60  # points of the training curve, each the mean of its neighbours


def training_section(rows: Rows, record: Mapping[str, Any]) -> str:
    """The whole section; empty where nothing was learnt step by step."""
    figure = loss_figure(rows, record)
    if not figure:
        return ""
    told = record.get("training", {})
    return section("How it learnt", figure, definitions(_facts(told, record)), _events(rows), _samples(rows))


def loss_figure(rows: Rows, record: Mapping[str, Any]) -> str:
    """Bits per byte over the steps: of the windows learnt from, and of the pieces held out; a bigram's loss in nats."""
    in_bits = any("bits_per_byte" in row and "step" in row for row in rows)
    unit, key = ("bits per byte", "bits_per_byte") if in_bits else ("nats a token", "loss")
    learnt, again = _passes(_points(rows, key))
    held = _points(rows, "held_out_bits_per_byte" if in_bits else "held_out")
    curves = [
        Series("text it learns from", _smooth(learnt)), Series("pieces held out" if in_bits else "end held out", held),
        Series("again, from all of it", _smooth(again)),
    ]  # fmt: skip
    result = record.get("result", {}).get("bits_per_byte")
    references = [("the result", float(result))] if in_bits and result is not None else []
    caption = "The loss over the steps." + (IN_PIECES if in_bits else AT_THE_END if held else "")
    drawn = [curve for curve in curves if curve.points]
    return lines(drawn, caption, ("step", unit), log_x=len(learnt) > 10, references=references) if drawn else ""


def _points(rows: Rows, key: str) -> list[tuple[float, float]]:
    return [
        (float(row["step"]), float(row[key]))
        for row in rows
        if isinstance(row.get("step"), int) and isinstance(row.get(key), int | float) and "event" not in row
    ]


def _passes(points: list[tuple[float, float]]) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The points up to where the steps begin anew, and the rest: a bigram is trained twice."""
    turn = next((i for i in range(1, len(points)) if points[i][0] <= points[i - 1][0]), len(points))
    return points[:turn], points[turn:]


def _smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Means over stretches that grow with the step, as a logarithmic axis shows them."""
    if len(points) <= SMOOTHED:
        return list(points)
    edges = sorted({round(math.exp(math.log(len(points)) * i / SMOOTHED)) for i in range(SMOOTHED + 1)})
    stretches = [points[low:high] for low, high in zip([0, *edges[:-1]], edges, strict=True)]
    return [
        (sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in stretches if part
    ]  # fmt: skip


def _facts(told: Mapping[str, Any], record: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not told:
        return []
    tokens, seconds = record.get("train_tokens", 0), max(record.get("train_seconds", 0.0), 1e-9)
    steps, epoch = told.get("steps", 0), max(1, told.get("steps_per_epoch", 1))
    return [
        ("steps", f"{steps:,}, {steps / epoch:.1f} times through the text"),
        ("a step", f"{told.get('lanes', 0):,} lanes of {told.get('window', 0):,} tokens"),
        ("speed", f"{tokens / seconds:,.0f} tokens a second, in {told.get('precision')}"),
        ("processes", str(told.get("processes", 1))),
        ("held out", f"{told.get('held_tokens', 0):,} tokens, never learnt from"),
        ("it ended", str(told.get("why", "not yet"))),
    ]


def _events(rows: Rows) -> str:
    events = [row for row in rows if "event" in row and isinstance(row.get("step"), int)]
    if not events:
        return ""
    cells = [(f"{row['step']:,}", shown(str(row["event"])), shown(str(row.get("why", "")))) for row in events[:20]]
    more = [paragraph(f"and {len(events) - 20} more")] if len(events) > 20 else []
    return "\n".join(
        [paragraph("What went wrong on the way:"), table(("step", "what", "why"), cells, right=(0,)), *more]
    )


def _samples(rows: Rows) -> str:
    """What it wrote at a few checks, the first and the last among them."""
    written = [row for row in rows if row.get("sample") and isinstance(row.get("step"), int)]
    if len(written) < 2:
        return ""
    places = sorted({round(i * (len(written) - 1) / (SHOWN_SAMPLES - 1)) for i in range(SHOWN_SAMPLES)})
    parts = [paragraph("What it wrote on the way, always from the same random numbers:")]
    for row in (written[place] for place in places):
        parts += [paragraph(f"after step {row['step']:,}", "quiet"), verbatim(str(row["sample"])[:SAMPLE])]
    return "\n".join(parts)
