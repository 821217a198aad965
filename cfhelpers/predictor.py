"""A classifier that answers with sets of labels whose coverage is close across groups.

Groups are needed to calibrate it, and not to predict.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from cfhelpers import __version__, conformal, control, fairness, mondrian, scores
from cfhelpers._checks import (
    as_array,
    as_flag,
    as_float_column,
    as_pandas,
    as_probabilities,
    one_of,
    plain,
)
from cfhelpers._written import (
    check_written,
    json_labels,
    json_number,
    json_thresholds,
    json_values,
    names_from_json,
    thresholds_from_json,
)
from cfhelpers.control import FairThreshold, Guarantee
from cfhelpers.fairness import FairnessMetric, get_metric
from cfhelpers.groups import Groups, as_groups
from cfhelpers.weights import Weighting, use_weights

# What `to_dict` writes and `from_dict` needs.
WRITTEN = (
    "takes",
    "conformity_score",
    "randomized",
    "seed",
    "ids",
    "classes",
    "columns",
    "n_features",
    "feature_names",
    "threshold",
    "base_threshold",
    "classwise",
    "small_groups",
    "promise",
)
SCORES: dict[str, Callable] = {
    "tps": scores.tps,
    "aps": scores.aps,
    "raps": scores.raps,
}
SMALL_GROUPS = ("keep", "pool", "leave out")
WITHOUT_GROUPS = (
    "groups: found None; wanted one group for each calibration point (predicting needs "
    "none). GridSearchCV and Pipeline pass them on after "
    "sklearn.set_config(enable_metadata_routing=True) and "
    ".set_fit_request(groups=True) on this classifier or regressor"
)
OUTCOME = "the outcome"  # what intervals cover, where sets cover labels
DIGITS = 6  # of probabilities, where they tell people apart: the last bits do not matter
SEEDS = 2**53  # so that a seed survives JSON in any language
# The last bits of a model's output depend on the batch. A threshold that is itself a
# calibration score must not exclude the very person it came from for that.
SLACK = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-6}


class InfeasibleWarning(UserWarning):
    """No finite threshold is fair enough on this calibration set."""


class SmallGroupsWarning(UserWarning):
    """The promise is for other groups than those that were given."""


@dataclass(frozen=True)
class Promise:
    """What a fitted classifier promises, and to whom. `str()` says it in a sentence.

    Attributes
    ----------
    metric, closeness, guarantee, delta, alpha
        As in the classifier.
    labels : list
        The labels whose coverage is compared between groups.
    groups : list
        The groups that are compared: those that occur in the calibration set, and
        declared ones.
    pooled, left_out : lists
        Small groups that became one, or that nothing is promised about.
    weighting : str
        What became of weights, where there were any. The promise is then about the
        population that they describe.
    per_group : bool
        Whether every group has thresholds of its own, which ask for a person's group.
    """

    metric: str
    closeness: float
    guarantee: str
    delta: float
    alpha: float
    labels: list[Any]
    groups: list[Any]
    pooled: list[Any] = field(default_factory=list)
    left_out: list[Any] = field(default_factory=list)
    weighting: str = ""
    per_group: bool = False

    def __str__(self) -> str:
        if self.per_group:
            covered = OUTCOME if self.labels == [OUTCOME] else "every label"
            return self._with_weighting(
                f"{covered} covered with probability at least {1 - self.alpha:g} in "
                f"each of the groups {listed(self.groups)}; asks for the group at "
                "prediction (Mondrian, group-conditional)"
            )
        about = f"{self.metric} within {self.closeness:g} for the groups "
        about += listed(self.groups)
        if self.guarantee == Guarantee.NONE:
            text = f"{about}: on the calibration data, without a guarantee"
        else:
            text = f"{about}, with probability at least {1 - self.delta:g} over the "
            text += "calibration set"
        if self.pooled:
            text += f"; small groups, pooled: {listed(self.pooled)}"
        if self.left_out:
            text += f"; small groups, left out: {listed(self.left_out)}"
        return self._with_weighting(text)

    def _with_weighting(self, text: str) -> str:
        """The sentence, and what became of the weights."""
        if not self.weighting:
            return text
        return f"{text}; {self.weighting}"


class KeepsEstimator(BaseEstimator):
    """An estimator around another that is fitted already, and stays so when cloned."""

    estimator: Any
    _without_estimator = "probabilities"  # what stands for X where there is none

    def __sklearn_clone__(self) -> Any:
        """The same parameters, nothing learnt; the estimator stays fitted."""
        parameters = self.get_params(deep=False)
        estimator = parameters.pop("estimator")
        copies = {name: clone(value, safe=False) for name, value in parameters.items()}
        copy = type(self)(estimator=estimator, **copies)
        if hasattr(self, "_metadata_request"):  # what metadata routing was asked for
            copy._metadata_request = deepcopy(self._metadata_request)
        return copy

    @classmethod
    def _written_promise(cls, fitted: Any, written: tuple[str, ...]) -> Promise:
        """The promise in what `to_dict` wrote, which must be whole."""
        check_written(fitted, cls.__name__, written)
        return promise_from_json(fitted["promise"])

    def _check_takes(self, fitted: dict[str, Any]) -> None:
        """Refuse an estimator where `fit` had none, and none where it had one."""
        if self._takes() == fitted["takes"]:
            return
        wanted = "None"
        if self.estimator is None:
            wanted = "its estimator"
        raise ValueError(
            f"estimator: found {self.estimator!r}; {type(self).__name__} was fitted on "
            f"{fitted['takes']}, so wanted {wanted}"
        )

    def _takes(self) -> str:
        """What stands for X."""
        if self.estimator is None:
            return self._without_estimator
        return "features"


class FairConformalClassifier(ClassifierMixin, KeepsEstimator):
    """Prediction sets from any fitted classifier, made fair on a calibration set.

    A person's set depends on that person alone: it is the same in any batch and in any
    order. Randomised scores draw their number from the person's id, or from the content
    of the row where there are no ids (`scores.person_u`).

    Parameters
    ----------
    estimator : fitted classifier with predict_proba, optional
        Kept as it is. Without one, `fit` and `predict_set` take probabilities (n, K) in
        place of X; columns of a data frame are matched by name.
    conformity_score : "tps", "aps", "raps", or callable (probabilities, u) -> scores
        A callable must score every row by itself.
    metric, closeness, alpha, classwise, guarantee, delta
        As in `control.find_threshold`.
    positive_labels : labels, optional
        Those whose coverage must be fair. By default all but the first where labels are
        0..K-1, and all of them where they have names.
    small_groups : "keep", "pool" or "leave out"
        What to do with groups that have a cell with fewer points than any finite
        threshold needs. Only sizes decide. "pool" makes one group of them; "leave out"
        promises nothing about them. Where all groups are small they are kept.
    randomized : bool
        False: scores without a random number, u = None.
    random_state : int or NumPy generator, optional
        The seed of the random numbers. By default `fit` draws one and keeps it.
    grid : thresholds, optional
        As in `control.find_threshold`; for RAPS its whole range by default.
    per_group : bool
        The Mondrian baseline, also called group-conditional conformal prediction: one
        threshold per group and label. Every cell is then covered on its own, at the
        price that `predict_set` asks for everyone's group. `summary_` has the fair
        predictor, which asks for none, beside it.

    Attributes
    ----------
    classes_ : (K,)
        Labels, in the order of the columns of the sets.
    result_ : control.FairThreshold
        What the search found, with cells named by your labels.
    threshold_ : float64 (K,), or (G, K) with `per_group`
    promise_ : Promise
        The groups and labels that the promise is for.
    summary_ : DataFrame
        A row per label. With `per_group` a row per predictor: this one, the fair one
        without groups, and one threshold for everyone, on the calibration data.
    weighting_ : weights.Weighting or None
        What became of `sample_weight`: points kept, and the cost.
    seed_ : int

    Examples
    --------
    >>> from cfhelpers.datasets.populations import two_groups
    >>> probs, y, groups = two_groups().draw(4000, np.random.default_rng(0))
    >>> fair = FairConformalClassifier(closeness=0.2).fit(probs, y, groups)
    >>> fair.predict_set(probs).shape
    (4000, 3)
    >>> fair.promise_.groups
    ['A', 'B']
    """

    def __init__(
        self,
        estimator: Any = None,
        conformity_score: str | Callable = "tps",
        metric: str | FairnessMetric = "equal_opportunity",
        closeness: float | None = None,
        alpha: float = 0.1,
        classwise: bool = True,
        guarantee: str = "fixed-sequence",
        delta: float = 0.1,
        positive_labels: ArrayLike | None = None,
        small_groups: str = "keep",
        randomized: bool = True,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        grid: ArrayLike | None = None,
        per_group: bool = False,
    ) -> None:
        self.estimator = estimator
        self.conformity_score = conformity_score
        self.metric = metric
        self.closeness = closeness
        self.alpha = alpha
        self.classwise = classwise
        self.guarantee = guarantee
        self.delta = delta
        self.positive_labels = positive_labels
        self.small_groups = small_groups
        self.randomized = randomized
        self.random_state = random_state
        self.grid = grid
        self.per_group = per_group

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        groups: Any = None,
        ids: ArrayLike | None = None,
        unlabelled: tuple[Any, ...] | None = None,
        sample_weight: ArrayLike | None = None,
        weight_bound: float | None = None,
    ) -> FairConformalClassifier:
        """Find the thresholds on calibration data that did not train the estimator.

        Parameters
        ----------
        X : features, or probabilities (n, K) where there is no estimator
        y : labels (n,)
        groups : (n,), or several columns
            Unused categories of a categorical column are declared groups. A boolean
            table (n, G) has groups that may overlap; people in none count for q̂ alone.
        ids : (n,), optional
            Who each row is. Given here, they must be given to `predict_set` too.
        unlabelled : (X, groups), or (X, groups, ids) where ids are given, optional
            More people from the same population, for demographic parity and disparate
            impact, which need no labels. They are not among the calibration points.
        sample_weight : (n,), optional
            Survey weights, or those of a known shift; see `control.find_threshold`. The
            promise is then about the population that they describe. New people need no
            weights.
        weight_bound : float, optional
            The largest weight that anyone can have, declared beforehand. Needed with a
            guarantee and with `per_group`, for the thinning.

        Returns
        -------
        FairConformalClassifier
            Itself.
        """
        if groups is None:
            raise ValueError(WITHOUT_GROUPS)
        self._check_options()
        probs = self._learn_columns(X, y)
        self.seed_ = seed_of(self.random_state)
        self.has_ids_ = ids is not None
        labels = self._codes_of(y, "y")
        if len(labels) != len(probs):
            raise ValueError(
                f"y: found {len(labels)} labels for {len(probs)} points; wanted one each"
            )
        if ids is not None:
            ids = _checked_ids(ids, len(probs))
        people = as_groups(groups, len(probs))
        more = None
        if unlabelled is not None:
            more = self._unlabelled(unlabelled, ids)
        table = self._on_grid(self._scores(X, probs, ids))
        task = self._task(table, labels, people, more)
        self.weighting_: Weighting | None = None
        if sample_weight is not None or weight_bound is not None:
            self.weighting_, task, _ = task.weighted(
                sample_weight, weight_bound, self.per_group, self.seed_, ids
            )
        self._search(task)
        return self

    def _search(self, task: Task) -> None:
        """Find the thresholds, and set what was found."""
        if self.per_group:
            mondrian.check_is_partition(task.groups)
        regrouped, pooled, left_out = task.regroup(self.small_groups)
        self._remember(regrouped, pooled, left_out)
        if self.per_group:
            self._remember_groups(task, regrouped)
        else:
            served = "Labels with an infinite threshold are in every set."
            warn_about(self.promise_, self.result_, task, regrouped, served)

    def _task(
        self,
        table: np.ndarray,
        labels: np.ndarray,
        people: Groups,
        more: tuple[np.ndarray, Groups] | None,
    ) -> Task:
        """The search that the options ask for; everyone's groups have the same names."""
        return Task.of(
            table,
            labels,
            people,
            get_metric(self.metric),
            self.closeness,
            {
                "alpha": self.alpha,
                "classwise": self.classwise,
                "positive_labels": self._positive_codes(),
                "guarantee": self.guarantee,
                "delta": self.delta,
                "grid": self._grid(),
            },
            more,
        )

    def _unlabelled(
        self, unlabelled: tuple[Any, ...], ids: ArrayLike | None
    ) -> tuple[np.ndarray, Groups]:
        """Scores and groups of the people without a label."""
        wanted = "(X, groups)" if ids is None else "(X, groups, ids)"
        n_wanted = 2 if ids is None else 3
        if not isinstance(unlabelled, tuple | list) or len(unlabelled) != n_wanted:
            raise ValueError(
                f"unlabelled: found {type(unlabelled).__name__}; wanted {wanted}"
            )
        probs = self._probabilities(unlabelled[0])
        own_ids = None
        if ids is not None:
            own_ids = _checked_ids(unlabelled[2], len(probs))
            known = scores.person_u(ids, self.seed_)
            is_known = np.isin(scores.person_u(own_ids, self.seed_), known)
            if is_known.any():
                raise ValueError(
                    f"unlabelled: row {is_known.argmax()} has the id of a calibration "
                    "point; wanted other people, so that each counts once"
                )
        try:
            groups = as_groups(unlabelled[1], len(probs))
        except ValueError as error:
            raise ValueError(f"unlabelled {error}") from None
        return self._on_grid(self._scores(unlabelled[0], probs, own_ids)), groups

    def predict_set(
        self, X: Any, ids: ArrayLike | None = None, groups: Any = None
    ) -> np.ndarray:
        """The prediction sets of new people; no groups are needed.

        Parameters
        ----------
        X : features, or probabilities (n, K) where there is no estimator
        ids : (n,), optional
            If, and only if, `fit` was given ids.
        groups : (n,), optional
            If, and only if, `per_group` is set: everyone's group, one of those in `fit`.

        Returns
        -------
        bool (n, K)
            Columns in the order of `classes_`.
        """
        check_is_fitted(self, "threshold_")
        if self.has_ids_ and ids is None:
            raise ValueError("ids: found None; fit was given ids, so wanted one per row")
        if ids is not None and not self.has_ids_:
            raise ValueError("ids: found some; fit was given none, so wanted None")
        probs = self._probabilities(X)
        if ids is not None:
            ids = _checked_ids(ids, len(probs))
        table = self._scores(X, probs, ids)
        limits = self.threshold_ + SLACK[table.dtype]
        if not self.per_group:
            if groups is not None:
                raise ValueError(
                    "groups: found some; the sets do not depend on them, so wanted None "
                    "(per_group=True has thresholds for each group)"
                )
            return conformal.prediction_sets(table, limits)
        if groups is None:
            raise ValueError(
                "groups: found None; with per_group=True every group has thresholds of "
                "its own, so wanted one group for each person"
            )
        codes = mondrian.codes_of_known(groups, self.groups_, len(table))
        return mondrian.sets_by_group(table, limits, codes)

    def predict_labels(
        self, X: Any, ids: ArrayLike | None = None, groups: Any = None
    ) -> list[list[Any]]:
        """The prediction sets as lists of labels; see `predict_set`."""
        sets = self.predict_set(X, ids, groups)
        return [self.classes_[row].tolist() for row in sets]

    def predict(self, X: Any) -> np.ndarray:
        """The most likely label of each point, without its set."""
        check_is_fitted(self, "threshold_")
        return self.classes_[self._probabilities(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities that the sets are made from, in the order of `classes_`."""
        check_is_fitted(self, "threshold_")
        return self._probabilities(X)

    def to_dict(self) -> dict[str, Any]:
        """What serving sets takes, as plain JSON; the estimator is not in it.

        Returns
        -------
        dict
            For `from_dict`. An infinite threshold is the text "inf".
        """
        check_is_fitted(self, "threshold_")
        feature_names = None
        if hasattr(self, "feature_names_in_"):
            feature_names = self.feature_names_in_.tolist()
        return {
            "class": type(self).__name__,
            "version": __version__,
            "takes": self._takes(),
            "conformity_score": _score_as_dict(self.conformity_score),
            "randomized": self.randomized,
            "seed": self.seed_,
            "ids": self.has_ids_,
            "classes": json_labels(self.classes_),
            "columns": json_labels(self._columns),
            "n_features": getattr(self, "n_features_in_", None),
            "feature_names": feature_names,
            "threshold": json_thresholds(self.threshold_),
            "per_group": self.per_group,
            "groups": json_values(getattr(self, "groups_", [])),
            "base_threshold": json_number(self.base_threshold_),
            "classwise": self.classwise,
            "small_groups": self.small_groups,
            "promise": json_values(asdict(self.promise_)),
        }

    @classmethod
    def from_dict(
        cls, fitted: dict[str, Any], estimator: Any = None
    ) -> FairConformalClassifier:
        """A classifier that serves the same sets as the one that `to_dict` wrote.

        Parameters
        ----------
        fitted : dict
        estimator : fitted classifier
            The same as in `fit`, where there was one.

        Returns
        -------
        FairConformalClassifier
            Without `result_` and `summary_`.
        """
        promise = cls._written_promise(fitted, WRITTEN)
        found = cls(
            estimator=estimator,
            conformity_score=_score_from_dict(fitted["conformity_score"]),
            metric=promise.metric,
            closeness=promise.closeness,
            alpha=promise.alpha,
            classwise=fitted["classwise"],
            guarantee=promise.guarantee,
            delta=promise.delta,
            positive_labels=promise.labels,
            small_groups=fitted["small_groups"],
            randomized=fitted["randomized"],
            random_state=fitted["seed"],
            per_group=fitted.get("per_group", False),
        )
        found._check_takes(fitted)
        found._restore(fitted, promise)
        return found

    def _restore(self, fitted: dict[str, Any], promise: Promise) -> None:
        """Set what `fit` learns from what `to_dict` wrote."""
        self.promise_ = promise
        self.seed_ = fitted["seed"]
        self.has_ids_ = fitted["ids"]
        self.classes_ = _as_classes(fitted["classes"])
        own = as_array(getattr(self.estimator, "classes_", self.classes_)).tolist()
        if own != self.classes_.tolist():
            raise ValueError(
                f"estimator: found one of the classes {own}; wanted the one of fit, "
                f"whose classes are {self.classes_.tolist()}"
            )
        self._columns = fitted["columns"]
        if fitted["n_features"] is not None:
            self.n_features_in_ = fitted["n_features"]
        if fitted["feature_names"] is not None:
            self.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
        self.threshold_ = thresholds_from_json(fitted["threshold"])
        shape: tuple[int, ...] = (len(self.classes_),)
        if self.per_group:
            self.groups_ = names_from_json(fitted.get("groups", []))
            shape = (len(self.groups_), *shape)
        if self.threshold_.shape != shape or len(self._columns) != len(self.classes_):
            raise ValueError(
                f"fitted: found thresholds of shape {self.threshold_.shape}; wanted "
                f"{shape}, one for each of its classes"
            )
        self.base_threshold_ = float(thresholds_from_json(fitted["base_threshold"]))

    def __sklearn_tags__(self) -> Tags:
        """Sparse features are for the estimator to take or to refuse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.estimator is not None
        return tags

    def _check_options(self) -> None:
        """Options that nothing below checks."""
        metric = get_metric(self.metric)
        as_flag(self.classwise, "classwise")
        as_flag(self.randomized, "randomized")
        as_flag(self.per_group, "per_group")
        one_of(self.small_groups, "small_groups", SMALL_GROUPS)
        _score_parts(self.conformity_score)
        metric.allowed(self.closeness, stacklevel=4)

    def _learn_columns(self, X: Any, y: ArrayLike) -> np.ndarray:
        """The probabilities of the calibration points; learns what columns are called."""
        if self.estimator is not None:
            validate_data(self, X, reset=True, skip_check_array=True)
            probs = self._estimated(X)
            self._columns = list(range(probs.shape[1]))
            found = getattr(self.estimator, "classes_", self._columns)
            self.classes_ = np.asarray(found)
            if self.classes_.shape != (probs.shape[1],):
                raise ValueError(
                    f"estimator: found {probs.shape[1]} columns of probabilities for the "
                    f"classes {self.classes_.tolist()}; wanted one for each"
                )
            return probs
        table = as_pandas(X)
        probs = as_probabilities(table)
        self.n_features_in_ = probs.shape[1]
        self._columns = list(range(probs.shape[1]))
        self.__dict__.pop("feature_names_in_", None)
        if isinstance(table, pd.DataFrame):
            self._columns = _unique_names(table)
            if all(isinstance(name, str) for name in self._columns):
                self.feature_names_in_ = np.array(self._columns, dtype=object)
        self.classes_ = _classes_of(self._columns, y)
        return probs

    def _estimated(self, X: Any) -> np.ndarray:
        """What the estimator says, checked."""
        if isinstance(self.estimator, type):
            raise ValueError(
                f"estimator: found the class {self.estimator.__name__}; wanted a fitted "
                "classifier"
            )
        if not hasattr(self.estimator, "predict_proba"):
            raise ValueError(
                f"estimator: found {self.estimator!r} without predict_proba; wanted a "
                "fitted classifier that has it, or None to give probabilities"
            )
        return as_probabilities(self.estimator.predict_proba(X))

    def _probabilities(self, X: Any) -> np.ndarray:
        """The probabilities of new points, columns in the order of `classes_`."""
        if self.estimator is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
            return self._estimated(X)
        table = as_pandas(X)
        if isinstance(table, pd.DataFrame):
            return as_probabilities(table[self._matching(_unique_names(table))])
        probs = as_probabilities(table)
        if probs.shape[1] != len(self.classes_):
            raise ValueError(
                f"probabilities: found {probs.shape[1]} columns; "
                f"wanted {len(self.classes_)}, as in fit"
            )
        if self._columns != list(range(probs.shape[1])):
            raise ValueError(
                "probabilities: found columns without names; wanted a data frame with "
                f"the columns {self._columns}, as in fit"
            )
        return probs

    def _matching(self, names: list[Any]) -> list[Any]:
        """The columns of fit, if these are the same in some order.

        Names of polars and Arrow are always text, where labels 0 to K - 1 are numbers.
        """
        texts = [str(column) for column in self._columns]
        by_text = {str(name): name for name in names}
        if not set(names) & set(self._columns) and sorted(by_text) == sorted(texts):
            return [by_text[text] for text in texts]
        unknown = [name for name in names if name not in self._columns]
        absent = [name for name in self._columns if name not in names]
        found = []
        if unknown:
            found.append(f"the columns {unknown}, which fit did not have")
        if absent:
            found.append(f"no {absent}")
        if found:
            raise ValueError(
                f"probabilities: found {' and '.join(found)}; "
                f"wanted {self._columns}, in any order"
            )
        return self._columns

    def _codes_of(self, labels: ArrayLike, name: str) -> np.ndarray:
        """Places of labels among `classes_`."""
        entries = as_array(as_pandas(labels)).ravel()
        places = {plain(label): code for code, label in enumerate(self.classes_)}
        is_mask = entries.dtype == bool and not set(places) <= {False, True}
        codes, distinct = pd.factorize(entries, use_na_sentinel=False)
        known = [places.get(plain(label), -1) for label in distinct]
        found = np.array(known, np.int64)[codes]
        if is_mask or (found < 0).any():
            row = 0 if is_mask else int((found < 0).argmax())
            raise ValueError(
                f"{name}: found {plain(entries[row])!r} in row {row}; "
                f"wanted labels among {self.classes_.tolist()}"
            )
        return found

    def _positive_codes(self) -> list[int]:
        """Places of the positive labels."""
        every = list(range(len(self.classes_)))
        if self.positive_labels is None:
            names = [plain(label) for label in self.classes_]
            return fairness.positive_codes(None, names) or every
        positive_labels = self.positive_labels
        if isinstance(positive_labels, set | frozenset):
            positive_labels = list(positive_labels)
        given = np.atleast_1d(as_array(positive_labels))
        if given.dtype == bool and self.classes_.dtype != bool:
            raise ValueError(
                f"positive_labels: found the mask {given.tolist()}; wanted labels among "
                f"{self.classes_.tolist()}"
            )
        return self._codes_of(given, "positive_labels").tolist()

    def _scores(self, X: Any, probs: np.ndarray, ids: ArrayLike | None) -> np.ndarray:
        """Scores (n, K), each row from that person alone."""
        name, function, _ = _score_parts(self.conformity_score)
        if name == "tps":
            return function(probs)
        u = None
        if self.randomized:
            u = scores.person_u(self._people(X, probs, ids), self.seed_)
        table = as_array(function(probs, u))
        if table.shape != probs.shape:
            raise ValueError(
                f"conformity_score: it returned shape {table.shape}; "
                f"wanted {probs.shape}, a score per label"
            )
        if table.dtype not in SLACK:
            table = table.astype(np.float64)
        return table

    def _people(self, X: Any, probs: np.ndarray, ids: ArrayLike | None) -> Any:
        """What tells people apart: ids, features, or rounded probabilities."""
        if ids is not None:
            return ids
        if self.estimator is not None:
            return X
        return np.round(probs.astype(np.float64), DIGITS)

    def _on_grid(self, table: np.ndarray) -> np.ndarray:
        """Scores for the walk: one that lies a hair above a grid point lies on it.

        The last bit of a model's output may depend on the batch, and many models put many
        people on round numbers. `predict_set` allows each threshold the same hair.
        """
        if self.guarantee == Guarantee.NONE:
            return table
        given = self._grid()
        if given is None:
            given = control.default_grid()
        return on_grid(table, given, SLACK[table.dtype])

    def _grid(self) -> ArrayLike | None:
        """RAPS reaches above 1, by an amount that is known beforehand."""
        name, _, options = _score_parts(self.conformity_score)
        is_needed = self.guarantee != Guarantee.NONE and name == "raps"
        if self.grid is not None or not is_needed:
            return self.grid
        return control.default_grid(scores.raps_maximum(len(self.classes_), **options))

    def _remember(self, task: Task, pooled: list[Any], left_out: list[Any]) -> None:
        """Set what was found, in the user's own names."""
        found = task.find()
        cells = []
        for group, code, n in found.blocking_cells:
            label = None if code is None else plain(self.classes_[code])
            cells.append((group, label, n))
        self.result_ = replace(found, blocking_cells=cells, weighting=self.weighting_)
        self.threshold_ = found.threshold
        self.base_threshold_ = found.base_threshold
        positive = task.options["positive_labels"]
        self.promise_ = Promise(
            metric=found.metric,
            closeness=found.closeness,
            guarantee=str(found.guarantee),
            delta=self.delta,
            alpha=self.alpha,
            labels=[plain(self.classes_[code]) for code in positive],
            groups=task.groups.names,
            pooled=pooled,
            left_out=left_out,
            weighting="" if self.weighting_ is None else str(self.weighting_),
        )
        self.summary_ = self._summary(task)

    def _remember_groups(self, task: Task, regrouped: Task) -> None:
        """Set the thresholds of every group, and the fair predictor's beside them.

        Gaps are those between the groups that the fair predictor was asked for.
        """
        fair = self.threshold_
        self.groups_ = task.groups.names
        self.promise_ = replace(
            self.promise_, per_group=True, groups=self.groups_, pooled=[], left_out=[]
        )
        self.threshold_ = mondrian.cell_thresholds(
            task.scores, task.labels, task.groups, self.alpha
        )
        own = mondrian.sets_by_group(task.scores, self.threshold_, task.groups.codes)
        sets = {
            mondrian.PER_GROUP: own,
            mondrian.FAIR: conformal.prediction_sets(task.scores, fair),
            mondrian.BASE: conformal.prediction_sets(task.scores, self.base_threshold_),
        }
        positive = task.options["positive_labels"]
        self.summary_ = mondrian.comparison(
            sets, task.labels, regrouped.groups, task.metric, positive
        )
        too_few = []
        for code, label in np.argwhere(np.isinf(self.threshold_)):
            name = self.groups_[code]
            too_few.append(f"({name!r}, {plain(self.classes_[label])})")
        if too_few:
            warnings.warn(
                f"per_group: the cells (group, label) {', '.join(too_few)} have too few "
                f"points for a coverage of {1 - self.alpha:g}; their label is in every "
                "set of that group",
                InfeasibleWarning,
                stacklevel=4,
            )

    def _summary(self, task: Task) -> pd.DataFrame:
        """A row per label."""
        compared = "ratio" if task.metric.is_ratio else "gap"
        points = np.bincount(task.labels, minlength=len(self.classes_))
        columns: dict[str, Any] = {"calibration points": points}
        if self.weighting_ is not None and self.weighting_.weight_bound is not None:
            columns["of all points"] = self.weighting_.n_points
            columns["cost of thinning"] = self.weighting_.cost
        columns |= {
            "base threshold": self.result_.base_threshold,
            "threshold": self.result_.threshold,
            compared: self.result_.bound,
        }
        return pd.DataFrame(columns, index=pd.Index(self.classes_, name="label"))


def warn_about(
    promise: Promise,
    result: FairThreshold,
    task: Task,
    regrouped: Task,
    served: str,
) -> None:
    """Say what a user must know about a calibration; `served` is what ∞ serves."""
    stacklevel = 4  # of the line that calls fit
    if len(promise.groups) < 2:
        warnings.warn(
            f"groups: found only {listed(promise.groups)}; there is no gap between "
            "groups, so nothing is promised beyond coverage",
            UserWarning,
            stacklevel=stacklevel,
        )
    if promise.pooled or promise.left_out:
        text = f"The promise: {promise}"
        warnings.warn(text, SmallGroupsWarning, stacklevel=stacklevel)
    if result.feasible:
        return
    helps = "; ".join(advice(result, task, regrouped))
    warnings.warn(
        f"{result}. {served} What would help: a larger calibration set; {helps}.",
        InfeasibleWarning,
        stacklevel=stacklevel,
    )


def on_grid(table: np.ndarray, grid: ArrayLike, slack: float) -> np.ndarray:
    """Scores, of which those at most `slack` above a grid point are that point."""
    points = np.unique(as_float_column(grid, "grid").astype(np.float64))
    place = np.searchsorted(points + slack, table, side="left")
    reached = np.append(points, np.inf)[place]
    lowered = conformal.round_down(reached, table.dtype)
    return np.where(reached <= table, lowered, table)


@dataclass(frozen=True)
class Task:
    """One search: calibration data and what is asked of them."""

    scores: np.ndarray
    labels: np.ndarray
    groups: Groups
    metric: FairnessMetric
    closeness: float | None
    options: dict[str, Any]
    unlabelled: tuple[np.ndarray, Groups] | None = None

    def find(self) -> FairThreshold:
        """The answer. Points of groups that are left out count for q̂ alone."""
        found = control.search(
            self.scores,
            self.labels,
            self.groups,
            self.metric,
            unlabelled=self.unlabelled,
            **self.options,
        )
        return found.find(self.closeness)

    @classmethod
    def of(
        cls,
        table: np.ndarray,
        labels: np.ndarray,
        people: Groups,
        metric: FairnessMetric,
        closeness: float | None,
        options: dict[str, Any],
        more: tuple[np.ndarray, Groups] | None,
    ) -> Task:
        """With everyone's groups by the same names, also those without a label."""
        if more is not None:
            people = people.declare(more[1].names)
            more = (more[0], people.take(np.empty(0, np.intp)).joined(more[1]))
        return cls(table, labels, people, metric, closeness, options, more)

    def weighted(
        self,
        sample_weight: ArrayLike | None,
        weight_bound: float | None,
        per_group: bool,
        seed: int,
        ids: Any,
    ) -> tuple[Weighting, Task, np.ndarray]:
        """What became of the weights, the search with them, and which points count.

        With a guarantee, or thresholds for each group, points are thinned.
        """
        if sample_weight is None:
            raise ValueError(
                "weight_bound: found one without sample_weight; wanted both, or neither"
            )
        if self.unlabelled is not None:
            raise ValueError(
                "unlabelled: found some together with sample_weight; wanted one or the "
                "other"
            )
        is_thinned = per_group or self.options["guarantee"] != Guarantee.NONE
        weighting, is_kept, weights = use_weights(
            sample_weight, len(self.labels), weight_bound, is_thinned, seed, ids
        )
        options = {**self.options, "sample_weight": weights}
        if options.get("base_scores") is not None:
            options["base_scores"] = options["base_scores"][is_kept]
        kept = replace(
            self,
            scores=self.scores[is_kept],
            labels=self.labels[is_kept],
            groups=self.groups.take(is_kept),
            options=options,
        )
        return weighting, kept, is_kept

    def small_groups(self) -> list[Any]:
        """Groups with a cell that has fewer points than any finite threshold needs.

        Sizes alone decide: every score is 0 here, so that all points are covered.
        """
        options = {**self.options, "grid": None, "base_scores": None}
        more = self.unlabelled
        if more is not None:
            more = (np.zeros(more[0].shape), more[1])
        sizes_only = replace(
            self, scores=np.zeros(self.scores.shape), options=options, unlabelled=more
        )
        blocking = {cell[0] for cell in sizes_only.find().blocking_cells}
        return [name for name in self.groups.names if name in blocking]

    def regroup(self, rule: str) -> tuple[Task, list[Any], list[Any]]:
        """The search without small groups, those that were pooled, those left out.

        Where all groups are small they stay: nothing would be left to compare.
        """
        if rule == "keep":
            return self, [], []
        small = self.small_groups()
        if len(small) == len(self.groups):
            return self, [], []
        more = self.unlabelled
        if rule == "pool" and len(small) > 1:
            if more is not None:
                more = (more[0], more[1].pool(small))
            pooled = replace(self, groups=self.groups.pool(small), unlabelled=more)
            return pooled, small, []
        if rule == "leave out" and small:
            if more is not None:
                more = (more[0], more[1].leave_out(small))
            groups = self.groups.leave_out(small)
            if not groups.counts.any():
                return self, [], []
            return replace(self, groups=groups, unlabelled=more), [], small
        return self, [], []


def advice(result: FairThreshold, task: Task, regrouped: Task) -> list[str]:
    """What would make thresholds finite."""
    found = []
    closest = control.told_closeness(result.smallest_closeness, task.metric.is_ratio)
    if closest:
        side = "at most" if task.metric.is_ratio else "at least"
        found.append(
            f"a closeness of {side} {closest} (chosen after this "
            "look, it is promised for a new calibration set only)"
        )
    if regrouped is task:
        found += advice_on_small_groups(task)
    if result.guarantee != Guarantee.NONE:
        plain_rule = {**regrouped.options, "guarantee": Guarantee.NONE}
        is_finite = replace(regrouped, options=plain_rule).find().feasible
        if is_finite:
            found.append("guarantee='none', the paper's rule, which promises nothing")
        else:
            found.append(
                "guarantee='none' would not help: it has no finite answer either"
            )
    return found


def advice_on_small_groups(task: Task) -> list[str]:
    """What pooling and leaving out would do, as far as sizes say."""
    small = task.small_groups()
    found = []
    pooled, members, _ = task.regroup("pool")
    if members:
        outcome = "large enough"
        if pooled.small_groups():
            outcome = "still too small"
        found.append(f"small_groups='pool': {listed(small)} as one group, {outcome}")
    if 0 < len(small) < len(task.groups) - 1:
        found.append(
            f"small_groups='leave out': a promise for the groups other than "
            f"{listed(small)}"
        )
    return found


def _score_parts(score: str | Callable) -> tuple[str | None, Callable, dict[str, Any]]:
    """Name (None: the user's own), function and options of a conformity score."""
    if not callable(score):
        one_of(score, "conformity_score", tuple(SCORES))
        return score, SCORES[score], {}
    function = score
    options: dict[str, Any] = {}
    if isinstance(score, functools.partial) and not score.args:
        function = score.func
        options = score.keywords
    for name, known in SCORES.items():
        if function is known:
            return name, score, options
    return None, score, {}


def _score_as_dict(score: str | Callable) -> dict[str, Any]:
    """A conformity score by name, if it has one."""
    name, _, options = _score_parts(score)
    if name is None:
        raise ValueError(
            f"conformity_score: found {score!r}, which cannot be written; wanted 'tps', "
            "'aps', 'raps', or functools.partial of one of these functions"
        )
    return {"name": name, "options": {key: plain(options[key]) for key in options}}


def _score_from_dict(written: dict[str, Any]) -> str | Callable:
    """What `_score_as_dict` wrote."""
    name = written.get("name")
    options = written.get("options")
    if not isinstance(name, str) or not isinstance(options, dict):
        raise ValueError(
            f"fitted: found the score {written!r}; wanted its name and its options"
        )
    one_of(name, "conformity_score", tuple(SCORES))
    if not options:
        return name
    try:
        inspect.signature(SCORES[name]).bind_partial(None, **options)
    except TypeError as error:
        raise ValueError(f"fitted: {name} cannot be asked with that: {error}") from None
    return functools.partial(SCORES[name], **options)


def seed_of(random_state: Any) -> int:
    """The seed of the random numbers: as given, or drawn."""
    if random_state is None:
        return int(np.random.default_rng().integers(SEEDS))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(SEEDS))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(SEEDS, dtype=np.int64))
    is_integer = isinstance(random_state, int | np.integer)
    if is_integer and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    raise ValueError(
        f"random_state: found {random_state!r}; wanted None, an integer from 0, or a "
        "NumPy generator"
    )


def _checked_ids(ids: ArrayLike, n: int) -> Any:
    """One id per point, none missing; one column is one id, however it is wrapped."""
    found = as_pandas(ids)
    if isinstance(found, pd.MultiIndex):
        found = found.to_frame(index=False)
    if not isinstance(found, pd.Series | pd.DataFrame | pd.Index | list | tuple):
        found = as_array(found)
    if np.ndim(found) == 0 or len(found) != n:
        raise ValueError(f"ids: found {np.size(found)} for {n} points; wanted one each")
    if isinstance(found, list | tuple) and all(_is_wrapped(value) for value in found):
        found = [value[0] for value in found]
    elif isinstance(found, pd.DataFrame) and found.shape[1] == 1:
        found = found.iloc[:, 0]
    elif isinstance(found, np.ndarray) and found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    is_missing = pd.DataFrame(found).isna().any(axis=1).to_numpy()
    if is_missing.any():
        raise ValueError(
            f"ids: row {is_missing.argmax()} is missing; every point needs an id"
        )
    return found


def _is_wrapped(value: Any) -> bool:
    """Whether this is a list or tuple of one value, as databases return a column."""
    return isinstance(value, list | tuple) and len(value) == 1


def _unique_names(table: pd.DataFrame) -> list[Any]:
    """The columns' names, of which no two may be the same."""
    if not table.columns.is_unique:
        name = table.columns[table.columns.duplicated()][0]
        raise ValueError(
            f"probabilities: found the column {name!r} twice; wanted one column per label"
        )
    return table.columns.tolist()


def _classes_of(columns: list[Any], y: ArrayLike) -> np.ndarray:
    """The labels of the columns of probabilities.

    The columns' names where all labels are among them, or what follows a common prefix,
    as in p_no, p_yes; else their places, for labels that are integers.
    """
    every = list(range(len(columns)))
    labels = pd.Series(as_array(as_pandas(y)).ravel())
    if columns == every:
        return np.array(every)
    if labels.isin(columns).all():
        return _as_classes(columns)
    by_text = {_label_text(label): plain(label) for label in labels.unique()}
    names = _without_prefix(columns)
    if set(by_text) <= set(names):
        are_numbers = all(isinstance(label, int) for label in by_text.values())
        if are_numbers and all(name.isdigit() for name in names):
            return np.array([int(name) for name in names])
        return _as_classes([by_text.get(name, name) for name in names])
    is_numbered = all(re.search(r"\d$", str(name)) for name in columns)
    if is_numbered or labels.dtype.kind not in "iu":
        absent = sorted(set(by_text) - set(names))
        raise ValueError(
            f"probabilities: found no column for the label {absent[0]!r} among "
            f"{columns}; wanted columns that are named after the labels"
        )
    return np.array(every)


def _label_text(label: Any) -> str:
    """A label as a column's name may hold it: 1.0 as 1."""
    label = plain(label)
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def _without_prefix(columns: list[Any]) -> list[str]:
    """The columns' names after the part up to a "_" or a space that all of them share."""
    names = [str(name) for name in columns]
    beginning = re.match(r".*[_ ]", names[0])
    while beginning is not None:
        prefix = beginning.group()
        if all(name.startswith(prefix) for name in names):
            return [name.removeprefix(prefix) for name in names]
        beginning = re.match(r".*[_ ]", prefix[:-1])
    return names


def _as_classes(labels: list[Any]) -> np.ndarray:
    """Labels as an array that keeps their types."""
    if len({type(label) for label in labels}) > 1 or isinstance(labels[0], tuple):
        return np.fromiter(labels, object, len(labels))
    return np.array(labels)


def promise_from_json(promise: dict[str, Any]) -> Promise:
    """What `json_values` wrote of a promise: names that were tuples are tuples again."""
    found = dict(promise)
    try:
        for key in ("groups", "pooled", "left_out"):
            found[key] = names_from_json(found[key])
        restored = Promise(**found)
        str(restored)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"fitted: its promise is not whole: {error}") from None
    if not isinstance(restored.labels, list):
        raise ValueError(f"fitted: found the labels {restored.labels!r}; wanted a list")
    return restored


def listed(names: list[Any]) -> str:
    """Names for a sentence."""
    return ", ".join(repr(name) for name in names)
