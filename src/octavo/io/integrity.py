"""Are the files of a folder those that octavo wrote? Hashes of the tensors and of the tokenizer, in config.json.

    sha256    tensors: of model.safetensors; tokenizer: of tokenizer.json; start: of the first weights of a training

A safetensors file of ours has its hash in its own header too, computed as if 64 zeros stood there. While a run is
trained, its weights are replaced without config.json, so that a kill never leaves the two at odds: then the header also
names the run, by `start`, and that is what config.json must have. An earlier version's run has no hashes, and is read
without them. Hashes tell damage and confusion, not malice: whoever changes a file on purpose can write another hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from octavo.errors import UserError
from octavo.io.progress import VERBOSE
from octavo.io.run_folder import TENSORS, TOKENIZER

HASHES = "sha256"  # in config.json, and in the header of a file of tensors
BLANK = "0" * 64
OWN_HASH = re.compile(rb'"sha256": "([0-9a-f]{64})"')
OWN_RUN = re.compile(rb'"run": "([0-9a-f]{64})"')
HASHED_BESIDE_BYTES = 1 << 25  # of a file; Python waits for ever for a thread that finds no memory to begin
MAX_HEADER_BYTES = 100_000_000  # as the safetensors library has it
LARGE = 1 << 20  # bytes, from which on hashing them beside the writing is worth a thread


def write_hashed(file: IO[bytes], header: Mapping[str, Any], blocks: Iterable[memoryview]) -> str:
    """Write a safetensors file with its own hash among the header's metadata; returns the hash."""
    about = {HASHES: BLANK, **header.get("__metadata__", {})}  # first, so that no other text is taken for it
    head = json.dumps({"__metadata__": about, **{k: v for k, v in header.items() if k != "__metadata__"}}).encode()
    head += b" " * (-len(head) % 8)  # the tensors then begin at a multiple of eight
    began = file.tell()
    digest = hashlib.sha256(opening := len(head).to_bytes(8, "little") + head)
    file.write(opening)
    with ThreadPoolExecutor(1) as beside:
        for block in blocks:
            if block.nbytes < LARGE:
                digest.update(block)
                file.write(block)
            else:
                hashed = beside.submit(digest.update, block)
                file.write(block)
                hashed.result()
    end = file.tell()
    file.seek(began + opening.index(BLANK.encode()))
    file.write(digest.hexdigest().encode())
    file.seek(end)
    return digest.hexdigest()


def folder_hashes(folder: Path, record: Mapping[str, Any], tensors: str) -> dict[str, str]:
    """What config.json says of a folder's files; a run that is being trained is known by the weights it began with."""
    hashes = {"tensors": tensors}
    if (folder / TOKENIZER).is_file():
        hashes["tokenizer"] = _hash_file(folder / TOKENIZER)
    if "training" in record:
        begins = record["training"].get("finished") is False
        hashes |= {"start": start} if (start := tensors if begins else run_start(record)) else {}
    return hashes


def run_start(record: Mapping[str, Any]) -> str:
    """The hash of the weights that a run's training began with, by which its checkpoints know it; or empty."""
    return str(record.get(HASHES, {}).get("start", ""))


def _hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_tensors(path: Path) -> tuple[str, str, str]:
    """The hash of a safetensors file, the one that its header has, and the run that its header names; or empty."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = size.to_bytes(8, "little") + file.read(min(size, MAX_HEADER_BYTES))
        own, run = OWN_HASH.search(head), OWN_RUN.search(head)
        digest = hashlib.sha256(head if own is None else head[: own.start(1)] + BLANK.encode() + head[own.end(1) :])
        found = hashlib.file_digest(file, lambda: digest).hexdigest()
    return found, own[1].decode() if own else "", run[1].decode() if run else ""


@contextmanager
def verified(path: Path, record: Mapping[str, Any]) -> Iterator[None]:
    """Read a run's files within it: at its end, files whose hashes are not those of the record are refused.

    Large files are hashed in a thread of their own meanwhile. What is wrong with the files themselves is said by their
    readers.
    """
    if HASHES not in record and VERBOSE.get():
        print(
            f"note: {path} was saved without hashes, by an earlier version: its files are not verified", file=sys.stderr
        )
    if not os.path.isfile(path / TENSORS) or os.path.getsize(path / TENSORS) < HASHED_BESIDE_BYTES:
        yield
        check_hashes(path, record)
        return
    with ThreadPoolExecutor(1) as beside:
        checking = beside.submit(check_hashes, path, record)
        yield
        checking.result()


def check_hashes(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse files whose hashes are not those of the record."""
    known: Mapping[str, str] = record.get(HASHES, {})
    try:
        found, own, run = hash_tensors(path / TENSORS)
        text = _hash_file(path / TOKENIZER) if "tokenizer" in known else ""
    except OSError as error:
        raise UserError(f"{path} is not complete: {error}; train the run again") from error
    if own and own != found:
        raise UserError(f"{path / TENSORS} is damaged: its bytes do not match the hash in it; copy or train it again")
    training = record.get("training", {}).get("finished") is False
    if found != known.get("tensors", found) and not (training and own and run == known.get("start", "")):
        raise UserError(
            f"{path / TENSORS} is not the file that was saved with this run: its sha256 is {found[:12]}..., and "
            f"config.json says {known['tensors'][:12]}...; copy the whole folder again, or train it again"
        )
    if text != known.get("tokenizer", text):
        raise UserError(
            f"{path / TOKENIZER} is not the file that was saved with this run: its sha256 is {text[:12]}..., and "
            f"config.json says {known['tokenizer'][:12]}...; copy the whole folder again, or train it again"
        )
