"""Picture files as arrays of bytes: a folder for each class, or one file. Only pixels are read, never run.

N images, C channels (1 where all are grey, else 3), H and W pixels.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from octavo.errors import UserError
from octavo.io.limits import check_memory
from octavo.io.progress import Advance, progress

Part = tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...]]

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
SENT = ("PNG", "JPEG")  # that somebody may send
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
GREY = ("1", "L", "LA", "I", "I;16", "F")
SIDE = 32  # pixels, where pictures are of different sizes and none was asked for
LARGEST_SIDE = 1024
MOST_PIXELS = 1 << 26  # of one file: what is larger is refused before it is unpacked


def read_pictures(folders: Sequence[Path], side: int = 0) -> list[Part]:
    """Pixels, class and the classes' names of each folder; all get one size and one set of classes."""
    if not 0 <= side <= LARGEST_SIDE:
        raise UserError(f"side must be at most {LARGEST_SIDE} pixels: side={side}; try --side {SIDE}")
    labels = _labels(folders)
    files = [[(path, i) for i, label in enumerate(labels) for path in _inside(folder / label)] for folder in folders]
    headers = [_read_header(path) for part in files for path, _ in part]
    if not headers:
        raise UserError(f"{folders[0]} holds no pictures: each class is a folder of {', '.join(ENDINGS[:3])} files")
    mode = "L" if all(mode in GREY for mode, _ in headers) else "RGB"
    sizes = {size for _, size in headers}
    (first, *others) = sizes
    size = (side or SIDE,) * 2 if side or others or max(first) > LARGEST_SIDE else first
    with progress("reading pictures", len(headers)) as advance:
        return [_read_part(part, labels, mode, size, advance) for part in files]


def read_picture(path: str | Path, mode: str, size: tuple[int, int]) -> NDArray[np.uint8]:
    """x_CHW of one file, made grey (L) or coloured (RGB) and of that width and height."""
    with _opened(Path(path)) as picture:
        return _pixels(picture, str(path), mode, size)


def picture_from(data: bytes, mode: str, size: tuple[int, int], most_pixels: int) -> NDArray[np.uint8]:
    """The same of a PNG or JPEG file that somebody sent."""
    with _opened(BytesIO(data), SENT, most_pixels) as picture:
        return _pixels(picture, "the picture", mode, size)


def _pixels(picture: Image.Image, name: str, mode: str, size: tuple[int, int]) -> NDArray[np.uint8]:
    try:
        # What is transparent is on white, as a page shows it.
        flat = picture.convert("RGBA") if "A" in picture.getbands() or "transparency" in picture.info else picture
        if flat.mode == "RGBA":
            flat = Image.alpha_composite(Image.new("RGBA", flat.size, "white"), flat)
        whole = flat.convert(mode)
        whole = whole if whole.size == size else whole.resize(size, Image.Resampling.BOX)
    except Exception as error:  # Pillow's readers raise what they happen to stumble over
        raise UserError(f"{name} is damaged: {_reason(error)}; leave it out or get it again") from error
    x_HWC = np.array(whole, np.uint8).reshape(size[1], size[0], -1)
    return np.ascontiguousarray(x_HWC.transpose(2, 0, 1))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _read_part(
    files: Sequence[tuple[Path, int]], labels: tuple[str, ...], mode: str, size: tuple[int, int], advance: Advance
) -> Part:
    channels = 1 if mode == "L" else 3
    check_memory(2 * len(files) * channels * size[0] * size[1], f"{len(files):,} pictures", "try a smaller --side")
    x_NCHW = np.empty((len(files), channels, size[1], size[0]), np.uint8)
    for n, (path, _) in enumerate(files):
        x_NCHW[n] = read_picture(path, mode, size)
        advance(1)
    return x_NCHW, np.array([label for _, label in files], np.int64), labels


def _labels(folders: Sequence[Path]) -> tuple[str, ...]:
    """The classes: the folders in the first one; others may have no more."""
    found = [[one.name for one in sorted(folder.iterdir()) if one.is_dir() and any(_inside(one))] for folder in folders]
    if len(found[0]) < 2:
        raise UserError(
            f"{folders[0]} must hold a folder of pictures for each of at least two classes: it has "
            f"{', '.join(found[0]) or 'none'}; put each picture into a folder named after its class"
        )
    for folder, names in zip(folders, found, strict=True):
        if foreign := sorted(set(names) - set(found[0])):
            raise UserError(f"{folder} has classes that {folders[0]} lacks: {', '.join(foreign[:3])}; remove them")
    return tuple(found[0])


def _inside(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("*") if path.suffix.lower() in ENDINGS and path.is_file())


def _read_header(path: Path) -> tuple[str, tuple[int, int]]:
    """The mode and the size that the file's header says."""
    with _opened(path) as picture:
        return picture.mode, picture.size


def _opened(path: Path | BytesIO, formats: tuple[str, ...] = FORMATS, most_pixels: int = MOST_PIXELS) -> Image.Image:
    """The file, its pixels not yet unpacked."""
    name = path if isinstance(path, Path) else "what was sent"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow's, about odd headers and about what is refused here anyway
            picture = Image.open(path, formats=formats)
    except Exception as error:
        reason = _reason(error) if isinstance(path, Path) else f"it must be one of {', '.join(formats)}"
        raise UserError(f"{name} is no picture that can be read: {reason}; leave it out or get it again") from error
    if picture.width * picture.height > most_pixels:
        picture.close()
        raise UserError(
            f"{name} has {picture.width:,} x {picture.height:,} pixels: make it smaller, {most_pixels:,} at most"
        )
    return picture
