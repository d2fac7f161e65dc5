"""Small image datasets for tests: noisy bars, as arrays and as a folder of IDX files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np


def stripes(count: int = 40, side: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Noisy pictures of horizontal (0) and vertical (1) bars, class by class, as files often are."""
    chance = np.random.default_rng(0)
    y_N = np.arange(count) * 2 // count
    x_NHW = chance.integers(0, 60, (count, side, side))
    for n, y in enumerate(y_N):
        line = chance.integers(1, side - 1)
        x_NHW[n, line if y == 0 else slice(None), slice(None) if y == 0 else line] = 255
    return x_NHW.astype(np.uint8), y_N


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    with gzip.open(path, "wb") if path.suffix == ".gz" else open(path, "wb") as file:
        file.write(header + array.astype(np.uint8).tobytes())


def idx_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    x_NHW, y_N = stripes()
    write_idx(folder / "train-images-idx3-ubyte.gz", x_NHW[::2])
    write_idx(folder / "train-labels-idx1-ubyte.gz", y_N[::2])
    write_idx(folder / "t10k-images-idx3-ubyte", x_NHW[1::2])
    write_idx(folder / "t10k-labels-idx1-ubyte", y_N[1::2])
    return folder
