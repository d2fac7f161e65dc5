"""Tagged sentences: columns and CoNLL-U, and one line for what is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.datasets.tagged import MAX_WORDS, TaggedConfig, read_sentences, read_tagged
from octavo.errors import UserError

CONLLU = """# text = Da casa.
1-2\tDa\t_\t_\t_\t_\t_\t_\t_\t_
1\tDe\tde\tADP\tIN\t_\t_\t_\t_\t_
2\ta\to\tDET\tDT\t_\t_\t_\t_\t_
3\tcasa\tcasa\tNOUN\tNN\t_\t_\t_\t_\t_
3.1\t_\t_\tVERB\t_\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t_\t_\t_\t_
"""


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_columns_are_words_and_tags_and_blank_lines_end_sentences(tmp_path: Path) -> None:
    found = read_tagged([write(tmp_path, "a.tsv", "-DOCSTART-\tX\n\na\tDET\ncat\tNOUN\n\n\nit\tPRON")])
    assert found.sentences == [("a", "cat"), ("it",)]
    assert [[found.names[c] for c in tags] for tags in found.tags] == [["DET", "NOUN"], ["PRON"]]
    assert (len(found), found.words) == (2, 3)


def test_of_more_columns_the_first_and_the_last_are_taken_or_those_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "EU NNP B-ORG\nsays VBZ O\n")
    assert read_tagged([path]).names == ["B-ORG", "O"]
    assert read_tagged([path], TaggedConfig(tag_column=2)).names == ["NNP", "VBZ"]


def test_conllu_has_universal_tags_and_neither_contractions_nor_words_left_unsaid(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", CONLLU)
    found = read_tagged([path])
    assert found.sentences == [("De", "a", "casa", ".")]
    assert [found.names[c] for c in found.tags[0]] == ["ADP", "DET", "NOUN", "PUNCT"]
    assert read_tagged([path], TaggedConfig(tag_column=5)).names == [".", "DT", "IN", "NN"]
    assert read_tagged([write(tmp_path, "a.txt", CONLLU)], TaggedConfig(format="conllu")).sha256 == found.sha256
    assert read_sentences(path) == found.sentences


def test_sentences_without_tags_are_lines_of_words_or_columns(tmp_path: Path) -> None:
    assert read_sentences(write(tmp_path, "a.txt", "a cat sat\n\nit ran\n")) == [("a", "cat", "sat"), ("it", "ran")]
    assert read_sentences(write(tmp_path, "a.tsv", "a\tDET\ncat\n\nit\t\n")) == [("a", "cat"), ("it",)]


@pytest.mark.parametrize(("text", "message"), [
    ("a\tDET\ncat\n", r"line 2 of .* must have 2 columns: it has 1, 'cat'"),
    ("a\tDET\n\tNOUN\n", r"line 2 of .* must have a word and a tag"),
    ("a\tDET\ncat\t\n", r"line 2 of .* must have a word and a tag"),
    ("\n\n", "there are no sentences in"),
    ("a\tX\nb\tX\n", "at least two tags: every word has 'X'"),
    ("a\tX\nb\tY\n" * MAX_WORDS, "a sentence has at most 4,096 words"),
])  # fmt: skip
def test_what_is_no_tagged_text_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_tagged([write(tmp_path, "a.tsv", text)])


def test_other_tags_than_the_models_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tags must be among those learnt, X, Y: got Z"):
        read_tagged([write(tmp_path, "a.tsv", "a\tX\nb\tZ\n")], names=["X", "Y"])


def test_a_column_that_is_not_there_and_a_source_without_tags_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must have 7 columns: it has 2"):
        read_tagged([write(tmp_path, "a.tsv", "a\tX\n")], TaggedConfig(tag_column=7))
    with pytest.raises(UserError, match="shakespeare has no tags; name porttinari"):
        read_tagged(["shakespeare"])
    with pytest.raises(UserError, match="there is no file nowhere"):
        read_tagged(["nowhere"])


def test_the_last_tenth_is_held_out(tmp_path: Path) -> None:
    whole = read_tagged([write(tmp_path, "a.tsv", "".join(f"w{n}\t{'XY'[n % 2]}\n\n" for n in range(25)))])
    learn, test = whole.last_tenth()
    assert (len(learn), test.sentences) == (23, [("w23",), ("w24",)])
    with pytest.raises(UserError, match="there must be at least 10 sentences: there are 5"):
        whole.part(0, 5).last_tenth()


@pytest.mark.data("porttinari")
def test_porttinari_is_a_treebank_of_sixteen_parts_of_speech() -> None:
    found = read_tagged(["porttinari"])
    assert (len(found), found.words, len(found.names)) == (8420, 168400, 16)
