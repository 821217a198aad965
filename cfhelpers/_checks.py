"""What public functions accept.

Each function gives an array, or a ValueError that names the argument, what was found and
what is wanted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import sparse

from cfhelpers._blocks import in_blocks

SUM_TOLERANCE = 1e-3


def as_array(values: ArrayLike) -> np.ndarray:
    """Lists, pandas objects and torch tensors as a NumPy array.

    Examples
    --------
    >>> as_array(pd.Series([1, 2])).tolist()
    [1, 2]
    """
    if hasattr(values, "detach"):
        tensor: Any = values.detach().cpu()
        is_known = str(tensor.dtype) != "torch.bfloat16"  # to NumPy
        values = tensor if is_known else tensor.float()
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        return _with_missing(values)
    return np.asarray(values)


def as_pandas(values: Any) -> Any:
    """Polars and Arrow objects as pandas ones; everything else as it is.

    Examples
    --------
    >>> as_pandas([1, 2])
    [1, 2]
    """
    library = type(values).__module__.partition(".")[0]
    if library not in ("polars", "pyarrow"):
        return values
    return values.to_pandas()


def as_scores(values: ArrayLike, name: str = "scores") -> np.ndarray:
    """A float32 or float64 array (n, K) without NaN, with at least a row and a column.

    Examples
    --------
    >>> as_scores([0.1, 0.2])
    Traceback (most recent call last):
    ValueError: scores: found shape (2,); wanted (n, K), one column per label
    """
    array = _as_table(values, name)
    check_scores(array, slice(None), name)
    return array


def as_score_table(values: ArrayLike, name: str = "scores") -> np.ndarray:
    """A float32 or float64 array (n, K), contiguous; NaN is not looked for.

    Examples
    --------
    >>> as_score_table([[1, 0]]).dtype
    dtype('float64')
    """
    return _as_table(values, name)


def check_scores(table: np.ndarray, some: slice, name: str = "scores") -> None:
    """A ValueError if there is NaN in these rows: it names the first of the whole table.

    Examples
    --------
    >>> check_scores(np.array([[0.5, 0.5], [np.nan, 0.7]]), slice(0, 1))
    """
    if np.isnan(table[some].min()):
        row, column = np.argwhere(np.isnan(table))[0]
        raise ValueError(
            f"{name}: row {row}, column {column} is NaN; every entry must be a number"
        )


def as_probabilities(values: ArrayLike) -> np.ndarray:
    """Probabilities (n, K): no NaN, none below 0, every row summing to 1.

    Examples
    --------
    >>> as_probabilities([[0.5, 0.5], [0.7, 0.7]])
    Traceback (most recent call last):
    ValueError: probabilities: row 1 sums to 1.4; each row must sum to 1
    """
    array = as_probability_table(values)
    in_blocks(lambda some: check_probabilities(array, some), array.shape)
    return array


def as_probability_table(values: ArrayLike) -> np.ndarray:
    """A float32 or float64 array (n, K), contiguous; what is in it is not looked at.

    Examples
    --------
    >>> as_probability_table([[1, 0]]).dtype
    dtype('float64')
    """
    return _as_table(values, "probabilities")


def check_probabilities(table: np.ndarray, some: slice) -> None:
    """A ValueError unless these rows of a table are probabilities.

    It tells of the first row of the whole table that is wrong.

    Examples
    --------
    >>> check_probabilities(np.array([[0.5, 0.5], [0.7, 0.7]]), slice(0, 1))
    """
    block = table[some]
    sums = _row_sums(block)
    furthest = max(abs(sums.max() - 1), abs(sums.min() - 1))
    # Not "beyond": NaN is neither.
    if not (furthest <= SUM_TOLERANCE and block.min() >= 0):
        _refuse_probabilities(table)


def _row_sums(table: np.ndarray) -> np.ndarray:
    """The sum of each row; inf - inf is NaN without a warning, since it is refused."""
    with np.errstate(invalid="ignore", over="ignore"):
        return table @ np.ones(table.shape[1], table.dtype)


def _refuse_probabilities(array: np.ndarray) -> None:
    """A ValueError that says which entry is NaN or below 0, or which row is not 1."""
    sums = _row_sums(array)
    is_wrong = ~(np.abs(sums - 1) <= SUM_TOLERANCE)  # where an entry is NaN, too
    if is_wrong.any():
        as_scores(array, "probabilities")
    if array.min() < 0:
        row, column = np.argwhere(array < 0)[0]
        raise ValueError(
            f"probabilities: row {row}, column {column} is {array[row, column]:.4g}; "
            "none may be below 0"
        )
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise ValueError(
            f"probabilities: row {row} sums to {sums[row]:.4g}; each row must sum to 1"
        )


def as_labels(values: ArrayLike, n: int, n_classes: int) -> np.ndarray:
    """True labels as integers (n,) from 0 to n_classes - 1.

    Examples
    --------
    >>> as_labels(["0", 1.0, 2], 3, n_classes=3).tolist()
    [0, 1, 2]
    """
    array = _as_column(values, "y", n)
    wanted = f"labels must be integers from 0 to {n_classes - 1}"
    if array.dtype == bool and n_classes != 2:
        raise ValueError(f"y: found {bool(array[0])} in row 0; {wanted}")
    if array.dtype.kind not in "iub":
        entries = pd.Series(array, dtype=object)
        numbers = pd.to_numeric(entries, errors="coerce").to_numpy(np.float64)
        is_wrong = numbers != np.floor(numbers)  # NaN too: whatever is no number
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise ValueError(f"y: found {plain(array[row])!r} in row {row}; {wanted}")
        array = numbers
    if array.min() < 0 or array.max() >= n_classes:
        is_wrong = (array < 0) | (array >= n_classes)
        row = int(is_wrong.argmax())
        raise ValueError(f"y: found {plain(array[row])!r} in row {row}; {wanted}")
    return array.astype(np.int64, copy=False)


def plain(value: Any) -> Any:
    """A value as a person would write it.

    Examples
    --------
    >>> plain(np.int64(3))
    3
    """
    if isinstance(value, np.generic):
        return value.item()
    return value


def as_sets(values: ArrayLike) -> np.ndarray:
    """Prediction sets as a boolean array (n, K).

    Examples
    --------
    >>> as_sets([[1, 0], [1, 1]]).tolist()
    [[True, False], [True, True]]
    """
    array = as_array(values)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"sets: found shape {array.shape}; "
            "wanted (n, K) with at least one row, one column per label"
        )
    if array.dtype != bool:
        is_boolean = np.isin(array, (0, 1))
        if not is_boolean.all():
            row, column = np.argwhere(~is_boolean)[0]
            raise ValueError(
                f"sets: found {array[row, column]!r} in row {row}, column {column}; "
                "wanted True or False"
            )
    return array.astype(bool, copy=False)


def as_fraction(value: Any, name: str, include_one: bool = False) -> float:
    """A number in (0, 1), or in (0, 1] with include_one.

    Examples
    --------
    >>> as_fraction("0.1", "alpha")
    Traceback (most recent call last):
    ValueError: alpha: found '0.1'; wanted a number in (0, 1)
    >>> as_fraction(1, "alpha")
    Traceback (most recent call last):
    ValueError: alpha: found 1; wanted a number in (0, 1)
    """
    if include_one:
        wanted = "wanted a number in (0, 1]"
    else:
        wanted = "wanted a number in (0, 1)"
    if isinstance(value, str | bytes | bool | np.bool_):
        raise ValueError(f"{name}: found {value!r}; {wanted}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: found {value!r}; {wanted}") from None
    if include_one and number == 1:
        return number
    if not 0 < number < 1:
        raise ValueError(f"{name}: found {number:g}; {wanted}")
    return number


def as_flag(value: Any, name: str) -> bool:
    """True or False, and nothing that merely counts as true.

    Examples
    --------
    >>> as_flag("yes", "classwise")
    Traceback (most recent call last):
    ValueError: classwise: found 'yes'; wanted True or False
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}: found {value!r}; wanted True or False")
    return bool(value)


def one_of(value: Any, name: str, choices: Sequence[str]) -> str:
    """One of the named choices.

    Examples
    --------
    >>> one_of("gcn", "model", ("gat", "gcn"))
    'gcn'
    """
    if value not in choices:
        listed = ", ".join(repr(str(choice)) for choice in choices)
        raise ValueError(f"{name}: found {value!r}; wanted one of {listed}")
    return value


def as_float_column(values: ArrayLike, name: str) -> np.ndarray:
    """A float array (n,) without NaN and with at least one entry.

    Examples
    --------
    >>> as_float_column([1, 2], "scores").tolist()
    [1.0, 2.0]
    """
    array = _as_floats(values, name)
    if array.ndim != 1:
        raise ValueError(
            f"{name}: found shape {array.shape}; wanted one number per point, (n,)"
        )
    if len(array) == 0:
        raise ValueError(f"{name}: found no entries; at least one point is needed")
    if np.isnan(array.min()):
        entry = int(np.isnan(array).argmax())
        raise ValueError(f"{name}: entry {entry} is NaN; every entry must be a number")
    return array


def as_uniforms(values: ArrayLike, n: int) -> np.ndarray:
    """One number in [0, 1] per point.

    Examples
    --------
    >>> as_uniforms([0, 0.5], 2).tolist()
    [0.0, 0.5]
    """
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


def as_adjacency(edge_index: ArrayLike, n: int) -> sparse.csr_array:
    """Who is joined to whom among n nodes, a symmetric 0/1 matrix.

    An edge counts once, whichever way it is given and however often; loops never count.

    Examples
    --------
    >>> as_adjacency([[0, 1, 1], [1, 0, 1]], 2).toarray().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    edges = as_array(edge_index)
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"edge_index: found shape {edges.shape} of {edges.dtype}; "
            "wanted integers (2, E)"
        )
    if edges.size:
        lowest = edges.min()
        highest = edges.max()
        if lowest < 0:
            raise ValueError(
                f"edge_index: found node {lowest}; wanted nodes from 0 to {n - 1}"
            )
        if highest >= n:
            raise ValueError(
                f"edge_index: found node {highest}; wanted nodes from 0 to {n - 1}"
            )
    is_loop = edges[0] == edges[1]
    row, column = edges[:, ~is_loop].astype(np.int64)
    both_ways = (np.r_[row, column], np.r_[column, row])
    ones = np.ones(2 * len(row), np.float32)
    adjacency = sparse.coo_array((ones, both_ways), (n, n)).tocsr()
    adjacency.data[:] = 1
    return adjacency


def as_positive_labels(values: ArrayLike | None, n_classes: int) -> list[int]:
    """Labels whose coverage must be fair, ascending; by default all but label 0.

    Examples
    --------
    >>> as_positive_labels(None, 3)
    [1, 2]
    >>> as_positive_labels([2, 0, 2], 3)
    [0, 2]
    """
    if values is None:
        return list(range(1, n_classes))
    labels = as_array(values).ravel().tolist()
    if not labels:
        raise ValueError(
            f"positive_labels: found none; wanted at least one label from 0 to "
            f"{n_classes - 1}"
        )
    if any(isinstance(label, bool) for label in labels):
        raise ValueError(
            f"positive_labels: found the mask {labels}; wanted labels, such as [1, 2]"
        )
    for label in labels:
        if label not in range(n_classes):
            raise ValueError(
                f"positive_labels: found {label!r}; wanted labels from 0 to "
                f"{n_classes - 1}"
            )
    return sorted({int(label) for label in labels})


def _with_missing(values: np.ma.MaskedArray) -> np.ndarray:
    """A masked array with NaN, or None, where it is masked."""
    if values.dtype.kind == "f":
        return values.filled(np.nan)
    entries = values.data.astype(object)
    entries[np.ma.getmaskarray(values)] = None
    return entries


def _as_floats(values: ArrayLike, name: str) -> np.ndarray:
    """float32 and float64 as they are; float16 as float32; other numbers as float64."""
    array = as_array(values)
    if array.dtype in (np.float32, np.float64):
        return array
    try:
        if array.dtype == np.float16:
            return array.astype(np.float32)
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}: found entries of type {array.dtype}; wanted numbers"
        ) from None


def _as_table(values: ArrayLike, name: str) -> np.ndarray:
    """A float array (n, K) with at least a row and a column."""
    array = _as_floats(values, name)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(
            f"{name}: found shape {array.shape}; wanted (n, K), one column per label"
        )
    if len(array) == 0:
        raise ValueError(f"{name}: found no rows; at least one point is needed")
    return np.ascontiguousarray(array)


def _as_column(values: ArrayLike | None, name: str, n: int) -> np.ndarray:
    """One entry per point."""
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
