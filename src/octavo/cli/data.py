"""octavo data: the named datasets, any text as files of tokens or without duplicates. Nothing here needs torch, so it
starts fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from octavo.cli.duplicates import remove
from octavo.cli.flags import Corpora, Encoding, Field, Force
from octavo.cli.output import Output, Table, note, size
from octavo.datasets import sources
from octavo.errors import UserError
from octavo.io.encoding import UTF8
from octavo.io.files import check_new, filled_folder

USAGE = """usage: octavo data list | get NAME | show NAME       the named datasets
       octavo data bin CORPUS...                     write a text as tokens
       octavo data duplicates CORPUS... --out FOLDER  remove lines or documents that repeat others

Each takes --json; --help shows more.

example: octavo data get shakespeare
"""
SourceName = Annotated[Positional[str], arg(metavar="NAME", help="A name from octavo data list.")]


def list_sources() -> Output:
    """List the named datasets and whether each is on this machine.

    Example: octavo data list
    """
    found = [(source, sources.where(name) is not None) for name, source in sources.SOURCES.items()]
    rows = [
        (source.name, source.kind, size(source.bytes), "yes" if here else "", source.licence, source.title)
        for source, here in found
    ]
    table = Table(("name", "kind", "size", "here", "licence", "what it is"), rows, left=(0, 1, 4, 5))
    return Output([source.to_json() | {"here": here} for source, here in found], table)


def get_source(name: SourceName = sources.DEFAULT, again: bool = False) -> Output:
    """Download a dataset if it is not here yet, verify its hash, and print where its files are.

    Example: octavo data get shakespeare

    Args:
        again: Download it even if it is here.
    """
    files = {file: str(path) for file, path in sources.get_files(name, again).items()}
    return Output(files, "\n".join(files.values()))


def show_source(name: SourceName = sources.DEFAULT, lines: Annotated[int, arg(aliases=["-n"])] = 10) -> Output:
    """Show where a dataset comes from, its licence and hashes, and its first lines if it is here.

    Example: octavo data show shakespeare

    Args:
        lines: How many lines of the text to show.
    """
    if lines < 0:
        raise UserError(f"lines must not be negative: lines={lines}; try --lines 10")
    source = sources.find(name)
    return Output(source.to_json(), lambda: _print_source(source, lines))


def _print_source(source: sources.Source, lines: int) -> None:
    for key, value in source.to_json().items():
        if key == "files":
            for file in value:
                print(f"file      {file['name']}  {file['bytes']:,} bytes  sha256 {file['sha256']}")
        else:
            print(f"{key:<10}{value}")
    place = sources.where(source.name)
    if place is None:
        print(f"here      no; fetch it with: octavo data get {source.name}")
    elif place.is_file() and source.kind in ("text", "pairs", "labelled", "tagged"):
        with open(place, encoding="utf-8", errors="replace") as file:
            sys.stdout.write("\n" + "".join(line[:200].rstrip("\n") + "\n" for line in islice(file, lines)))
    else:
        print(f"here      {place}")


def write_bins(
    corpus: Corpora,
    out: str = "tokens",
    tokenizer: str = "bpe",
    vocab_size: int | None = None,
    valid: tuple[str, ...] = (),
    field: Field = "text",
    errors: Literal["strict", "replace", "raw"] = "strict",
    encoding: Encoding = UTF8,
    force: Force = False,
) -> Output:
    """Write a text as tokens, as nanoGPT reads them: train.bin, val.bin, and tokenizer.json that says what they mean.

    Every document is opened by the tokenizer's begin token. octavo reads such files too: octavo train gpt
    tokens/train.bin --valid tokens/val.bin --tokenizer tokens/tokenizer.json

    Example: octavo data bin shakespeare --tokenizer bpe --vocab-size 1024 --out tokens

    Args:
        out: The folder to write to.
        tokenizer: byte, char, word, bpe, another one that is installed, or the path of a tokenizer.json.
        vocab_size: The number of BPE tokens, or of words at most.
        valid: Text for val.bin; without it the last tenth of the corpus.
        errors: What is not UTF-8: refuse it, replace it, or keep the bytes (the byte tokenizer always keeps them).
    """
    from octavo.text import learn_tokenizer, open_corpus, save_tokenizer  # here: the other verbs start without numpy
    from octavo.text.token_store import TOKENIZER, check_fits, write_bin
    from octavo.text.tokenizers.registry import reads_raw_bytes

    for name in ("train.bin", "val.bin"):
        check_new(Path(out, name), force)
    errors = "raw" if reads_raw_bytes(tokenizer) and errors == "strict" else errors
    opened = open_corpus(list(corpus), field=field, errors=errors, encoding=encoding, valid=list(valid) or None)
    note(*opened.notes)
    learnt = learn_tokenizer(tokenizer, opened, **({} if vocab_size is None else {"vocab_size": vocab_size}))
    check_fits(learnt)
    where = Path(out, TOKENIZER)
    splits = {"train.bin": opened.train, "val.bin": opened.valid}
    with filled_folder(out, (*splits, TOKENIZER)) as place:
        # Tokens without a tokenizer.json are refused, so a stop in between leaves nothing that could be mistaken.
        (place / TOKENIZER).unlink(missing_ok=True)
        counts = {
            name: write_bin(place / name, learnt.encode_chunks(split.chunks()), learnt)
            for name, split in splits.items()
        }
        save_tokenizer(learnt, place / TOKENIZER)
    files = [Path(out, name) for name in counts]
    words = [*(f"{file}  {count:,} tokens" for file, count in zip(files, counts.values(), strict=True)),
             f"{where}  {learnt.name}, {learnt.vocab:,} ids", "next:",
             f"  octavo train gpt {files[0]} --valid {files[1]} --tokenizer {where}"]  # fmt: skip
    written = {"out": out, "tokens": counts, "tokenizer": learnt.name, "vocab": learnt.vocab, "begin": learnt.begin}
    return Output(written, "\n".join(words))


write_bins.RENAMED = {"size": "vocab_size"}  # type: ignore[attr-defined]
ACTIONS: dict[str, Callable[..., Output]] = {
    "list": list_sources, "get": get_source, "show": show_source, "bin": write_bins,
    "duplicates": remove,
}  # fmt: skip
