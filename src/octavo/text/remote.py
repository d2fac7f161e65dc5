"""Texts that lie elsewhere, s3://, gs://, hdfs:// and whatever else fsspec knows, copied here before they are read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from octavo.errors import UserError
from octavo.io.compressed import CHUNK_BYTES
from octavo.io.limits import read_limits

MARK = "://"  # tells an address from a path
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hdfs": "pyarrow", "abfs": "adlfs", "http": "aiohttp",
            "https": "aiohttp"}  # fmt: skip
PATTERN = "*?["


def is_address(name: str) -> bool:
    """Whether a name is an address such as s3://bucket/folder."""
    scheme, mark, rest = name.partition(MARK)
    return bool(mark and rest) and scheme.isalnum()


def fetch(address: str, folder: Path) -> list[Path]:
    """Copies, in the folder, of the file at an address, or of all files below it or that fit its pattern, in order."""
    scheme = address.partition(MARK)[0]
    try:
        import fsspec

        system, place = fsspec.core.url_to_fs(address)
    except ImportError as error:
        packages = " ".join(dict.fromkeys(["fsspec", PACKAGES.get(scheme, "fsspec")]))
        raise UserError(f"reading {address} needs packages that are not here: pip install {packages}") from error
    except ValueError as error:
        raise UserError(f"nothing here can read {scheme}{MARK}: {error}; copy the text to this machine") from error
    try:
        return _copy(system, place, address, folder)
    except OSError as error:
        raise UserError(f"cannot read {address}: {error}; check the name and your rights to read it") from error


def _copy(system: Any, place: str, address: str, folder: Path) -> list[Path]:
    if any(sign in place for sign in PATTERN):
        found = sorted(system.glob(place))
    else:
        found = sorted(system.find(place)) if system.isdir(place) else [place]
    if not found:
        raise UserError(f"there is no file at {address}; check the name")
    limits, size, copies = read_limits(), 0, []
    for number, one in enumerate(found):
        copy = folder / str(number) / Path(one).name  # its ending says how it is read
        copy.parent.mkdir(parents=True)
        with system.open(one, "rb") as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, CHUNK_BYTES)
        size += copy.stat().st_size
        limits.check_total(size)
        copies.append(copy)
    return copies
