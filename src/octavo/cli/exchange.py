"""octavo export and import: models in the ARPA format, which KenLM, SRILM and others read and write."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from octavo.cli.flags import RunPath
from octavo.cli.show import print_json
from octavo.errors import UserError
from octavo.models import NGram, name_of
from octavo.models.ngram.arpa import read_arpa, write_arpa
from octavo.models.ngram.names import token_names
from octavo.run import Run, check_out, load, save
from octavo.text.closed import Closed

ArpaIn = Annotated[Positional[str], arg(metavar="FILE.arpa")]
ArpaOut = Annotated[Positional[str], arg(metavar="OUT.arpa")]


def export(run: RunPath, target: ArpaOut, format: Literal["arpa"] = "arpa", json: bool = False) -> None:
    """Write an n-gram model in a format that others read.

    Example: octavo export runs/kn3 kn3.arpa

    Args:
        run: The folder of an n-gram run.
        target: The file to write; .gz compresses it.
        format: arpa is what KenLM, SRILM and others read.
        json: Print JSON.
    """
    sizes = export_run(load(run), target)
    if json:
        print_json({"file": target, "format": format, "bytes": Path(target).stat().st_size, "ngrams": sizes})
    else:
        print(f"{_counted(sizes)} written to {target}")


def import_(source: ArpaIn, out: str = "runs/imported", tokenizer_of: str | None = None, json: bool = False) -> None:
    """Make a run of an ARPA file.

    Its words become a closed vocabulary: text is split at white space, a line is a sentence, every other word is
    <unk>, or impossible where the file has no <unk>. With --tokenizer-of, a file that octavo exported gets its lossless
    tokenizer back.

    Example: octavo import kn3.arpa --tokenizer-of runs/kn3 --out runs/kn3-again

    Args:
        source: An ARPA file, plain or compressed (.gz, .bz2, .xz, .zst).
        out: The folder the run is written to.
        tokenizer_of: A run whose tokens are the file's words, such as the one it was exported from.
        json: Print JSON.
    """
    run = import_run(source, out, load(tokenizer_of) if tokenizer_of else None)
    assert isinstance(run.model, NGram)
    sizes = run.model.sizes()
    if json:
        told = {"run": str(run.path), "tokenizer": run.tokenizer.name, "vocab": run.tokenizer.vocab, "ngrams": sizes}
        print_json(told | {"comparable": run.comparable})
        return
    print(f"{_counted(sizes)}, {run.tokenizer.name} tokens")
    if not run.comparable:
        print("what its tokenizer loses is not charged, so its bits per byte are not comparable with other models'")
    print(f"the run is in {run.path}; next:\n  octavo eval {run.path} FILE\n  octavo inspect {run.path}")


def export_run(run: Run, path: str | Path) -> list[int]:
    """Write the run's model as ARPA, its tokens under readable names; returns how many n-grams of each order it has."""
    if not isinstance(run.model, NGram):
        raise UserError(
            f"only n-gram models have an ARPA form: {run.name} is of model {name_of(run.model)}; "
            "export an ngram run, such as one of a mixture's parts"
        )
    write_arpa(run.model, path, token_names(run.tokenizer))
    return run.model.sizes()


def import_run(path: str | Path, out: str | Path | None = None, like: Run | None = None) -> Run:
    """The run of an ARPA file's model, saved to `out`; with the tokenizer of the run `like`, or a closed vocabulary."""
    if out is not None:
        check_out(out)
    began = time.perf_counter()
    record = {"corpus": {"name": Path(path).name}, "imported": {"file": str(path), "format": "arpa"}}
    if like is None:
        model, names = read_arpa(path)
        run = Run(model, Closed(names), record)
    else:
        model, _ = read_arpa(path, token_names(like.tokenizer), like.tokenizer.newline)
        # Text must come to the tokenizer as it came in training.
        run = Run(model, like.tokenizer, record | {"preprocess": list(like.record.get("preprocess", ()))})
    run.record["imported"]["seconds"] = time.perf_counter() - began
    return run if out is None else save(run, out)


def _counted(sizes: list[int]) -> str:
    return f"{sum(sizes):,} n-grams ({', '.join(f'{size:,}' for size in sizes)} of each order)"
