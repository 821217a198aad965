"""Weights of points: a sample that stands for another population.

The weight of a point says how much more common such points are in the target than in the
sample, up to a factor that all weights share: a survey's weights, or the ratio of two
densities where a shift is known. There are two ways to use them.

Thinning keeps a point with probability weight / bound. The points that it keeps are an
independent sample of the target, so whatever holds for a sample holds there exactly. It
costs points. Weighted counts use every point, with an effective size in place of the
number of points. They are approximate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfhelpers._checks import as_array, as_float_column, as_fraction, as_pandas
from cfhelpers._sweep import rank_interval
from cfhelpers.cells import Shares
from cfhelpers.scores import person_u

PURPOSE = "thinning"  # its random numbers have nothing to do with those of the scores


@dataclass(frozen=True)
class Weighting:
    """What became of the weights, and what that cost. `str()` says it in words.

    Attributes
    ----------
    n_points : int
        All points.
    n_kept : int
        The points that count: those that thinning kept, or those of a weight above 0.
    effective_size : float
        (Σw)² / Σw²: as many points of equal weight would tell as much.
    weight_bound : float or None
        The bound of the thinning; None: weighted counts.
    cost : float
        How many times as many points it takes as a sample of the target itself would:
        the bound over the mean weight, or points over the effective size.
    """

    n_points: int
    n_kept: int
    effective_size: float
    weight_bound: float | None
    cost: float

    def __str__(self) -> str:
        if self.weight_bound is None:
            return (
                f"weighted counts of {self.n_points:,} points, which tell as much as "
                f"{self.effective_size:,.0f} of equal weight (cost: a factor of "
                f"{self.cost:.3g}); approximate"
            )
        return (
            f"thinned to the target of the weights: {self.n_kept:,} of "
            f"{self.n_points:,} points kept (bound {self.weight_bound:g}, cost: a factor "
            f"of {self.cost:.3g})"
        )


def thin(
    sample_weight: ArrayLike,
    weight_bound: float,
    seed: int = 0,
    ids: ArrayLike | None = None,
) -> np.ndarray:
    """Which points to keep, so that those kept are a sample of the weights' target.

    A point is kept with probability weight / bound, by a draw of its own that depends on
    the seed and on the point's place or id, never on what the point holds.

    Parameters
    ----------
    sample_weight : numbers (n,)
        Not below 0, and none above the bound.
    weight_bound : float
        The largest weight that anyone in the population can have, declared without
        looking at the sample.
    seed : int
        From 0.
    ids : (n,), optional
        Who each point is; by default its place among the points.

    Returns
    -------
    bool (n,)

    Examples
    --------
    >>> is_kept = thin([1.0, 0.5, 0.0] * 1000, weight_bound=1.0)
    >>> is_kept[::3].mean(), is_kept[2::3].mean()
    (np.float64(1.0), np.float64(0.0))
    >>> bool(0.45 < is_kept[1::3].mean() < 0.55)
    True
    """
    weights = as_weights(sample_weight)
    bound = as_weight_bound(weight_bound, weights)
    people: Any = np.arange(len(weights))
    if ids is not None:
        people = ids
        if len(as_pandas(ids)) != len(weights):
            raise ValueError(
                f"ids: found {len(as_pandas(ids))} for {len(weights)} points; "
                "wanted one each"
            )
    return person_u(people, seed, PURPOSE) < weights / bound


def effective_size(sample_weight: ArrayLike) -> float:
    """(Σw)² / Σw²: as many points of equal weight would tell as much.

    Examples
    --------
    >>> effective_size([1, 1, 1, 1]), effective_size([1, 1, 0, 0])
    (4.0, 2.0)
    """
    weights = as_weights(sample_weight)
    return float(weights.sum() ** 2 / np.square(weights).sum())


def weighted_quantile(scores: ArrayLike, sample_weight: ArrayLike, alpha: float) -> float:
    """The conformal quantile of the population that the weights describe; approximate.

    The smallest score up to which the share of the weights, times the effective size n,
    is at least (n + 1)(1 - alpha). With equal weights it is `conformal_quantile`.

    Parameters
    ----------
    scores, sample_weight : numbers (n,)
    alpha : float in (0, 1)

    Returns
    -------
    float
        One of the scores; infinite when there is too little weight.

    Examples
    --------
    >>> weighted_quantile([0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1], alpha=0.5)
    0.3
    >>> weighted_quantile([0.1, 0.2, 0.3, 0.4], [9, 9, 1, 1], alpha=0.5)
    0.2
    """
    column = as_float_column(scores, "scores")
    weights = as_weights(sample_weight, len(column))
    alpha = as_fraction(alpha, "alpha")
    order = np.argsort(column, kind="stable")
    scale = weights.sum() / np.square(weights).sum()
    reached = np.cumsum(weights[order]) * scale
    size = weights.sum() * scale
    wanted = (size + 1) * (1 - alpha) - 1e-9
    if wanted > size:
        return math.inf
    place = int(np.searchsorted(reached, min(wanted, reached[-1]), side="left"))
    return float(column[order[place]])


def as_weights(values: ArrayLike, n: int | None = None) -> np.ndarray:
    """Weights as float64 (n,): finite, none below 0, not all of them 0.

    Examples
    --------
    >>> as_weights([1, -1])
    Traceback (most recent call last):
    ValueError: sample_weight: entry 1 is -1; wanted numbers that are not below 0
    """
    weights = as_float_column(values, "sample_weight").astype(np.float64)
    if n is not None and len(weights) != n:
        raise ValueError(
            f"sample_weight: found {len(weights)} weights for {n} points; wanted one each"
        )
    is_wrong = ~np.isfinite(weights) | (weights < 0)
    if is_wrong.any():
        entry = int(is_wrong.argmax())
        raise ValueError(
            f"sample_weight: entry {entry} is {weights[entry]:g}; "
            "wanted numbers that are not below 0"
        )
    if not weights.any():
        raise ValueError("sample_weight: found only zeros; wanted a weight above 0")
    return weights


def as_weight_bound(value: Any, weights: np.ndarray) -> float:
    """The declared bound of the weights, which none of them exceeds."""
    if value is None:
        raise ValueError(
            "weight_bound: found None; a guarantee with sample_weight keeps each point "
            "with probability weight / bound, so wanted the largest weight that anyone "
            "can have, declared without looking at the sample; guarantee='none' uses "
            "weighted counts and needs no bound"
        )
    number = as_array(value)
    is_number = number.ndim == 0 and number.dtype.kind in "iuf"
    if not is_number or not 0 < number < np.inf:
        raise ValueError(f"weight_bound: found {value!r}; wanted a number above 0")
    if weights.max() > number:
        row = int((weights > number).argmax())
        raise ValueError(
            f"sample_weight: entry {row} is {weights[row]:g}, above the declared "
            f"weight_bound of {float(number):g}; wanted a bound for everyone. Weights "
            "cut to it (numpy.minimum) describe another target, and the promise is then "
            "about that one"
        )
    return float(number)


def use_weights(
    sample_weight: ArrayLike,
    n: int,
    weight_bound: float | None,
    has_guarantee: bool,
    seed: int,
    ids: ArrayLike | None = None,
) -> tuple[Weighting, np.ndarray, np.ndarray | None]:
    """What weights do to n points: a report, which points count, and their weights.

    With a guarantee points are thinned; those that are kept have no weights any more.
    Weights that are all equal say nothing, and are none.
    """
    weights = as_weights(sample_weight, n)
    is_unit = bool((weights == 1).all())
    if weight_bound is None and is_unit:
        weight_bound = 1.0
    if has_guarantee:
        is_kept = thin(weights, as_weight_bound(weight_bound, weights), seed, ids)
        if not is_kept.any():
            raise ValueError(
                f"sample_weight: thinning keeps none of the {n} points; wanted more "
                "points, or a smaller weight_bound"
            )
        bound = float(weight_bound or 0)
        cost = bound / float(weights.mean())
        size = effective_size(weights)
        return Weighting(n, int(is_kept.sum()), size, bound, cost), is_kept, None
    if weight_bound is not None:
        as_weight_bound(weight_bound, weights)
    is_kept = weights > 0
    own = weights[is_kept]
    size = effective_size(own)
    use = Weighting(n, len(own), size, None, n / size)
    if (own == own[0]).all():
        return use, is_kept, None
    return use, is_kept, own


def weighted_rank_losses(shares: Shares, squares: Shares) -> np.ndarray:
    """The paper's loss with weighted counts and effective sizes.

    Parameters
    ----------
    shares : Shares
        Hits and trials are sums of weights.
    squares : Shares
        Trials are sums of squared weights, in the same cells.

    Returns
    -------
    losses (…, labels, filters)
    """
    metric = shares.metric
    if metric.is_predictive:
        lower, upper = _predictive_interval(shares, squares)
    else:
        lower, upper = _interval(shares.hits, shares.trials, squares.trials)
    return metric.loss(upper.max(axis=-1), lower.min(axis=-1))


def weighted_prior_losses(shares: Shares, squares: Shares) -> np.ndarray:
    """The loss of predictive parity at ∞, where predictive values are the priors."""
    lower, upper = _interval(shares.prior_hits, shares.prior_trials, squares.prior_trials)
    return shares.metric.loss(upper.max(axis=-1), lower.min(axis=-1))


def _interval(
    hits: np.ndarray, trials: np.ndarray, squares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[k/(n + 1), (k + 1)/(n + 1)] for an effective size n and the share k/n."""
    scale = trials / np.where(squares > 0, squares, 1.0)
    return rank_interval(hits * scale, trials * scale)


def _predictive_interval(
    shares: Shares, squares: Shares
) -> tuple[np.ndarray, np.ndarray]:
    """Of predictive values: equal opportunity · prior / demographic parity."""
    prior = _interval(shares.prior_hits, shares.prior_trials, squares.prior_trials)
    equal = _interval(shares.hits, shares.prior_hits, squares.prior_hits)
    held = _interval(shares.trials, shares.prior_trials, squares.prior_trials)
    with np.errstate(divide="ignore"):
        lower = equal[0] * prior[0] / held[1]
        upper = equal[1] * prior[1] / held[0]
    if shares.metric.is_proxy:
        return lower - prior[1], upper - prior[0]
    return lower, upper
