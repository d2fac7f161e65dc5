"""The proof of a figure: the text is compressed to the size that was claimed, and given back."""

from __future__ import annotations

from typing import Any

from octavo.core import LanguageModel
from octavo.io.progress import progress
from octavo.scoring import range_coder as coder
from octavo.scoring.bits_per_byte import Score
from octavo.text import Tokenizer


def proof_of(
    model: LanguageModel[Any], tokenizer: Tokenizer, identity: bytes, score: Score, data: bytes
) -> dict[str, Any]:
    """Compress and restore the text; the archive's size beside the claim."""
    archive = compressed(model, tokenizer, identity, data)
    claimed = score.bits / 8
    return {
        "name": score.name, "claimed_bytes": claimed, "archive_bytes": len(archive),
        "archive_bits_per_byte": 8 * len(archive) / max(1, len(data)),
        "restored": restored(model, tokenizer, identity, archive) == data,
        "difference": len(archive) / claimed - 1 if claimed else 0.0,
    }  # fmt: skip


def compressed(
    model: LanguageModel[Any], tokenizer: Tokenizer, identity: bytes, data: bytes, lanes: int | None = None
) -> bytes:
    """The archive of a text."""
    with progress("compressing", 1) as advance:
        return coder.compress(model, tokenizer, data, identity, lanes, advance)


def restored(model: LanguageModel[Any], tokenizer: Tokenizer, identity: bytes, archive: bytes) -> bytes:
    """The text of an archive."""
    with progress("restoring", 1) as advance:
        return coder.decompress(model, tokenizer, archive, identity, advance)
