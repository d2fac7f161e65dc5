"""Named data: what each source is, under which licence, and the bytes it must have.

A source is searched for in $OCTAVO_DATA/NAME/, then in the user's cache folder; only then is it fetched, into the
cache folder. $OCTAVO_DATA is read and never written. `get_files` hashes every file each time (about 0.2 s for 100 MB),
so no record of earlier checks can be out of date; `where` does not check them.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import sys
from pathlib import Path

from octavo.datasets.catalogue import DEFAULT, MODEL_SOURCES, SOURCES, File, Package, Source
from octavo.errors import UserError
from octavo.io.partial_files import sweep_temporary

__all__ = [
    "DEFAULT", "MODEL_SOURCES", "SOURCES", "File", "Package", "Source", "cache_folder", "fetch_model", "find",
    "get_files", "where",
]  # fmt: skip


def find(name: str) -> Source:
    """The source of that name."""
    if name in SOURCES:
        return SOURCES[name]
    close = difflib.get_close_matches(name.lower(), SOURCES, n=3, cutoff=0.5)
    advice = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(SOURCES)}"
    raise UserError(f"there is no data source named {name!r}; {advice}")


def where(name: str) -> Path | None:
    """The file, or the folder of several, if it is on this machine already; its bytes are not checked."""
    source = find(name)
    folder = _standing(source)
    if folder is None or len(source.files) > 1:
        return folder
    return folder / source.files[0].name


def get_files(name: str, again: bool = False) -> dict[str, Path]:
    """The checked files by name, in the order of the source's entry, fetched if need be (or `again`)."""
    source = find(name)
    folder = None if again else _standing(source)
    if folder is None:
        folder = cache_folder() / source.name
        from octavo.datasets.download import download  # here: most uses need no network

        download(source, folder)
    else:
        _check_standing(source, folder)
        if folder.parent == cache_folder():  # a download that was killed when its files were there left its work folder
            sweep_temporary(folder.parent)
    return {file.name: folder / file.name for file in source.files}


def fetch_model(name: str, again: bool = False) -> Path:
    """The checked file of a pretrained model, fetched if need be (or `again`)."""
    if name not in MODEL_SOURCES:
        raise UserError(f"there is no pretrained model named {name!r}; known are {', '.join(MODEL_SOURCES)}")
    (path,) = get_files(name, again).values()
    return path


def cache_folder() -> Path:
    """The folder of downloaded files: the operating system's place for what can be fetched again."""
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen) / "octavo"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "octavo"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "octavo"
    return Path.home() / ".cache" / "octavo"


def _data_folder() -> Path | None:
    """The folder the user keeps data in, if there is one."""
    chosen = os.environ.get("OCTAVO_DATA")
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        raise UserError(f"OCTAVO_DATA must name a folder: {chosen} is none; correct it or unset it")
    return Path(chosen)


def _standing(source: Source) -> Path | None:
    """The first folder that has every file of the source."""
    folders = [folder / source.name for folder in (_data_folder(), cache_folder()) if folder]
    return next((folder for folder in folders if all((folder / file.name).is_file() for file in source.files)), None)


def _check_standing(source: Source, folder: Path) -> None:
    """Refuse files that are not the ones the entry promises."""
    for file in source.files:
        path = folder / file.name
        try:
            with open(path, "rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}; make it readable or delete it") from error
        if found != file.sha256:
            fetched = folder == cache_folder() / source.name
            remedy = f"`octavo data get {source.name} --again` downloads it" if fetched else "delete or replace it"
            raise UserError(
                f"{path} is not the file it should be: {path.stat().st_size:,} bytes with sha256 {found}, "
                f"expected {file.bytes:,} bytes with {file.sha256}; {remedy}"
            )
