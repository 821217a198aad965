"""Audits of people who stand for others: weighted shares and effective sizes.

With survey weights a share is weighted, and its cell counts as (Σw)²/Σw² people. Where
there are replicate weights, the effective size is that of a simple random sample with the
variance that they show. Either way intervals and verdicts are approximate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfhelpers._checks import as_float_column
from cfhelpers.cells import EQUAL_DIFFERENT, CellCounts, Shares, group_masks
from cfhelpers.groups import Groups
from cfhelpers.metrics import FairnessMetric

# By what the sum of squared deviations of R replicates is multiplied.
RULES = ("sdr", "brr", "jackknife")


def replicate_factor(rule: str, n_replicates: int) -> float:
    """The factor of the sum of squared deviations, for a design's rule.

    Examples
    --------
    >>> replicate_factor("sdr", 80), replicate_factor("brr", 80)
    (0.05, 0.0125)
    """
    if rule == "sdr":  # successive differences, as in the American Community Survey
        return 4 / n_replicates
    if rule == "brr":  # balanced repeated replication, and the bootstrap
        return 1 / n_replicates
    return (n_replicates - 1) / n_replicates


@dataclass(frozen=True)
class Weights:
    """Whom each person stands for, and how sure that is.

    Attributes
    ----------
    values : float (n,)
    replicates : float (n, R) or None
        Weights of the same people in R replicates of the survey.
    rule : str
        How replicates make a variance: sdr, brr or jackknife.
    """

    values: np.ndarray
    replicates: np.ndarray | None = None
    rule: str = "sdr"

    def __post_init__(self) -> None:
        """Put weights on a scale on which no square is too large or too small.

        Shares and effective sizes do not depend on the scale, and a power of two loses no
        digit.
        """
        object.__setattr__(self, "values", _below_one(self.values))
        if self.replicates is not None:
            object.__setattr__(self, "replicates", _below_one(self.replicates))

    def take(self, rows: np.ndarray) -> Weights:
        """Those of some of the people."""
        replicates = self.replicates
        if replicates is not None:
            replicates = replicates[rows]
        return Weights(self.values[rows], replicates, self.rule)

    @property
    def effective(self) -> float:
        """As how many people without weights they count, all together."""
        return float(self.values.sum() ** 2 / (self.values**2).sum())


def _below_one(weights: np.ndarray) -> np.ndarray:
    """The same, column by column, times the power of two that brings them below 1.

    Examples
    --------
    >>> _below_one(np.array([3.0, 12.0])).tolist()
    [0.1875, 0.75]
    """
    largest = weights.max(axis=0, initial=0.0)
    return np.ldexp(weights, -np.frexp(largest)[1])


def as_weights(sample_weight: Any, n: int) -> Weights:
    """One weight per person, none negative, and not all of them 0.

    Examples
    --------
    >>> as_weights([1, -2], 2)
    Traceback (most recent call last):
        ...
    ValueError: sample_weight: entry 1 is -2; wanted no negative weight
    """
    if isinstance(sample_weight, Weights):
        return sample_weight
    values = as_float_column(sample_weight, "sample_weight").astype(np.float64)
    if len(values) != n:
        raise ValueError(
            f"sample_weight: found {len(values)} weights for {n} points; "
            "wanted one per point"
        )
    is_wrong = (values < 0) | ~np.isfinite(values)
    if is_wrong.any():
        entry = int(is_wrong.argmax())
        wanted = "no negative weight" if values[entry] < 0 else "a finite weight"
        raise ValueError(
            f"sample_weight: entry {entry} is {values[entry]:g}; wanted {wanted}"
        )
    if not values.any():
        raise ValueError("sample_weight: every weight is 0; wanted one that is not")
    return Weights(values)


@dataclass(frozen=True)
class WeightedShares(Shares):
    """Weighted shares, with effective sizes in the place of counts.

    `hits` and `trials` are whole numbers near the effective ones, for the bounds; `exact`
    are the weighted shares themselves, and `effective` the sizes.
    """

    exact: np.ndarray = field(default_factory=lambda: np.zeros(1))
    effective: np.ndarray = field(default_factory=lambda: np.zeros(1))

    @property
    def values(self) -> np.ndarray:
        """The weighted shares; NaN where there is no weight."""
        return self.exact


def weighted_counts(
    sets: np.ndarray,
    y: np.ndarray,
    groups: Groups,
    weights: np.ndarray,
    metric: FairnessMetric | None = None,
    labels: list[int] | None = None,
) -> CellCounts:
    """Sums of weights per cell, in the place of counts; as `CellCounts.from_sets`."""
    n_classes = sets.shape[1]
    n_groups = len(groups)
    if metric is None or metric.is_built_in:
        covered = np.zeros((n_classes, 2, n_groups))
        sizes = np.zeros((n_classes, 2, n_groups))
        for label in range(n_classes):
            cell = (y != label) * n_groups + groups.codes
            in_set = np.where(sets[:, label], weights, 0.0)
            sums = np.bincount(cell, weights, 2 * n_groups)
            sizes[label] = sums.reshape(2, n_groups)
            covered_sums = np.bincount(cell, in_set, 2 * n_groups)
            covered[label] = covered_sums.reshape(2, n_groups)
        return CellCounts(covered, sizes, EQUAL_DIFFERENT, groups.names)
    shape = (n_classes, len(metric.filters), n_groups)
    covered = np.zeros(shape)
    sizes = np.zeros(shape)
    for label in labels or range(n_classes):
        for part, filter_ in enumerate(metric.filters):
            for group, mask in enumerate(group_masks(filter_, y, groups, label)):
                covered[label, part, group] = weights[mask & sets[:, label]].sum()
                sizes[label, part, group] = weights[mask].sum()
    return CellCounts(covered, sizes, metric.filters, groups.names)


def weighted_shares(
    sets: np.ndarray,
    y: np.ndarray,
    groups: Groups,
    weights: Weights,
    metric: FairnessMetric,
    labels: list[int],
) -> WeightedShares:
    """What a metric compares, with weights."""

    def sums(values: np.ndarray) -> Shares:
        counts = weighted_counts(sets, y, groups, values, metric, labels)
        return counts.shares(metric, labels)

    weighted = sums(weights.values)
    squared = sums(weights.values**2)
    people = sums((weights.values > 0).astype(float))
    exact = Shares.values.fget(weighted)  # type: ignore[attr-defined]
    share = _ratio(weighted.hits, weighted.trials)
    effective = _ratio(weighted.trials**2, squared.trials)
    if weights.replicates is not None:
        effective = _by_replicates(weights, sums, share, effective, people.trials)
    trials = np.floor(effective + 1e-9).astype(np.int64)
    prior_trials = np.ones_like(trials)
    prior_hits = np.zeros_like(trials)
    if metric.is_predictive:
        prior_size = _ratio(weighted.prior_trials**2, squared.prior_trials)
        prior_trials = np.floor(prior_size + 1e-9).astype(np.int64)
        prior_share = _ratio(weighted.prior_hits, weighted.prior_trials)
        prior_hits = np.rint(prior_share * prior_trials).astype(np.int64)
    return WeightedShares(
        metric,
        np.rint(share * trials).astype(np.int64),
        trials,
        weighted.labels,
        weighted.group_names,
        prior_hits,
        prior_trials,
        exact=exact,
        effective=effective,
    )


def _ratio(numerator: ArrayLike, denominator: ArrayLike) -> np.ndarray:
    """A quotient, 0 where the denominator is 0."""
    bottom = np.asarray(denominator, float)
    top = np.asarray(numerator, float)
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom != 0)


def _by_replicates(
    weights: Weights,
    sums: Any,
    share: np.ndarray,
    usual: np.ndarray,
    people: np.ndarray,
) -> np.ndarray:
    """Sizes of simple random samples with the variance that the replicates show.

    Where the share is 0 or 1 they show none, and the usual size stays; no cell counts as
    more people than it has.
    """
    assert weights.replicates is not None
    n_replicates = weights.replicates.shape[1]
    total = np.zeros_like(share)
    for replicate in weights.replicates.T:
        own = sums(replicate)
        total += (_ratio(own.hits, own.trials) - share) ** 2
    variance = replicate_factor(weights.rule, n_replicates) * total
    is_known = (variance > 0) & (share > 0) & (share < 1)
    shown = np.divide(share * (1 - share), variance, out=usual.copy(), where=is_known)
    return np.clip(shown, np.minimum(usual, 1), people)
