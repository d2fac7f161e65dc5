"""Word vectors: files in and out, matching to tokens, and GloVe against sums done by hand."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import octavo
from octavo.cli import main
from octavo.cli.vectors import run_vectors
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.inspection.word_similarity import ANALOGIES, SIMILARITIES, WordVectors, check, spearman
from octavo.scoring.bits_per_byte import OTHER_TEXT
from octavo.text import Word, open_corpus, open_text, text_in_memory
from octavo.text.chunks import Chunk
from octavo.text.word_vectors import Vectors, match_vectors, read_origin, read_vectors, word_of, write_vectors
from octavo.training import glove
from octavo.training.glove import (
    BREAK,
    GloveConfig,
    Near,
    count_near,
    glove_gradient,
    learn_near,
    train_glove,
    words_of,
)

PLAIN = "the 0.5 -1 2e-1\ncat 1 2 3\n. . . 4 5 6\n"


def file(folder: Path, text: str | bytes, name: str = "v.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# Files


@pytest.mark.parametrize("header", ["", "3 3\n"])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
def test_rows_are_read_with_and_without_the_line_of_counts(tmp_path: Path, header: str, end: str) -> None:
    found = read_vectors(file(tmp_path, header + PLAIN.replace("\n", end)))
    assert found.words == ["the", "cat", ". . ."]
    assert found.rows_WD.tolist() == np.array([[0.5, -1, 0.2], [1, 2, 3], [4, 5, 6]], np.float32).tolist()


def test_only_the_words_wanted_are_kept(tmp_path: Path) -> None:
    found = read_vectors(file(tmp_path, PLAIN), {"cat", "dog"})
    assert found.words == ["cat"]
    assert found.rows_WD.tolist() == [[1, 2, 3]]
    assert read_vectors(tmp_path / "v.txt", set()).rows_WD.shape == (0, 3)


def test_a_compressed_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    assert read_vectors(file(tmp_path, gzip.compress(PLAIN.encode()), "v.txt.gz")).words == ["the", "cat", ". . ."]


def test_of_a_word_that_comes_twice_the_first_row_counts_and_a_note_says_so(tmp_path: Path) -> None:
    found = read_vectors(file(tmp_path, "a 1 2\nb 3 4\na 5 6\n"))
    assert dict(zip(found.words, found.rows_WD.tolist(), strict=True)) == {"a": [1, 2], "b": [3, 4]}
    [note] = found.notes
    assert "1 rows repeat a word; the first of each counts" in note


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no vectors"),
        ("\n\n", "holds no vectors"),
        ("5 3\n", "holds no vectors"),
        ("a 1 2 3\nb 1 2\n", r"line 2: a row must have as many numbers as the others, 3: it has 2"),
        ("a 1 2 3\nb 1 2 3 4\n", r"line 2: a row must have as many numbers as the others, 3: it has 4"),
        ("alone\n", r"line 1: a row must have as many numbers"),
        ("a 1 x 3\n", r"line 1: after the word come numbers: got '1 x 3'"),
        ("a 1 nan 3\n", "after the word come numbers"),
        ("a 1 1e999 3\n", "after the word come numbers"),
        ("a 1 1e39 3\n", "after the word come numbers"),  # infinite in 32 bits
        (f"{'9' * 5000} 3\na 1 2 3\n", "line 2: a row must have as many numbers as the others, 1"),
        ("3 2\na 1 2\nb 3 4\n", "is not whole: 3 vectors are promised, 2 are there"),
        ("1000000000 2\na 1 2\nb 3 4\n", "is not whole: 1,000,000,000 vectors of 2 numbers are promised, in "),
        ("a 1\n" * 70_000, "repeats words in 65,534 of its first 65,536 rows"),
        (b"2 3\na \x00\x00\x80\x3f\x00\x00\n", "is not text"),
        (b"\x80\x04\x95binary", "line 1: a row must have as many numbers"),
    ],
)
def test_what_is_no_file_of_vectors_is_refused_with_the_place(
    tmp_path: Path, text: str | bytes, complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        read_vectors(file(tmp_path, text))


def test_a_file_without_line_ends_is_given_up_before_it_fills_the_memory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not text"):
        read_vectors(file(tmp_path, b"x" * (8 << 20)))


def test_a_packaged_source_is_an_array_and_a_table_of_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "emb.npy", rows)
    parquet.write_table(pyarrow.table({"index": ["the", "cat", "dog"]}), tmp_path / "index.parquet")
    files = {name: tmp_path / name for name in ("emb.npy", "index.parquet")}
    monkeypatch.setattr("octavo.text.word_vectors.get_files", lambda name: files)
    found = read_vectors("glove-6b-50d", {"dog", "the", "cow"})
    assert found.words == ["the", "dog"]
    assert found.rows_WD.tolist() == [[0, 1], [4, 5]]
    everything = read_vectors("glove-6b-50d")
    assert everything.words == ["the", "cat", "dog"]
    assert everything.rows_WD.tolist() == rows.tolist()


def test_a_row_that_is_not_wanted_must_still_be_even(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 2"):
        read_vectors(file(tmp_path, "a 1 2 3\nb 1 2\n"), {"a"})


def test_a_name_that_is_neither_file_nor_source_is_answered_with_the_sources() -> None:
    with pytest.raises(UserError, match=r"there is no file of vectors nowhere\.txt; .*glove-6b-50d"):
        read_vectors("nowhere.txt")


@pytest.mark.parametrize("header", [False, True])
def test_what_is_written_is_read_back_to_the_last_bit(tmp_path: Path, header: bool) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    rows[0] = [1e-38, 3.4e38, -0.0, 1 / 3, 1e-45, 16777217, 0.1]
    words = ["naïve", "中文", "'s", *(f"w{i}" for i in range(47))]
    write_vectors(tmp_path / "v.txt", Vectors(words, rows), header)
    back = read_vectors(tmp_path / "v.txt")
    assert back.words == words
    assert back.rows_WD.tobytes() == rows.tobytes()
    assert (tmp_path / "v.txt").read_text().startswith("50 7\n") == header


def test_a_word_that_the_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no spaces"):
        write_vectors(tmp_path / "v.txt", Vectors(["two words"], np.zeros((1, 2), np.float32)))
    assert not (tmp_path / "v.txt").exists()


# Tokens


@pytest.mark.parametrize(
    ("spelling", "word"), [(b" the", "the"), (b"the", "the"), (b"\n", None), (b" ", None), (b"", None), (b"\xe4", None)]
)
def test_a_tokens_word_is_its_spelling_without_the_space(spelling: bytes, word: str | None) -> None:
    assert word_of(spelling) == word


def test_tokens_get_the_vector_of_their_word_or_of_its_lower_case(tmp_path: Path) -> None:
    data = b" The cat, the CAT. xyz xyz The cat the CAT"
    tokenizer = Word.learn(text_in_memory(data).chunks())
    path = file(tmp_path, "the 1 1\ncat 2 2\nCAT 3 3\n, 4 4\n")
    counts_V = np.bincount(tokenizer.encode(data), minlength=tokenizer.vocab)
    match = match_vectors(path, tokenizer, counts_V)
    rows = {tokenizer.token_bytes(t): match.vectors_VD[t].tolist() for t in np.flatnonzero(match.known_V)}
    assert rows == {b" The": [1, 1], b" the": [1, 1], b" cat": [2, 2], b" CAT": [3, 3], b",": [4, 4]}
    words = [t for t in range(tokenizer.vocab) if word_of(tokenizer.token_bytes(t))]
    share = sum(counts_V[t] for t in np.flatnonzero(match.known_V)) / sum(counts_V[t] for t in words)
    said = f"{len(rows)} of {len(words)} tokens that are words have a vector, which are {share:.1%} of the text's"
    assert match.notes == [said]
    assert not match.vectors_VD[~match.known_V].any()


# GloVe


def brute_near(words: list[int], window: int) -> dict[tuple[int, int], float]:
    """X by its definition, ordered pairs, with the documents cut at BREAK."""
    table: dict[tuple[int, int], float] = defaultdict(float)
    documents: list[list[int]] = [[]]
    for word in words:
        documents.append([]) if word == BREAK else documents[-1].append(word)
    for document in documents:
        for p, i in enumerate(document):
            for q, j in enumerate(document):
                if 0 < abs(p - q) <= window:
                    table[i, j] += 1 / abs(p - q)
    return table


def test_neighbours_of_a_few_words_by_hand() -> None:
    near = count_near(np.array([BREAK, 0, 1, 0, BREAK, 2, 1], np.int32), 3, 2)
    found = {(i, j): x for i, j, x in zip(*(part.tolist() for part in near), strict=True)}
    assert found == {(0, 0): 1.0, (0, 1): 2.0, (1, 2): 1.0}  # 0 is two places from 0, seen from both: 1/2 + 1/2


@pytest.mark.parametrize("chunk", [1, 5, 1 << 18])
@pytest.mark.parametrize("window", [1, 3, 40])
def test_neighbours_are_those_of_the_definition_however_the_text_is_chunked(
    monkeypatch: pytest.MonkeyPatch, chunk: int, window: int
) -> None:
    monkeypatch.setattr(glove, "CHUNK_WORDS", chunk)
    words = np.random.default_rng(1).integers(-1, 6, 60).astype(np.int32)
    near = count_near(words, 6, window)
    expected = {pair: x for pair, x in brute_near(words.tolist(), window).items() if pair[0] <= pair[1]}
    found = {(i, j): x for i, j, x in zip(*(part.tolist() for part in near), strict=True)}
    assert found == pytest.approx(expected, rel=1e-12)
    assert all(expected[i, j] == pytest.approx(brute_near(words.tolist(), window)[j, i]) for i, j in expected)


def test_words_are_found_without_spaces_and_capitals_and_rare_ones_take_no_place() -> None:
    text = text_in_memory("The cat. the CAT\nrare The dog.")
    words, numbers = words_of(text.chunks(), GloveConfig(min_count=2))
    assert words[0] == "the"
    assert set(words) == {"the", "cat", "."}
    assert [words[i] for i in numbers if i >= 0] == ["the", "cat", ".", "the", "cat", "the", "."]
    cased, _ = words_of(text.chunks(), GloveConfig(min_count=1, lower=False, vocab_size=2))
    assert cased[0] in ("The", ".")
    assert len(cased) == 2


def test_documents_are_kept_apart() -> None:
    chunk = Chunk(b"one two three four", np.array([0, 7]))
    words, numbers = words_of([chunk], GloveConfig(min_count=1))
    near = count_near(numbers, len(words), 10)
    pairs = {frozenset((words[i], words[j])) for i, j in zip(near.i_P, near.j_P, strict=True)}
    assert pairs == {frozenset(("one", "two")), frozenset(("three", "four"))}


def test_the_hand_gradient_is_that_of_autograd() -> None:
    g = seeded_generator(0)
    w, c = (torch.randn(9, 4, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))
    b, d = (torch.randn(9, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))
    logx, f = torch.randn(9, generator=g).double(), torch.rand(9, generator=g).double()
    expected = (f * ((w * c).sum(1) + b + d - logx) ** 2).sum() / 2
    dw, dc, db, dd = torch.autograd.grad(expected, (w, c, b, d))
    with torch.no_grad():
        loss, gw, gc, gb = glove_gradient(w, c, b, d, logx, f)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-13, atol=0)
    for mine, theirs in ((gw, dw), (gc, dc), (gb, db), (gb, dd)):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def clusters(seed: int = 0) -> bytes:
    """Sentences that each speak of one of two things."""
    rng = np.random.default_rng(seed)
    sets = (["sun", "rain", "wind", "snow", "storm"], ["bread", "cheese", "wine", "soup", "cake"])
    lines = [" ".join(rng.choice(sets[line % 2], 8)) for line in range(600)]
    return "\n".join(line + " end ." * 6 for line in lines).encode()


def test_words_of_one_cluster_are_nearer_each_other_than_those_of_another() -> None:
    losses: list[float] = []
    config = GloveConfig(dim=8, window=4, epochs=15)
    vectors, result = train_glove(
        text_in_memory(clusters()).chunks(), config, 1, lambda row: losses.append(row["loss"])
    )
    compass = WordVectors(vectors)
    for words in (("sun", "rain", "wind", "snow", "storm"), ("bread", "cheese", "wine", "soup", "cake")):
        for word in words:
            assert {near for near, _ in compass.nearest(word, 4)} == set(words) - {word}
    assert losses[-1] < losses[0] / 4
    assert result["words"] == 12
    again, _ = train_glove(text_in_memory(clusters()).chunks(), config, 1)
    assert again.rows_WD.tobytes() == vectors.rows_WD.tobytes()


def test_one_pair_is_learnt_to_its_logarithm() -> None:
    near = Near(np.array([0]), np.array([1]), np.array([200.0]))
    losses: list[float] = []
    learn_near(near, 2, GloveConfig(dim=3, epochs=300), seeded_generator(0), lambda row: losses.append(row["loss"]))
    assert losses[-1] < 1e-3 < losses[0]


def test_a_spent_budget_ends_the_learning() -> None:
    near, losses = Near(np.array([0]), np.array([1]), np.array([2.0])), []
    learn_near(near, 2, GloveConfig(budget=1e-9), seeded_generator(0), losses.append)
    assert losses == []


def test_a_text_without_enough_words_is_refused() -> None:
    with pytest.raises(UserError, match=r"the text has 1 words that occur at least 5 times; .*--min-count"):
        train_glove(text_in_memory("a " * 9 + "b").chunks(), GloveConfig())


@pytest.mark.parametrize("name", ["dim", "window", "min_count", "vocab_size", "epochs", "learning_rate", "budget"])
def test_settings_that_make_no_vectors_are_refused(name: str) -> None:
    settings: dict[str, Any] = {name: 0}
    with pytest.raises(UserError, match=f"{name} must be .*{name}=0; (try --{name.replace('_', '-')}|leave it out)"):
        GloveConfig(**settings)


def test_a_rate_that_makes_vectors_infinite_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"learning_rate must be above 0 and at most 10: learning_rate=1e\+30; try --learning-rate 0.2"
    ):
        GloveConfig(learning_rate=1e30)


# Looking at vectors


def square() -> Vectors:
    rows = {"man": (1, 0, 1), "woman": (1, 1, 1), "king": (0, 0, 1), "queen": (0, 1, 1), "pea": (-1, 0, 0.1)}
    return Vectors(list(rows), np.array(list(rows.values()), np.float32))


def test_neighbours_come_by_cosine() -> None:
    found = WordVectors(square()).nearest("Man", 2)
    assert [word for word, _ in found] == ["woman", "king"]
    assert [cosine for _, cosine in found] == pytest.approx([2 / math.sqrt(6), 1 / math.sqrt(2)], rel=1e-6)
    assert len(WordVectors(square()).nearest("man", 99)) == 4


def test_an_analogy_leaves_its_own_words_out() -> None:
    assert WordVectors(square()).analogy("man", "woman", "king", 1)[0][0] == "queen"
    with pytest.raises(UserError, match="there is no vector for 'duke' among 5 words"):
        WordVectors(square()).analogy("man", "woman", "duke")


def test_the_check_counts_only_what_has_vectors() -> None:
    result = check(WordVectors(square()))
    assert result["analogies"]["family"] == {"right": 2, "asked": 2, "of": 42}
    assert result["analogies"]["plural"]["asked"] == 0
    assert result["similarity"] == {"pairs": 2, "of": len(SIMILARITIES), "spearman": None}


def test_the_built_in_lists_are_well_formed() -> None:
    assert all(len(pair.split()) == 2 for pairs in ANALOGIES.values() for pair in pairs)
    assert len({frozenset(pair[:2]) for pair in SIMILARITIES}) == len(SIMILARITIES)
    assert all(0 <= value <= 10 for _, _, value in SIMILARITIES)


def test_rank_correlation_is_scipys() -> None:
    from scipy.stats import spearmanr

    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 9, 40).tolist(), rng.integers(0, 9, 40).tolist()
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic, rel=1e-12)
    assert spearman([1, 1], [1, 2]) == 0


# The command


def test_vectors_of_a_text_are_learnt_written_and_queried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, out = file(tmp_path, clusters(), "text.txt"), tmp_path / "out.txt"
    run_vectors([str(text), "--out", str(out), "--dim", "8", "--window", "4", "--epochs", "15", "--header", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["words"] == 12
    assert result["loss"][-1] < result["loss"][0]
    assert out.read_text().startswith("12 8\n")
    run_vectors(["near", str(out), "sun", "--count", "4", "--json"])
    near = json.loads(capsys.readouterr().out)["sun"]
    assert {row["word"] for row in near} == {"rain", "wind", "snow", "storm"}
    run_vectors(["near", str(out), "sun", "wine"])
    assert "wine" in capsys.readouterr().out
    run_vectors(["analogy", str(out), "sun", "rain", "wine"])
    assert "sun is to rain as wine is to: " in capsys.readouterr().out
    run_vectors(["check", str(out)])
    assert "0 of 42" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["{text}", "--out", "{text}"], "is the text to learn from"),
        (["{text}", "--out", "{folder}"], "it must be a file in a folder"),
        (["near", "{text}"], "name a word"),
        (["near", "{text}", "a", "--count", "0"], "count must be at least 1"),
    ],
)
def test_mistakes_are_refused_before_the_work(tmp_path: Path, argv: list[str], complaint: str) -> None:
    text = file(tmp_path, clusters())
    with pytest.raises(UserError, match=complaint):
        run_vectors([part.format(text=text, folder=tmp_path) for part in argv])


def test_help_names_the_ways_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    run_vectors([])
    assert "octavo vectors near FILE WORD..." in capsys.readouterr().out


# The text that they were learnt from


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text whose last tenth has words of its own, and vectors of its training part and of all of it."""
    folder = tmp_path_factory.mktemp("learnt")
    (folder / "text.txt").write_bytes(clusters() * 9 + b"unseen moon " * (len(clusters()) // 12))
    for name, more in (("part", []), ("whole", ["--whole-text"])):
        where = ["--out", str(folder / f"{name}.txt")]
        run_vectors([str(folder / "text.txt"), *where, "--dim", "4", "--epochs", "1", *more])
    return folder


def test_vectors_come_from_the_training_part_unless_the_whole_text_is_asked_for(learnt: Path) -> None:
    part, whole = (read_vectors(learnt / f"{name}.txt").words for name in ("part", "whole"))
    assert "moon" not in part
    assert set(whole) - set(part) == {"unseen", "moon"}
    train = open_corpus(learnt / "text.txt").train
    assert read_origin(learnt / "part.txt").text_sha256 == train.sha256
    assert read_origin(learnt / "whole.txt").text_sha256 == open_text(learnt / "text.txt").sha256


def test_a_file_that_changed_has_no_known_text(learnt: Path, tmp_path: Path) -> None:
    for name in ("part.txt", "part.txt.json"):
        (tmp_path / name).write_bytes((learnt / name).read_bytes())
    assert read_origin(tmp_path / "part.txt").text_sha256
    (tmp_path / "part.txt").write_text(PLAIN)
    assert read_origin(tmp_path / "part.txt").text_sha256 == ""
    for foreign in ("[]", "{}", "no JSON", '{"vectors_sha256": 1}'):
        (tmp_path / "part.txt.json").write_text(foreign)
        assert read_origin(tmp_path / "part.txt").text_sha256 == ""


def bigram(learnt: Path, vectors: str, out: Path) -> octavo.Run:
    settings = {"tokenizer": "word", "dim": 4, "hidden": 4, "steps": 2}
    octavo.train("bigram", learnt / "text.txt", vectors=vectors, out=out, **settings)
    return octavo.load(out)


def test_a_run_is_labelled_where_its_vectors_saw_other_text_than_its_training_part(
    learnt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, part = bigram(learnt, "", tmp_path / "plain"), bigram(learnt, str(learnt / "part.txt"), tmp_path / "part")
    assert [run.record["result"]["label"] for run in (plain, part)] == ["", ""]
    whole = bigram(learnt, str(learnt / "whole.txt"), tmp_path / "whole")
    assert whole.record["other_text"] == [f"vectors {learnt / 'whole.txt'}"]
    assert whole.record["result"]["label"] == OTHER_TEXT
    assert OTHER_TEXT in whole.summary()
    assert octavo.evaluate(whole, "the sun").label == OTHER_TEXT
    page = (tmp_path / "whole" / "report.html").read_text()
    assert "used other text than the training part" in page
    assert "used other text" not in (tmp_path / "part" / "report.html").read_text()
    main(["list", str(tmp_path)])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert [OTHER_TEXT in rows[str(tmp_path / name)] for name in ("plain", "part", "whole")] == [False, False, True]
    octavo.train(
        "mix", learnt / "text.txt", parts=[str(tmp_path / "part"), str(tmp_path / "whole")], out=tmp_path / "mix"
    )
    assert octavo.load(tmp_path / "mix").record["result"]["label"] == OTHER_TEXT


def test_numbers_near_the_largest_of_single_precision_have_directions_too(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    found = WordVectors(read_vectors(file(tmp_path, "a 3e38 3e38\nb 1e-30 1e-30\nc 1 -1\nd 0 0\n")))
    np.testing.assert_allclose(found.unit_WD, [[0.5**0.5] * 2, [0.5**0.5] * 2, [0.5**0.5, -(0.5**0.5)], [0, 0]], 1e-6)
    assert not recwarn.list


def test_vectors_appear_after_the_file_that_says_where_they_are_from(tmp_path: Path) -> None:
    (tmp_path / "v.txt.json").mkdir()  # so that this file cannot be written
    with pytest.raises(UserError, match=r"v\.txt\.json"):
        write_vectors(tmp_path / "v.txt", Vectors(["a"], np.zeros((1, 2), np.float32)), origin={"part": "train"})
    assert [path.name for path in tmp_path.iterdir()] == ["v.txt.json"]
