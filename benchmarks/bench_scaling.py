"""How time and peak memory of training grow with the text, from 1 MB to 200 MB: they should be straight lines.

python benchmarks/words.py --out words.txt
python benchmarks/bench_scaling.py --text words.txt
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from measure import octavo, run

SIZES = (1, 3, 10, 30, 100, 200)  # million bytes
KINDS = {
    "words, order 3": ("--tokenizer", "word", "--split", "space", "--min-count", "1", "--sentences", "--order", "3"),
    "words, order 5": ("--tokenizer", "word", "--split", "space", "--min-count", "1", "--sentences", "--order", "5"),
    "bytes, order 7": ("--tokenizer", "byte", "--order", "7"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        part, tiny, out = Path(folder, "part.txt"), Path(folder, "tiny.txt"), Path(folder, "run")
        tiny.write_bytes(b"a line\n")
        part.write_bytes(b"a few words\n" * 10)
        empty = run(octavo("train", "ngram", part, "--no-measure", "--valid", tiny, "--out", out))
        print(f"starting and saving nothing: {empty.seconds:.2f} s, {empty.gigabytes:.2f} GB; taken off the ratios")
        for name, flags in KINDS.items():
            print(f"\n{name}\n{'MB':>6}{'s':>8}{'GB':>8}{'s/MB':>8}{'GB/100MB':>10}{'model MB':>10}")
            for size in SIZES:
                with args.text.open("rb") as text:
                    part.write_bytes(text.read(size * 1_000_000))
                took = run(octavo("train", "ngram", part, *flags, "--no-measure", "--valid", tiny, "--out", out))
                model = (out / "model.safetensors").stat().st_size / 1e6
                slope, weight = (took.seconds - empty.seconds) / size, (took.gigabytes - empty.gigabytes) / size * 100
                print(
                    f"{size:6}{took.seconds:8.2f}{took.gigabytes:8.2f}{slope:8.3f}{weight:10.2f}{model:10.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
