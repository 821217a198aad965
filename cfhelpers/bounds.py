"""Exact bounds for a probability, from the points that were counted."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv


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
