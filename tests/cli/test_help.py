"""Help says what the commands take, in words that read well, without importing what computes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.cli import VERBS, main
from octavo.cli.command_index import build_index
from octavo.cli.help import help_text, index, readable_help, readable_value
from octavo.datasets.sources import SOURCES

SLOW = ("torch", "numpy", "scipy", "pandas", "tokenizers", "safetensors", "sympy", "fastapi", "zstandard", "tyro")
ALL_PAGES = """
import contextlib, io, json, sys
from octavo.cli import main
for words in json.loads(sys.argv[1]):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(words)
    if code or len(printed.getvalue()) < 40:
        sys.exit(f"{words}: exit code {code}, {printed.getvalue()!r}")
    if slow := [name for name in sys.argv[2].split() if name in sys.modules]:
        sys.exit(f"{words} imports {slow}")
"""


def test_the_list_of_verbs_names_every_format_of_an_export(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["export"])
    formats = next(flag["value"] for flag in index()["export"]["groups"]["flags"] if flag["flag"] == "--format")
    assert [one for one in formats.split("|") if one.replace("hf", "hugging face") not in line.lower()] == []


def test_the_stored_descriptions_are_those_of_the_commands() -> None:
    stored, now = index(), build_index()
    remedy = "run: python -m octavo.cli.command_index"
    assert [name for name in stored if name not in now] == [], remedy
    assert [name for name in now if stored.get(name) != json.loads(json.dumps(now[name]))] == [], remedy


def test_no_page_imports_a_slow_library() -> None:
    pages = [[*name.split(), "--help"] for name in index()] + [["help", *name.split()] for name in VERBS]
    words = [sys.executable, "-c", ALL_PAGES, json.dumps([*pages, ["help"], ["train"], ["exercises"]]), " ".join(SLOW)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_verb_has_a_page() -> None:
    assert [verb for verb in VERBS if verb not in index()] == []


@pytest.mark.parametrize("width", [60, 80, 200])
def test_pages_fit_the_terminal_and_hold_no_none_and_no_double_negatives(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for name, described in index().items():
        page = help_text(name, described)
        assert "{" not in page.replace("{run}", ""), name
        assert "None" not in re.findall(r"[\w|]+", page), name
        assert "--no-no-" not in page, name
        assert not re.search(r"\(default: (True|False|None|)\)", page), name
        if "about" not in described or "usage" in described:
            continue
        for line in page.splitlines():
            is_one_word = " " not in line.strip() or line.strip().startswith(("--", "Example", "Several", "usage"))
            assert len(line) <= width or is_one_word, (name, line)


@pytest.mark.parametrize(
    ("metavar", "shown"),
    [
        ("{None}|INT", "N"), ("{None,words,space}", "words|space"), ("[STR [STR ...]]", "TEXT..."), ("STR", "TEXT"),
        ("{None}|STR", "TEXT"), ("FLOAT", "X"), ("RUN", "RUN"), ("{a,b}", "a|b"),
    ],
)  # fmt: skip
def test_values_have_names_that_readers_expect(metavar: str, shown: str) -> None:
    assert readable_value(metavar) == shown


def test_a_flag_that_turns_something_off_says_what_then_happens() -> None:
    assert readable_help("--no-ask", "--no-ask never asks you. (default: True)") == "Never asks you."
    assert readable_help("--no-tied", "One matrix; --no-tied: two. (default: True)") == "Two. Without it: one matrix."
    assert readable_help("--no-x", "Norms first. (default: True)") == "Turn off: norms first."
    assert readable_help("--size", "How large. (default: 3)") == "How large. (default: 3)"


def test_help_verb_and_verb_help_are_the_same_page(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["eval"], ["train", "gpt"], ["data", "bin"]):
        pages = []
        for argv in (["help", *words], [*words, "--help"], [*words, "-h"]):
            assert main(argv) == 0
            pages.append(capsys.readouterr().out)
        assert len(set(pages)) == 1
        assert pages[0].startswith(f"usage: octavo {' '.join(words)}")
    assert main(["help", "evla"]) == 2
    assert "did you mean eval?" in capsys.readouterr().err


def test_the_page_of_train_lists_every_task_with_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    main(["train"])
    page = capsys.readouterr().out
    for line in ("language: to predict the next token\n", "  gpt   ", "facts: to answer questions\n", "  bert  "):
        assert line in page


# --- completion


def complete(shell: Path, folder: Path, *words: str) -> list[str]:
    """What bash completes, with no program called octavo or python on the path."""
    typed = " ".join(f"'{word}'" for word in ("octavo", *words))
    script = f'source {shell}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; PATH=; _octavo; echo "${{COMPREPLY[@]}}"'
    command = ["/bin/bash", "--norc", "-euc", f"set +e; {script}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    done = subprocess.run([sys.executable, "-m", "octavo.cli", "completion", "bash"], capture_output=True, check=True)
    (folder / "octavo.bash").write_bytes(done.stdout)
    for run in ("kn7", "first/gru"):
        (folder / "runs" / run).mkdir(parents=True)
        (folder / "runs" / run / "config.json").write_text("{}")
    (folder / "book.txt").write_text("")
    return folder / "octavo.bash"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ev"], {"eval"}),
        ([""], {*VERBS, "help"}),
        (["train", "gp"], {"gpt"}),
        (["data", ""], {"list", "get", "show", "bin"}),
        (["train", "gpt", "--no-qk"], {"--no-qk-norm"}),
        (["train", "gpt", "--positions", "ro"], {"rotary"}),
        (["eval", "runs/k"], {"runs/kn7"}),
        (["generate", "runs/first/"], {"runs/first/gru"}),
        (["train", "ngram", "shakes"], {"shakespeare"}),
        (["train", "ngram", "bo"], {"book.txt"}),
        (["classify", "train", "li"], {"linear"}),
    ],
)
def test_bash_completes_without_starting_python(bash: Path, words: list[str], expected: set[str]) -> None:
    found = set(complete(bash, bash.parent, *words))
    assert expected <= found
    if words[-1]:
        assert all(one.startswith(words[-1]) for one in found)


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs the shell fish")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("octavo ev", "eval"), ("octavo train gp", "gpt"), ("octavo train gpt --no-qk", "--no-qk-norm"),
        ("octavo train gpt --positions ro", "rotary"), ("octavo train ngram shakes", "shakespeare"),
        ("octavo eval runs/k", "runs/kn7"),
    ],
)  # fmt: skip
def test_fish_completes(bash: Path, line: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "fish"])
    script = bash.parent / "octavo.fish"
    script.write_text(capsys.readouterr().out)
    words = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
    done = subprocess.run(words, cwd=bash.parent, capture_output=True, text=True, check=True)
    assert expected in [found.split("\t")[0] for found in done.stdout.splitlines()]


def test_scripts_of_all_shells_hold_verbs_models_flags_and_corpora(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        words = set(re.findall(r"[\w-]+", script))
        assert {*VERBS, "gpt", "seq2seq-recurrent", *SOURCES} <= words, shell
        assert {"qk-norm", "no-qk-norm"} & words or "--no-qk-norm" in script, shell
    assert main(["completion", "tcsh"]) == 2
