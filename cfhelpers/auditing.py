"""An audit of anyone's prediction sets: coverage by label and group, disparities with intervals, and verdicts."""

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import _checks, conformal, control, scores
from cfhelpers._checks import as_array, as_fraction, plain
from cfhelpers.fairness import (
    METRICS,
    FairnessMetric,
    GroupFilter,
    clopper_pearson,
    get_metric,
    measure,
)
from cfhelpers.groups import Groups, as_groups

WITHIN, BEYOND, UNDECIDED = "within", "beyond", "cannot tell"
MISSING = "missing"  # the group of the points that have none
TRUE_LABEL = "the true label"  # where a metric looks at no label in particular
CELL = ["metric", "label", "condition", "group", "count"]
DISPARITY = [
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
FEW_CELLS = (
    20_000  # up to here it is worth asking of each cell whether it needs more points
)
REPORTED = (
    "equal_opportunity",
    "disparate_impact",
    "overall_accuracy_equality",
)  # of a file, if none are named
USUAL = {
    "label": ("label", "y", "y_true", "true_label", "target"),
    "groups": ("group",),
    "part": ("part", "split"),
}
PREFIXES = {
    "probabilities": ("p_", "prob_", "proba_"),
    "scores": ("score_",),
    "sets": ("set_", "in_set_"),
}
ROUNDING, MOST_ROUNDING = (
    0.005,
    0.05,
)  # by how much the sum of probabilities may be off: per label, and in all
POWERS = 2 ** np.arange(8, dtype=np.uint8)
BITS = ((np.arange(256) & POWERS[:, None].astype(int)) > 0).astype(
    np.int64
)  # of every byte (8, 256)
PARTS = {"calibration": True, "cal": True, "test": False, "audit": False}


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
    def conditions(self) -> list[str]:
        """On the true label, per filter: any, equal, different; held: of the points whose set holds the label."""
        parts = [getattr(part, "condition", "own") for part in self.metric.filters]
        return ["held"] if self.metric.is_predictive else parts

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
            return max(0.0, float((near_highest - near_lowest).max())), float(
                (highest - lowest).max()
            )
        with np.errstate(divide="ignore"):
            return float((lowest / highest).min()), min(
                1.0, float((near_lowest / near_highest).min())
            )

    def verdict(self, ends: Sequence[np.ndarray], closeness: float) -> str:
        near, far = self.interval(ends)
        if self.metric.is_ratio:
            near, far, closeness = -far, -near, -closeness
        limit = closeness + control.TOLERANCE
        return WITHIN if far <= limit else BEYOND if near > limit else UNDECIDED

    def raised(self, least: int) -> "Cells":
        """Every cell with at least so many points, at the coverages observed; an empty one at that of its label."""
        n = np.maximum(self.n, least)
        size = (
            np.clip(self.size * (n / np.maximum(self.n, 1)), n, 2 * control.MANY)
            .round()
            .astype(np.int64)
        )
        return replace(
            self,
            k=_grown(self.k, self.n, n),
            n=n,
            prior=_grown(self.prior, self.size, size),
            size=size,
        )

    def points_needed(self, closeness: float, gamma: float) -> tuple[int, np.ndarray]:
        """How many points in which cells would decide, if coverages stay as observed; control.MANY: no number would.

        The smallest number that decides when no cell has fewer; then, smallest first, cells that can do without more
        are let off, many at a time.
        """

        def decides(ends: Sequence[np.ndarray]) -> bool:
            return self.verdict(ends, closeness) != UNDECIDED

        def let_off(cells: np.ndarray) -> None:
            more.flat[cells] = False
            if not decides(
                [np.where(more, *pair) for pair in zip(later, now, strict=True)]
            ):
                more.flat[cells] = True
                for half in np.array_split(cells, 2) if len(cells) > 1 else ():
                    let_off(half)

        wanted = bisect_left(
            range(control.MANY), True, key=lambda n: decides(self.raised(n).ends(gamma))
        )
        now, later, more = (
            self.ends(gamma),
            self.raised(wanted).ends(gamma),
            self.n < wanted,
        )
        if wanted < control.MANY and more.size <= FEW_CELLS:
            let_off(
                np.argsort(self.n, axis=None, kind="stable")[: np.count_nonzero(more)]
            )
        return wanted, more


def _grown(k: np.ndarray, n: np.ndarray, to: np.ndarray) -> np.ndarray:
    pooled = k.sum(axis=-1, keepdims=True) / np.maximum(n.sum(axis=-1, keepdims=True), 1)
    rate = np.where(n > 0, k / np.maximum(n, 1), pooled)
    return np.where(to > n, np.rint(rate * to).astype(np.int64), k)


@dataclass(frozen=True)
class Audit:
    """What an audit found. `str()` says it in words."""

    table: pd.DataFrame  # metric, label, condition, group, count, coverage, lower, upper: every cell, with its interval
    disparities: (
        pd.DataFrame
    )  # by metric: disparity, lower, upper, closeness, verdict, and where it is widest
    sizes: (
        pd.DataFrame
    )  # by group: count, mean set size, coverage of the true label, lower, upper
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
        for name, row in self.disparities[
            self.disparities["verdict"] == UNDECIDED
        ].iterrows():
            wanted, more = self.cells[name].points_needed(
                row["closeness"], 1 - self.confidence
            )
            own = self.table.loc[self.table["metric"] == name, CELL]
            if wanted < control.MANY:
                found.append(
                    own[more.ravel()].assign(wanted=wanted, more=wanted - own["count"])
                )
        return pd.concat(found[1:] or found, ignore_index=True)

    def __str__(self) -> str:
        about = f"{self.sizes['count'].sum():,} points, {len(self.sizes)} groups, {self.confidence:.0%} confidence"
        lines = [f"audit of {about}"]
        for name, row in self.disparities.iterrows():
            sign = "≥" if self.cells[name].metric.is_ratio else "≤"
            found = f"{row['disparity']:.3f}, between {row['lower']:.3f} and {row['upper']:.3f}"
            lines.append(
                f"  {name:<26} {row['verdict']:<12} {found}; allowed {sign} {row['closeness']:g}"
            )
            if len(needed := self.needed[self.needed["metric"] == name]):
                cells = [
                    f"{r.group}, {r.label}: {r.more:,}"
                    for r in needed.head(5).itertuples()
                ]
                cells += [f"and {len(needed) - 5} other cells"] if len(needed) > 5 else []
                lines.append(
                    f"{'':<28} more points would tell, as it looks now: {'; '.join(cells)}"
                )
        sizes = "; ".join(
            f"{group}: {size:.2f}" for group, size in self.sizes["mean set size"].items()
        )
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
        given = (
            sets_or_scores
            if threshold is None
            else conformal.prediction_sets(sets_or_scores, threshold)
        )
        sets = _checks.as_sets(given)
    except ValueError as error:
        raise ValueError(
            f"{error}{'' if threshold is not None else ', or scores and a threshold'}"
        ) from None
    n, n_classes = sets.shape
    names = (
        list(range(n_classes))
        if label_names is None
        else [plain(name) for name in label_names]
    )
    if n_classes < 2 or len(names) != n_classes:
        raise ValueError(
            f"sets: found {n_classes} columns for the labels {names}; wanted one per label, at least two"
        )
    y = _checks.as_labels(_as_codes(y, names, "y"), n, n_classes)
    groups = _as_groups(groups, n)
    labels = _checks.as_positive_labels(
        _as_codes(positive_labels, names, "positive_labels"), n_classes
    )
    metrics = [
        get_metric(metric)
        for metric in (
            [metrics] if isinstance(metrics, str | FairnessMetric) else metrics
        )
    ]
    allowed = _allowed(closeness, metrics)
    counts = _count(sets, y, groups)
    cells = {
        metric.name: _cells(metric, counts, labels, sets, y, groups) for metric in metrics
    }
    names = np.fromiter([*(names[label] for label in labels), TRUE_LABEL], object)
    parts = [_columns(each, names, groups.names, gamma) for each in cells.values()]
    rows = [
        _disparity(each, names, groups.names, gamma, allowed[name])
        for name, each in cells.items()
    ]
    have, held, hit = (count.sum(axis=0) for count in counts)
    lower, upper = clopper_pearson(hit, have, gamma / 2)
    with np.errstate(invalid="ignore"):
        sizes = {
            "count": have,
            "mean set size": held / have,
            "coverage": hit / have,
            "lower": lower,
            "upper": upper,
        }
    columns = dict(
        zip(
            [*CELL, "coverage", "lower", "upper"],
            map(np.concatenate, zip(*parts, strict=True)),
            strict=True,
        )
    )
    return Audit(
        table=pd.DataFrame(columns),
        disparities=pd.DataFrame(
            rows, columns=DISPARITY, index=pd.Index(cells, name="metric")
        ),
        sizes=pd.DataFrame(
            sizes, index=pd.Index(groups.names, name="group", tupleize_cols=False)
        ),
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
        raise ValueError(
            f"{argument}: found {plain(values[row])!r} in row {row}; wanted one of {names}"
        )
    return codes


def _as_groups(values: Any, n: int) -> Groups:
    """Groups in the order of their names, numbers as numbers; points without a group are the last one."""
    if values is None or isinstance(values, Groups):
        return as_groups(values, n)
    if not isinstance(values, pd.DataFrame | pd.Series):
        values = (
            pd.DataFrame(values) if isinstance(values, list | tuple) else as_array(values)
        )
    if (absent := np.asarray(pd.isna(values))).any():
        values = (
            pd.DataFrame(values)
            .astype(object)
            .mask(absent.reshape(len(values), -1), MISSING)
        )
    groups = as_groups(values, n)
    if len(groups) < 2:
        raise ValueError(
            f"groups: every point is in {groups.names[0]!r}; wanted at least two groups to compare"
        )
    order = sorted(
        range(len(groups)),
        key=lambda g: [*map(_place, np.atleast_1d(groups.names[g]).tolist())],
    )
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
        raise ValueError(
            f"closeness: found {unknown[0]!r}; wanted one of the metrics asked for, {', '.join(names)}"
        )
    if closeness is not None and not isinstance(closeness, dict):
        given = {m.name: closeness for m in metrics if not m.is_ratio} or dict.fromkeys(
            names, closeness
        )
    return {
        m.name: as_fraction(given.get(m.name, m.default_closeness), "closeness", True)
        for m in metrics
    }


def _count(
    sets: np.ndarray, y: np.ndarray, groups: Groups
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points by label and group (K, G): that have the label, whose set holds it, and both."""
    shape = sets.shape[1], len(groups)
    cell = y * shape[1] + groups.codes
    covered = sets.ravel()[np.arange(len(y)) * shape[0] + y]
    have, hit = (
        np.bincount(c, minlength=shape[0] * shape[1]).reshape(shape)
        for c in (cell, cell[covered])
    )
    held = []
    for first in range(
        0, shape[0], 8
    ):  # a byte says which of eight labels a set holds; bytes are counted, by group
        block = sets[:, first : first + 8].view(np.uint8)
        byte = (block @ POWERS[: block.shape[1]]).astype(np.int64)
        counts = np.bincount(
            byte * shape[1] + groups.codes, minlength=256 * shape[1]
        ).reshape(256, -1)
        held.append((BITS @ counts)[: block.shape[1]])
    return have, np.concatenate(held), hit


def _cells(metric: FairnessMetric, counts: tuple, labels: list[int], *data: Any) -> Cells:
    have, held, hit = (count[labels] for count in counts)
    size = np.broadcast_to(counts[0].sum(axis=0), have.shape)
    by_condition = {
        "any": (held, size),
        "equal": (hit, have),
        "different": (held - hit, size - have),
    }
    if not metric.per_label:
        pairs = [(counts[2].sum(axis=0)[None], size[:1])]
    elif metric.is_predictive:
        pairs = [(hit, held)]
    elif all(isinstance(part, GroupFilter) for part in metric.filters):
        pairs = [by_condition[part.condition] for part in metric.filters]
    else:  # the user's own cells are counted on their own
        own = measure(*data, metric, labels)
        pairs = [
            *zip(
                (np.nan_to_num(own.values) * own.n).swapaxes(0, 1),
                own.n.swapaxes(0, 1),
                strict=True,
            )
        ]
    k, n = (
        np.rint(np.stack(part, axis=1)).astype(np.int64)
        for part in zip(*pairs, strict=True)
    )
    return Cells(metric, k, n, have[:, None], size[:, None])


def _columns(
    cells: Cells, names: np.ndarray, groups: list, gamma: float
) -> tuple[np.ndarray, ...]:
    """The table's columns for one metric: every cell with its two-sided interval at γ."""
    label, part, group = (index.ravel() for index in np.indices(cells.n.shape))
    metric = np.full(len(label), cells.metric.name, object)
    label = names[
        label if cells.metric.per_label else label - 1
    ]  # the last name is for the true label
    condition, group = (
        np.fromiter(cells.conditions, object)[part],
        np.fromiter(groups, object)[group],
    )
    numbers = (cells.n, cells.values, *cells.bounds(gamma / 2))
    return metric, label, condition, group, *(number.ravel() for number in numbers)


def _disparity(
    cells: Cells, names: np.ndarray, groups: list, gamma: float, closeness: float
) -> tuple:
    """The worst difference or ratio between observed coverages, its interval, its verdict, and where it is."""
    values, ends = cells.values, cells.ends(gamma)
    highest = np.where(np.isnan(values), -np.inf, values).max(axis=-1)
    lowest = np.where(np.isnan(values), np.inf, values).min(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(highest == 0, 1.0, lowest / highest)
    loss = np.where(
        highest < lowest, -np.inf, -ratio if cells.metric.is_ratio else highest - lowest
    )
    worst = np.unravel_index(loss.argmax(), loss.shape)
    found, label = (
        float(abs(loss[worst])),
        names[worst[0] if cells.metric.per_label else -1],
    )
    if np.isinf(found):  # no cell has points
        found, between = np.nan, (None, None)
    else:
        between = groups[np.nanargmax(values[worst])], groups[np.nanargmin(values[worst])]
    return (
        found,
        *cells.interval(ends),
        closeness,
        cells.verdict(ends, closeness),
        label,
        cells.conditions[worst[1]],
        *between,
    )


@dataclass(frozen=True)
class FileAudit:
    """Audits of a file of predictions, by each of its group columns and by their combinations."""

    name: str
    kind: str  # probabilities, scores or sets
    label_names: list[str]
    positive_labels: list[str]  # those that are compared
    y: np.ndarray
    scores: np.ndarray | None  # None: the file holds sets
    threshold: np.ndarray | None  # of the sets, one or one per label
    alpha: float
    delta: float
    groups: dict[str, Groups]
    calibration: np.ndarray  # the rows that thresholds are found on, bool (n,)
    audited: np.ndarray  # the rows that the audits are about, bool (n,)
    audits: dict[str, Audit]

    def __str__(self) -> str:
        labels = f"labels compared: {', '.join(self.positive_labels)}, of {', '.join(self.label_names)}"
        head = f"{self.name}: {self.audited.sum():,} of {len(self.y):,} rows are audited; {labels}"
        return "\n".join(
            [head, *(f"by {name}: {found}" for name, found in self.audits.items())]
        )

    def fixes(self, by: str, metric: str) -> pd.DataFrame:
        """The thresholds that would mend a metric, found on the calibration rows, and what they do to the other rows.

        The sets as they are come first; then one threshold for all labels and one per label, each by the paper's rule
        and with a guarantee, which fails with probability at most `delta`.
        """
        if self.scores is None:
            raise ValueError(
                f"{self.name}: found sets; thresholds can be found for probabilities or scores only"
            )
        groups, new, names = self.groups[by], ~self.calibration, self.label_names
        closeness, kind = (
            self.audits[by].disparities["closeness"][metric],
            get_metric(metric),
        )
        positive = [names.index(name) for name in self.positive_labels]
        grid = None
        if (
            self.scores.max() > 1
        ):  # any grid will do that has not seen the calibration rows
            grid = np.quantile(
                self.scores[new], np.linspace(0, 1, 10_001), method="lower"
            )
        rules = [(False, rule) for rule in ("", *control.GUARANTEES)] + [
            (True, rule) for rule in control.GUARANTEES
        ]
        old, rows = (
            (self.scores[~new], self.y[~new], Groups(groups.codes[~new], groups.names)),
            {},
        )
        for classwise, rule in rules if kind.per_label else rules[:3]:
            threshold, note = np.broadcast_to(self.threshold, len(names)), ""
            if rule:
                options = {
                    "classwise": classwise,
                    "guarantee": rule,
                    "positive_labels": positive,
                    "grid": grid,
                }
                found = control.find_threshold(
                    *old, metric, closeness, alpha=self.alpha, delta=self.delta, **options
                )
                cells = [
                    (group, TRUE_LABEL if at is None else names[at], n)
                    for group, at, n in found.blocking_cells
                ]
                threshold = found.threshold
                note = (
                    ""
                    if found.feasible
                    else str(replace(found, blocking_cells=cells)).partition("): ")[2]
                )
            sets, y = conformal.prediction_sets(self.scores[new], threshold), self.y[new]
            row = {
                "mean set size": conformal.efficiency(sets),
                "coverage": conformal.coverage(sets, y),
            }
            if open_ := [
                at for at in positive if kind.is_predictive or np.isfinite(threshold[at])
            ]:
                options = {
                    "confidence": self.audits[by].confidence,
                    "positive_labels": open_,
                }
                people = Groups(groups.codes[new], groups.names)
                row |= audit(
                    sets, y, people, metric, closeness, **options
                ).disparities.iloc[0, :5]
            else:  # every set holds all of these labels: nothing to estimate
                row |= dict.fromkeys(DISPARITY[:3], float(kind.is_ratio)) | {
                    "closeness": closeness,
                    "verdict": WITHIN,
                }
            key = (
                "as it is"
                if not rule
                else "one per label"
                if classwise
                else "one for all labels",
                rule,
            )
            rows[key] = row | {"threshold": threshold, "note": note}
        index = pd.MultiIndex.from_tuples(rows, names=["thresholds", "guarantee"])
        return pd.DataFrame(list(rows.values()), index=index)


def audit_file(
    path: Any,
    *,
    label: str = "",
    groups: Any = "",
    columns: Any = "",
    kind: str = "",
    part: str = "",
    threshold: Any = "",
    metrics: Any = "",
    positive_labels: Any = "",
    closeness: Any = "",
    alpha: float = 0.1,
    score: str = "tps",
    delta: float = 0.1,
    confidence: float = 0.95,
    seed: int = 0,
) -> FileAudit:
    """Audit a CSV or parquet file with a row per point. Lists are given as such, or as text with commas.

    label: the column of the true labels, which go by the names of the other columns. groups: one or more columns.
    columns: those of the probabilities, scores or sets, one per label; by default all that start with p_ or prob_, with
    score_, or with set_; `kind` says what they are. Sets come from the threshold; without one they are conformal at
    level 1 - alpha, by `score`: q̂ is found on the rows that the column `part` calls calibration, or on half of the
    rows, drawn with the seed, and the others are audited. positive_labels: those to compare, by default all but the
    first; or "all". closeness: as in `audit`, or as text, "0.1" or "metric=0.1, …". Messages count rows from 1, after
    the header.
    """
    frame, alpha, delta = (
        _read(Path(path)),
        as_fraction(alpha, "alpha"),
        as_fraction(delta, "delta"),
    )
    (label,) = _find(frame, label, "label", 1, 1)
    attributes, marks = (
        _find(frame, groups, "groups", 1, len(frame.columns)),
        _find(frame, part, "part", 0, 1),
    )
    kind, columns = _find_values(
        frame.drop(columns=[label, *attributes, *marks]), columns, kind
    )
    names = [
        next((c[len(p) :] for p in PREFIXES[kind] if c.lower().startswith(p)), c)
        for c in columns
    ]
    values, y = _values(frame, columns, kind), _labels(frame[label], names)
    by = {name: _groups_of(frame[[name]]) for name in attributes}
    if len(by) > 1:
        by[" × ".join(by)] = _groups_of(frame[attributes])
    rng, cut = np.random.default_rng(seed), _listed(threshold)
    calibration = (
        _marked(frame[marks[0]]) if marks else rng.permutation(len(y)) < len(y) // 2
    )
    audited = (
        ~calibration if marks or not (cut or kind == "sets") else np.ones(len(y), bool)
    )
    if kind == "sets":
        if cut:
            raise ValueError(
                f"threshold: found {threshold} for sets; it goes with probabilities or scores"
            )
        values, cut, sets = None, None, values.astype(bool)
    else:
        if kind == "probabilities":
            u = (
                ()
                if _checks.one_of(score, "score", ("tps", "aps", "raps")) == "tps"
                else (rng.random(len(y)),)
            )
            values = getattr(scores, score)(values, *u)
        cut = cut or [
            conformal.conformal_quantile(values[calibration, y[calibration]], alpha)
        ]
        cut = _checks.as_float_column(cut, "threshold")
        sets = conformal.prediction_sets(values, cut if len(cut) > 1 else cut[0])
    positive = [str(name) for name in _listed(positive_labels)] or names[1:]
    positive = names if positive == ["all"] else positive
    if isinstance(closeness, str):
        pairs = [pair.partition("=")[::2] for pair in _listed(closeness)]
        closeness = dict(pairs) if "=" in closeness else closeness or None
    options = {
        "confidence": confidence,
        "positive_labels": positive,
        "label_names": names,
    }
    found = {}
    for name, everyone in by.items():
        people = Groups(everyone.codes[audited], everyone.names)
        found[name] = audit(
            sets[audited],
            y[audited],
            people,
            _listed(metrics) or REPORTED,
            closeness,
            **options,
        )
    return FileAudit(
        Path(path).name,
        kind,
        names,
        positive,
        y,
        values,
        cut,
        alpha,
        delta,
        by,
        calibration,
        audited,
        found,
    )


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty")
    try:
        if path.suffix in (".parquet", ".pq"):
            frame = pd.read_parquet(path)
        else:
            with path.open("rb") as file:
                separator = max(",;\t", key=file.readline().decode("latin-1").count)
            options = {
                "keep_default_na": False,
                "na_values": [""],
                "low_memory": False,
                "index_col": False,
            }
            with warnings.catch_warnings(
                action="error", category=pd.errors.ParserWarning
            ):  # rows that are too long
                frame = pd.read_csv(path, sep=separator, **options)
    except UnicodeDecodeError:
        raise ValueError(_not_utf8(path.read_bytes(), separator)) from None
    except (ValueError, OSError, pd.errors.ParserWarning) as error:
        raise ValueError(
            f"{path.name} cannot be read: {' '.join(str(error).split())}"
        ) from None
    if frame.empty:
        raise ValueError(f"{path.name} holds no rows")
    return frame.rename(columns=str)


def _not_utf8(data: bytes, separator: str) -> str:
    """Where the first byte is that is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        lines = data[: error.start].decode("latin-1").split("\n")
        column = (
            data.decode("latin-1")
            .split("\n", 1)[0]
            .strip()
            .split(separator)[lines[-1].count(separator)]
        )
        where = (
            f"column {column!r}, row {len(lines) - 1}" if len(lines) > 1 else "the header"
        )
        return f"{where}: found the byte 0x{data[error.start]:02x}, which is not UTF-8; save the file as UTF-8"


def _listed(value: Any) -> list:
    if isinstance(value, list | tuple):
        return list(value)
    return [
        part.strip()
        for part in str("" if value is None else value).split(",")
        if part.strip()
    ]


def _find(frame: pd.DataFrame, given: Any, what: str, least: int, most: int) -> list[str]:
    """The columns that were named, or those with a usual name."""
    found = _listed(given) or [
        column for column in frame if column.lower() in USUAL[what]
    ]
    if absent := [column for column in found if column not in frame]:
        raise ValueError(
            f"{what}: there is no column {absent[0]!r}; the file has {', '.join(frame)}"
        )
    if not least <= len(found) <= most:
        wanted = "one column" if most == 1 else "at least one column"
        raise ValueError(
            f"{what}: found {', '.join(found) or 'none'}; name {wanted} of {', '.join(frame)}"
        )
    return found


def _find_values(frame: pd.DataFrame, given: Any, kind: str) -> tuple[str, list[str]]:
    """What the file holds, and in which columns."""
    kinds = [_checks.one_of(kind, "kind", tuple(PREFIXES))] if kind else list(PREFIXES)
    found = {k: [c for c in frame if c.lower().startswith(PREFIXES[k])] for k in kinds}
    if named := given and _find(frame, given, "columns", 2, len(frame.columns)):
        found = {
            next(
                (k for k in kinds if kind or set(named) <= set(found[k])), "probabilities"
            ): named
        }
    found = {k: columns for k, columns in found.items() if columns}
    if len(found) != 1 or len(next(iter(found.values()))) < 2:
        seen = (
            " and ".join(f"{k} ({', '.join(columns)})" for k, columns in found.items())
            or "neither"
        )
        prefixes = ", ".join(f"{k} ({' '.join(PREFIXES[k])})" for k in kinds)
        raise ValueError(
            f"columns: found {seen}; wanted one of {prefixes}, a column per label, or name the columns"
        )
    return found.popitem()


def _values(frame: pd.DataFrame, columns: list[str], kind: str) -> np.ndarray:
    """The numbers of the columns (n, K), checked; probabilities that were rounded sum to 1 again."""
    for column in columns:
        _refuse(
            pd.to_numeric(frame[column], errors="coerce").isna(),
            frame[column],
            "a number",
        )
    values = frame[columns].to_numpy(np.float64)
    if kind == "scores":
        return values
    wrong = (
        (values < 0) | (values > 1)
        if kind == "probabilities"
        else ~np.isin(values, (0, 1))
    )
    wanted = (
        "a probability from 0 to 1, not a percentage"
        if kind == "probabilities"
        else "0 or 1"
    )
    for at in np.flatnonzero(wrong.any(axis=0)):
        _refuse(wrong[:, at], frame[columns[at]], wanted)
    off = np.abs(values.sum(axis=1, keepdims=True) - 1) * (kind == "probabilities")
    if off.max() > min(ROUNDING * len(columns), MOST_ROUNDING):
        row = int(off.argmax())
        raise ValueError(
            f"columns {', '.join(columns)}, row {row + 1}: sum to {values[row].sum():.4g}; wanted 1"
        )
    return (
        values / values.sum(axis=1, keepdims=True)
        if off.max() > _checks.SUM_TOLERANCE
        else values
    )


def _refuse(wrong: Any, column: pd.Series, wanted: str) -> None:
    if (wrong := np.asarray(wrong)).any():
        row = int(wrong.argmax())
        found = "nothing" if pd.isna(column.iloc[row]) else repr(plain(column.iloc[row]))
        raise ValueError(
            f"column {column.name!r}, row {row + 1}: found {found}; wanted {wanted}"
        )


def _labels(column: pd.Series, names: list[str]) -> np.ndarray:
    codes, found = pd.factorize(column.convert_dtypes())
    index = np.append(pd.Index(names).get_indexer([str(value) for value in found]), -1)
    _refuse(index[codes] < 0, column, f"one of {', '.join(names)}")
    return index[codes]


def _marked(column: pd.Series) -> np.ndarray:
    """Which rows are for calibration."""
    marks = column.astype(str).str.lower().map(PARTS)
    _refuse(marks.isna(), column, "calibration or test")
    if marks.nunique() < 2:
        raise ValueError(
            f"column {column.name!r}: every row is {column.iloc[0]!r}; wanted calibration and test rows"
        )
    return marks.to_numpy(bool)


def _groups_of(frame: pd.DataFrame) -> Groups:
    """Groups by one or more columns, with names as text."""
    columns = " × ".join(frame)
    try:
        groups = _as_groups(frame.convert_dtypes(), len(frame))
    except ValueError as error:
        raise ValueError(f"column {columns!r}: {error}") from None
    if len(groups) > max(20, len(frame) // 2):
        found = f"{len(groups):,} different values in {len(frame):,} rows"
        raise ValueError(
            f"column {columns!r}: found {found}; wanted groups, each of many points"
        )
    joined = [
        " · ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        for name in groups.names
    ]
    return Groups(groups.codes, joined)
