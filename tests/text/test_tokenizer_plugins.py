"""The tokenizer of docs/extending.md, one file outside octavo, installed as a package, works like those built in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
(PLUGIN,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
TEXT = "".join(f"{n} times {n} is {n * n}, and so on; " for n in range(60))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with one module and the metadata that `pip install` writes for it."""
    (tmp_path / "pair_tokenizer.py").write_text(PLUGIN)
    metadata = tmp_path / "pair_tokenizer-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pair-tokenizer\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[octavo.tokenizers]\npairs = pair_tokenizer:Pairs\n")
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def octavo(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "octavo.cli", *argv]
    return subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)


def test_a_tokenizer_of_another_package_trains_scores_and_compresses(installed: Path) -> None:
    flags = ("--tokenizer", "pairs", "--vocab-size", "300", "--order", "3")
    trained = octavo(installed, "train", "ngram", "text.txt", "--out", "run", *flags)
    assert (trained.returncode, trained.stderr) == (0, "")
    assert len(json.loads((installed / "run" / "tokenizer.json").read_bytes())["pairs"]) == 300 - 257
    score = json.loads(octavo(installed, "eval", "run", "text.txt", "--json").stdout)
    assert 0 < score["bits_per_byte"] < 8
    assert score["bytes"] == len(TEXT)
    assert octavo(installed, "compress", "run", "text.txt", "small").returncode == 0
    assert octavo(installed, "decompress", "run", "small", "again.txt").returncode == 0
    assert (installed / "again.txt").read_text() == TEXT


def test_a_setting_that_it_does_not_have_is_refused(installed: Path) -> None:
    refused = octavo(installed, "train", "ngram", "text.txt", "--tokenizer", "pairs", "--min-count", "2")
    assert refused.returncode == 2
    assert "the tokenizer pairs has no setting 'min_count'; it has vocab_size" in refused.stderr


def test_a_plugin_whose_name_is_taken_or_that_is_no_tokenizer_is_left_out(installed: Path) -> None:
    entries = "[octavo.tokenizers]\nbyte = pair_tokenizer:Pairs\nsettings = pair_tokenizer:PairSettings\n"
    (installed / "pair_tokenizer-1.0.dist-info" / "entry_points.txt").write_text(entries)
    errors = octavo(installed, "train", "ngram", "text.txt", "--out", "run", "--order", "2").stderr
    assert "byte of the package pair-tokenizer is left out: ValueError: the name byte is taken" in errors
    assert "settings of the package pair-tokenizer is left out: TypeError" in errors


def test_a_plugin_that_cannot_be_imported_is_named_and_left_out(installed: Path) -> None:
    (installed / "pair_tokenizer.py").write_text("import nothing_like_this\n")
    trained = octavo(installed, "train", "ngram", "text.txt", "--out", "run", "--order", "2")
    assert trained.returncode == 0
    assert (
        "octavo: the tokenizer pairs of the package pair-tokenizer is left out: ModuleNotFoundError: No module named"
        in trained.stderr
    )
