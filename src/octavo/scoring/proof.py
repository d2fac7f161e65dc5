"""The proof of a score: the model compresses the text, restores it, and the archive's size is compared with the claim.

Coding takes one call of the model for each token of a stream, twice, so of a long text a part may have to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.scoring.bits_per_byte import Score
from octavo.scoring.range_coder import choose_streams, compress_bytes, decompress_bytes, encode_tokens
from octavo.text import Tokenizer

MIN_PROVED_BYTES = 10_000  # of a text, however long that takes
MAX_EXCESS = 0.02  # of the claim: what the streams' fresh starts and rare tokens may cost beside it
MAX_EXCESS_BYTES = 160  # the header, the coder's last words, and what a few streams cost at least
MAX_TOKEN_EXCESS_BITS = 0.002  # what the coder's own arithmetic costs
FIRST_STEPS, TIMED_SECONDS = 8, 0.5  # that are timed to estimate how long all of them take


def prove_score(
    model: LanguageModel[Any], tokenizer: Tokenizer, identity: bytes, score: Score, data: bytes
) -> dict[str, Any]:
    """Compress and restore the text; the archive's size beside the claim, and whether they agree (`proved`)."""
    archive = compress_bytes(model, tokenizer, data, identity)
    claimed = score.bits / 8
    try:
        restored = decompress_bytes(model, tokenizer, archive, identity) == data
    except UserError:  # the model computes other probabilities than when it wrote the archive
        restored = False
    return {
        "name": score.name, "claimed_bytes": claimed, "archive_bytes": len(archive),
        "archive_bits_per_byte": 8 * len(archive) / max(1, len(data)),
        "restored": restored, "proved": restored and len(archive) <= largest_archive(claimed, score.tokens),
        "difference": len(archive) / claimed - 1 if claimed else 0.0,
    }  # fmt: skip


def largest_archive(claimed_bytes: float, tokens: int) -> float:
    """How many bytes an archive may have that proves a claim."""
    return claimed_bytes * (1 + MAX_EXCESS) + MAX_EXCESS_BYTES + tokens * MAX_TOKEN_EXCESS_BITS / 8


def is_proved(proof: Mapping[str, Any]) -> bool:
    """Whether a proof holds; older ones say only whether the text was restored."""
    return bool(proof.get("proved", proof["restored"]))


def failure_in_words(proof: Mapping[str, Any]) -> str:
    """Why a proof does not hold."""
    restored = "" if proof["restored"] else ", which did not give the text back"
    return f"not proved: claims {proof['claimed_bytes']:,.0f} bytes, compressed to {proof['archive_bytes']:,}{restored}"


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
