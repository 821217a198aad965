"""A classifier that answers with sets of labels whose coverage is close across groups, without groups to predict."""

import functools
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.validation import check_is_fitted

from cfhelpers import conformal, control, scores
from cfhelpers._checks import as_array, as_probabilities, one_of, plain
from cfhelpers.fairness import FairnessMetric, get_metric

FIT, PREDICT = 0, 1  # purposes of random numbers
SCORES = {"tps": scores.tps, "aps": scores.aps, "raps": scores.raps}


class InfeasibleWarning(UserWarning):
    """No finite threshold is fair enough on this calibration set."""


class FairConformalClassifier(BaseEstimator):
    """Prediction sets from any classifier with predict_proba, or from probabilities, made fair on a calibration set.

    estimator: already fitted, kept as it is; None: `fit` and `predict_set` take probabilities (n, K) in place of X.
    score: "tps", "aps", "raps", or a callable (probabilities, u) -> scores (n, K).
    metric, closeness, alpha, classwise, guarantee, delta, positive_labels, grid: as in `control.find_threshold`;
    positive labels are given as the classifier's own labels.
    random_state: seed for the randomised scores. With a seed, the same X gets the same sets each time.

    After `fit`: `classes_`, `result_` (a control.FairThreshold), `threshold_` (K,) and `summary_`, a table per label.
    """

    def __init__(
        self,
        estimator: Any = None,
        score: str | Callable = "aps",
        metric: str | FairnessMetric = "equal_opportunity",
        closeness: float | None = None,
        alpha: float = 0.1,
        classwise: bool = True,
        guarantee: str = "fixed-sequence",
        delta: float = 0.1,
        positive_labels: Any = None,
        random_state: Any = None,
        grid: Any = None,
    ) -> None:
        self.estimator = estimator
        self.score = score
        self.metric = metric
        self.closeness = closeness
        self.alpha = alpha
        self.classwise = classwise
        self.guarantee = guarantee
        self.delta = delta
        self.positive_labels = positive_labels
        self.random_state = random_state
        self.grid = grid

    @property
    def estimator(self) -> Any:
        return self._estimator

    @estimator.setter
    def estimator(self, value: Any) -> None:
        """Frozen, so that cloning keeps it fitted."""
        self._estimator = (
            value
            if value is None or isinstance(value, FrozenEstimator)
            else FrozenEstimator(value)
        )

    def fit(self, X: Any, y: Any, groups: Any = None) -> "FairConformalClassifier":
        """Find the thresholds on calibration data that did not train the estimator: X or probabilities, y, groups."""
        if groups is None:
            raise ValueError(
                "groups: found None; wanted one group for each calibration point (predict_set needs none)"
            )
        probs = self._probabilities(X)
        self.classes_ = self._classes(X, y, probs.shape[1])
        y = self._indices(y, "y")
        positive = (
            None
            if self.positive_labels is None
            else self._indices(np.atleast_1d(self.positive_labels), "positive_labels")
        )
        self._stream = _stream_of(self.random_state)
        self.result_ = control.find_threshold(
            self._score(probs, _generator(self._stream, FIT)),
            y,
            groups,
            self.metric,
            self.closeness,
            alpha=self.alpha,
            classwise=self.classwise,
            positive_labels=positive,
            guarantee=self.guarantee,
            delta=self.delta,
            grid=self._grid(probs.shape[1]),
        )
        self.threshold_ = self.result_.threshold
        self.summary_ = self._summary(y)
        if not self.result_.feasible:
            advice = ", or guarantee='none', the paper's rule, which promises nothing about one calibration"
            warnings.warn(
                f"{self.result_}. Labels with an infinite threshold are in every set. Use a larger calibration set, a "
                f"closeness that can be reached{advice if self.guarantee != 'none' else ''}.",
                InfeasibleWarning,
                stacklevel=2,
            )
        return self

    def predict_set(self, X: Any) -> np.ndarray:
        """The prediction sets, boolean (n, K), columns in the order of `classes_`."""
        check_is_fitted(self, "threshold_")
        probs = self._probabilities(X)
        if probs.shape[1] != len(self.classes_):
            raise ValueError(
                f"probabilities: found {probs.shape[1]} columns; wanted {len(self.classes_)}, as in fit"
            )
        content = zlib.crc32(
            np.ascontiguousarray(probs).view(np.uint8).data
        )  # other points get other random numbers
        return conformal.prediction_sets(
            self._score(probs, _generator(self._stream, PREDICT, content)),
            self.threshold_,
        )

    def predict(self, X: Any) -> np.ndarray:
        """The most likely label of each point, without its set."""
        check_is_fitted(self, "threshold_")
        return self.classes_[self._probabilities(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities that the sets are made from."""
        return self._probabilities(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags

    def _probabilities(self, X: Any) -> np.ndarray:
        return as_probabilities(
            X if self.estimator is None else self.estimator.predict_proba(X)
        )

    def _classes(self, X: Any, y: Any, n_classes: int) -> np.ndarray:
        """The estimator's labels; for probabilities the column names where the labels are among them, else 0..K-1."""
        if self.estimator is not None:
            return np.asarray(self.estimator.classes_)
        if isinstance(X, pd.DataFrame) and pd.Series(as_array(y)).isin(X.columns).all():
            return X.columns.to_numpy()
        return np.arange(n_classes)

    def _indices(self, labels: Any, name: str) -> np.ndarray:
        labels = as_array(labels)
        index = pd.Index(self.classes_).get_indexer(labels.ravel())
        if (index < 0).any():
            row = int((index < 0).argmax())
            found = plain(labels.ravel()[row])
            raise ValueError(
                f"{name}: found {found!r} in row {row}; wanted labels among {self.classes_.tolist()}"
            )
        return index

    def _score(self, probs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if callable(self.score):
            return self.score(probs, rng.random(len(probs)))
        one_of(self.score, "score", tuple(SCORES))
        return (
            scores.tps(probs)
            if self.score == "tps"
            else SCORES[self.score](probs, rng.random(len(probs)))
        )

    def _grid(self, n_classes: int) -> Any:
        """RAPS reaches above 1, by an amount that is known beforehand."""
        options = self.score.keywords if isinstance(self.score, functools.partial) else {}
        function = (
            self.score.func
            if isinstance(self.score, functools.partial)
            else SCORES.get(self.score, self.score)
        )
        if (
            self.grid is not None
            or self.guarantee == "none"
            or function is not scores.raps
        ):
            return self.grid
        return np.linspace(0, scores.raps_maximum(n_classes, **options), 10_001)

    def _summary(self, y: np.ndarray) -> pd.DataFrame:
        result = self.result_
        return pd.DataFrame(
            {
                "calibration points": np.bincount(y, minlength=len(self.classes_)),
                "base threshold": result.base_threshold,
                "threshold": result.threshold,
                "ratio" if get_metric(self.metric).is_ratio else "gap": result.bound,
            },
            index=pd.Index(self.classes_, name="label"),
        )


def _stream_of(random_state: Any) -> list[int]:
    """Seeds of the random numbers."""
    if random_state is None:
        return np.random.SeedSequence().generate_state(4).tolist()
    if isinstance(random_state, np.random.Generator):
        return random_state.integers(2**32, size=4).tolist()
    if isinstance(random_state, np.random.RandomState):
        return random_state.randint(2**32, size=4, dtype=np.uint64).tolist()
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return [int(random_state)]
    raise ValueError(
        f"random_state: found {random_state!r}; wanted None, an integer from 0, or a NumPy generator"
    )


def _generator(stream: list[int], *purpose: int) -> np.random.Generator:
    """A generator for one purpose, apart from every other and from the user's own with the same seed."""
    return np.random.default_rng(np.random.SeedSequence(stream, spawn_key=purpose))
