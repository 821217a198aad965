"""Exact bounds for a probability, from the points that were counted, and tests of a gap.

`clopper_pearson` and `hypergeometric_bounds` bound one probability. A `staircase` spends
the level of a test on both groups of a pair together, so that a gap within c is found
more often than with half of the level for each. A `confidence_sequence` bounds one
probability at every look at once, however often one looks.
"""

from __future__ import annotations

import functools
import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import betaincinv, betaln, ndtr, ndtri, xlog1py, xlogy


def clopper_pearson(
    hits: ArrayLike, trials: ArrayLike, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """One-sided lower and upper bounds for a binomial probability.

    Each bound is wrong with probability at most `level`, whatever the true probability.

    Parameters
    ----------
    hits, trials : arrays of integers that broadcast
        Of `trials` points, `hits` were counted.
    level : float
        How often a bound may be wrong.

    Returns
    -------
    lower, upper : arrays of float
        0 and 1 where there are no trials.

    Examples
    --------
    >>> lower, upper = clopper_pearson(9, 10, 0.05)
    >>> round(float(lower), 3), round(float(upper), 3)
    (0.606, 0.995)
    """
    hits, trials = np.broadcast_arrays(
        np.asarray(hits, np.int64), np.asarray(trials, np.int64)
    )
    # Few pairs (hits, trials) differ, and the quantile of a beta law is slow: it is
    # computed once for each pair.
    width = trials.max(initial=0) + 1
    pairs, place = np.unique(hits.ravel() * width + trials.ravel(), return_inverse=True)
    k, n = np.divmod(pairs, width)
    lower, upper = _beta_quantiles(k, n, level)
    return lower[place].reshape(hits.shape), upper[place].reshape(hits.shape)


def _beta_quantiles(
    k: np.ndarray, n: np.ndarray, level: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds for k of n points."""
    return _beta_lower(k, n, level), _beta_upper(k, n, level)


def _beta_lower(k: np.ndarray, n: np.ndarray, level: ArrayLike) -> np.ndarray:
    """Lower bounds for k of n points."""
    levels = np.asarray(level)
    return np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), n - k + 1, levels))


def _beta_upper(k: np.ndarray, n: np.ndarray, level: ArrayLike) -> np.ndarray:
    """Upper bounds, likewise."""
    one_less = 1 - np.asarray(level)
    return np.where(k == n, 1.0, betaincinv(k + 1, np.maximum(n - k, 1), one_less))


def maurer_pontil(
    means: ArrayLike, variances: ArrayLike, trials: ArrayLike, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """One-sided bounds for the mean of numbers from 0 to 1, from their variance.

    Each bound is wrong with probability at most `level` (Maurer and Pontil 2009).

    Parameters
    ----------
    means, variances : arrays that broadcast
        Of the numbers seen; the variance with n - 1 in the denominator.
    trials : integers
        How many numbers there are.
    level : float

    Returns
    -------
    lower, upper : arrays of float
        From 0 to 1; 0 and 1 where there are fewer than two numbers.

    Examples
    --------
    >>> lower, upper = maurer_pontil(0.5, 0.05, 1000, 0.05)
    >>> round(float(lower), 3), round(float(upper), 3)
    (0.472, 0.528)
    """
    n = np.asarray(trials, np.float64)
    log = math.log(2 / level)
    safe = np.maximum(n, 2.0)
    width = np.sqrt(2 * np.asarray(variances) * log / safe) + 7 * log / (3 * (safe - 1))
    width = np.where(n < 2, np.inf, width)
    middle = np.where(n < 2, 0.5, means)
    return np.maximum(middle - width, 0.0), np.minimum(middle + width, 1.0)


_HALVINGS = 60  # after so many an interval of length 1 is narrower than a float can tell


def confidence_sequence(
    hits: ArrayLike, trials: ArrayLike, level: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds for a probability that hold at every look at once.

    Points arrive one after the other and each is a hit with the same probability p. As
    often as one looks, and whenever one stops, the probability that some interval misses
    p is at most `level`. By Ville's inequality: with B the beta function,
    B(k + ½, n - k + ½) / B(½, ½) / (p^k (1 - p)^(n - k)) is a martingale at the true p.
    The interval holds the p at which it is below 1/level.

    Parameters
    ----------
    hits, trials : arrays of integers that broadcast
        Of the `trials` points seen so far, `hits` were counted.
    level : float, or an array that broadcasts
        How often the whole sequence of intervals may be wrong.

    Returns
    -------
    lower, upper : arrays of float
        0 and 1 where there are no trials.

    Examples
    --------
    >>> lower, upper = confidence_sequence([0, 90, 900], [0, 100, 1000], 0.05)
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.0, 0.772, 0.862], [1.0, 0.971, 0.931])
    """
    k, n, levels = np.broadcast_arrays(
        np.asarray(hits, np.float64),
        np.asarray(trials, np.float64),
        np.asarray(level, np.float64),
    )
    cells, place = np.unique(
        np.stack([k.ravel(), n.ravel(), levels.ravel()]), axis=1, return_inverse=True
    )
    k_of, n_of, level_of = cells
    misses = n_of - k_of
    # At the ends of the interval k log p + (n - k) log(1 - p) is as small as this.
    least = betaln(k_of + 0.5, misses + 0.5) - betaln(0.5, 0.5) + np.log(level_of)
    share = np.where(n_of > 0, k_of / np.maximum(n_of, 1), 0.5)
    ends = []
    for outside in (np.where(k_of == 0, share, 0.0), np.where(misses == 0, share, 1.0)):
        inside = share.copy()
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            is_inside = xlogy(k_of, middle) + xlog1py(misses, -middle) > least
            inside = np.where(is_inside, middle, inside)
            outside = np.where(is_inside, outside, middle)
        ends.append(outside)
    lower = np.where(k_of == 0, 0.0, ends[0])[place]
    upper = np.where(misses == 0, 1.0, ends[1])[place]
    return lower.reshape(k.shape), upper.reshape(k.shape)


def hypergeometric_bounds(
    hits: ArrayLike, trials: ArrayLike, pools: ArrayLike, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """One-sided bounds for the share of a pool, from a simple random sample of it.

    On a graph, calibration and test nodes are a random split of one pool. Of the pool's N
    points M are covered, and so are `hits` of the `trials` points that were drawn.

    Returns
    -------
    lower, upper : arrays of float
        Shares M/N; each bound is wrong with probability at most `level`.

    Examples
    --------
    >>> lower, upper = hypergeometric_bounds(1, 5, 98, 0.05)
    >>> round(float(98 * lower)), round(float(98 * upper))
    (1, 63)
    """
    hits, trials, pools = np.broadcast_arrays(
        np.asarray(hits, np.int64),
        np.asarray(trials, np.int64),
        np.asarray(pools, np.int64),
    )
    cells, place = np.unique(
        np.stack([hits.ravel(), trials.ravel(), pools.ravel()]),
        axis=1,
        return_inverse=True,
    )
    k, n, whole = cells
    # Upper: the largest M with Pr[at most k] > level.
    # Lower: the least M with Pr[at least k] > level.
    upper = _last_true(
        k,
        whole - (n - k),
        lambda m: np.asarray(stats.hypergeom.cdf(k, whole, m, n) > level),
    )
    lower = whole - _last_true(
        n - k,
        whole - k,
        lambda m: np.asarray(stats.hypergeom.cdf(n - k, whole, m, n) > level),
    )
    size = np.maximum(whole, 1)
    return (
        np.where(whole == 0, 0.0, lower / size)[place].reshape(hits.shape),
        np.where(whole == 0, 1.0, upper / size)[place].reshape(hits.shape),
    )


def _last_true(
    first: np.ndarray, last: np.ndarray, holds: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The largest integer from `first` to `last` at which a falling condition holds.

    It holds at `first`, and is bisected for all entries at once.
    """
    low = first.copy()
    high = last.copy()
    while (low < high).any():
        middle = (low + high + 1) // 2
        is_true = holds(middle)
        low = np.where(is_true, middle, low)
        high = np.where(is_true, high, middle - 1)
    return low


LARGEST_LEVEL = 0.5  # of a staircase
ROWS_AT_ONCE = 256  # whose steps are looked at together: so many stay in a near cache
# The levels that a staircase may use, as standard normal quantiles z(t) = Φ⁻¹(1 - t).
_LISTED = (
    *np.round(np.arange(-1.4, 1.01, 0.3), 1),
    *np.round(np.arange(1.2, 3.01, 0.2), 1),
    3.4,
)

# Several steps change at one margin, and rounding parts them by 1e-15: values as close as
# this are one, so that every machine builds the same staircase.
_SAME = 1e-9


@dataclass(frozen=True)
class Steps:
    """One staircase, for a true coverage of group a between `low` and `high`.

    alphas α_1 < … < α_{m-1} and betas β_2 > … > β_m, such that with β_1 = α_m = 1 and
    α_0 = 0 the mass Σ (α_i - α_{i-1}) β_i is at most δ.
    """

    low: float
    high: float
    alphas: tuple[float, ...]
    betas: tuple[float, ...]

    @property
    def mass(self) -> float:
        """What the theorem bounds the chance of a wrong acceptance by."""
        total = 0.0
        before = 0.0
        beta = 1.0
        for alpha, next_beta in zip(self.alphas, self.betas, strict=True):
            total += (alpha - before) * beta
            before = alpha
            beta = next_beta
        return total + (1 - before) * beta


@functools.cache
def staircase(n_a: float, n_b: float, delta: float) -> tuple[Steps, ...]:
    """A staircase for every interval of group a's true coverage; any choice is valid.

    The choice depends on the two sizes and on δ, never on what was counted. It spends δ
    where coverages of the stated sizes are likely to lie.

    Examples
    --------
    >>> all(steps.mass <= 0.1 for steps in staircase(150, 40, 0.1))
    True
    """
    edges = [0.0]
    edges += [1 - 2.0**j / n_a for j in range(40, -1, -1) if 1 - 2.0**j / n_a > 0]
    edges.append(1.0)
    largest = float(-ndtri(listed_levels(delta)[0]))
    found = []
    for low, high in pairwise(edges):
        p_a = min(0.8 * high + 0.2 * low, 1 - 0.001 / n_a)
        p_b = min(max(p_a - 0.1, 0.02), 1 - 0.5 / n_b)
        sd_a = math.sqrt(p_a * (1 - p_a) / n_a)
        sd_b = math.sqrt(p_b * (1 - p_b) / n_b)
        octaves = round(2 * math.log2(sd_a / sd_b)) / 2
        ratio = 2.0 ** min(max(octaves, -8), 6)
        cap = float(-ndtri(0.98 * delta)) + 0.7 * (1 - high) / sd_b
        cap = min(cap, largest)  # from there on a cap changes nothing
        alphas, betas = _steps(ratio, math.ceil(4 * cap) / 4, delta)
        found.append(Steps(low, high, alphas, betas))
    return tuple(found)


@functools.cache
def listed_levels(delta: float) -> np.ndarray:
    """The levels t that a staircase of mass δ may use, ascending; not to be changed."""
    own = -ndtri(np.array([delta, 0.98 * delta, delta / 2]))
    levels = ndtr(-np.unique([*_LISTED, *own]))[::-1]
    levels.flags.writeable = False
    return levels


@functools.cache
def _steps(
    ratio: float, cap: float, delta: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The steps with the least margin D whose mass is at most δ."""
    levels = listed_levels(delta).tolist()
    # z comes back from its level as 1.0000000000000002; rounded, it is within a cap of 1.
    z = np.round(-ndtri(levels), 12)
    # A step begins where D - ρ·z(α) reaches a listed z(β), so one of these is the least.
    margins = np.unique(z[:, None] + ratio * z).tolist()

    def is_valid(margin: float) -> bool:
        return _steps_at(margin, ratio, cap, levels, z.tolist()).mass <= delta

    while not is_valid(margins[-1]):
        cap += 0.25
    least = margins[bisect_left(margins, True, key=is_valid)]
    steps = _steps_at(least, ratio, cap, levels, z.tolist())
    return steps.alphas, steps.betas


def _steps_at(
    margin: float, ratio: float, cap: float, levels: list[float], z: list[float]
) -> Steps:
    """The steps for a margin D: z(β) is the largest listed value up to D - ρ·z(α).

    Levels ascend, so their quantiles z fall.
    """
    alphas: list[float] = []
    betas: list[float] = []
    for alpha, z_alpha in zip(levels, z, strict=True):
        v = min(margin - ratio * z_alpha, cap) + _SAME
        first = bisect_left(z, -v, key=operator.neg)
        if first == len(z):
            continue
        beta = levels[first]
        if betas and beta == betas[-1]:
            continue
        alphas.append(alpha)
        betas.append(beta)
    return Steps(0.0, 1.0, tuple(alphas), tuple(betas))


def staircase_losses(
    hits: np.ndarray,
    trials: np.ndarray,
    delta: float,
    is_ratio: bool = False,
    pools: np.ndarray | None = None,
    at_least: float = -math.inf,
) -> np.ndarray:
    """The largest gap between two different groups that a test of level δ allows for.

    If the true coverages of some two groups differ by more than c, the result is at most
    c with probability at most δ, whatever the coverages. For ratios the sign is turned:
    if p_b < c·p_a for some two groups, the result is at most -c with probability at most
    δ.

    Parameters
    ----------
    hits, trials : integers (…, groups)
        Covered points and all points of every group, independent between groups.
    delta : float in (0, .5]
    is_ratio : bool
    pools : integers (…, groups), optional
        Points of every group in the whole pool, where the points are a random part of it.
    at_least : float
        Smaller losses come as this number. Who only asks whether a loss is within c gives
        c: most losses then need no exact bounds, which take long.

    Returns
    -------
    (…,)

    Examples
    --------
    >>> hits = np.array([[97, 94], [100, 100]])
    >>> staircase_losses(hits, np.array([100, 100]), 0.1).round(3).tolist()
    [0.092, 0.025]
    """
    shape = np.broadcast_shapes(hits.shape, trials.shape)
    n_groups = shape[-1]
    hits = np.broadcast_to(hits, shape).reshape(-1, n_groups)
    trials = np.broadcast_to(trials, shape).reshape(-1, n_groups)
    if pools is not None:
        pools = np.broadcast_to(pools, shape).reshape(-1, n_groups)
    losses = np.full(len(hits), -1.0 if is_ratio else 0.0)
    if n_groups == 1:
        return np.maximum(losses, at_least).reshape(shape[:-1])
    losses[(trials == 0).any(axis=1)] = 0.0 if is_ratio else 1.0
    losses = np.maximum(losses, at_least)
    levels = listed_levels(delta)
    bounds = _CellBounds(levels, hits, trials, pools)
    for n_a, n_b, rows, in_a, in_b in _pairs_by_size(_rounded(trials)):
        # Among cells of one size, the largest upper and the smallest lower bound decide.
        # No step allows for more than the two widest bounds: most pairs end here.
        high = bounds.largest_upper(rows, in_a, is_widest=True)
        low = bounds.smallest_lower(rows, in_b, is_widest=True)
        widest = _loss_of_bounds(high[0], low[0], is_ratio)
        is_open = widest > losses[rows]
        if not is_open.any():
            continue
        rows = rows[is_open]
        high = bounds.largest_upper(rows, in_a[is_open])
        low = bounds.smallest_lower(rows, in_b[is_open])
        loss = _loss_of_pair(high, low, n_a, n_b, delta, is_ratio)
        losses[rows] = np.maximum(losses[rows], loss)
    return losses.reshape(shape[:-1])


def _loss_of_bounds(high: np.ndarray, low: np.ndarray, is_ratio: bool) -> np.ndarray:
    """The loss between an upper and a lower bound.

    Where a pool is known to hold nothing, high = 0, no p_b is below c·p_a = 0.
    """
    if is_ratio:
        return -np.divide(low, high, out=np.ones_like(low), where=high > 0)
    return high - low


def _pairs_by_size(
    sizes: np.ndarray,
) -> Iterator[tuple[float, float, np.ndarray, np.ndarray, np.ndarray]]:
    """Every two different groups, those of the same sizes together.

    From the sizes (rows, groups): n_a, n_b, the rows that have such cells, and which of
    their groups stand on either side (rows, groups). Small groups, whose bounds are the
    widest, come first.
    """
    found = np.unique(sizes[sizes > 0])
    for n_a in found:
        of_size_a = sizes == n_a
        for n_b in found:
            if n_a != n_b:
                sides = [(of_size_a, sizes == n_b)]
            else:
                sides = _one_against_the_others(of_size_a)
            for side_a, side_b in sides:
                rows = np.flatnonzero(side_a.any(axis=1) & side_b.any(axis=1))
                if len(rows) > 0:
                    yield n_a, n_b, rows, side_a[rows], side_b[rows]


def _one_against_the_others(
    members: np.ndarray,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each group that occurs among the members, and the other members (rows, groups)."""
    sides = []
    for group in np.flatnonzero(members.any(axis=0)):
        is_it = np.arange(members.shape[1]) == group
        sides.append((members & is_it, members & ~is_it))
    return sides


def full_losses(
    sizes: np.ndarray,
    delta: float,
    is_ratio: bool = False,
    pools: np.ndarray | None = None,
) -> np.ndarray:
    """The loss of every group against another one when all points are covered.

    No outcome is more favourable to a group: where this is beyond c, it has too few
    points. Against a group without points nothing is tested here.

    Examples
    --------
    >>> bool(full_losses(np.array([24, 24]), 0.1).max() <= 0.1)
    True
    >>> bool(full_losses(np.array([23, 23]), 0.1).min() <= 0.1)
    False
    """
    losses = np.full(len(sizes), -1.0 if is_ratio else 0.0)
    if len(sizes) > 1:
        losses[sizes == 0] = 0.0 if is_ratio else 1.0
    levels = listed_levels(delta)
    lower = _CellBounds(levels, sizes, sizes, pools).lower_at_all_levels()
    rounded = _rounded(sizes)
    for n_a in np.unique(rounded[rounded > 0]):
        for n_b in np.unique(rounded[rounded > 0]):
            if n_a == n_b and np.count_nonzero(rounded == n_a) == 1:
                continue
            of_b = np.flatnonzero(rounded == n_b)
            upper = np.ones((len(levels), len(of_b)))
            loss = _loss_of_pair(upper, lower[:, of_b], n_a, n_b, delta, is_ratio)
            losses[of_b] = np.maximum(losses[of_b], loss)
    return losses


@functools.lru_cache(maxsize=10_000)
def equal_full_loss(n: int, delta: float, is_ratio: bool = False) -> float:
    """The loss between two groups of n points each that are all covered."""
    return float(full_losses(np.array([n, n]), delta, is_ratio).max())


def _loss_of_pair(
    upper: np.ndarray,
    lower: np.ndarray,
    n_a: float,
    n_b: float,
    delta: float,
    is_ratio: bool,
) -> np.ndarray:
    """The largest min(U_a(α_i), h_r) - L_b(β_{i+1}) over intervals r and steps i.

    A step counts where U_a(α_i) ≥ l_r.
    `upper` and `lower` hold the bounds of groups a and b at every level (levels, rows).
    """
    at_alpha, at_beta, low_ends, high_ends = _steps_of_pair(float(n_a), float(n_b), delta)
    loss = np.empty(upper.shape[1])
    for first in range(0, len(loss), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        u = upper[at_alpha, rows]
        values = _loss_of_bounds(np.minimum(u, high_ends), lower[at_beta, rows], is_ratio)
        loss[rows] = np.where(u >= low_ends, values, -np.inf).max(axis=0)
    return loss


@functools.cache
def _steps_of_pair(
    n_a: float, n_b: float, delta: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every step of every interval of a staircase.

    Where its two levels stand among `listed_levels`, each (steps,), and the interval's
    ends l_r and h_r, each (steps, 1).
    """
    alphas: list[float] = []
    betas: list[float] = []
    lows: list[float] = []
    highs: list[float] = []
    for steps in staircase(n_a, n_b, delta):
        alphas += steps.alphas
        betas += steps.betas
        lows += [steps.low] * len(steps.alphas)
        highs += [steps.high] * len(steps.alphas)
    levels = listed_levels(delta)
    at_alpha = np.searchsorted(levels, alphas)
    at_beta = np.searchsorted(levels, betas)
    return at_alpha, at_beta, np.array(lows)[:, None], np.array(highs)[:, None]


def _rounded(sizes: np.ndarray) -> np.ndarray:
    """Sizes to quarter octaves, so that few staircases are built; 0 stays 0."""
    octaves = np.round(4 * np.log2(np.maximum(sizes, 1))) / 4
    return np.where(sizes == 0, 0.0, 2**octaves)


def next_staircase(n: int) -> int:
    """The least size above n for which another staircase is chosen."""
    octaves = round(4 * math.log2(max(n, 1))) / 4
    return math.floor(2 ** (octaves + 1 / 8)) + 1


class _CellBounds:
    """Bounds of cells (…, groups) at every level.

    Each distinct cell is bounded once: at the first level, which has the widest bounds,
    from the start, and at the others when it is asked for, from the side that is asked.
    """

    def __init__(
        self,
        levels: np.ndarray,
        hits: np.ndarray,
        trials: np.ndarray,
        pools: np.ndarray | None,
    ) -> None:
        whole = trials if pools is None else pools
        self.cells, place = np.unique(
            np.stack([hits.ravel(), trials.ravel(), whole.ravel()]),
            axis=1,
            return_inverse=True,
        )
        self.place = place.reshape(hits.shape)
        self.levels = levels
        n_cells = self.cells.shape[1]
        self.bounds: dict[str, np.ndarray] = {}
        self.is_bounded: dict[str, np.ndarray] = {}
        self.bound_of = _bounds_of_draws if pools is None else _bounds_of_pools
        for side in ("lower", "upper"):
            self.bounds[side] = np.ones((len(levels), n_cells))
            self.bounds[side][:1] = self.bound_of(side, self.cells, levels[:1])
            self.is_bounded[side] = np.zeros(n_cells, bool)

    def largest_upper(
        self, rows: np.ndarray, members: np.ndarray, is_widest: bool = False
    ) -> np.ndarray:
        """The largest upper bound of the members (rows, groups): (levels, rows).

        The widest is that of the first level alone.
        """
        bounds, is_in = self._of_members("upper", rows, members, is_widest)
        return np.where(is_in, bounds, -np.inf).max(axis=2)

    def smallest_lower(
        self, rows: np.ndarray, members: np.ndarray, is_widest: bool = False
    ) -> np.ndarray:
        """The smallest lower bound of the members, likewise."""
        bounds, is_in = self._of_members("lower", rows, members, is_widest)
        return np.where(is_in, bounds, np.inf).min(axis=2)

    def lower_at_all_levels(self) -> np.ndarray:
        """Lower bounds of all cells (levels, …, groups)."""
        self._bound("lower", self.place)
        return self.bounds["lower"][:, self.place]

    def _of_members(
        self, side: str, rows: np.ndarray, members: np.ndarray, is_widest: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the groups with a member (levels, rows, groups), and who is one."""
        groups = np.flatnonzero(members.any(axis=0))
        is_member = members[:, groups]
        cells = self.place[rows[:, None], groups]
        if is_widest:
            return self.bounds[side][:1, cells], is_member
        self._bound(side, cells[is_member])
        return self.bounds[side][:, cells], is_member

    def _bound(self, side: str, cells: np.ndarray) -> None:
        """Have bounds of these distinct cells at every level."""
        new = np.unique(cells[~self.is_bounded[side][cells]])
        if len(new) == 0:
            return
        found = self.bound_of(side, self.cells[:, new], self.levels[1:])
        self.bounds[side][1:, new] = found
        self.is_bounded[side][new] = True


def _bounds_of_draws(side: str, cells: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Bounds (levels, cells) of independent draws, from below or from above."""
    k, n, _ = cells
    bound = _beta_lower if side == "lower" else _beta_upper
    return bound(k, n, levels[:, None])


def _bounds_of_pools(side: str, cells: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The same for cells that are a random part of a pool."""
    k, n, whole = cells
    at_side = ("lower", "upper").index(side)
    found = np.empty((len(levels), len(k)))
    for at, level in enumerate(levels):
        found[at] = hypergeometric_bounds(k, n, whole, level)[at_side]
    return found
