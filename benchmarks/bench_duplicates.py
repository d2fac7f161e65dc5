"""Duplicates of a text on DuckDB, exact ones and near ones: whole processes, from text file to text file.

    python benchmarks/words.py --out words.txt
    python benchmarks/bench_duplicates.py --text words.txt --work DIR

The text is the first --bytes of --text; after every tenth line one is repeated, after every other tenth line one is
repeated with one character more. Both are drawn from the lines before. So what is planted is known; near duplicates
that the text has of its own are found too. Seconds, lines a second, peak memory and how much of what was planted was
removed.
"""

from __future__ import annotations

import random
import shutil
from argparse import Namespace
from pathlib import Path
from statistics import median

from measure import median_spread, octavo_command, parser, print_header, print_machine, print_row, run_command

KINDS = {"exact": (), "near": ("--near",)}
EVERY = 10  # lines for one that is repeated, and one that is changed


def plant(text: Path, size: int, target: Path) -> tuple[set[int], int]:
    """Write the text with duplicates; the numbers of the lines that were planted, and of all lines."""
    generator, lines, planted, read = random.Random(0), list[str](), set[int](), 0
    with open(text, encoding="utf-8", newline="\n") as source:
        for number, line in enumerate(source):
            read += len(line.encode())
            if read > size:
                break
            lines.append(line.rstrip("\n"))
            if number % EVERY in (0, EVERY // 2) and lines[-1]:
                old = lines[generator.randrange(len(lines))]
                place = generator.randint(0, len(old)) if number % EVERY else len(old)
                lines.append(old[:place] + ("," if number % EVERY else "") + old[place:])
                if len(old) > 60:  # of which one character changes few shingles
                    planted.add(len(lines))
    target.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return planted, len(lines)


def bench(args: Namespace) -> None:
    text = args.work / "text.txt"
    planted, lines = plant(args.text, args.bytes, text)
    size = text.stat().st_size
    print(f"\n{size:,} bytes, {lines:,} lines; --memory-limit {args.memory_limit}\n")
    print_header("", "seconds", "lines/s", "peak GB", "removed")
    for name, flags in KINDS.items():
        costs = []
        for _ in range(args.rounds):
            shutil.rmtree(args.work / "out", ignore_errors=True)
            command = octavo_command("data", "duplicates", text, "--out", args.work / "out",
                                     "--memory-limit", args.memory_limit, *flags)  # fmt: skip
            costs.append(run_command(command))
        with open(args.work / "out" / "removed.tsv", encoding="utf-8") as rows:
            removed = {int(row.split("\t")[1]) for row in list(rows)[1:]}
        seconds = [cost.seconds for cost in costs]
        print_row(name, median_spread(seconds, 1), f"{lines / median(seconds):,.0f}",
                  f"{max(cost.gigabytes for cost in costs):.2f}", f"{len(removed):,}")  # fmt: skip
    print(
        f"\nof {len(planted):,} planted lines that are long enough, {len(planted & removed):,} were removed with --near"
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--text", type=Path, required=True, help="such as that of benchmarks/words.py")
    arguments.add_argument("--work", type=Path, required=True, help="where the texts are written")
    arguments.add_argument("--bytes", type=int, default=30_000_000, help="of the text")
    arguments.add_argument("--memory-limit", default="500MB")
    arguments.add_argument("--rounds", type=int, default=3)
    args = arguments.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print_machine()
    bench(args)


if __name__ == "__main__":
    main()
