"""An audit of anyone's prediction sets: coverage by label and group, disparities with intervals, and verdicts."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import conformal, control
from cfhelpers._checks import (
    Groups,
    as_array,
    as_fraction,
    as_groups,
    as_labels,
    as_positive_labels,
    as_sets,
    plain,
)
from cfhelpers.fairness import METRICS, FairnessMetric, GroupFilter, clopper_pearson, get_metric, measure

WITHIN, BEYOND, UNDECIDED = "within", "beyond", "cannot tell"
MISSING = "missing"  # the group of the points that have none
TRUE_LABEL = "the true label"  # where a metric looks at no label in particular
CELL = ["metric", "label", "condition", "group", "count"]
MANY = 10**9  # more points than anyone has


@dataclass(frozen=True)
class Cells:
    """Of the n points of a cell, k are covered; arrays (labels, filters, groups).

    `prior` of the `size` points of a group have the label: what the proxy of predictive parity subtracts.
    """

    metric: FairnessMetric
    k: np.ndarray
    n: np.ndarray
    prior: np.ndarray
    size: np.ndarray

    @property
    def is_proxy(self) -> bool:
        return self.metric.quantity == "ppv_minus_prior"

    @property
    def values(self) -> np.ndarray:
        """What was observed, NaN where the cell is empty."""
        with np.errstate(invalid="ignore"):
            return self.k / self.n - (self.prior / self.size if self.is_proxy else 0)

    def bounds(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """One-sided bounds of every cell, each wrong with probability at most `level`; the proxy's rest on two each."""
        if not self.is_proxy:
            return clopper_pearson(self.k, self.n, level)
        lower, upper = clopper_pearson(self.k, self.n, level / 2)
        least, most = clopper_pearson(self.prior, self.size, level / 2)
        return lower - most, upper - least

    def ends(self, gamma: float) -> tuple[np.ndarray, ...]:
        """Bounds at γ/4, for the far end of the disparity; at γ/4 over the number of cells, for the near end."""
        return *self.bounds(gamma / 4), *self.bounds(gamma / (4 * self.n.size))

    def interval(self, ends: Sequence[np.ndarray]) -> tuple[float, float]:
        """Both ends of the disparity's interval.

        The two groups that attain the true disparity are not random: the far end needs no correction. Those that
        attain the observed one are: the near end holds for all cells at once.
        """
        lower, upper, near_lower, near_upper = ends
        highest, lowest = upper.max(axis=-1), lower.min(axis=-1)
        near_highest, near_lowest = near_lower.max(axis=-1), near_upper.min(axis=-1)
        if not self.metric.is_ratio:
            return max(0.0, float((near_highest - near_lowest).max())), float((highest - lowest).max())
        with np.errstate(divide="ignore"):
            return float((lowest / highest).min()), min(1.0, float((near_lowest / near_highest).min()))

    def verdict(self, ends: Sequence[np.ndarray], closeness: float) -> str:
        near, far = self.interval(ends)
        if self.metric.is_ratio:
            near, far, closeness = -far, -near, -closeness
        limit = closeness + control.TOLERANCE
        return WITHIN if far <= limit else BEYOND if near > limit else UNDECIDED

    def raised(self, least: int) -> "Cells":
        """Every cell with at least so many points, at the coverages observed; an empty one at that of its label."""
        n = np.maximum(self.n, least)
        size = np.maximum(np.rint(self.size * (n / np.maximum(self.n, 1))).astype(np.int64), n)
        return replace(self, k=_grown(self.k, self.n, n), n=n, prior=_grown(self.prior, self.size, size), size=size)

    def points_needed(self, closeness: float, gamma: float) -> tuple[int, np.ndarray]:
        """How many points in which cells would decide, if coverages stay as observed; MANY: no number would.

        The smallest number that decides when no cell has fewer; then, the smallest cell first, those that can do
        without more are let off.
        """

        def decides(ends: Sequence[np.ndarray]) -> bool:
            return self.verdict(ends, closeness) != UNDECIDED

        wanted = bisect_left(range(MANY), True, key=lambda n: decides(self.raised(n).ends(gamma)))
        now, later = self.ends(gamma), self.raised(wanted).ends(gamma)
        more = self.n < wanted
        for cell in np.argsort(self.n, axis=None, kind="stable")[: np.count_nonzero(more)]:
            more.flat[cell] = False
            more.flat[cell] = not decides([np.where(more, *pair) for pair in zip(later, now, strict=True)])
        return wanted, more


def _grown(k: np.ndarray, n: np.ndarray, to: np.ndarray) -> np.ndarray:
    pooled = k.sum(axis=-1, keepdims=True) / np.maximum(n.sum(axis=-1, keepdims=True), 1)
    rate = np.where(n > 0, k / np.maximum(n, 1), pooled)
    return np.where(to > n, np.rint(rate * to).astype(np.int64), k)


@dataclass(frozen=True)
class Audit:
    """What an audit found. `str()` says it in words."""

    table: pd.DataFrame  # metric, label, condition, group, count, coverage, lower, upper: every cell, with its interval
    disparities: pd.DataFrame  # by metric: disparity, lower, upper, closeness, verdict; label, highest, lowest: where
    sizes: pd.DataFrame  # by group: count, mean set size, coverage of the true label, lower, upper
    confidence: float
    cells: dict[str, Cells] = field(repr=False)

    @property
    def verdicts(self) -> dict[str, str]:
        """Within, beyond or cannot tell, by metric."""
        return self.disparities["verdict"].to_dict()

    @cached_property
    def needed(self) -> pd.DataFrame:
        """The cells that need more points before a metric that cannot tell could, and how many.

        A projection, which takes for granted that coverages stay as observed. No row for such a metric: its disparity
        lies so near to the allowed one that no number of points would tell.
        """
        found = [self.table[:0][CELL].assign(wanted=0, more=0)]
        for name, row in self.disparities[self.disparities["verdict"] == UNDECIDED].iterrows():
            wanted, more = self.cells[name].points_needed(row["closeness"], 1 - self.confidence)
            own = self.table.loc[self.table["metric"] == name, CELL]
            if wanted < MANY:
                found.append(own[more.ravel()].assign(wanted=wanted, more=wanted - own["count"]))
        return pd.concat(found[1:] or found, ignore_index=True)

    def __str__(self) -> str:
        about = f"{self.sizes['count'].sum():,} points, {len(self.sizes)} groups, {self.confidence:.0%} confidence"
        lines = [f"audit of {about}"]
        for name, row in self.disparities.iterrows():
            sign = "≥" if self.cells[name].metric.is_ratio else "≤"
            found = f"{row['disparity']:.3f}, between {row['lower']:.3f} and {row['upper']:.3f}"
            lines.append(f"  {name:<26} {row['verdict']:<12} {found}; allowed {sign} {row['closeness']:g}")
            if len(needed := self.needed[self.needed["metric"] == name]):
                cells = [f"{r.group}, {r.label}: {r.more:,}" for r in needed.head(5).itertuples()]
                cells += [f"and {len(needed) - 5} other cells"] if len(needed) > 5 else []
                lines.append(f"{'':<28} more points would tell, as it looks now: {'; '.join(cells)}")
        sizes = "; ".join(f"{group}: {size:.2f}" for group, size in self.sizes["mean set size"].items())
        return "\n".join([*lines, f"  mean set size: {sizes}"])


def audit(
    sets_or_scores: Any,
    y: Any,
    groups: Any,
    metrics: Any = tuple(METRICS),
    closeness: float | dict | None = None,
    threshold: Any = None,
    confidence: float = 0.95,
    *,
    positive_labels: Any = None,
    label_names: Sequence | None = None,
) -> Audit:
    """Coverage of every label in every group, the disparity of each metric, and whether it is within its closeness.

    Prediction sets (n, K), or scores (n, K) with a threshold; true labels (n,), 0..K-1 or by name; groups (n,), or
    several columns for their combinations. Points without a group form the group "missing". Labels are called as in
    `label_names`, or as the columns of a data frame. Closeness: by default .1, for ratios .8; a dict by metric; or a
    number, which is for the differences, and for ratios only where nothing else is asked for.
    """
    gamma = 1 - as_fraction(confidence, "confidence")
    if label_names is None and isinstance(sets_or_scores, pd.DataFrame):
        label_names = sets_or_scores.columns
    try:
        sets = as_sets(sets_or_scores) if threshold is None else conformal.prediction_sets(sets_or_scores, threshold)
    except ValueError as error:
        raise ValueError(f"{error}{'' if threshold is not None else ', or scores and a threshold'}") from None
    n, n_classes = sets.shape
    names = list(range(n_classes)) if label_names is None else [plain(name) for name in label_names]
    if n_classes < 2 or len(names) != n_classes:
        raise ValueError(f"sets: found {n_classes} columns for the labels {names}; wanted one per label, at least two")
    y = as_labels(_as_codes(y, names, "y"), n, n_classes)
    groups = _as_groups(groups, n)
    labels = as_positive_labels(_as_codes(positive_labels, names, "positive_labels"), n_classes)
    metrics = [get_metric(metric) for metric in ([metrics] if isinstance(metrics, str | FairnessMetric) else metrics)]
    allowed = _allowed(closeness, metrics)
    counts = _count(sets, y, groups)
    cells = {metric.name: _cells(metric, counts, labels, sets, y, groups) for metric in metrics}
    names = np.fromiter([*(names[label] for label in labels), TRUE_LABEL], object)
    parts = [_columns(each, names, groups.names, gamma) for each in cells.values()]
    rows = [_disparity(each, names, groups.names, gamma, allowed[name]) for name, each in cells.items()]
    have, held, hit = (count.sum(axis=0) for count in counts)
    lower, upper = clopper_pearson(hit, have, gamma / 2)
    with np.errstate(invalid="ignore"):
        sizes = {"count": have, "mean set size": held / have, "coverage": hit / have, "lower": lower, "upper": upper}
    return Audit(
        table=pd.DataFrame({key: np.concatenate([part[key] for part in parts]) for key in parts[0]}),
        disparities=pd.DataFrame(rows, index=pd.Index(cells, name="metric")),
        sizes=pd.DataFrame(sizes, index=pd.Index(groups.names, name="group", tupleize_cols=False)),
        confidence=float(confidence),
        cells=cells,
    )


def _as_codes(values: Any, names: list, argument: str) -> Any:
    """Labels given by name as 0..K-1; integers are taken for codes unless the names are integers too."""
    if values is None or names == list(range(len(names))):
        return values
    values = np.atleast_1d(as_array(values))
    if values.dtype.kind in "iu" and not any(isinstance(name, int) for name in names):
        return values
    codes = pd.Index(names, dtype=object).get_indexer(pd.Index(values, dtype=object))
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise ValueError(f"{argument}: found {plain(values[row])!r} in row {row}; wanted one of {names}")
    return codes


def _as_groups(values: Any, n: int) -> Groups:
    """Groups in the order of their names, numbers as numbers; points without a group are the last one."""
    if values is None or isinstance(values, Groups):
        return as_groups(values, n)
    if not isinstance(values, pd.DataFrame | pd.Series):
        values = pd.DataFrame(values) if isinstance(values, list | tuple) else as_array(values)
    if (absent := np.asarray(pd.isna(values))).any():
        values = pd.DataFrame(values).astype(object).mask(absent.reshape(len(values), -1), MISSING)
    groups = as_groups(values, n)
    if len(groups) < 2:
        raise ValueError(f"groups: every point is in {groups.names[0]!r}; wanted at least two groups to compare")
    order = sorted(range(len(groups)), key=lambda g: [*map(_place, np.atleast_1d(groups.names[g]).tolist())])
    return Groups(np.argsort(order)[groups.codes], [groups.names[g] for g in order])


def _place(name: Any) -> tuple:
    try:
        return name == MISSING, float(name), ""
    except (TypeError, ValueError):
        return name == MISSING, np.inf, str(name)


def _allowed(closeness: Any, metrics: list[FairnessMetric]) -> dict[str, float]:
    """The closeness of every metric."""
    names = [metric.name for metric in metrics]
    if not names:
        raise ValueError("metrics: found none; wanted at least one")
    given = closeness if isinstance(closeness, dict) else {}
    if unknown := [name for name in given if name not in names]:
        raise ValueError(f"closeness: found {unknown[0]!r}; wanted one of the metrics asked for, {', '.join(names)}")
    if closeness is not None and not isinstance(closeness, dict):
        given = {m.name: closeness for m in metrics if not m.is_ratio} or dict.fromkeys(names, closeness)
    return {m.name: as_fraction(given.get(m.name, m.default_closeness), "closeness", True) for m in metrics}


def _count(sets: np.ndarray, y: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points by label and group (K, G): that have the label, whose set holds it, and both."""
    shape = sets.shape[1], len(groups)
    cell = y * shape[1] + groups.codes
    covered = sets.ravel()[np.arange(len(y)) * shape[0] + y]
    have, hit = (np.bincount(c, minlength=shape[0] * shape[1]).reshape(shape) for c in (cell, cell[covered]))
    held = [np.bincount(groups.codes, column, shape[1]) for column in np.ascontiguousarray(sets.T)]
    return have, np.array(held, np.int64), hit


def _cells(metric: FairnessMetric, counts: tuple, labels: list[int], *data: Any) -> Cells:
    have, held, hit = (count[labels] for count in counts)
    size = np.broadcast_to(counts[0].sum(axis=0), have.shape)
    by_condition = {"any": (held, size), "equal": (hit, have), "different": (held - hit, size - have)}
    if not metric.per_label:
        pairs = [(counts[2].sum(axis=0)[None], size[:1])]
    elif metric.is_predictive:
        pairs = [(hit, held)]
    elif all(isinstance(part, GroupFilter) for part in metric.filters):
        pairs = [by_condition[part.condition] for part in metric.filters]
    else:  # the user's own cells are counted on their own
        own = measure(*data, metric, labels)
        pairs = [*zip((np.nan_to_num(own.values) * own.n).swapaxes(0, 1), own.n.swapaxes(0, 1), strict=True)]
    k, n = (np.rint(np.stack(part, axis=1)).astype(np.int64) for part in zip(*pairs, strict=True))
    return Cells(metric, k, n, have[:, None], size[:, None])


def _columns(cells: Cells, names: np.ndarray, groups: list, gamma: float) -> dict[str, np.ndarray]:
    """The table's columns for one metric: every cell with its two-sided interval at γ."""
    lower, upper = cells.bounds(gamma / 2)
    label, part, group = (index.ravel() for index in np.indices(cells.n.shape))
    conditions = ["held"] if cells.metric.is_predictive else [getattr(f, "condition", "") for f in cells.metric.filters]
    return {
        "metric": np.full(len(label), cells.metric.name, dtype=object),
        "label": names[label if cells.metric.per_label else label - 1],  # the last name is for the true label
        "condition": np.array(conditions, dtype=object)[part],
        "group": np.fromiter(groups, object)[group],
        "count": cells.n.ravel(),
        "coverage": cells.values.ravel(),
        "lower": lower.ravel(),
        "upper": upper.ravel(),
    }


def _disparity(cells: Cells, names: np.ndarray, groups: list, gamma: float, closeness: float) -> dict:
    """The worst difference or ratio between observed coverages, its interval, its verdict, and where it is."""
    values, ends = cells.values, cells.ends(gamma)
    highest = np.where(np.isnan(values), -np.inf, values).max(axis=-1)
    lowest = np.where(np.isnan(values), np.inf, values).min(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(highest == 0, 1.0, lowest / highest)
    loss = np.where(highest < lowest, -np.inf, -ratio if cells.metric.is_ratio else highest - lowest)
    worst = np.unravel_index(loss.argmax(), loss.shape)
    empty = np.isinf(loss[worst])
    lower, upper = cells.interval(ends)
    return {
        "disparity": np.nan if empty else float(abs(loss[worst])),
        "lower": lower,
        "upper": upper,
        "closeness": closeness,
        "verdict": cells.verdict(ends, closeness),
        "label": names[worst[0] if cells.metric.per_label else -1],
        "highest": None if empty else groups[np.nanargmax(values[worst])],
        "lowest": None if empty else groups[np.nanargmin(values[worst])],
    }
