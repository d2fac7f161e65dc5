"""A run as a row of a table, from its folder alone: no model is loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from octavo.config import from_json
from octavo.errors import UserError
from octavo.io.files import thousands
from octavo.io.run_folder import TENSORS

BITS = "bits/byte"
SHARES = {
    "accuracy": "right", "exact_match": "answers exact", "words_accuracy": "masked words right",
    "span_f1": "F1 of spans",
}  # fmt: skip
HEADER = 8 << 20  # bytes of a tensor file's header that are read at most
MOST_LAYERS = 1 << 12
SETTINGS = {  # where the settings of a run stand in its record, and what they are called in a table
    "config": "", "sizes": "size: ", "training.settings": "task: ", "training.loop": "training: ",
    "training.optimizer": "optimizer: ",
}  # fmt: skip
MEASURED = {  # what describes a run in numbers, besides its result
    "train_seconds": "seconds of training", "train_tokens": "tokens read in training", "training.steps": "steps",
    "training.steps_per_epoch": "steps once through the text", "corpus.train.bytes": "bytes to learn from",
}  # fmt: skip
RENAMED = {"seconds": "seconds of measuring", "bytes": "bytes measured on", "tokens": "tokens measured on"}


def figures_of(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    """What the run's task is judged by, on what was held out: names and values, shares being of one.

    A run that was not measured has none.
    """
    result = record.get("result")
    if not isinstance(result, Mapping):
        return []
    if isinstance(languages := result.get("languages"), Mapping):
        found = [(f"{one} BLEU", of.get("bleu")) for one, of in languages.items() if isinstance(of, Mapping)]
    else:
        found = [(BITS, result.get("bits_per_byte")), *((name, result.get(key)) for key, name in SHARES.items())]
    return [
        (name, float(value)) for name, value in found if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def shown_figure(name: str, value: float) -> str:
    """A figure in words: 2.1934 bits/byte, 91.2% right."""
    if name == BITS:
        return f"{value:.4f} {name}"
    return f"{value:.1%} {name}" if name in SHARES.values() else f"{value:.1f} {name}"


def result_label(record: Mapping[str, Any]) -> str:
    """What must stand beside the result: not comparable, adaptive, ..."""
    result = record.get("result")
    if not isinstance(result, Mapping):
        return ""
    label = str(result.get("label") or "")
    return ", ".join(filter(None, ["adaptive" if result.get("adaptive") is True else "", label]))


def trained_on(record: Mapping[str, Any]) -> str:
    """The name of the text, the images, the pairs or the labelled examples."""
    for key in ("corpus", "images", "pairs"):
        if isinstance(about := record.get(key), Mapping) and isinstance(about.get("name"), str):
            return str(about["name"])
    sources = value_at(record, "data.source")
    return ", ".join(Path(str(one)).name for one in sources) if isinstance(sources, list) else ""


class MeasuredText(NamedTuple):
    """What a run's result was measured on: results of different texts do not rank."""

    name: str = ""
    sha256: str = ""  # of the held-out part; of images and pairs, of all of them
    bytes: int | None = None  # that were scored

    @property
    def title(self) -> str:
        """As the heading of the runs that share it."""
        size = f", {thousands(self.bytes)} bytes measured" if self.bytes else ""
        return f"{without_folders(self.name) or 'unknown data'}{size}" + (
            f" ({self.sha256[:8]})" if self.sha256 else ""
        )


def measured_text(record: Mapping[str, Any]) -> MeasuredText:
    """The identity of the text, the images, the pairs or the examples that the run was measured on."""
    for key in ("corpus", "images", "pairs", "data"):
        about = record.get(key)
        if isinstance(about, Mapping):
            parts = [part for name in ("valid", "test") if isinstance(part := about.get(name), Mapping)]
            found = next((one["sha256"] for one in (*parts, about) if isinstance(one.get("sha256"), str)), "")
            scored = [value_at(record, "result.bytes"), *(part.get("bytes") for part in parts)]
            return MeasuredText(trained_on(record), found, next((n for n in scored if type(n) is int), None))
    return MeasuredText(trained_on(record))


def without_folders(names: str) -> str:
    """Files by their names alone."""
    return ", ".join(Path(one).name or one for one in names.split(", "))


def is_unfinished(record: Mapping[str, Any]) -> bool:
    """Whether training was stopped, or goes on."""
    training = record.get("training")
    return isinstance(training, Mapping) and not training.get("finished", True)


def detail_of(record: Mapping[str, Any]) -> str:
    """The model's size in a few words: order 5; 4 layers of 128, linear."""
    config = record.get("config")
    if not isinstance(config, Mapping):
        return ""
    words = [f"order {config['order']}"] if "order" in config else []
    if isinstance(layers := config.get("layers"), int) and "width" in config:
        words.append(f"{layers} layer{'' if layers == 1 else 's'} of {config['width']}")
    elif "width" in config:
        words.append(f"{config['width']} wide")
    usual = (("estimator", "kneser-ney"), ("attention", "full"), ("cell", ""))
    words += [str(config[key]) for key, known in usual if config.get(key, known) != known]
    tokens = value_at(record, "training.settings.tokenizer")
    return ", ".join([*words, *([f"{tokens} tokens"] if isinstance(tokens, str) and "/" not in tokens else [])])


def operations_of(record: Mapping[str, Any]) -> float | None:
    """Operations to read one token after a full context; None where nothing is multiplied or nothing is known."""
    name, parts = record.get("model"), record.get("parts")
    if isinstance(parts, list):
        known = [operations_of(part) for part in parts[:64] if isinstance(part, Mapping)]
        return sum(one for one in known if one) or None
    if (
        record.get("task", "language") != "language"
        or not isinstance(name, str)
        or type(record.get("vocab")) is not int
    ):
        return None
    return _operations(name, json.dumps(record.get("config", {})), record["vocab"])


@lru_cache(maxsize=1024)  # a folder of many runs has few configurations
def _operations(name: str, config: str, vocab: int) -> float | None:
    from octavo.costs import cost_of_config, one_token  # which need torch, and a list of runs does not
    from octavo.models import MODELS

    if name not in MODELS:
        return None
    try:
        settings: Any = from_json(MODELS[name].config, json.loads(config))
        if getattr(settings, "layers", 1) > MOST_LAYERS:
            return None
        return cost_of_config(name, settings, vocab, one_token(settings)).per_token("forward") or None
    except UserError:  # a record of another octavo
        return None


def parameters_of(record: Mapping[str, Any], folder: Path) -> int | None:
    """How many parameters the run's model has; of a folder of an earlier octavo, the numbers of a network's file."""
    count = record.get("parameters")
    if isinstance(count, int) and not isinstance(count, bool):
        return count
    return numbers_in(folder) if isinstance(record.get("training"), Mapping) else None


def numbers_in(folder: Path) -> int | None:
    """How many numbers the run's tensors hold, by the header of their file; None where that cannot be read."""
    try:
        with open(folder / TENSORS, "rb") as file:
            long = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(min(long, HEADER)))
        return sum(math.prod(map(int, one["shape"])) for key, one in header.items() if key != "__metadata__")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


# ---------------------------------------------------------------------- two runs side by side


def settings_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a run by its name."""
    row: dict[str, Any] = {"model": record.get("model", ""), "trained on": without_folders(trained_on(record))}
    for place, called in SETTINGS.items():
        if isinstance(found := value_at(record, place), Mapping):
            row |= {f"{called}{key}".replace("_", " "): value for key, value in found.items()}
    row |= {key: record[key] for key in ("vocab", "seed") if key in record}
    return {key: value for key, value in row.items() if _is_plain(value)}


def measured_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Every figure of a run by its name: those of its result, and what it took."""
    row = {called: value_at(record, place) for place, called in MEASURED.items()}
    result = record.get("result")
    if isinstance(result, Mapping):
        row |= {RENAMED.get(key, key.replace("_", " ")): value for key, value in result.items()}
        if isinstance(languages := result.get("languages"), Mapping):
            row |= {f"{one}: {key}": value for one, of in languages.items() if isinstance(of, Mapping)
                     for key, value in of.items()}  # fmt: skip
    return {
        key: value for key, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and _is_plain(value)
    }  # fmt: skip


def value_at(record: Mapping[str, Any], place: str) -> Any:
    """What stands at a.b.c of a record; None where nothing does."""
    found: Any = record
    for key in place.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _is_plain(value: Any) -> bool:
    """Whether a table can show it: a number, a word, or a short list of them."""
    if isinstance(value, list):
        return len(value) <= 8 and all(isinstance(one, str | int | float) for one in value)
    return isinstance(value, str | int | float | bool)
