"""The public functions compress and decompress: a language model is a compressor."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import UserError
from octavo.io.compressed import read_whole
from octavo.scoring.archive import PORTABLE_VERSION, read_header
from octavo.scoring.range_coder import compress_bytes, decompress_bytes
from octavo.tasks.adaptive import adaptive_run
from octavo.tasks.api import bytes_of, language_run
from octavo.tasks.device import pick_device, place
from octavo.tasks.run import Run


def compress(
    run: Run | str | Path, data: str | bytes | Path, *, streams: int | None = None, adaptive: bool = False,
    adaptive_learning_rate: float | None = None, adaptive_segment: int | None = None, portable: bool = False,
    device: str = "auto",
) -> bytes:  # fmt: skip
    """Compress text or any bytes with a language model: the archive has the size that the model claims.

    Args:
        run: A run with a lossless tokenizer, or the path of its folder.
        data: A str or bytes is the text itself; a Path is a file.
        streams: Parallel streams of the range coder: more are faster and cost a few bytes each.
        adaptive: Let a network go on learning while it reads, in one stream.
        adaptive_learning_rate: How fast, in place of the default.
        adaptive_segment: The tokens that it reads between two steps, in place of the default.
        portable: Write an archive that any machine restores: the model computes on the CPU in double precision.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

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
    content = _content(data)
    if portable and device not in ("auto", "cpu"):
        raise UserError(f"a portable archive is made on the CPU: device={device}; leave out --device or --portable")
    if not portable:
        place(coder, device, len(content))
    return compress_bytes(coder.model, coder.tokenizer, content, coder.identity, streams, portable)


def decompress(
    run: Run | str | Path, archive: bytes | Path, *, adaptive: bool = False,
    adaptive_learning_rate: float | None = None, adaptive_segment: int | None = None, device: str = "auto",
) -> bytes:  # fmt: skip
    """Restore what `compress` made an archive of, with the same model and the same adaptive settings.

    Args:
        run: The run it was compressed with, or the path of its folder.
        archive: The archive, or its file.
        adaptive: Whether it was written so.
        adaptive_learning_rate: As it was written.
        adaptive_segment: As it was written.
        device: Where the model computes; auto: where the archive was made, which is where it can be restored.

    Returns:
        The bytes that were compressed.

    Raises:
        UserError: The archive is damaged, or another model wrote it.

    Examples:
        >>> octavo.decompress("runs/kn3", octavo.compress("runs/kn3", b"any bytes: \\xff")).hex()
        '616e792062797465733a20ff'
    """
    coder = adaptive_run(language_run(run), adaptive, adaptive_learning_rate, adaptive_segment)
    content = _content(archive)
    place(coder, _device_of(content) if device == "auto" else device)
    return decompress_bytes(coder.model, coder.tokenizer, content, coder.identity)


def _device_of(archive: bytes) -> str:
    """The kind of device that an archive was made on, where it matters and there is one here; else the CPU."""
    header, _ = read_header(archive)
    if header.origin is None or header.version == PORTABLE_VERSION:
        return "auto"
    try:
        pick_device(header.origin.device)
    except UserError:  # the archive is refused in words of its own
        return "cpu"
    return header.origin.device


def _content(data: str | bytes | Path) -> bytes:
    """The bytes themselves, or those of a file."""
    if isinstance(data, Path):
        if not data.is_file():
            raise UserError(f"there is no file {data}; a str is the text itself, a Path a file")
        return read_whole(data, unpack=False)
    return bytes_of(data)
