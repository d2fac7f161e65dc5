"""The work of a comparison's cells: train a model or resume it, score it, let it generate, and write its page."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from octavo.core import single_thread
from octavo.datasets.sources import MODEL_SOURCES, fetch_model
from octavo.errors import UserError
from octavo.experiments.cell import Cell, Json, files_of_run, train_or_resume
from octavo.experiments.compare.byte_costs import block_interval, save_byte_costs, score_run
from octavo.experiments.compare.cost import generate_sample, peak_memory, training_flops
from octavo.experiments.compare.rows import Row
from octavo.experiments.excerpts import open_texts
from octavo.experiments.table import row_to_json
from octavo.io.files import whole_file
from octavo.models import stored_entries
from octavo.scoring.bits_per_byte import Score, finite
from octavo.scoring.range_coder import prove_score
from octavo.tasks.corpus import TextConfig, learnt_text
from octavo.tasks.language import TASK
from octavo.tasks.language_page import language_page, opening, run_page
from octavo.tasks.mixture import PROBED, MixtureConfig
from octavo.tasks.run import CONFIG, METRICS, REPORT, SAMPLES, Run, load
from octavo.tasks.run_facts import bytes_on_disk
from octavo.tasks.task import pick_device
from octavo.text import Split, fingerprint
from octavo.text.overlap import MAX_OVERLAP, overlap
from octavo.training.metrics_log import read_rows

BYTE_COSTS = "byte_costs"  # a folder of .npy files
HELD_OUT = "held-out text"


class Stages:
    """Counts the seconds of named stages."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += perf_counter() - began


def measure_candidate(cell: Cell, folder: Path) -> Json:
    """Train a candidate, or resume it, and measure it."""
    train, held_out = open_texts(cell.data)
    stages, path = Stages(), folder / cell.key
    device = pick_device(cell.settings.get("device", "auto")) if cell.budget else torch.device("cpu")
    parts = {"parts": [folder / part for part in cell.settings["parts"]]} if "parts" in cell.settings else {}
    text = {"valid": cell.data["valid"], "field": cell.data["field"]}
    with stages.timed("training"), peak_memory(device) as peak:
        run = train_or_resume(cell, path, cell.data["sources"], **text, **parts)
    row, score, sample = _measure(cell, run, folder, held_out, device, stages)
    with stages.timed("page"):
        _complete(cell, run, path, held_out, score, sample)
    flops = training_flops(run, read_rows((path / METRICS).read_bytes()), train)
    row = replace(row, flops=flops, memory=peak.bytes, bytes=_size_on_disk(path))
    return _value(row, score, run, stages) | {"files": files_of_run(cell.key)}


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
    stages = Stages()
    row, score, sample = _measure(cell, run, folder, held_out, pick_device(cell.options["device"]), stages)
    with stages.timed("page"):
        commands = [f"octavo eval {path}", f"octavo generate {path}"]
        page = run_page(run, cell.key, opening(held_out), sample, commands)
        _write(folder / cell.key, {SAMPLES: sample, REPORT: page})
    title = f"pretrained: {run.summary().split(', on ')[0]}"
    return _value(replace(row, title=title, bytes=_size_on_disk(path)), score, run, stages)


def load_pretrained(name: str) -> tuple[Path, Run]:
    """A run's folder, a file or folder of another format, or a named source."""
    given = Path(name)
    path = fetch_model(name) if name in MODEL_SOURCES and not given.exists() else given
    return path, load(path)


def prove_best(cell: Cell, folder: Path) -> Json:
    """Compress the held-out text with the best run, and restore it."""
    _, held_out = open_texts(cell.data)
    run = load_pretrained(cell.model)[1] if cell.options["pretrained"] else load(folder / cell.model)
    claim = Score(HELD_OUT, cell.options["bits"], held_out.size, cell.options["tokens"], 0.0)
    with single_thread():
        proof = prove_score(run.model, run.tokenizer, run.identity, claim, held_out.read())
    verdict = "restored" if proof["restored"] else "NOT RESTORED"
    return {"proof": proof, "summary": f"{proof['archive_bytes']:,} bytes, {verdict}"}


def _measure(
    cell: Cell, run: Run, folder: Path, held_out: Split, device: torch.device, stages: Stages
) -> tuple[Row, Score, str]:
    """Score the held-out text and generate a sample."""
    run.model.to(device)
    costs = f"{BYTE_COSTS}/{cell.key}.npy"
    with stages.timed("scoring"):
        score, bits_N = score_run(run, held_out, HELD_OUT)
        save_byte_costs(bits_N, folder / costs)
        interval, over = block_interval(bits_N)
    with stages.timed("generation"):
        sample, rate = generate_sample(run, cell.options["seed"])
    run.model.cpu()
    run.record["result"] = score.to_json()
    low, high = interval or (None, None)
    row = Row(
        cell.key, cell.options["title"], cell.options["family"], score.bits_per_byte, low=low, high=high,
        interval=over, seconds=run.record.get("train_seconds"), parameters=sum(stored_entries(run.model).values()),
        score_rate=score.tokens / max(1e-9, score.seconds), generation_rate=rate, run=cell.key, byte_costs=costs,
        policy=score.policy, impossible=score.impossible,
    )  # fmt: skip
    return row, score, sample


def _value(row: Row, score: Score, run: Run, stages: Stages) -> Json:
    """What is stored of a run: its row, what a mixture's parts are chosen by, and what its archive must come to."""
    return {
        "row": row_to_json(row), "bits": finite(score.bits), "tokens": score.tokens, "stages": dict(stages.seconds),
        "validation_bits_per_byte": run.record.get("training", {}).get("held_out_bits_per_byte"),
        "tokenizer": fingerprint(run.tokenizer), "summary": f"{score.bits_per_byte:.4f} bits per byte",
    }  # fmt: skip


def _complete(cell: Cell, run: Run, path: Path, held_out: Split, score: Score, sample: str) -> None:
    """Put the result, the sample and the page into the run's folder, as training with its measuring would have."""
    record = json.loads((path / CONFIG).read_text(encoding="utf-8")) | {"result": score.to_json()}
    metrics = [*read_rows((path / METRICS).read_bytes()), record["result"]]
    text: Any = TextConfig(
        tokenizer=cell.settings.get("tokenizer", "byte"), valid=tuple(cell.data["valid"]), field=cell.data["field"]
    )
    if parts := tuple(str(path.parent / part["run"]) for part in record.get("mixed", ())):
        text = MixtureConfig(parts)
    made = TASK.made_recipe(record["model"], {"config": run.model.config, "settings": text}, record["seed"], "auto")
    recipe = TASK.recipe_of(record) if "training" in record else made
    _write(path, {
        SAMPLES: sample, REPORT: language_page(recipe, run, held_out, sample, metrics, path),
        METRICS: "".join(json.dumps(row, allow_nan=False) + "\n" for row in metrics),
        CONFIG: json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    })  # fmt: skip


def _write(folder: Path, texts: dict[str, Any]) -> None:
    for name, text in texts.items():
        with whole_file(folder / name) as file:
            file.write(text.encode("utf-8", "backslashreplace"))


def _size_on_disk(path: Path) -> int:
    """The files that using a model takes."""
    if path.is_file():
        return path.stat().st_size
    try:
        return bytes_on_disk(path)
    except OSError:  # a folder of another tool may have its weights in several files
        return sum(one.stat().st_size for one in path.iterdir() if one.suffix in (".safetensors", ".json"))
