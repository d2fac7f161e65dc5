"""Pictures with a class each, from a named source, a folder of pictures, or IDX files; and which are held out.

N images, C channels, H and W pixels down and across. Pixels are bytes.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.datasets import sources
from octavo.datasets.image_files import read_pictures
from octavo.datasets.labels import held_out_of_each
from octavo.errors import UserError
from octavo.io.compressed import CHUNK_BYTES, stream

IDX_NAMES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
MOST_IDX_BYTES = 1 << 31  # of a file, decompressed
IDX_BYTES = 8  # the code for unsigned bytes

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Split = Literal["shuffled", "last"]

HELD_OUT = 5  # one image in so many of each class
FIXED = 1234  # the order in which images are held out is that of this number, never of a run's seed
FASHION = (
    "t-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
DIGITS = tuple("0123456789")
CSV_SIDES = {"digits": (8, 16), "mnist5k": (28, 255)}  # pixels along a side, and the brightest value
NAMED = (*CSV_SIDES, "fashion")
MOST_PIXELS = 1 << 31  # of all images of a source together


@dataclass(frozen=True)
class Images:
    """Pictures in two parts: what is learnt from, and what is measured on, which has chosen nothing."""

    name: str
    train_NCHW: Tensor
    train_N: Tensor
    test_NCHW: Tensor
    test_N: Tensor
    labels: tuple[str, ...]
    split: str  # in words: which images are held out

    @property
    def sizes(self) -> dict[str, int]:
        """What a model for these images takes beside its config."""
        _, C, H, W = self.train_NCHW.shape
        return {"height": H, "width": W, "channels": C, "classes": len(self.labels)}

    @property
    def identity(self) -> str:
        """A hash of all of it: two results may stand side by side if they have it in common."""
        digest = hashlib.sha256(repr((self.labels, tuple(self.train_NCHW.shape), tuple(self.test_NCHW.shape))).encode())
        for part in (self.train_NCHW, self.train_N, self.test_NCHW, self.test_N):
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()


def open_images(source: str | Path, side: int = 0, split: Split = "shuffled") -> Images:
    """The images of a name (digits, mnist5k, fashion), of a folder with a folder of pictures for each class, or of a
    folder with the four IDX files of MNIST and its like. Pictures of a folder become `side` pixels wide and high.

    What has no test part of its own is divided: a fifth of each class is held out, always the same, whatever the seed.
    """
    name, path = str(source), Path(source)
    if name in CSV_SIDES:
        _refuse_side(side, name)
        return _in_two(name, *_read_csv(name), DIGITS, split)
    if name == "fashion":
        path = _fashion_folder()
    elif not path.is_dir():
        known = ", ".join(NAMED)
        raise UserError(f"images come from {known}, or a folder: there is no folder {name!r}; check the name")
    if has_idx(path):
        _refuse_side(side, name)
        train_NHW, train_N, test_NHW, test_N = read_idx_folder(path)
        split_name = f"the {len(test_N):,} images of its own test files"
        classes = max(int(train_N.max()), int(test_N.max())) + 1
        labels = FASHION if path.name == "fashion" and classes == len(FASHION) else tuple(map(str, range(classes)))
        parts = (*_of(train_NHW[:, None], train_N), *_of(test_NHW[:, None], test_N))
        return Images(path.name, *parts, labels, split_name)
    missing = [name for name in IDX_NAMES if _find(path, name) is None]
    if len(missing) < len(IDX_NAMES):
        raise UserError(f"{path} must hold all four IDX files: {', '.join(missing)} (or .gz) is not there; add it")
    return _from_folder(path, side, split)


def _read_csv(name: str) -> tuple[Pixels, Labels]:
    """A CSV file of one image a line: the pixels row by row, then the digit."""
    (path,), (side, brightest) = sources.get_files(name).values(), CSV_SIDES[name]
    text = b"".join(stream(path)).replace(b"\n", b",").rstrip(b",").decode("ascii")
    values = np.fromstring(text, np.float64, sep=",").reshape(-1, side * side + 1)
    x_NHW = (values[:, :-1] * (255 / brightest)).round().astype(np.uint8).reshape(-1, 1, side, side)
    return x_NHW, values[:, -1].astype(np.int64)


def _refuse_side(side: int, name: str) -> None:
    if side:
        raise UserError(f"side is for a folder of pictures: {name} has images of one size already; leave it out")


def _fashion_folder() -> Path:
    """Fashion-MNIST cannot be fetched from a package index: the user puts its files somewhere."""
    roots = [Path(chosen)] if (chosen := os.environ.get("OCTAVO_DATA")) else []
    folders = [root / "fashion" for root in (*roots, sources.cache_folder())]
    found = next((folder for folder in folders if has_idx(folder)), None)
    if found is None:
        raise UserError(
            f"fashion is not here: no package index has it; get {', '.join(IDX_NAMES)} (each may end in .gz) from the "
            f"repository zalandoresearch/fashion-mnist, put them into {folders[0]}, or name their folder"
        )
    return found


def _from_folder(path: Path, side: int, split: Split) -> Images:
    """Pictures by class; those in test/ (or valid/, val/) are held out where there is a train/ beside it."""
    held = next((path / name for name in ("test", "valid", "val") if (path / name).is_dir()), None)
    if not (path / "train").is_dir() or held is None:
        x_NCHW, y_N, labels = read_pictures([path], side)[0]
        return _in_two(path.name, x_NCHW, y_N, labels, split)
    (train_NCHW, train_N, labels), (test_NCHW, test_N, _) = read_pictures([path / "train", held], side)
    split_name = f"the {len(test_N):,} pictures in {held.name}/"
    return Images(path.name, *_of(train_NCHW, train_N), *_of(test_NCHW, test_N), labels, split_name)


def _in_two(name: str, x_NCHW: Pixels, y_N: Labels, labels: tuple[str, ...], split: Split) -> Images:
    """A fifth of every class is held out: files are often sorted by class, so the end alone would not do."""
    held_N = held_out(y_N, split)
    if not held_N.any():
        few = min(int((y_N == one).sum()) for one in range(len(labels)))
        raise UserError(f"each class must have at least {HELD_OUT} images, one to hold out: one has {few}; add some")
    which = "the last fifth of each class" if split == "last" else "a fifth of each class, drawn once and for all"
    split_name = f"{which}: {int(held_N.sum()):,} images"
    return Images(name, *_of(x_NCHW[~held_N], y_N[~held_N]), *_of(x_NCHW[held_N], y_N[held_N]), labels, split_name)


def held_out(y_N: Labels, split: Split = "shuffled") -> NDArray[np.bool_]:
    """Which images are measured on: of each class a fifth, the last ones in the file's order or in a fixed other."""
    return held_out_of_each(y_N, HELD_OUT, np.random.default_rng(FIXED) if split == "shuffled" else None)


def _of(x_NCHW: Pixels, y_N: Labels) -> tuple[Tensor, Tensor]:
    if not len(x_NCHW) or x_NCHW.size > MOST_PIXELS:
        raise UserError(f"there must be images, of at most {MOST_PIXELS:,} pixels in all: shape {x_NCHW.shape}")
    return torch.from_numpy(np.ascontiguousarray(x_NCHW)), torch.from_numpy(y_N.astype(np.int64))


def shifted(x_BCHW: Tensor, down_B: Tensor, right_B: Tensor) -> Tensor:
    """Each image moved by so many pixels; what comes in is of the darkest pixel, what goes out is lost."""
    H, W = x_BCHW.shape[2:]
    at: dict[str, Any] = {"device": x_BCHW.device}
    row_BH, column_BW = torch.arange(H, **at) - down_B[:, None], torch.arange(W, **at) - right_B[:, None]
    inside_BHW = ((row_BH >= 0) & (row_BH < H))[:, :, None] & ((column_BW >= 0) & (column_BW < W))[:, None]
    b_B11 = torch.arange(len(x_BCHW), **at)[:, None, None]
    moved_BHWC = x_BCHW[b_B11, :, row_BH.clamp(0, H - 1)[:, :, None], column_BW.clamp(0, W - 1)[:, None]]
    return moved_BHWC.movedim(-1, 1) * inside_BHW[:, None]


# ---------------------------------------------------------------------- IDX: a magic number, the sizes, then bytes


def has_idx(folder: Path) -> bool:
    """Whether all four files of MNIST's format are there, plain or gzip."""
    return all(_find(folder, name) is not None for name in IDX_NAMES)


def read_idx_folder(folder: Path) -> tuple[Pixels, Labels, Pixels, Labels]:
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


def read_idx(path: Path) -> Pixels:
    """The array in an IDX file of bytes; its length must be what its sizes say."""
    data, most = bytearray(), MOST_IDX_BYTES
    for block in stream(path):
        if not data and len(block) >= 16:
            sizes = tuple(int.from_bytes(block[4 * i : 4 * i + 4], "big") for i in range(1, 1 + min(3, block[3])))
            most = min(most, 16 + math.prod(sizes))
        data += block
        if len(data) > max(most, CHUNK_BYTES):
            raise UserError(f"{path} is longer than its sizes say, or than {MOST_IDX_BYTES:,} bytes; get a whole copy")
    dimensions = data[3] if len(data) >= 4 else 0
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != IDX_BYTES or not 1 <= dimensions <= 3:
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
