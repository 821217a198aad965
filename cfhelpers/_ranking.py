"""The loops behind APS and RAPS: the probability of the labels ranked no lower.

`compare_labels` compares every pair of labels, which is quickest for a few of them;
`add_up` walks down labels that NumPy has sorted. Numba compiles both at their first use
and keeps the result on disk; where Numba is absent the very same functions run as they
stand here. The loops call nothing of another file: Numba's cache, which watches this file
alone, is then never out of date.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from cfhelpers._compiling import compile_loop

FEW_LABELS = 12  # up to here comparing every pair of labels is quicker than sorting
ROWS_AT_ONCE = 1024  # whose columns stay in the processor's nearest cache
SCORES_AT_ONCE = 200_000  # whose keys do
NARROW_LABELS = 1024  # up to here a float32 has bits to spare for a label's number


def fill_scores(
    table: np.ndarray,
    u: np.ndarray,
    penalty: np.floating,
    k_reg: np.floating,
    scores: np.ndarray,
) -> None:
    """RAPS scores (n, K) of probabilities (n, K), all numbers of one type.

    At most `SCORES_AT_ONCE` of them are quickest, where labels are sorted.
    """
    compare, add = compiled()
    if table.shape[1] <= FEW_LABELS:
        compare(table, u, penalty, k_reg, ROWS_AT_ONCE, scores)
    else:
        add(nearly_sorted_labels(table), table, u, penalty, k_reg, scores)


def nearly_sorted_labels(probs: np.ndarray) -> np.ndarray:
    """The labels (n, K) of every point, by probability downwards up to its last bits.

    The bits of positive floats are ordered like the floats. The last of them make room
    for the label, so that sorting plain integers, which is quick, sorts the labels.
    Labels of equal probability ascend.
    """
    n_classes = probs.shape[1]
    number: Any
    if probs.dtype == np.float32 and n_classes <= NARROW_LABELS:
        number = np.uint32
    else:
        probs = probs.astype(np.float64, copy=False)
        number = np.uint64
    label_bits = number(2 ** (n_classes - 1).bit_length() - 1)
    keys = ~probs.view(number)
    keys &= ~label_bits
    keys |= np.arange(n_classes, dtype=number)
    keys.sort(axis=1)
    keys &= label_bits
    return keys.astype(np.int64)


def compare_labels(
    table: np.ndarray,
    u: np.ndarray,
    penalty: Any,
    k_reg: Any,
    rows_at_once: int,
    scores: np.ndarray,
) -> None:
    """Fill `scores` (n, K) by comparing every pair of labels.

    All sums run in label order, so that a label ranked lower never ends below one ranked
    higher, rounding included.
    """
    n, n_classes = table.shape
    zero = table.dtype.type(0)
    one = table.dtype.type(1)
    columns = np.empty((n_classes, rows_at_once), table.dtype)
    total = np.empty(rows_at_once, table.dtype)
    rank = np.empty(rows_at_once, table.dtype)
    for first in range(0, n, rows_at_once):
        n_rows = min(rows_at_once, n - first)
        for i in range(n_rows):
            for label in range(n_classes):
                columns[label, i] = table[first + i, label]
        for label in range(n_classes):
            own = columns[label]
            for i in range(n_rows):
                total[i] = zero
                rank[i] = zero
            for other in range(n_classes):
                probability = columns[other]
                if other > label:
                    for i in range(n_rows):
                        is_ahead = probability[i] > own[i]
                        total[i] += probability[i] if is_ahead else zero
                        rank[i] += one if is_ahead else zero
                else:
                    for i in range(n_rows):
                        is_ahead = probability[i] >= own[i]
                        total[i] += probability[i] if is_ahead else zero
                        rank[i] += one if is_ahead else zero
            for i in range(n_rows):
                # A row sums to 1 up to rounding only.
                aps = min(max(total[i] - u[first + i] * own[i], zero), one)
                scores[first + i, label] = aps + penalty * max(rank[i] - k_reg, zero)


def add_up(
    labels: np.ndarray,
    table: np.ndarray,
    u: np.ndarray,
    penalty: Any,
    k_reg: Any,
    scores: np.ndarray,
) -> None:
    """Fill `scores` (n, K), walking down the labels (n, K) of every point.

    They are nearly sorted by probability. Those that are not yet in their place are moved
    there; `labels` is changed.
    """
    n, n_classes = table.shape
    zero = table.dtype.type(0)
    one = table.dtype.type(1)
    for i in range(n):
        for at in range(1, n_classes):
            label = labels[i, at]
            place = at
            while place > 0:
                before = labels[i, place - 1]
                if table[i, before] > table[i, label]:
                    break
                if table[i, before] == table[i, label] and before < label:
                    break
                labels[i, place] = before
                place -= 1
            labels[i, place] = label
        total = zero
        rank = zero
        for at in range(n_classes):
            label = labels[i, at]
            own = table[i, label]
            total += own
            rank += one
            aps = min(max(total - u[i] * own, zero), one)
            scores[i, label] = aps + penalty * max(rank - k_reg, zero)


@functools.cache
def compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    """`compare_labels` and `add_up`, compiled where Numba is installed."""
    try:
        from numba import types
    except ImportError:
        return compare_labels, add_up
    compares = []
    adds = []
    for number in (types.float32, types.float64):
        probs = types.Array(number, 2, "C", readonly=True)
        u = types.Array(number, 1, "C", readonly=True)
        filled = number[:, ::1]
        compares.append(types.void(probs, u, number, number, types.int64, filled))
        adds.append(types.void(types.int64[:, ::1], probs, u, number, number, filled))
    options = {"error_model": "numpy", "nogil": True}
    return (
        compile_loop(compare_labels, compares, **options),
        compile_loop(add_up, adds, **options),
    )
