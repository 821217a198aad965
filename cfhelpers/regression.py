"""Intervals for numbers whose coverage is close across groups.

An interval is all y whose score s(x, y) = max(lower - y, y - upper) is at most λ: two
predicted quantiles moved outwards by λ (conformalised quantile regression), or a
prediction ± λ where both ends are the prediction. Cut the line of outcomes into regions,
such as incomes below and above 50,000, and every region has a score too: the least λ with
which the interval meets it. So regions stand for labels, and whatever is computed for
prediction sets (metrics, exact search, guarantee) is computed for intervals.
"""

from __future__ import annotations

import inspect
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cfhelpers import __version__, mondrian
from cfhelpers._checks import (
    as_array,
    as_flag,
    as_float_column,
    as_fraction,
    as_pandas,
    as_positive_labels,
    one_of,
    plain,
)
from cfhelpers._written import (
    json_number,
    json_thresholds,
    json_values,
    names_from_json,
    thresholds_from_json,
)
from cfhelpers.conformal import conformal_quantile
from cfhelpers.control import GUARANTEES, Guarantee
from cfhelpers.fairness import measure
from cfhelpers.groups import Groups, as_groups
from cfhelpers.metrics import FairnessMetric, Quantity, get_metric
from cfhelpers.predictor import (
    OUTCOME,
    SMALL_GROUPS,
    WITHOUT_GROUPS,
    KeepsEstimator,
    Promise,
    Task,
    on_grid,
    seed_of,
    warn_about,
)
from cfhelpers.weights import Weighting

HAIR = 1e-10  # of the largest threshold: the last bits of a prediction do not matter
MONDRIAN = "one threshold per group (Mondrian)"
# What `to_dict` writes and `from_dict` needs.
WRITTEN = (
    "takes",
    "quantiles",
    "regions",
    "positive_regions",
    "threshold",
    "base_threshold",
    "hair",
    "per_group",
    "groups",
    "seed",
    "small_groups",
    "promise",
    "prediction_columns",
)


def interval_scores(lower: ArrayLike, upper: ArrayLike, y: ArrayLike) -> np.ndarray:
    """How far outside its interval every y lies; negative inside.

    Parameters
    ----------
    lower, upper : numbers (n,)
        Predicted quantiles; a prediction twice where there are none. They may cross.
    y : numbers (n,)

    Returns
    -------
    float64 (n,)
        max(lower - y, y - upper).

    Examples
    --------
    >>> interval_scores([0, 0], [10, 10], [12, 4]).tolist()
    [2.0, -4.0]
    """
    low, high = _as_ends(lower, upper)
    outcomes = _as_outcomes(y, len(low))
    return np.maximum(low - outcomes, outcomes - high)


def region_scores(lower: ArrayLike, upper: ArrayLike, regions: ArrayLike) -> np.ndarray:
    """The least λ with which every person's interval meets every region of outcomes.

    Parameters
    ----------
    lower, upper : numbers (n,)
        Predicted quantiles; a prediction twice where there are none. They may cross.
    regions : numbers (m,), ascending
        Where one region ends and the next begins. There are m + 1 of them: below the
        first edge, from each edge (with it) to the next (without it), and from the last.

    Returns
    -------
    float64 (n, m + 1)
        The score of the point of the region, its ends included, that is nearest to the
        middle of the interval.

    Examples
    --------
    Someone is predicted to earn between 30 and 40. The interval meets the region from 50
    on once both ends have moved outwards by 10; it is within the region below 50 until
    both have moved inwards by 5 and nothing is left of it.

    >>> region_scores([30], [40], [50]).tolist()
    [[-5.0, 10.0]]
    """
    low, high = _as_ends(lower, upper)
    edges = as_regions(regions)
    middle = low / 2 + high / 2
    begins = np.append(-np.inf, edges)
    ends = np.append(edges, np.inf)
    nearest = np.clip(middle[:, None], begins, ends)
    return np.maximum(low[:, None] - nearest, nearest - high[:, None])


def region_of(y: ArrayLike, regions: ArrayLike) -> np.ndarray:
    """The place of every outcome's region.

    Examples
    --------
    >>> region_of([49_999, 50_000], [50_000]).tolist()
    [0, 1]
    """
    edges = as_regions(regions)
    return np.searchsorted(edges, _as_outcomes(y), side="right")


def region_names(regions: ArrayLike) -> list[str]:
    """What the regions are called.

    Examples
    --------
    >>> region_names([50_000, 100_000])
    ['below 50,000', '50,000 to 100,000', '100,000 and above']
    """
    edges = [f"{edge:,.12g}" for edge in as_regions(regions)]
    names = [f"below {edges[0]}"]
    for begin, end in pairwise(edges):
        names.append(f"{begin} to {end}")
    return [*names, f"{edges[-1]} and above"]


def residual_grid(scores: ArrayLike) -> np.ndarray:
    """Thresholds for the guarantee, from scores that are not the calibration set's.

    A thousand quantiles of the scores, and points beyond the largest, since a model errs
    less on the people it was trained on.

    Parameters
    ----------
    scores : numbers (n,)
        `interval_scores` of people who are not in the calibration set, such as those
        that the model was trained on.

    Returns
    -------
    float64, ascending

    Examples
    --------
    >>> grid = residual_grid(np.arange(100.0))
    >>> float(grid[0]), float(grid[-1])
    (0.0, 1089.0)
    """
    column = as_float_column(scores, "scores").astype(np.float64)
    quantiles = np.quantile(column, np.linspace(0, 1, 1001))
    span = float(column.max() - column.min())
    if span == 0:
        span = abs(float(column[0])) or 1.0
    beyond = column.max() + span * 10 ** np.linspace(-3, 1, 101)
    return np.unique(np.concatenate([quantiles, beyond]))


def as_regions(values: ArrayLike) -> np.ndarray:
    """The edges of regions as float64, ascending; one number is one edge."""
    edges = np.atleast_1d(as_array(as_pandas(values)))
    try:
        edges = edges.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"regions: found {values!r}; wanted numbers, where regions begin"
        ) from None
    is_ascending = bool((np.diff(edges) > 0).all()) if edges.ndim == 1 else False
    if edges.size == 0 or not is_ascending or not np.isfinite(edges).all():
        raise ValueError(
            f"regions: found {edges.tolist()}; wanted at least one finite number, in "
            "ascending order, where the next region begins"
        )
    return edges


def _as_ends(lower: ArrayLike, upper: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of finite numbers."""
    low = _as_outcomes(lower, name="lower")
    return low, _as_outcomes(upper, len(low), "upper")


def _as_outcomes(values: ArrayLike, n: int | None = None, name: str = "y") -> np.ndarray:
    """A column of finite numbers, float64."""
    column = as_float_column(as_pandas(values), name).astype(np.float64)
    if n is not None and len(column) != n:
        raise ValueError(
            f"{name}: found {len(column)} entries for {n} points; wanted one each"
        )
    is_infinite = np.isinf(column)
    if is_infinite.any():
        raise ValueError(
            f"{name}: entry {int(is_infinite.argmax())} is infinite; "
            "wanted finite numbers"
        )
    return column


class FairConformalRegressor(RegressorMixin, KeepsEstimator):
    """Intervals from any fitted model, whose coverage is close across groups.

    Groups are needed to calibrate it, and not to predict (unless `per_group` is set).

    Parameters
    ----------
    estimator : fitted model, or two, optional
        With `predict`: one number per person gives intervals prediction ± λ; two
        columns, a lower and an upper quantile, are moved outwards by λ (conformalised
        quantile regression). A pair of models predicts the lower and the upper one; a
        `predict` that takes `quantiles` is asked for alpha/2 and 1 - alpha/2. Without
        an estimator, `fit` and `predict_interval` take such predictions in place of X.
    regions : numbers, optional
        Where one region of outcomes ends and the next begins; see `region_scores`. All
        metrics but overall accuracy equality need them: a region stands for a label.
    metric, closeness, alpha, guarantee, delta
        As in `control.find_threshold`. Overall accuracy equality compares how often the
        intervals hold the outcome itself.
    positive_regions : places, optional
        The regions whose coverage must be fair, from 0; by default all.
    small_groups : "keep", "pool" or "leave out"
        As in `FairConformalClassifier`.
    grid : thresholds, optional
        For the guarantee, fixed without looking at the calibration set. `fit` makes one
        from training data where it is given them.
    per_group : bool
        The Mondrian baseline: one conformal quantile per group. `predict_interval` then
        asks for everyone's group.
    random_state : int or NumPy generator, optional
        The seed of the thinning, where there are weights.

    Attributes
    ----------
    threshold_ : float, or (G,) with `per_group`
        λ: by so much the ends move outwards.
    base_threshold_ : float
        The conformal quantile q̂, without fairness.
    result_ : control.FairThreshold
    promise_ : Promise
    summary_ : DataFrame
        On the calibration data: mean width, gap or ratio, and coverage of these
        intervals, of those with one threshold for everyone, and of those with one
        threshold per group (Mondrian). The gap is between the groups of the promise.
    weighting_ : weights.Weighting or None

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = rng.choice(["a", "b"], 4000)
    >>> prediction = rng.normal(size=4000)
    >>> y = prediction + rng.normal(size=4000) * np.where(groups == "a", 1.0, 1.5)
    >>> train, calibration = slice(0, 2000), slice(2000, 4000)
    >>> fair = FairConformalRegressor().fit(
    ...     prediction[calibration], y[calibration], groups[calibration],
    ...     training=(prediction[train], y[train]),
    ... )
    >>> fair.predict_interval([0.0]).shape
    (1, 2)
    >>> fair.result_.feasible
    True
    """

    _without_estimator = "predictions"

    def __init__(
        self,
        estimator: Any = None,
        regions: ArrayLike | None = None,
        metric: str | FairnessMetric = "overall_accuracy_equality",
        closeness: float | None = None,
        alpha: float = 0.1,
        guarantee: str = "fixed-sequence",
        delta: float = 0.1,
        positive_regions: ArrayLike | None = None,
        small_groups: str = "keep",
        grid: ArrayLike | None = None,
        per_group: bool = False,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.regions = regions
        self.metric = metric
        self.closeness = closeness
        self.alpha = alpha
        self.guarantee = guarantee
        self.delta = delta
        self.positive_regions = positive_regions
        self.small_groups = small_groups
        self.grid = grid
        self.per_group = per_group
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        groups: Any = None,
        training: tuple[Any, ArrayLike] | None = None,
        unlabelled: tuple[Any, Any] | None = None,
        sample_weight: ArrayLike | None = None,
        weight_bound: float | None = None,
    ) -> FairConformalRegressor:
        """Find the threshold on calibration data that did not train the estimator.

        Parameters
        ----------
        X : features, or predictions (n,) or (n, 2) where there is no estimator
        y : numbers (n,)
        groups : (n,), several columns, or a boolean table of groups that may overlap
        training : (X, y), optional
            People who are not in the calibration set, such as those that the model was
            trained on. Their residuals make the grid that a guarantee needs.
        unlabelled : (X, groups), optional
            More people from the same population, for demographic parity and disparate
            impact of regions.
        sample_weight, weight_bound
            As in `FairConformalClassifier.fit`.

        Returns
        -------
        FairConformalRegressor
            Itself.
        """
        if groups is None:
            raise ValueError(WITHOUT_GROUPS)
        self._check_options()
        self.seed_ = seed_of(self.random_state)
        lower, upper = self._ends(X, reset=True)
        outcomes = _as_outcomes(y, len(lower))
        people = as_groups(groups, len(lower))
        grid = self._fixed_grid(training)
        base = interval_scores(lower, upper, outcomes)
        scale = np.abs(base if grid is None else grid)
        self.hair_ = HAIR * float(scale[np.isfinite(scale)].max(initial=0.0))
        more = self._unlabelled(unlabelled, grid)
        labels = np.zeros(len(base), np.int64)
        if self._uses_regions:
            labels = region_of(outcomes, self._edges)
        metric = get_metric(self.metric)
        table = self._on_grid(self._table(lower, upper, base), grid)
        question = self._question(self._on_grid(base, grid), grid)
        task = Task.of(table, labels, people, metric, self.closeness, question, more)
        widths = upper - lower
        self.weighting_: Weighting | None = None
        if sample_weight is not None or weight_bound is not None:
            self.weighting_, task, is_kept = task.weighted(
                sample_weight, weight_bound, self.per_group, self.seed_, None
            )
            widths = widths[is_kept]
        self._search(task, widths)
        return self

    def _question(self, base: np.ndarray, grid: np.ndarray | None) -> dict[str, Any]:
        """The options of the search."""
        return {
            "alpha": self.alpha,
            "positive_labels": self._positive_codes(),
            "guarantee": self.guarantee,
            "delta": self.delta,
            "grid": grid,
            "base_scores": base,
        }

    def _search(self, task: Task, widths: np.ndarray) -> None:
        """Find the thresholds, and set what was found."""
        regrouped, pooled, left_out = task.regroup(self.small_groups)
        found = regrouped.find()
        cells = []
        for group, code, n in found.blocking_cells:
            label = None if code is None else self.region_names_[code]
            cells.append((group, label, n))
        self.result_ = replace(found, blocking_cells=cells, weighting=self.weighting_)
        self.base_threshold_ = found.base_threshold
        self.threshold_: Any = float(found.threshold[0])
        named = [OUTCOME]
        if self._uses_regions:
            codes = task.options["positive_labels"]
            named = [self.region_names_[code] for code in codes]
        self.promise_ = Promise(
            metric=found.metric,
            closeness=found.closeness,
            guarantee=str(found.guarantee),
            delta=self.delta,
            alpha=self.alpha,
            labels=named,
            groups=regrouped.groups.names,
            pooled=pooled,
            left_out=left_out,
            weighting="" if self.weighting_ is None else str(self.weighting_),
        )
        by_group = None
        if task.groups.memberships is None:
            by_group = _group_quantiles(task, self.alpha)
        elif self.per_group:
            mondrian.check_is_partition(task.groups)
        limits = {mondrian.FAIR: self.threshold_, mondrian.BASE: self.base_threshold_}
        if by_group is not None:
            limits[MONDRIAN] = by_group[task.groups.codes]
        self.summary_ = _compared(regrouped, limits, widths)
        if self.per_group:
            self.groups_ = task.groups.names
            self.threshold_ = by_group
            self.promise_ = replace(
                self.promise_,
                per_group=True,
                labels=[OUTCOME],
                groups=self.groups_,
                pooled=[],
                left_out=[],
            )
        else:
            served = "The intervals hold every number."
            warn_about(self.promise_, self.result_, task, regrouped, served)

    def predict_interval(self, X: Any, groups: Any = None) -> np.ndarray:
        """The intervals of new people; no groups are needed.

        Parameters
        ----------
        X : features, or predictions (n,) or (n, 2) where there is no estimator
        groups : (n,), optional
            If, and only if, `per_group` is set.

        Returns
        -------
        float64 (n, 2)
            Lower and upper ends; infinite where the threshold is, NaN where the interval
            is empty, as one can be whose quantiles lie too far apart or cross.
        """
        lower, upper, limit = self._limits(X, groups)
        ends = np.stack([lower - limit, upper + limit], axis=1)
        ends[ends[:, 0] > ends[:, 1]] = np.nan
        return ends

    def predict_regions(self, X: Any, groups: Any = None) -> np.ndarray:
        """Which regions the intervals meet, bool (n, regions)."""
        check_is_fitted(self, "threshold_")
        if self.regions is None:
            raise ValueError("regions: found None; wanted the edges of regions")
        lower, upper, limit = self._limits(X, groups)
        return region_scores(lower, upper, self._edges) <= limit[:, None]

    def predict(self, X: Any) -> np.ndarray:
        """The middle of the interval: the prediction, or halfway between quantiles."""
        check_is_fitted(self, "threshold_")
        lower, upper = self._ends(X)
        return lower / 2 + upper / 2

    def _limits(self, X: Any, groups: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both predicted ends of new people, and by how much each moves."""
        check_is_fitted(self, "threshold_")
        lower, upper = self._ends(X)
        if self.per_group and groups is None:
            raise ValueError(
                "groups: found None; with per_group=True every group has a threshold of "
                "its own, so wanted one group for each person"
            )
        if self.per_group:
            codes = mondrian.codes_of_known(groups, self.groups_, len(lower))
            return lower, upper, self.threshold_[codes] + self.hair_
        if groups is not None:
            raise ValueError(
                "groups: found some; the intervals do not depend on them, so wanted "
                "None (per_group=True has a threshold for each group)"
            )
        return lower, upper, np.full(len(lower), self.threshold_ + self.hair_)

    def to_dict(self) -> dict[str, Any]:
        """What serving intervals takes, as plain JSON; the estimator is not in it."""
        check_is_fitted(self, "threshold_")
        regions = None
        if self.regions is not None:
            regions = self._edges.tolist()
        positive = None
        if self.positive_regions is not None:
            positive = self._positive_codes()
        return {
            "class": type(self).__name__,
            "version": __version__,
            "takes": self._takes(),
            "quantiles": self.has_quantiles_,
            "prediction_columns": json_values(self.columns_),
            "regions": regions,
            "positive_regions": positive,
            "small_groups": self.small_groups,
            "threshold": json_thresholds(np.atleast_1d(self.threshold_)),
            "base_threshold": json_number(self.base_threshold_),
            "hair": self.hair_,
            "per_group": self.per_group,
            "groups": json_values(getattr(self, "groups_", [])),
            "seed": self.seed_,
            "promise": json_values(asdict(self.promise_)),
        }

    @classmethod
    def from_dict(
        cls, fitted: dict[str, Any], estimator: Any = None
    ) -> FairConformalRegressor:
        """A regressor that serves the same intervals as the one `to_dict` wrote.

        Parameters
        ----------
        fitted : dict
        estimator : fitted model, or two
            The same as in `fit`, where there was one.

        Returns
        -------
        FairConformalRegressor
            Without `result_` and `summary_`.
        """
        promise = cls._written_promise(fitted, WRITTEN)
        found = cls(
            estimator=estimator,
            regions=fitted["regions"],
            metric=promise.metric,
            closeness=promise.closeness,
            alpha=promise.alpha,
            guarantee=promise.guarantee,
            delta=promise.delta,
            positive_regions=fitted["positive_regions"],
            small_groups=fitted["small_groups"],
            per_group=fitted["per_group"],
            random_state=fitted["seed"],
        )
        found._check_takes(fitted)
        thresholds = thresholds_from_json(fitted["threshold"])
        n_wanted = len(fitted["groups"]) if found.per_group else 1
        if thresholds.shape != (n_wanted,):
            raise ValueError(
                f"fitted: found thresholds of shape {thresholds.shape}; wanted {n_wanted}"
            )
        found.threshold_ = thresholds if found.per_group else float(thresholds[0])
        found.base_threshold_ = float(thresholds_from_json(fitted["base_threshold"]))
        found.promise_ = promise
        found.hair_ = fitted["hair"]
        found.has_quantiles_ = fitted["quantiles"]
        found.columns_ = fitted["prediction_columns"]
        found.groups_ = names_from_json(fitted["groups"])
        found.seed_ = fitted["seed"]
        return found

    @property
    def region_names_(self) -> list[str]:
        """What the regions are called."""
        return region_names(self._edges)

    @property
    def _edges(self) -> np.ndarray:
        if self.regions is None:
            raise ValueError("regions: found None; wanted the edges of regions")
        return as_regions(self.regions)

    @property
    def _uses_regions(self) -> bool:
        """Whether regions are compared, and not how often y itself is covered."""
        return get_metric(self.metric).quantity != Quantity.TRUE_LABEL_COVERAGE

    def _check_options(self) -> None:
        """Options that nothing below checks."""
        metric = get_metric(self.metric)
        as_flag(self.per_group, "per_group")
        as_fraction(self.alpha, "alpha")
        one_of(self.small_groups, "small_groups", SMALL_GROUPS)
        one_of(self.guarantee, "guarantee", GUARANTEES)
        metric.allowed(self.closeness, stacklevel=4)
        if self.regions is not None:
            as_regions(self.regions)
        elif self._uses_regions:
            raise ValueError(
                f"regions: found None for {metric.name}; wanted the edges of regions of "
                "outcomes, such as [50_000], or metric='overall_accuracy_equality'"
            )

    def _positive_codes(self) -> list[int] | None:
        """Places of the regions that must be fair."""
        if not self._uses_regions:
            return None
        n_regions = len(self._edges) + 1
        if self.positive_regions is None:
            return list(range(n_regions))
        try:
            return as_positive_labels(self.positive_regions, n_regions)
        except ValueError as error:
            text = str(error).replace("positive_labels", "positive_regions")
            raise ValueError(text) from None

    def _ends(self, X: Any, reset: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The predicted lower and upper end of everyone; the same number without."""
        if self.estimator is None:
            found = self._by_name(as_pandas(X), reset)
        else:
            if reset:
                self.columns_: list[Any] | None = None
            validate_data(self, X, reset=reset, skip_check_array=True)
            found = _predictions(self.estimator, X, self.alpha)
        table = as_array(found)
        if table.ndim == 1:
            table = table[:, None]
        if table.ndim != 2 or table.shape[1] not in (1, 2):
            raise ValueError(
                f"predictions: found shape {table.shape}; wanted (n,), or (n, 2) for a "
                "lower and an upper quantile"
            )
        has_quantiles = table.shape[1] == 2
        if reset:
            self.has_quantiles_ = has_quantiles
        elif has_quantiles != self.has_quantiles_:
            raise ValueError(
                f"predictions: found {table.shape[1]} columns; wanted as many as in fit"
            )
        lower = _as_outcomes(table[:, 0], name="predictions")
        return lower, _as_outcomes(table[:, -1], name="predictions")

    def _by_name(self, found: Any, reset: bool) -> Any:
        """Predictions, with named columns in the order of fit."""
        names = None
        if isinstance(found, pd.DataFrame):
            names = [plain(name) for name in found.columns]
        if reset:
            self.columns_ = names
        if names is None or self.columns_ is None or names == self.columns_:
            return found
        if len(set(names)) < len(names) or set(names) != set(self.columns_):
            raise ValueError(
                f"predictions: found the columns {names}; wanted {self.columns_}, as in "
                "fit, in any order"
            )
        return found.set_axis(names, axis=1)[self.columns_]

    def _fixed_grid(self, training: Any) -> np.ndarray | None:
        """The grid of the guarantee; None without one."""
        if self.guarantee == Guarantee.NONE:
            return None
        if self.grid is not None:
            return as_float_column(self.grid, "grid").astype(np.float64)
        if training is None:
            raise ValueError(
                "grid: found None; scores of intervals have no upper end, so a guarantee "
                "wanted thresholds that are fixed without the calibration set: "
                "fit(…, training=(X, y)) makes them from people outside it, "
                "FairConformalRegressor(grid=…) takes your own; guarantee='none' needs "
                "neither"
            )
        if not isinstance(training, tuple | list) or len(training) != 2:
            raise ValueError(
                f"training: found {type(training).__name__}; wanted a pair (X, y)"
            )
        lower, upper = self._ends(training[0])
        return residual_grid(interval_scores(lower, upper, training[1]))

    def _table(
        self, lower: np.ndarray, upper: np.ndarray, base: np.ndarray
    ) -> np.ndarray:
        """Scores per region, or the one column of the outcomes' own."""
        if self._uses_regions:
            return region_scores(lower, upper, self._edges)
        return base[:, None]

    def _on_grid(self, scores: np.ndarray, grid: np.ndarray | None) -> np.ndarray:
        """Scores for the walk: one that lies a hair above a grid point lies on it."""
        if grid is None:
            return scores
        return on_grid(scores, grid, self.hair_)

    def _unlabelled(
        self, unlabelled: Any, grid: np.ndarray | None
    ) -> tuple[np.ndarray, Groups] | None:
        """Scores and groups of people whose outcome is not known."""
        if unlabelled is None:
            return None
        if not isinstance(unlabelled, tuple | list) or len(unlabelled) != 2:
            raise ValueError(
                f"unlabelled: found {type(unlabelled).__name__}; wanted (X, groups)"
            )
        metric = get_metric(self.metric)
        if metric.needs_labels:
            raise ValueError(
                f"unlabelled: found some for {metric.name}; they are for "
                "demographic_parity and disparate_impact, which do not look at outcomes"
            )
        lower, upper = self._ends(unlabelled[0])
        try:
            groups = as_groups(unlabelled[1], len(lower))
        except ValueError as error:
            raise ValueError(f"unlabelled {error}") from None
        return self._on_grid(region_scores(lower, upper, self._edges), grid), groups


def _predictions(estimator: Any, X: Any, alpha: float) -> Any:
    """What a model, or two of them, predict: (n,) or (n, 2)."""
    if isinstance(estimator, tuple | list):
        if len(estimator) != 2:
            raise ValueError(
                f"estimator: found {len(estimator)} models; wanted one, or two for the "
                "lower and the upper quantile"
            )
        both = [_predictions(model, X, alpha) for model in estimator]
        return np.stack([as_array(ends).ravel() for ends in both], axis=1)
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        raise ValueError(
            f"estimator: found {estimator!r}; wanted a fitted model with predict, two of "
            "them, or None to give predictions"
        )
    if "quantiles" in inspect.signature(estimator.predict).parameters:
        return estimator.predict(X, quantiles=[alpha / 2, 1 - alpha / 2])
    return estimator.predict(X)


def _group_quantiles(task: Task, alpha: float) -> np.ndarray:
    """The conformal quantile of every group on its own; infinite with too few points."""
    own = np.asarray(task.options["base_scores"])
    thresholds = np.full(len(task.groups), np.inf)
    for code in range(len(task.groups)):
        is_own = task.groups.codes == code
        if is_own.any():
            thresholds[code] = conformal_quantile(own[is_own], alpha)
    return thresholds


def _compared(task: Task, limits: dict[str, Any], widths: np.ndarray) -> pd.DataFrame:
    """What the fair threshold costs, beside one for everyone and one per group."""
    own = np.asarray(task.options["base_scores"])
    compared = "ratio" if task.metric.is_ratio else "gap"
    rows = []
    for name, thresholds in limits.items():
        limit = np.broadcast_to(thresholds, len(own))
        sets = task.scores <= limit[:, None]
        positive = task.options["positive_labels"]
        shares = measure(sets, task.labels, task.groups, task.metric, positive)
        rows.append(
            {
                "asks for the group": name == MONDRIAN,
                "mean width": float(np.maximum(widths + 2 * limit, 0).mean()),
                compared: shares.disparity,
                "coverage": float((own <= limit).mean()),
            }
        )
    return pd.DataFrame(rows, index=pd.Index(list(limits), name="intervals"))
