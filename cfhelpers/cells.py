"""The centre of everything: points per (label, condition on the true label, group).

`CellCounts` holds how many points there are in every cell and how many of them are
covered. `CellCounts.shares` reduces it to what one metric compares: hits of trials in
every cell. Coverages, disparities, intervals and tests are all computed from these two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._checks import as_array, as_scores
from cfhelpers._sweep import predictive_rank_interval, rank_interval
from cfhelpers.bounds import (
    LARGEST_LEVEL,
    clopper_pearson,
    hypergeometric_bounds,
    maurer_pontil,
    staircase_losses,
)
from cfhelpers.conformal import prediction_sets, round_down
from cfhelpers.groups import Groups
from cfhelpers.metrics import Condition, FairnessMetric, Filter

EQUAL_DIFFERENT = (Condition.EQUAL, Condition.DIFFERENT)
_POWERS = 2 ** np.arange(8, dtype=np.uint8)
# Whether each of eight labels is in the set that a byte stands for, (8, 256).
_BITS = ((np.arange(256) & _POWERS[:, None].astype(int)) > 0).astype(np.int64)
# Whether a byte stands for a set of so many labels, (9, 256).
_OF_SIZE = (_BITS.sum(axis=0) == np.arange(9)[:, None]).astype(np.int64)


@dataclass(frozen=True)
class CellCounts:
    """Covered points and all points per (label, condition, group).

    Attributes
    ----------
    covered : integers (…, labels, conditions, groups)
        Points whose set holds the label. Leading axes, if any, run over thresholds.
    sizes : integers (labels, conditions, groups)
        All points of the cell.
    conditions : tuple
        ("equal", "different"): points whose true label is the label, and the others.
        Such a table serves every built-in metric. For a metric with filters of the user's
        own it has these filters in place of the conditions.
    group_names : list
    is_dependent : bool
        Whether a point is in two groups, so that their counts depend on each other.
    at_least : integers (…, labels, groups), optional
        Points whose set holds at least one label, at least two, and so on, up to all.
        Counts without it serve no metric of sizes.
    """

    covered: np.ndarray
    sizes: np.ndarray
    conditions: tuple[Any, ...]
    group_names: list[Any]
    is_dependent: bool = False
    at_least: np.ndarray | None = None

    @classmethod
    def from_sets(
        cls,
        sets: np.ndarray,
        y: np.ndarray,
        groups: Groups,
        metric: FairnessMetric | None = None,
        labels: Sequence[int] | None = None,
    ) -> CellCounts:
        """From prediction sets, boolean (n, K).

        `metric` where its filters are the user's own: they are asked about these labels
        alone (by default all), and the other labels count no points.
        """
        if metric is None or metric.is_built_in:
            covered, sizes, at_least = _count_sets(sets, y, groups)
            return cls(
                covered,
                sizes,
                EQUAL_DIFFERENT,
                groups.names,
                groups.is_overlapping,
                at_least,
            )
        n_classes = sets.shape[1]
        shape = (n_classes, len(metric.filters), len(groups))
        covered = np.zeros(shape, np.int64)
        sizes = np.zeros(shape, np.int64)
        for label in range(n_classes) if labels is None else labels:
            for part, filter_ in enumerate(metric.filters):
                for group, mask in enumerate(group_masks(filter_, y, groups, label)):
                    covered[label, part, group] = np.count_nonzero(sets[mask, label])
                    sizes[label, part, group] = np.count_nonzero(mask)
        return cls(covered, sizes, metric.filters, groups.names, groups.is_overlapping)

    @classmethod
    def from_scores(
        cls, scores: ArrayLike, threshold: ArrayLike, y: np.ndarray, groups: Groups
    ) -> CellCounts:
        """From scores (n, K) and the threshold that decides on the sets."""
        return cls.from_sets(prediction_sets(scores, threshold), y, groups)

    @classmethod
    def from_table(cls, table: pd.DataFrame, labels: Sequence[Any]) -> CellCounts:
        """From a plain table: label, true_label (whether y is the label), group, n,
        covered.

        A cell without a row has no points.

        Examples
        --------
        >>> table = pd.DataFrame({
        ...     "label": [0, 1, 0, 1],
        ...     "true_label": [True, True, False, False],
        ...     "group": ["a", "b", "b", "a"],
        ...     "n": [4, 2, 2, 4],
        ...     "covered": [3, 1, 1, 2],
        ... })
        >>> CellCounts.from_table(table, [0, 1]).covered.tolist()
        [[[3, 0], [0, 1]], [[0, 1], [2, 0]]]
        """
        group_codes, names = pd.factorize(table["group"], sort=True)
        label_codes = pd.Index(list(labels), dtype=object).get_indexer(
            pd.Index(table["label"], dtype=object)
        )
        if (label_codes < 0).any():
            row = int((label_codes < 0).argmax())
            raise ValueError(
                f"label: found {table['label'].iloc[row]!r} in row {row}; "
                f"wanted one of {list(labels)}"
            )
        place = (label_codes, np.where(table["true_label"], 0, 1), group_codes)
        shape = (len(labels), 2, len(names))
        covered = np.zeros(shape, np.int64)
        sizes = np.zeros(shape, np.int64)
        np.add.at(covered, place, table["covered"].to_numpy(np.int64))
        np.add.at(sizes, place, table["n"].to_numpy(np.int64))
        return cls(covered, sizes, EQUAL_DIFFERENT, names.tolist())

    def __add__(self, other: CellCounts) -> CellCounts:
        """Counts of both, where both have the same cells."""
        if self.conditions != other.conditions or self.group_names != other.group_names:
            raise ValueError("cells: wanted the same conditions and groups on both sides")
        return CellCounts(
            self.covered + other.covered,
            self.sizes + other.sizes,
            self.conditions,
            self.group_names,
            self.is_dependent or other.is_dependent,
            self._sum_at_least(other),
        )

    def _sum_at_least(self, other: CellCounts) -> np.ndarray | None:
        """Sizes of the sets of both, where both are known."""
        if self.at_least is None or other.at_least is None:
            return None
        return self.at_least + other.at_least

    @property
    def n_points(self) -> np.ndarray:
        """Points per group."""
        return self.sizes[0].sum(axis=0)

    @property
    def set_sizes(self) -> np.ndarray:
        """Pairs (point, label) in the sets, per group (…, groups)."""
        return self.covered.sum(axis=(-3, -2))

    @property
    def hits(self) -> np.ndarray:
        """Points whose set holds their true label, per group (…, groups)."""
        return self.covered[..., :, 0, :].sum(axis=-2)

    def shares(
        self, metric: FairnessMetric, labels: Sequence[int] | None = None
    ) -> Shares:
        """What a metric compares, for some of the labels (by default all)."""
        return replace(self._shares(metric, labels), is_dependent=self.is_dependent)

    def _shares(
        self, metric: FairnessMetric, labels: Sequence[int] | None = None
    ) -> Shares:
        """The same, whether groups overlap or not."""
        every_label = list(range(len(self.sizes)))
        chosen = every_label if labels is None else list(labels)
        if metric.is_size:
            return self._size_shares(metric)
        if not metric.per_label:
            trials = self.n_points[None, None]
            hits = self.hits[..., None, None, :]
            return Shares(metric, hits, trials, [None], self.group_names)
        covered = self.covered[..., chosen, :, :]
        sizes = self.sizes[chosen]
        if metric.is_predictive:
            return Shares(
                metric,
                hits=covered[..., :1, :],
                trials=covered.sum(axis=-2, keepdims=True),
                labels=chosen,
                group_names=self.group_names,
                prior_hits=sizes[:, :1],
                prior_trials=sizes.sum(axis=1, keepdims=True),
            )
        return Shares(
            metric,
            self._of_filters(covered, metric),
            self._of_filters(sizes, metric),
            chosen,
            self.group_names,
        )

    def _size_shares(self, metric: FairnessMetric) -> Shares:
        """Sets of one label among all sets; or sizes, each as a share of all labels."""
        if self.at_least is None:
            raise ValueError(
                f"metric: found {metric.name!r}, which needs the size of every set; "
                "these counts do not have it"
            )
        n_classes = self.at_least.shape[-2]
        n = self.n_points
        if not metric.is_mean:
            hits = self.at_least[..., 0, :].copy()
            if n_classes > 1:
                hits -= self.at_least[..., 1, :]
            spread = None
        else:
            hits = self.at_least.sum(axis=-2) / n_classes
            # The sum of squared sizes: a set of size k counts 1 + 3 + … + (2k - 1) = k².
            odd = 2 * np.arange(n_classes)[:, None] + 1
            squares = (odd * self.at_least).sum(axis=-2) / n_classes**2
            excess = squares - np.square(hits) / np.maximum(n, 1)
            spread = np.maximum(excess, 0.0) / np.maximum(n - 1, 1)
            spread = spread[..., None, None, :]
        return Shares(
            metric,
            hits[..., None, None, :],
            n[None, None],
            [None],
            self.group_names,
            spread=spread,
        )

    def _of_filters(self, counts: np.ndarray, metric: FairnessMetric) -> np.ndarray:
        """Counts (…, labels, conditions, groups) as (…, labels, filters, groups)."""
        if self.conditions == metric.filters:
            return counts
        parts = {
            Condition.ANY: counts.sum(axis=-2),
            Condition.EQUAL: counts[..., 0, :],
            Condition.DIFFERENT: counts[..., 1, :],
        }
        return np.stack(
            [parts[Condition(str(part))] for part in metric.conditions], axis=-2
        )


@dataclass(frozen=True)
class Shares:
    """Hits of trials in every cell (…, labels, filters, groups) that a metric compares.

    For coverages a trial is a point of the cell and a hit one that is covered. For
    predictive values a trial is a point whose set holds the label, and a hit one whose
    true label it is; `prior_hits` of the `prior_trials` points of the group have it.
    """

    metric: FairnessMetric
    hits: np.ndarray
    trials: np.ndarray
    labels: list[Any]
    group_names: list[Any]
    prior_hits: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    prior_trials: np.ndarray = field(default_factory=lambda: np.ones(1, np.int64))
    pools: np.ndarray | None = None  # points per group in the pool they were drawn from
    is_dependent: bool = False  # whether a point may be in two groups
    spread: np.ndarray | None = None  # of means: the variance within every cell

    @property
    def values(self) -> np.ndarray:
        """What was observed; NaN where there are no trials."""
        with np.errstate(invalid="ignore"):
            values = self.hits / self.trials
            if self.metric.is_proxy:
                values = values - self.prior_hits / self.prior_trials
        return values

    @property
    def empty(self) -> list[tuple[Any, Any]]:
        """(group, label) of the cells without trials."""
        cells = np.argwhere(np.isnan(self.values))
        return [
            (self.group_names[group], self.labels[label]) for label, _, group in cells
        ]

    @property
    def losses(self) -> np.ndarray:
        """The largest loss between groups as observed, (…, labels, filters).

        Cells without trials are left out; -∞ where none is left.
        """
        values = self.values
        is_empty = np.isnan(values)
        highest = np.where(is_empty, -np.inf, values).max(axis=-1)
        lowest = np.where(is_empty, np.inf, values).min(axis=-1)
        with np.errstate(invalid="ignore"):
            losses = self.metric.loss(highest, lowest)
        return np.where(is_empty.all(axis=-1), -np.inf, losses)

    @property
    def disparity(self) -> float:
        """The largest difference, or the smallest ratio; NaN without trials."""
        worst = self.losses.max(initial=-np.inf)
        if np.isneginf(worst):
            return np.nan
        return float(self.metric.closeness(worst))

    def rank_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The paper's interval of every cell: [k/(n + 1), (k + 1)/(n + 1)].

        For predictive values it is the product of three such intervals.
        """
        if not self.metric.is_predictive:
            return rank_interval(self.hits, self.trials)
        with np.errstate(divide="ignore"):
            return predictive_rank_interval(
                self.hits,
                self.trials,
                self.prior_hits,
                self.prior_trials,
                self.metric.is_proxy,
            )

    def confidence_bounds(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """One-sided bounds of every cell, each wrong with probability at most `level`.

        The proxy's bounds rest on two each, which share the level.
        """
        if self.metric.is_mean:
            return self._mean_bounds(level)
        if self.pools is not None:
            return hypergeometric_bounds(self.hits, self.trials, self.pools, level)
        if not self.metric.is_proxy:
            return clopper_pearson(self.hits, self.trials, level)
        lower, upper = clopper_pearson(self.hits, self.trials, level / 2)
        prior_lower, prior_upper = clopper_pearson(
            self.prior_hits, self.prior_trials, level / 2
        )
        return lower - prior_upper, upper - prior_lower

    def _mean_bounds(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """For means. Where the variance is not known it is the largest possible one."""
        n = np.maximum(self.trials, 1)
        means = self.hits / n
        variances = means * (1 - means) * n / np.maximum(n - 1, 1)
        if self.spread is not None and self.spread.shape == self.hits.shape:
            variances = self.spread
        return maurer_pontil(means, variances, self.trials, level)

    def rank_losses(self) -> np.ndarray:
        """The paper's loss: the largest upper bound against the smallest lower."""
        lower, upper = self.rank_bounds()
        return self.metric.loss(upper.max(axis=-1), lower.min(axis=-1))

    def test_losses(
        self, level: float, is_dependent: bool = False, at_least: float = -math.inf
    ) -> np.ndarray:
        """The loss that a test at this level allows for, between two different groups.

        By the sharpest test that is valid: the staircase needs counts that are
        independent between groups. The proxy's, or those of overlapping cells, are not.
        Losses below `at_least` come as `at_least`.
        """
        is_dependent = is_dependent or self.is_dependent
        has_no_staircase = self.metric.is_proxy or self.metric.is_mean
        needs_bounds = has_no_staircase or is_dependent or level > LARGEST_LEVEL
        if needs_bounds:
            losses = np.maximum(self.confidence_losses(level), at_least)
        else:
            losses = staircase_losses(
                self.hits, self.trials, level, self.metric.is_ratio, self.pools, at_least
            )
        if self.metric.is_predictive:
            # Where no set holds the label there is no predictive value to compare.
            return np.where((self.trials == 0).any(axis=-1), np.inf, losses)
        return losses

    def confidence_losses(self, level: float) -> np.ndarray:
        """The loss that two bounds at half of the level each allow for."""
        return self.pair_losses(*self.confidence_bounds(level / 2))

    def pair_losses(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """The largest loss that bounds (…, groups) allow between two different groups."""
        if lower.shape[-1] == 1:
            return np.full(lower.shape[:-1], self.metric.no_loss)
        # Against each group stands the largest upper bound among the others: the largest
        # of all, or the second largest against the group that has the largest.
        largest_other = np.repeat(upper.max(axis=-1, keepdims=True), upper.shape[-1], -1)
        second = np.partition(upper, -2, axis=-1)[..., -2:-1]
        at_largest = upper.argmax(axis=-1)[..., None]
        np.put_along_axis(largest_other, at_largest, second, axis=-1)
        return self.metric.loss(largest_other, lower).max(axis=-1)


class SortedCells:
    """Scores sorted once within each cell (label, condition, group).

    Any threshold is then quick to count. `counts_at` gives the `CellCounts`.

    Examples
    --------
    >>> people = Groups(np.array([0, 1, 0]), ["a", "b"])
    >>> scores = [[0.1, 0.9], [0.4, 0.6], [0.7, 0.3]]
    >>> cells = SortedCells(scores, np.array([0, 1, 1]), people)
    >>> cells.counts_at(0.5).covered.tolist()
    [[[1, 0], [0, 1]], [[1, 0], [0, 0]]]
    """

    def __init__(self, scores: ArrayLike, y: np.ndarray, groups: Groups) -> None:
        values = as_scores(scores)
        n_codes = groups.n_codes
        n_classes = values.shape[1]
        self.dtype = values.dtype
        self.group_names = groups.names
        self._groups = groups
        by_code = np.empty((n_classes, 2, n_codes), np.int64)
        self._sorted: list[list[np.ndarray]] = []
        small = np.min_scalar_type(2 * n_codes)
        for label, column in enumerate(values.T):
            cell = (groups.codes + n_codes * (y != label)).astype(small)
            by_code[label] = np.bincount(cell, minlength=2 * n_codes).reshape(2, n_codes)
            by_cell = column[np.argsort(cell, kind="stable")]
            parts = np.split(by_cell, np.cumsum(by_code[label])[:-1])
            self._sorted.append([np.sort(part) for part in parts])
        self.sizes = groups.per_group(by_code)

    def counts_at(self, threshold: ArrayLike) -> CellCounts:
        """Points per cell that one threshold, or one per label, covers."""
        n_classes = len(self.sizes)
        limits = round_down(np.broadcast_to(as_array(threshold), n_classes), self.dtype)
        covered = np.empty((n_classes, 2 * self._groups.n_codes), np.int64)
        for label, limit in enumerate(limits):
            for cell, part in enumerate(self._sorted[label]):
                covered[label, cell] = np.searchsorted(part, limit, side="right")
        return CellCounts(
            self._groups.per_group(covered.reshape(n_classes, 2, -1)),
            self.sizes,
            EQUAL_DIFFERENT,
            self.group_names,
        )


def group_masks(
    filter_: Filter, y: np.ndarray, groups: Groups, label: int
) -> list[np.ndarray]:
    """The points of every group's cell, by a filter whose answers are checked."""
    masks = []
    for name in groups.names:
        mask = np.asarray(filter_(y, groups.values, name, label))
        if mask.shape != y.shape or mask.dtype != bool:
            raise ValueError(
                f"filter: for group {name!r} and label {label} it returned "
                f"{mask.dtype} of shape {mask.shape}; wanted a boolean mask of shape "
                f"{y.shape}"
            )
        masks.append(mask)
    return masks


def _count_sets(
    sets: np.ndarray, y: np.ndarray, groups: Groups
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covered and all points (K, 2, groups): true label equal, different.

    And points whose set holds at least one label, at least two, … (K, groups).
    """
    n_classes = sets.shape[1]
    n_codes = groups.n_codes
    own_cell = y * n_codes + groups.codes
    is_hit = sets.ravel()[np.arange(len(y)) * n_classes + y]
    equal = np.bincount(own_cell, minlength=n_classes * n_codes)
    equal_covered = np.bincount(own_cell[is_hit], minlength=n_classes * n_codes)
    sizes = np.empty((n_classes, 2, n_codes), np.int64)
    sizes[:, 0] = equal.reshape(n_classes, n_codes)
    sizes[:, 1] = np.bincount(groups.codes, minlength=n_codes) - sizes[:, 0]
    covered = np.empty_like(sizes)
    covered[:, 0] = equal_covered.reshape(n_classes, n_codes)
    # A byte says which of eight labels a set holds; bytes are counted by group. This
    # reads the sets once per eight labels, and was measured to be quicker than a count
    # per label.
    for first in range(0, n_classes, 8):
        block = sets[:, first : first + 8].view(np.uint8)
        width = block.shape[1]
        byte = (block @ _POWERS[:width]).astype(np.int64)
        counts = np.bincount(byte * n_codes + groups.codes, minlength=256 * n_codes)
        in_sets = _BITS @ counts.reshape(256, n_codes)
        covered[first : first + width, 1] = in_sets[:width]
    covered[:, 1] -= covered[:, 0]
    if n_classes <= 8:
        of_size = _OF_SIZE @ counts.reshape(256, n_codes)
    else:
        size = np.count_nonzero(sets, axis=1)
        by_size = np.bincount(
            size * n_codes + groups.codes, minlength=(n_classes + 1) * n_codes
        )
        of_size = by_size.reshape(n_classes + 1, n_codes)
    at_least = of_size[: n_classes + 1][::-1].cumsum(axis=0)[::-1][1:]
    return groups.per_group(covered), groups.per_group(sizes), groups.per_group(at_least)
