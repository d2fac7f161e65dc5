"""The byte 7-gram of tiny Shakespeare: bits per byte, seconds, and real compression, beside compressors and NLTK.

python benchmarks/bench_shakespeare.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

import octavo
from measure import median_spread, octavo_command, parser, print_machine, rates, run_command, time_call
from octavo.experiments.compare.compressors import COMPRESSORS, best_way, known_text, why_missing
from octavo.scoring import range_coder as coder
from octavo.scoring.archive import read_header
from octavo.tasks.run import Run
from octavo.text import Split, open_corpus

REPEATS = 5


def main() -> None:
    parser(__doc__).parse_args()
    print_machine()
    corpus = open_corpus("shakespeare", errors="raw")
    train, valid = corpus.train.read(), corpus.valid.read()
    print(f"tiny Shakespeare: {len(train):,} bytes to train on, {len(valid):,} scored")
    model = fit_and_score()
    whole_command()
    compression(model, "tiny Shakespeare, all of it", train + valid)
    wiki = open_corpus("wikitext-2", errors="raw")
    compression(model, "1 MB of wikitext-2", (wiki.train.read() + wiki.valid.read())[:1_000_000])
    compressors(corpus.train, valid)
    nltk(train, valid)


def fit_and_score() -> Run:
    """Train and score in this process, the text read and torch loaded."""
    seconds, fits = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        trained: Run = octavo.train("ngram", "shakespeare", order=7, tokenizer="byte", measure=False)
        fits.append(time.perf_counter() - began)
        score = octavo.evaluate(trained, open_corpus("shakespeare", errors="raw").valid.read())
        seconds.append(time.perf_counter() - began)
    print(f"\norder 7, modified Kneser-Ney: {score.bits_per_byte:.4f} bits/byte")
    print(f"  train {median_spread(fits)} s, train and score {median_spread(seconds)} s, in one process")
    return trained


def whole_command() -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--order", "7", "--tokenizer", "byte", "--force", "--out", Path(folder, "kn7"))
        seconds = [run_command(octavo_command("train", "ngram", "shakespeare", *flags)).seconds for _ in range(3)]
    print(f"  the whole command (start, train, score, sample, page): {median_spread(seconds)} s")


def compressors(train: Split, valid: bytes) -> None:
    """What each makes of the scored part, the training text given."""
    print("\nthe training text given, bits/byte:")
    for name in COMPRESSORS:
        if missing := why_missing(name):
            print(f"  {name}: not measured; {missing}")
            continue
        known = known_text(name, train, valid)
        began = time.perf_counter()
        bits = 8 * best_way(name, known, valid)(valid) / len(valid)
        print(f"  {name}: {bits:.3f}, {time.perf_counter() - began:.1f} s")


def compression(run: Run, name: str, data: bytes) -> None:
    """Archive size against the claimed size, and speed of compressing and restoring."""
    score = octavo.evaluate(run, data)
    compressing, restoring = [], []
    for _ in range(3):
        began = time.perf_counter()
        archive = coder.compress_bytes(run.model, run.tokenizer, data, run.identity)
        compressed = time.perf_counter()
        assert coder.decompress_bytes(run.model, run.tokenizer, archive, run.identity) == data
        compressing.append(compressed - began)
        restoring.append(time.perf_counter() - compressed)
    claim = score.bits / 8
    streams = read_header(archive)[0].streams
    excess = len(archive) / claim - 1
    print(f"\n{name}: {len(data):,} bytes, claimed {claim:,.0f}, archive {len(archive):,} ({excess:+.3%})")
    speeds = [median_spread(rates(len(data) / 1e3, seconds), 0) for seconds in (compressing, restoring)]
    print(f"  {streams} streams; compress {speeds[0]} kB/s, restore {speeds[1]} kB/s")


def nltk(train: bytes, valid: bytes) -> None:
    """NLTK's interpolated Kneser-Ney on words, a small part of the text: the baseline that people know."""
    try:
        from nltk.lm import KneserNeyInterpolated
        from nltk.lm.preprocessing import padded_everygram_pipeline
        from nltk.util import ngrams
    except ImportError:
        print("\nNLTK is not installed: pip install nltk adds its line")
        return
    sentences = [line.split() for line in train.decode().splitlines() if line.strip()][:2_000]
    words_scored = [word for line in valid.decode().splitlines() for word in line.split()][:60]
    model = KneserNeyInterpolated(3)
    began = time.perf_counter()
    model.fit(*padded_everygram_pipeline(3, sentences))
    fitted = time.perf_counter()
    for gram in ngrams(words_scored, 3):
        model.score(gram[-1], gram[:-1])
    words = sum(map(len, sentences))
    print(f"\nNLTK, words, order 3: {words / (fitted - began):,.0f} words/s counted ({words:,} words),", end=" ")
    print(f"{len(words_scored) / (time.perf_counter() - fitted):,.0f} words/s scored")
    word_run = octavo.train("ngram", "shakespeare", order=3, tokenizer="word", measure=False)
    x_1T = torch.from_numpy(word_run.tokenizer.encode(valid).astype(np.int64))[None]
    word_run.model.score(x_1T)
    seconds = median(time_call(lambda: word_run.model.score(x_1T)) for _ in range(REPEATS))
    print(f"octavo, words, order 3: {x_1T.numel() / seconds:,.0f} tokens/s scored")


if __name__ == "__main__":
    main()
