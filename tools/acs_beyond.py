"""ACS beyond the paper: the sample or the country, and income in dollars.

`weights` audits one predictor of income on the people of the survey, and on those people
thinned by their survey weight PWGTP, which are a sample of the country; and searches
thresholds with and without the weights. `dollars` makes intervals for income itself. Both
write a small table to results/beyond and need the real records (CFHELPERS_DATA).

    python tools/acs_beyond.py weights
    python tools/acs_beyond.py dollars
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from cfhelpers import FairConformalRegressor, audit
from cfhelpers.conformal import conformal_quantile, prediction_sets
from cfhelpers.control import find_threshold
from cfhelpers.datasets import acs
from cfhelpers.datasets._files import local_folders
from cfhelpers.paths import RESULTS
from cfhelpers.weights import thin

FOLDER = RESULTS / "beyond"
STATES = ("FL", "GA", "IL", "MI")
BOUND = 400.0  # larger weights are cut to it
N_TRAIN = 60_000
N_CALIBRATION = 60_000
METRICS = (
    "demographic_parity",
    "disparate_impact",
    "equal_opportunity",
    "overall_accuracy_equality",
)


def survey(
    attribute: str, states: tuple[str, ...] = STATES
) -> tuple[acs.Dataset, np.ndarray]:
    """Workers of some states, and how many people each stands for."""
    year, files = acs.find(None, states, acs.PAPER_HORIZON)
    raw, columns = acs.read("acs_income", files)
    data = acs.prepare(
        "acs_income", raw, columns, attribute=attribute, citation=str(year)
    )
    is_kept, _ = acs.kept_rows("acs_income", raw)
    return data, np.minimum(raw["PWGTP"].to_numpy()[is_kept], BOUND)


def parts_of(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows for training, calibration and test."""
    order = np.random.default_rng(seed).permutation(n)
    cuts = [N_TRAIN, N_TRAIN + N_CALIBRATION]
    train, calibration, test = np.split(order, cuts)
    return train, calibration, test


def pooled(groups: np.ndarray) -> np.ndarray:
    """Groups with less than a hundredth of the people as one."""
    names, codes = np.unique(groups.astype(str), return_inverse=True)
    is_small = np.bincount(codes) < len(groups) / 100
    return np.where(is_small[codes], "any other", names[codes])


def verdict_rows(attribute: str, seed: int) -> list[dict]:
    """The audit of one predictor, on the survey's people and on the country's."""
    data, weights = survey(attribute)
    train, calibration, test = parts_of(len(data.y), seed)
    groups = pooled(np.asarray(data.groups))
    X = data.X.to_numpy()
    model = HistGradientBoostingClassifier(random_state=seed)
    scores = 1 - model.fit(X[train], data.y[train]).predict_proba(X)
    own = scores[calibration, data.y[calibration]]
    threshold = conformal_quantile(own, 0.1)
    kept = test[thin(weights[test], BOUND, seed)]
    rows = []
    for metric in METRICS:
        row = {"grouped by": attribute, "metric": metric}
        for name, people in (("survey", test), ("country", kept)):
            found = audit(
                scores[people],
                data.y[people],
                groups[people],
                metric,
                threshold=threshold,
            )
            row[f"{name}: people"] = len(people)
            row[f"{name}: disparity"] = found.disparities.loc[metric, "disparity"]
            row[f"{name}: verdict"] = found.verdicts[metric]
        args = (scores[calibration], data.y[calibration], groups[calibration])
        thresholds = {
            "survey, plain rule": find_threshold(*args, metric),
            "country, weighted counts": find_threshold(
                *args, metric, sample_weight=weights[calibration]
            ),
            "survey, guarantee": find_threshold(
                *args, metric, guarantee="fixed-sequence"
            ),
            "country, guarantee": find_threshold(
                *args,
                metric,
                guarantee="fixed-sequence",
                sample_weight=weights[calibration],
                weight_bound=BOUND,
                random_state=seed,
            ),
        }
        for name, found in thresholds.items():
            row[f"{name}: threshold"] = found.threshold[0]
            sets = prediction_sets(scores[test], found.threshold)
            row[f"{name}: set size"] = np.average(sets.sum(axis=1), weights=weights[test])
        row["points kept"] = thresholds["country, guarantee"].weighting.n_kept
        row["cost"] = thresholds["country, guarantee"].weighting.cost
        rows.append(row)
    return rows


def workers() -> pd.DataFrame:
    """Workers of 2018 with their income in dollars."""
    for folder in local_folders():
        for path in (folder / "acs", folder):
            found = Path(path) / "workers_2018.parquet"
            if found.exists():
                return pd.read_parquet(found)
    raise FileNotFoundError("workers_2018.parquet is in no local folder of data")


def dollar_rows(seed: int) -> list[dict]:
    """Intervals for income by race: equal coverage of dollars, and of regions."""
    people = workers()
    people = people[people["Income"] > 0].reset_index(drop=True)
    columns = ["Age", "Education", "Occupation", "Workclass", "Marital Status"]
    X = people[columns].copy()
    for column in columns[1:]:
        X[column] = pd.factorize(X[column].astype(str), sort=True)[0]
    y = people["Income"].to_numpy()
    groups = people["Race"].astype(str).to_numpy()
    train, calibration, _ = parts_of(len(y), seed)
    models = []
    for quantile in (0.15, 0.85):
        model = HistGradientBoostingRegressor(
            loss="quantile", quantile=quantile, random_state=seed
        )
        models.append(model.fit(X.iloc[train], y[train]))
    rows = []
    for metric, regions in (
        ("overall_accuracy_equality", None),
        ("equal_opportunity", [50_000]),
        ("equal_opportunity", [100_000]),
    ):
        fair = FairConformalRegressor(
            tuple(models),
            regions=regions,
            metric=metric,
            closeness=0.05,
            alpha=0.3,
            positive_regions=None if regions is None else [1],
            small_groups="leave out",
        )
        fair.fit(
            X.iloc[calibration],
            y[calibration],
            groups[calibration],
            training=(X.iloc[train], y[train]),
        )
        for name, row in fair.summary_.iterrows():
            rows.append(
                {
                    "metric": metric,
                    "regions": "" if regions is None else str(regions),
                    "groups left out": len(fair.promise_.left_out),
                    "intervals": name,
                    **row,
                }
            )
    return rows


def main() -> None:
    """Make one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=("weights", "dollars"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.table == "weights":
        rows = verdict_rows("race", options.seed) + verdict_rows("sex", options.seed)
    else:
        rows = dollar_rows(options.seed)
    table = pd.DataFrame(rows)
    FOLDER.mkdir(exist_ok=True)
    table.to_csv(FOLDER / f"acs_{options.table}.csv", index=False, float_format="%.4f")
    print(table.T.to_string())


if __name__ == "__main__":
    sys.exit(main())
