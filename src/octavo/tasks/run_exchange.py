"""Runs out of octavo and models of others in, in the formats of octavo.exchange."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from octavo.datasets.sources import MODEL_SOURCES, fetch_model
from octavo.errors import UserError
from octavo.exchange import FORMATS, find_format, format_by_name, formats, formats_for, read_foreign
from octavo.exchange.bert import is_bert, write_bert
from octavo.exchange.imported import TokenIds
from octavo.io.files import check_new
from octavo.io.lock import locked
from octavo.io.run_folder import CONFIG, TENSORS, check_out
from octavo.models import parameter_count, spec_of
from octavo.tasks.api import open_run
from octavo.tasks.encoder import NAMED, Encoder, load_encoder
from octavo.tasks.run import Run, load

Precision = Literal["float32", "float16"]
READABLE = f"{formats.READABLE}, or one of the names {', '.join((*MODEL_SOURCES, *NAMED))}"
_PICKLE = "a pickle can run any code, so convert it to safetensors with the program that made it, or "
HINTS = {
    ".safetensors": "weights alone do not say what model they are of, so give their folder, or ",
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt", ".pkl"), _PICKLE),
}


@dataclass(frozen=True)
class Exported:
    """A model that was written for other programs: where, in which format, and what its user must know."""

    path: Path
    format: str
    bytes: int
    size: dict[str, Any]
    """parameters, or ngrams of each order."""
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        place = {"folder" if self.path.is_dir() else "file": str(self.path), "bytes": self.bytes, "notes": self.notes}
        return {**place, **self.size, "format": self.format}

    def __repr__(self) -> str:
        return f"<octavo export {str(self.path)!r}: {FORMATS[self.format].title}, {self.bytes:,} bytes>"


def export(
    run: Run | Encoder | str | Path, target: str | Path | None = None, format: str | None = None,
    precision: str | None = None, *, force: bool = False,
) -> Exported:  # fmt: skip
    """Write a run's model in a format that other programs read.

    Args:
        run: A run, or the path of its folder: of an n-gram, a bert, or any network that predicts the next token.
        target: The file or folder to write, by default beside the run.
        format: "hf" is a folder for transformers, "gguf" a file for llama.cpp, "onnx" a file for onnxruntime, "arpa"
            what KenLM and SRILM read (a name's .gz compresses it); by default what the target's name says (.gguf,
            .onnx, .arpa), or else what suits the model.
        precision: gguf: how weights are stored, float16 (the default), q8_0 (8 bits) or float32.
        force: Replace what stands at the target; without it, that is refused.

    Returns:
        Where it was written, with notes on what other programs must know.

    Raises:
        UserError: The model cannot be written in that format.

    Examples:
        >>> octavo.export("runs/kn3", "trigrams.arpa")
        <octavo export 'trigrams.arpa': an ARPA file of n-grams, ... bytes>
    """
    loaded = open_run(run)
    guessed = None if target is None else format_by_name(target)
    chosen = format or guessed or (*formats_for(spec_of(loaded.model)), "hf")[0]
    if chosen not in FORMATS:
        raise UserError(f"there is no format {chosen!r}; formats are {', '.join(FORMATS)}")
    if target is None and loaded.path is None:
        raise UserError("a run that has no folder needs a target: octavo.export(run, PATH)")
    path = Path(target or loaded.path.parent / f"{loaded.name}{FORMATS[chosen].suffix}")
    with locked(path, "exports a model"):
        check_new(path, force=force)
        notes = export_run(loaded, path, chosen, precision)
    written = path / TENSORS if path.is_dir() else path
    return Exported(path, chosen, written.stat().st_size, size_of_model(loaded)[0], notes)


def import_model(
    source: str | Path, out: str | Path | None = None, *, tokenizer_of: Run | str | Path | None = None,
    precision: Precision = "float32", force: bool = False,
) -> Run | Encoder:  # fmt: skip
    """Make a run of a model that another program made.

    Args:
        source: An ARPA file, a GGUF file, a Hugging Face folder, or a known name such as smollm2 or minilm.
        out: The folder the run is saved to; without it the run is only in memory.
        tokenizer_of: A run whose tokens are the model's, such as the one it was exported from; it makes the bits per
            byte of an ARPA file comparable again.
        precision: How a transformer's weights are stored: float16 takes half the room; computing is in float32.
        force: Replace the run at `out`; without it, that is refused.

    Returns:
        A run like one that octavo trained.

    Raises:
        UserError: It is no model that octavo can read, or it is damaged.

    Examples:
        >>> again = octavo.import_model("kn3.arpa", tokenizer_of="runs/kn3")
        >>> before, after = (octavo.evaluate(one, "to be or not to be").bits for one in ("runs/kn3", again))
        >>> abs(before - after) < 1e-3
        True
    """
    with locked(out, "imports a model"):
        if out is not None:
            check_new(out, force=force)
        if is_bert(source) or (str(source) in NAMED and not Path(source).exists()):
            if out is not None:
                check_out(out)
            encoder = load_encoder(source)
            return encoder if out is None else encoder.save(out)
        like = None if tokenizer_of is None else open_run(tokenizer_of)
        return import_run(source, out, like, precision)


def export_run(
    run: Run | Encoder, target: str | Path, format: str = "arpa", precision: str | None = None
) -> list[str]:  # fmt: skip
    """Write the run's model in a format; returns notes for the user."""
    spec = spec_of(run.model)
    if format not in (able := formats_for(spec)):
        others = " or ".join(f"--format {name}" for name in able)
        remedy = f"use {others}" if others else "export an ngram, a bert or a network, such as a part of a mixture"
        raise UserError(f"a model of kind {spec.name} cannot be written as {FORMATS[format].title}; {remedy}")
    if isinstance(run, Encoder):
        return write_bert(run.model, run.tokenizer, target)
    notes = FORMATS[format].write(run.model, run.tokenizer, target, precision)
    if steps := run.record.get("preprocess"):
        notes.append(f"the model knows text only as --preprocess {' '.join(steps)} leaves it: do that first")
    return notes


def import_run(
    source: str | Path, out: str | Path | None = None, like: Run | None = None, precision: Precision = "float32"
) -> Run:
    """The run of a model in a file or folder, or of that name, saved to `out`; with the tokenizer of the run `like`."""
    if out is not None:
        check_out(out)
    began = time.perf_counter()
    imported = read_foreign(_readable(source), None if like is None else like.tokenizer)
    if isinstance(imported.tokenizer, TokenIds):  # a run must be able to read text
        imported.tokenizer.encode(b"")
    # Text must come to the tokenizer as it came in training.
    steps = {} if like is None else {"preprocess": list(like.record.get("preprocess", ()))}
    run = Run(imported.model, imported.tokenizer, imported.record | steps)
    run.record["imported"] |= {"seconds": time.perf_counter() - began}
    if out is None:
        return run
    if precision == "float16" and spec_of(run.model).trained_by_gradient:
        run.record["imported"] |= {"precision": precision}
        run.model.half()
        if not all(bool(torch.isfinite(tensor).all()) for tensor in run.model.parameters()):
            raise UserError("a weight is beyond what float16 can hold; import it with --precision float32")
        run.save(out)
        return load(out)  # what is computed with: the rounded weights, in single precision again
    return run.save(out)


def _readable(source: str | Path) -> Path:
    """The file or folder of that name, which must be of a format that can be read."""
    path = Path(source)
    if not path.exists():
        if str(source) in MODEL_SOURCES:
            return fetch_model(str(source))
        raise UserError(f"there is no {source}; give {READABLE}")
    if find_format(path) is not None:
        return path
    if path.is_dir() and (path / CONFIG).is_file():
        raise UserError(
            f"{path} is no Hugging Face folder: its {CONFIG} names no model_type, or is damaged (and a run of "
            f"octavo's needs no import); give {READABLE}"
        )
    if path.is_dir():
        raise UserError(f"{path} holds no model that can be read: it has no {CONFIG}; give {READABLE}")
    raise UserError(f"{path} is not a model that can be read: {HINTS.get(path.suffix, '')}give {READABLE}")


def size_of_model(run: Run | Encoder) -> tuple[dict[str, Any], str]:
    """How large a run's model is: numbers for JSON, and in words."""
    parameters = parameter_count(run.model)
    if isinstance(run, Encoder):
        return {"parameters": parameters}, run.summary()
    model: Any = run.model
    if spec_of(model).entries == "n-grams":
        sizes: list[int] = model.sizes()
        words = f"{sum(sizes):,} n-grams ({', '.join(f'{size:,}' for size in sizes)} of each order)"
        return {"ngrams": sizes}, words
    return {"parameters": parameters}, f"{spec_of(model).description}, {parameters:,} parameters"
