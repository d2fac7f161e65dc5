"""The neural bigram trained on pair counts, against minibatch descent as one writes it first.

Both start from the same vectors, see the same tokens, and are measured on the same validation pairs. The peer is numpy,
vectorised, on as many threads as numpy takes: batches of 50 random pairs, learning rate 0.3, 40,000 iterations. Ours
counts its pairs inside the time; turning text into tokens is outside of both. A row of ours is a whole training with
so many steps, over which its learning rate falls to zero; the default one finds by early stopping when to end, and so
trains twice.

python benchmarks/bench_bigram.py                       (GloVe vectors; needs octavo[parquet])
python benchmarks/bench_bigram.py --vectors "" --text wikitext-2
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from measure import median_spread, parser, print_header, print_machine, print_row
from octavo.core import seeded_generator
from octavo.models.bigram import Bigram, BigramConfig
from octavo.models.bigram_training import PairCounts, fit_bigram, held_out_loss
from octavo.text import learn_and_tokenize, open_corpus, tokenize
from octavo.text.word_vectors import match_vectors

BATCH, LEARNING_RATE, ITERATIONS, EVALUATE_EVERY = 50, 0.3, 40_000, 2_000

Array = NDArray[Any]


def peer(x: Array, vectors: Array, vocab: int, hidden: int, seed: int) -> Iterator[tuple[int, list[Array]]]:
    """Stochastic gradient descent on minibatches of pairs; yields its weights every EVALUATE_EVERY iterations."""
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
        W2 -= LEARNING_RATE * (h.T @ p)
        b2 -= LEARNING_RATE * p.sum(0)
        W1 -= LEARNING_RATE * (v.T @ da)
        b1 -= LEARNING_RATE * da.sum(0)
        np.subtract.at(x_VD, i, LEARNING_RATE * dv)
        if iteration % EVALUATE_EVERY == 0:
            yield iteration, [x_VD, W1, b1, W2, b2]


def run_peer(x: Array, vectors: Array, vocab: int, hidden: int, valid: PairCounts) -> tuple[float, float]:
    """Seconds of training, evaluations left out, and the validation perplexity at the end."""
    model = Bigram(BigramConfig(dim=vectors.shape[1], hidden=hidden), vocab)
    seconds, began, perplexity = 0.0, time.perf_counter(), math.inf
    for iteration, weights in peer(x, vectors, vocab, hidden, 0):
        seconds += time.perf_counter() - began
        with torch.no_grad():
            for own, weight in zip(model.weights(), weights, strict=True):
                own.copy_(torch.from_numpy(weight))
            perplexity = math.exp(held_out_loss(model, valid))
        if iteration % (5 * EVALUATE_EVERY) == 0:
            print(f"  peer: {iteration:6} iterations {seconds:8.2f} s   perplexity {perplexity:.2f}", flush=True)
        began = time.perf_counter()
    return seconds, perplexity


def run_ours(
    x_N: torch.Tensor, start: tuple[Any, Any], vocab: int, config: BigramConfig, valid: PairCounts, seed: int
) -> tuple[float, float]:
    """Seconds of a whole training, its own evaluations included, and the validation perplexity at its end."""
    began = time.perf_counter()
    model = fit_bigram(x_N, config, vocab, seeded_generator(seed), *start)
    seconds = time.perf_counter() - began
    with torch.no_grad():
        return seconds, math.exp(held_out_loss(model, valid))


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--text", default="shakespeare")
    arguments.add_argument("--vocab-size", type=int, default=2000, help="words; 256 bytes and begin are added")
    arguments.add_argument("--vectors", default="glove-6b-50d")
    arguments.add_argument("--steps", type=int, nargs="+", default=[60, 80, 100, 120, 160, 300])
    arguments.add_argument("--learning-rate", type=float, default=0.05, help="of those runs; they never stop early")
    arguments.add_argument("--repeats", type=int, default=7)
    args = arguments.parse_args()
    print_machine()
    corpus = open_corpus(args.text)
    tokenizer, store = learn_and_tokenize("word", corpus, vocab_size=args.vocab_size)
    vocab, x = tokenizer.vocab, store.tokens.astype(np.int64)
    x_N = torch.from_numpy(store.tokens.astype(np.int32))
    valid = PairCounts(torch.from_numpy(tokenize(corpus.valid, tokenizer).tokens.astype(np.int32)), vocab)
    start, vectors = _start(args.vectors, tokenizer, vocab, x)
    print(f"{args.text}: {len(x):,} tokens for training, {valid.total:,.0f} validation pairs, vocabulary {vocab:,}")
    peer_seconds, goal = run_peer(x, vectors, vocab, 50, valid)
    print(f"peer: {peer_seconds:.2f} s, validation perplexity {goal:.2f}\n")
    run_ours(x_N, start, vocab, BigramConfig(dim=vectors.shape[1], steps=50), valid, 0)  # warm the libraries up
    print_header("octavo, steps", "seconds", "validation perplexity", "peer / octavo", "seeds as good as the peer")
    dim = vectors.shape[1]
    quick = {
        str(steps): BigramConfig(dim=dim, steps=steps, rate=args.learning_rate, patience=0) for steps in args.steps
    }
    for name, config in {**quick, "default": BigramConfig(dim=dim)}.items():
        results = [run_ours(x_N, start, vocab, config, valid, seed) for seed in range(args.repeats)]
        seconds, perplexities = zip(*results, strict=True)
        reached = f"{sum(perplexity <= goal for perplexity in perplexities)} of {args.repeats}"
        ratio = f"{peer_seconds / median(seconds):.0f}"
        print_row(name, median_spread(seconds, 3), median_spread(perplexities), ratio, reached)


def _start(name: str, tokenizer: Any, vocab: int, x: Array) -> tuple[tuple[Any, Any], Array]:
    """The vectors both begin with; tokens without one get a random one, the same for both."""
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


if __name__ == "__main__":
    main()
