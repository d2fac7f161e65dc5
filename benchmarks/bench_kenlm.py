"""octavo against KenLM on one real text of words, in one run: from text file to saved model, then scoring.

    python benchmarks/words.py --out words.txt
    python benchmarks/bench_kenlm.py --text words.txt --kenlm DIR      (DIR holds lmplz, build_binary and query)

Both count the same words in the same sentences without pruning or a limit on the vocabulary. octavo keeps a word at
the start of a line apart from the same word behind a space, because its tokens give the text back to the byte; so it
counts slightly more n-grams. Times are those of whole processes, memory is their peak.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import median

import numpy as np
import torch

import octavo
from measure import (
    median_spread,
    octavo_command,
    parser,
    print_header,
    print_machine,
    print_row,
    rates,
    run_command,
    time_call,
    time_rounds,
)
from octavo.tasks.run import Run

SCORED_BYTES = 20_000_000


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--text", type=Path, required=True)
    arguments.add_argument(
        "--kenlm", type=Path, help="the folder of lmplz, build_binary and query; without it, octavo alone"
    )
    arguments.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--work", type=Path, help="where models are written (10 GB); a temporary folder otherwise")
    args = arguments.parse_args()
    print_machine()
    words = sum(len(line.split()) for line in args.text.open("rb"))
    print(f"{args.text.stat().st_size:,} bytes, {words:,} words")
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = Path(folder)
        scored, tiny = work / "scored.txt", work / "tiny.txt"
        with args.text.open("rb") as text:
            part = text.read(SCORED_BYTES)
        scored.write_bytes(part[: part.rindex(b"\n") + 1])
        tiny.write_bytes(part[: part.index(b"\n") + 1])
        for order in args.orders:
            train(args, order, work, tiny)
            score(args, order, work, scored)


def train(args: Namespace, order: int, work: Path, tiny: Path) -> None:
    """From text file to saved model; the runs of the two alternate."""
    ours, theirs = [], []
    flags = ("--tokenizer", "word", "--split", "space", "--min-count", "1", "--sentences", "--order", str(order))
    for _ in range(args.repeats):
        out = work / f"octavo{order}"
        command = octavo_command(
            "train", "ngram", args.text, *flags, "--no-measure", "--valid", tiny, "--force", "--out", out
        )
        ours.append(run_command(command))
        if args.kenlm:
            arpa = work / f"{order}.arpa"
            flags_kenlm = ("-o", str(order), "-S", "40%", "-T", work / "tmp", "--text", args.text, "--arpa", arpa)
            theirs.append(run_command([args.kenlm / "lmplz", *flags_kenlm]))
    print(f"\norder {order}, from text file to saved model\n")
    print_header("", "seconds", "peak GB")
    for name, costs in (("octavo train", ours), ("lmplz -S 40%", theirs)):
        if costs:
            seconds = median_spread([cost.seconds for cost in costs])
            print_row(name, seconds, f"{max(cost.gigabytes for cost in costs):.2f}")
    if theirs:
        ratio = median(cost.seconds for cost in ours) / median(cost.seconds for cost in theirs)
        print(f"\noctavo takes {ratio:.2f} of lmplz's time")


def score(args: Namespace, order: int, work: Path, text: Path) -> None:
    """Words and line ends per second, from text to log-probabilities, models loaded beforehand."""
    loaded: list[Run] = []
    load_seconds = time_call(lambda: loaded.append(octavo.load(work / f"octavo{order}")))
    model, tokenizer = loaded[0].model, loaded[0].tokenizer
    index_seconds = time_call(lambda: model.index)  # the look-up table is made on first use
    print(f"\norder {order}, scoring; octavo loads in {load_seconds:.1f} s, makes its table in {index_seconds:.1f} s\n")
    data = text.read_bytes()
    x_1T = torch.from_numpy(tokenizer.encode(data).astype(np.int64))[None]
    tokens, bits = x_1T.numel(), -float(model.score(x_1T).sum()) / np.log(2) / len(data)
    work_of = {"octavo": lambda: model.score(torch.from_numpy(tokenizer.encode(data).astype(np.int64))[None])}
    seconds = time_rounds(work_of, args.repeats)["octavo"]
    print_header("", "million tokens/s", "bits/byte")
    print_row("octavo", median_spread(rates(tokens / 1e6, seconds)), f"{bits:.4f}")
    if not args.kenlm:
        return
    binary = work / f"{order}.binary"
    run_command([args.kenlm / "build_binary", "probing", work / f"{order}.arpa", binary])
    (work / f"{order}.arpa").unlink()
    twice = work / "twice.txt"
    twice.write_bytes(data + data)
    query = [args.kenlm / "query", "-v", "summary", binary]
    seconds = []
    for _ in range(args.repeats):
        once, both = (run_command(query, stdin=path).seconds for path in (text, twice))
        seconds.append(both - once)  # the difference leaves the loading out
    print_row("KenLM query", median_spread(rates(tokens / 1e6, seconds)), "")


if __name__ == "__main__":
    main()
