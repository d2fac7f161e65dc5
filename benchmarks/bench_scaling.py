"""Time and peak memory of training against the size of the text, from 1 MB to 200 MB: both should grow linearly.

python benchmarks/words.py --out words.txt
python benchmarks/bench_scaling.py --text words.txt
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from measure import CommandCost, octavo_command, parser, print_header, print_machine, print_row, run_command

MEGABYTES = (1, 3, 10, 30, 100, 200)
KINDS = {
    "words, order 3": ("--tokenizer", "word", "--split", "space", "--min-count", "1", "--sentences", "--order", "3"),
    "words, order 5": ("--tokenizer", "word", "--split", "space", "--min-count", "1", "--sentences", "--order", "5"),
    "bytes, order 7": ("--tokenizer", "byte", "--order", "7"),
}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--text", type=Path, required=True)
    args = arguments.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        part, tiny, out = Path(folder, "part.txt"), Path(folder, "tiny.txt"), Path(folder, "run")

        def train(*flags: str) -> CommandCost:
            return run_command(
                octavo_command("train", "ngram", part, *flags, "--no-measure", "--valid", tiny, "--force", "--out", out)
            )

        tiny.write_bytes(b"a line\n")
        part.write_bytes(b"a few words\n" * 10)
        base = train()
        print(f"a text of 120 bytes: {base.seconds:.2f} s, {base.gigabytes:.2f} GB; subtracted from the ratios")
        for name, flags in KINDS.items():
            print(f"\n{name}\n")
            print_header("MB", "s", "GB", "s/MB", "GB/100 MB", "model, MB")
            for megabytes in MEGABYTES:
                with args.text.open("rb") as text:
                    part.write_bytes(text.read(megabytes * 1_000_000))
                cost = train(*flags)
                slopes = (cost.seconds - base.seconds) / megabytes, (cost.gigabytes - base.gigabytes) / megabytes * 100
                model = (out / "model.safetensors").stat().st_size / 1e6
                print_row(megabytes, *(f"{value:.2f}" for value in (cost.seconds, cost.gigabytes)),
                          f"{slopes[0]:.3f}", f"{slopes[1]:.2f}", f"{model:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
