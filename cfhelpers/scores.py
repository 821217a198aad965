"""Non-conformity scores: probabilities (n, K) in, scores (n, K) out.

A larger score is a stranger label.
"""

import numpy as np
from numpy.typing import ArrayLike

from cfhelpers._checks import as_probabilities, as_uniforms

PENALTY = 0.01  # of RAPS, where nothing is said
K_REG = 1
FEW_CLASSES = 12  # up to here comparing every pair of labels is quicker than sorting


def tps(probs: ArrayLike) -> np.ndarray:
    """Threshold prediction sets: one minus the label's probability.

    Parameters
    ----------
    probs : numbers (n, K)
        Probabilities; every row sums to 1.

    Returns
    -------
    numbers (n, K)

    Examples
    --------
    >>> tps([[0.75, 0.25]]).tolist()
    [[0.25, 0.75]]
    """
    return 1 - as_probabilities(probs)


def aps(probs: ArrayLike, u: ArrayLike | None = None) -> np.ndarray:
    """Adaptive prediction sets: the probability of the labels ranked no lower than y.

    From it u times the label's own probability is subtracted. Of equal probabilities the
    lower label is ranked first.

    Parameters
    ----------
    probs : numbers (n, K)
        Probabilities; every row sums to 1.
    u : numbers in [0, 1] (n,), optional
        One per point, shared by its labels. By default scores are not randomised.

    Returns
    -------
    numbers in [0, 1] (n, K)

    Examples
    --------
    >>> aps([[0.25, 0.5, 0.25]]).tolist()
    [[0.75, 0.5, 1.0]]
    >>> aps([[0.25, 0.5, 0.25]], u=[0.5]).tolist()
    [[0.625, 0.25, 0.875]]
    """
    return raps(probs, u, penalty=0.0)


def raps(
    probs: ArrayLike,
    u: ArrayLike | None = None,
    penalty: float = PENALTY,
    k_reg: int = K_REG,
) -> np.ndarray:
    """Regularised adaptive prediction sets: APS plus a penalty for low ranks.

    The penalty is penalty·max(rank - k_reg, 0); the most likely label has rank 1.

    Parameters
    ----------
    probs : numbers (n, K)
        Probabilities; every row sums to 1.
    u : numbers in [0, 1] (n,), optional
        One per point, shared by its labels. By default scores are not randomised.
    penalty : float
        What every rank beyond `k_reg` adds.
    k_reg : int
        How many ranks are free of it.

    Returns
    -------
    numbers (n, K)
        Between 0 and `raps_maximum`.

    Examples
    --------
    >>> raps([[0.25, 0.5, 0.25]], penalty=0.5, k_reg=1).tolist()
    [[1.25, 0.5, 2.0]]
    """
    table = as_probabilities(probs)
    if not penalty >= 0:
        raise ValueError(
            f"penalty: found {penalty!r}; wanted a number that is not below 0"
        )
    if not k_reg >= 0:
        raise ValueError(f"k_reg: found {k_reg!r}; wanted a number that is not below 0")
    number = table.dtype.type
    columns = np.ascontiguousarray(table.T)
    if len(columns) <= FEW_CLASSES:
        scores, ranks = _by_comparison(columns, need_ranks=penalty > 0)
    else:
        scores, ranks = _by_sorting(columns, need_ranks=penalty > 0)
    if u is not None:
        scores -= as_uniforms(u, len(table)).astype(table.dtype) * columns
    np.clip(scores, 0, 1, out=scores)  # a row sums to 1 up to rounding only
    if penalty > 0:
        scores += number(penalty) * np.maximum(ranks - number(k_reg), 0)
    return np.ascontiguousarray(scores.T)


def raps_maximum(n_classes: int, penalty: float = PENALTY, k_reg: int = K_REG) -> float:
    """The largest value that a RAPS score can take.

    Parameters
    ----------
    n_classes : int
        The number of labels.
    penalty, k_reg
        As in `raps`.

    Returns
    -------
    float

    Examples
    --------
    >>> raps_maximum(3, penalty=0.5, k_reg=1)
    2.0
    """
    return 1 + penalty * max(n_classes - k_reg, 0)


def _by_comparison(
    columns: np.ndarray, need_ranks: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Sums (K, n) over the labels ranked no lower than each label, and ranks if needed.

    Every pair of labels is compared. All sums run in label order, so that a label ranked
    lower never ends below one ranked higher, rounding included.
    """
    sums = np.zeros_like(columns)
    ranks = np.zeros_like(columns)
    for other, probability in enumerate(columns):
        for label, own in enumerate(columns):
            if other > label:
                is_ahead = probability > own
            else:
                is_ahead = probability >= own
            sums[label] += probability * is_ahead
            if need_ranks:
                ranks[label] += is_ahead
    return sums, ranks


def _by_sorting(columns: np.ndarray, need_ranks: bool) -> tuple[np.ndarray, np.ndarray]:
    """The same by sorting each point's labels."""
    order = np.argsort(-columns, axis=0, kind="stable")
    running_sums = np.cumsum(np.take_along_axis(columns, order, axis=0), axis=0)
    sums = np.empty_like(columns)
    np.put_along_axis(sums, order, running_sums, axis=0)
    ranks = np.zeros_like(columns)
    if need_ranks:
        one_to_k = np.arange(1, len(columns) + 1, dtype=columns.dtype)
        np.put_along_axis(ranks, order, one_to_k[:, None], axis=0)
    return sums, ranks
