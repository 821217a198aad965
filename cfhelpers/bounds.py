"""Exact bounds for a probability, from the points that were counted, and tests of a gap.

`clopper_pearson` and `hypergeometric_bounds` bound one probability. A `staircase` spends
the level of a test on both groups of a pair together, so that a gap within c is found more
often than with half of the level for each.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import betaincinv, ndtr, ndtri


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
    lower = np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), n - k + 1, level))
    upper = np.where(k == n, 1.0, betaincinv(k + 1, np.maximum(n - k, 1), 1 - level))
    return lower[place].reshape(hits.shape), upper[place].reshape(hits.shape)


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
    # upper: the largest M with Pr[at most k] > level; lower: the least with Pr[at least k] > level
    upper = _last_true(
        k, whole - (n - k), lambda m: stats.hypergeom.cdf(k, whole, m, n) > level
    )
    lower = whole - _last_true(
        n - k, whole - k, lambda m: stats.hypergeom.cdf(n - k, whole, m, n) > level
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


# The levels that a staircase may use, as standard normal quantiles z(t) = Φ⁻¹(1 - t).
_LISTED = (
    *np.round(np.arange(-1.4, 1.01, 0.3), 1),
    *np.round(np.arange(1.2, 3.01, 0.2), 1),
    3.4,
)


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
        alphas = np.array([0.0, *self.alphas, 1.0])
        betas = np.array([1.0, *self.betas])
        return float(np.sum(np.diff(alphas) * betas))


def staircase(n_a: int, n_b: int, delta: float) -> list[Steps]:
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
    found = []
    for low, high in pairwise(edges):
        p_a = min(0.8 * high + 0.2 * low, 1 - 0.001 / n_a)
        p_b = min(max(p_a - 0.1, 0.02), 1 - 0.5 / n_b)
        sd_a = math.sqrt(p_a * (1 - p_a) / n_a)
        sd_b = math.sqrt(p_b * (1 - p_b) / n_b)
        octaves = round(2 * math.log2(sd_a / sd_b)) / 2
        ratio = 2.0 ** min(max(octaves, -8), 6)
        cap = ndtri(1 - 0.98 * delta) + 0.7 * (1 - high) / sd_b
        alphas, betas = _steps(ratio, math.ceil(4 * cap) / 4, delta)
        found.append(Steps(low, high, alphas, betas))
    return found


def listed_levels(delta: float) -> np.ndarray:
    """The levels t that a staircase of mass δ may use, ascending."""
    own = ndtri(1 - np.array([delta, 0.98 * delta, delta / 2]))
    return ndtr(-np.unique([*_LISTED, *own]))[::-1]


@functools.cache
def _steps(
    ratio: float, cap: float, delta: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The steps with the least margin D whose mass is at most δ, by bisection."""
    while True:
        lowest = -30.0
        highest = 20 + 4 * ratio + cap
        if _steps_at(highest, ratio, cap, delta).mass <= delta:
            break
        cap += 0.25
    for _ in range(60):
        middle = (lowest + highest) / 2
        if _steps_at(middle, ratio, cap, delta).mass <= delta:
            highest = middle
        else:
            lowest = middle
    steps = _steps_at(highest, ratio, cap, delta)
    return steps.alphas, steps.betas


def _steps_at(margin: float, ratio: float, cap: float, delta: float) -> Steps:
    """The steps for a margin D: z(β) is the largest listed value up to D - ρ·z(α)."""
    levels = listed_levels(delta)
    z = -ndtri(levels)  # falls while the levels rise
    alphas: list[float] = []
    betas: list[float] = []
    for alpha, z_alpha in zip(levels, z, strict=True):
        v = min(margin - ratio * z_alpha, cap)
        allowed = np.flatnonzero(z <= v)
        if len(allowed) == 0:
            continue
        beta = float(levels[allowed[0]])
        if betas and beta == betas[-1]:
            continue
        alphas.append(float(alpha))
        betas.append(beta)
    return Steps(0.0, 1.0, tuple(alphas), tuple(betas))
