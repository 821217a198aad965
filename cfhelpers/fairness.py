"""The disparity of prediction sets between groups, as it is reported on a test split."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._checks import as_labels, as_positive_labels, as_sets
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
    sets = as_sets(sets)
    n, n_classes = sets.shape
    metric = get_metric(metric)
    y = as_labels(y, n, n_classes)
    groups = as_groups(groups, n)
    labels = as_positive_labels(positive_labels, n_classes)
    counts = CellCounts.from_sets(sets, y, groups, metric, labels)
    return counts.shares(metric, labels)


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
        Prediction sets.
    y : integers (n,)
        True labels from 0 to K - 1.
    groups : (n,), or several columns
        One group per point, or one per combination of the columns.
    metric : str or FairnessMetric
        One of `METRICS`, or your own.
    positive_labels : labels, optional
        Those whose coverage must be fair; by default all but label 0.

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
