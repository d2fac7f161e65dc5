"""octavo data: the named datasets, and any text as files of tokens. Nothing here needs torch, so it starts fast."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from octavo.cli.flags import Corpora, run_command
from octavo.cli.output import note, print_json, print_table, size
from octavo.datasets import sources
from octavo.errors import UserError


def run_data(argv: list[str]) -> None:
    """Dispatch list, get, show and bin."""
    if not argv or argv[0] in ("-h", "--help"):
        print(
            "usage: octavo data list | get NAME | show NAME | bin CORPUS...    (each takes --json; --help shows more)\n"
        )
        print("example: octavo data get shakespeare")
        return
    if argv[0] not in ACTIONS:
        raise UserError(f"octavo data takes {', '.join(ACTIONS)}: got {argv[0]!r}; try octavo data list")
    run_command(ACTIONS[argv[0]], f"octavo data {argv[0]}", argv[1:])


def list_sources(json: bool = False) -> None:
    """List the named datasets and whether each is on this machine.

    Example: octavo data list

    Args:
        json: Print JSON.
    """
    if json:
        print_json(
            [source.to_json() | {"here": sources.where(name) is not None} for name, source in sources.SOURCES.items()]
        )
        return
    rows = [
        (name, source.kind, size(source.bytes), "yes" if sources.where(name) else "", source.licence, source.title)
        for name, source in sources.SOURCES.items()
    ]
    print_table(("name", "kind", "size", "here", "licence", "what it is"), rows, left=(0, 1, 4, 5))


def get_source(
    name: Annotated[Positional[str], arg(metavar="NAME")] = sources.DEFAULT, again: bool = False, json: bool = False
) -> None:
    """Download a dataset if it is not here yet, verify its hash, and print where its files are.

    Example: octavo data get shakespeare

    Args:
        name: A name from octavo data list.
        again: Download it even if it is here.
        json: Print JSON.
    """
    files = sources.get_files(name, again)
    if json:
        print_json({file: str(path) for file, path in files.items()})
    else:
        print("\n".join(map(str, files.values())))


def show_source(
    name: Annotated[Positional[str], arg(metavar="NAME")] = sources.DEFAULT,
    lines: Annotated[int, arg(aliases=["-n"])] = 10,
    json: bool = False,
) -> None:
    """Show where a dataset comes from, its licence and hashes, and its first lines if it is here.

    Example: octavo data show shakespeare

    Args:
        name: A name from octavo data list.
        lines: How many lines of the text to show.
        json: Print JSON.
    """
    if lines < 0:
        raise UserError(f"lines must not be negative: lines={lines}; try --lines 10")
    source = sources.find(name)
    if json:
        print_json(source.to_json())
        return
    for key, value in source.to_json().items():
        if key == "files":
            for file in value:
                print(f"file      {file['name']}  {file['bytes']:,} bytes  sha256 {file['sha256']}")
        else:
            print(f"{key:<10}{value}")
    place = sources.where(name)
    if place is None:
        print(f"here      no; fetch it with: octavo data get {name}")
    elif place.is_file() and source.kind in ("text", "pairs", "labelled"):
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
    field: str = "text",
    errors: Literal["strict", "replace", "raw"] = "strict",
    json: bool = False,
) -> None:
    """Write a text as tokens, as nanoGPT reads them: train.bin, val.bin, and tokenizer.json that says what they mean.

    Every document is opened by the tokenizer's begin token. octavo reads such files too: octavo train gpt
    tokens/train.bin --valid tokens/val.bin --tokenizer tokens/tokenizer.json

    Example: octavo data bin shakespeare --tokenizer bpe --vocab-size 1024 --out tokens

    Args:
        corpus: Files, folders or named texts.
        out: The folder to write to.
        tokenizer: byte, char, word, bpe, another one that is installed, or the path of a tokenizer.json.
        vocab_size: The number of BPE tokens, or of words at most.
        valid: Text for val.bin; without it the last tenth of the corpus.
        field: JSON lines, parquet: where the text is.
        errors: What is not UTF-8: refuse it, replace it, or keep the bytes (the byte tokenizer always keeps them).
        json: Print JSON.
    """
    written = export_bins(corpus, out, tokenizer, vocab_size, valid, field, errors)
    if json:
        print_json(written)
        return
    for name, count in written["tokens"].items():
        print(f"{Path(out, name)}  {count:,} tokens")
    where = Path(out, "tokenizer.json")
    print(f"{where}  {written['tokenizer']}, {written['vocab']:,} ids")
    files = f"{Path(out, 'train.bin')} --valid {Path(out, 'val.bin')}"
    print(f"next:\n  octavo train gpt {files} --tokenizer {where}")


def export_bins(
    corpus: tuple[str, ...], out: str, tokenizer: str, vocab_size: int | None, valid: tuple[str, ...], field: str,
    errors: Literal["strict", "replace", "raw"],
) -> dict[str, Any]:  # fmt: skip
    """Learn or load the tokenizer, write the three files, and describe them."""
    from octavo.text import learn_tokenizer, open_corpus, save_tokenizer  # here: the other verbs start without numpy
    from octavo.text.nanogpt_bin import TOKENIZER, check_fits, write_bin
    from octavo.text.tokenizers.registry import reads_raw_bytes

    errors = "raw" if reads_raw_bytes(tokenizer) and errors == "strict" else errors
    opened = open_corpus(list(corpus), field=field, errors=errors, valid=list(valid) or None)
    for line in opened.notes:
        note(line)
    learnt = learn_tokenizer(tokenizer, opened, **({} if vocab_size is None else {"vocab_size": vocab_size}))
    check_fits(learnt)
    folder = Path(out)
    # Tokens without a tokenizer.json are refused, so a stop in between leaves nothing that could be mistaken.
    (folder / TOKENIZER).unlink(missing_ok=True)
    splits = {"train.bin": opened.train, "val.bin": opened.valid}
    counts = {
        name: write_bin(folder / name, learnt.encode_chunks(split.chunks()), learnt) for name, split in splits.items()
    }
    save_tokenizer(learnt, folder / TOKENIZER)
    return {"out": out, "tokens": counts, "tokenizer": learnt.name, "vocab": learnt.vocab, "begin": learnt.begin}


write_bins.RENAMED = {"size": "vocab_size"}  # type: ignore[attr-defined]
ACTIONS: dict[str, Callable[..., None]] = {
    "list": list_sources,
    "get": get_source,
    "show": show_source,
    "bin": write_bins,
}
