"""BatchGCP (Jung et al., 2023), solved to its optimum, and what it is worth.

It has a threshold for each group, by the scores of true labels. Unlike a conformally fair
threshold, it must be told the groups of everyone it predicts for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linprog
from tqdm.auto import tqdm

from cfhelpers import conformal, paths
from cfhelpers._checks import (
    as_array,
    as_float_column,
    as_fraction,
    as_positive_labels,
    as_scores,
)
from cfhelpers.cells import CellCounts
from cfhelpers.datasets import Dataset
from cfhelpers.groups import as_groups
from cfhelpers.metrics import METRICS
from cfhelpers.study import experiments
from cfhelpers.study.models import BaseModel
from cfhelpers.study.names import CF_ARMS, Arm
from cfhelpers.study.scoring import ScoredSplit, score_split

SCORE = "aps"
COMPARED = ("demographic_parity", "disparate_impact")
_TRUE_LABEL = METRICS["overall_accuracy_equality"]
# A metric, and on which label's coverage it is scored: as CF is, or as the authors scored
# BatchGCP.
MEASURES = {
    ("demographic_parity", "fixed label"): METRICS["demographic_parity"],
    ("demographic_parity", "true label"): _TRUE_LABEL,
    ("disparate_impact", "fixed label"): METRICS["disparate_impact"],
    ("disparate_impact", "true label"): replace(_TRUE_LABEL, compare="ratio"),
}


@dataclass(frozen=True)
class BatchGCP:
    """The fitted thresholds: f̂(x) = q̂ + Σ λ_g over the groups of x.

    Attributes
    ----------
    base_threshold : float
        The conformal quantile q̂.
    thresholds : dict
        By group, q̂ + λ_g: the threshold of a point that is in this group alone.
    """

    base_threshold: float
    thresholds: dict[Any, float]

    def threshold(self, groups: Any) -> np.ndarray:
        """The threshold of each point (n,), from its groups as in `fit`."""
        members, names = _members(groups, len(groups), n_fitted=len(self.thresholds))
        for name in names:
            if name not in self.thresholds:
                raise ValueError(
                    f"groups: found {name!r}; "
                    f"wanted those of the fit, {list(self.thresholds)}"
                )
        if np.isinf(self.base_threshold):
            return np.full(len(members), np.inf)
        alone = np.where(members, [self.thresholds[name] for name in names], 0)
        n_groups = members.sum(axis=1)
        return alone.sum(axis=1) + (1 - n_groups) * self.base_threshold

    def sets(self, scores: ArrayLike, groups: Any) -> np.ndarray:
        """The labels whose score is at most the point's own threshold, boolean (n, K)."""
        values = as_scores(scores)
        threshold = self.threshold(groups)
        if len(values) != len(threshold):
            raise ValueError(
                f"groups: found {len(threshold)} rows for {len(values)} points; "
                "wanted one for each point"
            )
        return values <= conformal.round_down(threshold, values.dtype)[:, None]


def fit(scores: ArrayLike, groups: Any, alpha: float = 0.1) -> BatchGCP:
    """The optimum of the pinball loss at level 1 - alpha over the groups' corrections λ.

    Where no point is in two groups, the optimum is each group's own conformal quantile,
    infinite for a group too small. Else it is a linear programme's, which leaves at most
    a share alpha of each group's calibration points uncovered.

    Parameters
    ----------
    scores : (n,)
        The calibration points' scores of their true labels.
    groups : (n,), or boolean (n, G)
        One name per point; or a column for each group, where a point may be in several
        or none.
    alpha : float
        The allowed miscoverage.

    Returns
    -------
    BatchGCP

    Examples
    --------
    >>> scores = [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]
    >>> fit(scores, ["a"] * 4 + ["b"] * 4, alpha=0.25).thresholds
    {'a': 0.4, 'b': 0.9}
    """
    values = as_float_column(scores, "scores")
    alpha = as_fraction(alpha, "alpha")
    members, names = _members(groups, len(values))
    has_points = members.any(axis=0)
    if not has_points.all():
        raise ValueError(
            f"groups: found nobody in {names[has_points.argmin()]!r}; "
            "wanted at least one point in each"
        )
    base = conformal.conformal_quantile(values, alpha)
    if members.sum(axis=1).max() <= 1 or np.isinf(base):
        thresholds = {}
        for name, member in zip(names, members.T, strict=True):
            thresholds[name] = conformal.conformal_quantile(values[member], alpha)
        return BatchGCP(base, thresholds)
    if np.isinf(values).any():
        raise ValueError(
            "scores: found an infinite one; wanted finite scores where groups overlap"
        )
    corrections = _pinball_optimum(values.astype(np.float64) - base, members, alpha)
    # f̂ goes through some of the points: rounding must not uncover them.
    above = (base + corrections + 1e-12).tolist()
    return BatchGCP(base, dict(zip(names, above, strict=True)))


def _members(
    groups: Any, n: int, n_fitted: int | None = None
) -> tuple[np.ndarray, list[Any]]:
    """Who is in which group, boolean (n, G), and the groups' names.

    Booleans must have as many columns as were fitted.
    """
    array = as_array(groups)
    if array.ndim != 2 or array.dtype != bool:
        found = as_groups(groups, n)
        return found.codes[:, None] == np.arange(len(found)), found.names
    n_groups = array.shape[1] if n_fitted is None else n_fitted
    if array.shape != (n, n_groups) or array.size == 0:
        raise ValueError(
            f"groups: found shape {array.shape}; wanted {(n, n_groups)}, "
            "a row per point, a column per group"
        )
    if isinstance(groups, pd.DataFrame):
        return array, list(groups)
    return array, list(range(n_groups))


def _pinball_optimum(
    residuals: np.ndarray, members: np.ndarray, alpha: float
) -> np.ndarray:
    """The λ (G,) of the optimum, by the dual of its linear programme.

    The dual has as many constraints as groups, and one bounded variable per point.
    """
    # SciPy's type hints know no sparse matrix here.
    constraints: Any = sparse.csr_array(members.T, dtype=np.float64)
    found = linprog(
        -residuals,
        A_eq=constraints,
        b_eq=np.zeros(members.shape[1]),
        bounds=(-alpha, 1 - alpha),
        method="highs-ds",
        # Presolve compares points in pairs: at 100,000 it takes 40 times the rest.
        options={"presolve": False},
    )
    if not found.success:
        raise RuntimeError(f"BatchGCP: {found.message}")
    return -found.eqlin.marginals


@dataclass(frozen=True)
class ArmOutcome:
    """What one arm covers on the test split, and by which metrics it is judged."""

    arm: Arm
    metrics: Sequence[str]
    c: float  # NaN for the arms that know no c
    counts: CellCounts


def run(
    dataset: Dataset,
    base: BaseModel,
    *,
    profile: str = "quick",
    splits: int = 10,
    closeness: Sequence[float] = experiments.CLOSENESS,
    alpha: float = 0.1,
    delta: float = 0.1,
    progress: bool = True,
) -> pd.DataFrame:
    """The base predictor, BatchGCP and conformal fairness, each scored in both ways.

    All take the same splits and the same randomised APS. Conformal fairness has one λ for
    each label, found for each of the two metrics, with a guarantee and without.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    profile : "quick" or "paper"
    splits : int
    closeness : list of float
        Asked of demographic parity; disparate impact is asked for four fifths.
    alpha, delta : float
    progress : bool
        Whether to show a bar.

    Returns
    -------
    DataFrame
        Tidy rows. Those with the metric "group_coverage" hold the true-label coverage of
        one `group` of `n` test points.
    """
    rows: list[dict[str, Any]] = []
    bar_name = f"BatchGCP, {dataset.name}"
    for split in tqdm(range(splits), bar_name, disable=not progress, leave=False):
        scored = score_split(dataset, base.probs, base.parts, SCORE, split, alpha=alpha)
        test = experiments.test_of(base.model, SCORE)
        for outcome in _outcomes(dataset, scored, closeness, alpha, delta, test):
            rows += outcome_rows(outcome, split)
    facts = experiments.run_facts(dataset, base, profile)
    return pd.DataFrame(rows).assign(**facts, score=SCORE)


def _outcomes(
    dataset: Dataset,
    scored: ScoredSplit,
    closeness: Sequence[float],
    alpha: float,
    delta: float,
    test: str,
) -> Iterator[ArmOutcome]:
    """Every arm on one split."""
    calibration = experiments.calibrate(dataset, scored, alpha)
    true_scores = scored.scores[scored.calibration, dataset.y[scored.calibration]]
    gcp = fit(true_scores, dataset.groups[scored.calibration], alpha)
    scores = scored.scores[scored.test]
    y = dataset.y[scored.test]
    group_of_each = dataset.groups[scored.test]
    groups = as_groups(group_of_each, len(y))
    counts = CellCounts.from_scores(scores, gcp.base_threshold, y, groups)
    yield ArmOutcome(Arm.BASE, COMPARED, np.nan, counts)
    counts = CellCounts.from_sets(gcp.sets(scores, group_of_each), y, groups)
    yield ArmOutcome(Arm.BATCH_GCP, COMPARED, np.nan, counts)
    grid = experiments.threshold_grid(scored)
    for metric in COMPARED:
        for guarantee, arm in CF_ARMS.items():
            search = calibration.search(
                metric,
                classwise=True,
                guarantee=guarantee,
                delta=delta,
                grid=grid,
                test=test,
            )
            for c in experiments.asked_closeness(metric, closeness):
                threshold = search.find(c).threshold
                counts = CellCounts.from_scores(scores, threshold, y, groups)
                yield ArmOutcome(arm, [metric], c, counts)


def outcome_rows(outcome: ArmOutcome, split: int) -> list[dict[str, Any]]:
    """The rows of one arm on one split.

    Parameters
    ----------
    outcome : ArmOutcome
    split : int

    Returns
    -------
    list of dict
        As `run` has them, without the facts of the run.

    Examples
    --------
    >>> people = as_groups(["a", "b"], 2)
    >>> counts = CellCounts.from_sets(np.ones((2, 2), bool), np.array([0, 1]), people)
    >>> rows = outcome_rows(ArmOutcome(Arm.BASE, COMPARED, np.nan, counts), split=0)
    >>> [row["disparity"] for row in rows[:2]]
    [0.0, 0.0]
    """
    counts = outcome.counts
    n_points = counts.n_points.sum()
    common: dict[str, Any] = {
        "arm": str(outcome.arm),
        "c": outcome.c,
        "split": split,
        "coverage": counts.hits.sum() / n_points,
        "efficiency": counts.set_sizes.sum() / n_points,
    }
    positive_labels = as_positive_labels(None, len(counts.sizes))
    rows = []
    for (metric, scored_on), measure in MEASURES.items():
        if metric in outcome.metrics:
            own = {
                "metric": metric,
                "scored_on": scored_on,
                "disparity": counts.shares(measure, positive_labels).disparity,
            }
            rows.append(common | own)
    if outcome.arm in (Arm.BASE, Arm.BATCH_GCP):
        for place, group in enumerate(counts.group_names):
            n = counts.n_points[place]
            own = {
                "metric": "group_coverage",
                "scored_on": "true label",
                "group": group,
                "n": n,
                "coverage": counts.hits[place] / n,
            }
            rows.append(common | own)
    return rows


def save_rows(rows: pd.DataFrame) -> Path:
    """Write the rows of one dataset where the profile's rows are, whole or not at all.

    Parameters
    ----------
    rows : DataFrame
        Of `run`.

    Returns
    -------
    Path
        results/runs/<profile>/batch_gcp_<dataset>.parquet
    """
    runs = rows[["profile", "dataset"]].drop_duplicates()
    ((profile, dataset),) = runs.to_numpy()
    path = paths.runs(profile) / f"batch_gcp_{dataset}.parquet"
    with paths.atomic_write(path) as partial:
        rows.to_parquet(partial, index=False, compression="zstd")
    return path
