"""octavo count: counts in folders, their sums, those of others, and models of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import octavo
from command_line import verb_caller
from engine_models import assert_same_tables
from octavo.cli import main
from octavo.errors import UserError
from octavo.models.ngram import NGramConfig
from octavo.tasks.corpus import TextConfig
from octavo.tasks.counts import count_texts, import_counts, merge_counts, train_counts

WORDS = TextConfig(tokenizer="word", min_count=1, split="space")


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    generator, paths = np.random.default_rng(0), [tmp_path / "one.txt", tmp_path / "two.txt"]
    for path in paths:
        lines = (" ".join(f"w{word}" for word in generator.integers(0, 12, 6)) for _ in range(60))
        path.write_text("\n".join(lines) + "\n")
    return paths


def rows(folder: Path) -> dict[tuple[int | None, ...], int]:
    table = pyarrow.parquet.read_table(folder / "ngrams" / "part-00000.parquet").to_pydict()
    *words, counts = table.values()
    return dict(zip(zip(*words, strict=True), counts, strict=True))


def test_counts_are_those_of_a_loop_over_the_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"abab\nab\n")
    counted = count_texts([str(text)], tmp_path / "counts", 3)
    x = [256, *b"abab\nab\n"]  # the begin token, then bytes
    expected = Counter(tuple([*x[i : i + 3], None, None][:3]) for i in range(len(x)))
    assert rows(counted.path) == expected
    assert counted.record.tokens == len(x)


@pytest.mark.parametrize("sentences", [False, True])
def test_a_model_of_counts_is_the_model_of_the_text(texts: list[Path], tmp_path: Path, sentences: bool) -> None:
    sources = [str(path) for path in texts]
    count_texts(sources, tmp_path / "counts", 4, sentences, WORDS)
    for order in (4, 2):
        config = NGramConfig(order=order, sentences=sentences, prune=(0, 1))
        fitted = train_counts(tmp_path / "counts", config, None)
        expected = octavo.train(
            "ngram", sources, valid=(sources[0],), order=order, sentences=sentences, prune=(0, 1), tokenizer="word",
            min_count=1, split="space", measure=False,
        )  # fmt: skip
        assert_same_tables(fitted.model, expected.model)


def test_merged_counts_are_the_counts_of_both_texts(texts: list[Path], tmp_path: Path) -> None:
    both = count_texts([str(path) for path in texts], tmp_path / "both", 3, True, WORDS)
    same = TextConfig(tokenizer=str(both.path / "tokenizer.json"))
    for path in texts:
        count_texts([str(path)], tmp_path / path.stem, 3, True, same)
    merged = merge_counts([tmp_path / path.stem for path in texts], tmp_path / "merged")
    assert rows(merged.path) == rows(both.path)
    assert merged.record.tokens == both.record.tokens


def srilm_counts(text: str, order: int) -> Counter[str]:
    """As ngram-count -write counts: every order, with the marks of sentences."""
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        words = ["<s>", *line.split(), "</s>"]
        counts.update(
            " ".join(words[i : i + k]) for k in range(1, order + 1) for i in range(len(words) - k + 1)
        )  # fmt: skip
    return counts


@pytest.mark.parametrize("estimator", ["kneser-ney", "mle", "stupid"])
def test_counts_that_others_made_give_the_model_of_their_text(
    texts: list[Path], tmp_path: Path, estimator: str
) -> None:
    lines = srilm_counts(texts[0].read_text() + "w1\n\nw2 w3\n", 4)
    theirs = tmp_path / "counts.txt"
    theirs.write_text("".join(f"{ngram}\t{count}\n" for ngram, count in lines.items()))
    import_counts([theirs], tmp_path / "theirs")
    config = NGramConfig(order=4, sentences=True, estimator=estimator)  # type: ignore[arg-type]
    fitted = train_counts(tmp_path / "theirs", config, None)
    own = tmp_path / "own.txt"
    own.write_text(texts[0].read_text() + "w1\n\nw2 w3\n")
    expected = octavo.train(
        "ngram", own, valid=(str(own),), order=4, sentences=True, estimator=estimator, tokenizer="closed", measure=False
    )
    assert fitted.tokenizer.to_json() == expected.tokenizer.to_json()
    assert_same_tables(fitted.model, expected.model)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    return verb_caller("count", capsys)


def test_the_command_counts_adds_and_trains(
    texts: list[Path], tmp_path: Path, call: Callable[..., tuple[int, str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    one, both = str(tmp_path / "one"), str(tmp_path / "both")
    code, printed, _ = call(str(texts[0]), "--order", "2", "--out", one, "--json")
    assert code == 0
    assert json.loads(printed)["order"] == 2
    assert call("merge", one, one, "--out", both)[0] == 0
    assert {key: 2 * count for key, count in rows(Path(one)).items()} == rows(Path(both))
    assert main(["train", "ngram", "--counts", both, "--out", str(tmp_path / "run")]) == 0
    assert "2-grams" in capsys.readouterr().out or octavo.load(tmp_path / "run").model.config.order == 2
    code, _, error = call(str(texts[0]), "--order", "2", "--out", one)
    assert (code, "exists and is not replaced" in error) == (2, True)


def test_foreign_and_damaged_counts_are_refused_in_one_line(texts: list[Path], tmp_path: Path) -> None:
    counted = count_texts([str(texts[0])], tmp_path / "counts", 2)
    other = count_texts([str(texts[0])], tmp_path / "other", 2, False, WORDS)
    with pytest.raises(UserError, match=r"must be of one tokenizer: .* count the second text with --tokenizer"):
        merge_counts([counted.path, other.path], tmp_path / "sum")
    with pytest.raises(UserError, match=r"at least two folders of counts are added: 1 given"):
        merge_counts([counted.path], tmp_path / "sum")
    with pytest.raises(UserError, match=r"is no folder of counts: it has no counts\.json"):
        train_counts(tmp_path, NGramConfig(order=2), None)
    with pytest.raises(UserError, match=r"has n-grams of 2 tokens: order=3; try --order 2"):
        train_counts(counted.path, NGramConfig(order=3), None)
    with pytest.raises(UserError, match=r"was counted without --sentences: sentences=True"):
        train_counts(counted.path, NGramConfig(order=2, sentences=True), None)
    parquet = counted.path / "ngrams" / "part-00000.parquet"
    table = pyarrow.parquet.read_table(parquet)
    pyarrow.parquet.write_table(table.set_column(2, "count", pyarrow.array([-1] * len(table))), parquet)
    with pytest.raises(UserError, match=r"is damaged: its ids or counts are outside their range; count again"):
        train_counts(counted.path, NGramConfig(order=2), tmp_path / "run")
    parquet.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match="duckdb cannot read or write"):
        train_counts(counted.path, NGramConfig(order=2), tmp_path / "run")
    (counted.path / "counts.json").write_text('{"format": 9}')
    with pytest.raises(UserError, match=r"is of format 9, this octavo reads 1; count again"):
        train_counts(counted.path, NGramConfig(order=2), None)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("a b\t1\n", "those of 1-grams are missing; give the files of all orders"),
        ("a\t1\na b c\n", "line 2 of .* is no count"),
        ("a\t0\n", "a number above 0; got"),
        ("a\t1\nb\t5\na b\t3\n", "'a' occurs 1 times, and what begins with it 3; count again"),
        ("a\t1\n</s>\t1\n</s> a\t1\n", "</s> only end one"),
        ("\n", "there are no counts in"),
    ],
)
def test_lines_that_are_no_counts_are_refused(tmp_path: Path, lines: str, complaint: str) -> None:
    (tmp_path / "counts.txt").write_text(lines)
    with pytest.raises(UserError, match=complaint):
        import_counts([tmp_path / "counts.txt"], tmp_path / "counts")
