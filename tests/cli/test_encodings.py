"""Texts in other encodings: what they look like is said with a command that works when it is pasted."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import pytest

import octavo
from octavo.cli import main
from octavo.errors import EncodingError
from octavo.io.encoding import check_encoding, converted, guess_encoding

WORDS = "Käfer über dem Fluß naïve cafés in Łódź und Århus ein zwei drei".split()
TEXT = "".join(" ".join(random.Random(n).choices(WORDS, k=9)) + "\n" for n in range(30))
WESTERN = TEXT.replace("Łódź", "Graz")


@pytest.fixture
def octavo_says(capsys: pytest.CaptureFixture[str]) -> object:
    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encodings")
    (folder / "text.txt").write_text(WESTERN, encoding="utf-8")
    octavo.train("ngram", folder / "text.txt", order=2, tokenizer="word", out=folder / "run", measure=False)
    return folder / "run"


@pytest.mark.parametrize(
    ("text", "encoding", "guess"),
    [
        (TEXT, "utf-16", "utf-16"), (TEXT, "utf-16-le", "utf-16-le"), (TEXT, "utf-16-be", "utf-16-be"),
        (TEXT, "utf-32", "utf-32"), (WESTERN, "latin-1", "latin-1"), (WESTERN + "“quoted” – so", "cp1252", "cp1252"),
        (TEXT, "utf-8", ""), (TEXT, "utf-8-sig", ""), ("plain ASCII", "ascii", ""), ("Ελληνικό κείμενο", "cp1253", ""),
        ("日本語のテキストです。" * 9, "shift_jis", ""),
    ],
)  # fmt: skip
def test_encodings_are_guessed_where_the_bytes_show_them(text: str, encoding: str, guess: str) -> None:
    assert guess_encoding(text.encode(encoding)[:8192]) == guess


def test_bytes_that_are_no_text_have_no_encoding() -> None:
    assert guess_encoding(bytes(range(256)) * 8) == ""
    assert guess_encoding(bytes(100)) == ""


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-16-be", "shift_jis", "utf-8-sig"])
@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_a_text_in_pieces_of_any_size_is_converted_whole(encoding: str, size: int) -> None:
    text = (
        "日本語 🙂 cafe\n" * 9
        if encoding.startswith("utf")
        else "カタカナ\n" * 9
        if encoding == "shift_jis"
        else WESTERN
    )
    data = text.encode(encoding)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert b"".join(converted(pieces, encoding, "the text")).decode() == text


@pytest.mark.parametrize(("encoding", "guess"), [("latin-1", "latin-1"), ("utf-16", "utf-16"), ("utf-16-le",) * 2])
@pytest.mark.parametrize("verb", ["train", "eval", "bin", "vectors", "classify", "seq2seq", "compare"])
def test_the_command_that_an_error_suggests_works_when_it_is_pasted(
    octavo_says: object, run: Path, tmp_path: Path, verb: str, encoding: str, guess: str
) -> None:
    name = tmp_path / "my text.txt"
    labelled = "".join(f"{'gut' if n % 2 else 'übel'}\tSatz {n} über Käse {n % 2}\n" for n in range(60))
    pairs = "".join(f"süß {n}\tsauer {n}\n" for n in range(400))
    name.write_text({"classify": labelled, "seq2seq": pairs}.get(verb, WESTERN), encoding=encoding)
    tiny = ["--width", "8", "--layers", "1", "--heads", "1", "--budget", "1steps", "--tokenizer", "char"]
    words: dict[str, list[object]] = {
        "train": ["train", "ngram", name, "--tokenizer", "char", "--order", 2, "--out", tmp_path / "out"],
        "eval": ["eval", run, name],
        "bin": ["data", "bin", name, "--tokenizer", "char", "--out", tmp_path / "out"],
        "vectors": ["vectors", name, "--epochs", 1, "--dim", 4, "--min-count", 1, "--out", tmp_path / "out.txt"],
        "classify": ["classify", "train", "linear", name, "--out", tmp_path / "out"],
        "seq2seq": ["train", "seq2seq", name, *tiny, "--out", tmp_path / "out"],
        "compare": ["compare", name, "--models", "kn3,xz", "--tokenizer", "char", "--out", tmp_path / "out"],
    }
    code, out, err = octavo_says(*words[verb])  # type: ignore[operator]
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert f"it looks like {guess}" in err
    pasted = shlex.split(err.partition("try: ")[2])
    assert pasted[0] == "octavo"
    code, _, err = octavo_says(*pasted[1:])  # type: ignore[operator]
    assert code == 0, err


def test_the_same_text_has_the_same_bits_in_every_encoding(octavo_says: object, run: Path, tmp_path: Path) -> None:
    bits = []
    for encoding in ("utf-8", "latin-1", "utf-16", "cp1252"):
        path = tmp_path / f"{encoding}.txt"
        path.write_text(WESTERN, encoding=encoding)
        code, out, _ = octavo_says("eval", run, path, "--encoding", encoding, "--json")  # type: ignore[operator]
        assert code == 0
        score = json.loads(out)
        assert (score["bytes"], score["label"]) == (len(WESTERN.encode()), "")
        bits.append(score["bits"])
    assert len(set(bits)) == 1


def test_a_runs_own_text_is_found_again_in_its_encoding_and_counts_as_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(WESTERN, encoding="utf-16")
    (tmp_path / "b.txt").write_text(WESTERN, encoding="utf-8")
    one = octavo.train("ngram", tmp_path / "a.txt", order=2, encoding="utf-16", out=tmp_path / "a")
    other = octavo.train("ngram", tmp_path / "b.txt", order=2, out=tmp_path / "b")
    assert one.record["corpus"]["encoding"] == "utf-16"
    assert "encoding" not in other.record["corpus"]
    assert one.record["corpus"]["valid"] == other.record["corpus"]["valid"]
    assert octavo.evaluate(octavo.load(tmp_path / "a")).bits == octavo.evaluate(other).bits
    mixed = octavo.train("mix", tmp_path / "a.txt", parts=[tmp_path / "a", tmp_path / "a"], measure=False)
    assert mixed.record["corpus"]["valid"] == other.record["corpus"]["valid"]


def test_a_byte_model_reads_other_encodings_as_bytes_and_says_so(octavo_says: object, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(WESTERN, encoding="latin-1")
    words = ("train", "ngram", tmp_path / "a.txt", "--order", 2, "--out", tmp_path / "run")
    code, _, err = octavo_says(*words)  # type: ignore[operator]
    assert code == 0
    assert "a.txt looks like latin-1; its bytes are read as they are; --encoding latin-1 reads them as text" in err


def test_a_comparison_says_that_it_reads_the_bytes_of_another_encoding(octavo_says: object, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-16")
    words = ("compare", tmp_path / "a.txt", "--models", "bag", "--no-prove", "--out", tmp_path / "out")
    code, _, err = octavo_says(*words)  # type: ignore[operator]
    assert code == 0
    assert "a.txt looks like utf-16; its bytes are read as they are; --encoding utf-16 reads them as text" in err


def test_a_folder_of_latin_1_is_named_with_its_encoding(octavo_says: object, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in "ab":
        (tmp_path / "texts" / f"{name}.txt").write_text(WESTERN, encoding="latin-1")
    words = ("train", "ngram", tmp_path / "texts", "--tokenizer", "char", "--order", 2, "--out", tmp_path / "run")
    code, _, err = octavo_says(*words)  # type: ignore[operator]
    assert code == 2
    assert octavo_says(*shlex.split(err.partition("try: ")[2])[1:])[0] == 0  # type: ignore[operator]


def test_in_python_the_error_names_the_keyword(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(WESTERN, encoding="latin-1")
    with pytest.raises(EncodingError, match="it looks like latin-1; read it with encoding='latin-1'"):
        octavo.train("ngram", tmp_path / "a.txt", tokenizer="char")


def test_an_encoding_that_does_not_fit_or_does_not_exist_is_refused(octavo_says: object, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 " * 9)
    words = ("train", "ngram", tmp_path / "a.txt", "--out", tmp_path / "run", "--encoding")
    code, _, err = octavo_says(*words, "ascii")  # type: ignore[operator]
    assert (code, "is not in the encoding ascii: about byte 3" in err) == (2, True)
    code, _, err = octavo_says(*words, "latn-1")  # type: ignore[operator]
    assert (code, err) == (2, "octavo: there is no encoding 'latn-1'; did you mean latin-1?\n")
    with pytest.raises(octavo.UserError, match="there is no encoding 'rot13'"):
        check_encoding("rot13")
