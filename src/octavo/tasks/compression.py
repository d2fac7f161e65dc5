"""The public functions compress and decompress: a language model is a compressor."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import UserError
from octavo.io.compressed import read_whole
from octavo.scoring.range_coder import compress_bytes, decompress_bytes
from octavo.tasks.adaptive import adaptive_run
from octavo.tasks.api import bytes_of, language_run
from octavo.tasks.run import Run


def compress(
    run: Run | str | Path, data: str | bytes | Path, *, streams: int | None = None, adaptive: bool = False,
    adaptive_learning_rate: float | None = None, adaptive_segment: int | None = None,
) -> bytes:  # fmt: skip
    """Compress text or any bytes with a language model: the archive has the size that the model claims.

    Args:
        run: A run with a lossless tokenizer, or the path of its folder.
        data: A str or bytes is the text itself; a Path is a file.
        streams: Parallel streams of the range coder: more are faster and cost a few bytes each.
        adaptive: Let a network go on learning while it reads, in one stream.
        adaptive_learning_rate: How fast, in place of the default.
        adaptive_segment: The tokens that it reads between two steps, in place of the default.

    Returns:
        The archive, which the same model restores.

    Raises:
        UserError: The tokenizer is not lossless, or there is no such file.

    Examples:
        >>> archive = octavo.compress("runs/kn3", "to be or not to be, that is the question")
        >>> octavo.decompress("runs/kn3", archive)
        b'to be or not to be, that is the question'
    """
    coder = adaptive_run(language_run(run), adaptive, adaptive_learning_rate, adaptive_segment)
    return compress_bytes(coder.model, coder.tokenizer, _content(data), coder.identity, streams)


def decompress(
    run: Run | str | Path, archive: bytes | Path, *, adaptive: bool = False,
    adaptive_learning_rate: float | None = None, adaptive_segment: int | None = None,
) -> bytes:  # fmt: skip
    """Restore what `compress` made an archive of, with the same model and the same adaptive settings.

    Args:
        run: The run it was compressed with, or the path of its folder.
        archive: The archive, or its file.
        adaptive: Whether it was written so.
        adaptive_learning_rate: As it was written.
        adaptive_segment: As it was written.

    Returns:
        The bytes that were compressed.

    Raises:
        UserError: The archive is damaged, or another model wrote it.

    Examples:
        >>> octavo.decompress("runs/kn3", octavo.compress("runs/kn3", b"any bytes: \\xff")).hex()
        '616e792062797465733a20ff'
    """
    coder = adaptive_run(language_run(run), adaptive, adaptive_learning_rate, adaptive_segment)
    return decompress_bytes(coder.model, coder.tokenizer, _content(archive), coder.identity)


def _content(data: str | bytes | Path) -> bytes:
    """The bytes themselves, or those of a file."""
    if isinstance(data, Path):
        if not data.is_file():
            raise UserError(f"there is no file {data}; a str is the text itself, a Path a file")
        return read_whole(data, unpack=False)
    return bytes_of(data)
