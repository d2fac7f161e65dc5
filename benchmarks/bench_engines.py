"""Counting in memory, on DuckDB and on Spark: from text file to saved model, whole processes.

    python benchmarks/words.py --out words.txt
    python benchmarks/sampled_text.py --text words.txt --out sampled-5gb.txt --bytes 5000000000
    python benchmarks/bench_engines.py --work DIR --words words.txt --large sampled-5gb.txt --kenlm DIR

Parts, each left out where its text or program is not named, or with --parts: `words` (order 5: memory, duckdb with
2 GB, spark local[2], in turn, and whether the models are equal), `large` (order 3 of the sampled text: duckdb with
4 GB, and lmplz), `cluster` (Spark standalone on loopback: one worker and two, a core each), `cooccurrences` (GloVe's,
of the words text: duckdb with 2 GB, spark local[2], and with --glove Stanford's vocab_count and cooccur, in turn, and
whether the tables are equal). Every measurement is written to results.jsonl in --work when it is done; given again, the
command measures what is missing. Peak memory and processor time are of octavo's own process: Spark's Java and its
executors are others.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from measure import (
    CommandCost,
    median_spread,
    octavo_command,
    parser,
    print_header,
    print_machine,
    print_row,
    run_command,
)
from octavo.io.integrity import hash_tensors
from octavo.io.run_folder import TENSORS
from octavo.training.cooccurrence_folder import GLOVE_RECORD, GLOVE_RECORDS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # where the cluster on loopback is

WORDS_FLAGS = ("--tokenizer", "word", "--split", "space", "--min-count", "1", "--sentences")
PARTS = ("words", "large", "cluster", "cooccurrences")
MIN_COUNT, WINDOW, GLOVE_MEMORY = 5, 10, 2.0  # of co-occurrences; gigabytes for Stanford's cooccur
ENGINES = {
    "memory": ("--engine", "memory"),
    "duckdb, 2 GB": ("--engine", "duckdb", "--memory-limit", "2GB"),
    "spark local[2]": ("--engine", "spark", "--spark-master", "local[2]", "--memory-limit", "4GB"),
}


class Results:
    """Measurements that were made, in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def measure(self, part: str, name: str, round_: int, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored row, or the one that the work gives now."""
        key = {"part": part, "name": name, "round": round_}
        for row in self.rows:
            if key.items() <= row.items():
                return row
        row = key | work()
        self.rows.append(row)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"  {json.dumps(row)}", flush=True)
        return row

    def of(self, part: str, name: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["part"] == part and row["name"] == name]


@contextmanager
def peak_disk(folder: Path) -> Iterator[list[float]]:
    """The most gigabytes that files below the folder take meanwhile, as seen once a second."""
    peak, stopped = [0.0], threading.Event()

    def watch() -> None:
        while not stopped.wait(1.0):
            used = 0
            for below, _, names in os.walk(folder):
                for name in names:
                    try:
                        used += os.lstat(os.path.join(below, name)).st_blocks * 512
                    except OSError:  # it has gone meanwhile
                        continue
            peak[0] = max(peak[0], used / 1e9)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stopped.set()
        thread.join()


def train(args: Namespace, text: Path, order: int, flags: tuple[str, ...]) -> dict[str, Any]:
    """One octavo train: seconds, peak memory, peak disk and a hash of the model."""
    place = args.work / "run"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    tiny = args.work / "tiny.txt"
    tiny.write_text("one line to hold out .\n")
    command = octavo_command("train", "ngram", text, "--order", str(order), *WORDS_FLAGS, "--no-measure",
                             "--valid", tiny, "--out", place / "model", *flags)  # fmt: skip
    with peak_disk(place) as disk:
        cost = run_command(command)
    model = place / "model" / TENSORS
    row = spent(cost, disk[0]) | {"sha256": hash_tensors(model)[0]}
    shutil.rmtree(place)
    return row


def spent(cost: CommandCost, disk: float) -> dict[str, Any]:
    """What a command took; processor time also says how long it would have had an idle machine."""
    return {"seconds": cost.seconds, "processor": cost.processor, "gigabytes": cost.gigabytes, "disk": disk}


def lmplz(args: Namespace, text: Path, order: int, memory: str) -> dict[str, Any]:
    """One lmplz of the same text."""
    place = args.work / "lmplz"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = [args.kenlm / "lmplz", "-o", str(order), "-S", memory, "-T", place, "--text", text,
               "--arpa", place / "model.arpa"]  # fmt: skip
    with peak_disk(place) as disk:
        cost = run_command(command)
    shutil.rmtree(place)
    return spent(cost, disk[0])


def show(results: Results, part: str, names: tuple[str, ...], unit: str) -> None:
    """The part's table; ratios are to the first row."""
    print(f"\n{part}\n")
    print_header("", "seconds", "ratio", "processor seconds", "peak GB of the process", "peak GB of disk")
    base = median(row["seconds"] for row in results.of(part, names[0]))
    for name in names:
        rows = results.of(part, name)
        seconds = [row["seconds"] for row in rows]
        memory, disk = (max(row[key] for row in rows) for key in ("gigabytes", "disk"))
        processor = median([row["processor"] for row in rows])
        print_row(name, median_spread(seconds, 1), f"{median(seconds) / base:.2f}", f"{processor:.0f}",
                  f"{memory:.2f}", f"{disk:.1f}")  # fmt: skip
    hashes = {row["sha256"] for name in names for row in results.of(part, name) if "sha256" in row}
    print(f"\n{unit}; {'all that octavo made are equal' if len(hashes) == 1 else f'{len(hashes)} DIFFERENT RESULTS'}")


def bench_words(args: Namespace, results: Results) -> None:
    """Order 5 on all engines, in turn."""
    for number in range(args.rounds):
        for name in args.engines:
            results.measure("words", name, number, partial(train, args, args.words, 5, ENGINES[name]))
    show(results, "words", tuple(args.engines), f"{args.words.stat().st_size:,} bytes, order 5")


def bench_large(args: Namespace, results: Results) -> None:
    """Order 3 of the sampled text."""
    flags = ("--engine", "duckdb", "--memory-limit", "4GB")
    names = ["duckdb, 4 GB"]
    results.measure("large", names[0], 0, lambda: train(args, args.large, 3, flags))
    if args.kenlm:
        names.append("lmplz -S 4G")
        results.measure("large", names[1], 0, lambda: lmplz(args, args.large, 3, "4G"))
    show(results, "large", tuple(names), f"{args.large.stat().st_size:,} bytes of sampled text, order 3")


def bench_cluster(args: Namespace, results: Results) -> None:
    """Spark standalone on loopback, order 5."""
    running_cluster = import_module("spark_cluster").running_cluster
    names = ("one worker", "two workers")

    def on(workers: int) -> dict[str, Any]:
        folder = args.work / f"cluster{time.time_ns()}"
        folder.mkdir(parents=True)
        with running_cluster(folder, workers, memory="3g") as cluster:
            os.environ["PYSPARK_PYTHON"] = sys.executable
            flags = ("--engine", "spark", "--spark-master", cluster.url, "--memory-limit", "2GB")
            row = train(args, args.words, 5, flags)
        shutil.rmtree(folder, ignore_errors=True)
        return row

    for number in range(args.rounds):
        for workers, name in enumerate(names, 1):
            results.measure("cluster", name, number, partial(on, workers))
    show(results, "cluster", names, f"{args.words.stat().st_size:,} bytes, order 5, a core a worker")


def count_pairs(args: Namespace, flags: tuple[str, ...]) -> dict[str, Any]:
    """One octavo count cooccurrences."""
    place = args.work / "pairs"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = octavo_command("count", "cooccurrences", args.words, "--window", str(WINDOW), "--sentences",
                             "--min-count", str(MIN_COUNT), "--binary", "--out", place / "near", *flags)  # fmt: skip
    with peak_disk(place) as disk:
        cost = run_command(command)
    records = (place / "near" / GLOVE_RECORDS).read_bytes()
    row = {"pairs": len(records) // GLOVE_RECORD.itemsize, "sha256": hashlib.sha256(records).hexdigest()}
    shutil.rmtree(place)
    return spent(cost, disk[0]) | row


def cooccur(args: Namespace) -> dict[str, Any]:
    """Stanford's vocab_count and cooccur of the same text."""
    place = args.work / "cooccur"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    folder, text = args.glove.absolute(), args.words.absolute()
    shell = (
        f"'{folder}/vocab_count' -min-count {MIN_COUNT} -verbose 0 < '{text}' > vocab.txt && "
        f"'{folder}/cooccur' -window-size {WINDOW} -vocab-file vocab.txt -memory {GLOVE_MEMORY} -verbose 0 "
        f"-overflow-file overflow < '{text}' > {GLOVE_RECORDS}"
    )
    with peak_disk(place) as disk:
        cost = run_command(["sh", "-c", f"cd '{place}' && {shell}"])
    pairs = (place / GLOVE_RECORDS).stat().st_size // GLOVE_RECORD.itemsize
    shutil.rmtree(place)
    return spent(cost, disk[0]) | {"pairs": pairs}


def bench_cooccurrences(args: Namespace, results: Results) -> None:
    """GloVe's counts on the engines, in turn."""
    names = [name for name in args.engines if name != "memory"]
    for number in range(args.rounds):
        for name in names:
            results.measure("cooccurrences", name, number, partial(count_pairs, args, ENGINES[name]))
        if args.glove:
            results.measure("cooccurrences", "cooccur", number, partial(cooccur, args))
    every = (*names, *(["cooccur"] if args.glove else []))
    pairs = {row["pairs"] for name in every for row in results.of("cooccurrences", name)}
    size = f"{args.words.stat().st_size:,} bytes, window {WINDOW}, words that occur {MIN_COUNT} times"
    show(results, "cooccurrences", every, f"{size}, {' or '.join(f'{count:,}' for count in pairs)} pairs")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--work", type=Path, required=True, help="where models, stages and results are written")
    arguments.add_argument("--words", type=Path, help="the text of benchmarks/words.py")
    arguments.add_argument("--large", type=Path, help="the text of benchmarks/sampled_text.py")
    arguments.add_argument("--kenlm", type=Path, help="the folder of lmplz")
    arguments.add_argument("--glove", type=Path, help="the folder of Stanford's vocab_count and cooccur")
    arguments.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    arguments.add_argument("--rounds", type=int, default=3)
    args = arguments.parse_args()
    args.work = args.work.absolute()
    args.work.mkdir(parents=True, exist_ok=True)
    print_machine()
    results = Results(args.work / "results.jsonl")
    if "words" in args.parts and args.words:
        bench_words(args, results)
    if "large" in args.parts and args.large:
        bench_large(args, results)
    if "cluster" in args.parts and args.words:
        bench_cluster(args, results)
    if "cooccurrences" in args.parts and args.words:
        bench_cooccurrences(args, results)


if __name__ == "__main__":
    main()
