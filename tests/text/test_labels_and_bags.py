"""Labelled texts are read in every format, and split class by class; words become the rows they should."""

from __future__ import annotations

import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.datasets import labels
from octavo.datasets.labels import Labelled, LabelledConfig, read_labelled, read_texts
from octavo.errors import UserError
from octavo.text.bag_of_ngrams import ODD, Bags, HashedReader, KnownReader, ngram_keys, words_of
from octavo.text.tokenizers.word_splitting import MIX

WANTED = [("good", "a fine, film"), ("bad", 'not "good"'), ("good", "fine")]
FILES = {
    "tabs.tsv": "good\ta fine, film\nbad\tnot \"good\"\n\ngood\tfine\n",
    "plain.txt": "good\ta fine, film\nbad\tnot \"good\"\ngood\tfine",
    "comma.csv": 'id,label,text\n1,good,"a fine, film"\n2,bad,"not ""good"""\n3,good,fine\n',
    "lines.jsonl": '{"text": "a fine, film", "label": "good"}\n{"text": "not \\"good\\"", "label": "bad"}\n'
                   '{"label": "good", "text": "fine"}\n',
    "named.tsv": "label\ttext\tid\ngood\ta fine, film\t1\nbad\tnot \"good\"\t2\n\ngood\tfine\t3\n",
    "turned.tsv": "text\tlabel\na fine, film\tgood\nnot \"good\"\tbad\nfine\t good \n",
    "fast.txt": '__label__good a fine, film\n__label__bad not "good"\n__label__good fine\n',
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_examples(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    found = read_labelled(tmp_path / name)
    assert [(found.classes[c], text) for c, text in zip(found.y_N, found.texts, strict=True)] == WANTED
    assert found.classes == ["bad", "good"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.tsv", "no tab here", "line 1 of .*label<TAB>text"),
        ("a.txt", "__label__x one\n__labelx two", "line 2 of .*must begin with __label__"),
        ("a.txt", "__label__x __label__y one", "several labels"),
        ("a.jsonl", "{", "line 1 of .*is not JSON"),
        ("a.jsonl", "[1]", "must be a JSON object"),
        ("a.csv", "text,class\none,x\n", "label.*it has text, class.*--label-field"),
        ("a.tsv", "x\tone\nx\ttwo", "at least two classes"),
        ("a.tsv", "", r"no examples in \S*a.tsv; a line is"),
        ("a.csv", "text,label\none,\n", "row 1 of .*must have a label: 'label' is empty"),
        ("a.tsv", "text\tlabel\none\n", "line 2 of .*label.*--label-field"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=says):
        read_labelled(tmp_path / name)


def test_a_file_that_is_not_utf8_says_how_to_read_it(tmp_path: Path) -> None:
    for kind in ("utf-16", "latin-1"):
        (tmp_path / "a.tsv").write_bytes("a\tthé\n".encode(kind))
        with pytest.raises(UserError, match=f"must be UTF-8.*it looks like {kind}; read it with encoding='{kind}'"):
            read_labelled(tmp_path / "a.tsv")


def test_a_field_that_is_too_long_is_reported_with_the_row_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "LARGEST_FIELD", 10)
    (tmp_path / "a.csv").write_text(f"text,label\none,x\ntwo,y\n{'long' * 9},z\n", encoding="utf-8")
    with pytest.raises(UserError, match="not CSV, after row 2: field larger than"):
        read_labelled(tmp_path / "a.csv")
    monkeypatch.undo()
    (tmp_path / "b.csv").write_text("text,label\none,x\ntwo,y\n", encoding="utf-8")
    read_labelled(tmp_path / "b.csv")  # which gives the whole process its usual limit again


def test_white_space_in_a_label_is_one_space(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\none,"x\ty"\ntwo,"x y "\nthree,z\n', encoding="utf-8")
    assert read_labelled(tmp_path / "a.csv").classes == ["x y", "z"]


def test_texts_for_classes_are_separated_from_labels() -> None:
    data = Labelled.of(["x"] * 30, [f"a whole sentence {n}" for n in range(30)])
    with pytest.raises(UserError, match=r"30 in 30 classes.*the label comes first"):
        data.last_tenth()


def test_other_columns_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("body,stars\nfine,5\npoor,1\n", encoding="utf-8")
    found = read_labelled(tmp_path / "a.csv", LabelledConfig(text_field="body", label_field="stars"))
    assert found.classes == ["1", "5"]
    assert read_texts(str(tmp_path / "a.csv"), LabelledConfig(text_field="body")) == ["fine", "poor"]


def test_texts_to_predict_lose_their_labels_in_every_format_and_keep_to_the_files_lines(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        how = LabelledConfig(format="tsv" if name == "plain.txt" else "auto")
        assert read_texts(str(tmp_path / name), how) == [text for _, text in WANTED]
    (tmp_path / "lines.txt").write_bytes("one\u2028still one\x0c\r\n\ntwo".encode())
    assert read_texts(str(tmp_path / "lines.txt")) == ["one\u2028still one\x0c", "", "two"]
    (tmp_path / "bare.tsv").write_text("no label here\nx\tone", encoding="utf-8")
    assert read_texts(str(tmp_path / "bare.tsv")) == ["no label here", "one"]


def test_a_label_that_was_not_learnt_is_refused() -> None:
    with pytest.raises(UserError, match="among those learnt, a, b: got c"):
        Labelled.of(["x"], ["c"], ["a", "b"])


def test_the_last_tenth_of_each_class_is_held_out_in_order() -> None:
    data = Labelled.of([str(n) for n in range(70)], ["a"] * 40 + ["b"] * 30)
    learnt, held = data.last_tenth()
    assert held.texts == ["36", "37", "38", "39", "67", "68", "69"]
    assert len(learnt) == 63
    assert not set(learnt.texts) & set(held.texts)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=20, max_size=90), st.integers(2, 5))
def test_folds_hold_every_example_once_and_each_class_in_its_share(labels: list[str], count: int) -> None:
    data = Labelled.of(labels, labels)
    if min(data.counts().values()) < count:
        with pytest.raises(UserError, match="smallest class"):
            data.folds(count)
        return
    folds = data.folds(count, seed=1)
    assert sorted(np.concatenate([held for _, held in folds]).tolist()) == list(range(len(labels)))
    for learn, held in folds:
        assert not set(learn.tolist()) & set(held.tolist())
        for label, total in Counter(labels).items():
            assert total // count <= [labels[n] for n in held].count(label) <= -(-total // count)


def test_words_are_lower_case_without_space_and_keep_to_their_text() -> None:
    found = words_of(["It isn't  a\tgood\nfilm!", "", " x ", "ÉTÉ 3"]).spelt()
    assert found == [["it", "isn", "'", "t", "a", "good", "film", "!"], [], ["x"], ["été", "3"]]


def plain_words(text: str) -> list[str]:
    """Words by a loop over characters: the plain reference implementation of words_of."""
    found, open_ = list[str](), False
    for character in text.lower().encode("utf-8", "replace").decode():  # half a surrogate pair is a question mark
        category = unicodedata.category(character)
        word = category[0] in "LMN" or character == "_" or character in "\u00ad\u200c\u200d"
        word |= ord(character) >= 0x20000  # beyond the table all are letters
        if word and open_:
            found[-1] += character
        elif character >= " " and not character.isspace():  # control characters are not visible either
            found.append(character)
        open_ = word
    return found


LETTERS = st.one_of(st.characters(), st.sampled_from(" \t\n\r\x85\xa0\u2003\u2028\u3000ΑΣσİẞǅ_.é"))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(LETTERS), max_size=6))
def test_words_of_random_unicode_are_those_of_a_loop_over_characters(texts: list[str]) -> None:
    assert words_of(texts).spelt() == [plain_words(text) for text in texts]


def plain_ngram_keys(keys: list[int], longest: int) -> list[int]:
    """The n-grams' keys one by one, in whole numbers: the plain reference implementation of ngram_keys."""
    keep = (1 << 64) - 1
    stirred = [(key ^ key >> 32) * int(MIX) & keep for key in keys]
    found = []
    for n, key in enumerate(stirred):
        found.append(key)
        for later in stirred[n + 1 : n + longest]:
            mixed = key * int(ODD) + later & keep
            key = (mixed ^ mixed >> 29) * int(MIX) & keep
            found.append(key)
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=5), min_size=1, max_size=5), st.integers(1, 4))
def test_ngram_keys_of_many_texts_are_those_of_a_loop_over_words(lists: list[list[int]], longest: int) -> None:
    offsets = np.cumsum([0, *map(len, lists)])
    keys, ends = ngram_keys(np.array([key for keys in lists for key in keys], np.uint64), offsets, longest)
    found = [keys[a:b].tolist() for a, b in pairwise(ends.tolist())]
    assert found == [plain_ngram_keys(keys, longest) for keys in lists]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=6))
def test_a_text_has_the_same_bag_alone_as_among_others(texts: list[str]) -> None:
    for reader in (HashedReader.learn(texts, 2, 12)[0], KnownReader.learn(texts, 1, 2, 64)):
        alone = Bags.joined([reader.read([text]) for text in texts])
        assert torch.equal(reader.read(texts).ids_N, alone.ids_N)
        assert torch.equal(reader.read(texts).offsets_B1, alone.offsets_B1)


def test_ngram_keys_stay_within_a_text_and_heed_the_order() -> None:
    words = words_of(["a b", "b a", "a b", "", "c"])
    keys, offsets = ngram_keys(words.pieces.keys, words.offsets_B1, 2)
    assert offsets.tolist() == [0, 3, 6, 9, 9, 10]
    one, other, again = (keys[a:b].tolist() for a, b in ((0, 3), (3, 6), (6, 9)))
    assert one == again
    assert one[0] == other[2]  # the word a
    assert one[1] != other[1]  # "a b" and "b a"


def brute(texts: list[str], words: list[str]) -> list[list[int]]:
    place = {word: row for row, word in enumerate(words, 1)}
    return [[place[word] for word in text.lower().split() if word in place] for text in texts]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["ab", "Cd", "e", "longerword", "zz"]), max_size=6), min_size=1, max_size=5))
def test_a_known_reader_finds_what_a_dict_finds(lists: list[list[str]]) -> None:
    texts, known = [" ".join(words) for words in lists], ["ab", "cd", "longerword"]
    bags = KnownReader(known).read(texts)
    bounds = bags.offsets_B1.tolist()
    assert [bags.ids_N[a:b].tolist() for a, b in pairwise(bounds)] == brute(texts, known)


def test_many_texts_in_threads_give_the_same_bags_as_few_at_a_time() -> None:
    texts = [f"word{n % 97} and word{n % 89} again" for n in range(9000)]
    reader, bags = HashedReader.learn(texts, 2, 16)
    parts = Bags.joined([reader.read(texts[:4000]), reader.read(texts[4000:])])
    assert torch.equal(bags.ids_N, parts.ids_N)
    assert torch.equal(bags.offsets_B1, parts.offsets_B1)
    some = torch.tensor([8999, 0, 5])
    assert torch.equal(bags.take(some).ids_N, reader.read([texts[n] for n in some]).ids_N)


def test_words_not_seen_in_training_have_the_row_of_nothing() -> None:
    reader, _ = HashedReader.learn(["alpha beta"], 1, 20)
    assert reader.read(["gamma alpha"]).ids_N.tolist()[0] == 0
    assert reader.rows == 3


def test_ngrams_of_a_known_reader_share_buckets_in_front_of_the_words() -> None:
    reader = KnownReader(["a", "b"], ngrams=2, buckets=10)
    ids = reader.read(["a b a"]).ids_N.tolist()
    assert [ids[0], ids[2], ids[4]] == [11, 12, 11]
    assert all(1 <= ids[n] <= 10 for n in (1, 3))


@pytest.mark.data("sentence-polarity")
def test_sentence_polarity_is_a_named_source() -> None:
    assert read_labelled("sentence-polarity").counts() == {"negative": 5331, "positive": 5331}
