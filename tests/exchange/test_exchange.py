"""Models go out as ARPA and come in: names of tokens, the closed vocabulary, both verbs, and KenLM as the judge."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import octavo
from octavo.cli import main
from octavo.errors import UserError
from octavo.exchange.arpa import SPACE, names_of, read_arpa, token_names, write_arpa
from octavo.models.ngram import NGram, NGramConfig
from octavo.tasks.run import Run, load
from octavo.tasks.run_exchange import export_run, import_run
from octavo.text import Bpe, BpeSettings, Byte, Char, Chunk, Tokenizer, Word, load_tokenizer
from octavo.text.tokenizers.closed_vocabulary import ClosedVocabulary
from octavo.text.tokenizers.token_bytes import as_bytes

SENTENCES = b"a rose is a rose\na rose is red\nis a red rose red\n"
WORDS = ["a", "rose", "is", "<unk>", "</s>", "red", "<s>"]
TEXT = "A rose, a rosé — «is» a <s> rose ▁ <0x41>\r\n\tis\u00a0it\u200b? \x00 the end\n".encode() * 4
MARKS = [b"<s>", b"</s>", b"<unk>", b"<UNK>", b"<0x41>", b"<0X0a>", b"<#7>", "▁".encode(), b" ", b"\n", b"<", b"a<#0>"]


def blocks(text: bytes) -> list[Chunk]:
    return [Chunk(text, np.zeros(1, np.int64))]


def tokenizers(text: bytes) -> dict[str, Tokenizer]:
    return {
        "byte": Byte(), "char": Char.learn(blocks(text)), "word": Word.learn(blocks(text)),
        "bpe": Bpe.learn(blocks(text), BpeSettings(300)), "closed": ClosedVocabulary(WORDS),
    }  # fmt: skip


def trained(text: bytes, tokenizer: Tokenizer, **config: Any) -> NGram:
    tokens = np.concatenate(list(tokenizer.encode_chunks(blocks(text))))
    return NGram.fit(torch.from_numpy(tokens), NGramConfig(**config), tokenizer.vocab, tokenizer.newline)


def shared(text: bytes, tokenizer: Tokenizer) -> torch.Tensor:
    return torch.from_numpy(tokenizer.encode(text).astype(np.int64))[None]


# Names


def spelling_of(name: str) -> bytes:
    """The bytes of the token of that name."""
    parts = re.split("<0x([0-9A-F]{2})>", re.sub(r"<#[0-9]+>\Z", "", name).replace(SPACE, " "))
    return b"".join(bytes([int(part, 16)]) if i % 2 else as_bytes(part) for i, part in enumerate(parts))


spelling = st.one_of(
    st.binary(max_size=6),
    st.text(max_size=5).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(MARKS), max_size=3).map(b"".join),
)


@settings(deadline=None)
@given(spellings=st.lists(spelling, max_size=12))
@example(spellings=[*MARKS, *MARKS, b"", b""])
def test_names_are_words_all_different_and_give_their_spellings_back(spellings: list[bytes]) -> None:
    names = names_of(spellings)
    assert len({*names, "<s>", "</s>", "<unk>", "<UNK>"}) == len(spellings) + 4
    assert [name.encode().split() for name in names] == [[name.encode()] for name in names]
    assert [name.split() for name in names] == [[name] for name in names]  # nor what Unicode calls white space
    assert [spelling_of(name) for name in names] == spellings


@pytest.mark.parametrize("kind", ["byte", "char", "word", "bpe"])
def test_every_token_of_a_tokenizer_has_its_own_name(kind: str) -> None:
    tokenizer = tokenizers(TEXT)[kind]
    names = token_names(tokenizer)
    assert len(set(names)) == tokenizer.vocab
    assert names[-1] == "<s>"
    assert [spelling_of(name) for name in names[:-1]] == [tokenizer.token_bytes(i) for i in range(tokenizer.begin)]


def test_names_are_readable() -> None:
    assert names_of([b" rose", "rosé".encode(), b"\n", b"\xc3", b"<s>", b"a < b", "▁".encode()]) == [
        "▁rose", "rosé", "<0x0A>", "<0xC3>", "<0x3C>s>", "a▁<▁b", "<0xE2><0x96><0x81>",
    ]  # fmt: skip


def test_of_tokens_with_one_spelling_the_character_keeps_the_plain_name() -> None:
    names = token_names(Char("\na"))
    assert (names[97], names[256 + 1]) == ("a<#97>", "a")
    assert (names[10], names[256]) == ("<0x0A><#10>", "<0x0A>")
    assert names_of([b"", b"x"]) == ["<#0>", "x"]


# The closed vocabulary


def test_words_stand_between_white_space_and_a_line_feed_ends_a_sentence() -> None:
    closed = ClosedVocabulary(WORDS)
    tokens = closed.encode(b" a\t\trose \r\n\n is\x0bit")
    assert [WORDS[token] for token in tokens] == ["a", "rose", "</s>", "</s>", "is", "<unk>"]
    assert closed.decode(tokens) == b"a rose\n\nis <unk> "
    assert b"".join(map(closed.token_bytes, tokens.tolist())) == b"a rose \n\nis <unk> "
    assert closed.decode([closed.begin, *closed.encode(SENTENCES)]) == SENTENCES


def test_marks_in_the_text_are_unknown_words() -> None:
    closed = ClosedVocabulary(WORDS)
    assert set(closed.encode(b"<s> </s> <unk> <UNK> tulip a\xff").tolist()) == {closed.unknown}


def test_unknown_words_are_counted_without_line_ends() -> None:
    assert ClosedVocabulary(WORDS).count_unknown(b"a tulip\nis red\n") == (1, 4)
    assert ClosedVocabulary(WORDS).count_unknown(b"\n") == (0, 0)


some_text = st.lists(st.sampled_from([b"a", b"rose", b"tulip", b" ", b"\n", b"\r\n", b"\t", b"\xc3\xa9", b"\xc3"]))


@settings(deadline=None)
@given(data=some_text.map(b"".join), more=some_text.map(b"".join))
def test_a_cut_changes_no_word_whatever_follows(data: bytes, more: bytes) -> None:
    closed = ClosedVocabulary(WORDS)
    cut = closed.split_point(data)
    apart = [*closed.encode(data[:cut]).tolist(), *closed.encode(data[cut:] + more).tolist()]
    assert apart == closed.encode(data + more).tolist()
    assert cut > 0 or not any(white in data for white in b" \n\r\t")
    starts = np.unique([0, len(data) // 2])
    plain = Tokenizer.encode_documents(closed, data, starts)
    assert closed.encode_documents(data, starts).tolist() == plain.tolist()


def test_a_saved_closed_vocabulary_loads_the_same() -> None:
    closed = ClosedVocabulary(WORDS)
    again = load_tokenizer(json.loads(json.dumps(closed.to_json())))
    assert isinstance(again, ClosedVocabulary)
    assert (again.words, again.vocab, again.begin, again.newline) == (WORDS, 7, 6, 4)
    assert not again.lossless


@pytest.mark.parametrize(
    "words",
    [
        None, "a b", [], [1], ["a", "</s>", "<unk>"], ["a", "<unk>", "<s>"], ["a", "</s>", "<s>"],
        ["a", "a", "</s>", "<unk>", "<s>"], ["a b", "</s>", "<unk>", "<s>"], ["", "</s>", "<unk>", "<s>"],
        ["<s>", "</s>", "<unk>"], ["\udcff", "</s>", "<unk>", "<s>"],
    ],
)  # fmt: skip
def test_a_foreign_closed_vocabulary_is_refused(words: object) -> None:
    with pytest.raises(UserError, match="closed"):
        load_tokenizer({"octavo_tokenizer": "closed", "words": words})


# Out and in


@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize("kind", ["byte", "char", "word", "bpe", "closed"])
def test_a_run_goes_out_and_comes_back_with_its_tokenizer(kind: str, sentences: bool, tmp_path: Path) -> None:
    text = SENTENCES if kind == "closed" else TEXT
    tokenizer = tokenizers(text)[kind]
    if kind == "closed" and not sentences:
        with pytest.raises(UserError, match="--sentences"):
            export_run(Run(trained(text, tokenizer, order=3), tokenizer), tmp_path / "out.arpa")
        return
    run = Run(trained(text, tokenizer, order=3, sentences=sentences), tokenizer, {"preprocess": ["lower"]})
    export_run(run, tmp_path / "out.arpa.gz")
    again = load(import_run(tmp_path / "out.arpa.gz", tmp_path / "run", run).path or "")
    assert again.tokenizer.to_json() == tokenizer.to_json()
    assert isinstance(again.model, NGram)
    assert again.model.newline == run.model.newline  # type: ignore[attr-defined]
    assert again.record["preprocess"] == ["lower"]
    x_1T = shared(text[:20] + b"<0x0A> unheard\n" + text[20:60], tokenizer)
    torch.testing.assert_close(again.model.score(x_1T), run.model.score(x_1T), rtol=0, atol=1e-5)


def test_the_tokenizer_of_another_run_is_refused(tmp_path: Path) -> None:
    word = tokenizers(TEXT)["word"]
    export_run(Run(trained(TEXT, word, order=2), word), tmp_path / "word.arpa")
    other = Run(trained(TEXT, Byte(), order=2), Byte())
    with pytest.raises(UserError, match=r"only in the file, such as '.+'"):
        import_run(tmp_path / "word.arpa", like=other)
    export_run(other, tmp_path / "byte.arpa")
    with pytest.raises(UserError, match=r"only in the tokenizer, such as '.+'"):
        import_run(tmp_path / "byte.arpa", like=Run(other.model, word))


def test_a_word_that_the_tokenizer_lacks_may_only_stand_for_nothing(tmp_path: Path) -> None:
    export_run(Run(trained(TEXT, Byte(), order=2), Byte()), tmp_path / "out.arpa")
    text = (tmp_path / "out.arpa").read_text()
    assert "-99\t<unk>\t0\n" in text
    (tmp_path / "out.arpa").write_text(text.replace("-99\t<unk>", "-3\t<unk>"))
    with pytest.raises(UserError, match="'<unk>'"):
        read_arpa(tmp_path / "out.arpa", token_names(Byte()), Byte().newline)


def test_a_model_without_unknown_words_finds_them_impossible(tmp_path: Path) -> None:
    closed = ClosedVocabulary(WORDS)
    write_arpa(trained(SENTENCES, closed, order=2, sentences=True), tmp_path / "a.arpa", WORDS)
    lines = [line for line in (tmp_path / "a.arpa").read_text().splitlines() if "<unk>" not in line]
    (tmp_path / "a.arpa").write_text("\n".join(lines).replace("ngram 1=7", "ngram 1=6"))
    run = import_run(tmp_path / "a.arpa")
    assert run.tokenizer.vocab == 7
    assert octavo.evaluate(run, "a rose is red\n").impossible == 0
    score = octavo.evaluate(run, "a tulip is red\n")
    assert (score.impossible, score.bits) == (1, math.inf)


def test_the_other_spelling_of_unknown_serves_too(tmp_path: Path) -> None:
    write_arpa(trained(SENTENCES, ClosedVocabulary(WORDS), order=2, sentences=True), tmp_path / "a.arpa", WORDS)
    text = (tmp_path / "a.arpa").read_text().replace("<unk>", "<UNK>")
    (tmp_path / "a.arpa").write_text(text)
    run = import_run(tmp_path / "a.arpa")
    assert octavo.evaluate(run, "a tulip is red\n").impossible == 0
    export_run(run, tmp_path / "b.arpa")
    assert (tmp_path / "b.arpa").read_text().count("<unk>") == 0


def test_an_imported_model_sums_to_one_and_never_writes_begin(tmp_path: Path) -> None:
    write_arpa(trained(SENTENCES, ClosedVocabulary(WORDS), order=3, sentences=True), tmp_path / "a.arpa", WORDS)
    (tmp_path / "a.arpa").write_text((tmp_path / "a.arpa").read_text().replace("-99\t<s>", "0\t<s>"))
    run = import_run(tmp_path / "a.arpa")
    p_1TV = run.model(shared(SENTENCES, run.tokenizer)).exp()
    torch.testing.assert_close(p_1TV.sum(-1), torch.ones(1, p_1TV.shape[1]).double(), rtol=0, atol=1e-6)
    assert p_1TV[..., run.model.begin].max() == 0


# The verbs


@pytest.fixture
def byte_run(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_bytes(TEXT)
    octavo.train("ngram", tmp_path / "text.txt", order=3, tokenizer="byte", out=tmp_path / "run", measure=False)
    return tmp_path / "run"


def test_export_and_import_from_the_command_line(
    byte_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arpa, again, text = str(tmp_path / "out.arpa"), str(tmp_path / "again"), str(tmp_path / "text.txt")
    assert main(["export", str(byte_run), arpa, "--format", "arpa", "--json"]) == 0
    exported = json.loads(capsys.readouterr().out)
    assert exported["bytes"] == Path(arpa).stat().st_size
    assert main(["import", arpa, "--tokenizer-of", str(byte_run), "--out", again, "--json"]) == 0
    imported = json.loads(capsys.readouterr().out)
    assert imported["ngrams"] == exported["ngrams"]
    assert imported["comparable"] is True
    bits = [octavo.evaluate(octavo.load(run), Path(text)).bits for run in (byte_run, again)]
    assert bits[0] == pytest.approx(bits[1], rel=1e-6)
    for verb in (["eval", again, text], ["inspect", again], ["generate", again, "--max-tokens", "5"],
                 ["list", str(tmp_path)], ["export", again, arpa, "--force"]):  # fmt: skip
        assert main(verb) == 0
    assert "not comparable" not in capsys.readouterr().out


def test_an_import_without_a_tokenizer_says_that_it_is_not_comparable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arpa(trained(SENTENCES, ClosedVocabulary(WORDS), order=3, sentences=True), tmp_path / "a.arpa", WORDS)
    (tmp_path / "new.txt").write_bytes(b"a rose is a tulip\n")
    assert main(["import", str(tmp_path / "a.arpa"), "--out", str(tmp_path / "run")]) == 0
    assert "not comparable" in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "run"), str(tmp_path / "new.txt"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["tokens"], result["label"]) == (6, "not comparable")


def test_only_ngram_runs_are_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_bytes(TEXT)
    octavo.train("bag", tmp_path / "text.txt", out=tmp_path / "bag", measure=False)
    assert main(["export", str(tmp_path / "bag"), str(tmp_path / "out.arpa")]) == 2
    said = capsys.readouterr().err
    assert "bag" in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out.arpa").exists()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("notes.txt", b"to be or not to be\n", "is not a model that can be read"),
        ("pytorch_model.bin", b"PK\x03\x04", "pickle can run any code"),
        ("model.safetensors", b"\x08\0\0\0\0\0\0\0{}      ", "give their folder"),
        ("cut.gguf", b"GGU", "not a GGUF file"),
        ("empty", b"", "is not a model that can be read"),
        (None, None, "there is no smollm3"),
    ],
)
def test_what_cannot_be_imported_is_refused_with_what_can(
    name: str | None, data: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name is not None and data is not None:
        (tmp_path / name).write_bytes(data)
    source = "smollm3" if name is None else str(tmp_path / name)
    assert main(["import", source, "--out", str(tmp_path / "run")]) == 2
    result = capsys.readouterr().err
    assert len(result.splitlines()) == 1
    assert said in result
    assert "an ARPA file" in result or name == "cut.gguf"
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_model_and_a_run_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(TEXT)
    octavo.train("bag", tmp_path / "text.txt", out=tmp_path / "bag", measure=False)
    with pytest.raises(UserError, match=r"no config\.json; give a Hugging Face folder"):
        import_run(tmp_path)
    with pytest.raises(UserError, match="needs no import"):
        import_run(tmp_path / "bag")


def test_an_arpa_file_is_known_by_what_it_says(tmp_path: Path) -> None:
    write_arpa(trained(SENTENCES, ClosedVocabulary(WORDS), order=2, sentences=True), tmp_path / "a.arpa", WORDS)
    (tmp_path / "model").write_bytes(b"a note\n" + (tmp_path / "a.arpa").read_bytes())
    assert isinstance(import_run(tmp_path / "model").model, NGram)


def test_a_place_where_no_run_can_be_written_is_refused_before_reading(byte_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--out"):
        import_run(tmp_path / "no such file.arpa", tmp_path / "text.txt")


# KenLM


def theirs(arpa: Path, names: list[str], **options: bool) -> list[float]:
    kenlm = pytest.importorskip("kenlm", reason="needs kenlm, which takes a C++ compiler to install")
    return [logp for logp, _, _ in kenlm.Model(str(arpa)).full_scores(" ".join(names), **options)]


@pytest.mark.data("shakespeare")
@pytest.mark.parametrize("kind", ["byte", "char", "word", "bpe"])
def test_kenlm_gives_exported_models_the_same_log_probabilities(kind: str, data_root: Path, tmp_path: Path) -> None:
    text = (data_root / "shakespeare" / "input.txt").read_bytes()[:60_000]
    known, new = text[:50_000], text[50_000:]
    tokenizer = tokenizers(known)[kind]
    model = trained(known, tokenizer, order=4)
    export_run(Run(model, tokenizer), tmp_path / "out.arpa")
    tokens, names = tokenizer.encode(new), token_names(tokenizer)
    ours = model.score(shared(new, tokenizer))[0] / math.log(10)
    assert ours.tolist() == pytest.approx(
        theirs(tmp_path / "out.arpa", [names[i] for i in tokens], eos=False), abs=1e-4
    )


@pytest.mark.data("shakespeare")
def test_eval_of_an_imported_model_is_kenlms_total(
    data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kenlm = pytest.importorskip("kenlm", reason="needs kenlm, which takes a C++ compiler to install")
    text = (data_root / "shakespeare" / "input.txt").read_bytes()[:60_000]
    known, new = text[:50_000], b"\n\n" + text[50_000:].replace(b"\n", b" \r\n") + b"\n"
    closed = ClosedVocabulary([*dict.fromkeys(known.decode().split()), "</s>", "<unk>", "<s>"])
    write_arpa(trained(known, closed, order=3, sentences=True), tmp_path / "out.arpa", closed.words)
    (tmp_path / "new.txt").write_bytes(new)
    assert main(["import", str(tmp_path / "out.arpa"), "--out", str(tmp_path / "run"), "--json"]) == 0
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), str(tmp_path / "new.txt"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    reference = kenlm.Model(str(tmp_path / "out.arpa"))
    scores = [one for line in new.decode().split("\n")[:-1] for one in reference.full_scores(line)]
    assert result["tokens"] == len(scores)
    assert any(unknown for _, _, unknown in scores)
    total = math.fsum(logp for logp, _, _ in scores)
    assert -result["bits"] * math.log10(2) == pytest.approx(total, abs=1e-4 * len(scores))
