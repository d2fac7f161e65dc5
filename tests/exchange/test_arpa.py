"""ARPA files: what KenLM reads from us, what we read from it, and what is refused."""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import NEWLINE, VOCAB, ngram, text
from octavo.errors import UserError
from octavo.exchange.arpa import read_arpa, write_arpa
from octavo.models.ngram import NGram, NGramConfig
from octavo.scoring.range_coder import decode_tokens, encode_tokens

NAMES = [f"w{i}" for i in range(VOCAB)]


@pytest.mark.parametrize(
    "config", [{"order": 1}, {"order": 4}, {"order": 4, "prune": (0, 1)}, {"order": 3, "estimator": "mle"}]
)
def test_a_model_written_and_read_again_answers_alike(config: dict[str, object], tmp_path: Path) -> None:
    model = ngram(sentences=True, **config)
    write_arpa(model, tmp_path / "model.arpa", NAMES)
    again, names = read_arpa(tmp_path / "model.arpa")
    ids = torch.tensor([names.index({NEWLINE: "</s>", VOCAB - 1: "<s>"}.get(i, NAMES[i])) for i in range(VOCAB)])
    x_BT = text(300, seed=4)[None, 1:].long()
    torch.testing.assert_close(again.score(ids[x_BT]), model.score(x_BT), rtol=0, atol=1e-5)


def test_kenlm_gives_the_same_log_probabilities(tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm", reason="needs kenlm, which takes a C++ compiler to install")
    model = ngram(order=4, sentences=True)
    write_arpa(model, tmp_path / "model.arpa", NAMES)
    reference = kenlm.Model(str(tmp_path / "model.arpa"))
    for seed in range(5):
        x_T = text(40, seed=seed + 20)[1:].long()
        x_T = torch.cat([x_T[x_T != NEWLINE], torch.tensor([NEWLINE])])
        sentence = " ".join(NAMES[i] for i in x_T[:-1].tolist())
        theirs = [logp for logp, _, _ in reference.full_scores(sentence)]
        ours = (model.score(x_T[None])[0] / math.log(10)).tolist()
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_kenlm_reads_a_model_of_an_endless_text_too(tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm", reason="needs kenlm, which takes a C++ compiler to install")
    model = ngram(order=3)
    write_arpa(model, tmp_path / "model.arpa", NAMES)
    reference = kenlm.Model(str(tmp_path / "model.arpa"))
    x_T = text(60, seed=8)[1:].long()
    theirs = [p for p, _, _ in reference.full_scores(" ".join(NAMES[i] for i in x_T.tolist()), eos=False)]
    assert (model.score(x_T[None])[0] / math.log(10)).tolist() == pytest.approx(theirs, abs=1e-4)


# What lmplz -o 3 --discount_fallback writes for "a rose is a rose", "a rose is red" and "is a red rose red".
BY_LMPLZ = """\\data\\
ngram 1=7
ngram 2=11
ngram 3=12

\\1-grams:
-1.0791812	<unk>	0
0	<s>	-0.30103
-0.75884604	</s>	0
-0.75884604	a	-0.30103
-0.75884604	rose	-0.30103
-0.75884604	is	-0.30103
-0.65817595	red	-0.30103

\\2-grams:
-0.59552914	rose </s>	0
-0.37628093	red </s>	0
-0.37628093	<s> a	-0.30103
-0.37628093	is a	-0.30103
-0.37628093	a rose	-0.30103
-0.59552914	red rose	-0.30103
-0.59552914	<s> is	-0.30103
-0.59552914	rose is	-0.30103
-0.55828106	a red	-0.30103
-0.55828106	rose red	-0.30103
-0.55828106	is red	-0.30103

\\3-grams:
-0.5323022	a rose </s>
-0.14860268	rose red </s>
-0.14860268	is red </s>
-0.14860268	<s> is a
-0.33702764	rose is a
-0.14860268	<s> a rose
-0.33702764	is a rose
-0.20280594	a red rose
-0.33702764	a rose is
-0.4108801	is a red
-0.19500405	red rose red
-0.4108801	rose is red

\\end\\
"""


def test_an_arpa_file_of_lmplz_gives_what_kenlm_says(tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm", reason="needs kenlm, which takes a C++ compiler to install")
    (tmp_path / "lmplz.arpa").write_text(BY_LMPLZ)
    model, names = read_arpa(tmp_path / "lmplz.arpa")
    reference = kenlm.Model(str(tmp_path / "lmplz.arpa"))
    for sentence in ("a rose is red", "red red red is a rose", "is a tulip red"):
        words = [*sentence.split(), "</s>"]
        x_1T = torch.tensor([[names.index(w if w in names else "<unk>") for w in words]])
        theirs = [p for p, _, _ in reference.full_scores(sentence)]
        assert (model.score(x_1T)[0] / math.log(10)).tolist() == pytest.approx(theirs, abs=1e-4)


def test_training_here_gives_the_file_that_lmplz_writes(tmp_path: Path) -> None:
    (tmp_path / "lmplz.arpa").write_text(BY_LMPLZ)
    theirs, names = read_arpa(tmp_path / "lmplz.arpa")
    x = [names.index(w) for line in ("a rose is a rose", "a rose is red", "is a red rose red")
         for w in ["<s>", *line.split(), "</s>"]]  # fmt: skip
    ours = NGram.fit(
        torch.tensor(x, dtype=torch.int32), NGramConfig(order=3, sentences=True), len(names), names.index("</s>")
    )
    x_1T = torch.tensor([[i for i in x if i != ours.begin]])
    assert torch.equal(ours.word_M, theirs.word_M)
    torch.testing.assert_close(ours.score(x_1T), theirs.score(x_1T), rtol=0, atol=1e-5)


# What others write, and what is refused


def scored(path: Path) -> list[float]:
    """log p of a sentence, by words."""
    model, names = read_arpa(path)
    words = ["is", "a", "red", "tulip", "a", "rose", "red", "</s>", "a", "rose", "</s>"]
    x_1T = torch.tensor([[names.index(word if word in names else "<unk>") for word in words]])
    return list(model.score(x_1T)[0].tolist())


def without_needless_backoffs(text: str) -> str:
    """As SRILM does it."""
    return "\n".join(line.removesuffix("\t0") for line in text.split("\n"))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.replace("\n", "\r\n"), without_needless_backoffs, lambda s: s.replace("\t", " "),
        lambda s: "made by hand\n\n" + s, lambda s: s.replace("\n\n", "\n \n\t\n"), lambda s: s + "\nmore\n",
        lambda s: s.rstrip("\n"), lambda s: s.replace("ngram 1=7", "ngram  1 = 7 "),
        lambda s: s.replace("\t0\n", "\t-0.0\n"),
        lambda s: s.replace("0\t<s>", "-99\t<s>"), lambda s: s.replace("0\t<s>", "1e-12\t<s>"),
        lambda s: s.replace(" red </s>\n", " red </s>\t0\n"),
    ],
)  # fmt: skip
def test_other_ways_to_write_the_same_model_are_read_alike(change: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "plain.arpa").write_text(BY_LMPLZ)
    assert change(BY_LMPLZ) != BY_LMPLZ
    (tmp_path / "changed.arpa").write_bytes(change(BY_LMPLZ).encode())
    assert scored(tmp_path / "changed.arpa") == scored(tmp_path / "plain.arpa")


def test_compressed_files_are_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "plain.arpa").write_text(BY_LMPLZ)
    (tmp_path / "zipped.arpa.gz").write_bytes(gzip.compress(BY_LMPLZ.encode()))
    assert scored(tmp_path / "zipped.arpa.gz") == scored(tmp_path / "plain.arpa")
    write_arpa(ngram(order=2), tmp_path / "ours.arpa", NAMES)
    write_arpa(ngram(order=2), tmp_path / "ours.arpa.gz", NAMES)
    assert gzip.decompress((tmp_path / "ours.arpa.gz").read_bytes()) == (tmp_path / "ours.arpa").read_bytes()
    with pytest.raises(UserError, match=r"\.xz"):
        write_arpa(ngram(order=2), tmp_path / "ours.arpa.xz", NAMES)
    (tmp_path / "cut.arpa.gz").write_bytes(gzip.compress(BY_LMPLZ.encode())[:-20])
    with pytest.raises(UserError, match="truncated"):
        read_arpa(tmp_path / "cut.arpa.gz")


def test_sections_longer_than_a_block_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.arpa").write_text(BY_LMPLZ)
    whole = scored(tmp_path / "model.arpa")
    for size in (1, 7, 100):
        small = [BY_LMPLZ.encode()[i : i + size] for i in range(0, len(BY_LMPLZ), size)]
        monkeypatch.setattr("octavo.exchange.arpa_lines.stream", lambda path, small=small: iter(small))
        monkeypatch.setattr("octavo.exchange.arpa.WRITE_NGRAMS", 2)
        assert scored(tmp_path / "model.arpa") == whole


def test_an_order_without_ngrams_is_read(tmp_path: Path) -> None:
    text = BY_LMPLZ.replace("ngram 3=12", "ngram 3=0")
    (tmp_path / "model.arpa").write_text(text[: text.index("\\3-grams:")] + "\\3-grams:\n\n\\end\\\n")
    model, _ = read_arpa(tmp_path / "model.arpa")
    assert model.sizes() == [7, 11, 0]
    assert all(map(math.isfinite, scored(tmp_path / "model.arpa")))


def test_an_ngram_far_less_probable_than_its_backoff_stays_possible(tmp_path: Path) -> None:
    (tmp_path / "model.arpa").write_text(BY_LMPLZ.replace("-0.33702764\tis a rose", "-40\tis a rose"))
    model, names = read_arpa(tmp_path / "model.arpa")
    logp = model.score(torch.tensor([[names.index(word) for word in ("is", "a", "rose")]]))[0, -1]
    assert -math.inf < float(logp) < math.log(1e-12)


def test_a_truncated_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "model.arpa"
    for end in range(len(BY_LMPLZ.rstrip())):
        file.write_text(BY_LMPLZ[:end])
        with pytest.raises(UserError, match=r"model\.arpa"):
            read_arpa(file)


DAMAGES: list[tuple[str, str, str, int | None]] = [  # what is put in the place of what, what is said, in which line
    ("-0.65817595\tred", "nan\tred", "'nan' is not a number", 13),
    ("-0.65817595\tred", "inf\tred", "'inf' is not a number", 13),
    ("-0.65817595\tred", "-inf\tred", "-99", 13),
    ("-0.65817595\tred", "much\tred", "'much' is not a number", 13),
    ("red\t-0.30103", "red\tlittle", "'little' is not a number", 13),
    ("-0.65817595\tred", "0.5\tred", "must not be above 0: 0.5", 13),
    ("red\t-0.30103", "red\t400", "must not be above 99: 400", 13),
    ("-0.65817595\tred\t-0.30103", "-0.65817595", "not a 1-gram", 13),
    ("-0.65817595\tred\t-0.30103", "-0.65817595\tred\t0\t0", "not a 1-gram", 13),
    ("-0.65817595\tred\t-0.30103", "", "ends early, with 6 of 7 1-grams", 13),
    ("-0.65817595\tred", "-0.65817595\trose", "'rose' stands in line 11 too", 13),
    ("-0.65817595\tred", "-0.65817595\tr\xe9d", "not UTF-8", 13),
    ("rose is\t", "rose tulip\t", "'tulip' is not among", 23),
    ("red rose red", "red a red", "context is missing", 39),
    ("red rose red", "is a red", "twice", 39),
    ("ngram 2=11", "ngram 3=11", "'ngram 2=...'", 3),
    ("ngram 2=11", "ngram 2=-1", "'ngram 2=...'", 3),
    ("ngram 2=11", "ngram 2=" + "9" * 5000, "'ngram 2=...'", 3),
    ("ngram 2=11", "ngram 2=many", "'ngram 2=...'", 3),
    ("ngram 2=11", "ngram 2=10", "stands where", 26),
    ("ngram 2=11", "ngram 2=12", "with 11 of 12 2-grams", 27),
    ("ngram 1=7", "ngram 1=9", "with 7 of 9 ", 14),
    ("\\2-grams:", "\\3-grams:", "stands where", 15),
    ("\\end\\", "the end", "stands where", 42),
    ("\\end\\", "", "ends early", None),
    ("0\t<s>", "0\tBOS", "no <s>", None),
    ("\t</s>\t", "\tEOS\t", "no </s>", None),
    ("\\data\\", "data", "not an ARPA file", None),
]


@pytest.mark.parametrize(("old", "new", "says", "line"), DAMAGES, ids=range(len(DAMAGES)))
def test_damage_is_refused_with_its_reason_and_line(
    old: str, new: str, says: str, line: int | None, tmp_path: Path
) -> None:
    file = tmp_path / "model.arpa"
    assert BY_LMPLZ.count(old) >= 1
    file.write_bytes(BY_LMPLZ.replace(old, new, 1).encode("latin-1"))
    with pytest.raises(UserError, match=re.escape(says)) as refused:
        read_arpa(file)
    assert str(file) in str(refused.value)
    assert line is None or f"line {line}:" in str(refused.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not an ARPA file"),
        (b"hello\n", "not an ARPA file"),
        (b"mmap lm http://example.org format version 5\n\0\1", "binary of KenLM"),
        (gzip.compress(BY_LMPLZ.encode()), r"\.gz"),
        (b"x" * (3 << 20), "longer than"),
        (b"\\data\\\nngram 1=" + b"9" * (3 << 20), "longer than|damaged"),
        (b"\\data\\\n\n", "no n-grams"),
        (b"\\data\\\nngram 1=0\n\n\\1-grams:\n\n\\end\\\n", "no n-grams"),
        (b"\\data\\\n" + b"".join(b"ngram %d=1\n" % k for k in range(1, 100)) + b"\n", "order"),
        (b"\n" * 20_000 + BY_LMPLZ.encode(), "not an ARPA file"),
        (b"\\data\\\nngram 1=1\n\n" + b"\n" * 20_000, "10,000 empty lines stand before"),
        (BY_LMPLZ.replace("ngram 1=7", "ngram 1=999999999999999999").encode(), "is not whole: its n-grams take"),
        ((b"#" * 1_000_000 + b"\n") * 20 + BY_LMPLZ.encode(), "not an ARPA file"),
    ],
)
def test_foreign_files_are_refused(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "model.arpa").write_bytes(data)
    with pytest.raises(UserError, match=says):
        read_arpa(tmp_path / "model.arpa")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.arpa"):
        read_arpa(tmp_path / "gone.arpa")


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(BY_LMPLZ) - 1), length=st.integers(0, 5), new=st.binary(max_size=5))
def test_any_damage_is_refused_or_leaves_a_model(at: int, length: int, new: bytes, tmp_path: Path) -> None:
    data = BY_LMPLZ.encode()
    (tmp_path / "model.arpa").write_bytes(data[:at] + new + data[at + length :])
    try:
        model, names = read_arpa(tmp_path / "model.arpa")
    except UserError:
        return
    assert model.vocab == len(names)
    assert not model.score(torch.zeros(1, 3, dtype=torch.int64)).isnan().any()


NUMBER = re.compile(r"^-?[0-9.]+(?=\t)|(?<=\t)-?[0-9.]+$", re.MULTILINE)


def changed_numbers(change: Callable[[float], str]) -> str:
    """lmplz's file with other logarithms, but for the probability of <s> and zeros."""
    head, marker, body = BY_LMPLZ.partition("\\1-grams:")
    return head + marker + NUMBER.sub(lambda found: change(float(found[0])) if float(found[0]) else found[0], body)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (changed_numbers(lambda number: "0"), "with no context"),
        (BY_LMPLZ.replace("-0.75884604\ta\t", "-0.2\ta\t"), "with no context"),
        (BY_LMPLZ.replace("\tis\t-0.30103", "\tis\t3"), "after 'is'"),
        (BY_LMPLZ.replace("-0.33702764\tis a rose", "0\tis a rose"), "after 'is a'"),
    ],
    ids=["all certain", "a word too likely", "a back-off of a thousand", "an n-gram too likely"],
)
def test_probabilities_that_sum_to_more_than_one_are_refused(text: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "model.arpa").write_text(text)
    with pytest.raises(UserError, match=f"sum to at most 1: {place} they sum to"):
        read_arpa(tmp_path / "model.arpa")


@pytest.mark.parametrize("digits", [4, 5, 7])
def test_files_rounded_to_four_digits_or_more_are_read(digits: int, tmp_path: Path) -> None:
    (tmp_path / "model.arpa").write_text(changed_numbers(lambda number: f"{number:.{digits}f}"))
    read_arpa(tmp_path / "model.arpa")


def test_files_that_leave_a_share_for_what_they_do_not_know_are_read(tmp_path: Path) -> None:
    """QuickLM, of CMU, discounts every count by half and gives the words' half to none; SRILM writes -99 for <s>."""
    text = BY_LMPLZ.replace("-1.0791812\t<unk>\t0\n", "").replace("ngram 1=7", "ngram 1=6")
    (tmp_path / "model.arpa").write_text(text.replace("0\t<s>", "-99\t<s>"))
    model, names = read_arpa(tmp_path / "model.arpa")
    assert model.words_V.sum() < 0.93
    assert model.words_V[names.index("<unk>")] == 0


def test_what_a_model_codes_that_hands_out_half_of_one_comes_back(tmp_path: Path) -> None:
    words = "".join(f"-1\t{word}\n" for word in ("</s>", "<unk>", "a", "b", "c"))
    (tmp_path / "model.arpa").write_text(f"\\data\\\nngram 1=6\n\n\\1-grams:\n-99\t<s>\n{words}\n\\end\\\n")
    model, names = read_arpa(tmp_path / "model.arpa")
    tokens = torch.tensor([names.index(name) for name in "abc"]).repeat(500)
    assert decode_tokens(model, encode_tokens(model, tokens, 2), len(tokens), 2).equal(tokens)


@pytest.mark.parametrize(
    "names", [["x"] * VOCAB, NAMES[:-1], ["a b", *NAMES[1:]], ["", *NAMES[1:]], ["<s>", *NAMES[1:]]]
)
def test_names_that_are_no_words_are_not_written(names: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="names"):
        write_arpa(ngram(order=2), tmp_path / "model.arpa", names)
    assert not (tmp_path / "model.arpa").exists()
