"""Non-conformity scores: probabilities (n, K) in, scores (n, K) out; a larger score is a stranger label."""

from typing import Any

import numpy as np

from cfhelpers._checks import as_probabilities, as_uniforms

PENALTY, K_REG = 0.01, 1  # of RAPS, where nothing is said
FEW_CLASSES = 12  # up to here comparing every pair of labels is quicker than sorting


def tps(probs: Any) -> np.ndarray:
    """Threshold prediction sets: 1 - π_y."""
    return 1 - as_probabilities(probs)


def aps(probs: Any, u: Any = None) -> np.ndarray:
    """Adaptive prediction sets: the probability of the labels ranked no lower than y, less u·π_y.

    u is one number in [0, 1] per point, shared by its labels; None: not randomised. Equal probabilities rank the lower
    label first.
    """
    return raps(probs, u, penalty=0.0)


def raps(
    probs: Any, u: Any = None, penalty: float = PENALTY, k_reg: int = K_REG
) -> np.ndarray:
    """Regularised APS: APS plus penalty·max(rank - k_reg, 0), rank 1 for the most likely label."""
    probs = as_probabilities(probs)
    if not penalty >= 0:
        raise ValueError(
            f"penalty: found {penalty!r}; wanted a number that is not below 0"
        )
    if not k_reg >= 0:
        raise ValueError(f"k_reg: found {k_reg!r}; wanted a number that is not below 0")
    columns = np.ascontiguousarray(probs.T)
    accumulate = _by_comparison if len(columns) <= FEW_CLASSES else _by_sorting
    scores, ranks = accumulate(columns, need_ranks=penalty > 0)
    if u is not None:
        scores -= as_uniforms(u, len(probs)).astype(probs.dtype) * columns
    np.clip(scores, 0, 1, out=scores)  # a row sums to 1 up to rounding only
    if penalty > 0:
        scores += probs.dtype.type(penalty) * np.maximum(
            ranks - probs.dtype.type(k_reg), 0
        )
    return np.ascontiguousarray(scores.T)


def raps_maximum(n_classes: int, penalty: float = PENALTY, k_reg: int = K_REG) -> float:
    """The largest value that a RAPS score can take."""
    return 1 + penalty * max(n_classes - k_reg, 0)


def _by_comparison(
    columns: np.ndarray, need_ranks: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Sums over the labels ranked no lower than each label, and ranks, by comparing every pair of labels (K, n).

    All sums run in label order, so that a label ranked lower never ends below one ranked higher, rounding included.
    """
    sums = np.zeros_like(columns)
    ranks = np.zeros_like(columns) if need_ranks else None
    for other, probability in enumerate(columns):
        for label, own in enumerate(columns):
            ahead = probability > own if other > label else probability >= own
            sums[label] += probability * ahead
            if need_ranks:
                ranks[label] += ahead
    return sums, ranks


def _by_sorting(
    columns: np.ndarray, need_ranks: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """The same by sorting each point's labels."""
    order = np.argsort(-columns, axis=0, kind="stable")
    sums = np.empty_like(columns)
    np.put_along_axis(
        sums, order, np.cumsum(np.take_along_axis(columns, order, axis=0), axis=0), axis=0
    )
    ranks = None
    if need_ranks:
        ranks = np.empty_like(columns)
        np.put_along_axis(
            ranks,
            order,
            np.arange(1, len(columns) + 1, dtype=columns.dtype)[:, None],
            axis=0,
        )
    return sums, ranks
