"""octavo export and import: models in the formats of octavo.exchange, out of runs and into them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from tyro.conf import Positional, arg

from octavo.cli.flags import RunPath, Target
from octavo.cli.masked import described, import_bert, imports_bert
from octavo.cli.output import note, print_json, size
from octavo.cli.verbs import task_of
from octavo.datasets.sources import MODEL_SOURCES, fetch_model
from octavo.errors import UserError
from octavo.exchange import FORMATS, find_format, read_foreign
from octavo.exchange.bert import write_bert
from octavo.io.run_folder import CONFIG, TENSORS, check_out
from octavo.models import spec_of
from octavo.models.cost.parts import parameter_count
from octavo.tasks.encoder import NAMED, Encoder, load_encoder
from octavo.tasks.run import Run, load
from octavo.text.tokenizers.token_ids import TokenIds

Source = Annotated[Positional[str], arg(metavar="NAME|PATH")]
Precision = Literal["float32", "float16"]
READABLE = f"{', '.join(f.title for f in FORMATS.values())}, or one of the names {', '.join((*MODEL_SOURCES, *NAMED))}"
_PICKLE = "a pickle can run any code, so convert it to safetensors with the program that made it, or "
HINTS = {
    ".safetensors": "weights alone do not say what model they are of, so give their folder, or ",
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt", ".pkl"), _PICKLE),
}


def export(
    run: RunPath, target: Target = None, format: Literal["hf", "arpa"] | None = None, json: bool = False
) -> None:
    """Write a model in a format that others read.

    A gpt run can be exported if it has the shape of a Llama (octavo train gpt ... --feed-forward gated
    --no-qk-norm) or of a GPT-2.

    Example: octavo export runs/kn3 kn3.arpa

    Args:
        run: The folder of an n-gram, of a gpt or of a bert run.
        target: The file or folder to write, by default beside the run; a file's .gz compresses it.
        format: arpa: what KenLM, SRILM and others read. hf: a folder for transformers. By default what suits the model.
        json: Print JSON.
    """
    loaded = load_encoder(run) if task_of([run]) == "masked" else load(run)
    chosen: str = format or (*spec_of(loaded.model).exports, "hf")[0]
    where = target or str(Path(run).parent / f"{Path(run).absolute().name}{FORMATS[chosen].suffix}")
    notes = export_run(loaded, where, chosen)
    for line in notes:
        note(line)
    if Path(where).is_dir():
        result = {"folder": where, "bytes": (Path(where) / TENSORS).stat().st_size, "notes": notes}
    else:
        result = {"file": where, "bytes": Path(where).stat().st_size}
    numbers, words = ({}, f"{described(loaded)},") if isinstance(loaded, Encoder) else _sizes(loaded.model)
    print_json(result | numbers | {"format": chosen}) if json else print(f"{words} written to {where}")


def import_(
    source: Source,
    out: str = "runs/imported",
    tokenizer_of: str | None = None,
    precision: Precision = "float32",
    json: bool = False,
) -> None:
    """Make a run of a model that others made: an ARPA file, a GGUF file, a Hugging Face folder, or a known name.

    An ARPA file's words become a closed vocabulary: text is split at white space, a line is a sentence, every other
    word is <unk>, or impossible where the file has no <unk>. With --tokenizer-of, a file that octavo exported gets its
    lossless tokenizer back.

    Example: octavo import smollm2 --out runs/smollm2

    Args:
        source: A file, plain or compressed, a folder, smollm2 (a decoder of 135 million parameters) or minilm (a BERT).
        out: The folder the run is written to.
        tokenizer_of: A run whose tokens are the model's, such as the one it was exported from.
        precision: How weights of a transformer are stored: float16 takes half the room and rounds them to 11 bits;
            computing is in float32 either way.
        json: Print JSON.
    """
    if imports_bert(source):
        import_bert(source, out, json)
        return
    run = import_run(source, out, load(tokenizer_of) if tokenizer_of else None, precision)
    stored = (Path(run.path or "") / TENSORS).stat().st_size
    numbers, words = _sizes(run.model)
    if json:
        result = {"run": str(run.path), "tokenizer": run.tokenizer.name, "vocab": run.tokenizer.vocab}
        print_json(result | numbers | {"bytes": stored, "comparable": run.comparable})
        return
    print(f"{words} ({size(stored)}), {run.tokenizer.name} tokens")
    if not run.comparable:
        print("its tokenizer loses part of the text, so its bits per byte are not comparable with other models'")
    print(f"the run is in {run.path}; next:\n  octavo eval {run.path} FILE\n  octavo inspect {run.path}")


def export_run(run: Run | Encoder, target: str | Path, format: str = "arpa") -> list[str]:
    """Write the run's model in a format; returns notes for the user."""
    spec = spec_of(run.model)
    if format not in spec.exports:
        others = " or ".join(f"--format {name}" for name in spec.exports)
        remedy = f"use {others}" if others else "export an ngram, a gpt or a bert run, such as a part of a mixture"
        raise UserError(f"a model of kind {spec.name} cannot be written as {FORMATS[format].title}; {remedy}")
    if isinstance(run, Encoder):
        return write_bert(run.model, run.tokenizer, target)
    notes = FORMATS[format].write(run.model, run.tokenizer, target)
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


def _sizes(model: Any) -> tuple[dict[str, Any], str]:
    """How large a model is: numbers for JSON, and in words."""
    if spec_of(model).entries == "n-grams":
        sizes: list[int] = model.sizes()
        words = f"{sum(sizes):,} n-grams ({', '.join(f'{size:,}' for size in sizes)} of each order)"
        return {"ngrams": sizes}, words
    return {"parameters": parameter_count(model)}, f"a transformer of {parameter_count(model):,} parameters"
