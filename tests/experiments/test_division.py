"""An experiment in parts: one command for each cell, then one that gathers, gives what the undivided one gives."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import octavo
from comparing import untimed
from html_pages import sentences
from octavo.cli import main
from octavo.experiments.compare import Comparison, read_comparison
from octavo.experiments.division import without_division


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(sentences(300), encoding="utf-8")
    return path


def said(*words: str) -> tuple[int, str, str]:
    """What a command returns and prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


def run_in_a_shell(line: str) -> str:
    """A printed command, as a shell runs it."""
    octavo_here = f'octavo() {{ {shlex.quote(sys.executable)} -m octavo.cli "$@"; }}'
    done = subprocess.run(["bash", "-c", f"{octavo_here}; {line}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_printed_commands_one_by_one_and_then_collect_equal_the_undivided_comparison(
    corpus: Path, tmp_path: Path
) -> None:
    words = ["compare", str(corpus), "--models", "bag,kn3,rnn,mix", "--budget", "3steps", "--out"]
    divided = [*words, str(tmp_path / "divided")]
    code, printed, _ = said(*divided, "--cells")
    assert code == 0
    lines = printed.splitlines()
    assert [line.split()[-2:] for line in lines] == [
        ["--run-cell", "bag"],
        ["--run-cell", "kn3"],
        ["--run-cell", "rnn"],
    ]
    assert run_in_a_shell(" && ".join(reversed(lines))).startswith("rnn: ")
    assert said(*divided, "--cells")[1] == ""  # nothing is left to do
    assert said(*divided, "--collect")[0] == 0
    assert said(*words, str(tmp_path / "whole"))[0] == 0
    together, whole = (read_comparison(tmp_path / name) for name in ("divided", "whole"))
    assert untimed(together) == untimed(whole)
    assert together["mix"].bits_per_byte is not None
    assert together.proof is not None
    assert whole.proof is not None
    assert {key: together.proof[key] for key in ("model", "archive_bytes", "restored")} == {
        key: whole.proof[key] for key in ("model", "archive_bytes", "restored")
    }
    assert (tmp_path / "divided" / "report.html").is_file()


def test_what_is_missing_is_named_and_nothing_is_trained_instead(corpus: Path, tmp_path: Path) -> None:
    words = ["compare", str(corpus), "--models", "bag,kn3", "--no-prove", "--out", str(tmp_path / "out")]
    code, printed, _ = said(*words, "--cells", "--json")
    assert (code, [one["key"] for one in json.loads(printed)]) == (0, ["bag", "kn3"])
    code, printed, _ = said(*words, "--run-cell", "kn3", "--json")
    assert (code, json.loads(printed)["status"]) == (0, "finished")
    code, printed, errors = said(*words, "--collect")
    assert (code, printed) == (2, "")
    assert errors.startswith(f"octavo: 1 of 2 cells are not finished in {tmp_path / 'out'}: bag; run their commands")
    assert not (tmp_path / "out" / "bag").exists()


def test_a_cell_that_failed_is_one_line_and_exit_code_2_and_stands_in_the_gathered_table(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compare", str(corpus), "--models", "bag,gpt", "--budget", "2steps", "--no-prove", "--out", str(tmp_path)]
    assert said(*words, "--cells")[0] == 0
    assert said(*words, "--run-cell", "bag")[0] == 0
    (tmp_path / "gpt").write_text("a file where the run goes")
    code, printed, errors = said(*words, "--run-cell", "gpt")
    assert (code, printed) == (2, "")
    last = errors.splitlines()[-1]
    assert last.startswith("octavo: gpt: ")
    code, _, _ = said(*words, "--collect")
    assert code == 1
    gathered: Comparison = read_comparison(tmp_path)
    assert [row.model for row in gathered.failed] == ["gpt"]
    assert f"octavo: gpt: {gathered['gpt'].error}" == last


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run-cell", "bag"], "there is no experiment in .* yet; begin it with --cells"),
        (["--cells", "--collect"], "are different commands: --cells and --collect were given"),
    ],
)
def test_a_part_of_nothing_and_two_parts_at_once_are_refused(
    words: list[str], message: str, corpus: Path, tmp_path: Path
) -> None:
    code, printed, errors = said("compare", str(corpus), "--models", "bag", "--out", str(tmp_path / "out"), *words)
    assert (code, printed) == (2, "")
    assert len(errors.splitlines()) == 1
    assert re.search(message, errors)
    assert not (tmp_path / "out").exists()


def test_cells_of_one_experiment_are_locked_one_by_one_and_against_the_whole(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["compare", str(corpus), "--models", "bag,kn3", "--no-prove", "--out", str(out)]
    assert said(*words, "--cells")[0] == 0
    assert "the experiment has no cell 'kn' that stands alone; did you mean kn3?" in said(*words, "--run-cell", "kn")[2]
    holding = (  # what lock_for does, without the seconds that its imports take
        "import sys; from octavo.io.lock import locked\n"
        "with locked(sys.argv[1], 'is at work'): print('held', flush=True); sys.stdin.read()"
    )
    for held, refused in (("cells/bag.json", "one process at a time writes"), (".", "runs the whole experiment")):
        with subprocess.Popen(
            [sys.executable, "-c", holding, str(out / held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert refused in said(*words, "--run-cell", "bag")[2]
            if held != ".":
                assert said(*words, "--run-cell", "kn3")[0] == 0
            holder.communicate()


def test_a_scaling_experiment_and_a_table_of_domains_are_divided_too(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("another text, word for word, " * 300, encoding="utf-8")
    scale = ["scale", "ngram", str(corpus), "--lengths", "0.25", "0.5", "1", "--order", "2", "--out"]
    assert octavo.train("ngram", corpus, order=2, out=tmp_path / "kn2", measure=False)
    domains = ["domains", str(tmp_path / "kn2"), "--texts", str(corpus), str(tmp_path / "other.txt"), "--out"]
    for verb, numbers in ((scale, scale_numbers), (domains, domains_numbers)):
        divided, whole = [*verb, str(tmp_path / f"{verb[0]}-divided")], [*verb, str(tmp_path / f"{verb[0]}-whole")]
        commands = said(*divided, "--cells")[1].splitlines()
        assert commands
        for command in commands:
            assert said(*shlex.split(command)[1:])[0] == 0
        results = [said(*words, "--json") for words in ([*divided, "--collect"], whole)]
        assert [code for code, _, _ in results] == [0, 0]
        assert numbers(json.loads(results[0][1])) == numbers(json.loads(results[1][1]))


def scale_numbers(result: dict[str, Any]) -> list[Any]:
    return [{key: value for key, value in point.items() if key != "seconds"} for point in result["points"]]


def domains_numbers(result: dict[str, Any]) -> list[Any]:
    return list(result["models"])


def test_the_flags_of_a_part_are_no_part_of_the_experiments_command() -> None:
    words = [
        "octavo",
        "scale",
        "gpt",
        "a.txt",
        "--cells",
        "--seed",
        "1",
        "--run-cell",
        "x",
        "--run-cell=y",
        "--collect",
    ]
    assert without_division(words) == ["octavo", "scale", "gpt", "a.txt", "--seed", "1"]
