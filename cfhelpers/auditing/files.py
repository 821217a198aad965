"""The audit of a file of predictions, by every group column, and what would mend it."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import __version__, conformal, control
from cfhelpers import scores as score_functions
from cfhelpers._checks import as_float_column, as_fraction, one_of
from cfhelpers._written import json_number
from cfhelpers.auditing.reading import (
    DECISIONS,
    PROBABILITIES,
    SCORES,
    SETS,
    Predictions,
    list_items,
    load_predictions,
)
from cfhelpers.auditing.statistics import (
    Audit,
    audit,
    never_within,
    weights_sentence,
)
from cfhelpers.auditing.verdicts import VACUOUS, Verdict
from cfhelpers.auditing.weighting import Weights
from cfhelpers.auditing.words import composed, counted
from cfhelpers.groups import Groups
from cfhelpers.metrics import FairnessMetric, get_metric

# The metrics of a file, if none are named.
USUAL_METRICS = (
    "equal_opportunity",
    "disparate_impact",
    "overall_accuracy_equality",
)
# For scores of the file's own, whose range is not known: thresholds that no row chose.
LARGE_SCORES = 10 ** (np.arange(2001) / 1000 * 3)
WIDE_GRID = np.concatenate([-LARGE_SCORES, control.default_grid(), LARGE_SCORES])
DIGITS = 6  # of probabilities, where they tell people apart; as in the classifier
HAIR = 1e-12  # by which a probability may miss a cut-off: the last bits do not matter
EFFECT_COLUMNS = ["disparity", "lower", "upper", "closeness", "verdict"]
MOST_CELLS = 5  # cells with too few rows that are told by name
FEW_PLACES = 10  # labels of which each cut-off is told by itself

AS_IT_IS = "as it is"
ONE_FOR_ALL_LABELS = "one for all labels"
ONE_PER_LABEL = "one per label"


@dataclass(frozen=True)
class Source:
    """Where an audit comes from, so that it can be done again.

    Attributes
    ----------
    path : str
        The file, as it was named.
    sha256 : str
    rows, audited : int
        Rows of the file, and those that the audits are about.
    date : str
        In UTC.
    version : str
        Of this package.
    options : dict
        Every option of `audit_file` with its value.
    command : str
        The command line; empty from Python.
    """

    path: str
    sha256: str
    rows: int
    audited: int
    date: str
    version: str
    options: dict[str, Any]
    command: str = ""


@dataclass(frozen=True)
class FileWeights:
    """What weights did to the audit of a file."""

    column: str
    replicates: int
    rule: str
    effective: float
    sentence: str


@dataclass(frozen=True)
class FileAudit:
    """Audits of a file of predictions. `str()` says them in words.

    Attributes
    ----------
    name : str
        The name of the file.
    kind : str
        What it holds: probabilities, scores, sets or decisions.
    label_names, positive_labels : lists of str
        All labels, and those that are compared.
    y : integers (n,)
        The true label of every row, as a place in `label_names`.
    scores : float (n, K) or None
        None where the file holds sets.
    threshold : float (1,) or (K,), or None
        The threshold of the sets, one or one per label.
    alpha, delta : float
        The miscoverage of conformal sets, and how often a guarantee may fail.
    groups : dict of Groups
        By each group column, and by their combinations.
    calibration, audited : bool (n,)
        The rows that thresholds are found on, and those that the audits are about.
    audits : dict of Audit
        With the keys of `groups`.
    sets : bool (n, K)
        The sets of all rows.
    source : Source
        Where it comes from.
    reading : list of str
        How the file was read, in sentences.
    rule : str
        How the sets were made, in a sentence.
    missing : dict
        Audited rows without a group, by the keys of `groups`.
    missing_rule : str
        separate or exclude.
    joint : bool
        Whether all verdicts together share the error.
    weights : FileWeights or None
    person_weights : Weights or None
        One per row.
    score : str
        What made scores of probabilities.
    seed : int
    has_ids : bool
        Whether a column says who each row is.
    """

    name: str
    kind: str
    label_names: list[str]
    positive_labels: list[str]
    y: np.ndarray
    scores: np.ndarray | None
    threshold: np.ndarray | None
    alpha: float
    delta: float
    groups: dict[str, Groups]
    calibration: np.ndarray
    audited: np.ndarray
    audits: dict[str, Audit]
    sets: np.ndarray
    source: Source
    reading: list[str] = field(default_factory=list)
    rule: str = ""
    missing: dict[str, int] = field(default_factory=dict)
    missing_rule: str = "separate"
    joint: bool = False
    weights: FileWeights | None = None
    person_weights: Weights | None = None
    score: str = "tps"
    seed: int = 0
    has_ids: bool = False

    def __str__(self) -> str:
        n_audited = int(self.audited.sum())
        verb = "is" if n_audited == 1 else "are"
        lines = [
            f"{self.name}: {n_audited:,} of {counted(len(self.y), 'row')} {verb} audited;"
            f" labels compared: {self._compared_labels}"
        ]
        lines += [f"  {sentence}" for sentence in [*self.reading, self.rule]]
        note = ""
        for name, found in self.audits.items():
            first, *others = found.lines()
            lines += [f"by {name}: {first}", *others]
            note = found.note
        if self.joint:
            note = ""
        return "\n".join([*lines, *filter(None, [note]), f"  {self.joint_sentence}"])

    @property
    def _compared_labels(self) -> str:
        """The labels that are compared, and of which they are some."""
        if self.positive_labels == self.label_names:
            return f"all, which are {', '.join(self.label_names)}"
        return f"{', '.join(self.positive_labels)}, of {', '.join(self.label_names)}"

    @property
    def people(self) -> int:
        """Who were audited."""
        return int(self.audited.sum())

    @property
    def n_verdicts(self) -> int:
        """Verdicts in all: groupings times metrics."""
        return sum(len(found.shares) for found in self.audits.values())

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Every verdict with what it rests on, by grouping and metric."""
        n_sharing = 1 if self.joint else self.n_verdicts
        records = []
        for by, found in self.audits.items():
            for metric in found.shares:
                records.append(found.record(metric, by, n_sharing))
        return records

    @property
    def joint_sentence(self) -> str:
        """What becomes of the verdicts if all of them together share the error."""
        gamma = 1 - next(iter(self.audits.values())).confidence
        n = counted(self.n_verdicts, "verdict")
        if self.joint:
            total = gamma * self.n_verdicts
            return (
                f"The {n} are joint: that any of them is wrong has probability at most "
                f"{total:.2g}."
            )
        if self.n_verdicts == 1:
            return "It is the only verdict."
        changed = []
        for record in self.verdicts:
            if record.joint != record.verdict:
                changed.append(
                    f"{record.metric} by {record.grouping} {record.joint} instead of "
                    f"{record.verdict}"
                )
        outcome = "; ".join(changed) or "all stay as they are"
        return f"Jointly, with that probability shared by the {n} (--joint): {outcome}."

    @property
    def cutoffs(self) -> dict[str, float] | None:
        """Thresholds as probabilities, by label; None where scores are no such thing."""
        if self.threshold is None or not self._has_cutoffs:
            return None
        values = np.broadcast_to(self.threshold, len(self.label_names))
        return dict(zip(self.label_names, as_cutoffs(values).tolist(), strict=True))

    @property
    def _has_cutoffs(self) -> bool:
        """Whether a threshold is a probability in disguise."""
        return self.kind == PROBABILITIES and self.score == "tps"

    def fixes(self, by: str, metric: str) -> pd.DataFrame:
        """The thresholds that would mend a metric, and what they do to the sets.

        The thresholds are found on the calibration rows, and all rows of the table are
        measured on the others. The sets as they are come first; then one threshold for
        all labels and one per label, each by the paper's rule and with a guarantee, which
        fails with probability at most `delta`. With one per label, labels that are not
        compared keep theirs.

        Parameters
        ----------
        by : str
            A key of `groups`.
        metric : str
            One of the metrics that were audited.

        Returns
        -------
        DataFrame
            A row per kind of thresholds and guarantee: mean set size, coverage, the
            disparity with its interval, closeness and verdict, the threshold per label,
            in `note` why no finite threshold was found, `price` in labels per set,
            `cutoff` (thresholds as probabilities, or None), `rows` that were measured,
            `vacuous` (where a label compared is in every set, or in none), and `served`:
            what `FairConformalClassifier.from_dict` takes, or None.
        """
        if self.scores is None or self.threshold is None:
            raise ValueError(
                f"{self.name}: found {self.kind}; "
                "thresholds can be found for probabilities or scores only"
            )
        threshold = np.broadcast_to(self.threshold, len(self.label_names))
        rows = {(AS_IT_IS, ""): self._row(threshold, by, metric, "")}
        kinds = [ONE_FOR_ALL_LABELS]
        if get_metric(metric).per_label:
            kinds.append(ONE_PER_LABEL)
        for kind in kinds:
            for guarantee in control.GUARANTEES:
                found = self._fair_threshold(by, metric, kind, guarantee)
                row = self._row(found.threshold, by, metric, self._note(found))
                row["served"] = self._served(found, by, kind)
                rows[kind, guarantee] = row
        index = pd.MultiIndex.from_tuples(list(rows), names=["thresholds", "guarantee"])
        table = pd.DataFrame(list(rows.values()), index=index)
        price = table["mean set size"] - table["mean set size"].iloc[0]
        return table.assign(price=price)

    def served(
        self,
        by: str,
        metric: str,
        thresholds: str = ONE_PER_LABEL,
        guarantee: str = "fixed-sequence",
    ) -> dict[str, Any]:
        """A fix as plain JSON that `FairConformalClassifier.from_dict` serves.

        Parameters
        ----------
        by, metric : str
            As in `fixes`.
        thresholds : str
            "one for all labels" or "one per label".
        guarantee : str
            "none" or "fixed-sequence".

        Returns
        -------
        dict
        """
        if self.kind != PROBABILITIES:
            raise ValueError(
                f"{self.name}: found {self.kind}; a fix can be served for probabilities "
                "only"
            )
        one_of(by, "by", tuple(self.groups))
        one_of(metric, "metric", tuple(self.audits[by].shares))
        one_of(thresholds, "thresholds", (ONE_FOR_ALL_LABELS, ONE_PER_LABEL))
        if not get_metric(metric).per_label:
            thresholds = ONE_FOR_ALL_LABELS
        found = self._fair_threshold(by, metric, thresholds, guarantee)
        served = self._served(found, by, thresholds)
        assert served is not None
        return served

    @property
    def _positive_codes(self) -> list[int]:
        """The labels that are compared, as places in `label_names`."""
        return [self.label_names.index(name) for name in self.positive_labels]

    def _closeness(self, by: str, metric: str) -> float:
        """What is allowed."""
        return self.audits[by].disparities["closeness"][metric]

    @cached_property
    def _calibrations(self) -> dict[str, control.Calibration]:
        """The calibration rows by grouping, sorted once."""
        return {}

    def _calibration(self, by: str) -> control.Calibration:
        """The calibration rows with the groups of one grouping."""
        if by not in self._calibrations:
            assert self.scores is not None
            self._calibrations.clear()  # one at a time, for the memory's sake
            self._calibrations[by] = control.Calibration(
                self.scores[self.calibration],
                self.y[self.calibration],
                self.groups[by].take(self.calibration),
                alpha=self.alpha,
                positive_labels=self._positive_codes,
            )
        return self._calibrations[by]

    def _grid(self) -> np.ndarray | None:
        """Thresholds for the guarantee, which neither calibration nor audited rows chose.

        None, which means the usual grid, where scores are between 0 and 1.
        """
        assert self.scores is not None
        scores = self.scores[self.calibration]
        if scores.max() <= 1 + control.ROUNDING and scores.min() >= 0:
            return None
        return WIDE_GRID

    def _fair_threshold(
        self, by: str, metric: str, kind: str, guarantee: str
    ) -> control.FairThreshold:
        """What the search finds on the calibration rows.

        With one threshold per label, labels that are not compared keep theirs.
        """
        assert self.threshold is not None
        search = self._calibration(by).search(
            metric,
            classwise=kind == ONE_PER_LABEL,
            guarantee=guarantee,
            delta=self.delta,
            grid=self._grid(),
        )
        found = search.find(self._closeness(by, metric))
        if kind != ONE_PER_LABEL:
            return found
        threshold = np.array(np.broadcast_to(self.threshold, len(self.label_names)))
        threshold[self._positive_codes] = found.threshold[self._positive_codes]
        return replace(found, threshold=threshold)

    def _note(self, found: control.FairThreshold) -> str:
        """Why there is no finite threshold, in a sentence with groups and labels."""
        if found.feasible:
            return ""
        text = "no finite threshold does"
        if not found.satisfied:
            text += ", and sets of all labels do not either"
        if math.isinf(found.base_threshold):
            coverage = f"{1 - self.alpha:g}"
            return f"{text}: too few calibration rows for a coverage of {coverage}"
        closest = control.told_closeness(found.smallest_closeness, found.is_ratio)
        if closest:
            text += f"; the closest that one comes is {closest}"
        if found.blocking_cells:
            text += f"; {self._blocking_cells(found)}"
        return text

    def _blocking_cells(self, found: control.FairThreshold) -> str:
        """Which groups and labels have too few calibration rows for a threshold."""
        cells = []
        for group, label, n in found.blocking_cells[:MOST_CELLS]:
            whose = (
                "" if label is None else f" with the label “{self.label_names[label]}”"
            )
            cells.append(f"“{group}”{whose} ({n:,})")
        n_others = len(found.blocking_cells) - len(cells)
        if n_others:
            cells.append(counted(n_others, "other cell"))
        text = f"too few calibration rows: {', '.join(cells)}"
        if found.points_needed >= control.MANY:
            return f"{text}; no number of rows would do"
        return f"{text}; each needs {found.points_needed:,}"

    def _row(
        self, threshold: np.ndarray, by: str, metric: str, note: str
    ) -> dict[str, Any]:
        """Size, coverage and disparity of the sets on the rows outside calibration."""
        assert self.scores is not None
        new = ~self.calibration
        sets = conformal.prediction_sets(self.scores[new], threshold)
        compared = get_metric(metric)
        closeness = self._closeness(by, metric)
        vacuous = self._vacuous(sets, compared)
        row: dict[str, Any] = {
            "mean set size": conformal.efficiency(sets),
            "coverage": conformal.coverage(sets, self.y[new]),
        }
        labels = []
        for label in self._positive_codes:
            if compared.is_predictive or np.isfinite(threshold[label]):
                labels.append(label)
        if labels:
            row |= self._effect(sets, new, by, metric, labels)
        else:
            row |= _no_disparity(compared, closeness)
        if vacuous and row["verdict"] != "beyond":
            row["verdict"] = VACUOUS
        cutoff = as_cutoffs(threshold) if self._has_cutoffs else None
        return row | {
            "threshold": threshold,
            "note": note,
            "cutoff": cutoff,
            "rows": int(new.sum()),
            "vacuous": vacuous,
            "served": None,
        }

    def _effect(
        self, sets: np.ndarray, new: np.ndarray, by: str, metric: str, labels: list[int]
    ) -> dict[str, Any]:
        """The disparity of sets, with its interval and verdict."""
        weights = None
        if self.person_weights is not None:
            weights = self.person_weights.take(new)
        found = audit(
            sets,
            self.y[new],
            self.groups[by].take(new),
            metric,
            self._closeness(by, metric),
            confidence=self.audits[by].confidence,
            positive_labels=labels,
            sample_weight=weights,
        )
        return {column: found.disparities[column].iloc[0] for column in EFFECT_COLUMNS}

    def _vacuous(self, sets: np.ndarray, metric: FairnessMetric) -> str:
        """Whether every set holds all labels that are compared, or none does."""
        chosen = sets
        if metric.per_label:
            chosen = sets[:, self._positive_codes]
        names = "every label"
        if metric.per_label and self.positive_labels != self.label_names:
            names = ", ".join(f"“{name}”" for name in self.positive_labels)
        if chosen.all():
            return f"every set holds {names}"
        if not chosen.any():
            return (
                "every set is empty"
                if names == "every label"
                else f"no set holds {names}"
            )
        return ""

    def _served(
        self, found: control.FairThreshold, by: str, kind: str
    ) -> dict[str, Any] | None:
        """What `FairConformalClassifier.from_dict` takes."""
        if self.kind != PROBABILITIES:
            return None
        classes = _classes(self.label_names)
        columns = [f"p_{name}" for name in self.label_names]
        return {
            "class": "FairConformalClassifier",
            "version": __version__,
            "takes": PROBABILITIES,
            "conformity_score": {"name": self.score, "options": {}},
            "randomized": True,
            "seed": self.seed,
            "ids": self.has_ids,
            "classes": classes,
            "columns": columns,
            "n_features": len(classes),
            "feature_names": columns,
            "threshold": [json_number(value) for value in found.threshold],
            "base_threshold": json_number(found.base_threshold),
            "classwise": kind == ONE_PER_LABEL,
            "small_groups": "keep",
            "promise": {
                "metric": str(found.metric),
                "closeness": float(found.closeness),
                "guarantee": str(found.guarantee),
                "delta": self.delta,
                "alpha": self.alpha,
                "labels": [classes[code] for code in self._positive_codes],
                "groups": list(self.groups[by].names),
                "pooled": [],
                "left_out": [],
            },
        }


def as_cutoffs(threshold: np.ndarray) -> np.ndarray:
    """Thresholds of 1 - p as probabilities: p at least this is in the set.

    Examples
    --------
    >>> as_cutoffs(np.array([0.7, np.inf])).tolist()
    [0.3, 0.0]
    """
    return np.round(np.clip(1 - threshold, 0, 1), 9)


def _classes(label_names: list[str]) -> list[Any]:
    """Labels as a classifier has them: whole numbers as numbers."""
    if all(str(name).isdigit() and str(int(name)) == name for name in label_names):
        return [int(name) for name in label_names]
    return list(label_names)


def _no_disparity(metric: FairnessMetric, closeness: float) -> dict[str, Any]:
    """Where every set holds all labels compared, there is nothing to estimate."""
    equal = float(metric.is_ratio)
    return {
        "disparity": equal,
        "lower": equal,
        "upper": equal,
        "closeness": closeness,
        "verdict": VACUOUS,
    }


def audit_file(
    path: str | os.PathLike[str],
    *,
    label: str = "",
    groups: str | Sequence[str] = "",
    columns: str | Sequence[str] = "",
    kind: str = "",
    part: str = "",
    id: str = "",
    threshold: str | float | Sequence[float] = "",
    cutoff: str | float | Sequence[float] = "",
    metrics: str | Sequence[str] = "",
    positive_labels: str | Sequence[Any] = "",
    closeness: str | float | Mapping[str, float] | None = "",
    alpha: float = 0.1,
    score: str = "tps",
    delta: float = 0.1,
    confidence: float = 0.95,
    joint: bool = False,
    weights: str = "",
    replicates: str = "",
    missing: str = "separate",
    min_group: int = 0,
    group_order: str | Sequence[str] = "",
    seed: int = 0,
) -> FileAudit:
    """Audit a file with a row per person: CSV, compressed or not, parquet, Excel.

    Lists are given as such, or as text with commas; a name that has commas of its own
    stands in quotation marks.

    Parameters
    ----------
    path : path
        Text files may have commas, semicolons, tabs, bars or spaces between columns.
    label : str
        The column of the true labels, which go by the names of the other columns.
    groups : names
        One or more columns. Several are audited each, and in combination.
    columns : names
        Those of the probabilities, scores or sets, one per label; by default all that
        start with p_ or prob_, with score_, or with set_. One column may hold the
        probability of one of two labels, or a decision.
    kind : str
        What these columns hold: probabilities, scores, sets or decisions.
    part : str
        The column that says calibration or test for every row. By default half of the
        rows are drawn for calibration, with the seed.
    id : str
        The column that says who each row is. Randomised scores draw a person's number
        from it; by default from the row's probabilities. Either way a person's set is the
        same in any file and in any order.
    threshold : float, or one per label
        Of the scores. By default sets are conformal: q̂ is found on the calibration rows,
        at level 1 - alpha, and the other rows are audited.
    cutoff : float, or one per label
        The same as a probability: a label is in the set if its probability is at least
        this.
    metrics : names
        By default equal opportunity, disparate impact and overall accuracy equality.
    positive_labels : names
        The labels to compare, or "all". By default all but label 0 where labels are 0 to
        K - 1, and all of them where they have names.
    closeness : float, dict or str
        As in `audit`, or as text: "0.1", or "metric=0.1, …".
    alpha : float
        The miscoverage of conformal sets.
    score : "tps", "aps" or "raps"
        For conformal sets from probabilities.
    delta : float
        How often a guarantee may fail; see `FileAudit.fixes`.
    confidence : float
        Of every interval and every verdict.
    joint : bool
        Whether all verdicts together hold with this confidence, rather than each.
    weights : str
        The column that says whom each row stands for. Columns of the same name with a
        number behind are replicate weights.
    replicates : str
        How replicate weights make a variance: "sdr" (successive differences, the
        default), "brr", "jackknife"; or "none": they are not used.
    missing : "separate" or "exclude"
        Rows without a group form one, or are left out.
    min_group : int
        Groups with fewer rows become one.
    group_order : names
        Groups in this order, and then the others.
    seed : int
        Of the half that is drawn, and of randomised scores.

    Returns
    -------
    FileAudit

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> rows = "p_no,p_yes,y,group\\n" + "0.9,0.1,no,a\\n0.2,0.8,yes,b\\n" * 40
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "predictions.csv"
    ...     _ = file.write_text(rows)
    ...     found = audit_file(file, metrics="equal_opportunity")
    >>> found.label_names, found.positive_labels
    (['no', 'yes'], ['no', 'yes'])
    >>> found.audits["group"].verdicts
    {'equal_opportunity': 'cannot tell'}
    """
    given = {name: value for name, value in locals().items() if name != "path"}
    alpha = as_fraction(alpha, "alpha")
    delta = as_fraction(delta, "delta")
    confidence = as_fraction(confidence, "confidence")
    for name, whole in (("seed", seed), ("min_group", min_group)):
        if whole < 0:
            raise ValueError(f"{name}: found {whole}; wanted a number from 0 on")
    predictions = load_predictions(
        path,
        label,
        groups,
        columns,
        kind,
        part,
        id,
        positive_labels=positive_labels,
        weights=weights,
        replicates=replicates,
        missing=missing,
        min_group=min_group,
        group_order=group_order,
    )
    calibration = predictions.calibration
    if calibration is None:
        n = len(predictions.y)
        calibration = np.random.default_rng(seed).permutation(n) < n // 2
    made = _make_sets(predictions, calibration, threshold, cutoff, alpha, score, seed)
    audited = np.ones(len(calibration), bool)
    if predictions.calibration is not None or made.is_conformal:
        audited = ~calibration
    positive = _positive_names(positive_labels, predictions)
    asked = list_items(metrics) or list(USUAL_METRICS)
    if predictions.weights is not None:
        _check_weighted(asked)
    if joint:
        confidence = 1 - (1 - confidence) / (len(asked) * len(predictions.groups))
    audits = _audits(
        predictions,
        made.sets,
        audited,
        metrics=asked,
        closeness=_closeness_from_text(closeness),
        confidence=confidence,
        positive_labels=positive,
        label_names=predictions.label_names,
    )
    return FileAudit(
        name=predictions.name,
        kind=predictions.kind,
        label_names=predictions.label_names,
        positive_labels=positive,
        y=predictions.y,
        scores=made.scores,
        threshold=made.threshold,
        alpha=alpha,
        delta=delta,
        groups=predictions.groups,
        calibration=calibration,
        audited=audited,
        audits=audits,
        sets=made.sets,
        source=_source(path, predictions, audited, given),
        reading=_reading(predictions, calibration, made, seed),
        rule=_rule(predictions, made, alpha, score),
        missing=_missing_counts(predictions, audited),
        missing_rule=missing,
        joint=joint,
        weights=_file_weights(predictions, audited),
        person_weights=predictions.weights,
        score=score,
        seed=seed,
        has_ids=predictions.ids is not None,
    )


@dataclass(frozen=True)
class _Made:
    """Sets, and what they were made from."""

    sets: np.ndarray
    scores: np.ndarray | None = None
    threshold: np.ndarray | None = None
    is_conformal: bool = False


def _make_sets(
    predictions: Predictions,
    calibration: np.ndarray,
    threshold: Any,
    cutoff: Any,
    alpha: float,
    score: str,
    seed: int,
) -> _Made:
    """The sets of the file, or those of its probabilities or scores."""
    thresholds = list_items(threshold)
    cutoffs = list_items(cutoff)
    if predictions.kind in (SETS, DECISIONS):
        _refuse_thresholds(predictions.kind, thresholds, cutoffs)
        return _Made(predictions.values.astype(bool))
    n_labels = len(predictions.label_names)
    if cutoffs:
        if thresholds:
            raise ValueError("cutoff: wanted either a cut-off or a threshold, not both")
        values = _numbers_given(cutoffs, "cutoff", n_labels)
        thresholds = _thresholds_of_cutoffs(values, predictions.kind, score)
    elif thresholds:
        thresholds = _numbers_given(thresholds, "threshold", n_labels)
    scores = _label_scores(predictions, score, seed)
    is_conformal = not thresholds
    if is_conformal:
        true_scores = scores[calibration, predictions.y[calibration]]
        thresholds = [conformal.conformal_quantile(true_scores, alpha)]
    found = as_float_column(thresholds, "threshold")
    return _Made(_sets_at(scores, found), scores, found, is_conformal)


def _numbers_given(items: list[Any], option: str, n_labels: int) -> list[float]:
    """The numbers of an option: one, or one per label."""
    if len(items) not in (1, n_labels):
        raise ValueError(
            f"{option}: found {len(items)} numbers; wanted one, or one for each of the "
            f"{n_labels} labels"
        )
    values = []
    for item in items:
        try:
            value = float(item)
        except (TypeError, ValueError):
            value = math.nan
        if math.isnan(value):
            raise ValueError(f"{option}: found {item!r}; wanted a number")
        values.append(value)
    return values


def _thresholds_of_cutoffs(cutoffs: list[float], kind: str, score: str) -> list[float]:
    """Cut-offs of probabilities as thresholds of 1 - p."""
    if kind != PROBABILITIES or score != "tps":
        raise ValueError(
            f"cutoff: found {kind} and the score {score!r}; a cut-off goes with "
            "probabilities and the score 'tps'"
        )
    for value in cutoffs:
        if not 0 <= value <= 1:
            raise ValueError(f"cutoff: found {value:g}; wanted a probability, 0 to 1")
    return [1 - value + HAIR for value in cutoffs]


def _refuse_thresholds(kind: str, thresholds: list[Any], cutoffs: list[Any]) -> None:
    """A ValueError where a threshold makes no sense."""
    for option, given in (("threshold", thresholds), ("cutoff", cutoffs)):
        if given:
            found = ", ".join(map(str, given))
            raise ValueError(
                f"{option}: found {found} for {kind}; it goes with probabilities or "
                "scores"
            )


def _check_weighted(metrics: Sequence[str]) -> None:
    """A ValueError for metrics that are not offered with weights."""
    for metric in metrics:
        if get_metric(metric).is_size:
            raise ValueError(
                f"metrics: found {metric}, which is not offered with weights; wanted "
                "others, or no weights"
            )


def _audits(
    predictions: Predictions, sets: np.ndarray, audited: np.ndarray, **options: Any
) -> dict[str, Audit]:
    """An audit by every grouping; where all sets are the same, nothing is within."""
    weights = None
    if predictions.weights is not None:
        weights = predictions.weights.take(audited)
    own_sets = sets[audited]
    vacuous = _vacuous_sentence(own_sets, predictions.label_names)
    audits = {}
    for by, people in predictions.groups.items():
        found = audit(
            own_sets,
            predictions.y[audited],
            people.take(audited),
            sample_weight=weights,
            **options,
        )
        if vacuous:
            found = never_within(found, vacuous)
        audits[by] = found
    return audits


def _vacuous_sentence(sets: np.ndarray, label_names: list[str]) -> str:
    """A sentence where every set is the same, whoever the person is."""
    if len(sets) == 0 or (sets != sets[0]).any():
        return ""
    if sets[0].all():
        return "Vacuous: every set holds every label."
    if not sets[0].any():
        return "Vacuous: every set is empty."
    names = [name for name, held in zip(label_names, sets[0], strict=True) if held]
    return f"Vacuous: every set is the same, {', '.join(names)}."


def _source(
    path: Any, predictions: Predictions, audited: np.ndarray, given: dict[str, Any]
) -> Source:
    """The stamp of an audit."""
    now = datetime.datetime.now(datetime.UTC)
    options = {}
    for name, value in given.items():
        is_plain = isinstance(value, str | int | float | list | dict) or value is None
        options[name] = value if is_plain else str(value)
    return Source(
        path=str(path),
        sha256=predictions.sha256,
        rows=predictions.n_rows,
        audited=int(audited.sum()),
        date=now.isoformat(timespec="seconds"),
        version=__version__,
        options=options,
    )


def _reading(
    predictions: Predictions, calibration: np.ndarray, made: _Made, seed: int
) -> list[str]:
    """How the file was read, in sentences."""
    sentences = list(predictions.notes)
    n_calibration = counted(int(calibration.sum()), "row")
    if predictions.calibration is not None:
        sentences.append(f"The file marks {n_calibration} for calibration.")
    elif made.is_conformal:
        sentences.append(
            f"Drawn for calibration, with the seed {seed}: {n_calibration}. The others "
            "are audited."
        )
    if predictions.weights is not None and made.is_conformal:
        sentences.append("The threshold is found without weights.")
    return sentences


def _rule(predictions: Predictions, made: _Made, alpha: float, score: str) -> str:
    """How the sets were made, in a sentence."""
    if predictions.kind == SETS:
        return "The sets are those of the file."
    if predictions.kind == DECISIONS:
        return "Every set holds the label that was decided."
    assert made.threshold is not None
    names = predictions.label_names
    values = np.broadcast_to(made.threshold, len(names))
    if predictions.kind == PROBABILITIES and (values < 0).all():
        return "No label is in any set: the threshold is below every score."
    what = "score"
    side = "at most"
    if predictions.kind == PROBABILITIES and score == "tps":
        what = "probability"
        side = "at least"
        values = as_cutoffs(values)
    told = f"{values[0]:.6g}"
    if len(set(values.tolist())) > 1:
        parts = [f"{v:.6g} for {n}" for v, n in zip(values, names, strict=True)]
        told = ", ".join(parts[:FEW_PLACES])
    rule = f"A label is in the set if its {what} is {side} {told}"
    if made.is_conformal:
        return f"{rule}, found on the calibration rows for a coverage of {1 - alpha:g}."
    return f"{rule}."


def _missing_counts(predictions: Predictions, audited: np.ndarray) -> dict[str, int]:
    """Audited rows without a group, by grouping."""
    counts = {}
    for by, is_missing in predictions.missing.items():
        counts[by] = int((is_missing & audited).sum())
    return counts


def _file_weights(predictions: Predictions, audited: np.ndarray) -> FileWeights | None:
    """What the weights are and do."""
    if predictions.weights is None:
        return None
    weights = predictions.weights.take(audited)
    n_replicates = 0
    if weights.replicates is not None:
        n_replicates = weights.replicates.shape[1]
    return FileWeights(
        column=predictions.weights_column,
        replicates=n_replicates,
        rule=weights.rule if n_replicates else "",
        effective=weights.effective,
        sentence=weights_sentence(weights),
    )


def _label_scores(predictions: Predictions, score: str, seed: int) -> np.ndarray:
    """The scores of the file, or those of its probabilities."""
    if predictions.kind == SCORES:
        return predictions.values
    one_of(score, "score", ("tps", "aps", "raps"))
    if score == "tps":
        return score_functions.tps(predictions.values)
    people: Any = predictions.ids
    if people is None:
        people = np.round(predictions.values, DIGITS)
    uniforms = score_functions.person_u(people, seed)
    if score == "aps":
        return score_functions.aps(predictions.values, uniforms)
    return score_functions.raps(predictions.values, uniforms)


def _sets_at(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Sets at one threshold for all labels, or at one for each."""
    if len(thresholds) == 1:
        return conformal.prediction_sets(scores, thresholds[0])
    return conformal.prediction_sets(scores, thresholds)


def _positive_names(positive_labels: Any, predictions: Predictions) -> list[str]:
    """The names of the labels that are compared."""
    label_names = predictions.label_names
    positive = [composed(str(name)) for name in list_items(positive_labels)]
    if positive == ["all"] and "all" not in label_names:
        return label_names
    if positive:
        return positive
    if predictions.positive:
        return [predictions.positive]
    numbers = {str(number) for number in range(len(label_names))}
    if set(label_names) == numbers:
        return [name for name in label_names if name != "0"]
    return label_names


def _closeness_from_text(closeness: Any) -> Any:
    """What `audit` takes for a closeness, from "0.1" or "metric=0.1, …"."""
    if not isinstance(closeness, str):
        return closeness
    if not closeness:
        return None
    if "=" not in closeness:
        return _number_from_text(closeness)
    by_metric = {}
    for item in list_items(closeness):
        metric, _, value = item.partition("=")
        by_metric[metric] = _number_from_text(value)
    return by_metric


def _number_from_text(text: str) -> float | str:
    """A number, or the text itself, which is refused where a number is wanted."""
    try:
        return float(text)
    except ValueError:
        return text
