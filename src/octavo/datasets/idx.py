"""IDX, the format of MNIST's files: a magic number, the sizes, then bytes; plain or gzip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.errors import UserError
from octavo.io.compressed import stream

IDX_NAMES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
MOST_BYTES = 1 << 31  # of a file, decompressed
BYTES = 8  # IDX's code for unsigned bytes

Array = NDArray[np.uint8]


def has_idx(folder: Path) -> bool:
    """Whether all four files are there."""
    return all(_find(folder, name) is not None for name in IDX_NAMES)


def missing_idx(folder: Path) -> list[str]:
    """Which of the four files are not there, where some are."""
    missing = [name for name in IDX_NAMES if _find(folder, name) is None]
    return missing if len(missing) < len(IDX_NAMES) else []


def read_idx_folder(folder: Path) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Images and labels to learn from, and those of the test."""
    paths = [_find(folder, name) for name in IDX_NAMES]
    train_NHW, train_N, test_NHW, test_N = (read_idx(path) for path in paths if path is not None)
    for images, labels in ((train_NHW, train_N), (test_NHW, test_N)):
        if (
            images.ndim != 3
            or labels.ndim != 1
            or len(images) != len(labels)
            or images.shape[1:] != train_NHW.shape[1:]
        ):
            raise UserError(
                f"{folder}: there must be a label for each image, and one size: images {images.shape}, "
                f"labels {labels.shape}; get whole copies of the files"
            )
    return train_NHW, train_N.astype(np.int64), test_NHW, test_N.astype(np.int64)


def read_idx(path: Path) -> Array:
    """The array in an IDX file of bytes; its length must be what its sizes say."""
    data = bytearray()
    for block in stream(path):
        data += block
        if len(data) > MOST_BYTES:
            raise UserError(f"{path} is longer than {MOST_BYTES:,} bytes, which no file of images here is")
    dimensions = data[3] if len(data) >= 4 else 0
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != BYTES or not 1 <= dimensions <= 3:
        raise UserError(f"{path} is no IDX file of bytes: it begins with {bytes(data[:4]).hex(' ')}; get a whole copy")
    start = 4 + 4 * dimensions
    sizes = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    expected = start + int(np.prod([float(size) for size in sizes]))
    if len(data) != expected or 0 in sizes:
        raise UserError(
            f"{path} is not whole: sizes {sizes} need {expected:,} bytes, it has {len(data):,}; get it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes)


def _find(folder: Path, name: str) -> Path | None:
    return next((path for end in ("", ".gz") if (path := folder / f"{name}{end}").is_file()), None)
