"""Tokens and vocabularies from Spark against those of the in-memory program; `make test-spark` installs Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.cli import main
from octavo.engines.engine import Engine
from octavo.io.run_folder import TENSORS
from octavo.text import text_parts
from spark_cluster import SPARK_MARKS
from tokenised_texts import RAW, TEXTS, TOKENIZERS, check_tokens, given_tokenizers, write_files

pytestmark = SPARK_MARKS
ALL = {f"{number}{name}": data for number, files in enumerate(TEXTS.values()) for name, data in files.items()}


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_spark_gives_the_tokenizer_and_the_tokens_of_the_in_memory_program(
    spark: Engine, tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_parts, "PART_BYTES", 97)
    sources = write_files(tmp_path / "text", ALL)
    check_tokens(spark, tmp_path / "work", sources, *TOKENIZERS[tokenizer])


@pytest.mark.parametrize("tokenizer", ["pretrained", "whole documents"])
def test_so_does_a_tokenizer_that_is_given(
    spark: Engine, tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_parts, "PART_BYTES", 97)
    sources = write_files(tmp_path / "text", ALL)
    check_tokens(spark, tmp_path / "work", sources, given_tokenizers(tmp_path)[tokenizer], {})


# From here on commands stop the session of the tests above.
def test_bytes_that_are_not_utf_8_are_words_too_or_refused_in_one_line(
    spark: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(text_parts, "PART_BYTES", 31)
    sources = write_files(tmp_path / "text", RAW)
    check_tokens(spark, tmp_path / "work", sources, "word", {"min_count": 1}, errors="raw")
    flags = ("--tokenizer", "word", "--engine", "spark", "--spark-master", "local[2]", "--memory-limit", "1GB")
    assert main(["count", sources[1], *flags, "--out", str(tmp_path / "counts")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"byte 0 of {sources[1]} (0x80) is not" in error


def test_a_run_of_spark_has_the_bytes_of_one_in_memory(tmp_path: Path) -> None:
    sources = write_files(tmp_path / "text", {"a.txt": b"one two three\n" * 40, "b.txt": b"two three one\n" * 9})
    spark = ("--engine", "spark", "--spark-master", "local[2]", "--memory-limit", "1GB")
    for name, flags in (("memory", ("--engine", "memory")), ("spark", spark)):
        words = [
            "train",
            "ngram",
            *sources,
            "--order",
            "3",
            "--tokenizer",
            "word",
            "--no-measure",
            "--valid",
            sources[0],
        ]
        assert main([*words, "--out", str(tmp_path / name), *flags]) == 0
    assert (tmp_path / "spark" / TENSORS).read_bytes() == (tmp_path / "memory" / TENSORS).read_bytes()
