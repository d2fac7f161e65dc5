"""The page of a finished run, for every task: the task's own sections, how it was trained, how to reproduce it; and
what pages and tables say about any run.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from octavo import __version__
from octavo.core import LanguageModel
from octavo.io.files import thousands
from octavo.io.run_folder import TENSORS, TOKENIZER
from octavo.models import parameter_count, spec_of, stored_entries
from octavo.pages.figures.charts import Point, Series, lines
from octavo.pages.markup import NOTHING, join
from octavo.pages.sections import facts, paragraph, render_page, reproduce, section, table, verbatim, versions
from octavo.tasks.run import Run
from octavo.tasks.task import Recipe, Rows, Task, find_task
from octavo.tasks.trained_run import TrainedRun
from octavo.training.diagnosis import Training, examine_history


def title_of(run: Run) -> str:
    """What the model is, in a few words: 7-gram of bytes, Kneser-Ney."""
    tokens = run.tokenizer.unit
    spec = spec_of(run.model)
    return f"{spec.title} over {tokens}" if spec.summarise is None else spec.summarise(run.model, tokens)


def bits_per_byte(run: Run) -> float:
    """The held-out result: infinite where a token was impossible, nan where nothing was measured."""
    result = run.record.get("result") or {}
    value = result.get("bits_per_byte")
    if value is not None:
        return float(value)
    return math.inf if result.get("impossible") else math.nan


def number(bits: float) -> str:
    """Bits per byte with four places, infinity as a word."""
    return f"{bits:.4f}" if math.isfinite(bits) else "infinite" if math.isinf(bits) else "not measured"


def stored(model: LanguageModel[Any]) -> str:
    """How many parameters a model has, and what they are: n-grams, numbers."""
    parts = ", ".join(f"{thousands(count)} {name}" for name, count in sorted(stored_entries(model).items()) if count)
    return f"{thousands(parameter_count(model))} parameters: {parts}"


def bytes_on_disk(path: Path) -> int:
    """The files that using the model takes: its tensors and its tokenizer."""
    return sum((path / name).stat().st_size for name in (TENSORS, TOKENIZER))


def train_command(task: Task[Any, Any], recipe: Recipe, source: Sequence[str], out: str | Path) -> str:
    """octavo train with every setting that is not the usual one."""
    name = task.name if task.name == "facts" else recipe.model
    _, usual = task.configs(name)
    words = ["octavo", *task.train_verb.split(), name, *map(str, source)]
    said = ("tokenizer",) if task.name == "language" and hasattr(recipe.settings, "tokenizer") else ()
    words += [word for name in said for word in (f"--{name}", getattr(recipe.settings, name))]
    for key, config in usual.items():
        words += flags_of(getattr(recipe, key), usual=config, leave_out=said if key == "settings" else ())
    words += [*(["--seed", str(recipe.seed)] if recipe.seed else []), "--out", str(out)]
    return shlex.join(words)


def flags_of(config: Any, leave_out: Sequence[str] = (), usual: Any = None) -> list[str]:
    """The fields that differ from the usual config's, or from their defaults, as the command line spells them."""
    words: list[str] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value == (field.default if usual is None else getattr(usual, field.name)) or field.name in leave_out:
            continue
        name = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words


SHOWN_SAMPLES, SHOWN_EVENTS = 4, 20
SAMPLE_CHARACTERS = 160
SMOOTHED_POINTS = 60  # of the training curve, each the mean of its neighbours
MIN_LOG_POINTS = 10  # from which on the steps are on a logarithmic axis
SHARES = {  # measures of validation that are shares of one
    "accuracy": "accuracy", "right": "token accuracy", "exact_match": "exact match", "words_accuracy": "masked words",
    "next_accuracy": "next sentence", "order_accuracy": "sentence order", "replaced_balanced": "replaced words",
}  # fmt: skip
CHUNKS = (
    " The validation chunks are spread over the training part and are never trained on; the result is that of the text "
    "measured in the end."
)
AT_THE_END = (
    " First the end of the training part was held out, to find the number of steps after which the loss stops falling; "
    "then the model was trained again from the start on all of it, for that many."
)


class PageContent(NamedTuple):
    """What a task's page shows besides what all of them do."""

    title: str
    lead: str
    sections: Sequence[Any]
    about: Sequence[Any] = ()
    """Sections below that of training: the model, the data."""
    commands: Sequence[Sequence[str]] = ()
    """Words of the commands to go on with."""
    files: Mapping[str, str] = {}
    """What else the folder holds, by name."""


def render_run_page(recipe: Recipe | None, run: TrainedRun, content: PageContent, rows: Rows, out: Path) -> str:
    """The page of a run that is saved at `out`; one that was trained elsewhere has no recipe."""
    task, record, commands = find_task(run.task), run.record, [shlex.join(words) for words in content.commands]
    if recipe is not None:
        commands.insert(0, train_command(task, recipe, record[task.data_key]["source"], out))
    made = {"octavo": __version__, **record.get("made_with", {}), "seed": record.get("seed", 0)}
    if "train_seconds" in record:
        read = [f"{record[f'train_{unit}']:,} {unit}" for unit in ("tokens", "examples") if f"train_{unit}" in record]
        made["training"] = ", ".join([f"{record['train_seconds']:.2f} s", *read])
    history = join(training_section(rows, record), health_section(run, rows, out))
    sections = [*content.sections, history, *content.about, reproduce(commands, versions(made))]
    return render_page(content.title, content.lead, sections)


def training_section(rows: Rows, record: Mapping[str, Any]) -> Markup:
    """The whole section; empty where nothing was trained step by step."""
    stages = record.get("training", {}).get("stages", [])
    captions = [f"{str(one['name']).capitalize()}: {one['steps']:,} steps in {one['seconds']:.0f} s." for one in stages]
    of_stages = [[row for row in rows if row.get("stage") == one["name"]] for one in stages]
    figures = [loss_curve(some, record, caption) for some, caption in zip(of_stages, captions, strict=True)]
    figure = join(*figures) if len(figures) > 1 else loss_curve(rows, record)
    if not figure:
        return NOTHING
    return section("Training", figure, _measures(rows), facts(_facts(record)), _events(rows), _samples(rows))


def health_section(run: TrainedRun, rows: Rows, out: Path) -> Markup:
    """What the history of training shows, in the words of `octavo doctor`; empty where nothing was trained."""
    if Training.of(run) is None or not rows:
        return NOTHING
    notable = [one for one in examine_history(run, rows, str(out)) if one.verdict in ("warning", "note")]
    described = [(f"{one.verdict}: {one.condition}", one.why) for one in notable]
    lead = "What the loss and the gradients did during training:" if described else "The course of training was normal."
    more = paragraph(f"octavo doctor {out} examines the model and the text, too.", quiet=True)
    return section("Health of the training", paragraph(lead), facts(described), more)


def loss_curve(rows: Rows, record: Mapping[str, Any], caption: str = "The loss over the steps.") -> Markup:
    """Bits per byte over the steps, of the training text and of the validation chunks; else the loss in nats."""
    in_bits = any("bits_per_byte" in row and "step" in row for row in rows)
    unit, key = ("bits per byte", "bits_per_byte") if in_bits else ("loss, nats", "loss")
    points = _points(rows, key)
    # Up to where the steps begin again: a bigram is trained twice.
    restart = next((i for i in range(1, len(points)) if points[i][0] <= points[i - 1][0]), len(points))
    first, second = points[:restart], points[restart:]
    validation = _points(rows, "held_out_bits_per_byte" if in_bits else "held_out")
    curves = [
        Series("training", _smooth(first)), Series("validation", validation),
        Series("second training, on all of it", _smooth(second)),
    ]  # fmt: skip
    result = record.get("result", {}).get("bits_per_byte")
    references = [("result", float(result))] if in_bits and result is not None else []
    caption += CHUNKS if in_bits else AT_THE_END if validation else ""
    drawn = [curve for curve in curves if curve.points]
    log_x = len(first) > MIN_LOG_POINTS
    return lines(drawn, caption, ("step", unit), log_x=log_x, references=references, cut_peaks=True)


def _measures(rows: Rows) -> Markup:
    """What was measured on held-out examples during training, in per cent."""
    found = {title: [(x, 100 * y) for x, y in _points(rows, key)] for key, title in SHARES.items()}
    series = [Series(title, points) for title, points in found.items() if points]
    return lines(series, "On held-out examples, over the steps.", ("step", "%"))


def _points(rows: Rows, key: str) -> list[Point]:
    return [
        (float(row["step"]), float(row[key]))
        for row in rows
        if isinstance(row.get("step"), int) and isinstance(row.get(key), int | float) and "event" not in row
    ]


def _smooth(points: Sequence[Point]) -> list[Point]:
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
    unit = "tokens" if "train_tokens" in record else "examples"
    count, seconds = record.get(f"train_{unit}", 0), max(record.get("train_seconds", 0.0), 1e-9)
    steps, epoch = training.get("steps", 0), max(1, training.get("steps_per_epoch", 1))
    streams = f"{training.get('streams', 0):,} parallel streams of {training.get('sequence_length', 0):,} tokens"
    return [
        ("steps", f"{steps:,}, {steps / epoch:.1f} epochs, in {seconds:.0f} s"),
        *([("batch", streams)] if "streams" in training else []),
        ("speed", f"{count / seconds:,.0f} {unit} per second, in {training.get('precision')}"),
        ("processes", str(training.get("processes", 1))),
        *([("validation", f"{held:,} tokens, never trained on")] if (held := training.get("held_tokens")) else []),
        ("stopped because", str(training.get("why", "not yet"))),
    ]  # fmt: skip


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
