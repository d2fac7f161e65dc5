"""The estimator is one of scikit-learn's, as far as text allows."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from octavo.tasks.sklearn import TextClassifier

TEXTS = [f"{'fine' if n % 2 else 'dull'} film number {n}" for n in range(40)]
LABELS = [n % 2 for n in range(40)]


def test_scikit_learns_own_checks_pass_as_far_as_they_go_for_text() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which says that most of them need numbers
        checks = check_estimator(TextClassifier(), on_fail=None)
    assert checks
    assert [one["check_name"] for one in checks if one["status"] == "failed"] == []


@pytest.mark.parametrize(
    "check",
    [
        check_get_params_invariance,
        check_set_params,
        check_no_attributes_set_in_init,
        check_parameters_default_constructible,
    ],
)
def test_parameters_are_handled_as_scikit_learn_asks(check: object) -> None:
    check("TextClassifier", TextClassifier())  # type: ignore[operator]


def test_a_check_that_must_fail_does() -> None:
    class Bad(TextClassifier):
        def __init__(self, model: str = "linear") -> None:
            self.model, self.extra = model, 1

    with pytest.raises(AssertionError):
        check_no_attributes_set_in_init("Bad", Bad())


@pytest.mark.parametrize("labels", [LABELS, [f"class {n}" for n in LABELS], [bool(n) for n in LABELS]])
def test_labels_of_any_kind_come_back_as_they_were(labels: list[object]) -> None:
    made = TextClassifier().fit(TEXTS, labels)
    assert made.predict(TEXTS).tolist() == labels
    p = made.predict_proba(np.array(TEXTS))
    assert p.shape == (40, 2)
    assert np.allclose(p.sum(1), 1)
    assert made.classes_.tolist() == sorted(set(labels))  # type: ignore[type-var]
    assert made.score(TEXTS, labels) == 1.0


def test_it_works_in_pipelines_grid_search_and_cross_validation() -> None:
    assert is_classifier(TextClassifier())
    upper = FunctionTransformer(lambda texts: [text.upper() for text in texts])
    search = GridSearchCV(make_pipeline(upper, TextClassifier()), {"textclassifier__ngrams": [1, 2]}, cv=2)
    search.fit(TEXTS, LABELS)
    assert search.best_score_ == 1.0
    assert cross_val_score(TextClassifier(), TEXTS, LABELS, cv=2).tolist() == [1.0, 1.0]


def test_a_clone_is_not_fitted_and_has_the_same_settings() -> None:
    made = TextClassifier(ngrams=3, balance=True).fit(TEXTS, LABELS)
    copy = clone(made)
    assert copy.get_params() == made.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(TEXTS)


def test_it_is_saved_without_a_pickle_and_also_survives_one(tmp_path: Path) -> None:
    made = TextClassifier().fit(TEXTS, LABELS)
    made.save(tmp_path / "run")
    again = TextClassifier.load(tmp_path / "run")
    assert np.array_equal(again.predict_proba(TEXTS), made.predict_proba(TEXTS))
    assert again.predict(TEXTS).tolist() == LABELS
    assert again.get_params() == made.get_params()
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["task"] == "classification"
    copied = pickle.loads(pickle.dumps(made))  # as scikit-learn's parallel jobs do
    assert np.array_equal(copied.predict_proba(TEXTS), made.predict_proba(TEXTS))


@pytest.mark.parametrize(
    ("texts", "labels", "says"),
    [
        ("one string", [1], "put it into a list"),
        ([1, 2], [0, 1], "X must be strings"),
        ([], [], "0 sample"),
        (["a", "b"], [1], "inconsistent numbers"),
        (["a", "b"], [1, 1], "at least two classes"),
        (["a", "b"], None, "requires y"),
        (["a", "b"], [0.1, 0.7], "Unknown label type"),
    ],
)
def test_wrong_input_is_refused_with_a_reason(texts: object, labels: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TextClassifier().fit(texts, labels)


def test_few_examples_are_enough_where_nothing_can_be_held_out() -> None:
    assert TextClassifier().fit(["good", "bad"], ["x", "y"]).predict(["good"]).tolist() == ["x"]


def test_the_deep_averaging_network_is_one_too() -> None:
    made = TextClassifier("dan", epochs=15).fit(TEXTS, LABELS)
    assert made.score(TEXTS, LABELS) == 1.0


@pytest.mark.parametrize("seed", [None, np.random.RandomState(3), np.int64(5)])
def test_random_state_is_what_scikit_learn_takes(seed: object, tmp_path: Path) -> None:
    made = TextClassifier("dan", epochs=1, random_state=seed).fit(TEXTS, LABELS)
    made.save(tmp_path / "run")
    again = TextClassifier.load(tmp_path / "run")
    assert again.random_state == (5 if isinstance(seed, np.int64) else None)
    assert np.array_equal(again.predict_proba(TEXTS), made.predict_proba(TEXTS))
