"""The neural bigram trained on pair counts, against minibatch descent as one writes it first.

Both start from the same vectors, see the same tokens, and are judged on the same validation pairs. The peer is numpy,
vectorised, on as many threads as numpy takes: batches of 50 random pairs, rate 0.3, 40,000 iterations. Ours counts its
pairs inside the time; turning text into tokens is outside of both. A row of ours is a whole training with so many
steps, over which its rate falls to zero; "as it comes" finds by itself when to stop, and so trains twice.

python benchmarks/bench_bigram.py                       (GloVe vectors; needs octavo[parquet])
python benchmarks/bench_bigram.py --vectors "" --text wikitext-2
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.core import seeded_generator
from octavo.models.bigram import Bigram, BigramConfig
from octavo.models.bigram_training import PairCounts, fit_bigram, held_out_loss
from octavo.text import learn_and_tokenize, open_corpus, tokenize
from octavo.text.word_vectors import match_vectors

BATCH, RATE, ITERATIONS, LOOK = 50, 0.3, 40_000, 2_000

Array = NDArray[Any]


def peer(x: Array, vectors: Array, vocab: int, hidden: int, seed: int) -> Iterator[tuple[int, list[Array]]]:
    """Stochastic descent on minibatches of pairs; yields its weights now and then, and time stands still meanwhile."""
    rng = np.random.default_rng(seed)
    now, after = x[:-1], x[1:]
    real = after != vocab - 1
    now, after = now[real], after[real]
    dim, outputs = vectors.shape[1], vocab - 1
    x_VD = vectors.copy()
    W1 = (rng.normal(size=(dim, hidden)) / math.sqrt(dim)).astype(np.float32)
    W2 = (rng.normal(size=(hidden, outputs)) / math.sqrt(hidden)).astype(np.float32)
    b1, b2 = np.zeros(hidden, np.float32), np.zeros(outputs, np.float32)
    rows = np.arange(BATCH)
    for iteration in range(1, ITERATIONS + 1):
        pick = rng.integers(0, len(now), BATCH)
        i, j = now[pick], after[pick]
        v = x_VD[i]
        h = 1 / (1 + np.exp(-(v @ W1 + b1)))
        p = h @ W2 + b2
        p -= p.max(1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(1, keepdims=True)
        p[rows, j] -= 1
        p /= BATCH
        da = (p @ W2.T) * h * (1 - h)
        dv = da @ W1.T
        W2 -= RATE * (h.T @ p)
        b2 -= RATE * p.sum(0)
        W1 -= RATE * (v.T @ da)
        b1 -= RATE * da.sum(0)
        np.subtract.at(x_VD, i, RATE * dv)
        if iteration % LOOK == 0:
            yield iteration, [x_VD, W1, b1, W2, b2]


def run_peer(x: Array, vectors: Array, vocab: int, hidden: int, valid: PairCounts) -> tuple[float, float]:
    """Seconds to the end, without the looks, and the perplexity there."""
    model = Bigram(BigramConfig(dim=vectors.shape[1], hidden=hidden), vocab)
    seconds, began, perplexity = 0.0, time.perf_counter(), math.inf
    for iteration, weights in peer(x, vectors, vocab, hidden, 0):
        seconds += time.perf_counter() - began
        with torch.no_grad():
            for own, weight in zip(model.weights(), weights, strict=True):
                own.copy_(torch.from_numpy(weight))
            perplexity = math.exp(held_out_loss(model, valid))
        if iteration % (5 * LOOK) == 0:
            print(f"  peer: {iteration:6} iterations {seconds:8.2f} s   perplexity {perplexity:.2f}", flush=True)
        began = time.perf_counter()
    return seconds, perplexity


def run_ours(
    x_N: torch.Tensor, start: tuple[Any, Any], vocab: int, config: BigramConfig, valid: PairCounts, seed: int
) -> tuple[float, float]:
    """Seconds of a whole training, its own looks at what it holds out included, and the perplexity at its end."""
    began = time.perf_counter()
    model = fit_bigram(x_N, config, vocab, seeded_generator(seed), *start)
    seconds = time.perf_counter() - began
    with torch.no_grad():
        return seconds, math.exp(held_out_loss(model, valid))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", default="shakespeare")
    parser.add_argument("--size", type=int, default=2000, help="words; the 256 bytes and begin come on top")
    parser.add_argument("--vectors", default="glove-6b-50d")
    parser.add_argument("--steps", type=int, nargs="+", default=[60, 80, 100, 120, 160, 300])
    parser.add_argument("--rate", type=float, default=0.05, help="of those runs; they take all their steps")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    corpus = open_corpus(args.text)
    tokenizer, store = learn_and_tokenize("word", corpus, size=args.size)
    vocab, x = tokenizer.vocab, store.tokens.astype(np.int64)
    x_N = torch.from_numpy(store.tokens.astype(np.int32))
    valid = PairCounts(torch.from_numpy(tokenize(corpus.valid, tokenizer).tokens.astype(np.int32)), vocab)
    start, vectors = _start(args.vectors, tokenizer, vocab, x)
    print(
        f"{args.text}: {len(x):,} tokens for training, {valid.total:,.0f} pairs to be judged on, vocabulary {vocab:,}"
    )
    peer_seconds, goal = run_peer(x, vectors, vocab, 50, valid)
    print(f"peer: {peer_seconds:.2f} s, validation perplexity {goal:.2f}\n")
    run_ours(x_N, start, vocab, BigramConfig(dim=vectors.shape[1], steps=50), valid, 0)  # warm the libraries up
    print(f"{'ours: steps':<12}{'seconds: median (spread)':>28}{'perplexity: median (spread)':>32}{'peer/ours':>11}")
    dim = vectors.shape[1]
    quick = {str(steps): BigramConfig(dim=dim, steps=steps, rate=args.rate, patience=0) for steps in args.steps}
    for name, config in {**quick, "as it comes": BigramConfig(dim=dim)}.items():
        took = [run_ours(x_N, start, vocab, config, valid, seed) for seed in range(args.repeats)]
        seconds, ends = zip(*took, strict=True)
        ratio = peer_seconds / statistics.median(seconds)
        reached = "all reach the peer's" if max(ends) <= goal else f"{sum(end <= goal for end in ends)} reach it"
        print(f"{name:<12}{_spread(seconds, 3):>28}{_spread(ends, 2):>32}{ratio:>10.0f}x  {reached}", flush=True)


def _start(name: str, tokenizer: Any, vocab: int, x: Array) -> tuple[tuple[Any, Any], Array]:
    """The vectors both begin with: tokens without one get a drawn one, the same for both."""
    rng = np.random.default_rng(0)
    if not name:
        drawn = (0.4 * rng.normal(size=(vocab, 50))).astype(np.float32)
        return (torch.from_numpy(drawn), None), drawn
    match = match_vectors(name, tokenizer, np.bincount(x, minlength=vocab))
    print("; ".join(match.notes))
    known = match.vectors_VD[match.known_V]
    drawn = (known.mean(0) + known.std(0) * rng.normal(size=match.vectors_VD.shape)).astype(np.float32)
    vectors = np.where(match.known_V[:, None], match.vectors_VD, drawn)
    return (torch.from_numpy(vectors), None), vectors


def _spread(values: tuple[float, ...], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


if __name__ == "__main__":
    main()
