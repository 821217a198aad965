"""Split conformal prediction: the quantile, prediction sets, their coverage and their size."""

import math
from typing import Any

import numpy as np

from cfhelpers._checks import (
    as_array,
    as_float_column,
    as_fraction,
    as_labels,
    as_scores,
    as_sets,
)


def conformal_quantile(scores: Any, alpha: float) -> float:
    """Smallest threshold that covers a new exchangeable score with probability at least 1 - alpha.

    The k-th smallest of the n scores, k = ceil((n + 1)(1 - alpha)); infinite when k > n.
    """
    scores = as_float_column(scores, "scores")
    alpha = as_fraction(alpha, "alpha")
    rank = (len(scores) + 1) * (1 - alpha)
    rank = max(
        1, math.ceil(rank - max(1e-9, 1e-15 * rank))
    )  # 150 * (1 - .18) is 123, not a float above it
    return (
        math.inf
        if rank > len(scores)
        else float(np.partition(scores, rank - 1)[rank - 1])
    )


def prediction_sets(scores: Any, threshold: Any) -> np.ndarray:
    """The labels whose score is at most the threshold, boolean (n, K); one threshold, or one per label (K,)."""
    scores = as_scores(scores)
    threshold = as_array(threshold).astype(np.float64)
    if threshold.shape not in ((), (scores.shape[1],)):
        raise ValueError(
            f"threshold: found shape {threshold.shape}; wanted one number, or one per label ({scores.shape[1]},)"
        )
    if np.isnan(threshold).any():
        raise ValueError("threshold: found NaN; wanted numbers, infinity allowed")
    return scores <= round_down(threshold, scores.dtype)


def round_down(threshold: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The largest numbers of this type that are not above the threshold: comparing with them is exact, and fast."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(threshold).astype(dtype)
    return np.where(
        rounded > threshold, np.nextafter(rounded, -np.inf, dtype=dtype), rounded
    )


def coverage(sets: Any, y: Any) -> float:
    """Share of the points whose set holds the true label."""
    sets = as_sets(sets)
    y = as_labels(y, *sets.shape)
    return float(sets[np.arange(len(y)), y].mean())


def efficiency(sets: Any) -> float:
    """Mean number of labels in a set; smaller says more."""
    return float(as_sets(sets).sum(axis=1).mean())
