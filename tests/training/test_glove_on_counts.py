"""octavo vectors --cooccurrences: GloVe vectors of counts that a folder holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import octavo
from octavo.cli import main
from octavo.tasks.cooccurrences import count_cooccurrences
from octavo.text import open_text
from octavo.text.word_vectors import read_origin
from octavo.training.cooccurrences import CooccurrenceConfig
from octavo.training.glove import GloveConfig, count_near, read_near, words_of


def write(path: Path, lines: Sequence[Sequence[str]]) -> str:
    path.write_text("".join(" ".join(words) + "\n" for words in lines))
    return str(path)


def test_vectors_are_learnt_from_the_table_that_the_text_itself_gives(tmp_path: Path) -> None:
    words = [f"w{word}" for word in np.random.default_rng(0).integers(0, 8, 1200)]
    text = write(tmp_path / "text.txt", [words])
    counted = count_cooccurrences([text], tmp_path / "near", CooccurrenceConfig(4))
    names, near = read_near(counted)
    config = GloveConfig(window=4, min_count=1)
    own_names, word_N = words_of(open_text(text).chunks(), config)
    own = count_near(word_N, len(own_names), 4)
    tables = [
        {frozenset((spelt[i], spelt[j])): x for i, j, x in zip(*(one.tolist() for one in table), strict=True)}
        for spelt, table in ((names, near), (own_names, own))
    ]
    assert tables[0] == pytest.approx(tables[1], rel=1e-12)
    assert (near.i_P <= near.j_P).all()
    counts = Counter(words)
    assert [counts[name] for name in names] == sorted(counts.values(), reverse=True)


def test_the_command_learns_vectors_from_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [["sun", "rain", "wind", "snow"] if i % 2 else ["bread", "cheese", "wine", "soup"] for i in range(400)]
    generator = np.random.default_rng(0)
    lines = [generator.permutation(line * 3).tolist() for line in lines]
    text, near, out = write(tmp_path / "text.txt", lines), str(tmp_path / "near"), str(tmp_path / "vectors.txt")
    assert main(["count", "cooccurrences", text, "--window", "4", "--sentences", "--out", near]) == 0
    learn = ["vectors", "--cooccurrences", near, "--dim", "8", "--epochs", "15", "--out", out]
    assert main(learn) == 0
    assert f"octavo vectors near {out}" in capsys.readouterr().out
    read = octavo.vectors(file=out)
    assert {word for word, _ in read.nearest("sun", 3)} == {"rain", "wind", "snow"}
    assert read_origin(out).text_sha256 == open_text(text).sha256
    assert main(["vectors", text, *learn[1:], "--force"]) == 2
    assert "name a text to learn from, or counts" in capsys.readouterr().err
    assert main([*learn, "--min-count", "2", "--force"]) == 2
    assert "min_count is for learning from a text: " in capsys.readouterr().err
    assert main(["count", "cooccurrences", text, "--no-symmetric", "--out", str(tmp_path / "left")]) == 0
    assert main(["vectors", "--cooccurrences", str(tmp_path / "left"), "--out", str(tmp_path / "no.txt")]) == 2
    assert "has symmetric=False; count again without --no-symmetric" in capsys.readouterr().err
