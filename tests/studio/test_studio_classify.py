"""The page that puts texts into classes, and what it asks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from octavo.datasets.labels import Labelled, labelled_in, read_labelled
from octavo.errors import UserError
from octavo.scoring.metrics import at_threshold, classified, coverage_curve
from octavo.tasks.classifier import Classifier
from octavo.tasks.word_contributions import PIECE, explain
from studio_place import client, go, make_runs, opened, served

TEXT = "the film was a warm day, not a sad one"
EXAMPLES = "good\ta fine warm day\nbad\tcold and grim\ngood\tthe dull cat\nbad\tso sad\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_runs(tmp_path_factory.mktemp("runs"), "moods", "averaged", "kn")
    shutil.copytree(root / "moods", root / "old")
    config = json.loads((root / "old" / "config.json").read_text())
    del config["result"]["curve"]  # as runs had it before
    (root / "old" / "config.json").write_text(json.dumps(config))
    return root


@pytest.fixture(scope="module")
def asks(runs: Path) -> TestClient:
    return client(runs)


@pytest.fixture(scope="module")
def made(runs: Path) -> Classifier:
    return Classifier.load(runs / "averaged")


def test_probabilities_are_the_classifiers_own(asks: TestClient, made: Classifier) -> None:
    reply = asks.post("/api/classify", json={"run": "averaged", "text": TEXT}).json()["classes"]
    p_C = made.probabilities([TEXT])[0].tolist()
    assert reply == [list(one) for one in sorted(zip(made.classes, p_C, strict=True), key=lambda pair: -pair[1])]


def test_words_are_explained_as_the_lens_does(asks: TestClient, made: Classifier) -> None:
    reply = asks.post("/api/classify/words", json={"run": "averaged", "text": TEXT}).json()
    [one] = explain(made, [TEXT], [None])
    assert (reply["words"], reply["answer"], reply["verdict"]) == (one.words, one.answer, one.verdict())
    assert reply["contributions"] == pytest.approx(one.contributions)
    assert reply["confidence"] == pytest.approx(float(made.probabilities([TEXT]).max()), abs=1e-6)


def test_a_long_text_is_explained_in_turns_and_each_word_by_leaving_it_out(made: Classifier) -> None:
    turns = []

    @contextmanager
    def turn() -> Iterator[None]:
        turns.append(1)
        yield

    words = ["warm", "cold", "day"] * PIECE
    [one] = explain(made, [" ".join(words)], [None], turn=turn)
    assert len(turns) == -(-(1 + len(words) + len(one.shuffled)) // PIECE)
    answer = made.classes.index(one.answer)
    for i in (0, 1, len(words) - 1):
        p = made.probabilities([" ".join(words), " ".join(words[:i] + words[i + 1 :])]).double()[:, answer]
        odds = (p / (1 - p)).log()
        assert one.contributions[i] == pytest.approx(float(odds[0] - odds[1]), abs=1e-4)


def test_the_curve_is_saved_by_training_and_is_that_of_the_examples_held_out(asks: TestClient, runs: Path) -> None:
    made = Classifier.load(runs / "averaged")
    test = read_labelled(made.record["data"]["source"]).last_tenth()[1]
    p_NC = made.probabilities(test.texts)
    right_N = (p_NC.argmax(1) == torch.from_numpy(test.y_N)).tolist()
    wanted = coverage_curve(p_NC.max(1).values.double().tolist(), right_N)
    reply = asks.get("/api/classifier", params={"run": "averaged"}).json()
    assert reply["calibrated"]
    assert reply["temperature"] == made.temperature
    assert [pytest.approx(tuple(point)) for point in wanted] == [tuple(point) for point in reply["measured"]["curve"]]
    assert reply["measured"]["confusion"] == made.record["result"]["confusion"]


def test_what_is_not_in_the_record_is_reported_as_missing_and_no_path_of_it_is_opened(
    asks: TestClient, runs: Path, tmp_path: Path
) -> None:
    assert asks.get("/api/classifier", params={"run": "old"}).json()["measured"]["curve"] == []
    root = tmp_path / "runs"
    shutil.copytree(runs / "moods", root / "moods")
    config = json.loads((root / "moods" / "config.json").read_text())
    config["result"] = {"accuracy": "much", "curve": [[3, 1, 1]]}
    config["data"]["source"] = [str(tmp_path / "not there.tsv")]
    (root / "moods" / "config.json").write_text(json.dumps(config))
    other = client(root)
    assert other.get("/api/classifier", params={"run": "moods"}).json()["measured"] is None
    assert other.post("/api/classify/words", json={"run": "moods", "text": "a warm day"}).status_code == 200


def test_examples_of_ones_own_are_measured(asks: TestClient, made: Classifier) -> None:
    reply = asks.post("/api/classify/measure", json={"run": "averaged", "examples": EXAMPLES}).json()
    data = Labelled.of(
        ["a fine warm day", "cold and grim", "the dull cat", "so sad"], ["good", "bad"] * 2, made.classes
    )
    wanted = classified(made.probabilities(data.texts), torch.from_numpy(data.y_N), made.classes)
    assert reply == json.loads(json.dumps(wanted.to_json()))


@pytest.mark.parametrize(
    ("examples", "status", "why"),
    [
        ("", 400, "no examples"),
        ("good warm\n", 400, "line 1 of the examples must be label<TAB>text"),
        ("fair\twarm\n", 400, "among those learnt"),
        ("good\t\n" * 20_001, 400, "at most 20,000 examples"),
        ("good\t" + "x" * (1 << 20), 422, "at most 1,048,576 characters"),
    ],
)
def test_examples_that_cannot_be_measured_are_refused(asks: TestClient, examples: str, status: int, why: str) -> None:
    answer = asks.post("/api/classify/measure", json={"run": "moods", "examples": examples})
    assert answer.status_code == status
    assert why in answer.json()["error"]


def test_fasttext_lines_and_a_byte_order_mark_are_read() -> None:
    found = labelled_in("\ufeff__label__b two\n__label__a one\n", ["a", "b"], 10)
    assert (found.texts, found.y_N.tolist()) == (["two", "one"], [1, 0])
    with pytest.raises(UserError, match="there are no examples"):
        labelled_in(" \n", ["a", "b"], 10)


@pytest.mark.parametrize("path", ["/api/classify", "/api/classify/words"])
@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"run": "kn", "text": "a"}, 400),
        ({"run": "../moods", "text": "a"}, 404),
        ({"run": "moods", "text": "a" * 10_001}, 422),
        ({"run": "moods", "text": 3}, 422),
        ({"run": "moods", "text": "a", "file": "b"}, 422),
        ({"run": "moods", "text": ""}, 200),
        ({"run": "moods", "text": "\u0000 \u202e <b>"}, 200),
    ],
)
def test_what_is_asked_is_checked(asks: TestClient, path: str, asked: dict[str, Any], status: int) -> None:
    assert asks.post(path, json=asked).status_code == status


def test_a_language_model_is_no_classifier(asks: TestClient) -> None:
    assert asks.get("/api/classifier", params={"run": "kn"}).status_code == 400
    assert asks.get("/api/classifier", params={"run": "nowhere"}).status_code == 404


def test_the_operating_point_is_the_last_that_is_sure_enough() -> None:
    curve = coverage_curve([0.9, 0.8, 0.8, 0.3], [True, False, True, False])
    assert at_threshold(curve, 0.8) == (0.8, 0.75, pytest.approx(2 / 3))
    assert at_threshold(curve, 0.81) == (0.9, 0.25, 1.0)
    assert at_threshold(curve, 0.0) == (0.3, 1.0, 0.5)
    assert at_threshold(curve, 0.95) is None


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Any]:
    with served(runs) as address, opened(address) as page:
        page.address = address
        yield page


@pytest.mark.browser
def test_words_are_coloured_and_below_the_threshold_it_abstains(page: Any, made: Classifier) -> None:
    go(page, "classify?run=averaged")
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.wait_for_selector(".words sub")
    [one] = explain(made, [TEXT], [None])
    assert page.locator(".words").nth(1).locator("mark").all_inner_texts() == one.words
    assert f"{one.answer}," in page.inner_text(".verdict")
    slider = page.get_by_label("Least confidence")
    assert page.locator(".marked").count() == 1
    slider.focus()
    slider.press("End")
    page.wait_for_selector("text=It abstains")
    assert "At a confidence of 100 % or more it answers" in page.inner_text(".operating-point")
    assert "threshold=1" in page.url


@pytest.mark.browser
def test_the_address_gives_the_same_view_again(page: Any) -> None:
    go(page, "classify?run=averaged&text=so+sad&threshold=0.6")
    page.wait_for_selector(".verdict")
    assert page.get_by_label("Text", exact=True).input_value() == "so sad"
    assert page.get_by_label("Least confidence").input_value() == "0.6"
    page.wait_for_selector("text=At a confidence of 60 % or more")


@pytest.mark.browser
def test_a_run_without_a_curve_is_measured_on_what_is_pasted(page: Any, runs: Path) -> None:
    go(page, "classify?run=old")
    page.wait_for_selector("text=This run has no curve")
    page.get_by_label("Examples, a line each: label, tab, text").fill(EXAMPLES)
    page.get_by_role("button", name="Evaluate").click()
    page.wait_for_selector("text=of 4 examples that you gave")
    page.wait_for_selector(".operating-point >> text=of the 4 examples")
    before = page.inner_text(".operating-point")
    page.locator("svg.chart").focus()
    for key in ("ArrowRight", "Enter"):  # the first point: the surest alone
        page.keyboard.press(key)
    assert page.inner_text(".operating-point") != before
    page.set_input_files("input[type=file]", files=[{"name": "a.tsv", "mimeType": "text/plain", "buffer": b"bad\tx"}])
    page.wait_for_function("() => document.querySelector('.fold textarea').value === 'bad\\tx'")
