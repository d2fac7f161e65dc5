"""octavo export and import: models in the formats of octavo.exchange, out of runs and into them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from tyro.conf import Positional, arg

from octavo.cli.flags import Target
from octavo.cli.output import Output, note, size
from octavo.cli.verbs import task_of
from octavo.datasets.sources import MODEL_SOURCES, fetch_model
from octavo.errors import UserError
from octavo.exchange import FORMATS, find_format, read_foreign
from octavo.exchange.bert import is_bert, write_bert
from octavo.exchange.imported import TokenIds
from octavo.io.run_folder import CONFIG, TENSORS, check_out
from octavo.models import spec_of
from octavo.models.cost.parts import parameter_count
from octavo.tasks.encoder import NAMED, Encoder, load_encoder
from octavo.tasks.run import Run, load

Source = Annotated[Positional[str], arg(metavar="NAME|PATH")]
ExportedRun = Annotated[Positional[str], arg(metavar="RUN", help="The folder of an n-gram, of a gpt or of a bert run.")]
LOSSY = "\nits tokenizer loses part of the text, so its bits per byte are not comparable with other models'"
Precision = Literal["float32", "float16"]
READABLE = f"{', '.join(f.title for f in FORMATS.values())}, or one of the names {', '.join((*MODEL_SOURCES, *NAMED))}"
_PICKLE = "a pickle can run any code, so convert it to safetensors with the program that made it, or "
HINTS = {
    ".safetensors": "weights alone do not say what model they are of, so give their folder, or ",
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt", ".pkl"), _PICKLE),
}


def export(run: ExportedRun, target: Target = None, format: Literal["hf", "arpa"] | None = None) -> Output:
    """Write a model in a format that others read.

    A gpt run can be exported if it has the shape of a Llama (octavo train gpt ... --feed-forward gated
    --no-qk-norm) or of a GPT-2.

    Example: octavo export runs/kn3 kn3.arpa

    Args:
        target: The file or folder to write, by default beside the run; a file's .gz compresses it.
        format: arpa: what KenLM, SRILM and others read. hf: a folder for transformers. By default what suits the model.
    """
    loaded = load_encoder(run) if task_of([run]) == "masked" else load(run)
    chosen: str = format or (*spec_of(loaded.model).exports, "hf")[0]
    where = target or str(Path(run).parent / f"{Path(run).absolute().name}{FORMATS[chosen].suffix}")
    notes = export_run(loaded, where, chosen)
    note(*notes)
    if Path(where).is_dir():
        result = {"folder": where, "bytes": (Path(where) / TENSORS).stat().st_size, "notes": notes}
    else:
        result = {"file": where, "bytes": Path(where).stat().st_size}
    numbers, words = _sizes(loaded)
    return Output(result | numbers | {"format": chosen}, f"{words}, written to {where}")


def import_(
    source: Source, out: str = "runs/imported", tokenizer_of: str | None = None, precision: Precision = "float32"
) -> Output:  # fmt: skip
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
    """
    run: Run | Encoder
    if is_bert(source) or (source in NAMED and not Path(source).exists()):
        check_out(out)
        run = load_encoder(source).save(out)
        about: dict[str, Any] = {"vocab": run.model.vocab, "heads": list(run.model.config.tasks)}
        remarks, verbs = f"heads: {', '.join(about['heads']) or 'none'}", ["embed {} FILE"]
    else:
        run = import_run(source, out, load(tokenizer_of) if tokenizer_of else None, precision)
        tokenizer = run.tokenizer
        about = {"tokenizer": tokenizer.name, "vocab": tokenizer.vocab, "comparable": run.comparable}
        remarks, verbs = f"{tokenizer.name} tokens" + ("" if run.comparable else LOSSY), ["eval {} FILE", "inspect {}"]
    stored, (numbers, words) = (Path(out) / TENSORS).stat().st_size, _sizes(run)
    next_steps = "".join(f"\n  octavo {verb.format(out)}" for verb in verbs)
    return Output({"run": out, **about, **numbers, "bytes": stored},
                  f"{words} ({size(stored)}), {remarks}\nthe run is in {out}; next:{next_steps}")  # fmt: skip


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


def _sizes(run: Run | Encoder) -> tuple[dict[str, Any], str]:
    """How large a run's model is: numbers for JSON, and in words."""
    parameters = parameter_count(run.model)
    if isinstance(run, Encoder):
        return {"parameters": parameters}, run.summary()
    model: Any = run.model
    if spec_of(model).entries == "n-grams":
        sizes: list[int] = model.sizes()
        words = f"{sum(sizes):,} n-grams ({', '.join(f'{size:,}' for size in sizes)} of each order)"
        return {"ngrams": sizes}, words
    return {"parameters": parameters}, f"a transformer of {parameters:,} parameters"
