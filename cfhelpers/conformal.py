"""Split conformal prediction: the quantile, prediction sets, their coverage and size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cfhelpers._blocks import VALUES_AT_ONCE, in_blocks
from cfhelpers._checks import (
    as_array,
    as_float_column,
    as_fraction,
    as_labels,
    as_score_table,
    as_sets,
    check_scores,
)

MANY_NUMBERS = 5_000  # from here on a look at a sample is worth its time
SAMPLE_STEP = 32


def conformal_quantile(scores: ArrayLike, alpha: float) -> float:
    """Smallest threshold that covers a new exchangeable score often enough.

    The k-th smallest of the n scores, k = ceil((n + 1)(1 - alpha)). A new score is at
    most this threshold with probability at least 1 - alpha.

    Parameters
    ----------
    scores : numbers (n,)
        The score of the true label of every calibration point.
    alpha : float in (0, 1)
        How often a new score may exceed the threshold.

    Returns
    -------
    float
        One of the scores; infinite when k > n.

    Examples
    --------
    >>> conformal_quantile([0.1, 0.2, 0.3, 0.4], alpha=0.5)
    0.3
    >>> conformal_quantile([0.1, 0.2, 0.3, 0.4], alpha=0.1)
    inf
    """
    column = as_float_column(scores, "scores")
    alpha = as_fraction(alpha, "alpha")
    n = len(column)
    rank = quantile_rank(n, alpha)
    if rank > n:
        return math.inf
    return float(kth_smallest(column, rank))


def kth_smallest(column: np.ndarray, k: int) -> np.floating:
    """The k-th smallest of some numbers, k from 1.

    Of many, every `SAMPLE_STEP`-th says roughly where it is; only the few numbers between
    two of the sample are put in order. Whether it is among them is counted, so the answer
    is exact in any case.

    Parameters
    ----------
    column : numbers (n,)
        Without NaN.
    k : int
        From 1 to n.

    Returns
    -------
    number

    Examples
    --------
    >>> float(kth_smallest(np.array([0.3, 0.1, 0.2]), 2))
    0.2
    """
    n = len(column)
    if n >= MANY_NUMBERS:
        sample = np.sort(column[::SAMPLE_STEP])
        share = k / n
        deviation = math.sqrt(len(sample) * share * (1 - share))
        place = int(share * len(sample))
        margin = int(4 * deviation) + 2
        low = sample[max(place - margin, 0)]
        high = sample[min(place + margin, len(sample) - 1)]
        n_below = np.count_nonzero(column < low)
        near = column[(column >= low) & (column <= high)]
        own_rank = k - n_below
        if 0 < own_rank <= len(near):
            return np.partition(near, own_rank - 1)[own_rank - 1]
    return np.partition(column, k - 1)[k - 1]


def quantile_rank(n: int, alpha: float) -> int:
    """Which of n scores, in ascending order from 1, is the quantile.

    More than n where there are too few.

    Examples
    --------
    >>> quantile_rank(4, alpha=0.5), quantile_rank(4, alpha=0.1)
    (3, 5)
    """
    # 150 * (1 - .18) is 123, not a float above it.
    unrounded = (n + 1) * (1 - alpha)
    slack = max(1e-9, 1e-15 * unrounded)
    return max(1, math.ceil(unrounded - slack))


def true_label_scores(scores: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Everyone's score of the true label, of which `conformal_quantile` is taken.

    Parameters
    ----------
    scores : numbers (n, K)
        One column per label.
    y : integers (n,)
        True labels from 0 to K - 1.

    Returns
    -------
    numbers (n,)

    Examples
    --------
    >>> true_label_scores([[0.1, 0.9], [0.4, 0.6]], [1, 0]).tolist()
    [0.9, 0.4]
    """
    table = as_score_table(scores)
    n, n_classes = table.shape
    labels = as_labels(y, n, n_classes)
    rows_at_once = min(n, max(1, VALUES_AT_ONCE // n_classes))
    row_starts = np.arange(0, rows_at_once * n_classes, n_classes)
    own_scores = np.empty(n, table.dtype)

    def fill(some: slice) -> None:
        places = row_starts[: some.stop - some.start] + labels[some]
        own_scores[some] = table[some].ravel().take(places)

    in_blocks(fill, table.shape)
    return own_scores


def prediction_sets(scores: ArrayLike, threshold: ArrayLike) -> np.ndarray:
    """The labels whose score is at most the threshold.

    Parameters
    ----------
    scores : numbers (n, K)
        One column per label.
    threshold : number, or numbers (K,)
        One for all labels, or one for each. Infinity puts a label in every set.

    Returns
    -------
    bool (n, K)

    Examples
    --------
    >>> prediction_sets([[0.1, 0.9], [0.4, 0.6]], 0.6).tolist()
    [[True, False], [True, True]]
    >>> prediction_sets([[0.1, 0.9], [0.4, 0.6]], [0.2, 1.0]).tolist()
    [[True, True], [False, True]]
    """
    table = as_score_table(scores)
    limits = as_array(threshold).astype(np.float64)
    n_classes = table.shape[1]
    if limits.shape not in ((), (n_classes,)):
        raise ValueError(
            f"threshold: found shape {limits.shape}; "
            f"wanted one number, or one per label ({n_classes},)"
        )
    if np.isnan(limits).any():
        raise ValueError("threshold: found NaN; wanted numbers, infinity allowed")
    rounded = round_down(limits, table.dtype)
    sets = np.empty(table.shape, bool)

    def fill(some: slice) -> None:
        check_scores(table, some)
        np.less_equal(table[some], rounded, out=sets[some])

    in_blocks(fill, table.shape)
    return sets


def round_down(threshold: ArrayLike, dtype: np.dtype) -> np.ndarray:
    """The largest numbers of a type that are not above the threshold.

    Comparing scores of this type with them is exact, and fast.

    Parameters
    ----------
    threshold : numbers of any shape
    dtype : np.float32 or np.float64
        The type of the scores.

    Returns
    -------
    array of that type and shape

    Examples
    --------
    >>> float(round_down(0.1, np.dtype(np.float32))) <= 0.1
    True
    """
    wanted = np.asarray(threshold)
    with np.errstate(over="ignore"):
        rounded = wanted.astype(dtype)
    next_lower = np.nextafter(rounded, -np.inf, dtype=dtype)
    return np.where(rounded > wanted, next_lower, rounded)


def coverage(sets: ArrayLike, y: ArrayLike) -> float:
    """Share of the points whose set holds the true label.

    Parameters
    ----------
    sets : bool (n, K)
    y : integers (n,)
        True labels from 0 to K - 1.

    Returns
    -------
    float

    Examples
    --------
    >>> coverage([[True, False], [True, True]], [1, 1])
    0.5
    """
    checked = as_sets(sets)
    labels = as_labels(y, *checked.shape)
    return float(checked[np.arange(len(labels)), labels].mean())


def efficiency(sets: ArrayLike) -> float:
    """Mean number of labels in a set; smaller says more.

    Parameters
    ----------
    sets : bool (n, K)

    Returns
    -------
    float

    Examples
    --------
    >>> efficiency([[True, False], [True, True]])
    1.5
    """
    return float(as_sets(sets).sum(axis=1).mean())


def constant_sets(n: int, labels: Sequence[int], n_classes: int) -> np.ndarray:
    """The same set for everyone: the answer that a predictor must beat.

    It looks at nobody, so its coverage of a label is the same in every group, and every
    gap between groups is 0.

    Parameters
    ----------
    n : int
        Number of people.
    labels : list of int
        The labels in the set.
    n_classes : int
        Number of labels in all.

    Returns
    -------
    bool (n, n_classes)

    Examples
    --------
    >>> constant_sets(2, [1, 2], n_classes=3).tolist()
    [[False, True, True], [False, True, True]]
    """
    for label in labels:
        if label not in range(n_classes):
            raise ValueError(
                f"labels: found {label!r}; "
                f"labels must be integers from 0 to {n_classes - 1}"
            )
    sets = np.zeros((n, n_classes), dtype=bool)
    sets[:, list(labels)] = True
    return sets
