"""What public functions accept: arrays out, or a ValueError that names the argument, what was found, what is wanted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

SUM_TOLERANCE = 1e-3


def as_array(values: Any) -> np.ndarray:
    """Lists, pandas objects and torch tensors as a NumPy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values)


def as_scores(values: Any, name: str = "scores") -> np.ndarray:
    """A float32 or float64 array (n, K) without NaN and with at least one row and one column."""
    array = _as_floats(values, name)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(
            f"{name}: found shape {array.shape}; wanted (n, K), one column per label"
        )
    if len(array) == 0:
        raise ValueError(f"{name}: found no rows; at least one point is needed")
    if np.isnan(array.min()):
        row, column = np.argwhere(np.isnan(array))[0]
        raise ValueError(
            f"{name}: row {row}, column {column} is NaN; every entry must be a number"
        )
    return np.ascontiguousarray(array)


def as_probabilities(values: Any) -> np.ndarray:
    """Probabilities (n, K): no NaN, none below 0, every row summing to 1."""
    array = as_scores(values, "probabilities")
    if array.min() < 0:
        row, column = np.argwhere(array < 0)[0]
        raise ValueError(
            f"probabilities: row {row}, column {column} is {array[row, column]:.4g}; none may be below 0"
        )
    sums = array @ np.ones(array.shape[1], array.dtype)
    wrong = ~(np.abs(sums - 1) <= SUM_TOLERANCE)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"probabilities: row {row} sums to {sums[row]:.4g}; each row must sum to 1"
        )
    return array


def as_labels(values: Any, n: int, n_classes: int) -> np.ndarray:
    """True labels as integers (n,) from 0 to n_classes - 1."""
    array = _as_column(values, "y", n)
    wanted = f"labels must be integers from 0 to {n_classes - 1}"
    if array.dtype.kind not in "iub":
        numbers = pd.to_numeric(pd.Series(array, dtype=object), errors="coerce").to_numpy(
            np.float64
        )
        wrong = numbers != np.floor(numbers)  # NaN too, that is, whatever is no number
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"y: found {plain(array[row])!r} in row {row}; {wanted}")
        array = numbers
    if array.min() < 0 or array.max() >= n_classes:
        row = int(((array < 0) | (array >= n_classes)).argmax())
        raise ValueError(f"y: found {plain(array[row])!r} in row {row}; {wanted}")
    return array.astype(np.int64, copy=False)


def plain(value: Any) -> Any:
    """A value as a person would write it: 3, not np.int64(3)."""
    return value.item() if isinstance(value, np.generic) else value


def as_sets(values: Any) -> np.ndarray:
    """Prediction sets as a boolean array (n, K)."""
    array = as_array(values)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"sets: found shape {array.shape}; wanted (n, K) with at least one row, one column per label"
        )
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        row, column = np.argwhere(~np.isin(array, (0, 1)))[0]
        raise ValueError(
            f"sets: found {array[row, column]!r} in row {row}, column {column}; wanted True or False"
        )
    return array.astype(bool, copy=False)


def as_fraction(value: Any, name: str, include_one: bool = False) -> float:
    """A number in (0, 1), or in (0, 1] with include_one."""
    wanted = f"wanted a number in (0, 1{']' if include_one else ')'}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: found {value!r}; {wanted}") from None
    if not (0 < number < 1 or (include_one and number == 1)):
        raise ValueError(f"{name}: found {number:g}; {wanted}")
    return number


def one_of(value: Any, name: str, choices: Sequence[str]) -> str:
    """One of the named choices."""
    if value not in choices:
        raise ValueError(
            f"{name}: found {value!r}; wanted one of {', '.join(map(repr, choices))}"
        )
    return value


def _as_floats(values: Any, name: str) -> np.ndarray:
    array = as_array(values)
    if array.dtype in (np.float32, np.float64):
        return array
    try:
        return array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}: found entries of type {array.dtype}; wanted numbers"
        ) from None


def as_float_column(values: Any, name: str) -> np.ndarray:
    """A float array (n,) without NaN and with at least one entry."""
    array = _as_floats(values, name)
    if array.ndim != 1:
        raise ValueError(
            f"{name}: found shape {array.shape}; wanted one number per point, (n,)"
        )
    if len(array) == 0:
        raise ValueError(f"{name}: found no entries; at least one point is needed")
    if np.isnan(array).any():
        raise ValueError(
            f"{name}: entry {int(np.isnan(array).argmax())} is NaN; every entry must be a number"
        )
    return array


def _as_column(values: Any, name: str, n: int) -> np.ndarray:
    if values is None:
        raise ValueError(
            f"{name}: found None; wanted one entry for each of the {n} points"
        )
    array = as_array(values)
    if array.shape != (n,):
        raise ValueError(
            f"{name}: found shape {array.shape} for {n} points; wanted ({n},)"
        )
    return array


def as_uniforms(values: Any, n: int) -> np.ndarray:
    """One number in [0, 1] per point."""
    array = as_float_column(values, "u")
    if array.shape != (n,):
        raise ValueError(
            f"u: found {len(array)} entries for {n} points; wanted one per point"
        )
    if array.min() < 0 or array.max() > 1:
        row = int(((array < 0) | (array > 1)).argmax())
        raise ValueError(
            f"u: entry {row} is {array[row]:.4g}; every entry must lie in [0, 1]"
        )
    return array


def as_adjacency(edge_index: Any, n: int) -> sparse.csr_array:
    """Who is joined to whom among n nodes, a symmetric 0/1 matrix; edges count once, either way, and loops never."""
    edges = as_array(edge_index)
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"edge_index: found shape {edges.shape} of {edges.dtype}; wanted integers (2, E)"
        )
    if edges.size and (edges.min() < 0 or edges.max() >= n):
        worst = edges.min() if edges.min() < 0 else edges.max()
        raise ValueError(
            f"edge_index: found node {worst}; wanted nodes from 0 to {n - 1}"
        )
    row, col = edges[:, edges[0] != edges[1]].astype(np.int64)
    adjacency = sparse.coo_array(
        (np.ones(2 * len(row), np.float32), (np.r_[row, col], np.r_[col, row])), (n, n)
    ).tocsr()
    adjacency.data[:] = 1
    return adjacency


def as_positive_labels(values: Any, n_classes: int) -> list[int]:
    """Labels whose coverage must be fair, ascending; by default all but label 0."""
    if values is None:
        return list(range(1, n_classes))
    array = np.atleast_1d(as_array(values))
    if array.size == 0:
        raise ValueError(
            f"positive_labels: found none; wanted at least one label from 0 to {n_classes - 1}"
        )
    wrong = [label for label in array.ravel().tolist() if label not in range(n_classes)]
    if wrong:
        raise ValueError(
            f"positive_labels: found {wrong[0]!r}; wanted labels from 0 to {n_classes - 1}"
        )
    return sorted({int(label) for label in array.ravel()})
