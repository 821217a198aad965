"""What an audit computes: coverages, disparities with intervals, verdicts, points needed.

The audit counts points per cell (`cfhelpers.cells`) and puts what follows from the counts
into tables; `cfhelpers.auditing.verdicts` says what does follow.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._checks import as_fraction, as_labels, as_sets
from cfhelpers.auditing.missing import groups_of_both, groups_with_missing
from cfhelpers.auditing.projection import POWER, People, people_needed
from cfhelpers.auditing.verdicts import (
    NO_PEOPLE,
    TOO_CLOSE,
    TOO_FEW,
    UNDECIDED,
    VACUOUS,
    CellShare,
    Judge,
    Verdict,
    disparity_interval,
    points_needed,
)
from cfhelpers.auditing.weighting import (
    WeightedShares,
    Weights,
    as_weights,
    weighted_counts,
    weighted_shares,
)
from cfhelpers.auditing.words import confidence_text, counted
from cfhelpers.bounds import clopper_pearson
from cfhelpers.cells import CellCounts, Shares, group_masks
from cfhelpers.conformal import prediction_sets
from cfhelpers.control import MANY
from cfhelpers.fairness import column_names, label_codes, positive_codes
from cfhelpers.groups import Groups
from cfhelpers.metrics import LABEL_METRICS, METRICS, FairnessMetric, get_metric

TRUE_LABEL = "the true label"  # where a metric looks at no label in particular
WHOLE_SET = "the whole set"  # where it looks at the size of a set
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
SHOWN_CELLS = 5  # as many cells are named in the text


@dataclass(frozen=True)
class Audit:
    """What an audit found. `str()` says it in words.

    Every interval and every verdict is wrong with probability at most one less the
    confidence, each by itself and not all of them jointly. A verdict can be firmer than
    the interval beside it, whose two ends share that probability.

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
    judges : dict
        What gave each verdict, by the metric's name.
    n_unlabelled : int
        Points without labels, which count for some metrics.
    people : dict
        Who was counted, by the metric's name; empty where only counts are known.
    weights : Weights or None
        Whom each person stands for.
    vacuous : str
        A sentence where all sets are empty or all hold every label; else empty.
    people_counts : dict
        With weights: people per cell, as counted, by the metric's name.
    """

    table: pd.DataFrame
    disparities: pd.DataFrame
    sizes: pd.DataFrame
    confidence: float
    shares: dict[str, Shares] = field(repr=False)
    judges: dict[str, Judge] = field(repr=False)
    n_unlabelled: int = 0
    people: dict[str, People] = field(default_factory=dict, repr=False)
    weights: Weights | None = field(default=None, repr=False)
    vacuous: str = ""
    people_counts: dict[str, Shares] = field(default_factory=dict, repr=False)

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
        parts = []
        for name, shares in self.shares.items():
            if self.verdicts[name] != UNDECIDED:
                continue
            wanted, needs_more = points_needed(shares, self.judges[name])
            if wanted == MANY:
                continue
            cells = self.table.loc[self.table["metric"] == name, CELL_COLUMNS]
            cells = cells[needs_more.ravel()]
            parts.append(cells.assign(wanted=wanted, more=wanted - cells["count"]))
        if not parts:
            return self.table[:0][CELL_COLUMNS].assign(wanted=0, more=0)
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def people_needed(self) -> dict[str, int | None]:
        """How many people in all would tell, by metric, for metrics that cannot tell.

        With 80% probability, if coverages stay as observed. None: not even ten times as
        many as now would. It is simulated: an estimate, not a promise.
        """
        found = {}
        for name, shares in self.shares.items():
            if self.verdicts[name] == UNDECIDED:
                people = self.people.get(name)
                judge = self.judges[name]
                found[name] = people_needed(shares, judge, people, self._n_people(name))
        return found

    @cached_property
    def records(self) -> list[Verdict]:
        """Every verdict with what it rests on."""
        return [self.record(name) for name in self.shares]

    def record(
        self, metric: str, grouping: str = "", n_verdicts: int | None = None
    ) -> Verdict:
        """The verdict on one metric with what it rests on.

        Parameters
        ----------
        metric : str
        grouping : str
            What the groups are called.
        n_verdicts : int, optional
            How many verdicts the joint one shares its error with, itself included; by
            default those of this audit.

        Returns
        -------
        Verdict
        """
        row: dict[Any, Any] = self.disparities.loc[metric].to_dict()
        shares = self.shares[metric]
        worst, best = self._extreme_groups(metric)
        joint = self.verdicts[metric]
        n_verdicts = n_verdicts or len(self.shares)
        if n_verdicts > 1:
            judge = self.judges[metric]
            joint = replace(judge, gamma=judge.gamma / n_verdicts).verdict(shares)
        return Verdict(
            grouping=grouping,
            metric=metric,
            is_ratio=shares.metric.is_ratio,
            closeness=float(row["closeness"]),
            estimate=float(row["disparity"]),
            low=float(row["lower"]),
            high=float(row["upper"]),
            verdict=row["verdict"],
            kind=self._why_undecided(metric),
            people=self._n_people(metric),
            people_needed=self.people_needed.get(metric),
            power=POWER,
            label=row["label"],
            condition=row["condition"],
            worst=worst,
            best=best,
            empty=self._empty_cells(metric),
            vacuous=self.vacuous,
            joint=joint,
        )

    @cached_property
    def cells(self) -> pd.DataFrame:
        """`table` with the people covered, and the effective size of every cell."""
        covered = []
        effective = []
        for name, shares in self.shares.items():
            counts = self.people_counts.get(name, shares)
            covered.append(counts.hits.ravel())
            sizes = shares.trials
            if isinstance(shares, WeightedShares):
                sizes = shares.effective
            effective.append(sizes.ravel().astype(float))
        return self.table.assign(
            covered=np.concatenate(covered), effective=np.concatenate(effective)
        )

    def _n_people(self, metric: str) -> int:
        """The people that a metric counts."""
        if metric in self.people:
            return len(self.people[metric])
        n_labelled = int(self.sizes["count"].sum())
        if self.shares[metric].metric.needs_labels:
            return n_labelled
        return n_labelled + self.n_unlabelled

    def _why_undecided(self, metric: str) -> str:
        """The kind of cannot tell, or nothing."""
        if self.verdicts[metric] != UNDECIDED:
            return ""
        if self.judges[metric].is_vacuous:
            return VACUOUS
        if self.people_needed[metric] is not None:
            return TOO_FEW
        if self._empty_cells(metric):
            return NO_PEOPLE
        return TOO_CLOSE

    def _empty_cells(self, metric: str) -> list[tuple[Any, Any, str]]:
        """(group, label, condition) of the cells of a metric without people."""
        cells = self.table[self.table["metric"] == metric]
        empty = cells[cells["count"] == 0]
        columns = [empty["group"], empty["label"], empty["condition"]]
        return list(zip(*columns, strict=True))

    def _extreme_groups(self, metric: str) -> tuple[CellShare | None, CellShare | None]:
        """The lowest and the highest group where the disparity is."""
        row = self.disparities.loc[metric]
        cells = self.cells[self.cells["metric"] == metric]
        is_there = cells["label"] == row["label"]
        is_there &= cells["condition"] == row["condition"]
        cells = cells[is_there & cells["coverage"].notna()]
        if cells.empty:
            return None, None
        lowest = cells.iloc[int(cells["coverage"].argmin())]
        highest = cells.iloc[int(cells["coverage"].argmax())]
        return _cell_share(lowest), _cell_share(highest)

    def plot(self, metric: str | None = None, ax: Any = None) -> Any:
        """Coverages by group with their intervals, one row per group and label.

        Parameters
        ----------
        metric : str, optional
            By default the first of the audit.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfhelpers.auditing.drawing import plot_cells

        name = metric or next(iter(self.shares))
        if name not in self.shares:
            raise ValueError(
                f"metric: found {name!r}; wanted one of {', '.join(self.shares)}"
            )
        cells = self.table[self.table["metric"] == name]
        return plot_cells(cells, self.judges[name].closeness, ax)

    def _repr_html_(self) -> str:
        """A table of verdicts, for a notebook."""
        columns = ["verdict", "disparity", "lower", "upper", "closeness"]
        shown = self.disparities[[*columns, "label", "lowest", "highest"]]
        text = "; ".join(self._title_parts())
        return f"<p>{html.escape(text)}</p>{shown.to_html(float_format='{:.3f}'.format)}"

    def __str__(self) -> str:
        return "\n".join([*self.lines(), self.note])

    @property
    def note(self) -> str:
        """What the confidence means, in two sentences."""
        chance = f"{1 - self.confidence:.2g}"
        return (
            f"  Each verdict is wrong with probability at most {chance}, by itself and "
            "not jointly with the others.\n"
            "  It can be firmer than the interval beside it, whose two ends share that "
            "probability."
        )

    def lines(self) -> list[str]:
        """The audit in words, line by line, without the note."""
        lines = self._title_parts()
        for name in self.shares:
            lines.extend(self._lines_of(name))
        sizes = []
        for group, size in self.sizes["mean set size"].items():
            sizes.append(f"{group}: {size:.2f}")
        lines.append(f"  mean set size: {'; '.join(sizes)}")
        return lines

    def _title_parts(self) -> list[str]:
        """Who is audited; that weights make it approximate; that sets say nothing."""
        more = ""
        if self.n_unlabelled:
            more = f" and {self.n_unlabelled:,} without labels"
        n_points = counted(int(self.sizes["count"].sum()), "point")
        parts = [
            f"audit of {n_points}{more}, {counted(len(self.sizes), 'group')}, "
            f"{confidence_text(self.confidence)} confidence"
        ]
        if self.weights is not None:
            parts.append(f"  {weights_sentence(self.weights)}")
        if self.vacuous:
            parts.append(f"  {self.vacuous}")
        return parts

    def _lines_of(self, name: str) -> list[str]:
        """The verdict of one metric, cells without points, and where more would tell."""
        row = self.disparities.loc[name]
        sign = "≤"
        if self.shares[name].metric.is_ratio:
            sign = "≥"
        lines = [
            f"  {name:<26} {row['verdict']:<12} {row['disparity']:.3f}, "
            f"between {row['lower']:.3f} and {row['upper']:.3f}; "
            f"allowed {sign} {row['closeness']:g}"
        ]
        cells = self.table[self.table["metric"] == name]
        empty = []
        for cell in cells[cells["count"] == 0].itertuples():
            empty.append(f"{cell.group}, {cell.label}")
        if empty:
            lines.append(f"{'':<28} no points of {_first_few(empty)}")
        hint = self._hint(name)
        if hint:
            lines.append(f"{'':<28} {hint}")
        return lines

    def _hint(self, name: str) -> str:
        """What would tell, where a metric cannot."""
        kind = self._why_undecided(name)
        if kind == TOO_FEW:
            wanted = counted(self.people_needed[name] or 0, "person", "people")
            return (
                f"more points would tell, as it looks now: {wanted} in all, "
                f"with {POWER:.0%} probability"
            )
        if kind == TOO_CLOSE:
            return "too close to call: ten times as many people would probably not tell"
        return ""


def weights_sentence(weights: Weights) -> str:
    """What weights do to an audit."""
    n = len(weights.values)
    size = f"{n:,} people count as {weights.effective:,.0f}"
    if weights.replicates is None:
        how = "effective sizes (Σw)²/Σw²"
    else:
        n_replicates = weights.replicates.shape[1]
        how = f"effective sizes from {n_replicates} replicate weights ({weights.rule})"
    return f"Shares are weighted; {size}. Intervals and verdicts are approximate: {how}."


def _cell_share(cell: pd.Series) -> CellShare:
    """One row of the table of cells."""
    return CellShare(
        group=cell["group"],
        covered=int(cell["covered"]),
        n=int(cell["count"]),
        share=float(cell["coverage"]),
        low=float(cell["lower"]),
        high=float(cell["upper"]),
        effective=float(cell["effective"]),
    )


def _first_few(cells: list[str]) -> str:
    """The first cells, and how many others there are."""
    shown = cells[:SHOWN_CELLS]
    if len(cells) > SHOWN_CELLS:
        shown.append(f"and {len(cells) - SHOWN_CELLS} other cells")
    return "; ".join(shown)


def audit(
    sets_or_scores: ArrayLike,
    y: ArrayLike,
    groups: Any,
    metrics: str | FairnessMetric | Iterable[str | FairnessMetric] = LABEL_METRICS,
    closeness: float | Mapping[str, float] | None = None,
    threshold: ArrayLike | None = None,
    confidence: float = 0.95,
    *,
    positive_labels: ArrayLike | None = None,
    label_names: Sequence[Any] | None = None,
    unlabelled: tuple[ArrayLike, Any] | None = None,
    sample_weight: ArrayLike | Weights | None = None,
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
        group form the group "missing". Unused categories are declared groups, which
        are compared too.
    metrics : names, or your own metrics
        One or several, each of another name; by default all of `METRICS` that
        look at labels.
    closeness : float or dict, optional
        What is allowed; by default 0.1, for ratios 0.8. A dict gives it by metric. A
        number is for the differences, and for ratios only where nothing else is asked
        for.
    threshold : float or (K,), optional
        The scores at most this large are in the sets.
    confidence : float
        Of every interval and every verdict.
    positive_labels : labels, optional
        Those that are compared. By default all but the first where labels are 0 to
        K - 1, and all of them where they have names.
    label_names : (K,), optional
        What the labels are called; by default as the columns of a data frame, or 0 to
        K - 1.
    unlabelled : (sets_or_scores, groups), optional
        More points of the same population, whose true labels are not known. They count
        for demographic parity and disparate impact, which do not look at the true label;
        all else is computed from the points with labels.
    sample_weight : (n,), optional
        Whom each point stands for, as in a survey. Shares are weighted, and each cell
        counts as (Σw)²/Σw² points: intervals and verdicts are then approximate. `Weights`
        may hold replicate weights too.

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
    if label_names is None:
        label_names = column_names(sets_or_scores)
    sets = _sets_at_threshold(sets_or_scores, threshold)
    n, n_classes = sets.shape
    names = _names_of_labels(label_names, n_classes)
    true_labels = as_labels(label_codes(y, names, "y"), n, n_classes)
    labels = positive_codes(positive_labels, names)
    asked = _as_metrics(metrics)
    allowed = _closeness_by_metric(closeness, asked)
    weights = None
    if sample_weight is not None:
        weights = as_weights(sample_weight, n)
        if unlabelled is not None:
            raise ValueError(
                "sample_weight: wanted none where there are unlabelled points"
            )
    everyone = None
    if unlabelled is None:
        people = groups_with_missing(groups, n)
        counts = CellCounts.from_sets(sets, true_labels, people)
        counts_of_all = counts
        n_more = 0
    else:
        more_sets, more_groups = _unlabelled_sets(unlabelled, threshold, names)
        n_more = len(more_sets)
        people, others = groups_of_both(groups, n, more_groups, n_more)
        counts = CellCounts.from_sets(sets, true_labels, people)
        counts_of_all = counts + _counts_without_labels(more_sets, others)
        everyone = People(sets, true_labels, people).joined(more_sets, others)
    audited = People(sets, true_labels, people)
    shares = {}
    judges = {}
    counted_people = {}
    for metric in asked:
        own_counts = counts
        is_overlapping = False
        counted_people[metric.name] = audited
        if not metric.needs_labels:
            own_counts = counts_of_all
            counted_people[metric.name] = everyone or audited
        elif not metric.is_built_in:
            own_counts = CellCounts.from_sets(sets, true_labels, people, metric, labels)
            is_overlapping = _is_overlapping(metric, true_labels, people, labels)
        shares[metric.name] = own_counts.shares(metric, labels)
        judges[metric.name] = Judge(allowed[metric.name], gamma, is_overlapping)
    found = Audit(
        table=_cell_table(list(shares.values()), names, gamma),
        disparities=_disparity_table(shares, names, judges),
        sizes=_size_table(counts, gamma),
        confidence=float(confidence),
        shares=shares,
        judges=judges,
        n_unlabelled=n_more,
        people=counted_people,
        vacuous=vacuous_sentence(counts),
    )
    if weights is None:
        return found
    _check_weighted(asked, people)
    return _with_weights(found, audited, weights, names, labels)


def _check_weighted(metrics: list[FairnessMetric], groups: Groups) -> None:
    """A ValueError for what is not offered with weights."""
    if groups.memberships is not None:
        raise ValueError(
            "sample_weight: found groups that overlap; wanted one group per point, as "
            "a column for each grouping"
        )
    for metric in metrics:
        if metric.is_size:
            raise ValueError(
                f"sample_weight: {metric.name} is not offered with weights; wanted "
                "metrics of coverage"
            )


def _with_weights(
    found: Audit, people: People, weights: Weights, names: list[Any], labels: list[int]
) -> Audit:
    """The same audit with weighted shares and effective sizes."""
    gamma = 1 - found.confidence
    shares: dict[str, Shares] = {}
    for name, own in found.shares.items():
        shares[name] = weighted_shares(
            people.sets, people.y, people.groups, weights, own.metric, labels
        )
    weighted = replace(people, weights=weights.values)
    return replace(
        found,
        table=_cell_table(list(shares.values()), names, gamma, found.shares),
        disparities=_disparity_table(shares, names, found.judges),
        sizes=_weighted_size_table(found.sizes, people, weights, gamma),
        shares=shares,
        people=dict.fromkeys(shares, weighted),
        weights=weights,
        people_counts=found.shares,
    )


def vacuous_sentence(counts: CellCounts) -> str:
    """A sentence where no set holds a label or every set holds all; else nothing."""
    n_pairs = counts.sizes.sum()
    n_held = counts.covered.sum()
    if n_held == 0:
        return "Vacuous: no set holds any label."
    if n_held == n_pairs:
        return "Vacuous: every set holds every label."
    return ""


def never_within(found: Audit, sentence: str) -> Audit:
    """The same audit where sets say nothing about anyone: no metric is within.

    Groups that all get the same answer are equal, and nobody is served by it.
    """
    judges = {}
    verdicts = []
    for name, judge in found.judges.items():
        judges[name] = replace(judge, is_vacuous=True)
        verdicts.append(judges[name].verdict(found.shares[name]))
    disparities = found.disparities.assign(verdict=verdicts)
    return replace(found, judges=judges, disparities=disparities, vacuous=sentence)


def audit_counts(
    counts: CellCounts,
    counts_of_all: CellCounts,
    metrics: str | FairnessMetric | Iterable[str | FairnessMetric],
    closeness: float | Mapping[str, float] | None,
    confidence: float,
    labels: list[int],
    names: list[Any],
    n_unlabelled: int = 0,
) -> Audit:
    """The audit from counts per cell, for built-in metrics.

    `counts_of_all` has the points without labels too; the labels compared are places
    among `names`.
    """
    gamma = 1 - as_fraction(confidence, "confidence")
    asked = _as_metrics(metrics)
    allowed = _closeness_by_metric(closeness, asked)
    shares = {}
    judges = {}
    for metric in asked:
        own_counts = counts if metric.needs_labels else counts_of_all
        shares[metric.name] = own_counts.shares(metric, labels)
        judges[metric.name] = Judge(allowed[metric.name], gamma, False)
    return Audit(
        table=_cell_table(list(shares.values()), names, gamma),
        disparities=_disparity_table(shares, names, judges),
        sizes=_size_table(counts, gamma),
        confidence=float(confidence),
        shares=shares,
        judges=judges,
        n_unlabelled=n_unlabelled,
        vacuous=vacuous_sentence(counts),
    )


def _as_metrics(
    metrics: str | FairnessMetric | Iterable[str | FairnessMetric],
) -> list[FairnessMetric]:
    """The metrics asked for, no two of one name."""
    if isinstance(metrics, str | FairnessMetric):
        metrics = [metrics]
    if not isinstance(metrics, Iterable):
        raise ValueError(f"metrics: found {metrics!r}; wanted names of metrics")
    asked: list[FairnessMetric] = []
    for metric in metrics:
        found = get_metric(metric)
        if any(other.name == found.name for other in asked):
            raise ValueError(
                f"metrics: found {found.name!r} twice; wanted another name for each"
            )
        asked.append(found)
    return asked


def _is_overlapping(
    metric: FairnessMetric, y: np.ndarray, groups: Groups, labels: list[int]
) -> bool:
    """Whether a point lies in the cells of two groups."""
    for label in labels:
        for filter_ in metric.filters:
            masks = group_masks(filter_, y, groups, label)
            if np.sum(masks, axis=0).max() > 1:
                return True
    return False


def _unlabelled_sets(
    unlabelled: Any, threshold: ArrayLike | None, names: list[Any]
) -> tuple[np.ndarray, Any]:
    """The sets of points without labels, for the same labels, and their groups."""
    if not isinstance(unlabelled, tuple | list) or len(unlabelled) != 2:
        raise ValueError(
            f"unlabelled: found {type(unlabelled).__name__}; "
            "wanted (sets_or_scores, groups)"
        )
    sets_or_scores, groups = unlabelled
    try:
        sets = _sets_at_threshold(sets_or_scores, threshold)
    except ValueError as error:
        raise ValueError(f"unlabelled {error}") from None
    columns = column_names(sets_or_scores)
    if sets.shape[1] != len(names) or columns not in (None, names):
        found = columns or f"{sets.shape[1]} columns"
        raise ValueError(f"unlabelled: found {found}; wanted one per label, {names}")
    return sets, groups


def _counts_without_labels(sets: np.ndarray, groups: Groups) -> CellCounts:
    """Counts of points whose true label is not known.

    It is taken to be the first one. That does not matter to metrics that add up all true
    labels, and no other metric may use these counts.
    """
    return CellCounts.from_sets(sets, np.zeros(len(sets), np.int64), groups)


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
        names = list(label_names)
    if n_classes < 2 or len(names) != n_classes:
        raise ValueError(
            f"sets: found {n_classes} columns for the labels {names}; "
            "wanted one per label, at least two"
        )
    return names


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
        value = given.get(metric.name)
        allowed[metric.name] = metric.allowed(value, stacklevel=4)
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
    if shares.metric.is_size:
        return [WHOLE_SET]
    if not shares.metric.per_label:
        return [TRUE_LABEL]
    return [names[label] for label in shares.labels]


def _object_array(values: Sequence[Any]) -> np.ndarray:
    """An array of names, each of which may be a tuple."""
    return np.fromiter(values, object, len(values))


def _cell_table(
    all_shares: list[Shares],
    names: list[Any],
    gamma: float,
    people_counts: Mapping[str, Shares] | None = None,
) -> pd.DataFrame:
    """Every cell of every metric, with its two-sided interval.

    With weights, points are counted in `people_counts`.
    """
    parts = []
    for shares in all_shares:
        part = _cell_columns(shares, names, gamma)
        if people_counts:
            part["count"] = people_counts[shares.metric.name].trials.ravel()
        parts.append(part)
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
    judges: Mapping[str, Judge],
) -> pd.DataFrame:
    """The disparity of every metric, its interval, its verdict, and where it is."""
    rows = []
    for name, own in shares.items():
        rows.append(_disparity_row(own, names, judges[name]))
    index = pd.Index(list(shares), name="metric")
    return pd.DataFrame(rows, columns=DISPARITY_COLUMNS, index=index)


def _disparity_row(shares: Shares, names: list[Any], judge: Judge) -> dict[str, Any]:
    """The disparity of one metric, and the label, condition and groups where it is."""
    losses = shares.losses
    label, part = np.unravel_index(losses.argmax(), losses.shape)
    values = shares.values[label, part]
    highest = None
    lowest = None
    if not np.isnan(values).all():
        highest = shares.group_names[np.nanargmax(values)]
        lowest = shares.group_names[np.nanargmin(values)]
    lower, upper = disparity_interval(shares, judge.gamma)
    return {
        "disparity": shares.disparity,
        "lower": lower,
        "upper": upper,
        "closeness": judge.closeness,
        "verdict": judge.verdict(shares),
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


def _weighted_size_table(
    sizes: pd.DataFrame, people: People, weights: Weights, gamma: float
) -> pd.DataFrame:
    """The same table with weighted means."""
    totals = weighted_counts(people.sets, people.y, people.groups, weights.values)
    hits = weighted_shares(
        people.sets,
        people.y,
        people.groups,
        weights,
        METRICS["overall_accuracy_equality"],
        [],
    )
    lower, upper = hits.confidence_bounds(gamma / 2)
    with np.errstate(invalid="ignore"):
        mean_size = totals.set_sizes / totals.n_points
    return sizes.assign(
        **{
            "mean set size": mean_size,
            "coverage": hits.values[0, 0],
            "lower": lower[0, 0],
            "upper": upper[0, 0],
        }
    )
