"""Laws of every registered tokenizer: lossless where it says so, the same tokens in chunks, saved equals loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config import from_json
from octavo.errors import UserError
from octavo.text import TOKENIZERS, Bpe, Chunk, Tokenizer, Word, WordSettings, load_tokenizer, save_tokenizer
from octavo.text.text_parts import MARGIN_BYTES
from tokenizer_samples import ODD, SAMPLE, chunks_of, pretrained_parts

SMALL = {"bpe": {"vocab_size": 300}, "wordpiece": {"vocab_size": 120}}
LEARNT: dict[str, Tokenizer] = {
    name: kind.learn(chunks_of(SAMPLE), from_json(kind.Settings, SMALL.get(name, {})))
    for name, kind in TOKENIZERS.items()
}
ALL: dict[str, Tokenizer] = LEARNT | {
    "word by space": Word.learn(chunks_of(SAMPLE), WordSettings(split="space")),
    "pretrained": Bpe(pretrained_parts(), begin=0, size=340),
}
LOSSLESS = {name: tokenizer for name, tokenizer in ALL.items() if tokenizer.lossless}
every_tokenizer = pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL.keys())
lossless_ones = pytest.mark.parametrize("tokenizer", LOSSLESS.values(), ids=LOSSLESS.keys())
every_kind = pytest.mark.parametrize("name", TOKENIZERS)
unhurried = settings(deadline=None)  # the first call of a library may take long
# Bytes that meet every rule: words of the sample, odd bytes, halves of characters and white space.
some_bytes = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from([*ODD, *SAMPLE.split(), b" ", b"\n", b"\xe2", b"\x80", b"\x94"]), max_size=12).map(
        b"".join
    ),
)


LOCAL = {name: tokenizer for name, tokenizer in ALL.items() if tokenizer.splits_locally}


@pytest.mark.parametrize("tokenizer", LOCAL.values(), ids=LOCAL.keys())
@unhurried
@given(data=some_bytes, low=st.integers(0, 40), size=st.integers(5, 30))
def test_a_text_is_cut_where_a_window_of_it_allows(tokenizer: Tokenizer, data: bytes, low: int, size: int) -> None:
    """As `text_parts` cuts it: a window may begin inside a character, whose bytes are not judged."""
    found = tokenizer.split_point(data[low : low + size])
    if not low or found > MARGIN_BYTES:
        parts = [tokenizer.encode(part).tolist() for part in (data[: low + found], data[low + found :])]
        assert parts[0] + parts[1] == tokenizer.encode(data).tolist()


def test_all_but_two_are_lossless() -> None:
    assert set(TOKENIZERS) - set(LOSSLESS) == {"closed", "wordpiece"}


@lossless_ones
@unhurried
@given(data=some_bytes)
def test_decoding_gives_any_bytes_back(tokenizer: Tokenizer, data: bytes) -> None:
    tokens = tokenizer.encode(data)
    assert tokenizer.decode(tokens) == data
    assert b"".join(tokenizer.token_bytes(int(token)) for token in tokens) == data


@lossless_ones
@pytest.mark.parametrize("data", [*ODD, SAMPLE])
def test_decoding_gives_odd_bytes_back(tokenizer: Tokenizer, data: bytes) -> None:
    assert tokenizer.decode(tokenizer.encode(data)) == data


@every_tokenizer
@unhurried
@given(data=some_bytes)
def test_any_bytes_have_tokens_of_the_vocabulary(tokenizer: Tokenizer, data: bytes) -> None:
    tokens = tokenizer.encode(data)
    assert tokens.dtype == np.int32
    assert all(0 <= token < tokenizer.vocab and token != tokenizer.begin for token in tokens.tolist())


@every_tokenizer
def test_begin_stands_for_no_bytes_and_for_none_of_a_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.begin) == b""
    assert tokenizer.begin not in tokenizer.encode(SAMPLE + bytes(range(256)) + b"<|endoftext|> <s> [CLS]")
    the = tokenizer.encode(b"the").tolist()
    assert tokenizer.decode([tokenizer.begin, *the, tokenizer.begin]) == tokenizer.decode(the)


@every_tokenizer
def test_a_line_feed_is_the_newline_token_where_there_is_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(b"\n").tolist() == ([] if tokenizer.newline is None else [tokenizer.newline])


@every_tokenizer
def test_a_token_outside_the_vocabulary_is_refused(tokenizer: Tokenizer) -> None:
    for token in (-1, tokenizer.vocab):
        with pytest.raises(UserError, match=f"got {token}"):
            tokenizer.decode([0, token])
        with pytest.raises(UserError, match=f"got {token}"):
            tokenizer.token_bytes(token)


@every_tokenizer
@unhurried
@given(data=some_bytes, more=some_bytes)
def test_a_split_point_changes_no_token_whatever_follows(tokenizer: Tokenizer, data: bytes, more: bytes) -> None:
    place = tokenizer.split_point(data)
    assert 0 <= place <= len(data)
    apart = np.concatenate([tokenizer.encode(data[:place]), tokenizer.encode(data[place:] + more)])
    assert apart.tolist() == tokenizer.encode(data + more).tolist()


@every_tokenizer
def test_a_text_has_split_points(tokenizer: Tokenizer) -> None:
    assert tokenizer.split_point(SAMPLE) > len(SAMPLE) - 40


def in_chunks(documents: list[bytes], size: int) -> list[Chunk]:
    """The documents end to end, in chunks of `size` bytes."""
    text = b"".join(documents)
    starts = np.cumsum([0, *map(len, documents)])[:-1]
    bounds = [(i, min(i + size, len(text))) for i in range(0, len(text), size)]
    chunks = [Chunk(text[a:b], starts[(starts >= a) & (starts < b)] - a) for a, b in bounds]
    return [*chunks, Chunk(b"", starts[starts >= len(text)] * 0)]


@every_tokenizer
@unhurried
@given(documents=st.lists(some_bytes, min_size=1, max_size=4), size=st.integers(1, 30))
def test_documents_in_chunks_of_any_size_give_the_tokens_of_each_alone(
    tokenizer: Tokenizer, documents: list[bytes], size: int
) -> None:
    found = list(tokenizer.encode_chunks(in_chunks(documents, size)))
    expected = [token for one in documents for token in (tokenizer.begin, *tokenizer.encode(one).tolist())]
    assert np.concatenate([np.zeros(0, np.int32), *found]).tolist() == expected


@every_tokenizer
@unhurried
@given(data=some_bytes)
def test_documents_end_to_end_equal_those_encoded_one_by_one(tokenizer: Tokenizer, data: bytes) -> None:
    starts = np.unique(np.array([0, len(data) // 3, len(data) // 2]))
    one_by_one = Tokenizer.encode_documents(tokenizer, data, starts)
    assert tokenizer.encode_documents(data, starts).tolist() == one_by_one.tolist()


@every_tokenizer
def test_a_saved_tokenizer_loads_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    for again in (load_tokenizer(tmp_path / "tokenizer.json"), load_tokenizer(tokenizer.to_json())):
        assert again.to_json() == tokenizer.to_json()
        assert (again.name, again.vocab, again.newline) == (tokenizer.name, tokenizer.vocab, tokenizer.newline)
        assert (again.begin, again.lossless, again.words) == (tokenizer.begin, tokenizer.lossless, tokenizer.words)
        for data in (SAMPLE, *ODD):
            assert again.encode(data).tolist() == tokenizer.encode(data).tolist()


def learn(name: str, chunks: Iterable[Chunk], **options: Any) -> Tokenizer:
    kind = TOKENIZERS[name]
    return kind.learn(chunks, from_json(kind.Settings, SMALL.get(name, {}) | options))


@every_kind
def test_learning_is_deterministic_and_does_not_depend_on_the_chunks(name: str) -> None:
    documents = [SAMPLE[:200], SAMPLE[200:350], SAMPLE[350:]]
    first = learn(name, chunks_of(*documents)).to_json()
    assert learn(name, chunks_of(*documents)).to_json() == first
    assert learn(name, in_chunks(documents, 7)).to_json() == first


@every_kind
def test_learning_and_encoding_at_once_equals_one_after_the_other(name: str) -> None:
    kind, chunks = TOKENIZERS[name], chunks_of(SAMPLE[:300], SAMPLE[300:])
    options = from_json(kind.Settings, SMALL.get(name, {}))
    tokenizer, tokens = kind.learn_and_encode(lambda: chunks, options)
    assert tokenizer.to_json() == kind.learn(chunks, options).to_json()
    expected = np.concatenate(list(tokenizer.encode_chunks(chunks)))
    assert np.concatenate(list(tokens)).tolist() == expected.tolist()


@every_kind
def test_nothing_can_be_learnt_from_too(name: str) -> None:
    tokenizer = learn(name, [])
    assert tokenizer.encode(b"").tolist() == []
    assert tokenizer.decode(tokenizer.encode(b"ab")) == b"ab" or not tokenizer.lossless


@every_kind
def test_a_tokenizer_has_its_name_and_settings_that_explain_themselves(name: str) -> None:
    kind = TOKENIZERS[name]
    assert kind.name == name
    assert kind.unit
    assert dataclasses.is_dataclass(kind.Settings)
    assert kind.learn.__doc__ or kind.Settings.__doc__


@every_tokenizer
def test_unknown_words_are_counted_among_the_words(tokenizer: Tokenizer) -> None:
    unknown, words = tokenizer.count_unknown(SAMPLE + b" zqx zqx\n")
    assert 0 <= unknown <= words
    assert (unknown >= 2) == (words > 0)
