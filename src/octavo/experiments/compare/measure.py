"""The work of a comparison's cells: train a model or resume it, score it, let it generate, and write its page.

N bytes of held-out text.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.config import plain_json
from octavo.datasets.sources import MODEL_SOURCES, fetch_model
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json, describe_part, open_texts, train_or_resume
from octavo.experiments.compare.cost import generate_sample, peak_memory, training_flops
from octavo.experiments.compare.intervals import block_bits, block_interval
from octavo.experiments.compare.rows import CompareRow
from octavo.experiments.runner import file_digest
from octavo.io.files import whole_file, write_text
from octavo.io.run_folder import METRICS, REPORT, SAMPLES, read_record, write_record
from octavo.models import parameter_count
from octavo.scoring.bits_per_byte import Score, score_bytes
from octavo.tasks.corpus import learnt_text
from octavo.tasks.device import move, pick_device
from octavo.tasks.language import TASK
from octavo.tasks.language_page import content_of, opening
from octavo.tasks.mixture import PROBED
from octavo.tasks.run import Run, load
from octavo.tasks.run_page import bytes_on_disk, render_run_page
from octavo.text import Split, fingerprint
from octavo.text.overlap import MAX_OVERLAP, overlap
from octavo.training.metrics_log import read_rows

BYTE_COSTS = "byte_costs"  # a folder of .npy files
HELD_OUT = "held-out text"

Stages = defaultdict[str, float]  # seconds of each stage


@contextmanager
def timed(stages: Stages, stage: str) -> Iterator[None]:
    """Count the seconds within to a stage."""
    began = perf_counter()
    yield
    stages[stage] += perf_counter() - began


def measure_candidate(cell: Cell, folder: Path) -> Json:
    """Train a candidate, or resume it, and measure it."""
    train, held_out = open_texts(cell.data)
    stages, path = Stages(float), folder / cell.key
    device = pick_device(cell.settings.get("device", "auto") if cell.budget else cell.options.get("device", "cpu"))
    parts = {"parts": [str(folder / part) for part in cell.settings["parts"]]} if "parts" in cell.settings else {}
    text = {key: cell.data[key] for key in ("valid", "field", "encoding") if key in cell.data}
    with timed(stages, "training"), peak_memory(device) as peak:
        run = train_or_resume(cell, folder, cell.data["sources"], **text, **parts)
    row, score, bits_K, sample = _measure(cell, run, folder, held_out, device, stages)
    with timed(stages, "page"):
        metrics = read_rows((path / METRICS).read_bytes())
        _complete(cell, parts or cell.settings | text, run, path, held_out, sample, metrics)
    flops = training_flops(run, metrics, train)
    row = replace(row, flops=flops, memory=peak.bytes, bytes=_size_on_disk(path))
    return _value(row, score, bits_K, run, stages, folder) | {"files": cell.run_files}


def measure_pretrained(cell: Cell, folder: Path) -> Json:
    """Measure a model that was trained elsewhere; it stays as it is, its page goes into the comparison's folder."""
    _, held_out = open_texts(cell.data)
    path, run = load_pretrained(cell.model)
    try:
        known = overlap(learnt_text(run).chunks(), held_out.read()[:PROBED])
    except UserError:  # its training text is not available
        known = 0.0
    if known >= MAX_OVERLAP:
        raise UserError(f"{known:.0%} of the held-out text stands in the training text of {cell.key}; leave it out")
    stages = Stages(float)
    row, score, bits_K, sample = _measure(cell, run, folder, held_out, pick_device(cell.options["device"]), stages)
    with timed(stages, "page"):
        shown = content_of(run, cell.key, opening(held_out), sample, path)
        write_text(folder / cell.key / SAMPLES, sample)
        write_text(folder / cell.key / REPORT, render_run_page(None, run, shown, (), path))
    title = f"pretrained: {run.summary().split(', on ')[0]}" + (f", {score.label}" if score.label else "")
    return _value(replace(row, title=title, bytes=_size_on_disk(path)), score, bits_K, run, stages, folder)


def load_pretrained(name: str) -> tuple[Path, Run]:
    """A run's folder, a file or folder of another format, or a named source."""
    given = Path(name)
    path = fetch_model(name) if name in MODEL_SOURCES and not given.exists() else given
    return path, load(path)


def _measure(
    cell: Cell, run: Run, folder: Path, held_out: Split, device: torch.device, stages: Stages
) -> tuple[CompareRow, Score, list[float], str]:
    """Score the held-out text, also block by block, and generate a sample."""
    move(run, device)
    costs = f"{BYTE_COSTS}/{cell.key}.npy"
    with timed(stages, "scoring"):
        score, bits_N = score_run(run, held_out, HELD_OUT)
        with whole_file(folder / costs) as file:
            np.save(file, bits_N.astype(np.float16))
        interval, over = block_interval(bits_N)
    with timed(stages, "generation"):
        sample, rate = generate_sample(run, cell.options["seed"])
    run.model.cpu()
    score.label = "; ".join(filter(None, (run.label(), describe_part(cell.data))))
    run.record["result"] = score.to_json()
    low, high = interval or (None, None)
    row = CompareRow(
        cell.key, cell.options["title"], cell.options["family"], score.bits_per_byte, adaptive=run.model.adaptive,
        low=low, high=high, interval=over, seconds=run.record.get("train_seconds"),
        parameters=parameter_count(run.model), score_rate=score.tokens / max(1e-9, score.seconds),
        generation_rate=rate, run=cell.key, byte_costs=costs,
        policy=score.policy, context=run.model.receptive_field, impossible=score.impossible,
        tokenizer=run.tokenizer.name, variant_of=cell.options.get("variant_of", ""),
        chosen=cell.options.get("chosen", ""),
    )  # fmt: skip
    return row, score, block_bits(bits_N), sample


def _value(
    row: CompareRow, score: Score, bits_K: list[float], run: Run, stages: Stages, folder: Path
) -> Json:  # fmt: skip
    """What is stored of a run: its row, what a mixture's parts are chosen by, and what its archive must come to."""
    assert row.byte_costs is not None
    return {
        "hashes": {row.byte_costs: file_digest(folder / row.byte_costs)},
        "row": plain_json(row), "bits": plain_json(score.bits), "tokens": score.tokens, "stages": dict(stages),
        "block_bits": plain_json(bits_K),
        "validation_bits_per_byte": run.record.get("training", {}).get("held_out_bits_per_byte"),
        "tokenizer": fingerprint(run.tokenizer), "summary": f"{score.bits_per_byte:.4f} bits per byte",
    }  # fmt: skip


def _complete(
    cell: Cell, settings: Json, run: Run, path: Path, held_out: Split, sample: str, metrics: Sequence[Json]
) -> None:
    """Put the result, the sample and the page into the run's folder, as training with its measuring would have."""
    record, result = read_record(path), run.record["result"]
    asked = {key: value for key, value in settings.items() if key != "device"}
    recipe = TASK.recipe_of(record) if "training" in record else TASK.recipe(cell.model, asked, cell.seed)
    rows = [*(row for row in metrics if row.keys() != result.keys()), result]  # a killed measuring may have added one
    write_text(path / SAMPLES, sample)
    shown = content_of(run, path.name, opening(held_out), sample, path)
    write_text(path / REPORT, render_run_page(recipe, run, shown, rows, path))
    write_text(path / METRICS, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    write_record(path, {**record, "result": result})


def _size_on_disk(path: Path) -> int:
    """The files that using a model takes."""
    if path.is_file():
        return path.stat().st_size
    try:
        return bytes_on_disk(path)
    except OSError:  # a folder of another tool may have its weights in several files
        return sum(one.stat().st_size for one in path.iterdir() if one.suffix in (".safetensors", ".json"))


def score_run(run: Run, text: Split, name: str) -> tuple[Score, NDArray[np.float64]]:
    """The score of a run that may be compared with others."""
    if not run.comparable:
        raise UserError(
            f"only models that can restore every byte are compared, and {run.name} loses some: its tokenizer is "
            f"{run.tokenizer.name}, its preprocessing {' '.join(run.record.get('preprocess', ())) or 'none'}; "
            "leave it out, or train one with a lossless tokenizer"
        )
    score, bits_N = score_bytes(run.model, run.tokenizer, text, name)
    if math.isnan(score.bits):
        raise UserError(f"{run.name} gives probabilities that are not numbers; train it with a lower learning rate")
    return score, bits_N
