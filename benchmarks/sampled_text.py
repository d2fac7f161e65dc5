"""A large text made from a smaller one: the text itself, then lines sampled from its word bigrams.

    python benchmarks/sampled_text.py --text words.txt --out sampled-5gb.txt --bytes 5000000000

It is for measuring how counting scales, and for nothing else: it has far fewer distinct words than a real text of its
size, and more distinct n-grams. The same text, size and seed give the same bytes.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.io.files import whole_file
from octavo.io.progress import progress

CHAINS = 1 << 16  # lines written at the same time
STEPS = 64  # words of each between two writes


def successors(text: Path) -> tuple[list[str], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """The words, their ids in the text, every place in the order of its word, and where each word's places begin."""
    ids: dict[str, int] = {"\n": 0}
    parts = []
    with open(text, encoding="utf-8") as file:
        for line in file:
            parts.append(np.array([ids.setdefault(word, len(ids)) for word in (*line.split(), "\n")], np.int32))
    id_N = np.concatenate(parts)
    place_N = np.argsort(id_N, kind="stable").astype(np.int32)
    first_V = np.concatenate([[0], np.bincount(id_N, minlength=len(ids)).cumsum()])
    return list(ids), id_N, place_N, first_V


def make(text: Path, out: Path, size: int, seed: int) -> None:
    """Write the text, then lines of the bigram chain until there are `size` bytes."""
    words, id_N, place_N, first_V = successors(text)
    spelt = np.array(words, object)
    generator = np.random.default_rng(seed)
    with whole_file(out) as file, progress("sampling", size, "bytes") as advance:
        with open(text, "rb") as source:
            shutil.copyfileobj(source, file)
        advance(file.tell())
        current_C = np.zeros(CHAINS, np.int64)  # every chain begins a line
        while (before := file.tell()) < size:
            rows = np.empty((CHAINS, STEPS), object)
            for step in range(STEPS):
                low_C, high_C = first_V[current_C], first_V[current_C + 1]
                place_C = place_N[low_C + (generator.random(CHAINS) * (high_C - low_C)).astype(np.int64)]
                current_C = id_N[(place_C + 1) % len(id_N)].astype(np.int64)
                rows[:, step] = spelt[current_C]
            ends = np.full((CHAINS, 1), "\n", object)
            current_C[:] = 0
            data = " ".join(np.concatenate([rows, ends], 1).ravel()).replace(" \n ", "\n").replace("\n\n", "\n")
            file.write(data.lstrip().encode())
            advance(file.tell() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="the text to begin with, of benchmarks/words.py")
    parser.add_argument("--out", type=Path, required=True, help="the text to write")
    parser.add_argument("--bytes", type=int, default=5_000_000_000, help="stop at the batch that reaches this size")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make(options.text, options.out, options.bytes, options.seed)


if __name__ == "__main__":
    main()
