"""Tagging: spans by hand, what a run measures and predicts, its page and its commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import octavo
from octavo.cli import main
from octavo.datasets.tagged import Tagged
from octavo.errors import UserError
from octavo.scoring.tagging import (
    Answers,
    Span,
    forbidden_pairs,
    is_bio,
    is_well_formed,
    score_tags,
    span_scores,
    spans_of,
)
from octavo.studio.server.training_forms import form_of
from octavo.tasks.tagger import Tagger
from octavo.tasks.tagging import commonest_tags
from octavo.text.word_features import WordReader, features_of, word_shape

NAMES = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
SMALL: dict[str, Any] = {"width": 16, "batch_size": 8, "budget": "40steps", "device": "cpu", "dropout": 0.0}


def test_spans_are_those_of_conlleval() -> None:
    assert spans_of("B-PER I-PER O B-LOC B-LOC I-LOC".split()) == [
        Span("PER", 0, 2), Span("LOC", 3, 4), Span("LOC", 4, 6),
    ]  # fmt: skip
    assert spans_of("I-PER I-LOC O I-LOC".split()) == [Span("PER", 0, 1), Span("LOC", 1, 2), Span("LOC", 3, 4)]
    assert spans_of([]) == spans_of(["O", "O"]) == []


def test_a_span_is_right_if_its_kind_and_both_ends_are() -> None:
    """Three true spans; three said, of which one is right, one a word short and one of another kind: F1 = 1/3."""
    truth = ["B-PER I-PER O B-LOC".split(), "B-PER O".split()]
    answer = ["B-PER O O B-LOC".split(), "B-LOC O".split()]
    found = span_scores(truth, answer)
    assert (found["precision"], found["recall"], found["f1"]) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert [(one["kind"], one["spans"], one["precision"], one["recall"]) for one in found["per_kind"]] == [
        ("LOC", 1, 0.5, 1.0), ("PER", 2, 0.0, 0.0),
    ]  # fmt: skip


def test_an_inside_tag_only_goes_on() -> None:
    start_C, pair_CC = forbidden_pairs(NAMES)
    assert [name for name, never in zip(NAMES, start_C.tolist(), strict=True) if never] == ["I-LOC", "I-PER"]
    for a, before in enumerate(NAMES):
        for b, after in enumerate(NAMES):
            assert bool(pair_CC[a, b]) == (not is_well_formed(["B-LOC", "I-LOC", before, after][-2:])
                                           and after.startswith("I-") and before[2:] != after[2:])  # fmt: skip
    assert is_well_formed(["B-LOC", "I-LOC", "O"])
    assert not is_well_formed(["O", "I-LOC"])
    assert is_bio(NAMES)
    assert not is_bio(["B-LOC", "NOUN"])


def test_the_measures_by_hand() -> None:
    """Two sentences of two and one words: tags 0 1 | 1, answers 0 0 | 1; the second word is unknown."""
    p_NC = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    answers = Answers(p_NC, torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), torch.tensor([True, False, True]),
                      torch.tensor([1, 1, 1]), [2, 1])  # fmt: skip
    found = score_tags(answers, ["X", "Y"])
    assert found.accuracy == pytest.approx(2 / 3)
    assert (found.sentences, found.sentences_right) == (2, 0.5)
    assert (found.unknown, found.unknown_accuracy, found.baseline_accuracy) == (1, 0.0, pytest.approx(2 / 3))
    assert found.words.confusion_CC == [[1, 0], [1, 1]]
    assert found.words.ece == pytest.approx((0.1 + 0.6 + 0.2) / 3, abs=1e-6)
    assert found.spans is None


def test_the_answer_may_be_another_than_the_most_probable_class() -> None:
    """Viterbi may choose a less probable tag of a word: what counts is what was said, and its probability."""
    answers = Answers(torch.tensor([[0.6, 0.4]]), torch.tensor([1]), torch.tensor([1]), torch.tensor([True]), None, [1])
    found = score_tags(answers, ["X", "Y"])
    assert (found.accuracy, found.baseline_accuracy) == (1.0, None)
    assert found.words.ece == pytest.approx(0.6)


def test_a_word_has_itself_its_ends_and_its_shape() -> None:
    assert word_shape("São-21b") == "Aa-0a"
    assert features_of("São", 2) == ["word São", "lower são", "shape Aa", "begins S", "ends o", "begins Sã", "ends ão"]
    assert features_of("a", 1)[-2:] == ["", ""]
    reader = WordReader.learn([["cats", "rats"], ["cats"]], 2, 2)
    assert reader.knows("cats")
    assert not reader.knows("rats")
    unknown, known = reader.read(["bats", "cats"]).tolist()
    assert [reader.features[n - 1] for n in unknown if n] == ["shape a", "ends s", "ends ts"]
    assert [reader.features[n - 1] for n in known if n][:2] == ["word cats", "lower cats"]


def test_the_commonest_tag_of_a_word_and_that_of_words_seen_once() -> None:
    data = Tagged([("a", "a", "a", "b", "c")], [(0, 1, 1, 0, 0)], ["X", "Y"])
    assert commonest_tags(data) == ({"a": 1, "b": 0, "c": 0}, 0)


# ---------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences in which a word's tag is that of the next one, which only a bidirectional encoder or a chain learns."""
    folder = tmp_path_factory.mktemp("tags")
    kinds = {"PER": ("Ada", "Bo"), "LOC": ("Rome", "Oslo")}
    lines = []
    for n in range(80):
        kind = ("PER", "LOC")[n % 2]
        name = kinds[kind][n // 2 % 2]
        lines.append(f"the\tB-{kind}\nold\tI-{kind}\n{name}\tI-{kind}\nis\tO\nhere\tO\n")
    (folder / "names.tsv").write_text("\n".join(lines))
    octavo.train("tagger", folder / "names.tsv", out=folder / "run", **SMALL)
    return folder


def test_what_follows_decides_what_a_word_is(place: Path) -> None:
    result = Tagger.load(place / "run").record["result"]
    assert (result["accuracy"], result["span_f1"], result["sentences_right"]) == (1.0, 1.0, 1.0)
    assert result["baseline_accuracy"] < 1.0
    one_way = octavo.train("tagger", place / "names.tsv", **SMALL, bidirectional=False, crf=False).record["result"]
    assert one_way["accuracy"] < 0.9


def test_a_run_tags_as_its_commands_do(place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = octavo.tag(place / "run", ["the old Rome is here", ("the", "old", "Bo")])
    assert found[0].tags == ["B-LOC", "I-LOC", "I-LOC", "O", "O"]
    assert found[1].tags == ["B-PER", "I-PER", "I-PER"]
    assert all(0.2 < p <= 1 for one in found for p in one.probabilities)
    (tmp_path / "in.txt").write_text("the old Rome is here\n")
    assert main(["tag", "predict", str(place / "run"), str(tmp_path / "in.txt")]) == 0
    assert capsys.readouterr().out == "the\tB-LOC\nold\tI-LOC\nRome\tI-LOC\nis\tO\nhere\tO\n\n"
    assert main(["tag", "predict", str(place / "run"), str(tmp_path / "in.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"] == found[0].tags
    assert main(["tag", "eval", str(place / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["span_f1"] == 1.0
    assert main(["eval", str(place / "run"), str(place / "names.tsv")]) == 0
    assert "all spans" in capsys.readouterr().out
    page = (place / "run" / "report.html").read_text()
    assert all(words in page for words in ("F1 of spans", "Confusion matrix", "Surest mistakes", "tag train tagger"))


def test_no_answer_breaks_the_rule_of_spans(place: Path) -> None:
    """Also of a model that has learnt nothing, whose training text kept the rule."""
    run = octavo.train("tagger", place / "names.tsv", **SMALL | {"budget": "1steps"})
    run.model.score_CE.data.normal_(generator=torch.Generator().manual_seed(1))
    assert run.well_formed
    assert all(is_well_formed(one.tags) for one in run.tag([("is", "Ada", "old", "the", "Bo")] * 3))


def test_an_empty_sentence_and_none_have_no_tags(place: Path) -> None:
    assert octavo.tag(place / "run", "").tags == []
    assert octavo.tag(place / "run", []) == []


@pytest.mark.parametrize(("change", "message"), [
    ({"tags": ["O"]}, "two names or more"), ({"tags": ["O", "O"]}, "all different"),
    ({"tags": ["X", "Y", "Z", "U", "V"]}, "well_formed"), ({"well_formed": 1}, "well_formed"),
    ({"sizes": {"features": 3, "tags": 5}}, "shape"),
])  # fmt: skip
def test_a_forged_record_is_refused(place: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    run = tmp_path / "run"
    Tagger.load(place / "run").save(run)
    record = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(record | change))
    with pytest.raises(UserError, match=message):
        Tagger.load(run)


def test_label_smoothing_and_other_taggers_are_refused(place: Path) -> None:
    with pytest.raises(UserError, match="label smoothing is of single tags"):
        octavo.train("tagger", place / "names.tsv", **SMALL, label_smoothing=0.1)
    assert main(["tag", "train", "lstm", str(place / "names.tsv")]) == 2


def test_the_studio_has_a_form_for_it() -> None:
    form = form_of("tagger")
    assert {"encoder", "width", "layers", "epochs", "learning_rate"} <= {setting.name for setting in form.settings}
    assert form.flags({"encoder": "lstm", "width": 32}) == ["--encoder", "lstm", "--width", "32"]
