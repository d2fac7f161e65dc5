"""A folder that octavo wrote: what was trained, on what, and how good it is.

    config.json        the model's settings, the text, the seed, the versions, the result
    model.safetensors  the tensors and nothing else; never a pickle

It is written under another name and renamed when it is complete, so a killed run leaves the last good one. Reading it
runs no code that is in it, and every value is checked before it is used. `run` adds what a language model needs.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo import __version__
from octavo.errors import UserError, nearest
from octavo.io.files import refuse_pipes, whole_file, whole_folder
from octavo.io.json_text import MAX_JSON_BYTES, read_json_file
from octavo.io.old_records import current_record
from octavo.io.partial_files import is_part, sweep

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, TOKENIZER, TENSORS, METRICS, SAMPLES, REPORT, STATE, BOARD = OURS = (
    "config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "samples.txt", "report.html", "state",
    "tensorboard",
)  # fmt: skip
NEW = ".new"  # ends the hidden name of a run that is to replace another one
COMPARISON = "comparison.json"  # in the folder of a comparison: its rows
LARGEST_RECORD = 1 << 24  # bytes of config.json
FORMAT = 2  # of the folder; older ones are read too, and a reader refuses what it does not know
NUMBER: tuple[type, ...] = (int, float)
PART_OF_TEXT: dict[str, Any] = {"bytes": int, "documents": int, "sha256": str}
KINDS: dict[str, Any] = {  # what config.json may hold, where it is there at all
    "model": str, "task": str,
    "corpus": {"name": str, "source": list, "errors": str, "field": str, "preprocess": list, "valid_source": list,
               "train": PART_OF_TEXT, "valid": PART_OF_TEXT},
    "data": {"source": list, "learnt": PART_OF_TEXT, "test": PART_OF_TEXT}, "images": {"source": list},
    "training": {"settings": {}, "loop": {}, "optimizer": {}, "device": str, "stages": (list,)},
    "made_with": {}, "preprocess": list, "notes": list, "other_text": list, "seed": int, "train_seconds": NUMBER,
    "train_tokens": int,
    "sha256": {"tensors": str, "tokenizer": str, "start": str},
    "result": {"bits_per_byte": (*NUMBER, type(None)), "impossible": int, "tokens": int, "label": str},
}  # fmt: skip


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Replace config.json alone."""
    with whole_file(folder / CONFIG) as file:
        file.write(_record_bytes(record))


def _record_bytes(record: Mapping[str, Any]) -> bytes:
    """config.json; a name or a word that is not UTF-8 holds lone surrogates, which JSON can spell only as an escape."""
    whole = {**record, "format": FORMAT, "octavo": __version__}
    text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return _encoded(text)


def save_folder(
    path: Path, record: Mapping[str, Any], tensors: Mapping[str, Tensor], texts: Mapping[str, str],
    keep: Sequence[Path] = (),
) -> dict[str, str]:  # fmt: skip
    """Write the folder, in place of the one that stood there; anything else that stands there is refused.

    `record` becomes config.json, `texts` are the other files. The files and folders in `keep`, those that are there, go
    into it too. Returns the hashes that config.json has of the files.
    """
    check_out(path)
    from octavo.io.integrity import HASHES, folder_hashes
    from octavo.io.tensors import write_tensors  # which needs torch

    with whole_folder(path) as folder:
        written = write_tensors(tensors, folder / TENSORS)
        for name, text in texts.items():
            (folder / name).write_bytes(_encoded(text))
        hashes = folder_hashes(folder, record, written)
        (folder / CONFIG).write_bytes(_record_bytes({**record, HASHES: hashes}))
        for source in keep:
            if source.exists() and not (folder / source.name).exists():
                _take_over(source, folder / source.name)
    return hashes


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _take_over(source: Path, target: Path) -> None:
    """Put a file or a folder into a new folder as well; linked, because nothing is ever written into it."""
    if source.is_dir():
        target.mkdir()
        for below in source.iterdir():
            if not is_part(below.name):
                _take_over(below, target / below.name)
        return
    try:
        os.link(source, target)
    except OSError:  # a disk without links
        shutil.copyfile(source, target)


def replacement_folder(folder: str | Path) -> Path:
    """Where the run is trained that is to replace the one in a folder: hidden beside it, until it is finished."""
    real = Path(os.path.realpath(folder))
    return real.with_name(f".{real.name}{NEW}")


def final_folder(folder: Path) -> Path:
    """The folder that a run in training is to be in: that of the run which it replaces, or its own."""
    hidden = folder.name.startswith(".") and folder.name.endswith(NEW)
    return folder.with_name(folder.name.removeprefix(".").removesuffix(NEW)) if hidden else folder


def check_out(path: str | Path) -> None:
    """Refuse a place where a run cannot be written, or where something of the user's would be lost by it."""
    path = Path(path)
    if not os.path.lexists(path):
        above = next(folder for folder in path.absolute().parents if os.path.exists(folder))
        if not os.path.isdir(above) or not os.access(above, os.W_OK | os.X_OK):
            raise UserError(
                f"cannot write {path}: {above} is not a folder that can be written to; choose another --out"
            )
        return
    names = {name for name in os.listdir(path) if not is_part(name)} if os.path.isdir(path) else {""}
    try:
        if names:
            read_record(path)
    except UserError as error:
        raise UserError(f"{path} is there already and is not a run; choose another --out") from error
    if foreign := sorted(names - set(OURS)):
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise UserError(f"{path} holds what octavo did not put there: {shown}; move that, or choose another --out")


def read_record(path: str | Path) -> dict[str, Any]:
    """config.json of a run folder, with every value of the kind that it should be."""
    path = Path(path)
    if not (path / CONFIG).is_file():
        sweep(Path(os.path.realpath(path)))  # which brings an old run back whose place is empty
    if not (path / CONFIG).is_file():
        raise UserError(f"{path} is not a run: it has no {CONFIG}; {_advice(path)}")
    for folder in (path, path / STATE):
        if folder.is_dir():
            refuse_pipes(folder, "a run")
    record = read_json(path / CONFIG, LARGEST_RECORD)
    if not isinstance(record, dict) or "octavo" not in record:
        raise UserError(
            f"{path} is not a run: its {CONFIG} is not one of octavo's; name a folder that octavo train made"
        )
    if record.get("format") not in range(1, FORMAT + 1):
        raise UserError(
            f"{path / CONFIG} is of format {record.get('format')!r}, this octavo reads up to {FORMAT}; train it again"
        )
    record = current_record(record)
    if wrong := wrong_kind(record, KINDS):
        raise UserError(f"{path / CONFIG} is damaged: {wrong}; train the run again")
    if (record.get("result", {}).get("bits_per_byte") or 0) < 0:
        bits = record["result"]["bits_per_byte"]
        raise UserError(f"{path / CONFIG} is damaged: no model needs {bits:g} bits per byte; train the run again")
    return record


def find_run(path: str | Path) -> Path:
    """The folder of a run: as it is named, or, in a comparison's folder, by the name or the title of its row."""
    path = Path(path)
    if os.path.exists(path) or not os.path.isfile(path.parent / COMPARISON):  # which take any text, a prompt, say
        return path
    try:
        rows = read_json(path.parent / COMPARISON)["rows"]
        runs = [row for row in rows if isinstance(row["run"], str) and Path(row["run"]).name == row["run"]]
        named = {str(row[key]).casefold(): row["run"] for row in runs for key in ("title", "model")}
    except (UserError, LookupError, TypeError):  # a damaged one names nothing
        return path
    return path.parent / named[path.name.casefold()] if path.name.casefold() in named else path


def _advice(path: Path) -> str:
    """What to do where a run was named that is not there."""
    if (inside := find_runs(path)) and not path.name.startswith("."):
        return f"but it holds runs; name one, such as {inside[0]}"
    known = {one.name: str(one) for one in find_runs(path.parent)}
    if near := nearest(path.name, known):
        return f"did you mean {known[near]}?"
    return f"runs here: {', '.join(list(known.values())[:5])}" if known else "make one with octavo train"


def wrong_kind(record: Mapping[str, Any], kinds: Mapping[str, Any], above: str = "") -> str:
    """What is not of its kind, in words; empty if all is well."""
    for key, kind in kinds.items():
        if key not in record:
            continue
        value, name = record[key], f"{above}{key}"
        if isinstance(kind, dict) and isinstance(value, dict):
            if wrong := wrong_kind(value, kind, f"{name}."):
                return wrong
        elif isinstance(kind, dict) or isinstance(value, bool) or not isinstance(value, kind):
            return f"{name} is {json.dumps(value)[:40]}"
        elif kind is list and not all(isinstance(item, str) for item in value):
            return f"{name} must be a list of strings"
    return ""


def is_others_config(path: Path) -> bool:
    """Whether a folder's config.json is not octavo's, but that of a model in Hugging Face's format."""
    try:
        values = read_json(path / CONFIG, LARGEST_RECORD)
    except UserError:
        return False
    return isinstance(values, dict) and "octavo" not in values and ("model_type" in values or "architectures" in values)


def find_runs(folder: str | Path) -> list[Path]:
    """The run folders directly in a folder or one below, by name."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    # glob.glob leaves out what is hidden, and what vanishes while it looks.
    found = [one for pattern in (f"*/{CONFIG}", f"*/*/{CONFIG}") for one in glob.glob(pattern, root_dir=folder)]
    return sorted((folder / one).parent for one in found)


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> Any:
    """What a JSON file of a run holds; numbers are finite."""
    return read_json_file(path, "train the run again", most)
