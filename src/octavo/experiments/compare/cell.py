"""One run of a comparison: trained, or gone on with; scored once; let write; and its folder made complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from octavo.experiments.compare.byte_costs import keep, over_blocks, score_bytes
from octavo.experiments.compare.candidates import Rung
from octavo.experiments.compare.cost import parameters, write
from octavo.experiments.compare.result_store import Kept, Measured
from octavo.io.files import whole_file
from octavo.scoring.bits_per_byte import Score, finite
from octavo.tasks import api
from octavo.tasks.language import TASK
from octavo.tasks.language_page import language_page, run_page
from octavo.tasks.mixture import MixtureConfig
from octavo.tasks.run import CONFIG, METRICS, REPORT, SAMPLES, STATE, Run, load, read_record
from octavo.tasks.run_facts import bytes_on_disk
from octavo.tasks.surprisal import opening
from octavo.text import Split, fingerprint
from octavo.training.checkpoint import FILE
from octavo.training.metrics_log import read_rows

CHARGES = "charges"


def trained(kept: Kept, rung: Rung, seed: int, path: Path, parts: Sequence[Path] = ()) -> Run:
    """The rung's run: trained, or gone on with, or, if it was only not measured yet, as it lies there."""
    if (path / CONFIG).is_file():
        training = read_record(path).get("training", {})
        if not training or training.get("finished"):
            return load(path)
        if (path / STATE / FILE).is_file():
            resumed: Run = api.resume(path, measure=False)
            return resumed
        shutil.rmtree(path)  # it was killed before there was anything to go on from
    config = kept.config
    settings: dict[str, Any] = {"valid": config.valid, "field": config.field}
    if parts:
        settings["parts"] = parts
    else:
        settings |= {"tokenizer": config.tokenizer, **rung.settings, **config.loop(rung), "device": config.device}
    run: Run = api.train(rung.model, kept.place.sources, out=path, seed=config.seed + seed, measure=False, **settings)
    return run


def measured(
    kept: Kept, run: Run, name: str, path: Path, held_out: Split, device: torch.device, memory: int | None = None
) -> Measured:
    """What the run pays for the held-out text, and what else it costs; its page, too, is written now."""
    run.model.to(device)
    charges = f"{CHARGES}/{name}.npy"
    with kept.timed("scoring"):
        score, bits_N = score_bytes(run, held_out, "held-out text")
        keep(bits_N, kept.place.folder / charges)
        interval, over = over_blocks(bits_N)
    with kept.timed("writing"):
        sample, rate = write(run, kept.config.seed)
    run.model.cpu()
    with kept.timed("page"):
        run.record["result"] = score.to_json()
        if path.parent == kept.place.folder:
            _complete(kept, run, path, held_out, sample)
        else:
            _page_of_guest(kept, run, name, path, held_out, sample)
    low, high = interval or (None, None)
    return Measured(
        finite(score.bits), score.tokens, score.impossible, score.seconds, run.record.get("train_seconds", 0.0),
        parameters(run), None, rate, memory, _size_on_disk(path), name, charges, score.policy, low, high, over,
        run.record.get("training", {}).get("held_out_bits_per_byte"), fingerprint(run.tokenizer),
    )  # fmt: skip


def claim(measured: Measured, size: int) -> Score:
    """What a run's archive must come to."""
    assert measured.bits is not None
    return Score("held-out text", measured.bits, size, measured.tokens, measured.score_seconds)


def _complete(kept: Kept, run: Run, path: Path, held_out: Split, sample: str) -> None:
    """Put the result, the sample and the page into the run's folder, as training with its measuring would have."""
    told = json.loads((path / CONFIG).read_text(encoding="utf-8")) | {"result": run.record["result"]}
    metrics = [*read_rows((path / METRICS).read_bytes()), run.record["result"]]
    parts = tuple(str(path.parent / part["run"]) for part in told.get("mixed", ()))
    configs = {"config": run.model.config, "settings": MixtureConfig(parts) if parts else kept.config.text}
    recipe = (
        TASK.recipe_of(told) if "training" in told else TASK.made_recipe(told["model"], configs, told["seed"], "auto")
    )
    _write(path, {
        SAMPLES: sample, REPORT: language_page(recipe, run, held_out, sample, metrics, path),
        METRICS: "".join(json.dumps(row, allow_nan=False) + "\n" for row in metrics),
        CONFIG: json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    })  # fmt: skip


def _page_of_guest(kept: Kept, run: Run, name: str, path: Path, held_out: Split, sample: str) -> None:
    """A model that was brought along stays as it is; its page and its sample go into the comparison's folder."""
    commands = [f"octavo eval {path}", f"octavo generate {path}"]
    page = run_page(run, name, opening(held_out), sample, commands)
    _write(kept.place.folder / name, {SAMPLES: sample, REPORT: page})


def _write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        with whole_file(folder / name) as file:
            file.write(text.encode("utf-8", "backslashreplace"))


def _size_on_disk(path: Path) -> int:
    """The files that using a model takes."""
    if path.is_file():
        return path.stat().st_size
    try:
        return bytes_on_disk(path)
    except OSError:  # a folder of others' may have its weights in several files
        return sum(one.stat().st_size for one in path.iterdir() if one.suffix in (".safetensors", ".json"))
