"""Each step does what its name says, line by line, and a corpus that used one says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import UserError
from octavo.text import PREPROCESS, open_corpus
from octavo.text.preprocess import apply

lines = st.lists(
    st.one_of(st.text(max_size=20).map(lambda t: t.encode("utf-8", "surrogatepass")), st.binary(max_size=9))
)


@pytest.mark.parametrize("name", PREPROCESS)
@settings(deadline=None)
@given(first=lines, second=lines)
def test_a_text_may_be_cut_after_any_line(name: str, first: list[bytes], second: list[bytes]) -> None:
    head, tail = b"\n".join([*first, b""]), b"\n".join(second)
    assert apply([name], head + tail) == apply([name], head) + apply([name], tail)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("lower", "The ÉCOLE, ΟΔΟΣ\nI", "the école, οδος\ni"),
        ("digits", "In 1984, ٣ of 10²", "In 0000, 0 of 00²"),
        ("ptb", 'Say "I can\'t (yet) pay $1,000."', "Say `` I ca n't -LRB- yet -RRB- pay $ 1,000 . ''"),
        ("ptb", "It's the dogs' bone... We cannot; don’t.", "It 's the dogs ' bone ... We can not ; do n't ."),
        ("ptb", "Mr. Smith paid 3.50 [sic] at U.S. rates.", "Mr. Smith paid 3.50 -LSB- sic -RSB- at U.S. rates ."),
        ("sentences", "It ran. Why? “No!” He left (at 3.5). Then", "It ran.\nWhy?\n“No!”\nHe left (at 3.5).\nThen"),
        (
            "sentences",
            "Dr. A. Poe met Mrs. Bell. They, e.g. Al, ran.",
            "Dr. A. Poe met Mrs. Bell.\nThey, e.g. Al, ran.",
        ),
    ],
)
def test_steps_by_hand(name: str, before: str, after: str) -> None:
    assert apply([name], before.encode() + b"\n").decode() == after + "\n"


def test_steps_follow_each_other_in_the_order_given() -> None:
    text = b"He ran. She hid. 42 came.\n"
    assert apply(["sentences", "lower", "digits"], text) == b"he ran.\nshe hid.\n00 came.\n"
    assert apply(["lower", "sentences"], text) == b"he ran. she hid.\n42 came.\n"
    assert apply([], text) == text


def test_bytes_that_are_not_utf8_pass_through() -> None:
    assert apply(["lower", "digits"], b"A\xff\xc3B7") == b"a\xff\xc3b0"


def test_an_unknown_step_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'upper'.*lower, digits, ptb, sentences"):
        apply(["upper"], b"x")


def test_a_corpus_with_steps_is_changed_recorded_and_not_comparable(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"The YEAR 1984.\n" * 20)
    corpus = open_corpus(path, preprocess=["lower", "digits"])
    assert corpus.train.read() + corpus.valid.read() == b"the year 0000.\n" * 20
    assert corpus.describe()["preprocess"] == ["lower", "digits"]
    assert not corpus.comparable
    assert open_corpus(path).comparable


def test_steps_keep_documents_apart(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"No NEWLINE at the end")
    corpus = open_corpus(tmp_path, preprocess=["lower"])
    assert [corpus.train.read(), corpus.valid.read()] == [b"no newline at the end"] * 2
