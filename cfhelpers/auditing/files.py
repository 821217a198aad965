"""The audit of a file of predictions, by every group column, and what would mend it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import conformal, control
from cfhelpers import scores as score_functions
from cfhelpers._checks import as_float_column, as_fraction, one_of
from cfhelpers.auditing.reading import (
    SCORES,
    SETS,
    Predictions,
    list_items,
    load_predictions,
)
from cfhelpers.auditing.statistics import TRUE_LABEL, Audit, audit
from cfhelpers.auditing.verdicts import WITHIN
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
EFFECT_COLUMNS = ["disparity", "lower", "upper", "closeness", "verdict"]

AS_IT_IS = "as it is"
ONE_FOR_ALL_LABELS = "one for all labels"
ONE_PER_LABEL = "one per label"


@dataclass(frozen=True)
class FileAudit:
    """Audits of a file of predictions. `str()` says them in words.

    Attributes
    ----------
    name : str
        The name of the file.
    kind : str
        What it holds: probabilities, scores or sets.
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

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.audited.sum():,} of {len(self.y):,} rows are audited; "
            f"labels compared: {', '.join(self.positive_labels)}, "
            f"of {', '.join(self.label_names)}"
        ]
        note = ""
        for name, found in self.audits.items():
            first, *others = found.lines()
            lines += [f"by {name}: {first}", *others]
            note = found.note
        return "\n".join([*lines, note])

    def fixes(self, by: str, metric: str) -> pd.DataFrame:
        """The thresholds that would mend a metric, and what they do to the sets.

        The thresholds are found on the calibration rows, and measured on the others. The
        sets as they are come first; then one threshold for all labels and one per label,
        each by the paper's rule and with a guarantee, which fails with probability at
        most `delta`.

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
            and in `note` why no finite threshold was found.
        """
        if self.scores is None or self.threshold is None:
            raise ValueError(
                f"{self.name}: found sets; "
                "thresholds can be found for probabilities or scores only"
            )
        grid = self._grid(self.scores)
        rows = {}
        threshold = np.broadcast_to(self.threshold, len(self.label_names))
        rows[AS_IT_IS, ""] = {
            **self._effect(self.scores, threshold, by, metric),
            "threshold": threshold,
            "note": "",
        }
        kinds = [ONE_FOR_ALL_LABELS]
        if get_metric(metric).per_label:
            kinds.append(ONE_PER_LABEL)
        for kind in kinds:
            for guarantee in control.GUARANTEES:
                found = self._fair_threshold(
                    self.scores,
                    by,
                    metric,
                    classwise=kind == ONE_PER_LABEL,
                    guarantee=guarantee,
                    grid=grid,
                )
                rows[kind, guarantee] = {
                    **self._effect(self.scores, found.threshold, by, metric),
                    "threshold": found.threshold,
                    "note": self._note(found),
                }
        index = pd.MultiIndex.from_tuples(list(rows), names=["thresholds", "guarantee"])
        return pd.DataFrame(list(rows.values()), index=index)

    @property
    def _positive_codes(self) -> list[int]:
        """The labels that are compared, as places in `label_names`."""
        return [self.label_names.index(name) for name in self.positive_labels]

    def _closeness(self, by: str, metric: str) -> float:
        """What is allowed."""
        return self.audits[by].disparities["closeness"][metric]

    def _grid(self, scores: np.ndarray) -> np.ndarray | None:
        """Thresholds for the guarantee, which neither calibration nor audited rows chose.

        None, which means the usual grid, where scores are between 0 and 1.
        """
        if scores.max() <= 1 + control.ROUNDING and scores.min() >= 0:
            return None
        return WIDE_GRID

    def _fair_threshold(
        self, scores: np.ndarray, by: str, metric: str, **options: Any
    ) -> control.FairThreshold:
        """What the search finds on the calibration rows."""
        return control.find_threshold(
            scores[self.calibration],
            self.y[self.calibration],
            self.groups[by].take(self.calibration),
            metric,
            self._closeness(by, metric),
            alpha=self.alpha,
            delta=self.delta,
            positive_labels=self._positive_codes,
            **options,
        )

    def _note(self, found: control.FairThreshold) -> str:
        """Why there is no finite threshold, with labels by name."""
        if found.feasible:
            return ""
        cells = []
        for group, label, n in found.blocking_cells:
            name = TRUE_LABEL if label is None else self.label_names[label]
            cells.append((group, name, n))
        return replace(found, blocking_cells=cells).why_infinite()

    def _effect(
        self, scores: np.ndarray, threshold: np.ndarray, by: str, metric: str
    ) -> dict[str, Any]:
        """Size, coverage and disparity of the sets on the rows outside calibration."""
        new = ~self.calibration
        sets = conformal.prediction_sets(scores[new], threshold)
        row: dict[str, Any] = {
            "mean set size": conformal.efficiency(sets),
            "coverage": conformal.coverage(sets, self.y[new]),
        }
        compared = get_metric(metric)
        closeness = self._closeness(by, metric)
        labels = []
        for label in self._positive_codes:
            if compared.is_predictive or np.isfinite(threshold[label]):
                labels.append(label)
        if not labels:
            return row | _no_disparity(compared, closeness)
        found = audit(
            sets,
            self.y[new],
            self.groups[by].take(new),
            metric,
            closeness,
            confidence=self.audits[by].confidence,
            positive_labels=labels,
        )
        for column in EFFECT_COLUMNS:
            row[column] = found.disparities[column].iloc[0]
        return row


def _no_disparity(metric: FairnessMetric, closeness: float) -> dict[str, Any]:
    """Where every set holds all labels compared, there is nothing to estimate."""
    equal = float(metric.is_ratio)
    return {
        "disparity": equal,
        "lower": equal,
        "upper": equal,
        "closeness": closeness,
        "verdict": WITHIN,
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
    metrics: str | Sequence[str] = "",
    positive_labels: str | Sequence[Any] = "",
    closeness: str | float | Mapping[str, float] | None = "",
    alpha: float = 0.1,
    score: str = "tps",
    delta: float = 0.1,
    confidence: float = 0.95,
    seed: int = 0,
) -> FileAudit:
    """Audit a CSV or parquet file with a row per point.

    Lists are given as such, or as text with commas.

    Parameters
    ----------
    path : path
        Text files may have commas, semicolons or tabs between columns.
    label : str
        The column of the true labels, which go by the names of the other columns.
    groups : names
        One or more columns. Several are audited each, and in combination.
    columns : names
        Those of the probabilities, scores or sets, one per label; by default all that
        start with p_ or prob_, with score_, or with set_.
    kind : str
        What these columns hold: probabilities, scores or sets.
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
    predictions = load_predictions(path, label, groups, columns, kind, part, id)
    alpha = as_fraction(alpha, "alpha")
    delta = as_fraction(delta, "delta")
    n = len(predictions.y)
    calibration = predictions.calibration
    if calibration is None:
        calibration = np.random.default_rng(seed).permutation(n) < n // 2
    given_threshold = list_items(threshold)
    finds_threshold = predictions.kind != SETS and not given_threshold
    audited = np.ones(n, bool)
    if predictions.calibration is not None or finds_threshold:
        audited = ~calibration
    scores = None
    thresholds = None
    if predictions.kind == SETS:
        sets = _sets_in_file(predictions, given_threshold)
    else:
        scores = _label_scores(predictions, score, seed)
        if finds_threshold:
            true_scores = scores[calibration, predictions.y[calibration]]
            given_threshold = [conformal.conformal_quantile(true_scores, alpha)]
        thresholds = as_float_column(given_threshold, "threshold")
        sets = _sets_at(scores, thresholds)
    positive = _positive_names(positive_labels, predictions.label_names)
    audits = {}
    for by, people in predictions.groups.items():
        audits[by] = audit(
            sets[audited],
            predictions.y[audited],
            people.take(audited),
            list_items(metrics) or USUAL_METRICS,
            _closeness_from_text(closeness),
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
        scores=scores,
        threshold=thresholds,
        alpha=alpha,
        delta=delta,
        groups=predictions.groups,
        calibration=calibration,
        audited=audited,
        audits=audits,
    )


def _sets_in_file(predictions: Predictions, threshold: list[Any]) -> np.ndarray:
    """The sets of the file, for which a threshold makes no sense."""
    if threshold:
        found = ", ".join(map(str, threshold))
        raise ValueError(
            f"threshold: found {found} for sets; it goes with probabilities or scores"
        )
    return predictions.values.astype(bool)


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


def _positive_names(positive_labels: Any, label_names: list[str]) -> list[str]:
    """The names of the labels that are compared."""
    positive = [str(name) for name in list_items(positive_labels)]
    if positive == ["all"]:
        return label_names
    if positive:
        return positive
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
