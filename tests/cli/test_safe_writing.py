"""Nothing that stands somewhere is replaced unless that is asked for, and automatic names never collide."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import octavo
from octavo.cli import main
from octavo.io.lock import locked
from octavo.tasks.run_place import numbered
from octavo.training.loop import Loop

TEXT = "The owl and the pussycat went to sea in a beautiful pea-green boat.\n" * 20
SMALL = ("--width", "8", "--layers", "1", "--budget", "2steps")
Octavo = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Octavo:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        return code, *capsys.readouterr()

    return call


def seed_of(folder: str) -> int:
    seed: int = json.loads(Path(folder, "config.json").read_text())["seed"]
    return seed


@pytest.mark.parametrize("words", [("ngram", "--order", "2"), ("gru", *SMALL)], ids=["fitted", "step by step"])
def test_a_finished_run_is_replaced_only_with_force(run: Octavo, words: tuple[str, ...]) -> None:
    model, *flags = words
    train = ("train", model, "text.txt", *flags, "--out", "run")
    assert run(*train)[0] == 0
    code, out, err = run(*train, "--seed", "1")
    assert (code, out) == (2, "")
    assert err.startswith("octavo: run is a finished run; choose another --out, or replace it with --force")
    assert ("octavo resume run --budget TIME" in err) is (model == "gru")
    assert seed_of("run") == 0
    assert run(*train, "--seed", "1", "--force")[0] == 0
    assert seed_of("run") == 1
    assert sorted(os.listdir()) == ["run", "text.txt"]


def test_python_refuses_and_forces_likewise(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    octavo.train("bag", tmp_path / "text.txt", out=tmp_path / "run")
    with pytest.raises(octavo.UserError, match="is a finished run"):
        octavo.train("bag", tmp_path / "text.txt", out=tmp_path / "run")
    octavo.train("bag", tmp_path / "text.txt", out=tmp_path / "run", seed=5, force=True)
    assert seed_of(str(tmp_path / "run")) == 5


def test_the_old_run_survives_a_forced_training_that_fails(run: Octavo, monkeypatch: pytest.MonkeyPatch) -> None:
    train = ("train", "gru", "text.txt", *SMALL, "--out", "run")
    assert run(*train)[0] == 0

    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("octavo.training.loop.Loop.train", broken)
    assert run(*train, "--seed", "1", "--force")[0] == 1
    assert seed_of("run") == 0
    assert sorted(os.listdir()) == ["run", "text.txt"]
    assert octavo.load("run").unfinished is False


def test_a_run_killed_before_its_first_checkpoint_gives_its_place_back(run: Octavo) -> None:
    train = ("train", "gru", "text.txt", *SMALL, "--out", "run")
    assert run(*train)[0] == 0
    shutil.copytree("run", "run.before")  # what a forced training leaves when it is killed: the old one aside, ...
    record = json.loads(Path("run/config.json").read_text())
    record["training"] |= {"finished": False, "before": "run.before"}
    record["seed"] = 7
    Path("run/config.json").write_text(json.dumps(record))
    shutil.rmtree("run/state")  # ... and the new one without a checkpoint
    code, _, err = run(*train, "--seed", "1")
    assert (code, "is a finished run" in err) == (2, True)
    assert (seed_of("run"), sorted(os.listdir())) == (0, ["run", "text.txt"])


class KilledError(BaseException):
    """Stands for the end of the process."""


STEP = Loop.step


def dies_at_step_1(loop: Loop, spent: float) -> None:
    if loop.position.step == 1:
        raise KilledError
    STEP(loop, spent)


def test_a_run_that_is_to_replace_another_is_hidden_until_it_is_finished_also_behind_a_link(
    run: Octavo, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.makedirs("far/real")
    os.symlink("far/real", "run")
    train = ("train", "gru", "text.txt", *SMALL, "--out", "run")
    assert run(*train)[0] == 0
    monkeypatch.setattr(Loop, "step", dies_at_step_1)
    with pytest.raises(KilledError):
        run(*train, "--seed", "1", "--force")
    monkeypatch.setattr(Loop, "step", STEP)
    assert sorted(os.listdir("far")) == [".real.new", "real"]
    assert (seed_of("run"), octavo.load("run").unfinished) == (0, False)
    code, out, err = run("list", ".")
    assert (code, "not finished yet (octavo resume RUN): far/real, run" in err) == (0, True)
    assert "not finished" not in out
    code, _, err = run(*train, "--seed", "2")
    assert (code, "resume it: octavo resume run" in err) == (2, True)
    assert run("resume", "run")[0] == 0
    assert (seed_of("run"), os.listdir("far"), os.path.islink("run")) == (1, ["real"], True)


def test_the_same_command_without_force_goes_on_and_with_it_begins_anew(
    run: Octavo, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = ("train", "gru", "text.txt", *SMALL, "--checkpoint-seconds", "0", "--seed", "1", "--out", "run")
    assert run(*train)[0] == 0
    steps: list[int] = []

    def counted(loop: Loop, spent: float) -> None:
        steps.append(loop.position.step)
        STEP(loop, spent)

    for again, taken in (((), [1]), (("--force",), [0, 1])):
        monkeypatch.setattr(Loop, "step", dies_at_step_1)
        with pytest.raises(KilledError):
            run(*train, "--force")
        monkeypatch.setattr(Loop, "step", counted)
        steps.clear()
        assert run(*train, *again)[0] == 0
        assert steps == taken
        assert sorted(os.listdir()) == ["run", "text.txt"]


def test_a_fitted_model_takes_nothing_over_from_the_run_that_it_replaces(run: Octavo) -> None:
    assert run("train", "gru", "text.txt", *SMALL, "--out", "run")[0] == 0
    assert run("train", "bag", "text.txt", "--out", "run", "--force")[0] == 0
    assert not Path("run/state").exists()


def test_one_command_at_a_time_writes_a_file_or_a_folder(run: Octavo) -> None:
    assert run("train", "ngram", "text.txt", "--order", "2", "--out", "kn")[0] == 0
    assert run("export", "kn", "kn.arpa")[0] == 0
    commands = {
        "vectors.txt": ("vectors", "text.txt", "--epochs", "1", "--out", "vectors.txt"),
        "other.arpa": ("export", "kn", "other.arpa"),
        "new": ("import", "kn.arpa", "--out", "new"),
        "note.oct": ("compress", "kn", "text.txt", "note.oct"),
        "answers.toml": ("exercises", "template", "score-scale", "--out", "answers.toml"),
        "bag": ("train", "bag", "text.txt", "--out", "bag"),
    }
    for name, words in commands.items():
        release, held = threading.Event(), threading.Event()

        def hold(name: str = name, release: threading.Event = release, held: threading.Event = held) -> None:
            with locked(name, "writes"):
                held.set()
                release.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        code, out, err = run(*words)
        release.set()
        holder.join()
        assert (code, out) == (2, ""), words
        assert err.startswith(f"octavo: one process at a time writes {name}: process {os.getpid()} on "), words
        assert not Path(name).exists()


def test_what_was_saved_from_python_meanwhile_is_not_written_over_by_two(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    made = octavo.train("bag", tmp_path / "text.txt")
    with ThreadPoolExecutor(1) as pool, locked(tmp_path / "run"):
        made.save(tmp_path / "run")  # by whoever holds the lock
        with pytest.raises(octavo.UserError, match="one process at a time writes"):
            pool.submit(made.save, tmp_path / "run").result()
    assert sorted(os.listdir(tmp_path)) == ["run", "text.txt"]


def test_a_stopped_run_of_other_settings_is_resumed_by_name_or_replaced_with_force(run: Octavo) -> None:
    train = ("train", "gru", "text.txt", *SMALL, "--out", "run")
    assert run(*train)[0] == 0
    record = json.loads(Path("run/config.json").read_text())
    record["training"]["finished"] = False
    Path("run/config.json").write_text(json.dumps(record))
    code, _, err = run(*train, "--seed", "1")
    assert code == 2
    assert "resume it: octavo resume run, or choose another --out, or replace it with --force" in err
    assert run(*train, "--seed", "1", "--force")[0] == 0
    assert (seed_of("run"), sorted(os.listdir())) == (1, ["run", "text.txt"])


def test_the_automatic_name_is_the_next_that_is_free(run: Octavo) -> None:
    for name in ("bag", "bag-2", "bag-3"):
        code, out, err = run("train", "bag", "text.txt", "--json")
        assert (code, json.loads(out)["run"]) == (0, str(Path("runs", name))), err
    shutil.rmtree("runs/bag-2")
    assert json.loads(run("train", "bag", "text.txt", "--json")[1])["run"] == str(Path("runs", "bag-2"))


def test_a_training_that_is_refused_leaves_no_automatic_folder(run: Octavo) -> None:
    assert run("train", "bag", "no/such/file")[0] == 2
    assert os.listdir() == ["text.txt"]


def test_names_that_are_asked_for_at_the_same_moment_are_different(tmp_path: Path) -> None:
    barrier, names = threading.Barrier(16), []

    def reserve() -> None:
        barrier.wait()
        with numbered(tmp_path / "runs" / "gru") as folder:
            names.append(folder.name)
            barrier.wait()

    threads = [threading.Thread(target=reserve) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(["gru", *(f"gru-{n}" for n in range(2, 17))])


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["compress", "kn", "text.txt", "note.oct"], "note.oct"),
        (["exercises", "sheet", "score-scale", "--out", "sheet.html"], "sheet.html"),
        (["vectors", "text.txt", "--epochs", "1", "--min-count", "1", "--dim", "2", "--out", "v.txt"], "v.txt"),
        (["export", "kn", "kn.arpa"], "kn.arpa"),
        (["data", "bin", "text.txt", "--out", "tokens"], "tokens"),
        (["exercises", "template", "score-scale", "--out", "answers.toml"], "answers.toml"),
        (["exercises", "figure", "score-scale", "--out", "figure.html"], "figure.html"),
        (["import", "kn.arpa", "--tokenizer-of", "kn", "--out", "again"], "again"),
    ],
)  # fmt: skip
def test_a_file_that_is_there_is_replaced_only_with_force(run: Octavo, words: list[str], out: str) -> None:
    octavo.train("ngram", "text.txt", order=2, out="kn", measure=False)
    assert words[0] != "import" or run("export", "kn", "kn.arpa")[0] == 0
    assert run(*words)[0] == 0
    before = {path: path.read_bytes() for path in Path(out).parent.glob(f"{out}/*")} or Path(out).read_bytes()
    code, printed, err = run(*words)
    assert (code, printed) == (2, "")
    assert " exists and is not replaced; choose another name, or add --force\n" in err
    assert err.startswith(f"octavo: {out}")
    assert before == ({path: path.read_bytes() for path in Path(out).parent.glob(f"{out}/*")} or Path(out).read_bytes())
    assert run(*words, "--force")[0] == 0


def test_the_next_import_gets_a_name_of_its_own(run: Octavo) -> None:
    octavo.train("ngram", "text.txt", order=2, out="kn", measure=False)
    run("export", "kn", "kn.arpa")
    for name in ("imported", "imported-2"):
        assert json.loads(run("import", "kn.arpa", "--json")[1])["run"] == str(Path("runs", name))


def test_the_same_comparison_goes_on_in_its_own_folder(run: Octavo) -> None:
    words = ("compare", "text.txt", "--models", "bag,zlib", "--out", "compared")
    assert [run(*words)[0] for _ in range(2)] == [0, 0]
    code, _, err = run(*words, "--seed", "1")
    assert code == 2
    assert "choose another --out" in err
