"""Classifiers learn, are calibrated, come back as they were saved, and say what their words did."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import octavo
from octavo.cli import main
from octavo.config import from_json
from octavo.core import seeded_generator
from octavo.datasets.labels import Labelled
from octavo.errors import Stopped, UserError
from octavo.models import MODELS, Bag
from octavo.models.bag import BagConfig
from octavo.models.dan import Dan, DanConfig, Linear, LinearConfig
from octavo.scoring.metrics import best_temperature, classified
from octavo.tasks.classification import TASK, ClassificationData, cross_validate, fit_classifier, measure
from octavo.tasks.classification_page import page_content
from octavo.tasks.classifier import Classifier
from octavo.tasks.run import Run
from octavo.tasks.run_page import render_run_page
from octavo.tasks.task import Recipe
from octavo.tasks.text_batches import shares
from octavo.tasks.text_vectors import LanguageBase
from octavo.tasks.training_run import train_run
from octavo.tasks.word_contributions import explain, likeness, surest_errors
from octavo.text import Byte
from octavo.text.bag_of_ngrams import Bags, HashedReader
from octavo.training.naive_bayes import fit_linear

GOOD, BAD, PLAIN = (
    "fine great lovely moving warm".split(),
    "dull poor awful flat cold".split(),
    "the film is a it".split(),
)


def made_up(count: int = 300, seed: int = 0, mixed: int = 1) -> Labelled:
    """Sentences with three words of their class, `mixed` of the other one, and some of neither."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for n in range(count):
        own, other = (GOOD, BAD) if n % 2 else (BAD, GOOD)
        words = [*random.choice(own, 3), *random.choice(other, mixed), *random.choice(PLAIN, 4)]
        texts.append(" ".join(random.permutation(words)))
        labels.append("good" if n % 2 else "bad")
    return Labelled.of(texts, labels)


def accuracy(made: Classifier, data: Labelled) -> float:
    return measure(made, data).accuracy


class Letters:
    """A base for tests: how often each letter is in a text."""

    def encode(self, texts: list[str]) -> Tensor:
        return torch.tensor([[text.count(letter) for letter in "adeflmorw"] for text in texts], dtype=torch.float32)


SMALL = {"epochs": 20, "batch_size": 16}
RECIPES = {
    "linear": TASK.recipe("linear", {"bits": 12}),
    "dan": TASK.recipe("dan", {"width": 16, "hidden": 16, **SMALL}, device="cpu"),
    "dan with n-grams": TASK.recipe(
        "dan", {"width": 16, "hidden": 16, "ngrams": 2, "buckets": 64, **SMALL}, device="cpu"
    ),
    "sequence": TASK.recipe("sequence", {"width": 8, **SMALL}, device="cpu"),
    "sequence of transformer, mean": TASK.recipe(
        "sequence", {"width": 8, "encoder": "transformer", "heads": 2, "pooling": "mean", **SMALL}, device="cpu"
    ),
    "head": TASK.recipe("head", {"hidden": 16, **SMALL}, device="cpu"),
}


def fitted(name: str, data: Labelled, seed: int = 0) -> Classifier:
    return fit_classifier(RECIPES[name].replace(seed=seed), data, Letters() if name == "head" else None)


def train_classifier(recipe: Recipe, sources: list[str], out: Path) -> Classifier:
    made: Classifier = train_run(TASK, recipe, sources, out, quiet=True)
    return made


@pytest.mark.parametrize("name", RECIPES)
def test_every_classifier_learns_what_can_be_learnt_and_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    other = made_up(200, seed=1)
    trained = [fitted(name, made_up(), seed) for seed in range(3)]  # one alone says as much of its dropout as of it
    assert np.mean([accuracy(made, other) for made in trained]) >= 0.9
    made = trained[0]
    made.save(tmp_path / "run")
    base = Letters() if name == "head" else None
    again = Classifier.load(tmp_path / "run", base=base)
    assert torch.equal(made.logits(other.texts), again.logits(other.texts))
    assert (again.classes, again.temperature) == (made.classes, made.temperature)
    assert again.predict([]) == []
    assert torch.isfinite(again.probabilities(["", "unheard of"])).all()


def test_a_network_of_texts_with_no_break_spaces_comes_back(tmp_path: Path) -> None:
    recipe = TASK.recipe("dan", {"width": 4, "epochs": 1}, device="cpu")
    made = fit_classifier(recipe, Labelled.of(["good\u00a0film", "bad\u2003film"] * 3, ["a", "b"] * 3))
    made.save(tmp_path / "run")
    assert Classifier.load(tmp_path / "run").reader.words == ["bad", "film", "good"]


def test_a_stopped_network_goes_on_with_the_same_command_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data.tsv"
    one = made_up(120)
    data.write_text("".join(f"{one.classes[c]}\t{t}\n" for c, t in zip(one.y_N, one.texts, strict=True)))
    whole = train_classifier(RECIPES["dan"], [str(data)], out=tmp_path / "whole")

    def stop_at_epoch_3(seed: int) -> torch.Generator:
        if seed == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return seeded_generator(seed)

    monkeypatch.setattr("octavo.tasks.text_batches.seeded_generator", stop_at_epoch_3)
    with pytest.raises(Stopped, match=r"go on with: octavo resume .*/parted"):
        train_classifier(RECIPES["dan"], [str(data)], out=tmp_path / "parted")
    monkeypatch.undo()
    with pytest.raises(UserError, match="with other settings"):
        train_classifier(RECIPES["dan with n-grams"], [str(data)], out=tmp_path / "parted")
    with pytest.raises(UserError, match="not finished; go on with: octavo resume"):
        Classifier.load(tmp_path / "parted")
    shutil.copytree(tmp_path / "parted", tmp_path / "resumed")
    parted = train_classifier(RECIPES["dan"], [str(data)], out=tmp_path / "parted")
    resumed: Any = octavo.resume(tmp_path / "resumed")
    assert torch.equal(parted.logits(one.texts), resumed.logits(one.texts))
    page = (tmp_path / "resumed" / "report.html").read_text(encoding="utf-8")
    assert f"octavo classify train dan {data} --width 16 --hidden 16 --epochs 20 --batch-size 16 --out" in page
    with pytest.raises(UserError, match="is finished"):
        octavo.resume(tmp_path / "resumed")
    assert torch.equal(whole.logits(one.texts), parted.logits(one.texts))
    assert octavo.resume(tmp_path / "parted", budget="200steps").record["training"]["steps"] == 200


@pytest.mark.parametrize(("name", "width"), [("gru", 8), ("lstm", 16), ("gpt", 8)])
def test_a_head_reads_the_last_state_of_a_language_model(name: str, width: int) -> None:
    tokenizer = Byte()
    settings = {"width": 8, "layers": 1} | ({"heads": 2} if name == "gpt" else {})
    model = MODELS[name].model(from_json(MODELS[name].config, settings), tokenizer.vocab)
    model.initialise(torch.Generator().manual_seed(0))
    base = LanguageBase(Run(model, tokenizer))
    texts = ["ab", "a longer one", "", "cd", "a longer two"]
    vectors = base.encode(texts)
    assert vectors.shape == (5, width)
    for text, vector in zip(texts, vectors, strict=True):
        assert torch.allclose(base.encode([text])[0], vector, atol=1e-5)
    if name == "gru":
        state = model.start(1)
        for token in (tokenizer.begin, *b"ab"):
            _, state = model.step(state, torch.tensor([token]))
        assert torch.allclose(vectors[0], state[0][0].detach(), atol=1e-5)


def test_a_model_without_a_vector_is_no_base() -> None:
    tokenizer = Byte()
    bag = Bag.fit(torch.tensor([1, 2, 3]), BagConfig(), tokenizer.vocab)
    with pytest.raises(UserError, match="carries none; choose another --base"):
        LanguageBase(Run(bag, tokenizer)).encode(["ab"])


def test_the_linear_fit_is_the_minimum_that_its_equation_says() -> None:
    data = made_up(80)
    reader, bags = HashedReader.learn(data.texts, 2, 12)
    y = torch.from_numpy(data.y_N)
    share = shares(y, 2, balance=False)
    config = LinearConfig(bits=12, steps=300, penalty=1.0)
    fitted = fit_linear(config, bags, y, share, reader.rows, 2)
    start = fit_linear(LinearConfig(bits=12, steps=0), bags, y, share, reader.rows, 2)
    ratio = start.weights_VC.detach()

    def loss(model: Linear) -> Tensor:
        ratios = torch.where(ratio == 0, 1.0, ratio)
        scale = torch.where(ratio == 0, 1.0, model.weights_VC / ratios)
        return F.cross_entropy(model(bags), y) + config.penalty / 2 / len(bags) * (scale - 1).square().sum()

    loss(fitted).backward()
    gradient = torch.where(ratio == 0, 0.0, fitted.weights_VC.grad * ratio)
    assert gradient.abs().max() < 1e-4
    assert float(loss(fitted).detach()) < float(loss(start).detach())


def test_naive_bayes_weights_are_those_counted_by_hand() -> None:
    # Class 0 has the rows 1 1 2, class 1 the rows 2 3: with one added, counts are (3, 2, 1) and (1, 2, 2), and the
    # unseen row has one in each.
    bags = Bags(torch.tensor([1, 1, 2, 2, 3]), torch.tensor([0, 3, 5]))
    y = torch.tensor([0, 1])
    model = fit_linear(LinearConfig(steps=0), bags, y, shares(y, 2, False), 4, 2)
    wanted = 0.5 * np.log(np.array([3 / 7 / (1 / 6), 2 / 7 / (2 / 6), 1 / 7 / (2 / 6)]))
    assert model.weights_VC[1:, 0].tolist() == pytest.approx(wanted.tolist(), rel=1e-6)
    assert model.weights_VC[1:, 1].tolist() == pytest.approx((-wanted).tolist(), rel=1e-6)


def test_balance_gives_every_class_the_same_share_of_the_loss() -> None:
    y = torch.tensor([0, 0, 0, 1])
    assert shares(y, 2, True).tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    data = made_up(400, mixed=2)
    rare = data.take(np.flatnonzero((data.y_N == 0) | (np.arange(400) < 40)))
    recall = {}
    for balance in (False, True):
        made = fit_classifier(TASK.recipe("linear", {"bits": 12, "balance": balance}), rare)
        recall[balance] = measure(made, made_up(300, seed=2, mixed=2)).per_class[1]["recall"]
    assert recall[True] > recall[False] + 0.1


def test_many_classes_and_cross_validation_with_every_example_measured_once() -> None:
    names = ["north", "south", "east", "west", "centre"]
    data = Labelled.of([f"{name} wind number {n}" for n in range(12) for name in names], names * 12)
    result, accuracies = cross_validate(RECIPES["linear"], data, 4)
    assert result.accuracy == 1.0
    assert result.examples == 60
    assert len(accuracies) == 4
    assert [row[i] for i, row in enumerate(result.confusion_CC)] == [12] * 5


def test_figures_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    p = random.dirichlet([1, 1, 1], 200)
    y = random.integers(0, 3, 200)
    found = classified(torch.from_numpy(p), torch.from_numpy(y), ["a", "b", "c"])
    answer = p.argmax(1)
    assert found.accuracy == pytest.approx(sklearn.metrics.accuracy_score(y, answer))
    assert found.macro_f1 == pytest.approx(sklearn.metrics.f1_score(y, answer, average="macro"))
    assert found.log_loss == pytest.approx(sklearn.metrics.log_loss(y, p))
    assert found.brier == pytest.approx(((p - np.eye(3)[y]) ** 2).sum(1).mean())
    assert found.confusion_CC == sklearn.metrics.confusion_matrix(y, answer).tolist()
    edges = np.clip((p.max(1) * 10).astype(int), 0, 9)
    off = sum(abs((p.max(1) - (answer == y))[edges == k].sum()) for k in range(10)) / 200
    assert found.ece == pytest.approx(off)


def test_the_temperature_is_the_one_that_logistic_regression_finds() -> None:
    generator = torch.Generator().manual_seed(0)
    logit = torch.randn(4000, generator=generator)
    y = (torch.rand(4000, generator=generator) < torch.sigmoid(logit)).long()
    sure = torch.stack([torch.zeros(4000), 3 * logit], 1)
    plain = LogisticRegression(C=1e9, fit_intercept=False).fit(sure[:, 1:].numpy(), y.numpy())
    assert best_temperature(sure, y) == pytest.approx(1 / plain.coef_[0, 0], rel=1e-2)
    assert best_temperature(sure, y) == pytest.approx(3, rel=0.1)


def test_the_average_is_the_mean_of_the_vectors_and_training_drops_words() -> None:
    dan = Dan(DanConfig(width=3, word_dropout=0.5), 5, 3, 2)
    dan.initialise(torch.Generator().manual_seed(0))
    bags = Bags(torch.tensor([1, 2, 2, 4]), torch.tensor([0, 3, 3, 4]))
    v = dan.vectors_VD.detach()
    wanted = torch.stack([(v[1] + 2 * v[2]) / 3, torch.zeros(3), v[4]])
    assert torch.allclose(dan.eval().text_vectors(bags), wanted)
    torch.manual_seed(1)
    dropped = torch.stack([dan.train().text_vectors(bags)[0].detach() for _ in range(300)])
    possible = [v[1], v[2], (v[1] + v[2]) / 2, wanted[0], torch.zeros(3)]
    assert all(any(torch.allclose(one, p, atol=1e-6) for p in possible) for one in dropped)
    assert len({tuple(one.tolist()) for one in dropped}) >= 4


def test_leaving_a_word_out_of_an_average_is_what_the_explanation_says() -> None:
    made = fitted("dan", made_up())
    (found,) = explain(made, ["a fine film but dull"], ["bad"], made_up())
    model, words = made.model, found.words
    rows = made.reader.read([" ".join(words)]).ids_N
    vectors = model.vectors_VD.detach()[rows]  # "but" is unknown, and "a" is not
    known = [word for word in words if word != "but"]
    c = made.classes.index(found.answer)

    def odds(average: Tensor) -> float:
        logp = (model.head(average[None]) / made.temperature).log_softmax(1)[0]
        return float((logp[c] - logp[1 - c]).detach())

    whole = odds(vectors.mean(0))
    contribution_of = dict(zip(words, found.contributions, strict=True))
    for i, word in enumerate(known):
        without = torch.cat([vectors[:i], vectors[i + 1 :]]).mean(0)
        assert contribution_of[word] == pytest.approx(whole - odds(without), abs=1e-4)
    assert contribution_of["but"] == pytest.approx(0, abs=1e-5)
    assert found.order_blind
    assert "not seen" in found.verdict()


def test_a_model_of_pairs_is_not_called_blind_to_order() -> None:
    data = Labelled.of(["a b", "b a"] * 40, ["x", "y"] * 40)
    made = fitted("linear", data)
    assert accuracy(made, data) == 1.0
    found = explain(made, ["a b"], [None], data, seed=1)[0]
    assert not found.order_blind
    assert "order counts" in found.verdict()


@pytest.mark.parametrize("name", ["linear", "dan", "sequence", "head"])
def test_the_nearest_training_example_to_a_training_example_is_itself(name: str) -> None:
    data = made_up(60)
    made = fitted(name, data)
    cosine = likeness(made, data.texts[:10], data.texts)
    assert cosine.max() <= 1 + 1e-5
    assert torch.allclose(cosine[torch.arange(10), torch.arange(10)], torch.ones(10), atol=1e-5)


def test_the_surest_mistakes_come_first_and_all_are_mistakes() -> None:
    data = made_up(200)
    made = fitted("linear", data)
    wrong = Labelled(data.texts, 1 - data.y_N, data.classes)
    rows = surest_errors(made, wrong, 5)
    p = made.probabilities(data.texts).max(1).values
    assert p[rows].tolist() == sorted(p.tolist(), reverse=True)[:5]
    assert surest_errors(made, data, 5) == []


def test_the_page_shows_words_as_text_not_as_markup() -> None:
    data = made_up(100)
    made = fitted("linear", data)
    made.record["result"] = measure(made, data).to_json()
    hostile = Labelled([f"<script>alert(1)</script> {data.texts[0]}"], 1 - data.y_N[:1], data.classes)
    made.record["data"] = {"source": ["<i>y"]}
    shown = page_content(made, ClassificationData(data, hostile), None, Path("<b>x"))
    page = render_run_page(RECIPES["linear"], made, shown, (), Path("<b>x"))
    assert "<script" not in page
    assert not {"<b>x", "<i>y"} & set(re.findall(r"<[bi]>.", page))
    assert 'class="for' in page


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"classes": ["one"]}, "classes"),
        ({"model": "gpt"}, "such a run has a model"),
        ({"sizes": {"rows": 10**12, "classes": 2}}, "shape|large"),
        ({"config": {"ngrams": 2, "bits": 13}}, "rows_F"),
        ({"task": "paint"}, "no task 'paint'"),
    ],
)
def test_a_forged_folder_is_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    fitted("linear", made_up(60)).save(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "run" / "config.json").write_text(json.dumps(record | change), encoding="utf-8")
    with pytest.raises(UserError, match=says):
        Classifier.load(tmp_path / "run")


def test_the_command_line_trains_measures_predicts_and_explains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = tmp_path / "data.tsv", str(tmp_path / "run")
    one = made_up(200)
    data.write_text("".join(f"{one.classes[c]}\t{t}\n" for c, t in zip(one.y_N, one.texts, strict=True)))
    assert main(["classify", "train", "linear", str(data), "--out", run, "--bits", "12", "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["accuracy"] == 1.0
    assert (tmp_path / "run" / "report.html").is_file()
    assert main(["classify", "eval", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["log_loss"] == pytest.approx(trained["log_loss"])
    (tmp_path / "new.txt").write_text("a fine great film\nawful and dull\n")
    assert main(["classify", "predict", run, str(tmp_path / "new.txt")]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["good", "bad"]
    assert main(["classify", "explain", run, "--text", "a fine film", "--out", str(tmp_path / "why.html")]) == 0
    assert "nearest training examples" in capsys.readouterr().out
    assert "fine" in (tmp_path / "why.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "svm", "x.tsv"], "no classifier 'svm'"),
        (["train", "linear", "missing.tsv"], "no file missing.tsv"),
        (["train", "head", "x.tsv"], "--base RUN"),
        (["dance"], "no action 'dance'"),
        (["eval", "missing"], "is not a run"),
    ],
)
def test_mistakes_are_reported_in_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", *arguments]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.count("\n") == 1
