"""octavo export and import: n-grams as ARPA, transformers as folders of Hugging Face's, and GGUF files in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from tyro.conf import Positional, arg

from octavo.cli.flags import RunPath, Target
from octavo.cli.masked import import_bert, imports_bert
from octavo.cli.output import note, print_json, size
from octavo.core import LanguageModel
from octavo.datasets.sources import MODEL_SOURCES, fetch_model
from octavo.errors import UserError
from octavo.exchange import is_foreign, read_foreign, write_huggingface
from octavo.io.compressed import stream
from octavo.models import spec_of
from octavo.models.cost.parts import parameter_count
from octavo.models.ngram.arpa import read_arpa, write_arpa
from octavo.models.ngram.arpa_lines import FOREIGN
from octavo.models.ngram.arpa_tokens import token_names
from octavo.tasks.encoder import NAMED
from octavo.tasks.run import CONFIG, TENSORS, Run, check_out, load, save
from octavo.text.tokenizers.closed_vocabulary import ClosedVocabulary
from octavo.text.tokenizers.token_ids import TokenIds

Source = Annotated[Positional[str], arg(metavar="NAME|PATH")]
Precision = Literal["float32", "float16"]
READABLE = (
    "an ARPA file of n-grams, a GGUF file of a Llama, a Hugging Face folder of a GPT-2, a Llama or a BERT, or one of "
    + "the names "
    + ", ".join([*MODEL_SOURCES, *NAMED])
)

_PICKLE = "a pickle can run any code, so convert it to safetensors with what made it, or "
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
    loaded = load(run)
    chosen = format or (*spec_of(loaded.model).exports, "hf")[0]
    beside = Path(run).absolute()
    where = target or str(Path(run).parent / f"{beside.name}{'.arpa' if chosen == 'arpa' else '-hf'}")
    if chosen == "arpa":
        sizes = export_run(loaded, where)
        told: dict[str, Any] = {"file": where, "bytes": Path(where).stat().st_size, "ngrams": sizes}
        words = _counted(sizes)
    else:
        notes = write_huggingface(loaded.model, loaded.tokenizer, where)
        if steps := loaded.record.get("preprocess"):
            notes.append(f"the model knows text only as --preprocess {' '.join(steps)} leaves it: do that first")
        for one in notes:
            note(one)
        told = {"folder": where, "bytes": (Path(where) / TENSORS).stat().st_size, "notes": notes}
        words = f"a transformer of {parameter_count(loaded.model):,} parameters"
    print_json(told | {"format": chosen}) if json else print(f"{words} written to {where}")


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
    told: dict[str, Any] = {"run": str(run.path), "tokenizer": run.tokenizer.name, "vocab": run.tokenizer.vocab}
    model: Any = run.model
    if "arpa" in spec_of(model).exports:
        sizes = model.sizes()
        told, words = told | {"ngrams": sizes}, _counted(sizes)
    else:
        stored = (Path(run.path or "") / TENSORS).stat().st_size
        told |= {"parameters": parameter_count(run.model), "bytes": stored}
        words = f"a transformer of {parameter_count(run.model):,} parameters ({size(stored)})"
    if json:
        print_json(told | {"comparable": run.comparable})
        return
    print(f"{words}, {run.tokenizer.name} tokens")
    if not run.comparable:
        print("what its tokenizer loses is not charged, so its bits per byte are not comparable with other models'")
    print(f"the run is in {run.path}; next:\n  octavo eval {run.path} FILE\n  octavo inspect {run.path}")


def export_run(run: Run, path: str | Path) -> list[int]:
    """Write the run's model as ARPA, its tokens under readable names; returns how many n-grams of each order it has."""
    spec, model = spec_of(run.model), run.model
    if "arpa" not in spec.exports:
        other = f"; as a {spec.name} it goes out with --format {spec.exports[0]}" if spec.exports else ""
        raise UserError(
            f"only n-gram models have an ARPA form: {run.name} is of model {spec.name}{other}; "
            "export an ngram run, such as one of a mixture's parts"
        )
    ngram: Any = model
    write_arpa(ngram, path, token_names(run.tokenizer))
    sizes: list[int] = ngram.sizes()
    return sizes


def import_run(
    source: str | Path, out: str | Path | None = None, like: Run | None = None, precision: Precision = "float32"
) -> Run:
    """The run of what a file, a folder or a name holds, saved to `out`; with the tokenizer of the run `like`."""
    if out is not None:
        check_out(out)
    began = time.perf_counter()
    path = _found(source)
    run = _import_foreign(path, like) if is_foreign(path) else _import_arpa(path, like)
    run.record["imported"] |= {"seconds": time.perf_counter() - began}
    if out is None:
        return run
    if precision == "float16" and spec_of(run.model).trained_by_gradient:
        run.record["imported"] |= {"precision": precision}
        run.model.half()
        _check_finite(run.model)
        save(run, out)
        return load(out)  # what is computed with: the rounded weights, in single precision again
    return save(run, out)


def _found(source: str | Path) -> Path:
    """The file or folder that is meant, once it is known that it can be read."""
    path = Path(source)
    if not path.exists():
        if str(source) in MODEL_SOURCES:
            return fetch_model(str(source))
        raise UserError(f"there is no {source}; give {READABLE}")
    if is_foreign(path):
        return path
    if path.is_dir():
        if (path / CONFIG).is_file():
            raise UserError(
                f"{path} is no Hugging Face folder: its {CONFIG} names no model_type, or is damaged (and a run of "
                f"octavo's needs no import); give {READABLE}"
            )
        raise UserError(f"{path} holds no model that can be read: it has no {CONFIG}; give {READABLE}")
    if not _is_arpa(path):
        raise UserError(f"{path} is not a model that can be read: {HINTS.get(path.suffix, '')}give {READABLE}")
    return path


def _is_arpa(path: Path) -> bool:
    """Whether a file calls itself one, begins like one, or is what ARPA files are taken for."""
    if ".arpa" in path.suffixes:
        return True
    first = next(stream(path), b"")
    return b"\\data\\" in first or any(first.startswith(start) for start in FOREIGN)


def _import_arpa(path: Path, like: Run | None) -> Run:
    record = {"corpus": {"name": path.name}, "imported": {"file": str(path), "format": "arpa"}}
    if like is None:
        model, names = read_arpa(path)
        return Run(model, ClosedVocabulary(names), record)
    model, _ = read_arpa(path, token_names(like.tokenizer), like.tokenizer.newline)
    # Text must come to the tokenizer as it came in training.
    return Run(model, like.tokenizer, record | {"preprocess": list(like.record.get("preprocess", ()))})


def _import_foreign(path: Path, like: Run | None) -> Run:
    model, tokenizer, record = read_foreign(path)
    if like is None:
        if isinstance(tokenizer, TokenIds):  # a run must be able to read text
            tokenizer.encode(b"")
        return Run(model, tokenizer, record)
    if (like.tokenizer.vocab, like.tokenizer.begin) != (model.vocab, model.begin):
        raise UserError(
            f"the tokenizer must have the model's ids: {like.name} has {like.tokenizer.vocab:,} and begins with "
            f"{like.tokenizer.begin:,}, the model has {model.vocab:,} and begins with {model.begin:,}; name another run"
        )
    record |= {"notes": [], "preprocess": list(like.record.get("preprocess", ()))}
    return Run(model, like.tokenizer, record)


def _check_finite(model: LanguageModel[Any]) -> None:
    if not all(bool(torch.isfinite(tensor).all()) for tensor in model.parameters()):
        raise UserError("a weight is beyond what float16 can hold; import it with --precision float32")


def _counted(sizes: list[int]) -> str:
    return f"{sum(sizes):,} n-grams ({', '.join(f'{size:,}' for size in sizes)} of each order)"
