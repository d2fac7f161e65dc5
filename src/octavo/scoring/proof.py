"""The proof of a score: the model compresses the text, restores it, and the archive's size is compared with the claim.

Coding takes one call of the model for each token of a stream, twice, so of a long text a part may have to do.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel
from octavo.scoring.bits_per_byte import Score
from octavo.scoring.range_coder import choose_streams, compress_bytes, decompress_bytes, encode_tokens
from octavo.text import Tokenizer

MIN_PROVED_BYTES = 10_000  # of a text, however long that takes
FIRST_STEPS, TIMED_SECONDS = 8, 0.5  # that are timed to estimate how long all of them take


def prove_score(
    model: LanguageModel[Any], tokenizer: Tokenizer, identity: bytes, score: Score, data: bytes
) -> dict[str, Any]:
    """Compress and restore the text; the archive's size beside the claim."""
    archive = compress_bytes(model, tokenizer, data, identity)
    claimed = score.bits / 8
    return {
        "name": score.name, "claimed_bytes": claimed, "archive_bytes": len(archive),
        "archive_bits_per_byte": 8 * len(archive) / max(1, len(data)),
        "restored": decompress_bytes(model, tokenizer, archive, identity) == data,
        "difference": len(archive) / claimed - 1 if claimed else 0.0,
    }  # fmt: skip


def provable_bytes(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes, seconds: float) -> tuple[int, float]:
    """How many bytes from the beginning can be proved in about so many seconds, and how long that takes.

    That is all of them, or fewer, but not fewer than MIN_PROVED_BYTES.
    """
    count, tokens = len(data), torch.from_numpy(np.asarray(tokenizer.encode(data), dtype=np.int64))
    while True:
        expected = proof_seconds(model, tokens[: len(tokens) * count // max(1, len(data))])
        if expected <= seconds or count <= MIN_PROVED_BYTES:
            return count, expected
        count = max(MIN_PROVED_BYTES, int(count * min(0.5, seconds / expected)))


def proof_seconds(model: LanguageModel[Any], tokens: Tensor) -> float:
    """How long it takes to compress the tokens and to restore them: a few steps are timed."""
    if not len(tokens):
        return 0.0
    began = perf_counter()
    streams = choose_streams(model, tokens)
    chosen = perf_counter()
    steps, timed = -(-len(tokens) // streams), FIRST_STEPS
    encode_tokens(model, tokens[: timed * streams], streams)  # which also makes whatever is made once
    first = perf_counter()
    timed = min(steps, timed * max(1, int(TIMED_SECONDS / max(1e-3, first - chosen))))
    encode_tokens(model, tokens[: timed * streams], streams)
    return chosen - began + 2 * steps * (perf_counter() - first) / timed
