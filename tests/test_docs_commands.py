"""Every command and every block of Python in the documentation runs, with small texts and budgets (`doc_blocks`)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import octavo
from doc_blocks import (
    BLOCKS_TESTED_ELSEWHERE,
    NOT_RUN,
    PAGES_TESTED_ELSEWHERE,
    Block,
    blocks_of,
    languages_of,
    pages,
    reason_not_to_run,
    runs_made,
    runs_used,
    smaller_command,
    smaller_python,
)
from image_files import idx_folder, stripes
from octavo.cli import main
from octavo.ops.attention.kinds import ATTENTION_KINDS
from octavo.training import step_timing

ROOT = Path(__file__).parents[1]
PAGES = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages(ROOT)}
COURSE_COMMANDS = r"octavo exercises (sheet|notebook|template|gradescope|moodle|figure) "  # test_course_pages runs them
LINES = "To be, or not to be, that is the question.\nWhether 'tis nobler in the mind to suffer, my lord?\n"
SMALL_RUNS = {
    "runs/kn3": ("ngram", {"order": 3}),
    "runs/kn5": ("ngram", {"order": 5}),
    "runs/kn7": ("ngram", {"order": 7}),
    "runs/gru": ("gru", {"width": 16, "layers": 1, "budget": "2steps"}),
    "runs/gpt": ("gpt", {"width": 16, "layers": 1, "heads": 2, "budget": "2steps"}),
}


@pytest.fixture(scope="module")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that pages take as given."""
    folder = tmp_path_factory.mktemp("given")
    write_texts(folder)
    for path, (model, settings) in SMALL_RUNS.items():
        octavo.train(model, folder / "book.txt", tokenizer="byte", out=folder / path, measure=False, **settings)
    return folder / "runs"


def write_texts(folder: Path) -> None:
    """The files that pages take as given, small ones."""
    (folder / "book.txt").write_text(LINES * 120, encoding="utf-8")
    for name in ("notes.txt", "other.txt", "captions.txt", "hidden.txt", "sentences.txt"):
        (folder / name).write_text(LINES * (120 if name == "notes.txt" else 4), encoding="utf-8")


def write_examples(folder: Path) -> None:
    """Labelled sentences, pairs, images, questions and submissions."""
    polarity = [("good", "a moving film, good and warm"), ("bad", "a dull film, bad and cold")] * 20
    (folder / "polarity.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in polarity), encoding="utf-8")
    (folder / "tags.tsv").write_text("the\tDET\ncat\tNOUN\nsleeps\tVERB\n\n" * 20, encoding="utf-8")
    pairs = [
        ("a dog runs.", "ein hund läuft.", "un chien court."),
        ("a cat sleeps.", "eine katze schläft.", "un chat dort."),
    ]
    many = [tuple(f"{n} {text}" for text in pair) for n in range(60) for pair in pairs]
    (folder / "pairs.tsv").write_text("".join(f"{en}\t{de}\n" for en, de, _ in many), encoding="utf-8")
    (folder / "captions.tsv").write_text("".join("\t".join(one) + "\n" for one in many), encoding="utf-8")
    idx_folder(folder / "bars")
    Image.fromarray(stripes()[0][0]).save(folder / "seven.png")
    with sqlite3.connect(folder / "facts.db") as facts:
        facts.execute("create table facts (name text, answer text)")
        facts.execute("insert into facts values ('Ada Lovelace', 'London')")
    facts.close()
    answers = folder / "class/ada@example.org/answers.toml"
    answers.parent.mkdir(parents=True)
    assert main(["exercises", "template", "score-scale", "--out", str(answers)]) == 0
    shutil.copytree(answers.parent, folder / "submissions/week1/ada@example.org")
    (folder / "manual.csv").write_text("student,assignment,rubric,points\n", encoding="utf-8")
    (folder / "questions.tsv").write_text("Where was Ada Lovelace born?\tLondon\n", encoding="utf-8")


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of somebody who follows a page."""
    write_texts(tmp_path)
    write_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(step_timing, "SECONDS", 0.2)  # of timed steps, for each model whose cost is asked for
    return tmp_path


@pytest.mark.parametrize("name", [name for name in PAGES if name not in PAGES_TESTED_ELSEWHERE])
def test_every_command_and_block_of_a_page_runs(name: str, reader: Path, small_runs: Path) -> None:
    page = PAGES[name]
    if "submissions/competition" in page:
        shutil.copytree(small_runs / "kn3", reader / "submissions/competition/ada")
    for run in runs_used(page) - runs_made(page):
        if (small_runs / Path(run).name).is_dir():
            shutil.copytree(small_runs / Path(run).name, reader / run)
    if name.startswith("docs/course"):
        shutil.copy(ROOT / "docs/course/course.toml", reader)
    kinds = dict(ATTENTION_KINDS)
    given: dict[str, object] = {}
    try:
        for block in blocks_of(page):
            if reason_not_to_run(block) or (name.startswith("docs/course/") and re.match(COURSE_COMMANDS, block.text)):
                continue
            run_block(block, reader, given)
    finally:
        ATTENTION_KINDS.clear()
        ATTENTION_KINDS.update(kinds)


def run_block(block: Block, folder: Path, given: dict[str, object]) -> None:
    """Run octavo and Python in this process, because each start costs seconds; anything else in a shell."""
    if block.kind == "python":
        code = smaller_python(block.text)
        exec(compile(code, "block", "exec"), given)
        return
    in_shell = any(sign in block.text for sign in ("|", " > ", "$("))
    command = block.text if in_shell else smaller_command(block.text)
    if command.startswith("octavo ") and not in_shell:
        assert main(shlex.split(command)[1:]) == 0, command
        return
    octavo_here = f'octavo() {{ {shlex.quote(sys.executable)} -m octavo.cli "$@"; }}'
    line = f"{octavo_here}; {command}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=folder, capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_no_block_is_without_a_language() -> None:
    assert [name for name, page in PAGES.items() if "" in languages_of(page)] == []


def test_every_reason_not_to_run_something_is_needed() -> None:
    blocks = [block for name, page in PAGES.items() if name not in PAGES_TESTED_ELSEWHERE for block in blocks_of(page)]
    commands = [block.text for block in blocks if block.kind == "command"]
    assert [start for start in NOT_RUN if not any(re.match(start, command) for command in commands)] == []
    code = "\n".join(block.text for block in blocks if block.kind == "python")
    assert [line for line in BLOCKS_TESTED_ELSEWHERE if line not in code] == []


def test_most_of_what_is_shown_is_run() -> None:
    blocks = [block for name, page in PAGES.items() if name not in PAGES_TESTED_ELSEWHERE for block in blocks_of(page)]
    left_out = [block for block in blocks if reason_not_to_run(block)]
    assert len(left_out) < 0.25 * len(blocks)
