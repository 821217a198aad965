"""BatchGCP (Jung et al., 2023): a threshold for each group's true labels, solved to its optimum; and what it is worth.

Unlike a conformally fair threshold, it must be told the groups of everyone it predicts for.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.optimize import linprog
from tqdm.auto import tqdm

from cfhelpers import conformal, fairness, paths
from cfhelpers._checks import as_array, as_float_column, as_fraction, as_scores
from cfhelpers.datasets import Dataset
from cfhelpers.graph_scores import score_split
from cfhelpers.groups import as_groups
from cfhelpers.study.models import BaseModel

_TRUE = fairness.METRICS["overall_accuracy_equality"]
MEASURES = {  # a metric, and on which label's coverage it is scored: as CF is, or as the authors scored BatchGCP
    ("demographic_parity", "fixed label"): "demographic_parity",
    ("demographic_parity", "true label"): _TRUE,
    ("disparate_impact", "fixed label"): "disparate_impact",
    ("disparate_impact", "true label"): replace(_TRUE, compare="ratio"),
}
ARMS = {
    "none": "cf",
    "fixed-sequence": "cf_guarantee",
}  # of conformal fairness, by its guarantee
SAME = 0.01  # between the q̂ of a model and of the same model trained on another machine, at most


@dataclass(frozen=True)
class BatchGCP:
    """f̂(x) = q̂ + Σ λ_g over the groups of x; `thresholds` holds q̂ + λ_g, for a point that is in g alone, by name."""

    base_threshold: float
    thresholds: dict[Any, float]

    def threshold(self, groups: Any) -> np.ndarray:
        """The threshold of each point (n,), from its groups as in `fit`."""
        members, names = _members(groups, len(groups), self.thresholds)
        if unknown := [name for name in names if name not in self.thresholds]:
            raise ValueError(
                f"groups: found {unknown[0]!r}; wanted those of the fit, {list(self.thresholds)}"
            )
        if np.isinf(self.base_threshold):
            return np.full(len(members), np.inf)
        alone = np.where(members, [self.thresholds[name] for name in names], 0)
        return alone.sum(axis=1) + (1 - members.sum(axis=1)) * self.base_threshold

    def sets(self, scores: Any, groups: Any) -> np.ndarray:
        """The labels of each point whose score is at most the point's own threshold, boolean (n, K)."""
        scores, threshold = as_scores(scores), self.threshold(groups)
        if len(scores) != len(threshold):
            raise ValueError(
                f"groups: found {len(threshold)} rows for {len(scores)} points; wanted one for each point"
            )
        return scores <= conformal.round_down(threshold, scores.dtype)[:, None]


def fit(scores: Any, groups: Any, alpha: float = 0.1) -> BatchGCP:
    """The optimum of the pinball loss at level 1 - alpha over λ, from the calibration points' true-label scores (n,).

    `groups`: one name per point, or booleans (n, G), a column for each group, where a point may be in several or none.
    Where no point is in two groups, the optimum is each group's own conformal quantile, infinite for a group too small;
    else a linear programme's, which leaves at most a share alpha of each group's calibration points uncovered.
    """
    scores, alpha = as_float_column(scores, "scores"), as_fraction(alpha, "alpha")
    members, names = _members(groups, len(scores))
    if not (present := members.any(axis=0)).all():
        raise ValueError(
            f"groups: found nobody in {names[present.argmin()]!r}; wanted at least one point in each"
        )
    base = conformal.conformal_quantile(scores, alpha)
    if members.sum(axis=1).max() <= 1 or np.isinf(base):
        thresholds = [
            conformal.conformal_quantile(scores[member], alpha) for member in members.T
        ]
    elif np.isinf(scores).any():
        raise ValueError(
            "scores: found an infinite one; wanted finite scores where groups overlap"
        )
    else:
        corrections = _pinball(scores.astype(np.float64) - base, members, alpha)
        thresholds = (
            base + corrections + 1e-12
        ).tolist()  # rounding uncovers none of the points that f̂ goes through
    return BatchGCP(base, dict(zip(names, thresholds, strict=True)))


def _members(groups: Any, n: int, fitted: Any = None) -> tuple[np.ndarray, list]:
    """Who is in which group, boolean (n, G), and the groups' names; of booleans, as many columns as were fitted."""
    array = as_array(groups)
    if array.ndim != 2 or array.dtype != bool:
        found = as_groups(groups, n)
        return found.codes[:, None] == np.arange(len(found)), found.names
    if (
        array.shape != (wanted := (n, array.shape[1] if fitted is None else len(fitted)))
        or not array.size
    ):
        raise ValueError(
            f"groups: found shape {array.shape}; wanted {wanted}, a row per point, a column per group"
        )
    return array, list(groups) if isinstance(groups, pd.DataFrame) else list(
        range(array.shape[1])
    )


def _pinball(residuals: np.ndarray, members: np.ndarray, alpha: float) -> np.ndarray:
    """The λ (G,) of the optimum, by its dual: as many constraints as groups, one bounded variable per point."""
    equal = {
        "A_eq": sparse.csr_array(members.T, dtype=np.float64),
        "b_eq": np.zeros(members.shape[1]),
    }
    options = {
        "presolve": False
    }  # it compares points in pairs: at 100,000 of them 40 times as long as the rest
    found = linprog(
        -residuals,
        **equal,
        bounds=(-alpha, 1 - alpha),
        method="highs-ds",
        options=options,
    )
    if not found.success:
        raise RuntimeError(f"BatchGCP: {found.message}")
    return -found.eqlin.marginals


def run(
    dataset: Dataset, base: BaseModel, cf: pd.DataFrame, alpha: float = 0.1
) -> pd.DataFrame:
    """Tidy rows of the base predictor, of BatchGCP and of conformal fairness, each scored in both ways.

    `cf` are the rows that `experiments.run` gave for this dataset and base model: their splits are taken, with the same
    randomised APS, and their classwise thresholds. Rows with the metric "group_coverage" hold the true-label coverage
    of one `group` of `n` test points.
    """
    rows, metrics = [], sorted({metric for metric, _ in MEASURES})
    cf = cf[(cf["score"] == "aps") & cf["classwise"] & cf["metric"].isin(metrics)]
    if cf.empty:
        raise ValueError(
            f"cf: found no classwise rows of APS for {' and '.join(metrics)}; wanted some of both"
        )
    for split, found in tqdm(
        cf.groupby("split"), f"BatchGCP, {dataset.name}", leave=False
    ):
        scored = score_split(dataset, base.probs, base.parts, "aps", split, alpha=alpha)
        calibration, test = scored.calibration, scored.test
        gcp = fit(
            scored.scores[calibration, dataset.y[calibration]],
            dataset.groups[calibration],
            alpha,
        )
        stored, ours = (
            found[["n_calibration", "base_threshold"]].iloc[0],
            (len(calibration), gcp.base_threshold),
        )
        if stored.iloc[0] != ours[0] or abs(stored.iloc[1] - ours[1]) > SAME:
            facts = "{:.0f} calibration points and q̂ = {:.4f}".format
            wanted = f"{facts(*ours)}, as of this dataset and base model"
            raise ValueError(f"cf: split {split} has {facts(*stored)}; wanted {wanted}")
        scores, y, names = scored.scores[test], dataset.y[test], dataset.groups[test]
        groups = as_groups(names, len(names))
        arms = [
            (
                "base",
                metrics,
                np.nan,
                conformal.prediction_sets(scores, gcp.base_threshold),
            )
        ]
        arms.append(("batch_gcp", metrics, np.nan, gcp.sets(scores, names)))
        for row in found.itertuples():
            arms.append(
                (
                    ARMS[row.guarantee],
                    [row.metric],
                    row.c,
                    conformal.prediction_sets(scores, row.threshold),
                )
            )
        for arm, asked, c, sets in arms:
            common = {
                "arm": arm,
                "c": c,
                "split": split,
                "coverage": conformal.coverage(sets, y),
            }
            common["efficiency"] = conformal.efficiency(sets)
            for (metric, scored_on), measure in MEASURES.items():
                if metric in asked:
                    value = fairness.disparity(sets, y, groups, measure)
                    rows.append(
                        common
                        | {"metric": metric, "scored_on": scored_on, "disparity": value}
                    )
            if asked == metrics:
                table = fairness.group_coverages(sets, y, groups, _TRUE).drop(
                    columns="label"
                )
                common |= {"metric": "group_coverage", "scored_on": "true label"}
                rows += [common | record for record in table.to_dict("records")]
    setting = cf[
        ["dataset", "attribute", "source", "data", "records", "profile", "model", "score"]
    ].iloc[0]
    return pd.DataFrame(rows).assign(**setting)


def save_rows(rows: pd.DataFrame) -> Path:
    """Write the rows of one dataset to results/runs/<profile>/batch_gcp_<dataset>.parquet."""
    ((profile, dataset),) = rows[["profile", "dataset"]].drop_duplicates().to_numpy()
    with paths.atomic_write(
        path := paths.runs(profile) / f"batch_gcp_{dataset}.parquet"
    ) as partial:
        rows.to_parquet(partial, index=False, compression="zstd")
    return path
