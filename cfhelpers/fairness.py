"""The disparity of prediction sets between groups, as it is reported on a test split."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._checks import (
    as_array,
    as_labels,
    as_pandas,
    as_positive_labels,
    as_sets,
    plain,
)
from cfhelpers.bounds import clopper_pearson
from cfhelpers.cells import CellCounts, Shares
from cfhelpers.groups import as_groups
from cfhelpers.metrics import METRICS, FairnessMetric, GroupFilter, get_metric

__all__ = [
    "METRICS",
    "FairnessMetric",
    "GroupFilter",
    "clopper_pearson",
    "disparity",
    "get_metric",
    "group_coverages",
    "measure",
]


def measure(
    sets: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric,
    positive_labels: ArrayLike | None = None,
) -> Shares:
    """What a metric compares in every cell, counted on prediction sets.

    Parameters are those of `disparity`.
    """
    names = column_names(sets)
    sets = as_sets(sets)
    n, n_classes = sets.shape
    if names is None:
        names = list(range(n_classes))
    metric = get_metric(metric)
    y = as_labels(label_codes(y, names, "y"), n, n_classes)
    groups = as_groups(groups, n)
    labels = positive_codes(positive_labels, names)
    counts = CellCounts.from_sets(sets, y, groups, metric, labels)
    shares = counts.shares(metric, labels)
    if not metric.per_label:
        return shares
    return replace(shares, labels=[names[label] for label in labels])


def column_names(table: Any) -> list[Any] | None:
    """The names of a data frame's columns; None for whatever is no data frame.

    Examples
    --------
    >>> column_names(pd.DataFrame({"no": [True], "yes": [False]}))
    ['no', 'yes']
    """
    table = as_pandas(table)
    if not isinstance(table, pd.DataFrame):
        return None
    return [plain(name) for name in table.columns]


def label_codes(values: ArrayLike, names: list[Any], argument: str) -> ArrayLike:
    """Labels given by name as 0 to K - 1.

    Integers are taken for codes unless there are integers among the names.

    Examples
    --------
    >>> label_codes(["yes", "no"], ["no", "yes"], "y").tolist()
    [1, 0]
    """
    has_booleans = any(isinstance(name, bool) for name in names)
    is_numbered = names == list(range(len(names))) and not has_booleans
    if values is None or is_numbered:
        return values
    index = pd.Index(names, dtype=object)
    if not index.is_unique:
        name = index[index.duplicated()][0]
        raise ValueError(
            f"sets: found the label {name!r} twice; wanted one column per label"
        )
    array = np.atleast_1d(as_array(values))
    if array.ndim != 1:
        return array
    if array.dtype.kind in "iu" and not any(isinstance(name, int) for name in names):
        # Numbers among names that are text: the text of a number, or a place.
        texts = array.astype(str).astype(object)
        if not any(str(name).isdigit() for name in names):
            return array
        array = texts
    codes = index.get_indexer(pd.Index(array, dtype=object))
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise ValueError(
            f"{argument}: found {plain(array[row])!r} in row {row}; wanted one of {names}"
        )
    return codes


def positive_codes(values: ArrayLike | None, names: list[Any]) -> list[int]:
    """The labels whose coverage must be fair, as places among the names, ascending.

    By default all but label 0 where labels are 0 to K - 1. Where they have names it is
    all of them, since the order of names says nothing about advantage.

    Examples
    --------
    >>> positive_codes(None, [0, 1, 2])
    [1, 2]
    >>> positive_codes(None, ["approve", "deny"])
    [0, 1]
    """
    every = list(range(len(names)))
    if values is None:
        if set(names) == set(every):
            return [place for place in every if names[place] != 0]
        return every
    array = as_array(values)
    if array.dtype == bool and not all(isinstance(name, bool) for name in names):
        raise ValueError(
            f"positive_labels: found the mask {array.tolist()}; "
            f"wanted labels among {names}"
        )
    return as_positive_labels(label_codes(array, names, "positive_labels"), len(names))


def group_coverages(
    sets: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric,
    positive_labels: ArrayLike | None = None,
) -> pd.DataFrame:
    """The coverage of every cell as a table.

    Parameters
    ----------
    sets, y, groups, metric, positive_labels
        As in `disparity`.

    Returns
    -------
    DataFrame
        label, group, n and coverage, NaN where the cell is empty. Metrics with two
        conditions (equalized odds) have a row for each, in the column `condition`.
        Metrics that compare predictive values give those; n then counts the points of
        the group whose set holds the label.

    Examples
    --------
    >>> sets = [[True, True], [True, False], [False, True], [True, True]]
    >>> group_coverages(sets, [0, 1, 1, 1], ["a", "a", "b", "b"], "equal_opportunity")
       label group  n  coverage
    0      1     a  1       0.0
    1      1     b  2       1.0
    """
    shares = measure(sets, y, groups, metric, positive_labels)
    label, part, group = np.indices(shares.values.shape).reshape(3, -1)
    columns: dict[str, Any] = {"label": [shares.labels[i] for i in label]}
    if shares.values.shape[1] > 1:
        names = []
        for place, condition in enumerate(shares.metric.conditions):
            names.append(f"filter {place}" if condition is None else str(condition))
        columns["condition"] = [names[i] for i in part]
    group_names = [shares.group_names[i] for i in group]
    columns["group"] = pd.Series(group_names, dtype=object)
    columns["n"] = shares.trials.ravel()
    value_name = shares.metric.quantity if shares.metric.is_predictive else "coverage"
    columns[value_name] = shares.values.ravel()
    return pd.DataFrame(columns)


def disparity(
    sets: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metric: str | FairnessMetric,
    positive_labels: ArrayLike | None = None,
) -> float:
    """The largest difference between groups over the positive labels; for ratios the
    smallest.

    Parameters
    ----------
    sets : bool (n, K)
        Prediction sets. The columns of a data frame name the labels.
    y : (n,)
        True labels, from 0 to K - 1 or by name.
    groups : (n,), or several columns
        One group per point, or one per combination of the columns.
    metric : str or FairnessMetric
        One of `METRICS`, or your own.
    positive_labels : labels, optional
        Those whose coverage must be fair. By default all but label 0, and all of them
        where labels have names.

    Returns
    -------
    float
        NaN when no cell has points. Cells without points are left out, and a warning
        names them.

    Examples
    --------
    >>> sets = [[True, True], [True, False], [False, True], [True, True]]
    >>> disparity(sets, [0, 1, 1, 1], ["a", "a", "b", "b"], "demographic_parity")
    0.5
    """
    shares = measure(sets, y, groups, metric, positive_labels)
    empty = shares.empty
    if empty:
        named = ", ".join(f"({group!r}, {label})" for group, label in empty)
        left_out = f"left out the cells (group, label) without points: {named}"
        warnings.warn(f"{shares.metric.name}: {left_out}", stacklevel=2)
    return shares.disparity
