"""The README's own commands work, in the order in which they stand there."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from cli_processes import complete
from conftest import why_no_data
from octavo.datasets import sources

README = Path(__file__).parents[1] / "README.md"
# The bytes of Shakespeare that stand for a text: enough to train and to score.
SMALL_TEXTS = {"shakespeare": slice(0, 150_000), "wikitext-2": slice(-50_000, None)}
SHORT_BUDGETS = {"4s": "4steps", "5s": "5steps", "10s": "10steps", "15s": "15steps"}
NOT_RUN_HERE = ("make", "pip", "git", "cd")  # they set a machine up; the rest of the README needs it set up
SECONDS_PER_COMMAND = 120


def commands_in(markdown: str) -> list[list[str]]:
    """What the README tells its reader to run: `$ ` lines of console blocks, and python blocks as a whole."""
    commands = []
    for language, block in re.findall(r"^```(console|sh|python)\n(.*?)^```$", markdown, re.DOTALL | re.MULTILINE):
        if language == "python":
            commands.append([sys.executable, "-c", block])
            continue
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        for line in (line.removeprefix("$ ") for line in lines if line.startswith("$ ")):
            if shlex.split(line, comments=True)[0] not in NOT_RUN_HERE:
                commands.append(["bash", "-euo", "pipefail", "-c", line])
    return commands


def smaller(command: list[str]) -> list[str]:
    """The command with a part of a text for the whole (but for `data`, `compare` and `vectors`) and few steps.

    The whole text would be scored a dozen times, which takes minutes and shows nothing that a part does not.
    """
    text = command[-1]
    if not text.startswith(("octavo data", "octavo compare", "octavo vectors")):
        for name in SMALL_TEXTS:
            text = re.sub(rf"(?<![\w-]){name}(?![\w-])", f"{name}.txt", text)
    for budget, short in SHORT_BUDGETS.items():
        text = text.replace(f"--budget {budget}", f"--budget {short}")
    return [*command[:-1], text]


def write_small_texts(folder: Path) -> None:
    """What stands for the texts, in the folder where the commands run."""
    whole = next(iter(sources.get_files("shakespeare").values())).read_bytes()
    for name, part in SMALL_TEXTS.items():
        (folder / f"{name}.txt").write_bytes(whole[part])


def run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Octavo and Python run in a fork of a process that has imported them; anything else, in a shell."""
    line = command[-1]
    if line.startswith("octavo studio"):
        return run_studio(line, folder, environment)
    if command[0] == sys.executable:
        return complete(line, folder, environment, SECONDS_PER_COMMAND)
    if line.startswith("octavo ") and not re.search(r"[|<>$&;*]", line):
        return complete(shlex.split(line, comments=True)[1:], folder, environment, SECONDS_PER_COMMAND)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS_PER_COMMAND, check=False
    )


def run_studio(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Start it, open the page that it names, and stop it as a user would."""
    words = [*shlex.split(command), "--no-browser"]
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as studio:  # fmt: skip
        assert studio.stdout is not None
        address = studio.stdout.readline().split()[-1]
        with urllib.request.urlopen(address, timeout=SECONDS_PER_COMMAND) as page:
            assert b"octavo studio" in page.read()
        studio.send_signal(signal.SIGINT)
        out, errors = studio.communicate(timeout=SECONDS_PER_COMMAND)
    return subprocess.CompletedProcess(words, studio.returncode, out, errors)


def first_failure(commands: list[list[str]], folder: Path, environment: dict[str, str]) -> str | None:
    """The first command that does not exit with 0, and what it said."""
    for command in commands:
        done = run(command, folder, environment)
        if done.returncode:
            return f"{command[-1]}\nexited with {done.returncode}:\n{done.stdout}{done.stderr}"
    return None


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A shell in which `octavo` and `python` are this interpreter's, and relative settings still hold."""
    programs = tmp_path / "bin"
    programs.mkdir()
    python = shlex.quote(sys.executable)
    for name, call in {"octavo": f"{python} -m octavo.cli", "python": python}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {call} "$@"\n')
        (programs / name).chmod(0o755)
    paths = {
        key: os.pathsep.join(os.path.abspath(entry) for entry in value.split(os.pathsep))
        for key in ("OCTAVO_DATA", "PYTHONPATH")
        if (value := os.environ.get(key))
    }
    return {**os.environ, **paths, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reader").mkdir()
    return tmp_path / "reader"


def test_every_command_of_the_readme_works(folder: Path, environment: dict[str, str]) -> None:
    if missing := why_no_data(environment.get("OCTAVO_DATA"), ("shakespeare",)):
        # Without the data folder the corpus comes from the network, which is not there on every machine. Octavo says
        # so in one line with exit code 2; longer complaints are about the command itself, and must not be skipped.
        fetched = run(["octavo", "data", "get", "shakespeare"], folder, environment)
        assert fetched.returncode in (0, 2), fetched.stderr
        if fetched.returncode == 2:
            assert len(fetched.stderr.strip().splitlines()) == 1, fetched.stderr
            pytest.skip(f"{missing}, and the shakespeare corpus cannot be had: {fetched.stderr.strip()}")
    write_small_texts(folder)
    commands = [smaller(command) for command in commands_in(README.read_text(encoding="utf-8"))]
    failure = first_failure(commands, folder, environment)
    assert failure is None, failure


def test_the_readme_shows_every_verb_and_the_python_api() -> None:
    shown = "\n".join(command[-1] for command in commands_in(README.read_text(encoding="utf-8")))
    verbs = ("data list", "data get", "data show", "train ngram", "train mix", "eval", "generate", "compress",
             "decompress", "inspect", "list", "train gru", "resume", "doctor", "vectors", "domains",
             "compare")  # fmt: skip
    assert [verb for verb in verbs if f"octavo {verb}" not in shown] == []
    assert [
        name for name in ("train", "load", "evaluate", "generate", "compare") if f"octavo.{name}(" not in shown
    ] == []


def test_commands_are_found_and_machine_setup_is_left_out() -> None:
    markdown = (
        "```console\n$ make demo\n$ pip install octavo\n$ octavo list  # runs\nkn7  2 MB\n"
        "$ octavo eval \\\n    a b\n```\n"
        "```json\n$ octavo no\n```\n```python\nimport octavo\n```\n```sh\n$ echo x > y\n```\n"
    )
    found = commands_in(markdown)
    assert [command[-1] for command in found] == [
        "octavo list  # runs", "octavo eval a b", "import octavo\n", "echo x > y",
    ]  # fmt: skip


@pytest.mark.parametrize("broken", ["$ false | cat", "$ octavo-of-another-name list", "$ python -c 'exit(2)'"])
def test_a_broken_command_is_reported_and_ends_the_tour(folder: Path, environment: dict[str, str], broken: str) -> None:
    markdown = f"```console\n$ echo one > kept\n{broken}\n$ echo two > kept\n```\n"
    failure = first_failure(commands_in(markdown), folder, environment)
    assert failure is not None
    assert failure.startswith(broken.removeprefix("$ "))
    assert (folder / "kept").read_text() == "one\n"


def test_a_broken_python_block_is_reported(folder: Path, environment: dict[str, str]) -> None:
    failure = first_failure(commands_in("```python\nraise SystemExit(3)\n```\n"), folder, environment)
    assert failure is not None
    assert "exited with 3" in failure
