"""Texts at addresses, and patterns of names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import fsspec
import pytest

from octavo.errors import UserError
from octavo.text import open_text
from octavo.text.remote import is_address


@pytest.fixture
def bucket() -> Iterator[fsspec.AbstractFileSystem]:
    """A file system in memory: fsspec's own, for tests."""
    system = fsspec.filesystem("memory")
    for name, data in (("b.txt", b"second "), ("a.txt", b"first "), ("c.jsonl", b'{"text": "third"}\n')):
        system.pipe(f"/bucket/{name}", data)
    yield system
    system.rm("/bucket", recursive=True)


def test_a_file_a_folder_and_a_pattern_elsewhere_are_read_in_order(bucket: fsspec.AbstractFileSystem) -> None:
    assert open_text("memory://bucket/a.txt").read() == b"first "
    assert open_text("memory://bucket").read() == b"first second third"
    assert open_text("memory://bucket/*.txt").read() == b"first second "
    assert open_text(["memory://bucket/c.jsonl", "memory://bucket/a.txt"]).read() == b"thirdfirst "


def test_what_is_not_there_or_cannot_be_read_is_refused_in_one_line(bucket: fsspec.AbstractFileSystem) -> None:
    with pytest.raises(UserError, match=r"cannot read memory://bucket/none.txt: .*; check the name"):
        open_text("memory://bucket/none.txt")
    with pytest.raises(UserError, match=r"there is no file at memory://bucket/\*\.md; check the name"):
        open_text("memory://bucket/*.md")
    with pytest.raises(UserError, match="nothing here can read carrier://"):
        open_text("carrier://pigeon")


@pytest.mark.skipif(find_spec("s3fs") is not None, reason="s3fs is installed: nothing is missing")
def test_a_missing_package_is_named() -> None:
    with pytest.raises(UserError, match=r"reading s3://bucket/text needs packages .*: pip install fsspec s3fs"):
        open_text("s3://bucket/text")


def test_a_pattern_that_the_shell_left_alone_is_read_in_order(tmp_path: Path) -> None:
    for name in ("2.txt", "1.txt", "3.md"):
        (tmp_path / name).write_text(name)
    assert open_text(str(tmp_path / "*.txt")).read() == b"1.txt2.txt"


def test_an_address_has_a_scheme() -> None:
    assert [is_address(name) for name in ("s3://a", "a/b", "C://", "://b", "memory://x/*")] == [
        True, False, False, False, True
    ]  # fmt: skip
