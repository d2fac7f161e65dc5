"""octavo's text classifiers as a scikit-learn estimator: pipelines, grid search, cross-validation, clone.

N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.datasets.labels import Labelled
from octavo.tasks.classification import TASK, fit_classifier
from octavo.tasks.classifier import Classifier

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError("octavo.tasks.sklearn needs scikit-learn: pip install 'octavo[sklearn]'") from error


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Sorts texts into classes.

    X is a list, array or column of strings. `save` and `load` write and read a folder without a pickle in it.
    """

    def __init__(
        self, model: str = "linear", *, ngrams: int | None = None, penalty: float = 0.1, vectors: str = "",
        layers: int = 2, epochs: int = 10, balance: bool = False, calibrate: bool = True, random_state: Any = 0,
    ) -> None:  # fmt: skip
        self.model = model
        self.ngrams = ngrams
        self.penalty = penalty
        self.vectors = vectors
        self.layers = layers
        self.epochs = epochs
        self.balance = balance
        self.calibrate = calibrate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> TextClassifier:
        """Learn from texts and their classes."""
        texts = texts_of(X)
        if y is None:
            raise ValueError("TextClassifier requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if len(labels) != len(texts):
            raise ValueError(f"Found input variables with inconsistent numbers of samples: {len(texts)}, {len(labels)}")
        self.classes_, y_N = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier needs at least two classes: y has {len(self.classes_)} class")
        names = [str(value) for value in self.classes_.tolist()]
        known = {field.name for config in TASK.configs(self.model)[1].values() for field in fields(config)}
        settings = {name: value for name, value in self.get_params().items() if name in known and value is not None}
        recipe = TASK.recipe(self.model, settings, self._seed())
        self.classifier_ = fit_classifier(recipe, Labelled(texts, y_N.astype(np.int64), names))
        return self

    def _seed(self) -> int:
        """As scikit-learn has it: None is by chance, and a generator gives its next number."""
        fixed = isinstance(self.random_state, int | np.integer)
        return int(self.random_state if fixed else check_random_state(self.random_state).randint(2**31 - 1))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """p_NC, the classes in the order of `classes_`."""
        check_is_fitted(self)
        p_NC: NDArray[np.float64] = self.classifier_.logits(texts_of(X)).double().softmax(1).numpy()
        return p_NC

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each text."""
        p_NC = self.predict_proba(X)  # which refuses to answer before `fit`
        chosen: NDArray[Any] = self.classes_[p_NC.argmax(1)]
        return chosen

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier as a folder, which octavo classify reads too."""
        check_is_fitted(self)
        seed = int(self.random_state) if isinstance(self.random_state, int | np.integer) else None
        params = self.get_params() | {"random_state": seed}  # a generator is no JSON
        self.classifier_.record["sklearn"] = {"params": params, "classes": self.classes_.tolist()}
        self.classifier_.save(path)

    @classmethod
    def load(cls, path: str | Path) -> TextClassifier:
        """A saved one, or any classifier that octavo classify train made; then its classes are strings."""
        made = Classifier.load(path)
        saved = made.record.get("sklearn", {})
        loaded = cls(**saved.get("params", {"model": made.model_name}))
        loaded.classifier_, loaded.classes_ = made, np.array(saved.get("classes", made.classes))
        if len(loaded.classes_) != len(made.classes):
            raise ValueError(f"{path} is damaged: {len(loaded.classes_)} classes, the model has {len(made.classes)}")
        return loaded

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        return tags


def texts_of(X: Any) -> list[str]:
    """The texts of a list, an array or a column; anything else is refused."""
    if isinstance(X, str):
        raise ValueError("X must be many texts: got one string; put it into a list")
    found: Sequence[Any] = X.tolist() if hasattr(X, "tolist") else list(X)
    if not found:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    if wrong := [type(one).__name__ for one in found if not isinstance(one, str)]:
        raise ValueError(f"X must be strings, one for each example: got {wrong[0]}")
    return list(found)
