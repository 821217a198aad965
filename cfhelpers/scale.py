"""The search and the audit over data larger than memory.

Everything is computed from points per (label, true label or not, group, bin of the
score). One task counts one Parquet file; counts are kept on disk, and added up. Bins end
at the grid's points, so the guarantee needs one pass. The paper's rule and q̂ need the
scores in a few bins one by one, and those come from a second pass.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers import paths
from cfhelpers._binned import CountedScores, ScoreCounts, add_counts, counted_curve
from cfhelpers._checks import as_array, as_float_column, as_fraction, as_pandas
from cfhelpers._counting import Executor, Files, Run, as_files, look, other_files
from cfhelpers._parquet import count_file
from cfhelpers._questions import (
    as_question,
    cell_maps,
    finished_search,
    is_counted,
    with_all,
)
from cfhelpers._streaming import AtScale
from cfhelpers.auditing.missing import groups_with_missing
from cfhelpers.auditing.statistics import Audit, audit_counts
from cfhelpers.conformal import quantile_rank
from cfhelpers.control import (
    FairThreshold,
    Guarantee,
    Search,
    as_base_scores,
    default_grid,
    fixed_sequence,
)
from cfhelpers.fairness import positive_codes
from cfhelpers.groups import as_groups
from cfhelpers.metrics import METRICS, FairnessMetric, get_metric
from cfhelpers.scores import K_REG, PENALTY

NO_WEIGHTS = (
    "found some; files are counted, and counts have no weights: wanted none here. "
    "find_threshold and audit take weights in memory"
)


def counts(
    file: str | os.PathLike[str],
    *,
    edges: ArrayLike | None = None,
    score: str = "tps",
    random_state: int | None = 0,
    penalty: float = PENALTY,
    k_reg: int = K_REG,
    label: str | None = "label",
    groups: str | Sequence[str] = "group",
    columns: Sequence[str] | None = None,
    id: str | None = None,
) -> ScoreCounts:
    """Points of one Parquet file per label, true label or not, group and bin of score.

    Parameters
    ----------
    file : path
        A row per point.
    edges : numbers, optional
        Where bins end; by default the points of `control.default_grid()`.
    score : "tps", "aps" or "raps"
        How probabilities become scores.
    random_state : int or None
        The seed of a person's number u (`scores.person_u`); None: not randomised.
    penalty, k_reg
        Of RAPS.
    label : str or None
        The column of the true labels; None where points have none.
    groups : str, or several
        The column of the groups; several give a group per combination.
    columns : names, optional
        The columns of probabilities or scores, one per label, in the order of their
        thresholds. By default all that begin with p_, or with score_: labels that are
        integers ascending, others as in the first file.
    id : str, optional
        The column that says who each row is, for u; by default the row's probabilities
        do.

    Returns
    -------
    ScoreCounts
        Counts of two files are added with +.

    Examples
    --------
    >>> import tempfile
    >>> rows = pd.DataFrame({
    ...     "p_0": [0.9, 0.2], "p_1": [0.1, 0.8], "label": [0, 1], "group": ["a", "b"]
    ... })
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows.to_parquet(f"{folder}/one.parquet")
    ...     found = counts(f"{folder}/one.parquet", edges=[0.5])
    >>> found.counts[0].tolist()
    [[[1, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 0]]]
    """
    layout = look(
        [Path(file)], score, random_state, penalty, k_reg, label, groups, columns, id
    )
    chosen = as_edges(edges)
    no_notes = np.zeros((len(layout.columns), len(chosen) + 2), bool)
    return count_file(file, layout, chosen, no_notes)


def as_edges(edges: ArrayLike | None) -> np.ndarray:
    """Where bins end: finite numbers, ascending."""
    if edges is None:
        return default_grid()
    points = _finite_points(edges, "edges")
    if len(points) == 0:
        raise ValueError("edges: found no finite number; wanted at least one")
    return points


def _finite_points(values: ArrayLike, name: str) -> np.ndarray:
    """Finite numbers, ascending, each once."""
    points = np.unique(as_float_column(values, name).astype(np.float64))
    return points[np.isfinite(points)]


def _prepared(
    files: Files,
    *,
    metric: str | FairnessMetric,
    score: str = "tps",
    random_state: int | None = 0,
    penalty: float = PENALTY,
    k_reg: int = K_REG,
    label: str = "label",
    groups: str | Sequence[str] = "group",
    columns: Sequence[str] | None = None,
    id: str | None = None,
    group_names: Sequence[Any] = (),
    grid: ArrayLike | None = None,
    unlabelled: Files | None = None,
    pool_sizes: Mapping[Any, int] | None = None,
    base_scores: ArrayLike | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> AtScale:
    """Options checked and files looked at, before anything is counted."""
    _check_options(options, ", or of those that say how files are read")
    found = as_files(files)
    layout = look(found, score, random_state, penalty, k_reg, label, groups, columns, id)
    question = as_question(metric, layout.label_names, **options)
    kept = paths.ARTIFACTS / "scale" if folder is None else Path(folder)
    run = Run(found, layout, executor, address, kept, progress)
    more = None
    for name, given in (("unlabelled", unlabelled), ("pool_sizes", pool_sizes)):
        if given is not None and question.metric.needs_labels:
            raise ValueError(
                f"{name}: found some for {question.metric.name}; they are for "
                "demographic_parity and disparate_impact, which do not look at the "
                "true label"
            )
    if unlabelled is not None:
        others = other_files(unlabelled, found, "unlabelled")
        own = look(others, score, random_state, penalty, k_reg, None, groups, columns, id)
        run, more = _both_runs(run, others, own.dtype)
    has_guarantee = question.guarantee != Guarantee.NONE
    points = None
    if has_guarantee and (grid is not None or question.start is not None):
        points = default_grid() if grid is None else _finite_points(grid, "grid")
        start = question.start
        if start is not None:
            points = points[points < start]
            if math.isfinite(start):
                points = np.append(points, start)
    return AtScale(
        run=run,
        more=more,
        question=question,
        declared=tuple(group_names),
        grid=points,
        needs_range=has_guarantee and grid is None,
        pool_sizes=pool_sizes,
        base_scores=None if base_scores is None else as_base_scores(base_scores),
    )


def _both_runs(run: Run, others: list[Path], dtype: str) -> tuple[Run, Run]:
    """The run, and one over files without labels, in the wider type of the two."""
    wide = np.result_type(run.layout.dtype, dtype).name
    layout = replace(run.layout, dtype=wide)
    labelled = replace(run, layout=layout)
    return labelled, replace(run, files=others, layout=replace(layout, label=None))


def _check_options(options: Mapping[str, Any], others: str = "") -> None:
    """A sentence for an option of `find_threshold` that is not offered, or for none."""
    for name in ("sample_weight", "weight_bound", "sample_weights", "weights"):
        if name in options:
            raise ValueError(f"{name}: {NO_WEIGHTS}")
    known = list(inspect.signature(as_question).parameters)[2:]
    for name in options:
        if name not in known:
            raise TypeError(
                f"found an option {name!r}; wanted one of {', '.join(known)}{others}"
            )


def find_threshold_at_scale(
    files: Files,
    *,
    metric: str | FairnessMetric,
    closeness: float | Sequence[float] | None = None,
    delta: float = 0.1,
    **options: Any,
) -> Any:
    """What `find_threshold` finds on the rows of all files, in little memory.

    Parameters
    ----------
    files : paths, a folder, or a pattern
        Parquet files with the same columns, a row per point.
    metric : str
        One of `METRICS`; those with filters of your own need the points themselves.
    closeness, delta
        As in `find_threshold`.
    **options
        score, random_state, penalty, k_reg, label, groups, columns and id: as in
        `counts`. alpha, classwise, positive_labels, guarantee, grid, start, test,
        pool_sizes and base_scores: as in `find_threshold`; labels go by the names of
        their columns. unlabelled: more files, whose points have no labels.
        group_names: groups that count even if no point has them. executor: None for
        threads, "ray", or a function like map; address: of a Ray cluster. folder: where
        the counts of every file are kept; by default in the cache. progress: show a bar.

    Returns
    -------
    FairThreshold, or a list of them for several values of closeness

    Notes
    -----
    The guarantee takes one pass. The paper's rule takes a second one, over the few bins
    that can hold its answer. What was counted is kept: call again after a stop, and
    only the files that are not done, or that changed, are counted.
    """
    metric = get_metric(metric)
    is_several = closeness is not None and np.ndim(closeness) > 0
    given: list[Any] = [closeness]
    if is_several:
        given = np.asarray(closeness).tolist()
    values = [metric.allowed(value) for value in given]
    if not values:
        raise ValueError("closeness: found none; wanted at least one value")
    share = as_fraction(delta, "delta") / len(values)
    prepared = _prepared(files, metric=metric, delta=share, **options)
    limits = [metric.closeness(value) for value in values]
    finished = prepared.search(limits)
    results = [finished.find(value) for value in values]
    if is_several:
        return results
    return results[0]


def frontier_at_scale(
    files: Files, *, metric: str | FairnessMetric, **options: Any
) -> pd.DataFrame:
    """What `frontier` finds on the rows of all files.

    With the paper's rule the scores that can lie on the frontier must fit in memory;
    with the guarantee it is one pass in little memory.

    Parameters
    ----------
    files, metric, **options
        As in `find_threshold_at_scale`.

    Returns
    -------
    DataFrame
        closeness, threshold, mean_set_size and coverage, as `frontier` gives.
    """
    return _prepared(files, metric=metric, **options).search(None).frontier()


def audit_at_scale(
    files: Files,
    *,
    threshold: ArrayLike,
    metrics: Any = None,
    closeness: float | Mapping[str, float] | None = None,
    confidence: float = 0.95,
    positive_labels: ArrayLike | None = None,
    score: str = "tps",
    random_state: int | None = 0,
    penalty: float = PENALTY,
    k_reg: int = K_REG,
    label: str = "label",
    groups: str | Sequence[str] = "group",
    columns: Sequence[str] | None = None,
    id: str | None = None,
    group_names: Sequence[Any] = (),
    unlabelled: Files | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = True,
    sample_weight: None = None,
) -> Audit:
    """What `audit` finds on the rows of all files, at a threshold, in one pass.

    Parameters
    ----------
    files : paths, a folder, or a pattern
    threshold : float or (K,)
        The scores at most this large are in the sets.
    metrics, closeness, confidence, positive_labels
        As in `audit`.
    score, random_state, penalty, k_reg, label, groups, columns, id
        As in `counts`. Points without a group form the group "missing".
    group_names, unlabelled, executor, address, folder, progress
        As in `find_threshold_at_scale`.
    sample_weight : None
        Weights are not offered here; `audit` takes them.

    Returns
    -------
    Audit
    """
    if sample_weight is not None:
        raise ValueError(f"sample_weight: {NO_WEIGHTS}")
    found = as_files(files)
    layout = look(found, score, random_state, penalty, k_reg, label, groups, columns, id)
    kept = paths.ARTIFACTS / "scale" if folder is None else Path(folder)
    run = Run(found, layout, executor, address, kept, progress)
    limits = _limits(threshold, len(layout.columns))
    finite = np.unique(limits[np.isfinite(limits)])
    edges = finite if len(finite) else np.zeros(1)
    no_notes = np.zeros((len(layout.columns), len(edges) + 2), bool)
    more = None
    if unlabelled is not None:
        others = other_files(unlabelled, found, "unlabelled")
        own = look(others, score, random_state, penalty, k_reg, None, groups, columns, id)
        run, more = _both_runs(run, others, own.dtype)
    labelled = run.count(edges, no_notes)
    if labelled.n_points == 0:
        raise ValueError("files: found no rows; wanted at least one point")
    everyone = labelled
    if more is not None:
        everyone = add_counts([labelled, more.count(edges, no_notes)])
    return _audit(
        labelled,
        everyone,
        limits,
        metrics,
        closeness,
        confidence,
        positive_labels,
        group_names,
    )


def _limits(threshold: ArrayLike, n_classes: int) -> np.ndarray:
    """One threshold per label."""
    limits = as_array(threshold).astype(np.float64)
    if limits.shape not in ((), (n_classes,)):
        raise ValueError(
            f"threshold: found shape {limits.shape}; "
            f"wanted one number, or one per label ({n_classes},)"
        )
    if np.isnan(limits).any():
        raise ValueError("threshold: found NaN; wanted numbers, infinity allowed")
    return np.broadcast_to(limits, (n_classes,))


def _audit(
    labelled: ScoreCounts,
    everyone: ScoreCounts,
    limits: np.ndarray,
    metrics: Any,
    closeness: float | Mapping[str, float] | None,
    confidence: float,
    positive_labels: ArrayLike | None,
    declared: Sequence[Any],
) -> Audit:
    """The audit of counts whose bins end at the thresholds."""
    if metrics is None:
        metrics = [name for name, metric in METRICS.items() if is_counted(metric)]
    names = list(dict.fromkeys([*everyone.group_names, *declared]))
    sizes = dict(zip(everyone.group_names, everyone.group_sizes, strict=True))
    if None in names and sizes[None] == 0:
        names.remove(None)
    people: Any = pd.Series(names, dtype=object)
    if names and isinstance(names[0], tuple):
        people = pd.DataFrame(names, dtype=object)
    groups = groups_with_missing(people, len(names))
    every = with_all(names, everyone.group_names)
    parts = []
    for own in (labelled, everyone):
        known = own.with_groups(every)
        kept = known.counts[:, :, : len(names)]
        known = replace(known, counts=kept, group_names=names)
        parts.append(known.renamed(groups).at_thresholds(limits))
    labels = positive_codes(positive_labels, everyone.label_names)
    return audit_counts(
        parts[0],
        parts[1],
        metrics,
        closeness,
        confidence,
        labels,
        everyone.label_names,
        everyone.n_points - labelled.n_points,
    )


@dataclass(frozen=True)
class FromCounts:
    """Threshold, frontier and audit from counts alone, without the points.

    Every score counts as the end of its bin. Bins that were fixed beforehand make that
    exact for the guarantee, whose grid are the bins' ends; q̂ is the end of its bin.
    """

    counted: ScoreCounts
    is_fixed: bool  # whether the bins were named, and not only found in the table

    def find_threshold(
        self,
        metric: str | FairnessMetric,
        closeness: float | None = None,
        **options: Any,
    ) -> FairThreshold:
        """As `control.find_threshold`; the grid of a guarantee are the bins' ends."""
        asked = get_metric(metric)
        return self._search(asked, options).find(asked.allowed(closeness))

    def frontier(self, metric: str | FairnessMetric, **options: Any) -> pd.DataFrame:
        """As `control.frontier`."""
        return self._search(get_metric(metric), options).frontier()

    def audit(
        self,
        threshold: ArrayLike,
        metrics: Any = None,
        closeness: float | Mapping[str, float] | None = None,
        confidence: float = 0.95,
        positive_labels: ArrayLike | None = None,
    ) -> Audit:
        """As `audit`, at thresholds that are ends of bins."""
        limits = _limits(threshold, len(self.counted.label_names))
        for limit in limits[np.isfinite(limits)]:
            if limit not in self.counted.edges:
                raise ValueError(
                    f"threshold: found {limit:g}, where no bin ends; wanted one of the "
                    "bins' ends"
                )
        counted = self.counted
        return _audit(
            counted, counted, limits, metrics, closeness, confidence, positive_labels, ()
        )

    def _search(self, metric: FairnessMetric, options: Mapping[str, Any]) -> Search:
        _check_options(options)
        counted = self.counted
        question = as_question(metric, counted.label_names, **options)
        if question.guarantee != Guarantee.NONE and not self.is_fixed:
            raise ValueError(
                "edges: found none; a guarantee needs bins that were fixed without the "
                "calibration data: name their ends"
            )
        rank = quantile_rank(counted.n_labelled, question.alpha)
        base = math.inf
        if rank <= counted.n_labelled:
            place = counted.rank_bin(rank)
            if place < len(counted.edges):
                base = float(counted.edges[place])
        curves = []
        for cells in cell_maps(question, counted, None):
            scores = CountedScores.build(counted, cells.columns, base)
            if question.level is None:
                curves.append(counted_curve(scores, cells))
                continue
            grid = counted.edges[counted.edges >= base]
            if question.start is not None:
                grid = grid[grid <= question.start]
            from_infinity = question.start is None
            curves.append(
                fixed_sequence(scores, cells, grid, question.level, from_infinity)
            )
        return finished_search(counted, counted.n_labelled, question, base, curves)


def from_counts(
    table: pd.DataFrame,
    *,
    edges: ArrayLike | None = None,
    group_names: Sequence[Any] = (),
) -> FromCounts:
    """Threshold, frontier and audit from a table of counts, as a query gives it.

    Parameters
    ----------
    table : DataFrame
        label, true_label (whether the point's true label is this one), group, score (the
        end of the bin, which belongs to it; infinite above the last) and n. Rows of the
        same cell are added up, so tables of several sites are simply concatenated.
    edges : numbers, optional
        Where bins end, if that was fixed beforehand: a guarantee needs it.
    group_names : names
        Groups that count even if no point has them.

    Returns
    -------
    FromCounts

    Examples
    --------
    >>> table = pd.DataFrame({
    ...     "label": [0, 1, 0, 1],
    ...     "true_label": [True, False, False, True],
    ...     "group": ["a", "a", "b", "b"],
    ...     "score": [0.25, 1.0, 1.0, 0.25],
    ...     "n": [50, 50, 40, 40],
    ... })
    >>> from_counts(table).find_threshold("overall_accuracy_equality").base_threshold
    0.25
    """
    table = _as_counts_table(table)
    ends = _numbers_of(table, "score")
    points = as_edges(ends if edges is None else edges)
    is_known = np.isin(ends, points) | np.isposinf(ends)
    if not is_known.all():
        raise ValueError(
            f"table: found a bin that ends at {ends[~is_known][0]:g}; wanted the ends "
            "that `edges` names"
        )
    n = _numbers_of(table, "n")
    if (n < 0).any() or np.isinf(n).any() or (n != np.floor(n)).any():
        raise ValueError("table: found a count that is no whole number in column n")
    is_true = _numbers_of(table, "true_label")
    if not np.isin(is_true, (0, 1)).all():
        raise ValueError(
            f"table: found {is_true.max():g} in column true_label; wanted True or False"
        )
    labels = _label_order(table["label"])
    label = pd.Index(labels, dtype=object).get_indexer(
        pd.Index(table["label"].tolist(), dtype=object)
    )
    groups = as_groups(table["group"], len(table)).declare(group_names)
    shape = (len(labels), 2, len(groups), len(points) + 2)
    counted = np.zeros(shape, np.int64)
    place = np.searchsorted(points, ends)
    is_other = (is_true == 0).astype(int)
    np.add.at(counted, (label, is_other, groups.codes, place), n.astype(np.int64))
    _check_points(counted, labels, groups.names)
    return FromCounts(
        ScoreCounts(
            counts=counted,
            edges=points,
            label_names=labels,
            group_names=groups.names,
            is_noted=np.zeros((len(labels), len(points) + 2), bool),
            values=np.empty(0),
            kinds=np.empty(0, np.int32),
        ),
        is_fixed=edges is not None,
    )


def _as_counts_table(table: Any) -> pd.DataFrame:
    """A table of counts with the columns it needs, nothing in them missing."""
    table = as_pandas(table)
    needed = ["label", "true_label", "group", "score", "n"]
    if not isinstance(table, pd.DataFrame):
        raise ValueError(
            f"table: found a {type(table).__name__}; wanted a data frame with the "
            f"columns {', '.join(needed)}"
        )
    absent = [name for name in needed if name not in table.columns]
    if absent:
        raise ValueError(
            f"table: found no column {', '.join(absent)}; wanted {', '.join(needed)}"
        )
    if len(table) == 0:
        raise ValueError("table: found no rows; wanted at least one")
    for name in needed:
        is_missing = table[name].isna().to_numpy()
        if is_missing.any():
            raise ValueError(f"table: row {int(is_missing.argmax())} has no {name}")
    return table


def _numbers_of(table: pd.DataFrame, name: str) -> np.ndarray:
    """A column of numbers; texts are none, not even "0.5" or "false"."""
    column = table[name]
    for row, value in enumerate(column.tolist()):
        if isinstance(value, str):
            raise ValueError(
                f"table: found the text {value!r} in row {row} of column {name}; wanted "
                + ("True or False" if name == "true_label" else "a number")
            )
    return column.to_numpy(np.float64)


def _check_points(counted: np.ndarray, labels: list[Any], groups: list[Any]) -> None:
    """A ValueError unless every point is there once for each label, once as its own."""
    points = counted.sum(axis=(1, 3))
    owners = counted[:, 0].sum(axis=(0, 2))
    for group, name in enumerate(groups):
        own = points[:, group]
        if (own != own[0]).any():
            told = ", ".join(
                f"{label}: {k:,}" for label, k in zip(labels, own, strict=True)
            )
            raise ValueError(
                f"table: found different numbers of points by label in group {name!r} "
                f"({told}); wanted every point once for each label"
            )
        if owners[group] > own[0]:
            raise ValueError(
                f"table: found {owners[group]:,} true labels for {own[0]:,} points in "
                f"group {name!r}; wanted true_label to be True for one label of a point"
            )


def _label_order(column: pd.Series) -> list[Any]:
    """The labels, in the order of their names where they have one."""
    return as_groups(pd.Series(column.tolist(), dtype=object), len(column)).names
