"""Adaptive models on several kinds of text beside the best compressors, one table.

python benchmarks/bench_adaptive_texts.py NAME=TRAIN[:VALID]... [--budget 60s] [--seeds 1] [--out FOLDER]

Each text is compared with the defaults of `octavo compare`: an adaptive n-gram model, context mixing (it and hashed
contexts), a GRU, the adaptive mixture of all these, and PPMd and zpaq where they are installed. Without VALID the last
tenth of TRAIN is held out. Every row is given the training part; times are of training and of reading what is held out,
of compressors of both together. In the end the mixture's archive of the first bytes is restored in a process of its
own with another number of threads.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import octavo
from measure import parser, print_header, print_machine, print_row
from octavo.scoring.archive import read_header
from octavo.tasks.corpus import held_out

MODELS = ("kn8-adaptive", "cm-adaptive", "gru", "mix-adaptive", "ppmd", "zpaq")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("texts", nargs="+", help="NAME=TRAIN or NAME=TRAIN:VALID")
    arguments.add_argument("--budget", default="60s")
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--archived-bytes", type=int, default=10_000, help="of each text, to prove; 0 for all")
    arguments.add_argument("--out", type=Path, default=Path("runs/adaptive-texts"))
    args = arguments.parse_args()
    print_machine()
    rows: dict[str, dict[str, Any]] = {}
    for text in args.texts:
        name, _, paths = text.partition("=")
        train, _, valid = paths.partition(":")
        rows[name] = compared(name, train, valid, args)
    print()
    shown = [model for model in MODELS if all(model in found for found in rows.values())]
    print_header("text", "held out", *shown)
    for name, found in rows.items():
        print_row(name, f"{found['bytes']:,}", *(f"{found[model].bits_per_byte:.4f}" for model in shown))
    means = [statistics.mean(found[model].bits_per_byte for found in rows.values()) for model in shown]
    print_row("mean", "", *(f"{mean:.4f}" for mean in means))
    print_header("seconds: trained, then reading", "", *shown)
    for name, found in rows.items():
        print_row(name, "", *(seconds(found[model], found["bytes"]) for model in shown))
    for name, found in rows.items():
        text = found["valid"][: args.archived_bytes or None]
        print(archived(args.out / name / "mix-adaptive", text, name), flush=True)


def compared(name: str, train: str, valid: str, args: Any) -> dict[str, Any]:
    """The rows of a comparison by name, how many bytes were held out, and these."""
    began = time.perf_counter()
    settings: dict[str, Any] = {"prove": False} | ({"valid": [valid]} if valid else {})  # `archived` proves
    found = octavo.compare(
        train, models=list(MODELS), budget=args.budget, seeds=args.seeds, out=args.out / name, **settings
    )
    print(f"{name}: {time.perf_counter() - began:.0f} s in all", flush=True)
    text = held_out(octavo.load(args.out / name / "mix-adaptive"))[1].read()
    return {row.model: row for row in found.rows} | {"bytes": found.corpus["scored"]["bytes"], "valid": text}


def seconds(row: Any, held_out: int) -> str:
    trained = "" if row.seconds is None else f"{row.seconds:.0f}, "
    return f"{trained}{held_out / row.score_rate:.1f}" if row.score_rate else trained


def archived(run: Path, text: bytes, name: str) -> str:
    """Compress in one process and restore in another, with one thread and with two."""
    source, archive, restored = (run.parent / f"archived.{kind}" for kind in ("txt", "oct", "again"))
    source.write_bytes(text)
    claim = octavo.evaluate(octavo.load(run), source).bits / 8
    spent = []
    for verb, one, other, threads in (("compress", source, archive, "1"), ("decompress", archive, restored, "2")):
        began = time.perf_counter()
        command = [sys.executable, "-m", "octavo.cli", verb, str(run), str(one), str(other), "--force"]
        subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": threads}, check=True, capture_output=True)
        spent.append(time.perf_counter() - began)
    size, coded = archive.stat().st_size, len(read_header(archive.read_bytes())[1])
    same = restored.read_bytes() == text
    return (
        f"{name}: {len(text):,} bytes, claimed {claim:,.0f}, archive {size:,} ({size / claim - 1:+.2%}; header apart "
        f"{coded / claim - 1:+.3%}), {'restored' if same else 'NOT RESTORED'} with another number of threads; "
        f"{spent[0]:.0f} s and {spent[1]:.0f} s with the start"
    )


if __name__ == "__main__":
    main()
