"""Count and estimate n-grams on a GPU, from token ids: tokens per second, and where the time goes.

    python benchmarks/words.py --out words.txt
    python benchmarks/bench_ngram_gpu.py --text words.txt

Three streams: the words of the text; the words followed by as many sampled from its own trigram model, so that there
are more than 100 million; and the bytes of the text.
"""

from __future__ import annotations

import lzma
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor

from measure import median_spread, parser, print_machine, print_profile, require_gpu, time_call
from octavo.io.compressed import CHUNK_BYTES
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.ngram.counting import Vocabulary, count_ngrams
from octavo.text import Word, WordSettings
from octavo.text.chunks import Chunk, no_starts

LMPLZ_WORDS_PER_SECOND = 0.72e6  # lmplz -o 5 on two cores; the goal is thirty times as many
ORDER = 5


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--text", type=Path, required=True, help="words, one sentence a line; .xz is unpacked")
    arguments.add_argument("--repeats", type=int, default=5)
    args = arguments.parse_args()
    require_gpu()
    print_machine()
    print(f"order {ORDER}, medians (spread) of {args.repeats}")
    data = args.text.read_bytes()
    data = lzma.decompress(data) if args.text.suffix == ".xz" else data
    word, tokens = Word.learn_and_encode(lambda: _chunks(data), WordSettings("space", min_count=1))
    x_N = torch.from_numpy(np.concatenate(list(tokens)))
    measure("words", x_N, word.vocab, word.newline, args.repeats)
    more = sampled(x_N, word.vocab, word.newline, 104_000_000 - len(x_N))
    measure("words, half of them sampled", torch.cat([x_N, more]), word.vocab, word.newline, args.repeats)
    in_bytes = np.concatenate([[256], np.frombuffer(data, np.uint8)]).astype(np.int32)
    measure("bytes", torch.from_numpy(in_bytes), 257, 10, args.repeats)


def _chunks(data: bytes) -> list[Chunk]:
    starts = [np.zeros(1, np.int64)] + [no_starts()] * (len(data) // CHUNK_BYTES)
    return [Chunk(data[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES], s) for i, s in enumerate(starts)]


def measure(name: str, x_N: Tensor, vocab: int, newline: int | None, repeats: int) -> None:
    """Median seconds of fitting from ids on the GPU, its parts, and scoring."""
    config = NGramConfig(order=ORDER, sentences=True)
    x_N = x_N.cuda()
    seconds = [time_call(lambda: NGram.fit(x_N, config, vocab, newline)) for _ in range(repeats + 1)][1:]  # warm
    rate = len(x_N) / median(seconds)
    print(f"\n{name}: {len(x_N):,} tokens, vocabulary {vocab:,}")
    print(f"fit {median_spread(seconds, 3)} s: {rate / 1e6:.1f} million tokens/s, "
          f"{rate / LMPLZ_WORDS_PER_SECOND:.0f} times lmplz's")  # fmt: skip
    counting = time_call(lambda: [None for _ in count_ngrams(x_N, ORDER, Vocabulary(vocab, vocab - 1, newline))])
    copied = x_N.long().repeat(2)
    floor = time_call(lambda: [copied.sort(stable=True) for _ in range(3)]) / 3
    print(f"counting {counting:.3f} s, estimating and laying out {median(seconds) - counting:.3f} s")
    memory = torch.cuda.max_memory_allocated() / 1e9
    print(f"one 64-bit sort of as many keys, {ORDER} times: {ORDER * floor / 2:.3f} s; peak memory {memory:.1f} GB\n")
    print_profile(lambda: NGram.fit(x_N, config, vocab, newline))
    model = NGram.fit(x_N, config, vocab, newline)
    print(f"\nn-grams {model.sizes()}")
    built = time_call(lambda: model.index)
    part = x_N[: 1 << 24].long()[None]
    scoring = median(time_call(lambda: model.token_log_probs(model.start(1), part)) for _ in range(5))
    print(f"look-up table {built:.3f} s; scoring {part.numel() / scoring / 1e6:.1f} million tokens/s")


def sampled(x_N: Tensor, vocab: int, newline: int | None, count: int, rows: int = 1 << 16) -> Tensor:
    """Text sampled from the trigrams of x_N: each word follows a random occurrence of the last two words."""
    x_N = x_N.cuda().long()
    pair_N = torch.cat([x_N[:1] * 0, x_N[:-1]]) * vocab + x_N  # the last two words at each place
    key_N, place_N = pair_N.sort()
    generator = torch.Generator("cuda").manual_seed(0)
    place_R = torch.randint(1, len(x_N) - 1, (rows,), device="cuda", generator=generator)
    columns = []
    for _ in range(-(-count // rows)):
        columns.append(x_N[place_R])
        low_R = torch.searchsorted(key_N, pair_N[place_R])
        high_R = torch.searchsorted(key_N, pair_N[place_R], right=True)
        u_R = torch.rand(rows, device="cuda", generator=generator)
        pick_R = low_R + (u_R * (high_R - low_R)).long()
        place_R = (place_N[pick_R] + 1) % len(x_N)
    return torch.stack(columns, 1).flatten()[:count].int().cpu()


if __name__ == "__main__":
    main()
