"""Fairness metrics as filters on calibration points, and the disparity of prediction sets between groups."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv

from cfhelpers._checks import Groups, as_groups, as_labels, as_positive_labels, as_sets, one_of

Filter = Callable[[np.ndarray, Any, Any, int], np.ndarray]


@dataclass(frozen=True)
class GroupFilter:
    """g = a, and a condition on the true label: "any", "equal" to ỹ, or "different" from it."""

    condition: str

    def __call__(self, y: np.ndarray, g: Any, a: Any, label: int) -> np.ndarray:
        return (g == a) & self.keeps(y, label)

    def keeps(self, y: np.ndarray, label: int) -> np.ndarray | bool:
        """The part of the filter that does not look at the group."""
        if self.condition == "any":
            return True
        return y == label if self.condition == "equal" else y != label


@dataclass(frozen=True)
class FairnessMetric:
    """A filter (y, g, a, ỹ) -> mask that says which points form the cell of group a and label ỹ, and how cells compare.

    Several filters: all must hold at the same threshold. What is compared is the coverage of ỹ in the cell; built-in
    metrics also use the coverage of the true label, or the predictive value Pr[Y = ỹ | ỹ in the set] ("ppv"), or that
    value less the prior Pr[Y = ỹ] ("ppv_minus_prior"); the last two count Y = ỹ and Y ≠ ỹ apart.
    """

    name: str
    filter: Filter | tuple[Filter, ...]
    compare: str = "difference"
    quantity: str = "coverage"

    def __post_init__(self) -> None:
        one_of(self.compare, "compare", ("difference", "ratio"))
        one_of(self.quantity, "quantity", ("coverage", "true_label_coverage", "ppv", "ppv_minus_prior"))
        for filter_ in self.filters:
            if not callable(filter_):
                raise ValueError(f"filter: found {filter_!r}; wanted a callable (y, g, a, label) -> mask")
        conditions = tuple(getattr(filter_, "condition", None) for filter_ in self.filters)
        needed = {
            "true_label_coverage": ("any",),
            "ppv": ("equal", "different"),
            "ppv_minus_prior": ("equal", "different"),
        }
        if conditions != needed.get(self.quantity, conditions):
            raise ValueError(
                f"quantity: {self.quantity!r} goes with the filters of the built-in metrics; use 'coverage'"
            )

    @property
    def filters(self) -> tuple[Filter, ...]:
        return self.filter if isinstance(self.filter, tuple) else (self.filter,)

    @property
    def is_ratio(self) -> bool:
        return self.compare == "ratio"

    @property
    def is_predictive(self) -> bool:
        """Whether it compares predictive values rather than coverages."""
        return self.quantity.startswith("ppv")

    @property
    def per_label(self) -> bool:
        """False for overall accuracy equality, which looks at the true label alone and has one threshold."""
        return self.quantity != "true_label_coverage"

    @property
    def default_closeness(self) -> float:
        return 0.8 if self.is_ratio else 0.1


_ANY, _EQUAL, _DIFFERENT = GroupFilter("any"), GroupFilter("equal"), GroupFilter("different")
_WITHOUT_OVERLAP = ((_ANY,), (_EQUAL,), (_DIFFERENT,), (_EQUAL, _DIFFERENT))

METRICS: dict[str, FairnessMetric] = {
    metric.name: metric
    for metric in (
        FairnessMetric("demographic_parity", _ANY),
        FairnessMetric("equal_opportunity", _EQUAL),
        FairnessMetric("predictive_equality", _DIFFERENT),
        FairnessMetric("equalized_odds", (_EQUAL, _DIFFERENT)),
        FairnessMetric("disparate_impact", _ANY, compare="ratio"),
        FairnessMetric("predictive_parity", (_EQUAL, _DIFFERENT), quantity="ppv"),
        FairnessMetric("predictive_parity_proxy", (_EQUAL, _DIFFERENT), quantity="ppv_minus_prior"),
        FairnessMetric("overall_accuracy_equality", _ANY, quantity="true_label_coverage"),
    )
}


def get_metric(metric: str | FairnessMetric) -> FairnessMetric:
    """A metric by name, or the user's own."""
    if isinstance(metric, FairnessMetric):
        return metric
    if not isinstance(metric, str) or metric not in METRICS:
        raise ValueError(f"metric: found {metric!r}; wanted a FairnessMetric or one of {', '.join(map(repr, METRICS))}")
    return METRICS[metric]


@dataclass(frozen=True)
class Cells:
    """Which cell each pair (point, label) belongs to.

    A cell is numbered (label · filters + filter) · groups + group, with labels counted within `labels`. `layers` holds
    arrays (n, len(columns)) of cell numbers, sizes.size for none; there is a second layer only where cells overlap.
    `sizes` counts the points per cell, shape (labels, filters, groups).
    """

    layers: list[np.ndarray]
    sizes: np.ndarray


def assign_cells(metric: FairnessMetric, y: np.ndarray, groups: Groups, labels: list[int], columns: list[int]) -> Cells:
    """The cells of these labels, for the score columns that a search looks at."""
    shape = (len(labels) if metric.per_label else 1, len(metric.filters), len(groups))
    none = int(np.prod(shape))
    dtype = np.min_scalar_type(none)
    if not metric.per_label:
        layer = np.where(y[:, None] == np.asarray(columns), groups.codes[:, None], none).astype(dtype)
        return Cells([layer], groups.counts.reshape(shape))
    layers = [np.full((len(y), len(columns)), none, dtype)]
    sizes = np.zeros(shape, np.int64)
    for at, label in enumerate(labels):
        column = columns.index(label)
        first = (at * len(metric.filters) + np.arange(len(metric.filters))) * len(groups)
        if metric.filters in _WITHOUT_OVERLAP:
            layers[0][:, column], sizes[at] = _assign_at_once(metric, y, groups, label, first.astype(dtype), none)
        else:
            for part, filter_ in enumerate(metric.filters):
                for group, mask in enumerate(_masks(filter_, y, groups, label)):
                    _put(layers, column, mask, first[part] + group, none)
                    sizes[at, part, group] = np.count_nonzero(mask)
    return Cells(layers, sizes)


def _assign_at_once(
    metric: FairnessMetric, y: np.ndarray, groups: Groups, label: int, first: np.ndarray, none: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Cell of every point for one label, and the sizes, where filters are known not to overlap; no mask per group."""
    codes = groups.codes.astype(first.dtype)
    if metric.filters == (_ANY,):
        return codes + first[0], [groups.counts]
    equal = np.flatnonzero(y == label)
    start = dict(zip(metric.filters, first, strict=True))
    cell = codes + start[_DIFFERENT] if _DIFFERENT in start else np.full(len(y), none, first.dtype)
    cell[equal] = codes[equal] + start[_EQUAL] if _EQUAL in start else none
    equal_sizes = np.bincount(codes[equal], minlength=len(groups))
    return cell, [equal_sizes if filter_ == _EQUAL else groups.counts - equal_sizes for filter_ in metric.filters]


def _masks(filter_: Filter, y: np.ndarray, groups: Groups, label: int) -> list[np.ndarray]:
    """A filter applied for every group, and checked."""
    masks = [np.asarray(filter_(y, groups.values, name, label)) for name in groups.names]
    for name, mask in zip(groups.names, masks, strict=True):
        if mask.shape != y.shape or mask.dtype != bool:
            raise ValueError(
                f"filter: for group {name!r} and label {label} it returned {mask.dtype} of shape {mask.shape}; "
                f"wanted a boolean mask of shape {y.shape}"
            )
    return masks


def _put(layers: list[np.ndarray], column: int, mask: np.ndarray, cell: int, none: int) -> None:
    """Enter the points of a mask into the first layer in which they are free."""
    for layer in layers:
        free = mask & (layer[:, column] == none)
        layer[free, column] = cell
        mask = mask & ~free
    if mask.any():
        layers.append(np.full_like(layers[0], none))
        layers[-1][mask, column] = cell


@dataclass(frozen=True)
class CellValues:
    """What a metric compares, measured on prediction sets: values and counts (labels, filters, groups)."""

    metric: FairnessMetric
    values: np.ndarray  # NaN where the cell is empty
    n: np.ndarray
    labels: list
    group_names: list

    @classmethod
    def of(cls, metric: FairnessMetric, counts: np.ndarray, sizes: np.ndarray, labels: list, group_names: list):
        """From the points per cell of the metric that are covered, and all there are."""
        with np.errstate(invalid="ignore"):
            if metric.is_predictive:
                n = counts.sum(axis=1, keepdims=True)
                values = counts[:, :1] / n
                if metric.quantity == "ppv_minus_prior":
                    values = values - sizes[:, :1] / sizes.sum(axis=1, keepdims=True)
            else:
                values, n = counts / sizes, sizes
        return cls(metric, values, n, labels if metric.per_label else [None], group_names)

    @property
    def empty(self) -> list[tuple]:
        """(group, label) of the cells without points."""
        return [(self.group_names[a], self.labels[k]) for k, _, a in np.argwhere(np.isnan(self.values))]

    @property
    def disparity(self) -> float:
        """The largest difference between groups, or the smallest ratio, empty cells left out; NaN if none is left."""
        some = ~np.isnan(self.values).all(axis=2)
        if not some.any():
            return np.nan
        highest, lowest = np.nanmax(self.values[some], axis=1), np.nanmin(self.values[some], axis=1)
        if self.metric.is_ratio:
            return float(np.where(highest == 0, 1.0, lowest / np.where(highest == 0, 1.0, highest)).min())
        return float((highest - lowest).max())


def measure(sets: Any, y: Any, groups: Any, metric: str | FairnessMetric, positive_labels: Any = None) -> CellValues:
    """Empirical coverage (or predictive value) of every cell."""
    sets, metric = as_sets(sets), get_metric(metric)
    y, groups = as_labels(y, *sets.shape), as_groups(groups, len(sets))
    labels = as_positive_labels(positive_labels, sets.shape[1])
    cells = assign_cells(metric, y, groups, labels, list(range(sets.shape[1])))
    counts = sum(np.bincount(layer[sets], minlength=cells.sizes.size + 1)[:-1] for layer in cells.layers)
    return CellValues.of(metric, counts.reshape(cells.sizes.shape), cells.sizes, labels, groups.names)


def group_coverages(
    sets: Any, y: Any, groups: Any, metric: str | FairnessMetric, positive_labels: Any = None
) -> pd.DataFrame:
    """The coverage of every cell as a table: label, group, n and the coverage, NaN where the cell is empty.

    Metrics with two conditions (equalized odds) have a row for each, in the column `condition`. Metrics that compare
    predictive values give those; n then counts the points of the group that have the label in their set.
    """
    cells = measure(sets, y, groups, metric, positive_labels)
    conditions = [getattr(f, "condition", f"filter {i}") for i, f in enumerate(cells.metric.filters)]
    label, condition, group = np.indices(cells.values.shape).reshape(3, -1)
    columns = {"label": [cells.labels[i] for i in label]}
    if cells.values.shape[1] > 1:
        columns["condition"] = [conditions[i] for i in condition]
    columns["group"] = pd.Series([cells.group_names[i] for i in group], dtype=object)
    value_name = cells.metric.quantity if cells.metric.is_predictive else "coverage"
    return pd.DataFrame({**columns, "n": cells.n.ravel(), value_name: cells.values.ravel()})


def disparity(sets: Any, y: Any, groups: Any, metric: str | FairnessMetric, positive_labels: Any = None) -> float:
    """The largest difference between groups over the positive labels (ratio: the smallest), as on a test split.

    Cells without points are left out, and named in a warning. NaN when nothing is left.
    """
    cells = measure(sets, y, groups, metric, positive_labels)
    if empty := cells.empty:
        named = ", ".join(f"({group!r}, {label})" for group, label in empty)
        warnings.warn(f"{cells.metric.name}: left out the cells (group, label) without points: {named}", stacklevel=2)
    return cells.disparity


def clopper_pearson(k: Any, n: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact one-sided lower and upper bounds for a binomial probability, each wrong with probability at most level."""
    k, n = np.broadcast_arrays(np.asarray(k, np.int64), np.asarray(n, np.int64))
    pairs, where = np.unique(k.ravel() * (n.max(initial=0) + 1) + n.ravel(), return_inverse=True)
    k_, n_ = np.divmod(pairs, n.max(initial=0) + 1)
    lower = np.where(k_ == 0, 0.0, betaincinv(np.maximum(k_, 1), n_ - k_ + 1, level))
    upper = np.where(k_ == n_, 1.0, betaincinv(k_ + 1, np.maximum(n_ - k_, 1), 1 - level))
    return lower[where].reshape(k.shape), upper[where].reshape(k.shape)
