"""nanoGPT's files of tokens are read, written, and refused where they cannot be what they are taken for."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.cli import main
from octavo.errors import UserError
from octavo.text import (
    Bpe,
    BpeSettings,
    Byte,
    Char,
    Tokenizer,
    Word,
    load_tokenizer,
    open_corpus,
    open_text,
    save_tokenizer,
    tokenize,
)
from octavo.text import reading as read_module
from octavo.text import token_store as tokens_module
from octavo.text.chunks import Chunk
from octavo.text.loading import Split
from octavo.text.token_store import read_bin, write_bin

SAMPLE = "The cat sat on the mat.\nDie Größe — 日本語, 10,000 cats 🙂!\n".encode() * 40


def chunks_of(*documents: bytes) -> list[Chunk]:
    return [Chunk(document, np.zeros(1, np.int64)) for document in documents]


def learnt() -> dict[str, Tokenizer]:
    bpe = Bpe.learn(chunks_of(SAMPLE), BpeSettings(300))
    special = {"id": 300, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}  # fmt: skip
    pretrained = Bpe({**bpe.to_json()["tokenizer"], "added_tokens": [special]}, begin=300)
    char, word = Char.learn(chunks_of(SAMPLE)), Word.learn(chunks_of(SAMPLE))
    return {"byte": Byte(), "char": char, "word": word, "bpe": bpe, "pretrained": pretrained}


ALL = learnt()
every_tokenizer = pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL.keys())


def documents_of(split: Split) -> list[bytes]:
    data = split.read()
    starts = np.concatenate([np.zeros(0, np.int64), *_places(split)])
    return [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]


def _places(split: Split) -> list[np.ndarray]:
    size, found = 0, []
    for chunk in split.chunks():
        found.append(chunk.starts + size)
        size += len(chunk.data)
    return found


def beside(folder: Path, tokenizer: Tokenizer, ids: list[int] | np.ndarray, name: str = "train.bin") -> Path:
    """A file of tokens with its tokenizer."""
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    np.array(ids, "<u2").tofile(folder / name)
    return folder / name


def test_a_token_is_two_bytes_lowest_first(tmp_path: Path) -> None:
    assert write_bin(tmp_path / "x.bin", [np.array([1, 256]), np.array([2])], Byte()) == 3
    assert (tmp_path / "x.bin").read_bytes() == b"\1\0\0\1\2\0"


@every_tokenizer
def test_written_tokens_are_read_again_mapped_from_the_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode_documents(SAMPLE, np.array([0, 25, 50]))
    write_bin(tmp_path / "x.bin", [tokens[:7], tokens[7:]], tokenizer)
    store = read_bin(tmp_path / "x.bin", tokenizer)
    assert isinstance(store.tokens, np.memmap)
    assert store.tokens.tolist() == tokens.tolist()
    assert store.starts.tolist() == np.flatnonzero(tokens == tokenizer.begin).tolist()


def test_starts_are_found_in_a_file_longer_than_one_stride(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "CHUNK_IDS", 3)
    path = beside(tmp_path, Byte(), [256, *b"abcd", 256, *b"e", 256, *b"fgh", 256])
    assert read_bin(path, Byte()).starts.tolist() == [0, 5, 7, 11]
    assert documents_of(open_text(path)) == [b"abcd", b"e", b"fgh"]


@pytest.mark.parametrize("place", [0, 4, 1 << 20, (1 << 20) + 5])
def test_a_token_beyond_the_vocabulary_is_refused_with_its_place(tmp_path: Path, place: int) -> None:
    tokens = np.zeros((1 << 20) + 9, "<u2")
    tokens[place:] = 300
    tokens.tofile(tmp_path / "x.bin")
    with pytest.raises(UserError, match=f"below the tokenizer's 257: token {place:,} of .*x.bin is 300"):
        read_bin(tmp_path / "x.bin", Byte())


def test_an_odd_number_of_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"abc")
    with pytest.raises(UserError, match=r"a token of .* takes 2 bytes: the file has 3"):
        read_bin(tmp_path / "x.bin", Byte())


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        read_bin(tmp_path / "x.bin", Byte())


def test_a_vocabulary_that_two_bytes_cannot_number_is_refused(tmp_path: Path) -> None:
    parts = ALL["bpe"].to_json()["tokenizer"]
    most, more = Bpe(parts, size=1 << 16), Bpe(parts, size=(1 << 16) + 1)
    assert write_bin(tmp_path / "x.bin", [np.array([most.begin])], most) == 1
    assert (tmp_path / "x.bin").read_bytes() == b"\xff\xff"
    with pytest.raises(UserError, match="at most 65,536 ids: bpe has 65,537"):
        write_bin(tmp_path / "y.bin", [np.array([0])], more)
    assert not (tmp_path / "y.bin").exists()


# As a corpus


@every_tokenizer
def test_a_file_of_tokens_is_the_text_they_stand_for_and_gives_the_same_tokens(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    bounds = [0, 70, 71, 1500, len(SAMPLE)]  # one document is a single byte, the next begins inside the text
    starts = np.array(bounds[:-1])
    tokens = tokenizer.encode_documents(SAMPLE, starts)
    split = open_text(beside(tmp_path, tokenizer, tokens), errors="raw")
    assert documents_of(split) == [SAMPLE[a:b] for a, b in pairwise(bounds)]
    assert tokenize(split, tokenizer).tokens.tolist() == tokens.tolist()


@settings(deadline=None)
@given(documents=st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=5))
@example(documents=["a\0b\0c\0d\0e\0f\0g\0h\0"])  # which looks like UTF-16
def test_any_documents_come_back(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> None:
    folder = tmp_path_factory.mktemp("bin")
    tokenizer = ALL["bpe"]
    encoded = [document.encode("utf-8", "replace") for document in documents]
    tokens = [token for one in encoded for token in (tokenizer.begin, *tokenizer.encode(one).tolist())]
    assert documents_of(open_text(beside(folder, tokenizer, tokens))) == encoded


def test_tokens_that_the_tokenizer_would_not_choose_stand_for_the_same_text(tmp_path: Path) -> None:
    bpe = ALL["bpe"]
    spelt = [int(bpe.encode(bytes([byte]))[0]) for byte in b" the cat"]  # byte by byte
    split = open_text(beside(tmp_path, bpe, spelt))
    assert split.read() == b" the cat"
    assert len(tokenize(split, bpe)) < len(spelt)


def test_documents_larger_than_a_block_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "CHUNK_IDS", 5)  # cuts characters
    monkeypatch.setattr(read_module, "CHUNK_BYTES", 16)
    tokens = Byte().encode_documents(SAMPLE, np.array([0, 70]))
    assert documents_of(open_text(beside(tmp_path, Byte(), tokens))) == [SAMPLE[:70], SAMPLE[70:]]


def test_two_files_are_the_two_parts_of_a_corpus(tmp_path: Path) -> None:
    train, valid = beside(tmp_path, Byte(), list(b"learn this")), beside(tmp_path, Byte(), list(b"and this"), "val.bin")
    corpus = open_corpus(train, valid=valid)
    assert (corpus.train.read(), corpus.valid.read()) == (b"learn this", b"and this")
    assert corpus.comparable


def test_tokens_without_a_tokenizer_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"a\0b\0")
    (tmp_path / "meta.pkl").write_bytes(b"never opened")
    with pytest.raises(UserError, match=r"tokenizer.json in the same folder must say what they mean"):
        open_text(tmp_path / "train.bin", errors="raw")


def test_tokens_that_are_not_utf8_are_refused_or_replaced_as_in_any_text(tmp_path: Path) -> None:
    path = beside(tmp_path, Byte(), [256, *b"ab\xff"])
    with pytest.raises(UserError, match="must be UTF-8: byte 2 of"):
        open_text(path)
    assert open_text(path, errors="replace").read() == "ab\ufffd".encode()


def test_a_folder_does_not_take_tokens_for_text(tmp_path: Path) -> None:
    beside(tmp_path, Byte(), [30000] * 1000)  # 0x7530 twice: would pass for text
    (tmp_path / "a.txt").write_bytes(b"0123456789" * 10)
    notes = open_corpus(tmp_path).notes
    assert any("train.bin: not text: a file of tokens" in note for note in notes)


# octavo data bin


def test_data_bin_writes_both_parts_and_the_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_bytes(SAMPLE)
    assert main(["data", "bin", str(text), "--tokenizer", "bpe", "--size", "280", "--out", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    tokenizer = load_tokenizer(out / "tokenizer.json")
    assert (result["tokenizer"], result["vocab"], result["begin"]) == ("bpe", 281, 280)
    corpus = open_corpus(text)
    for name, split in (("train.bin", corpus.train), ("val.bin", corpus.valid)):
        tokens = np.fromfile(out / name, "<u2")
        assert result["tokens"][name] == len(tokens)
        assert tokens.tolist() == tokenize(split, tokenizer).tokens.tolist()
        assert documents_of(open_text(out / name, errors="raw")) == [split.read()]


def test_data_bin_takes_a_tokenizer_that_exists_and_leaves_other_files_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out, given_ = tmp_path / "text.txt", tmp_path / "out", tmp_path / "given.json"
    text.write_bytes(SAMPLE)
    save_tokenizer(ALL["pretrained"], given_)
    out.mkdir()
    (out / "mine.txt").write_text("kept")
    assert main(["data", "bin", str(text), "--tokenizer", str(given_), "--valid", str(text), "--out", str(out)]) == 0
    assert "bpe, 301 ids" in capsys.readouterr().out
    assert load_tokenizer(out / "tokenizer.json").to_json() == ALL["pretrained"].to_json()
    assert (out / "mine.txt").read_text() == "kept"
    assert np.fromfile(out / "train.bin", "<u2").tolist() == np.fromfile(out / "val.bin", "<u2").tolist()


def test_data_bin_refuses_what_does_not_fit_and_keeps_what_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, large = tmp_path / "text.txt", tmp_path / "large.json"
    text.write_bytes(SAMPLE)
    path = beside(tmp_path, Byte(), list(b"old"))
    save_tokenizer(Bpe(ALL["bpe"].to_json()["tokenizer"], size=70_000), large)
    assert main(["data", "bin", str(text), "--tokenizer", str(large), "--out", str(tmp_path), "--force"]) == 2
    assert "at most 65,536 ids" in capsys.readouterr().err
    assert open_text(path).read() == b"old"


def test_the_bytes_of_other_tools_are_read(tmp_path: Path) -> None:
    """What nanoGPT's own way of writing gives: numpy's tofile of the library's ids, a document's end after each."""
    library = tokenizers.Tokenizer.from_str(json.dumps(ALL["bpe"].to_json()["tokenizer"]))
    ids = [token for one in ("The cat sat", "on the mat") for token in (*library.encode(one).ids, 300)]
    path = beside(tmp_path, ALL["pretrained"], ids)
    assert documents_of(open_text(path)) == [b"The cat sat", b"on the mat"]
