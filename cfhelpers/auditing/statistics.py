"""What an audit computes: coverages, disparities with intervals, verdicts, points needed.

The audit counts points per cell (`cfhelpers.cells`). Here are the statistics on top of
the counts: the interval of a disparity, whether it is within what is allowed, and how
many more points would tell where the points at hand do not.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._checks import (
    as_array,
    as_fraction,
    as_labels,
    as_positive_labels,
    as_sets,
    plain,
)
from cfhelpers.bounds import clopper_pearson
from cfhelpers.cells import CellCounts, Shares
from cfhelpers.conformal import prediction_sets
from cfhelpers.control import MANY, TOLERANCE
from cfhelpers.groups import Groups, as_groups
from cfhelpers.metrics import METRICS, FairnessMetric, get_metric

WITHIN = "within"
BEYOND = "beyond"
UNDECIDED = "cannot tell"

MISSING = "missing"  # the group of the points that have none
TRUE_LABEL = "the true label"  # where a metric looks at no label in particular
IN_SET = "held"  # the condition of predictive values: points whose set holds the label
OWN_FILTER = "own"  # the condition of a filter that is the user's own

CELL_COLUMNS = ["metric", "label", "condition", "group", "count"]
DISPARITY_COLUMNS = [
    "disparity",
    "lower",
    "upper",
    "closeness",
    "verdict",
    "label",
    "condition",
    "highest",
    "lowest",
]
# Up to this many cells it is worth asking of each whether it needs more points.
FEW_CELLS = 20_000
SHOWN_CELLS = 5  # as many cells that need points are named in the text


@dataclass(frozen=True)
class DisparityBounds:
    """Bounds of every cell (labels, filters, groups), and what they say of the disparity.

    The two groups that attain the true disparity are not random: the far end of its
    interval needs no correction. Those that attain the observed one are: the near end
    holds for all cells at once.

    Attributes
    ----------
    metric : FairnessMetric
    far_lower, far_upper : arrays of float
        One-sided bounds at γ/4, for the far end.
    near_lower, near_upper : arrays of float
        One-sided bounds at γ/4 over the number of cells, for the near end.
    """

    metric: FairnessMetric
    far_lower: np.ndarray
    far_upper: np.ndarray
    near_lower: np.ndarray
    near_upper: np.ndarray

    @classmethod
    def from_shares(cls, shares: Shares, gamma: float) -> "DisparityBounds":
        """For an interval that misses the true disparity with probability at most γ."""
        far_lower, far_upper = shares.confidence_bounds(gamma / 4)
        near_level = gamma / (4 * shares.trials.size)
        near_lower, near_upper = shares.confidence_bounds(near_level)
        return cls(shares.metric, far_lower, far_upper, near_lower, near_upper)

    @property
    def near_loss(self) -> float:
        """The true loss is at least this."""
        highest = self.near_lower.max(axis=-1)
        lowest = self.near_upper.min(axis=-1)
        return max(self.metric.no_loss, float(self.metric.loss(highest, lowest).max()))

    @property
    def far_loss(self) -> float:
        """The true loss is at most this."""
        highest = self.far_upper.max(axis=-1)
        lowest = self.far_lower.min(axis=-1)
        return float(self.metric.loss(highest, lowest).max())

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the disparity's interval: of a difference, or of a ratio."""
        ends = (
            self.metric.closeness(self.near_loss),
            self.metric.closeness(self.far_loss),
        )
        return min(ends), max(ends)

    def verdict(self, closeness: float) -> str:
        """Within, beyond or cannot tell."""
        limit = self.metric.closeness(closeness) + TOLERANCE
        if self.far_loss <= limit:
            return WITHIN
        if self.near_loss > limit:
            return BEYOND
        return UNDECIDED

    def with_cells_of(
        self, other: "DisparityBounds", chosen: np.ndarray
    ) -> "DisparityBounds":
        """These bounds, and in the chosen cells those of another."""
        return DisparityBounds(
            self.metric,
            np.where(chosen, other.far_lower, self.far_lower),
            np.where(chosen, other.far_upper, self.far_upper),
            np.where(chosen, other.near_lower, self.near_lower),
            np.where(chosen, other.near_upper, self.near_upper),
        )


def with_more_points(shares: Shares, least: int) -> Shares:
    """Every cell with at least so many points, at the shares that were observed.

    An empty cell is taken to have the share of its label over all groups.

    Examples
    --------
    >>> sets = [[True, True], [True, False], [False, True], [True, True]]
    >>> people = Groups(np.array([0, 0, 1, 1]), ["a", "b"])
    >>> counts = CellCounts.from_sets(np.array(sets), np.array([0, 1, 1, 1]), people)
    >>> shares = counts.shares(METRICS["demographic_parity"], [1])
    >>> shares.hits.tolist(), shares.trials.tolist()
    ([[[1, 2]]], [[[2, 2]]])
    >>> grown = with_more_points(shares, 10)
    >>> grown.hits.tolist(), grown.trials.tolist()
    ([[[5, 10]]], [[[10, 10]]])
    """
    trials = np.maximum(shares.trials, least)
    hits = _hits_at_same_share(shares.hits, shares.trials, trials)
    if not shares.metric.is_predictive:
        return replace(shares, hits=hits, trials=trials)
    growth = trials / np.maximum(shares.trials, 1)
    group_sizes = np.clip(shares.prior_trials * growth, trials, 2 * MANY)
    prior_trials = group_sizes.round().astype(np.int64)
    return replace(
        shares,
        hits=hits,
        trials=trials,
        prior_hits=_hits_at_same_share(
            shares.prior_hits, shares.prior_trials, prior_trials
        ),
        prior_trials=prior_trials,
    )


def _hits_at_same_share(
    hits: np.ndarray, trials: np.ndarray, new_trials: np.ndarray
) -> np.ndarray:
    """Hits of the new number of trials; as they are where there are no more trials."""
    all_trials = trials.sum(axis=-1, keepdims=True)
    pooled_share = hits.sum(axis=-1, keepdims=True) / np.maximum(all_trials, 1)
    share = np.where(trials > 0, hits / np.maximum(trials, 1), pooled_share)
    new_hits = np.rint(share * new_trials).astype(np.int64)
    return np.where(new_trials > trials, new_hits, hits)


def points_needed(
    shares: Shares, closeness: float, gamma: float
) -> tuple[int, np.ndarray]:
    """How many points would decide, if shares stay as observed, and in which cells.

    First the smallest number is found that decides when no cell has fewer points. Then
    cells that can do without more points are let off, those with the fewest points first,
    many at a time.

    Parameters
    ----------
    shares : Shares
        What a metric compares, as observed.
    closeness : float
        What is allowed.
    gamma : float
        One less the confidence.

    Returns
    -------
    wanted : int
        Points in each of the cells that need more; `control.MANY`: no number would do.
    needs_more : bool (labels, filters, groups)
        Which cells need more points.

    Examples
    --------
    >>> sets = [[True, True], [True, False], [False, True], [True, True]]
    >>> people = Groups(np.array([0, 0, 1, 1]), ["a", "b"])
    >>> counts = CellCounts.from_sets(np.array(sets), np.array([0, 1, 1, 1]), people)
    >>> shares = counts.shares(METRICS["demographic_parity"], [1])
    >>> wanted, needs_more = points_needed(shares, 0.1, 0.05)
    >>> wanted, needs_more.tolist()
    (29, [[[True, True]]])
    """

    def decides(points: int) -> bool:
        bounds = DisparityBounds.from_shares(with_more_points(shares, points), gamma)
        return bounds.verdict(closeness) != UNDECIDED

    wanted = bisect_left(range(MANY), True, key=decides)
    needs_more = shares.trials < wanted
    if wanted == MANY or needs_more.size > FEW_CELLS:
        return wanted, needs_more
    now = DisparityBounds.from_shares(shares, gamma)
    later = DisparityBounds.from_shares(with_more_points(shares, wanted), gamma)
    return wanted, _cells_that_decide(now, later, closeness, shares.trials, needs_more)


def _cells_that_decide(
    now: DisparityBounds,
    later: DisparityBounds,
    closeness: float,
    trials: np.ndarray,
    needs_more: np.ndarray,
) -> np.ndarray:
    """The cells of `needs_more` without those that need not change from now to later."""
    needs_more = needs_more.copy()
    smallest_first = np.argsort(trials, axis=None, kind="stable")
    blocks = [smallest_first[: np.count_nonzero(needs_more)]]
    while blocks:
        block = blocks.pop()
        needs_more.flat[block] = False
        bounds = now.with_cells_of(later, needs_more)
        if bounds.verdict(closeness) != UNDECIDED:
            continue
        needs_more.flat[block] = True
        if len(block) > 1:
            first_half, second_half = np.array_split(block, 2)
            blocks.append(second_half)
            blocks.append(first_half)
    return needs_more


@dataclass(frozen=True)
class Audit:
    """What an audit found. `str()` says it in words.

    Attributes
    ----------
    table : DataFrame
        Every cell with its interval: metric, label, condition (on the true label: any,
        equal, different; held: of the points whose set holds the label), group, count,
        coverage, lower, upper.
    disparities : DataFrame
        By metric: disparity, lower, upper, closeness, verdict, and where it is widest.
    sizes : DataFrame
        By group: count, mean set size, coverage of the true label, lower, upper.
    confidence : float
    shares : dict
        What each metric compares, as counted, by the metric's name.
    """

    table: pd.DataFrame
    disparities: pd.DataFrame
    sizes: pd.DataFrame
    confidence: float
    shares: dict[str, Shares] = field(repr=False)

    @property
    def verdicts(self) -> dict[str, str]:
        """Within, beyond or cannot tell, by metric."""
        return dict(zip(self.shares, self.disparities["verdict"], strict=True))

    @cached_property
    def needed(self) -> pd.DataFrame:
        """The cells that need more points before a metric that cannot tell could.

        A projection, which takes for granted that coverages stay as observed. A metric
        that cannot tell and has no row here has a disparity so near to the allowed one
        that no number of points would tell.
        """
        gamma = 1 - self.confidence
        parts = []
        for name, shares in self.shares.items():
            if self.verdicts[name] != UNDECIDED:
                continue
            closeness = self.disparities["closeness"][name]
            wanted, needs_more = points_needed(shares, closeness, gamma)
            if wanted == MANY:
                continue
            cells = self.table.loc[self.table["metric"] == name, CELL_COLUMNS]
            cells = cells[needs_more.ravel()]
            parts.append(cells.assign(wanted=wanted, more=wanted - cells["count"]))
        if not parts:
            return self.table[:0][CELL_COLUMNS].assign(wanted=0, more=0)
        return pd.concat(parts, ignore_index=True)

    def __str__(self) -> str:
        n_points = self.sizes["count"].sum()
        lines = [
            f"audit of {n_points:,} points, {len(self.sizes)} groups, "
            f"{self.confidence:.0%} confidence"
        ]
        for name in self.shares:
            lines.extend(self._lines_of(name))
        sizes = []
        for group, size in self.sizes["mean set size"].items():
            sizes.append(f"{group}: {size:.2f}")
        lines.append(f"  mean set size: {'; '.join(sizes)}")
        return "\n".join(lines)

    def _lines_of(self, name: str) -> list[str]:
        """The verdict of one metric, and where more points would tell."""
        row = self.disparities.loc[name]
        sign = "≤"
        if self.shares[name].metric.is_ratio:
            sign = "≥"
        lines = [
            f"  {name:<26} {row['verdict']:<12} {row['disparity']:.3f}, "
            f"between {row['lower']:.3f} and {row['upper']:.3f}; "
            f"allowed {sign} {row['closeness']:g}"
        ]
        needed = self.needed[self.needed["metric"] == name]
        cells = []
        for cell in needed.head(SHOWN_CELLS).itertuples():
            cells.append(f"{cell.group}, {cell.label}: {cell.more:,}")
        if len(needed) > SHOWN_CELLS:
            cells.append(f"and {len(needed) - SHOWN_CELLS} other cells")
        if cells:
            more = "; ".join(cells)
            lines.append(f"{'':<28} more points would tell, as it looks now: {more}")
        return lines


def audit(
    sets_or_scores: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metrics: str | FairnessMetric | Iterable[str | FairnessMetric] = tuple(METRICS),
    closeness: float | Mapping[str, float] | None = None,
    threshold: ArrayLike | None = None,
    confidence: float = 0.95,
    *,
    positive_labels: ArrayLike | None = None,
    label_names: Sequence[Any] | None = None,
) -> Audit:
    """Coverage of every label in every group, and whether the groups are close enough.

    Parameters
    ----------
    sets_or_scores : (n, K)
        Prediction sets, or scores together with a threshold.
    y : (n,)
        True labels, from 0 to K - 1 or by name.
    groups : (n,), or several columns
        One group per point, or one per combination of the columns. Points without a
        group form the group "missing".
    metrics : names, or your own metrics
        One or several; by default all of `METRICS`.
    closeness : float or dict, optional
        What is allowed; by default 0.1, for ratios 0.8. A dict gives it by metric. A
        number is for the differences, and for ratios only where nothing else is asked
        for.
    threshold : float or (K,), optional
        The scores at most this large are in the sets.
    confidence : float
        Of every interval and every verdict.
    positive_labels : labels, optional
        Those that are compared; by default all but the first.
    label_names : (K,), optional
        What the labels are called; by default as the columns of a data frame, or 0 to
        K - 1.

    Returns
    -------
    Audit
        Tables of cells, disparities and set sizes, and a verdict for each metric: within,
        beyond, or cannot tell.

    Examples
    --------
    >>> sets = np.ones((200, 2), bool)
    >>> sets[:60, 1] = False
    >>> found = audit(sets, np.ones(200, int), ["a", "b"] * 100, "equal_opportunity")
    >>> found.verdicts
    {'equal_opportunity': 'cannot tell'}
    >>> found.table[["label", "group", "count", "coverage"]]
       label group  count  coverage
    0      1     a    100       0.7
    1      1     b    100       0.7
    """
    gamma = 1 - as_fraction(confidence, "confidence")
    if label_names is None and isinstance(sets_or_scores, pd.DataFrame):
        label_names = list(sets_or_scores.columns)
    sets = _sets_at_threshold(sets_or_scores, threshold)
    n, n_classes = sets.shape
    names = _names_of_labels(label_names, n_classes)
    y = as_labels(_label_codes(y, names, "y"), n, n_classes)
    people = groups_with_missing(groups, n)
    if positive_labels is not None:
        positive_labels = _label_codes(positive_labels, names, "positive_labels")
    labels = as_positive_labels(positive_labels, n_classes)
    if isinstance(metrics, str | FairnessMetric):
        metrics = [metrics]
    asked = [get_metric(metric) for metric in metrics]
    allowed = _closeness_by_metric(closeness, asked)
    counts = CellCounts.from_sets(sets, y, people)
    shares = {}
    for metric in asked:
        own_counts = counts
        if not metric.is_built_in:
            own_counts = CellCounts.from_sets(sets, y, people, metric, labels)
        shares[metric.name] = own_counts.shares(metric, labels)
    return Audit(
        table=_cell_table(list(shares.values()), names, gamma),
        disparities=_disparity_table(shares, names, gamma, allowed),
        sizes=_size_table(counts, gamma),
        confidence=float(confidence),
        shares=shares,
    )


def _sets_at_threshold(
    sets_or_scores: ArrayLike, threshold: ArrayLike | None
) -> np.ndarray:
    """Prediction sets, as given or from scores and their threshold."""
    if threshold is not None:
        return as_sets(prediction_sets(sets_or_scores, threshold))
    try:
        return as_sets(sets_or_scores)
    except ValueError as error:
        raise ValueError(f"{error}, or scores and a threshold") from None


def _names_of_labels(label_names: Sequence[Any] | None, n_classes: int) -> list[Any]:
    """One name per column of the sets, by default 0 to K - 1."""
    if label_names is None:
        names = list(range(n_classes))
    else:
        names = [plain(name) for name in label_names]
    if n_classes < 2 or len(names) != n_classes:
        raise ValueError(
            f"sets: found {n_classes} columns for the labels {names}; "
            "wanted one per label, at least two"
        )
    return names


def _label_codes(values: ArrayLike, names: list[Any], argument: str) -> ArrayLike:
    """Labels given by name as 0 to K - 1.

    Integers are taken for codes unless there are integers among the names.
    """
    if values is None or names == list(range(len(names))):
        return values
    array = np.atleast_1d(as_array(values))
    names_have_integers = any(isinstance(name, int) for name in names)
    if array.dtype.kind in "iu" and not names_have_integers:
        return array
    codes = pd.Index(names, dtype=object).get_indexer(pd.Index(array, dtype=object))
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise ValueError(
            f"{argument}: found {plain(array[row])!r} in row {row}; wanted one of {names}"
        )
    return codes


def groups_with_missing(values: Any, n: int) -> Groups:
    """Groups in the order of their names, numbers as numbers.

    Parameters
    ----------
    values : (n,), or several columns
        Points without a value are in the group "missing", which is the last one.
    n : int
        The number of points.

    Returns
    -------
    Groups
        As they are if they are `Groups` already.

    Examples
    --------
    >>> groups_with_missing(["b", None, "10", "9"], 4).names
    ['9', '10', 'b', 'missing']
    """
    if values is None or isinstance(values, Groups):
        return as_groups(values, n)
    if isinstance(values, list | tuple):
        values = pd.DataFrame(values)
    elif not isinstance(values, pd.DataFrame | pd.Series):
        values = as_array(values)
    is_missing = np.asarray(pd.isna(values))
    if is_missing.any():
        table = pd.DataFrame(values).astype(object)
        values = table.mask(is_missing.reshape(len(values), -1), MISSING)
    groups = as_groups(values, n)
    if len(groups) < 2:
        raise ValueError(
            f"groups: every point is in {groups.names[0]!r}; "
            "wanted at least two groups to compare"
        )
    order = sorted(range(len(groups)), key=lambda code: _sort_key(groups.names[code]))
    rank = np.argsort(order)
    return Groups(rank[groups.codes], [groups.names[code] for code in order])


def _sort_key(name: Any) -> list[tuple[bool, float, str]]:
    """Numbers first, then words, then "missing"; column by column."""
    keys = []
    for part in np.atleast_1d(name).tolist():
        try:
            keys.append((part == MISSING, float(part), ""))
        except (TypeError, ValueError):
            keys.append((part == MISSING, np.inf, str(part)))
    return keys


def _closeness_by_metric(
    closeness: float | Mapping[str, float] | None, metrics: list[FairnessMetric]
) -> dict[str, float]:
    """What is allowed, by the name of the metric."""
    names = [metric.name for metric in metrics]
    if not names:
        raise ValueError("metrics: found none; wanted at least one")
    given: dict[str, float] = {}
    if isinstance(closeness, Mapping):
        given = dict(closeness)
    elif closeness is not None:
        differences = [metric.name for metric in metrics if not metric.is_ratio]
        given = dict.fromkeys(differences or names, closeness)
    for name in given:
        if name not in names:
            raise ValueError(
                f"closeness: found {name!r}; "
                f"wanted one of the metrics asked for, {', '.join(names)}"
            )
    allowed = {}
    for metric in metrics:
        value = given.get(metric.name, metric.default_closeness)
        allowed[metric.name] = as_fraction(value, "closeness", include_one=True)
    return allowed


def _condition_names(metric: FairnessMetric) -> list[str]:
    """The condition on the true label that each filter sets, in a word."""
    if metric.is_predictive:
        return [IN_SET]
    names = []
    for condition in metric.conditions:
        names.append(OWN_FILTER if condition is None else str(condition))
    return names


def _compared_labels(shares: Shares, names: list[Any]) -> list[Any]:
    """The names of the labels that are compared."""
    if not shares.metric.per_label:
        return [TRUE_LABEL]
    return [names[label] for label in shares.labels]


def _object_array(values: Sequence[Any]) -> np.ndarray:
    """An array of names, each of which may be a tuple."""
    return np.fromiter(values, object, len(values))


def _cell_table(all_shares: list[Shares], names: list[Any], gamma: float) -> pd.DataFrame:
    """Every cell of every metric, with its two-sided interval."""
    parts = [_cell_columns(shares, names, gamma) for shares in all_shares]
    columns = {}
    for column in parts[0]:
        columns[column] = np.concatenate([part[column] for part in parts])
    return pd.DataFrame(columns)


def _cell_columns(
    shares: Shares, names: list[Any], gamma: float
) -> dict[str, np.ndarray]:
    """The columns of the table for one metric."""
    label, part, group = np.indices(shares.trials.shape).reshape(3, -1)
    lower, upper = shares.confidence_bounds(gamma / 2)
    return {
        "metric": np.full(len(label), shares.metric.name, object),
        "label": _object_array(_compared_labels(shares, names))[label],
        "condition": _object_array(_condition_names(shares.metric))[part],
        "group": _object_array(shares.group_names)[group],
        "count": shares.trials.ravel(),
        "coverage": shares.values.ravel(),
        "lower": lower.ravel(),
        "upper": upper.ravel(),
    }


def _disparity_table(
    shares: Mapping[str, Shares],
    names: list[Any],
    gamma: float,
    allowed: Mapping[str, float],
) -> pd.DataFrame:
    """The disparity of every metric, its interval, its verdict, and where it is."""
    rows = []
    for name, own in shares.items():
        rows.append(_disparity_row(own, names, gamma, allowed[name]))
    index = pd.Index(list(shares), name="metric")
    return pd.DataFrame(rows, columns=DISPARITY_COLUMNS, index=index)


def _disparity_row(
    shares: Shares, names: list[Any], gamma: float, closeness: float
) -> dict[str, Any]:
    """The disparity of one metric, and the label, condition and groups where it is."""
    losses = shares.losses
    label, part = np.unravel_index(losses.argmax(), losses.shape)
    values = shares.values[label, part]
    highest = None
    lowest = None
    if not np.isnan(values).all():
        highest = shares.group_names[np.nanargmax(values)]
        lowest = shares.group_names[np.nanargmin(values)]
    bounds = DisparityBounds.from_shares(shares, gamma)
    lower, upper = bounds.interval
    return {
        "disparity": shares.disparity,
        "lower": lower,
        "upper": upper,
        "closeness": closeness,
        "verdict": bounds.verdict(closeness),
        "label": _compared_labels(shares, names)[label],
        "condition": _condition_names(shares.metric)[part],
        "highest": highest,
        "lowest": lowest,
    }


def _size_table(counts: CellCounts, gamma: float) -> pd.DataFrame:
    """By group: points, mean set size, coverage of the true label with its interval."""
    n_points = counts.n_points
    hits = counts.hits
    lower, upper = clopper_pearson(hits, n_points, gamma / 2)
    with np.errstate(invalid="ignore"):
        columns = {
            "count": n_points,
            "mean set size": counts.set_sizes / n_points,
            "coverage": hits / n_points,
            "lower": lower,
            "upper": upper,
        }
    index = pd.Index(counts.group_names, name="group", tupleize_cols=False)
    return pd.DataFrame(columns, index=index)
