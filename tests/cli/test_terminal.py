"""Tables fit the terminal; --quiet and --verbose say less and more; near misses are named."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import octavo
from octavo.cli import main
from octavo.cli.output import print_table
from octavo.experiments.table import table_text
from octavo.io.progress import progress
from octavo.io.terminal import fit_table, shorten

TEXT = "The owl and the pussycat went to sea in a beautiful pea-green boat.\n" * 20


def plain(text: str) -> list[str]:
    """The lines without what makes them bold."""
    return re.sub("\x1b\\[[0-9;]*m", "", text).splitlines()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "text.txt").write_text(TEXT)
    octavo.train("ngram", folder / "text.txt", order=3, out=folder / "runs" / "kn3", measure=False)
    octavo.compare(folder / "text.txt", models=["bag", "kn3"], out=folder / "runs" / "first")
    return folder


@pytest.mark.parametrize("width", [5, 12, 20])
@pytest.mark.parametrize(
    "text", ["runs/a/very/long/path/to/gru-seed1", "日本語の長い名前です", "a sentence of many words", "x"]
)
def test_a_shortened_text_fits_and_begins_and_ends_as_the_whole_one(text: str, width: int) -> None:
    short = shorten(text, width)
    assert cell_len(short) <= max(width, cell_len(text) if cell_len(text) <= width else 0)
    assert short[0] == text[0]
    if " " not in text:
        assert short[-1] == text[-1]
    assert (short == text) is (cell_len(text) <= width)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fit_terminals_in_single_rows(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    rows = [
        (f"runs/{'x' * 90}/gru-seed{n}", "a sentence that goes on and on " * 4, "1.2345", "12,345") for n in range(3)
    ]
    print_table(("run", "what it is", "bits/byte", "tokens"), rows, left=(0, 1))
    lines = plain(terminal.getvalue())
    assert len(lines) == 5
    assert max(map(cell_len, lines)) <= width
    for n, line in enumerate(lines[2:]):
        assert line.split()[0].endswith(f"gru-seed{n}")
        assert line.split()[-1] == "12,345"


def test_what_is_piped_is_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    name = "runs/" + "x" * 300
    print_table(("run", "bits/byte"), [(name, "1.0")])
    assert name in capsys.readouterr().out


def test_columns_without_room_are_left_out_from_the_end_and_named() -> None:
    titles = [f"figure {n}" for n in range(12)]
    fitted = fit_table(["run", *titles], [["a" * 40, *["1234.5678"] * 12]], [0], 60)
    assert fitted.titles == ["run", *titles[: len(fitted.titles) - 1]]
    assert [*fitted.titles[1:], *fitted.dropped] == titles
    assert sum(len(cell) + 3 for cell in fitted.rows[0]) - 3 <= 60


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_comparisons_table_fits_with_the_names_of_its_rows(
    folder: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = octavo.compare(folder / "text.txt", models=["bag", "kn3"], out=folder / "runs" / "first").rows
    lines = plain(table_text(rows, Terminal()))
    assert max(map(cell_len, lines)) <= width
    assert [line.split()[0] for line in lines[2:]] == [row.model for row in rows]


def say(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_a_row_of_a_comparison_is_found_by_name_and_title(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = folder / "runs" / "first"
    title = next(
        row["title"] for row in json.loads((first / "comparison.json").read_text())["rows"] if row["model"] == "kn3"
    )
    texts = {say(capsys, "generate", first / name, "--max-tokens", 9)[1] for name in ("kn3", "KN3", title)}
    assert len(texts) == 1
    assert octavo.load(first / title).identity == octavo.load(first / "kn3").identity
    code, _, err = say(capsys, "generate", first)
    assert (code, f"but it holds runs; name one, such as {first / 'bag'}" in err) == (2, True)
    code, _, err = say(capsys, "eval", first / "kn4")
    assert (code, f"did you mean {first / 'kn3'}?" in err) == (2, True)


def test_words_that_could_be_paths_are_left_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for prompt in ("and/or " * 200, "a//b/./c"):
        words = ("generate", folder / "runs" / "kn3", "--prompt", prompt, "--max-tokens", 1, "--json")
        code, out, err = say(capsys, *words)
        assert (code, err) == (0, "")
        assert json.loads(out)["prompt"] == prompt


def test_list_takes_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = say(capsys, "list", folder / "runs" / "kn3", "--json")
    assert (code, [row["run"] for row in json.loads(out)]) == (0, [str(folder / "runs" / "kn3")])


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["train", "ngram", "shakespear"], "shakespeare"), (["train", "ngram", "txet.txt"], "text.txt"),
        (["train", "gtp", "x"], "gpt"), (["tran", "gpt"], "train"), (["data", "lsit"], "list"),
        (["data", "get", "shakespear"], "shakespeare"), (["eval", "runs/kn33"], str(Path("runs", "kn3"))),
        (["exercises", "show", "score-scal"], "score-scale"),
        (["train", "ngram", "text.txt", "--tokenizer", "bytes"], "byte"),
        (["classify", "train", "linea", "x"], "linear"), (["train", "seq2seq", "kjv-asvv"], "kjv-asv"),
        (["classify", "train", "linear", "sentence-polarit"], "sentence-polarity"), (["list", "rnus"], "runs"),
        (["train", "ngram", "text.txt", "--preprocess", "lowr"], "lower"),
    ],
)  # fmt: skip
def test_a_near_miss_is_named(
    words: list[str], near: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    code, out, err = say(capsys, *words)
    assert (code, out) == (2, "")
    assert f"did you mean {near}" in err


def test_quiet_prints_results_and_errors_only(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words: list[Any] = ["train", "gru", folder / "text.txt", "--width", 8, "--layers", 1, "--budget", "2steps"]
    code, loud, err = say(capsys, *words, "--out", tmp_path / "a")
    assert (code, "step 1" in err) == (0, True)
    code, out, err = say(capsys, *words, "--out", tmp_path / "b", "--quiet")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == loud.splitlines()[0]
    code, out, err = say(capsys, "eval", "no/such/run", "--quiet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    code, _, err = say(capsys, "--quiet", "eval", folder, "--bogus")
    assert (code, "--bogus" in err) == (2, True)


def test_verbose_says_more_and_where_an_error_comes_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("eval", folder / "runs" / "kn3", folder / "text.txt")
    code, out, err = say(capsys, *words, "--json", "--verbose")
    assert code == 0
    assert json.loads(out)["bytes"] == len(TEXT)
    assert "text.txt: 100%\n" in err
    assert "s of computing" in err.splitlines()[-1]
    assert say(capsys, *words, "--json")[2] == ""
    code, _, err = say(capsys, "eval", "no/such/run", "--verbose")
    assert (code, "Traceback" in err, "is not a run" in err.splitlines()[-1]) == (2, True, True)
    assert say(capsys, *words, "--quiet", "--verbose")[0] == 2


def test_a_bar_stays_on_one_line_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("cutting the context", 3664, "windows") as advance:
        advance(3664)
    shown = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue()).replace("\r", "\n")
    lines = [line for line in shown.splitlines() if line.strip()]
    assert any(line.rstrip().endswith("a few seconds left") for line in lines)
    assert all(line.startswith("cutting the c") and cell_len(line) <= 60 for line in lines)


def test_a_message_is_one_short_line_that_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\u202e\r" + "y" * 70_000
    code, _, err = say(capsys, "eval", hostile)
    assert (code, err.count("\n")) == (2, 1)
    assert "\\x1b[2J\\u202e" in err
    assert err.rstrip("\n").isprintable()
    assert len(err) < 1000
    assert err.endswith("y/config.json\n")
