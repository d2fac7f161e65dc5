"""Records that version 0.1 wrote (format 1), in the form of today's: one `training` section for every task.

    training    settings (the task's), loop, optimizer, device, finished, stages, ...

Renamed settings inside these sections are read under their old names by their config classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OLD_TASKS = {
    "classify images": "images", "translate": "translation", "classify text": "classification",
    "fill in masked words": "masked",
}  # fmt: skip
OLD_METRICS = {"rate": "learning_rate", "norm": "gradient_norm"}
LOOP_KEYS = ("budget", "batch", "checks", "precision")


def current_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record as today's octavo writes it; what is not as version 0.1 wrote it is left for its reader to refuse."""
    if record.get("format") != 1:
        return {"task": "language", **record}
    task = OLD_TASKS.get(str(record.get("task", "")), str(record.get("task", "")))
    task = task or ("facts" if "facts" in record else "language")
    record = {**record, "task": task}
    old = CONVERTED.get(task, _language)
    try:
        return record | old(record)
    except (KeyError, TypeError, AttributeError):
        return record


def current_metrics(row: dict[str, Any]) -> dict[str, Any]:
    """A row of metrics.jsonl with the keys that today's training loop writes."""
    return {OLD_METRICS.get(key, key): value for key, value in row.items()}


def _language(record: Mapping[str, Any]) -> dict[str, Any]:
    if "training" not in record:
        return {}
    training = dict(record["training"])
    settings, optimizer = dict(training.pop("text")), training.pop("optim")
    if settings.get("tokenizer") != "word":  # the only one that took these; others were saved with their defaults
        settings = {key: value for key, value in settings.items() if key not in ("min_count", "split")}
    shape = {
        new: training.pop(old) for old, new in (("lanes", "streams"), ("window", "sequence_length")) if old in training
    }
    return {"training": {"settings": settings, "optimizer": optimizer, "device": "auto", **shape, **training}}


def _images(record: Mapping[str, Any]) -> dict[str, Any]:
    training = dict(record["training"])
    loop, optimizer = training.pop("loop"), training.pop("optim")
    settings = {key: value for key, value in loop.items() if key not in LOOP_KEYS}
    loop = {key: loop[key] for key in LOOP_KEYS if key in loop}
    images = {**record["images"], "source": [record["images"]["source"]]}
    return {"training": {"settings": settings, "loop": loop, "optimizer": optimizer, **training}, "images": images}


def _translation(record: Mapping[str, Any]) -> dict[str, Any]:
    training = dict(record["training"])
    pairs, loop, optimizer = training.pop("pairs"), dict(training.pop("loop")), training.pop("optim")
    settings = {**pairs, "keep": loop.pop("keep", "right")}
    loop["batch_size"] = loop.pop("tokens")
    return {"training": {"settings": settings, "loop": loop, "optimizer": optimizer, **training}}


def _masked(record: Mapping[str, Any]) -> dict[str, Any]:
    if "training" not in record:
        return {}
    training = dict(record["training"])
    old = training.pop("settings")
    pretrain = old["pretrain"]
    settings = {**old["mask"], **{key: pretrain[key] for key in ("size", "valid", "field") if key in pretrain}}
    loop = {key: pretrain[key] for key in LOOP_KEYS if key in pretrain}
    kept = {"settings": settings, "loop": loop, "optimizer": old["optim"], "device": "auto"}
    return {"training": {**kept, **training}}


def _classification(record: Mapping[str, Any]) -> dict[str, Any]:
    if "data" not in record:
        return {}
    training, data = dict(record["training"]), dict(record["data"])
    source, reading, base = data.pop("sources"), data.pop("reading"), record.get("base", {})
    settings = {**reading, "folds": data.get("folds", 0), "base": base.get("path", "")}
    settings |= {key: training.pop(key) for key in ("epochs", "balance", "calibrate") if key in training}
    loop = {"budget": "", "batch": training.pop("batch", 64), "precision": "float32"}
    kept = {"settings": settings, "loop": loop, "optimizer": training.pop("optim"), "device": "auto"}
    return {"training": {**kept, **training}, "data": {"source": source, **data}}


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    facts = dict(record["facts"])
    old = facts.pop("settings")
    how = dict(old["how"])
    loop = {"budget": "", "batch": how.pop("batch"), "precision": how.pop("precision", "auto")}
    optimizer = {key: how.pop(key) for key in ("rate", "optimizer", "matrix_rate", "weight_decay") if key in how}
    stages = [{"name": name, **facts.pop(name)} for name in ("pretraining", "finetuning") if name in facts]
    training = {
        "settings": how, "loop": loop, "optimizer": {**optimizer, "warmup": 0.05}, "device": "auto",
        "finished": facts.get("stage") == "done", "stages": stages, "steps": stages[-1]["steps"] if stages else 0,
    }  # fmt: skip
    corpus = {**record["corpus"], "source": [old["source"]], "sha256": old["sha256"]}
    return {"training": training, "corpus": corpus, "facts": facts, "seed": old["seed"]}


CONVERTED = {
    "images": _images, "translation": _translation, "masked": _masked, "classification": _classification,
    "facts": _facts,
}  # fmt: skip
