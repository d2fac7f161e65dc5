"""The proof of a score: the text is compressed to the size that was claimed, and restored."""

from __future__ import annotations

from typing import Any

from octavo.core import LanguageModel
from octavo.scoring.bits_per_byte import Score
from octavo.scoring.range_coder import compress_bytes, decompress_bytes
from octavo.text import Tokenizer


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
