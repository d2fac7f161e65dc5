"""octavo against KenLM on one real text of words, in one run: from text file to saved model, then scoring.

    python benchmarks/words.py --out words.txt
    python benchmarks/bench_kenlm.py --text words.txt --kenlm DIR      (DIR holds lmplz, build_binary and query)

Both count the same words in the same sentences without pruning or a limit on the vocabulary. octavo keeps a word at
the start of a line apart from the same word behind a space, because its tokens give the text back to the byte; so it
counts slightly more n-grams. Times are those of whole processes, memory is their peak.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import octavo
from measure import middle, run
from measure import octavo as command

SCORED_BYTES = 20_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument(
        "--kenlm", type=Path, help="the folder of lmplz, build_binary and query; without it, octavo alone"
    )
    parser.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", type=Path, help="where models are written (10 GB); a temporary folder otherwise")
    args = parser.parse_args()
    words = sum(len(line.split()) for line in args.text.open("rb"))
    print(f"{args.text.stat().st_size:,} bytes, {words:,} words; {torch.get_num_threads()} threads")
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


def train(args: argparse.Namespace, order: int, work: Path, tiny: Path) -> None:
    """From text file to saved model; the two take turns, so that a busy spell of the machine meets both."""
    ours, theirs = [], []
    flags = ("--tokenizer", "word", "--split", "space", "--min-count", "1", "--sentences", "--order", str(order))
    for _ in range(args.repeats):
        out = work / f"octavo{order}"
        ours.append(run(command("train", "ngram", args.text, *flags, "--no-measure", "--valid", tiny, "--out", out)))
        if args.kenlm:
            arpa = work / f"{order}.arpa"
            flags_kenlm = ("-o", str(order), "-S", "40%", "-T", work / "tmp", "--text", args.text, "--arpa", arpa)
            theirs.append(run([args.kenlm / "lmplz", *flags_kenlm]))
    print(f"\norder {order}, text to saved model: seconds, peak GB")
    for name, took in (("octavo train", ours), ("lmplz -S 40%", theirs)):
        if took:
            print(f"  {name:14}{middle([t.seconds for t in took]):>24}{max(t.gigabytes for t in took):8.2f}")
    if theirs:
        ratio = statistics.median(t.seconds for t in ours) / statistics.median(t.seconds for t in theirs)
        print(f"  octavo takes {ratio:.2f} of lmplz's time")


def score(args: argparse.Namespace, order: int, work: Path, text: Path) -> None:
    """Words and line ends per second, from text to log-probabilities, models loaded beforehand."""
    began = time.perf_counter()
    loaded = octavo.load(work / f"octavo{order}")
    model = loaded.model
    read = time.perf_counter()
    model.index  # noqa: B018  the look-up table is made on first use
    ready = time.perf_counter()
    print(f"\norder {order}, scoring: octavo loads in {read - began:.1f} s, makes its table in {ready - read:.1f} s")
    data, seconds = text.read_bytes(), []
    for _ in range(args.repeats + 1):
        began = time.perf_counter()
        x_1T = torch.from_numpy(loaded.tokenizer.encode(data).astype(np.int64))[None]
        logp_1T = model.score(x_1T)
        seconds.append(time.perf_counter() - began)
    tokens = x_1T.numel()
    bits = -float(logp_1T.sum()) / np.log(2) / len(data)
    print(
        f"  octavo        {middle([tokens / s / 1e6 for s in seconds[1:]]):>24} million tokens/s ({bits:.4f} bits/byte)"
    )
    del loaded, model
    if not args.kenlm:
        return
    binary = work / f"{order}.binary"
    run([args.kenlm / "build_binary", "probing", work / f"{order}.arpa", binary])
    (work / f"{order}.arpa").unlink()
    twice = work / "twice.txt"
    twice.write_bytes(data + data)
    query = [args.kenlm / "query", "-v", "summary", binary]
    rates = []
    for _ in range(args.repeats):
        once, both = (run(query, stdin=path).seconds for path in (text, twice))
        rates.append(tokens / (both - once) / 1e6)  # the difference leaves the loading out
    print(f"  KenLM query   {middle(rates):>24} million tokens/s")


if __name__ == "__main__":
    sys.exit(main())
