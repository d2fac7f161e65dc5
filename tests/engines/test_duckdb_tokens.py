"""Tokens and vocabularies from DuckDB against those of the in-memory program."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from engine_models import settings
from octavo.cli import main
from octavo.engines import EngineSettings, open_engine
from octavo.engines.engine import Engine
from octavo.engines.stages import Stages
from octavo.engines.worker_processes import read_in_processes
from octavo.errors import UserError
from octavo.text import text_parts
from octavo.text.relational_tokens import learn_and_tokenize_parts
from octavo.text.text_parts import parts_of_sources
from octavo.text.token_shards import TokenShards, finish_shards, write_shard
from tokenised_texts import RAW, TEXTS, TOKENIZERS, check_tokens, given_tokenizers, small_parts, write_files


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """DuckDB that reads parts in this process, where constants can be replaced."""
    with open_engine("duckdb", EngineSettings(tmp_path_factory.mktemp("duckdb"), 1 << 29, threads=1)) as engine:
        yield engine


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("text", TEXTS)
def test_parts_cut_anywhere_give_the_tokenizer_and_the_tokens_of_the_in_memory_program(
    alone: Engine, tmp_path: Path, text: str, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = write_files(tmp_path / "text", TEXTS[text])
    small_parts(monkeypatch, 9)
    check_tokens(alone, tmp_path / "work", sources, *TOKENIZERS[tokenizer])


@pytest.mark.parametrize("tokenizer", ["pretrained", "whole documents"])
@pytest.mark.parametrize("text", TEXTS)
def test_so_do_parts_of_a_text_for_a_tokenizer_that_is_given(
    alone: Engine, tmp_path: Path, text: str, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch, 11)
    sources = write_files(tmp_path / "text", TEXTS[text])
    check_tokens(alone, tmp_path / "work", sources, given_tokenizers(tmp_path)[tokenizer], {})


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_so_do_parts_of_bytes_that_are_not_utf_8(
    alone: Engine, tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = write_files(tmp_path / "text", RAW)
    small_parts(monkeypatch, 7)
    check_tokens(alone, tmp_path / "work", sources, *TOKENIZERS[tokenizer], errors="raw")


@given_settings(max_examples=15, deadline=None)
@given(data=st.binary(min_size=2, max_size=120), size=st.integers(1, 40), name=st.sampled_from(sorted(TOKENIZERS)))
def test_so_do_parts_of_any_bytes(alone: Engine, data: bytes, size: int, name: str) -> None:
    if name == "wordpiece" and not data.decode("utf-8", "replace").split():
        return  # which needs a word
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        small_parts(monkeypatch, size)
        sources = write_files(Path(folder), {"a.txt": data})
        check_tokens(alone, Path(folder, "work"), sources, *TOKENIZERS[name], errors="raw")


def test_other_encodings_and_preprocessing_are_read_as_in_memory(alone: Engine, tmp_path: Path) -> None:
    sources = write_files(tmp_path / "text", {"a.txt": "Été ÉTÉ été\n".encode("latin-1"), "b.txt": b"B b 12\n"})
    check_tokens(alone, tmp_path / "work", sources, "word", {}, encoding="latin-1", preprocess=["lower", "digits"])


@pytest.mark.parametrize("tokenizer", ["byte", "word", "bpe"])
def test_several_processes_give_the_same(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_parts, "PART_BYTES", 97)
    sources = write_files(tmp_path / "text", TEXTS["sample"] | TEXTS["records"])
    with open_engine("duckdb", settings(tmp_path)) as engine:
        check_tokens(engine, tmp_path / "work", sources, *TOKENIZERS[tokenizer])


@pytest.mark.parametrize("part_bytes", [50, 1 << 20])
def test_bytes_that_are_not_utf_8_are_refused_with_their_place(
    tmp_path: Path, part_bytes: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a process of its own, and by this one."""
    monkeypatch.setattr(text_parts, "PART_BYTES", part_bytes)
    path = tmp_path / "text.txt"
    path.write_bytes("é word ".encode() * 30 + b"\xff end" * 3)
    assert main(["count", str(path), "--tokenizer", "word", "--out", str(tmp_path / "counts")]) == 2
    error = capsys.readouterr().err
    assert f"byte 240 of {path} (0xff)" in error
    assert error.count("\n") == 1


def test_files_without_text_are_refused(alone: Engine, tmp_path: Path) -> None:
    sources = write_files(tmp_path / "text", {"a.txt": b"", "b.jsonl": b'{"text": ""}\n'})
    parts = parts_of_sources(sources)
    assert parts is not None
    with pytest.raises(UserError, match="there is no text in"):
        learn_and_tokenize_parts(alone, Stages(tmp_path / "stages", {}), parts, "word", {})
    with pytest.raises(UserError, match="there is no text in"):
        parts_of_sources(sources[:1])


def test_a_changed_file_is_another_text(tmp_path: Path) -> None:
    (source,) = write_files(tmp_path / "text", {"a.txt": b"one two"})
    first, again = parts_of_sources([source]), parts_of_sources([source])
    assert first is not None and again is not None and first.identity == again.identity  # noqa: PT018
    os.utime(source, ns=(0, 5))
    changed = parts_of_sources([source])
    assert changed is not None
    assert changed.identity != first.identity


@given_settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), start=st.integers(0, 30), size=st.integers(0, 30))
def test_tokens_of_several_files_are_read_as_one_sequence(sizes: list[int], start: int, size: int) -> None:
    x_N = np.arange(sum(sizes), dtype="<u2")
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(np.split(x_N, np.cumsum(sizes)[:-1])):
            assert write_shard(folder, number, [part], "<u2") == sizes[number]
        finish_shards(Path(folder), sizes)
        shards = TokenShards(folder, "<u2")
        assert len(shards) == len(x_N)
        assert shards.read(start, start + size).tolist() == x_N[start : start + size].tolist()


def fail(part: str) -> Iterator[object]:
    """A reader whose process is killed."""
    yield from ()
    os.kill(os.getpid(), 9)


def test_a_process_that_is_killed_is_one_line() -> None:
    with pytest.raises(UserError, match="was ended from outside, with status -9"):
        list(read_in_processes(["a", "b"], fail, 2))  # type: ignore[arg-type]


def test_a_script_without_a_main_guard_can_count(tmp_path: Path) -> None:
    """Processes of multiprocessing would run it again."""
    text = tmp_path / "text.txt"
    text.write_bytes(TEXTS["sample"]["a.txt"])
    (tmp_path / "script.py").write_text(
        "from pathlib import Path\nimport octavo.text.text_parts as parts\nparts.PART_BYTES = 100\n"
        "from octavo.tasks.counts import count_texts\n"
        f"print(count_texts([{str(text)!r}], Path({str(tmp_path / 'counts')!r}), 2).record.tokens)\n"
    )
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(TEXTS['sample']['a.txt']) + 1}\n", done.stderr
