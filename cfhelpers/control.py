"""The smallest threshold that keeps the gap between groups within c.

It is exact, it is found for every c at once, and it may come with a guarantee. Bounds
move only at calibration scores, so those above q̂, q̂ itself and ∞ are the only candidates:
`_sweep` walks over them once and notes each new low of the gap. With a guarantee the
candidates are the points of a grid that is fixed beforehand, tested from ∞ downwards.
"""

from __future__ import annotations

import copy
import functools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers import _sweep
from cfhelpers._checks import (
    as_flag,
    as_float_column,
    as_fraction,
    as_labels,
    as_positive_labels,
    as_scores,
    one_of,
)
from cfhelpers._ordering import (
    CellMap,
    Kinds,
    OrderedScores,
    Places,
    SortedScores,
    WeightedScores,
    sort_scores,
)
from cfhelpers._written import (
    check_written,
    json_number,
    json_thresholds,
    json_values,
    names_from_json,
    numbers_from_json,
    thresholds_from_json,
)
from cfhelpers.bounds import next_staircase
from cfhelpers.conformal import conformal_quantile
from cfhelpers.groups import as_groups, as_pools
from cfhelpers.metrics import FairnessMetric, Quantity, get_metric
from cfhelpers.weights import Weighting, as_weights, use_weights, weighted_quantile

ROUNDING = 1e-9  # by so much a score may lie above 1 and still count as 1
TOLERANCE = 1e-12  # a gap of exactly c may lie this far above it in floating point
MANY = 10**9  # more points than anyone has


class Guarantee(StrEnum):
    """What is promised: nothing (the paper's rule), or a test's level."""

    NONE = "none"
    FIXED_SEQUENCE = "fixed-sequence"


GUARANTEES = tuple(Guarantee)


class PairTest(StrEnum):
    """How the guarantee compares two groups."""

    STAIRCASE = "staircase"
    BOUNDS = "bounds"


@dataclass(frozen=True)
class FairThreshold:
    """What a search found. `str()` says it in words.

    Attributes
    ----------
    threshold : float64 (K,)
        Infinite for each label that no finite threshold serves.
    base_threshold : float
        The conformal quantile q̂.
    feasible : bool
        Every threshold that was needed is finite.
    satisfied : bool
        False only when even the full set fails, as for plain predictive parity it can.
    bound : float64 (K,)
        A bound on the calibration data: of the gap or ratio at the threshold, by the
        paper's rule or by the test. No confidence limit, since the same data chose the
        threshold. NaN for labels that need not be fair.
    smallest_closeness : float
        The least c (for ratios the largest) that a finite threshold reaches; NaN if none
        reaches any, as when q̂ is infinite.
    blocking_cells : list of (group, label, n)
        Cells that are too small for any finite threshold.
    metric, closeness, guarantee
        What was asked for.
    points_needed : int
        In every cell, for a finite threshold.
    weighting : weights.Weighting, optional
        What became of the weights, where there were any: points kept, and the cost.
    bounds : dict of metric -> float64 (K,)
        For several metrics together: the bound of each. `bound`, `closeness` and
        `is_ratio` are then those of the first.
    """

    threshold: np.ndarray
    base_threshold: float
    feasible: bool
    satisfied: bool
    bound: np.ndarray
    smallest_closeness: float
    blocking_cells: list[tuple[Any, Any, int]]
    metric: str
    closeness: float
    guarantee: str
    points_needed: int
    is_ratio: bool = False
    weighting: Weighting | None = None
    bounds: dict[str, np.ndarray] = field(default_factory=dict)

    def __str__(self) -> str:
        asked = f"{self.metric} within {self.closeness:g} (guarantee: {self.guarantee})"
        if self.bounds:  # the name says what each is within
            asked = f"{self.metric} (guarantee: {self.guarantee})"
        if self.weighting is not None:
            asked += f", {self.weighting}"
        if self.feasible:
            return f"{asked}: thresholds {np.array2string(self.threshold, precision=4)}"
        return f"{asked}: {self.why_infinite()}"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON: enough to serve sets without the calibration data.

        Returns
        -------
        dict
            An infinite threshold is the text "inf", and what is undefined is None.

        Examples
        --------
        >>> import json
        >>> scores = [[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]] * 30
        >>> labels = [0, 1, 1, 0] * 30
        >>> groups = ["a", "a", "b", "b"] * 30
        >>> found = find_threshold(scores, labels, groups, "equal_opportunity")
        >>> written = json.dumps(found.to_dict())
        >>> FairThreshold.from_dict(json.loads(written)).threshold.tolist()
        [0.7, 0.7]
        """
        written = json_values(asdict(self))
        written["class"] = type(self).__name__
        written["threshold"] = json_thresholds(self.threshold)
        written["base_threshold"] = json_number(self.base_threshold)
        written["smallest_closeness"] = _json_defined(self.smallest_closeness)
        written["bound"] = _json_defined(self.bound)
        for name, bound in self.bounds.items():
            written["bounds"][name] = _json_defined(bound)
        return written

    @classmethod
    def from_dict(cls, fitted: dict[str, Any]) -> FairThreshold:
        """What `to_dict` wrote, as it was.

        Parameters
        ----------
        fitted : dict

        Returns
        -------
        FairThreshold
        """
        names = [each.name for each in fields(cls)]
        check_written(fitted, cls.__name__, names)
        found = {name: fitted[name] for name in names}
        found["threshold"] = thresholds_from_json(fitted["threshold"])
        found["base_threshold"] = float(thresholds_from_json(fitted["base_threshold"]))
        shape = found["threshold"].shape
        found["bound"] = numbers_from_json(fitted["bound"], shape)
        bounds = fitted["bounds"].items()
        found["bounds"] = {name: numbers_from_json(each, shape) for name, each in bounds}
        if fitted["smallest_closeness"] is None:
            found["smallest_closeness"] = math.nan
        try:
            cells = [names_from_json(cell) for cell in fitted["blocking_cells"]]
            found["blocking_cells"] = [(group, label, n) for group, label, n in cells]
            if fitted["weighting"] is not None:
                found["weighting"] = Weighting(**fitted["weighting"])
            restored = cls(**found)
            str(restored)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError(f"fitted: it is not whole: {error}") from None
        return restored

    def why_infinite(self) -> str:
        """Why a threshold is infinite, and what would be possible; empty if none is."""
        if self.feasible:
            return ""
        text = "no finite threshold"
        if not self.satisfied:
            text += ", and the full set does not do either"
        if math.isinf(self.base_threshold):
            return f"{text}; too few calibration points: q̂ is infinite"
        closest = told_closeness(self.smallest_closeness, self.is_ratio)
        if closest:
            text += f"; the closest that a finite threshold comes is {closest}"
        if self.blocking_cells:
            enough = "infinitely many points needed"
            if self.points_needed < MANY:
                enough = f"{self.points_needed:,} points needed"
            cells = [
                f"({group!r}, {label}): {n}" for group, label, n in self.blocking_cells
            ]
            text += f"; cells (group, label) with fewer than the {enough}: "
            text += ", ".join(cells)
        return text


def _json_defined(values: Any) -> Any:
    """Numbers as JSON has them: an infinite one is a text, an undefined one is None."""
    if np.ndim(values) > 0:
        return [_json_defined(value) for value in values]
    return None if math.isnan(values) else json_number(values)


def told_closeness(value: float, is_ratio: bool) -> str:
    """A closeness in four digits that works when it is asked for; empty if none does.

    Examples
    --------
    >>> told_closeness(0.123412, is_ratio=False), told_closeness(0.123412, is_ratio=True)
    ('0.1235', '0.1234')
    """
    if math.isnan(value):
        return ""
    digits = 10.0 ** (3 - math.floor(math.log10(max(abs(value), 1e-9))))
    if is_ratio:
        told = math.floor(value * digits) / digits
    else:
        told = math.ceil(value * digits - 1e-9) / digits
    if not 0 < told <= 1:
        return ""
    return f"{told:.4g}"


def find_threshold(
    scores: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric | Sequence[str | FairnessMetric],
    closeness: float | Sequence[float] | Mapping[str, float] | None = None,
    *,
    alpha: float = 0.1,
    classwise: bool = False,
    positive_labels: ArrayLike | None = None,
    guarantee: str = "none",
    delta: float = 0.1,
    grid: ArrayLike | None = None,
    start: float | None = None,
    test: str = "staircase",
    unlabelled: tuple[ArrayLike, Any] | None = None,
    pool_sizes: Mapping[Any, int] | None = None,
    base_scores: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    weight_bound: float | None = None,
    random_state: int = 0,
) -> Any:
    """The smallest threshold in [q̂, ∞] at which groups differ by at most `closeness`.

    Parameters
    ----------
    scores : (n, K)
        Calibration scores of every label; larger is stranger.
    y : integers (n,)
        True labels.
    groups : (n,), or several columns
        One group per point, or one per combination of the columns. A boolean table
        (n, G) has groups that may overlap, such as woman, Black, and both; a point in
        none of them counts for q̂ alone.
    metric : str or FairnessMetric, or several
        What is compared between groups. Several of them, such as
        ("equal_opportunity", "set_size"), must all hold at the one threshold; with a
        guarantee they do not share `delta`.
    closeness : float, or several, optional
        The largest difference allowed, or the smallest ratio; by default .1, for ratios
        .8. Several values that were declared beforehand share `delta`, and give a result
        each. For several metrics: a number for all differences, or a dict by metric.
    alpha : float
        The sets cover the true label with probability at least 1 - alpha.
    classwise : bool
        One threshold per positive label; by default one serves all.
    positive_labels : labels, optional
        Those whose coverage must be fair; by default all but label 0.
    guarantee : "none" or "fixed-sequence"
        "none" is the paper's rule: the first threshold that is within `closeness` on the
        calibration data. "fixed-sequence" returns the smallest threshold of a grid down
        to which every one passes an exact test, so that the true gap exceeds `closeness`
        with probability at most `delta`.
    grid : thresholds, optional
        For the guarantee, fixed without looking at the calibration data; by default
        `default_grid()`.
    start : float, optional
        Where the walk begins, fixed beforehand; by default at ∞. Predictive parity needs
        it when the groups' priors differ by more than `closeness`: from ∞ the walk is
        then over at once.
    test : "staircase" or "bounds"
        For the guarantee. "bounds" has two bounds at half of `delta` each, for points
        that are not drawn independently: nodes of one graph whose `pool_sizes` are not
        known, or that were split within labels. The staircase is sharper; where it is not
        valid (the proxy, overlapping filters) bounds are used in any case.
    unlabelled : (scores, groups), optional
        More points of the same population for demographic parity and disparate impact,
        which need no labels. q̂ still comes from the labelled points.
    pool_sizes : dict of group -> points, optional
        On a graph, where calibration and test nodes are a random split of one pool: the
        points of every group in the whole pool, for exact bounds. The promise is then
        about the pool. For demographic parity and disparate impact. Groups of the pool
        that no calibration point has are declared by it.
    base_scores : (m,), optional
        The scores that q̂ comes from; by default those of the true labels.
    sample_weight : (n,), optional
        How much more common each point is in the target population than in this sample,
        up to a common factor: survey weights, or a known shift. Without a guarantee
        counts and q̂ are weighted, with effective sizes; that is approximate. With one,
        points are thinned (`weights.thin`), and the promise is exact in the target.
    weight_bound : float, optional
        For the guarantee: the largest weight that anyone can have, declared without
        looking at the sample.
    random_state : int
        The seed of the thinning.

    Returns
    -------
    FairThreshold, or a list of them for several values of closeness

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random((500, 2))
    >>> found = find_threshold(
    ...     scores,
    ...     rng.integers(0, 2, 500),
    ...     rng.choice(["a", "b"], 500),
    ...     "demographic_parity",
    ... )
    >>> found.feasible
    True
    """
    metrics, together = _several_metrics(metric, closeness)
    asked: Any = closeness
    is_several = not together and asked is not None and np.ndim(asked) > 0
    given: list[Any] = [asked]
    if together:
        given = together[:1]
    elif is_several:
        given = np.asarray(closeness).tolist()
    if not given:
        raise ValueError("closeness: found none; wanted at least one value")
    values = []
    for value in given:
        values.append(metrics[0].allowed(value))
    finished = search(
        scores,
        y,
        groups,
        metric,
        alpha=alpha,
        classwise=classwise,
        positive_labels=positive_labels,
        guarantee=guarantee,
        delta=as_fraction(delta, "delta") / len(values),
        grid=grid,
        start=start,
        test=test,
        unlabelled=unlabelled,
        pool_sizes=pool_sizes,
        base_scores=base_scores,
        sample_weight=sample_weight,
        weight_bound=weight_bound,
        random_state=random_state,
        together=together,
    )
    results = [finished.find(value) for value in values]
    if is_several:
        return results
    return results[0]


def _several_metrics(
    metric: Any, closeness: Any
) -> tuple[list[FairnessMetric], list[float]]:
    """The metrics asked for, and what is allowed of each where there are several."""
    if not isinstance(metric, list | tuple):
        return [get_metric(metric)], []
    metrics = [get_metric(each) for each in metric]
    names = [each.name for each in metrics]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise ValueError(f"metric: found {names}; wanted one, or several different ones")
    for each in metrics:
        if each.quantity == Quantity.PPV:
            raise ValueError(
                f"metric: found {each.name!r} among several; it can fail at every "
                "threshold, so it is searched alone"
            )
    if closeness is not None and not isinstance(closeness, Mapping):
        if np.ndim(closeness) > 0:
            raise ValueError(
                f"closeness: found {closeness!r} for several metrics; wanted a number, "
                "or a dict by metric"
            )
        differences = [each.name for each in metrics if not each.is_ratio]
        closeness = dict.fromkeys(differences or names, closeness)
    given = dict(closeness or {})
    for name in given:
        if name not in names:
            raise ValueError(f"closeness: found {name!r}; wanted some of {names}")
    return metrics, [each.allowed(given.get(each.name)) for each in metrics]


def frontier(
    scores: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric | Sequence[str | FairnessMetric],
    **options: Any,
) -> pd.DataFrame:
    """The price of fairness: the answer of `find_threshold` for every closeness at once.

    Parameters
    ----------
    scores, y, groups, metric
        As in `find_threshold`.
    **options
        alpha, classwise, positive_labels, guarantee, delta, grid, start, test,
        unlabelled, pool_sizes, base_scores, sample_weight, weight_bound and
        random_state, as in `find_threshold`.

    Returns
    -------
    DataFrame
        closeness, threshold, mean_set_size and coverage. A row's threshold is the
        answer for every c from its closeness up to that of the row before. Mean set
        size and coverage of the true label are those of the whole predictor at that
        closeness, on the calibration data (weighted, or thinned). With `classwise` there
        is a row wherever the threshold of one label, in the column `label`, moves.

    Notes
    -----
    The guarantee holds for a closeness that was chosen beforehand, not for one picked
    from this table.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> table = frontier(
    ...     rng.random((500, 2)), rng.integers(0, 2, 500), rng.integers(0, 2, 500),
    ...     "demographic_parity",
    ... )
    >>> bool(table["closeness"].is_monotonic_decreasing)
    True
    """
    if "closeness" in options:
        raise ValueError(
            "closeness: found one; the frontier has every value: wanted none"
        )
    return search(scores, y, groups, metric, **options).frontier()


def search(
    scores: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric | Sequence[str | FairnessMetric],
    *,
    alpha: float = 0.1,
    classwise: bool = False,
    positive_labels: ArrayLike | None = None,
    guarantee: str = "none",
    delta: float = 0.1,
    grid: ArrayLike | None = None,
    start: float | None = None,
    test: str = "staircase",
    unlabelled: tuple[ArrayLike, Any] | None = None,
    pool_sizes: Mapping[Any, int] | None = None,
    base_scores: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    weight_bound: float | None = None,
    random_state: int = 0,
    together: Sequence[float] = (),
) -> Search:
    """The pass behind `find_threshold` and `frontier`.

    Do it once, then ask the result for as many values of c as you like. For several
    metrics `together` has what is allowed of each; by default the same of all.
    """
    weighting = None
    if sample_weight is not None:
        _check_goes_with_weights(unlabelled, pool_sizes)
        scores = as_scores(scores)
        n, n_classes = scores.shape
        guarantee = one_of(guarantee, "guarantee", GUARANTEES)
        weighting, is_kept, sample_weight = use_weights(
            sample_weight, n, weight_bound, guarantee != Guarantee.NONE, random_state
        )
        y = as_labels(y, n, n_classes)[is_kept]
        groups = as_groups(groups, n).take(is_kept)
        if base_scores is not None:
            base_scores = as_base_scores(base_scores, n)[is_kept]
        scores = scores[is_kept]
    elif weight_bound is not None:
        raise ValueError(
            "weight_bound: found one without sample_weight; wanted both, or neither"
        )
    calibration = Calibration(
        scores,
        y,
        groups,
        alpha=alpha,
        positive_labels=positive_labels,
        unlabelled=unlabelled,
        pool_sizes=pool_sizes,
        base_scores=base_scores,
        sample_weight=sample_weight,
        share=False,
    )
    finished = calibration.search(
        metric,
        classwise=classwise,
        guarantee=guarantee,
        delta=delta,
        grid=grid,
        start=start,
        test=test,
        together=together,
    )
    return replace(finished, weighting=weighting)


def _check_goes_with_weights(unlabelled: Any, pool_sizes: Any) -> None:
    """Weights are for labelled points that were drawn one by one."""
    for name, value in (("unlabelled", unlabelled), ("pool_sizes", pool_sizes)):
        if value is not None:
            raise ValueError(
                f"{name}: found some together with sample_weight; wanted one or the other"
            )


def check_default_grid(base: float) -> None:
    """A ValueError where q̂ lies below the default grid."""
    if base < -ROUNDING:
        raise ValueError(
            f"grid: found None while q̂ is {base:.4g}; the default grid begins at 0, and "
            "scores below it with a guarantee need a grid of thresholds that is fixed "
            "without the calibration data"
        )


def default_grid(top: float = 1.0) -> np.ndarray:
    """Thresholds for scores from 0 to `top`, fixed without looking at any data.

    Even points, and points that crowd towards the top, where the scores of a confident
    model lie.

    Examples
    --------
    >>> grid = default_grid()
    >>> len(grid), float(grid[0]), float(grid[-1])
    (1002, 0.0, 1.0)
    """
    even = top * np.arange(601) / 600
    crowded = top * (1 - 10 ** (-5 + 4.5 * np.arange(401) / 400))
    return np.unique(np.concatenate([even, crowded]))


class Calibration:
    """Calibration data, checked once: `search` it by as many metrics as you like.

    Parameters
    ----------
    scores, y, groups, alpha, positive_labels, unlabelled, pool_sizes, base_scores
        As in `find_threshold`.
    sample_weight : (n,), optional
        For weighted counts, without a guarantee.
    share : bool
        Keep the sorted scores for the next search. Built-in metrics share them.
    """

    def __init__(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        groups: Any,
        *,
        alpha: float = 0.1,
        positive_labels: ArrayLike | None = None,
        unlabelled: tuple[ArrayLike, Any] | None = None,
        pool_sizes: Mapping[Any, int] | None = None,
        base_scores: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        share: bool = True,
    ) -> None:
        self.scores = as_scores(scores)
        n, n_classes = self.scores.shape
        self.n_labelled = n
        self.y = as_labels(y, n, n_classes)
        self.groups = as_groups(groups, n)
        self.labels = as_positive_labels(positive_labels, n_classes)
        if base_scores is None:
            base_scores = self.scores.ravel()[np.arange(n) * n_classes + self.y]
        alpha = as_fraction(alpha, "alpha")
        self.weights: np.ndarray | None = None
        if sample_weight is None:
            self.base = conformal_quantile(as_base_scores(base_scores), alpha)
        else:
            _check_goes_with_weights(unlabelled, pool_sizes)
            self.weights = as_weights(sample_weight, n)
            own = as_base_scores(base_scores, n)
            self.base = weighted_quantile(own, self.weights, alpha)
        if unlabelled is not None:
            self._add_unlabelled(unlabelled)
        self.pools: np.ndarray | None = None
        if pool_sizes is not None:
            self._set_pools(pool_sizes)
        self.share = share
        self.is_ranked = False
        self._sorted: dict[tuple[int, ...], SortedScores] = {}

    def search(
        self,
        metric: str | FairnessMetric | Sequence[str | FairnessMetric],
        *,
        classwise: bool = False,
        guarantee: str = "none",
        delta: float = 0.1,
        grid: ArrayLike | None = None,
        start: float | None = None,
        test: str = "staircase",
        together: Sequence[float] = (),
    ) -> Search:
        """Everything about one metric: ask it for a closeness, or the frontier.

        Several metrics are searched together, each with what `together` allows.
        """
        if isinstance(metric, list | tuple):
            metrics, _ = _several_metrics(metric, None)
            if as_flag(classwise, "classwise"):
                raise ValueError(
                    "classwise: found True for several metrics; wanted False: one "
                    "threshold serves them all"
                )
            return self._search_together(
                metrics,
                list(together),
                guarantee=guarantee,
                delta=delta,
                grid=grid,
                start=start,
                test=test,
            )
        [metric], _ = _several_metrics(metric, None)
        if metric.is_size and not self.is_ranked:
            self._check_has_sizes(metric)
            return self._ranked.search(
                metric,
                guarantee=guarantee,
                delta=delta,
                grid=grid,
                start=start,
                test=test,
            )
        self._check_needs_no_labels(metric)
        delta = as_fraction(delta, "delta")
        guarantee = one_of(guarantee, "guarantee", GUARANTEES)
        start = _as_start(start)
        is_dependent = one_of(test, "test", tuple(PairTest)) == PairTest.BOUNDS
        n_classes = self.scores.shape[1]
        classwise = as_flag(classwise, "classwise") and metric.per_label
        level = None
        points = None
        if guarantee != Guarantee.NONE and self.weights is not None:
            raise ValueError(
                "sample_weight: found some for a guarantee; wanted points that were "
                "thinned by find_threshold or weights.thin"
            )
        if guarantee != Guarantee.NONE:
            points = self._grid(grid, start)
            level = delta / max(len(self.labels), 1) if classwise else delta
        curves = []
        if classwise:
            others = [label for label in range(n_classes) if label not in self.labels]
            kinds = None
            for label in self.labels:
                cells = self._cells(metric, [label], [label], is_dependent, kinds)
                curves.append(self._curve(cells, points, level, start))
                kinds = cells.kinds
        else:
            others = []
            every_label = list(range(n_classes))
            cells = self._cells(metric, self.labels, every_label, is_dependent)
            curves.append(self._curve(cells, points, level, start))
        in_sets, hits = self._covered_at_base(others)
        n_points = float(len(self.y))
        n_labelled = float(self.n_labelled)
        if self.weights is not None:
            n_points = float(self.weights.sum())
            n_labelled = n_points
        return Search(
            curves=curves,
            metric=metric,
            guarantee=guarantee,
            group_names=self.groups.names,
            base=self.base,
            n_points=n_points,
            n_labelled=n_labelled,
            n_classes=n_classes,
            classwise=classwise,
            others_in_sets=in_sets,
            others_hits=hits,
        )

    def _covered_at_base(self, labels: list[int]) -> tuple[float, float]:
        """Of labels that keep q̂: pairs (point, label) in the sets, true labels covered.

        With weights their sums.
        """
        labels_in_set = np.zeros(len(self.y), np.int64)
        hits = np.zeros(len(self.y), bool)
        for label in labels:
            is_in_set = self.scores[:, label] <= self.base
            labels_in_set += is_in_set
            hits |= is_in_set & (self.y == label)
        if self.weights is None:
            return float(labels_in_set.sum()), float(hits.sum())
        return float(self.weights @ labels_in_set), float(self.weights @ hits)

    def _search_together(
        self,
        metrics: list[FairnessMetric],
        allowed: list[float],
        *,
        guarantee: str,
        delta: float,
        grid: ArrayLike | None,
        start: float | None,
        test: str,
    ) -> Search:
        """One threshold at which several metrics hold, each within its own closeness.

        The loss is by how much the worst of them exceeds what is allowed of it, plus what
        is allowed of the first: it is within the first one's closeness if and only if all
        are within theirs.
        """
        if self.weights is not None:
            raise ValueError(
                "sample_weight: found some for several metrics without a guarantee; "
                "wanted guarantee='fixed-sequence', which thins"
            )
        if not allowed:
            if len({metric.compare for metric in metrics}) > 1:
                raise ValueError(
                    "metric: found differences and ratios; wanted one kind, so that one "
                    "closeness is for all"
                )
            allowed = [metrics[0].default_closeness] * len(metrics)
        first = metrics[0]
        limits = [m.closeness(c) for m, c in zip(metrics, allowed, strict=True)]
        pass_over = functools.partial(
            self.search,
            guarantee=guarantee,
            delta=delta,
            grid=grid,
            start=start,
            test=test,
        )
        parts = [pass_over(metric) for metric in metrics]
        level = None
        if one_of(guarantee, "guarantee", GUARANTEES) != Guarantee.NONE:
            level = as_fraction(delta, "delta")
            thresholds = self._grid(grid, _as_start(start))
        else:
            above = self.scores[(self.scores > self.base) & np.isfinite(self.scores)]
            thresholds = np.unique(np.append(above.astype(np.float64), self.base))
            thresholds = thresholds[np.isfinite(thresholds)]
        worst = np.full(len(thresholds), -np.inf)
        for part, limit in zip(parts, limits, strict=True):
            losses = _losses_at(part.curves[0], thresholds, level)
            worst = np.maximum(worst, losses - limit + limits[0])
        curve = _curve_of_losses(parts[0].curves[0], thresholds, worst, level)
        told = [f"{m.name} within {c:g}" for m, c in zip(metrics, allowed, strict=True)]
        return replace(
            parts[0],
            curves=[curve],
            metric=replace(first, name=" and ".join(told)),
            parts=tuple(zip(parts, allowed, strict=True)),
        )

    def _check_has_sizes(self, metric: FairnessMetric) -> None:
        """Sizes of sets have no weighted counts, and means no exact pools."""
        if self.weights is not None:
            raise ValueError(
                f"sample_weight: found some for {metric.name} without a guarantee; "
                "wanted guarantee='fixed-sequence', which thins"
            )
        if metric.is_mean and self.pools is not None:
            raise ValueError(
                f"pool_sizes: found some for {metric.name}; they are for shares of points"
            )

    @cached_property
    def _ranked(self) -> Calibration:
        """The same points with each one's scores ascending, whichever label they are of.

        A set holds at least j labels if the j-th smallest score is at most λ. The true
        label is the place of its score.
        """
        order = np.argsort(self.scores, axis=1, kind="stable")
        place = (order == self.y[:, None]).argmax(axis=1)
        other = copy.copy(self)
        other.__dict__.pop("_places", None)
        other.scores = np.take_along_axis(self.scores, order, axis=1)
        other.y = np.where(self.y < 0, -1, place)
        other.is_ranked = True
        other._sorted = {}
        return other

    def _add_unlabelled(self, unlabelled: tuple[ArrayLike, Any]) -> None:
        """More points, with y = -1: groups that occur only among them count too."""
        if not isinstance(unlabelled, tuple | list) or len(unlabelled) != 2:
            raise ValueError(
                f"unlabelled: found {type(unlabelled).__name__}; "
                "wanted a pair (scores, groups)"
            )
        scores = as_scores(unlabelled[0], "unlabelled scores")
        if scores.shape[1] != self.scores.shape[1]:
            raise ValueError(
                f"unlabelled scores: found {scores.shape[1]} columns; wanted "
                f"{self.scores.shape[1]}, as for the labelled points"
            )
        try:
            groups = as_groups(unlabelled[1], len(scores))
        except ValueError as error:
            raise ValueError(f"unlabelled {error}") from None
        self.groups = self.groups.joined(groups)
        self.scores = np.concatenate([self.scores, scores])
        self.y = np.concatenate([self.y, np.full(len(scores), -1)])

    def _set_pools(self, pool_sizes: Mapping[Any, int]) -> None:
        """Points per group in the pool; a group that was not drawn from is declared."""
        try:
            sizes = dict(pool_sizes)
        except (TypeError, ValueError):
            raise ValueError(
                f"pool_sizes: found {type(pool_sizes).__name__}; "
                "wanted the points of every group, as a dict"
            ) from None
        self.groups = self.groups.declare(name for name in sizes if sizes[name] != 0)
        self.pools = as_pools(sizes, self.groups)

    def _check_needs_no_labels(self, metric: FairnessMetric) -> None:
        """Unlabelled points, and pools, are for metrics whose cells are the groups."""
        has_more = len(self.y) > self.n_labelled
        for name, is_given in (
            ("unlabelled", has_more),
            ("pool_sizes", self.pools is not None),
        ):
            if is_given and metric.needs_labels:
                raise ValueError(
                    f"{name}: found some for {metric.name}; they are for "
                    "demographic_parity, disparate_impact and sizes, which do not "
                    "look at the true label"
                )

    def _grid(self, grid: ArrayLike | None, start: float | None) -> np.ndarray:
        """The finite grid points that are at least q̂, ascending.

        The grid itself never looks at the calibration data.
        """
        if grid is None:
            largest = self.scores.max()
            if largest > 1 + ROUNDING:
                raise ValueError(
                    f"grid: found None while scores reach {largest:.4g}; scores above 1 "
                    "with a guarantee need a grid of thresholds that is fixed without "
                    "the calibration data"
                )
            check_default_grid(self.base)
            grid = default_grid()
        points = np.unique(as_float_column(grid, "grid").astype(np.float64))
        if start is not None:
            points = np.append(points[points < start], start)
        return points[(points >= self.base) & (points < np.inf)]

    def _cells(
        self,
        metric: FairnessMetric,
        labels: list[int],
        columns: list[int],
        is_dependent: bool,
        other_kinds: Kinds | None = None,
    ) -> CellMap:
        """What one threshold is judged by, which decides on the labels in `columns`."""
        return CellMap.build(
            metric,
            labels,
            columns,
            self.y,
            self.groups,
            self.pools,
            is_dependent,
            other_kinds,
        )

    def _curve(
        self,
        cells: CellMap,
        grid: np.ndarray | None,
        level: float | None,
        start: float | None,
    ) -> Curve:
        """The answers of one threshold."""
        if self.weights is not None:
            weighted = WeightedScores.build(
                self.scores, self.weights, self.base, cells.columns, cells.kinds
            )
            cells = replace(cells, squares=weighted.squares)
            return first_passing_by_weight(weighted, cells)
        if cells.metric.is_size and (grid is None or level is None):
            ones = np.ones(len(self.y))
            counted = WeightedScores.build(
                self.scores, ones, self.base, cells.columns, cells.kinds
            )
            return first_passing_by_weight(counted, cells)
        ordered = self._sort(cells)
        if grid is None or level is None:
            return first_passing(ordered, cells)
        return fixed_sequence(ordered, cells, grid, level, from_infinity=start is None)

    def _sort(self, cells: CellMap) -> SortedScores:
        """The scores above q̂ of the cells' columns, ascending; once if shared."""
        key = tuple(cells.columns)
        if self.share and cells.metric.is_built_in and key in self._sorted:
            return self._sorted[key]
        ordered = sort_scores(self._places, self.base, cells.columns, cells.kinds)
        if self.share and cells.metric.is_built_in:
            self._sorted[key] = ordered
        return ordered

    @cached_property
    def _places(self) -> Places:
        return Places.of(self.scores)


def as_base_scores(values: ArrayLike, n: int | None = None) -> np.ndarray:
    """Scores (n,) for q̂, where -0.0 is 0.0."""
    scores = as_float_column(values, "base_scores") + 0.0
    if n is not None and len(scores) != n:
        raise ValueError(
            f"base_scores: found {len(scores)} for {n} points with sample_weight; wanted "
            "one each"
        )
    return scores


def _as_start(start: float | None) -> float | None:
    """Where the walk begins; None: at ∞."""
    if start is None:
        return None
    is_number = isinstance(start, int | float | np.number) and not isinstance(start, bool)
    if not is_number or math.isnan(start):
        raise ValueError(f"start: found {start!r}; wanted a threshold, or None")
    if start == math.inf:
        return None
    return float(start)


@dataclass(frozen=True)
class Curve:
    """The answer of one threshold for every c: thresholds ascend while losses fall.

    The first loss within c names the threshold. A loss is a gap, or a ratio with its sign
    turned, so that smaller is always fairer.
    """

    cells: CellMap
    ordered: OrderedScores
    level: float | None  # of the test that each threshold passed; None: no guarantee
    thresholds: np.ndarray
    losses: np.ndarray
    in_sets: np.ndarray  # pairs (point, label) in the sets at each threshold
    hits: np.ndarray  # true labels covered

    @classmethod
    def build(
        cls,
        cells: CellMap,
        ordered: OrderedScores,
        level: float | None,
        thresholds: np.ndarray,
        losses: np.ndarray,
        passed: np.ndarray,
        passed_hits: np.ndarray,
        with_infinity: bool = True,
    ) -> Curve:
        """From the thresholds with a new low of the loss; ∞ is added if it helps."""
        is_true = cells.kinds.is_true.astype(bool)
        in_sets = ordered.below.sum() + passed
        hits = ordered.below[is_true].sum() + passed_hits
        at_infinity = cells.losses_at_infinity(ordered.totals, level)
        last = at_infinity.max(initial=cells.metric.no_loss)
        if with_infinity and (len(losses) == 0 or last < losses[-1]):
            thresholds = np.append(thresholds, np.inf)
            losses = np.append(losses, last)
            in_sets = np.append(in_sets, ordered.totals.sum())
            hits = np.append(hits, ordered.totals[is_true].sum())
        return cls(cells, ordered, level, thresholds, losses, in_sets, hits)

    def step(self, limit: ArrayLike) -> np.ndarray:
        """Which step serves a loss up to `limit`; the number of steps if none."""
        return np.searchsorted(
            -self.losses, -(np.asarray(limit) + TOLERANCE), side="left"
        )

    def threshold_at(self, limit: float) -> float:
        """The threshold that serves a loss of at most `limit`; infinite if none does."""
        step = int(self.step(limit))
        if step == len(self.losses):
            return math.inf
        return float(self.thresholds[step])

    def bounds(self, threshold: float) -> np.ndarray:
        """Loss per label at one threshold."""
        if math.isinf(threshold):
            return self.cells.losses_at_infinity(self.ordered.totals, self.level)
        passed = self.ordered.passed(np.asarray([threshold]))
        ((_, covered),) = self.ordered.covered(passed)
        return self.cells.losses(covered[0], self.ordered.totals, self.level)

    def sizes_at(self, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs in the sets and true labels covered at these steps."""
        in_sets = np.append(self.in_sets, self.ordered.totals.sum())
        is_true = self.cells.kinds.is_true.astype(bool)
        hits = np.append(self.hits, self.ordered.totals[is_true].sum())
        return in_sets[step], hits[step]

    @property
    def best_finite(self) -> float:
        """The smallest loss at a finite threshold; infinite if there is none."""
        return float(self.losses[np.isfinite(self.thresholds)].min(initial=np.inf))

    def blocking_cells(self, closeness: float) -> list[tuple[Any, Any, int]]:
        """(group, label, n) of the cells with too few points, however covered."""
        cells = self.cells
        if self.level is not None and not cells.has_pairs:
            return []
        sizes = cells.sizes(self.ordered.totals)
        found = []
        for family, group in np.argwhere(self._is_too_small(sizes, closeness)):
            label = None
            if cells.metric.per_label:
                label = cells.labels[family * len(cells.labels) // len(sizes)]
            found.append((cells.group_names[group], label, int(sizes[family, group])))
        return found

    def _is_too_small(self, sizes: np.ndarray, closeness: float) -> np.ndarray:
        """Which cells (families, groups) have too few points, however covered."""
        if self.level is None:
            return sizes < self.points_needed(closeness)
        limit = self.cells.metric.closeness(closeness) + TOLERANCE
        pools = self.cells.pools
        losses = [self.cells.full_losses(family, self.level, pools) for family in sizes]
        return np.array(losses).reshape(sizes.shape) > limit

    def points_needed(self, closeness: float) -> int:
        """Points that every cell needs before any finite threshold can pass.

        The test itself is asked, about groups of n points each that are all covered.
        Where another staircase begins it may reject again: the answer is the size from
        which on it accepts.
        """
        limit = self.cells.metric.closeness(closeness) + TOLERANCE
        needed = _points_needed(self.cells, self.level, limit)
        has_pools = self.cells.pools is not None
        if self.level is None or needed == MANY or has_pools or not self.cells.has_pairs:
            return needed
        # Between groups of different sizes it may take a few more.
        sizes = self.cells.sizes(self.ordered.totals)
        while self._is_too_small(np.maximum(sizes, needed), closeness).any():
            needed += 1 + needed // 50
        return needed


def _points_needed(cells: CellMap, level: float | None, limit: float) -> int:
    """The least size from which on cells that are all covered are within `limit`."""

    def is_enough(n: int) -> bool:
        return cells.least_loss(n, level) <= limit

    needed = 0
    while True:
        enough = max(needed, 1)
        while enough < MANY and not is_enough(enough):
            enough *= 2
        if enough >= MANY:
            return MANY
        needed += bisect_left(range(needed, enough), True, key=is_enough)
        following = next_staircase(needed)
        if is_enough(following):
            return needed
        needed = following


def first_passing(ordered: SortedScores, cells: CellMap) -> Curve:
    """The paper's rule: the smallest threshold whose loss on the data is within c."""
    nothing = np.empty(0, np.int64)
    if math.isinf(ordered.base):
        no_losses = np.empty(0)
        return Curve.build(cells, ordered, None, no_losses, no_losses, nothing, nothing)
    if cells.shape[0] == 0:  # no label needs to be fair
        return nothing_to_compare(ordered, cells, None)
    covered = cells.counts(ordered.below)
    sizes = cells.counts(ordered.totals)
    all_passed, all_lows, all_hits = new_lows(
        ordered.order, ordered.shift, cells, covered, sizes
    )
    thresholds = ordered.thresholds(all_passed)
    return Curve.build(cells, ordered, None, thresholds, all_lows, all_passed, all_hits)


def first_passing_by_weight(ordered: WeightedScores, cells: CellMap) -> Curve:
    """The paper's rule with weighted counts: every distinct score is a candidate."""
    nothing = np.empty(0)
    if math.isinf(ordered.base):
        return Curve.build(cells, ordered, None, nothing, nothing, nothing, nothing)
    if cells.shape[0] == 0:  # no label needs to be fair
        return nothing_to_compare(ordered, cells, None)
    passed = ordered.ends
    losses = np.empty(len(passed))
    for some, covered in ordered.covered(passed):
        losses[some] = cells.losses(covered, ordered.totals, None).max(axis=-1)
    lowest_before = np.minimum.accumulate(np.append(np.inf, losses[:-1]))
    new = np.flatnonzero(losses < lowest_before)
    return Curve.build(
        cells,
        ordered,
        None,
        ordered.thresholds(passed[new]),
        losses[new],
        ordered.in_sets(passed[new]),
        ordered.hits(cells.kinds.is_true, passed[new]),
    )


def _losses_at(curve: Curve, thresholds: np.ndarray, level: float | None) -> np.ndarray:
    """The largest loss over labels at every threshold, ascending."""
    losses = np.full(len(thresholds), curve.cells.metric.no_loss)
    if level is not None and not curve.cells.has_pairs:
        return losses
    passed = curve.ordered.passed(thresholds)
    for some, covered in curve.ordered.covered(passed):
        of_labels = curve.cells.losses(covered, curve.ordered.totals, level)
        losses[some] = of_labels.max(axis=-1, initial=curve.cells.metric.no_loss)
    return losses


def _curve_of_losses(
    first: Curve, thresholds: np.ndarray, losses: np.ndarray, level: float | None
) -> Curve:
    """The curve from losses at all candidates, sizes and coverages by the first's order.

    With a level the walk comes down from the top; else every new low is an answer.
    """
    if level is not None:
        no_loss = first.cells.metric.no_loss
        reached = np.maximum(np.maximum.accumulate(losses[::-1])[::-1], no_loss)
        new = np.flatnonzero(reached < np.append(np.inf, reached[:-1]))
    else:
        reached = losses
        before = np.minimum.accumulate(np.append(np.inf, losses))[:-1]
        new = np.flatnonzero(losses < before)
    passed = first.ordered.passed(thresholds[new])
    hits = first.ordered.hits(first.cells.kinds.is_true, passed)
    return Curve.build(
        first.cells, first.ordered, level, thresholds[new], reached[new], passed, hits
    )


def new_lows(
    order: np.ndarray,
    shift: int,
    cells: CellMap,
    covered: np.ndarray,
    sizes: np.ndarray,
    best: float = math.inf,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each new low of the loss below `best`: scores passed, the loss, true labels passed.

    `order` holds scores in ascending order, packed as in `SortedScores`; `covered`, the
    points of every cell that are covered before them, is changed in place.
    """
    _, _, sweep = _sweep.compiled()
    metric = cells.metric
    packed_shift = order.dtype.type(shift)
    pages = []
    start = 0
    start_hits = 0
    while True:
        passed = np.empty(_sweep.PAGE, np.int64)
        lows = np.empty(_sweep.PAGE)
        hits = np.empty(_sweep.PAGE, np.int64)
        with np.errstate(divide="ignore"):  # where the loop runs uncompiled
            n_lows = sweep(
                order[start:],
                packed_shift,
                cells.kinds.is_true,
                cells.first_move,
                cells.moves,
                covered,
                sizes,
                metric.is_ratio,
                metric.is_predictive,
                metric.is_proxy,
                best,
                passed,
                lows,
                hits,
            )
        pages.append((start + passed[:n_lows], lows[:n_lows], start_hits + hits[:n_lows]))
        if n_lows < _sweep.PAGE:
            break
        start += int(passed[-1])
        start_hits += int(hits[-1])
        best = float(lows[-1])
    return (
        np.concatenate([page[0] for page in pages]),
        np.concatenate([page[1] for page in pages]),
        np.concatenate([page[2] for page in pages]),
    )


def nothing_to_compare(
    ordered: OrderedScores, cells: CellMap, level: float | None
) -> Curve:
    """No label needs to be fair, or there are no two groups: q̂ serves every closeness."""
    at_base = np.array([ordered.base])
    passed = np.zeros(1, np.int64)
    no_loss = np.array([cells.metric.no_loss])
    return Curve.build(cells, ordered, level, at_base, no_loss, passed, passed)


def _losses_after(
    ordered: OrderedScores,
    cells: CellMap,
    passed: np.ndarray,
    level: float,
    at_least: float,
) -> np.ndarray:
    """The largest loss over labels after so many scores; smaller ones as `at_least`."""
    losses = np.empty(len(passed))
    for some, covered in ordered.covered(passed):
        of_labels = cells.losses(covered, ordered.totals, level, at_least)
        losses[some] = of_labels.max(axis=-1, initial=cells.metric.no_loss)
    return losses


def fixed_sequence(
    ordered: OrderedScores,
    cells: CellMap,
    grid: np.ndarray,
    level: float,
    from_infinity: bool = True,
    limits: Sequence[float] | None = None,
) -> Curve:
    """The test that keeps its promise: walk down and stop at the first rejection.

    A grid point is reached for c only if it and all above it have a loss within c, that
    is, if the running maximum of the losses from the top is; that maximum is the curve's
    loss. The walk begins at ∞, or else at the largest grid point.

    Where only some `limits` will be asked for, losses below the smallest of them come as
    that limit. The largest grid point's is told as it is: no finite threshold has less.
    """
    metric = cells.metric
    if not cells.has_pairs and math.isfinite(ordered.base):
        return nothing_to_compare(ordered, cells, level)
    passed = ordered.passed(grid)
    at_least = -math.inf if limits is None else min(limits)
    losses = np.append(
        _losses_after(ordered, cells, passed[:-1], level, at_least),
        _losses_after(ordered, cells, passed[-1:], level, -math.inf),
    )
    highest = metric.no_loss
    if from_infinity:
        at_infinity = cells.losses_at_infinity(ordered.totals, level)
        highest = at_infinity.max(initial=metric.no_loss)
    worst_above = np.maximum(np.maximum.accumulate(losses[::-1])[::-1], highest)
    new = np.flatnonzero(worst_above < np.append(np.inf, worst_above[:-1]))
    hits = ordered.hits(cells.kinds.is_true, passed[new])
    return Curve.build(
        cells,
        ordered,
        level,
        grid[new],
        worst_above[new],
        passed[new],
        hits,
        with_infinity=from_infinity or metric.quantity != Quantity.PPV,
    )


@dataclass(frozen=True)
class Search:
    """A finished pass over the data: ask for a closeness, or the frontier."""

    curves: list[Curve]
    metric: FairnessMetric
    guarantee: str
    group_names: list[Any]
    base: float
    n_points: float  # or the sum of their weights; so below
    n_labelled: float
    n_classes: int
    classwise: bool
    others_in_sets: float  # for the labels that keep q̂: pairs (point, label) in the sets,
    others_hits: float  # and true labels covered
    weighting: Weighting | None = None
    parts: tuple[tuple[Search, float], ...] = ()  # metrics together, and closeness

    def find(self, closeness: float | None = None) -> FairThreshold:
        """The answer of `find_threshold` for one closeness."""
        if closeness is None:
            closeness = self.metric.default_closeness
        closeness = as_fraction(closeness, "closeness", include_one=True)
        limit = self.metric.closeness(closeness)
        threshold = np.full(self.n_classes, self.base)
        bound = np.full(self.n_classes, np.nan)
        blocking_cells = []
        feasible = True
        satisfied = True
        for curve in self.curves:
            found = curve.threshold_at(limit)
            threshold[curve.cells.columns] = found
            labels = curve.cells.labels if self.metric.per_label else slice(None)
            bound[labels] = self.metric.closeness(curve.bounds(found))
            if math.isinf(found):
                feasible = False
                blocking_cells += curve.blocking_cells(closeness)
                satisfied &= bool(curve.step(limit) < len(curve.losses))
        reached = max(
            [curve.best_finite for curve in self.curves], default=self.metric.no_loss
        )
        smallest = math.nan
        is_one_scale = len({allowed for _, allowed in self.parts}) < 2
        if math.isfinite(self.base) and math.isfinite(reached) and is_one_scale:
            smallest = float(self.metric.closeness(reached))
        needed = [curve.points_needed(closeness) for curve in self.curves]
        bounds = {}
        for part, own_closeness in self.parts:
            own = part.curves[0]
            own_bound = np.full(self.n_classes, np.nan)
            places = own.cells.labels if part.metric.per_label else slice(None)
            own_bound[places] = part.metric.closeness(own.bounds(float(threshold[0])))
            bounds[part.metric.name] = own_bound
            needed.append(own.points_needed(own_closeness))
            if not feasible and part is not self.parts[0][0]:
                blocking_cells += own.blocking_cells(own_closeness)
        return FairThreshold(
            threshold=threshold,
            base_threshold=self.base,
            feasible=feasible,
            satisfied=satisfied,
            bound=bound,
            smallest_closeness=smallest,
            blocking_cells=blocking_cells,
            metric=self.metric.name,
            closeness=closeness,
            guarantee=str(self.guarantee),
            points_needed=max(needed, default=0),
            is_ratio=self.metric.is_ratio,
            weighting=self.weighting,
            bounds=bounds,
        )

    def frontier(self) -> pd.DataFrame:
        """The answers for every closeness, as a table."""
        labels = []
        losses = []
        thresholds = []
        for curve in self.curves:
            # Not where rounding alone made the step.
            own = curve.step(curve.losses) == np.arange(len(curve.losses))
            labels.append(np.full(own.sum(), curve.cells.columns[0]))
            losses.append(curve.losses[own])
            thresholds.append(curve.thresholds[own])
        all_losses = np.concatenate([*losses, np.empty(0)])
        in_sets = np.full(len(all_losses), float(self.others_in_sets))
        hits = np.full(len(all_losses), float(self.others_hits))
        for curve in self.curves:
            # Where each threshold stands when the row's closeness is asked of all labels.
            own_in_sets, own_hits = curve.sizes_at(curve.step(all_losses))
            in_sets += own_in_sets
            hits += own_hits
        columns = {}
        if self.classwise:
            columns["label"] = np.concatenate([*labels, np.empty(0, np.int64)])
        columns["closeness"] = self.metric.closeness(all_losses)
        columns["threshold"] = np.concatenate([*thresholds, np.empty(0)])
        columns["mean_set_size"] = in_sets / self.n_points
        columns["coverage"] = hits / self.n_labelled
        return pd.DataFrame(columns)
