"""The smallest threshold that keeps the gap between groups within c.

It is exact, it is found for every c at once, and it may come with a guarantee. Bounds
move only at calibration scores, so those above q̂, q̂ itself and ∞ are the only candidates:
`_sweep` walks over them once and notes each new low of the gap. With a guarantee the
candidates are the points of a grid that is fixed beforehand, tested from ∞ downwards.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
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
from cfhelpers._ordering import CellMap, Places, SortedScores, sort_scores
from cfhelpers.conformal import conformal_quantile
from cfhelpers.groups import as_groups
from cfhelpers.metrics import FairnessMetric, get_metric

TOLERANCE = 1e-12  # a gap of exactly c may lie this far above it in floating point
MANY = 10**9  # more points than anyone has


class Guarantee(StrEnum):
    """What is promised: nothing (the paper's rule), or a test's level."""

    NONE = "none"
    FIXED_SEQUENCE = "fixed-sequence"


GUARANTEES = tuple(Guarantee)


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
        Gap or ratio at the threshold on the calibration data; NaN for labels that need
        not be fair.
    smallest_closeness : float
        The least c (for ratios the largest) that a finite threshold reaches; NaN if q̂ is
        infinite.
    blocking_cells : list of (group, label, n)
        Cells that are too small for any finite threshold.
    metric, closeness, guarantee
        What was asked for.
    points_needed : int
        In every cell, for a finite threshold.
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

    def __str__(self) -> str:
        asked = f"{self.metric} within {self.closeness:g} (guarantee: {self.guarantee})"
        if self.feasible:
            return f"{asked}: thresholds {np.array2string(self.threshold, precision=4)}"
        return f"{asked}: {self.why_infinite()}"

    def why_infinite(self) -> str:
        """Why a threshold is infinite, and what would be possible; empty if none is."""
        if self.feasible:
            return ""
        text = "no finite threshold"
        if not self.satisfied:
            text += ", and the full set does not do either"
        if math.isinf(self.base_threshold):
            return f"{text}; too few calibration points: q̂ is infinite"
        if not math.isnan(self.smallest_closeness):
            closest = f"{self.smallest_closeness:.4g}"
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


def find_threshold(
    scores: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric,
    closeness: float | None = None,
    *,
    alpha: float = 0.1,
    classwise: bool = False,
    positive_labels: ArrayLike | None = None,
    guarantee: str = "none",
    delta: float = 0.1,
    grid: ArrayLike | None = None,
) -> FairThreshold:
    """The smallest threshold in [q̂, ∞] at which groups differ by at most `closeness`.

    Parameters
    ----------
    scores : (n, K)
        Calibration scores of every label; larger is stranger.
    y : integers (n,)
        True labels.
    groups : (n,), or several columns
        One group per point, or one per combination of the columns.
    metric : str or FairnessMetric
        What is compared between groups.
    closeness : float, optional
        The largest difference allowed, or the smallest ratio; by default .1, for ratios
        .8.
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
        10,001 even points from 0 to 1.

    Returns
    -------
    FairThreshold

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
    finished = search(
        scores,
        y,
        groups,
        metric,
        alpha=alpha,
        classwise=classwise,
        positive_labels=positive_labels,
        guarantee=guarantee,
        delta=delta,
        grid=grid,
    )
    return finished.find(closeness)


def frontier(
    scores: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric,
    **options: Any,
) -> pd.DataFrame:
    """The price of fairness: the answer of `find_threshold` for every closeness at once.

    Parameters
    ----------
    scores, y, groups, metric
        As in `find_threshold`.
    **options
        alpha, classwise, positive_labels, guarantee, delta and grid, as in
        `find_threshold`.

    Returns
    -------
    DataFrame
        closeness, threshold, mean_set_size and coverage. A row's threshold is the
        answer for every c from its closeness up to that of the row before. Mean set
        size and coverage of the true label are those of the whole predictor at that
        closeness, on the calibration data. With `classwise` there is a row wherever the
        threshold of one label, in the column `label`, moves.

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
    return search(scores, y, groups, metric, **options).frontier()


def search(
    scores: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric,
    *,
    alpha: float = 0.1,
    classwise: bool = False,
    positive_labels: ArrayLike | None = None,
    guarantee: str = "none",
    delta: float = 0.1,
    grid: ArrayLike | None = None,
) -> "Search":
    """The pass behind `find_threshold` and `frontier`.

    Do it once, then ask the result for as many values of c as you like.
    """
    calibration = Calibration(
        scores, y, groups, alpha=alpha, positive_labels=positive_labels, share=False
    )
    return calibration.search(
        metric, classwise=classwise, guarantee=guarantee, delta=delta, grid=grid
    )


class Calibration:
    """Calibration data, checked once: `search` it by as many metrics as you like.

    Parameters
    ----------
    scores, y, groups, alpha, positive_labels
        As in `find_threshold`.
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
        share: bool = True,
    ) -> None:
        self.scores = as_scores(scores)
        n, n_classes = self.scores.shape
        self.y = as_labels(y, n, n_classes)
        self.groups = as_groups(groups, n)
        self.labels = as_positive_labels(positive_labels, n_classes)
        true_scores = self.scores.ravel()[np.arange(n) * n_classes + self.y]
        self.base = conformal_quantile(true_scores, as_fraction(alpha, "alpha"))
        self.share = share
        self._sorted: dict[tuple[int, ...], SortedScores] = {}

    def search(
        self,
        metric: str | FairnessMetric,
        *,
        classwise: bool = False,
        guarantee: str = "none",
        delta: float = 0.1,
        grid: ArrayLike | None = None,
    ) -> "Search":
        """Everything about one metric: ask it for a closeness, or the frontier."""
        metric = get_metric(metric)
        delta = as_fraction(delta, "delta")
        guarantee = one_of(guarantee, "guarantee", GUARANTEES)
        n_classes = self.scores.shape[1]
        classwise = as_flag(classwise, "classwise") and metric.per_label
        level = None
        points = None
        if guarantee != Guarantee.NONE:
            points = self._grid(grid)
            level = delta / max(len(self.labels), 1) if classwise else delta
        curves = []
        if classwise:
            others = [label for label in range(n_classes) if label not in self.labels]
            for label in self.labels:
                curves.append(self._curve(metric, [label], [label], points, level))
        else:
            others = []
            every_label = list(range(n_classes))
            curves.append(self._curve(metric, self.labels, every_label, points, level))
        in_sets = self.scores[:, others] <= self.base
        is_hit = in_sets & (self.y[:, None] == np.asarray(others, np.int64))
        return Search(
            curves=curves,
            metric=metric,
            guarantee=guarantee,
            group_names=self.groups.names,
            base=self.base,
            shape=(len(self.y), n_classes),
            classwise=classwise,
            others_in_sets=int(np.count_nonzero(in_sets)),
            others_hits=int(np.count_nonzero(is_hit)),
        )

    def _grid(self, grid: ArrayLike | None) -> np.ndarray:
        """The finite grid points that are at least q̂, ascending.

        The grid itself never looks at the calibration data.
        """
        if grid is None:
            largest = self.scores.max()
            if largest > 1:
                raise ValueError(
                    f"grid: found None while scores reach {largest:.4g}; scores above 1 "
                    "with a guarantee need a grid of thresholds that is fixed without "
                    "the calibration data"
                )
            grid = np.linspace(0, 1, 10_001)
        points = np.unique(as_float_column(grid, "grid").astype(np.float64))
        return points[(points >= self.base) & (points < np.inf)]

    def _curve(
        self,
        metric: FairnessMetric,
        labels: list[int],
        columns: list[int],
        grid: np.ndarray | None,
        level: float | None,
    ) -> "Curve":
        """The answers of one threshold, which decides on the labels in `columns`."""
        cells = CellMap.build(metric, labels, columns, self.y, self.groups)
        ordered = self._sort(cells, columns)
        if grid is None:
            return first_passing(ordered, cells)
        return fixed_sequence(ordered, cells, grid, level)

    def _sort(self, cells: CellMap, columns: list[int]) -> SortedScores:
        """The scores above q̂ of these columns, ascending; once if shared."""
        key = tuple(columns)
        if self.share and cells.metric.is_built_in and key in self._sorted:
            return self._sorted[key]
        ordered = sort_scores(self._places, self.base, columns, cells.kinds)
        if self.share and cells.metric.is_built_in:
            self._sorted[key] = ordered
        return ordered

    @cached_property
    def _places(self) -> Places:
        return Places.of(self.scores)


@dataclass(frozen=True)
class Curve:
    """The answer of one threshold for every c: thresholds ascend while losses fall.

    The first loss within c names the threshold. A loss is a gap, or a ratio with its sign
    turned, so that smaller is always fairer.
    """

    cells: CellMap
    ordered: SortedScores
    level: float | None  # of the test that each threshold passed; None: no guarantee
    thresholds: np.ndarray
    losses: np.ndarray
    in_sets: np.ndarray  # pairs (point, label) in the sets at each threshold
    hits: np.ndarray  # true labels covered

    @classmethod
    def build(
        cls,
        cells: CellMap,
        ordered: SortedScores,
        level: float | None,
        thresholds: np.ndarray,
        losses: np.ndarray,
        passed: np.ndarray,
        passed_hits: np.ndarray,
    ) -> "Curve":
        """From the thresholds with a new low of the loss; ∞ is added if it helps."""
        is_true = cells.kinds.is_true.astype(bool)
        in_sets = ordered.below.sum() + passed
        hits = ordered.below[is_true].sum() + passed_hits
        at_infinity = cells.losses_at_infinity(ordered.totals, level)
        last = at_infinity.max(initial=cells.metric.no_loss)
        if len(losses) == 0 or last < losses[-1]:
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
        sizes = cells.counts(self.ordered.totals).sum(axis=1)
        n_filters = (
            len(sizes) // max(len(cells.labels), 1) if cells.metric.per_label else 1
        )
        found = []
        for family, group in np.argwhere(sizes < self.points_needed(closeness)):
            label = cells.labels[family // n_filters] if cells.metric.per_label else None
            found.append((cells.group_names[group], label, int(sizes[family, group])))
        return found

    def points_needed(self, closeness: float) -> int:
        """Points that a cell needs before any finite λ can pass."""
        metric = self.cells.metric
        allowed = closeness + TOLERANCE
        if metric.is_ratio:
            allowed = 1 - closeness + TOLERANCE
        return bisect_left(range(MANY), True, key=lambda n: self._width(n) <= allowed)

    def _width(self, n: int) -> float:
        """The narrowest that the interval of a cell with n points can be."""
        metric = self.cells.metric
        if self.level is not None:
            if len(self.cells.group_names) == 1:
                return 0.0
            bounds_per_pair = 4 if metric.is_proxy else 2
            share = self.level / bounds_per_pair
            return float(1 - share ** (1 / max(n, 1e-9)))  # all covered, as near ∞
        if not metric.is_predictive:
            return 1 / (n + 1)
        if metric.is_proxy:
            return 1 / max(n, 1e-9) + 1 / (n + 1)
        return 1 / max(n, 1e-9)


def first_passing(ordered: SortedScores, cells: CellMap) -> Curve:
    """The paper's rule: the smallest threshold whose loss on the data is within c."""
    nothing = np.empty(0, np.int64)
    if math.isinf(ordered.base):
        no_losses = np.empty(0)
        return Curve.build(cells, ordered, None, no_losses, no_losses, nothing, nothing)
    metric = cells.metric
    if cells.shape[0] == 0:  # no label needs to be fair
        at_base = np.array([ordered.base])
        passed = np.zeros(1, np.int64)
        no_loss = np.array([metric.no_loss])
        return Curve.build(cells, ordered, None, at_base, no_loss, passed, passed)
    _, sweep = _sweep.compiled()
    covered = cells.counts(ordered.below)
    sizes = cells.counts(ordered.totals)
    shift = ordered.order.dtype.type(ordered.shift)
    pages = []
    best = math.inf
    start = 0
    start_hits = 0
    while True:
        passed = np.empty(_sweep.PAGE, np.int64)
        lows = np.empty(_sweep.PAGE)
        hits = np.empty(_sweep.PAGE, np.int64)
        with np.errstate(divide="ignore"):  # where the loop runs uncompiled
            n_lows = sweep(
                ordered.order[start:],
                shift,
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
    all_passed = np.concatenate([page[0] for page in pages])
    all_lows = np.concatenate([page[1] for page in pages])
    all_hits = np.concatenate([page[2] for page in pages])
    thresholds = ordered.thresholds(all_passed)
    return Curve.build(cells, ordered, None, thresholds, all_lows, all_passed, all_hits)


def fixed_sequence(
    ordered: SortedScores, cells: CellMap, grid: np.ndarray, level: float | None
) -> Curve:
    """The test that keeps its promise: walk down from ∞ and stop at the first rejection.

    A grid point is reached for c only if it and all above it have a loss within c, that
    is, if the running maximum of the losses from the top is; that maximum is the
    curve's loss.
    """
    metric = cells.metric
    passed = ordered.passed(grid)
    losses = np.empty(len(grid) + 1)
    for some, covered in ordered.covered(passed):
        of_labels = cells.losses(covered, ordered.totals, level)
        losses[some] = of_labels.max(axis=-1, initial=metric.no_loss)
    at_infinity = cells.losses_at_infinity(ordered.totals, level)
    losses[-1] = at_infinity.max(initial=metric.no_loss)
    worst_above = np.maximum.accumulate(losses[::-1])[:0:-1]
    new = np.flatnonzero(np.diff(worst_above, prepend=np.inf) < 0)
    kinds = (ordered.order & ordered.order.dtype.type(2**ordered.shift - 1)).astype(int)
    hits = np.concatenate([[0], np.cumsum(cells.kinds.is_true[kinds])])
    return Curve.build(
        cells, ordered, level, grid[new], worst_above[new], passed[new], hits[passed[new]]
    )


@dataclass(frozen=True)
class Search:
    """A finished pass over the data: ask for a closeness, or the frontier."""

    curves: list[Curve]
    metric: FairnessMetric
    guarantee: str
    group_names: list[Any]
    base: float
    shape: tuple[int, int]  # points, labels
    classwise: bool
    others_in_sets: int  # for the labels that keep q̂: pairs (point, label) in the sets,
    others_hits: int  # and true labels covered

    def find(self, closeness: float | None = None) -> FairThreshold:
        """The answer of `find_threshold` for one closeness."""
        if closeness is None:
            closeness = self.metric.default_closeness
        closeness = as_fraction(closeness, "closeness", include_one=True)
        limit = self.metric.closeness(closeness)
        threshold = np.full(self.shape[1], self.base)
        bound = np.full(self.shape[1], np.nan)
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
        if math.isfinite(self.base) and math.isfinite(reached):
            smallest = float(self.metric.closeness(reached))
        needed = [curve.points_needed(closeness) for curve in self.curves]
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
        in_sets = np.full(len(all_losses), self.others_in_sets)
        hits = np.full(len(all_losses), self.others_hits)
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
        columns["mean_set_size"] = in_sets / self.shape[0]
        columns["coverage"] = hits / self.shape[0]
        return pd.DataFrame(columns)
