"""Whatever a file holds, its reader takes it or refuses it in one line: no traceback, no waiting, no filled memory."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octavo
from octavo.cli import main
from octavo.datasets.images import IDX_NAMES, read_idx
from octavo.datasets.labels import LabelledConfig, read_labelled
from octavo.datasets.pairs import open_pairs
from octavo.datasets.questions import open_knowledge
from octavo.errors import UserError
from octavo.exchange.formats import read_foreign
from octavo.exercises.formats.course import load_course
from octavo.exercises.framework.answer_file import read_answers
from octavo.io.run_folder import CONFIG, METRICS, TENSORS, TOKENIZER
from octavo.tasks.facts_file import open_file_of_facts
from octavo.text.corpus import open_text
from octavo.text.tokenizers.registry import load_tokenizer
from octavo.text.word_vectors import read_vectors
from octavo.training.metrics_log import read_rows

CONTENTS = {
    "nothing": b"",
    "zeros": bytes(3000),
    "noise": np.random.default_rng(0).bytes(5000),
    "null": b"null",
    "a number": b"0.5",
    "a list": b"[1, [2], {}]",
    "an object": b'{"text": 1, "label": null, "words": 5, "octavo_tokenizer": ["bpe"], "model": {"vocab": 3}}',
    "a hundred thousand brackets": b"[" * 100_000,
    "a hundred thousand objects": b'{"text":' * 100_000,
    "a million digits": b'{"text": ' + b"9" * 1_000_000 + b"}",
    "not a number": b'{"text": NaN, "label": Infinity}\n' * 20,
    "UTF-16": "the cat\tsat\n".encode("utf-16"),
    "a mark of UTF-8": "\ufeffthe cat\tsat\n".encode(),
    "half a character": b'{"text": "\\ud800", "label": "\\ud800"}',
    "a surrogate": b"a\t\xed\xa0\x80\n",
    "Latin-1": "né\tcafé\n".encode("latin-1"),
    "line ends of Windows": b"a\tb\r\nc\td\r\n",
    "a field that never ends": b'text,label\n"unclosed,1\n',
    "empty lines": b"\n" * 100_000,
    "a long line": b"x" * 2_000_000,
    "tabs": b"\t" * 10_000,
    "twice": b'{"text": "a", "text": "b", "label": 1, "label": 2}',
    "brackets of TOML": b"a = " + b"[" * 100_000,
}


def read_images(path: Path) -> Any:
    return read_idx(path)


READERS: dict[str, Callable[[Path], Any]] = {
    "x.txt": open_text, "x.jsonl": open_text, "x.parquet": open_text, "y.txt.gz": open_text, "x.txt.bz2": open_text,
    "x.txt.xz": open_text, "x.txt.zst": open_text, "x.bin": open_text,
    "x.tsv": read_labelled, "x.csv": read_labelled, "x.ndjson": read_labelled,
    "fasttext.txt": lambda path: read_labelled(path, LabelledConfig("fasttext")),
    "pairs.tsv": lambda path: open_pairs([str(path)]),
    "train.tsv": lambda path: open_knowledge(path.parent),
    "facts.csv": lambda path: open_file_of_facts(path).pairs(),
    "facts.db": lambda path: open_file_of_facts(path).pairs(),
    "vectors.txt": read_vectors,
    "x.arpa": read_foreign, "x.gguf": read_foreign, CONFIG: lambda path: read_foreign(path.parent),
    TOKENIZER: load_tokenizer,
    METRICS: lambda path: read_rows(path.read_bytes()),
    IDX_NAMES[0]: read_images,
    "course.toml": load_course, "answers.toml": lambda path: read_answers(str(path)),
}  # fmt: skip


def refusal(reader: Callable[[Path], Any], path: Path) -> str | None:
    """What the reader says of a file that it refuses; any other error is the test's to fail by."""
    try:
        reader(path)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_any_content_or_refuses_it_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for what, content in CONTENTS.items():
        path.write_bytes(gzip.compress(content, 1) if name.startswith("y") else content)
        if name == "train.tsv":
            for other in ("text.txt", "dev.tsv"):
                (tmp_path / other).write_bytes(content)
        said = refusal(READERS[name], path)
        assert said is None or (0 < len(said) < 2000 and "\n" not in said), what


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    text = place / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 60)
    examples = place / "examples.tsv"
    examples.write_text("".join(f"{'good' if n % 2 else 'bad'}\tfilm number {n} was {n % 2}\n" for n in range(40)))
    octavo.train("gru", text, width=8, layers=1, tokenizer="byte", budget="3steps", out=place / "gru")
    octavo.train("bag", text, tokenizer="byte", out=place / "bag")
    sizes = ["--width", "4", "--hidden", "4", "--quiet"]
    assert main(["classify", "train", "dan", str(examples), "--out", str(place / "dan"), *sizes]) == 0
    return place


def one_line(capfd: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """What the command says on standard error, which must be one line and exit code 2."""
    capfd.readouterr()
    assert main([*map(str, words)]) == 2
    said = capfd.readouterr().err
    assert said.startswith("octavo: ")
    assert said.count("\n") == 1
    assert said.count("damaged or foreign") <= 1
    return said


def changed(runs: Path, tmp_path: Path, run: str, name: str, content: bytes) -> Path:
    place = tmp_path / run
    shutil.copytree(runs / run, place)
    (place / name).write_bytes(content)
    return place


@pytest.mark.parametrize("content", [b"0.5", b"[]", b'{"words": 5}', b"[" * 100_000, b"\xff"])
def test_what_is_no_vocabulary_of_a_dan_is_one_line(
    runs: Path, tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    place = changed(runs, tmp_path, "dan", TOKENIZER, content)
    assert "damaged" in one_line(capfd, "classify", "eval", place, runs / "examples.tsv")


def test_a_run_whose_metrics_hold_what_is_no_number_can_be_resumed(runs: Path, tmp_path: Path) -> None:
    rows = (runs / "gru" / METRICS).read_bytes().splitlines(keepends=True)
    damaged = rows[0] + b"".join(rows[1:]).replace(b'"step": ', b'"loss": NaN, "step": ', 1)
    assert len(read_rows(damaged)) == 1
    place = changed(runs, tmp_path, "gru", METRICS, damaged)
    assert main(["resume", str(place), "--budget", "5steps", "--quiet"]) == 0
    assert all(isinstance(row.get("loss", 0.0), float) for row in read_rows((place / METRICS).read_bytes()))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("name", [CONFIG, TOKENIZER, TENSORS])
def test_a_pipe_in_the_place_of_a_runs_file_is_not_waited_for(
    runs: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    place = changed(runs, tmp_path, "bag", name, b"")
    (place / name).unlink()
    os.mkfifo(place / name)
    one_line(capfd, "eval", place, runs / "text.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_in_a_folder_of_facts_is_not_waited_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "knowledge"
    folder.mkdir()
    for name in ("text.txt", "train.tsv"):
        (folder / name).write_text("Where was Ada born?\tRome\n")
    os.mkfifo(folder / "dev.tsv")
    line = one_line(capfd, "train", "facts", folder, "--out", tmp_path / "run", "--budget", "1steps")
    assert "dev.tsv is a pipe or a device" in line


def test_a_run_whose_record_lacks_what_its_data_say_is_described_anew_when_it_is_resumed(
    runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = changed(runs, tmp_path, "gru", CONFIG, (runs / "gru" / CONFIG).read_bytes())
    record = json.loads((place / CONFIG).read_text())
    whole = dict(record["corpus"])
    del record["corpus"]["name"]
    record["corpus"]["train"] = {"sha256": whole["train"]["sha256"]}
    (place / CONFIG).write_text(json.dumps(record))
    assert main(["resume", str(place), "--budget", "5steps", "--quiet"]) == 0
    assert json.loads((place / CONFIG).read_text())["corpus"] == whole


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="there is no /dev/zero")
def test_a_device_in_the_place_of_a_text_is_not_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").symlink_to("/dev/zero")
    assert "is a device" in one_line(capfd, "train", "bag", tmp_path / "text.txt", "--out", tmp_path / "run")


def test_stages_that_are_no_list_are_damage(runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    record = json.loads((runs / "gru" / CONFIG).read_text())
    record["training"]["stages"] = 0.5
    place = changed(runs, tmp_path, "gru", CONFIG, json.dumps(record).encode())
    assert "training.stages is 0.5" in one_line(capfd, "resume", place, "--budget", "9steps")


PANICS: dict[str, dict[str, Any]] = {
    "pieces of no length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "a table that is none": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "a merge of what is not there": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "a"]]}},
    "nothing replaced": {"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x" * 10},
                         "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                           "use_regex": True}},
    "much in the place of little": {"normalizer": {"type": "Prepend", "prepend": "x" * 9999}},
    "a pattern that is none": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated",
                                                 "invert": False}},
}  # fmt: skip


@pytest.mark.parametrize("what", PANICS)
def test_a_tokenizer_that_its_library_panics_of_is_one_line(
    runs: Path, tmp_path: Path, what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    usual = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}
    (tmp_path / "odd.json").write_text(json.dumps({**usual, **PANICS[what]}))
    words = ("--tokenizer", tmp_path / "odd.json", "--out", tmp_path / "run")
    assert "use another tokenizer" in one_line(capfd, "train", "bag", runs / "text.txt", *words)


def test_a_panic_while_a_text_is_encoded_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    class Panics:
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> None:
            raise Panic("retry-limit-in-match over")

    from octavo.text.tokenizers.library import encode_texts

    with pytest.raises(UserError, match="cannot encode this text with this tokenizer: retry-limit"):
        encode_texts(Panics(), ["a"])  # type: ignore[arg-type]


def test_strings_of_parquet_that_are_not_utf8_are_refused_or_replaced(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    raw = pyarrow.array([b"good, ", b"caf\xe9 and tea", None], pyarrow.binary())
    text = pyarrow.Array.from_buffers(pyarrow.string(), 3, raw.buffers())
    parquet.write_table(pyarrow.table({"text": text}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"byte 3 of field 'text' in record 2 of .* is not"):
        open_text(tmp_path / "a.parquet")
    assert open_text(tmp_path / "a.parquet", errors="replace").read() == "good, caf\ufffd and tea".encode()


def test_a_value_that_many_rows_of_parquet_share_is_not_in_memory_many_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from octavo.io.limits import ReadLimits

    shared = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 100_000, pyarrow.int32()), ["x" * 1_000_000])
    parquet.write_table(pyarrow.table({"text": shared}), tmp_path / "a.parquet")
    small = ReadLimits(unpacked_anyway=1 << 22)
    monkeypatch.setattr("octavo.text.reading.read_limits", lambda: small)
    with pytest.raises(UserError, match="unpacks to more than"):
        open_text(tmp_path / "a.parquet")
