"""The estimator is one of scikit-learn's, as far as text allows."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_no_attributes_set_in_init, estimator_checks_generator
from sklearn.utils.validation import check_is_fitted, validate_data

from octavo.tasks.sklearn import TextClassifier

TEXTS = [f"{'fine' if n % 2 else 'dull'} film number {n}" for n in range(40)]
LABELS = [n % 2 for n in range(40)]


class OfNumbers(TextClassifier):
    """The estimator behind a table of numbers, which is what scikit-learn's checks are made of: a row becomes a text,
    a word for each of its numbers. Everything else is the estimator's own.
    """

    def fit(self, X: Any, y: Any) -> TextClassifier:
        return super().fit(rows_as_texts(validate_data(self, X)), y)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        return super().predict_proba(rows_as_texts(validate_data(self, X, reset=False)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = False, True, False
        return tags


def rows_as_texts(x_NF: NDArray[Any]) -> list[str]:
    return [" ".join(f"{place}:{round(2 * value)}" for place, value in enumerate(row)) for row in x_NF.tolist()]


def scikit_learns_checks() -> list[Any]:
    every = [check for _, check in estimator_checks_generator(OfNumbers())]
    # Arrays of other libraries than numpy are checked only where SCIPY_ARRAY_API is set; texts come in none of them.
    return [check for check in every if check.func.__name__ != "check_array_api_input"]


@pytest.mark.parametrize("check", scikit_learns_checks(), ids=lambda check: check.func.__name__)
@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::RuntimeWarning"
)  # of the checks: they try what is odd
def test_scikit_learns_own_checks_pass(check: Any) -> None:
    check(OfNumbers())


def test_the_checks_are_all_that_scikit_learn_has_for_a_classifier() -> None:
    assert len(scikit_learns_checks()) > 50
    tags = TextClassifier().__sklearn_tags__().input_tags
    assert (tags.string, tags.one_d_array, tags.two_d_array) == (True, True, False)


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
