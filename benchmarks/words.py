"""Build one large English text, a sentence a line, from Debian's documentation packages.

    python benchmarks/words.py --out words.txt

The packages are fetched by name with apt-get and read without being installed. The same package versions give the
same bytes; the table and the digest printed at the end say which versions those were.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote

from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.io.progress import progress

# By their names in Debian 12: those that hold the most prose for the time it takes to read them.
PACKAGES = (
    "ada-reference-manual-2012", "ant-doc", "apache2-doc", "bash-doc", "bind9-doc", "borgbackup-doc", "brz-doc",
    "buildbot-doc", "calculix-ccx-doc", "chezscheme-doc", "cinder-doc", "clang-16-doc", "cmake-doc", "cmucl-docs",
    "coreboot-utils-doc", "cppreference-doc-en-html", "csound-doc", "db5.3-doc", "dbus-1-doc", "derby-doc",
    "dict-foldoc", "dict-gcide", "dict-jargon", "dict-wn", "dpdk-doc", "dx-doc", "dynare-doc", "emscripten-doc",
    "enigma-doc", "erlang-doc", "evolution-data-server-doc", "evolver-doc", "exim4-doc-html", "ffmpeg-doc",
    "fontforge-doc", "fp-docs-3.2.2", "freetype2-doc", "frr-doc", "ganeti-doc", "gap-doc", "gcl-doc",
    "geographiclib-doc", "gettext-doc", "ghostscript-doc", "git-doc", "glance-doc", "gnuplot-doc", "gnustep-base-doc",
    "gnustep-gui-doc", "gnutls-doc", "groonga-doc", "icinga2-doc", "icu-doc", "ironic-doc", "janus-doc", "kea-doc",
    "keystone-doc", "krb5-doc", "lava-server-doc", "libaom-doc", "libboost1.74-doc", "libbotan-2-doc",
    "libclutter-1.0-doc", "libgda-5.0-doc", "libglib2.0-doc", "libgtk-3-doc", "libgtk-4-doc", "libgwyddion20-doc",
    "libigraph-doc", "libqscintilla2-doc", "libreoffice-help-en-us", "libstarlink-ast-doc", "libsvn-doc",
    "libtelepathy-glib-doc", "libtorrent-rasterbar-doc", "libvirt-doc", "libx11-doc", "liggghts-doc", "linux-doc-6.1",
    "llvm-16-doc", "mame-doc", "manila-doc", "maxima-sage-doc", "mit-scheme-doc", "mplayer-doc", "netcdf-doc",
    "neutron-doc", "ngspice-doc", "nim-doc", "nodejs-doc", "nova-doc", "numba-doc", "octave-doc", "octavia-doc",
    "openafs-doc", "openjdk-17-doc", "openvswitch-doc", "perl-doc", "png-definitive-guide", "postfix-doc",
    "postgis-doc", "postgresql-doc-15", "python-ase-doc", "python-astropy-doc", "python-brian-doc", "python-celery-doc",
    "python-dask-doc", "python-discord-doc", "python-django-doc", "python-ezdxf-doc", "python-ipython-doc",
    "python-mdanalysis-doc", "python-nibabel-doc", "python-nipy-doc", "python-nipype-doc", "python-pandas-doc",
    "python-pygame-doc", "python-pymatgen-doc", "python-pytest-doc", "python-scipy-doc", "python-scrapy-doc",
    "python-sklearn-doc", "python-sqlalchemy-doc", "python-sympy-doc", "python-tables-doc", "python3.11-doc",
    "qt5-doc-html", "qtbase5-doc-html", "qtdeclarative5-doc-html", "qttools5-doc-html", "racket-doc", "rsyslog-doc",
    "rt5-doc-html", "sagemath-doc", "shorewall-doc", "slurm-wlm-doc", "snd-doc", "sphinx-doc", "sqlite3-doc",
    "stilts-doc", "swi-prolog-doc", "swift-doc", "swig4.0-doc", "topcat-doc", "twisted-doc", "uima-doc",
    "wireshark-doc", "xen-doc", "xonsh-doc", "yade-doc", "zsh-doc",
)  # fmt: skip

HTML_NAMES = frozenset({".html", ".htm", ".xhtml", ".xml", ".page", ".docbook"})
TEXT_NAMES = frozenset({".txt", ".rst", ".md", ".pod", ".info", ".dict", ".adoc", ".texi", ".texinfo"})
COMPRESSED_NAMES = frozenset({".gz", ".dz"})  # dictzip files are gzip files
# Sphinx keeps the sources beside the pages made from them; the rest are the packaging's own notes.
SKIPPED_PARTS = frozenset({"_sources", "_static", "copyright", "README.Debian"})

# A sentence of English holds some of these; a line of a table, of code or of another language rarely does.
FUNCTION_WORDS = frozenset(
    "the of and to a in is that for be are with as this it or by from an on if not which can was will you has".split()
)
FEWEST_PLAIN_WORDS = 5
MOST_PLAIN_WORDS_PER_FUNCTION_WORD = 12
MOST_TOKENS = 200  # longer "sentences" are lists and tables without full stops

UNSEEN = re.compile(r"<!--.*?-->|<(script|style|head|pre|nav|svg|math|screen|programlisting)\b.*?</\1\s*>", re.S | re.I)
INLINE_TAG = re.compile(r"</?(?:a|abbr|b|big|cite|code|dfn|em|font|i|kbd|mark|q|s|samp|small|span|strong|sub|sup|"
                        r"tt|u|var|wbr|link|gui|guiseq|app|key|keyseq|cmd|literal|filename|command|emphasis|xref|"
                        r"ulink|function|option|parameter|varname|classname|type)\b[^<>]*>", re.I)  # fmt: skip
TAG = re.compile(r"<[^<>]*>")
SPACES = re.compile(r"\s+")
BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")
DICTIONARY_MARK = re.compile(r"\[[^\]]*\]|[{}]")  # cross-references, and which source a sense was taken from
DICTIONARY_SENSE = re.compile(r"\n(?=\S)|\n\s*\n|\n\s+(?=(?:[a-z]+ )?\d+[.:])")
POD_MARK = re.compile(r"\b[BCEFILSXZ]<+\s*([^<>]*?)\s*>+")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z])")
# Control, format and private characters are left out: some readers of the text take them for the end of a word.
TOKEN = re.compile(r"\w+(?:['’.-]\w+)*|[^\w\s\x00-\x1f\x7f-\xa0\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f"
                   r"\ue000-\uf8ff\ufeff\ufff0-\uffff\U000f0000-\U0010ffff]")  # fmt: skip
PLAIN_WORD = re.compile(r"[a-z]+(?:['’-][a-z]+)*")


@dataclass
class Tally:
    """The text written so far: its size, words and digest, and the keys of its lines."""

    size: int = 0
    lines: int = 0
    words: Counter[str] = field(default_factory=Counter)
    seen: set[bytes] = field(default_factory=set)
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)


def download(names: tuple[str, ...], cache: Path) -> list[Path]:
    """The package files of `names`, in that order; those not in `cache` yet are fetched with apt-get."""
    if not all(map(shutil.which, ("apt-get", "dpkg-deb"))):
        raise UserError("apt-get and dpkg-deb are needed to fetch and read the packages; run this on Debian 12")
    cache.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not list(cache.glob(f"{name}_*.deb"))]
    if missing:
        print(f"downloading {len(missing)} packages into {cache}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=cache) as half:  # a download cut short must not pass for a package
            fetching = subprocess.run(["apt-get", "-q", "download", *missing], cwd=half, capture_output=True, text=True)
            if fetching.returncode:
                complaints = "; ".join(line for line in fetching.stderr.splitlines() if line.startswith("E:"))
                raise UserError(f"apt-get could not fetch every package: {complaints}; try apt-get update first")
            for package in Path(half).glob("*.deb"):
                package.rename(cache / package.name)
    return [max(cache.glob(f"{name}_*.deb")) for name in names]


def files_inside(package: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Name and content of every readable document in a package, uncompressed, in the package's own order."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    # Its complaints are dropped because it makes one whenever the text is long enough before the package is read.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as unpacking:
        assert unpacking.stdout is not None
        try:
            with tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive:
                yield from documents(archive)
        except tarfile.TarError as error:
            raise UserError(f"{package} is not a whole package: {error}; delete it and run this again") from error
        unpacking.stdout.read()  # the padding after the last file, so that dpkg-deb does not write into a closed pipe
    if unpacking.returncode:
        raise UserError(f"{package} is not a whole package: dpkg-deb refuses it; delete it and run this again")


def documents(archive: tarfile.TarFile) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Name and content of the archive's files that hold running text, uncompressed."""
    for member in archive:
        path = PurePosixPath(member.name)
        compressed = path.suffix in COMPRESSED_NAMES
        if compressed:
            path = path.with_suffix("")
        known = path.suffix in HTML_NAMES or path.suffix in TEXT_NAMES
        if not member.isfile() or not known or SKIPPED_PARTS.intersection(path.parts):
            continue
        document = archive.extractfile(member)
        assert document is not None
        content = document.read()
        yield path, gzip.decompress(content) if compressed else content


def text_of(content: bytes) -> str:
    """The characters of a document: UTF-8 where it is, Latin-1 (in which every byte is a character) where not."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def paragraphs(path: PurePosixPath, content: bytes) -> list[str]:
    """The running text of a document; markup, code samples and line breaks are gone."""
    text = text_of(content)
    if path.suffix == ".dict":
        return DICTIONARY_SENSE.split(DICTIONARY_MARK.sub("", text))
    if path.suffix in TEXT_NAMES:
        return BLANK_LINE.split(POD_MARK.sub(r"\1", text) if path.suffix == ".pod" else text)
    text = UNSEEN.sub("\n", text)
    text = INLINE_TAG.sub("", SPACES.sub(" ", text))
    return html.unescape(TAG.sub("\n", text)).split("\n")


def sentence_line(sentence: str) -> tuple[str, bytes] | None:
    """A sentence as tokens with single spaces between, and the key that its repetitions share; None if not prose.

    The key holds the plain words alone, so that sentences made from one template by putting in another name or
    number count as repeated.
    """
    tokens = TOKEN.findall(sentence)
    if not FEWEST_PLAIN_WORDS < len(tokens) <= MOST_TOKENS:
        return None
    plain = [token for token in tokens if PLAIN_WORD.fullmatch(token)]
    if len(plain) < FEWEST_PLAIN_WORDS or 2 * len(plain) < len(tokens):
        return None
    function_words = sum(word in FUNCTION_WORDS for word in plain)
    if function_words * MOST_PLAIN_WORDS_PER_FUNCTION_WORD < len(plain):
        return None
    return " ".join(tokens), hashlib.blake2b(" ".join(plain).encode(), digest_size=8).digest()


def sentences(package: Path) -> list[tuple[str, bytes]]:
    """Every distinct line of prose in a package with its key, in the order of its files."""
    found: dict[bytes, str] = {}
    for path, content in files_inside(package):
        for paragraph in paragraphs(path, content):
            for sentence in SENTENCE_END.split(paragraph):
                if (pair := sentence_line(sentence)) is not None:
                    found.setdefault(pair[1], pair[0])
    return [(line, key) for key, line in found.items()]


def add_new(pairs: list[tuple[str, bytes]], limit: int, tally: Tally, out: IO[bytes]) -> int:
    """Write the lines not seen before until the text has `limit` bytes; how many bytes were written."""
    before = tally.size
    for line, key in pairs:
        if tally.size >= limit:
            break
        if key in tally.seen:
            continue
        tally.seen.add(key)
        row = f"{line}\n".encode()
        out.write(row)
        tally.digest.update(row)
        tally.words.update(line.split(" "))
        tally.size += len(row)
        tally.lines += 1
    return tally.size - before


def build(files: list[Path], limit: int, workers: int, path: Path) -> tuple[Tally, list[tuple[Path, int]]]:
    """Write the text; the tally of it, and each package used with the bytes that came from it."""
    tally = Tally()
    used: list[tuple[Path, int]] = []
    with whole_file(path) as out, progress("reading packages", limit, "bytes") as advance:
        with get_context("spawn").Pool(workers) as pool:
            for package, pairs in zip(files, pool.imap(sentences, files), strict=True):
                used.append((package, add_new(pairs, limit, tally, out)))
                advance(used[-1][1])
                if tally.size >= limit:
                    break
        if tally.size < limit:
            raise UserError(
                f"the packages hold {tally.size:,} bytes of prose, not {limit:,}; ask for fewer with --bytes"
            )
    return tally, used


def name_and_version(package: Path) -> tuple[str, str]:
    """From the file name of a package: NAME_VERSION_ARCHITECTURE.deb, with the epoch's colon as %3a."""
    name, version, _ = package.stem.split("_")
    return name, unquote(version)


def describe(tally: Tally, used: list[tuple[Path, int]]) -> str:
    """The packages with their versions and bytes, then the size and the digest of the text."""
    rows = ["{:32} {:32} {:>12,}".format(*name_and_version(package), size) for package, size in used]
    totals = {
        "packages": f"{len(used)}",
        "bytes": f"{tally.size:,}",
        "lines": f"{tally.lines:,}",
        "words": f"{tally.words.total():,}",
        "distinct words": f"{len(tally.words):,}",
        "sha256": tally.digest.hexdigest(),
    }
    return "\n".join([*rows, *(f"{name:14} {total}" for name, total in totals.items())])


def main() -> None:
    """Fetch the packages, write the text, print its sources and totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the text to write")
    parser.add_argument("--bytes", type=int, default=250_000_000, help="stop at the line that reaches this size")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "octavo" / "packages",
                        help="where the packages are stored for the next time")  # fmt: skip
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="packages to read at the same time")
    options = parser.parse_args()
    try:
        if options.bytes < 1 or options.workers < 1:
            raise UserError(f"--bytes and --workers are at least 1: got {options.bytes} and {options.workers}")
        tally, used = build(download(PACKAGES, options.cache), options.bytes, options.workers, options.out)
    except UserError as error:
        print(f"words: {error}", file=sys.stderr)
        sys.exit(2)
    print(describe(tally, used))


if __name__ == "__main__":
    main()
