"""Each tokenizer's own rules: which characters, words and pairs become tokens, and which files are refused."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import UserError
from octavo.text import (
    Bpe,
    BpeSettings,
    Byte,
    Char,
    CharSettings,
    Chunk,
    Tokenizer,
    Word,
    WordPieceSettings,
    WordSettings,
    load_tokenizer,
)
from octavo.text.chunks import no_starts, rechunk, thread_map
from octavo.text.tokenizers import word_splitting
from octavo.text.tokenizers.bpe import BATCH_CHARACTERS
from octavo.text.tokenizers.word_splitting import MAX_WORD_BYTES, find_words, spans_of, word_boundary
from octavo.text.tokenizers.word_table import WordTable
from tokenizer_samples import ODD, SAMPLE, chunks_of, pretrained_parts

ALL: dict[str, Tokenizer] = {
    "bpe": Bpe.learn(chunks_of(SAMPLE), BpeSettings(300)),
    "word": Word.learn(chunks_of(SAMPLE)),
    "pretrained": Bpe(pretrained_parts(), begin=0, size=340),
}
unhurried = settings(deadline=None)  # the first call of a library may take long
# Bytes that meet every rule: pieces of the sample, odd bytes, halves of characters and blanks.
some_bytes = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from([*ODD, *SAMPLE.split(), b" ", b"\n", b"\xe2", b"\x80", b"\x94"]), max_size=12).map(
        b"".join
    ),
)


def test_words_of_arbitrary_bytes_survive_json() -> None:
    word = Word.learn(chunks_of(b"\xff\xfea \xc3( \xed\xa0\x80 x\n" * 3))
    again = load_tokenizer(json.loads(json.dumps(word.to_json())))
    assert [again.token_bytes(i) for i in range(again.vocab)] == [word.token_bytes(i) for i in range(word.vocab)]
    assert b"\xff\xfea" in [word.token_bytes(i) for i in range(256, word.vocab)]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '"word"', '{"octavo_tokenizer": "words"}', '{"octavo_tokenizer": 3}',
        '{"octavo_tokenizer": "word", "split": "words", "words": ["ab", "ab"]}',
        '{"octavo_tokenizer": "word", "split": "words", "words": ["a"]}',
        '{"octavo_tokenizer": "word", "split": "words", "words": [1]}',
        '{"octavo_tokenizer": "word", "split": "letters", "words": []}',
        '{"octavo_tokenizer": "word", "words": []}', '{"octavo_tokenizer": "char", "characters": "ba"}',
        '{"octavo_tokenizer": "char", "characters": "\\ud800"}', '{"octavo_tokenizer": "char"}',
        json.dumps({"octavo_tokenizer": "bpe", "tokenizer": pretrained_parts(), "begin": True}),
        json.dumps({"octavo_tokenizer": "bpe", "tokenizer": pretrained_parts(), "size": "400"}),
        '{"octavo_tokenizer": "bpe"}', '{"octavo_tokenizer": "bpe", "tokenizer": {"model": 1}}', '{"model": {}}',
        json.dumps(ALL["word"].to_json())[:-30],
    ],
)  # fmt: skip
def test_a_foreign_or_truncated_tokenizer_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(UserError):
        load_tokenizer(path)


def test_a_missing_tokenizer_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.json"):
        load_tokenizer(tmp_path / "gone.json")


# Characters


def test_characters_are_the_training_texts_in_order_of_code_points() -> None:
    char = Char.learn(chunks_of("bäca€\n".encode()))
    assert char.characters == "\nabcä€"
    assert char.encode("ä€a".encode()).tolist() == [256 + 4, 256 + 5, 256 + 1]


def test_unknown_characters_and_invalid_bytes_are_spelt_in_bytes() -> None:
    char = Char.learn(chunks_of(b"abc"))
    assert char.encode("aäb".encode() + b"\xff").tolist() == [256, 0xC3, 0xA4, 257, 0xFF]


def test_rare_characters_can_be_left_out() -> None:
    assert Char.learn(chunks_of(b"aab"), CharSettings(min_count=2)).characters == "a"


# Words


def plain_pieces(text: str, split: str) -> list[str]:
    """WordSpans by a loop over characters: the plain reference implementation of find_words for valid UTF-8."""
    joiners = "\u00ad\u200c\u200d"

    def kind(c: str) -> str:
        if c.isspace():
            return "blank"
        if split == "space" or unicodedata.category(c)[0] in "LMN" or c == "_" or c in joiners or ord(c) >= 0x20000:
            return "word"
        return "symbol"

    pieces: list[str] = []
    for c in text:
        last = pieces[-1] if pieces else ""
        after_space = last == " " and kind(c) != "blank"
        in_word = last != "" and kind(last[-1]) == "word" and kind(c) == "word"
        if after_space or in_word:
            pieces[-1] += c
        else:
            pieces.append(c)
    return pieces


def fast_pieces(data: bytes, split: str) -> list[bytes]:
    found = find_words(data, split, no_starts())  # type: ignore[arg-type]
    pairs = zip(found.starts.tolist(), found.lengths.tolist(), strict=True)
    return [data[start : start + length] for start, length in pairs]


unicode_text = st.lists(
    st.one_of(
        st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n\t.,_aé\u0301—“”\u00a0\u3000日。🙂\u200d𠀀")
    )
).map("".join)


@pytest.mark.parametrize("split", ["words", "space"])
@unhurried
@given(text=unicode_text)
def test_pieces_equal_their_plain_reference(split: str, text: str) -> None:
    assert fast_pieces(text.encode(), split) == [piece.encode() for piece in plain_pieces(text, split)]


def test_pieces_by_hand() -> None:
    text = "Don't  stop—“é\u0301t” 2x_y,\n\n ok \tz \u00a0b\n"
    expected = ["Don", "'", "t", " ", " stop", "—", "“", "é\u0301t", "”", " 2x_y", ",", "\n", "\n", " ok", " ", "\t",
                "z", " ", "\u00a0", "b", "\n"]  # fmt: skip
    assert fast_pieces(text.encode(), "words") == [piece.encode() for piece in expected]
    assert fast_pieces("don't  “stop”\n x".encode(), "space") == [
        piece.encode() for piece in ("don't", " ", " “stop”", "\n", " x")
    ]


def test_bytes_that_are_not_utf8_are_word_characters() -> None:
    assert fast_pieces(b"a\xff\x80b.\xe2\x80 \xed\xa0\x80", "words") == [
        b"a\xff\x80b",
        b".",
        b"\xe2\x80",
        b" \xed\xa0\x80",
    ]
    assert fast_pieces(b"x\xe0\x80\xa0y \xf0\x80\x80\xa0", "words") == [b"x\xe0\x80\xa0y", b" \xf0\x80\x80\xa0"]


@unhurried
@given(data=some_bytes, more=some_bytes)
def test_word_cuts_are_the_longest_that_are_safe_for_every_continuation(data: bytes, more: bytes) -> None:
    cut = word_boundary(data, "words")
    for longer in range(cut + 1, len(data) + 1):
        # A letter or the rest of a character joins what a longer cut would have ended.
        joined = [data + tail for tail in (b"a", b"\x80a", b"\x80\x80", b"\x80\x80\x80")]
        whole = [fast_pieces(one, "words") for one in joined]
        apart = [fast_pieces(data[:longer], "words") + fast_pieces(one[longer:], "words") for one in joined]
        assert whole != apart


def test_cuts_are_found_behind_long_words() -> None:
    assert word_boundary(b"head " + b"a" * 100_000, "words") == 4
    assert word_boundary(b"a" * 100_000, "words") == 0
    assert word_boundary(b"\n" + "é".encode() * 50_000, "words") == 1


def test_words_are_ranked_by_count_and_equals_by_spelling() -> None:
    word = Word.learn(chunks_of(b"bb aa cc\naa bb zz\naa bb yy zz\n"), WordSettings(min_count=2))
    assert [word.token_bytes(i) for i in range(256, word.begin)] == [b" bb", b" zz", b"aa"]
    assert word.vocab == 256 + 3 + 1


def test_size_keeps_the_most_frequent_words() -> None:
    text = b" bb aa aa cc cc dd\n" * 2
    assert [Word.learn(chunks_of(text), WordSettings(vocab_size=n)).token_bytes(256) for n in (1, 2)] == [
        b" aa",
        b" aa",
    ]
    word = Word.learn(chunks_of(text), WordSettings(vocab_size=3))
    assert [word.token_bytes(i) for i in range(256, word.begin)] == [b" aa", b" cc", b" bb"]


def test_rare_words_are_spelt_in_bytes_and_counted_as_unknown() -> None:
    word = Word.learn(chunks_of(b"in the sea in the\nin the sky\n"))
    assert word.encode(b"in the sea\n").tolist() == [
        *word.encode(b"in"), *word.encode(b" the"), *b" sea", ord("\n"),
    ]  # fmt: skip
    assert len(word.encode(b" the")) == 1
    assert word.count_unknown(b"in the sea\n") == (1, 4)
    assert word.count_unknown(b"") == (0, 0)


def test_pieces_of_one_byte_are_byte_tokens() -> None:
    word = Word.learn(chunks_of(b"a,\n" * 9))
    assert word.vocab == 257
    assert word.count_unknown(b"a,\n") == (0, 3)


@unhurried
@given(documents=st.lists(some_bytes, min_size=1, max_size=5), min_count=st.integers(1, 3))
def test_one_pass_gives_the_vocabulary_and_tokens_of_two(documents: list[bytes], min_count: int) -> None:
    word, tokens = Word.learn_and_encode(lambda: chunks_of(*documents), WordSettings(min_count=min_count))
    counts = Counter(piece for document in documents for piece in fast_pieces(document, "words"))
    known = [piece for piece, n in counts.items() if n >= min_count and 2 <= len(piece) <= MAX_WORD_BYTES]
    ranked = sorted(known, key=lambda piece: (-counts[piece], piece))
    assert [word.token_bytes(i) for i in range(256, word.begin)] == ranked
    two = [token for one in documents for token in (word.begin, *word.encode(one).tolist())]
    assert np.concatenate(list(tokens)).tolist() == two


def test_a_vocabulary_of_thousands_of_words_is_found_again_after_the_table_has_grown() -> None:
    words = [f"w{i:x}" * (1 + i % 5) for i in range(60_000)]
    text = " ".join(words).encode()
    word = Word.learn([Chunk(text[:100_000], np.zeros(1, np.int64)), Chunk(text[100_000:])], WordSettings(min_count=1))
    assert word.vocab == 256 + len({piece for piece in fast_pieces(text, "words") if len(piece) <= MAX_WORD_BYTES}) + 1
    tokens = word.encode(text)
    assert word.count_unknown(text) == (0, len(words))
    assert len(tokens) == len(words)
    assert word.decode(tokens) == text


def test_words_with_the_same_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    # A hash of three values makes nearly all long words clash; the result must not change.
    spellings = [f" longword{i}".encode() for i in range(50)]
    text = b"".join(spellings) * 2 + b" longwordless" + b" longword7" + b" short" * 2
    expected = Word.learn(chunks_of(text))
    tokens_expected = expected.encode(text).tolist()
    monkeypatch.setattr(word_splitting, "_stir", lambda mixed: (mixed % np.uint64(3)) << np.uint64(8))
    assert len(set(spans_of(spellings).keys.tolist())) <= 3
    word, tokens = Word.learn_and_encode(lambda: chunks_of(text[:300], text[300:]))
    assert word.to_json() == Word.learn(chunks_of(text[:300], text[300:])).to_json()
    whole = Word.learn(chunks_of(text))
    assert whole.to_json() == expected.to_json()
    assert whole.encode(text).tolist() == tokens_expected
    assert word.decode(np.concatenate(list(tokens))) == text
    assert whole.count_unknown(b" longwordless longword7") == (1, 2)


def test_a_word_table_numbers_words_in_the_order_of_their_coming() -> None:
    table = WordTable()
    assert table.add(spans_of([b"bb", b"a much longer piece", b"bb", b"a\0"])).tolist() == [0, 1, 0, 2]
    assert table.find(spans_of([b"a", b"a\0", b"a much longer pieces", b"a much longer piece"])).tolist() == [
        -1,
        2,
        -1,
        1,
    ]


def test_words_longer_than_the_longest_key_are_spelt() -> None:
    giant = b"x" * (MAX_WORD_BYTES + 1)
    word = Word.learn(chunks_of((giant + b"\n" + giant[1:] + b"\n") * 3))
    assert word.vocab == 256 + 1 + 1
    assert word.encode(giant).tolist() == list(giant)
    assert len(word.encode(giant[1:])) == 1


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (WordSettings, {"min_count": 0}), (WordSettings, {"vocab_size": 0}), (WordSettings, {"split": "x"}),
        (CharSettings, {"min_count": 0}), (BpeSettings, {"vocab_size": 255}), (WordPieceSettings, {"vocab_size": 99}),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(kind: type[Any], options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        kind(**options)


# Byte pairs


def test_pairs_are_learnt_and_every_byte_has_a_token() -> None:
    bpe = ALL["bpe"]
    assert bpe.vocab == 301
    assert {bytes([b]) for b in range(256)} <= {bpe.token_bytes(i) for i in range(bpe.vocab)}
    assert len(bpe.encode(b" the cat")) < 6


def test_the_same_text_gives_the_same_pairs() -> None:
    again = Bpe.learn(chunks_of(SAMPLE), BpeSettings(300))
    assert again.to_json() == ALL["bpe"].to_json()


def test_pairs_match_the_library_on_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(ALL["bpe"].to_json()["tokenizer"]))
    text = SAMPLE.decode() * (2 * BATCH_CHARACTERS // len(SAMPLE.decode()) + 2)
    assert len(text) > 2 * BATCH_CHARACTERS
    theirs = tokenizers.Tokenizer.from_file(str(path)).encode(text).ids
    assert load_tokenizer(path).encode(text.encode()).tolist() == theirs


def hugging_face(model: tokenizers.models.Model, **parts: object) -> Bpe:
    made = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(made, name, part)
    return Bpe(json.loads(made.to_str()))


def test_a_sentencepiece_vocabulary_reads_its_spaces_and_bytes_but_is_not_called_lossless() -> None:
    vocab = {"<unk>": 0} | {f"<0x{b:02X}>": b + 1 for b in range(256)} | {"▁": 257, "a": 258, "▁a": 259}
    model = tokenizers.models.BPE(vocab, [("▁", "a")], unk_token="<unk>", byte_fallback=True)
    bpe = hugging_face(model, pre_tokenizer=tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always"))
    assert [bpe.token_bytes(i) for i in (1, 11, 257, 259)] == [b"\0", b"\n", b" ", b" a"]
    assert not bpe.lossless
    assert bpe.decode(bpe.encode("a aé\xff".encode())) == " a aé\xff".encode()
    assert bpe.split_point(b"a a a") == 0


def test_a_vocabulary_with_unknown_tokens_is_not_called_lossless() -> None:
    model = tokenizers.models.WordPiece({"[UNK]": 0, "the": 1, "##se": 2}, unk_token="[UNK]")
    bpe = hugging_face(model, pre_tokenizer=tokenizers.pre_tokenizers.Whitespace())
    assert not bpe.lossless
    assert bpe.encode(b"these \xff").tolist()[:2] == [1, 2]
    assert bpe.token_bytes(2) == b"se"


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFKC"}},
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
    ],
)
def test_byte_level_pairs_with_a_part_that_changes_text_are_not_called_lossless(change: dict[str, object]) -> None:
    assert not Bpe({**ALL["bpe"].to_json()["tokenizer"], **change}).lossless


def test_special_tokens_in_a_text_are_spelt_as_they_stand() -> None:
    special = {"id": 300, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}  # fmt: skip
    bpe = Bpe({**ALL["bpe"].to_json()["tokenizer"], "added_tokens": [special]})
    assert bpe.lossless
    assert bpe.vocab == 302
    assert 300 in bpe.encode(b"the <|end|> cat")
    assert bpe.decode(bpe.encode(b"the <|end|> cat")) == b"the <|end|> cat"


def test_a_pretrained_tokenizer_gets_no_further_id_and_is_padded_to_the_models_vocabulary() -> None:
    parts = pretrained_parts()
    exact, padded = Bpe(parts, begin=1), Bpe(parts, begin=0, size=340)
    assert (exact.vocab, exact.begin) == (330, 1)
    assert (padded.vocab, padded.begin) == (340, 0)
    assert [padded.token_bytes(i) for i in (0, 1, 330, 339)] == [b"", b"<|im_start|>", b"", b""]
    assert padded.decode([0, 1, 339]) == b"<|im_start|>"
    assert (Bpe(parts).vocab, Bpe(parts, size=340).begin) == (331, 339)


def test_pretrained_pieces_match_the_library_on_plain_text() -> None:
    theirs = tokenizers.Tokenizer.from_str(json.dumps(pretrained_parts()))
    text = SAMPLE.decode() * (2 * BATCH_CHARACTERS // len(SAMPLE.decode()) + 2)  # more than one job, so that it is cut
    assert ALL["pretrained"].encode(text.encode()).tolist() == theirs.encode(text).ids


def test_every_digit_of_a_pretrained_tokenizer_stands_alone() -> None:
    tokens = ALL["pretrained"].encode(b" 10,000")
    assert [ALL["pretrained"].token_bytes(int(token)) for token in tokens] == [b" ", b"1", b"0", b",", b"0", b"0", b"0"]


def test_special_tokens_typed_in_a_text_are_text_to_a_pretrained_tokenizer() -> None:
    bpe = Bpe(pretrained_parts(), begin=0)
    typed = b"<|im_start|>user<|endoftext|> <|endoftext|>\n<|im_start|>"
    assert bpe.lossless
    assert not {0, 1} & set(bpe.encode(typed).tolist())
    assert bpe.decode(bpe.encode(typed)) == typed
    starts = np.array([0, 12])
    assert bpe.decode(bpe.encode_documents(typed, starts)) == typed
    assert np.flatnonzero(bpe.encode_documents(typed, starts) == 0).tolist() == [0, len(bpe.encode(typed[:12])) + 1]


def test_a_tokenizer_that_would_read_begin_in_a_text_is_not_called_lossless() -> None:
    parts = pretrained_parts()
    whole = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    parts["model"]["ignore_merges"] = True  # whole words of the vocabulary are tokens, and here a text is one word
    bpe = Bpe({**parts, "pre_tokenizer": whole}, begin=0)
    assert bpe.encode(b"<|endoftext|>").tolist() == [0]
    assert not bpe.lossless


@pytest.mark.parametrize(
    ("begin", "size", "rule"),
    [(2, None, "begin must be the id of a special token: begin=2; special tokens are 0 <|endoftext|>, 1 <|im_start|>"),
     (-1, None, "begin must be"), (330, 340, "begin must be"), (0, 329, "size=329, ids=330"), (None, 330, "ids=331"),
     (0, 0, "size=0"), (0, 10**12, "at most 16,777,216 ids")],
)  # fmt: skip
def test_a_begin_or_size_that_the_vocabulary_does_not_have_is_refused(
    begin: int | None, size: int | None, rule: str
) -> None:
    with pytest.raises(UserError, match=re.escape(rule)):
        Bpe(pretrained_parts(), begin=begin, size=size)


def test_bytes_that_a_vocabulary_lacks_are_refused_and_never_dropped() -> None:
    bpe = Bpe(pretrained_parts(alphabet=[]), begin=0)
    assert bpe.lossless
    assert bpe.decode(bpe.encode(SAMPLE)) == SAMPLE
    assert bpe.decode(bpe.encode(b"\xe2\x80")) == b"\xe2\x80"  # half a character is spelt in bytes that there are
    with pytest.raises(UserError, match=r"no token for byte 0x04, which stands between b'the ' and b' cat'"):
        bpe.encode(b"the \x04 cat")
    with pytest.raises(UserError, match="0xff"):
        bpe.encode(b"the \xff cat")
    assert load_tokenizer(bpe.to_json()).to_json() == bpe.to_json()


def test_a_vocabulary_without_a_line_feed_has_no_newline() -> None:
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=20, show_progress=False)
    learner.train_from_iterator(["abc abc"], trainer)
    assert Bpe(json.loads(learner.to_str())).newline is None


# Blocks


def test_recut_looks_for_a_cut_again_only_when_the_text_has_doubled() -> None:
    looks: list[int] = []

    def cut(data: bytes) -> int:
        looks.append(len(data))
        return data.rfind(b"\n") + 1

    chunks = [Chunk(b"ab", np.zeros(1, np.int64)), *[Chunk(b"cd")] * 30, Chunk(b"\n "), *[Chunk(b"e ")] * 40]
    found = list(rechunk(chunks, cut))
    assert looks[:6] == [2, 4, 8, 16, 32, 64]
    assert [chunk.data for chunk in found] == [b"ab" + b"cd" * 30 + b"\n", b" " + b"e " * 40]
    assert [chunk.starts.tolist() for chunk in found] == [[0], []]


def test_threads_keep_the_order_and_hand_on_errors() -> None:
    assert list(thread_map(lambda n: n * n, range(50))) == [n * n for n in range(50)]
    with pytest.raises(ZeroDivisionError):
        list(thread_map(lambda n: 1 // (5 - n), range(50)))


def test_byte_tokens_are_the_bytes() -> None:
    assert Byte().encode(b"\0a\xff").tolist() == [0, 97, 255]
    assert (Byte().vocab, Byte().begin) == (257, 256)


def test_the_readme_pattern_of_words_is_the_default_split() -> None:
    ascii_text = "It's 3 o'clock;  we  _run_ (fast)\tnow.\n"
    assert [p.decode() for p in fast_pieces(ascii_text.encode(), "words")] == re.findall(
        r" ?\w+| ?[^\w\s]|\s", ascii_text
    )
