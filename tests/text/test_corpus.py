"""Files become documents, documents two parts, parts tokens; whatever is wrong is reported with its place."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zstandard

from octavo.errors import UserError
from octavo.io import compressed
from octavo.text import (
    Byte,
    Char,
    Corpus,
    Tokens,
    Word,
    learn_and_tokenize,
    learn_tokenizer,
    loading,
    open_corpus,
    open_text,
    reading,
    save_tokenizer,
    text_in_memory,
    tokenize,
)
from octavo.text.token_store import in_file, in_memory

TEXT = "The quick brown fox, naïve — “yes”.\n".encode() * 30
PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


@pytest.fixture(params=[7, 64, 1 << 23], ids="chunks of {} bytes".format)
def chunk_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Chunks so small that everything spans many of them."""
    for module in (loading, compressed, reading):
        monkeypatch.setattr(module, "CHUNK_BYTES", request.param)
    return int(request.param)


def whole(corpus: Corpus) -> bytes:
    return corpus.train.read() + corpus.valid.read()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# Reading


def test_a_plain_file_is_one_document_read_in_place(tmp_path: Path, chunk_size: int) -> None:
    corpus = open_corpus(str(write(tmp_path / "a.txt", TEXT)))
    assert whole(corpus) == TEXT
    assert (corpus.train.documents, corpus.valid.documents) == (1, 1)
    assert corpus.train.text.file.name == str(tmp_path / "a.txt")


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_files_read_like_plain_ones(ending: str, tmp_path: Path, chunk_size: int) -> None:
    assert whole(open_corpus(write(tmp_path / f"a.txt{ending}", PACKERS[ending](TEXT)))) == TEXT


@pytest.mark.parametrize("ending", PACKERS)
def test_archives_of_several_members_are_read_to_the_end(ending: str, tmp_path: Path) -> None:
    pack = PACKERS[ending]
    assert (
        whole(open_corpus(write(tmp_path / f"a.txt{ending}", pack(TEXT) + pack(b"more\n") * 2))) == TEXT + b"more\n" * 2
    )


@pytest.mark.parametrize("ending", PACKERS)
def test_a_truncated_or_foreign_archive_is_named(ending: str, tmp_path: Path) -> None:
    packed = PACKERS[ending](TEXT * 9)
    for data in (packed[:-5], packed[: len(packed) // 2], b"this is no archive"):
        with pytest.raises(UserError, match=rf"half\.txt\{ending}"):
            open_corpus(write(tmp_path / f"half.txt{ending}", data))


def test_a_folder_is_one_document_a_file_in_sorted_order_and_says_what_it_skips(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    write(tmp_path / ".git" / "config", b"hidden")
    write(tmp_path / "b.txt", b"second ")
    write(tmp_path / "a.md.gz", gzip.compress(b"first "))
    write(tmp_path / "sub" / "c.txt", b"third")
    write(tmp_path / "picture.png", b"\x89PNG\r\n\x1a\n\0\0")
    write(tmp_path / "old.txt", "né".encode("latin-1"))
    write(tmp_path / "zero.txt", b"")
    corpus = open_corpus(tmp_path)
    assert whole(corpus) == b"first second third"
    assert corpus.train.documents + corpus.valid.documents == 3
    notes = "\n".join(corpus.notes)
    for name in ("picture.png", "old.txt", "zero.txt", ".git"):
        assert name in notes
    assert "n\ufffd".encode() in whole(open_corpus(tmp_path, errors="replace"))


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no text in it: no files"):
        open_corpus(tmp_path)
    write(tmp_path / "x.bin", b"\0\1")
    with pytest.raises(UserError, match=r"x\.bin: not text"):
        open_corpus(tmp_path)


def test_json_lines_are_one_document_a_record(tmp_path: Path, chunk_size: int) -> None:
    records = ["first\n", "", "zweites „Dokument“", "third"]
    lines = "\n".join(json.dumps({"id": 1, "body": record}) for record in records) + "\n\n"
    for path in (
        write(tmp_path / "a.jsonl", lines.encode()),
        write(tmp_path / "a.ndjson.gz", gzip.compress(lines.encode())),
    ):
        corpus = open_corpus(path, field="body", valid=path)
        assert corpus.train.read() == "".join(records).encode()
        store = tokenize(corpus.train, Byte())
        documents = np.split(store.tokens, store.starts)[1:]
        assert [bytes(d[1:].astype(np.uint8)).decode() for d in documents] == [r for r in records if r]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"text": "ok"', "line 2 of .*not JSON"), (b'["text"]', "line 2 of .*object"),
        (b'{"title": "x"}', "line 2 of .*no field 'text': it has title"), (b'{"text": 3}', "line 2 of .*string"),
        (b'{"text": "\\ud800"}', "line 2 of .*surrogate"), (b'{"text": "\xff"}', "line 2 of .*not JSON"),
    ],
)  # fmt: skip
def test_a_bad_record_is_reported_with_its_line(line: bytes, complaint: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(UserError, match=complaint):
        open_corpus(path)


def test_parquet_is_one_document_a_record(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": ["one", None, "zwei", "three"]}), path)
    corpus = open_corpus(path)
    assert whole(corpus) == b"onezweithree"
    assert corpus.train.documents + corpus.valid.documents == 3
    with pytest.raises(UserError, match="no column 'body': it has text"):
        open_corpus(path, field="body")
    with pytest.raises(UserError, match=r"b\.parquet is not a whole parquet file"):
        open_corpus(write(tmp_path / "b.parquet", path.read_bytes()[:-9]))


def test_standard_input_is_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    assert whole(open_corpus("-")) == TEXT


def test_several_paths_are_several_documents(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, name.encode() * 5) for name in ("b", "a")]
    corpus = open_corpus(paths)
    assert (corpus.train.read(), corpus.valid.read()) == (b"bbbbb", b"aaaaa")


@pytest.mark.parametrize("place", [0, 5, 6, 7, 13, 700])
def test_bytes_that_are_not_utf8_are_refused_with_their_offset(place: int, tmp_path: Path, chunk_size: int) -> None:
    good = b"ascii and " * 100
    for name in ("a.txt", "a.txt.gz"):
        for bad in (b"\xe9", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\x80"):
            data = good[:place] + bad + b" " + good[place:]
            path = write(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)
            with pytest.raises(UserError, match=rf"byte {place} of .*{name} \(0x{bad[0]:02x}\)"):
                open_corpus(path)


def test_a_character_cut_by_the_files_end_is_refused(tmp_path: Path, chunk_size: int) -> None:
    with pytest.raises(UserError, match=r"byte 1,080 of"):
        open_corpus(write(tmp_path / "a.txt", TEXT[:1080] + b"\xe2\x80"))


def test_utf16_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it looks like utf-16; read it with encoding='utf-16'"):
        open_corpus(write(tmp_path / "a.txt", "hello".encode("utf-16")))


def test_bytes_that_are_not_utf8_can_be_replaced_or_kept(tmp_path: Path, chunk_size: int) -> None:
    path = write(tmp_path / "a.txt", b"caf\xe9 " * 20)
    replaced = open_corpus(path, errors="replace")
    assert whole(replaced) == "caf\ufffd ".encode() * 20
    assert not replaced.comparable
    raw = open_corpus(path, errors="raw")
    assert whole(raw) == path.read_bytes()
    assert raw.comparable


def test_a_byte_order_mark_and_any_line_ends_are_kept(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbfone\r\ntwo\rthree\n\0"
    assert whole(open_corpus(write(tmp_path / "a.txt", data))) == data


@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_an_empty_text_is_refused(errors: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no text in .*empty\.txt"):
        open_corpus(write(tmp_path / "empty.txt", b""), errors=errors)  # type: ignore[arg-type]


def test_a_missing_file_is_reported_with_the_sources_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no file or folder .*gone\.txt.*shakespeare"):
        open_corpus(str(tmp_path / "gone.txt"))
    with pytest.raises(UserError, match="at least one"):
        open_corpus([])


def test_a_source_that_is_no_text_is_refused() -> None:
    with pytest.raises(UserError, match="minilm is not text"):
        open_corpus("minilm")


def test_a_path_comes_before_a_source_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "shakespeare", TEXT)
    corpus = open_corpus("shakespeare")
    assert whole(corpus) == TEXT
    assert "both a path here and a named source" in corpus.notes[0]


@pytest.mark.data("shakespeare")
def test_a_named_source_is_split_where_everyone_splits_it() -> None:
    corpus = open_corpus("shakespeare")
    assert (corpus.train.size, corpus.valid.size) == (1_003_854, 111_540)


def test_an_unknown_way_with_errors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="strict, replace, raw"):
        open_corpus(write(tmp_path / "a.txt", TEXT), errors="ignore")  # type: ignore[arg-type]


def test_a_text_can_be_opened_whole_or_given_as_it_is(tmp_path: Path, chunk_size: int) -> None:
    path = write(tmp_path / "a.txt", TEXT)
    assert open_text(path).read() == TEXT
    assert open_text(path, preprocess=["lower"]).read() == TEXT.lower()
    assert text_in_memory(TEXT.decode()).read() == TEXT
    assert text_in_memory(TEXT, ["lower"]).read() == TEXT.lower()
    assert text_in_memory(b"").read() == b""


# Splitting


def test_one_text_is_split_at_nine_tenths_of_its_bytes(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path / "a.txt", b"x" * 1_115_394))
    assert (corpus.train.size, corpus.valid.size) == (1_003_854, 111_540)


@pytest.mark.parametrize("before", range(8))
def test_the_cut_moves_forward_to_the_next_character(before: int, tmp_path: Path) -> None:
    data = b"a" * before + "🙂".encode() * 20
    corpus = open_corpus(write(tmp_path / "a.txt", data))
    cut = corpus.train.size
    assert len(data) * 9 // 10 <= cut <= len(data) * 9 // 10 + 3
    assert (cut - before) % 4 == 0
    assert whole(corpus) == data


def test_several_documents_stay_whole_and_the_nearest_end_is_taken(tmp_path: Path) -> None:
    sizes = [50, 34, 12, 4]  # ends at 50, 84, 96, of 100
    lines = [json.dumps({"text": chr(97 + i) * size}) for i, size in enumerate(sizes)]
    corpus = open_corpus(write(tmp_path / "a.jsonl", "\n".join(lines).encode()))
    assert corpus.train.read() == b"a" * 50 + b"b" * 34
    assert (corpus.train.documents, corpus.valid.documents) == (2, 2)
    lines = [json.dumps({"text": "a"}), json.dumps({"text": "b" * 99})]
    assert open_corpus(write(tmp_path / "b.jsonl", "\n".join(lines).encode())).train.size == 1


def test_separate_validation_files_leave_the_training_text_whole(tmp_path: Path) -> None:
    train, valid = write(tmp_path / "train.txt", TEXT), write(tmp_path / "valid.txt", b"v")
    corpus = open_corpus(train, valid=valid)
    assert (corpus.train.read(), corpus.valid.read()) == (TEXT, b"v")


@pytest.mark.parametrize("data", [b"x", "é".encode(), "🙂".encode()])
def test_a_text_too_small_to_split_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too small to be split"):
        open_corpus(write(tmp_path / "a.txt", data))


def test_a_text_that_shrinks_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", TEXT)
    corpus = open_corpus(path)
    os.truncate(path, 100)
    with pytest.raises(UserError, match="became shorter"):
        corpus.train.read()


def test_the_record_identifies_the_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", TEXT)
    record = open_corpus(path).describe()
    cut = len(TEXT) * 9 // 10
    assert record["source"] == [str(path)]
    assert record["train"] == {"bytes": cut, "documents": 1, "sha256": hashlib.sha256(TEXT[:cut]).hexdigest()}
    assert record["valid"]["sha256"] == hashlib.sha256(TEXT[cut:]).hexdigest()
    assert json.loads(json.dumps(record)) == record


# Tokens


@pytest.mark.parametrize("name", ["byte", "char", "word", "bpe"])
def test_tokens_of_both_parts_give_the_text_back(name: str, tmp_path: Path, chunk_size: int) -> None:
    corpus = open_corpus(write(tmp_path / "a.txt", TEXT))
    tokenizer, train = learn_and_tokenize(name, corpus, out=tmp_path / "train.bin")
    valid = tokenize(corpus.valid, tokenizer)
    assert tokenizer.decode(train.tokens) + tokenizer.decode(valid.tokens) == TEXT
    assert isinstance(train.tokens, np.memmap)
    again = tokenize(corpus.train, tokenizer)
    assert again.tokens.tolist() == train.tokens.tolist()
    assert (train.starts.tolist(), again.starts.tolist()) == ([0], [0])
    assert learn_tokenizer(name, corpus).to_json() == tokenizer.to_json()


def test_tokenizers_learn_from_the_training_part_alone(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path / "a.txt", b"ab " * 30 + b"zz " * 3))
    char, word = learn_tokenizer("char", corpus), learn_tokenizer("word", corpus)
    assert isinstance(char, Char)
    assert isinstance(word, Word)
    assert char.characters == " ab"
    assert word.count_unknown(b" zz") == (1, 1)


def test_every_document_is_opened_by_begin(tmp_path: Path, chunk_size: int) -> None:
    records = [f"document {i} é" for i in range(12)]
    lines = "\n".join(json.dumps({"text": record}) for record in records)
    path = write(tmp_path / "a.jsonl", lines.encode())
    corpus = open_corpus(path, valid=path)
    for name in ("byte", "char", "word", "bpe"):
        tokenizer, store = learn_and_tokenize(name, corpus)
        documents = np.split(store.tokens, store.starts)[1:]
        assert [tokenizer.decode(d).decode() for d in documents] == records
        assert all(d[0] == tokenizer.begin and tokenizer.begin not in d[1:] for d in documents)


def test_unknown_tokenizers_and_options_are_refused(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path / "a.txt", TEXT))
    with pytest.raises(UserError, match=r"'words'; did you mean word\?"):
        learn_tokenizer("words", corpus)
    with pytest.raises(UserError, match="'syllables'; known are byte, char, word, bpe"):
        learn_tokenizer("syllables", corpus)
    with pytest.raises(UserError, match="no setting 'sise'; it has split, min_count, vocab_size"):
        learn_and_tokenize("word", corpus, sise=3)
    with pytest.raises(UserError, match="no setting 'size'; it has none"):
        learn_tokenizer("byte", corpus, size=3)


def test_a_tokenizer_file_serves_in_the_place_of_a_name(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path / "a.txt", TEXT))
    save_tokenizer(Char("ab"), tmp_path / "mine.json")
    assert learn_tokenizer(str(tmp_path / "mine.json"), corpus).to_json() == Char("ab").to_json()


# Token files


def test_small_vocabularies_take_two_bytes_a_token_and_large_ones_four(tmp_path: Path) -> None:
    for count, size in ((65_000, 2), (66_000, 4)):
        word = Word([f"w{i}".encode() for i in range(count)])
        store = in_file(tmp_path / "tokens.bin", [np.array([word.begin, 256, word.begin - 1], np.int32)], word)
        assert (tmp_path / "tokens.bin").stat().st_size == 3 * size
        assert store.tokens.tolist() == [word.begin, 256, word.begin - 1]


def test_tokens_in_a_file_are_those_in_memory(tmp_path: Path) -> None:
    chunks = [np.array([256, 1, 2], np.int32), np.array([3, 256, 4], np.int32)]
    for store in (in_memory(chunks, Byte()), in_file(tmp_path / "tokens.bin", chunks, Byte())):
        assert store.tokens.tolist() == [256, 1, 2, 3, 256, 4]
        assert store.starts.tolist() == [0, 4]


def test_a_stop_while_writing_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    in_file(path, [np.arange(9, dtype=np.int32)], Byte())

    def stopped() -> Iterator[Tokens]:
        yield np.arange(5, dtype=np.int32)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_file(path, stopped(), Byte())
    assert path.stat().st_size == 18
    assert [file.name for file in tmp_path.iterdir()] == ["tokens.bin"]


def test_an_empty_stream_makes_an_empty_token_file(tmp_path: Path) -> None:
    assert len(in_file(tmp_path / "tokens.bin", [], Byte())) == 0
