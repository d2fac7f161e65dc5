"""ARPA files: what KenLM reads from us, what we read from it, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from examples import NEWLINE, VOCAB, ngram, text
from octavo.errors import UserError
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.ngram.arpa import read_arpa, write_arpa

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


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda s: "hello\n", "not an ARPA file"),
        (lambda s: s[: len(s) // 2], "damaged|ends early|must"),
        (lambda s: s.replace("\\2-grams:", "\\3-grams:", 1), "must"),
        (lambda s: s.replace("<s>", "BOS"), "<s>"),
        (lambda s: s.replace("w1 w", "nowhere w", 1), "not among"),
        (lambda s: "", "not an ARPA file"),
    ],
)
def test_damaged_files_are_refused_with_a_reason(damage: object, says: str, tmp_path: Path) -> None:
    write_arpa(ngram(order=3), tmp_path / "model.arpa", NAMES)
    file = tmp_path / "model.arpa"
    file.write_text(damage(file.read_text()))  # type: ignore[operator]
    with pytest.raises(UserError, match=says):
        read_arpa(file)
