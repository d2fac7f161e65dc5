"""octavo count cooccurrences: GloVe's table X against a double loop over the text, in exact fractions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from command_line import verb_caller
from octavo.cli import main
from octavo.engines import duckdb_engine
from octavo.engines.duckdb_engine import DuckDB
from octavo.errors import UserError
from octavo.tasks.cooccurrences import count_cooccurrences, merge_cooccurrences
from octavo.tasks.corpus import TextConfig
from octavo.tasks.engine_counting import EngineConfig
from octavo.text import token_shards
from octavo.training import cooccurrences
from octavo.training.cooccurrence_folder import GLOVE_RECORD, read_cooccurrence_folder, weights
from octavo.training.cooccurrences import CooccurrenceConfig
from octavo.training.glove import read_near

Table = dict[tuple[str, str], Fraction]
KINDS = [(True, True), (False, True), (True, False), (False, False)]  # symmetric, weighted by distance


def brute_table(lines: Sequence[Sequence[str]], window: int, symmetric: bool = True, weighted: bool = True) -> Table:
    """X by its definition: of two words, the first one's row has the second as its context, or stands left of it."""
    table: Table = defaultdict(Fraction)
    for words in lines:
        for p, first in enumerate(words):
            for q, second in enumerate(words):
                if 0 < abs(p - q) <= window and (symmetric or p < q):
                    table[first, second] += Fraction(1, abs(p - q) if weighted else 1)
    return dict(table)


def random_lines(words: int, count: int, seed: int = 0) -> list[list[str]]:
    generator = np.random.default_rng(seed)
    return [[f"w{word}" for word in generator.integers(0, words, generator.integers(0, 9))] for _ in range(count)]


def write(path: Path, lines: Sequence[Sequence[str]]) -> str:
    path.write_text("".join(" ".join(words) + "\n" for words in lines))
    return str(path)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(folder / "pairs").to_pylist()
    return found


def words_by_id(folder: Path) -> dict[int, str]:
    table = pyarrow.parquet.read_table(folder / "words.parquet").to_pydict()
    return dict(zip(table["id"], table["word"], strict=True))


def weights_of(folder: Path) -> dict[tuple[str, str], float]:
    word = words_by_id(folder)
    return {(word[row["w1"]], word[row["w2"]]): row["weight"] for row in rows(folder)}


def rounded(table: Table) -> dict[tuple[str, str], float]:
    """Python divides integers with one correct rounding."""
    return {pair: x.numerator / x.denominator for pair, x in table.items()}


def test_the_weights_of_six_words_are_those_of_a_sum_by_hand(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", ["the cat saw the other cat".split()])
    near = weights_of(count_cooccurrences([text], tmp_path / "near", CooccurrenceConfig(window=3)).path)
    assert near["the", "cat"] == near["cat", "the"] == 1 + 1 / 2 + 1 / 2  # the cat, cat saw the, the other cat
    assert near["the", "the"] == 2 / 3  # three words apart, from both places
    assert near["the", "saw"] == 1 / 2 + 1
    assert near["cat", "other"] == 1 / 3 + 1
    assert ("cat", "cat") not in near  # four words apart
    left = CooccurrenceConfig(window=3, symmetric=False)
    near = weights_of(count_cooccurrences([text], tmp_path / "left", left).path)
    assert (near["the", "cat"], near["cat", "the"], near["the", "the"]) == (1 + 1 / 2, 1 / 2, 1 / 3)


@pytest.mark.parametrize(("symmetric", "weighted"), KINDS)
@pytest.mark.parametrize("window", [1, 3, 10, 40])
def test_weights_are_those_of_a_double_loop_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, symmetric: bool, weighted: bool
) -> None:
    """However the text is cut into parts and batches; 40 is longer than any line."""
    monkeypatch.setattr(token_shards, "PART_TOKENS", 37)
    monkeypatch.setattr(cooccurrences, "BATCH_PLACES", 10)
    monkeypatch.setattr(cooccurrences, "COPY_TOKENS", 23)
    lines = random_lines(5, 40)
    config = CooccurrenceConfig(window, symmetric, weighted)
    counted = count_cooccurrences([write(tmp_path / "text.txt", lines)], tmp_path / "near", config, sentences=True)
    assert weights_of(counted.path) == rounded(brute_table(lines, window, symmetric, weighted))
    found = rows(counted.path)
    assert [(row["w1"], row["w2"]) for row in found] == sorted((row["w1"], row["w2"]) for row in found)
    assert all(row["total"] / counted.record.scale == row["weight"] for row in found)
    assert counted.record.pairs == len(found)


def test_windows_end_with_documents_and_with_lines_where_sentences_are_set(tmp_path: Path) -> None:
    lines = random_lines(4, 30)
    texts = [write(tmp_path / "one.txt", lines[:17]), write(tmp_path / "two.txt", lines[17:])]
    documents = [[word for line in part for word in line] for part in (lines[:17], lines[17:])]
    config = CooccurrenceConfig(5)
    whole = count_cooccurrences(texts, tmp_path / "whole", config)
    assert weights_of(whole.path) == rounded(brute_table(documents, 5))
    cut = count_cooccurrences(texts, tmp_path / "cut", config, sentences=True)
    assert weights_of(cut.path) == rounded(brute_table(lines, 5))


@pytest.mark.parametrize(("options", "known"), [({"min_count": 2}, {"a", "b"}), ({"vocab_size": 1}, {"a"})])
def test_words_that_are_left_out_take_no_place_in_the_window(
    tmp_path: Path, options: dict[str, int], known: set[str]
) -> None:
    line = "a rare b a other b a".split()
    counted = count_cooccurrences(
        [write(tmp_path / "text.txt", [line])], tmp_path / "near", CooccurrenceConfig(2),
        text=TextConfig(tokenizer="closed", **options),
    )  # fmt: skip
    assert weights_of(counted.path) == rounded(brute_table([[word for word in line if word in known]], 2))
    assert counted.record.tokens == sum(word in known for word in line)


def test_the_white_space_of_a_word_tokenizer_takes_no_place_and_bytes_do(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two\none two\n")
    word = count_cooccurrences([str(text)], tmp_path / "word", CooccurrenceConfig(1), text=TextConfig("word"))
    assert weights_of(word.path) == {("one", "▁two"): 3.0, ("▁two", "one"): 3.0}
    byte = count_cooccurrences([str(text)], tmp_path / "byte", CooccurrenceConfig(1), text=TextConfig("byte"))
    assert weights_of(byte.path)["e", "▁"] == 2.0


def test_a_text_without_words_has_no_pairs_and_one_word_neither(tmp_path: Path) -> None:
    for name, content, words in (("blank", "\n\n \n", 0), ("one", "word\n", 1)):
        text = tmp_path / f"{name}.txt"
        text.write_text(content)
        counted = count_cooccurrences([str(text)], tmp_path / name, CooccurrenceConfig(10), binary=True)
        assert (counted.record.tokens, counted.record.pairs, rows(counted.path)) == (words, 0, [])
        assert (counted.path / "cooccurrence.bin").read_bytes() == b""
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="there is no text in"):
        count_cooccurrences([str(tmp_path / "empty.txt")], tmp_path / "empty")


def test_a_limit_of_memory_only_makes_duckdb_use_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [[f"w{word}" for word in np.random.default_rng(0).integers(0, 60_000, 200_000)]]
    text, spilt = write(tmp_path / "text.txt", lines), list[bool]()
    close = DuckDB.close

    def note_spill(engine: DuckDB) -> None:
        spilt.append((engine.settings.folder / duckdb_engine.SPILL).is_dir())
        close(engine)

    monkeypatch.setattr(DuckDB, "close", note_spill)
    found = [
        count_cooccurrences([text], tmp_path / limit, CooccurrenceConfig(10), counting=EngineConfig("duckdb", limit))
        for limit in ("2GB", "100MB")
    ]
    assert spilt == [False, True], "all of it had room in memory"
    large, small = (pyarrow.parquet.read_table(one.path / "pairs") for one in found)
    assert large.equals(small)
    assert len(large) > 3_000_000


def test_a_killed_job_goes_on_from_its_finished_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, out, write_rows, written = (
        write(tmp_path / "text.txt", random_lines(9, 50)),
        tmp_path / "near",
        DuckDB.write,
        0,
    )

    def write_or_die(engine: DuckDB, query: str, folder: Path) -> None:
        nonlocal written
        if written == 3:  # the vocabulary, the words' counts and the pairs
            raise KeyboardInterrupt
        written += 1
        write_rows(engine, query, folder)

    words = ["count", "cooccurrences", text, "--sentences", "--out"]
    with monkeypatch.context() as patched:
        patched.setattr(DuckDB, "write", write_or_die)
        assert main([*words, str(out)]) == 130
    again = list[str]()
    monkeypatch.setattr(DuckDB, "write", lambda *given: (again.append(given[2].parent.name), write_rows(*given)))
    assert main([*words, str(out)]) == 0
    assert len(again) == 1, "only the sorted table was left"
    assert main([*words, str(tmp_path / "undisturbed")]) == 0
    assert rows(out) == rows(tmp_path / "undisturbed")
    assert not list(tmp_path.glob(".*stages"))


def test_glove_reads_the_vocabulary_by_falling_count_and_records_of_its_lines(tmp_path: Path) -> None:
    lines = random_lines(7, 40)
    counted = count_cooccurrences(
        [write(tmp_path / "text.txt", lines)], tmp_path / "near", CooccurrenceConfig(4), True, binary=True
    )
    counts = Counter(word for line in lines for word in line)
    expected = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    vocab = [line.split(" ") for line in (counted.path / "vocab.txt").read_text().splitlines()]
    assert [(word, int(count)) for word, count in vocab] == expected
    records = np.frombuffer((counted.path / "cooccurrence.bin").read_bytes(), GLOVE_RECORD)
    found = {(vocab[w1 - 1][0], vocab[w2 - 1][0]): weight for w1, w2, weight in records.tolist()}
    assert (GLOVE_RECORD.itemsize, found) == (16, rounded(brute_table(lines, 4)))


def test_a_total_beyond_53_bits_is_divided_with_one_rounding() -> None:
    totals = [2**53, 2**53 + 1, 2**62 + 513, 7 * 10**18 + 3, 5]
    found = weights(np.array(totals, np.int64), 2520)
    assert found.tolist() == [float(Fraction(total, 2520)) for total in totals]


def test_sums_that_integers_cannot_hold_are_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", random_lines(4, 20))
    with pytest.raises(UserError, match=r"window=60 over .* words may need more; try --window 15, or --no-distance"):
        count_cooccurrences([text], tmp_path / "near", CooccurrenceConfig(60))
    flat = CooccurrenceConfig(10_000, distance_weighting=False)
    assert count_cooccurrences([text], tmp_path / "near", flat).record.scale == 1
    CooccurrenceConfig(10).check_sums(10**14)  # GloVe's window serves any text there is
    with pytest.raises(UserError, match="window must be at least 1"):
        CooccurrenceConfig(0)


def test_merged_counts_are_the_counts_of_both_texts(tmp_path: Path) -> None:
    texts = [write(tmp_path / f"{seed}.txt", random_lines(6, 30, seed)) for seed in (1, 2)]
    config = CooccurrenceConfig(6)
    both = count_cooccurrences(texts, tmp_path / "both", config, True, binary=True)
    same = TextConfig(tokenizer=str(both.path / "tokenizer.json"))
    parts = [
        count_cooccurrences([text], tmp_path / f"part{i}", config, True, same).path for i, text in enumerate(texts)
    ]
    merged = merge_cooccurrences(parts, tmp_path / "merged", binary=True)
    assert rows(merged.path) == rows(both.path)
    for name in ("vocab.txt", "cooccurrence.bin"):
        assert (merged.path / name).read_bytes() == (both.path / name).read_bytes()
    assert merged.record.tokens == both.record.tokens


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    return verb_caller("count", capsys)


def test_the_command_counts_adds_and_refuses_counts_of_another_kind(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    text, near, grams = (
        write(tmp_path / "text.txt", random_lines(5, 30)),
        str(tmp_path / "near"),
        str(tmp_path / "grams"),
    )
    code, printed, _ = call("cooccurrences", text, "--window", "3", "--no-symmetric", "--out", near, "--json")
    assert (code, json.loads(printed)["window"], json.loads(printed)["symmetric"]) == (0, 3, False)
    assert call("merge", near, near, "--out", str(tmp_path / "twice"))[0] == 0
    doubled = {pair: 2 * weight for pair, weight in weights_of(Path(near)).items()}
    assert weights_of(tmp_path / "twice") == doubled
    assert call(text, "--order", "2", "--out", grams)[0] == 0
    code, _, error = call("merge", near, grams, "--out", str(tmp_path / "no"))
    assert (code, error.count("\n")) == (2, 1)
    assert f"must be of one kind: {near} has co-occurrences, {grams} does not" in error
    code, _, error = call("merge", grams, grams, "--binary", "--out", str(tmp_path / "no"))
    assert (code, "--binary is for folders of co-occurrences" in error) == (2, True)
    code, _, error = call("cooccurrences", text, "--engine", "memory", "--out", str(tmp_path / "no"))
    assert (code, "are made by an engine: engine=memory" in error) == (2, True)


def test_foreign_and_damaged_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", random_lines(5, 30))
    one = count_cooccurrences([text], tmp_path / "one", CooccurrenceConfig(3))
    other = count_cooccurrences([text], tmp_path / "other", CooccurrenceConfig(4))
    bytes_ = count_cooccurrences([text], tmp_path / "bytes", CooccurrenceConfig(3), text=TextConfig("byte"))
    for folders, complaint in (
        ([one, other], "counts to add must have one window: .* has 3, .* 4"),
        ([one, bytes_], "counts to add must be of one tokenizer: .* count the second text with --tokenizer"),
        ([one], "at least two folders of counts are added: 1 given"),
    ):
        with pytest.raises(UserError, match=complaint):
            merge_cooccurrences([folder.path for folder in folders], tmp_path / "sum")
    parquet = one.path / "pairs" / "part-00000.parquet"
    table = pyarrow.parquet.read_table(parquet)
    for name, values in (("total", [-1] * len(table)), ("w2", [99] * len(table))):
        at = table.column_names.index(name)
        pyarrow.parquet.write_table(table.set_column(at, name, pyarrow.array(values)), parquet)
        with pytest.raises(UserError, match="is damaged: its rows are not those of its record; count again"):
            merge_cooccurrences([one.path, one.path], tmp_path / "sum")
    for name, values in (
        ("w2", [99] * len(table)),
        ("weight", [float("nan")] * len(table)),
        ("w1", [None] * len(table)),
    ):
        at = table.column_names.index(name)
        damaged = table.set_column(at, name, pyarrow.array(values, table.schema.field(name).type))
        pyarrow.parquet.write_table(damaged, parquet)
        with pytest.raises(UserError, match="is damaged: its ids, counts or weights are outside their range"):
            read_near(read_cooccurrence_folder(one.path))
    pyarrow.parquet.write_table(table.slice(1), parquet)
    with pytest.raises(UserError, match="its rows are not those of its record"):
        merge_cooccurrences([one.path, one.path], tmp_path / "sum")
    (one.path / "cooccurrences.json").write_text('{"format": 9}')
    with pytest.raises(UserError, match="is of format 9, this octavo reads 1; count again"):
        merge_cooccurrences([one.path, one.path], tmp_path / "sum")
    with pytest.raises(UserError, match=r"is no folder of co-occurrences: it has no cooccurrences\.json"):
        merge_cooccurrences([tmp_path, tmp_path], tmp_path / "sum")
