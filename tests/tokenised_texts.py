"""Texts whose parts are cut at awkward places, tokenised on an engine, beside the in-memory program's tokens."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from octavo.engines.engine import Engine
from octavo.engines.stages import Stages
from octavo.text import Bpe, learn_and_tokenize, open_corpus, save_tokenizer, text_parts
from octavo.text.relational_tokens import learn_and_tokenize_parts
from octavo.text.text_parts import copy_split, parts_of_sources, parts_of_split
from tokenizer_samples import ODD, SAMPLE, pretrained_parts

RECORDS = ["a b c", "", "one two  two", None, "日本語 é", "", "\n", "x"]
TEXTS: dict[str, dict[str, bytes]] = {
    "sample": {"a.txt": SAMPLE[:230]},
    "characters of several bytes": {"a.txt": ("日本語🙂é\u0301 👩‍👩‍👧 ﬁ\u3000naïve\u2028— " * 3).encode()},
    "windows lines": {"a.txt": b"one two\r\n\r\n three\r\none\ttwo \r\n" * 3},
    "long lines": {"a.txt": b"x" * 80 + "ß".encode() * 40 + b" end" + b" " * 30 + b"\n" * 9 + b"tail of it"},
    "one word": {"a.txt": b"y" * 90},
    "one token": {"a.txt": b"a"},
    "files, some empty, no final newline": {
        "a.txt": b"", "b.txt": b"one two", "c.txt": b"", "d.txt": b"two three\none", "e.txt": "é".encode(),
        "f.txt": b"",
    },
    "records": {"a.jsonl": b"".join(json.dumps({"text": text}).encode() + b"\n" for text in RECORDS), "b.txt": b"z z"},
    "packed": {"a.txt.gz": gzip.compress(SAMPLE), "b.txt": SAMPLE[:20]},
}  # fmt: skip
RAW = {"a.txt": b" ".join(ODD) + b"\x80\xbf word \xe2\x82" * 2, "b.txt": b"\x80\x80 word", "c.txt": b"\xbf"}
TOKENIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "byte": ("byte", {}),
    "word": ("word", {}),
    "word by space": ("word", {"split": "space", "min_count": 1, "vocab_size": 5}),
    "char": ("char", {"min_count": 2}),
    "closed": ("closed", {"vocab_size": 4}),
    "bpe": ("bpe", {"vocab_size": 270}),
    "wordpiece": ("wordpiece", {"vocab_size": 120}),
}


def given_tokenizers(folder: Path) -> dict[str, str]:
    """Files of tokenizers that are not learnt: one whose texts can be cut, and one that needs whole documents."""
    parts = pretrained_parts()
    save_tokenizer(Bpe(parts, begin=0, size=340), folder / "pretrained.json")
    whole = Bpe({**parts, "pre_tokenizer": {**parts["pre_tokenizer"]["pretokenizers"][1], "use_regex": False}})
    assert not whole.splits_locally
    save_tokenizer(whole, folder / "whole.json")
    return {"pretrained": str(folder / "pretrained.json"), "whole documents": str(folder / "whole.json")}


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [str(folder / name) for name in files]


def check_tokens(
    engine: Engine, work: Path, sources: list[str], name: str, options: Mapping[str, Any], **reading: Any
) -> None:
    """Tokenizer and tokens of parts, and of a text that was opened here, equal those of the in-memory program."""
    corpus = open_corpus(sources, valid=sources, **reading)
    tokenizer, store = learn_and_tokenize(name, corpus, **options)
    parts = parts_of_sources(sources, **reading)
    assert parts is not None
    work.mkdir()
    copy_split(corpus.train, work / "copy")
    for number, text in enumerate((parts, parts_of_split(corpus.train, work / "copy"))):
        stages = Stages(work / f"stages{number}", {})
        ours, tokens = learn_and_tokenize_parts(engine, stages, text, name, options)
        assert ours.to_json() == tokenizer.to_json()
        assert tokens.load().tokens.tolist() == store.tokens.tolist(), (name, options, sources)
        assert parts.hash_text() == corpus.train.sha256


def small_parts(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(text_parts, "PART_BYTES", size)
    monkeypatch.setattr(text_parts, "WINDOW_BYTES", 5)
