"""The interval of a disparity, the verdict on it, and the points that would decide.

All of it is computed from what a metric compares: `cfhelpers.cells.Shares`.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cfhelpers.bounds import listed_levels
from cfhelpers.cells import Shares
from cfhelpers.control import MANY, TOLERANCE
from cfhelpers.metrics import FairnessMetric

WITHIN = "within"
BEYOND = "beyond"
UNDECIDED = "cannot tell"

# Why an audit cannot tell.
TOO_FEW = "too few people"
TOO_CLOSE = "too close to call"
NO_PEOPLE = "no people in a cell"
VACUOUS = "vacuous"

# Up to this many cells it is worth asking of each whether it needs more points.
FEW_CELLS = 2_000


def disparity_interval(shares: Shares, gamma: float) -> tuple[float, float]:
    """Both ends of an interval that misses the true disparity with probability at most γ.

    The two groups that attain the true disparity are not random: the far end needs no
    correction, and each of its two bounds is at γ/4. Those that attain the observed one
    are: the near end holds for all cells at once, each bound at γ/4 over their number.

    Examples
    --------
    >>> from cfhelpers.metrics import METRICS
    >>> hits = np.array([[[70, 100]]])
    >>> trials = np.array([[[100, 100]]])
    >>> shares = Shares(METRICS["equal_opportunity"], hits, trials, [1], ["a", "b"])
    >>> lower, upper = disparity_interval(shares, 0.05)
    >>> round(lower, 3), round(upper, 3)
    (0.142, 0.414)
    """
    metric = shares.metric
    near = near_loss(metric, *sure_bounds(shares, gamma / 4))
    far = float(shares.confidence_losses(gamma / 2).max())
    ends = (metric.closeness(near), metric.closeness(far))
    return min(ends), max(ends)


def sure_bounds(
    shares: Shares, level: float, cells: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of every cell that all hold, but for a chance of twice the level.

    A cell without points may be anywhere. The level is shared by so many cells, by
    default all of them.
    """
    lower, upper = shares.confidence_bounds(level / (cells or shares.trials.size))
    if shares.metric.is_proxy:
        is_empty = shares.trials == 0
        lower = np.where(is_empty, -1.0, lower)
        upper = np.where(is_empty, 1.0, upper)
    return lower, upper


def near_loss(metric: FairnessMetric, lower: np.ndarray, upper: np.ndarray) -> float:
    """The true loss is at least this, if all bounds hold."""
    losses = metric.loss(lower.max(axis=-1), upper.min(axis=-1))
    return max(metric.no_loss, float(losses.max()))


@dataclass(frozen=True)
class CellShare:
    """One group in the cell where a disparity is.

    Attributes
    ----------
    group : name
    covered, n : int
        Of `n` people, `covered` have the label in their set. For predictive values: of
        `n` people with the label in their set, `covered` have it as their true label.
    share, low, high : float
        The share with its interval, weighted where people have weights. For the proxy of
        predictive parity it is less the share of the label in the group.
    effective : float
        As how many people without weights they count.
    """

    group: Any
    covered: int
    n: int
    share: float
    low: float
    high: float
    effective: float


@dataclass(frozen=True)
class Verdict:
    """The verdict on one metric, by one grouping, and what it rests on.

    Attributes
    ----------
    grouping, metric : str
    is_ratio : bool
        Whether the smallest ratio is compared, rather than the largest difference.
    closeness, estimate, low, high : float
        What is allowed, what was observed, and its interval.
    verdict : str
        within, beyond or cannot tell.
    kind : str
        Why it cannot tell: too few people, too close to call, no people in a cell, or
        vacuous; else empty.
    people : int
        Who were audited.
    people_needed : int or None
        How many in all would give a verdict with probability `power`, if coverages stay
        as observed; None where not even ten times as many would, or where it is decided.
    label, condition : name, str
        Where the disparity is: the label, and the condition on the true label.
    worst, best : CellShare or None
        The lowest and the highest group there.
    empty : list of (group, label, condition)
        Cells without people.
    vacuous : str
        A sentence where sets say nothing, else empty.
    joint : str
        The verdict where all verdicts together share the error.
    """

    grouping: str
    metric: str
    is_ratio: bool
    closeness: float
    estimate: float
    low: float
    high: float
    verdict: str
    kind: str
    people: int
    people_needed: int | None
    power: float
    label: Any
    condition: str
    worst: CellShare | None
    best: CellShare | None
    empty: list[tuple[Any, Any, str]]
    vacuous: str
    joint: str

    @property
    def is_decided(self) -> bool:
        """Whether it is within or beyond."""
        return self.verdict != UNDECIDED

    @property
    def text(self) -> str:
        """One sentence."""
        sign = "≥" if self.is_ratio else "≤"
        word = self.verdict
        if self.kind:
            word += f" ({self.kind})"
        by = f" by {self.grouping}" if self.grouping else ""
        return (
            f"{self.metric}{by}: {word}; {self.estimate:.3f}, between {self.low:.3f} "
            f"and {self.high:.3f}; allowed {sign} {self.closeness:g}"
        )


@dataclass(frozen=True)
class Judge:
    """Gives the verdict on what a metric compares, wrong with probability at most γ.

    The true disparity is either within what is allowed, then only "beyond" can be wrong,
    or it is not, then only "within" can. So each of the two may use all of γ, and a
    verdict can be firmer than the interval, whose two ends share it.

    Parameters
    ----------
    closeness : float
        What is allowed.
    gamma : float
        One less the confidence.
    is_overlapping : bool
        Whether a point may lie in the cells of two groups.
    is_vacuous : bool
        Whether all sets are empty, or all hold every label. Then nothing is "within".

    Examples
    --------
    >>> from cfhelpers.metrics import METRICS
    >>> hits = np.array([[[900, 840]]])
    >>> trials = np.array([[[1000, 1000]]])
    >>> shares = Shares(METRICS["equal_opportunity"], hits, trials, [1], ["a", "b"])
    >>> Judge(0.1, 0.05).verdict(shares)
    'within'
    >>> Judge(0.01, 0.05).verdict(shares)
    'beyond'
    """

    closeness: float
    gamma: float
    is_overlapping: bool = False
    is_vacuous: bool = False

    def verdict(self, shares: Shares) -> str:
        """Within, beyond or cannot tell."""
        if self.is_beyond(shares):
            return BEYOND
        if self.is_within(shares):
            return WITHIN
        return UNDECIDED

    def limit(self, metric: FairnessMetric) -> float:
        """The largest loss that is allowed."""
        return metric.closeness(self.closeness) + TOLERANCE

    def is_beyond(self, shares: Shares) -> bool:
        """Whether two groups differ by more than is allowed, as sure as can be."""
        limit = self.limit(shares.metric)
        if shares.losses.max() <= limit:  # bounds are never further apart than shares
            return False
        return near_loss(shares.metric, *sure_bounds(shares, self.gamma / 2)) > limit

    def is_within(self, shares: Shares) -> bool:
        """Whether every two groups pass the test, for every label and filter.

        A cell without points says nothing, so it never passes.
        """
        if self.is_vacuous or (shares.trials == 0).any():
            return False
        return self.may_be_within(shares) and bool(self.passes(shares).all())

    def may_be_within(self, shares: Shares) -> bool:
        """Whether the two groups that look worst pass, for every label and filter.

        This is much quicker than a test of all pairs.
        """
        return bool(self.passes(worst_pairs(shares, self.gamma)).all())

    def passes(self, shares: Shares) -> np.ndarray:
        """Whether all pairs of groups pass the test, per label and filter."""
        losses = shares.test_losses(self.gamma, self.is_overlapping)
        return losses <= self.limit(shares.metric)


def worst_pairs(shares: Shares, gamma: float) -> Shares:
    """Two groups for every label and filter.

    The group with the highest upper bound, and of the others that with the lowest lower
    bound.
    """
    lower, upper = shares.confidence_bounds(gamma / 2)
    highest = upper.argmax(axis=-1)[..., None]
    np.put_along_axis(lower, highest, np.inf, axis=-1)
    lowest = lower.argmin(axis=-1)[..., None]
    pair = np.concatenate([highest, lowest], axis=-1)
    return with_all_counts(
        shares, lambda counts: np.take_along_axis(counts, pair, axis=-1)
    )


def with_all_counts(
    shares: Shares,
    change: Callable[[np.ndarray], np.ndarray],
    is_growth: bool = False,
) -> Shares:
    """The same with all counts changed in one way, as plain counts.

    A change chooses cells; a growth changes their sizes, and no spread within them.
    """
    spread = shares.spread
    if spread is not None and not is_growth:
        spread = change(spread)
    changed = Shares(
        shares.metric,
        change(shares.hits),
        change(shares.trials),
        shares.labels,
        shares.group_names,
        is_dependent=shares.is_dependent,
        spread=spread,
    )
    if not shares.metric.is_predictive:
        return changed
    return replace(
        changed,
        prior_hits=change(shares.prior_hits),
        prior_trials=change(shares.prior_trials),
    )


def _joined(shares: Shares, others: Shares) -> Shares:
    """The groups of both, one after the other."""

    def join(counts: np.ndarray, more: np.ndarray) -> np.ndarray:
        return np.concatenate([counts, more], axis=-1)

    return replace(
        shares,
        hits=join(shares.hits, others.hits),
        trials=join(shares.trials, others.trials),
        prior_hits=join(shares.prior_hits, others.prior_hits),
        prior_trials=join(shares.prior_trials, others.prior_trials),
        spread=None,
    )


def with_more_points(shares: Shares, least: int) -> Shares:
    """Every cell with at least so many points, at the shares that were observed.

    An empty cell is taken to have the share of its label over all groups.

    Examples
    --------
    >>> from cfhelpers.metrics import METRICS
    >>> hits = np.array([[[1, 2]]])
    >>> trials = np.array([[[2, 2]]])
    >>> shares = Shares(METRICS["demographic_parity"], hits, trials, [1], ["a", "b"])
    >>> grown = with_more_points(shares, 10)
    >>> grown.hits.tolist(), grown.trials.tolist()
    ([[[5, 10]]], [[[10, 10]]])
    """
    trials = np.maximum(shares.trials, least)
    hits = _hits_at_same_share(shares.hits, shares.trials, trials)
    if not shares.metric.is_predictive:
        return replace(shares, hits=hits, trials=trials)
    growth = trials / np.maximum(shares.trials, 1)
    group_sizes = np.clip(shares.prior_trials * growth, trials, 2 * MANY)
    prior_trials = group_sizes.round().astype(np.int64)
    return replace(
        shares,
        hits=hits,
        trials=trials,
        prior_hits=_hits_at_same_share(
            shares.prior_hits, shares.prior_trials, prior_trials
        ),
        prior_trials=prior_trials,
    )


def _hits_at_same_share(
    hits: np.ndarray, trials: np.ndarray, new_trials: np.ndarray
) -> np.ndarray:
    """Hits of the new number of trials; as they are where there are no more trials."""
    all_trials = trials.sum(axis=-1, keepdims=True)
    pooled_share = hits.sum(axis=-1, keepdims=True) / np.maximum(all_trials, 1)
    share = np.where(trials > 0, hits / np.maximum(trials, 1), pooled_share)
    new_hits = np.rint(share * new_trials).astype(np.int64)
    return np.where(new_trials > trials, new_hits, hits)


def points_needed(shares: Shares, judge: Judge) -> tuple[int, np.ndarray]:
    """How many points would decide, if shares stay as observed, and in which cells.

    First the smallest number is found that decides when no cell has fewer points. Then
    cells that can do without more points are let off, those with the fewest points first,
    many at a time.

    Parameters
    ----------
    shares : Shares
        What a metric compares, as observed.
    judge : Judge
        Who decides.

    Returns
    -------
    wanted : int
        Points in each of the cells that need more; `control.MANY`: no number would do.
    needs_more : bool (labels, filters, groups)
        Which cells need more points.

    Examples
    --------
    >>> from cfhelpers.metrics import METRICS
    >>> hits = np.array([[[1, 2]]])
    >>> trials = np.array([[[2, 2]]])
    >>> shares = Shares(METRICS["demographic_parity"], hits, trials, [1], ["a", "b"])
    >>> wanted, needs_more = points_needed(shares, Judge(0.1, 0.05))
    >>> wanted, needs_more.tolist()
    (24, [[[True, True]]])
    """

    def may_decide(points: int) -> bool:
        grown = with_more_points(shares, points)
        return judge.is_beyond(grown) or judge.may_be_within(grown)

    def decides(points: int) -> bool:
        return judge.verdict(with_more_points(shares, points)) != UNDECIDED

    wanted = bisect_left(range(MANY), True, lo=1, key=may_decide)
    if wanted < MANY and not decides(wanted):
        wanted = bisect_left(range(MANY), True, lo=wanted, key=decides)
    needs_more = shares.trials < wanted
    if wanted == MANY:
        return wanted, needs_more
    later = with_more_points(shares, wanted)
    if judge.is_beyond(later):
        return wanted, _cells_for_beyond(shares, later, judge, needs_more)
    return wanted, _cells_for_within(shares, later, judge, needs_more)


def _cells_for_beyond(
    now: Shares, later: Shares, judge: Judge, needs_more: np.ndarray
) -> np.ndarray:
    """The cells of `needs_more` without those that may stay as they are now."""
    metric = now.metric
    now_lower, now_upper = sure_bounds(now, judge.gamma / 2)
    later_lower, later_upper = sure_bounds(later, judge.gamma / 2)

    def decides(chosen: np.ndarray) -> bool:
        lower = np.where(chosen, later_lower, now_lower)
        upper = np.where(chosen, later_upper, now_upper)
        return near_loss(metric, lower, upper) > judge.limit(metric)

    return _let_off(needs_more, now.trials, decides)


def _cells_for_within(
    now: Shares, later: Shares, judge: Judge, needs_more: np.ndarray
) -> np.ndarray:
    """The same where all pairs must pass, by one label and filter after the other."""
    is_open = (now.trials == 0).any(axis=-1) | ~judge.passes(now)
    found = needs_more & is_open[..., None]
    if found.size > FEW_CELLS:
        return found
    fails = _failing_pairs(_rows(now, is_open), _rows(later, is_open), judge)
    n_groups = now.trials.shape[-1]
    for row, place in enumerate(np.argwhere(is_open)):
        at = tuple(place)
        decides = functools.partial(
            _no_pair_fails, fails[row, :, :n_groups], fails[row, :, n_groups:]
        )
        found[at] = _let_off(found[at], now.trials[at], decides)
    return found


def _rows(shares: Shares, rows: np.ndarray) -> Shares:
    """Some labels and filters, with counts (rows, groups)."""
    return with_all_counts(shares, lambda counts: counts[rows])


def _failing_pairs(now: Shares, later: Shares, judge: Judge) -> np.ndarray:
    """Which groups, as they are now, fail against which (rows, groups, 2 groups).

    Against all others as they are now, and then against all others as they are later.
    Every pair is tested by itself, but for those whose bounds at the smallest level that
    the test uses are close enough: these pass.
    """
    n_groups = now.trials.shape[-1]
    both = _joined(now, later)
    lower, upper = both.confidence_bounds(float(listed_levels(judge.gamma)[0]))
    metric = now.metric
    one_way = metric.loss(upper[:, :n_groups, None], lower[:, None])
    other_way = metric.loss(upper[:, None], lower[:, :n_groups, None])
    is_empty = both.trials == 0
    may_fail = np.maximum(one_way, other_way) > judge.limit(metric)
    may_fail |= is_empty[:, :n_groups, None] | is_empty[:, None]
    own = np.arange(n_groups)
    may_fail[:, own, own] = False
    may_fail[:, own, own + n_groups] = False
    row, first, second = np.nonzero(may_fail)
    pair = np.stack([first, second], axis=1)
    compared = with_all_counts(both, lambda counts: counts[row[:, None], pair])
    fails = np.zeros_like(may_fail)
    has_points = (compared.trials > 0).all(axis=-1)
    fails[row, first, second] = ~(has_points & judge.passes(compared))
    return fails


def _no_pair_fails(
    both_now: np.ndarray, one_later: np.ndarray, chosen: np.ndarray
) -> bool:
    """Whether all pairs pass when the chosen groups are as they are later."""
    stays = ~chosen
    fails = both_now[np.ix_(stays, stays)].any() or one_later[np.ix_(stays, chosen)].any()
    return not fails


def _let_off(
    needs_more: np.ndarray,
    trials: np.ndarray,
    decides: Callable[[np.ndarray], bool],
) -> np.ndarray:
    """The chosen cells without those that can be left out while the rest decides.

    Those with the fewest points are left out first, many at a time.
    """
    chosen = needs_more.copy()
    smallest_first = np.argsort(trials, axis=None, kind="stable")
    blocks = [smallest_first[chosen.flat[smallest_first]]]
    while blocks:
        block = blocks.pop()
        if len(block) == 0:
            continue
        chosen.flat[block] = False
        if decides(chosen):
            continue
        chosen.flat[block] = True
        if len(block) > 1:
            first_half, second_half = np.array_split(block, 2)
            blocks.append(second_half)
            blocks.append(first_half)
    return chosen
