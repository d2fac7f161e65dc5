"""octavo data duplicates: what it writes, in order, and what it refuses; a killed job goes on from its stages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import json_output
from duplicates import made_up_lines, write_documents
from octavo.cli import main
from octavo.engines.duckdb_engine import DuckDB
from octavo.text.corpus import open_text

TEXT = b"one fine day in spring\r\nanother line\n\none fine day in spring\n \none fine day in  Spring\nlast line"
HEAD = "kind\tremoved\tkept\tclosest\tsimilarity\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT)
    return path


def duplicates(text: Path, out: Path, *flags: str) -> int:
    return main(["data", "duplicates", str(text), "--out", str(out), *flags])


def test_exact_duplicates_are_removed_and_the_order_and_blank_lines_stay(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json_output(capsys, "data", "duplicates", str(text), "--out", str(tmp_path / "out"))
    kept = TEXT.replace(b"\none fine day in spring\n \n", b"\n \n")
    assert (tmp_path / "out" / "text.txt").read_bytes() == kept
    assert (tmp_path / "out" / "removed.tsv").read_text() == f"{HEAD}exact\t4\t1\t1\t1.000000\n"
    numbers = {"units": 7, "units_kept": 6, "bytes": len(TEXT), "bytes_kept": len(kept), "exact_removed": 1,
               "near_removed": 0}  # fmt: skip
    assert found == {"out": str(tmp_path / "out"), "text": str(tmp_path / "out" / "text.txt"), **numbers}
    record = json.loads((tmp_path / "out" / "duplicates.json").read_text())
    assert numbers.items() <= record.items()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.txt"], "no stages are left"


def test_near_duplicates_are_removed_with_what_they_repeat(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert duplicates(text, tmp_path / "out", "--near") == 0
    printed = capsys.readouterr().out
    assert "7 lines, 96 bytes: 1 exact and 1 near duplicates removed; 5 lines, 49 bytes stay" in printed
    assert "0.992" in printed
    rows = (tmp_path / "out" / "removed.tsv").read_text()
    assert rows == f"{HEAD}exact\t4\t1\t1\t1.000000\nnear\t6\t1\t1\t1.000000\n"
    assert (tmp_path / "out" / "text.txt").read_bytes() == b"one fine day in spring\r\nanother line\n\n \nlast line"


@pytest.mark.parametrize("near", [[], ["--near"]], ids=["exact", "near"])
@pytest.mark.parametrize("data", [b"x", b"only one line\n", b"\n\n", b" \n\t\n", b"a\n\na\n\n", b"word " * 400_000],
                         ids=["x", "one", "empty", "blank", "repeated", "huge"])  # fmt: skip
def test_texts_of_few_lines_stay_as_they_are(data: bytes, near: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(data)
    assert duplicates(tmp_path / "text.txt", tmp_path / "out", *near) == 0
    expected = data.replace(b"a\n\na\n\n", b"a\n\n\n")
    assert (tmp_path / "out" / "text.txt").read_bytes() == expected


def test_a_huge_line_is_compared_with_another(tmp_path: Path) -> None:
    line = b" ".join(b"%d" % (i * i) for i in range(120_000))
    (tmp_path / "text.txt").write_bytes(line + b"\nshort\n" + line + b" and more\n")
    assert duplicates(tmp_path / "text.txt", tmp_path / "out", "--near") == 0
    assert (tmp_path / "out" / "text.txt").read_bytes() == line + b"\nshort\n"


def test_what_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "latin.txt").write_bytes("the café is full of people\n".encode("latin-1") * 4)
    for name, message in (("empty.txt", "there is no text in"), ("latin.txt", "the text must be UTF-8: byte 7")):
        assert duplicates(tmp_path / name, tmp_path / "out") == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not (tmp_path / "out").exists()
    assert duplicates(tmp_path / "latin.txt", tmp_path / "out", "--encoding", "latin-1") == 0
    assert (tmp_path / "out" / "text.txt").read_text() == "the café is full of people\n"
    assert duplicates(tmp_path / "latin.txt", tmp_path / "out2", "--similarity", "0.5") == 2
    assert "add --near" in capsys.readouterr().err


def test_nothing_is_replaced_without_force(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert duplicates(text, tmp_path / "out") == 0
    assert duplicates(text, tmp_path / "out") == 2
    assert "--force" in capsys.readouterr().err
    assert duplicates(text, tmp_path / "out", "--force") == 0


def test_documents_stay_documents(tmp_path: Path) -> None:
    documents = [b"first\nof two lines", b"second", b"first\nof two lines", b"first\nsecond", "dritté".encode()]
    write_documents(tmp_path / "documents.jsonl", documents)
    whole, lines = tmp_path / "whole", tmp_path / "lines"
    assert duplicates(tmp_path / "documents.jsonl", whole, "--unit", "document") == 0
    assert [chunk for one in open_text(whole / "text.jsonl").chunks() for chunk in one.documents() if chunk] == [
        documents[i] for i in (0, 1, 3, 4)
    ]
    assert (whole / "removed.tsv").read_text() == f"{HEAD}exact\t3\t1\t1\t1.000000\n"
    assert duplicates(tmp_path / "documents.jsonl", lines) == 0
    records = [json.loads(line)["text"] for line in (lines / "text.jsonl").read_text().splitlines()]
    assert records == ["first\nof two lines", "second", "dritté"]


def test_lines_of_several_files_are_compared(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, data in (("a.txt", "one\ntwo"), ("b.txt", "two\nthree\n")):
        (tmp_path / "in" / name).write_text(data)
    assert duplicates(tmp_path / "in", tmp_path / "out") == 0
    assert (tmp_path / "out" / "text.jsonl").read_text() == '{"text": "one\\ntwo"}\n{"text": "three\\n"}\n'


def test_the_same_text_gives_the_same_bytes_and_a_text_without_duplicates_itself(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"\n".join(made_up_lines(300)))
    for name in ("one", "two"):
        assert duplicates(tmp_path / "text.txt", tmp_path / name, "--near", "--similarity", "0.7") == 0
    for name in ("text.txt", "removed.tsv", "duplicates.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert duplicates(tmp_path / "one" / "text.txt", tmp_path / "again") == 0
    assert (tmp_path / "again" / "text.txt").read_bytes() == (tmp_path / "one" / "text.txt").read_bytes()


@pytest.mark.parametrize("finished", [1, 5, 20, 22])
def test_a_killed_job_goes_on_from_its_finished_stages(
    finished: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_bytes(b"\n".join(made_up_lines(300)))
    assert duplicates(tmp_path / "text.txt", tmp_path / "undisturbed", "--near") == 0
    write, written = DuckDB.write, list[str]()

    def write_or_die(engine: DuckDB, query: str, folder: Path) -> None:
        if len(written) == finished:
            raise KeyboardInterrupt
        written.append(query)
        write(engine, query, folder)

    with monkeypatch.context() as patched:
        patched.setattr(DuckDB, "write", write_or_die)
        assert duplicates(tmp_path / "text.txt", tmp_path / "out", "--near") == 130
    again = list[str]()
    with monkeypatch.context() as patched:
        patched.setattr(DuckDB, "write", lambda *given: (again.append(given[1]), write(*given)))
        assert duplicates(tmp_path / "text.txt", tmp_path / "out", "--near") == 0
    assert not set(again) & set(written)
    assert "went on from the finished stages text, lines" in capsys.readouterr().err
    for name in ("text.txt", "removed.tsv", "duplicates.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_stages_of_other_settings_are_not_taken_over(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DuckDB, "write", stop)
        assert duplicates(text, tmp_path / "out", "--near") == 130
    assert (tmp_path / ".out.stages").is_dir()
    assert duplicates(text, tmp_path / "out") == 0
    assert "near" not in (tmp_path / "out" / "removed.tsv").read_text()
